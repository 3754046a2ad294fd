"""The backend as a user meets it: options, counters, what runs in eager, and hostile
surroundings."""

import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch._higher_order_ops import while_loop

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

ROOT = Path(__file__).resolve().parents[2]


def compiled(f, **options):
    return oxyfuel.compile_fx(torch.fx.symbolic_trace(f), options=options)


def wave(x, w):
    return (x @ w).sin().softmax(-1) + 1


def wave_inputs(rows=6):
    return torch.randn(rows, 16), torch.randn(16, 24)


def python(program, **environment):
    """A fresh process; a variable that is None is taken away."""
    merged = {**os.environ, **environment}
    merged = {k: v for k, v in merged.items() if v is not None}
    done = subprocess.run(
        [sys.executable, "-c", program], env=merged, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What a process prints that compiles `wave`: whether it is right, fallbacks, kernels.
PROGRAM = """
import torch
{0}
def wave(x, w):
    return (x @ w).sin().softmax(-1) + 1
x, w = torch.randn(6, 16), torch.randn(16, 24)
with torch.no_grad():
    y = torch.compile(wave, backend="oxyfuel")(x, w)
import oxyfuel
stats = oxyfuel.stats()
print(torch.allclose(y, wave(x, w), atol=1e-5), stats["graphs"], stats["fallbacks"],
      stats["kernels"])
"""


def entry_point_is_installed():
    import importlib.metadata

    found = importlib.metadata.entry_points(group="torch_dynamo_backends")
    return any(e.name == "oxyfuel" for e in found)


@pytest.mark.parametrize("line", ["import oxyfuel", ""])
def test_with_and_without_an_import(line):
    if not line and not entry_point_is_installed():
        pytest.skip("the entry point is not installed")
    right, graphs, fallbacks, kernels = python(PROGRAM.format(line)).split()
    assert (right, graphs, fallbacks) == ("True", "1", "0") and int(kernels) > 0


@pytest.mark.skipif(not entry_point_is_installed(), reason="the entry point is not installed")
def test_without_an_import_in_a_script_and_its_processes(tmp_path):
    """A user's program in a folder of theirs, which never names Oxyfuel but as a backend."""
    (tmp_path / "program.py").write_text(
        """
import multiprocessing
import sys
import torch

assert "oxyfuel" not in sys.modules

@torch.compile(backend="oxyfuel")
def f(x):
    return x.sin() + 1

def work(n):
    x = torch.full((n,), 2.0)
    assert torch.equal(f(x), x.sin() + 1)
    return sys.modules["oxyfuel"].stats()["graphs"]

if __name__ == "__main__":
    assert "oxyfuel" in torch.compiler.list_backends()
    found = [work(3)]
    for method in ("spawn", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            found.append(pool.apply(work, (3,)))
    print(found)
"""
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**environment, "OXYFUEL_STRICT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1, 1, 1]\n"


def test_a_package_that_is_not_installed_registers_its_name():
    program = """
import importlib.metadata
def absent(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.distribution = absent
import oxyfuel, torch
assert "oxyfuel" in torch._dynamo.backends.registry._COMPILER_FNS
f = torch.compile(lambda x: x + 1, backend="oxyfuel")
print(f(torch.ones(1)).item(), oxyfuel.stats()["graphs"])
"""
    assert python(program) == "2.0 1\n"


def test_no_home_and_no_compiler():
    surroundings = {"HOME": None, "XDG_CACHE_HOME": None, "CXX": None, "PATH": ""}
    right, graphs, fallbacks, _ = python(PROGRAM.format("import oxyfuel"), **surroundings).split()
    assert (right, graphs, fallbacks) == ("True", "1", "0")


@pytest.mark.parametrize("compiler", ["auto", "external"])
def test_a_home_that_cannot_be_written(compiler, tmp_path):
    home = tmp_path / "file"
    home.write_text("")  # also root cannot make a folder below a file
    surroundings = {"HOME": str(home), "XDG_CACHE_HOME": None, "OXYFUEL_COMPILER": compiler}
    right, graphs, fallbacks, _ = python(PROGRAM.format("import oxyfuel"), **surroundings).split()
    assert (right, graphs, fallbacks) == ("True", "1", "0")


def test_unknown_option_names_the_known():
    with pytest.raises(ValueError, match="fusoin") as e:
        compiled(wave, fusoin=False)
    assert all(o.name in str(e.value) for o in oxyfuel.known_options())
    with pytest.raises(Exception, match="fusoin"):
        torch.compile(torch.sin, backend="oxyfuel", options={"fusoin": False})(torch.ones(3))


@pytest.mark.parametrize(
    "options", [{"gemm_backend": "mkl"}, {"fusion": "maybe"}, {"vector_bytes": 7}]
)
def test_bad_value(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        compiled(wave, **options)


def test_disable(monkeypatch):
    monkeypatch.setenv("OXYFUEL_DISABLE", "1")
    x = torch.randn(5)
    assert torch.equal(torch.compile(torch.sin, backend="oxyfuel")(x), x.sin())
    assert oxyfuel.stats()["kernels"] == 0 and oxyfuel.stats()["plans"] == 0


def test_stats_and_reset():
    f = torch.compile(wave, backend="oxyfuel")
    f(*wave_inputs())
    stats = oxyfuel.stats()
    assert {"graphs", "kernels", "extern_calls", "fallbacks", "compile_seconds"} <= set(stats)
    assert stats["graphs"] == 1 and stats["kernels"] > 0 and stats["fallbacks"] == 0
    assert stats["compile_seconds"] > 0
    oxyfuel.reset()
    assert not any(v for k, v in oxyfuel.stats().items() if k != "pool_live_bytes")
    f(*wave_inputs())  # the plan was forgotten, the function still works
    assert oxyfuel.stats()["plans"] == 1


CHOICES = [
    {"compiler": "clang"},
    {"compiler": "external"},
    {"compiler": "none"},
    {"vector_bytes": 0},
    {"vector_bytes": 32},
    {"kernels": False},
    {"fusion": False},
    {"gemm_backend": "own"},
    {"gemm_backend": "onednn"},
    {"gemm_backend": "aten"},
    {"decompose": False},
    {"verify": True},
    {"streaming_stores": False},
]


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_every_choice_gives_the_right_result(options):
    if options.get("compiler") == "external" and not (
        shutil.which("g++") or shutil.which("clang++-19")
    ):
        pytest.skip("no C++ compiler")
    x, w = wave_inputs()
    torch.testing.assert_close(compiled(wave, **options)(x, w), wave(x, w))
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("vector_bytes", [32, 64])
@pytest.mark.parametrize("cxx", ["", "g++"])
def test_elements_of_each_size(cxx, vector_bytes):
    """Gathers, masked loads and positions, from memory that begins inside of a word."""
    if cxx and not shutil.which(cxx):
        pytest.skip(f"no {cxx}")

    def pick(x, i):
        return x[:, i], torch.cat([x[:, ::2], x[:, :3]], 1), x.triu(1)

    def pick_and_find(x, i):
        return (*pick(x, i), x.argmax(-1), x.argmin(-1))

    options = {"compiler": "external", "cxx": cxx} if cxx else {}
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.int64,
        torch.uint8,
        torch.bool,
    ):
        x = (torch.randn(1 + 20 * 21) * 9).abs().to(dtype)[1:].view(20, 21)
        i = torch.randint(0, 21, (33,))
        oxyfuel.reset()
        fn = pick if dtype == torch.bool else pick_and_find
        found = compiled(fn, vector_bytes=vector_bytes, **options)(x, i)
        assert oxyfuel.stats()["fallbacks"] == 0
        torch.testing.assert_close(found, fn(x, i))


# ------------------------------------------------------------------------------- what runs in eager


def warned(f, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = f(*args)
    return result, [str(w.message) for w in caught if "oxyfuel" in str(w.message)]


def test_a_call_that_needs_gradients_is_compiled():
    f = compiled(lambda x: x.sin() * 2)
    x = torch.randn(4, requires_grad=True)
    with torch.enable_grad():
        for _ in range(2):
            y, said = warned(f, x)
            assert said == [] and y.requires_grad
            y.sum().backward()
    torch.testing.assert_close(x.grad, 4 * x.detach().cos())
    assert oxyfuel.stats()["grad_fallbacks"] == 0


class Subclass(torch.Tensor):
    pass


def eager_only_inputs():
    x = torch.randn(3, 4)
    return {
        "subclass": x.as_subclass(Subclass),
        "sparse": x.to_sparse(),
        "complex": torch.randn(3, 4, dtype=torch.complex64),
        "quantised": torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    }


@pytest.mark.parametrize("kind", ["subclass", "sparse", "complex", "quantised"])
def test_inputs_that_are_not_compiled(kind):
    f = compiled(lambda x: torch.clone(x))
    x = eager_only_inputs()[kind]
    result, said = warned(f, x)
    assert type(result) is type(x) and result.dtype == x.dtype and result.layout == x.layout
    if kind != "complex":  # may be compiled as calls of ATen's ops
        assert len(said) == 1 and oxyfuel.stats()["unsupported"] == 1
    assert warned(f, x)[1] == []
    dense = (lambda t: t.dequantize()) if kind == "quantised" else (lambda t: t.to_dense())
    assert torch.equal(dense(result), dense(x))
    assert oxyfuel.stats()["fallbacks"] == 0


WRONG = {
    "shape": (torch.randn(6, 15), torch.randn(16, 24)),
    "dtype": (torch.randn(6, 16), torch.randn(16, 24, dtype=torch.float64)),
    "rank": (torch.randn(6, 16), torch.randn(2, 16, 24, 1, 1)),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_inputs_raise_as_in_eager(kind):
    f = compiled(wave)
    f(*wave_inputs())
    with pytest.raises(Exception) as expected:
        wave(*WRONG[kind])
    with pytest.raises(type(expected.value)) as found:
        f(*WRONG[kind])
    assert str(found.value) == str(expected.value)
    torch.testing.assert_close(f(*wave_inputs()).sum(-1), torch.full((6,), 25.0))


def mutating(x, y):
    x.add_(y)
    return (x * 2).sin()


def broken_compiler(monkeypatch):
    return {"compiler": "external", "cxx": "false"}


def broken_recording(monkeypatch):
    from oxyfuel import _C, compiler

    class Broken:
        def __getattr__(self, name):
            return getattr(_C, name)

        def compile(self, *_):
            return "failed", "InternalError: injected"

    monkeypatch.setattr(compiler, "_C", Broken())
    return {}


@pytest.mark.parametrize("fault", [broken_compiler, broken_recording])
def test_an_internal_failure_gives_eagers_result_and_one_warning(fault, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "0")
    f = compiled(mutating, **fault(monkeypatch))
    x, y = torch.zeros(4), torch.ones(4)
    result, said = warned(f, x, y)
    torch.testing.assert_close(result, torch.full((4,), 2.0).sin())
    assert torch.equal(x, y)  # written once
    if oxyfuel.stats()["fallbacks"]:
        assert len(said) == 1
        assert warned(f, x, y)[1] == []
        assert torch.equal(x, 2 * y) and oxyfuel.stats()["fallbacks"] == 2
    else:  # a compiler that does not work is no compiler: calls of ATen's ops
        assert fault is broken_compiler and oxyfuel.stats()["kernels"] == 0


def test_strict_raises(monkeypatch):
    broken_recording(monkeypatch)
    with pytest.raises(oxyfuel.InternalError, match="injected"):
        compiled(mutating)(torch.zeros(4), torch.ones(4))


# ---------------------------------------------------------------------------- threads, forks, sizes


def test_two_threads_call_one_function():
    f = compiled(wave)
    failures = []

    def work(rows):
        with torch.no_grad():  # per thread
            for _ in range(30):
                inputs = wave_inputs(rows)
                try:
                    torch.testing.assert_close(f(*inputs), wave(*inputs))
                except Exception as e:
                    failures.append(e)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (6, 6, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_fork_after_a_compilation():
    program = """
import os, torch, oxyfuel
f = oxyfuel.compile_fx(torch.fx.symbolic_trace(lambda x: x.sin() + 1))
x = torch.randn(200)
with torch.no_grad():
    f(x)
    child = os.fork()
    good = all(torch.allclose(f(x[:n]), x[:n].sin() + 1, atol=1e-6) for n in (200, 150))
    if child == 0:
        os._exit(0 if good else 1)
print(good, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert python(program).split() == ["True", "0"]


@pytest.mark.parametrize("dynamic", [True, None])
def test_changing_sizes(dynamic):
    def f(x, w):
        y = wave(x, w)
        return y.reshape(-1)[: x.shape[0] * 2] * x.shape[0], x.shape[0] + 1

    g = torch.compile(f, backend="oxyfuel", dynamic=dynamic)
    for rows in (6, 7, 9, 1, 6):
        inputs = wave_inputs(rows)
        (a, n), (b, m) = g(*inputs), f(*inputs)
        torch.testing.assert_close(a, b)
        assert n == m
    assert oxyfuel.stats()["fallbacks"] == 0


# ---------------------------------------------------------------- a parameter changes between calls


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.scale = torch.nn.Parameter(torch.rand(8))
        self.register_buffer("shift", torch.rand(8))

    def forward(self, x):
        return torch.relu(self.linear(x.to(self.scale.dtype)) * self.scale + self.shift)


def data_write(m):
    m.scale.data.mul_(2)
    m.linear.weight.data.add_(1)


def data_swap(m):
    m.scale.data = torch.rand(8)
    m.linear.weight.data = torch.randn(8, 8)


def data_shrink(m):
    m.linear.weight.data = torch.randn(1, 8)
    m.linear.bias.data = torch.randn(1)


def data_transposed(m):
    m.linear.weight.data = torch.randn(8, 8).t()


def load_assign(m):
    m.load_state_dict(Layer().state_dict(), assign=True)


def optimizer_step(m):
    for p in m.parameters():
        p.grad = torch.ones_like(p)
    torch.optim.AdamW(m.parameters(), lr=0.1, foreach=True).step()
    torch.optim.Adam(m.parameters(), lr=0.1, fused=True).step()


def numpy_write(m):
    m.shift.numpy()[2:] = 5
    m.linear.weight.detach().numpy()[0] = 3


def dlpack_write(m):
    torch.from_dlpack(m.scale.detach()).fill_(4)


def in_inference_mode(m):
    with torch.inference_mode():
        m.scale.mul_(3)
        m.shift.add_(1)


def set_storage(m):
    m.scale.set_(torch.rand(8))


def resize(m):
    m.shift.resize_(1)


def replace_in_dict(m):
    m._parameters["scale"] = torch.nn.Parameter(torch.rand(8))
    m._buffers["shift"] = torch.rand(1)


def swap(m):
    torch.utils.swap_tensors(m.scale, torch.nn.Parameter(torch.rand(8)))


CHANGES = {
    "data_write": data_write,
    "data_swap": data_swap,
    "data_shrink": data_shrink,
    "data_transposed": data_transposed,
    "double": lambda m: m.double(),
    "bfloat16": lambda m: m.bfloat16(),
    "load_state_dict": lambda m: m.load_state_dict(Layer().state_dict()),
    "load_assign": load_assign,
    "optimizer_step": optimizer_step,
    "numpy_write": numpy_write,
    "dlpack_write": dlpack_write,
    "inference_mode": in_inference_mode,
    "set_": set_storage,
    "resize_": resize,
    "requires_grad_": lambda m: m.requires_grad_(False),
    "in_dict": replace_in_dict,
    "swap_tensors": swap,
}
OPTIONS = {"kernels": {}, "extern": {"kernels": False}}


def both(model, call, x):
    torch.testing.assert_close(call(x), model(x))


# swap_tensors refuses a tensor that anybody else holds, and a plan holds the attributes that it was
# made for.
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("change", [c for c in CHANGES if c != "swap_tensors"])
def test_a_parameter_changes(change, options):
    """Attributes of a graph that torch.fx captured: nothing guards them but the compiled graph
    itself."""
    model, x = Layer(), torch.randn(4, 8)
    module = torch.fx.symbolic_trace(model)
    call = oxyfuel.compile_fx(module, options=OPTIONS[options])
    both(module, call, x)
    CHANGES[change](module)
    both(module, call, x)
    CHANGES[change](module)
    both(module, call, x)
    assert oxyfuel.stats()["fallbacks"] == oxyfuel.stats()["unsupported"] == 0


@pytest.mark.parametrize("change", CHANGES)
def test_a_parameter_changes_under_dynamo(change):
    """Parameters arrive as inputs."""
    model, x = Layer(), torch.randn(4, 8)
    call = torch.compile(model, backend="oxyfuel")
    both(model, call, x)
    CHANGES[change](model)
    both(model, call, x)
    assert oxyfuel.stats()["fallbacks"] == oxyfuel.stats()["unsupported"] == 0


def test_branches_and_loops_of_dynamo_are_compiled():
    def run(x):
        y = torch.cond(x.sum() > 0, lambda a: a.sin() + 1, lambda a: a * 2, (x,))
        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t + y), (start, y))

    def plain(x):
        y = x.sin() + 1 if x.sum() > 0 else x * 2
        return torch.tensor(3), y + y + y + y

    f = torch.compile(run, backend="oxyfuel", fullgraph=True)
    for x in (torch.ones(4), -torch.ones(4), torch.arange(4.0)):
        torch.testing.assert_close(f(x), plain(x))
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["unsupported"], stats["fallbacks"]) == (1, 0, 0)
