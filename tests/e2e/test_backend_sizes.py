"""torch.compile(backend="oxyfuel") where sizes vary: a graph of TorchDynamo's with symbols is
compiled once, and does at each size what eager does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops import while_loop

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

LENGTHS = (5, 7, 12, 3, 64, 2, 1, 0, 31, 5)


def same(found, expected):
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
        assert found.numel() == 0 or found.stride() == expected.stride()
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    elif hasattr(expected, "to_tuple"):
        same(found.to_tuple(), expected.to_tuple())
    else:
        assert found == expected


def check(fn, make, lengths=LENGTHS, plans=None, **options):
    """Calls the compiled function at all lengths; as many plans as TorchDynamo has graphs."""
    compiled = torch.compile(fn, backend="oxyfuel", **options)
    for n in lengths:
        torch.manual_seed(n)
        args = make(n)
        copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        same(compiled(*args), fn(*copies))
        for a, b in zip(args, copies, strict=True):
            torch.testing.assert_close(a, b)
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == stats["unsupported"] == stats["static_captures"] == 0
    assert stats["plans"] == (stats["graphs"] if plans is None else plans), stats
    return stats


def rows(n):
    return [torch.randn(n, 8)]


def both(n):
    return [torch.randn(n, 8), torch.randn(8, n)]


FUNCTIONS = {
    "pointwise": (lambda x: torch.sin(x) * 2 + x, rows),
    "view": (lambda x: x.view(x.shape[0] * 2, 4) + 1, rows),
    "view_infer": (lambda x: x.view(-1, 4).relu(), rows),
    "reshape": (lambda x: x.t().reshape(x.shape[0], 2, 4) * 2, rows),
    "flatten": (lambda x: x.view(-1, 2, 2, 2).flatten(1, 2).flatten(), rows),
    "arange": (lambda x: x + torch.arange(x.shape[0])[:, None], rows),
    "slice_half": (lambda x: x[: x.shape[0] // 2] * 2, rows),
    "slice_rest": (lambda x: x[x.shape[0] // 2 :] + 1, rows),
    "expand": (lambda x: x[:, :1].expand(x.shape[0], 5) + 1, rows),
    "full": (lambda x: torch.full((x.shape[0], 2), 1.5) + x[:, :2], rows),
    "new_zeros": (lambda x: x.new_zeros(x.shape + (3,)) + x[..., None], rows),
    "cat": (lambda x: torch.cat([x, x * 2, x[1:]]), rows),
    "stack": (lambda x: torch.stack([x, x + x.shape[0]], 1), rows),
    "pad": (lambda x: F.pad(x, (1, 2, 0, x.shape[0])), rows),
    "softmax": (lambda x: x.softmax(0) + x.softmax(1), rows),
    "matmul": (lambda x, y: (x @ y).relu() + x.shape[0], both),
    "attention": (
        lambda x: F.scaled_dot_product_attention(
            *(x.view(1, -1, 2, 4).transpose(1, 2) for _ in range(3)), is_causal=True
        ),
        rows,
    ),
    "causal": (lambda x: torch.ones(x.shape[0], x.shape[0]).tril() @ x, rows),
    "sort": (lambda x: x.sort(1).values + 1, rows),
    "in_place": (lambda x: x.mul_(x.shape[0]).sum(1), rows),
    "views_of_inputs": (lambda x: (x[1:], x.t(), x + 1), rows),
    "written_views": (lambda x: (x[:, 1:].add_(1), x * 2)[1], rows),
    "a_float": (lambda x, a: x * a + a, lambda n: [torch.randn(n, 8), n / 4]),
    "a_float_alone": (lambda x, a: x - a, lambda n: [torch.randn(4), float(n)]),
    "sizes": (lambda x: (x * 2, x.shape[0], x.shape[0] * 2 + 1, x.shape), rows),
    "sizes_alone": (lambda x: (x.numel() * 2, x), rows),
    "parity": (lambda x: (x + 1, x.shape[0] % 2), rows),
    "an_int": (lambda x, n: x * n + n, lambda n: [torch.randn(4, 8), n]),
    "an_int_as_a_size": (lambda x, n: x.expand(n, 8) + 1, lambda n: [torch.randn(1, 8), n]),
    "an_int_as_a_bound": (lambda x, n: x[:n] + 1, lambda n: [torch.randn(70, 8), n]),
    "an_int_of_arange": (
        lambda x, n: torch.arange(n + 1) * x[0, 0],
        lambda n: [torch.randn(1, 8), n],
    ),
    "an_int_comes_back": (lambda x, n: (x + 1, n + 1, [n]), lambda n: [torch.randn(2, 8), n]),
    "numel": (lambda x: x * x.numel(), rows),
    "mean": (lambda x: (x - x.mean(0)).square().mean(1), rows),
    "dropout": (lambda x: F.dropout(x, 0.0) + 1, rows),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dynamic):
    fn, make = FUNCTIONS[name]
    check(fn, make, dynamic=dynamic)


def test_one_plan_for_all_lengths():
    assert check(FUNCTIONS["matmul"][0], both, (5, 7, 12, 64, 31), dynamic=True)["plans"] == 1
    oxyfuel.reset()
    torch._dynamo.reset()
    assert check(FUNCTIONS["matmul"][0], both, (5, 7, 12, 64, 31))["plans"] == 2


def test_sizes_that_are_equal_by_chance():
    """TorchDynamo's symbols, not the numbers, say what is the same size."""

    def fn(x, y, n):
        return x * 2, y + n

    compiled = torch.compile(fn, backend="oxyfuel")
    for a, b, n in ((4, 4, 4), (5, 6, 7), (8, 8, 8), (3, 9, 9), (9, 3, 9), (6, 6, 2)):
        x, y = torch.randn(a, 3), torch.randn(b, 3)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(y, 0)
        same(compiled(x, y, n), fn(x, y, n))
    stats = oxyfuel.stats()
    assert stats["plans"] == stats["graphs"], stats


def test_negative_ints():
    check(FUNCTIONS["an_int"][0], lambda n: [torch.randn(4, 8), n - 7], (10, 20, 3, 7, 8, -40))


def test_strides_that_vary():
    def make(n):
        return [torch.randn(n, 8).t(), torch.randn(3, n)[:, ::2]]

    check(lambda x, y: (x * 2, y + 1), make, (6, 8, 12, 30, 4))


def test_many_inputs_of_one_size():
    def make(n):
        return [torch.randn(2, n, 4), torch.ones(2, n), torch.arange(n), torch.randn(n, n)]

    def fn(x, mask, places, scores):
        return (scores + mask[:, None] * 2).softmax(-1) @ (x + places[:, None])

    check(fn, make, (9, 4, 33, 2, 16))


def test_facts_that_fail():
    """A size that our graph needs as a number is one compilation each."""

    def fn(x):
        return torch.cdist(x, x).kthvalue(2, dim=0).values, x[1:].add(1), x.shape[0] / 2

    compiled = torch.compile(fn, backend="oxyfuel", dynamic=True)
    for n in (4, 5, 4, 9, 5, 2, 4):
        x = torch.randn(n, 3)
        same(compiled(x), fn(x))
    assert oxyfuel.stats()["plans"] == 4


def test_floats_that_ops_want_to_know():
    def fn(x, eps, factor):
        return F.layer_norm(x, (8,), eps=eps) * factor

    compiled = torch.compile(fn, backend="oxyfuel", dynamic=True)
    for eps, factor in ((0.5, 2.5), (0.5, 3.5), (0.5, 4.5), (0.25, 4.5), (0.5, 2.5), (0.25, 3.0)):
        x = torch.randn(4, 8)
        same(compiled(x, eps, factor), fn(x, eps, factor))
    stats = oxyfuel.stats()
    assert stats["unsupported"] == stats["fallbacks"] == 0
    assert stats["plans"] <= 5


FLOATS = {
    "alpha": lambda x, k: torch.add(x, x * 2, alpha=k),
    "clamp": lambda x, k: x.clamp(max=k) * 2,
    "where": lambda x, k: torch.where(x > k, x, k),
    "pow": lambda x, k: (x * x + 1) ** k,
    "base": lambda x, k: k**x,
    "lerp": lambda x, k: torch.lerp(x, x * 2, k),
    "leaky_relu": lambda x, k: F.leaky_relu(x, k),
    "full": lambda x, k: x + torch.full((3,), k * 2),
    "normalize": lambda x, k: F.normalize(x, eps=k),
    "masked_fill": lambda x, k: x.masked_fill(x > 0.5, k),
    "index_fill": lambda x, k: x.index_fill(0, torch.tensor([1]), k),
    "in_place": lambda x, k: (x * 1).add_(x, alpha=k).mul_(k).clamp_(max=k),
    "of_a_larger_one": lambda x, k: (x / max(k, 0.3)).softmax(-1),
    "comes_back": lambda x, k: (x.clamp(k), k * 3, k + x.shape[0]),
}


@pytest.mark.parametrize("dynamic", (None, True))
@pytest.mark.parametrize("grad", (False, True))
@pytest.mark.parametrize("name", FLOATS)
def test_floats_that_vary(name, grad, dynamic):
    """Of all values one plan, and one each for the first values and sizes."""
    fn = FLOATS[name]
    compiled = torch.compile(fn, backend="oxyfuel", dynamic=dynamic)

    def run(f, i):
        torch.manual_seed(i)
        x = torch.randn(4 + i // 4, 3, requires_grad=grad)
        out = f(x, 0.1 + 0.07 * i)
        first = out[0] if isinstance(out, tuple) else out
        if grad:
            first.sum().backward()
        return out, x.grad

    with torch.set_grad_enabled(grad):
        for i in range(12):
            same(run(compiled, i), run(fn, i))
    stats = oxyfuel.stats()
    assert stats["unsupported"] == stats["graph_breaks"] == 0
    assert stats["plans"] <= (4 if name == "lerp" else 3), stats  # which weighs in two ways


def test_floats_beside_attributes_with_gradients():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x, k):
            return torch.add(x, self.weight, alpha=k).clamp(max=k)

    model = Scaled()
    compiled = torch.compile(model, backend="oxyfuel")
    x = torch.rand(4, 3)
    with torch.enable_grad():
        for i in range(6):
            grads = []
            for f in (compiled, model):
                out = f(x, 0.5 + i / 8)
                grads.append((out.detach(), *torch.autograd.grad(out.sum(), model.weight)))
            same(*grads)
    assert oxyfuel.stats()["unsupported"] == 0
    assert oxyfuel.stats()["plans"] <= 3


def test_branches_and_loops():
    def fn(x):
        y = torch.cond(x.sum() > 0, lambda a: a * a.shape[0], lambda a: a.relu() - 1, (x,))
        return y + 1

    check(fn, lambda n: [torch.randn(n, 4)], (5, 7, 12, 3, 64), dynamic=True)

    def loop(x):
        def more(i, a):
            return i < 3

        def body(i, a):
            return i + 1, a * 2 + a.shape[0]

        return while_loop(more, body, (torch.tensor(0), x))[1]

    oxyfuel.reset()
    torch._dynamo.reset()
    check(loop, lambda n: [torch.randn(n, 4)], (5, 7, 12, 3, 64), dynamic=True)


def test_freezing():
    model = torch.nn.Sequential(torch.nn.Linear(8, 33), torch.nn.ReLU(), torch.nn.Linear(33, 8))
    check(model.eval(), rows, (5, 7, 12, 64, 31), dynamic=True, options={"freezing": True})
    with torch.no_grad():
        model[0].weight.add_(1)


def test_without_kernels():
    check(FUNCTIONS["matmul"][0], both, (5, 7, 12), dynamic=True, options={"kernels": False})


def test_examples_say_what_varies():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    gm = torch.fx.symbolic_trace(lambda x: x.relu() * x.shape[0])
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x = torch.randn(6, 3)
    run = oxyfuel.compile_fx(gm, [mode.from_tensor(x)])
    for n in (6, 9, 40):
        x = torch.randn(n, 3)
        same(run(x), gm(x))
    assert oxyfuel.stats()["plans"] == 1


# ---- models ----

transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}


def bert():
    return transformers.BertModel(transformers.BertConfig(**SMALL))


def roberta():
    return transformers.RobertaModel(transformers.RobertaConfig(**SMALL))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2))


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128)
    )


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("make", [bert, roberta, llama, gpt2], ids=lambda f: f.__name__)
def test_models(make, dynamic):
    torch.manual_seed(0)
    model = make().eval()

    def fn(ids, mask):
        kwargs = {} if make in (bert, roberta) else {"use_cache": False}
        return model(input_ids=ids, attention_mask=mask, **kwargs)[0]

    def inputs(n):
        mask = torch.ones(2, n, dtype=torch.int64)
        mask[0, max(1, n // 2) :] = 0
        return [torch.randint(3, 64, (2, n)), mask]

    check(fn, inputs, (12, 7, 20, 33, 3, 64, 1), dynamic=dynamic)
