"""Random tensor programs: inputs, steps, results.

A program is made step by step by running it: a step that eager refuses is left out, so that every
program that comes out is one that eager runs. Beside each storage stands whether its values are
exact, that is, made only by operations of which every correct implementation has the same bits.
Operations that jump (comparisons, rounding, argmax, casts to integers) take exact values only;
otherwise two correct implementations could differ by whole numbers.
"""

from __future__ import annotations

import operator
import random
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
MAX_ELEMENTS = 60_000
# Ops that add elements up into results as large as their operands.
ADD_UP = {operator.matmul, torch.cumsum, F.softmax, F.log_softmax, F.layer_norm, F.normalize}


@dataclass(frozen=True)
class Ref:
    """Stands for a value of the program: an input, or the result of a step."""

    index: int

    def __repr__(self) -> str:
        return f"v{self.index}"


@dataclass
class Input:
    """A strided window of a base; several inputs may look at one base."""

    base: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass
class Step:
    """``target(*args, **kwargs)``; a text names a method of the first argument."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Program:
    """Bases are (dtype, elements, special values or not). ``results`` are indices of values."""

    bases: list[tuple[torch.dtype, int, bool]]
    inputs: list[Input]
    steps: list[Step] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    exact: list[bool] = field(default_factory=list)  # of each value, in the end
    eps: list[float] = field(default_factory=list)

    def graph_module(self) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        nodes = [graph.placeholder(f"v{i}") for i in range(len(self.inputs))]
        for step in self.steps:
            args, kwargs = resolve((step.args, step.kwargs), nodes)
            if isinstance(step.target, str):
                nodes.append(graph.call_method(step.target, args, kwargs))
            else:
                nodes.append(graph.call_function(step.target, args, kwargs))
        graph.output(tuple(nodes[i] for i in self.results))
        return torch.fx.GraphModule(torch.nn.Module(), graph)

    def make_inputs(self, seed: int, wide: bool = False) -> list[torch.Tensor]:
        """Equal seeds give equal values; ``wide`` makes every float a float64 of the same value."""
        generator = torch.Generator().manual_seed(seed)
        bases = []
        for dtype, elements, special in self.bases:
            base = _values(dtype, elements, special, generator)
            bases.append(base.double() if wide and dtype in FLOATS else base)
        return [bases[i.base].as_strided(i.size, i.stride, i.offset) for i in self.inputs]

    def widened(self) -> Program:
        """The same with a float64 for every float, and none of their special values."""
        bases = [(torch.float64 if d in FLOATS else d, n, False) for d, n, _ in self.bases]
        steps = [replace(s, args=_widen(s.args), kwargs=_widen(s.kwargs)) for s in self.steps]
        return replace(self, bases=bases, steps=steps)

    def run(
        self,
        inputs: list[torch.Tensor],
        wide: bool = False,
        largest: list[float] | None = None,
        noise: torch.Generator | None = None,
    ) -> list[Any]:
        """``largest`` gets the largest magnitude that went into each value: what its rounding
        errors scale with, however small a difference of large numbers is. ``noise``: what rounds
        gets an error as large as its rounding; what later steps make of it shows how far two
        correct implementations may differ."""
        values = list(inputs)
        if largest is not None:
            largest[:] = [_magnitude(v) for v in values]
        for step in self.steps:
            args, kwargs = resolve((step.args, step.kwargs), values)
            if wide:
                args, kwargs = _widen((args, kwargs))
                if step.target == "to":
                    kwargs = {"copy": True}
            values.append(call(step.target, args, kwargs))
            if noise is not None and not self.exact[len(values) - 1]:
                _disturb(values[-1], step.target, args, self.eps[len(values) - 1], noise)
            if largest is not None:
                used = [largest[i] for i in references((step.args, step.kwargs))]
                largest.append(max([_magnitude(values[-1]), *used]))
        return [values[i] for i in self.results]

    def text(self) -> str:
        lines = [
            f"base{i}: {d}, {n} elements{', special' * s}" for i, (d, n, s) in enumerate(self.bases)
        ]
        for i, x in enumerate(self.inputs):
            lines.append(f"v{i} = base{x.base}.as_strided({x.size}, {x.stride}, {x.offset})")
        for i, s in enumerate(self.steps, len(self.inputs)):
            name = (
                s.target if isinstance(s.target, str) else getattr(s.target, "__name__", s.target)
            )
            arguments = [repr(a) for a in s.args] + [f"{k}={v!r}" for k, v in s.kwargs.items()]
            lines.append(f"v{i} = {name}({', '.join(arguments)})")
        lines.append(f"return {', '.join(f'v{i}' for i in self.results)}")
        return "\n".join(lines)


def _disturb(
    x: Any, target: Any, args: tuple[Any, ...], eps: float, noise: torch.Generator
) -> None:
    """An error of ``eps`` of each element, and of the largest operand where elements were added
    up."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or 0 in x.stride():
        return
    operands = [a for a in args if isinstance(a, torch.Tensor)]
    adds_up = target in ADD_UP or any(a.numel() > x.numel() for a in operands)
    scale = x.abs() + (max(map(_magnitude, operands), default=0.0) if adds_up else 0.0)
    sign = torch.randint(0, 2, x.shape, generator=noise) * 2 - 1
    x.add_((eps * scale * sign).nan_to_num(0.0, 0.0, 0.0))


