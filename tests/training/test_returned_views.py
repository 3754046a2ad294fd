"""Views that a call returns where gradients flow: of the ops that eager would have used, or of ops
as cheap as these."""

import itertools

import pytest
import torch
from model_check import first_difference

import oxyfuel

VIEWS = {
    "slice": lambda x: x[:, 2:7],
    "step": lambda x: x[1::2, ::3],
    "select": lambda x: x[2],
    "last": lambda x: x[..., -1],
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(2, 0, 1),
    "view": lambda x: x.view(4, 2, 5, 6) if x.is_contiguous() else x[None],
    "flatten": lambda x: x.flatten(1) if x.is_contiguous() else x[:, None],
    "rows of all": lambda x: x.view(-1)[7:67] if x.is_contiguous() else x[1:],
    "parts of the flattened": lambda x: x.flatten(1)[:, 5:40] if x.is_contiguous() else x[0],
    "unfold": lambda x: x.unfold(1, 4, 2),
    "diagonal": lambda x: x.diagonal(0, 0, 1),
    "expand": lambda x: x[:, :1].expand(-1, 5, -1),
    "unsqueeze": lambda x: x[1:3].unsqueeze(1).transpose(0, 2),
    "of a view": lambda x: x[1:].transpose(1, 2)[..., 3:].unsqueeze(0),
    "single elements": lambda x: x[None, :, None].unsqueeze(-1),
    "itself": lambda x: x.view(x.shape),
    "narrow": lambda x: x.narrow(2, 1, 3).movedim(0, -1),
    "nothing": lambda x: x[:, 3:3],
}
PIECES = {
    "split": lambda x: x.split(4, 1),
    "one of a split": lambda x: x.split(4, 1)[1],
    "some of a split": lambda x: (x.split([3, 1, 6], 1)[2], x.split([3, 1, 6], 1)[0]),
    "chunk": lambda x: x.chunk(3, 2),
    "unbind": lambda x: x.unbind(0),
    "views of a chunk": lambda x: [y.transpose(0, 1) for y in x.chunk(2, 1)],
    "two splits": lambda x: (*x.split(4, 1), *x.split(2, 0)),
    "one chunk": lambda x: x.chunk(1, 1),
    "a split as long": lambda x: x.split(x.shape[1], 1),
    "unbind of one": lambda x: x[:1].unbind(0),
    "parts of chunks": lambda x: [y[1:] for y in x.chunk(2, 1)],
    "steps of chunks": lambda x: [y[::2] for y in x.chunk(2, 1)],
    "backwards": lambda x: x.split(2, 1)[::-1],
    "beside the whole": lambda x: (x * 2, *x.split(5, 1), x[:, :3]),
    "tensor_split": lambda x: x.tensor_split(3, 1),
}
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "sliced": lambda t: torch.cat([t, t], 2)[..., : t.shape[2]],
    "offset": lambda t: torch.cat([t, t])[t.shape[0] :],
}


def itself(x):
    return x


def exp(x):
    return x.exp()


def listed(out):
    return list(out) if isinstance(out, (list, tuple)) else [out]


def gradients(fn, x, twice=False):
    leaf = x.clone().as_strided(x.shape, x.stride()) if x.is_contiguous() else x.detach()
    leaf = leaf.requires_grad_()
    out = listed(fn(leaf))
    weights = [torch.arange(o.numel()).reshape(o.shape).sin().to(o.dtype) for o in out]
    grad = torch.autograd.grad([o * o if twice else o for o in out], leaf, weights,
                               create_graph=twice)  # fmt: skip
    if twice:
        grad += torch.autograd.grad((grad[0] * grad[0]).abs().sum(), leaf)
    return out, grad


