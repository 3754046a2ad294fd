"""Training steps do what they do in eager: aliases and layouts of inputs, outputs and gradients."""

import itertools

import pytest
import torch
from backward_check import both, compare, compare_modules, leaf
from model_check import first_difference
from torch import nn

import oxyfuel

# ---- outputs ----


@pytest.mark.parametrize("used", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_unused_outputs(used):
    def step(f):
        x, y = leaf(3), leaf(3)
        out = f(x, y)
        sum(out[i].sum() for i in used).backward()
        return x.grad, y.grad

    compare(step, lambda x, y: (x.sin(), y.cos(), x * y))


def test_one_output_after_the_other():
    def step(f):
        x, y = leaf(3), leaf(3)
        a, b = f(x, y)
        a.sum().backward(retain_graph=True)
        first = x.grad.clone(), y.grad
        b.sum().backward()
        return first, x.grad, y.grad

    compare(step, lambda x, y: (x.sin(), x * y))


def test_input_as_output():
    def step(f):
        x, y = leaf(3), leaf(3) * 1
        out = f(x, y)
        same = out[0] is x, out[1] is y
        (out[2] * out[1] + out[0]).sum().backward()
        return same, x.grad

    compare(step, lambda x, y: (x, y, x * y))


def test_views_of_inputs_as_outputs():
    def step(f):
        x = leaf(3, 4)
        a, b, c = f(x)
        (a.sum() + b.square().sum() + c.sum()).backward()
        return a._is_view(), a._base is x, b._base is x, x.grad

    compare(step, lambda x: (x.t(), x[1], x.sin()))


def test_a_view_of_an_input_is_written():
    def step(f):
        x = leaf(3, 4)
        inner = x * 1
        view, out = f(inner)
        view.mul_(3)
        (inner.sum() + view.square().sum() + out.sum()).backward()
        return x.grad, inner

    compare(step, lambda x: (x[0], x + 1))


def test_outputs_alias_each_other():
    def step(f):
        x = leaf(3, 4)
        a, b, c = f(x)
        shared = a.data_ptr() == b.data_ptr()
        (a.sum() + 2 * b.square().sum() + 3 * c.sum()).backward()
        return shared, c is a, a, b, x.grad

    def fn(x):
        y = x.sin()
        return y, y.t(), y

    compare(step, fn)


def test_view_outputs_of_an_intermediate_are_written():
    def step(f):
        x = leaf(3, 4)
        rows = f(x)
        rows[1].mul_(5)
        sum(r.sum() for r in rows).backward()
        return x.grad, rows

    def fn(x):
        y = x.sin()
        return y[0], y[1:]

    compare(step, fn)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("written", [True, False])
def test_views_of_what_linear_has_reshaped(bias, written):
    """Autograd knows the memory in three dimensions; the product has two."""
    layer = nn.Linear(4, 6, bias=bias)

    def step(f):
        x = leaf(2, 3, 4)
        layer.zero_grad()
        a, b, c = f(x)
        shared = [t.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for t in (b, c)]
        if written:
            b.mul_(5)
        (a.sum() + 2 * b.square().sum() + 3 * c.sum()).backward()
        return shared, a, b, c, x.grad, [p.grad for p in layer.parameters()]

    def fn(x):
        y = layer(x)
        return y[..., :2], y[:, 1], y.view(2, 3, 2, 3).transpose(1, 2)

    compare(step, fn)


def test_chunks_of_a_product_with_swapped_dimensions():
    def step(f):
        x, w = leaf(2, 3, 4), leaf(6, 4)
        q, k = f(x, w)
        (q.exp().sum() + k.square().sum()).backward()
        return q, k, x.grad, w.grad

    def fn(x, w):
        heads = nn.functional.linear(x, w).view(2, 3, 2, 3).permute(0, 2, 1, 3)
        return heads.chunk(2, dim=-2)

    compare(step, fn)


def test_detached_outputs():
    def step(f):
        x = leaf(3)
        out = f(x)
        out[0].sum().backward()
        return [t.requires_grad for t in out], out[1].data_ptr() == out[0].data_ptr(), x.grad

    def fn(x):
        y = x.sin()
        return y, y.detach(), (y > 0), y.argmax(), y.int()

    compare(step, fn)


def test_structure_of_outputs():
    def step(f):
        x = leaf(3)
        out = f(x)
        (out["a"][0] * out["b"]).sum().backward()
        return out["a"][1:], x.grad

    compare(step, lambda x: {"a": (x.sin(), 3, None, "text"), "b": x * 2})


def test_constants_as_outputs():
    def step(f):
        x = leaf(3)
        out = f(x)
        out[1].sum().backward()
        return [t.requires_grad for t in out], out[0], x.grad

    compare(step, lambda x: (torch.ones(3), x * 2, torch.arange(3)))


# ---- inputs ----


def test_inputs_are_no_leaves():
    def step(f):
        x, w = leaf(3, 4), leaf(4, 5)
        out = f(x.sin(), w.t().contiguous().t())
        out.relu().sum().backward()
        return x.grad, w.grad

    compare(step, lambda x, w: x @ w)


def test_chain_of_compiled_graphs():
    def step(f):
        x = leaf(3, 3)
        f(f(f(x))).sum().backward()
        return x.grad

    compare(step, lambda x: (x @ x).tanh())


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[1:],
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[0].expand(4, -1),
        lambda x: x.diagonal(),
        lambda x: x.unfold(1, 2, 1),
    ],
)
def test_inputs_are_views(view):
    def step(f):
        x = leaf(4, 6)
        f(view(x)).sum().backward()
        return x.grad

    compare(step, lambda x: x.exp() * x)


