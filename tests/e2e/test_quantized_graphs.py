"""The ops of exported quantised graphs (quantized_decomposed): kernels of ours, eager's numbers."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the library
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

q = torch.ops.quantized_decomposed
BYTES = [(torch.uint8, 0, 255), (torch.int8, -128, 127), (torch.int8, -127, 100)]


def check(fn, *inputs, extern=0):
    expected, got = fn(*inputs), oxyfuel.compile(fn)(*inputs)
    assert (got.dtype, got.stride()) == (expected.dtype, expected.stride())
    assert torch.equal(got, expected)
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == 0 and stats["extern_calls"] == extern


LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.transpose(0, 1),
    "slice": lambda x: x[:, ::2],
    "empty": lambda x: x[:0],
    "channels-last": lambda x: x[None].contiguous(memory_format=torch.channels_last)[0],
}


@pytest.mark.parametrize("dtype,least,most", BYTES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("of", [torch.float32, torch.bfloat16, torch.float16])
def test_one_scale(dtype, least, most, layout, of):
    x = LAYOUTS[layout]((torch.randn(6, 5, 4) * 40).to(of))
    given = (0.37, 3, least, most, dtype)
    check(lambda x: q.quantize_per_tensor(x, *given), x)
    back = q.quantize_per_tensor(x, *given)
    oxyfuel.reset()
    check(lambda x: q.dequantize_per_tensor(x, *given), back)
    for out in (torch.float32, torch.bfloat16, torch.float16):
        oxyfuel.reset()
        check(lambda x, out=out: q.dequantize_per_tensor(x, *given, out_dtype=out), back)
    oxyfuel.reset()
    check(lambda x: q.dequantize_per_tensor(q.quantize_per_tensor(x, *given), *given) * 2, x)


@pytest.mark.parametrize("dtype,least,most", BYTES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("zero", [torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scales_of_channels(dtype, least, most, layout, zero, axis):
    x = LAYOUTS[layout](torch.randn(6, 5, 4) * 40)
    count = x.shape[axis]
    scales, zeros = torch.rand(count) + 0.1, torch.randint(-5, 5, (count,)).to(zero)
    given, extern = (axis, least, most, dtype), int(axis > 0 and layout == "empty")
    check(lambda x, s, z: q.quantize_per_channel(x, s, z, *given), x, scales, zeros, extern=extern)
    back = q.quantize_per_channel(x, scales, zeros, *given)
    oxyfuel.reset()
    again = (back, scales, zeros)
    check(lambda x, s, z: q.dequantize_per_channel(x, s, z, *given), *again, extern=extern)
    oxyfuel.reset()
    check(lambda x, s, z: q.dequantize_per_channel(x, s, None, *given), *again, extern=extern)


def test_middles_go_to_even_numbers():
    x = torch.arange(-300, 300) * 0.25
    check(lambda x: q.quantize_per_tensor(x, 0.5, 0, -128, 127, torch.int8), x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: q.quantize_per_tensor(x.double(), 0.1, 0, -128, 127, torch.int8),
        lambda x: q.quantize_per_tensor(x, 0.1, 0, -129, 127, torch.int8),
        lambda x: q.dequantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8),
        lambda x: q.quantize_per_channel(x, x[0], x[0].int(), 2, -128, 127, torch.int8),
    ],
)
def test_what_eager_refuses(call):
    x = torch.randn(3, 4)
    with pytest.raises(Exception) as expected:
        call(x)
    with pytest.raises(expected.type):
        oxyfuel.compile(call)(x)


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_layer(rows):
    """As torchao's X86InductorQuantizer writes a linear layer."""
    x, w, bias = torch.randn(rows, 48), torch.randn(32, 48), torch.randn(32)
    scales, zeros = w.abs().amax(1) / 127, torch.zeros(32, dtype=torch.int64)
    narrow = q.quantize_per_channel(w, scales, zeros, 0, -127, 127, torch.int8)

    def fn(x, w, scales, zeros, bias):
        x = q.quantize_per_tensor(x, 0.02, 128, 0, 255, torch.uint8)
        x = q.dequantize_per_tensor(x, 0.02, 128, 0, 255, torch.uint8)
        w = q.dequantize_per_channel(w, scales, zeros, 0, -127, 127, torch.int8)
        return F.relu(F.linear(x, w, bias))

    inputs = (x, narrow, scales, zeros, bias)
    got = oxyfuel.compile(fn)(*inputs)
    torch.testing.assert_close(got, fn(*inputs), rtol=1e-5, atol=1e-5)
    assert oxyfuel.stats()["extern_calls"] == 0
