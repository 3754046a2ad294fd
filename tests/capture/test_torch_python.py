"""torch's Python in captured code: hooks, containers, parametrisations, modes, library ops, number
generators. As eager."""

import contextlib
import copy
import subprocess
import sys

import pytest
import torch
from snapshot import outcome, outcome_differences
from torch._higher_order_ops import while_loop
from torch.nn.utils import parametrizations, parametrize

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]
CASES = {}


def case(build):
    """`build` makes a function and its arguments."""
    CASES[build.__name__] = build
    return build


def call(function):
    """A function of one 3 x 4 tensor."""
    CASES[function.__name__] = lambda: (function, (torch.randn(3, 4),))
    return function


class Held(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("absent", None)
        self.register_buffer("passing", torch.ones(4), persistent=False)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        return self.inner(x) * self.passing + (0 if self.absent is None else self.absent)


# ---- modules


@case
def buffers():
    return Held(), (torch.randn(3, 4),)


@case
def every_forward_hook():
    m, log = Held(), []
    m.register_forward_pre_hook(lambda m, a: log.append("pre"))
    m.register_forward_pre_hook(lambda m, a, k: ((a[0] + 1,), k), with_kwargs=True)
    m.inner.register_forward_hook(lambda m, a, out: out * 2)
    m.register_forward_hook(lambda m, a, k, out: log.append(len(k)), with_kwargs=True)
    m.register_forward_hook(lambda m, a, out: log.append("always"), always_call=True)
    m.register_forward_hook(lambda m, a, out: log.append("first"), prepend=True)

    def run(x):
        return m(x), list(log)

    return run, (torch.randn(3, 4),)


@case
def a_hook_that_is_removed():
    m = Held()

    class Hidden:  # handles are numbered throughout the process
        handle = m.register_forward_hook(lambda m, a, out: out + 1)

    def run(x):
        first = m(x)
        Hidden.handle.remove()
        return first, m(x)

    return run, (torch.randn(3, 4),)


@case
def global_hooks():
    m = Held()

    def run(x):
        with contextlib.ExitStack() as stack:
            made = torch.nn.modules.module.register_module_forward_hook(lambda m, a, out: out + 1)
            stack.callback(made.remove)
            return m(x)

    return run, (torch.randn(3, 4),)


@case
def containers():
    class Many(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.list = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
            self.dict = torch.nn.ModuleDict({"a": torch.nn.ReLU(), "b": torch.nn.Tanh()})
            self.numbers = torch.nn.ParameterList([torch.ones(4), torch.zeros(4)])
            self.named = torch.nn.ParameterDict({"k": torch.ones(4)})
            self.row = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())

        def forward(self, x):
            for i, layer in enumerate(self.list[1:]):
                x = layer(x) + i
            for key, layer in self.dict.items():
                x = layer(x) * len(key)
            x = x + self.numbers[0] + sum(p for p in self.numbers) + self.named["k"]
            names = [n for n, _ in self.named_parameters()]
            return self.row[0](x), self.row(x), len(self.list), "a" in self.dict, names

    return Many(), (torch.randn(3, 4),)


@case
def a_module_made_and_added_inside():
    m = Held()

    def run(x):
        m.extra = torch.nn.ReLU()
        return m.extra(m(x)), [name for name, _ in m.named_children()]

    return run, (torch.randn(3, 4),)


@case
def weight_norm():
    return parametrizations.weight_norm(torch.nn.Linear(4, 4)), (torch.randn(3, 4),)


@case
def a_parametrisation_of_the_user_s():
    class Symmetric(torch.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

    m = torch.nn.Linear(4, 4)
    parametrize.register_parametrization(m, "weight", Symmetric())
    return m, (torch.randn(3, 4),)


@case
def functional_call():
    m = Held()
    state = {name: t + 1 for name, t in m.state_dict().items()}
    state["passing"] = torch.full((4,), 2.0)
    return lambda x: torch.func.functional_call(m, state, (x,)), (torch.randn(3, 4),)


# ---- modes


@call
def no_grad_and_back(x):
    with torch.no_grad():
        a = x * 2, torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        b = x * 3, torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    c = x * 4, torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    with torch.enable_grad():
        d = x * 5, torch.is_grad_enabled()
    return a, b, c, d


@torch.no_grad()
def decorated(x):
    return x + 1, torch.is_grad_enabled()


@call
def a_decorated_function(x):
    return decorated(x), torch.is_grad_enabled()


@call
def inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        inside = torch.is_inference_mode_enabled()
    return y.sum(), inside, torch.is_inference_mode_enabled()


@call
def default_dtype(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    made = torch.ones(3)
    torch.set_default_dtype(before)
    return x + 1, made, torch.ones(2)


@call
def default_device(x):
    with torch.device("cpu"):
        return x + torch.ones(4), torch.get_default_device()


@call
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        with torch.autocast("cpu", enabled=False):
            z = x @ x.T
    return y, z, torch.is_autocast_enabled("cpu")


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.sin else out


@call
def a_torch_function_mode_inside(x):
    with Doubling():
        y = torch.sin(x)
    return y + torch.sin(x)


@case
def a_torch_function_mode_around():
    def inner(x):
        return torch.sin(x) + 1

    compiled = oxyfuel.compile(inner, backend="eager")

    def run(x):
        with Doubling():
            return compiled(x)

    return run, (torch.randn(3),)


class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out


@case
def a_subclass_of_tensors():
    return lambda x, n: (x + 1, n * 2, n + x), (torch.randn(3), torch.randn(3).as_subclass(Named))


# ---- control flow, transforms, functions with gradients


@call
def cond_of_a_constant(x):
    return torch.cond(x.shape[0] > 2, lambda a: a + 1, lambda a: a - 1, (x,))


@call
def transforms(x):
    return torch.vmap(lambda r: r * r.sum())(x) + 1


@call
def a_transform_that_is_refused(x):
    return torch.func.functionalize(lambda r: r.clone().mul_(2))(x)


@call
def checkpoint(x):
    return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False) + 1


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power):
        ctx.save_for_backward(x)
        ctx.power = power
        return x**power

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * ctx.power, None


class Same(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x, x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[1])


class SameAndSaved(Same):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


@call
def autograd_functions(x):
    same, double = Same.apply(x)
    return Square.apply(x, 2) + double, same is x, same + 1


@call
def an_autograd_function_that_eager_refuses(x):
    return SameAndSaved.apply(x)


@call
def sizes_that_depend_on_data(x):
    return x[x > 0].sum(), x.nonzero().shape[1], torch.unique(x.round()).sum()


@call
def values(x):
    y = x * 2
    if y.sum().item() > 0:
        y = y - 1
    return y, y.tolist(), int(x.numel()), y[0].tolist()[1]


@call
def shapes(x):
    n, m = x.shape
    half = x.size(-1) // 2
    flat = x.view(n * m)
    return flat.view(*x.shape), x[:, :half], x.reshape(-1, half), len(x), x.shape[0] * 2 + m, -n % 3


# ---- the number generator


@call
def random_numbers(x):
    return x + torch.rand(3, 4), torch.randn_like(x), torch.nn.functional.dropout(x, 0.5)


@call
def seeds(x):
    torch.manual_seed(3)
    a = torch.rand(2)
    state = torch.get_rng_state()
    b = torch.rand(2)
    torch.set_rng_state(state)
    return x + 1, a, b, torch.rand(2)


@call
def forked_generator(x):
    with torch.random.fork_rng():
        a = torch.rand(2)
    return x + 1, a, torch.rand(2)


@case
def a_generator_of_its_own():
    g = torch.Generator().manual_seed(1)
    return lambda x: x + torch.rand(4, generator=g), (torch.randn(3, 4),)


# ---- NumPy, copies, caches, autograd state


@call
def numpy(x):
    import numpy as np

    scale = np.sqrt(16.0) / 2
    y = x * scale
    a = np.tanh(y.numpy())
    return torch.from_numpy(a) + 1, float(scale)


@case
def a_copied_configuration():
    class Config:
        def __init__(self):
            self.width, self.layers, self.nested = 4, ["a", "b"], {"k": [1, 2]}

    config = Config()

    def run(x):
        mine = copy.deepcopy(config)
        mine.layers.append("c")
        mine.nested["k"][0] += 1
        return x * mine.width, mine, copy.copy(config).layers is config.layers

    return run, (torch.randn(3),)


@case
def attributes_of_tensors():
    x, plain = torch.randn(3), torch.randn(3)
    x.scale = 2.0

    def run(x, y):
        return x * getattr(x, "scale", 1.0), hasattr(y, "scale"), y * getattr(y, "scale", 3.0)

    return run, (x, plain)


@case
def detached_and_leaf():
    w = torch.nn.Parameter(torch.ones(3))
    return lambda x: (w.detach() * x, w.requires_grad, x.is_leaf, w.data + 1), (torch.randn(3),)


class Ops:
    """What torch keeps of its ops is not compared."""


@torch.library.custom_op("oxyfuel_tests::shift", mutates_args=())
def shift_op(x: torch.Tensor, by: float) -> torch.Tensor:
    return x + by


@shift_op.register_fake
def _(x, by):
    return torch.empty_like(x)


@torch.library.custom_op("oxyfuel_tests::fill", mutates_args={"x"})
def fill_op(x: torch.Tensor, value: float) -> None:
    x.fill_(value)


@torch.library.custom_op("oxyfuel_tests::raise_all", mutates_args={"written"})
def raise_op(x: torch.Tensor, written: list[torch.Tensor]) -> torch.Tensor:
    for t in written:
        t += 1
    return x * 2


@raise_op.register_fake
def _(x, written):
    return torch.empty_like(x)


Ops.moved, Ops.filled, Ops.raised = shift_op, fill_op, raise_op


@call
def library_ops(x):
    y = x.clone()
    Ops.filled(y, 2.0)
    return Ops.moved(x, 1.5) + torch.ops.oxyfuel_tests.shift(y, by=0.5), y


@call
def lists_that_library_ops_write(x):
    y, z = x.clone(), torch.zeros(2, 4)
    even, odd = z.view(2, 2, 2).unbind(1)
    return Ops.raised(x, [y, z[0], z[1]]), Ops.raised(even, [odd]), y, z + 1


@call
def library_ops_that_write_what_is_another_argument(x):
    y, z = x.clone(), x.clone()
    results = Ops.raised(y, [y]), Ops.raised(z, [z[1:]]), Ops.raised(x, [z[0], z[:2]])
    return *results, Ops.raised(x, [z[:, :2], z[:, 1:3]]), y, z


@call
def packets(x):
    one, place = x.new_ones(()), torch.zeros(1, 1, dtype=torch.int64)
    aten = torch.ops.aten
    return (
        aten.scatter(x, -1, place, x),
        aten.scatter(x, -1, index=place, value=2.0),
        aten.masked_fill(aten.fill(x, one), x > 0, one * 2),
        aten.clamp(x, one, x),
        aten.lerp(x, x + 1, x),
        aten.cat([x, x]),
    )


@call
def functions_in_c_behind_those_in_python(x):
    return torch._VF.broadcast_tensors([x, x[:1]])


def outcomes(build, compiled):
    torch.manual_seed(0)
    function, args = build()
    run = compiled(function)
    torch.manual_seed(1)
    return [outcome(run, function, args, {}) for _ in range(3)]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", CASES)
def test_as_in_eager(name, backend):
    with torch.no_grad():
        expected = outcomes(CASES[name], lambda f: f)
        found = outcomes(CASES[name], lambda f: oxyfuel.compile(f, backend=backend))
    for e, f in zip(expected, found):
        assert not outcome_differences(e, f)


@pytest.mark.parametrize("name", ["autograd_functions", "no_grad_and_back", "transforms"])
def test_as_in_eager_with_gradients(name):
    expected = outcomes(CASES[name], lambda f: f)
    found = outcomes(CASES[name], lambda f: oxyfuel.compile(f, backend="eager"))
    for e, f in zip(expected, found):
        assert not outcome_differences(e, f)


@pytest.mark.parametrize(
    "name",
    ["every_forward_hook", "containers", "functional_call", "weight_norm", "buffers", "shapes",
     "autocast", "no_grad_and_back", "a_decorated_function", "library_ops", "cond_of_a_constant",
     "a_copied_configuration", "attributes_of_tensors", "autograd_functions", "random_numbers",
     "checkpoint", "transforms", "lists_that_library_ops_write", "packets",
     "functions_in_c_behind_those_in_python"],
)  # fmt: skip
def test_in_one_graph(name):
    with torch.no_grad():
        function, args = CASES[name]()
        oxyfuel.compile(function, fullgraph=True, backend="eager")(*args)


@pytest.mark.parametrize(
    "name, reason",
    [
        ("a_transform_that_is_refused", "a transform of torch.func"),
        ("sizes_that_depend_on_data", "the size of a result depends on the values of a tensor"),
        ("values", "Python needs the value of a tensor"),
    ],
)
def test_breaks_have_reasons_of_their_own(name, reason):
    """Graphs of the backend "eager" have no sizes and numbers of data."""
    with torch.no_grad():
        function, args = CASES[name]()
        with pytest.raises(oxyfuel.GraphBreak, match=reason):
            oxyfuel.compile(function, fullgraph=True, backend="eager")(*args)


def test_a_gradient_through_an_autograd_function_is_in_the_graph():
    def run(x):
        return Square.apply(x, 2)

    x = torch.ones(2, requires_grad=True)
    oxyfuel.compile(run, fullgraph=True)(x).sum().backward()
    assert torch.equal(x.grad, torch.autograd.grad(run(x).sum(), x)[0])


def cond_and_more(x, extra):
    y = torch.cond(x.sum() > 0, lambda a, b: a + b["k"][0], lambda a, b: a - 1, (x, extra))
    same = torch.cond((y > 9).any(), lambda a: a, lambda a: (a.sin(), a), (y,))
    return x, y, same


def test_cond_with_a_tensor():
    compiled = oxyfuel.compile(cond_and_more)
    k = torch.arange(3.0)
    for x in (torch.ones(3), -torch.ones(3), torch.full((3,), 20.0)):
        for _ in range(2):
            given, y, same = compiled(x, {"k": [k]})
            want = x + k if x.sum() > 0 else x - 1
            assert given is x and torch.equal(y, want)
            if (want > 9).any():
                assert torch.equal(same, want) and same is not y
            else:
                assert torch.equal(same[0], want.sin()) and torch.equal(same[1], want)
                assert same[1] is not y


def test_while_loop_with_tensors():
    def run(x, n):
        count, out = torch.while_loop(
            lambda i, t: i < n, lambda i, t: (i + 1, t * 2 + i), (torch.tensor(0), x)
        )
        return out.sin(), count

    compiled = oxyfuel.compile(run)
    x = torch.randn(4)
    for n in (0, 3, 5, 40):
        want, count = x, 0
        while count < n:
            want, count = want * 2 + count, count + 1
        out, got = compiled(x, torch.tensor(n))
        torch.testing.assert_close(out, want.sin())
        assert got.item() == n
    first, _ = compiled(x, torch.tensor(0))
    assert first is not x


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.cond(x, lambda a: a, lambda a: a, (x,)),
        lambda x: torch.cond("no", lambda a: a, lambda a: a, (x,)),
        lambda x: torch.cond(x.sum() > 0, None, lambda a: a, (x,)),
        lambda x: torch.cond(x.sum() > 0, lambda a: a, lambda a: a, (x, 3)),
        lambda x: torch.while_loop(None, lambda a: (a,), (x,)),
        lambda x: torch.while_loop(lambda a: a.sum() > 0, lambda a: (a,), ("x",)),
        lambda x: torch.while_loop(lambda a: a > 0, lambda a: (a,), (x,)),
    ],
)
def test_wrong_arguments_of_control_flow(call):
    with pytest.raises((RuntimeError, AssertionError)):
        oxyfuel.compile(call)(torch.ones(2))


