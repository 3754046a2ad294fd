"""Samples of torch's operator database as calls with a backward: forward, then gradients of every
input that requires them, compiled against eager.

Outputs, their requires_grad, gradients or None, dtypes, values and strides must be eager's, under
OXYFUEL_STRICT. Strides of gradients are compared where eager's have no gaps: an expanded gradient
is memory that eager saves, not a promise.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from gradient_known import EAGER_GRADIENTS, NOISY, UNDEFINED_GRADIENTS
from opdb_cases import ENTRIES, Sample, copy_all, full_name
from opdb_check import Outcome, difference
from opdb_known import CAPTURE_EAGER, EAGER, UNDEFINED_VALUES, Closeness
from torch.testing._internal.opinfo.core import OpInfo

import oxyfuel


class GradientSetup(NamedTuple):
    """What is asked of an entry: a row of the table."""

    dtype: str = "float32"
    limit: int | None = 2  # samples, spread over all of an entry's; None: all
    leaves: bool = True  # inputs are leaves; else results of other ops
    autocast: bool = False  # to bfloat16

    def title(self) -> str:
        """The row's name."""
        some = "every sample" if self.limit is None else f"{self.limit} samples"
        inputs = "" if self.leaves else ", inputs are no leaves"
        return f"{self.dtype}{', bfloat16 autocast' if self.autocast else ''}{inputs}, {some}"


def has_gradients(op: OpInfo, dtype: str) -> bool:
    """Whether torch differentiates the operator."""
    return op.supports_autograd and getattr(torch, dtype) in op.supported_backward_dtypes("cpu")


DIFFERENTIABLE = [op for op in ENTRIES if has_gradients(op, "float32")]


def in_place_of_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The operator in place on a copy of its input, since a leaf must not be written."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return function(x.clone(), *args, **kwargs)

    return call


def gradient_samples(op: OpInfo, setup: GradientSetup) -> Iterator[Sample]:
    """Samples of an entry, out of place, then in place."""
    dtype = getattr(torch, setup.dtype)
    for function, kind in ((op.op, ""), (op.inplace_variant, " in place")):
        if function is None or (kind and not op.supports_inplace_autograd):
            continue
        drawn = list(op.sample_inputs("cpu", dtype, requires_grad=True))
        n, limit = len(drawn), setup.limit
        some = limit is not None and limit < n
        chosen = [i * (n - 1) // max(limit - 1, 1) for i in range(limit)] if some else range(n)
        for i in chosen:
            s = drawn[i]
            if kind and (not isinstance(s.input, torch.Tensor) or s.broadcasts_input):
                continue
            if any(t.layout != torch.strided for t in tensors_of((s.input, s.args, s.kwargs))):
                continue
            call = in_place_of_copy(function) if kind else function
            yield Sample(call, (s.input, *s.args), s.kwargs, f"sample {i}{kind}")


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors in it."""
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


class Trained(NamedTuple):
    """What a call and its backward give."""

    outputs: Any
    gradients: list[torch.Tensor | None]


def differentiable(tree: Any) -> list[torch.Tensor]:
    """The tensors that require gradients, each once."""
    found = {id(t): t for t in tensors_of(tree)}
    return [t for t in found.values() if t.requires_grad]


def copies_of(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any], list[torch.Tensor]]:
    """The arguments in other memory, and those of them that require gradients, as leaves."""
    args, kwargs = copy_all((sample.args, sample.kwargs))
    given = pytree.tree_leaves((sample.args, sample.kwargs))
    leaves: list[torch.Tensor] = []
    for old, new in zip(given, pytree.tree_leaves((args, kwargs))):
        if isinstance(old, torch.Tensor) and old.requires_grad:
            leaves.append(new.detach_().requires_grad_())
    return args, kwargs, leaves


def train(sample: Sample, f: Callable[..., Any], setup: GradientSetup) -> Trained:
    """A call and its backward, or the exception of one of them."""
    args, kwargs, leaves = copies_of(sample)
    if not setup.leaves:
        inner = {id(t): t * 1 for t in leaves}
        replace = lambda t: inner.get(id(t), t)
        args, kwargs = pytree.tree_map_only(torch.Tensor, replace, (args, kwargs))
        leaves = list(inner.values())
    torch.manual_seed(1)
    autocast = torch.autocast("cpu", torch.bfloat16) if setup.autocast else contextlib.nullcontext()
    try:
        with autocast:
            out = f(*args, **kwargs)
        outputs = differentiable(out)
        torch.manual_seed(2)
        tangents = [torch.randn_like(t) for t in outputs]
        if not outputs:
            gradients = [None for _ in leaves]
        elif setup.leaves:
            torch.autograd.backward(outputs, tangents)
            gradients = [t.grad for t in leaves]
        else:
            gradients = list(torch.autograd.grad(outputs, leaves, tangents, allow_unused=True))
        return Trained(detached(out), gradients)
    except Exception as e:
        return Trained(e, [])


def detached(tree: Any) -> Any:
    """The values, with requires_grad but without history."""
    bare = lambda t: t.detach().requires_grad_(t.requires_grad)
    return pytree.tree_map_only(torch.Tensor, bare, tree)


def with_plain_strides(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two gradients without the differences in strides that do not count: where eager's has gaps or
    overlaps, and along dimensions of one element."""
    sparse = torch.empty_like(x).stride() != x.stride()
    strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (x, y)]
    if sparse or strides[0] == strides[1] or not x.numel():
        plain = torch.contiguous_format
        return x.clone(memory_format=plain), y.clone(memory_format=plain)
    return x, y