def _magnitude(x: Any) -> float:
    """The largest finite magnitude."""
    if not isinstance(x, torch.Tensor) or x.numel() == 0:
        return 0.0
    return x.double().nan_to_num(0.0, 0.0, 0.0).abs().max().item()


def call(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(target, str):
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)


def resolve(arguments: Any, values: list[Any]) -> Any:
    """The arguments with what their references stand for."""
    if isinstance(arguments, Ref):
        return values[arguments.index]
    if isinstance(arguments, (tuple, list)):
        return type(arguments)(resolve(a, values) for a in arguments)
    if isinstance(arguments, dict):
        return {k: resolve(a, values) for k, a in arguments.items()}
    return arguments


def references(arguments: Any) -> list[int]:
    if isinstance(arguments, Ref):
        return [arguments.index]
    if isinstance(arguments, dict):
        arguments = list(arguments.values())
    if isinstance(arguments, (tuple, list)):
        return [i for a in arguments for i in references(a)]
    return []


def _widen(arguments: Any) -> Any:
    if isinstance(arguments, torch.dtype):
        return torch.float64 if arguments in FLOATS else arguments
    if isinstance(arguments, (tuple, list)):
        return type(arguments)(_widen(a) for a in arguments)
    if isinstance(arguments, dict):
        return {k: _widen(a) for k, a in arguments.items()}
    return arguments


def _values(dtype: torch.dtype, n: int, special: bool, generator: torch.Generator) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.randint(0, 2, (n,), generator=generator).bool()
    if dtype in INTEGERS:
        low = 0 if dtype == torch.uint8 else -6
        return torch.randint(low, 7, (n,), generator=generator).to(dtype)
    x = torch.randn(n, generator=generator)
    if special and n:
        odd = torch.tensor([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.0, -1.0, 0.5])
        chosen = torch.randint(0, 8, (n,), generator=generator)
        x = torch.where(torch.rand(n, generator=generator) < 0.2, odd[chosen], x)
    return x.to(dtype)