def check(fn, x, twice=True):
    compiled = oxyfuel.compile(fn)
    for again in (False, True)[: 1 + twice]:
        (out, grad), (expected, wanted) = gradients(compiled, x, again), gradients(fn, x, again)
        for a, b in zip(out, expected, strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
            assert a.requires_grad == b.requires_grad
        torch.testing.assert_close(grad, wanted)
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_an_input(name, layout):
    (out,) = check(VIEWS[name], LAYOUTS[layout](torch.randn(4, 10, 6)), name != "nothing")
    assert out._is_view() and out.storage_offset() == VIEWS[name](out._base).storage_offset()
    if name in ("slice", "transpose", "select", "permute", "single elements", "of a view"):
        assert "AsStrided" not in type(out.grad_fn).__name__


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_permutations_of_single_dimensions(order):
    """Whose strides say nothing of their place."""
    for shape in ((3, 1, 5, 1), (1, 4, 1, 2), (1, 1, 1, 1)):
        (out,) = check(lambda x: x.permute(order), torch.randn(shape))
        assert "AsStrided" not in type(out.grad_fn).__name__


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", PIECES)
def test_pieces_of_an_input(name, layout):
    check(PIECES[name], LAYOUTS[layout](torch.randn(4, 10, 6)), name != "beside the whole")


@pytest.mark.parametrize("name", [*VIEWS, *PIECES])
def test_views_of_a_result(name):
    view = (VIEWS | PIECES)[name]
    check(lambda x: (*listed(view(x.sin())), x + 1), torch.randn(4, 10, 6), twice=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64], ids=str)
def test_dtypes(dtype):
    check(lambda x: (*x.split(4, 1), x[1:], x.transpose(0, 1)), torch.randn(4, 10, 6).to(dtype))


@pytest.mark.parametrize("through", [itself, exp])
@pytest.mark.parametrize(
    "name", [n for n in PIECES if n not in ("tensor_split", "beside the whole")]
)
def test_writes_to_pieces_raise(name, through):
    """As in eager: a gradient could not flow through several results of one view op."""

    if name in ("one chunk", "a split as long", "unbind of one") and through is exp:
        pytest.skip("a result of its own: nothing else is in its memory")

    def fn(x):
        return PIECES[name](through(x))

    raised = []
    for run in (fn, oxyfuel.compile(fn)):
        for piece in listed(run(torch.randn(4, 10, 6).requires_grad_() * 1)):
            with pytest.raises(RuntimeError, match="output of a function that returns multi") as e:
                piece.mul_(2)
            raised.append(type(e.value))
    assert set(raised) == {RuntimeError}


@pytest.mark.parametrize("name", ["slice", "select", "transpose", "tensor_split", "of a view"])
def test_writes_to_views(name):
    def fn(x):
        return (VIEWS | PIECES)[name](x)

    found = []
    for run in (fn, oxyfuel.compile(fn)):
        leaf = torch.arange(240.0).reshape(4, 10, 6).requires_grad_()
        base = leaf * 1
        out = listed(run(base))[0]
        version = out._version
        out.mul_(3)
        assert out._version == base._version == version + 1
        (base * base).sum().backward()
        found.append((out.detach(), base.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1])


def test_a_leaf_is_not_written():
    def fn(x):
        return x[1:]

    for run in (fn, oxyfuel.compile(fn)):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            run(torch.randn(3, requires_grad=True)).add_(1)


def test_no_gradients():
    def fn(x):
        return x.split(2)

    compiled = oxyfuel.compile(fn)
    x = torch.randn(6, requires_grad=True)
    with torch.no_grad():
        a, b = compiled(x), fn(x)
    torch.testing.assert_close(a, b)
    assert [t.requires_grad for t in a] == [t.requires_grad for t in b]
    y = torch.randn(6)
    compiled(y)[0].add_(1)
    torch.testing.assert_close(compiled(y), fn(y))


