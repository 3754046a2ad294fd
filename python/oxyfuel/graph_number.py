"""Floats that a graph computes, as the code of torch.optim and of batch norms handles them, in
Python that a capture follows.

Eager reads the step count of an optimizer as a Python number and computes corrections of it; so
does a batch norm without a momentum with its count of batches. In a captured step such a number is
a `GraphNumber`: a float64 tensor without dimensions in the graph, computed with as Python computes
with floats. Where a tensor meets one, the capture hands over the tensor
(src/python/capture/graph_numbers.cpp); what leaves the capture is a float again.
"""

from __future__ import annotations

from typing import Any

import torch


def _inside(number: Any) -> Any:
    return number.value if isinstance(number, GraphNumber) else number


class GraphNumber:
    """A float known once the graph has run. Its truth and comparisons are those of a tensor: no
    graph has them."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def __add__(self, other: Any) -> GraphNumber:
        return GraphNumber(self.value + _inside(other))

    def __radd__(self, other: Any) -> GraphNumber:
        return GraphNumber(other + self.value)

    def __sub__(self, other: Any) -> GraphNumber:
        return GraphNumber(self.value - _inside(other))

    def __rsub__(self, other: Any) -> GraphNumber:
        return GraphNumber(other - self.value)

    def __mul__(self, other: Any) -> GraphNumber:
        return GraphNumber(self.value * _inside(other))

    def __rmul__(self, other: Any) -> GraphNumber:
        return GraphNumber(other * self.value)

    def __truediv__(self, other: Any) -> GraphNumber:
        return GraphNumber(self.value / _inside(other))

    def __rtruediv__(self, other: Any) -> GraphNumber:
        return GraphNumber(torch.div(torch.full_like(self.value, other), self.value))

    def __pow__(self, other: Any) -> GraphNumber:
        return GraphNumber(torch.pow(self.value, _inside(other)))

    def __rpow__(self, other: Any) -> GraphNumber:
        return GraphNumber(torch.pow(other, self.value))

    def __neg__(self) -> GraphNumber:
        return GraphNumber(-self.value)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __eq__(self, other: Any) -> Any:
        return self.value == _inside(other)

    def __ne__(self, other: Any) -> Any:
        return self.value != _inside(other)

    def __lt__(self, other: Any) -> Any:
        return self.value < _inside(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= _inside(other)

    def __gt__(self, other: Any) -> Any:
        return self.value > _inside(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= _inside(other)

    __hash__ = None  # type: ignore[assignment]


def extreme(greatest: bool, *numbers: Any) -> GraphNumber:
    """`max` or `min` of numbers, one of which the graph computes."""
    best = None
    for number in numbers:
        if isinstance(number, GraphNumber):
            like = number.value
    for number in numbers:
        value = number.value if isinstance(number, GraphNumber) else torch.full_like(like, number)
        if best is None:
            best = value
        else:
            best = torch.where(value > best if greatest else value < best, value, best)
    return GraphNumber(best)


def foreach(name: str, *args: Any, **kwargs: Any) -> Any:
    """`torch._foreach_<name>` with such numbers among its arguments: a call for each tensor."""
    function = getattr(torch.Tensor, name)
    of_scalars = {"addcdiv": "value", "addcmul": "value", "addcdiv_": "value", "addcmul_": "value"}
    out = []
    for i in range(len(args[0])):
        mine = [a[i] if isinstance(a, (list, tuple)) else a for a in args]
        if name in of_scalars and len(mine) == 4:
            out.append(function(*mine[:3], value=mine[3]))
        else:
            out.append(function(*mine, **kwargs))
    return None if name.endswith("_") else out


def batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    training: bool,
    momentum: GraphNumber,
    eps: float,
) -> torch.Tensor:
    """`torch.nn.functional.batch_norm` of which the graph computes the momentum."""
    out = torch.nn.functional.batch_norm(input, None, None, weight, bias, training, eps=eps)
    # Of a half beside wider statistics, these are computed as the latter.
    dtypes = [t.dtype for t in (running_mean, running_var) if t is not None]
    of = input.detach().to(dtypes[0] if dtypes else input.dtype)
    var, mean = torch.var_mean(of, [0, *range(2, input.dim())])
    share = momentum.value
    for running, new in ((running_mean, mean), (running_var, var)):
        if running is not None:
            running.copy_(share * new.double() + (1 - share) * running.double())
    return out


def record_function_init(self: Any, name: str, args: str | None = None) -> None:
    """`record_function.__init__` where no profiler listens."""
    self.name = name
    self.args = args
    self.run_callbacks_on_exit = False
    self.record = None
    self._cupti_monitor_external_id = None


ENDED = torch.ops.profiler._record_function_enter_new("", None)
torch.ops.profiler._record_function_exit._RecordFunction(ENDED)


def record_function_enter(self: Any) -> Any:
    """`record_function.__enter__` where no profiler listens; torch's `__exit__`, behind a break,
    looks for a record."""
    self.record = ENDED
    return self


def found_inf(state: dict[str, Any]) -> Any:
    """What a GradScaler's state of an optimizer says of its gradients: above 0 where some are not
    finite."""
    return sum(state["found_inf_per_device"].values())


def step(optimizer: Any, _: Any, *args: Any, **kwargs: Any) -> Any:
    """The rest of `GradScaler._maybe_opt_step` where all are finite."""
    return optimizer.step(*args, **kwargs)
