"""Gemms of few rows, attention of few queries, and a decoding step: loops of our own against
eager."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

STRICT = {"strict": True}


def compare(f, *inputs):
    """The compiled result against eager's, with no call of a library left."""
    oxyfuel.reset()
    with torch.no_grad():
        result, expected = oxyfuel.compile(f, options=STRICT)(*inputs), f(*inputs)
    rtol, atol = (2e-5, 1e-4) if result.dtype == torch.float32 else (2e-2, 5e-2)
    torch.testing.assert_close(result, expected, rtol=rtol, atol=atol)
    assert result.stride() == expected.stride()
    assert oxyfuel.stats()["extern_calls"] == 0


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("inner, columns", [(1, 1), (7, 5), (64, 33), (1376, 512), (40000, 6)])
def test_gemms(rows, inner, columns):
    torch.manual_seed(0)
    x, w = torch.randn(rows, inner), torch.randn(columns, inner) / inner**0.5
    bias = torch.randn(columns)
    compare(lambda x, w: torch.mm(x, w.t()), x, w)
    compare(lambda x, w: torch.mm(x, w), x, w.t().contiguous())
    compare(lambda x, w, b: F.silu(F.linear(x + 1, w, b)) * 2, x, w, bias)
    compare(lambda x, w: torch.bmm(x, w.mT), x.expand(4, rows, inner), w.expand(4, columns, inner))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("many, inner", [(1, 1), (2, 0), (70, 256), (33, 7), (300, 90)])
