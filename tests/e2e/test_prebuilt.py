"""Kernels of gemms come with the library: their first call needs no compiler."""

import platform

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or "AVX" not in torch.backends.cpu.get_cpu_capability(),
    reason="no kernels for gemms on this processor",
)


@pytest.fixture(params=[(-1, ""), (32, ""), (-1, "l1 32K, l2 512K"), (-1, "l2 1M, l3 4M")], ids=str)
def useless(request, tmp_path, fresh):
    """Options with a compiler that says its name and fails with every text."""
    script = tmp_path / "cxx"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && echo useless 1.0\n')
    script.chmod(0o755)
    return {
        "strict": True,
        "gemm_backend": "own",
        "vector_bytes": request.param[0],
        "machine": request.param[1],
        "compiler": "external",
        "cxx": str(script),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [4, 8, 16, 128])
def test_gemms(useless, rows, dtype):
    torch.manual_seed(0)
    x, w, b = torch.randn(rows, 64), torch.randn(96, 64), torch.randn(96)
    x, w, b = x.to(dtype), w.to(dtype), b.to(dtype)
    f = oxyfuel.compile(F.linear, options=useless)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    with torch.no_grad():
        torch.testing.assert_close(f(x, w, b), F.linear(x, w, b), rtol=tolerance, atol=tolerance)
        if dtype == torch.float32 or rows > 16:
            g = oxyfuel.compile(torch.mm, options=useless)
            m = w.t().contiguous()
            torch.testing.assert_close(g(x, m), x @ m, rtol=tolerance, atol=tolerance * 10)
    assert oxyfuel.stats()["extern_calls"] == 0


def test_convolution(useless):
    x = torch.randn(1, 32, 9, 9).to(memory_format=torch.channels_last)
    w = torch.randn(48, 32, 3, 3)
    f = oxyfuel.compile(F.conv2d, options=useless)
    with torch.no_grad():
        torch.testing.assert_close(f(x, w), F.conv2d(x, w), rtol=1e-4, atol=1e-4)


def test_other_texts_are_compiled(useless):
    with torch.no_grad(), pytest.raises(Exception, match="does not compile"):
        oxyfuel.compile(lambda x: x + 1, options=useless)(torch.zeros(8))
