"""Other compilers in one process with Oxyfuel, imported before it and after it: each does its own
work and gets its own results (docs/process.md)."""

import importlib.util
import os
import subprocess
import sys

import pytest

# Each program below is a function of its own work, which checks its results.
OURS = """
import torch

def oxyfuel_works(layers=3):
    import oxyfuel

    def model(x, w):
        y = torch.nn.functional.gelu(x @ w).softmax(-1)
        return y, x.sin().cumsum(0).sum(1)

    def broken(x):
        y = x.cos() + 1
        print(end="")
        return y.exp()

    torch.manual_seed(0)
    x, w = torch.randn(48, 64), torch.randn(64, 32)
    parts = [(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)) for _ in range(layers)]
    network = torch.nn.Sequential(*(torch.nn.Sequential(*part) for part in parts))
    oxyfuel.reset()
    with torch.no_grad():
        for f, args in ((model, (x, w)), (broken, (x,)), (network, (x,))):
            expected = f(*args)
            for compiled in (oxyfuel.compile(f), torch.compile(f, backend="oxyfuel")):
                torch._dynamo.reset()
                for _ in range(2):
                    torch.testing.assert_close(compiled(*args), expected)
    stats = oxyfuel.stats()
    assert stats["kernels"] > 0 and stats["fallbacks"] == stats["unsupported"] == 0, stats
"""

THEIRS = {
    "numba": """
import numba
import numpy

def theirs():
    @numba.njit(parallel=True)
    def total(values):
        result = 0.0
        for i in numba.prange(len(values)):
            result += numpy.sin(values[i])
        return result

    values = numpy.linspace(0, 1, 10_000)
    numpy.testing.assert_allclose(total(values), numpy.sin(values).sum())
""",
    "jax": """
import jax
import numpy

def theirs():
    a = numpy.random.default_rng(0).random((30, 40), dtype="float32")
    found = jax.jit(lambda a: jax.nn.softmax(a @ a.T))(a)
    expected = numpy.exp(a @ a.T)
    numpy.testing.assert_allclose(found, expected / expected.sum(-1, keepdims=True), rtol=1e-4)
""",
    # Triton, which TorchDynamo imports where it is installed, may abort beside TensorFlow's LLVM.
    "tensorflow": """
import sys
sys.modules["triton"] = None
import numpy
import tensorflow

def theirs():
    a = numpy.random.default_rng(0).random((30, 40), dtype="float32")
    found = tensorflow.function(lambda a: tensorflow.nn.softmax(a @ a[:, :30]), jit_compile=True)
    a = a[:, :30].copy()
    expected = numpy.exp(a @ a)
    numpy.testing.assert_allclose(found(a), expected / expected.sum(-1, keepdims=True), rtol=1e-4)
""",
    "triton": """
import triton
import triton.language

def theirs():
    @triton.jit
    def kernel(x, n: triton.language.constexpr):
        triton.language.store(x, triton.language.load(x) + n)

    # For a GPU that need not be there.
    source = triton.compiler.ASTSource(kernel, {"x": "*fp32", "n": "constexpr"}, {"n": 2})
    made = triton.compile(source, target=triton.backends.compiler.GPUTarget("cuda", 80, 32))
    assert "entry kernel" in made.asm["ptx"]
""",
    "onnxruntime": """
import numpy
import onnxruntime

def theirs():
    assert "CPUExecutionProvider" in onnxruntime.get_available_providers()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.ones((2, 3), "float32"))
    assert value.numpy().sum() == 6
""",
    "torchao": """
import warnings
import torch
import torchao

def theirs():
    import oxyfuel
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
    quantize_(network, Int8WeightOnlyConfig())
    x = torch.randn(8, 64)
    with torch.no_grad(), warnings.catch_warnings():
        # Our one warning: its tensors are a subclass, which is not compiled.
        warnings.filterwarnings("ignore", message="oxyfuel: a tensor subclass")
        expected = network(x)
        for compiled in (torch.compile(network, backend="oxyfuel"), oxyfuel.compile(network)):
            torch._dynamo.reset()
            for _ in range(2):
                torch.testing.assert_close(compiled(x), expected)
    assert oxyfuel.stats()["fallbacks"] == 0
""",
    "torch._inductor": """
import torch

def theirs():
    def f(x):
        return x.sin().softmax(-1) * 2

    torch._dynamo.reset()
    x = torch.randn(20, 30)
    torch.testing.assert_close(torch.compile(f)(x), f(x))
""",
}


