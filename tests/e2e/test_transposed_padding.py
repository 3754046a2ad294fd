"""Padding of tensors that are contiguous along another dimension than the result: tiles of the part
that the mask lets through (codegen/cpp/transposed_tiles)."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

STRICT = {"strict": True}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64,
          torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool]  # fmt: skip


def check(f, *args, **tolerances):
    out = oxyfuel.compile(f, options=STRICT)(*args)
    tolerances = tolerances or {"rtol": 0, "atol": 0}
    torch.testing.assert_close(out, f(*args), equal_nan=True, **tolerances)


def numbers(*shape, dtype=torch.float32):
    return torch.testing.make_tensor(shape, dtype=dtype, device="cpu")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype):
    x = numbers(3, 70, 29, dtype=dtype)
    check(lambda x: F.pad(x, (2, 1, 3, 5), value=1), x.transpose(1, 2))


@pytest.mark.parametrize("rows", [1, 17, 63, 64, 65, 140])
@pytest.mark.parametrize("columns", [1, 31, 64, 66, 130])
def test_sizes(rows, columns):
    x = numbers(2, columns, rows).transpose(1, 2)
    check(lambda x: F.pad(x, (1, 2, 0, 3), value=-1.5), x)
    check(lambda x: F.pad(x, (70, 0, 66, 0)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8], ids=str)
def test_tiles_without_anything_of_an_operand(dtype):
    x, y = numbers(128, 12, 100, dtype=dtype), numbers(100, 12, 128, dtype=dtype)
    check(lambda x, y: torch.cat([x, y], -1), x.mT.contiguous().mT, y.permute(2, 1, 0))
    check(lambda x, y: torch.cat([y, x], -1), x, y.permute(2, 1, 0))


@pytest.mark.parametrize(
    "amounts",
    [(-3, 2), (2, -3), (-1, -1, -2, -2), (3, -1, -1, 3), (0, 0, 0, 0, 2, 1), (1, 1, 1, 1, 1, 1),
     (0, 0, -1, 2, -1, 2), (0, 0, 0, 0, 0, 0, 1, 2)],
    ids=str,
)  # fmt: skip
def test_amounts(amounts):
    x = numbers(3, 4, 33, 40)
    check(lambda x: F.pad(x, amounts, value=2.0), x.transpose(2, 3))
    check(lambda x: F.pad(x, amounts, value=2.0), x.permute(0, 3, 2, 1))
    check(lambda x: F.pad(x, amounts, value=2.0), x.to(memory_format=torch.channels_last))


def test_fused():
    x, y = numbers(5, 48, 40), numbers(5, 43, 49)
    check(lambda x, y: F.pad(x.transpose(1, 2).relu(), (1, 0, 2, 1)) * 2 + y, x, y)
    check(lambda x, y: F.pad(x.transpose(1, 2), (1, 0, 2, 1)).sum(-1), x, y, rtol=1e-5, atol=1e-4)
    check(lambda x, y: (F.pad(x, (1, 2, 1, 0)).mT.contiguous(), F.pad(y.mT, (1, 2))), x, y)


def test_masks_of_positions():
    x = numbers(70, 50)
    i, j = torch.arange(50)[:, None], torch.arange(70)
    check(lambda x: torch.where((i >= 3) & (j < 60), x.T, 7.0), x)
    check(lambda x: F.pad(F.pad(x.T, (1, 1)) + 1, (2, 2, 3, 3), value=5.0), x)


def test_guards_of_memory():
    """Nothing outside of the tensor is read: it is at either end of its storage."""
    x = numbers(30 * 41)
    check(lambda x: F.pad(x.T, (4, 5, 6, 7)), x.view(30, 41))
    check(lambda x: F.pad(x.T, (40, 50, 60, 70)), x[:6].view(2, 3))


def test_empty():
    check(lambda x: F.pad(x.transpose(1, 2), (20, 20, 1, 0), value=3.0), numbers(2, 0, 40))
    check(lambda x: F.pad(x.transpose(1, 2), (1, 1, 1, 0)), numbers(0, 30, 40))


def test_one_plan_for_all_sizes():
    f = oxyfuel.compile(
        lambda x, n: F.pad(x.transpose(1, 2), (n, 2, 1, n), value=1.0), dynamic=True, options=STRICT
    )
    for rows, columns, n in ((40, 30, 2), (64, 65, 1), (3, 130, 5), (100, 20, 70), (33, 48, 0)):
        x = numbers(2, rows, columns)
        torch.testing.assert_close(
            f(x, n), F.pad(x.transpose(1, 2), (n, 2, 1, n), value=1.0), rtol=0, atol=0
        )


def test_gradients():
    x = numbers(2, 40, 36).requires_grad_()

    def f(x):
        return F.pad(x.transpose(1, 2), (3, 1, 2, 2)).square().sum()

    (ours,) = torch.autograd.grad(oxyfuel.compile(f, options=STRICT)(x), x)
    torch.testing.assert_close(ours, torch.autograd.grad(f(x), x)[0])
