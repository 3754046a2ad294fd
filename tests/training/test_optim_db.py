"""torch's optim_db: every optimizer in each of its configurations and implementations, compiled
against eager: parameters, state and settings over steps with a scheduler between them, and with the
state taken out and put in again."""

import copy
import functools

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

import oxyfuel

STEPS = 8
# What a compiled step is not: one graph, by the reason.
BREAKS = {
    "LBFGS": "the closure runs autograd, and its search branches on what it finds",
    "SparseAdam": "sparse gradients",
}


def why_broken(info, kwargs):
    """Why the step is not one graph, or None."""
    if kwargs.get("fused"):
        return "a parameter lies otherwise than its gradient: ATen's kernel is called"
    if isinstance(kwargs.get("lr"), torch.Tensor) and not kwargs.get("foreach"):
        return "torch reads a learning rate that is a tensor"
    return BREAKS.get(info.name)


def name_of(kwargs):
    """A test's name for a configuration."""
    chosen = {k: v for k, v in kwargs.items() if v is not False}
    return "-".join(f"{k}={v}" for k, v in chosen.items()) or "default"


def implementations(info):
    """The flags that choose one. `differentiable` is autograd through a step, which torch's own
    test of compiled optimizers leaves out too; `capturable` has no CPU."""
    flags = [f for f in info.supported_impls if f == "foreach" or "cpu" in info.supports_fused_on]
    flags = [f for f in flags if f != "differentiable"]
    off = dict.fromkeys(flags, False)
    return [off, *({**off, flag: True} for flag in flags)]


def configurations(info):
    """Each of its settings in each implementation."""
    for o in info.optim_inputs_func(device=torch.device("cpu")):
        for flags in implementations(info):
            yield {**o.kwargs, **flags}


CASES = [
    pytest.param(info, kwargs, id=f"{info.name}-{name_of(kwargs)}")
    for info in optim_db
    for kwargs in configurations(info)
]


def parameters(info, dtype=torch.float32):
    """Some of several ranks, one not row-major, and one that never has a gradient."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=dtype)
    made = [draw(7, 5), draw(3, 3)]
    if info.name != "LBFGS":  # it takes views of them
        made.append(draw(4, 6).t())
    if info.name != "Muon":  # of matrices alone
        made += [draw(5), draw(3, 4, 2)]
    return [torch.nn.Parameter(p) for p in made]


def set_gradients(params, step, sparse):
    generator = torch.Generator().manual_seed(100 + step)
    for p in params[:-1]:
        gradient = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        if sparse:
            gradient = (gradient * (gradient.sum(-1, keepdim=True) > 0)).to_sparse()
        p.grad = gradient


def state_of(optimizer):
    """Parameters, state and settings."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return [params, optimizer.state_dict()]


def compare(found, wanted, where=""):
    """Numbers within roundings of sums in another order; all else the same."""
    assert type(found) is type(wanted), where
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=2e-6, msg=lambda m: where + m)
        assert found.stride() == wanted.stride(), where
        assert found.requires_grad == wanted.requires_grad, where
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted), where
        for key in wanted:
            compare(found[key], wanted[key], f"{where}[{key!r}]")
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted), where
        for i, (x, y) in enumerate(zip(found, wanted)):
            compare(x, y, f"{where}[{i}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-6), where
    else:
        assert found == wanted, where


def make(info, kwargs, dtype=torch.float32):
    kwargs = copy.deepcopy(kwargs)
    if info.name == "SparseAdam":
        return info.optim_cls([p for p in parameters(info, dtype) if p.dim() == 2], **kwargs)
    return info.optim_cls(parameters(info, dtype), **kwargs)


def closure_of(optimizer):
    """For LBFGS: a loss of its parameters."""
    params = optimizer.param_groups[0]["params"]

    def closure():
        optimizer.zero_grad()
        loss = sum((p * p).sum() for p in params[:-1])
        loss.backward()
        return loss

    return closure


def run(info, kwargs, wrap, steps=STEPS, schedulers=None, reload_at=None, dtype=torch.float32):
    """The state behind each step."""
    optimizer = make(info, kwargs, dtype)
    closure = closure_of(optimizer) if info.step_requires_closure else None
    schedules = schedulers(optimizer) if schedulers else []
    step = wrap(optimizer.step)
    seen = []
    for i in range(steps):
        set_gradients(optimizer.param_groups[0]["params"], i, info.only_supports_sparse_grads)
        step(closure) if closure else step()
        for s in schedules:
            s.step(*([1.0] if isinstance(s, torch.optim.lr_scheduler.ReduceLROnPlateau) else []))
        seen.append(copy.deepcopy(state_of(optimizer)))
        if i == reload_at:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return seen


def check(info, kwargs, **options):
    # A line search goes on from roundings: in float32 it ends elsewhere.
    if info.name == "LBFGS":
        options.setdefault("dtype", torch.float64)
    wanted = run(info, kwargs, lambda f: f, **options)
    broken = why_broken(info, kwargs)
    compiled = functools.partial(oxyfuel.compile, fullgraph=not broken)
    compare(run(info, kwargs, compiled, **options), wanted)
    stats = oxyfuel.stats()
    assert stats["unsupported"] == stats["fallbacks"] == 0
    assert broken or (stats["graphs"] >= 1 and stats["graph_breaks"] == 0)


@pytest.mark.parametrize(("info", "kwargs"), CASES)
def test_steps(info, kwargs):
    check(info, kwargs)


SCHEDULED = [
    pytest.param(info, foreach, i, id=f"{info.name}-{foreach}-{i}")
    for info in optim_db
    for foreach in ((False, True) if "foreach" in info.supported_impls else (None,))
    for i in range(len(info.scheduler_inputs))
    if not info.step_requires_closure
]


@pytest.mark.parametrize(("info", "foreach", "which"), SCHEDULED)
def test_a_scheduler_between_steps(info, foreach, which):
    def schedules(optimizer):
        return [make(optimizer) for make in info.scheduler_inputs[which]]

    check(info, {} if foreach is None else {"foreach": foreach}, schedulers=schedules)


@pytest.mark.parametrize("info", optim_db, ids=lambda info: info.name)
def test_the_state_goes_out_and_in(info):
    check(info, {}, reload_at=3)


@pytest.mark.parametrize("info", optim_db, ids=lambda info: info.name)
def test_float64(info):
    check(info, {}, steps=4, dtype=torch.float64)


CAPTURABLE = [info for info in optim_db if info.has_capturable_arg]


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("info", CAPTURABLE, ids=lambda info: info.name)
def test_capturable(info, foreach):
    """Eager refuses it for parameters in the CPU's memory; compiled, as with torch.compile, it is
    the same step, with the count as a float32 tensor."""
    wanted = run(info, {"foreach": foreach}, lambda f: f)
    compiled = functools.partial(oxyfuel.compile, fullgraph=True)
    found = run(info, {"foreach": foreach, "capturable": True}, compiled)
    for (mine, _), (others, _) in zip(found, wanted):
        torch.testing.assert_close(mine, others, rtol=1e-5, atol=2e-5)