def test_an_attribute_that_a_tensor_gets_later_is_seen():
    compiled = oxyfuel.compile(lambda x: x * getattr(x, "scale", 1.0), backend="eager")
    x = torch.ones(2)
    assert compiled(x).tolist() == [1, 1]
    x.scale = 3.0
    assert compiled(x).tolist() == [3, 3]
    assert compiled(torch.ones(2)).tolist() == [1, 1]


def test_a_compared_float_makes_no_capture_for_each_value():
    def run(x):
        if x.sum().item() > 0:
            return x + 1
        return x - 1

    compiled = oxyfuel.compile(run, backend="eager")
    for i in range(1, 30):
        assert torch.equal(compiled(torch.full((2,), float(i))), torch.full((2,), i + 1.0))
    assert torch.equal(compiled(torch.full((2,), -1.0)), torch.full((2,), -2.0))
    assert oxyfuel.stats()["recompiles"] <= 1


@pytest.mark.parametrize("operation", ["<", "<=", "==", "!=", ">", ">="])
def test_comparisons_of_arguments(operation):
    run = eval(
        f"lambda x, n, m: x + (1 if n {operation} 2 else 2) + (10 if 3.5 {operation} m else 20)"
    )
    same = eval(f"lambda x, n, m: x + (1 if n {operation} m else 2)")
    compiled, compiled_same = (oxyfuel.compile(f, backend="eager") for f in (run, same))
    nan = float("nan")
    x = torch.zeros(1)
    for n, m in [
        (1, 1.0),
        (2, 3.5),
        (3, 4),
        (2.0, 5),
        (nan, nan),
        (True, False),
        (2**70, -1),
        (1, 1.0),
    ]:
        assert compiled(x, n, m).item() == run(x, n, m).item()
        assert compiled_same(x, n, m).item() == same(x, n, m).item()


