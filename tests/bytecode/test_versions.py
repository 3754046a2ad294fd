"""The bytecode layer on each version of CPython that this machine has: built without torch, checked
by check.py. For a version that it lacks, against a record of it: check_recorded.py."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
HAS_HEADERS = """
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))
"""


def has_headers(python):
    return subprocess.run([python, "-c", HAS_HEADERS], check=False).returncode == 0


def interpreter(version):
    """A Python of this version with its headers; skips the test where there is none."""
    name = "python{}.{}".format(*version)
    found = [sys.executable] if sys.version_info[:2] == version else []
    found += filter(None, [shutil.which(name)])
    found += sorted(pathlib.Path.home().glob(f".pyenv/versions/*/bin/{name}"))
    for python in found:
        if has_headers(python):
            return str(python)
    pytest.skip(f"no {name} with its headers on PATH or in ~/.pyenv")


def program(name):
    beside = pathlib.Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    return found or pytest.skip(f"no {name}")


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def built(version, bytecode_of=""):
    """(interpreter, folder with the module oxyfuel_bytecode for it)"""
    python, cmake, ninja = interpreter(version), program("cmake"), program("ninja")
    folder = ROOT / "build" / "bytecode-{}".format(bytecode_of or "{}.{}".format(*version))
    options = ["-DOXYFUEL_BYTECODE_ONLY=ON", f"-DPython_EXECUTABLE={python}"]
    options += [f"-DOXYFUEL_BYTECODE_OF={bytecode_of}"]
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    run(cmake, "-S", str(ROOT), "-B", str(folder), *generator, *options)
    run(cmake, "--build", str(folder))
    return python, folder


@pytest.mark.parametrize("minor", [10, 11, 12, 13, 14])
def test_the_standard_library_of(minor):
    python, folder = built((3, minor))
    said = run(python, str(ROOT / "tests/bytecode/check.py"), str(folder))
    assert "code objects" in said


def test_the_record_of_3_14():
    python, folder = built((3, 11), "3.14")
    said = run(python, str(ROOT / "tests/bytecode/check_recorded.py"), "check", "3.14", str(folder))
    assert "code objects of 3.14" in said


def imported(python, program):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [python, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("minor", [9])
def test_importing_oxyfuel_says_which_versions_it_captures(minor):
    said = imported(interpreter((3, minor)), "import oxyfuel")
    assert f"ImportError: Oxyfuel captures code of CPython 3.10 to 3.13; this is 3.{minor}" in said


def test_importing_oxyfuel_says_that_it_does_not_capture_3_14():
    pretend = "import sys; sys.version_info, sys.version = (3, 14, 0), '3.14.0'"
    said = imported(sys.executable, f"{pretend}; import oxyfuel")
    assert "ImportError: Oxyfuel captures code of CPython 3.10 to 3.13; this is 3.14.0" in said
