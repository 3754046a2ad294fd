"""torch.func in captured code: one graph, and what eager gives."""

import pytest
import torch
import torch.nn.functional as F
from functorch_check import (
    assert_same,
    check,
    fresh,  # noqa: F401
    loss_of,
    params_of,
)
from test_recording import compared, description  # noqa: F401
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

import oxyfuel

CASES = {}


def case(build):
    CASES[build.__name__] = build
    return build


# ------------------------------------------------------------------------------------------ grad


@case
def a_gradient():
    return lambda x: grad(lambda t: (t.sin() * t).sum())(x), (torch.randn(5),)


@case
def a_gradient_by_a_tree():
    return lambda p, x, y: grad(loss_of)(p, x, y), (
        params_of(3, 4),
        torch.randn(2, 4),
        torch.randn(2, 3),
    )


@case
def gradients_by_two_arguments():
    def f(x, y):
        return grad(lambda a, b: (a * b.exp()).sum(), argnums=(1, 0))(x, y)

    return f, (torch.randn(3), torch.randn(3))


@case
def a_gradient_and_the_value():
    return lambda p, x, y: grad_and_value(loss_of)(p, x, y), (
        params_of(3, 4),
        torch.randn(2, 4),
        torch.randn(2, 3),
    )


@case
def an_auxiliary_result():
    def f(x):
        def loss(t):
            h = t.exp()
            return h.sum(), {"h": h, "double": (h * 2, t)}

        return grad(loss, has_aux=True)(x), grad_and_value(loss, has_aux=True)(x)

    return f, (torch.randn(4),)


@case
def a_second_derivative():
    return lambda x: grad(grad(lambda t: (t**3).sin()))(x), (torch.randn(()),)


@case
def a_third_derivative_in_double():
    return lambda x: grad(grad(grad(torch.sin)))(x), (torch.randn((), dtype=torch.float64),)


@case
def what_does_not_depend_on_it():
    return lambda x, y: grad(lambda a, b: b.sum() * 2, argnums=(0, 1))(x, y), (
        torch.randn(3),
        torch.randn(2),
    )


@case
def a_gradient_of_nothing():
    return lambda x: grad(lambda t: torch.ones(()))(x), (torch.randn(3),)


@case
def what_lies_outside_of_the_function():
    def f(x, w):
        scale = w * 2
        return grad(lambda t: (t * scale).sum())(x) + scale

    return f, (torch.randn(3), torch.randn(3))


@case
def a_gradient_without_grad_mode():
    def f(x):
        with torch.no_grad():
            outside = grad(lambda t: (t**2).sum())(x)

        def inner(t):
            with torch.no_grad():
                c = t**2
            return (t - c).sum()

        return outside, grad(inner)(x)

    return f, (torch.randn(3),)


@case
def a_write_inside():
    def f(x):
        def loss(t):
            h = t * 2
            h.add_(t)
            h[1:].mul_(t[1:])
            return h.sum()

        return grad(loss)(x)

    return f, (torch.randn(4),)


@case
def views_inside():
    def f(x):
        def loss(t):
            return (t.view(2, 3).t()[1:].reshape(-1) * t.unfold(0, 2, 1)[:4, 0]).sum()

        return grad(loss)(x)

    return f, (torch.randn(6),)


@case
def strided_inputs():
    return lambda x: grad(lambda t: (t * t.t()).sum())(x), (torch.randn(8, 4)[::2].t(),)


@case
def a_bfloat16_gradient():
    return lambda x: grad(lambda t: F.gelu(t).sum())(x), (torch.randn(7).bfloat16(),)


@case
def a_gradient_of_an_empty_tensor():
    return lambda x: grad(lambda t: t.exp().sum())(x), (torch.randn(0, 3),)