def test_a_loop_behind_a_break_has_one_capture_for_all_rounds():
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(20))

    def run(x):
        for i, layer in enumerate(layers):
            x = layer(x)
            oxyfuel.graph_break()
            x = x + 1 if i < 100 else x
        return x, i

    with torch.no_grad():
        x = torch.randn(2, 4)
        expected = run(x)
        compiled = oxyfuel.compile(run, backend="eager")
        for _ in range(2):
            found = compiled(x)
            assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
    assert oxyfuel.stats()["graphs"] <= 4


@pytest.mark.parametrize(
    "kind", ["list", "tuple", "range", "keys", "values", "items", "zip", "enumerate"]
)
def test_iterators_that_were_there_before_are_moved_on(kind):
    def fresh():
        table = {"a": 1, "b": 2, "c": 3}
        return {
            "list": lambda: iter([1, 2, 3]),
            "tuple": lambda: iter((1, 2, 3)),
            "range": lambda: iter(range(1, 4)),
            "keys": lambda: iter(table),
            "values": lambda: iter(table.values()),
            "items": lambda: iter(table.items()),
            "zip": lambda: zip([1, 2, 3], (4, 5)),
            "enumerate": lambda: enumerate([5, 6, 7], 2),
        }[kind]()

    def run(x, items, count):
        taken = []
        for item in items:
            taken.append(item)
            if len(taken) == count:
                break
        return x + len(taken), taken, next(items, "none")

    compiled = oxyfuel.compile(run, backend="eager")
    for count in (1, 2, 1, 5):
        a, b = fresh(), fresh()
        expected, found = run(torch.ones(2), a, count), compiled(torch.ones(2), b, count)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
        assert list(a) == list(b)
    moved = fresh()
    next(moved)
    assert compiled(torch.ones(2), moved, 1)[1] == run(torch.ones(2), _after(fresh()), 1)[1]


