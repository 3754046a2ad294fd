"""torch.cond and torch.while_loop of captured code: one node of the graph, with regions for what
may run. What cannot be a region (src/python/capture/inner_graphs.cpp) is chosen at a graph break,
and what lies between is compiled; where a capture knows the choice there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def chosen(condition: Any) -> bool:
    """Its truth. A capture that cannot tell breaks here, with the reason of control flow."""
    return bool(condition)


def choose(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> tuple[Any] | None:
    """A capture makes a node of it and gives the result in a tuple, or None where it cannot."""
    del pred, true_fn, false_fn, operands


def repeat(cond_fn: Any, body_fn: Any, carried: Any) -> tuple[Any] | None:
    """The same for a loop."""
    del cond_fn, body_fn, carried


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """As torch.cond: what depends on a tensor returns new tensors, never the operands."""
    if isinstance(pred, (bool, int, float)):
        in_graph = choose(pred, true_fn, false_fn, operands)  # where a size of data decides
        if in_graph is not None:
            return in_graph[0]
        return true_fn(*operands) if pred else false_fn(*operands)
    if not isinstance(pred, torch.Tensor):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    given = list(leaves(operands))
    if not isinstance(operands, (tuple, list)) or not all(
        isinstance(t, torch.Tensor) for t in given
    ):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists "
            f"of tensor leaves, but got {operands}."
        )
    in_graph = choose(pred, true_fn, false_fn, operands)
    if in_graph is not None:
        return in_graph[0]
    if chosen(pred):
        return apart(true_fn(*operands), given)
    return apart(false_fn(*operands), given)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
) -> Any:
    """As torch.while_loop: the returned tensors are never the given ones."""
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    given = list(leaves(carried_inputs))
    if not isinstance(carried_inputs, (tuple, list)) or not all(
        isinstance(t, (torch.Tensor, torch.SymInt, int)) for t in given
    ):
        raise RuntimeError(
            "Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only "
            f"consists of tensor or int leaves, but got {carried_inputs}."
        )
    carried = tuple(carried_inputs)
    in_graph = repeat(cond_fn, body_fn, carried)
    if in_graph is not None:
        return in_graph[0]
    while chosen(condition(cond_fn(*carried))):
        carried = body_fn(*carried)
        if not isinstance(carried, tuple):
            raise AssertionError(f"body_fn should return a tuple but got {type(carried)}")
        if len(carried) != len(carried_inputs):
            raise AssertionError(
                "body_fn should return the same number of elements as carried_inputs, got "
                f"{len(carried)} vs {len(carried_inputs)}"
            )
    return apart(carried, given)


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """As torch's prototype of that name, unrolled."""
    flat, spec = torch.utils._pytree.tree_flatten(xs)
    if not all(isinstance(x, torch.Tensor) for x in flat):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {flat}.")
    shapes = [x.shape for x in flat]
    if shapes[0][0] == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if any(shape[0] != shapes[0][0] for shape in shapes):
        raise RuntimeError(
            f"Leading dimensions of mapped xs must be consistent. Got shapes {shapes}."
        )
    parts = []
    for i in range(shapes[0][0]):
        made = f(torch.utils._pytree.tree_unflatten([x[i] for x in flat], spec), *args)
        part, spec_of_result = torch.utils._pytree.tree_flatten(made)
        parts.append(part)
    stacked = [None if leaf[0] is None else torch.stack(leaf) for leaf in zip(*parts)]
    return torch.utils._pytree.tree_unflatten(stacked, spec_of_result)


def condition(pred: Any) -> Any:
    """What the condition of a loop may be."""
    if isinstance(pred, bool):
        return pred
    if isinstance(pred, torch.Tensor) and pred.dim() == 0 and pred.dtype == torch.bool:
        return pred
    raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {pred}")


def leaves(tree: Any) -> Iterator[Any]:
    """What lies in nested tuples, lists and dicts."""
    if isinstance(tree, (tuple, list)):
        for item in tree:
            yield from leaves(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from leaves(item)
    else:
        yield tree


def apart(result: Any, given: list[Any]) -> Any:
    """The result with copies in the places of tensors that were given."""
    if isinstance(result, torch.Tensor):
        return result.clone() if any(result is t for t in given) else result
    if type(result) in (tuple, list):
        return type(result)([apart(item, given) for item in result])
    if type(result) is dict:
        return {key: apart(item, given) for key, item in result.items()}
    return result
