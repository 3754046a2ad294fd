"""Functions of torch that take sizes as plain ints, for sizes that vary."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F


def _constant(number: Any) -> Any:
    """The numbers themselves, which the capture is for from here on."""
    if isinstance(number, (list, tuple)):
        return [_constant(n) for n in number]
    return int(repr(number)) if isinstance(number, int) else number


def unfold(input: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """`Tensor.unfold`."""
    dimension = _constant(dimension)
    fits = -input.dim() <= dimension < input.dim() and step > 0
    if not fits or not 0 <= size <= input.shape[dimension]:
        return input.unfold(dimension, _constant(size), _constant(step))
    dimension %= input.dim()
    sizes, strides = list(input.shape), list(input.stride())
    sizes[dimension] = (sizes[dimension] - size) // step + 1
    strides.append(strides[dimension])
    strides[dimension] = strides[dimension] * step
    return input.as_strided([*sizes, size], strides)


def diagonal(input: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """`torch.diagonal`: the main one of what lies beside it."""
    dim, start = (dim2, offset) if offset >= 0 else (dim1, -offset)
    if input.dim() < 2 or not -input.dim() <= dim < input.dim() or start > input.shape[dim]:
        return torch.diagonal(input, _constant(offset), dim1, dim2)
    beside = input.narrow(dim, start, input.shape[dim] - start)
    return torch.diagonal(beside, 0, dim1, dim2)


def diag(input: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    """`torch.diag`."""
    if input.dim() == 1:
        return diag_embed(input, diagonal)
    if input.dim() != 2:
        return torch.diag(input, _constant(diagonal))
    return _diagonal(input, diagonal).clone(memory_format=torch.contiguous_format)


_diagonal = diagonal


def diag_embed(
    input: torch.Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> torch.Tensor:
    """`torch.diag_embed`."""
    rank = input.dim() + 1
    if rank < 2 or not all(-rank <= d < rank for d in (dim1, dim2)) or (dim1 - dim2) % rank == 0:
        return torch.diag_embed(input, _constant(offset), dim1, dim2)
    length = input.shape[-1] + (offset if offset >= 0 else -offset)
    sizes = list(input.shape[:-1])
    for d in sorted([dim1 % rank, dim2 % rank]):
        sizes.insert(d, length)
    out = input.new_zeros(sizes)
    diagonal(out, offset, dim1, dim2).copy_(input)
    return out


def pixel_shuffle(input: torch.Tensor, upscale_factor: int) -> torch.Tensor:
    """`torch.pixel_shuffle`."""
    r = upscale_factor
    if input.dim() < 3 or r < 1 or input.shape[-3] % (r * r) != 0 or not input.is_contiguous():
        return torch.pixel_shuffle(input, _constant(r))
    channels, height, width = input.shape[-3:]
    parts = input.reshape(-1, channels // (r * r), r, r, height, width).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(*input.shape[:-3], channels // (r * r), height * r, width * r)


def pixel_unshuffle(input: torch.Tensor, downscale_factor: int) -> torch.Tensor:
    """`torch.pixel_unshuffle`."""
    r = downscale_factor
    fits = input.dim() >= 3 and r >= 1 and input.is_contiguous()
    if not fits or input.shape[-2] % r != 0 or input.shape[-1] % r != 0:
        return torch.pixel_unshuffle(input, _constant(r))
    channels, height, width = input.shape[-3], input.shape[-2] // r, input.shape[-1] // r
    parts = input.reshape(-1, channels, height, r, width, r).permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(*input.shape[:-3], channels * r * r, height, width)


def _each(number: Any, dims: int, missing: Any = None) -> list:
    """One number a dimension."""
    if number is None or (isinstance(number, (list, tuple)) and len(number) == 0):
        number = missing
    numbers = list(number) if isinstance(number, (list, tuple)) else [number]
    return numbers * dims if len(numbers) == 1 else numbers


class _Windows:
    """The windows of a pooling, or of a convolution, over the last dimensions of an image."""

    def __init__(
        self, input: torch.Tensor, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any
    ):
        self.input = input
        self.dims = dims
        self.kernel = _each(kernel, dims)
        self.stride = _each(stride, dims, self.kernel)
        self.padding = _each(padding, dims, 0)
        self.dilation = _each(dilation, dims, 1)

    def fit(self, padding_of_half: bool) -> bool:
        """Whether torch takes them, of plain images."""
        lists = (self.kernel, self.stride, self.padding, self.dilation)
        x = self.input
        if not all(len(numbers) == self.dims for numbers in lists) or not x.is_contiguous():
            return False
        if not x.is_floating_point() or x.dim() not in (self.dims + 1, self.dims + 2):
            return False
        for k, s, p, d, n in zip(*lists, x.shape[-self.dims :]):
            if k < 1 or s < 1 or p < 0 or d < 1 or (padding_of_half and 2 * p > k):
                return False
            if n + 2 * p < d * (k - 1) + 1:
                return False
        return all(n > 0 for n in x.shape)

    def are_one(self) -> bool:
        """Whether there is one alone, of the whole image."""
        if not all(p == 0 for p in self.padding) or not all(d == 1 for d in self.dilation):
            return False
        return all(k == n for k, n in zip(self.kernel, self.input.shape[-self.dims :]))

    def values(self, padded_with: float) -> torch.Tensor:
        """[..., places of the windows, elements of a window]."""
        x = self.input
        if any(p != 0 for p in self.padding):
            ends = [p for p in reversed(self.padding) for _ in range(2)]
            x = F.pad(x, ends, value=padded_with)
        indices = []
        for i in range(self.dims):
            k, s, d, n = self.kernel[i], self.stride[i], self.dilation[i], x.shape[i - self.dims]
            first = torch.arange((n - d * (k - 1) - 1) // s + 1) * s
            elements = torch.arange(k) * d
            shape = [1 for _ in range(2 * self.dims)]
            shape[i] = -1
            first = first.view(shape)
            shape[i] = 1
            shape[i + self.dims] = -1
            indices.append(first + elements.view(shape))
        return x[(..., *indices)]


def _avg_pool(
    function: Any,
    dims: int,
    input: torch.Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    count_padding: bool,
    *divisor: Any,
) -> torch.Tensor:
    windows = _Windows(input, dims, kernel, stride, padding, 1)
    last = list(range(-dims, 0))
    fits = not ceil and all(d is None for d in divisor) and windows.fit(True)
    if fits and windows.are_one():
        return input.mean(last, True)
    if fits and (count_padding or all(p == 0 for p in windows.padding)):
        return windows.values(0.0).mean(last)
    numbers = [_constant(n) for n in (kernel, [] if stride is None else stride, padding)]
    return function(input, *numbers, ceil, count_padding, *[_constant(d) for d in divisor])


def avg_pool1d(
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> torch.Tensor:
    """`torch.avg_pool1d`."""
    return _avg_pool(
        torch.avg_pool1d, 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad
    )


def _avg_pool_with_divisor(function: Any, dims: int) -> Any:
    def avg_pool(
        input: torch.Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> torch.Tensor:
        return _avg_pool(
            function, dims, input, kernel_size, stride, padding, ceil_mode, count_include_pad,
            divisor_override,
        )  # fmt: skip

    return avg_pool


avg_pool2d = _avg_pool_with_divisor(F.avg_pool2d, 2)
avg_pool3d = _avg_pool_with_divisor(F.avg_pool3d, 3)


def _max_pool(function: Any, dims: int) -> Any:
    def max_pool(
        input: torch.Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        windows = _Windows(input, dims, kernel_size, stride, padding, dilation)
        if ceil_mode or return_indices or not windows.fit(True):
            stride = None if stride is None else _constant(stride)
            numbers = _constant(kernel_size), stride, _constant(padding), _constant(dilation)
            return function(input, *numbers, ceil_mode, return_indices)
        values = input if windows.are_one() else windows.values(-math.inf)
        last = list(range(-dims, 0))
        if not (input.requires_grad and torch.is_grad_enabled()):
            return values.amax(last, values is input)
        out = values.flatten(-dims).max(-1).values  # with the gradient of the first of the largest
        return out.view(*out.shape, *[1 for _ in last]) if values is input else out

    return max_pool


max_pool1d = _max_pool(F.max_pool1d, 1)
max_pool2d = _max_pool(F.max_pool2d, 2)
max_pool3d = _max_pool(F.max_pool3d, 3)


def adaptive_avg_pool1d(input: torch.Tensor, output_size: Any) -> torch.Tensor:
    """`torch.adaptive_avg_pool1d`."""
    size = _each(output_size, 1)
    if len(size) != 1 or input.dim() not in (2, 3):
        return torch.adaptive_avg_pool1d(input, _constant(output_size))
    return F.adaptive_avg_pool2d(input.unsqueeze(-2), [1, size[0]]).squeeze(-2)


def blocks(
    input: torch.Tensor,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> torch.Tensor:
    """`F.unfold`."""
    windows = _Windows(input, 2, kernel_size, stride, padding, dilation)
    if not windows.fit(False):
        numbers = [_constant(n) for n in (kernel_size, dilation, padding, stride)]
        return F.unfold(input, *numbers)
    values = windows.values(0.0).movedim((-2, -1), (-4, -3))
    return values.flatten(-2).flatten(-4, -2)


def im2col(
    input: torch.Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> torch.Tensor:
    """`torch._C._nn.im2col`."""
    return blocks(input, kernel_size, dilation, padding, stride)


def rot90(input: torch.Tensor, k: int = 1, dims: Any = (0, 1)) -> torch.Tensor:
    """`torch.rot90`."""
    for turns in range(4):
        if k % 4 == turns:
            return torch.rot90(input, turns, dims)
    raise AssertionError("there are four")


def fftfreq(
    n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, device: Any = None
) -> torch.Tensor:
    """`torch.fft.fftfreq`."""
    places = torch.arange(n, device=device)
    return _frequencies(torch.where(places < (n + 1) // 2, places, places - n), n, d, dtype)


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, device: Any = None
) -> torch.Tensor:
    """`torch.fft.rfftfreq`."""
    return _frequencies(torch.arange(n // 2 + 1, device=device), n, d, dtype)


def _frequencies(places: torch.Tensor, n: int, d: float, dtype: torch.dtype | None) -> torch.Tensor:
    return places.to(torch.get_default_dtype() if dtype is None else dtype) * (1.0 / (n * d))


def fftshift(input: torch.Tensor, dim: Any = None) -> torch.Tensor:
    """`torch.fft.fftshift`."""
    dims = list(range(input.dim())) if dim is None else _each(dim, 1)
    return torch.roll(input, [input.shape[d] // 2 for d in dims], dims)


def ifftshift(input: torch.Tensor, dim: Any = None) -> torch.Tensor:
    """`torch.fft.ifftshift`."""
    dims = list(range(input.dim())) if dim is None else _each(dim, 1)
    return torch.roll(input, [(input.shape[d] + 1) // 2 for d in dims], dims)


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> torch.Tensor:
    """`torch.nn.utils.rnn.pad_sequence`."""
    sequences = list(sequences)
    first = sequences[0]
    alike = all(s.dim() == first.dim() and s.dtype == first.dtype for s in sequences)
    if first.dim() == 0 or not alike or padding_side not in ("left", "right"):
        lengths = [[_constant(n) for n in s.shape] for s in sequences]
        plain = [s.view(n) for s, n in zip(sequences, lengths)]
        return torch._C._nn.pad_sequence(plain, batch_first, padding_value, padding_side)
    longest = max([s.shape[0] for s in sequences])
    others = [0 for _ in range(2 * first.dim() - 2)]
    padded = []
    for s in sequences:
        missing = longest - s.shape[0]
        ends = [missing, 0] if padding_side == "left" else [0, missing]
        padded.append(F.pad(s, [*others, *ends], value=padding_value))
    return torch.stack(padded, 0 if batch_first else 1)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
) -> torch.Tensor:
    """`torch.kaiser_window`."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if window_length < 2 or dtype not in (torch.float32, torch.float64):
        return torch.kaiser_window(
            _constant(window_length), periodic, beta, dtype=dtype, device=device
        )
    middle = (window_length if periodic else window_length - 1) / 2
    places = torch.arange(window_length, dtype=dtype, device=device)
    inner = 1 - ((places - middle) / middle).square()
    return torch.i0(beta * inner.sqrt()) / torch.i0(torch.full((), beta, dtype=dtype))


def arange(
    start: int,
    end: int,
    step: int = 1,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
) -> torch.Tensor:
    """`torch.arange` of ints."""
    whole = all(isinstance(n, int) for n in (start, end, step))
    if not whole or step == 0 or (end < start if step > 0 else end > start):
        numbers = [_constant(n) for n in (start, end, step)]
        return torch.arange(*numbers, dtype=dtype, device=device)
    count = (end - start + step - 1) // step if step > 0 else (start - end - step - 1) // -step
    places = start + torch.arange(count, device=device) * step
    return places if dtype is None else places.to(dtype)