def _after(iterator):
    next(iterator)
    return iterator


def test_a_list_that_is_written_while_it_is_gone_through():
    def run(x, items, rest):
        first = next(rest)
        items.append(9)
        return x + first, list(rest)

    compiled = oxyfuel.compile(run, backend="eager")
    for _ in range(2):
        a, b = [1, 2], [1, 2]
        expected, found = run(torch.ones(2), a, iter(a)), compiled(torch.ones(2), b, iter(b))
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1] and a == b


def loops(x):
    def body(i, t):
        return i + 1, t * 2 + i

    i, y = while_loop(lambda i, t: t.sum() < 50, body, (torch.tensor(0), x))
    return i, y - 1


def test_a_loop_of_torch_is_a_fixed_number_of_graphs():
    compiled = oxyfuel.compile(loops, backend="eager")
    compiled(torch.ones(2))
    graphs = oxyfuel.stats()["graphs"]
    compiled(torch.ones(2) / 64)
    assert oxyfuel.stats()["graphs"] == graphs <= 4


def test_branches_do_not_bring_torch_dynamo_along():
    text = """
import sys, torch, oxyfuel
def run(x):
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
compiled = oxyfuel.compile(run, backend="eager")
assert compiled(torch.ones(2)).tolist() == [2, 2]
assert compiled(-torch.ones(2)).tolist() == [-2, -2]
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_modes_of_the_user_are_seen_and_ours_is_not():
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

    class Heard(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.ops = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.ops.append(str(function))
            return function(*args, **(kwargs or {}))

    def run(x):
        return x + 1, len(_get_current_dispatch_mode_stack())

    compiled = oxyfuel.compile(run, fullgraph=True)
    x = torch.ones(2)
    with torch.no_grad():
        assert compiled(x)[1] == 0
        with Heard() as heard:
            assert compiled(x)[1] == 1
        assert heard.ops == ["aten.add.Tensor"]
        assert compiled(x)[1] == 0


def test_attention_in_inference_is_one_graph():
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    compiled = oxyfuel.compile(model, fullgraph=True)
    with torch.no_grad():
        got, expected = compiled(x, x, x), model(x, x, x)
    torch.testing.assert_close(got, expected)


def test_questions_about_a_tensor_are_no_break():
    def run(x):
        asked = (
            torch.is_signed(x),
            torch.is_conj(x.conj()),
            torch.is_neg(x),
            torch.is_same_size(x, x.T),
        )
        return x + 1, asked

    compiled = oxyfuel.compile(run, fullgraph=True)
    with torch.no_grad():
        for x in (torch.ones(2, 2), torch.ones(2, 3), torch.ones(2, 2, dtype=torch.uint8)):
            assert compiled(x)[1] == run(x)[1]


def test_the_storage_offset_of_what_was_written():
    def run(x):
        before = x.storage_offset()
        x.mul_(2)
        after = x.storage_offset()
        oxyfuel.graph_break()
        return before, after, x.as_strided((2,), (1,), after), x[1:].storage_offset()

    for backend in ("eager", "native"):
        compiled = oxyfuel.compile(run, backend=backend)
        for offset in (3, 2, 0):
            mine, theirs = torch.arange(10.0), torch.arange(10.0)
            found, expected = compiled(mine[offset:]), run(theirs[offset:])
            assert found[:2] == expected[:2] and found[3] == expected[3]
            assert torch.equal(found[2], expected[2]) and torch.equal(mine, theirs)


def test_a_user_may_replace_what_no_function_of_torch_calls(monkeypatch):
    f = oxyfuel.compile(torch.nn.functional.l1_loss, fullgraph=True)
    x = torch.ones(3)
    for name in ("load", "compile"):
        f(x, x + 1)
        monkeypatch.setattr(torch, name, lambda *args: None)
    assert f(x, x + 1) == 1 and oxyfuel.stats()["graphs"] == 1


def test_one_break_in_front_of_what_changes_torchs_state():
    def seeded(x):
        torch.seed()
        return x.sin()

    def deterministic(x):
        torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled())
        return x.cos()

    state = torch.get_rng_state()
    for f in (seeded, deterministic):
        before = oxyfuel.stats()["graph_breaks"]
        x = torch.ones(3)
        torch.testing.assert_close(oxyfuel.compile(f)(x), f(x))
        assert oxyfuel.stats()["graph_breaks"] - before == 1
    torch.set_rng_state(state)


@pytest.mark.parametrize("overload", ("default", "by"))
def test_an_overload_that_nobody_has_asked_for_yet(overload):
    """torch keeps it in its packet when it is looked up."""
    library = torch.library.Library(f"overloads_{overload}", "DEF")
    library.define("scale(Tensor x, int k=2) -> Tensor")
    library.define("scale.by(Tensor x, int k=2, *, bool twice) -> Tensor")
    library.impl("scale", lambda x, k=2: x * k, "CompositeImplicitAutograd")
    library.impl("scale.by", lambda x, k=2, *, twice: x * k, "CompositeImplicitAutograd")
    options = {"twice": True} if overload == "by" else {}
    packet = getattr(torch.ops, f"overloads_{overload}")
    oxyfuel.reset()

    def f(x):
        return getattr(packet.scale, overload)(x, 3, **options)

    torch.testing.assert_close(oxyfuel.compile(f)(torch.ones(2)), torch.full((2,), 3.0))
    assert oxyfuel.stats()["graph_breaks"] == 0
