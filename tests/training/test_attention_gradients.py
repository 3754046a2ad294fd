"""Attention of few scores trains by gemms, of more by the op's gradient: both as in eager."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

HEADS, SIZE = 3, 16


def operand(layout, batch, length):
    torch.manual_seed(length)
    if layout == "heads first":
        return torch.randn(batch, HEADS, length, SIZE)
    if layout == "heads last":
        return torch.randn(batch, length, HEADS, SIZE).transpose(1, 2)
    return torch.randn(batch, length, 3, HEADS, SIZE)[:, :, 1].transpose(1, 2)


MASKS = {
    "none": lambda b, s, k: None,
    "float": lambda b, s, k: torch.randn(b, 1, s, k),
    "broadcast": lambda b, s, k: torch.randn(1, k),
    "bool": lambda b, s, k: torch.arange(s * k).view(s, k) % 3 > 0,
    "half of it": lambda b, s, k: torch.zeros(s, k).masked_fill(
        torch.arange(k) >= k // 2, -torch.inf
    ),
    "a row of nothing": lambda b, s, k: torch.zeros(s, k).index_fill(
        0, torch.tensor([0]), -torch.inf
    ),
}


def step(attend, operands, gradient, needed=(True, True, True)):
    leaves = [t.clone().requires_grad_(n) for t, n in zip(operands, needed, strict=True)]
    out = attend(*leaves)
    out.backward(gradient)
    return [out.detach(), *(t.grad for t in leaves)]


def same(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        assert (a is None) == (e is None)
        if e is not None:
            assert a.stride() == e.stride()
            torch.testing.assert_close(a, e, atol=1e-5, rtol=1e-4, equal_nan=True)


def both(attend, operands, **needed):
    gradient = torch.randn(attend(*operands).shape)
    same(
        step(oxyfuel.compile(attend), operands, gradient, **needed),
        step(attend, operands, gradient, **needed),
    )


@pytest.mark.parametrize("layout", ["heads first", "heads last", "a slice"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", [(16, 16), (8, 8), (33, 20), (20, 70), (2, 40)])
def test_masks_and_layouts(layout, mask, lengths):
    for batch in (1, 2):
        m = MASKS[mask](batch, *lengths)
        operands = [operand(layout, batch, n) for n in (*lengths, lengths[1])]
        both(lambda q, k, v, m=m: F.scaled_dot_product_attention(q, k, v, m), operands)


@pytest.mark.parametrize("lengths", [(16, 16), (33, 20), (20, 33)])
def test_causal(lengths):
    operands = [operand("heads last", 2, n) for n in (*lengths, lengths[1])]
    both(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), operands
    )


@pytest.mark.parametrize("length, calls", [(32, 0), (64, 0), (80, 1)])
def test_few_scores_are_gemms(length, calls):
    """Shares of 64 positions take what 16 values of each of four tensors do; of more, the forward
    calls the op."""
    operands = [operand("heads first", 2, length) for _ in range(3)]
    gradient = torch.randn(operands[0].shape)
    compiled = oxyfuel.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))
    leaves = [t.requires_grad_() for t in operands]
    compiled(*leaves).backward(gradient)
    assert oxyfuel.stats()["extern_calls"] == calls


@pytest.mark.parametrize("needed", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1)])
def test_some_need_gradients(needed):
    operands = [operand("heads last", 2, 24) for _ in range(3)]
    both(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        operands,
        needed=[bool(n) for n in needed],
    )


@pytest.mark.parametrize("options", [{"partitioner": "default"}, {"activation_memory_budget": 0.0}])
def test_partitions(options):
    operands = [operand("heads last", 2, 24) for _ in range(3)]
    attend = lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v.sin()).tanh()  # noqa: E731
    gradient = torch.randn(operands[0].shape)
    compiled = oxyfuel.compile(attend, options=options)
    same(step(compiled, operands, gradient), step(attend, operands, gradient))


def test_lengths_that_vary():
    compiled = oxyfuel.compile(F.scaled_dot_product_attention, dynamic=True)
    for length in (16, 24, 33, 50, 9, 120):
        operands = [operand("heads last", 2, length) for _ in range(3)]
        gradient = torch.randn(operands[0].shape)
        expected = step(F.scaled_dot_product_attention, operands, gradient)
        same(step(compiled, operands, gradient), expected)
    assert oxyfuel.stats()["recompiles"] <= 1


def test_one_operand_three_times():
    x = operand("heads last", 2, 24)
    both(lambda q, k, v: F.scaled_dot_product_attention(q, q, q) + k * v, [x, x, x])


def test_a_result_that_is_written_to():
    """The gradient reads it, as eager's does."""

    def change(attend):
        leaves = [operand("heads first", 1, 24).requires_grad_() for _ in range(3)]
        out = attend(*leaves)
        with torch.no_grad():
            out.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()

    change(F.scaled_dot_product_attention)
    change(oxyfuel.compile(F.scaled_dot_product_attention))


def test_a_gradient_of_the_gradient_is_refused():
    def twice(attend):
        leaves = [operand("heads first", 1, 24).requires_grad_() for _ in range(3)]
        first = torch.autograd.grad(attend(*leaves).sum(), leaves, create_graph=True)
        with pytest.raises(RuntimeError) as error:
            torch.autograd.grad(sum(g.sum() for g in first), leaves)
        return str(error.value).split("\n")[0]

    expected = twice(F.scaled_dot_product_attention)
    assert twice(oxyfuel.compile(F.scaled_dot_product_attention)) == expected
