"""The sweep's rows of torch's op_db and module_db: ops/ENTRY/DTYPE/LAYOUT/SIZE and modules/... ."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from sweep_enlarge import DTYPES, LAYOUTS, Call, Skip, enlarge, lay_out, sizes, tensors_in

SAMPLES = 40  # of an entry, among which the one with the most elements is taken
# The database's random entries set the seed inside the call; a graph does not.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


UNDEFINED = re.compile(r"^(new_)?empty|^jiterator")  # no values to compare; another device's


def entry_name(op: Any) -> str:
    """With its variant."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


@functools.cache
def entries() -> dict[str, Any]:
    """op_db by name."""
    return {entry_name(op): op for op in op_db if not UNDEFINED.match(op.name)}


@functools.cache
def modules() -> dict[str, Any]:
    """module_db by name."""
    return {info.name.removeprefix("nn."): info for info in module_db}


def names() -> Iterator[str]:
    """Every row; whether a sample can be laid out or enlarged so is seen when it is made."""
    for name, op in entries().items():
        kinds = [d for d, dtype in DTYPES.items() if dtype in op.supported_dtypes("cpu")]
        for dtype, layout, size in itertools.product(kinds, LAYOUTS, sizes()):
            yield f"ops/{name}/{dtype}/{layout}/{size}"
    for name, info in modules().items():
        kinds = [d for d, dtype in DTYPES.items() if dtype in info.dtypes]
        for dtype, layout, size in itertools.product(kinds, LAYOUTS, sizes()):
            yield f"modules/{name}/{dtype}/{layout}/{size}"


def elements(tree: Any) -> int:
    """Of all its tensors."""
    return sum(t.numel() for t in tensors_in(tree))


def make_op(rest: list[str]) -> Call:
    """The call of an entry's row."""
    name, dtype, layout, size = rest
    op = entries()[name]
    torch.manual_seed(0)
    drawn = op.sample_inputs("cpu", DTYPES[dtype], requires_grad=False)
    samples = list(itertools.islice(drawn, SAMPLES))
    if not samples:
        raise Skip("the database has no sample")
    s = max(samples, key=lambda s: elements(((s.input, *s.args), s.kwargs)))
    tree = ((s.input, *s.args), s.kwargs)
    run = lambda tree: op.op(*tree[0], **tree[1])
    (args, kwargs), _ = enlarge(tree, sizes()[size], run)
    args, kwargs = lay_out((args, kwargs), layout)
    function = op.op

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return Call(call, args, kwargs)


def make_module(rest: list[str]) -> Call:
    """The call of a module's row: the constructor's numbers are scaled with the tensors."""
    name, dtype, layout, size = rest
    info = modules()[name]
    torch.manual_seed(0)
    samples = info.module_inputs_func(
        info, device="cpu", dtype=DTYPES[dtype], requires_grad=False, training=False
    )
    given = lambda s: (
        (s.constructor_input.args, s.constructor_input.kwargs),
        (s.forward_input.args, s.forward_input.kwargs),
    )
    trees = [given(s) for s in itertools.islice(samples, SAMPLES) if s.forward_input]
    tree = max(trees, key=lambda tree: elements(tree[1]))

    def module(tree: Any) -> torch.nn.Module:
        torch.manual_seed(0)
        made = info.module_cls(*tree[0][0], **tree[0][1])
        return made.to(DTYPES[dtype]).eval()

    run = lambda tree: module(tree)(*tree[1][0], **tree[1][1])
    tree, _ = enlarge(tree, sizes()[size], run)
    args, kwargs = lay_out(tree[1], layout)
    return Call(module(tree), args, kwargs)
