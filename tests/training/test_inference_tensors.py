"""Tensors that were made in inference mode, in code that runs outside of it."""

import pytest
import torch
import torch.nn.functional as F
from model_check import first_difference
from torch import nn

import oxyfuel


def teacher(x):
    with torch.inference_mode():
        return F.softmax(x / 2, -1)


def outcome(f, *args):
    try:
        return f(*args)
    except RuntimeError as e:
        return str(e).split("\n")[0]


USES = {
    "clone": lambda t, w: (t.clone() * w).sum(),
    "sum": lambda t, w: t.sum() + w.sum(),
    "added": lambda t, w: (t + w).sum(),
    "saved": lambda t, w: (t * w).sum(),
    "in a list": lambda t, w: torch.cat([t, w * 2]),
    "view": lambda t, w: (t[1:], w * 2),
    "no_grad": lambda t, w: torch.no_grad()(lambda: t * w)(),
    "detach": lambda t, w: t.detach(),
    "itself": lambda t, w: (t, t.view(-1)),
    "asked": lambda t, w: w * 2 if t.is_inference() else w * 3,
    "asked of others": lambda t, w: (
        t.clone() * (2 if t[1:].is_inference() else 3) * (5 if torch.is_inference(t + 1) else 7)
    ),
    "written": lambda t, w: t.add_(1),
    "leaf": lambda t, w: t.view(-1).requires_grad_(),
    "to": lambda t, w: (t.to(torch.float32), t.contiguous(), t.double()),
}


def seen(out):
    if isinstance(out, str):
        return out
    out = out if isinstance(out, tuple) else (out,)
    return [(t.detach().clone(), t.is_inference(), t.requires_grad) for t in out]


@pytest.mark.parametrize("how", USES)
def test_as_arguments(how):
    compiled = oxyfuel.compile(USES[how])
    for _ in range(2):
        results = []
        for f in (compiled, USES[how]):
            t, w = teacher(torch.arange(6.0).view(2, 3)), torch.ones(2, 3, requires_grad=True)
            out = outcome(f, t, w)
            results.append([seen(out), t.clone()])
            if isinstance(out, torch.Tensor) and out.requires_grad and not out.is_leaf:
                out.sum().backward()
                results[-1].append(w.grad)
        assert not first_difference(*results)


@pytest.mark.parametrize("whole", [False, True])
def test_distillation(whole):
    def run(on):
        torch.manual_seed(0)
        student, guide = nn.Linear(4, 3), nn.Linear(4, 3)
        optimizer = torch.optim.SGD(student.parameters(), 0.1)

        def loss_of(x):
            with torch.inference_mode():
                soft = F.softmax(guide(x), -1)
            soft = soft.clone()
            return F.kl_div(F.log_softmax(student(x), -1), soft, reduction="batchmean")

        def step(x):
            optimizer.zero_grad()
            loss = f(x) if not whole else loss_of(x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        f = oxyfuel.compile(loss_of) if on else loss_of
        step_ = oxyfuel.compile(step) if on and whole else step
        return [step_(torch.ones(2, 4) * i) for i in range(4)], list(student.parameters())

    assert not first_difference(run(True), run(False))
    assert oxyfuel.stats()["fallbacks"] == 0


def test_a_decorated_function_inside():
    w = torch.ones(3, requires_grad=True)

    @torch.inference_mode()
    def score(x):
        return (x * w).sum()

    def fn(x):
        return score(x) * 2, x * w

    def run(f):
        out = f(torch.arange(3.0))
        return seen(out)

    compiled = oxyfuel.compile(fn)
    for _ in range(2):
        assert not first_difference(run(compiled), run(fn))


WITH_LEAVES = {
    "asked": lambda t, x: (
        t.requires_grad,
        t.is_leaf,
        (t * 2).requires_grad,
        (t + x).requires_grad,
    ),
    "added": lambda t, x: t + x,
    "saved": lambda t, x: t * x,
    "concatenated": lambda t, x: torch.cat([t, x]),
    "alone": lambda t, x: (t * 2, t.sum()),
    "chosen": lambda t, x: torch.where(x > 1, t, x),
    "made in a block": lambda t, x: (leaf := leaf_of_inference(), leaf * 2, leaf.requires_grad),
    "made in a block, used outside": lambda t, x: leaf_of_inference() * x,
}


def leaf_of_inference(requires_grad=True):
    with torch.inference_mode():
        return torch.ones(3, requires_grad=requires_grad)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("use", WITH_LEAVES)
def test_leaves(use, mode):
    """Outside of inference mode autograd knows such a tensor as any other leaf."""
    compiled = oxyfuel.compile(WITH_LEAVES[use])
    for leaf, grad in [(True, False), (False, False), (True, True), (False, True)]:
        results = []
        for f in (compiled, WITH_LEAVES[use]):
            t, x = leaf_of_inference(leaf), torch.arange(3.0).requires_grad_(grad)
            with mode():
                out = outcome(f, t, x)
            if isinstance(out, torch.Tensor) and out.requires_grad:
                out.sum().backward()
            results.append((str(out).split("grad_fn")[0], t.grad, x.grad))
        assert str(results[0]) == str(results[1]), (leaf, grad)
