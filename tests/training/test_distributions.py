"""torch.distributions in training: draws, densities, entropies and divergences, with gradients."""

import pytest
import torch
import torch.distributions as D

import oxyfuel

POSITIVE, SQUARE = (4,), (3, 3)

DISTRIBUTIONS = {
    "beta": (lambda a, b: D.Beta(a, b), POSITIVE, POSITIVE),
    "dirichlet": (lambda a: D.Dirichlet(a), (2, 4)),
    "gamma": (lambda a, b: D.Gamma(a, b), POSITIVE, POSITIVE),
    "chi2": (lambda a: D.Chi2(a), POSITIVE),
    "inverse_gamma": (lambda a, b: D.InverseGamma(a + 2, b), POSITIVE, POSITIVE),
    "student_t": (lambda a, b, c: D.StudentT(a + 2, b, c), POSITIVE, POSITIVE, POSITIVE),
    "normal": (lambda a, b: D.Normal(a, b), POSITIVE, POSITIVE),
    "laplace": (lambda a, b: D.Laplace(a, b), POSITIVE, POSITIVE),
    "covariance": (
        lambda a, b: D.MultivariateNormal(a, b @ b.mT + torch.eye(3)),
        (2, 3),
        SQUARE,
    ),
    "precision": (
        lambda a, b: D.MultivariateNormal(a, precision_matrix=b @ b.mT + torch.eye(3)),
        (3,),
        SQUARE,
    ),
    "lower": (
        lambda a, b: D.MultivariateNormal(a, scale_tril=b.tril()),
        (3,),
        SQUARE,
    ),
    "low_rank": (
        lambda a, b, c: D.LowRankMultivariateNormal(a, b, c),
        (4,),
        (4, 2),
        (4,),
    ),
    "mixture": (
        lambda a, b: D.Independent(D.Normal(a, b), 1),
        (2, 3),
        (2, 3),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws(name, dtype):
    make, *sizes = DISTRIBUTIONS[name]

    def fn(*parameters):
        d = make(*parameters)
        drawn = d.rsample((5,))
        return drawn, d.log_prob(drawn.detach()), d.entropy() if d.has_rsample else 0

    def train(f):
        torch.manual_seed(3)
        out = []
        for _ in range(3):
            leaves = [(torch.rand(s, dtype=dtype) + 0.5).requires_grad_() for s in sizes]
            results = f(*leaves)
            sum(r.sum() for r in results).backward()
            out += [*(r.detach() for r in results), *(p.grad for p in leaves)]
        return [*out, torch.rand(1)]

    expected, found = train(fn), train(oxyfuel.compile(fn))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["graph_breaks"], stats["fallbacks"]) == (1, 0, 0)


COVARIANCES = {
    "negative": torch.eye(3) * -1,
    "triangular": torch.ones(3, 3).triu() + torch.eye(3),
    "good": torch.eye(3) * 2,
}


@pytest.mark.parametrize("bad", COVARIANCES.values(), ids=COVARIANCES)
def test_a_covariance_is_checked(bad):
    def fn(cov):
        # (TorchDynamo, once used, switches the checks off where they are not asked for.)
        normal = D.MultivariateNormal(torch.zeros(3), cov, validate_args=True)
        return normal.log_prob(torch.ones(3))

    f = oxyfuel.compile(fn)
    f(torch.eye(3))
    try:
        expected = fn(bad)
    except ValueError as e:
        with pytest.raises(ValueError, match="covariance_matrix") as found:
            f(bad)
        assert str(found.value) == str(e)
    else:
        torch.testing.assert_close(f(bad), expected)


def test_binomial():
    def fn(count, p):
        return torch.binomial(count, p) * p

    def train(f):
        torch.manual_seed(1)
        return f(torch.full((4,), 9.0), torch.rand(4)), torch.rand(1)

    torch.testing.assert_close(train(oxyfuel.compile(fn)), train(fn))
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_divergences():
    def fn(a, b):
        pairs = [
            (D.Beta(a, b), D.Beta(b, a)),
            (D.Gamma(a, b), D.Gamma(b, a)),
            (D.Dirichlet(a), D.Dirichlet(b)),
            (D.Normal(a, b), D.Normal(b, a)),
            (D.MultivariateNormal(a, b.diag()), D.MultivariateNormal(b, torch.eye(4))),
        ]
        return sum(D.kl_divergence(p, q).sum() for p, q in pairs)

    def train(f):
        torch.manual_seed(1)
        a, b = ((torch.rand(4) + 0.5).requires_grad_() for _ in range(2))
        y = f(a, b)
        y.backward()
        return y.detach(), a.grad, b.grad

    torch.testing.assert_close(train(oxyfuel.compile(fn)), train(fn), rtol=1e-4, atol=1e-5)
    assert oxyfuel.stats()["graph_breaks"] == 0