@pytest.fixture
def run(tmp_path):
    return lambda name, *parts: run_in(tmp_path, name, "\n".join([*parts, "print('end')"]))


def run_in(folder, name, program):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    environment = {
        **os.environ,
        "OXYFUEL_STRICT": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "oxyfuel:" not in done.stderr  # no warning of ours
    assert done.stdout == "end\n"


@pytest.mark.parametrize("name", THEIRS)
def test_oxyfuel_first(run, name):
    run(name, OURS, "oxyfuel_works()", THEIRS[name], "theirs()", "oxyfuel_works(4)", "theirs()")


@pytest.mark.parametrize("name", THEIRS)
def test_oxyfuel_last(run, name):
    run(name, THEIRS[name], "theirs()", OURS, "oxyfuel_works()", "theirs()", "oxyfuel_works(4)")


# Beside each other, and in forked processes once both have worked. Those that have threads of their
# own do not work in a forked process themselves.
TOGETHER = """
import multiprocessing
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

def child(_):
    oxyfuel_works()

class Squares(torch.utils.data.Dataset):
    def __init__(self, f):
        self.f = f
    def __len__(self):
        return 8
    def __getitem__(self, i):
        with torch.no_grad():
            return self.f(torch.tensor([float(i)]))

with ThreadPoolExecutor(2) as pool:
    for done in [pool.submit(f) for f in (oxyfuel_works, theirs)]:
        done.result()
time.sleep(1)  # a thread that ends gives MKL its memory back, under a lock that a fork would copy
warnings.filterwarnings("ignore", message=".*fork", category=RuntimeWarning)
warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
context = multiprocessing.get_context("fork")
with context.Pool(2, torch.set_num_threads, (1,)) as pool:
    pool.map(child, range(4))
import oxyfuel
squares = Squares(oxyfuel.compile(lambda x: x * x + 1))
loader = torch.utils.data.DataLoader(squares, batch_size=4, num_workers=2)
assert torch.cat(list(loader)).flatten().tolist() == [i * i + 1.0 for i in range(8)]
theirs()
oxyfuel_works(4)
"""


@pytest.mark.parametrize("name", ["numba", "jax", "tensorflow", "triton", "onnxruntime"])
def test_threads_and_forks(run, name):
    run(name, THEIRS[name], OURS, TOGETHER)


BOTH = """
import torch
import oxyfuel

def f(x, n):
    y = x.sin() * n
    print(end="")
    return y.softmax(-1) + n

def of_torch(f):
    return torch.compile(f, backend="oxyfuel")

x = torch.randn(30, 40)
with torch.no_grad():
    compiled = [make(f) for make in (oxyfuel.compile, torch.compile, of_torch)]
    for n in (2, 3):
        for g in (*compiled, *reversed(compiled)):
            torch.testing.assert_close(g(x, n), f(x, n))
"""

# Each graph break is one in the other's frame.
NESTED = """
    def calls(inner):
        def g(x):
            y = x + 1
            print(end="")
            return inner(y, 2) - 1
        return g

    for make_inner in (oxyfuel.compile, of_torch, torch.compile):
        for make_outer in (oxyfuel.compile, of_torch, torch.compile):
            torch._dynamo.reset()
            oxyfuel.reset()
            g = make_outer(calls(make_inner(f)))
            for _ in range(3):
                torch.testing.assert_close(g(x), calls(f)(x))
            assert oxyfuel.stats()["fallbacks"] == 0
            if torch.compile not in (make_inner, make_outer):
                assert oxyfuel.stats()["graphs"] == 4
"""


def test_both_compile_one_function(run):
    run("torch", BOTH)


def test_one_calls_what_the_other_has_compiled(run):
    run("torch", BOTH, NESTED)
