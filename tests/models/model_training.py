"""A training step of a model compiled against the same step in eager: forward in training mode with
dropout as the configuration has it, loss, backward."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy
import torch
from model_check import PLAIN, Case, Counted, dynamo_counts, first_difference, state_of

import oxyfuel

# Roundings of a gradient, relative to its own largest element, and to the largest of all: what is
# zero but for rounding (a bias in front of a norm) has no element of its own to compare with.
OWN, OF_ALL = 2e-4, 1e-6
# Where that is not enough: how many times as far as eager itself goes where its weights are moved
# by a rounding (a batch norm over two elements makes much of little).
MOVED = 8


class FoundTraining(NamedTuple):
    """What came of a case; `difference` is empty where all steps were eager's."""

    difference: str
    counted: Counted  # of the first step
    gradients: int  # parameters that have one in eager
    own_loss: bool
    recompiles: int
    reasons: list[str]  # of the breaks, and of what ran in eager


class Steps(NamedTuple):
    """What some steps leave."""

    results: list[Any]
    losses: list[torch.Tensor]
    gradients: list[dict[str, torch.Tensor | None]]
    state: list[Any]
    random: list[Any]


def labelled(case: Case, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments with labels, where the model computes a loss of language modelling."""
    of_language = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel")
    if not case.model.endswith(of_language):  # type: ignore[attr-defined]
        return kwargs
    labels = kwargs.get("decoder_input_ids", kwargs.get("input_ids"))
    return kwargs if labels is None else {**kwargs, "labels": labels.clone()}


def differentiable(result: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result that gradients come by."""
    if isinstance(result, torch.Tensor):
        if result.requires_grad and result.is_floating_point():
            yield result
    elif isinstance(result, dict):
        for part in result.values():
            yield from differentiable(part)
    elif isinstance(result, (list, tuple)):
        for part in result:
            yield from differentiable(part)


def loss_of(result: Any) -> torch.Tensor:
    """The model's own loss, or the mean square of its outputs' distance from random numbers: their
    own mean square is the same whatever the weights are, where a norm is the last layer."""
    if isinstance(result, dict) and isinstance(result.get("loss"), torch.Tensor):
        return result["loss"]
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return sum((t - torch.randn_like(t)).square().mean() for t in differentiable(result))


def seed(number: int) -> None:
    """All that models draw random numbers from."""
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


def move(model: torch.nn.Module) -> None:
    """Moves each weight by about one rounding."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(3)
        for p in model.parameters():
            p.mul_(1 + torch.finfo(p.dtype).eps * torch.randn_like(p).sign())


def steps(
    case: Case,
    count: int,
    compiled: Callable[[Any], Any],
    told: Callable[[], None] = lambda: None,
    moved: bool = False,
) -> Steps:
    """Some training steps; `told` hears of the end of each forward."""
    model, args, kwargs = case.make()
    kwargs = labelled(case, kwargs)
    model.train()
    if moved:
        move(model)
    run = compiled(model)
    seed(1)
    out = Steps([], [], [], [], [])
    for _ in range(count):
        model.zero_grad(set_to_none=True)
        result = run(*args, **kwargs)
        told()
        loss = loss_of(result)
        loss.backward()
        out.results.append(result)
        out.losses.append(loss.detach())
        out.gradients.append({n: p.grad for n, p in model.named_parameters()})
    out.state.extend([list(args), kwargs, *state_of(model)])
    out.random.extend([random.random(), numpy.random.rand()])
    return out


def gradient_difference(
    found: dict[str, torch.Tensor | None], expected: dict[str, torch.Tensor | None]
) -> str:
    """How the gradients of two models of the same weights differ."""
    if list(found) != list(expected):
        return f"parameters: {list(found)} against {list(expected)}"
    largest = max((float(g.abs().max()) for g in expected.values() if g is not None), default=0.0)
    for name, e in expected.items():
        f = found[name]
        if (f is None) != (e is None):
            return f"gradient of {name}: {type(f).__name__} against {type(e).__name__}"
        if e is None:
            continue
        for property_ in ("dtype", "shape", "layout", "requires_grad"):
            x, y = getattr(f, property_), getattr(e, property_)
            if x != y:
                return f"gradient of {name}: {property_} {x} against {y}"
        if f.stride() != e.stride():
            return f"gradient of {name}: strides {f.stride()} against {e.stride()}"
        if not e.numel():
            continue
        if not torch.equal(f.isfinite(), e.isfinite()):
            return f"gradient of {name}: other elements are finite"
        f, e = f.nan_to_num(0, 0, 0), e.nan_to_num(0, 0, 0)
        off, own = float((f - e).abs().max()), float(e.abs().max())
        if off > max(OWN * own, OF_ALL * largest):
            return f"gradient of {name}: {off:.3g} off, its largest element is {own:.3g}"
    return ""


def steps_difference(found: Steps, expected: Steps) -> str:
    """How two trainings differ."""
    for i, (f, e) in enumerate(zip(found.results, expected.results, strict=True)):
        if difference := first_difference(f, e, f"result of step {i}"):
            return difference
    if difference := first_difference(found.losses, expected.losses, "losses"):
        return difference
    for f, e in zip(found.gradients, expected.gradients, strict=True):
        if difference := gradient_difference(f, e):
            return difference
    return first_difference([found.state, found.random], [expected.state, expected.random], "state")


def tensors_in(value: Any, met: set[int] | None = None) -> Iterator[torch.Tensor]:
    """All tensors of what steps leave, in order."""
    met = set() if met is None else met
    if isinstance(value, PLAIN) or id(value) in met:
        return
    met.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part, met)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part, met)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, torch.nn.Module)):
        yield from tensors_in(vars(value), met)


def forgive(found: Steps, expected: Steps, moved: Steps) -> None:
    """Gives what is no farther from eager's than moved weights take eager, eager's values."""
    for f, e, m in zip(tensors_in(found), tensors_in(expected), tensors_in(moved)):
        if f.shape != e.shape or not e.numel() or not e.is_floating_point() or 0 in f.stride():
            continue
        off, allowed = float((f - e).abs().max()), MOVED * float((m - e).abs().max())
        if off <= allowed:
            f.detach().copy_(e)


def check_training(case: Case, count: int = 2, **options: Any) -> FoundTraining:
    """The case through `oxyfuel.compile`, with these options."""
    oxyfuel.reset()
    counted: list[Counted] = []

    def after_forward() -> None:
        stats = oxyfuel.stats()
        counted.append(Counted(stats["graphs"], stats["graph_breaks"]))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        expected = steps(case, count, lambda model: model)
        found = steps(case, count, lambda m: oxyfuel.compile(m, **options), after_forward)
    reasons = [str(w.message) for w in said if str(w.message).startswith("oxyfuel")]
    stats = oxyfuel.stats()
    difference = steps_difference(found, expected)
    if difference:
        forgive(found, expected, steps(case, count, lambda model: model, moved=True))
        difference = steps_difference(found, expected)
    in_eager = sum(stats[k] for k in ("fallbacks", "unsupported", "grad_fallbacks"))
    if not difference and in_eager:
        difference = "a graph ran in eager: " + "; ".join(reasons)
    return FoundTraining(
        difference,
        counted[0],
        sum(g is not None for g in expected.gradients[0].values()),
        isinstance(expected.results[0], dict) and "loss" in expected.results[0],
        stats["recompiles"],
        reasons,
    )


def dynamo_training_counts(case: Case) -> Counted:
    """What TorchDynamo makes of the forward of a training step."""

    class Training:
        def make(self) -> Any:
            model, args, kwargs = case.make()
            return model.train(), args, labelled(case, kwargs)

    seed(1)
    return dynamo_counts(Training(), gradients=True)
