"""An entry of the corpus: a function and what makes its inputs, fresh and equal each time.

A family registers functions: `@family.case` gives each parameter without default a 3 x 4 tensor,
`@family.on` takes a maker of the positional arguments, `@family.made` decorates a maker of
(function, args, kwargs) for functions that need fresh state of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch


class Call(NamedTuple):
    function: Callable[..., Any]
    args: tuple = ()
    kwargs: dict[str, Any] = {}


@dataclass(frozen=True)
class Entry:
    family: str
    name: str
    build: Callable[[], tuple]
    breaks: bool = False  # a graph break is meant: no full graph is asked for
    beyond_dynamo: bool = False  # TorchDynamo finds no full graph where one is possible
    grad: bool = False  # runs with gradients enabled

    @property
    def id(self) -> str:
        return f"{self.family}-{self.name}"

    def make(self) -> Call:
        torch.manual_seed(0)
        call = Call(*self.build())
        return call._replace(kwargs=dict(call.kwargs))


class Family:
    def __init__(self, name: str, **traits: bool) -> None:
        self.name = name
        self.traits = traits
        self.entries: list[Entry] = []

    def case(self, function):
        return self.on(lambda: tuple(torch.randn(3, 4) for _ in range(_needed(function))))(function)

    def on(self, make_args, make_kwargs=dict, **traits: bool):
        def register(function):
            self._add(function, lambda: (function, make_args(), make_kwargs()), traits)
            return function

        return register

    def made(self, build=None, **traits: bool):
        if build is None:
            return lambda later: self.made(later, **traits)
        self._add(build, build, traits)
        return build

    def _add(self, named, build, traits) -> None:
        self.entries.append(Entry(self.name, named.__name__, build, **{**self.traits, **traits}))


def _needed(function) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)
