"""A model compiled against the same model in eager, and how many graphs and breaks its call has."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch

import oxyfuel

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)


class Case(Protocol):
    """What makes a model and the arguments of its call, the same each time."""

    def make(self) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]: ...


class Counted(NamedTuple):
    """How often a call was cut."""

    graphs: int
    breaks: int


class Found(NamedTuple):
    """What came of a case; `difference` is empty where all calls were eager's."""

    difference: str
    counted: Counted
    reasons: list[str]  # of the breaks, and of what ran in eager


def first_difference(a: Any, b: Any, what: str = "result") -> str:
    """Where two results differ in structure, classes, dtypes, layouts or values; empty where they
    do not."""
    if type(a) is not type(b):
        return f"{what}: {type(a).__name__} against {type(b).__name__}"
    if isinstance(a, torch.Tensor):
        return tensor_difference(a, b, what)
    if isinstance(a, PLAIN):
        same = a == b or (a != a and b != b)
        return "" if same else f"{what}: {a!r} against {b!r}"
    for x, y, part in parts(a, b):
        found = first_difference(x, y, what + part)
        if found:
            return found
    return ""


def parts(a: Any, b: Any) -> list[tuple[Any, Any, str]]:
    """What two objects of one class are made of."""
    out: list[tuple[Any, Any, str]] = []
    if isinstance(a, dict):
        out.append((list(a), list(b), ".keys()"))
        out += [(a[key], b[key], f"[{key!r}]") for key in a if key in b]
    elif isinstance(a, (list, tuple)):
        out.append((len(a), len(b), ".length"))
        out += [(x, y, f"[{i}]") for i, (x, y) in enumerate(zip(a, b))]
    elif isinstance(a, (set, frozenset)):
        out.append((sorted(map(repr, a)), sorted(map(repr, b)), ".items"))
    if hasattr(a, "__dict__") and not isinstance(a, (type, torch.nn.Module)):
        out.append((dict(vars(a)), dict(vars(b)), ".__dict__"))
    return out


def tensor_difference(a: torch.Tensor, b: torch.Tensor, what: str) -> str:
    """How two tensors differ."""
    for property_ in ("dtype", "shape", "requires_grad"):
        x, y = getattr(a, property_), getattr(b, property_)
        if x != y:
            return f"{what}: {property_} {x} against {y}"
    if a.stride() != b.stride():
        return f"{what}: strides {a.stride()} against {b.stride()}"
    try:
        torch.testing.assert_close(a, b, equal_nan=True, **TOLERANCE)
    except AssertionError as e:
        return f"{what}: " + " ".join(str(e).split())
    return ""


def state_of(model: torch.nn.Module) -> list[Any]:
    """What calls may have changed: parameters and buffers, classes (of lazy modules), hooks, random
    numbers."""
    parts = [(type(m).__name__, m.training, len(m._forward_pre_hooks)) for m in model.modules()]
    return [parts, dict(model.state_dict().items()), torch.get_rng_state()]


def outcomes(
    case: Case, calls: int, compiled: Callable[[Any], Any], told: Callable[[], None] = lambda: None
) -> list[Any]:
    """The results of some calls and, behind them, the state that they leave; `told` hears of the
    end of each."""
    model, args, kwargs = case.make()
    run = compiled(model)
    torch.manual_seed(1)
    results = []
    for _ in range(calls):
        results.append(run(*args, **kwargs))
        told()
    return [*results, list(args), kwargs, *state_of(model)]


def check(case: Case, calls: int = 2, **options: Any) -> Found:
    """The case through `oxyfuel.compile`, with these options."""
    oxyfuel.reset()
    reasons: list[str] = []
    counted: list[Counted] = []

    def count() -> None:
        stats = oxyfuel.stats()
        counted.append(Counted(stats["graphs"], stats["graph_breaks"]))

    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        expected = outcomes(case, calls, lambda model: model)
        found = outcomes(case, calls, lambda model: oxyfuel.compile(model, **options), count)
    reasons += [str(w.message) for w in said if str(w.message).startswith("oxyfuel")]
    stats = oxyfuel.stats()
    difference = first_difference(found, expected)
    if not difference and stats["fallbacks"] + stats["unsupported"]:
        difference = "a graph ran in eager: " + "; ".join(reasons)
    return Found(difference, counted[0], reasons)


