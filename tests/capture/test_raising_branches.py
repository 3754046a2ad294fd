"""Branches on a tensor's truth one side of which raises: the other side is taken for granted, each
call checks it, and runs in eager where it does not hold. The asserts are the programs' own:
PYTEST_DONT_REWRITE."""

import pytest
import torch
import torch.distributions as D
from model_check import first_difference

import oxyfuel


def outcome(run, args):
    """What a call gives: its result, gradients and what it has drawn, or what it raises."""
    torch.manual_seed(0)
    given = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    try:
        result = run(*given)
    except Exception as e:
        return type(e), str(e), given, torch.rand(1)
    if result.requires_grad:
        result.sum().backward()
    return result.detach(), [a.grad for a in given], given, torch.rand(1)


def both(function, *calls):
    compiled = oxyfuel.compile(function, fullgraph=True)
    for args in calls:
        difference = first_difference(outcome(compiled, args), outcome(function, args))
        assert not difference, difference


def real(*sizes):
    return torch.randn(*sizes, requires_grad=True)


def positive(*sizes):
    return (torch.rand(*sizes) + 0.1).requires_grad_()


def asserted(x):
    assert (x > 0).all(), f"{tuple(x.shape)}"
    return x.log()


def without_nan(x):
    y = x * 2
    if torch.isnan(y).any():
        raise FloatingPointError(f"nan in {y}")
    return y.exp()


def of_numbers(x):
    if (x.detach() < 0).sum():
        raise ValueError("negative")
    return x.sqrt()


def caught(x):
    try:
        if not (x > 0).all():
            raise ValueError("negative")
        return x.sqrt()
    except ValueError:
        return x * 0 - 1


def behind_draws_and_writes(x):
    noise = torch.randn_like(x)
    y = x * noise
    y.add_(1)
    if not (x > 0).all():
        raise ValueError(f"{y}")
    return y + torch.rand_like(x)


def several(x):
    if (x < 0).any() or (x > 3).any():
        raise ValueError("out of range")
    return x * 2


@pytest.mark.parametrize(
    "function",
    [asserted, without_nan, of_numbers, caught, behind_draws_and_writes, several],
    ids=lambda f: f.__name__,
)
def test_branches(function):
    torch.manual_seed(1)
    bad = torch.tensor([1.0, -1.0, float("nan")], requires_grad=True)
    both(function, (positive(3),), (bad,), (positive(3),), (positive(5),), (positive(7),))


def test_input_is_written():
    """Only where the check holds."""

    def add(x, total):
        total.add_(x.detach())
        if not (x > 0).all():
            raise ValueError(f"{total}")
        return x + total

    both(add, (positive(3), torch.zeros(3)), (real(3) - 9, torch.zeros(3)))


def test_first_call_fails():
    both(asserted, (-positive(3),), (positive(3),))


class Halvings:
    """Its end is no error."""

    def __init__(self, x):
        self.x = x

    def __iter__(self):
        return self

    def __next__(self):
        self.x = self.x / 2
        if (self.x < 0.1).all():
            raise StopIteration
        return self.x


def test_end_of_iteration():
    def total(x):
        out = torch.zeros_like(x)
        for half in Halvings(x):
            out = out + half
        return out

    compiled = oxyfuel.compile(total)
    for x in (torch.ones(3), torch.full((3,), 9.0)):
        difference = first_difference(outcome(compiled, (x,)), outcome(total, (x,)))
        assert not difference, difference


def test_both_sides_raise_or_none():
    def choose(x):
        return x * 2 if (x > 0).all() else x * 3

    with pytest.raises(oxyfuel.GraphBreak, match="the truth of a tensor"):
        oxyfuel.compile(choose, fullgraph=True)(torch.ones(3))


def normal(mean, deviation):
    d = D.Normal(mean, deviation)
    z = d.rsample()
    return z.sum() - d.log_prob(z.detach()).sum()


def divergence(mean, deviation):
    return D.kl_divergence(D.Normal(mean, deviation), D.Normal(0.0, 1.0)).sum()


def independent(mean, deviation):
    d = D.Independent(D.Normal(mean, deviation), 1)
    return d.log_prob(d.rsample()) + d.entropy()


def squashed(mean, deviation):
    base = D.Normal(mean, deviation)
    d = D.TransformedDistribution(base, [D.TanhTransform(cache_size=1)])
    return d.log_prob(d.rsample())


def laplace(mean, deviation):
    return D.Laplace(mean, deviation).log_prob(mean.detach() * 2)


@pytest.mark.parametrize(
    "loss", [normal, divergence, independent, squashed, laplace], ids=lambda f: f.__name__
)
def test_continuous_distributions(loss):
    """With validation of their arguments."""
    both(
        loss,
        (real(4, 3), positive(4, 3)),
        (real(4, 3), -positive(4, 3)),
        (real(4, 3), positive(4, 3)),
        (real(5, 3), positive(5, 3)),
        (real(6, 3), positive(6, 3)),
    )


def test_policy_gradient():
    def loss(logits, actions):
        d = D.Categorical(logits=logits)
        return -d.log_prob(actions).mean() - 0.01 * d.entropy().mean()

    both(
        loss,
        (real(4, 3), torch.tensor([0, 1, 2, 1])),
        (real(4, 3), torch.tensor([0, 1, 2, 5])),
        (real(4, 3), torch.tensor([2, 1, 0, 1])),
    )


def test_bernoulli():
    def loss(logits, values):
        return -D.Bernoulli(logits=logits).log_prob(values).mean()

    both(loss, (real(4), torch.ones(4)), (real(4), torch.full((4,), 0.5)))