@case
def a_gradient_of_a_convolution():
    def f(w, x):
        return grad(lambda k: F.max_pool2d(F.conv2d(x, k, padding=1).relu(), 2).sum())(w)

    return f, (torch.randn(4, 3, 3, 3), torch.randn(2, 3, 8, 8))


# ------------------------------------------------------------------------------------------- vjp


@case
def a_vector_jacobian_product():
    def f(x, v):
        out, pull = vjp(lambda t: t.sin() * t, x)
        return out, pull(v), pull(v * 2)

    return f, (torch.randn(3), torch.randn(3))


@case
def a_vjp_of_trees():
    def f(x, y):
        out, pull, aux = vjp(lambda a, b: ({"p": a @ b, "s": a.sum()}, b * 2), x, y, has_aux=True)
        return out, aux, pull({"p": torch.ones_like(out["p"]), "s": out["s"]})

    return f, (torch.randn(2, 3), torch.randn(3, 4))


# ------------------------------------------------------------------------------------------ vmap


@case
def a_batch():
    return lambda x: vmap(lambda r: r * r.sum())(x) + 1, (torch.randn(3, 4),)


@case
def batches_along_other_dimensions():
    def f(x, y, z):
        g = vmap(lambda a, b, c: (a + c, torch.dot(a, b)), in_dims=(1, -1, None), out_dims=(1, 0))
        return g(x, y, z)

    return f, (torch.randn(3, 4), torch.randn(3, 4), torch.randn(3))


@case
def batches_of_trees():
    def f(x, d):
        return vmap(
            lambda a, b: {"m": b["k"] @ a, "n": [b["l"][0] + a]}, in_dims=(0, {"k": None, "l": 0})
        )(x, d)

    return f, (torch.randn(5, 3), {"k": torch.randn(2, 3), "l": [torch.randn(5)]})


@case
def batches_in_batches():
    def f(x, y):
        return vmap(vmap(torch.dot, in_dims=(None, 0)), in_dims=(0, None))(x, y)

    return f, (torch.randn(3, 4), torch.randn(5, 4))


@case
def batches_in_chunks():
    return lambda x: vmap(lambda r: r.cumsum(0), chunk_size=2)(x), (torch.randn(5, 3),)


@case
def batched_scalars_and_numbers():
    def f(x):
        return vmap(lambda r: (r * 2, 1 - r, r / 3, r**2, torch.where(r > 0, r, 0.5)))(x)

    return f, (torch.randn(4),)


@case
def batched_writes():
    def f(x, y):
        def g(a, b):
            c = a.clone()
            c[0] = b
            c[1:] += 1
            c.t_() if c.dim() == 2 else c
            return c

        return vmap(g)(x, y)

    return f, (torch.randn(3, 4), torch.randn(3))


@case
def batched_views():
    def f(x):
        return vmap(lambda r: (r.t(), r[1:], r.view(-1), r.unsqueeze(0).expand(2, -1, -1)))(x)

    return f, (torch.randn(2, 3, 4),)


@case
def what_is_not_batched():
    return lambda x, y: vmap(lambda a, b: (b * 2, a), in_dims=(0, None))(x, y), (
        torch.randn(3),
        torch.randn(2),
    )


@case
def integers_and_indices():
    def f(x, i):
        return vmap(lambda r, k: (r[k], torch.gather(r, 0, k), k.sum()))(x, i)

    return f, (torch.randn(3, 5), torch.randint(0, 5, (3, 2)))


@case
def a_batch_of_matrices():
    return lambda a: vmap(torch.linalg.inv)(a @ a.mT + torch.eye(3)), (torch.randn(4, 3, 3),)


@case
def a_batch_through_modules():
    m = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)).requires_grad_(
        False
    )
    return lambda x: vmap(m)(x), (torch.randn(5, 4),)


@case
def batched_attention():
    def f(q, k, v):
        return vmap(F.scaled_dot_product_attention)(q, k, v)

    return f, tuple(torch.randn(2, 3, 4, 8) for _ in range(3))


