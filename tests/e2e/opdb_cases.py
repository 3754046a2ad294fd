"""Samples of torch's operator database: entries, dtypes, layouts, and a sample as a call that can
be compiled.

One sample is one graph: inputs for the tensors, one call of the operator. It comes from Oxyfuel's
own front end, or, the way "fx", from torch.fx.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch.testing._internal import common_methods_invocations, common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.testing._internal.opinfo.core import OpInfo

import oxyfuel

# The database's random entries set the seed inside the call; a graph does not.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

# Samples look on the stack, which takes milliseconds, for a test of unittest's: there is none.
common_utils.extract_test_fn = core.extract_test_fn = lambda: None

DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "uint8",
        "bool",
        "complex64",
    )
}


def full_name(op: OpInfo) -> str:
    """The name of an entry, with its variant."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def dtypes_of(op: OpInfo) -> list[str]:
    """Which of DTYPES an entry has on the CPU."""
    supported = op.supported_dtypes("cpu")
    return [name for name, dtype in DTYPES.items() if dtype in supported]


ENTRIES = [op for op in op_db if dtypes_of(op)]


class Sample(NamedTuple):
    """A call: the function, what it is given, and what the sample is called in a report."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    label: str


def samples_of(op: OpInfo, dtype: str, layout: str, limit: int | None) -> Iterator[Sample]:
    """The first samples of an entry that can be laid out so, out of place, then in place. No limit:
    all."""
    for function, kind in ((op.op, ""), (op.inplace_variant, " in place")):
        drawn = op.sample_inputs("cpu", DTYPES[dtype], requires_grad=False) if function else ()
        calls = ((i, (s.input, *s.args), s.kwargs) for i, s in enumerate(drawn))
        fitting = ((i, lay_out(layout, args, kwargs)) for i, args, kwargs in calls)
        taken = ((i, call) for i, call in fitting if call is not None)
        for i, (args, kwargs) in itertools.islice(taken, limit):
            yield Sample(function, args, kwargs, f"sample {i}{kind}")


def error_samples_of(op: OpInfo, limit: int | None) -> Iterator[Sample]:
    """Calls that eager refuses."""
    errors = op.error_inputs("cpu") if op.error_inputs_func else ()
    for i, e in enumerate(itertools.islice(errors, limit)):
        s = e.sample_input
        yield Sample(op.op, (s.input, *s.args), s.kwargs, f"error input {i}")


# ---- layouts: functions of a tensor that give its values in another layout, or None where there is
# none ----


def strided(t: torch.Tensor) -> torch.Tensor | None:
    """Every second element of a row, behind an offset."""
    if t.dim() == 0 or t.numel() == 0:
        return None
    room = torch.zeros((*t.shape[:-1], 2 * t.shape[-1]), dtype=t.dtype)
    return room[..., 1::2].copy_(t)


def transposed(t: torch.Tensor) -> torch.Tensor | None:
    """The last two dimensions swapped in memory."""
    swapped = t.dim() > 1 and t.numel() > 1
    return t.mT.contiguous().mT if swapped else None


def expanded(t: torch.Tensor) -> torch.Tensor | None:
    """The first slice of a dimension for all of its slices."""
    d = next((d for d, n in enumerate(t.shape) if n > 1 and t.numel()), None)
    return None if d is None else t.narrow(d, 0, 1).clone().expand(t.shape)


def channels_last(t: torch.Tensor) -> torch.Tensor | None:
    """The second dimension innermost."""
    format = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim())
    return t.contiguous(memory_format=format) if format and t.numel() else None


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor | None]] = {
    "as given": lambda t: t,
    "strided": strided,
    "transposed": transposed,
    "first transposed": transposed,
    "expanded": expanded,
    "channels last": channels_last,
    "empty": lambda t: t,
}


def lay_out(
    layout: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a call in another layout; None where no tensor can have it."""
    if layout == "as given":
        return args, kwargs
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    if not tensors or any(t.layout != torch.strided for t in tensors):
        return None
    if layout == "empty":
        changed = emptied(tensors)
    else:
        changed = [LAYOUTS[layout](t) for t in tensors]
        if layout == "first transposed":
            changed = [changed[0]] + [None] * (len(tensors) - 1) if len(tensors) > 1 else []
    if all(t is None for t in changed):
        return None
    replaced = iter([t if new is None else new for t, new in zip(tensors, changed)])
    filled = [next(replaced) if isinstance(x, torch.Tensor) else x for x in leaves]
    return pytree.tree_unflatten(filled, spec)


