"""Kernels that only move bytes, bools and halves, whose vectors have a lane for each element:
copies, concatenation, padding, slices, rows by index, beside kernels that are not quite that."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.bfloat16, torch.float16)
WIDTHS = (1, 7, 16, 33, 64, 129, 200)

PROGRAMS = {
    "cat rows": lambda x, y: torch.cat([x, y, x]),
    "cat columns": lambda x, y: torch.cat([x, y, x[:, :3]], 1),
    "stack": lambda x, y: torch.stack([x, y], 1),
    "pad": lambda x, y: F.pad(x, (3, 5, 1, 2), value=1),
    "pad rows": lambda x, y: F.pad(x, (0, 0, 2, 1)),
    "roll": lambda x, y: x.roll((1, 2), (0, 1)),
    "flip rows": lambda x, y: x.flip(0),
    "flip": lambda x, y: x.flip(1),
    "sliced": lambda x, y: x[:, 2:].clone(),
    "every second": lambda x, y: x[:, ::2].clone(),
    "transposed": lambda x, y: x.t().contiguous(),
    "expanded": lambda x, y: x[:1].expand(5, -1).contiguous(),
    "columns expanded": lambda x, y: x[:, :1].expand(-1, 70).contiguous(),
    "filled": lambda x, y: torch.full_like(x, 1),
    "rows by index": lambda x, y: x[torch.tensor([2, 0, 1, 2])],
    "rows where": lambda x, y: torch.where(torch.arange(x.shape[0])[:, None] > 1, x, y),
    "columns where": lambda x, y: torch.where(torch.arange(x.shape[1]) > 2, x, y),
    "first row where": lambda x, y: torch.where(x[0, 0] != 0, x, y),
    "slice scattered": lambda x, y: x.slice_scatter(y[1:], 0, 1),
    "row scattered": lambda x, y: x.select_scatter(y[0], 0, 1),
    "equal": lambda x, y: (x == y, x.clone()),
    "not": lambda x, y: (torch.logical_not(x), torch.cat([x, y])),
    "triangle": lambda x, y: x.tril() if x.dtype != torch.bool else x,
}


def assert_alike(a, b):
    a, b = (a, b) if isinstance(a, tuple) else ((a,), (b,))
    for p, q in zip(a, b, strict=True):
        assert p.dtype == q.dtype and p.stride() == q.stride()
        assert torch.equal(p, q)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vector_bytes", (0, 32, 64))
def test_moves(name, dtype, vector_bytes):
    options = {"strict": True, "vector_bytes": vector_bytes}
    f = oxyfuel.compile(PROGRAMS[name], options=options, dynamic=False)
    torch.manual_seed(0)
    for width in WIDTHS:
        x, y = (torch.randint(0, 2, (4, width)).to(dtype) for _ in range(2))
        assert_alike(f(x, y), PROGRAMS[name](x, y))
        oxyfuel.reset()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ("cat rows", "cat columns", "pad", "rows where", "every second"))
def test_moves_of_any_width(name, dtype):
    f = oxyfuel.compile(PROGRAMS[name], options={"strict": True}, dynamic=True)
    torch.manual_seed(0)
    for width in WIDTHS[1:]:
        x, y = (torch.randint(0, 2, (4, 2 * width)).to(dtype)[:, ::2] for _ in range(2))
        assert_alike(f(x, y), PROGRAMS[name](x, y))


@pytest.mark.parametrize("dtype", (torch.bool, torch.bfloat16))
def test_large_moves_stream(dtype):
    x = torch.randint(0, 2, (3000, 4001)).to(dtype)
    f = oxyfuel.compile(
        lambda x: (torch.cat([x, x[:7]]), x[:, 5:].clone()), options={"strict": True}
    )
    assert_alike(f(x), (torch.cat([x, x[:7]]), x[:, 5:].clone()))


@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("shift", (1, 3, -3, 32, 33, 35, -70))
def test_rolls(shift, dynamic):
    def f(x, y):
        rolled = x.roll(shift, 1)
        return rolled, rolled * y, (rolled + y.roll(-shift, 1)).sum(1), y.t().roll(shift, 1)

    g = oxyfuel.compile(f, options={"strict": True}, dynamic=dynamic)
    for width in (33, 40, 2, 1) if dynamic else (33,):
        x, y = torch.randn(5, width), torch.randn(5, width)
        with torch.no_grad():
            for result, expected in zip(g(x, y), f(x, y)):
                torch.testing.assert_close(result, expected)
                assert result.stride() == expected.stride()
