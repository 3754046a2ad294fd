"""Writes into parts of parts: one kernel, whatever the part's layout, and eager's results."""

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool,
          torch.complex64]  # fmt: skip


def interior(x):
    out = x.clone()
    out[1:-1, 1:-1] = x[2:, 1:-1]
    return out


def strided(x):
    out = torch.zeros(2 * x.shape[0], 2 * x.shape[1], dtype=x.dtype)
    out[::2, 1::2] = x
    out[1::2, ::2] = x.flip(0)
    return out


def column_of_part(x):
    out = x.repeat(2, 1)
    out[1:-1][:, 2] = x[0, 0]
    out[2:, 0].fill_(1)
    return out, out[1:3]


def transposed(x):
    out = x.clone()
    out.t()[2:][:, 1:-1] = x.t()[:-2, 1:-1]
    return out


def part_read_again(x):
    out = x.clone()
    part = out[1:]
    inner = part[:, 1:-1]
    inner.copy_(x[:-1, 2:])
    part[0] = inner[-1, 0]
    return out, part.sum(0), inner.t().reshape(-1)


def diagonal_of_part(x):
    out = x.clone()
    out[1:, 1:].diagonal().copy_(x.diagonal()[1:])
    return out


def one_row(x):
    out = torch.stack([x, x])[1:]
    row = out[0]
    row += x
    row[1:-1] = x[:-2]
    return torch.nn.functional.pad(row, (1, 1))


def broadcast(x):
    out = x.clone()
    out[1:-1, 1:-1] = x[:1, :1]
    out[2:, 2:] = 1
    return out


def input_itself(x):
    x[1:-1, 1:-1] = x[1:-1, :-2]
    return x[1:, 1:]


def other_dtype(x):
    out = torch.zeros(x.shape, dtype=torch.float64 if not x.is_complex() else torch.complex128)
    out[1:-1, ::2] = x[1:-1, ::2]
    return out


CASES = [interior, strided, column_of_part, transposed, part_read_again, diagonal_of_part, one_row,
         broadcast, input_itself, other_dtype]  # fmt: skip


def flat(results):
    return results if isinstance(results, tuple) else (results,)


def same(fn, compiled, x):
    mine, theirs = x.clone(), x.clone()
    for got, expected in zip(flat(compiled(mine)), flat(fn(theirs)), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        assert got.stride() == expected.stride()
        assert got.storage_offset() == expected.storage_offset()
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("fn", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts(fn, dtype):
    compiled = oxyfuel.compile(fn, dynamic=False)
    for shape in [(7, 7), (4, 37)]:
        if fn is diagonal_of_part:
            shape = (shape[1], shape[1])
        same(fn, compiled, torch.randint(0, 9, shape).to(dtype))
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("fn", [interior, strided, transposed, part_read_again, broadcast])
def test_no_calls(fn, dtype):
    oxyfuel.compile(fn)(torch.randn(20, 20).to(dtype))
    # Views of complex results are calls, which move nothing.
    views = {transposed: 1, part_read_again: 2} if dtype.is_complex else {}
    assert oxyfuel.stats()["extern_calls"] <= views.get(fn, 0)


COMPLEX_INPUTS = {
    "rows": lambda x: x[1:].mul_(2 - 1j),
    "filled": lambda x: (x.fill_(1), x[::2].fill_(3j))[0],
    "columns": lambda x: (x[:, 2:].copy_(x[:, :-2].clone()), x.sum())[1],
    "shifted": lambda x: x[:, 1:].add_(x[:, :-1].clone()),
    "exchanged": lambda x: x.copy_(x.flip(0)),
    "transposed": lambda x: x.t()[1:].mul_(2),
    "one": lambda x: x[2, 3].fill_(7),
    "conjugate": lambda x: x.copy_(x.conj() * 2),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("fn", COMPLEX_INPUTS.values(), ids=COMPLEX_INPUTS)
def test_complex_inputs(fn, dtype, dynamic):
    compiled = oxyfuel.compile(fn, dynamic=dynamic)
    for shape in [(5, 6), (16, 33), (64, 64)]:
        x = torch.complex(*torch.randint(-9, 9, (2, *shape)).double()).to(dtype)
        same(fn, compiled, x)
        base, other = torch.zeros(2, *shape, dtype=dtype), torch.zeros(2, *shape, dtype=dtype)
        compiled(base[1].copy_(x)), fn(other[1].copy_(x))
        assert torch.equal(base, other)
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("fn", CASES)
def test_sizes_that_vary(fn):
    compiled = oxyfuel.compile(fn, dynamic=True)
    for shape in [(7, 7), (20, 20), (65, 65), (4, 4)]:
        same(fn, compiled, torch.randint(-9, 9, shape).float())
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("fn", [f for f in CASES if f is not input_itself])
def test_gradients(fn):
    x = torch.randn(6, 6, dtype=torch.float64)
    grads = []
    for f in (fn, oxyfuel.compile(fn)):
        leaf = x.clone().requires_grad_()
        sum((r * torch.arange(r.numel()).view(r.shape)).sum() for r in flat(f(leaf))).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)


def in_chunks(x, weight):
    out = torch.zeros(x.shape[0], x.shape[1], 3 * x.shape[2])
    n = x.shape[2]
    for i in range(0, x.shape[0], 4):
        out[i : i + 4, :, :n] = x[i : i + 4] @ weight
        out[i : i + 4, :, n : 2 * n] = x[i : i + 4].sin()
        out[i : i + 4, :, 2 * n :] = 1
    return out


def read_between(x, weight):
    out = torch.zeros(x.shape)
    for i in range(0, x.shape[0], 4):
        out[i : i + 4] = (x[i : i + 4] + out.mean(0)) @ weight
        out[:, i % 5] *= 2
    return out, out[1:].sum()


def kept_states(x, weight):
    out, states = torch.zeros(x.shape), []
    for i in range(0, x.shape[0], 4):
        out[i : i + 4] = x[i : i + 4] @ weight
        states.append(out.clone() if i % 8 else out[i])
    return out, *states


def rows_and_columns(x, weight):
    out = x @ weight
    for i in range(x.shape[0]):
        out[i] = (out[(i + 3) % x.shape[0]] @ weight).tanh()
        out[:, i % 3] += 1
    return out


LOOPS = [in_chunks, read_between, kept_states, rows_and_columns]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", LOOPS)
def test_loops(fn, dynamic, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = oxyfuel.compile(fn, dynamic=dynamic)
        for shape in [(16, 5, 8), (16, 70, 8), (24, 70, 8)]:
            x, weight = torch.randn(shape), torch.randn(8, 8) / 4
            for got, expected in zip(flat(compiled(x, weight)), flat(fn(x, weight)), strict=True):
                torch.testing.assert_close(got, expected)
    finally:
        torch.set_num_threads(before)
    assert oxyfuel.stats()["fallbacks"] == 0


def test_a_loop_writes_each_part_once():
    """Not the whole tensor with each part."""
    x, weight = torch.randn(64, 64, 32), torch.randn(32, 32)
    oxyfuel.compile(in_chunks)(x, weight)
    assert oxyfuel.stats()["moved_bytes"] < 60 * x.nbytes
