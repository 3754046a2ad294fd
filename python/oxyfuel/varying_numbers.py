"""Functions of torch that compute with the floats they are given, for floats that vary."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

_elu = torch.ops.aten.elu
_rrelu_with_noise = torch.ops.aten.rrelu_with_noise
_scaled_dot_product_attention = torch.ops.aten.scaled_dot_product_attention


def _constant(number: Any) -> Any:
    """The number itself, which the capture is for from here on."""
    return number if number is None else float(repr(float(number)))


def _drops(input: torch.Tensor, p: float, train: bool) -> bool:
    return train and 0 < p < 1 and input.numel() > 0


def _rate(p: float) -> float:
    """One where nothing is dropped."""
    return 0.0 if 0 < p < 1 else _constant(p)


def _noise(input: torch.Tensor, keep: float) -> torch.Tensor:
    return torch.empty_like(input).bernoulli_(keep)


def _feature_noise(input: torch.Tensor, keep: float) -> torch.Tensor:
    if input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    sizes = [*input.shape[:2], *[1 for _ in input.shape[2:]]]
    return input.new_empty(sizes).bernoulli_(keep)


def _dropout(function: Any, noise: Any, input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`function`, in place where its name says so."""
    if not _drops(input, p, train):
        return function(input, _rate(p), train)
    kept = noise(input, 1 - p).div_(1 - p)
    return input.mul_(kept) if _is_in_place(function) else input * kept


def _alpha_dropout(
    function: Any, noise: Any, input: torch.Tensor, p: float, train: bool
) -> torch.Tensor:
    """The same, which keeps mean and variance of what a selu gives."""
    if not _drops(input, p, train):
        return function(input, _rate(p), train)
    alpha = 1.7580993408473766  # its least value, negated
    a = 1 / math.sqrt((alpha * alpha * p + 1) * (1 - p))
    kept = noise(input, 1 - p)
    shift = kept.add(-1).mul_(alpha * a).add_(alpha * a * p)
    kept = kept.mul_(a)
    return (input.mul_(kept) if _is_in_place(function) else input * kept).add_(shift)


def _is_in_place(function: Any) -> bool:
    return function.__name__.endswith("_")


def dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.dropout`."""
    return _dropout(torch.dropout, _noise, input, p, train)


def dropout_(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.dropout_`."""
    return _dropout(torch.dropout_, _noise, input, p, train)


def feature_dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.feature_dropout`."""
    return _dropout(torch.feature_dropout, _feature_noise, input, p, train)


