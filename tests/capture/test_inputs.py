"""Inputs that share memory and are written, and kinds of tensors that no graph takes: captured in
parts, as in eager."""

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")


def base():
    return torch.arange(24.0).reshape(4, 6)


# By name: what is given, made of one tensor.
SHARED = {
    "the_same": lambda t: (t, t),
    "a_view": lambda t: (t, t[1:]),
    "flat": lambda t: (t.view(-1), t),
    "transposed": lambda t: (t.t(), t),
    "overlapping": lambda t: (t[:3], t[1:]),
    "apart": lambda t: (t[:2], t[2:]),
    "interleaved": lambda t: (t[:, ::2], t[:, 1::2]),
    "detached": lambda t: (t, t.detach()),
    "data": lambda t: (t.data, t),
    "other_dtype": lambda t: (t.view(torch.int32), t),
    "expanded": lambda t: (t[:1].expand(4, 6), t),
    "windows": lambda t: (t.view(-1).unfold(0, 4, 2), t),
    "itself": lambda t: (t[0].as_strided((3, 3), (1, 1)), t.clone()),
}


def reads_behind(a, b):
    b.mul_(2)
    return a + 1, b.sum()


def writes_both(a, b):
    b.add_(1)
    a[0] = 7
    b[..., 0].zero_()
    return a * 2, b * 2


def writes_what_it_made(a, b):
    c = a * 2
    c.add_(1)
    c[0] = 5
    return c, b + c.sum()


def writes_one_value(a, b):
    a.fill_(3)
    return a + b.sum(), b.zero_()


def gives_views(a, b):
    b.neg_()
    return a[0], b.t(), b


def changes_shapes(a, b):
    a.t_()
    b.unsqueeze_(0)
    return a + 1, b.sum(), a


def writes_through_a_view(a, b):
    b.view(-1)[2:5].copy_(torch.arange(3).to(b.dtype))
    return a.sum(), b


def breaks_between(a, b):
    b += 1
    oxyfuel.graph_break()
    return a * 3, b


def loops(a, b):
    for _ in range(3):
        b.add_(1)
        a.mul_(2)
    return a.sum(), b


@pytest.mark.parametrize(
    "f",
    [
        reads_behind,
        writes_both,
        writes_what_it_made,
        writes_one_value,
        gives_views,
        changes_shapes,
        writes_through_a_view,
        breaks_between,
        loops,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("share", SHARED.values(), ids=SHARED)
def test_inputs_that_share_memory(f, share):
    compiled = oxyfuel.compile(f)
    for _ in range(2):
        assert outcome(compiled, share) == outcome(f, share)


def outcome(f, share):
    t = base()
    arguments = share(t)
    try:
        results = f(*arguments)
    except RuntimeError as e:
        return str(e), t.tolist()
    tensors = (*results, *arguments, t)
    return [(r.dtype, r.shape, r.stride(), r.storage_offset(), str(r.tolist())) for r in tensors], [
        [
            x.is_set_to(y) or x.untyped_storage()._cdata == y.untyped_storage()._cdata
            for y in tensors
        ]
        for x in tensors
    ]


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", base())
        self.register_buffer("row", self.table[1])

    def forward(self, x):
        self.table.add_(x)
        y = self.row * 2
        self.row.zero_()
        return y, self.table.sum()


def test_buffers_that_share_memory():
    ours, theirs = Tied(), Tied()
    compiled = oxyfuel.compile(ours)
    for _ in range(3):
        for a, b in zip(compiled(torch.ones(6)), theirs(torch.ones(6)), strict=True):
            assert torch.equal(a, b)
        assert torch.equal(ours.table, theirs.table)


def test_statistics_that_share_memory():
    def f(x, mean, same):
        return torch.nn.functional.batch_norm(x, mean, same, training=True), mean + 1

    def run(f):
        statistics = torch.ones(6)
        x = base()
        out = f(x, statistics, statistics)
        return [*out, statistics]

    for a, b in zip(run(oxyfuel.compile(f)), run(f), strict=True):
        assert torch.equal(a, b)


class Holder:
    def __init__(self, t):
        self.t = t


STRANGE = {
    "sparse": lambda: base().to_sparse(),
    "compressed": lambda: base().to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(base(), 0.5, 0, torch.qint8),
    "meta": lambda: base().to("meta"),
    "conjugated": lambda: torch.complex(base(), base()).conj(),
    "negated": lambda: torch.complex(base(), base()).conj().imag,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("held", ["argument", "attribute", "item"])
def test_a_first_call_with_a_tensor_that_no_graph_takes(strange, held):
    def f(holder):
        t = holder.t if held == "attribute" else holder["t"] if held == "item" else holder
        return t + t

    def hold(t):
        if held == "argument":
            return t
        return {"t": t} if held == "item" else Holder(t)

    def call(t):
        try:
            return compiled(hold(t))
        except NotImplementedError:  # of eager
            return None

    oxyfuel.reset()
    compiled = oxyfuel.compile(f)
    call(strange())
    assert oxyfuel.stats()["graphs"] == 0
    for _ in range(2):
        assert torch.equal(compiled(hold(base())), base() * 2)
    assert oxyfuel.stats()["graphs"] == 1
    call(strange())
    assert torch.equal(compiled(hold(base())), base() * 2)
    assert oxyfuel.stats()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "native"])
@torch.enable_grad()
def test_an_inference_tensor_that_data_has_made_a_plain_one(backend):
    """It does not count its writes."""
    with torch.inference_mode():
        plain = torch.ones(3)
    plain.data = torch.arange(3.0)

    def f(x):
        return x.sin() + plain, plain * 2

    x = torch.randn(3, requires_grad=True)
    gradients = []
    for run in (f, oxyfuel.compile(f, backend=backend)):
        y, _ = run(x)
        gradients += torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(*gradients)


META = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).to("meta")
TIED = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3), "b": torch.nn.Linear(3, 3)}).to("meta")
TIED.b.weight = TIED.a.weight
TIED.forward = lambda x: TIED.b(TIED.a(x))


