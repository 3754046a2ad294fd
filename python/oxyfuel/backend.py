"""The backend of ``torch.compile(fn, backend="oxyfuel")``."""

from __future__ import annotations

import importlib.metadata
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

import oxyfuel
from oxyfuel.autograd_function import number_of
from oxyfuel.compiler import compile_fx
from oxyfuel.options import options_of_mode

_ASSIGNMENTS = {"setitem", "iadd", "isub", "imul", "itruediv", "ipow"}
_GROUP = "torch_dynamo_backends"  # where torch looks for backends that are installed


def oxyfuel_backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> Callable[..., Any]:
    """Compiles what TorchDynamo captured; called by torch.compile.

    ``mode`` and ``options`` are those of :func:`oxyfuel.compile`.
    """
    if any(map(is_traceable_wrapper_subclass, [*example_inputs, *gm.parameters(), *gm.buffers()])):
        # A graph of calls on such tensors is code whose ops their classes decide.
        return oxyfuel.compile(_copy_of(gm), options=options_of_mode(mode, options))
    gm = _with_varying_numbers(gm)
    written = _written_attributes(gm)
    if not written:
        return compile_fx(gm, example_inputs, options=options_of_mode(mode, options))
    held = operator.attrgetter(*written, *written)  # of one, a tuple too
    lifted = _with_inputs_for(gm, written)
    example = [*example_inputs, *held(gm)[: len(written)]]
    compiled = compile_fx(lifted, example, options=options_of_mode(mode, options))

    def call(*args: Any) -> Any:
        return compiled(*args, *held(gm)[: len(written)])

    return call


def _writes(node: torch.fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in _ASSIGNMENTS or "out" in node.kwargs


def _written_attributes(gm: torch.fx.GraphModule) -> list[str]:
    """The tensors of the module that its graph writes to: TorchDynamo has the parameters and the
    state of an optimizer there."""
    found: dict[str, None] = {}
    for node in gm.graph.nodes:
        if node.op not in ("call_function", "call_method") or not _writes(node):
            continue
        first = node.args[:1], node.kwargs.get("out")
        for n in torch.utils._pytree.tree_leaves(first):
            if isinstance(n, torch.fx.Node) and n.op == "get_attr":
                found[n.target] = None
    return list(found)


def _copy_of(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, val_map={}))
    return torch.fx.GraphModule(gm, graph)


def _items_of_inputs(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    items = gm.graph.find_nodes(op="call_method", target="item")
    return [node for node in items if node.args[0].op == "placeholder"]


def _with_varying_numbers(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """In functions of autograd: a float that is another one at each call is an input of the graph,
    whose item TorchDynamo takes in the forward. A copy where there are such."""
    bodies = {
        n.target
        for apply in gm.graph.nodes
        if getattr(apply.target, "__name__", "") == "autograd_function_apply"
        for n in apply.all_input_nodes
        if n.op == "get_attr" and _items_of_inputs(getattr(gm, n.target))
    }
    if not bodies:
        return gm
    gm = _copy_of(gm)
    for name in bodies:
        body = _copy_of(getattr(gm, name))
        for node in _items_of_inputs(body):
            node.op, node.target = "call_function", number_of
        body.recompile()
        setattr(gm, name, body)
    return gm


def _with_inputs_for(gm: torch.fx.GraphModule, attributes: list[str]) -> torch.fx.GraphModule:
    graph = _copy_of(gm).graph
    last = [n for n in graph.nodes if n.op == "placeholder"][-1:]
    for i, name in enumerate(attributes):
        before = last[0].next if last else next(iter(graph.nodes))
        with graph.inserting_before(before):
            given = graph.placeholder(f"attribute_{i}")
        last = [given]
        for node in list(graph.nodes):
            if node.op == "get_attr" and node.target == name:
                node.replace_all_uses_with(given)
                graph.erase_node(node)
    return torch.fx.GraphModule(gm, graph)


def register() -> None:
    """Makes the backend known to torch.

    An installed package is found through its entry point when it is asked for, so that importing
    Oxyfuel need not import TorchDynamo; a folder on sys.path has no entry point and registers here.
    """
    try:
        installed = importlib.metadata.distribution("oxyfuel").entry_points
    except importlib.metadata.PackageNotFoundError:
        installed = importlib.metadata.EntryPoints()
    if installed.select(group=_GROUP, name="oxyfuel"):
        return
    import torch._dynamo

    torch._dynamo.register_backend(oxyfuel_backend, name="oxyfuel")