def test_batches_of_vectors(dtype, many, inner):
    """A matrix times a column and a row times a matrix, in either layout; lone matrices in f32."""
    torch.manual_seed(0)
    x, column = torch.randn(3, many, inner).to(dtype), torch.randn(3, inner, 1).to(dtype)
    w, row = torch.randn(3, inner, many).to(dtype), torch.randn(3, 1, inner).to(dtype)
    for a, b in ((x, column), (x.mT.contiguous().mT, column), (row, w)):
        if inner >= 16:
            compare(lambda a, b: torch.bmm(a, b).sigmoid(), a, b)
        else:
            result = oxyfuel.compile(torch.bmm, options=STRICT)(a, b)
            torch.testing.assert_close(result, torch.bmm(a, b))
    f = oxyfuel.compile(lambda x, c: x @ c, options=STRICT, dynamic=True)
    for n in (many, many + 1, many + 8):
        a = torch.randn(2, n, inner + 1).to(dtype).mT.contiguous().mT
        c = torch.randn(2, inner + 1, 1).to(dtype)
        torch.testing.assert_close(f(a, c), a @ c, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8]
)
@pytest.mark.parametrize("inner", [1, 2, 3, 8])
@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 3), (70, 1), (1, 33), (40, 64), (0, 5)])
def test_few_products(dtype, inner, rows, columns):
    """Alone and in batches, with a bias, in every layout."""
    torch.manual_seed(0)
    draw = lambda *sizes: (torch.randn(sizes) * 9).to(dtype)  # noqa: E731
    a, b, bias = draw(rows, inner), draw(inner, columns), draw(columns)
    functions = [torch.mm]
    if dtype.is_floating_point:
        functions += [lambda a, b: F.linear(a, b.t(), bias).relu(), lambda a, b: a.t().mT @ b + 1]
    for f in functions:
        for x, y in ((a, b), (a.t().contiguous().t(), b.t().contiguous().t()), (a[:, :], b)):
            compare_exactly(f, x, y)
    for x, y in (
        (draw(5, rows, inner), draw(5, inner, columns)),
        (draw(5, inner, rows).mT, draw(5, columns, inner).mT),
        (draw(1, rows, inner).expand(5, -1, -1), draw(5, inner, columns + 3)[..., 2:-1]),
    ):
        compare_exactly(torch.bmm, x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("inner", [1, 3, 8, 9])
def test_few_products_with_scales(dtype, inner):
    torch.manual_seed(0)
    draw = lambda *sizes: (torch.randn(sizes) * 9).to(dtype)  # noqa: E731
    a, b, c, v = draw(20, inner), draw(inner, 7), draw(20, 7), draw(inner)
    scales = ({}, {"alpha": 3}, {"beta": 2}, {"beta": 0}, {"alpha": -1, "beta": 2})
    for kw in scales:
        for self in (c, c[:1], c[:, :1], c[0]):
            f = lambda s, a, b: torch.addmm(s, a, b, **kw)  # noqa: B023, E731
            compare_closely(f, self, a, b)
        f = lambda s, a, v: torch.addmv(s, a, v, **kw)  # noqa: B023, E731
        compare_closely(f, draw(20), a, v)
        f = lambda s, a, b: torch.baddbmm(s, a, b, **kw)  # noqa: B023, E731
        compare_closely(f, draw(4, 5, 6), draw(4, 5, inner), draw(4, inner, 6))
        compare_closely(f, draw(1, 6), draw(4, 5, inner), draw(4, 6, inner).mT)
    compare_closely(lambda a, v: a @ v, a, v)
    compare_closely(lambda a, v: a.t().contiguous().t().mv(v) + 1, a, v)
    if dtype.is_floating_point:
        nan = torch.full_like(c, float("nan"))
        compare_closely(lambda s, a, b: torch.addmm(s, a, b, beta=0), nan, a, b)


def scaled(dtype, alpha, beta):
    """Functions of a sum's operands with these scales, and operands of few and many products."""
    torch.manual_seed(0)
    draw = lambda *sizes: (torch.randn(sizes) * 9).to(dtype)  # noqa: E731
    kw = {"alpha": alpha, "beta": beta}
    for k in (1, 5, 40):
        yield lambda s, a, b: torch.addmm(s, a, b, **kw), draw(7), draw(20, k), draw(k, 7)
        yield lambda s, a, v: torch.addmv(s, a, v, **kw), draw(20), draw(20, k), draw(k)
        function = lambda s, a, b: torch.baddbmm(s, a, b, **kw)  # noqa: E731
        yield function, draw(6), draw(4, 5, k), draw(4, k, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("beta", [0.5, 2])
def test_products_times_zero(dtype, beta):
    """Where eager reads no operand, what is no number in one is in no result."""
    for f, s, *operands in scaled(dtype, 0, beta):
        for place in range(2):
            given = [x.clone() for x in operands]
            given[place].view(-1)[0] = float("nan")
            compare_closely(f, s, *given)


@pytest.mark.parametrize("alpha, beta", [(1.5, 1), (2.0, 0), (-1.5, 0), (1, 2.5), (0.5, 0.5)])
def test_integers_with_scales_that_are_floats(alpha, beta):
    for f, *operands in scaled(torch.int32, alpha, beta):
        compare_closely(f, *operands)
        compare_closely(f, *(x * 123456789 for x in operands))


def compare_closely(f, *tensors):
    oxyfuel.reset()
    result, expected = oxyfuel.compile(f, options=STRICT)(*tensors), f(*tensors)
    assert result.stride() == expected.stride()
    tolerance = {torch.bfloat16: 4e-2, torch.int32: 0}.get(result.dtype, 1e-4)
    atol = 30 * tolerance
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=atol, equal_nan=True)


def compare_exactly(f, a, b):
    oxyfuel.reset()
    result, expected = oxyfuel.compile(f, options=STRICT)(a, b), f(a, b)
    exact = f(a.double(), b.double()) if f in (torch.mm, torch.bmm) else None
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.stride() == expected.stride()
    if not result.dtype.is_floating_point:
        assert torch.equal(result, expected)
    elif exact is not None:  # as near as eager's is
        error = torch.finfo(result.dtype).eps * (a.double().abs() @ b.double().abs())
        assert ((result.double() - exact).abs() <= 4 * error).all()
    else:
        tolerance = {torch.bfloat16: 4e-2, torch.float16: 4e-3}.get(result.dtype, 1e-4)
        torch.testing.assert_close(result, expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("n", [9, 12, 16, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_batches_of_small_gemms(n, dtype):
    torch.manual_seed(0)
    a, b = torch.randn(30, n, n).to(dtype), torch.randn(30, n, 7).to(dtype)
    compare_exactly(torch.bmm, a, b)
    compare_exactly(torch.bmm, a.mT, b)
    grads = []
    for f in (torch.bmm, oxyfuel.compile(torch.bmm, options=STRICT)):
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        f(x, y).square().sum().backward()
        grads.append((x.grad, y.grad))
    torch.testing.assert_close(*grads, rtol=2e-2, atol=1e-1 if dtype == torch.bfloat16 else 1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 5, 8])
@pytest.mark.parametrize("inner, columns", [(7, 21), (40, 17), (1376, 520), (40000, 36)])
def test_gemms_of_halves(dtype, rows, inner, columns):
    torch.manual_seed(0)
    x, w = torch.randn(rows, inner).to(dtype), (torch.randn(inner, columns) / inner**0.5).to(dtype)
    bias = torch.randn(columns).to(dtype)
    compare(lambda x, w: torch.mm(x, w), x, w)
    compare(lambda x, w: torch.mm(x, w.t()), x, w.t().contiguous())
    compare(lambda x, w, b: torch.addmm(b, x, w), x, w, bias)
    compare(lambda x, w: torch.mm(x[:, 1:], w[1:, 2:]) + 1, x, w)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [17, 259])
@pytest.mark.parametrize("inner", [1, 16, 300])
def test_few_columns(dtype, rows, inner):
    """By each kernel that may be chosen, from any layout; the gradients are gemms of few rows."""
    torch.manual_seed(0)
    draw = lambda *sizes: torch.randn(*sizes).to(dtype)
    for columns in (1, 3, 9, 16):
        x, w, bias = draw(rows, inner), draw(columns, inner), draw(columns)
        layouts = [(x, w.t()), (x, w.t().contiguous()), (draw(inner, rows).t(), w.t())]
        layouts.append(
            (draw(rows, inner + 5)[:, 2 : inner + 2], draw(inner, 40)[:, 3 : columns + 3])
        )
        calls = [(torch.mm, a, b) for a, b in layouts]
        calls.append((lambda x, w, b: F.gelu(F.linear(x, w, b)), x, w, bias))
        calls.append(
            (lambda a, b: torch.relu(a @ b), draw(3, rows, inner), draw(3, inner, columns))
        )
        calls.append((lambda a, b: (a @ b).mT, draw(1, rows, inner).expand(3, -1, -1), w.t()))
        for call, *inputs in calls:
            oxyfuel.reset()
            compiled = oxyfuel.compile(call, options=STRICT)
            leaves = [t.clone(memory_format=torch.preserve_format) for t in inputs]
            others = [t.clone(memory_format=torch.preserve_format) for t in inputs]
            for t in leaves + others:
                t.requires_grad_()
            for _ in range(2):
                result, expected = compiled(*leaves), call(*others)
                result.sum().backward()
                expected.sum().backward()
            assert result.stride() == expected.stride()
            found = [result, *(t.grad for t in leaves)]
            wanted = [expected, *(t.grad for t in others)]
            rtol, atol = (2e-5, 1e-4) if dtype == torch.float32 else (2e-2, 5e-2)
            for f, e in zip(found, wanted):
                torch.testing.assert_close(f, e, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
def test_outer_products(dtype):
    torch.manual_seed(0)
    draw = lambda *sizes: torch.randn(*sizes).to(dtype)
    x, y, bias = draw(37, 1), draw(1, 53), draw(53)
    compare(torch.mm, x, y)
    compare(torch.mm, draw(1, 37).t(), draw(53, 1).t())
    compare(torch.addmm, bias, x, y)
    compare(lambda x, y, b: F.relu(x @ y + b), draw(3, 37, 1), draw(3, 1, 53), bias)
    compare(lambda x, w, b: F.linear(x, w, b).sin(), draw(2, 5, 1), draw(53, 1), bias)
    compare(torch.matmul, draw(8, 40, 2)[..., :1], draw(1, 50))
    compare(torch.outer, draw(40), draw(30))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("columns", [1, 4, 6])
def test_few_rows_and_columns_of_halves(dtype, rows, columns):
    torch.manual_seed(0)
    x, w = torch.randn(2, rows, 1500).to(dtype), (torch.randn(2, 1500, columns) / 40).to(dtype)
    compare(lambda x, w: F.gelu(x @ w), x, w)
    compare(lambda x, w: x @ w, x, w.mT.contiguous().mT)
    compare(torch.addmm, torch.randn(columns).to(dtype), x[0], w[1])


def test_few_columns_of_any_rows():
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 3)
    compiled = oxyfuel.compile(lambda x: torch.sigmoid(layer(x)), options=STRICT, dynamic=True)
    for rows in (40, 1, 0, 16, 17, 1000, 2):
        x = torch.randn(rows, 64)
        torch.testing.assert_close(compiled(x), torch.sigmoid(layer(x)), rtol=2e-5, atol=1e-5)


def test_a_chain_of_layers():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(5)]).requires_grad_(False)
    compare(layers, torch.randn(1, 32))


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("mask", ["none", "boolean", "added", "nothing_left"])
def test_attention(queries, mask):
    torch.manual_seed(0)
    q = torch.randn(2, 4, queries, 16)
    k, v = torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16)
    if mask == "none":
        m = None
    elif mask == "added":
        m = torch.randn(2, 1, queries, 9)
    else:
        m = torch.rand(2, 1, queries, 9) > 0.5
        m[0] = mask != "nothing_left"

    def attention(q, k, v):
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)

    compare(attention, q, k, v)
    scaled = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3)
    compare(scaled, q[:, :2], k[:, :, ::2], v[:, :, ::2])


