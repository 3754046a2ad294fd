"""Calls that end in an exception of the captured code, again and again: the part in front of it is
compiled, and what eager raises is raised."""

import traceback

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")


class Stop(Exception):
    def __init__(self, result, name="layer"):
        super().__init__(name)
        self.result = result


def stop_in_hook():
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(4)])

    def hook(module, args, result):
        raise Stop(result)

    model[2].register_forward_hook(hook)
    return model


def plain(x):
    y = x.sin()
    raise Stop(y * 2, "plain")


def of_an_argument(x):
    if x.shape[0] > 2:
        raise ValueError(f"too long: {x.shape[0]}")
    return x + 1


def with_a_context(x):
    y = x * 2
    with torch.no_grad():
        try:
            {}[y.shape[0]]
        except KeyError as e:
            raise Stop(y) from e
        finally:
            SEEN.append(len(SEEN))
    return y


def inner(x):
    return missing_name + x  # noqa: F821


def in_a_call(x):
    y = x.cos()
    return [inner(y), y]


def in_a_generator(x):
    def items():
        yield x + 1
        raise Stop(x * 3, "generator")

    return [item * 2 for item in items()]


def writes_first(x):
    SEEN.append(x.shape[0])
    STATE["y"] = x + 1
    raise Stop(STATE["y"] * 2)


SEEN, STATE = [], {}


def calls(function, inputs):
    SEEN.clear()
    STATE.clear()
    out = []
    for x in inputs:
        try:
            out.append(("returned", function(x)))
        except Exception as e:
            lines = [
                (f.name, f.lineno)
                for f in traceback.extract_tb(e.__traceback__)
                if f.filename == __file__ and f.name != "calls"
            ]
            out.append((type(e), str(e), lines, type(e.__cause__), type(e.__context__)))
            out.append(getattr(e, "result", None))
        out.append((torch.is_grad_enabled(), list(SEEN), dict(STATE)))
    return out


FUNCTIONS = [
    stop_in_hook(),
    plain,
    of_an_argument,
    with_a_context,
    in_a_call,
    in_a_generator,
    writes_first,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: getattr(f, "__name__", "hook"))
def test_what_is_raised(function):
    inputs = [torch.randn(n, 4) for n in (3, 3, 3, 5, 6, 2, 3)]
    compiled = oxyfuel.compile(function)
    ours, eagers = calls(compiled, inputs), calls(function, inputs)
    tensors = []
    for result in (ours, eagers):
        tensors.append([x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)])
    torch.testing.assert_close(*tensors)
    rest = [pytree.tree_map_only(torch.Tensor, lambda x: x.shape, x) for x in (ours, eagers)]
    assert rest[0] == rest[1]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: getattr(f, "__name__", "hook"))
def test_how_often_they_are_captured(function):
    compiled, x = oxyfuel.compile(function), torch.randn(3, 4)
    calls(compiled, [x] * 3)
    before = oxyfuel.stats()
    assert before["graph_breaks"] == before["recompiles"] == 0
    calls(compiled, [x] * 5)
    assert oxyfuel.stats() == before
    assert oxyfuel.stats()["graphs"] > 0 or function in (of_an_argument, in_a_generator)


def test_an_error_of_the_program_takes_no_place():
    def f(x, n):
        if n > 3:
            raise ValueError(f"{n} is too much")
        return x + n

    compiled, x = oxyfuel.compile(f), torch.ones(2)
    for n in range(4, 40):
        with pytest.raises(ValueError, match=f"{n} is too much"):
            compiled(x, n)
    for n in range(3):
        assert torch.equal(compiled(x, n), x + n)
    assert oxyfuel.stats()["graphs"] > 0


def test_what_is_guarded():
    limit = [3]

    def f(x):
        y = x * 2
        if limit[0] > 2:
            raise Stop(y)
        return y

    compiled, x = oxyfuel.compile(f), torch.ones(2)
    for n in (3, 3, 3, 1, 3, 1):
        limit[0] = n
        if n > 2:
            with pytest.raises(Stop) as caught:
                compiled(x)
            assert torch.equal(caught.value.result, x * 2)
        else:
            assert torch.equal(compiled(x), x * 2)


