"""Torch's operator database through Oxyfuel with every op as an extern call, against eager.

One sample is one graph: inputs for the tensors, one call of the operator. It comes from Oxyfuel's own front end, or, the
way "fx", from torch.fx. Value, dtype, shape, strides, mutated inputs and exceptions must be eager's, under
OXYFUEL_STRICT.

usage: python tests/e2e/opdb.py [--all] [--fx] [--quiet] [NAME ...]
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

import oxyfuel

# The database's random entries set the seed inside the call; a graph does not.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

OPTIONS = {"kernels": False, "strict": True}

# Entries that run in eager, by the reason. An entry that runs in eager and does not stand here is a failure.
EAGER: dict[str, str] = {
    name: reason
    for reason, names in {
        "the shape of the result, or a number that the operator reads, depends on data": """
            item allclose combinations corrcoef cov equal masked_select quantile nanquantile tensor_split unique
            unique_consecutive nonzero argwhere nn.functional.gaussian_nll_loss linalg.lstsq
            linalg.lstsq.grad_oriented narrow __getitem__ repeat_interleave nn.functional.ctc_loss""",
        "an argument or a result is sparse": "sparse.sampled_addmm sparse.mm.reduce to_sparse",
        "torch has no shape rule for the operator": "geqrf histogram histogramdd",
        "torch cannot functionalise the operator in place": """
            polygamma.polygamma_n_0 polygamma.polygamma_n_1 polygamma.polygamma_n_2 polygamma.polygamma_n_3
            polygamma.polygamma_n_4 lerp""",
        "the shape or the storage of an input changes in place": """
            as_strided as_strided.partial_views squeeze squeeze.multiple resize_ unsqueeze transpose t
            nn.functional.dropout3d""",
        "a view of another dtype, or one that is conjugated lazily": """
            view_as_complex fft.hfft fft.hfft2 fft.hfftn fft.ifft fft.ihfft fft.ihfft2 fft.ihfftn""",
        "results share memory that has gaps": "unsafe_chunk new_empty_strided empty_strided",
        "batch norm in training mode": "native_batch_norm nn.functional.instance_norm nn.functional.batch_norm",
    }.items()
    for name in names.split()
}

# And what the front end leaves to eager besides.
CAPTURE_EAGER: dict[str, str] = {
    name: reason
    for reason, names in {
        "the function makes a class": """
            masked.amax masked.amin masked.argmax masked.argmin masked.cumprod masked.cumsum masked.log_softmax
            masked.logaddexp masked.logsumexp masked.mean masked.median masked.norm masked.normalize masked.prod
            masked.softmax masked.softmin masked.std masked.sum masked.var""",
        "the function warns": """
            nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none""",
        "the result is no tensor": "broadcast_shapes",
    }.items()
    for name in names.split()
}

# Entries with samples whose layout is not the predicted one: the call still gives eager's result, but not when strict.
MISPREDICTED = {
    "nn.functional.max_unpool2d",
    "nn.functional.max_unpool2d.grad",
    "fft.rfft2",
    "fft.rfftn",
    "_native_batch_norm_legit",
}

# Results that differ from run to run, or hold memory that was never written: metadata is compared, values are not.
UNDEFINED_VALUES = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}
# LAPACK's last bits depend on where its input lies in memory; and torch computes singular values together with the
# vectors where the input might be differentiated, which it cannot tell of a tensor that is being recorded.
TOLERANCE = {
    "linalg.eigvalsh": 1e-6,
    "linalg.svdvals": 1e-5,
    "linalg.cond": 1e-5,
    "linalg.matrix_rank": 1e-5,
    "linalg.lstsq": 1e-5,
    "linalg.norm": 1e-5,
    "linalg.matrix_norm": 1e-5,
    "norm": 1e-5,
}


def full_name(op: OpInfo) -> str:
    """The name of an entry, with its variant."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


ENTRIES = [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")]


def samples_of(op: OpInfo) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """(args, kwargs) of each sample of an entry."""
    for s in op.sample_inputs("cpu", torch.float32, requires_grad=False):
        yield (s.input, *s.args), s.kwargs


def clone(t: torch.Tensor) -> torch.Tensor:
    """The same values and strides in other memory."""
    if t.layout != torch.strided:
        return t.clone()
    copy = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype)
    overlapping = any(n > 1 and s == 0 for n, s in zip(t.size(), t.stride()))
    return t.clone() if overlapping else copy.copy_(t)


