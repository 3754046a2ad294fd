"""From Oxyfuel's graphs back to torch.fx: modules that really run."""

from __future__ import annotations

import contextlib
import gc
import operator
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.node import map_aggregate

from oxyfuel import _C

# How the two ends of int64, which mean "no bound" in slices, are written in ATen graphs.
_NO_BOUND = {2**62 - 1: 2**63 - 1, -(2**62): -(2**63)}


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Makes many objects that all live on: a collection would walk over them for nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_uncollected()
def torch_graph_to_fx(graph: _C.TorchGraph) -> GraphModule:
    """The torch.fx.GraphModule that a TorchGraph was made from, or would be.

    Its Python code is made when somebody asks for it, as that of TorchDynamo's modules.
    """
    out, values, root = Graph(), {}, torch.nn.Module()
    nodes, result = graph.describe(_Reference)
    for kind, target, held, args, kwargs, outputs, _returns, name, stack in nodes:
        args, kwargs = _resolve((tuple(args), kwargs), values)
        if kind == "input":
            node = out.placeholder(target)
        elif kind == "attribute":
            node = out.get_attr(_attach(root, target, held))
        elif kind == "method":
            node = out.create_node("call_method", target, args, kwargs, name=name)
        elif isinstance(held, torch.nn.Module):
            node = out.create_node("call_module", _attach(root, name, held), args, kwargs, name)
        else:
            node = out.create_node("call_function", held, args, kwargs, name=name)
        if stack:
            node.meta["stack_trace"] = stack
        values[outputs[0]] = node
    out.output(_resolve(result, values))
    made = _LazyGraphModule(root, out)
    made.meta["torch_graph"] = graph  # it holds the graphs that calls of oxyfuel::choose name
    return made


def with_user_lines(run: Callable[..., Any], gm: GraphModule) -> Callable[..., Any]:
    """``run``, which runs the calls of ``gm``; what a call raises there has the user's lines in its traceback."""
    if run == gm.forward:
        _LazyGraphModule.force_recompile(gm)
        run = gm.forward

    def call(*inputs: Any) -> Any:
        try:
            return run(*inputs)
        except Exception as e:
            _C.add_user_lines(e, _user_lines(e, gm))
            raise

    return call


def _user_lines(error: Exception, gm: GraphModule) -> list[tuple[str, int, str]]:
    """Where the user's code stands whose call ``error`` left, the outermost frame first."""
    nodes = list(gm.graph.nodes)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code is not gm.forward.__func__.__code__ or not gm._lineno_map:
            continue
        index = gm._lineno_map.get(line - gm._prologue_start)
        stack = nodes[index].meta.get("stack_trace", "") if index is not None else ""
        found = re.findall(r'^  File "(.*)", line (\d+), in (.*)$', stack, re.MULTILINE)
        return [(file, int(number), function) for file, number, function in found]
    return []


def aten_graph_to_fx(recording: _C.AtenGraph) -> GraphModule:
    """A GraphModule of ATen ops with the inputs, results and effects of the recorded call.

    Mutated inputs are written by ``copy_`` at the end; results that alias an input are made by ``as_strided``.
    """
    out, values, root = Graph(), {}, torch.nn.Module()
    inputs: list[Node] = []
    attributes = iter(recording.attributes())
    for kind, target, _held, args, _kwargs, outputs, returns, _name, stack in recording.describe(
        _Reference
    ):
        if kind == "input":
            values[outputs[0]] = out.placeholder(target)
            inputs.append(values[outputs[0]])
            continue
        if kind == "attribute":
            path = f"attribute{len(values)}"
            root.register_buffer(path, next(attributes).detach())
            values[outputs[0]] = out.get_attr(path)
            continue
        node = _call(out, target, _resolve(tuple(args), values))
        if stack:
            node.meta["stack_trace"] = stack
        for value, result in zip(outputs, _results(out, node, outputs, returns), strict=True):
            values[value] = result
    for position, value in recording.mutations():
        out.call_function(torch.ops.aten.copy_.default, (inputs[position], values[value]))
    out.output(recording.build_result(_outputs(out, recording, values, inputs)))
    return GraphModule(root, out)


class _Reference:
    """Stands for a value of the graph inside arguments."""

    def __init__(self, value: int) -> None:
        self.value = value


def _resolve(arguments: Any, values: dict[int, Node]) -> Any:
    def one(a: Any) -> Any:
        return values[a.value] if isinstance(a, _Reference) else a

    return map_aggregate(arguments, one)


def _attach(root: torch.nn.Module, path: str, value: Any) -> str:
    """Puts an attribute of a module where get_attr finds it, and says where."""
    *owners, name = path.split(".")
    holder = root
    for owner in owners:
        if not hasattr(holder, owner):
            setattr(holder, owner, torch.nn.Module())
        holder = getattr(holder, owner)
    setattr(holder, name, value)
    return path


def _call(out: Graph, target: str, args: tuple[Any, ...]) -> Node:
    namespace, rest = target.split(".", 1)
    name, overload = rest.rsplit(".", 1)
    op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    args = map_aggregate(args, lambda a: _NO_BOUND.get(a, a) if type(a) is int else a)
    positional, keywords = [], {}
    for argument, value in zip(op._schema.arguments, args, strict=False):
        if isinstance(value, Node) and "Tensor" not in str(argument.type):  # a number that varies
            value = out.call_method("item", (value,))
        if argument.kwarg_only:
            keywords[argument.name] = value
        else:
            positional.append(value)
    return out.call_function(op, tuple(positional), keywords)


def _results(out: Graph, node: Node, outputs: list[int], returns: list[int]) -> list[Node]:
    """The nodes of a call's results, lists among them flattened."""
    lengths = returns or [-1] * len(outputs)
    if lengths == [-1]:
        return [node]
    found = []
    for position, length in enumerate(lengths):
        part = node
        if len(lengths) > 1:
            part = out.call_function(operator.getitem, (node, position))
        if length < 0:
            found.append(part)
        else:
            found += [out.call_function(operator.getitem, (part, i)) for i in range(length)]
    return found


def _outputs(
    out: Graph, recording: _C.AtenGraph, values: dict[int, Node], inputs: list[Node]
) -> list[Node | None]:
    described = recording.outputs()
    found: list[Node | None] = [None] * len(described)

    def view(base: Node | None, sizes: list[int], strides: list[int], offset: int) -> Node:
        return out.call_function(torch.ops.aten.as_strided.default, (base, sizes, strides, offset))

    for i, (kind, value, index, *_layout) in enumerate(described):
        if kind == "value":
            found[i] = values[value]
        elif kind == "input":
            found[i] = inputs[index]
    for i, (kind, _value, index, *layout) in enumerate(described):
        if kind == "view_of_input":
            found[i] = view(inputs[index], *layout)
        elif kind == "view_of_output":
            found[i] = view(found[index], *layout)
    return found[: recording.visible_outputs]
