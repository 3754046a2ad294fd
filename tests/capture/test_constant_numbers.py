"""Numbers in the buffers of modules: read under a guard where Python asks, and never stale."""

import math

import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


class Padded(torch.nn.Module):
    def __init__(self, stride, size):
        super().__init__()
        self.stride = torch.nn.Buffer(torch.tensor(stride), persistent=False)
        self.size = torch.nn.Buffer(torch.tensor(size, dtype=torch.int64), persistent=False)

    def forward(self, x):
        length = x.shape[-1]
        frames = torch.ceil((length - self.size) / self.stride + 1).to(torch.int64) - 1
        extra = frames * self.stride + self.size - length
        most = max(extra, self.size - self.stride)
        if length <= most:
            x = torch.nn.functional.pad(x, (0, most - length + 1))
        x = torch.nn.functional.pad(x, (self.size - self.stride, extra))
        return x[..., : x.shape[-1] - extra]


def test_one_graph_and_eagers_result():
    module = Padded(2, 5)
    compiled = oxyfuel.compile(module)
    for n in (1, 4, 9, 12):
        x = torch.randn(2, n)
        torch.testing.assert_close(compiled(x), module(x))
    assert oxyfuel.stats()["graph_breaks"] == 0


CHANGES = {
    "write": lambda b, k: b.fill_(k),
    "data": lambda b, k: b.data.copy_(torch.tensor(k)),
    "new data": lambda b, k: setattr(b, "data", torch.tensor(k)),
    "numpy": lambda b, k: b.numpy().fill(k),
    "view": lambda b, k: b.view(1).fill_(k),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_buffer_is_seen(change):
    module = Padded(2, 5)
    compiled = oxyfuel.compile(module)
    x = torch.randn(2, 9)
    for k in (2, 3, 1, 3, 2, 4, 5):
        CHANGES[change](module.stride, k)
        torch.testing.assert_close(compiled(x), module(x))


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls += 1
        return x * 2


def assert_counts_as_eager(kind):
    oxyfuel.reset()
    ours, eagers = kind(), kind()
    compiled = oxyfuel.compile(ours)
    x = torch.randn(3)
    for _ in range(12):
        torch.testing.assert_close(compiled(x), eagers(x))
        assert ours.calls == eagers.calls


def test_a_number_that_changes_at_every_call_breaks_in_the_end():
    class Reading(Counting):
        def forward(self, x):
            y = x * 3
            if self.calls % 5 > 2:
                y = y + 1
            self.calls.add_(1)
            return y

    assert_counts_as_eager(Counting)
    assert oxyfuel.stats()["graph_breaks"] == 0
    assert_counts_as_eager(Reading)
    assert 0 < oxyfuel.stats()["graph_breaks"] < 6


@pytest.mark.parametrize(
    "question",
    [
        lambda n: n > 4,
        lambda n: n <= 3,
        lambda n: n + 2 == 7,
        lambda n: not n,
        lambda n: (n - 5).to(torch.float32) * 0.5 < 1.0,
        lambda n: torch.logical_not(n != 6),
        lambda n: (n > 2.5) or (n == 1),
    ],
)
def test_what_is_computed_of_a_count_is_guarded_by_its_truth(question):
    class Reading(Counting):
        def forward(self, x):
            y = x * 3
            if question(self.calls):
                y = y + 1
            self.calls.add_(1)
            return -y if question(self.calls) else y

    assert_counts_as_eager(Reading)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "question",
    [
        lambda t: t == 0.1,
        lambda t: t > 0.1,
        lambda t: t + 0.7 > 0.8,
        lambda t: t * 3 <= 0.3,
        lambda t: 0.3 / t == 3,
        lambda t: t.min() < 0.1 and t.max() >= 0.1,
        lambda t: t.double() == 0.1,
        lambda t: t.float() == 0.1,
    ],
)
def test_numbers_are_compared_in_the_precision_of_their_tensor(question, dtype):
    class Compared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("bound", torch.zeros((), dtype=dtype))

        def forward(self, x):
            return x * 2 if question(self.bound) else x * 3

    module = Compared()
    compiled = oxyfuel.compile(module)
    x = torch.randn(3)
    near = torch.tensor(0.1, dtype=dtype)
    infinite = torch.tensor(float("inf"), dtype=dtype)
    for value in (near, near.nextafter(infinite), near.nextafter(-infinite), -near, near * 8):
        module.bound.copy_(value)
        assert torch.equal(compiled(x), module(x))