# Operations of which all correct implementations have the same bits.
UNARY = (torch.neg, torch.abs, torch.relu, torch.square, torch.clone, "contiguous", torch.positive)
UNARY_ROUNDED = (
    torch.sin,
    torch.cos,
    torch.exp,
    torch.tanh,
    torch.sigmoid,
    torch.erf,
    torch.log1p,
    torch.expm1,
    torch.atan,
    F.silu,
    F.gelu,
    F.softplus,
    F.elu,
    F.leaky_relu,
    F.hardtanh,
    F.mish,
    F.hardswish,
    F.logsigmoid,
)
UNARY_POSITIVE = (torch.sqrt, torch.rsqrt, torch.log, torch.log2, torch.reciprocal)
UNARY_JUMPS = (
    torch.sign,
    torch.floor,
    torch.ceil,
    torch.round,
    torch.trunc,
    torch.isnan,
    torch.logical_not,
    torch.isfinite,
    torch.frac,
)
BINARY = (operator.add, operator.sub, operator.mul, torch.maximum, torch.minimum, operator.truediv)
COMPARE = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
INPLACE = ("add_", "sub_", "mul_", "copy_", "clamp_min_", "neg_", "fill_", "zero_", "relu_")
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 64, 65, 70)


class Maker:
    """Makes one program out of a source of random choices."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.values: list[torch.Tensor] = []
        self.inexact: set[int] = set()  # storages
        self.eps: dict[int, float] = {}

    def make(self) -> Program:
        rng = self.rng
        self.program = Program([], [])
        self._make_inputs()
        wanted = rng.randint(3, 25)
        for _ in range(wanted * 4):
            if len(self.program.steps) >= wanted:
                break
            self._step()
        self._choose_results()
        p = self.program
        p.exact = [_storage(v) not in self.inexact for v in self.values]
        p.eps = [self.eps.get(_storage(v), 0.0) for v in self.values]
        return p

    # --- inputs ---

    def _make_inputs(self) -> None:
        rng = self.rng
        sizes = [
            rng.choice(SIZES) if rng.random() < 0.95 else rng.randint(1000, 1500) for _ in range(4)
        ]
        sizes = [s or (0 if rng.random() < 0.3 else 6) for s in sizes]
        for _ in range(rng.randint(1, 4)):
            size = tuple(rng.choice(sizes) for _ in range(rng.choice((0, 1, 2, 2, 2, 3, 3, 4))))
            while _count(size) > MAX_ELEMENTS:
                size = size[1:]
            size = tuple(1 if rng.random() < 0.12 else s for s in size)
            self._add_input(size)
        for x in self.program.make_inputs(0):
            self.values.append(x)
            self._mark(x, [])

    def _add_input(self, size: tuple[int, ...]) -> None:
        rng, program = self.rng, self.program
        order = list(range(len(size)))
        if rng.random() < 0.3:
            rng.shuffle(order)
        elif rng.random() < 0.3 and len(size) == 4:
            order = [0, 2, 3, 1]
        stride, step = [0] * len(size), rng.choice((1, 1, 1, 1, 1, 1, 2))
        for d in reversed(order):
            expanded = rng.random() < 0.06
            stride[d] = 0 if expanded else step
            if not expanded:
                step *= max(size[d], 1) + (3 if rng.random() < 0.08 else 0)
        offset = rng.choice((0, 0, 0, 1, 5))
        needed = offset + 1 + sum((s - 1) * t for s, t in zip(size, stride) if s > 0)
        for base, (dtype, elements, special) in enumerate(program.bases):
            if needed <= 4 * elements and rng.random() < 0.2:
                program.bases[base] = (dtype, max(needed, elements), special)
                break
        else:
            dtype = rng.choice(DTYPES) if rng.random() < 0.5 else torch.float32
            base = len(program.bases)
            program.bases.append((dtype, needed, rng.random() < 0.15))
        program.inputs.append(Input(base, size, tuple(stride), offset))

    # --- steps ---

    def _step(self) -> None:
        kinds = (
            (self._unary, 5),
            (self._rounded, 3),
            (self._jump, 2),
            (self._binary, 6),
            (self._compare, 2),
            (self._where, 2),
            (self._cast, 3),
            (self._reduce, 5),
            (self._normalise, 2),
            (self._view, 9),
            (self._join, 3),
            (self._index, 2),
            (self._product, 2),
            (self._convolution, 1),
            (self._inplace, 5),
            (self._assign, 2),
        )
        maker = self.rng.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        maker()

    def _pick(self, wanted: Any = lambda x: True) -> int | None:
        """A value, later ones rather than earlier ones."""
        found = [i for i, v in enumerate(self.values) if isinstance(v, torch.Tensor) and wanted(v)]
        if not found:
            return None
        return found[-1] if self.rng.random() < 0.4 else self.rng.choice(found)

    def _is_exact(self, x: torch.Tensor) -> bool:
        return _storage(x) not in self.inexact

    def _add(
        self,
        target: Any,
        *args: Any,
        rounded: bool = False,
        jumps: bool = False,
        writes: bool = False,
        **kwargs: Any,
    ) -> int | None:
        """Runs a step and keeps it, if eager can; returns its value."""
        if any(a is None for a in args):
            return None
        used = [self.values[i] for i in references((args, kwargs))]
        if jumps and not all(self._is_exact(x) for x in used):
            return None
        if writes and not self._may_write(used):
            return None
        try:
            result = call(target, *resolve((args, kwargs), self.values))
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            return None
        if isinstance(result, torch.Tensor) and result.numel() > MAX_ELEMENTS:
            return None
        self.program.steps.append(Step(target, args, kwargs))
        self.values.append(result)
        changed = used[0] if writes else result
        for x in changed if isinstance(changed, (tuple, list)) else [changed]:
            self._mark(x, used, rounded)
        return len(self.values) - 1

    def _may_write(self, used: list[torch.Tensor]) -> bool:
        """Storages of integers take exact values only."""
        target, *others = used
        if any(_storage(x) == _storage(target) and not _same_window(x, target) for x in others):
            return False  # in eager the result depends on the order of the elements
        return target.dtype in FLOATS or all(self._is_exact(x) for x in others)

    def _mark(self, x: Any, used: list[torch.Tensor], rounded: bool = False) -> None:
        if not isinstance(x, torch.Tensor):
            return
        s = _storage(x)
        own = torch.finfo(x.dtype).eps if x.dtype in FLOATS else 0.0
        self.eps[s] = max(
            [own, self.eps.get(s, 0.0)] + [self.eps.get(_storage(u), 0.0) for u in used]
        )
        if x.dtype in FLOATS and (rounded or any(not self._is_exact(u) for u in used)):
            self.inexact.add(s)

    def _ref(self, wanted: Any = lambda x: True) -> Ref | None:
        i = self._pick(wanted)
        return None if i is None else Ref(i)

    def _scalar(self) -> Any:
        return self.rng.choice((0, 1, 2, 3, -1, 0.5, 1.5, -2.0, 0.1, True))

    def _float(self) -> Ref | None:
        return self._ref(lambda x: x.dtype in FLOATS)

    def _unary(self) -> None:
        kind = self.rng.choice(UNARY + (torch.clamp,))
        if kind is torch.clamp:
            self._add(
                kind,
                self._ref(),
                min=self.rng.choice((-1, 0, -0.5)),
                max=self.rng.choice((1, 2, 0.7)),
            )
        else:
            self._add(kind, self._ref())

    def _rounded(self) -> None:
        if self.rng.random() < 0.7:
            x = self._ref() if self.rng.random() < 0.2 else self._float()
            kind = self.rng.choice(UNARY_ROUNDED)
            if kind in (torch.exp, torch.expm1):  # towers of exponentials say nothing
                i = self._add(torch.clamp, x, min=-4, max=4)
                x = None if i is None else Ref(i)
            self._add(kind, x, rounded=True)
            return
        i = self._add(torch.abs, self._float())
        i = None if i is None else self._add(operator.add, Ref(i), 0.5)
        if i is not None:
            self._add(self.rng.choice(UNARY_POSITIVE), Ref(i), rounded=True)

    def _jump(self) -> None:
        kind = self.rng.choice((*UNARY_JUMPS, "//", "%", "fmod", "int //"))
        if kind == "//":
            self._add(operator.floordiv, self._ref(), self.rng.choice((2, 3, 0.7, -2)), jumps=True)
        elif kind == "%":
            self._add(operator.mod, self._ref(), self.rng.choice((2, 3, 0.7, -2)), jumps=True)
        elif kind == "fmod":
            self._add(torch.fmod, self._ref(), self.rng.choice((2, 3, 0.7, -2)), jumps=True)
        elif kind == "int //":
            y = self._add(torch.abs, self._ref(lambda x: x.dtype in INTEGERS))
            y = None if y is None else self._add(operator.add, Ref(y), 1)
            if y is not None:
                mode = self.rng.choice(("floor", "trunc", None))
                x = self._ref(lambda x: x.dtype in INTEGERS)
                self._add(torch.div, x, Ref(y), jumps=mode is not None, rounding_mode=mode)
        else:
            self._add(kind, self._ref(), jumps=True)

    def _pair(self) -> tuple[Any, Any]:
        """Two operands that broadcast, one of them perhaps a number."""
        x = self._pick()
        if self.rng.random() < 0.3:
            pair = [Ref(x), self._scalar()]
        else:
            shape = self.values[x].shape
            pair = [Ref(x), self._ref(lambda y: _broadcast(shape, y.shape))]
        if self.rng.random() < 0.3:
            pair.reverse()
        return tuple(pair)

    def _binary(self) -> None:
        a, b = self._pair()
        if self.rng.random() < 0.15 and isinstance(a, Ref):
            self._add(torch.add, a, b, alpha=self.rng.choice((2, -1, 3)), rounded=True)
            return
        self._add(self.rng.choice(BINARY), a, b)

    def _compare(self) -> None:
        kind = self.rng.choice(
            (*COMPARE, torch.logical_and, torch.logical_or, operator.and_, operator.xor)
        )
        self._add(kind, *self._pair(), jumps=True)

    def _where(self) -> None:
        c = self._pick(lambda x: x.dtype == torch.bool)
        if c is None:
            return
        shape = self.values[c].shape
        x = self._ref(lambda y: _broadcast(shape, y.shape))
        if self.rng.random() < 0.4:
            self._add(torch.masked_fill, x, Ref(c), self.rng.choice((0, 1.5, float("-inf"))))
        elif self.rng.random() < 0.3:
            self._add(torch.where, Ref(c), x, self._scalar())
        else:
            both = lambda y: _broadcast(shape, y.shape) and x is not None
            self._add(torch.where, Ref(c), x, self._ref(both))

    def _cast(self) -> None:
        to = self.rng.choice(DTYPES)
        x = self._pick()
        jumps = to not in FLOATS
        if (
            jumps and self.values[x].dtype in FLOATS
        ):  # what NaN and large numbers become is not defined
            x = self._add(torch.clamp, Ref(x), min=0, max=100)
            x = None if x is None else self._add(torch.nan_to_num, Ref(x))
            if x is None:
                return
        if self.values[x].dtype != to:
            self._add("to", Ref(x), to, jumps=jumps)

    def _dims(self, x: int) -> Any:
        rank = self.values[x].dim()
        dims = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank))) if rank else []
        return [d - rank if self.rng.random() < 0.3 else d for d in dims]

    def _reduce(self) -> None:
        x = self._pick()
        dims, keep = self._dims(x), self.rng.random() < 0.4
        one = dims[0] if dims else None
        if one is None or self.rng.random() < 0.12:
            kind = self.rng.choice(
                (torch.sum, torch.amax, torch.all, torch.any, torch.argmax, torch.mean)
            )
            self._add(kind, Ref(x), rounded=kind in (torch.sum, torch.mean), jumps=kind in _JUMPING)
            return
        kind = self.rng.choice(
            (
                torch.sum,
                torch.sum,
                torch.mean,
                torch.amax,
                torch.amin,
                torch.argmax,
                torch.argmin,
                torch.var,
                "std",
                torch.any,
                torch.all,
                torch.prod,
                torch.cumsum,
                torch.logsumexp,
                "max",
            )
        )
        if kind in (torch.cumsum,):
            self._add(kind, Ref(x), one, rounded=True)
        elif kind in (torch.argmax, torch.argmin, torch.prod, torch.any, torch.all):
            self._add(kind, Ref(x), one, keep, rounded=kind is torch.prod, jumps=kind in _JUMPING)
        elif kind in (torch.var, "std"):
            self._add(
                kind, Ref(x), dims, keepdim=keep, correction=self.rng.choice((0, 1)), rounded=True
            )
        elif kind == "max":
            i = self._add("max", Ref(x), one, keep, jumps=True)
            if i is not None:
                self._add(operator.getitem, Ref(i), 0)
                self._add(operator.getitem, Ref(i), 1)
        else:
            self._add(kind, Ref(x), dims, keep, rounded=kind not in (torch.amax, torch.amin))

    def _normalise(self) -> None:
        x = self._pick(lambda x: x.dtype in FLOATS and x.dim() > 0)
        if x is None:
            return
        d = self.rng.randrange(self.values[x].dim())
        kind = self.rng.choice((F.softmax, F.log_softmax, F.layer_norm, F.normalize))
        if kind is F.layer_norm:  # eps: with the usual one, equal elements give noise
            shape = tuple(self.values[x].shape[d:])
            self._add(kind, Ref(x), shape, eps=0.5, rounded=True)
        else:
            self._add(kind, Ref(x), dim=d, rounded=True)

    def _view(self) -> None:
        rng = self.rng
        x = self._pick(lambda x: x.dim() > 0) if rng.random() < 0.9 else self._pick()
        if x is None:
            return
        v, rank = self.values[x], self.values[x].dim()
        d = rng.randrange(rank) if rank else 0
        n = v.shape[d] if rank else 0
        kind = rng.choice(
            (
                "permute",
                "transpose",
                "slice",
                "slice",
                "select",
                "unsqueeze",
                "squeeze",
                "flip",
                "roll",
                "reshape",
                "reshape",
                "view",
                "expand",
                "flatten",
                "chunk",
                "narrow",
                "t",
                "unfold",
                "diagonal",
                "movedim",
            )
        )
        low, step = rng.randint(-n, n), rng.choice((1, 1, 2, 3))
        window = (slice(None),) * d + (slice(low, rng.choice((None, n - 1, -1, low + 5)), step),)
        permuted = rng.sample(range(rank), rank)
        arguments: dict[str, tuple[Any, ...]] = {
            "permute": (permuted,),
            "transpose": (d, rng.randrange(max(rank, 1))),
            "select": (d, rng.randint(-n, n)),
            "unsqueeze": (rng.randint(0, rank),),
            "squeeze": (d,),
            "flip": ((d,),),
            "roll": (rng.randint(-n, n), d),
            "reshape": (self._shape_for(v),),
            "view": (self._shape_for(v),),
            "flatten": (d,),
            "expand": ((rng.choice((1, 2, 3, 17)), *(7 if s == 1 else -1 for s in v.shape)),),
            "narrow": (d, max(low, 0), max(n // 2, 0)),
            "t": (),
            "unfold": (d, min(2, n), 1),
            "diagonal": (),
            "movedim": (d, 0),
        }
        if kind == "slice":
            self._add(operator.getitem, Ref(x), window)
        elif kind == "chunk":
            i = self._add("chunk", Ref(x), rng.randint(1, 3), d)
            if i is not None:
                for k in range(len(self.values[i])):
                    self._add(operator.getitem, Ref(i), k)
        else:
            self._add(kind, Ref(x), *arguments[kind])

    def _shape_for(self, x: torch.Tensor) -> tuple[int, ...]:
        """Neighbours joined, or one size split."""
        shape = list(x.shape)
        if len(shape) > 1 and self.rng.random() < 0.5:
            d = self.rng.randrange(len(shape) - 1)
            shape[d : d + 2] = [shape[d] * shape[d + 1]]
        elif shape:
            d = self.rng.randrange(len(shape))
            divisors = [k for k in range(1, shape[d] + 1) if shape[d] % k == 0]
            k = self.rng.choice(divisors) if divisors else 1
            shape[d : d + 1] = [k, shape[d] // k]
        return tuple(shape)

    def _join(self) -> None:
        rng = self.rng
        x = self._pick(lambda x: x.dim() > 0)
        if x is None:
            return
        shape = self.values[x].shape
        kind = rng.choice(("cat", "cat", "stack", "pad"))
        if kind == "pad":
            widths = [rng.randint(-1, 3) for _ in range(2 * rng.randint(1, len(shape)))]
            self._add(F.pad, Ref(x), widths, value=rng.choice((0, 1)))
            return
        d = rng.randrange(len(shape))

        def fits(y: torch.Tensor) -> bool:
            return y.dim() == len(shape) and all(
                i == d or a == b for i, (a, b) in enumerate(zip(y.shape, shape))
            )

        pieces = [Ref(x)] + [self._ref(fits) for _ in range(rng.randint(0, 2))]
        self._add(torch.cat if kind == "cat" else torch.stack, pieces, d)

    def _index(self) -> None:
        rng = self.rng
        x = self._pick(lambda x: x.dim() > 0 and 0 not in x.shape)
        i = self._pick(lambda x: x.dtype in (torch.int64, torch.int32) and x.numel() < 3000)
        if x is None or i is None:
            return
        rank = self.values[x].dim()
        d = rng.randrange(rank)
        i = self._add(operator.mod, Ref(i), self.values[x].shape[d])
        if i is None:
            return
        kind = rng.choice(("index_select", "embedding", "gather", "getitem", "take_along"))
        if kind == "embedding" and rank == 2:
            i = self._add(operator.mod, Ref(i), self.values[x].shape[0])
            self._add(F.embedding, Ref(i), Ref(x))
        elif kind == "index_select":
            flat = self._add("reshape", Ref(i), (-1,))
            if flat is not None:
                self._add(torch.index_select, Ref(x), d, Ref(flat))
        elif kind == "getitem":
            self._add(operator.getitem, Ref(x), (slice(None),) * d + (Ref(i),))
        else:
            self._add(torch.gather, Ref(x), d, Ref(i))

    def _product(self) -> None:
        rng = self.rng
        x = self._pick(lambda x: x.dim() in (2, 3) and x.dtype in FLOATS)
        if x is None:
            return
        v = self.values[x]
        y = self._pick(lambda y: y.dim() in (2, 3) and y.dtype == v.dtype)
        if y is None:
            return
        w = self.values[y]
        if v.dim() == 2 and w.dim() == 2 and v.shape[1] == w.shape[1] and rng.random() < 0.6:
            bias = self._ref(
                lambda b: b.dim() == 1 and b.shape == (w.shape[0],) and b.dtype == v.dtype
            )
            self._add(F.linear, Ref(x), Ref(y), *([bias] if bias else []), rounded=True)
        elif v.shape[-1] != w.shape[-2]:
            i = self._add("transpose", Ref(y), -1, -2)
            if i is not None and v.shape[-1] == self.values[i].shape[-2]:
                self._add(operator.matmul, Ref(x), Ref(i), rounded=True)
        elif v.dim() == 2 and w.dim() == 2 and rng.random() < 0.4:
            shape = (v.shape[0], w.shape[1])
            c = self._ref(lambda c: c.dtype == v.dtype and c.dim() < 3 and _expands(c.shape, shape))
            self._add(
                torch.addmm,
                c,
                Ref(x),
                Ref(y),
                beta=rng.choice((1, 0.5)),
                alpha=rng.choice((1, 2)),
                rounded=True,
            )
        else:
            self._add(operator.matmul, Ref(x), Ref(y), rounded=True)

    def _convolution(self) -> None:
        rng = self.rng
        x = self._pick(lambda x: x.dim() == 4 and x.dtype in FLOATS and x.numel() < 20_000)
        if x is None:
            return
        v = self.values[x]
        y = self._pick(lambda y: y.dim() == 4 and y.dtype == v.dtype and max(y.shape[2:]) < 10)
        if y is None:
            return
        if self.values[y].shape[1] != v.shape[1]:
            y = (
                self._add("repeat", Ref(y), 1, v.shape[1], 1, 1)
                if self.values[y].shape[1] == 1
                else None
            )
        if y is not None:
            padding = rng.randint(0, 3)
            self._add(
                F.conv2d, Ref(x), Ref(y), stride=rng.choice((1, 2)), padding=padding, rounded=True
            )

    def _inplace(self) -> None:
        rng = self.rng
        kind = rng.choice(INPLACE)
        x = self._pick() if rng.random() < 0.6 else rng.randrange(len(self.program.inputs))
        if kind in ("neg_", "zero_", "relu_"):
            self._write(kind, x)
        elif kind in ("clamp_min_", "fill_"):
            self._write(kind, x, rng.choice((0, 1, 0.5)))
        else:
            shape = self.values[x].shape
            y = (
                self._ref(lambda y: _expands(y.shape, shape))
                if rng.random() < 0.7
                else self._scalar()
            )
            if kind == "copy_" and not isinstance(y, Ref):
                kind = "add_"
            self._write(kind, x, y)

    def _write(self, kind: Any, x: int, *args: Any) -> None:
        v = self.values[x]
        source = [self.values[i] for i in references(args)]
        if v.dtype not in FLOATS and any(s.dtype in FLOATS for s in source):
            return  # what NaN becomes in an integer is not defined
        self._add(kind, Ref(x), *args, writes=True)

    def _assign(self) -> None:
        rng = self.rng
        x = self._pick(lambda x: x.dim() > 0)
        if x is None:
            return
        v = self.values[x]
        n = v.shape[0]
        key = rng.choice(
            (0, slice(1, None), slice(None, None, 2), slice(-2, None), (Ellipsis, 0), slice(None))
        )
        try:
            shape = v[key].shape
        except IndexError:
            return
        value = (
            self._ref(lambda y: _expands(y.shape, shape))
            if rng.random() < 0.6
            else rng.choice((0, 1, 2))
        )
        if n:
            self._write(operator.setitem, x, key, value)

    # --- results ---

    def _choose_results(self) -> None:
        rng = self.rng
        tensors = [i for i, v in enumerate(self.values) if isinstance(v, torch.Tensor)]
        made = [i for i in tensors if i >= len(self.program.inputs)] or tensors
        results = [made[-1]] + [rng.choice(made) for _ in range(rng.randint(0, 3))]
        if rng.random() < 0.15:
            results.append(rng.randrange(len(self.program.inputs)))
        rng.shuffle(results)
        self.program.results = results


_JUMPING = (torch.argmax, torch.argmin, torch.any, torch.all)


def make_program(seed: int) -> Program:
    with torch.no_grad():
        return Maker(random.Random(seed)).make()


def _storage(x: Any) -> int:
    return x.untyped_storage()._cdata if isinstance(x, torch.Tensor) else 0


def _same_window(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()


def _count(size: tuple[int, ...]) -> int:
    n = 1
    for s in size:
        n *= s
    return n


def _expands(a: Any, to: Any) -> bool:
    return len(a) <= len(to) and all(s in (1, t) for s, t in zip(reversed(a), reversed(to)))


def _broadcast(a: Any, b: Any) -> bool:
    return all(s == t or s == 1 or t == 1 for s, t in zip(reversed(a), reversed(b)))
