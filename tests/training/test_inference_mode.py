"""torch.inference_mode() in captured code: what is made there are inference tensors, and what is
around it has its gradients; one graph, unless a graph cannot have it."""

import pytest
import torch
import torch.nn.functional as F
from model_check import first_difference
from torch import nn

import oxyfuel

inference = torch.inference_mode


def plain(x, w):
    with inference():
        y = x.sin() + 1
    return y


def around(x, w):
    with inference():
        y = x.sin() + 1
    return y.clone() * w, y + 1, y.view(1, -1), [y, y[1:]], y.detach()


def two(x, w):
    with inference():
        y = x.sin() + 1
    z = x * w
    with inference():
        y.add_(1)
        u = y * z
    return u, y, z


def normal_written(x, w):
    y = x * w
    with inference():
        y.detach().add_(1)
        s = y.sum()
    return y + 1, s


def linear_in_it(x, w):
    with inference():
        y = x.exp()
    return (w - y).pow(2) + (y + w)


def asked(x, w):
    before = torch.is_inference_mode_enabled()
    with inference():
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        y = x.sin()
        kinds = y.is_inference(), x.is_inference(), y[0].is_inference(), torch.is_inference(y)
    after = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    kinds += y.is_inference(), y.clone().is_inference(), y[0].is_inference()
    return before, inside, kinds, after


def nested(x, w):
    with torch.no_grad(), inference():
        with inference(mode=True):
            y = x * w
        with torch.no_grad():
            z = y * 2
    return y, z, x * w


def switched_off(x, w):
    with torch.no_grad():
        with inference(False):
            y = x * w
        return y, x * w


def raised(x, w):
    try:
        with inference():
            y = x + 1
            raise ValueError
    except ValueError:
        return y, y.clone() * w


def returned(x, w):
    with inference():
        return x + 1, x, [x * w]


def decorated(x, w):
    @inference()
    def f(a):
        return a * w

    @torch.inference_mode
    def g(a):
        return a + 2

    return f(x), g(x), x * w


def made(x, w):
    with inference():
        z, r = torch.zeros(3), torch.rand(3)
        t = torch.tensor([1.0, 2.0, 3.0])
    return z, r, t, z.clone() + r + w


def several(x, w):
    with inference():
        a, b = x.repeat(4, 1).split(2)
        most = a.max(0)
    return a, b, most.values, most.indices


def given_out(x, w):
    out = torch.empty(3)
    with inference():
        torch.add(x, 1, out=out)
        p = torch.add(x, 1, out=torch.empty(3))
    return out, p


def itself(x, w):
    with inference():
        y = x.contiguous()
        z = x.to(torch.float32)
    return y is x, z * w


def generator(x, w):
    @inference()
    def rows(a):
        yield a + 1
        yield a + 2

    return [r.clone() * w for r in rows(x)]


def cast(x, w):
    with inference(), torch.autocast("cpu", torch.bfloat16):
        y = torch.mm(x.view(1, 3), x.view(3, 1))
    return y


def gradient(x, w):
    with inference():
        target = x.sin()
    target = target.clone()
    (g,) = torch.autograd.grad(((w * x - target) ** 2).sum(), w)
    return g, target


ONE_GRAPH = [plain, around, two, normal_written, linear_in_it, asked, nested, switched_off, raised]
ONE_GRAPH += [returned, decorated, made, several, given_out, itself, generator, cast, gradient]


def view_of_normal(x, w):
    with inference():
        v = x[1:]
    return v


def view_used(x, w):
    with inference():
        v = x[1:]
    return v * w[1:]


def written_behind(x, w):
    with inference():
        y = x.sin()
    y.add_(1)
    return y


def saved(x, w):
    with inference():
        y = x.sin()
    return y * w


def off_inside(x, w):
    with inference():
        with inference(False):
            y = x * w
    return y


