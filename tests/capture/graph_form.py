"""A captured graph as comparable calls, equal for two front ends that recorded the same calls.

Names and the order of placeholders do not count: inputs (placeholders, attributes of the graph
module) are numbered by first use, results by definition. A part taken by a constant index stands
where it is used (`%0[1]`): when it was taken does not matter. The result of a call in place or with
`out=` is the tensor that was written. Outputs are the distinct results that the caller gets,
sorted.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import fx

# Calls that only read structure: a front end may record one and use it nowhere.
_STRUCTURE = {operator.getitem, getattr}
_WITHOUT_MEANING = {torch._C._log_api_usage_once}
_INPLACE_OPERATORS = {
    getattr(operator, name)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior")
} | {operator.ixor, operator.ilshift, operator.irshift, operator.imatmul}
# The ops that TorchDynamo of torch 2.15 has in the place of attributes of tensors.
_ATTRIBUTES = {"numpy_T": "T", "mT": "mT"}
_OPERATOR_MODULES = ("_operator", "operator")
_OPAQUE_TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_METHOD_TYPES = (types.MethodDescriptorType, types.WrapperDescriptorType)


class NormalCall(NamedTuple):
    kind: str
    target: str
    args: str
    kwargs: str

    def __str__(self) -> str:
        return f"{self.kind} {self.target}({self.args}{', ' if self.kwargs else ''}{self.kwargs})"


def normalise(gm: fx.GraphModule) -> list[NormalCall]:
    """The graph's calls in order; the last one is the output."""
    return _Normaliser(gm).run()


def as_text(calls: Iterable[NormalCall]) -> str:
    return "\n".join(map(str, calls))


class _Normaliser:
    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        self.names: dict[fx.Node, str] = {}
        self.inputs: dict[Any, str] = {}  # by placeholder, or by the name of an attribute
        self.results = 0

    def run(self) -> list[NormalCall]:
        dead = _unused_structure(self.gm.graph)
        calls = []
        for node in self.gm.graph.nodes:
            if node in dead or node.op in ("placeholder", "get_attr"):
                continue
            if node.target in _WITHOUT_MEANING:
                continue
            if _is_part(node):
                self.names[node] = f"{self._value(node.args[0])}[{node.args[1]}]"
                continue
            calls.append(self._output(node) if node.op == "output" else self._call(node))
        return calls

    def _call(self, node: fx.Node) -> NormalCall:
        kind, target = self._kind_and_target(node)
        args = ", ".join(self._text(a) for a in node.args)
        if target.startswith("torch._ops.aten.") and node.target.__name__ in _ATTRIBUTES:
            target, args = "builtins.getattr", f"{args}, {_ATTRIBUTES[node.target.__name__]!r}"
        kwargs = ", ".join(f"{k}={self._text(v)}" for k, v in sorted(node.kwargs.items()))
        written = _written(node)
        if written is None:
            self.names[node] = f"%{self.results}"
            self.results += 1
        else:
            self.names[node] = self._value(written)
        return NormalCall(kind, target, args, kwargs)

    def _output(self, node: fx.Node) -> NormalCall:
        values: list[fx.Node] = []
        fx.map_arg(node.args, values.append)
        results = {self._value(v) for v in values if v.op not in ("placeholder", "get_attr")}
        return NormalCall("output", "", ", ".join(sorted(results - set(self.inputs.values()))), "")

    def _kind_and_target(self, node: fx.Node) -> tuple[str, str]:
        if node.op == "call_module":
            module = self.gm.get_submodule(str(node.target))
            return "call_module", type(module).__qualname__
        if node.op == "call_method":
            return "call_method", str(node.target)
        target = node.target
        if isinstance(target, _METHOD_TYPES) and issubclass(torch.Tensor, target.__objclass__):
            return "call_method", target.__name__
        return "call_function", function_name(target)

    def _value(self, node: fx.Node) -> str:
        if node.op in ("placeholder", "get_attr"):
            return self._input(node)
        return self.names[node]

    def _input(self, node: fx.Node) -> str:
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(self.gm)
            if isinstance(value, fx.GraphModule):
                return "{" + "; ".join(map(str, normalise(value))) + "}"
        key = node if node.op == "placeholder" else node.target
        return self.inputs.setdefault(key, f"in{len(self.inputs)}")

    def _text(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self._value(value)
        if isinstance(value, list):
            return "[" + ", ".join(map(self._text, value)) + "]"
        if isinstance(value, tuple):
            return "(" + "".join(self._text(v) + ", " for v in value).rstrip() + ")"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self._text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return "slice(" + ", ".join(map(self._text, parts)) + ")"
        if isinstance(value, (*_OPAQUE_TYPES, str, int, float, complex, type(None), type(...))):
            return repr(value)
        if callable(value):
            return function_name(value)
        return f"<{type(value).__qualname__}>"


def function_name(function: Callable[..., Any]) -> str:
    """The module and the name of a function, the same for each way to reach it."""
    if isinstance(function, torch._ops.OpOverload):
        return str(function)
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if name is None:
        return f"{module}.{type(function).__qualname__}"
    if name and "_VariableFunctionsClass." in name:  # torch.add and its like
        return f"torch.{function.__name__}"
    if (
        "<locals>" in name
    ):  # max_pool2d and others of its kind are all called boolean_dispatch.<locals>.fn
        found = [k for k, v in vars(torch.nn.functional).items() if v is function]
        name = min(found, default=name)
    return f"{'operator' if module in _OPERATOR_MODULES else module}.{name}"


def _written(node: fx.Node) -> fx.Node | None:
    """The argument that a call in place returns."""
    out = node.kwargs.get("out")
    if isinstance(out, fx.Node):
        return out
    if not node.args or not isinstance(node.args[0], fx.Node):
        return None
    if node.op == "call_function":
        if node.target in _INPLACE_OPERATORS or node.kwargs.get("inplace") is True:
            return node.args[0]
        name = getattr(node.target, "__name__", "")
    else:
        name = str(node.target)
    inplace = name.endswith("_") and not name.endswith("__")
    return node.args[0] if inplace else None


def _is_part(node: fx.Node) -> bool:
    return node.target is operator.getitem and type(node.args[1]) in (int, str)


def _unused_structure(graph: fx.Graph) -> set[fx.Node]:
    dead: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op != "call_function" or node.target not in _STRUCTURE:
            continue
        if all(user in dead for user in node.users):
            dead.add(node)
    return dead