def test_a_mutated_input():
    def step(f):
        x, y = leaf(3), leaf(3)
        inner = x * 1
        out = f(inner, y)
        (out * inner).sum().backward()
        return inner, x.grad, y.grad, inner.requires_grad, inner._version > 0

    def fn(a, y):
        a.mul_(y)
        return a.sin()

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


def test_a_mutated_input_without_gradient():
    def step(f):
        x = leaf(3)
        count = torch.zeros(3)
        for _ in range(3):
            f(x, count).sum().backward()
        return x.grad, count

    def fn(x, count):
        count.add_(1)
        return x * 2 + count

    compare(step, fn)


def test_a_buffer_gets_a_history():
    def step(f):
        x, buffer = leaf(3), torch.zeros(4, 3)
        out = f(buffer, x)
        (buffer.sum() + out.sum()).backward()
        return buffer, buffer.requires_grad, x.grad

    def fn(buffer, x):
        buffer[1] = x.exp()
        return buffer * 2

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.select(-1, 1) * 2,
        lambda x: x.select(-2, -1).exp(),
        lambda x: x[..., -1:].exp(),
        lambda x: x.diagonal(0, -1, -2).sin(),
        lambda x: x.unfold(-1, 2, 1).sin(),
        lambda x: x.unbind(-1)[1].exp(),
        lambda x: x.split(2, -1)[1].exp(),
        lambda x: x.sort(-1)[0].exp() + x.roll(1, -1),
        lambda x: torch.stack([x, x.flip(-1)], -1).exp(),
        lambda x: torch.trapezoid(x, dim=-1),
    ],
)
def test_dimensions_from_the_end(fn):
    def step(f):
        x = leaf(3, 4, 4)
        out = f(x)
        out.backward(torch.randn_like(out))
        return x.grad

    compare(step, fn)


# ---- gradients as they come ----


def test_expanded_tangent():
    def step(f):
        x = leaf(3, 4)
        f(x).sum().backward()
        return x.grad

    compare(step, lambda x: x.sin())
    compare(step, lambda x: x.t().exp())


TANGENTS = {
    "as_the_result": lambda g: g.clone(),
    "transposed": lambda g: g.mT.contiguous().mT,
    "of_one_column": lambda g: g[..., :1].expand(g.shape),
    "of_one_row": lambda g: g[:1].expand(g.shape),
    "of_one_number": lambda g: g.sum().expand(g.shape),
    "of_more_columns": lambda g: torch.cat([g, g], -1)[..., 1 : 1 + g.shape[-1]],
    "of_every_other": lambda g: torch.stack([g, -g], -1)[..., 1],
    "of_more_rows": lambda g: torch.cat([g, g])[1 : 1 + len(g)],
    "conjugated": lambda g: torch.complex(g, g).conj().imag,
}
OF_A_TANGENT = {
    "element": lambda x: x.sin(),
    "permuted": lambda x: x.mT.exp(),
    "row": lambda x: x.softmax(-1) * x.sum(0),
    "gemm": lambda x: x @ x.mT @ x,
    "two_readers": lambda x: (x * 2).cumsum(0) + x.mT.flip(0).mT,
    "handed_on": lambda x: x + x.mean(),
    "view": lambda x: x.view(-1).view(x.shape),
}