# ---------------------------------------------------------------------------- combined transforms


@case
def gradients_by_sample():
    def f(p, x, y):
        return vmap(grad(loss_of), in_dims=(None, 0, 0))(p, x, y)

    return f, (params_of(3, 4), torch.randn(6, 4), torch.randn(6, 3))


@case
def gradients_by_sample_of_a_classifier():
    def loss(p, x, y):
        return F.cross_entropy(F.linear(x, *p).unsqueeze(0), y.unsqueeze(0))

    def f(p, x, y):
        return vmap(grad_and_value(loss), in_dims=(None, 0, 0))(p, x, y)

    return f, (params_of(3, 4), torch.randn(6, 4), torch.randint(0, 3, (6,)))


@case
def gradients_by_sample_of_a_module():
    m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def loss(p, x, y):
        return F.mse_loss(functional_call(m, p, (x,)), y)

    def f(x, y):
        p = {k: v.detach() for k, v in m.named_parameters()}
        return vmap(grad(loss), in_dims=(None, 0, 0))(p, x, y)

    return f, (torch.randn(6, 4), torch.randn(6, 3))


@case
def gradients_of_a_batch():
    return lambda x: grad(lambda t: vmap(lambda r: r.prod())(t).sum())(x), (torch.randn(3, 4),)


@case
def jacobians():
    def f(x):
        g = lambda t: (t.sin() @ t, t.exp() * t.sum())  # noqa: E731
        return jacrev(g)(x), jacfwd(g)(x)

    return f, (torch.randn(4),)


@case
def jacobians_by_two_arguments():
    def f(x, y):
        g = lambda a, b: a @ b  # noqa: E731
        return jacrev(g, argnums=(0, 1))(x, y), jacfwd(g, argnums=(0, 1))(x, y)

    return f, (torch.randn(2, 3), torch.randn(3))


@case
def jacobians_with_more():
    def f(x):
        g = lambda t: (t**2, t.sum())  # noqa: E731
        return (
            jacrev(g, has_aux=True)(x),
            jacfwd(g, has_aux=True)(x),
            jacrev(lambda t: t**3, chunk_size=2)(x),
        )

    return f, (torch.randn(3),)


@case
def hessians():
    def f(x):
        g = lambda t: (t.sin() * t.prod()).sum()  # noqa: E731
        return hessian(g)(x), jacrev(jacrev(g))(x), jacfwd(jacfwd(g))(x)

    return f, (torch.randn(3),)


@case
def hessians_by_sample():
    def f(w, x):
        return vmap(hessian(lambda a, b: torch.tanh(a @ b).sum()), in_dims=(None, 0))(w, x)

    return f, (torch.randn(3), torch.randn(4, 3))


@case
def a_jacobian_vector_product():
    def f(x, t):
        return jvp(lambda a: (a.sin() * a, a.sum()), (x,), (t,))

    return f, (torch.randn(3), torch.randn(3))


@case
def a_jvp_of_two():
    def f(x, y, t):
        g = lambda a, b: (a @ b, b.exp())  # noqa: E731
        return jvp(g, (x, y), (t, y * 2), has_aux=True)

    return f, (torch.randn(2, 3), torch.randn(3), torch.randn(2, 3))


@case
def jvps_in_each_other():
    def f(x):
        inner = lambda a: jvp(lambda b: b**3, (a,), (torch.ones_like(a),))[1]  # noqa: E731
        return jvp(inner, (x,), (torch.ones_like(x),)), grad(lambda a: inner(a).sum())(x)

    return f, (torch.randn(3),)


@case
def an_ensemble():
    models = [nn.Linear(3, 2) for _ in range(4)]
    params, buffers = stack_module_state(models)
    params = {k: v.detach() for k, v in params.items()}

    def f(p, b, x):
        return vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))(
            p, b, x
        )

    return f, (params, buffers, torch.randn(5, 3))


@case
def products_with_a_vanishing_tangent():
    """0 * inf is 0 where torch has no tangent; a number has its own dtype there."""

    def f(x, s):
        g = lambda a: ((a.sin() * a).sum(), torch.ldexp(a, a))  # noqa: E731
        return (
            hessian(lambda a: g(a)[0])(x),
            jvp(g, (x,), (x,)),
            jvp(lambda a: torch.ldexp(a, s), (s,), (s,)),
        )

    return f, (torch.tensor([1.0, float("inf"), 2.0]), torch.tensor(3.0))


@case
def an_ensemble_of_frozen_models():
    models = [nn.Sequential(nn.Linear(3, 2), nn.Dropout()).requires_grad_(False) for _ in range(4)]

    def f(x):
        state = stack_module_state(models)
        run = lambda state, x: functional_call(models[0], state, (x,))  # noqa: E731
        return vmap(run, in_dims=(0, None), randomness="same")(state, x)

    return f, (torch.randn(5, 3),)


@case
def named_results():
    def f(x):
        return vmap(lambda r: torch.topk(r, 2))(x), vmap(torch.sort)(x)

    return f, (torch.randn(3, 5),)


@case
def gradients_by_sample_of_a_transformer():
    m = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64)

    def loss(p, x):
        return functional_call(m, p, (x.unsqueeze(0),)).pow(2).mean()

    def f(p, x):
        return vmap(grad(loss), in_dims=(None, 0), randomness="different")(p, x)

    params = {k: v.detach() for k, v in m.named_parameters()}
    return f, (params, torch.randn(3, 4, 8, dtype=torch.float64))


@case
def a_step_through_a_step():
    def f(w, x, y):
        loss = lambda w: ((x @ w - y) ** 2).mean()  # noqa: E731
        return grad(lambda w: loss(w - 0.1 * grad(loss)(w)))(w)

    return f, (torch.randn(4), torch.randn(3, 4), torch.randn(3))


# ------------------------------------------------------------------------------------ randomness


@case
def random_numbers_that_differ():
    def f(x):
        return vmap(lambda r: F.dropout(r) + torch.randn(2), randomness="different")(x)

    return f, (torch.randn(3, 2),)


@case
def random_numbers_that_are_the_same():
    return lambda x: vmap(lambda r: r + torch.rand_like(r), randomness="same")(x), (
        torch.randn(3, 2),
    )


@case
def dropout_under_a_gradient():
    return lambda x: grad(lambda t: F.dropout(t, 0.5).sum())(x), (torch.randn(50),)


@pytest.mark.parametrize("name", CASES)
def test_as_eager_in_one_graph(name):
    f, args = CASES[name]()
    check(f, *args)


@pytest.mark.parametrize("name", CASES)
def test_the_replay_of_the_graph(name):
    """The graph as another back end gets it."""
    f, args = CASES[name]()
    compiled = oxyfuel.compile(f, fullgraph=True, backend="eager")
    for _ in range(2):
        torch.manual_seed(1)
        expected = f(*args)
        torch.manual_seed(1)
        assert_same(compiled(*args), expected)


@pytest.mark.parametrize("name", CASES)
def test_both_recordings_are_equal(name, compared):  # noqa: F811
    f, args = CASES[name]()
    oxyfuel.compile(f, fullgraph=True)(*args)
    ((taken, replayed),) = compared
    assert description(taken) == description(replayed)


def test_code_that_asks_for_transforms():
    def asks(x):
        return x * 3 if torch._C._are_functorch_transforms_active() else pow(x, 2)

    def f(x):
        return asks(x), torch.func.vmap(asks)(x), torch.func.grad(lambda x: asks(x).sum())(x)

    x = torch.randn(3)
    torch.testing.assert_close(oxyfuel.compile(f)(x), f(x))
    assert oxyfuel.stats()["graph_breaks"] == 0
