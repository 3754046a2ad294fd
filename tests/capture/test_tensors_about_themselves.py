"""What a tensor says of itself and no graph has: whose view it is, where it lies in autograd's
graph and in memory. The value of each call, or a break."""

import pytest
import torch
import torch._dynamo

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")

ANSWERS = {
    "views": lambda x, y, z, q: [t._is_view() for t in (x, y, z, q, q.view(-1))],
    "bases": lambda x, y, z, q: (x._base is None, y._base is x, z._base is None, q._base is None),
    "leaves": lambda x, y, z, q: [t.is_leaf for t in (x, y, z, q)],
    "nodes": lambda x, y, z, q: [t.grad_fn is None for t in (x, y, z, q)],
    "output_nr": lambda x, y, z, q: [t.output_nr for t in (x, y, z, q)],
    "versions": lambda x, y, z, q: (x._version, q.add_(1)._version),
    "places": lambda x, y, z, q: (
        x.data_ptr() == y.data_ptr(),
        x.const_data_ptr() == z.data_ptr(),
        x.untyped_storage().data_ptr() == z.untyped_storage().data_ptr(),
        x.data_ptr() == q.data_ptr(),
    ),
    "sets": lambda x, y, z, q: (x.is_set_to(z), x.is_set_to(y), x.is_set_to(q)),
}


def arguments():
    b, w = torch.arange(12.0), torch.ones(4, 3, requires_grad=True)
    inner = w * 2
    return [b, b.view(3, 4), b[1:], w[1:], w.unbind()[1], w.detach(), w, inner, inner.unbind()[1]]


@pytest.mark.parametrize("anew", [False, True], ids=["one capture", "a capture each"])
@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name, anew):
    def f(x):
        y, z, q = x[..., 1:], x.detach(), x * 2
        return ANSWERS[name](x, y, z, q)

    compiled = oxyfuel.compile(f)
    for x in arguments():
        if anew:
            oxyfuel.reset()
        assert compiled(x) == f(x)


def counted(x):
    x.count = getattr(x, "count", 0) + 1
    return x * x.count


def made(x):
    y, z = x + 1, x * 2
    y.title, y.parts, z.unseen = "y", [x, y, z], 3
    z.gone = 1
    del z.gone
    return y, hasattr(z, "gone"), y.parts[2] * z.unseen


def behind_a_break(x):
    y = x + 1
    y.scale = x * 3
    torch._dynamo.graph_break()
    return y * y.scale, y


def deleted(x):
    x.mark = 1
    del x.mark
    try:
        return x.mark
    except AttributeError as e:
        return x + 1, str(e)


def in_front_of_a_method(x):
    x.size, y = 3, x + 1
    y.t = x.size
    return y * y.t, x.size


def by_the_methods_of_object(x):
    y = x + 1
    object.__setattr__(x, "mark", 2)
    y.__setattr__("mark", 3)
    y.__setattr__("gone", 4)
    object.__delattr__(y, "gone")
    return y, x.mark, object.__getattribute__(y, "mark"), hasattr(y, "gone")


