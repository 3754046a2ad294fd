"""A transform in eager and captured."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import oxyfuel


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing is left from other tests, or for them; failures of Oxyfuel's own are errors."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    torch.manual_seed(0)
    yield
    assert torch._C._functorch.peek_interpreter_stack() is None
    assert torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is None
    assert torch.autograd.forward_ad._current_level == -1
    assert torch._C._enter_dual_level() == 0
    torch._C._exit_dual_level(level=0)
    oxyfuel.reset()


def assert_same(found, expected):
    ours, our_form = pytree.tree_flatten(found)
    theirs, form = pytree.tree_flatten(expected)
    assert our_form == form
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert type(a) is type(b) and a == b
            continue
        assert not torch._C._functorch.is_functorch_wrapped_tensor(a)
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        assert a.requires_grad == b.requires_grad
        torch.testing.assert_close(a, b, equal_nan=True)


def check(f, *args, calls=2):
    """In one graph, and as eager."""
    compiled = oxyfuel.compile(f, fullgraph=True)
    for _ in range(calls):
        torch.manual_seed(1)
        expected = f(*args)
        torch.manual_seed(1)
        assert_same(compiled(*args), expected)
    return compiled


def breaks(f, *args):
    found = oxyfuel.explain(f)(*args)
    return found.graph_count, [str(b) for b in found.break_reasons]


def loss_of(params, x, y):
    weight, bias = params
    return F.mse_loss(torch.tanh(F.linear(x, weight, bias)), y)


def params_of(*shape):
    return torch.randn(*shape), torch.randn(shape[0])
