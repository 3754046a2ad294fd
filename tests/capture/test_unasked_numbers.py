"""Numbers and texts of data, in a program that has set nothing: parts of the graph's results where
that serves, else a graph break."""

import pytest
import torch
from test_unbacked import same

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad", "nothing_said_of_sizes")


PERCENT, FIELDS = "loss %.3f", "{:.3f} {}"


def values(*size):
    return torch.randint(-9, 9, size).float()


RESULTS = {
    "float": lambda x: x.sum().item(),
    "beside": lambda x: (x + 1, x.sum().item() * 2, x.argmax().item()),
    "in_containers": lambda x: {"loss": x.sum().item(), "n": [(x > 0).sum().item()]},
    "divided": lambda x: x / (x.abs().max().item() + 1),
    "count": lambda x: x[: (x > 0).sum().item()] * 2,
    "to_int": lambda x: int((x > 0).sum()) + 1,
    "truth": lambda x: bool((x > 0).any()),
    "text": lambda x: f"loss {x.sum().item():.3f}",
    "text_of_a_tensor": lambda x: (f"{x} {x.sum():.2f} {x.argmax():>4} {(x > 0).any()}", x + 1),
    "percent": lambda x: (PERCENT % x.sum(), x),
    "format": lambda x: (FIELDS.format(x.sum(), x.max()), str(x), repr(x)),
    "written_behind": lambda x: (y := x * 1, f"{y!r}", y.add_(1)),
    "equal": lambda x: (torch.equal(x, x * 2), x.equal(x + 0), torch.equal(x, x[:2])),
    "allclose": lambda x: (torch.allclose(x, x + 1e-9), torch.allclose(x, x + 1, atol=0.1)),
    "tensor": lambda x: torch.tensor([x[0] * 2, x.sum()]),
    "nested": lambda x: torch.tensor([[x[0], 0.0], [1, x[1]]], dtype=torch.float64),
    "promoted": lambda x: torch.tensor([x.argmax(), x[0].half(), 2]),
    "floats_beside": lambda x: torch.tensor([[x.argmax(), 1], [2, 2.5]]),
    "integers": lambda x: torch.tensor((x.argmax(), 3)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    compiled, fn = oxyfuel.compile(RESULTS[name]), RESULTS[name]
    for _ in range(4):
        x = values(6)
        same(compiled(x), fn(x))
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["graph_breaks"], stats["recompiles"]) == (1, 0, 0)


def item(x):
    if (x < 0).any().item():
        raise ValueError(f"negative {x.min().item()}")
    return x.sqrt()


def compared(x):
    if x.min().item() < 0 or bool(x.isnan().any()):
        raise ValueError("no root")
    return x.sqrt()


def close(x):
    if not torch.allclose(x, x.abs()):
        raise ValueError("no root")
    return x.sqrt()


def equal(x):
    if not torch.equal(x, x.abs()):
        raise AssertionError("no root")
    return x.sqrt()


def library(x):
    return torch.nn.functional.gaussian_nll_loss(x, x * 2, x)


@pytest.mark.parametrize("fn", [item, compared, close, equal, library])
def test_a_branch_that_raises(fn):
    compiled = oxyfuel.compile(fn)
    for sign in (1, 1, -1, 1):
        x = (values(5).abs() + 1) * sign
        if sign > 0:
            same(compiled(x), fn(x))
            continue
        with pytest.raises((ValueError, AssertionError)) as expected:
            fn(x)
        with pytest.raises(expected.type) as found:
            compiled(x)
        assert str(found.value) == str(expected.value)
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["graph_breaks"], stats["fallbacks"]) == (1, 0, 0)


def decides(x):
    n = x.sum().item()
    return (x + n, n) if n > 0 else (x - n, -n)


def rounds(x):
    for i in range(int((x > 0).sum())):
        x = x + i
    return x


def listed(x):
    return ["a", "b", "c", "d", "e"][x.argmax().item()], x * 2


def integers_of_floats(x):
    return torch.tensor([x[0], x[1]], dtype=torch.int64)


@pytest.mark.parametrize("fn", [decides, rounds, listed])
def test_where_they_do_not_serve_there_is_a_break(fn):
    compiled = oxyfuel.compile(fn)
    for _ in range(6):
        x = values(5)
        same(compiled(x), fn(x))
    found = oxyfuel.stats()
    assert found["fallbacks"] == 0
    oxyfuel.reset()
    torch._dynamo.config.capture_scalar_outputs = False
    compiled = oxyfuel.compile(fn)
    for _ in range(6):
        compiled(values(5))
    assert found["graph_breaks"] <= oxyfuel.stats()["graph_breaks"]


def test_eagers_errors():
    with pytest.raises(TypeError):
        oxyfuel.compile(integers_of_floats)(values(3))


def test_a_text_that_tells_the_history_is_a_break():
    fn = lambda x: (f"{x * 2}", f"{(x * 2).sum():.1f}")
    x = values(3).requires_grad_()
    with torch.enable_grad():
        assert oxyfuel.compile(fn)(x) == fn(x)
    assert oxyfuel.stats()["graph_breaks"] > 0


def test_a_text_of_a_parameter():
    p = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    fn = lambda x: (f"{p}", repr(p), x)
    assert oxyfuel.compile(fn)(1) == fn(1)


def test_an_array_has_an_array_for_its_base():
    found = oxyfuel.compile(lambda x: x.numpy() + 1)(values(3))
    assert type(found.base).__name__ == "ndarray"
