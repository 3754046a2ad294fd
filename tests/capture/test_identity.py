"""`is` between values that guards look at by value: each call's own answer, in one graph, also
behind breaks."""

import collections
import copy
import operator

import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict_without_grad"), pytest.mark.filterwarnings("ignore")]

Point = collections.namedtuple("Point", "x y")


class Holder:
    """Has an attribute that the captured code reads."""

    def __init__(self, value):
        self.value = value

    def method(self):
        return self.value


def another(value):
    """An equal value in an object of its own."""
    if isinstance(value, str):
        return "".join(list(value))
    if isinstance(value, bytes):
        return bytes(bytearray(value))
    if isinstance(value, Point):
        return Point(*value)
    if isinstance(value, tuple):
        return (*value,)
    if isinstance(value, complex):
        return complex(value.real, value.imag)
    if isinstance(value, float):
        return float.fromhex(value.hex())
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return int(str(value))


VALUES = {
    "str": "abcdef",
    "float": 1000.5,
    "nan": float("nan"),
    "int": 100_000,
    "complex": 2 + 3j,
    "bytes": b"abcdef",
    "tuple": (1, 2.5),
    "named": Point("a", 1000),
    "device": torch.device("cpu"),
}
held = None


def arguments(a, b, x):
    return a is b, x + 1


def negated(a, b, x):
    return a is not b, x + 1


def by_operator(a, b, x):
    return operator.is_(a, b), operator.is_not(a, b), x + 1


def attributes(a, b, x):
    return a_holder.value is b_holder.value, x + 1


def items(a, b, x):
    return pair[0] is pair[1], pair[0] is table["b"], x + 1


def globals_(a, b, x):
    return held is b, a is held, x + 1


def between_frames(a, b, x):
    def inner(c):
        return c is b

    return inner(a), inner(b), x + 1


def handed_on(a, b, x):
    if a == b or a != a:
        return [a, b], a is b, x + 1
    return None


def copied(a, b, x):
    both = copy.deepcopy([a, b])
    return both[0] is both[1], both[0] is a, both[1] is a, x + 1


a_holder, b_holder, pair, table = Holder(0), Holder(0), [0, 0], {"b": 0}
FUNCTIONS = [
    arguments,
    negated,
    by_operator,
    attributes,
    items,
    globals_,
    between_frames,
    handed_on,
    copied,
]


def result(function, a, b, x):
    global held
    a_holder.value, b_holder.value, pair[:], table["b"], held = a, b, [a, b], b, a
    out = function(a, b, x)
    if function.__name__ == "handed_on" and out is not None:
        return [out[0][0] is a, out[0][1] is b, out[1], out[2].tolist()]
    return [*out[:-1], out[-1].tolist()] if out is not None else None


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", VALUES)
def test_one_object_or_two(kind, function):
    value, x = VALUES[kind], torch.ones(2)
    for break_at in (0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 14):
        oxyfuel.reset()
        compiled = oxyfuel.compile(function, backend="eager", options={"break_at": break_at})
        calls = [(value, value), (value, another(value)), (another(value), value)]
        fresh = another(value)
        for a, b in [*calls, (fresh, fresh), *calls]:
            assert run_named(compiled, function, a, b, x) == result(function, a, b, x), break_at


def run_named(compiled, function, a, b, x):
    def call(a, b, x):
        return compiled(a, b, x)

    call.__name__ = function.__name__
    return result(call, a, b, x)


def of_the_code(a):
    text, number = "abcdef", 1000.5
    return a is text, a is number, chosen(a) is a


def chosen(a):
    return "abcdef" if a == "abcdef" else 1000.5


def test_a_constant_of_the_code():
    compiled = oxyfuel.compile(of_the_code, backend="eager")
    text = of_the_code.__code__.co_consts[1][0]
    for a in (text, another(text), text, 1000.5, another(1000.5), text):
        assert compiled(a) == of_the_code(a)


def test_methods_and_functions():
    def same(a, b):
        return a is b

    def made(n):
        def inner():
            return n

        return inner

    compiled = oxyfuel.compile(same, backend="eager")
    holder = Holder(1)
    method, other, add = holder.method, holder.method, [].append
    one, two = made(1), made(1)
    for a, b in (
        (method, method),
        (method, other),
        (add, add),
        (add, add.__self__.append),
        (one, one),
        (one, two),
    ):
        for _ in range(2):
            assert compiled(a, b) == (a is b)
            assert compiled(b, a) == (a is b)


def test_tuples_of_tensors():
    def same(a, b):
        return a is b, a[0] is b[0], [a, b]

    compiled = oxyfuel.compile(same, backend="eager")
    x, y = torch.ones(2), torch.ones(2)
    a, b = (x, 1), (x, 1)
    for p, q in ((a, a), (a, b), ((x, 2), (y, 2)), (b, b)):
        one, two, both = compiled(p, q)
        assert (one, two) == (p is q, p[0] is q[0])
        assert both[0] is p and both[1] is q


SHARING = {
    "is": lambda a, b: (a + 1, a is b),
    "keys": lambda a, b: (a + 1, len({a: 1, b: 2})),
    "written": lambda a, b: (a.add_(1), b * 2, a is b),
}


