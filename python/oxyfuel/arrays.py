"""NumPy's arrays in captured code: tensors of the graph (src/python/capture/arrays.cpp).

A capture shows the code an `Array` where there is a numpy.ndarray or a NumPy scalar, and follows
these functions where NumPy's are called. The dtypes are NumPy's own, which each ufunc is asked for.
Whatever is raised here is a graph break: NumPy does the call then, and has the last word. Nothing
of this runs as it stands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

NUMPY_OF = {
    getattr(torch, name): np.dtype(name)
    for name in [
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    ]
}
TORCH_OF = {found: dtype for dtype, found in NUMPY_OF.items()}


def constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of types and numbers: a capture calls it for real."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class Unsupported(Exception):
    """For NumPy itself to do."""


@constant
def torch_type(dtype: Any) -> torch.dtype:
    return TORCH_OF[np.dtype(dtype)]


@constant
def numpy_type(dtype: torch.dtype) -> Any:
    return NUMPY_OF[dtype]


@constant
def loop(name: str, *kinds: Any) -> tuple[torch.dtype, ...]:
    """The types that the ufunc computes in: its inputs', then its result's."""
    ufunc = getattr(np, name)
    given = [k if k in (int, float) else NUMPY_OF[k] for k in kinds]
    return tuple(TORCH_OF[found] for found in ufunc.resolve_dtypes((*given, *[None] * ufunc.nout)))


@constant
def result_type(*kinds: Any) -> torch.dtype:
    return TORCH_OF[np.result_type(*[k(0) if k in (int, float) else NUMPY_OF[k] for k in kinds])]


@constant
def may_cast(given: torch.dtype, to: torch.dtype) -> bool:
    return np.can_cast(NUMPY_OF[given], NUMPY_OF[to], "same_kind")


@constant
def type_of_numbers(numbers: Any) -> torch.dtype:
    return TORCH_OF[np.array(numbers).dtype]


@constant
def number_of(scalar: Any) -> Any:
    return scalar.item()


@constant
def fits(number: int, dtype: torch.dtype) -> bool:
    return torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max


def kind(x: Any) -> Any:
    """What promotion goes by: a dtype, or int or float for Python's numbers, which have none of
    their own."""
    if isinstance(x, Array):
        return x.tensor.dtype
    if isinstance(x, np.generic):
        return torch_type(x.dtype)
    if isinstance(x, bool):
        return torch.bool
    if isinstance(x, int):
        return int
    if isinstance(x, float):
        return float
    raise Unsupported("an operand that is neither an array nor a number")


def operand(x: Any, dtype: torch.dtype, tensor: bool) -> Any:
    if isinstance(x, Array):
        return x.tensor if x.tensor.dtype == dtype else x.tensor.to(dtype)
    if isinstance(x, np.generic):
        return torch.full((), number_of(x), dtype=dtype)
    if isinstance(x, bool) and dtype != torch.bool:
        x = int(x)  # torch subtracts no booleans
    integer = not dtype.is_floating_point and dtype != torch.bool
    if integer and dtype != torch.int64 and not fits(x, dtype):
        raise Unsupported("an integer that does not fit")
    return torch.full((), x, dtype=dtype) if tensor else x


# Where torch takes a number for the second operand as well, and computes as with a tensor.
TAKE_NUMBERS = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
]
# Of integers these are errors, or undefined, for some second operands.
DIVIDE_INTEGERS = ["floor_divide", "remainder", "fmod"]
SHIFT = ["left_shift", "right_shift"]


def check_integers(name: str, dtype: torch.dtype, inputs: Any) -> None:
    if dtype.is_floating_point or len(inputs) < 2:
        if name == "reciprocal" and not dtype.is_floating_point:
            raise Unsupported("the reciprocal of an integer")
        return
    if name not in DIVIDE_INTEGERS and name not in SHIFT and name != "power":
        return
    n = inputs[1]
    if isinstance(n, (Array, np.generic, bool)) or not isinstance(n, int):
        raise Unsupported("integers are divided, shifted or raised by an array")
    if n < 0 or (n == 0 and name in DIVIDE_INTEGERS) or (n > 7 and name in SHIFT):
        raise Unsupported("integers are divided, shifted or raised by this number")


def elementwise(
    name: str, function: Any, *inputs: Any, out: Any = None, where: Any = True, **rest: Any
) -> Any:
    """The ufunc of this name."""
    if where is not True or rest:
        raise Unsupported("an option of a ufunc")
    if isinstance(out, tuple):
        (out,) = out
    types = loop(name, *[kind(x) for x in inputs])
    check_integers(name, types[0], inputs)
    given = []
    for i, x in enumerate(inputs):
        given.append(operand(x, types[i], i == 0 or name not in TAKE_NUMBERS))
    return finish(function(*given), types[-1], out)


def finish(result: Any, dtype: torch.dtype, out: Any) -> Any:
    if result.dtype != dtype:
        result = result.to(dtype)
    if out is None:
        return Array(result, result.dim() == 0)
    if not isinstance(out, Array) or out.scalar or not may_cast(dtype, out.memory.dtype):
        raise Unsupported("the place for the result")
    if out.shape != result.shape:
        result = torch.broadcast_to(result, out.shape)
    out.memory.copy_(torch.flip(result, out.back) if out.back else result)
    return out


def sign(x: Any) -> Any:
    return torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


UFUNCS = {
    "negative": torch.neg,
    "positive": torch.clone,
    "absolute": torch.abs,
    "fabs": torch.abs,
    "sign": sign,
    "rint": torch.round,
    "invert": torch.bitwise_not,
    "arcsin": torch.asin,
    "arccos": torch.acos,
    "arctan": torch.atan,
    "arcsinh": torch.asinh,
    "arccosh": torch.acosh,
    "arctanh": torch.atanh,
    "arctan2": torch.atan2,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "power": torch.pow,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
}
for same in [
    "add",
    "floor_divide",
    "remainder",
    "fmod",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "hypot",
    "copysign",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "matmul",
    "sqrt",
    "square",
    "reciprocal",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "floor",
    "ceil",
    "trunc",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
    "deg2rad",
    "rad2deg",
]:
    UFUNCS[same] = getattr(torch, same)


def operator_of(name: str, turned: bool = False) -> Callable[..., Any]:
    function = UFUNCS[name]

    def apply(self: Any, other: Any) -> Any:
        if isinstance(other, (list, tuple)):
            if name == "multiply" and self.scalar:
                raise Unsupported("a list or tuple times a scalar, which repeats it")
            other = array(other)
        if turned:
            return elementwise(name, function, other, self)
        return elementwise(name, function, self, other)

    return apply


def in_place(name: str) -> Callable[..., Any]:
    function = UFUNCS[name]

    def apply(self: Any, other: Any) -> Any:
        if isinstance(other, (list, tuple)):
            other = array(other)
        # A scalar is not changed: the name is bound to another one.
        return elementwise(name, function, self, other, out=None if self.scalar else self)

    return apply


def unary(name: str) -> Callable[..., Any]:
    function = UFUNCS[name]

    def apply(self: Any) -> Any:
        return elementwise(name, function, self)

    return apply


def refused(what: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise Unsupported(what)

    return refuse


@functools.cache
def other_method(name: str) -> Callable[..., Any]:
    """Stands for a method that arrays have and `Array` has not."""
    function = refused(f"the method {name} of an array")
    function.__name__ = name
    return function


def of_scalars(function: Any, *args: Any) -> Any:
    """What NumPy computes of scalars; where it would warn, a FloatingPointError."""
    with np.errstate(all="raise"):
        return function(*args)


class Array:
    """Stands for the array, or the NumPy scalar, that has the content of `memory`, a tensor, of
    which the dimensions `back` run backwards: torch has no strides for them, so that the order is
    turned whenever `tensor` is read."""

    __slots__ = ("back", "memory", "scalar")

    def __init__(self, memory: Any, scalar: bool = False, back: tuple[int, ...] = ()) -> None:
        self.memory = memory
        self.scalar = scalar
        self.back = back

    shape = property(lambda self: tuple(self.memory.shape))
    ndim = property(lambda self: self.memory.dim())
    size = property(lambda self: self.memory.numel())
    dtype = property(lambda self: numpy_type(self.memory.dtype))
    itemsize = property(lambda self: self.memory.element_size())
    nbytes = property(lambda self: self.memory.element_size() * self.memory.numel())
    T = property(lambda self: self.transpose())

    @property
    def tensor(self) -> Any:
        """To be read."""
        return torch.flip(self.memory, self.back) if self.back else self.memory

    @property
    def viewed(self) -> Any:
        """The tensor that views are made of."""
        if self.back:
            raise Unsupported("a view of an array that runs backwards")
        return self.memory

    @property
    def strides(self) -> tuple[int, ...]:
        size = self.memory.element_size()
        return tuple(
            [-s * size if d in self.back else s * size for d, s in enumerate(self.memory.stride())]
        )

    @property
    def real(self) -> Any:
        if self.memory.is_complex():
            raise Unsupported("a part of complex numbers")
        return self

    def __len__(self) -> int:
        if self.memory.dim() == 0:
            raise Unsupported("len() of a scalar")
        return self.memory.size(0)

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, key: Any) -> Any:
        if self.back and not runs_back(key) and picks(key):
            self = Array(self.tensor)  # a copy of what is picked
        part, back = part_of(self, key)
        if part.dim() == 0 and not has_ellipsis(key):
            return Array(part.clone(), True)
        return Array(part, False, back)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.scalar:
            raise Unsupported("a scalar is written")
        if isinstance(value, (list, tuple)):
            value = array(value)
        if isinstance(value, Array):
            value = value.tensor.to(self.tensor.dtype).clone()
        elif isinstance(value, np.generic) or not isinstance(value, (bool, int, float)):
            raise Unsupported("what is written is neither an array nor a number")
        elif not self.tensor.is_floating_point() and not isinstance(value, bool):
            value = int(value)
            if self.tensor.dtype == torch.bool or not fits(value, self.tensor.dtype):
                raise Unsupported("a number that does not fit")
        if isinstance(key, Array) and key.tensor.dtype == torch.bool:
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                raise Unsupported("an array is written through a mask")
            if key.tensor.dim() == 0 or key.tensor.shape != self.tensor.shape[: key.tensor.dim()]:
                raise Unsupported("a mask of another shape")
            self.viewed[key.tensor] = value
        elif self.back or runs_back(key):
            part, back = part_of(self, key)
            if isinstance(value, torch.Tensor):
                part.copy_(torch.flip(torch.broadcast_to(value, part.shape), back))
            else:
                part.fill_(value)
        else:
            self.memory[index_of(self, key)] = value

    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Any:
        if order != "K" or casting != "unsafe":
            raise Unsupported("an option of astype")
        to = torch_type(dtype)
        if to == self.tensor.dtype:
            return Array(self.tensor.clone(), self.scalar) if copy else self
        small = not to.is_floating_point and to not in (torch.int32, torch.int64, torch.bool)
        if small and self.tensor.is_floating_point():  # C leaves open what becomes of some
            raise Unsupported("a cast to a small integer")
        return Array(self.tensor.to(to), self.scalar)

    def copy(self, order: str = "C") -> Any:
        if order != "C" and not self.tensor.is_contiguous():
            raise Unsupported("the order of a copy")
        return Array(self.tensor.clone(memory_format=torch.contiguous_format), self.scalar)

    def flatten(self, order: str = "C") -> Any:
        if order != "C":
            raise Unsupported("the order of flatten")
        return Array(self.tensor.clone(memory_format=torch.contiguous_format).reshape(-1))

    def fill(self, value: Any) -> None:
        if self.scalar:
            raise Unsupported("a scalar is written")
        self[...] = value

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        if order != "C" or not shape:
            raise Unsupported("reshape")
        return Array(torch.reshape(self.viewed, shape_of(shape)))

    def transpose(self, *axes: Any) -> Any:
        dims = (
            list(range(self.memory.dim()))[::-1] if not axes or axes[0] is None else shape_of(axes)
        )
        back = [i for i, d in enumerate(dims) if d % len(dims) in self.back]
        return Array(torch.permute(self.memory, dims), self.scalar, tuple(back))

    def tolist(self) -> Any:
        return self.tensor.tolist()

    def item(self, *args: Any) -> Any:
        if args:
            raise Unsupported("item() of a place")
        return self.tensor.item()


def as_number(convert: Any) -> Any:
    """What Python asks a scalar for: its number, which is guarded, if it came with the call."""

    def method(self) -> Any:
        if not self.scalar:
            raise Unsupported("the number in an array")
        return convert(self.tensor.item())

    return method


def index_of(number: Any) -> int:
    if type(number) is not int:
        raise Unsupported("an index that is no integer")
    return number


def add_methods(methods: dict[str, Any]) -> None:
    for name, function in methods.items():
        function.__name__ = name  # by which NumPy's own is found behind a break
        setattr(Array, name, function)


UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}
BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "mod": "remainder",
    "floordiv": "floor_divide", "pow": "power", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
REFUSED = [
    "hash",
    "repr",
    "str",
    "format",
    "complex",
    "contains",
    "array",
    "divmod",
    "rdivmod",
    "copy",
    "deepcopy",
    "reduce",
    "reduce_ex",
    "imatmul",
]
add_methods({f"__{name}__": unary(ufunc) for name, ufunc in UNARY.items()})
add_methods({f"__{name}__": operator_of(ufunc) for name, ufunc in (BINARY | COMPARISONS).items()})
add_methods({f"__r{name}__": operator_of(ufunc, True) for name, ufunc in BINARY.items()})
add_methods({f"__i{name}__": in_place(ufunc) for name, ufunc in BINARY.items()})
add_methods({"__matmul__": operator_of("matmul"), "__rmatmul__": operator_of("matmul", True)})
NUMBERS = {"bool": bool, "int": int, "float": float, "index": index_of}
add_methods({f"__{name}__": as_number(convert) for name, convert in NUMBERS.items()})
add_methods({f"__{name}__": refused(f"{name} of an array") for name in REFUSED})


def shape_of(given: Any) -> tuple[int, ...]:
    """A shape, as one argument or as several."""
    if isinstance(given, int):
        return (given,)
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    for n in given:
        if isinstance(n, (Array, np.generic)) or not isinstance(n, int):
            raise Unsupported("a size that is no int")
    return tuple(given)


def has_ellipsis(key: Any) -> bool:
    if isinstance(key, tuple):
        return any(k is Ellipsis for k in key)
    return key is Ellipsis


def is_int(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, (bool, np.generic, Array))


def picks(key: Any) -> bool:
    """Whether a list or an array in it says which items are taken."""
    return any(isinstance(k, (list, Array)) for k in (key if isinstance(key, tuple) else (key,)))


def runs_back(key: Any) -> bool:
    """Whether a slice in it does."""
    for k in key if isinstance(key, tuple) else (key,):
        if isinstance(k, slice) and is_int(k.step) and k.step < 0:
            return True
    return False


def part_of(array: Any, key: Any) -> Any:
    """What `array[key]` is: a tensor, of which some dimensions run backwards."""
    if not array.back and not runs_back(key):
        return array.memory[index_of(array, key)], ()
    keys = key if isinstance(key, tuple) else (key,)
    taken = len([k for k in keys if k is not None and k is not Ellipsis])
    given, back, made, dim = [], [], 0, 0
    for k in (*keys, *[Ellipsis for _ in range(not has_ellipsis(key))]):
        if k is None:
            given.append(None)
            made += 1
            continue
        if k is Ellipsis:
            for _ in range(array.ndim - taken):
                if dim in array.back:
                    back.append(made)
                given.append(slice(None))
                made, dim = made + 1, dim + 1
            continue
        size, turned = array.memory.size(dim), dim in array.back
        if is_int(k):
            if not -size <= k < size:
                raise Unsupported("an index out of range")
            given.append((size - 1 - k % size) if turned else k)
        else:
            k, turned = turned_slice(k, size, turned)
            if turned:
                back.append(made)
            given.append(k)
            made += 1
        dim += 1
    return array.memory[tuple(given)], tuple(back)


def turned_slice(k: Any, size: int, turned: bool) -> tuple[slice, bool]:
    """A slice of a dimension, which runs backwards where it is `turned`, as one that runs forwards,
    and whether what it gives is turned."""
    if not isinstance(k, slice) or not all(
        p is None or is_int(p) for p in (k.start, k.stop, k.step)
    ):
        raise Unsupported("an index of this kind among slices that run backwards")
    if size == 0:
        raise Unsupported("nothing runs backwards")
    if k.start is None and k.stop is None and k.step in (None, 1, -1):
        return slice(None), turned != (k.step == -1)
    start, stop, step = k.indices(size)
    length = len(range(start, stop, step))
    if length == 0:
        raise Unsupported("an empty slice that runs backwards")
    if turned:
        start, step = size - 1 - start, -step
    last = start + (length - 1) * step
    if step < 0:
        return slice(last, start + 1, -step), True
    return slice(start, last + 1, step), False


def index_of(array: Any, key: Any) -> Any:
    """What torch understands as NumPy understands `key`."""
    given, lists, ints, others = [], 0, 0, 0
    for k in key if isinstance(key, tuple) else (key,):
        if isinstance(k, slice):
            for part in (k.start, k.stop, k.step):
                if part is not None and not is_int(part):
                    raise Unsupported("a slice by something else than ints")
            if k.step is not None and k.step < 1:
                raise Unsupported("a step of 0")
            others += 1
        elif k is None or k is Ellipsis:
            others += 1
        elif is_int(k):
            ints += 1
        elif (
            isinstance(k, Array)
            and not k.tensor.is_floating_point()
            and k.tensor.dtype != torch.bool
        ):
            k = k.tensor.to(torch.int64)
            lists += 1
        elif isinstance(k, list) and k and all(is_int(i) for i in k):
            k = torch.tensor(k)
            lists += 1
        else:
            raise Unsupported("an index of this kind")
        given.append(k)
    if lists and (ints or lists > 1) and others:
        raise Unsupported("arrays among other indices")
    return tuple(given)


def over_tensor(tensor: Any, *, force: bool = False) -> Any:
    """As Tensor.numpy."""
    if force or tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        raise Unsupported("an array over a tensor of this kind")
    numpy_type(tensor.dtype)
    return Array(tensor)


def array(object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K") -> Any:
    if order != "K" or not copy:
        raise Unsupported("an option of array")
    to = None if dtype is None else torch_type(dtype)
    if isinstance(object, Array):
        made = object.tensor.clone()
    elif isinstance(object, torch.Tensor):
        made = over_tensor(object).tensor.clone()
    elif isinstance(object, (list, tuple)) and any(isinstance(x, Array) for x in object):
        made = stack(object).tensor
    else:
        made = torch.tensor(object, dtype=type_of_numbers(object) if to is None else to)
    return Array(made if to is None else made.to(to))


def asarray(a: Any, dtype: Any = None) -> Any:
    if isinstance(a, torch.Tensor):
        a = over_tensor(a)
    if isinstance(a, Array) and not a.scalar and dtype in (None, a.dtype):
        return a
    return array(a, dtype)


def as_array(x: Any) -> Any:
    return x if isinstance(x, Array) else array(x)


def common(items: Any) -> list[Any]:
    """Tensors of one dtype."""
    given = [as_array(x) for x in items]
    dtype = result_type(*[x.tensor.dtype for x in given])
    return [operand(x, dtype, True) for x in given]


def stack(arrays: Any, axis: int = 0) -> Any:
    return Array(torch.stack(common(arrays), axis))
