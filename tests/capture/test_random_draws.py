"""Random numbers that captured code draws in Python: each call draws them as eager does."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")

X = torch.randn(4, 12)
CALLS = 12


class Noise(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        self.python = random.Random(seed)
        self.numpy = np.random.RandomState(seed)
        self.torch = torch.Generator().manual_seed(seed)

    def states(self):
        return [
            self.python.getstate(),
            self.numpy.get_state(),
            self.torch.get_state(),
            random.getstate(),
            np.random.get_state(),
            torch.get_rng_state(),
        ]


def scaled(m, x):
    return x * random.random() + random.uniform(-1, 1), random.gauss(0, 1)


def branch(m, x):
    return x * 2 if random.random() < 0.5 else x.sin()


def two_branches(m, x):
    for layer in (torch.sin, torch.tanh):
        if random.random() < 0.5:
            x = layer(x)
    return x


def many_branches(m, x):
    for i in range(5):
        if random.random() < 0.5:
            x = x.sin() + i
    return x


def crop(m, x):
    begin = random.randint(0, 7)
    return x[:, begin : begin + 4] * 2, begin


def by_int(m, x):
    return x * random.randrange(1, 100) + random.getrandbits(3)


def choice(m, x):
    return random.choice([torch.sin, torch.cos])(x), random.choice((0.5, 2.0)) * x


def shuffled(m, x):
    order = list(range(4))
    random.shuffle(order)
    return x[order], random.sample(range(10), 3)


def own(m, x):
    return x * m.python.random() + m.python.normalvariate(0, 1)


def seeded(m, x):
    random.seed(7)
    return x * random.random()


def of_numpy(m, x):
    return x * np.random.rand() + m.numpy.uniform(1, 2) + np.random.randint(5)


def array(m, x):
    return x + torch.from_numpy(m.numpy.rand(12)).float()


def by_generator(m, x):
    noise = torch.randn(x.shape, generator=m.torch, dtype=x.dtype, device=x.device)
    places = torch.randperm(4, generator=m.torch)
    return (x + noise)[places], torch.rand(2, generator=m.torch), noise


def by_default_generator(m, x):
    a = torch.rand(3)
    b = torch.rand(3, generator=torch.default_generator)
    return a, b, torch.rand(3)


def seeds_generator(m, x):
    return x + torch.rand(4, 12, generator=m.torch.manual_seed(3))


def made(m, x):
    m.python = random.Random(4)
    generator = torch.Generator().manual_seed(5)
    return x * m.python.random() + torch.rand(12, generator=generator)


def made_of_numpy(m, x):
    m.numpy = np.random.RandomState(4)
    return x * np.random.default_rng(3).random() + m.numpy.rand()


def fills(m, x):
    a = torch.empty(3, 4).normal_(1, 2, generator=m.torch)
    x.t().uniform_(generator=m.torch)
    return a, x, torch.zeros(5).exponential_(generator=m.torch) + 1


def seeds_torch(m, x):
    torch.manual_seed(4)
    return x[0, :3] + torch.rand(3)


def seeds_torch_late(m, x):
    a = torch.rand(3)
    torch.manual_seed(4)
    return a, torch.rand(3)


def mixed(m, x):
    x = nn.functional.dropout(x, 0.5, training=True) * random.random()
    return x + torch.randn(12, generator=m.torch) * m.numpy.normal()


def behind_a_break(m, x):
    a = random.random()
    oxyfuel.graph_break()
    return x * a * random.random()


def carried(m, x):
    m.last = random.random()
    return x + m.last, [m.last, {"a": random.random()}]


def asked(m, x):
    p = random.random() * 2
    return x * p if 0.3 < p < 1.5 else x, f"{p:.3f}", int(p * 10)


def raises(m, x):
    a = random.random()
    if a < 0.5:
        raise ValueError(f"{a}")
    return x * a


FUNCTIONS = [
    scaled, branch, two_branches, many_branches, crop, by_int, choice, shuffled, own, seeded,
    of_numpy, array, by_generator, by_default_generator, seeds_generator, made, made_of_numpy,
    fills, seeds_torch, seeds_torch_late, mixed, behind_a_break, carried, asked, raises,
]  # fmt: skip


def run(f, m, *args):
    try:
        return f(m, *args)
    except ValueError as e:
        return str(e)


def calls(f, m):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return [(run(f, m, X.clone()), m.states()) for _ in range(CALLS)]


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def assert_equal(got, wanted):
    for (a, states), (b, wanted_states) in zip(got, wanted, strict=True):
        assert type(a) is type(b)
        assert repr(states) == repr(wanted_states)
        for p, q in zip(*(flat(o) for o in (a, b)), strict=True):
            assert type(p) is type(q)
            assert_same(p, q) if isinstance(p, torch.Tensor) else None
            assert p == q if not isinstance(p, torch.Tensor) else True


def flat(o):
    if isinstance(o, (tuple, list)):
        return [leaf for item in o for leaf in flat(item)]
    if isinstance(o, dict):
        return flat(list(o.values()))
    return [o]


@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_draws(f, dynamic):
    assert_equal(calls(oxyfuel.compile(f, dynamic=dynamic), Noise()), calls(f, Noise()))


@pytest.mark.parametrize(
    "f",
    [scaled, branch, two_branches, own, of_numpy, by_generator, mixed, made, made_of_numpy, fills]
    + [seeds_torch, seeds_generator, choice],
)
def test_one_graph(f):
    oxyfuel.reset()
    assert oxyfuel.explain(f)(Noise(), X).graph_break_count == 0


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("f", [scaled, crop, by_generator, array])
def test_other_backends(f, backend):
    assert_equal(calls(oxyfuel.compile(f, backend=backend), Noise()), calls(f, Noise()))


def test_another_generator():
    """Each call draws from the generator that it is given."""

    def f(x, generator, python):
        return x + torch.rand(12, generator=generator) * python.random()

    compiled = oxyfuel.compile(f)
    for seed in (0, 1, 0, 2):
        given = [torch.Generator().manual_seed(seed), random.Random(seed)]
        same = [torch.Generator().manual_seed(seed), random.Random(seed)]
        for _ in range(2):
            assert_same(compiled(X, *given), f(X, *same))
        assert given[0].get_state().equal(same[0].get_state())
        assert given[1].getstate() == same[1].getstate()
    torch.manual_seed(5)
    got = compiled(X, torch.default_generator, random.Random(0))
    torch.manual_seed(5)
    assert_same(got, f(X, torch.default_generator, random.Random(0)))


class Own(random.Random):
    def random(self):
        return 0.25


def test_a_class_of_the_users():
    f = lambda x, r: x * r.random()  # noqa: E731
    compiled = oxyfuel.compile(f)
    for r in (random.Random(1), Own(), random.Random(1)):
        state = r.getstate()
        got = compiled(X, r)
        r.setstate(state)
        assert_same(got, f(X, r))


def test_a_call_that_eager_finishes():
    """What was drawn in front of a graph that does not run is drawn again."""

    def f(x, i):
        return x[i] * random.random()

    compiled = oxyfuel.compile(f)
    index = torch.tensor([0, 1])
    random.seed(0)
    compiled(X, index)
    after = random.getstate()
    with pytest.raises(IndexError):
        compiled(X, torch.tensor([0, 9]))
    random.setstate(after)
    got = compiled(X, index)
    random.seed(0)
    f(X, index)
    assert_same(got, f(X, index))


def test_gradients():
    def g(m, w):
        return ((w * random.random()) ** 2).sum()

    compiled, m, same = oxyfuel.compile(g), Noise(), Noise()
    w = X.clone().requires_grad_()
    random.seed(0)
    got = [torch.autograd.grad(compiled(m, w), w)[0] for _ in range(3)]
    random.seed(0)
    for a in got:
        assert_same(a, torch.autograd.grad(g(same, w), w)[0])


def test_checkpoint_and_function():
    """What a backward calls again draws again."""
    from torch.utils.checkpoint import checkpoint

    def f(x):
        return checkpoint(lambda x: x.sin() * 2, x, use_reentrant=False) * random.random()

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.scale = random.random()
            return x * ctx.scale

        @staticmethod
        def backward(ctx, g):
            return g * ctx.scale

    def draws_inside(x):
        return checkpoint(lambda x: x.sin() * random.random(), x, use_reentrant=False)

    for function in (f, draws_inside, lambda x: Scale.apply(x) * 2):
        compiled, out = oxyfuel.compile(function), []
        for run in (compiled, function):
            w = X.clone().requires_grad_()
            random.seed(0)
            out.append([torch.autograd.grad(run(w).sum(), w)[0] for _ in range(3)])
            out[-1].append(torch.tensor(random.random()))
        for a, b in zip(*out, strict=True):
            assert_same(a, b)


def test_draws_that_only_meet_tensors_have_one_capture():
    compiled = oxyfuel.compile(scaled)
    m = Noise()
    before = oxyfuel.stats()["recompiles"]
    for _ in range(10):
        compiled(m, X)
    assert oxyfuel.stats()["recompiles"] == before


def by_a_seed(m, x, seed):
    m.torch.manual_seed(seed)
    return x * torch.rand(12, generator=m.torch) + torch.rand(seed, generator=m.torch).sum()


def by_the_seed(m, x, seed):
    torch.manual_seed(seed)
    return x * torch.rand(12), np.random.RandomState(seed).rand()


@pytest.mark.parametrize("f", [by_a_seed, by_the_seed])
def test_a_seed_that_varies_leaves_sizes_symbols(f):
    compiled, outcomes = oxyfuel.compile(f), []
    for run in (f, compiled):
        torch.manual_seed(0)
        m = Noise()
        out = [run(m, X[:rows], seed) for rows, seed in ((2, 1), (3, 2), (4, 2), (1, 2), (3, 3))]
        outcomes.append((out, m.states()[2], m.states()[5]))
    torch.testing.assert_close(outcomes[1], outcomes[0])
    assert oxyfuel.stats()["static_captures"] == oxyfuel.stats()["fallbacks"] == 0


BRANCHES = [
    lambda r: r.rand() < 0.5,
    lambda r: r.standard_normal() < 0,
    lambda r: (r.normal(), r.uniform())[1] < 0.5,
    lambda r: (r.rand(), r.normal())[1] < 0,
    lambda r: r.permutation(3)[0].item() == 1,
]


@pytest.mark.parametrize("module_level", [True, False])
@pytest.mark.parametrize("branch", BRANCHES)
def test_captures_that_do_not_fit_leave_numpys_state(branch, module_level):
    """A capture draws before its guards can fail: bits, and the second of two normal numbers."""
    generators = [np.random.mtrand._rand if module_level else np.random.RandomState(0)]
    generators.append(generators[0] if module_level else np.random.RandomState(0))

    def f(x, r):
        return x + r.rand() if branch(r) else x - r.normal()

    compiled = oxyfuel.compile(f)
    x, found = torch.ones(3, dtype=torch.float64), []
    for run, generator in zip((compiled, f), generators, strict=True):
        generator.seed(5)
        generator.normal()  # the second of the pair is kept
        found.append([run(x, generator) for _ in range(30)])
        found.append(
            [a.tolist() if isinstance(a, np.ndarray) else a for a in generator.get_state()]
        )
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=0)
    assert found[1] == found[3]