@pytest.mark.parametrize("name", SHARING)
def test_tensors_of_one_memory(name):
    """Captured as two tensors, they may come as one."""
    function, memory = SHARING[name], torch.zeros(6)
    whole = memory[:3]
    calls = [(memory[:3], memory[2:5]), (whole, whole.view(3)), (whole, whole)]
    for order in (calls, calls[::-1]):
        oxyfuel.reset()
        compiled = oxyfuel.compile(function, backend="eager")
        for a, b in (order[0], *order):
            memory.zero_()
            expected = str(function(a, b))
            memory.zero_()
            assert str(compiled(a, b)) == expected


def test_one_graph():
    compiled = oxyfuel.compile(arguments, backend="eager", fullgraph=True)
    text = another("abcdef")
    for _ in range(3):
        assert compiled(text, text, torch.ones(2))[0] is True
    assert oxyfuel.stats()["graphs"] == 1
    assert compiled(text, another(text), torch.ones(2))[0] is False
    assert oxyfuel.stats()["graphs"] == 2
    # What is made anew at each call is no reason to capture anew.
    for _ in range(3):
        assert compiled(text, another(text), torch.ones(2))[0] is False
    assert oxyfuel.stats()["graphs"] == 2


def test_equal_small_values_are_one_object():
    compiled = oxyfuel.compile(lambda a, b, x: (a is b, x + 1), backend="eager", fullgraph=True)
    for a, b in ((7, 7), ("x", "x"), (None, None), ((), ()), (b"", b""), (True, True)):
        assert compiled(a, b, torch.ones(2))[0] is True


def test_what_deepcopy_meets_again():
    def copies(a, b, x):
        both = copy.deepcopy({"a": a, "b": b})
        return both["a"] is both["b"], both, x + 1

    for value in ([1, 2], {"a": 1}, (1, [2]), Holder(3)):
        compiled = oxyfuel.compile(copies, backend="eager")
        other = copy.deepcopy(value)
        for a, b in ((value, other), (value, value), (other, value), (other, other)):
            assert compiled(a, b, torch.ones(2))[0] is (a is b)


def test_numbers_of_parameters_and_modules():
    """One that a module has twice is counted once; other parameters are another capture."""
    shared = torch.nn.Linear(2, 2)
    layers = torch.nn.ModuleList([shared, torch.nn.Linear(2, 2), shared])

    def program(x):
        seen, out = set(), []
        for layer in layers:
            for p in layer.parameters():
                if id(p) not in seen:
                    seen.add(id(p))
                    out.append(p.sum() * x)
        return len({id(layer): layer for layer in layers}), len(seen), torch.stack(out)

    compiled, x = oxyfuel.compile(program, fullgraph=True), torch.ones(2)
    for _ in range(2):
        for a, b in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(a, b)
        layers[1].weight = shared.weight


def test_containers_find_nan_by_its_identity():
    def found(a, b, items):
        return a in items, items.count(a), [a] == [b], a in (b,), a in {b}, a in {b: 1}

    compiled = oxyfuel.compile(found, backend="eager")
    one, two = float("nan"), float("nan")
    for a, b in ((one, one), (one, two), (two, one), (two, two), (one, one)):
        for items in ([one], [1.0, two]):
            assert compiled(a, b, items) == found(a, b, items)


def _keyed(value):
    ordered = collections.OrderedDict([("first", 0), (value, 1)])
    return [{"first": 0, value: 1}, ordered, {value}, frozenset([value])]


@pytest.mark.parametrize("kind", ["str", "int", "float", "bytes", "tuple"])
@pytest.mark.parametrize("place", range(4))
def test_keys_of_dicts_and_items_of_sets(kind, place):
    def found(container, name, x):
        return [k is name for k in container], [k is not name for k in container], x + 1

    # Containers of tuples are left to eager.
    compiled = oxyfuel.compile(found, backend="eager", fullgraph=kind != "tuple")
    key, other = VALUES[kind], another(VALUES[kind])
    same = _keyed(key)[place]
    for container, name in (
        (same, key),
        (same, other),
        (_keyed(other)[place], key),
        (_keyed(other)[place], other),
        (same, key),
    ):
        expected = found(container, name, torch.ones(2))
        assert compiled(container, name, torch.ones(2))[:2] == expected[:2]


def test_a_key_that_is_exchanged_for_an_equal_one():
    def found(table, name, x):
        return [k is name for k in table], x + 1

    compiled = oxyfuel.compile(found, backend="eager", fullgraph=True)
    name, table = another("abcdef"), {}
    for key in (name, another(name), name):
        table.clear()
        table[key] = 1
        assert compiled(table, name, torch.ones(2))[0] == [key is name]


def test_keys_of_objects_attributes():
    def found(holder, name, x):
        return [k is name for k in holder.__dict__], x + 1

    compiled = oxyfuel.compile(found, backend="eager", fullgraph=True)
    for key, name in (("value", "value"), ("value", another("value"))):
        assert compiled(Holder(1), name, torch.ones(2))[0] == [key is name]


def test_keys_of_two_dicts():
    def found(one, two, x):
        return [a is b for a in one for b in two], x + 1

    compiled = oxyfuel.compile(found, backend="eager", fullgraph=True)
    a, b = another("abcdef"), another("abcdef")
    for one, two in ((a, a), (a, b), (b, b), (b, a), (a, a)):
        assert compiled({one: 1}, {two: 1}, torch.ones(2))[0] == [one is two]
