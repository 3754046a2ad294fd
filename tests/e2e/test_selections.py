"""Selections with long operands, which kernels compute behind a branch: nested, shared, with masks
that hold nowhere, in a few lanes and everywhere, in front of reductions and writes in place."""

import random

import pytest
import torch

import oxyfuel

FUNCTIONS = (torch.exp, torch.sin, torch.tan, torch.erf, torch.atan, torch.expm1)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
FILLS = (0.0, 0.03, 0.5, 1.0)  # parts of a mask that hold


def drawn(seed):
    """A program of twelve steps, each of which reads one or two that went before."""
    rng = random.Random(seed)
    steps = []
    for i in range(12):
        kind = rng.choice(("where", "where", "chain", "chain", "add"))
        read = [max(0, rng.randint(i - 3, i + 1)) for _ in range(2)]
        steps.append((kind, rng.randrange(len(FILLS)), read, rng.sample(FUNCTIONS, 3)))

    def program(x, y, masks):
        values = [x, y]
        for kind, mask, (a, b), functions in steps:
            if kind == "where":
                value = torch.where(masks[mask], values[a], values[b])
            elif kind == "add":
                value = values[a] * 0.5 + values[b]
            else:
                value = values[a]
                for f in functions:
                    value = f(value.clamp(-1, 1))
            values.append(value)
        last = values[-1]
        x.copy_(torch.where(masks[1], values[-2], x))
        return last, last.sum(-1), values[-3].amax(0)

    return program


@pytest.mark.parametrize("seed", range(16))
def test_drawn_selections(seed):
    program = drawn(seed)
    vector_bytes = (0, 32, 64)[seed % 3]
    f = oxyfuel.compile(program, options={"strict": True, "vector_bytes": vector_bytes})
    torch.manual_seed(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    for size in ((3, 40), (5, 19), (1, 7)):
        x, y = torch.randn(size).to(dtype), torch.randn(size).to(dtype)
        masks = [torch.rand(size) < fill for fill in FILLS]
        given, other = x.clone(), x.clone()
        with torch.no_grad():
            results, expected = f(given, y, masks), program(other, y, masks)
        for a, b in zip((*results, given), (*expected, other)):
            torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("dtype", (*DTYPES, torch.int32, torch.bool))
@pytest.mark.parametrize("held", (True, False))
def test_either_operand(dtype, held):
    def program(x, mask):
        wide = x.float()
        long = wide.sin().exp().tan().to(dtype)
        return torch.where(mask, long, x) if held else torch.where(mask, x, long)

    torch.manual_seed(0)
    x = torch.randint(-2, 3, (7, 45)).to(dtype)
    for fill in FILLS:
        mask = torch.rand(7, 45) < fill
        for given in (x, x[:, ::2], x[:, 3:], x[:0]):
            m = mask[: given.shape[0], : given.shape[1]]
            f = oxyfuel.compile(program, options={"strict": True})
            torch.testing.assert_close(f(given, m), program(given, m))


@pytest.mark.parametrize("dtype", DTYPES)
def test_nested_masks(dtype):
    """An operand inside of one is computed where both masks let it through."""

    def program(x, a, b, c):
        inner = torch.where(
            b, x.sin().exp().atan(), torch.where(c, x.cos().erf().atan(), x.expm1())
        )
        return torch.where(a, inner.exp().erf(), torch.where(b, x.atan().exp().erf(), x))

    torch.manual_seed(0)
    x = torch.randn(6, 53).to(dtype)
    x[2, ::5], x[3, ::7] = float("inf"), float("nan")
    every, fills = slice(None), ((0.5, 0.5, 0.5), (0.03, 0.5, 1), (1, 0, 0.03), (0.03, 0.97, 0.03))
    for columns in ((every,) * 3, (slice(1), every, every), (slice(1),) * 3):  # of each mask
        f = oxyfuel.compile(program, options={"strict": True})
        for some in fills:
            masks = [(torch.rand(6, 53) < part)[:, c] for part, c in zip(some, columns)]
            torch.testing.assert_close(f(x, *masks), program(x, *masks), equal_nan=True)


def test_a_division_that_no_lane_takes():
    def program(x, n):
        return torch.where(
            n != 0, (x // torch.where(n == 0, 1, n)).float().mul(0.02).exp().sin(), x.float()
        )

    x = torch.arange(100, dtype=torch.int32)
    for n in (torch.zeros(100, dtype=torch.int32), x % 5 - 2):
        f = oxyfuel.compile(program, options={"strict": True})
        torch.testing.assert_close(f(x, n), program(x, n))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vector_bytes", (0, 32, 64))
def test_masks_of_rows(dtype, vector_bytes):
    """A mask that is the same in all lanes, before operands that differ by lane, and the other way
    round."""

    def program(x, row):
        rows = torch.arange(x.shape[0])[:, None]
        low = torch.where(rows < 3, x.sin().exp().cos(), x)
        high = torch.where(rows > 4, x.cos().sin().exp(), low.sin().exp())
        return torch.where(row > 0, high.t().contiguous(), row.sin().exp().cos())

    options = {"strict": True, "vector_bytes": vector_bytes}
    torch.manual_seed(0)
    for size in ((8, 33), (70, 70), (5, 16)):
        x, row = torch.randn(size).to(dtype), torch.randn(size[0]).to(dtype)
        for given in (x, x.t().contiguous().t()):
            f = oxyfuel.compile(program, options=options)
            torch.testing.assert_close(f(given, row), program(given, row))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
def test_gradient_of_glu(dtype):
    for size, dim in (((198, 198), 1), ((10, 62, 62), 0), ((10, 62, 62), 2)):
        x = torch.randn(size).to(dtype).transpose(-1, -2)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        oxyfuel.compile(lambda x, d=dim: torch.nn.functional.glu(x, d), options={"strict": True})(
            a
        ).sum().backward()
        torch.nn.functional.glu(b, dim).sum().backward()
        torch.testing.assert_close(a.grad, b.grad)


def neighbours(x, y, dim):
    """Pieces along a dimension, each from other places, then a write to what was read."""
    n = x.shape[dim]
    first, last = x.narrow(dim, 0, 1), x.narrow(dim, n - 1, 1)
    middle = (x.narrow(dim, 2, n - 2) - x.narrow(dim, 0, n - 2)) * y.narrow(dim, 1, n - 2)
    pieces = torch.cat([first * 3 - y.narrow(dim, 2, 1) * 2, middle, last * 2 + last.abs()], dim)
    turned = torch.where(torch.arange(n).view(-1, *[1] * (x.dim() - dim - 1)) % 3 == 1, pieces, y)
    x.add_(pieces)
    return pieces, turned, torch.nn.functional.pad(pieces, (1, 2)) * 2


@pytest.mark.parametrize("vector_bytes", (0, 32, 64))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.int64))
def test_pieces_from_other_places(dtype, vector_bytes):
    torch.manual_seed(0)
    for size in ((8, 33), (70, 70), (5, 16, 9)):
        for dim in range(len(size)):
            options = {"strict": True, "vector_bytes": vector_bytes}
            f = oxyfuel.compile(neighbours, options=options)
            x, y = torch.randint(-9, 9, size).to(dtype), torch.randint(-9, 9, size).to(dtype)
            for layout in (lambda t: t.clone(), lambda t: t.mT.contiguous().mT):
                given, other = layout(x), layout(x)
                results, expected = f(given, y, dim), neighbours(other, y, dim)
                for a, b in zip((*results, given), (*expected, other)):
                    torch.testing.assert_close(a, b)