def test_sizes_that_vary():
    def fn(x):
        n = x.shape[1] // 2
        return (*x.split([n, x.shape[1] - n], 1), x[:, 1:], x.transpose(0, 1), x.flatten())

    compiled = oxyfuel.compile(fn, dynamic=True)
    for shape in [(4, 10), (3, 7), (5, 2), (2, 30)]:
        (out, grad), (expected, wanted) = (gradients(f, torch.randn(shape)) for f in (compiled, fn))
        assert [o.shape for o in out] == [e.shape for e in expected]
        torch.testing.assert_close(grad, wanted)
    assert oxyfuel.stats()["plans"] <= 2


def test_transforms_back_to_real_numbers_of_sizes_that_vary():
    def fn(x):
        y = torch.fft.rfftn(x, dim=(-2, -1)) * 2
        return torch.fft.irfftn(y, s=x.shape[-2:], dim=(-2, -1)), torch.fft.irfft(y).sin()

    compiled = oxyfuel.compile(fn)
    for size in (16, 24, 10, 7):
        x = torch.randn(4, size, size)
        (_, grad), (_, wanted) = (gradients(f, x) for f in (compiled, fn))
        torch.testing.assert_close(grad, wanted)
    assert oxyfuel.stats()["recompiles"] <= 2


def test_hooks():
    def fn(x):
        return x.sin().chunk(2)

    found = []
    for run in (fn, oxyfuel.compile(fn)):
        seen = []
        x = torch.arange(6.0, requires_grad=True)
        a, b = run(x)
        a.register_hook(lambda g, seen=seen: seen.append(g) or g * 2)
        (a.sum() + (b * 3).sum()).backward()
        found.append((x.grad, seen))
    torch.testing.assert_close(found[0], found[1])


class Detached(torch.autograd.Function):
    """Gives the memory of its argument, which autograd does not know as a view."""

    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, g):
        return g * 3


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_detached_memory(grad, requires_grad, written):
    """What is detached is no view for autograd, and may be written."""

    def views(h):
        return h.detach(), h.detach()[0], h.detach().view(-1)

    results = []
    for run in (views, oxyfuel.compile(views)):
        h = torch.arange(6.0, requires_grad=requires_grad).view(2, 3) * 1
        with torch.set_grad_enabled(grad):
            found = run(h)
        if written:
            for t in found:
                t.mul_(2)
        results.append(
            [(t.clone(), t._is_view(), t.requires_grad, t.is_leaf, t._version) for t in found]
        )
        results[-1].append([t.is_set_to(h) for t in found])
    assert not first_difference(results[1], results[0])


def test_memory_of_a_function_is_written():
    def both(x):
        h = x + 1
        d = Detached.apply(h)
        d.mul_(2)
        return d, h

    results = []
    for run in (both, oxyfuel.compile(both)):
        x = torch.arange(3.0, requires_grad=True)
        d, h = run(x)
        (d.exp().sum() + h.sum()).backward()
        results.append((d.detach(), h.detach(), x.grad))
        d, _ = run(x)
        d.detach().mul_(2)
        results[-1] += (d.detach().clone(),)
    assert not first_difference(results[1], results[0])


