"""What users tell the compiler, under torch.compiler's names and ours."""

import functools
import operator

import pytest
import torch
import torch.utils.checkpoint

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict_without_grad"), pytest.mark.filterwarnings("ignore")]
BOTH = pytest.mark.parametrize("where", [torch.compiler, oxyfuel], ids=["torch", "oxyfuel"])


KEPT = []  # torch marks functions by their ids, for good


def targets(function, *args):
    """The graphs of a call: names of what they call."""
    graphs = []

    def backend(gm, _):
        calls = [n for n in gm.graph.nodes if n.op in ("call_function", "call_method")]
        graphs.append([getattr(n.target, "__name__", n.target) for n in calls])
        return gm.forward

    compiled = oxyfuel.compile(function, backend=backend)
    expected = function(*args)
    for _ in range(2):
        found = compiled(*args)
        assert torch.equal(found, expected)
    return graphs


@BOTH
def test_disable(where):
    @where.disable
    def hidden(x):
        return x * 2

    assert targets(lambda x: hidden(x + 1) - 1, torch.ones(2)) == [["add"], ["sub"]]


def test_what_torch_has_compiled_is_followed():
    weight = torch.ones(2, requires_grad=True)

    class Inner(torch.nn.Module):
        scale = 2

        @torch.compile(backend="eager", fullgraph=True)
        def scaled(self, x, *, by=1):
            return x * self.scale * by

        def forward(self, x):
            return self.scaled(x, by=weight) + 1

    inner = Inner()
    outside = torch.compile(lambda x: x + FACTORS[0], backend="eager", dynamic=True)
    module = torch.compile(torch.nn.ReLU(), backend="eager")
    compiled = oxyfuel.compile(lambda x: outside(module(inner(x))))

    def check(n):
        x = torch.ones(n, 2)
        with torch.enable_grad():
            found, expected = compiled(x), (x * inner.scale * weight + 1).relu() + FACTORS[0]
        assert torch.equal(found, expected) and found.requires_grad

    for n in (1, 2, 3, 4):
        check(n)
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["fallbacks"] == 0 and stats["recompiles"] <= 2
    FACTORS[0] = 5.0
    inner.scale = 3
    check(3)


FACTORS = [4.0]


def test_disable_of_the_frame_alone():
    @torch.compiler.disable(recursive=False)
    def hidden(x):
        return x * 2

    found = targets(lambda x: hidden(x + 1) - 1, torch.ones(2))
    assert found[0] == ["add"] and found[-1] == ["sub"]


@BOTH
def test_allow_in_graph(where):
    def opaque(x, n):
        return torch.sin(x) * n

    where.allow_in_graph(opaque)
    assert targets(lambda x: opaque(x + 1, 3) - 1, torch.ones(2)) == [["add", "opaque", "sub"]]


@BOTH
def test_disallow_in_graph(where):
    def left_out(x):
        return x * 2

    KEPT.append(left_out)
    if where is torch.compiler:
        where.allow_in_graph(left_out)  # torch insists
        torch._dynamo.disallow_in_graph(left_out)
    else:
        where.disallow_in_graph(left_out)
    with pytest.raises(oxyfuel.GraphBreak, match="disallow_in_graph"):
        oxyfuel.compile(lambda x: left_out(x) + 1, fullgraph=True)(torch.ones(2))
    found = targets(lambda x: left_out(x + 1) - 1, torch.ones(2))
    assert found[0] == ["add"] and found[-1] == ["sub"]


@BOTH
def test_substitute_in_graph(where):
    seen = []

    def original(a, b, /):  # of this test alone: nothing takes a substitute back
        return operator.indexOf(a, b)

    @where.substitute_in_graph(original)
    def substitute(a, b, /):
        seen.append("substitute")
        return next(i for i, item in enumerate(a) if item is b or item == b)

    compiled = oxyfuel.compile(lambda x: x + original([1, 2, 3], 3), fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + original([1, 2, 3], 3))
    assert seen == ["substitute"]


@BOTH
def test_assume_constant_result(where):
    calls = []

    @where.assume_constant_result
    def looked_up(n):
        calls.append(n)
        return len(calls) * 10 + n

    compiled = oxyfuel.compile(lambda x: x + looked_up(3), fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + 13)
    assert calls == [3]


@BOTH
def test_is_compiling(where):
    assert not where.is_compiling()
    compiled = oxyfuel.compile(lambda x: x + (1 if where.is_compiling() else 2), fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 1


def test_other_questions():
    def run(x):
        return (
            x + (10 if torch.compiler.is_dynamo_compiling() else 0) + torch.compiler.is_exporting()
        )

    assert oxyfuel.compile(run, fullgraph=True)(torch.zeros(1)).item() == 10


def counting():
    """A function that notes when its own code runs, which captured code does not."""
    import sys

    def run(x, n=1):
        if not torch.compiler.is_compiling():
            ran.append(sys.getrecursionlimit() and "eager")
        return x + n

    ran = []
    return run, ran


@BOTH
def test_force_eager(where):
    run, ran = counting()
    compiled = oxyfuel.compile(run)
    compiled(torch.ones(2))
    ran.clear()
    with where.set_stance("force_eager"):
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + 1)
    assert ran == ["eager"]
    compiled(torch.ones(2))
    assert ran == ["eager"]


