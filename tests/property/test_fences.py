"""Kernels do not touch what lies outside of their buffers: some of the programs of `./dev
fences`."""

import subprocess
import sys
from pathlib import Path

import pytest
from fences import SANITIZER, environment, run, sanitizer_library

PROGRAMS = {"start": 12, "end": 20, "address": 5}
NO_SANITIZER = pytest.mark.skipif(not sanitizer_library(), reason="no address sanitizer of clang's")


@pytest.mark.parametrize("fence", ["start", "end", pytest.param("address", marks=NO_SANITIZER)])
def test_programs_stay_inside(fence):
    done = run(fence, first=1, count=PROGRAMS[fence])
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-4000:]}"


@pytest.mark.parametrize("fence", ["start", "end"])
def test_upsampled_rows_stay_inside(fence):
    tests = Path(__file__).parents[1] / "e2e/test_sampling_rules.py"
    command = [sys.executable, "-m", "pytest", "-q", str(tests), "-k", "widths_of_upsampled_rows"]
    done = subprocess.run(command, env=environment(fence), capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-4000:]}"


@NO_SANITIZER
def test_the_sanitizer_is_there(tmp_path):
    """Code compiled as the kernels are is stopped where it reads behind a block."""
    source, library = tmp_path / "fifth.cpp", tmp_path / "fifth.so"
    source.write_text('extern "C" int fifth(const int* p) { return p[4]; }')
    subprocess.run([*SANITIZER.split(), "-shared", "-fPIC", source, "-o", library], check=True)
    code = f"""
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
block = libc.malloc(16)
ctypes.CDLL({str(library)!r}).fifth(ctypes.c_void_p(block))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment("address"), capture_output=True, text=True
    )
    assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr
