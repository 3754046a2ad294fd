"""The state of torch that no argument shows: what captured code was told of it is asked again."""

import contextlib
import subprocess
import sys
import warnings

import pytest
import torch
from torch.autograd import forward_ad
from torch.backends import cuda, cudnn, mkldnn

import oxyfuel
from oxyfuel import _C as core

C = torch._C
pytestmark = pytest.mark.usefixtures("strict")


@contextlib.contextmanager
def switched(change, back):
    change()
    try:
        yield
    finally:
        back()


def setting(setter, value, before):
    return switched(lambda: setter(value), lambda: setter(before))


def flag(setter, getter, *args):
    """A flag of True and False, turned."""
    return lambda: setting(setter, not getter(*args), getter(*args))


def autocast(device, dtype=torch.float16):
    """torch.autocast for devices that are not there."""
    enabled, before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def to(on, dtype):
        torch.set_autocast_enabled(device, on)
        torch.set_autocast_dtype(device, dtype)

    return switched(lambda: to(True, dtype), lambda: to(enabled, before))


def on_cpu():
    return torch.autocast("cpu", dtype=torch.float16)


def deterministic():
    return switched(
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.use_deterministic_algorithms(False),
    )


# By function of the table: (arguments, what changes its answer).
CHANGES = {
    "torch.is_grad_enabled": [((), torch.no_grad)],
    "torch.is_inference_mode_enabled": [((), torch.inference_mode)],
    "torch.is_autocast_enabled": [
        ((), lambda: autocast("cuda")),
        (("cpu",), on_cpu),
        (("cuda",), lambda: autocast("cuda")),
        (("xpu",), lambda: autocast("xpu")),
    ],
    "torch.get_autocast_dtype": [
        (("cpu",), on_cpu),
        (("cuda",), lambda: autocast("cuda", torch.bfloat16)),
        (("mps",), lambda: autocast("mps", torch.bfloat16)),
    ],
    "torch.is_autocast_cpu_enabled": [((), on_cpu)],
    "torch.is_autocast_cache_enabled": [
        ((), flag(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled))
    ],
    "torch.get_default_dtype": [
        ((), lambda: setting(torch.set_default_dtype, torch.float64, torch.float32))
    ],
    "torch.is_anomaly_enabled": [((), lambda: torch.autograd.detect_anomaly(check_nan=True))],
    "torch.is_anomaly_check_nan_enabled": [
        ((), lambda: torch.autograd.set_detect_anomaly(False, check_nan=False))
    ],
    "torch.get_num_threads": [
        ((), lambda: setting(torch.set_num_threads, 3, torch.get_num_threads()))
    ],
    "torch._C._is_torch_function_enabled": [((), C.DisableTorchFunctionSubclass)],
    "torch._C._is_fwd_grad_enabled": [((), lambda: forward_ad._set_fwd_grad_enabled(False))],
    "torch._C._is_multithreading_enabled": [
        ((), lambda: torch.autograd.set_multithreading_enabled(False))
    ],
    "torch._C._get_deterministic_algorithms": [((), deterministic)],
    "torch._C._get_deterministic_algorithms_warn_only": [((), deterministic)],
    "torch._C._get_deterministic_fill_uninitialized_memory": [
        (
            (),
            flag(
                C._set_deterministic_fill_uninitialized_memory,
                C._get_deterministic_fill_uninitialized_memory,
            ),
        )
    ],
    "torch._C._get_float32_matmul_precision": [
        ((), lambda: setting(torch.set_float32_matmul_precision, "high", "highest"))
    ],
    "torch._C._get_fp32_precision_getter": [
        (
            ("mkldnn", "conv"),
            lambda: switched(
                lambda: C._set_fp32_precision_setter("mkldnn", "conv", "bf16"),
                lambda: C._set_fp32_precision_setter("mkldnn", "conv", "none"),
            ),
        )
    ],
    "torch._C._get_warnAlways": [((), flag(torch.set_warn_always, torch.is_warn_always_enabled))],
    "torch._C._get_cudnn_enabled": [((), flag(C._set_cudnn_enabled, C._get_cudnn_enabled))],
    "torch._C._get_cudnn_benchmark": [((), flag(C._set_cudnn_benchmark, C._get_cudnn_benchmark))],
    "torch._C._get_cudnn_deterministic": [
        ((), flag(C._set_cudnn_deterministic, C._get_cudnn_deterministic))
    ],
    "torch._C._get_cudnn_allow_tf32": [
        ((), flag(C._set_cudnn_allow_tf32, C._get_cudnn_allow_tf32))
    ],
    "torch._C._get_mkldnn_enabled": [((), flag(C._set_mkldnn_enabled, C._get_mkldnn_enabled))],
    "torch._C._get_mkldnn_deterministic": [
        ((), flag(C._set_mkldnn_deterministic, C._get_mkldnn_deterministic))
    ],
    "torch._C._get_nnpack_enabled": [((), flag(C._set_nnpack_enabled, C._get_nnpack_enabled))],
    "torch._C._get_flash_sdp_enabled": [((), flag(cuda.enable_flash_sdp, cuda.flash_sdp_enabled))],
    "torch._C._get_math_sdp_enabled": [((), flag(cuda.enable_math_sdp, cuda.math_sdp_enabled))],
    "torch._C._get_mem_efficient_sdp_enabled": [
        ((), flag(cuda.enable_mem_efficient_sdp, cuda.mem_efficient_sdp_enabled))
    ],
    "torch._C._get_cudnn_sdp_enabled": [((), flag(cuda.enable_cudnn_sdp, cuda.cudnn_sdp_enabled))],
    "torch._C._get_overrideable_sdp_enabled": [
        ((), flag(C._set_sdp_use_overrideable, C._get_overrideable_sdp_enabled))
    ],
}
# What can be changed once in a process.
ONCE = {
    "torch.get_num_interop_threads": "torch.set_num_interop_threads(5)",
    "torch._C._get_privateuse1_backend_name": "torch.utils.rename_privateuse1_backend('mine')",
}
# None without a GPU of Intel's, and not to be set.
ELSEWHERE = {"torch._C._get_onednn_allow_tf32"}