def emptied(tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """The tensors with the first one's first size replaced by 0 wherever it occurs, so that they
    still fit together."""
    size = next((t.shape[0] for t in tensors if t.dim()), 0)
    if size == 0:
        return []
    return [
        t.new_empty([0 if n == size else n for n in t.shape]) if size in t.shape else None
        for t in tensors
    ]


# ---- a sample as a call ----


def copy_all(tree: Any) -> Any:
    """The same tensors in other memory: values, strides, offsets, and what shares memory with
    what."""
    storages: dict[int, Any] = {}

    def copy(t: torch.Tensor) -> torch.Tensor:
        if not t.is_cpu or t.layout != torch.strided or t.is_conj() or t.is_neg() or t.is_quantized:
            return t.clone()
        storage = t.untyped_storage()
        if storage.data_ptr() not in storages or not storage.nbytes():
            storages[storage.data_ptr()] = storage.clone()
        empty = torch.empty(0, dtype=t.dtype)
        return empty.set_(storages[storage.data_ptr()], t.storage_offset(), t.shape, t.stride())

    return pytree.tree_map_only(torch.Tensor, copy, tree)


PLAIN = (torch.Tensor, int, float, complex, str, type(None), torch.dtype, torch.device,
         torch.layout,
         torch.memory_format, slice, type(...))  # fmt: skip


def as_graph_call(sample: Sample) -> tuple[Any, ...]:
    """(function, args, kwargs) that torch.fx can write down.

    The database's own functions are no attributes of a module, and some arguments are objects:
    these become one function of the tensors.
    """
    function, args, kwargs, _ = sample
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


def result_items(sample: Sample) -> int | None:
    """How many items a call's result has; None for one that is no tuple or list, and for a call
    that fails."""
    args, kwargs = copy_all((sample.args, sample.kwargs))
    try:
        result = sample.function(*args, **kwargs)
    except Exception:
        return None
    return len(result) if isinstance(result, (tuple, list)) else None


class FxCase:
    """One call of an operator as a graph of torch.fx, and the tensors that it takes."""

    def __init__(self, sample: Sample, options: dict[str, Any]) -> None:
        graph = torch.fx.Graph()
        self.tensors: list[torch.Tensor] = []
        self._options = options

        def leaf(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            self.tensors.append(x)
            return graph.placeholder(f"x{len(self.tensors)}")

        items = result_items(sample)
        function, args, kwargs = as_graph_call(sample)
        args, kwargs = pytree.tree_map(leaf, (args, kwargs))
        call = graph.call_function(function, args, kwargs)
        getitem = lambda i: graph.call_function(operator.getitem, (call, i))
        graph.output(call if items is None else tuple(getitem(i) for i in range(items)))
        self.module = torch.fx.GraphModule(torch.nn.Module(), graph)
        self.eager = self.module.forward

    def compiled(self) -> Callable[..., Any]:
        """The call, compiled."""
        return oxyfuel.compile_fx(self.module, options=self._options)

    def why_no_graph(self) -> str:
        """The module's code was captured, and broke at the call."""
        return "a graph break"

    def run(self, f: Callable[..., Any]) -> tuple[Any, list[torch.Tensor]]:
        """The result, or the exception, and the inputs after the call."""
        inputs = copy_all(self.tensors)
        torch.manual_seed(1)
        try:
            return f(*inputs), inputs
        except Exception as e:
            return e, inputs


class CapturedCase:
    """One call of an operator in a function of Python."""

    def __init__(self, sample: Sample, options: dict[str, Any]) -> None:
        function = sample.function

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        self.eager = call
        self._given = sample.args, sample.kwargs
        self._options = options

    def compiled(self, **also: Any) -> Callable[..., Any]:
        """The call, compiled."""
        return oxyfuel.compile(self.eager, options=self._options, **also)

    def run(self, f: Callable[..., Any]) -> tuple[Any, list[torch.Tensor]]:
        """The result, or the exception, and the tensors among the arguments after the call."""
        args, kwargs = copy_all(self._given)
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        torch.manual_seed(1)
        try:
            return f(*args, **kwargs), tensors
        except Exception as e:
            return e, tensors

    def why_no_graph(self) -> str:
        """The reason of the graph break in the call."""
        said, _ = self.run(self.compiled(fullgraph=True))
        return str(said) if isinstance(said, oxyfuel.GraphBreak) else "a graph break"


WAYS: dict[str, type] = {"capture": CapturedCase, "fx": FxCase}