FUNCTIONS = {
    counted: 0,
    made: 0,
    behind_a_break: 1,
    deleted: 0,
    in_front_of_a_method: 3,  # an input that hides a method is another case
    by_the_methods_of_object: 0,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_attributes_of_the_users(function):
    """As eager leaves them with an input, and with a tensor that is given away."""

    def run(f):
        x, out = torch.arange(3.0), []
        for _ in range(4):
            result = f(x)
            first = result[0] if isinstance(result, tuple) else result
            out += [result, vars(x), vars(first)]
        return str(out)

    assert run(oxyfuel.compile(function)) == run(function)
    assert oxyfuel.stats()["graph_breaks"] == FUNCTIONS[function]


def test_an_attribute_of_one_of_two_tensors():
    def f(x, y):
        x.mark = 1
        return hasattr(y, "mark")

    compiled = oxyfuel.compile(f)
    x = torch.ones(2)
    assert [compiled(torch.ones(2), x), compiled(x, x), compiled(x, torch.ones(2))] == [
        False,
        True,
        False,
    ]


HIDING = {
    "an argument": lambda t, holder: t.sin(),
    "in a container": lambda t, holder: holder["items"][0].sin() + t.sin(),
    "of a module": lambda t, holder: holder["module"].weight.sin() + t,
    "a size": lambda t, holder: t * t.size(0),
}


@pytest.mark.parametrize("parameter", [False, True])
@pytest.mark.parametrize("name", HIDING)
def test_what_hides_a_method_of_a_tensor(name, parameter):
    """It comes, becomes another one and goes, as an attribute or with another `__dict__`."""
    f = HIDING[name]
    make = torch.nn.Parameter if parameter else torch.clone

    def run(f):
        out = []
        module = torch.nn.Linear(3, 3)
        module.weight = torch.nn.Parameter(torch.ones(3, 3))
        x, inner = make(torch.ones(3)), make(torch.ones(3))
        holder = {"items": [inner], "module": module}

        def call():
            with torch.no_grad():
                out.append(f(x, holder).mean())

        call()
        for t in (x, inner, module.weight):
            t.mark = 1
            call()
            t.sin, t.size = lambda: torch.full((3,), 7.0), lambda i: 9
            call()
            call()
            t.sin = lambda: torch.full((3,), 8.0)
            call()
            del t.sin, t.size
            call()
            t.__dict__ = {"sin": lambda: torch.full((3,), 9.0), "size": lambda i: 7}
            call()
            t.__dict__ = {}
            call()
        return out

    compiled = oxyfuel.compile(f)
    torch.testing.assert_close(run(compiled), run(f))


def test_what_hides_a_method_when_it_is_captured():
    def f(x):
        return x.sin()

    compiled, x = oxyfuel.compile(f), torch.ones(2)
    x.sin, x.cos = lambda: 1, lambda: 2
    assert compiled(x) == 1
    x.cos = lambda: 3
    assert compiled(x) == 1 and oxyfuel.stats()["recompiles"] == 0
    x.sin = lambda: 2
    assert compiled(x) == 2
    del x.sin
    torch.testing.assert_close(compiled(x), torch.ones(2).sin())


def made_to_be(x, cls):
    x = x + 1
    x._is_buffer = x._is_param = True
    return isinstance(x, cls), isinstance(torch.nn.Buffer(x, persistent=False), cls)


def told_to_be(x, cls):
    before = isinstance(x, cls)
    x._is_param = True
    return before, isinstance(x, cls), isinstance(x, torch.Tensor)


@pytest.mark.parametrize("cls", [torch.nn.Parameter, torch.nn.Buffer])
@pytest.mark.parametrize("function", [isinstance, made_to_be, told_to_be])
def test_parameters_and_buffers_by_an_attribute(function, cls):
    def f(x):
        return function(x, cls)

    def marked(attribute):
        x = torch.ones(2)
        setattr(x, attribute, True)
        return x

    compiled = oxyfuel.compile(f)
    for attribute in ("_is_param", "_is_buffer", "other", "_is_param"):
        assert compiled(marked(attribute)) == f(marked(attribute))
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_buffers_of_a_module_that_is_made():
    class Made(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = torch.nn.Buffer(torch.ones(2))
            self.left_out = torch.nn.Buffer(torch.ones(3), persistent=False)

    def f():
        made = Made()
        return [name for name, _ in made.named_buffers()], list(made.state_dict())

    assert oxyfuel.compile(f)() == f()


OWN_METHODS = {
    "repr": lambda p: p.__repr__(),
    "of_the_class": lambda p: type(p).__repr__(p),
    "of_the_base": lambda p: super(torch.nn.Parameter, p).__repr__(),
    "name": lambda p: p.__repr__.__qualname__,
    "copy": lambda p: type(p.__deepcopy__({})),
    "reduced": lambda p: p.__reduce_ex__(2)[0],
}


@pytest.mark.parametrize("name", OWN_METHODS)
def test_methods_that_a_parameter_has_of_its_own(name):
    def made(x):
        return OWN_METHODS[name](torch.nn.Parameter(x))

    x = torch.ones(2)
    assert oxyfuel.compile(made)(x) == made(x)
    p = torch.nn.Parameter(x)
    assert oxyfuel.compile(OWN_METHODS[name])(p) == OWN_METHODS[name](p)
