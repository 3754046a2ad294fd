"""What a forward keeps for its backward dies behind its last reader, and no later than in eager."""

import pytest
import torch
from model_check import first_difference
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

import oxyfuel

alive = []  # by call of look's backward: how many of what was unpacked are alive
unpacked = []


@torch.library.custom_op("oxyfuel_training::look", mutates_args=())
def look(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("oxyfuel_training::look_back", mutates_args=())
def look_back(g: torch.Tensor) -> torch.Tensor:
    alive.append(sum(not memory.expired() for memory in unpacked))
    return g.clone()


look.register_fake(torch.empty_like)
look_back.register_fake(torch.empty_like)
look.register_autograd(lambda ctx, g: look_back(g))


def two_layers(x, a, b):
    h = look(torch.nn.functional.gelu(x @ a))
    return torch.nn.functional.gelu(h @ b)


def operands():
    return [torch.randn(8, 8).requires_grad_() for _ in range(3)]


def step(f, values, **options):
    """Gradients, with what is saved unpacked into tensors that nobody else holds."""

    def unpack(t):
        made = t.clone()
        unpacked.append(StorageWeakRef(made.untyped_storage()))
        return made

    unpacked.clear()
    with saved_tensors_hooks(oxyfuel.keeps_values(lambda t: t.detach()), unpack):
        out = f(*values)
    return torch.autograd.grad(out.sum(), values, **options)


def test_freed_behind_the_last_reader():
    f = oxyfuel.compile(two_layers)
    values = operands()
    expected = step(two_layers, values)
    alive.clear()
    for _ in range(3):
        assert not first_difference(step(f, values), expected)
    first, *later = alive
    # A plan that has never run keeps what the other way would need.
    assert first == len(unpacked)
    # The second layer's operands were read in front of the op, the first one's are still to come.
    assert all(0 < count < len(unpacked) for count in later)
    assert all(memory.expired() for memory in unpacked)


def test_retained_graph_keeps_what_it_saved():
    f = oxyfuel.compile(two_layers)
    values = operands()
    expected = torch.autograd.grad(two_layers(*values).sum(), values)
    for _ in range(2):
        out = f(*values).sum()
        for retain in (True, True, False):
            found = torch.autograd.grad(out, values, retain_graph=retain)
            assert not first_difference(found, expected)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(out, values)


def test_results_that_were_saved_stay():
    def f(x):
        return (x @ x).exp(), (x * 2).tanh()

    compiled = oxyfuel.compile(f)
    x = operands()[0]
    for _ in range(3):
        out = compiled(x)
        kept = [t.detach().clone() for t in out]
        sum(t.sum() for t in out).backward()
        assert not first_difference([t.detach() for t in out], kept)


def test_gradients_that_are_what_arrived():
    """A tangent that is a gradient itself, and one that two gradients are views of."""

    def f(x, y):
        return x + y, y.reshape(4, 16) * 1

    compiled = oxyfuel.compile(f)
    x, y = operands()[:2]
    for _ in range(3):
        g = torch.randn(8, 8), torch.randn(4, 16)
        expected = torch.autograd.grad(f(x, y), (x, y), g)
        assert not first_difference(torch.autograd.grad(compiled(x, y), (x, y), g), expected)
        assert all(t.isfinite().all() for t in g)