@pytest.mark.parametrize(
    ("dynamic", "shapes"), [(None, [(3, 4), (0, 4)]), (True, [(3, 4), (5, 2), (1, 3)])]
)
@pytest.mark.parametrize("fn", OF_A_TANGENT)
@pytest.mark.parametrize("lay", TANGENTS)
def test_layouts_of_tangents(lay, fn, dynamic, shapes):
    fn, lay = OF_A_TANGENT[fn], TANGENTS[lay]
    compiled = oxyfuel.compile(fn, dynamic=dynamic)
    for shape in shapes:
        x = leaf(*shape)
        y = x.detach().clone().requires_grad_()
        expected = fn(x)
        tangent = lay(torch.randn_like(expected))
        expected.backward(tangent)
        compiled(y).backward(tangent)
        torch.testing.assert_close(y.grad, x.grad)
        assert y.grad.stride() == x.grad.stride()


def test_more_layouts_of_tangents_than_are_compiled():
    """The two results' gradients lie in every combination of layouts."""

    def fn(x):
        return x.sin(), x.cos()

    compiled = oxyfuel.compile(fn)
    torch.manual_seed(0)
    for first, second in itertools.product(TANGENTS.values(), repeat=2):
        x = leaf(3, 4)
        y = x.detach().clone().requires_grad_()
        tangents = [first(torch.randn(3, 4)), second(torch.randn(3, 4))]
        torch.autograd.backward(fn(x), tangents)
        torch.autograd.backward(compiled(y), tangents)
        torch.testing.assert_close(y.grad, x.grad)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: torch.cat([x, y]),
        lambda x, y: torch.cat([x, y], 1),
        lambda x, y: torch.cat([x.view(-1), y.view(-1)]),
        lambda x, y: torch.stack([x, y]),
        lambda x, y: x.view(-1) + y.view(-1),
        lambda x, y: x.view(-1) + y.sum(),
        lambda x, y: (x.clone().view(2, 6), y.mT.contiguous().view(-1)),
        lambda x, y: torch.cat([x, y.sin()]).unsqueeze(0),
        lambda x, y: torch.cat([x, y, x]),
    ],
)
def test_gradients_that_are_parts_of_a_tangent(fn, dynamic):
    """They are not each other's memory, as some are in eager: what is added to one stays in it."""
    compiled = oxyfuel.compile(fn, dynamic=dynamic)
    for _ in range(2):
        x, y = leaf(3, 4), leaf(3, 4)
        expected = [torch.zeros(3, 4), torch.zeros(3, 4)]
        for _ in range(3):
            results = []
            for f in (fn, compiled):
                out = f(x, y)
                results.append(out if isinstance(out, tuple) else (out,))
            tangents = [torch.randn_like(o) for o in results[0]]
            for total, g in zip(
                expected, torch.autograd.grad(results[0], [x, y], tangents), strict=True
            ):
                total += g
            torch.autograd.backward(results[1], [t.clone() for t in tangents])
        torch.testing.assert_close([x.grad, y.grad], expected)


def test_channels_last():
    def make():
        module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        return module.to(memory_format=torch.channels_last)

    def step(module, f):
        x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
        out = f(x)
        out.sum().backward()
        return out, x.grad

    compare_modules(make, step)


def test_sparse_gradient_of_an_embedding():
    def step(f):
        w = leaf(10, 4)
        f(w, torch.tensor([1, 1, 3])).sum().backward()
        return w.grad.to_dense()

    def fn(w, i):
        return nn.functional.embedding(i, w, sparse=True) * 2

    expected, found = both(step, fn)
    assert not first_difference(found, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_dtypes(dtype):
    def step(f):
        x = leaf(3, 4, dtype=dtype)
        out = f(x)
        out.backward(torch.ones_like(out))
        return x.grad

    compare(step, lambda x: (x * x).sum(-1) * 2)


def test_empty_tensors():
    def step(f):
        x, w = leaf(0, 4), leaf(4, 3)
        f(x, w).sum().backward()
        return x.grad, w.grad

    compare(step, lambda x, w: (x @ w).relu())


# ---- sizes ----


def test_batches_of_any_size():
    def step(module, f):
        out = []
        for n in (2, 3, 5, 7, 8):
            x = torch.randn(n, 4, requires_grad=True)
            y = f(x)
            y.square().mean().backward()
            out += [y, x.grad]
        return out

    compare_modules(lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)), step)
    assert oxyfuel.stats()["recompiles"] == 1


def test_marked_dynamic():
    def step(f):
        out = []
        for n in (4, 6, 9):
            x = leaf(n, 3)
            f(x).sum().backward()
            out.append(x.grad)
        return out

    compare(step, lambda x: x.softmax(0) * x.shape[0], dynamic=True)
    assert oxyfuel.stats()["recompiles"] == 0


