"""NumPy's functions over the arrays of captured code (arrays.py), with NumPy's parameters, and the
table of what stands for which. What is not here, or raises, is a graph break."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from oxyfuel.arrays import (
    UFUNCS,
    Array,
    Unsupported,
    add_methods,
    array,
    as_array,
    asarray,
    common,
    constant,
    elementwise,
    finish,
    kind,
    operand,
    result_type,
    shape_of,
    stack,
    torch_type,
)

NOTHING = np._NoValue


def refuse(*given: Any) -> None:
    for x in given:
        if x is not None and x is not NOTHING:
            raise Unsupported("an option of NumPy's function")


# ---- reductions


@constant
def total_type(dtype: torch.dtype) -> torch.dtype:
    """Of sums and products."""
    if dtype in (torch.float32, torch.float64):
        return dtype
    if dtype in (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64):
        return torch.int64
    raise Unsupported("a sum in this type")


@constant
def mean_type(dtype: torch.dtype) -> torch.dtype:
    if dtype == torch.float16:
        raise Unsupported("a mean of float16")
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.float64


def dims_of(t: Any, axis: Any) -> tuple[int, ...]:
    return tuple(range(t.dim())) if axis is None else shape_of(axis)


def reduced(result: Any, keepdims: Any) -> Any:
    if keepdims is True and result.dim() == 0:
        raise Unsupported("keepdims of a scalar")
    return Array(result, result.dim() == 0)


def keeps(keepdims: Any) -> bool:
    return keepdims is not NOTHING and bool(keepdims)


def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    refuse(out, initial, where)
    t = as_array(a).tensor
    to = total_type(t.dtype) if dtype is None else torch_type(dtype)
    return reduced(t.to(to).sum(dims_of(t, axis), keepdim=keeps(keepdims)), keepdims)


def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    refuse(out, initial, where)
    t = as_array(a).tensor
    t = t.to(total_type(t.dtype) if dtype is None else torch_type(dtype))
    if axis is None:
        if keeps(keepdims):
            raise Unsupported("keepdims of a product of all")
        return Array(t.prod(), True)
    return reduced(t.prod(axis, keepdim=keeps(keepdims)), keepdims)


def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    *,
    where: Any = None,
) -> Any:
    refuse(out, where)
    t = as_array(a).tensor
    if t.numel() == 0:
        raise Unsupported("the mean of nothing")
    t = t.to(mean_type(t.dtype) if dtype is None else torch_type(dtype))
    return reduced(t.mean(dims_of(t, axis), keepdim=keeps(keepdims)), keepdims)


def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: int = 0,
    keepdims: Any = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: Any = None,
) -> Any:
    refuse(dtype, out, where, mean, correction)
    t = as_array(a).tensor
    dims = dims_of(t, axis)
    if t.dim() == 0 or math.prod([t.shape[d] for d in dims]) <= ddof:
        raise Unsupported("the variance of too few")
    t = t.to(mean_type(t.dtype))
    return reduced(t.var(dims, correction=ddof, keepdim=keeps(keepdims)), keepdims)


def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: int = 0,
    keepdims: Any = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: Any = None,
) -> Any:
    refuse(mean, correction)
    v = var(a, axis, dtype, out, ddof, keepdims, where=where)
    return Array(v.tensor.sqrt(), v.scalar)


def max(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    refuse(out, initial, where)
    t = as_array(a).tensor
    return reduced(torch.amax(t, dims_of(t, axis), keepdim=keeps(keepdims)), keepdims)


def min(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    refuse(out, initial, where)
    t = as_array(a).tensor
    return reduced(torch.amin(t, dims_of(t, axis), keepdim=keeps(keepdims)), keepdims)


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return max(a, axis, out, keepdims) - min(a, axis, out, keepdims)


def any_of(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = None
) -> Any:
    refuse(out, where)
    t = as_array(a).tensor != 0
    return reduced(torch.any(t, dims_of(t, axis), keepdim=keeps(keepdims)), keepdims)


def all_of(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = None
) -> Any:
    refuse(out, where)
    t = as_array(a).tensor != 0
    return reduced(torch.all(t, dims_of(t, axis), keepdim=keeps(keepdims)), keepdims)


def place_of_extreme(function: Any, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    refuse(out)
    t = as_array(a).tensor
    if t.dtype == torch.bool:
        t = t.to(torch.uint8)
    if axis is None:
        if keeps(keepdims):
            raise Unsupported("keepdims without an axis")
        return Array(function(t.reshape(-1), 0), True)
    return reduced(function(t, axis, keepdim=keeps(keepdims)), keepdims)


def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    return place_of_extreme(torch.argmax, a, axis, out, keepdims)


def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    return place_of_extreme(torch.argmin, a, axis, out, keepdims)


def running(function: Any, a: Any, axis: Any, dtype: Any, out: Any) -> Any:
    refuse(out)
    t = as_array(a).tensor
    t = t.to(total_type(t.dtype) if dtype is None else torch_type(dtype))
    return Array(function(t.reshape(-1), 0) if axis is None else function(t, axis))


def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return running(torch.cumsum, a, axis, dtype, out)


def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return running(torch.cumprod, a, axis, dtype, out)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:
    refuse(ord)
    t = x.tensor.to(mean_type(x.tensor.dtype))
    if isinstance(axis, tuple) and len(axis) != 2:
        raise Unsupported("a norm over more than two axes")
    squares = t.real * t.real + t.imag * t.imag if t.is_complex() else t * t
    return reduced(squares.sum(dims_of(t, axis), keepdim=keeps(keepdims)).sqrt(), keepdims)


# ---- shapes


def reshape(a: Any, /, shape: Any, order: str = "C") -> Any:
    return as_array(a).reshape(shape, order=order)


def ravel(a: Any, order: str = "C") -> Any:
    return as_array(a).reshape(-1, order=order)


def transpose(a: Any, axes: Any = None) -> Any:
    return as_array(a).transpose(axes)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    return Array(torch.transpose(as_array(a).viewed, axis1, axis2))


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return Array(torch.movedim(as_array(a).viewed, shape_of(source), shape_of(destination)))


def squeeze(a: Any, axis: Any = None) -> Any:
    t = as_array(a).viewed
    if axis is None:
        return Array(t.squeeze())
    for d in shape_of(axis):
        if t.size(d) != 1:
            raise Unsupported("an axis that is not 1")
    return Array(t.squeeze(shape_of(axis)))


def expand_dims(a: Any, axis: int) -> Any:
    if not isinstance(axis, int):
        raise Unsupported("several new axes")
    return Array(torch.unsqueeze(as_array(a).viewed, axis))


def atleast_1d(a: Any) -> Any:
    a = as_array(a)
    return Array(a.tensor.reshape(1)) if a.ndim == 0 else a


def atleast_2d(a: Any) -> Any:
    a = as_array(a)
    return a if a.ndim > 1 else Array(a.viewed.reshape(1, -1))


def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None) -> Any:
    refuse(out, dtype)
    given = common(arrays)
    for t in given:
        if t.dim() != given[0].dim() or t.dim() == 0:  # torch lets pass what is empty
            raise Unsupported("arrays of different dimensions")
    if axis is None:
        return Array(torch.cat([t.reshape(-1) for t in given]))
    return Array(torch.cat(given, axis))


def stacked(arrays: Any, axis: int = 0, out: Any = None) -> Any:
    refuse(out)
    return stack(arrays, axis)


def vstack(tup: Any) -> Any:
    return concatenate([atleast_2d(a) for a in tup], 0)


def hstack(tup: Any) -> Any:
    given = [atleast_1d(a) for a in tup]
    return concatenate(given, 0 if given[0].tensor.dim() == 1 else 1)


def flip(m: Any, axis: Any = None) -> Any:
    a = as_array(m)
    dims = list(range(a.ndim)) if axis is None else [d % a.ndim for d in shape_of(axis)]
    return a[tuple([slice(None, None, -1 if d in dims else 1) for d in range(a.ndim)])]


def flipud(m: Any) -> Any:
    return flip(m, 0)


def fliplr(m: Any) -> Any:
    return flip(m, 1)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    t, n = ary.viewed, indices_or_sections
    if isinstance(n, int):
        if t.size(axis) % n != 0:
            raise Unsupported("parts of different sizes")
        return [Array(part) for part in torch.split(t, t.size(axis) // n, axis)]
    return [Array(part) for part in torch.tensor_split(t, shape_of(n), axis)]


def repeat(a: Any, repeats: int, axis: Any = None) -> Any:
    t = as_array(a).tensor
    (n,) = shape_of(repeats)
    return Array(
        t.reshape(-1).repeat_interleave(n) if axis is None else t.repeat_interleave(n, axis)
    )


def tile(A: Any, reps: Any) -> Any:
    return Array(torch.tile(as_array(A).tensor, shape_of(reps)))


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    t = as_array(a).tensor
    if axis is None:
        return Array(torch.roll(t, shape_of(shift)))
    return Array(torch.roll(t, shape_of(shift), shape_of(axis)))


def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    refuse(out)
    if mode != "raise" or not isinstance(indices, (Array, list)):
        raise Unsupported("an option of take")
    if axis is None:
        return as_array(a).reshape(-1)[indices]
    dims = as_array(a).tensor.dim()
    return as_array(a)[(slice(None),) * (axis % dims) + (indices,)]


def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    t, at = as_array(arr).tensor, as_array(indices).tensor
    if axis is None:
        t, axis = t.reshape(-1), 0
    if at.dtype == torch.bool or at.is_floating_point() or at.dim() != t.dim() or t.dim() == 0:
        raise Unsupported("indices of another kind")
    if not -t.dim() <= axis < t.dim():
        raise Unsupported("an axis that is not there")
    places = []
    for d in range(t.dim()):
        shape = [1] * t.dim()
        shape[d] = -1
        along = d == axis % t.dim()
        places.append(at.to(torch.int64) if along else torch.arange(t.size(d)).reshape(shape))
    return Array(t[tuple(places)])


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    if not copy or not xi or indexing not in ("xy", "ij"):
        raise Unsupported("an option of meshgrid")
    order = list(range(len(xi)))
    if indexing == "xy" and len(xi) > 1:
        order[:2] = [1, 0]
    made = []
    for i, x in enumerate(xi):
        shape = [1] * len(xi)
        shape[order[i]] = -1
        made.append(as_array(x).tensor.reshape(shape))
    if not sparse:
        made = torch.broadcast_tensors(*made)
    return tuple([Array(t.clone(memory_format=torch.contiguous_format)) for t in made])


def fftshift(x: Any, axes: Any = None) -> Any:
    return shifted(x, axes, lambda n: n // 2)


def ifftshift(x: Any, axes: Any = None) -> Any:
    return shifted(x, axes, lambda n: -(n // 2))


def shifted(x: Any, axes: Any, by: Any) -> Any:
    t = as_array(x).tensor
    dims = tuple(range(t.dim())) if axes is None else shape_of(axes)
    return Array(torch.roll(t, tuple([by(t.size(d)) for d in dims]), dims))


def triu(m: Any, k: int = 0) -> Any:
    return Array(torch.triu(m.tensor, k))


def tril(m: Any, k: int = 0) -> Any:
    return Array(torch.tril(m.tensor, k))


def trace(a: Any) -> Any:
    t = a.tensor
    if t.dim() != 2:
        raise Unsupported("the trace of what is no matrix")
    return sum(Array(torch.diagonal(t)))


# ---- element by element


def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None or y is None:
        raise Unsupported("the places where something is")
    dtype = result_type(kind(x), kind(y))
    c = as_array(condition).tensor
    out = torch.where(c != 0, operand(x, dtype, True), operand(y, dtype, True))
    return Array(out)


def clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
) -> Any:
    low = min if a_min is None else a_min
    high = max if a_max is None else a_max
    if low is not None:
        a = elementwise("maximum", torch.maximum, a, low)
    if high is not None:
        a = elementwise("minimum", torch.minimum, a, high)
    if low is None and high is None:
        a = a.copy()
    return a if out is None else finish(a.tensor, a.tensor.dtype, out)


def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    a = as_array(x)
    for n in (nan, posinf, neginf):
        if n is not None and (isinstance(n, bool) or not isinstance(n, (int, float))):
            raise Unsupported("an option of nan_to_num")
    if not copy or a.tensor.is_complex():
        raise Unsupported("an option of nan_to_num")
    if not a.tensor.is_floating_point():
        return a.copy()
    return Array(torch.nan_to_num(a.tensor, nan, posinf, neginf), a.scalar)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    refuse(prepend, append)
    return Array(torch.diff(a.tensor, n, axis))


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    dtype = result_type(kind(a), kind(b), float)
    x, y = operand(a, dtype, True), operand(b, dtype, True)
    found = torch.isclose(x, y, rtol, atol, equal_nan)
    return Array(found, found.dim() == 0)


def around(a: Any, decimals: int = 0, out: Any = None) -> Any:
    refuse(out)
    if decimals != 0 or not a.tensor.is_floating_point():
        raise Unsupported("decimals")
    return Array(torch.round(a.tensor), a.scalar)


def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Any:
    refuse(kind, order)
    t = as_array(a).tensor
    return Array(torch.sort(t.reshape(-1) if axis is None else t, 0 if axis is None else axis)[0])


# ---- products


def dot(a: Any, b: Any, out: Any = None) -> Any:
    refuse(out)
    x, y = common([a, b])
    if x.dim() == 0 or y.dim() == 0:
        return Array(x * y, x.dim() == y.dim())
    if y.dim() > 2 or x.dtype == torch.bool:
        raise Unsupported("dot of more than matrices")
    product = torch.matmul(x, y)
    return Array(product, product.dim() == 0)


def outer(a: Any, b: Any, out: Any = None) -> Any:
    refuse(out)
    return as_array(a).reshape(-1, 1) * as_array(b).reshape(1, -1)


def einsum(subscripts: str, /, *operands: Any, optimize: Any = False) -> Any:
    result = torch.einsum(subscripts, *common(operands))
    return Array(result, result.dim() == 0)


# ---- new arrays


def empty(shape: Any, dtype: Any = float) -> Any:
    return Array(torch.empty(shape_of(shape), dtype=torch_type(dtype)))


def zeros(shape: Any, dtype: Any = float) -> Any:
    return Array(torch.zeros(shape_of(shape), dtype=torch_type(dtype)))


def ones(shape: Any, dtype: Any = None) -> Any:
    return Array(torch.ones(shape_of(shape), dtype=torch_type(float if dtype is None else dtype)))


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    value = array(fill_value, dtype).tensor
    return Array(
        torch.broadcast_to(value, shape_of(shape)).clone(memory_format=torch.contiguous_format)
    )


def like(a: Any, dtype: Any) -> Any:
    return torch.empty_like(as_array(a).tensor, dtype=None if dtype is None else torch_type(dtype))


def zeros_like(a: Any, dtype: Any = None) -> Any:
    return Array(torch.zeros_like(like(a, dtype)))


def ones_like(a: Any, dtype: Any = None) -> Any:
    return Array(torch.ones_like(like(a, dtype)))


def empty_like(a: Any, dtype: Any = None) -> Any:
    return Array(like(a, dtype))


def full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    made = Array(like(a, dtype))
    made[...] = fill_value
    return made


def eye(N: int, M: Any = None, k: int = 0, dtype: Any = float) -> Any:
    if k != 0:
        raise Unsupported("another diagonal")
    return Array(torch.eye(N, N if M is None else M, dtype=torch_type(dtype)))


def identity(n: int, dtype: Any = None) -> Any:
    return eye(n, dtype=float if dtype is None else dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    if stop is None:
        start, stop = 0, start
    for n in (start, stop, step):
        if isinstance(n, (bool, np.generic, Array)) or not isinstance(n, (int, float)):
            raise Unsupported("a range by other things than numbers")
    of_ints = isinstance(start, int) and isinstance(stop, int) and isinstance(step, int)
    to = (torch.int64 if of_ints else torch.float64) if dtype is None else torch_type(dtype)
    if step == 0 or (not of_ints and to not in (torch.float64, torch.float32)):
        raise Unsupported("a range of this kind")
    length = math.ceil((stop - start) / step)
    numbers = torch.arange(length if length > 0 else 0, dtype=torch.int64 if of_ints else to)
    if of_ints:
        return Array((numbers * step + start).to(to))
    # NumPy goes on from the first two, rounded.
    rounded = np.float32 if to == torch.float32 else float
    first, second = rounded(start), rounded(start + step)
    values = numbers * float(second - first) + float(first)
    return Array(torch.where(numbers == 1, float(second), values))


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    for n in (start, stop):
        if isinstance(n, (bool, Array)) or not isinstance(n, (int, float)):
            raise Unsupported("an end that is no number")
    to = torch.float64 if dtype is None else torch_type(dtype)
    if retstep or not to.is_floating_point or num < 2 or start == stop:
        raise Unsupported("an option of linspace")
    step = (stop - start) / (num - 1 if endpoint else num)
    if step == 0:
        raise Unsupported("a step that vanishes")
    numbers = torch.arange(num - 1 if endpoint else num, dtype=torch.float64) * step + start
    if endpoint:
        numbers = torch.cat([numbers, torch.full((1,), stop, dtype=torch.float64)])
    return Array(numbers.to(to))


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    a = atleast_1d(asarray(a, dtype))
    return a if not a.back and a.memory.is_contiguous() else a.copy()


def copy(a: Any, order: str = "K") -> Any:
    return Array(as_array(a).tensor.clone()) if order == "K" else as_array(a).copy(order)


# ---- between arrays and tensors


def from_numpy(ndarray: Any) -> Any:
    if not isinstance(ndarray, Array) or ndarray.scalar:
        raise Unsupported("from_numpy of what is no array")
    return ndarray.viewed


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    if isinstance(data, (list, tuple)):
        data = numbers_as_array(data, dtype)
    is_number = isinstance(data, Array) and data.scalar
    t = data.tensor.clone() if is_number else from_numpy(data)
    if device is not None and torch.device(device).type != "cpu":
        raise Unsupported("an array on another device")
    return t if dtype is None else t.to(dtype)


def numbers_as_array(numbers: Any, dtype: Any) -> Any:
    """Of a list with scalars, from which torch would take a dtype in a way of its own."""
    a = array(numbers)
    if dtype is None or dtype.is_floating_point != a.tensor.is_floating_point():
        raise Unsupported("a list with scalars and no dtype")
    return a


def tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Any:
    if isinstance(data, Array) and data.back:
        raise Unsupported("a tensor of an array that runs backwards")
    return as_tensor(data.copy(), dtype, device)


def asarray_of_torch(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Any:
    if copy is False and (obj.scalar or dtype not in (None, obj.tensor.dtype)):
        raise Unsupported("a copy that is not to be made")
    return tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)


def shape(a: Any) -> Any:
    return as_array(a).shape


def ndim(a: Any) -> int:
    return as_array(a).ndim


def size(a: Any, axis: Any = None) -> int:
    a = as_array(a)
    return a.size if axis is None else a.shape[axis]


OVER_ARRAYS = {
    getattr(np, name): function
    for name, function in {
        "sum": sum, "prod": prod, "mean": mean, "var": var, "std": std, "max": max, "amax": max,
        "min": min, "amin": min, "ptp": ptp, "any": any_of, "all": all_of, "argmax": argmax,
        "argmin": argmin, "cumsum": cumsum, "cumprod": cumprod, "reshape": reshape, "ravel": ravel,
        "transpose": transpose, "swapaxes": swapaxes, "moveaxis": moveaxis, "squeeze": squeeze,
        "expand_dims": expand_dims, "atleast_1d": atleast_1d, "atleast_2d": atleast_2d,
        "concatenate": concatenate, "stack": stacked, "vstack": vstack, "hstack": hstack,
        "split": split, "repeat": repeat, "tile": tile, "roll": roll, "take": take, "triu": triu,
        "tril": tril, "trace": trace, "where": where, "clip": clip, "diff": diff,
        "isclose": isclose, "around": around, "round": around, "sort": sort, "dot": dot,
        "outer": outer, "einsum": einsum, "shape": shape, "ndim": ndim, "size": size,
        "zeros_like": zeros_like, "ones_like": ones_like, "empty_like": empty_like,
        "full_like": full_like, "copy": copy, "meshgrid": meshgrid, "nan_to_num": nan_to_num,
        "take_along_axis": take_along_axis, "flip": flip, "flipud": flipud, "fliplr": fliplr,
    }.items()
}  # fmt: skip
OVER_ARRAYS |= {
    np.linalg.norm: norm, np.fft.fftshift: fftshift, np.fft.ifftshift: ifftshift,
    torch.from_numpy: from_numpy, torch.as_tensor: as_tensor, torch.tensor: tensor,
    torch.asarray: asarray_of_torch,
}  # fmt: skip

# Those that make arrays of anything, or of nothing.
MAKE_ARRAYS = {
    np.array: array, np.asarray: asarray, np.ascontiguousarray: ascontiguousarray,
    np.zeros: zeros, np.ones: ones, np.empty: empty, np.full: full, np.eye: eye,
    np.identity: identity, np.arange: arange, np.linspace: linspace,
}  # fmt: skip


def ufunc(name: str) -> Any:
    function = UFUNCS[name]

    def call(*args: Any, **kwargs: Any) -> Any:
        return elementwise(name, function, *args, **kwargs)

    return call


OVER_ARRAYS |= {getattr(np, name): ufunc(name) for name in UFUNCS}


def method(function: Any) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return call


METHODS = [
    "sum",
    "prod",
    "mean",
    "var",
    "std",
    "max",
    "min",
    "any",
    "all",
    "argmax",
    "argmin",
    "cumsum",
    "cumprod",
    "ravel",
    "swapaxes",
    "squeeze",
    "repeat",
    "take",
    "clip",
    "round",
    "dot",
    "trace",
]
add_methods({name: method(OVER_ARRAYS[getattr(np, name)]) for name in METHODS})