def state_for(module):
    return {
        name: torch.linspace(-1, 1, t.numel()).view(t.shape).to(t.dtype)
        for name, t in {**dict(module.named_parameters()), **dict(module.named_buffers())}.items()
    }


STATE = state_for(META)
OF_TIED = state_for(TIED)
STACKED = {name: torch.stack([t, t * 2]) for name, t in state_for(META[0]).items()}


def skeleton(x, t):
    return torch.func.functional_call(META, STATE, (x,))


def tied_skeleton(x, t):
    return torch.func.functional_call(TIED, OF_TIED, (x,))


def ensemble(x, t):
    call = lambda state, x: torch.func.functional_call(META[0], state, (x,))  # noqa: E731
    return torch.func.vmap(call, in_dims=(0, None))(STACKED, x)


def what_it_is(x, t):
    return x + t.shape[0], t.dtype, t.device.type, t.is_meta, t.requires_grad


def told_by_methods(x, t):
    sizes = t.size(), t.size(0), t.size(-1), t.numel(), t.nelement(), t.dim(), t.ndimension()
    return x * t.numel(), sizes, t.is_floating_point(), t.is_complex()


def told_by_functions(x, t):
    return torch.numel(t), torch.is_floating_point(t), torch.is_tensor(t), t.dim()


def computed_with(x, t):
    return (t * 2).shape, (t.T @ t).shape, x


def among_others(x, t):
    table = {t: 1, x: 2}
    return table[t], t in table, META[0].weight in table, [u is t for u in (x, t)]


def handed_on(x, t):
    return {"t": t}, x + 1


@pytest.mark.parametrize(
    "f", [skeleton, tied_skeleton, ensemble, what_it_is, told_by_methods, handed_on]
)
def test_tensors_without_data_in_a_graph(f):
    check_tensors_without_data(f)
    assert oxyfuel.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("f", [told_by_functions, computed_with, among_others])
def test_tensors_without_data(f):
    check_tensors_without_data(f)


def check_tensors_without_data(f):
    compiled = oxyfuel.compile(f)
    given = (
        torch.ones(2, 3, device="meta"),
        torch.ones(3, 3, device="meta", dtype=torch.int32),
        torch.ones(3, 3),
        META[0].weight,
    )
    for t in given + given:
        x = torch.arange(12.0).view(4, 3)
        expected, actual = f(x, t), compiled(x, t)
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(actual, expected)
        else:
            assert str(actual) == str(expected)
        if f is handed_on:
            assert actual[0]["t"] is t