@BOTH
def test_eager_on_recompile(where):
    run, ran = counting()
    compiled = oxyfuel.compile(run)
    compiled(torch.ones(2))
    ran.clear()
    with where.set_stance("eager_on_recompile"):
        compiled(torch.ones(2))
        assert ran == []
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3) + 1)
        assert ran == ["eager"]
    assert oxyfuel.stats()["recompiles"] == 0


@BOTH
def test_fail_on_recompile(where):
    run, _ = counting()
    compiled = oxyfuel.compile(run)
    compiled(torch.ones(2))
    with where.set_stance("fail_on_recompile"):
        compiled(torch.ones(2))
        with pytest.raises(RuntimeError) as found:
            compiled(torch.ones(3))
    code = run.__code__
    assert str(found.value).startswith(
        "Detected recompile when torch.compile stance is 'fail_on_recompile'. filename: "
        f"'{code.co_filename}', function name: '{code.co_name}', line number: "
        f"{code.co_firstlineno}\n    triggered by the following guard failure(s):\n    - L["
    )
    compiled(torch.ones(3))


@BOTH
@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_eager_then_compile(where, stance):
    run, ran = counting()
    compiled = oxyfuel.compile(run)
    with where.set_stance(stance):
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + 1)
    assert ran == ["eager"]


def test_a_stance_as_a_function_and_a_decorator():
    run, ran = counting()
    compiled = oxyfuel.compile(run)

    @oxyfuel.set_stance("force_eager")
    def outer():
        return compiled(torch.ones(2))

    outer()
    assert ran == ["eager"]
    compiled(torch.ones(2))
    assert ran == ["eager"]
    oxyfuel.set_stance("force_eager")
    compiled(torch.ones(2))
    oxyfuel.set_stance("default")
    compiled(torch.ones(2))
    assert ran == ["eager", "eager"]
    with pytest.raises(ValueError, match="unknown stance"):
        oxyfuel.set_stance("now and then")


def error_context(where):
    return (
        torch._dynamo.error_on_graph_break
        if where is torch.compiler
        else oxyfuel.error_on_graph_break
    )


@BOTH
def test_error_on_graph_break(where):
    context = error_context(where)

    def strict_part(x):
        with context(True):
            y = x + 1
            oxyfuel.graph_break()
        return y * 2

    def lenient_part(x):
        with context(False):
            y = x + 1
            oxyfuel.graph_break()
        return y * 2

    def without(x):
        with context(True):
            y = x + 1
        oxyfuel.graph_break()
        return y * 2

    with pytest.raises(oxyfuel.GraphBreak):
        oxyfuel.compile(strict_part)(torch.ones(2))
    assert torch.equal(oxyfuel.compile(without)(torch.ones(2)), torch.full((2,), 4.0))
    assert torch.equal(oxyfuel.compile(lenient_part)(torch.ones(2)), torch.full((2,), 4.0))
    with pytest.raises(oxyfuel.GraphBreak):
        oxyfuel.compile(lenient_part, fullgraph=True)(torch.ones(2))


@BOTH
def test_nested_compile_region(where):
    @where.nested_compile_region
    def block(x):
        return torch.sin(x) + 1

    found = targets(lambda x: block(block(x)), torch.ones(2))
    assert found == [["sin", "add", "sin", "add"]]


@pytest.mark.parametrize("name", ["checkpoint", "grad", "backward", "manual_seed", "cond", "break"])
def test_a_wrapper_is_another_function(name):
    """functools.wraps gives it the names of what it wraps."""
    made = []

    def counted(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            made.append(1)
            return function(*args, **kwargs)

        return wrapper

    def twice(x):
        return x * 2

    checkpoint = counted(torch.utils.checkpoint.checkpoint)
    grad, backward = counted(torch.autograd.grad), counted(torch.autograd.backward)
    seed, cond = counted(torch.manual_seed), counted(torch.cond)
    graph_break = counted(oxyfuel.graph_break)
    function = {
        "checkpoint": lambda x: checkpoint(twice, x, use_reentrant=False),
        "grad": lambda x: grad(twice(x).sum(), [x])[0],
        "backward": lambda x: backward(twice(x).sum()),
        "manual_seed": lambda x: (seed(3), x + torch.rand(3))[1],
        "cond": lambda x: cond(x.sum() > 0, twice, lambda a: a + 1, (x,)),
        "break": lambda x: (graph_break(), x + 1)[1],
    }[name]
    x = torch.ones(3, requires_grad=name != "cond")
    with torch.enable_grad():
        expected = function(x)
        made.clear()
        compiled = oxyfuel.compile(function)
        for calls in (1, 2):
            found = compiled(x)
            assert found is expected or torch.equal(found, expected)
            assert len(made) == calls
    assert oxyfuel.stats()["graph_breaks"] == (name == "break")


def test_what_is_compiled_inside_is_part_of_the_graph():
    def f(x):
        @torch.compile
        def doubled(y):
            return y * 2

        tripled = torch.compile(lambda y: y * 3, dynamic=True, fullgraph=True)
        return tripled(doubled(x)).relu()

    x = torch.randn(3)
    assert torch.equal(oxyfuel.compile(f, fullgraph=True)(x), (x * 6).relu())
