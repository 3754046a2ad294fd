"""torch.fx graphs whose own attributes require gradients: the same graphs with these attributes as
inputs, which gradients go to like to any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

# The dict in which an attribute stands, and its key there.
Slot = tuple[dict[str, Any], str]


class _Applied:
    """A submodule as a function of its parameters."""

    __module__ = "oxyfuel.lifted"
    __name__ = __qualname__ = "applied"

    def __init__(self, module: torch.nn.Module, names: list[str]) -> None:
        self._module = module
        self._names = names

    def __call__(
        self, parameters: tuple[torch.Tensor, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        given = dict(zip(self._names, parameters, strict=True))
        return torch.func.functional_call(self._module, given, args, kwargs, tie_weights=False)


def lift_attributes(
    gm: GraphModule, slot_of: Callable[[str], Slot | None]
) -> tuple[GraphModule, list[Slot]]:
    """The graph with an input more for each attribute that requires gradients, and where these are
    found. ``slot_of`` finds an attribute by its path."""
    graph = Graph()
    nodes: dict[Node, Node] = {}
    slots: list[Slot] = []
    inputs: dict[str, Node] = {}

    def lift(path: str) -> Node | None:
        """The input for an attribute; None for what stays one."""
        slot = slot_of(path)
        value = slot and slot[0][slot[1]]
        if slot is None or not isinstance(value, torch.Tensor) or not value.requires_grad:
            return None
        if path not in inputs:
            slots.append(slot)
            inputs[path] = graph.placeholder("attribute_" + path.replace(".", "_"))
        return inputs[path]

    def lifted_module(node: Node) -> Node | None:
        module = gm.get_submodule(str(node.target))
        found = {
            name: lift(f"{node.target}.{name}")
            for name, _ in module.named_parameters(remove_duplicate=False)
        }
        names = [name for name, value in found.items() if value is not None]
        if not names:
            return None
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: nodes[n])
        applied = _Applied(module, names)
        return graph.call_function(applied, (tuple(found[n] for n in names), args, kwargs))

    # Inputs stand in front of all calls.
    placeholders = gm.graph.find_nodes(op="placeholder")
    for node in placeholders:
        nodes[node] = graph.node_copy(node)
    body = [n for n in gm.graph.nodes if n.op != "placeholder"]
    for node in body:
        if node.op == "get_attr":
            lift(str(node.target))
        elif node.op == "call_module":
            for name, _ in gm.get_submodule(str(node.target)).named_parameters(
                remove_duplicate=False
            ):
                lift(f"{node.target}.{name}")
    for node in body:
        made = None
        if node.op == "get_attr":
            made = lift(str(node.target))
        elif node.op == "call_module":
            made = lifted_module(node)
        if made is None:
            made = graph.node_copy(node, lambda n: nodes[n])
        elif node.op == "call_module":
            made.meta = dict(node.meta)
        nodes[node] = made
    return _LazyGraphModule(gm, graph), slots