COMPUTED = {
    "of an input": lambda x: (lambda v: (v, v * 3))(x[1:]),
    "of a result": lambda x: (lambda h: (lambda v: (h, v, v.exp()))(h[1:]))(x * 2),
    "pieces": lambda x: (lambda a, b: (a, b, a * b))(*(x * 2).chunk(2, 1)),
    "one piece": lambda x: (lambda a, *_: (a, a * 3))(*(x * 2).unbind(0)),
    "transposed": lambda x: (lambda t: (t, (t @ t.sin().mT).exp()))(x.transpose(0, 1)),
    "the view twice": lambda x: (lambda v: (lambda u: (v, u, u * v[:-1]))(v[1:]))(x.flatten(1)),
    "held": lambda x: (lambda v: ({"v": [v]}["v"][0], v * v))(x.unsqueeze(0)),
    "expanded": lambda x: (lambda v: (v, v * v))(x[:, :1].expand(4, 6)),
    "one of two pieces": lambda x: (lambda a, b: (a, a.sin() + x[:, :3]))(*x.chunk(2, 1)),
    "a view of a view": lambda x: (lambda h: (lambda v: (v, v[1:]))(h.flatten(1)))(x.exp()),
}


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", COMPUTED)
def test_gradients_by_a_view_of_what_is_computed_of_it(name, fullgraph):
    """Behind a break the view is an input; in one graph it has a node of its own."""

    def step(f):
        heard, out = [], []
        for leaf in (True, False):
            x = torch.ones(4, 6, requires_grad=True).mul(2).detach().requires_grad_()
            *views, w = f(x if leaf else x * 1)
            for v in views:
                v.register_hook(lambda g: heard.append(None if g is None else g.clone()))
                v.retain_grad()
            out += torch.autograd.grad(w.sum(), [*views, x], retain_graph=True)
            (w.sum() + views[0].sum()).backward()
            out += [v.grad for v in views] + [x.grad]
        return out, heard

    f = COMPUTED[name]
    compiled = oxyfuel.compile(f, fullgraph=fullgraph)
    assert not first_difference(step(compiled), step(f))


@pytest.mark.parametrize("name", COMPUTED)
def test_second_derivatives_and_writes_beside_a_view(name):
    def step(f):
        x = torch.arange(24.0).reshape(4, 6).div(10).requires_grad_()
        base = x * 1
        views = f(base)
        assert (views[0]._base is base) == (f(base)[0]._base is base)
        (first,) = torch.autograd.grad(sum((v * v).sum() for v in views), x, create_graph=True)
        out = torch.autograd.grad((first * first).sum(), x, allow_unused=True)
        base = x * 1
        views = f(base)
        try:
            views[0].mul_(3)
            (views[0].sum() + base.sum()).backward()
        except RuntimeError as e:
            return out, type(e)
        return out, x.grad, [v.detach().clone() for v in views], base.detach()

    f = COMPUTED[name]
    assert not first_difference(step(oxyfuel.compile(f, fullgraph=True)), step(f))


def view_and_write(x, w):
    v = x.view(2, 2)
    x.mul_(w)
    return v, (v * v).sum()


def write_and_view(x, w):
    x.mul_(w)
    v = x.view(2, 2)
    return v, (v * v).sum()


def write_to_view(x, w):
    v = x.view(2, 2)
    v.mul_(w.view(2, 2))
    return v, (v * v).sum()


def write_without_grad(x, w):
    with torch.no_grad():
        x.mul_(w)
    v = x.view(2, 2)
    return v, (v * v).sum() + (w * w).sum()


@pytest.mark.parametrize(
    "function", [view_and_write, write_and_view, write_to_view, write_without_grad]
)
@pytest.mark.parametrize("needs_gradient", [True, False])
def test_gradients_by_a_view_of_an_input_that_is_written(function, needs_gradient):
    def step(f):
        leaf, w = torch.arange(4.0), torch.arange(1.0, 5.0).requires_grad_()
        x = leaf.requires_grad_() * 1 if needs_gradient else leaf * 1
        v, total = f(x, w)
        by = [t for t in (v, w, x, leaf) if t.requires_grad]
        found = torch.autograd.grad(total, by, retain_graph=True, allow_unused=True)
        v.mul_(2)
        again = ()
        if v.requires_grad:
            again = torch.autograd.grad((v * x.view(2, 2)).sum(), by, allow_unused=True)
        return found, again, v.detach(), x.detach()

    expected = step(function)
    for options in {"fullgraph": True}, {}, {"fullgraph": True, "dynamic": True}:
        found = step(oxyfuel.compile(function, **options))
        assert not first_difference(found, expected)
    assert oxyfuel.stats()["fallbacks"] == oxyfuel.stats()["unsupported"] == 0


def under_no_grad(view, then=lambda v: v):
    def function(x):
        with torch.no_grad():
            v = view(x)
        return then(v)

    return function


