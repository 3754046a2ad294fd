"""From Oxyfuel's graphs back to torch.fx: modules that really run."""

from __future__ import annotations

import contextlib
import enum
import functools
import gc
import itertools
import linecache
import operator
import re
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.node import base_types, map_aggregate
from torch.fx.passes.shape_prop import TensorMetadata

from oxyfuel import _C
from oxyfuel.attention import run_blocks

# How the two ends of int64, which mean "no bound" in slices, are written in ATen graphs.
_NO_BOUND = {2**62 - 1: 2**63 - 1, -(2**62): -(2**63)}

_NUMBERS = (int, float, complex)
_WRITTEN = (Node, *base_types, slice, range, enum.Enum, torch._ops.HigherOrderOperator)


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
def torch_graph_to_fx(graph: _C.TorchGraph, runs: bool = True) -> GraphModule:
    """The torch.fx.GraphModule that a TorchGraph was made from, or would be.

    Its Python code is made when somebody asks for it, as that of TorchDynamo's modules. Unless it
    ``runs``, symbolic sizes may be among its arguments, as their texts.
    """
    return _torch_module(*graph.describe(_Reference if runs else _readable))


def _torch_module(nodes: list[_C.DescribedNode], result: Any) -> GraphModule:
    out, values, root = Graph(), {}, torch.nn.Module()
    inputs: set[str] = set()

    def held(value: Any) -> Node:
        name = next(name for k in itertools.count() if not hasattr(root, name := f"_held_{k}"))
        return out.get_attr(_attach(root, name, value))

    for n in nodes:
        args, kwargs = _resolve((tuple(n.args), n.kwargs), values)
        args, kwargs = map_aggregate((args, kwargs), lambda a: a if _is_written(a) else held(a))
        name = n.name or None  # torch.fx names it by what it calls
        if n.kind == "input":
            node = out.placeholder(_unique(n.target, inputs))
        elif n.kind == "attribute":
            node = out.get_attr(_attach(root, n.target, n.held))
        elif n.kind == "method":
            node = out.create_node("call_method", n.target, args, kwargs, name=name)
        elif n.kind == "region":
            modules = [_torch_module(*region) for region in n.held]
            node = _regions(out, root, n.target, modules, args)
        elif isinstance(n.held, torch.nn.Module):
            node = out.create_node("call_module", _attach(root, n.name, n.held), args, kwargs, name)
        else:
            node = out.create_node("call_function", _as_function(n.held), args, kwargs, name=name)
        if n.stack:
            node.meta["stack_trace"] = _stack_trace(tuple(n.stack))
        if n.type:
            node.meta["tensor_meta"] = _metadata(*n.type)
        values[n.outputs[0]] = node
    out.output(_resolve(result, values))
    return _LazyGraphModule(root, out)


def _is_written(value: Any) -> bool:
    """Whether torch.fx has Python text for an argument: for a hook, or its handle, it has none, and
    for a number of a class of its own (NumPy's) one that names the class."""
    if isinstance(value, _NUMBERS) and not isinstance(value, enum.Enum):
        return type(value) in (*_NUMBERS, bool)
    return value is None or value is ... or isinstance(value, (*_WRITTEN, _Size))


def _as_function(target: Any) -> Any:
    """What torch.fx can write: of the method ``apply`` that an autograd.Function of the user's has
    from torch it writes the name that torch does not have."""
    if not isinstance(target, types.MethodType):
        return target

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    call.__name__ = target.__name__
    call.__qualname__ = target.__qualname__
    call.__module__ = getattr(target.__self__, "__module__", __name__)
    return call


def _unique(name: str, taken: set[str]) -> str:
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def _metadata(
    sizes: list[int | str], dtype: str, strides: list[int | str], requires_grad: bool
) -> TensorMetadata:
    return TensorMetadata(
        shape=sizes if any(isinstance(n, str) for n in sizes) else torch.Size(sizes),
        dtype=getattr(torch, dtype),
        requires_grad=requires_grad,
        stride=tuple(strides),
        memory_format=None,
        is_quantized=False,
        qparams={},
    )


@functools.lru_cache(maxsize=256)
def _stack_trace(frames: tuple[tuple[str, int, str, str], ...]) -> str:
    """As Python writes it, with the lines of files where a frame does not know its own."""
    lines = []
    for file, number, function, code in frames:
        code = code or linecache.getline(file, number).strip()
        lines.append(f'  File "{file}", line {number}, in {function}\n    {code}\n')
    return "".join(lines)