@pytest.mark.parametrize("truth", [False, True])
def test_a_bool_that_is_subtracted(truth):
    """Nothing is left out of a graph that eager refuses."""
    compiled = oxyfuel.compile(lambda x: x.tanh() - truth)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="with a bool tensor is not supported"):
            compiled(torch.ones(3))


DEAD = {
    "index": lambda x, i, n: x[i],
    "index_select": lambda x, i, n: x.index_select(0, i),
    "of a computed index": lambda x, i, n: x[i + n].sin(),
    "gather": lambda x, i, n: x.gather(0, i),
    "take": lambda x, i, n: x.take(i),
    "embedding": lambda x, i, n: nn.functional.embedding(i, x.reshape(4, 1)),
    "scatter": lambda x, i, n: x.scatter(0, i, 1.0),
    "index_put": lambda x, i, n: x.index_put((i,), torch.ones(1)),
    "index_add": lambda x, i, n: x.index_add(0, i, torch.ones(1)),
    "targets": lambda x, i, n: nn.functional.cross_entropy(x.reshape(1, 4), i),
    "division": lambda x, i, n: i // n,
    "remainder": lambda x, i, n: i % n,
    "truncated": lambda x, i, n: torch.div(i, n, rounding_mode="trunc"),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", DEAD)
def test_calls_that_nothing_reads(name, dynamic):
    def f(x, i, n):
        DEAD[name](x, i, n)
        return x + 1

    compiled = oxyfuel.compile(f, dynamic=dynamic, fullgraph=True)
    good = torch.tensor([1]), torch.tensor([1])
    bad = torch.tensor([9]), torch.tensor([0])
    for i, n in (good, bad, good):
        raised = []
        for run in (f, compiled):
            try:
                torch.testing.assert_close(run(torch.ones(4), i, n), torch.full((4,), 2.0))
                raised.append(None)
            except (IndexError, RuntimeError) as e:
                raised.append((type(e), str(e)))
        assert raised[0] == raised[1]
        assert (raised[0] is None) == (i is good[0])


@pytest.mark.parametrize("name", ["mm", "matmul", "mv", "addmm", "linear", "conv1d"])
def test_a_product_of_two_dtypes_that_nothing_reads(name):
    a, b = torch.ones(2, 2, dtype=torch.float64), torch.ones(2, 2)
    given = {"mv": (a, b[0]), "addmm": (a, a, b), "conv1d": (a[None], b[None])}.get(name, (a, b))
    product = getattr(torch, name, None) or getattr(torch.nn.functional, name)

    def f(x, *given):
        product(*given)
        return x + 1

    for run in (f, oxyfuel.compile(f)):
        with pytest.raises(RuntimeError, match="dtype|type"):
            run(a, *given)


def decomposed(x, i):
    for jitter in (0.0, 10.0):
        try:
            return torch.linalg.cholesky(x @ x.T - i[0] + jitter * torch.eye(3)), jitter
        except RuntimeError as error:
            message = str(error)
    return message


def taken(x, i):
    try:
        return x[i] * 2
    except IndexError as error:
        return x.sum(), str(error)


def taken_in_a_call(x, i):
    def take(x):
        return torch.gather(x, 0, i[:, None])

    try:
        with torch.no_grad():
            return take(x)
    except (IndexError, RuntimeError):
        return x - 1


def divided(x, i):
    try:
        return 6 // i
    except ZeroDivisionError as error:
        return str(error)
    except RuntimeError as error:
        return type(error).__name__


@pytest.mark.parametrize("f", [decomposed, taken, taken_in_a_call, divided])
def test_errors_of_data_that_the_code_handles(f):
    compiled = oxyfuel.compile(f)
    x = torch.eye(3)
    given = torch.tensor([[1, 2], [9, 1], [0, 1], [1, 1], [9, 9]])
    for i in given:
        expected, actual = f(x, i), compiled(x, i)
        assert str(actual) == str(expected)
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == 0 and stats["unmet_checks"] > 0


def test_errors_of_data_that_nobody_handles_are_eagers():
    compiled = oxyfuel.compile(lambda x, i: x[i] * 2)
    for i in (1, 9, 1):
        if i == 1:
            assert compiled(torch.eye(3), torch.tensor([i])).sum() == 2
            continue
        with pytest.raises(IndexError):
            compiled(torch.eye(3), torch.tensor([i]))
    assert oxyfuel.stats()["unmet_checks"] == 0
