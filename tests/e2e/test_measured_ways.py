"""Graphs of a few ops that go on as kernels or as ATen's ops by what their first calls take: in a
process of its own each, with a cache folder of its own."""

import os
import subprocess
import sys

import pytest

CALLS = """
import torch, oxyfuel

def f(x):
    return torch.special.erfcx(x) * 2

def big(x):
    for _ in range(5):
        x = x.sin() + 1
    return x

x = torch.rand(200, 300, dtype=torch.float64)
with torch.no_grad():
    for function, given in ((f, x), (f, x.t()), (torch.neg, x), (big, x)):
        compiled = oxyfuel.compile(function, options={"strict": True})
        for _ in range(30):
            got = compiled(given)
            expected = function(given)
            assert got.stride() == expected.stride()
            torch.testing.assert_close(got, expected)
            assert got.data_ptr() != given.data_ptr()
print(oxyfuel.stats()["fallbacks"])
"""


def run(folder, code, **more):
    env = {**os.environ, "OXYFUEL_CACHE_DIR": str(folder), "OXYFUEL_MEASURED_WAYS": "all", **more}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def lines(folder):
    return [line.split() for file in folder.glob("ways-*.txt") for line in open(file)]


def test_both_ways_give_the_result_and_one_is_kept(tmp_path):
    assert run(tmp_path, CALLS) == "0"
    found = lines(tmp_path)
    assert len(found) == 3  # a layout each of the small graphs; the large one is not measured
    assert all(len(key) == 32 and way in ("ops", "kernels") for key, way in found)


KERNELS = """
import torch, oxyfuel
x = torch.rand(200, 300)
with torch.no_grad():
    compiled = oxyfuel.compile(torch.neg)
    for _ in range(30):
        assert torch.equal(compiled(x), -x)
print(oxyfuel.stats()["kernels"], oxyfuel.stats()["extern_calls"])
"""


@pytest.mark.parametrize("way, counts", [("ops", "0 1"), ("kernels", "1 0")])
def test_what_was_found_holds_in_the_next_process(tmp_path, way, counts):
    run(tmp_path, KERNELS)
    (file,) = tmp_path.glob("ways-*.txt")
    ((key, _),) = lines(tmp_path)
    file.write_text(f"{key} {way}\n")
    assert run(tmp_path, KERNELS) == counts
    assert lines(tmp_path) == [[key, way]]


EXACT = """
import torch, oxyfuel
options = {"strict": True}
x = torch.rand(50, 60)
for function in (torch.fliplr, torch.exp, lambda x: (x > 0.5).sum(), lambda x: x.sum()):
    compiled = oxyfuel.compile(function, options=options)
    for _ in range(30):
        torch.testing.assert_close(compiled(x), function(x))
y = x.clone().requires_grad_()
compiled = oxyfuel.compile(torch.fliplr, options=options)
for _ in range(30):
    compiled(y).sum().backward()
assert torch.equal(y.grad, torch.full_like(y, 30))
"""


def test_what_cannot_differ_is_measured_without_being_asked(tmp_path):
    run(tmp_path, EXACT, OXYFUEL_MEASURED_WAYS="")
    assert len(lines(tmp_path)) == 2


ITERATED = """
import torch, oxyfuel
x = torch.randn(50, 60).abs() + 1.1
compiled = oxyfuel.compile(torch.special.zeta, options={"strict": True})
first = compiled(x, x)
torch.testing.assert_close(first, torch.special.zeta(x, x))
for _ in range(30):
    assert torch.equal(compiled(x, x), first)
"""


def test_functions_of_many_steps_are_measured_in_the_first_call(tmp_path):
    run(tmp_path, ITERATED, OXYFUEL_MEASURED_WAYS="")
    assert len(lines(tmp_path)) == 1
    other = tmp_path / "other"
    run(
        other,
        "import torch; torch.use_deterministic_algorithms(True)" + ITERATED,
        OXYFUEL_MEASURED_WAYS="",
    )
    assert not lines(other)


def test_a_damaged_file_is_measured_again(tmp_path):
    run(tmp_path, KERNELS)
    (file,) = tmp_path.glob("ways-*.txt")
    file.write_bytes(b"\xff\x00 garbage \n\n one")
    run(tmp_path, KERNELS)


def test_switched_off(tmp_path):
    run(tmp_path, KERNELS, OXYFUEL_MEASURED_WAYS="off")
    assert not lines(tmp_path)


def test_the_log_tells_what_was_found(tmp_path):
    env = {**os.environ, "OXYFUEL_CACHE_DIR": str(tmp_path), "OXYFUEL_MEASURED_WAYS": "all"}
    env["OXYFUEL_LOGS"] = "autotuning"
    done = subprocess.run([sys.executable, "-c", KERNELS], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    ((key, way),) = lines(tmp_path)
    assert f"[oxyfuel autotuning] {key}\nkernels " in done.stderr
    assert done.stderr.rstrip().endswith(f" ms: {way}")


def test_deterministic_algorithms_are_not_measured(tmp_path):
    run(tmp_path, "import torch; torch.use_deterministic_algorithms(True)" + KERNELS)
    assert not lines(tmp_path)