@pytest.mark.parametrize(
    "question",
    [
        lambda one: one + one == one,
        lambda one: one + one == 1,
        lambda one: (one + one) * 2.5 == 2.5,
        lambda one: torch.tensor(0.5).bool() == one,
        lambda one: torch.full((1,), 2**31 - 1, dtype=torch.int32) + 1 < 0,
        lambda one: torch.tensor(2**63 - 1) + 1 < 0,
        lambda one: torch.tensor(2**32 + 1).to(torch.int32) == 1,
        lambda one: torch.tensor(2**53 + 1) == torch.tensor(2**53),
    ],
)
def test_truths_of_constants_are_those_of_their_dtypes(question):
    def f(x):
        return x * 2 if question(torch.tensor([True])) else x * 3

    x = torch.randn(3)
    assert torch.equal(oxyfuel.compile(f)(x), f(x))


def test_a_count_against_a_bound_is_two_graphs():
    class Warming(Counting):
        def forward(self, x):
            self.calls += 1
            return x * 2 if self.calls < 5 else x * 3

    assert_counts_as_eager(Warming)
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == 0 and stats["graphs"] == 2


def test_what_the_call_itself_writes():
    class Writing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base = torch.tensor([1, 2])
            self.register_buffer("first", self.base[0])
            self.register_buffer("plain", torch.tensor(3))

        def forward(self, x, how):
            half = self.plain - 1
            if how == "buffer":
                self.plain.add_(2)
            if how == "alias":
                self.base.mul_(4)
            if how == "result":
                half += 5
            if how == "list":
                torch._foreach_add_([half], 5)
            if how == "out":
                torch.add(x.long().sum(), 1, out=half)
            return x * int(self.first), x.repeat(int(self.plain)), x + int(half)

    for how in ("none", "buffer", "alias", "result", "list", "out"):
        ours, eagers = Writing(), Writing()
        compiled = oxyfuel.compile(ours)
        x = torch.arange(3.0)
        for _ in range(2):
            torch.testing.assert_close(compiled(x, how), eagers(x, how))


def test_arguments_are_not_read():
    def f(x, n):
        if n > 2:
            return x + 1
        return x - 1

    compiled = oxyfuel.compile(f)
    x = torch.randn(3)
    for k in range(6):
        torch.testing.assert_close(compiled(x, torch.tensor(k)), f(x, torch.tensor(k)))
    assert oxyfuel.stats()["graph_breaks"] == 1


def test_a_constant_is_an_index():
    def f(x):
        items = [x, x + 1, x + 2]
        return items[torch.tensor(1)], items[torch.as_tensor(-1)], (4, 5)[torch.tensor(0)]

    x = torch.ones(2)
    out = oxyfuel.compile(f, fullgraph=True)(x)
    assert [t.tolist() for t in out[:2]] == [[2, 2], [3, 3]] and out[2] == 4


KEYS = {
    "a list": lambda x, t: (x[[t]], x[[t, 0]], x[[t, None]]),
    "a list in a tuple": lambda x, t: (x[0, [t, 0]], x[[0, t], [t, 0]]),
    "a slice": lambda x, t: (x[t:], x[:t], x[0, t:]),
    "a tuple": lambda x, t: (x[t, 0], x[0, t], x[t, ...], x[t, t]),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.bool])
@pytest.mark.parametrize("name", KEYS)
def test_a_constant_among_indices(name, dtype):
    """A list of fewer than 32 with tensors is a tuple to torch, a byte is a mask."""
    if name == "a list in a tuple" and not dtype.is_signed:
        pytest.skip("eager refuses it")

    def f(x):
        y = x.clone()
        y[torch.tensor(1, dtype=dtype), 0] = 9
        return *KEYS[name](x, torch.tensor(1, dtype=dtype)), y

    x = torch.arange(12.0).view(3, 4)
    assert str(oxyfuel.compile(f)(x)) == str(f(x))


@pytest.mark.parametrize("f", [torch.cov, torch.corrcoef, lambda x: torch.cov(x, correction=0)])
@pytest.mark.parametrize("sizes", [(3, 5), (4, 1), (6,)])
def test_numbers_of_constants_that_ops_look_at(f, sizes):
    """cov compares the number of observations with 0."""

    def step(call):
        x = torch.linspace(0, 1, math.prod(sizes)).view(sizes).sin().requires_grad_()
        y = call(x)
        y.exp().sum().backward()
        return y.detach(), x.grad

    for options in {}, {"dynamic": True}:
        found = step(oxyfuel.compile(f, **options))
        torch.testing.assert_close(found, step(f), equal_nan=True)
    assert oxyfuel.stats()["graph_breaks"] == 0
