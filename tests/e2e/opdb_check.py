"""One sample of the operator database, compiled against eager.

Value, dtype, shape, strides, mutated inputs and exceptions must be eager's, under OXYFUEL_STRICT.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from opdb_cases import WAYS, Sample, error_samples_of, full_name, samples_of
from opdb_known import (
    CAPTURE_EAGER,
    EAGER,
    LAYOUT_EAGER,
    UNDEFINED_AFTER_ERROR,
    UNDEFINED_EXPANDED,
    UNDEFINED_VALUES,
    Closeness,
    closeness_of,
)
from torch.testing._internal.opinfo.core import OpInfo

import oxyfuel


class Setup(NamedTuple):
    """What is asked of an entry: a row of the table."""

    dtype: str = "float32"
    layout: str = "as given"
    kernels: bool = True
    way: str = "capture"
    limit: int | None = 1  # samples; None: all

    def title(self) -> str:
        """The row's name."""
        extern = "" if self.kernels else ", all ops extern"
        fx = ", from torch.fx" if self.way == "fx" else ""
        some = {None: "every sample", 1: "one sample"}.get(self.limit, f"{self.limit} samples")
        return f"{self.dtype}, {self.layout}{extern}{fx}, {some}"


class Outcome(NamedTuple):
    """passed, failed, or eager: the call was not compiled, which is known and gave eager's
    result."""

    status: str
    text: str = ""


def difference(a: Any, b: Any, close: Closeness | None, what: str = "result") -> str | None:
    """How two results differ, or None. With `close` None, values are not compared."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return tensor_difference(a, b, close, what)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        if len(a) != len(b):
            return f"{what}: {len(a)} against {len(b)} items"
        parts = (difference(x, y, close, f"{what}[{i}]") for i, (x, y) in enumerate(zip(a, b)))
        return next((d for d in parts if d), None)
    if type(a) is not type(b):
        return f"{what}: {type(a).__name__} {a!s:.200} against {type(b).__name__} {b!s:.200}"
    if isinstance(a, Exception):
        return None if str(a) == str(b) else f"{what}: the message is {b!s:.200}, not {a!s:.200}"
    if a == b or (a != a and b != b):
        return None
    return f"{what}: {a} against {b}"


def tensor_difference(
    a: torch.Tensor, b: torch.Tensor, close: Closeness | None, what: str
) -> str | None:
    """How two tensors differ in metadata or values, or None."""
    for name in ("dtype", "layout", "shape", "requires_grad"):
        if getattr(a, name) != getattr(b, name):
            return f"{what}: {name} {getattr(a, name)} against {getattr(b, name)}"
    if a.layout == torch.strided and a.stride() != b.stride():
        return f"{what}: strides {a.stride()} against {b.stride()}"
    if a.is_conj() != b.is_conj() or a.is_neg() != b.is_neg():
        return f"{what}: lazily conjugated or negated on one side"
    if close is None:
        return None
    rtol, atol = tolerance(a, close)
    if a.dim() > 20:  # more than the report of a difference can print
        a, b = a.reshape(-1), b.reshape(-1)
    try:
        torch.testing.assert_close(b, a, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as e:
        return f"{what}: {str(e).replace(chr(10), ' ')}"
    return None


def tolerance(expected: torch.Tensor, close: Closeness) -> tuple[float, float]:
    """Relative and absolute tolerance; the absolute one follows the largest value, which sums may
    cancel."""
    rounds = expected.is_floating_point() or expected.is_complex()
    if close.roundings == 0 or not rounds or expected.layout != torch.strided:
        return 0.0, 0.0
    epsilon = torch.finfo(expected.dtype).eps * (1 if expected.itemsize == 2 else close.roundings)
    sizes = expected.abs()
    largest = sizes[sizes.isfinite()]
    return epsilon, epsilon * max(close.least, float(largest.max()) if largest.numel() else 0.0)


def check(op: OpInfo, sample: Sample, setup: Setup) -> Outcome:
    """What comes of one sample."""
    options = {"strict": True} if setup.kernels else {"strict": True, "kernels": False}
    case = WAYS[setup.way](sample, options)
    close = None
    expanded = setup.layout == "expanded" and op.name in UNDEFINED_EXPANDED
    if op.name not in UNDEFINED_VALUES and not expanded:
        close = closeness_of(full_name(op), setup.kernels, setup.dtype)
    undefined = f"{full_name(op)} {sample.label}" in UNDEFINED_AFTER_ERROR
    close_inputs = None if undefined else close
    oxyfuel.reset()
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")
        compiled = case.compiled()
        expected, expected_inputs = case.run(case.eager)
        for _ in range(2):
            result, inputs = case.run(compiled)
            wrong = difference(expected, result, close) or difference(
                expected_inputs, inputs, close_inputs, "inputs"
            )
            if wrong:
                return Outcome("failed", wrong)
    stats = oxyfuel.stats()
    if stats["unsupported"]:
        why = "; ".join(str(w.message) for w in said if "oxyfuel" in str(w.message))
        return Outcome("eager", why)
    if stats["graph_breaks"] and not isinstance(expected, Exception):
        return Outcome("eager", case.why_no_graph())
    return Outcome("passed")


def check_entry(op: OpInfo, setup: Setup) -> Iterator[Outcome]:
    """What comes of an entry's samples; of its error inputs too, where the setup is the
    plainest."""
    name = full_name(op)
    known = (
        name in EAGER
        or (setup.way == "capture" and name in CAPTURE_EAGER)
        or (setup.layout != "as given" and name in LAYOUT_EAGER)
    )
    for sample in samples_of(op, setup.dtype, setup.layout, setup.limit):
        status, text = check(op, sample, setup)
        overlaps = setup.layout == "expanded" and "overlaps itself" in text
        if status == "eager" and not known and not overlaps:
            status, text = "failed", f"runs in eager: {text}"
        yield Outcome(status, f"{name} {sample.label}: {text}")
    if setup.dtype != "float32" or setup.layout != "as given":
        return
    for sample in error_samples_of(op, setup.limit):
        status, text = check(op, sample, setup)
        yield Outcome(status, f"{name} {sample.label}: {text}")


def failures_of(op: OpInfo, setup: Setup) -> list[str]:
    """What is wrong with an entry."""
    return [o.text for o in check_entry(op, setup) if o.status == "failed"]