def gradient_difference(a: Trained, b: Trained, close: Closeness | None) -> str | None:
    """How eager's gradients and ours differ, or None."""
    for i, (x, y) in enumerate(zip(a.gradients, b.gradients)):
        if x is not None and y is not None and x.layout == y.layout == torch.strided:
            x, y = with_plain_strides(x, y)
        found = difference(x, y, close, f"gradient {i}")
        if found:
            return found
    return None


def closeness_of(name: str, setup: GradientSetup) -> Closeness | None:
    """How close results must be: sums are taken in another order, and eager's own error grows with
    what it computes in between. None: values are not compared."""
    if name in UNDEFINED_VALUES or name in UNDEFINED_GRADIENTS:
        return None
    least = 1.0 if setup.dtype == "float32" or name in NOISY else 1e-3
    epsilon_ratio = 2**16 if setup.autocast else 1  # of bfloat16 to float32
    return Closeness(NOISY.get(name, 64) * epsilon_ratio, least)


def check(op: OpInfo, sample: Sample, setup: GradientSetup) -> Outcome:
    """What comes of one sample."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return sample.function(*args, **kwargs)

    close = closeness_of(full_name(op), setup)
    oxyfuel.reset()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compiled = oxyfuel.compile(call, options={"strict": True})
        expected = train(sample, call, setup)
        for _ in range(2):
            found = train(sample, compiled, setup)
            wrong = difference(expected.outputs, found.outputs, close) or gradient_difference(
                expected, found, close
            )
            if wrong:
                return Outcome("failed", wrong)
    stats = oxyfuel.stats()
    reasons = "; ".join(str(w.message) for w in said if "oxyfuel" in str(w.message))
    if stats["unsupported"] + stats["fallbacks"] + stats["grad_fallbacks"]:
        return Outcome("eager", reasons)
    if stats["graph_breaks"] and not isinstance(expected.outputs, Exception):
        return Outcome("eager", f"a graph break; {reasons}")
    return Outcome("passed")


def runs_in_eager(name: str) -> bool:
    """Whether a call of the entry may run in eager."""
    return name in EAGER or name in CAPTURE_EAGER or name in EAGER_GRADIENTS


def check_entry(op: OpInfo, setup: GradientSetup) -> Iterator[Outcome]:
    """What comes of an entry's samples."""
    name = full_name(op)
    for sample in gradient_samples(op, setup):
        status, text = check(op, sample, setup)
        if status == "eager" and not runs_in_eager(name):
            status, text = "failed", f"runs in eager: {text}"
        yield Outcome(status, f"{name} {sample.label}: {text}")