# ---- assignments through masks ----

MASKED = {  # sizes of what is written, of the mask, of the value, whole dimensions in front
    "a row": ((2, 5, 3), (2, 5), (3,), 0),
    "a number": ((2, 5, 3), (2, 5), (), 0),
    "each element": ((4, 5), (4, 5), (), 0),
    "the first dimension": ((4, 5, 2), (4,), (5, 2), 0),
    "a part of it": ((4, 5, 2), (4,), (1, 2), 0),
    "behind a whole dimension": ((4, 5, 2), (5,), (2,), 1),
    "empty": ((0, 5, 2), (0, 5), (2,), 0),
}


@pytest.mark.parametrize("how", ["item", "index_put_", "index_put"])
@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("chosen", [0.0, 0.5, 1.0])
def test_a_value_with_a_gradient_is_written_by_a_mask(name, how, chosen):
    sizes, of_mask, of_value, whole = MASKED[name]
    mask = torch.rand(of_mask) < chosen
    index = (slice(None),) * whole + (mask,)
    if how != "item" and whole:
        pytest.skip("index_put in Python takes no whole dimensions")

    def step(f):
        x, v = leaf(*sizes), leaf(*of_value)
        y = f(x, v, mask)
        y.square().sum().backward()
        return y, x.grad, v.grad

    def fn(x, v, mask):
        y = x * 2
        if how == "item":
            y[(*index[:-1], mask)] = v
        elif how == "index_put_":
            y.index_put_((mask,), v)
        else:
            y = torch.index_put(y, (mask,), v)
        return y.sin()

    compare(step, fn)


def test_a_view_is_written_by_a_mask():
    mask = torch.tensor([True, False, True])

    def step(f):
        x, v = leaf(4, 3), leaf()
        y = f(x, v)
        y.square().sum().backward()
        return y, x.grad, v.grad, v._version

    def fn(x, v):
        y = x * 2
        y.t()[mask] = v
        y[1][mask] = v * 3
        return y

    compare(step, fn)


def test_what_a_mask_cannot_write():
    mask = torch.tensor([True, False, True])
    x, v = leaf(3), leaf()

    def to_leaf(x, v):
        x[mask] = v
        return x

    def of_another_dtype(x, v):
        y = x * 2
        torch.Tensor.index_put_(y, (mask,), v.double().expand(2))
        return y

    def of_another_shape(x, v):
        y = x * 2
        y[mask[:2]] = v
        return y

    for f in (to_leaf, of_another_dtype, of_another_shape):
        with pytest.raises((RuntimeError, IndexError)) as expected:
            f(x, v)
        with pytest.raises(expected.type) as found:
            oxyfuel.compile(f)(x, v)
        assert str(found.value) == str(expected.value)


# ---- layouts of gradients ----


@pytest.mark.parametrize("format_", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("batch", "of", "to", "groups", "kernel"),
    [
        (2, 8, 8, 8, 3),  # by channel: weights with one dimension of size 1
        (2, 8, 16, 8, 7),
        (2, 1, 4, 1, 3),
        (1, 8, 1, 1, 1),  # a kernel of ATen's own
        (1, 8, 8, 1, 1),
        (2, 8, 8, 1, 1),
        (2, 8, 4, 2, 3),
    ],
)
def test_gradients_of_convolutions_are_laid_out_as_in_eager(
    batch, of, to, groups, kernel, dtype, format_
):
    weights = torch.randn(to, of // groups, kernel, kernel, dtype=dtype)
    image = torch.randn(batch, 6, 6, of, dtype=dtype).permute(0, 3, 1, 2)
    image = image.contiguous(memory_format=format_)

    def step(f):
        x, w = image.clone().requires_grad_(), weights.clone().requires_grad_()
        y = f(x, w)
        y.square().sum().backward()
        return y, x.grad, w.grad

    padding = kernel // 2
    compare(step, lambda x, w: nn.functional.conv2d(x * 2, w, padding=padding, groups=groups))


def test_a_gradient_that_is_a_piece():
    """AccumulateGrad looks at no stride of a dimension of size 1."""

    def step(f):
        token, x = leaf(1, 1, 4), leaf(1, 3, 4)
        row = leaf(1, 3, 4)
        f(token, x, row).square().sum().backward()
        return token.grad, x.grad, row.grad

    def fn(token, x, row):
        return torch.cat([token.expand(x.shape[0], -1, -1), x], 1).exp() + row[:, :1]

    compare(step, fn)