def grad_mode_inside(x, w):
    with inference():
        with torch.enable_grad():
            y = x * w
    return y


def asks_for_data(x, w):
    before = x * 2
    with inference():
        y = x + 1
        if y.sum() > 0:
            y = y * 2
    return y, before * w


def version(x, w):
    with inference():
        y = x + 1
    return y._version


def leaf(x, w):
    with inference():
        return torch.ones(3, requires_grad=True)


def gradient_inside(x, w):
    loss = (x * w).sum()
    with inference():
        return torch.autograd.grad(loss, w)


def cast_around(x, w):
    with torch.autocast("cpu", torch.bfloat16), inference():
        return torch.mm(x.view(1, 3), w.view(3, 1))


def transformed(x, w):
    with inference():
        return torch.func.vmap(lambda a: a * 2)(x)


BROKEN = [view_of_normal, view_used, written_behind, saved, off_inside, grad_mode_inside]
BROKEN += [asks_for_data, version, leaf, gradient_inside, cast_around, transformed]


def seen(out):
    if isinstance(out, torch.Tensor):
        return out.detach().clone(), out.is_inference(), out.requires_grad
    return [seen(o) for o in out] if isinstance(out, (list, tuple)) else out


def run(f, mode, calls=3):
    out = []
    torch.manual_seed(0)
    for _ in range(calls):
        x, w = torch.randn(3), torch.randn(3, requires_grad=True)
        try:
            with mode():
                found = f(x, w)
        except RuntimeError as e:
            out.append(str(e).split("\n")[0])
            continue
        out.append(seen(found))
        roots = (
            [t for t in found if isinstance(t, torch.Tensor)]
            if not torch.is_tensor(found)
            else [found]
        )
        roots = [t for t in roots if t.requires_grad and not t.is_leaf]
        if roots:
            torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
            out.append([w.grad, x])
    return out


@pytest.mark.parametrize("f", ONE_GRAPH + BROKEN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_blocks(f, mode):
    assert not first_difference(run(oxyfuel.compile(f), mode), run(f, mode))
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == stats["grad_fallbacks"] == 0
    if f in ONE_GRAPH and mode is torch.enable_grad:
        assert (stats["graphs"], stats["graph_breaks"]) == (1, 0)


class Model(nn.Module):
    """A teacher of the same class, and what it has said last."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.heard = None

    @torch.inference_mode()
    def look(self, x):
        return F.softmax(self.last(self.first(x).relu()), -1)

    def forward(self, x):
        self.heard = self.look(x)
        return F.kl_div(
            F.log_softmax(self.last(self.first(x).relu()) * 2, -1),
            self.heard.clone(),
            reduction="batchmean",
        )


@pytest.mark.parametrize("whole", [False, True])
def test_a_method_inside_of_training(whole):
    def train(on):
        torch.manual_seed(0)
        model = Model()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)

        def step(x):
            optimizer.zero_grad()
            loss = forward(x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        forward = oxyfuel.compile(model) if on and not whole else model
        f = oxyfuel.compile(step) if on and whole else step
        losses = [f(torch.ones(2, 4) * i) for i in range(4)]
        return losses, model.heard.clone(), model.heard.is_inference(), list(model.parameters())

    assert not first_difference(train(True), train(False))
    assert oxyfuel.stats()["graph_breaks"] == oxyfuel.stats()["fallbacks"] == 0


def test_a_cache_that_lives_on():
    def make():
        held = {}

        def f(x):
            with inference():
                held["y"] = held.get("y", x) + 1
                if "z" in held:
                    held["z"].add_(x)
                else:
                    held["z"] = x * 2
            return held["y"].clone(), held["z"].clone()

        return f, held

    def run(on):
        f, held = make()
        f = oxyfuel.compile(f) if on else f
        out = [f(torch.ones(3) * i) for i in range(4)]
        return out, [t.is_inference() for t in held.values()]

    assert not first_difference(run(True), run(False))
