"""argmax, argmin and the positions of max and min: the first extreme wins, NaN is the extreme, as
in eager."""

import pytest
import torch

import oxyfuel

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int64)
SIZES = ((3, 1), (5, 103), (3, 40, 9))
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
    found = [x.argmax(), x.argmin()]
    for dim in range(x.dim()):
        found += [x.argmax(dim), x.argmin(dim, keepdim=True), x.max(dim)[1], x.min(dim)[1]]
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_positions(dtype, size):
    f = oxyfuel.compile(positions, options={"strict": True})
    with torch.no_grad():
        for fill in FILLS:
            x = values(dtype, size, fill)
            for given in (x, x.transpose(0, -1)):
                for i, (a, b) in enumerate(zip(f(given), positions(given))):
                    assert torch.equal(a, b), f"{fill}, strides {given.stride()}, result {i}"
