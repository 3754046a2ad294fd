"""argmax, argmin and the positions of max and min: the first extreme wins, NaN is the extreme, as
in eager."""

import pytest
import torch

import oxyfuel

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.uint8,
    torch.int16,
    torch.int64,
)
SIZES = ((3, 1), (1, 7), (5, 103), (3, 40, 9), (2, 0))
FILLS = ("ties", "nan", "lowest", "highest")


def values(dtype, size, fill):
    torch.manual_seed(0)
    ties = torch.randint(0, 5, size).to(dtype)
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    if fill == "ties":
        return ties
    if fill == "nan":
        some = torch.rand(size) < 0.1
        return ties.masked_fill(some, float("nan")) if dtype.is_floating_point else ties
    edge = limits.min if fill == "lowest" else limits.max
    if dtype.is_floating_point:
        edge = float("-inf") if fill == "lowest" else float("inf")
    return torch.full(size, edge, dtype=dtype)


def positions(x):
    found = [x.argmax(), x.argmin()] if x.numel() > 0 else []
    for dim in range(x.dim()):
        if x.size(dim) == 0:
            continue
        found += [x.argmax(dim), x.argmin(dim, keepdim=True), x.max(dim)[1], x.min(dim)[1]]
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_positions(dtype, size):
    f = oxyfuel.compile(positions, options={"strict": True})
    with torch.no_grad():
        for fill in FILLS:
            x = values(dtype, size, fill)
            for given in (x, x.transpose(0, -1), x[..., 1:]):
                for i, (a, b) in enumerate(zip(f(given), positions(given))):
                    assert torch.equal(a, b), f"{fill}, strides {given.stride()}, result {i}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_positions_of_any_size(dtype):
    f = oxyfuel.compile(positions, dynamic=True, options={"strict": True})
    with torch.no_grad():
        for size in ((5, 40, 9), (17, 3, 33), (2, 7, 2)):
            for fill in FILLS:
                x = values(dtype, size, fill)
                for given in (x, x.transpose(0, 1), x[:, 1:], x[..., 1:]):
                    for i, (a, b) in enumerate(zip(f(given), positions(given))):
                        assert torch.equal(a, b), f"{fill}, strides {given.stride()}, result {i}"
                        assert a.stride() == b.stride()


def test_gradient_of_an_extreme_along_columns():
    def f(x):
        low, high = x.min(0), x.max(1, keepdim=True)
        return (low.values * low.indices).sum() + high.values.square().sum()

    torch.manual_seed(0)
    x = torch.randint(0, 5, (6, 5, 40)).float()
    x[1, 2, 3] = float("nan")
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    oxyfuel.compile(f, options={"strict": True})(a).backward()
    f(b).backward()
    assert torch.equal(a.grad.nan_to_num(7), b.grad.nan_to_num(7))
