"""Results with gaps in their memory, and convolutions of nothing: compiled, as eager has them."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import oxyfuel


def part(shape, dim, start, end):
    shape = list(shape)
    shape[dim] = len(range(*slice(start, end).indices(shape[dim])))
    return torch.randn(shape)


WINDOWS = {
    "a diagonal": lambda x: x.diagonal(),
    "a diagonal off the middle": lambda x: x.diagonal(1),
    "columns": lambda x: x[:, 1::2],
    "a corner": lambda x: x[2:, 3:],
    "a corner, transposed": lambda x: x[2:, 3:].t(),
    "windows apart": lambda x: x.unfold(0, 2, 3),
}
SCATTERS = {
    "slice_scatter": lambda v: torch.slice_scatter(v, part(v.shape, 0, 1, 3), 0, 1, 3),
    "select_scatter": lambda v: torch.select_scatter(v, torch.randn(v.shape[1:]), 0, 1),
    "two of one": lambda v: (s := torch.select_scatter(v, torch.zeros(v.shape[1:]), 0, 1), s[1:]),
    "written": lambda v: torch.select_scatter(v, torch.zeros(v.shape[1:]), 0, 0).mul_(2),
}


def check(function, *args, compiled=True):
    oxyfuel.reset()
    with torch.no_grad():
        torch.manual_seed(0)
        expected = function(*(a.clone() for a in args))
        torch.manual_seed(0)
        ours = oxyfuel.compile(function)(*(a.clone() for a in args))
    assert not compiled or oxyfuel.stats()["unsupported"] == 0
    if isinstance(expected, torch.Tensor):
        expected, ours = [expected], [ours]
    for a, b in zip(ours, expected, strict=True):
        assert (a.shape, a.stride(), a.storage_offset()) == (
            b.shape,
            b.stride(),
            b.storage_offset(),
        )
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    shared = (
        {t.untyped_storage()._cdata for t in ours},
        {t.untyped_storage()._cdata for t in expected},
    )
    assert len(shared[0]) == len(shared[1])
    if len(ours) == 1:
        assert ours[0]._is_view() == expected[0]._is_view()


@pytest.mark.parametrize("scatter", SCATTERS)
@pytest.mark.parametrize("window", WINDOWS)
def test_a_result_with_gaps(window, scatter, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    compiled = (
        scatter != "written"
    )  # where what is written lies behind the start of its memory, it is not
    check(lambda x: SCATTERS[scatter](WINDOWS[window](x)), torch.randn(8, 8), compiled=compiled)
    check(lambda x: SCATTERS[scatter](WINDOWS[window](x * 2)), torch.randn(8, 8), compiled=compiled)


@pytest.mark.parametrize("dims", (1, 2, 3))
def test_a_convolution_of_nothing(dims, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    convolve = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    back = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    compared = 0
    for batch, channels, out, padding, own_bias in itertools.product(
        (0, 2), (0, 3), (0, 4), (0, 1), (False, True)
    ):
        for run, weight in ((convolve, (out, channels)), (back, (channels, out))):
            x, w = torch.randn(batch, channels, *[5] * dims), torch.randn(*weight, *[3] * dims)
            bias = torch.randn(out) if own_bias else None

            def function(x, w):
                return run(x, w, bias, padding=padding)

            try:
                function(x, w)
            except (RuntimeError, IndexError):
                continue
            compared += 1
            check(function, x, w)
    assert compared > 4
