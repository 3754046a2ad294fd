"""out= that torch itself does not write, or that eager fills in another order than the result."""

import pytest
import torch

import oxyfuel

LAYOUTS = {
    "row_major": lambda: torch.zeros(4, 6),
    "transposed": lambda: torch.zeros(6, 4).t(),
    "sliced": lambda: torch.zeros(4, 12)[:, ::2],
    "empty": lambda: torch.zeros(0),
}
FILLED = {
    "rand": lambda out: torch.rand(4, 6, out=out),
    "randn": lambda out: torch.randn(4, 6, out=out),
    "randint": lambda out: torch.randint(0, 9, (4, 6), out=out),
    "normal": lambda out: torch.normal(1.0, 2.0, (4, 6), out=out),
    "normal of tensors": lambda out: torch.normal(torch.ones(4, 6), torch.ones(4, 6), out=out),
    "bernoulli": lambda out: torch.bernoulli(torch.full((4, 6), 0.5), out=out),
    "zeros": lambda out: torch.zeros(4, 6, out=out),
    "resize": lambda out: out.resize_(4, 6).zero_(),
}


def check(f, make):
    compiled = oxyfuel.compile(f, options={"strict": True})
    for _ in range(2):
        found = []
        for call in (f, compiled):
            out = make()
            torch.manual_seed(1)
            result = call(out)
            assert result is out
            found.append((out, torch.rand(3)))
        (a, after), (b, after_b) = found
        assert torch.equal(a, b) and torch.equal(after, after_b)
        assert a.stride() == b.stride() and a.storage_offset() == b.storage_offset()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FILLED)
def test_layouts(name, layout):
    check(FILLED[name], LAYOUTS[layout])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
@pytest.mark.parametrize("tolerance", [{}, {"tol": 0.5}, {"rtol": 0.5}, {"atol": torch.ones(())}])
def test_matrix_rank(tolerance, dtype):
    a = torch.tensor([[[1.0, 2], [3, 4]], [[1, 2], [2, 4]]])
    check(
        lambda out: torch.linalg.matrix_rank(a, **tolerance, out=out),
        lambda: torch.full((2,), 7, dtype=dtype),
    )


def test_rrelu():
    x = -torch.ones(4, 6)
    check(
        lambda out: torch._C._nn.rrelu_with_noise(x, torch.ones(4, 6), training=True, out=out),
        lambda: torch.zeros(4, 6),
    )
