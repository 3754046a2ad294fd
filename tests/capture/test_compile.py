"""oxyfuel.compile as a user meets it: results, recompilation, fall back, modules, bad arguments."""

import copy
import gc
import inspect
import pickle
import sys

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")


def test_a_function_is_one_graph():
    @oxyfuel.compile
    def f(x, scale=2.0):
        return {"y": (x + 1) * scale, "n": x.shape[0]}

    x = torch.randn(3)
    for scale in (2.0, 3.0):
        out = f(x, scale=scale)
        assert out["n"] == 3 and torch.equal(out["y"], (x + 1) * scale)
    stats = oxyfuel.stats()
    assert stats["graphs"] == 2 and stats["recompiles"] == 1 and stats["graph_breaks"] == 0


def test_a_break_runs_in_eager_and_says_why():
    def f(x):
        return x + 1 if x.sum() > 0 else x - 1

    g = oxyfuel.compile(f)
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(g(x), f(x))
    assert oxyfuel.stats()["graph_breaks"] == 1
    with pytest.raises(oxyfuel.GraphBreak, match="truth of a tensor") as e:
        oxyfuel.compile(f, fullgraph=True)(torch.ones(2))
    assert "test_compile.py" in str(e.value)


def test_a_module_stays_what_it_is():
    m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    c = oxyfuel.compile(m)
    x = torch.randn(2, 4)
    assert isinstance(c, torch.nn.Sequential) and list(c.state_dict()) == list(m.state_dict())
    assert torch.allclose(c(x), m(x)) and c[0] is m[0]
    m[0].weight = torch.nn.Parameter(torch.zeros(4, 4))
    assert torch.allclose(c(x), m(x))
    m[0].bias.data = torch.ones(4, dtype=torch.float64)
    m[0].weight.data = m[0].weight.data.double()
    assert torch.allclose(c(x.double()), m(x.double()))
    copy = pickle.loads(pickle.dumps(m))
    assert torch.equal(copy(x.double()), m(x.double()))
    assert c.train() is c and m.training


def test_attributes_written_in_the_graph_are_written_once():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.last = None

        def forward(self, x):
            self.calls = self.calls + 1
            self.last = x * 2
            return self.last + 1

    m, e = Counter(), Counter()
    c = oxyfuel.compile(m)
    for i in range(3):
        x = torch.full((2,), float(i))
        assert torch.equal(c(x), e(x))
        assert m.calls == e.calls and torch.equal(m.last, e.last)


def test_the_user_s_error_is_eager_s():
    f = oxyfuel.compile(lambda a, b: a @ b)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        f(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(TypeError):
        f(torch.ones(2, 3))


def test_custom_backend():
    seen = []

    def my_compile(gm, example_inputs):
        seen.append((gm, example_inputs))
        return gm.forward

    f = oxyfuel.compile(lambda x: (x.sin() + 1).relu(), backend=my_compile)
    x = torch.randn(4)
    assert torch.equal(f(x), (x.sin() + 1).relu())
    ((gm, inputs),) = seen
    assert isinstance(gm, torch.fx.GraphModule) and inputs[0] is x
    assert [n.op for n in gm.graph.nodes][:2] == ["placeholder", "call_method"]


@pytest.mark.parametrize("backend", oxyfuel.list_backends())
def test_backends(backend):
    f = oxyfuel.compile(lambda x: torch.softmax(x, -1).sum(0), backend=backend)
    x = torch.randn(3, 5)
    assert torch.allclose(f(x), torch.softmax(x, -1).sum(0))


def test_bad_arguments():
    with pytest.raises(TypeError, match="takes a function"):
        oxyfuel.compile(3)
    with pytest.raises(ValueError, match="aot_eager, eager, native"):
        oxyfuel.compile(len, backend="inductor")
    with pytest.raises(ValueError, match="max-autotune"):
        oxyfuel.compile(len, mode="fast")
    with pytest.raises(ValueError, match="known"):
        oxyfuel.compile(len, options={"no_such": 1})


def test_grad_mode_is_left_as_it_was():
    def f(x):
        with torch.enable_grad():
            y = x * 2
            if y.sum() > 0:
                return y
        return x

    g = oxyfuel.compile(f)
    g(torch.ones(2))
    assert not torch.is_grad_enabled()


def test_captures_are_not_leaked():
    def once():
        f = oxyfuel.compile(lambda x: [x + 1, {"a": x * 2}])
        f(torch.ones(2))

    once()
    gc.collect()
    x = object()
    before = len(gc.get_objects())
    for _ in range(20):
        once()
    gc.collect()
    assert len(gc.get_objects()) - before < 20 and sys.getrefcount(x) == 2


def test_a_plan_that_stops_leaves_the_call_to_eager():
    f = oxyfuel.compile(lambda x, i: x[i] + 1)
    x, good, bad = torch.ones(4), torch.tensor([1, 2]), torch.tensor([9, 2])
    for _ in range(2):
        assert torch.equal(f(x, good), torch.full((2,), 2.0))
        with pytest.raises(IndexError):
            f(x, bad)
    assert oxyfuel.stats()["fallbacks"] == 0


def test_outputs_of_a_plan_are_what_they_are_in_eager():
    def f(x, y):
        y.add_(1)
        z = x * 2
        return z, z, y, x, x.view(-1), [z.sum()], 3

    x, y = torch.ones(2, 2), torch.zeros(2)
    c = oxyfuel.compile(f)
    for i in range(1, 4):
        a, b, seen, same, view, (total,), three = c(x, y)
        assert a is b and seen is y and same is x and view.data_ptr() == x.data_ptr()
        assert torch.equal(y, torch.full((2,), float(i))) and total == 8 and three == 3


@oxyfuel.compile
def named(x):
    """What it says."""
    return x + 1


def test_it_tells_of_itself_what_the_function_does():
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(named, name) == getattr(named.__wrapped__, name)
    assert inspect.signature(named) == inspect.signature(named.__wrapped__)


def test_pickles_and_copies_are_by_name():
    assert pickle.loads(pickle.dumps(named)) is named
    assert copy.copy(named) is named and copy.deepcopy([named])[0] is named
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(oxyfuel.compile(named.__wrapped__))
