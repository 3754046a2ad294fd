"""Many pieces side by side (cat and stack of more than eight): kernels write them where they end
up."""

import pytest
import torch

import oxyfuel


def check(f, *tensors, externs=0):
    oxyfuel.reset()
    with torch.no_grad():
        expected, found = f(*tensors), oxyfuel.compile(f, fullgraph=True)(*tensors)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    for o, e in zip(
        *((x if isinstance(x, tuple) else (x,)) for x in (found, expected)), strict=True
    ):
        assert o.stride() == e.stride()
    assert oxyfuel.stats()["extern_calls"] == externs


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_stack(dim, dtype):
    x = (torch.randn(5, 37) * 9).to(dtype)
    check(lambda x: torch.stack([x.logical_not() if k % 2 else x == k for k in range(10)], dim), x)
    if dtype != torch.bool:
        check(lambda x: torch.stack([x * k + 1 for k in range(12)], dim) + 1, x)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_of_unequal_pieces(dim):
    x = torch.randn(6, 8, 9)
    f = lambda x: torch.cat([x.narrow(dim, 0, k % 3 + 1) * k for k in range(11)], dim)  # noqa: E731
    oxyfuel.reset()
    torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(x), f(x))


def rotations(q):
    r, i, j, k = q.unbind(-1)
    s = 2.0 / (q * q).sum(-1)
    rows = (
        *(1 - s * (j * j + k * k), s * (i * j - k * r), s * (i * k + j * r)),
        *(s * (i * j + k * r), 1 - s * (i * i + k * k), s * (j * k - i * r)),
        *(s * (i * k - j * r), s * (j * k + i * r), 1 - s * (i * i + j * j)),
    )
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def poses(q):
    """Constants, inputs and one computed piece twice among the pieces."""
    x, y, z, w = q.unbind(-1)
    c, s, zero, one = x.cos(), x.sin(), torch.zeros_like(x), torch.ones_like(x)
    rows = [c, -s, zero, y, s, c, zero, z, zero, zero, one, w, zero, zero, zero, one]
    return torch.stack(rows, -1).view(*q.shape[:-1], 4, 4)


@pytest.mark.parametrize("f", [rotations, poses])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (33, 4), (3, 5, 4)])
def test_matrices_of_numbers(f, shape):
    oxyfuel.reset()
    q = torch.randn(shape)
    torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(q), f(q))


def test_who_else_reads_a_piece():
    def kept(x):
        pieces = [x * k for k in range(9)]
        return torch.stack(pieces, -1), pieces[3], pieces[4].sum()

    def read_by_the_library(x):
        pieces = [x + k for k in range(9)]
        return torch.stack(pieces, -1) @ torch.ones(9, 3), pieces[2] @ pieces[3].T

    def read_later(x):
        pieces = [x.exp() * k for k in range(9)]
        whole = torch.stack(pieces)
        return whole.softmax(0).sum(-1), pieces[8] + whole[0]

    def two_of_one(x):
        pieces = [x - k for k in range(9)]
        return torch.stack(pieces, 0), torch.cat(pieces, 1)

    def of_one(x):
        return torch.stack([x] * 10, -1), torch.cat([x, x + 1] * 5, 1)

    def folded(x):
        return torch.stack([x.sum(0) * k for k in range(9)], -1)

    x = torch.randn(16, 24)
    for f in (kept, read_by_the_library, read_later, two_of_one, of_one, folded):
        oxyfuel.reset()
        torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(x), f(x))


def test_views_and_writes():
    def f(x, y):
        pieces = [x[:, ::2] * k for k in range(9)]
        y.copy_(torch.stack(pieces, -1))
        x.add_(1)
        return y.sum()

    a = torch.randn(7, 10), torch.zeros(7, 5, 9)
    b = tuple(t.clone() for t in a)
    torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(*a), f(*b))
    torch.testing.assert_close(a, b)


def test_gradients():
    results = []
    for f in (rotations, oxyfuel.compile(rotations, fullgraph=True)):
        q = torch.linspace(-1, 1, 40).view(10, 4).requires_grad_()
        f(q).square().sum(-1).sin().sum().backward()
        results.append(q.grad)
    torch.testing.assert_close(results[1], results[0])


def test_every_length():
    f = oxyfuel.compile(poses, dynamic=True)
    for many in (17, 33, 2, 64):
        q = torch.randn(many, 4)
        torch.testing.assert_close(f(q), poses(q))


def test_values_that_are_kept_for_the_next_step():
    """An unrolled loop, whose states are the pieces."""
    cell = torch.nn.GRUCell(6, 6)

    def f(x):
        h, out = torch.zeros(4, 6), []
        for t in range(10):
            h = cell(x[t], h)
            out.append(h)
        return torch.stack(out, 1)

    x = torch.randn(10, 4, 6)
    oxyfuel.reset()
    with torch.no_grad():
        torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(x), f(x))
