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


def _copied(x: torch.Tensor) -> torch.Tensor:
    """Rows of memory of their own, also where `x` could be a view of these sizes."""
    return x.clone(memory_format=torch.contiguous_format)


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


def broadcast_shapes(*shapes: Any) -> torch.Size:
    """`torch.broadcast_shapes`, with its errors."""
    given = [(s,) if isinstance(s, int) else s for s in shapes if s is not None]
    for s in given:
        if not isinstance(s, (tuple, list)):
            raise RuntimeError(
                f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {s}"
            )
    out = [1 for _ in range(max([len(s) for s in given], default=0))]
    for place, s in enumerate(given):
        for i in range(-1, -1 - len(s), -1):
            if s[i] == out[i]:
                continue
            if out[i] == 1:
                if s[i] < 0:
                    raise ValueError("Attempting to broadcast a dimension with negative length!")
                out[i] = s[i]
            elif s[i] != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {s[i]} at {i}! Mismatching "
                    f"argument at index {place} had {s}; but expected shape should be "
                    f"broadcastable to {out}"
                )
    return torch.Size(out)


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
    return _copied(parts).view(*input.shape[:-3], channels // (r * r), height * r, width * r)


def pixel_unshuffle(input: torch.Tensor, downscale_factor: int) -> torch.Tensor:
    """`torch.pixel_unshuffle`."""
    r = downscale_factor
    fits = input.dim() >= 3 and r >= 1 and input.is_contiguous()
    if not fits or input.shape[-2] % r != 0 or input.shape[-1] % r != 0:
        return torch.pixel_unshuffle(input, _constant(r))
    channels, height, width = input.shape[-3], input.shape[-2] // r, input.shape[-1] // r
    parts = input.reshape(-1, channels, height, r, width, r).permute(0, 1, 3, 5, 2, 4)
    return _copied(parts).view(*input.shape[:-3], channels * r * r, height, width)


def _each(number: Any, dims: int, missing: Any = None) -> list:
    """One number a dimension."""
    if number is None or (isinstance(number, (list, tuple)) and len(number) == 0):
        number = missing
    numbers = list(number) if isinstance(number, (list, tuple)) else [number]
    return numbers * dims if len(numbers) == 1 else numbers


def _layout(image: torch.Tensor, dims: int) -> torch.memory_format | None:
    """That of an image, and of what is pooled of it; nothing where it has gaps."""
    if image.is_contiguous():
        return torch.contiguous_format
    if image.dim() != dims + 2:
        return None
    if image.dim() == 4 and image.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    if image.dim() == 5 and image.is_contiguous(memory_format=torch.channels_last_3d):
        return torch.channels_last_3d
    return None


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
        self.ends: list | None = None
        self.layout: torch.memory_format | None = None

    def fit(self, padding_of_half: bool) -> bool:
        """Whether torch takes them, of plain images."""
        lists = (self.kernel, self.stride, self.padding, self.dilation)
        x = self.input
        if not all(len(numbers) == self.dims for numbers in lists):
            return False
        if not x.is_floating_point() or x.dim() not in (self.dims + 1, self.dims + 2):
            return False
        self.layout = _layout(x, self.dims)
        if self.layout is None:
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

    def add_ends(self) -> None:
        """With `ceil_mode`: what the last window needs of elements behind the padding."""
        self.ends = []
        for i in range(self.dims):
            k, s, p, d = self.kernel[i], self.stride[i], self.padding[i], self.dilation[i]
            n = self.input.shape[i - self.dims]
            reach = d * (k - 1) + 1
            # The last window begins in the image or in front of it.
            places = min((n + 2 * p - reach + s - 1) // s + 1, (n + p - 1) // s + 1)
            self.ends.append(max(0, (places - 1) * s + reach - (n + 2 * p)))

    def values(self, padded_with: float) -> torch.Tensor:
        """[..., places of the windows, elements of a window]."""
        return self.values_of(self.padded(self.input, padded_with))

    def padded(self, x: torch.Tensor, value: float) -> torch.Tensor:
        if all(p == 0 for p in self.padding) and self.ends is None:
            return x
        amounts = []
        for p, end in zip(reversed(self.padding), reversed(self.ends or _each(0, self.dims))):
            amounts += [p, p + end]
        return F.pad(x, amounts, value=value)

    def counts(self, with_padding: bool) -> torch.Tensor:
        """How many elements of the image, and of its padding, each window has."""
        image = self.input.new_ones(self.input.shape[-self.dims :])
        last = list(range(-self.dims, 0))
        if not with_padding:
            return self.values_of(self.padded(image, 0.0)).sum(last)
        image = F.pad(image, [p for p in reversed(self.padding) for _ in range(2)], value=1.0)
        if self.ends is not None:
            image = F.pad(image, [n for end in reversed(self.ends) for n in (0, end)])
        return self.values_of(image).sum(last)

    def laid_out(self, out: torch.Tensor) -> torch.Tensor:
        plain = self.layout == torch.contiguous_format
        return out if plain else out.clone(memory_format=self.layout)

    def values_of(self, x: torch.Tensor) -> torch.Tensor:
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
    fits = windows.fit(True)
    by_count = all(d is None for d in divisor)
    no_padding = not ceil and (count_padding or all(p == 0 for p in windows.padding))
    # Sums of halves are rounded once, behind the division.
    single = input.dtype in (torch.float32, torch.float64)
    if fits and by_count and windows.are_one() and windows.layout == torch.contiguous_format:
        return input.mean(last, True)
    if fits and ((by_count and no_padding) or (single and (by_count or divisor[0] != 0))):
        if ceil:
            windows.add_ends()
        values = windows.values(0.0)
        if not by_count:
            out = values.sum(last) / divisor[0]
        elif no_padding:
            out = values.mean(last)
        else:
            out = values.sum(last) / windows.counts(count_padding)
        return windows.laid_out(out)
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
        if return_indices or not windows.fit(True):
            stride = None if stride is None else _constant(stride)
            numbers = _constant(kernel_size), stride, _constant(padding), _constant(dilation)
            return function(input, *numbers, ceil_mode, return_indices)
        if ceil_mode:
            windows.add_ends()
        plain = windows.layout == torch.contiguous_format
        values = input if plain and windows.are_one() else windows.values(-math.inf)
        last = list(range(-dims, 0))
        if not (input.requires_grad and torch.is_grad_enabled()):
            return windows.laid_out(values.amax(last, values is input))
        out = values.flatten(-dims).max(-1).values  # with the gradient of the first of the largest
        if values is input:
            return out.view(*out.shape, *[1 for _ in last])
        return windows.laid_out(out)

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
    if not windows.fit(False) or windows.layout != torch.contiguous_format:
        numbers = [_constant(n) for n in (kernel_size, dilation, padding, stride)]
        return F.unfold(input, *numbers)
    values = _copied(windows.values(0.0).movedim((-2, -1), (-4, -3)))
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


def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
) -> torch.Tensor:
    """`torch.logspace`, whose base is a double."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    tensors = isinstance(start, torch.Tensor) or isinstance(end, torch.Tensor)
    if tensors or base < 1 or dtype not in (torch.float32, torch.float64):
        return torch.logspace(start, end, steps, _constant(base), dtype=dtype, device=device)
    exponents = torch.linspace(start, end, steps, dtype=dtype, device=device)
    return torch.pow(torch.tensor(base, dtype=torch.float64), exponents.double()).to(dtype)


def group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """`torch.group_norm`."""
    # Images may have another layout, and keep it.
    fits = input.dim() >= 2 and num_groups >= 1
    fits = fits and (input.dim() not in (4, 5) or input.is_contiguous())
    single = input.dtype in (torch.float32, torch.float64)
    single = single and all(p is None or p.dtype == input.dtype for p in (weight, bias))
    single = single and all(p is None or p.shape == input.shape[1:2] for p in (weight, bias))
    if not fits or not single or input.shape[1] % num_groups != 0 or input.numel() == 0:
        return torch.group_norm(input, _constant(num_groups), weight, bias, eps, cudnn_enabled)
    inner = input.shape[1] // num_groups * math.prod(input.shape[2:])
    groups = input.contiguous().view(input.shape[0], num_groups, inner)
    out = F.layer_norm(groups, [inner], eps=eps).view(input.shape)
    places = [input.shape[1], *[1 for _ in input.shape[2:]]]
    if weight is not None:
        out = out * weight.view(places)
    return out if bias is None else out + bias.view(places)


def histc(input: torch.Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> torch.Tensor:
    """`torch.histc`."""
    differentiated = input.requires_grad and torch.is_grad_enabled()
    single = input.dtype in (torch.float32, torch.float64)
    ends = -math.inf < min < max < math.inf
    if bins < 1 or not ends or not single or differentiated:
        return torch.histc(input, _constant(bins), min, max)
    x = input.reshape(-1)
    first, last = (torch.tensor(float(end), dtype=x.dtype) for end in (min, max))
    counted = (x >= first) & (x <= last)
    places = ((x - first) * bins / (last - first)).masked_fill(~counted, 0).long()
    places = places.clamp(max=bins - 1)
    return x.new_zeros(bins).index_add(0, places, counted.to(x.dtype))


def stft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> torch.Tensor:
    """`torch.stft`."""
    step = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    plain = input.dim() in (1, 2) and input.is_floating_point() and not align_to_window
    fits = return_complex is True and n_fft > 0 and step > 0 and 0 < width <= n_fft
    if window is not None:
        fits = fits and window.dim() == 1 and window.shape[0] == width
        fits = fits and window.is_floating_point()
    padding = n_fft // 2 if center else 0
    if not plain or not fits or input.shape[-1] + 2 * padding < n_fft:
        numbers = [_constant(n) for n in (n_fft, hop_length, win_length)]
        return torch.stft(
            input, *numbers, window, center, pad_mode, normalized, onesided, return_complex,
            align_to_window,
        )  # fmt: skip
    signal = input if input.dim() == 2 else input.unsqueeze(0)
    if center:
        signal = F.pad(signal.unsqueeze(0), (padding, padding), pad_mode).squeeze(0)
    if signal.requires_grad and torch.is_grad_enabled():
        # The gradient of a view of memory would ask how much memory there is.
        first = torch.arange((signal.shape[1] - n_fft) // step + 1) * step
        frames = signal[:, first.unsqueeze(1) + torch.arange(n_fft)]
    else:
        frames = unfold(signal, 1, n_fft, step)
    if width < n_fft or window is not None:
        left = (n_fft - width) // 2
        weights = input.new_ones(width) if window is None else window
        frames = frames * F.pad(weights, (left, n_fft - width - left))
    norm = "ortho" if normalized else "backward"
    transform = torch.fft.fft if onesided is False else torch.fft.rfft
    out = transform(frames, dim=2, norm=norm).transpose(1, 2)
    return out if input.dim() == 2 else out.squeeze(0)


def kron(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`torch.kron`."""
    rank = max(input.dim(), other.dim())
    outer = [*[1 for _ in range(rank - input.dim())], *input.shape]
    inner = [*[1 for _ in range(rank - other.dim())], *other.shape]
    a = input.reshape([n for size in outer for n in (size, 1)])
    b = other.reshape([n for size in inner for n in (1, size)])
    return (a * b).view([m * n for m, n in zip(outer, inner)])


def block_diag(*tensors: torch.Tensor) -> torch.Tensor:
    """`torch.block_diag`."""
    if any(t.dim() > 2 for t in tensors):
        raise RuntimeError("block_diag: Input tensors must have 2 or fewer dimensions")
    if any(t.dtype != tensors[0].dtype for t in tensors):
        common = sum([t.new_zeros([0 for _ in t.shape]) for t in tensors]).dtype
        tensors = tuple([t.to(common) for t in tensors])
    blocks = [t if t.dim() == 2 else t.reshape(1, -1) for t in tensors]
    width = sum([b.shape[1] for b in blocks])
    rows, left = [], 0
    for b in blocks:
        rows.append(F.pad(b, (left, width - left - b.shape[1])))
        left = left + b.shape[1]
    return torch.cat(rows)


def take_along_dim(
    input: torch.Tensor, indices: torch.Tensor, dim: int | None = None
) -> torch.Tensor:
    """`torch.take_along_dim`."""
    if dim is None:
        return input.view(-1).gather(0, indices.view(-1))
    rank = input.dim()
    if indices.dim() != rank or indices.dtype != torch.int64 or not -rank <= dim < rank:
        return torch.ops.aten.take_along_dim(input, indices, dim)
    apart = [list(t.shape) for t in (input, indices)]
    for sizes in apart:
        sizes[dim] = 1
    sizes = list(broadcast_shapes(*apart))
    sizes[dim] = -1
    return input.expand(sizes).gather(dim, indices.expand(sizes) % input.shape[dim])


def matrix_rank(
    A: torch.Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> torch.Tensor:
    """`torch.linalg.matrix_rank`."""
    single = A.dtype in (torch.float32, torch.float64) and A.dim() >= 2
    if single and rtol is None and not isinstance(atol, torch.Tensor):
        atol = 0.0 if atol is None else atol
        rtol = 0.0 if atol > 0 else torch.finfo(A.dtype).eps * max(A.shape[-1], A.shape[-2])
        atol, rtol = [torch.full((), x, dtype=torch.float64) for x in (atol, rtol)]
    return torch.ops.aten.linalg_matrix_rank(A, atol=atol, rtol=rtol, hermitian=hermitian)


def matrix_norm(
    A: torch.Tensor,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`torch.linalg.matrix_norm`."""
    rank = A.dim()
    of_values = isinstance(ord, (int, float)) and abs(ord) == 2 and dtype is None
    of_values = of_values and rank >= 2 and len(dim) == 2
    if not of_values or not all(-rank <= d < rank for d in dim) or dim[0] % rank == dim[1] % rank:
        return torch.ops.aten.linalg_matrix_norm(A, ord, dim, keepdim, dtype=dtype)
    values = torch.linalg.svdvals(A.movedim(dim, (-2, -1)))
    out = values.amax(-1) if ord > 0 else values.amin(-1)
    return out[..., None, None].movedim((-2, -1), dim) if keepdim else out


def cov(
    input: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """`torch.cov`."""
    weighted = fweights is not None or aweights is not None
    if weighted or input.dim() > 2 or input.dtype == torch.bool:
        return torch.ops.aten.cov(
            input, correction=correction, fweights=fweights, aweights=aweights
        )
    rows = input if input.dim() == 2 else input.reshape(1, -1)
    if rows.shape[1] <= correction:
        return torch.ops.aten.cov(input, correction=correction)
    count = torch.full((), rows.shape[1], dtype=torch.int64, device=input.device)
    rows = rows - (rows.sum(1) / count).unsqueeze(1)
    return (torch.mm(rows, rows.t().conj()) / (count - correction)).squeeze()


def corrcoef(input: torch.Tensor) -> torch.Tensor:
    """`torch.corrcoef`."""
    if input.dim() > 2 or input.is_complex() or input.dtype == torch.bool:
        return torch.ops.aten.corrcoef(input)
    products = cov(input)
    if products.dim() == 0:
        return products / products
    deviations = products.diag().sqrt()
    return (products / deviations.unsqueeze(-1) / deviations.unsqueeze(0)).clip(-1, 1)