def function_of(name):
    found = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def test_every_folded_function_is_here():
    guarded = {name for name, by in core.folded_functions().items() if by != "Fixed"}
    assert guarded == set(CHANGES) | set(ONCE) | ELSEWHERE
    assert all(callable(function_of(name)) for name in core.folded_functions())


@pytest.mark.parametrize(
    ("name", "args", "change"), [(n, a, c) for n, rows in CHANGES.items() for a, c in rows]
)
@pytest.mark.filterwarnings("ignore")
def test_a_folded_answer_is_guarded(name, args, change):
    asked = function_of(name)

    def f(x):
        return x + 1, asked(*args)

    compiled, x = oxyfuel.compile(f, fullgraph=True), torch.zeros(2)
    before = compiled(x)[1]
    assert before == asked(*args)
    for _ in range(2):
        with change():
            now = asked(*args)
            for _ in range(2):
                assert compiled(x)[1] == now
        assert compiled(x)[1] == before
    assert now != before
    is_eager = name == "torch.is_anomaly_enabled"  # the call, where it is
    assert len(compiled.guards()) == (1 if is_eager else 2)
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("name", sorted(ONCE))
def test_what_can_be_changed_once(name):
    program = f"""
import torch, oxyfuel
def f(x): return x + 1, {name}()
compiled = oxyfuel.compile(f, fullgraph=True)
before = compiled(torch.zeros(2))[1]
{ONCE[name]}
now = compiled(torch.zeros(2))[1]
assert before != now == {name}(), (before, now)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_code_that_switches_what_it_asks():
    def f(x):
        told = [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")]
        with torch.no_grad(), torch.autocast("cpu"):
            told += [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")]
            told += [torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cpu")]
        return x * 2, told

    compiled, x = oxyfuel.compile(f), torch.zeros(2)
    for mode in (torch.no_grad, torch.enable_grad, torch.no_grad):
        with mode():
            assert compiled(x)[1] == f(x)[1]
    assert oxyfuel.stats()["fallbacks"] == 0


def test_the_branch_is_that_of_inference_mode():
    def f(x):
        return x + 1 if torch.is_inference_mode_enabled() else x - 1

    compiled, x = oxyfuel.compile(f, fullgraph=True), torch.zeros(2)
    for mode in (torch.no_grad, torch.inference_mode, torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(compiled(x), f(x))
    assert "is_inference_mode_enabled() is False, was True" in compiled.guards()[0].why_not((x,))[1]


def test_captured_code_enters_inference_mode():
    def f(x):
        with torch.inference_mode():
            y = x + 1
            inside = torch.is_inference_mode_enabled()
        return y, inside, torch.is_inference_mode_enabled()

    compiled, x = oxyfuel.compile(f), torch.zeros(2)
    for mode in (torch.no_grad, torch.inference_mode, torch.no_grad):
        with mode():
            ours, eagers = compiled(x), f(x)
            assert torch.equal(ours[0], eagers[0]) and ours[1:] == eagers[1:]
            assert ours[0].is_inference() == eagers[0].is_inference()


BACKENDS = [
    (cudnn, "benchmark"),
    (cudnn, "enabled"),
    (cudnn, "allow_tf32"),
    (cudnn, "deterministic"),
    (mkldnn, "enabled"),
    (mkldnn, "deterministic"),
]


@pytest.mark.parametrize(("module", "name"), BACKENDS)
def test_flags_of_backends(module, name, monkeypatch):
    # torch.testing, which other tests import, allows no assignments to flags
    where = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(where, "__allow_nonbracketed_mutation_flag", True)

    def f(x):
        return x + 1, getattr(module, name)

    def by_name(x):
        return x + 1, torch.backends.cudnn.benchmark, torch.backends.mkldnn.enabled

    x, before = torch.zeros(1), getattr(module, name)
    for function in (f, by_name):
        compiled = oxyfuel.compile(function, fullgraph=True)
        try:
            for value in (before, not before, before):
                setattr(module, name, value)
                assert compiled(x)[1:] == function(x)[1:]
        finally:
            setattr(module, name, before)
    assert oxyfuel.stats()["fallbacks"] == 0


def test_what_a_class_of_modules_finds_elsewhere():
    def f(x):
        return x + 1, torch.backends.mkldnn.VERBOSE_OFF

    compiled, x = oxyfuel.compile(f), torch.zeros(1)
    assert compiled(x)[1] == f(x)[1]
    held = mkldnn.m.VERBOSE_OFF
    mkldnn.m.VERBOSE_OFF = 17
    try:
        assert compiled(x)[1] == f(x)[1] == 17
    finally:
        mkldnn.m.VERBOSE_OFF = held


def leaf_and_not():
    leaf = torch.ones(3, requires_grad=True)
    return [leaf, leaf * 1, torch.ones(3), leaf.detach(), (leaf * 1).view(3), leaf.view(3)]


@pytest.mark.parametrize("grad", [False, True])
def test_is_leaf(grad):
    def f(x):
        return x + 1 if x.is_leaf else x - 1

    def of_results(x):
        y = x.view(-1)
        return y * 2, x.is_leaf, y.is_leaf, (x + 1).is_leaf

    compiled, compiled_results = oxyfuel.compile(f), oxyfuel.compile(of_results)
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            for x in leaf_and_not():
                assert torch.equal(compiled(x), f(x))
                assert compiled_results(x)[1:] == of_results(x)[1:]


def test_is_leaf_behind_a_write():
    def f(x, y):
        before = x.is_leaf
        x.add_(y)
        return before, x.is_leaf, x * 2

    compiled = oxyfuel.compile(f)
    for make in (
        lambda t: t.clone(),
        lambda t: t.requires_grad_(),
        lambda t: t.requires_grad_() * 1,
    ):
        with torch.enable_grad():
            x, same = make(torch.ones(3)), make(torch.ones(3))
        with torch.no_grad():
            ours, eagers = compiled(x, torch.ones(3)), f(same, torch.ones(3))
        assert ours[:2] == eagers[:2] and torch.equal(ours[2], eagers[2])


def test_jit_trace_over_a_compiled_function():
    scale = torch.full((3,), 2.0)

    def f(x):
        return torch.relu(x * scale) + (1 if torch.jit.is_tracing() else 2)

    compiled = oxyfuel.compile(f)
    with torch.no_grad():
        compiled(torch.ones(3))
        traced, same = torch.jit.trace(compiled, torch.ones(3)), torch.jit.trace(f, torch.ones(3))
        for x in (torch.ones(3), torch.tensor([-1.0, 0.5, 3.0]), torch.ones(2, 3)):
            assert torch.equal(traced(x), same(x))
        assert [n.kind() for n in traced.graph.nodes()] == [n.kind() for n in same.graph.nodes()]
        x = torch.tensor([-1.0, 0.5, 3.0])
        assert torch.equal(compiled(x), f(x))


def test_jit_trace_over_a_compiled_module_with_a_break():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3).requires_grad_(False)

        def forward(self, x):
            x = self.linear(x)
            oxyfuel.graph_break()
            return torch.relu(x)

    layer, x = Layer(), torch.randn(2, 3)
    compiled = oxyfuel.compile(layer)
    with torch.no_grad():
        compiled(x)
        traced = torch.jit.trace(lambda x: compiled(x), torch.ones(2, 3))
        assert torch.equal(traced(x), layer(x))


def test_symbolic_tracing_over_a_compiled_function():
    def f(x):
        return torch.relu(x) * 2

    compiled = oxyfuel.compile(f)
    with torch.no_grad():
        compiled(torch.ones(3))
        traced = torch.fx.symbolic_trace(lambda x: compiled(x))
        x = torch.tensor([-1.0, 2.0])
        assert torch.equal(traced(x), f(x))
        assert traced.code == torch.fx.symbolic_trace(f).code
        assert torch.equal(compiled(x), f(x))


def test_forward_mode_ad_keeps_tangents():
    weight = torch.tensor([1.0, 2.0, 3.0])

    def f(x):
        return (x * weight).sin()

    compiled, x, tangent = oxyfuel.compile(f), torch.randn(3), torch.randn(3)
    plain = compiled(x)
    for _ in range(2):
        with forward_ad.dual_level():
            ours, eagers = (
                forward_ad.unpack_dual(g(forward_ad.make_dual(x, tangent))) for g in (compiled, f)
            )
            assert torch.equal(ours.tangent, eagers.tangent)
            assert torch.equal(ours.primal, eagers.primal)
            assert torch.equal(compiled(x), plain)
            assert forward_ad.unpack_dual(compiled(x)).tangent is None
        assert torch.equal(compiled(x), plain)
    assert oxyfuel.stats()["fallbacks"] == 0


def test_forward_mode_ad_of_what_is_no_argument():
    held = {"weight": torch.ones(3)}
    compiled = oxyfuel.compile(lambda x: x * held["weight"])
    x, tangent = torch.randn(3), torch.randn(3)
    with forward_ad.dual_level():
        held["weight"] = forward_ad.make_dual(torch.ones(3), tangent)
        assert torch.equal(forward_ad.unpack_dual(compiled(x)).tangent, x * tangent)
        # An eager call of one kind of tensor does not stand for another.
        held["weight"] = torch.ones(3)
        assert torch.equal(compiled(x), x)
    oxyfuel.reset()
    compiled(x)
    assert oxyfuel.stats()["plans"] == 1


def test_a_tensor_gets_a_tangent():
    def f(x):
        return x * x

    compiled, x = oxyfuel.compile(f), torch.randn(3)
    other = torch.compile(f, backend="oxyfuel")
    for g in (compiled, other):
        g(x)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones(3))
            assert torch.equal(forward_ad.unpack_dual(g(dual)).tangent, 2 * x)
        assert torch.equal(g(dual), x * x)


def test_captured_code_that_makes_duals():
    def f(x, tangent):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, tangent)
            return forward_ad.unpack_dual(dual * dual).tangent

    x, tangent = torch.randn(3), torch.randn(3)
    compiled = oxyfuel.compile(f)
    for _ in range(2):
        assert torch.equal(compiled(x, tangent), f(x, tangent))


def test_jvp_over_a_compiled_function():
    def f(x):
        return torch.sin(x) * x

    compiled, x, tangent = oxyfuel.compile(f), torch.randn(3), torch.randn(3)
    compiled(x)
    ours, eagers = (torch.func.jvp(g, (x,), (tangent,)) for g in (compiled, f))
    assert torch.equal(ours[0], eagers[0]) and torch.equal(ours[1], eagers[1])
    assert torch.equal(torch.func.jacfwd(compiled)(x), torch.func.jacfwd(f)(x))


@pytest.mark.parametrize("record_shapes", [False, True])
def test_a_profiler_does_not_see_the_recording(record_shapes):
    def names(f):
        x = torch.ones(2, 3, requires_grad=True)
        with torch.autograd.profiler.profile(record_shapes=record_shapes) as profile:
            f(x).backward()
        return [e.name for e in profile.function_events]

    found = names(oxyfuel.compile(lambda x: x.sin().softmax(-1).sum()))
    assert "aten::sin" not in found and "aten::softmax" not in found
    assert names(lambda x: x.sin().sum()).count("aten::sin") == 1


def test_the_default_device():
    def f(x):
        return x + torch.ones(3).sum(), torch.ones(2)

    compiled, x = oxyfuel.compile(f), torch.zeros(3)
    compiled(x)
    torch.set_default_device("meta")
    try:
        assert compiled(torch.zeros(3))[1].device == f(torch.zeros(3))[1].device
    finally:
        torch.set_default_device(None)
    assert compiled(x)[1].device.type == "cpu"