# ---- sizes that vary ----

Inputs = dict[str, torch.Tensor]


def longer(x: torch.Tensor, steps: int) -> torch.Tensor:
    """A text or a sound with some more steps; else the tensor itself."""
    if x.dim() < 2 or (x.is_floating_point() and x.dim() > 2):
        return x
    more = steps * 4 if not x.is_floating_point() else steps * 400
    return torch.cat([x, x[:, :more]], 1)


def larger(x: torch.Tensor, steps: int) -> torch.Tensor:
    """A picture of more pixels."""
    if x.dim() < 4 or not x.is_floating_point():
        return x
    size = x.shape[-1] + steps * x.shape[-1] // 2
    return torch.cat([torch.cat([x, x], -1)[..., :size]] * 2, -2)[..., :size, :]


def more_of_them(x: torch.Tensor, steps: int) -> torch.Tensor:
    """A larger batch."""
    return torch.cat([x, x[:1].expand(steps, *x.shape[1:])]) if x.dim() > 0 else x


WAYS = {"length": longer, "image": larger, "batch": more_of_them}


class FoundSizes(NamedTuple):
    """What came of calls at several sizes."""

    difference: str
    way: str  # what varies
    graphs: int = 0  # of the first call
    breaks: int = 0
    captures: int = 0  # of all calls
    all_breaks: int = 0
    static: int = 0
    reasons: tuple[str, ...] = ()


def sizes_of(case: Case) -> tuple[str, list[Inputs]]:
    """Inputs of two or three sizes that the model takes in eager, and what differs in them."""
    _, _, first = case.make()
    for way, grow in WAYS.items():
        found = [first]
        for steps in (2, 1):
            grown = {
                k: grow(v, steps) if isinstance(v, torch.Tensor) else v for k, v in first.items()
            }
            if all(v is first[k] for k, v in grown.items()):
                break
            try:
                case.make()[0](**copied(grown))
            except Exception:
                continue
            found.append(grown)
        if len(found) > 1:
            return way, found
    return "", [first]


def copied(inputs: Inputs) -> Inputs:
    """The same values in memory of their own."""
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}


def check_sizes(case: Case, **options: Any) -> FoundSizes:
    """The case at several sizes through one `oxyfuel.compile`."""
    oxyfuel.reset()
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        way, inputs = sizes_of(case)
        if not way:
            return FoundSizes("", "nothing")
        inputs = [*inputs, inputs[0]]
        eager, compiled = case.make()[0], oxyfuel.compile(case.make()[0], **options)
        difference, first = "", {}
        for i, given in enumerate(inputs):
            results = []
            for run in (eager, compiled):
                torch.manual_seed(1)
                results.append([run(**copied(given)), torch.get_rng_state()])
            shapes = [list(v.shape) for v in given.values() if isinstance(v, torch.Tensor)]
            difference = difference or first_difference(results[1], results[0], f"{shapes}")
            if i == 0:
                first = oxyfuel.stats()
        left = first_difference(state_of(compiled), state_of(eager), "state")
    stats = oxyfuel.stats()
    reasons = [str(w.message) for w in said if str(w.message).startswith("oxyfuel")]
    difference = difference or left
    if not difference and stats["fallbacks"] + stats["unsupported"]:
        difference = "a graph ran in eager: " + "; ".join(reasons)
    return FoundSizes(
        difference,
        way,
        first["graphs"],
        first["graph_breaks"],
        stats["graphs"],
        stats["graph_breaks"],
        stats["static_captures"],
        tuple(reasons),
    )


def dynamo_counts(case: Case, gradients: bool = False) -> Counted:
    """What TorchDynamo makes of one call."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    graphs: list[Any] = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    model, args, kwargs = case.make()
    with torch.set_grad_enabled(gradients):
        torch.compile(model, backend=backend)(*args, **kwargs)
    breaks: collections.Counter[str] = counters["graph_break"]
    return Counted(len(graphs), sum(breaks.values()))