def test_other_attention_is_eagers():
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, 2, 8), torch.randn(1, 2, 5, 8)
    causal = lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True)
    with torch.no_grad():
        torch.testing.assert_close(oxyfuel.compile(causal, options=STRICT)(q, k), causal(q, k))


def test_decoding_writes_the_cache_in_place():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 50}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    compiled = oxyfuel.compile(model, fullgraph=True, options=STRICT)
    oxyfuel.reset()
    results = []
    for f in (model, compiled):
        cache = transformers.StaticCache(config=config, max_cache_len=32)
        with torch.no_grad():
            model(torch.arange(8)[None], past_key_values=cache, use_cache=True)
            logits = [
                f(
                    torch.tensor([[at]]),
                    past_key_values=cache,
                    cache_position=torch.tensor([at]),
                    use_cache=True,
                ).logits
                for at in range(8, 13)
            ]
        results.append((logits, [layer.keys for layer in cache.layers]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert oxyfuel.stats()["extern_calls"] == 0
    assert oxyfuel.stats()["plans"] == 1


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_products_side_by_side(dim):
    """Each is computed once, not for all of the whole under a mask."""
    q, k, v = (torch.randn(8, 16, 16, 8) for _ in range(3))

    def f(q, k, v):
        return torch.stack([q @ k.mT @ v, k @ v.mT @ q, v @ q.mT @ k], dim)

    oxyfuel.reset()
    with torch.no_grad():
        torch.testing.assert_close(oxyfuel.compile(f)(q, k, v), f(q, k, v), rtol=1e-4, atol=1e-4)
    assert oxyfuel.stats()["extern_calls"] == 0
    assert oxyfuel.stats()["kernels"] >= 4  # of the pieces, and of the whole