def with_grad_mode(x):
    with torch.enable_grad():
        return x.view(2, 2)


MADE_WITHOUT_GRAD_MODE = {
    "an input": under_no_grad(lambda x: x.view(2, 2)),
    "a result": under_no_grad(lambda x: (x * 2).view(2, 2)),
    "a view of such a one": under_no_grad(lambda x: x[None], lambda v: v.view(2, 2)),
    "a piece": under_no_grad(lambda x: x.view(2, 2, 1).split(1, 2)[0].squeeze(-1)),
    "beside the whole": lambda x: under_no_grad(lambda y: y.view(2, 2))(x + 1),
    "a conjugate": under_no_grad(lambda x: torch.complex(x, x).view(2, 2).conj()),
    "grad mode on again": with_grad_mode,
}


@pytest.mark.parametrize("name", MADE_WITHOUT_GRAD_MODE)
@pytest.mark.parametrize("grad", [True, False])
def test_writes_to_views_made_without_grad_mode(name, grad):
    def written(function, other):
        with torch.set_grad_enabled(grad):
            v = function(torch.arange(4.0))
        try:
            v += other
        except RuntimeError as error:
            return str(error)
        return v.tolist(), v.requires_grad

    for requires_grad in True, False:
        other = torch.ones(2, 2, requires_grad=requires_grad)
        if name in ("a result", "beside the whole") and not grad and requires_grad:
            continue  # such a call gives memory of its own
        expected = written(MADE_WITHOUT_GRAD_MODE[name], other)
        for options in {}, {"fullgraph": True}:
            compiled = oxyfuel.compile(MADE_WITHOUT_GRAD_MODE[name], **options)
            assert written(compiled, other) == expected


@pytest.mark.parametrize("name", ["split", "chunk", "unbind", "one chunk"])
@pytest.mark.parametrize("leaf", [True, False])
def test_writes_to_pieces_without_elements_raise(name, leaf):
    def written(wrap):
        x = torch.zeros(2, 8, 0, requires_grad=True)
        first = wrap(lambda x: PIECES[name](x)[0])(x if leaf else x * 1)
        with pytest.raises(RuntimeError) as error:
            first.clamp_min_(1)
        return str(error.value).partition(" is a view")[1:]

    assert written(oxyfuel.compile) == written(lambda f: f)


PARTS = {
    "complex": lambda x: torch.view_as_complex(x),
    "some": lambda x: torch.view_as_complex(x)[1:, ::2].t(),
    "parts again": lambda x: torch.view_as_real(torch.view_as_complex(x))[:, 1:],
    "real": lambda x: torch.view_as_complex(x).real,
    "conjugate": lambda x: torch.view_as_complex(x)[1:].conj(),
}
OF_COMPLEX = {
    "parts": torch.view_as_real,
    "real": lambda z: z.real[1:],
    "imaginary": lambda z: z.imag.t(),
    "some parts": lambda z: torch.view_as_real(z)[:, ::2, 1],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*PARTS, *(f"{name} of complex" for name in OF_COMPLEX)])
def test_complex_numbers_and_their_parts(name, layout, dynamic):
    """Of complex numbers where they are stored as pairs, and the other way round."""
    view = PARTS.get(name) or OF_COMPLEX[name.removesuffix(" of complex")]
    memory = LAYOUTS[layout](torch.randn(4, 6, 4))[..., :2]
    memory = torch.view_as_complex(memory) if name.endswith("of complex") else memory
    results = []
    for f in (oxyfuel.compile(view, fullgraph=True, dynamic=dynamic), view):
        x = memory.detach().requires_grad_()
        out = f(x)
        assert "AsStrided" not in type(out.grad_fn).__name__
        weight = torch.arange(1.0, out.numel() + 1).view(out.shape).to(out.dtype)
        (grad,) = torch.autograd.grad(out, x, weight)
        assert out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        results.append((out.detach(), grad, out.stride(), out.storage_offset(), out.is_conj()))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