def feature_dropout_(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.feature_dropout_`."""
    return _dropout(torch.feature_dropout_, _feature_noise, input, p, train)


def alpha_dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.alpha_dropout`."""
    return _alpha_dropout(torch.alpha_dropout, _noise, input, p, train)


def alpha_dropout_(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.alpha_dropout_`."""
    return _alpha_dropout(torch.alpha_dropout_, _noise, input, p, train)


def feature_alpha_dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.feature_alpha_dropout`."""
    return _alpha_dropout(torch.feature_alpha_dropout, _feature_noise, input, p, train)


def feature_alpha_dropout_(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """`torch.feature_alpha_dropout_`."""
    return _alpha_dropout(torch.feature_alpha_dropout_, _feature_noise, input, p, train)


def celu(input: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """`torch.celu`."""
    if not alpha > 0:
        return torch.celu(input, _constant(alpha))
    return _elu(input, alpha, 1.0, 1.0 / alpha)


def rrelu(
    input: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> torch.Tensor:
    """`torch.rrelu`, which has one slope where it does not train."""
    if not -math.inf < lower <= upper < math.inf:
        return torch.rrelu(input, _constant(lower), _constant(upper), training)
    if training:
        return _rrelu_with_noise(input, torch.empty_like(input), lower, upper, True)
    return F.leaky_relu(input, (lower + upper) / 2)


def clamp_(input: torch.Tensor, min: float | None = None, max: float | None = None) -> torch.Tensor:
    """`Tensor.clamp_`."""
    if not input.is_floating_point():
        return input.clamp_(_constant(min), _constant(max))
    return input.copy_(torch.clamp(input.clone(), min, max))


def float_power(input: Any, exponent: Any) -> torch.Tensor:
    """`torch.float_power`."""
    tensors = [x for x in (input, exponent) if isinstance(x, torch.Tensor)]
    wide = torch.complex128 if any(x.is_complex() for x in tensors) else torch.float64
    return torch.pow(*[x.to(wide) if isinstance(x, torch.Tensor) else x for x in (input, exponent)])


def vector_norm(
    x: torch.Tensor,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`torch.linalg.vector_norm`, for an order that has no code of its own there, and whose powers
    are numbers."""
    known = not 1 / 16 < ord < 64 or ord == 1 or ord == 2
    if known or x.dim() == 0 or not (x.is_floating_point() or x.is_complex()):
        return torch.linalg.vector_norm(x, _constant(ord), dim, keepdim, dtype=dtype)
    parts = (x if dtype is None else x.to(dtype)).abs()
    kind = parts.dtype
    if kind.itemsize < 4:
        parts = parts.float()
    # Roots and powers of 0 have no gradient that a sum could have.
    zero = parts == 0
    powers = parts.masked_fill(zero, 1).pow(ord).masked_fill(zero, 0)
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    total = powers.sum(dims, True)
    none = total == 0
    out = total.masked_fill(none, 1).pow(1 / ord).masked_fill(none, 0).to(kind)
    return out if keepdim else out.squeeze(dims)


def norm(
    input: torch.Tensor,
    p: float,
    dim: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`torch.norm`, of a vector."""
    return vector_norm(input, p, dim, keepdim, dtype=dtype)


def dist(input: torch.Tensor, other: torch.Tensor, p: float = 2) -> torch.Tensor:
    """`torch.dist`."""
    return vector_norm(input - other, p)


def pairwise_distance(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> torch.Tensor:
    """`torch.pairwise_distance`."""
    last = max(x1.dim(), x2.dim()) - 1
    return vector_norm(x1 - x2 + eps, p, last, keepdim)


def triplet_margin_loss(
    anchor: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> torch.Tensor:
    """`torch.triplet_margin_loss`; reductions are 0 (none), 1 (mean) and 2 (sum)."""
    if not anchor.dim() == positive.dim() == negative.dim():
        return torch.triplet_margin_loss(
            anchor, positive, negative, margin, _constant(p), _constant(eps), swap, reduction
        )
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.minimum(far, pairwise_distance(positive, negative, p, eps))
    loss = (margin + near - far).clamp_min(0)
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


def renorm(input: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    """`torch.renorm`."""
    if input.dim() < 2 or not input.is_floating_point() or not p > 0 or not maxnorm >= 0:
        return torch.renorm(input, _constant(p), dim, maxnorm)
    others = [d for d in range(input.dim()) if d != dim % input.dim()]
    wide = torch.float32 if input.dtype.itemsize < 4 else input.dtype
    norms = vector_norm(input, p, others, True, dtype=wide)
    factors = torch.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)
    return input * factors.to(input.dtype)


def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """`torch.normal`."""
    if size is None:
        return torch.normal(
            *[x if isinstance(x, torch.Tensor) else _constant(x) for x in (mean, std)]
        )
    return torch.empty(size, dtype=dtype).normal_(mean, std)


def var(
    input: torch.Tensor, dim: Any = None, *, correction: float = 1, keepdim: bool = False
) -> torch.Tensor:
    """`torch.var`."""
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    count = math.prod([input.shape[d] for d in dims])
    fits = input.dtype in (torch.float32, torch.float64) and len(dims) > 0
    if not fits or not -math.inf < correction < count:
        return torch.var(input, dim, correction=_constant(correction), keepdim=keepdim)
    squares = (input - input.mean(dims, True)).square()
    return squares.sum(dims, keepdim) / (count - correction)


def std(
    input: torch.Tensor, dim: Any = None, *, correction: float = 1, keepdim: bool = False
) -> torch.Tensor:
    """`torch.std`."""
    return var(input, dim, correction=correction, keepdim=keepdim).sqrt()


def quantile(
    input: torch.Tensor,
    q: float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> torch.Tensor:
    """`torch.quantile`."""
    return _quantile(torch.quantile, input, q, dim, keepdim, interpolation)


def nanquantile(
    input: torch.Tensor,
    q: float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> torch.Tensor:
    """`torch.nanquantile`."""
    return _quantile(torch.nanquantile, input, q, dim, keepdim, interpolation)


def _quantile(
    function: Any,
    input: torch.Tensor,
    q: float,
    dim: int | None,
    keepdim: bool,
    interpolation: str,
) -> torch.Tensor:
    fits = input.dtype in (torch.float32, torch.float64) and 0 <= q <= 1
    if not fits or input.dim() == 0 or input.numel() == 0:
        return function(input, _constant(q), dim, keepdim, interpolation=interpolation)
    values = input.flatten() if dim is None else input.movedim(dim, -1)
    values = values.sort(-1).values
    missing = values.isnan()
    if function is torch.nanquantile:
        last = (values.shape[-1] - 1 - missing.sum(-1, keepdim=True)).clamp(min=0)
        ranks = last * torch.full((), q, dtype=input.dtype)
    else:
        last = values.shape[-1] - 1
        ranks = torch.full((*values.shape[:-1], 1), q, dtype=input.dtype) * last
        ranks = ranks.masked_fill(missing.any(-1, keepdim=True), last)
    if interpolation in ("lower", "higher", "nearest"):
        rounded = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}
        ranks = rounded[interpolation](ranks)
    below = ranks.long()
    out = values.gather(-1, below)
    if interpolation in ("linear", "midpoint"):
        weights = torch.full_like(ranks, 0.5) if interpolation == "midpoint" else ranks - below
        out = out.lerp(values.gather(-1, ranks.ceil().long()), weights)
    if not keepdim:
        return out.squeeze(-1)
    return out.view([1 for _ in input.shape]) if dim is None else out.squeeze(-1).unsqueeze(dim)


def cross_entropy_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """`torch._C._nn.cross_entropy_loss`; reductions are 0 (none), 1 (mean) and 2 (sum)."""
    if not 0 < label_smoothing <= 1 or input.dim() == 0:
        return torch._C._nn.cross_entropy_loss(
            input, target, weight, reduction, ignore_index, _constant(label_smoothing)
        )
    of_classes = 0 if input.dim() == 1 else 1
    classes = input.shape[of_classes]
    logarithms = torch.log_softmax(input, of_classes, dtype=input.dtype)
    weighted = logarithms
    if weight is not None:
        weighted = logarithms * weight.view([-1] + [1 for _ in input.shape[2:]])
    if target.is_floating_point():
        target = target * (1 - label_smoothing) + label_smoothing / classes
        if reduction == 0:
            return -(weighted * target).sum(of_classes)
        total = -(weighted * target).sum()
        return total if reduction == 2 else total / (input.numel() / classes)
    loss = torch._C._nn.nll_loss_nd(logarithms, target, weight, reduction, ignore_index)
    ignored = target == ignore_index
    smooth = (-weighted.sum(of_classes)).masked_fill(ignored, 0)
    if reduction == 1:
        counts = ~ignored
        if weight is not None:
            chosen = weight[target.masked_fill(ignored, 0)]
            counts = chosen.masked_fill(ignored, 0)
        smooth = smooth.sum() / counts.sum()
    elif reduction == 2:
        smooth = smooth.sum()
    return _times(loss, 1 - label_smoothing) + _times(smooth, label_smoothing / classes)


def _times(input: torch.Tensor, factor: float) -> torch.Tensor:
    """Rounded once, as a product with a number is."""
    return (input.float() if input.dtype.itemsize < 4 else input).mul(factor).to(input.dtype)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`F.scaled_dot_product_attention`, whose fused kernel takes the scale as it is."""
    if 0 < dropout_p < 1 and not enable_gqa and not (is_causal and attn_mask is not None):
        return _attention_with_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale)
    dropout_p = _constant(dropout_p)
    if enable_gqa:
        scale = _constant(scale)
    return _scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _attention_with_dropout(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    p: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """What no fused kernel has. Both factors of the product are scaled, by the root."""
    dtype = query.dtype
    if dtype.itemsize < 4:
        query, key, value = query.float(), key.float(), value.float()
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    root = math.sqrt(abs(scale))
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, -math.inf)
    scores = torch.matmul(query * (-root if scale < 0 else root), key.transpose(-2, -1) * root)
    if mask is not None:
        scores = scores + mask
    weights = torch.ops.aten._safe_softmax(scores, -1)
    return torch.matmul(dropout(weights, p, True), value).to(dtype)


def for_each(word: str, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch._foreach_` and the word, tensor by tensor; arguments are one for all or lists."""
    others = [*args, *[v for k, v in kwargs.items() if k not in ("alpha", "value", "dtype")]]
    named = {k: v for k, v in kwargs.items() if k in ("alpha", "value", "dtype")}
    if not isinstance(tensors, (list, tuple)):
        return tuple([torch.pow(tensors, x) for x in others[0]])
    if word.startswith("addc") and len(others) == 3:
        named["value"] = others.pop()
    if word == "norm":
        of_one = torch.linalg.vector_norm
    else:
        of_one = getattr(torch.Tensor, _OF_ONE.get(word, word))
    item = lambda x, i: x[i] if isinstance(x, (list, tuple)) else x
    results = [
        of_one(x, *[item(y, i) for y in others], **{k: item(y, i) for k, y in named.items()})
        for i, x in enumerate(tensors)
    ]
    return tensors if word.endswith("_") else tuple(results)


# The methods of one tensor that take numbers.
_OF_ONE = {"maximum": "clamp_min", "maximum_": "clamp_min_",
           "minimum": "clamp_max", "minimum_": "clamp_max_"}  # fmt: skip


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
) -> torch.Tensor:
    """`torch.arange`: how many there are is a size."""
    if end is None:
        start, end = 0, start
    if dtype is None:
        dtype = torch.get_default_dtype()
    if step == 0 or not dtype.is_floating_point or (end - start) / step < 0:
        numbers = [_constant(n) for n in (start, end, step)]
        return torch.arange(*numbers, dtype=dtype, device=device)
    count = math.ceil((end - start) / step)
    places = torch.arange(count, dtype=torch.float64, device=device)
    return (start + places * step).to(dtype)


def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
) -> torch.Tensor:
    """`torch.logspace`."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in (torch.float32, torch.float64) or not base > 0:
        return torch.logspace(start, end, steps, _constant(base), dtype=dtype, device=device)
    return torch.pow(base, torch.linspace(start, end, steps, dtype=dtype, device=device))


def _tensors(input: torch.Tensor, *tolerances: float | None) -> list:
    device = input.device
    return [
        t if t is None or isinstance(t, torch.Tensor)
        else torch.full((), t, dtype=torch.float64, device=device)
        for t in tolerances
    ]  # fmt: skip


def pinv(
    input: torch.Tensor,
    rcond: float | None = None,
    hermitian: bool = False,
    *,
    atol: float | None = None,
    rtol: float | None = None,
) -> torch.Tensor:
    """`torch.linalg.pinv`."""
    if rcond is not None:
        atol, rtol = 0.0, rcond
    atol, rtol = _tensors(input, atol, rtol)
    return torch.linalg.pinv(input, atol=atol, rtol=rtol, hermitian=hermitian)


def matrix_rank(
    input: torch.Tensor,
    tol: float | None = None,
    hermitian: bool = False,
    *,
    atol: float | None = None,
    rtol: float | None = None,
) -> torch.Tensor:
    """`torch.linalg.matrix_rank`."""
    if tol is not None:
        return torch.linalg.matrix_rank(input, *_tensors(input, tol), hermitian)
    atol, rtol = _tensors(input, atol, rtol)
    return torch.linalg.matrix_rank(input, atol=atol, rtol=rtol, hermitian=hermitian)


_LINEAR = ("linear", "bilinear", "trilinear")
_WEIGHTED = {
    ("bicubic", False): torch.ops.aten.upsample_bicubic2d,
    ("bicubic", True): torch.ops.aten._upsample_bicubic2d_aa,
    ("bilinear", True): torch.ops.aten._upsample_bilinear2d_aa,
}


def _resampled(input: torch.Tensor, dim: int, scale: float, mode: str) -> torch.Tensor:
    """`input` with another length in one dimension; torch takes no notice of the factor where that
    is the same one, nor nearest where it is twice as long."""
    last = input.shape[dim] - 1
    length = math.floor(input.shape[dim] * scale)
    if mode != "nearest-exact" and length == last + 1:
        return input
    places = torch.arange(length, dtype=input.dtype)
    if mode == "nearest":
        step = 0.5 if length == 2 * (last + 1) else 1 / scale
        return input.index_select(dim, (places * step).floor().long().clamp(max=last))
    places = (places + 0.5) * (1 / scale)
    if mode == "nearest-exact":
        return input.index_select(dim, places.floor().long().clamp(max=last))
    places = (places - 0.5).clamp(min=0)
    below = places.floor().long().clamp(max=last)
    weights = (places - below).view([-1] + [1 for _ in input.shape[dim + 1 :]])
    above = input.index_select(dim, (below + 1).clamp(max=last))
    return input.index_select(dim, below) * (1 - weights) + above * weights


def interpolate(
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """`F.interpolate`: factors give the size, and, if they are no ints, where the elements lie."""
    dims = range(2, input.dim())
    listed = isinstance(scale_factor, (list, tuple))
    factors = list(scale_factor) if listed else [scale_factor for _ in dims]
    kinds = (*_LINEAR, "nearest", "nearest-exact", "bicubic", "area")
    known = size is None and not antialias and mode in kinds and len(factors) == len(dims)
    if known and all(math.floor(input.shape[d] * f) > 0 for d, f in zip(dims, factors)):
        whole = all(isinstance(f, int) for f in factors)
        if whole or align_corners or recompute_scale_factor or mode == "area":
            size = [math.floor(input.shape[d] * f) for d, f in zip(dims, factors)]
            return F.interpolate(input, size, None, mode, align_corners)
        fits = input.dtype in (torch.float32, torch.float64) and input.is_contiguous()
        linear = mode in _LINEAR and mode == _LINEAR[input.dim() - 3]
        if fits and input.numel() > 0 and (linear or mode.startswith("nearest")):
            for d, f in reversed(list(zip(dims, factors))):
                input = _resampled(input, d, f, mode)
            return input
    if input.dim() == 4 and size is None and len(factors) == 2 and (mode, antialias) in _WEIGHTED:
        size = [math.floor(n * f) for n, f in zip(input.shape[2:], factors)]
        fits = input.dtype in (torch.float32, torch.float64) and input.is_contiguous()
        if fits and input.numel() > 0 and all(n > 0 for n in size):
            scales = [None, None] if recompute_scale_factor or align_corners else factors
            return _WEIGHTED[mode, antialias](input, size, bool(align_corners), *scales)
        size = None
    scale_factor = [_constant(f) for f in factors] if listed else _constant(scale_factor)
    return F.interpolate(
        input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
    )