def _regions(
    out: Graph, root: torch.nn.Module, op: str, modules: list[GraphModule], args: tuple[Any, ...]
) -> Node:
    """A call of torch's own op for branches or loops, as TorchDynamo writes it; or of our function
    for blocks of attention."""
    names = {
        "cond": ("true_graph", "false_graph"),
        "while_loop": ("cond_fn", "body_fn"),
        "block_sparse": ("partial", "full"),
    }.get(op)
    if names is None:
        raise _C.Unsupported(f"{op} as torch.fx")
    number = sum(name.startswith(names[0]) for name, _ in root.named_children())
    graphs = tuple(
        out.get_attr(_attach(root, f"{name}_{number}", module))
        for name, module in zip(names, modules, strict=True)
    )
    if op == "cond":
        call = torch.ops.higher_order.cond
        return out.call_function(call, (args[0], *graphs, args[1:]))
    if op == "block_sparse":
        return out.call_function(run_blocks, (args[:7], *graphs, args[7:]))
    condition, body = modules
    _return_alone(condition)
    carried = len(_result(body))
    call = torch.ops.higher_order.while_loop
    return out.call_function(call, (*graphs, args[:carried], args[carried:]))


def _result(module: GraphModule) -> Any:
    return next(n for n in reversed(module.graph.nodes) if n.op == "output").args[0]


def _return_alone(module: GraphModule) -> None:
    """Its only result, which was in a tuple."""
    output = next(n for n in reversed(module.graph.nodes) if n.op == "output")
    output.args = (output.args[0][0],)
    module.recompile()


def with_user_lines(run: Callable[..., Any], gm: GraphModule) -> Callable[..., Any]:
    """``run``, which runs the calls of ``gm``; what a call raises there has the user's lines in its
    traceback."""
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

    Mutated inputs are written by ``copy_`` at the end; results that alias an input are made by
    ``as_strided``.
    """
    out, values, root = Graph(), {}, torch.nn.Module()
    attributes = iter(recording.attributes())
    inputs = _aten_nodes(out, values, root, recording.describe(_Reference), attributes)
    for position, value in recording.mutations():
        out.call_function(torch.ops.aten.copy_.default, (inputs[position], values[value]))
    out.output(recording.build_result(_outputs(out, recording, values, inputs)))
    return GraphModule(root, out)


def _aten_nodes(
    out: Graph,
    values: dict[int, Node],
    root: torch.nn.Module,
    nodes: list[_C.DescribedNode],
    attributes: Iterator[torch.Tensor],
) -> list[Node]:
    """Adds the nodes, and returns those of the inputs."""
    inputs: list[Node] = []
    for n in nodes:
        if n.kind == "input":
            values[n.outputs[0]] = out.placeholder(n.target)
            inputs.append(values[n.outputs[0]])
            continue
        if n.kind == "attribute":
            path = f"attribute{len(values)}"
            root.register_buffer(path, next(attributes).detach())
            values[n.outputs[0]] = out.get_attr(path)
            continue
        args, returns = _resolve(tuple(n.args), values), n.returns
        if n.kind == "region":
            modules = [_aten_region(*region) for region in n.held]
            node = _regions(out, root, n.target, modules, args)
            returns = [len(n.outputs)]
        else:
            node = _call(out, n.target, args)
        if n.stack:
            node.meta["stack_trace"] = _stack_trace(tuple(n.stack))
        for value, result in zip(n.outputs, _results(out, node, n.outputs, returns), strict=True):
            values[value] = result
    return inputs


def _aten_region(nodes: list[_C.DescribedNode], outputs: list[tuple[Any, ...]]) -> GraphModule:
    out, values, root = Graph(), {}, torch.nn.Module()
    inputs = _aten_nodes(out, values, root, nodes, iter(()))

    def one(kind: str, value: int, index: int) -> Node:
        if kind == "value":
            return values[value]
        return out.call_function(torch.ops.aten.clone.default, (inputs[index],))

    out.output(tuple(one(*described[:3]) for described in outputs))
    return GraphModule(root, out)


class _Reference:
    """Stands for a value of the graph inside arguments."""

    def __init__(self, value: int | str) -> None:
        if isinstance(value, str):
            raise _C.Unsupported("a symbolic number in a call")
        self.value = value


class _Size:
    """A symbolic size: its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _readable(value: int | str) -> _Reference | _Size:
    return _Size(value) if isinstance(value, str) else _Reference(value)


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