PLAIN = (torch.Tensor, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout,
         torch.memory_format, slice, type(...))  # fmt: skip


def as_graph_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """(function, args, kwargs) that torch.fx can write down.

    The database's own functions are no attributes of a module, and some arguments are objects: these become
    one function of the tensors.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    reachable = hasattr(function, "__name__") and not str(
        getattr(function, "__module__", "")
    ).startswith("torch.testing")
    if reachable and all(isinstance(x, PLAIN) for x in leaves):
        return function, args, kwargs
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]

    def sample_function(*given: torch.Tensor) -> Any:
        rest = iter(given)
        filled = [next(rest) if isinstance(x, torch.Tensor) else x for x in leaves]
        all_args, all_kwargs = pytree.tree_unflatten(filled, spec)
        return function(*all_args, **all_kwargs)

    return sample_function, tuple(tensors), {}


def result_items(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> int | None:
    """How many items a call's result has; None for one that is no tuple or list, and for a call that fails."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, clone, (args, kwargs))
    try:
        result = function(*args, **kwargs)
    except Exception:
        return None
    return len(result) if isinstance(result, (tuple, list)) else None


class FxCase:
    """One call of an operator as a graph of torch.fx, and the tensors that it takes."""

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        graph = torch.fx.Graph()
        self.tensors: list[torch.Tensor] = []

        def leaf(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            self.tensors.append(x)
            return graph.placeholder(f"x{len(self.tensors)}")

        items = result_items(function, args, kwargs)
        function, args, kwargs = as_graph_call(function, args, kwargs)
        args, kwargs = pytree.tree_map(leaf, (args, kwargs))
        call = graph.call_function(function, args, kwargs)
        getitem = lambda i: graph.call_function(operator.getitem, (call, i))
        graph.output(call if items is None else tuple(getitem(i) for i in range(items)))
        self.module = torch.fx.GraphModule(torch.nn.Module(), graph)
        self.eager = self.module.forward

    def compiled(self) -> Callable[..., Any]:
        """The call, compiled."""
        return oxyfuel.compile_fx(self.module, options=OPTIONS)

    def run(self, f: Callable[..., Any]) -> tuple[Any, list[torch.Tensor]]:
        """The result, or the exception, and the inputs after the call."""
        inputs = [clone(t) for t in self.tensors]
        torch.manual_seed(1)
        try:
            return f(*inputs), inputs
        except Exception as e:
            return e, inputs


class CapturedCase:
    """One call of an operator in a function of Python."""

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        self.eager = call
        self._given = args, kwargs

    def compiled(self) -> Callable[..., Any]:
        """The call, compiled."""
        return oxyfuel.compile(self.eager, options=OPTIONS)

    def run(self, f: Callable[..., Any]) -> tuple[Any, list[torch.Tensor]]:
        """The result, or the exception, and the tensors among the arguments after the call."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, clone, self._given)
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        torch.manual_seed(1)
        try:
            return f(*args, **kwargs), tensors
        except Exception as e:
            return e, tensors


WAYS: dict[str, type] = {"capture": CapturedCase, "fx": FxCase}


def difference(a: Any, b: Any, tolerance: float | None, what: str = "result") -> str | None:
    """How two results differ, or None. With the tolerance None, values are not compared."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return tensor_difference(a, b, tolerance, what)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        if len(a) != len(b):
            return f"{what}: {len(a)} against {len(b)} items"
        parts = (difference(x, y, tolerance, f"{what}[{i}]") for i, (x, y) in enumerate(zip(a, b)))
        return next((d for d in parts if d), None)
    if type(a) is not type(b):
        return f"{what}: {type(a).__name__} {a!s:.200} against {type(b).__name__} {b!s:.200}"
    if isinstance(a, Exception):
        return None if str(a) == str(b) else f"{what}: the message is {b!s:.200}, not {a!s:.200}"
    if a == b or (a != a and b != b):
        return None
    return f"{what}: {a} against {b}"


def tensor_difference(
    a: torch.Tensor, b: torch.Tensor, tolerance: float | None, what: str
) -> str | None:
    """How two tensors differ in metadata or values, or None."""
    for name in ("dtype", "layout", "shape", "requires_grad"):
        if getattr(a, name) != getattr(b, name):
            return f"{what}: {name} {getattr(a, name)} against {getattr(b, name)}"
    if a.layout == torch.strided and a.stride() != b.stride():
        return f"{what}: strides {a.stride()} against {b.stride()}"
    if a.is_conj() != b.is_conj() or a.is_neg() != b.is_neg():
        return f"{what}: lazily conjugated or negated on one side"
    try:
        if tolerance is not None:
            torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as e:
        return f"{what}: {str(e).replace(chr(10), ' ')}"
    return None


def check(
    way: str,
    op: OpInfo,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str | None:
    """What is wrong with one sample, or None. "eager: ..." where it was not compiled."""
    try:
        case = WAYS[way](function, args, kwargs)
    except (NotImplementedError, RuntimeError) as e:
        return f"eager: no graph: {e}"
    oxyfuel.reset()
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")
        compiled = case.compiled()
        expected, expected_inputs = case.run(case.eager)
        for _ in range(2):
            result, inputs = case.run(compiled)
            tolerance = None if op.name in UNDEFINED_VALUES else TOLERANCE.get(op.name, 0.0)
            wrong = difference(expected, result, tolerance) or difference(
                expected_inputs, inputs, 0.0, "inputs"
            )
            if wrong:
                return wrong
    stats = oxyfuel.stats()
    if stats["unsupported"]:
        return "eager: " + "; ".join(str(w.message) for w in said if "oxyfuel" in str(w.message))
    broken = stats["graph_breaks"] and not isinstance(expected, Exception)
    return "eager: " + why_no_graph(case) if broken else None


def why_no_graph(case: CapturedCase) -> str:
    """The reason of the graph break in a call."""
    said, _ = case.run(oxyfuel.compile(case.eager, fullgraph=True, options=OPTIONS))
    return str(said) if isinstance(said, oxyfuel.GraphBreak) else "a graph break"


def check_entry(op: OpInfo, every: bool, way: str) -> list[str]:
    """Failures of an entry's first sample, or of all, out of place and in place, and of its error inputs."""
    failures = []
    eager = eager_reason(op, way)
    for function, kind in ((op.op, ""), (op.inplace_variant, "in place: ")):
        for i, (args, kwargs) in enumerate(samples_of(op) if function else ()):
            if i > 0 and not every:
                break
            wrong = check(way, op, function, args, kwargs) or ""
            allowed = (eager and wrong.startswith("eager: ")) or (
                full_name(op) in MISPREDICTED and "predicted was" in wrong
            )
            if wrong and not allowed:
                failures.append(f"{full_name(op)} sample {i}: {kind}{wrong}")
    return failures + check_errors(op, every, way)


def eager_reason(op: OpInfo, way: str) -> str | None:
    """Why an entry may run in eager, or None."""
    name = full_name(op)
    return EAGER.get(name) or (CAPTURE_EAGER.get(name) if way == "capture" else None)


def check_errors(op: OpInfo, every: bool, way: str) -> list[str]:
    """Failures of an entry's error inputs: eager's exception must come out."""
    failures = []
    for i, e in enumerate(op.error_inputs("cpu") if op.error_inputs_func else ()):
        if i > 0 and not every:
            break
        s = e.sample_input
        wrong = check(way, op, op.op, (s.input, *s.args), s.kwargs)
        if wrong and not wrong.startswith("eager: "):
            failures.append(f"{full_name(op)} error input {i}: {wrong}")
    return failures


def main(arguments: list[str]) -> int:
    """Checks the named entries, or all of them; prints the failures."""
    every, quiet = "--all" in arguments, "--quiet" in arguments
    way = "fx" if "--fx" in arguments else "capture"
    names = {a for a in arguments if not a.startswith("--")}
    failed = 0
    entries = [op for op in ENTRIES if not names or full_name(op) in names or op.name in names]
    for op in entries:
        try:
            failures = check_entry(op, every, way)
        except Exception as e:
            failures = [f"{full_name(op)}: {type(e).__name__}: {e}"]
        for f in failures:
            print(" ".join(f.split())[:400], flush=True)
        failed += bool(failures)
        if not failures and not quiet:
            print(f"{full_name(op)}: ok", flush=True)
    print(f"{len(entries) - failed} of {len(entries)} entries give eager's results")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
