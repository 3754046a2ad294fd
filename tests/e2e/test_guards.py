"""Guards: every kind, and every way to change what they look at, with what was cached compared to
the full walk."""

import collections
import gc
import sys
import types
import weakref

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from oxyfuel._C import GuardKind as K
from oxyfuel._C import GuardLevel as Level
from oxyfuel._C import GuardProgram, GuardSet, SourceTable

import oxyfuel


def one(kind, value, expected=None, number=0):
    """A program with one guard on its only argument, which holds for `value`."""
    t, g = SourceTable(), GuardSet()
    g.add(kind, t.local(0, "x"), expected, number)
    p = GuardProgram(t, g, [0])
    assert p.why_not((value,)) is None and p.check((value,)) == [value]
    return p


def agree(p, *locals_):
    """The cached check, the full one and the explanation say the same; returns whether all
    holds."""
    full, cached = p.check_fully(locals_), p.check(locals_)
    assert (full is None) == (cached is None) == (p.why_not(locals_) is not None)
    if full is not None:
        assert all(a is b for a, b in zip(full, cached, strict=True))
    return full is not None


def attr(t, base, name):
    return t.dict_item(t.instance_dict(base), name)


CONSTANTS = [None, True, 1, 1.0, 0.0, -0.0, float("nan"), 1j, "a", b"a", (), (1, "a"), (1.0, "a")]
CONSTANTS += [frozenset({1, 2}), frozenset({1.0, 2}), slice(1, None, 2), slice(1, None, 3)]
CONSTANTS += [torch.float32, torch.int64, torch.strided, torch.device("cpu"), torch.device("meta")]
CONSTANTS += [torch.preserve_format, torch.Size([1, 2]), 2**80, -(2**80), "a" * 300, (1, (2, (3,)))]


def test_constants_equal_only_themselves():
    for i, a in enumerate(CONSTANTS):
        p = one(K.Equals, a, a)
        assert [agree(p, b) for b in CONSTANTS] == [i == j for j in range(len(CONSTANTS))], a


def test_equal_constants_that_are_other_objects():
    for text in ["2**80 + x", "1.5 + x", "'ab' * (x + 9)", "(x, (x, 'a'))", "slice(x, x + 300)"]:
        first, second = (eval(text, {"x": int("0")}) for _ in range(2))
        assert agree(one(K.Equals, first, first), second)
    assert agree(one(K.Equals, torch.device("cpu"), torch.device("cpu")), torch.device("cpu"))


W = torch.nn.Parameter(torch.ones(2))
PLAIN, STRIDED, DEEP = torch.ones(2, 3), torch.ones(2, 6)[:, :3], torch.ones(1, 2, 1, 3)
DEEPEST = torch.ones(1, 1, 1, 1, 1, 2, 2)
KINDS = [
    (K.TypeIs, 1, int, 0, 1.0, "L['x'] is a float, was an int"),
    (K.IdIs, W, W, 0, 3, "L['x'] is another object: 3, was <Parameter object>"),
    (K.Equals, 3, 3, 0, 4, "L['x'] is 4, was 3"),
    (K.Equals, 3, 3, 0, "3", "L['x'] is '3' (str), was 3 (int)"),
    (K.Length, [1], None, 1, [], "L['x'] has length 0, had 1"),
    (K.Length, {1}, None, 1, 7, "L['x'] is an int, which has no length"),
    (K.HasKey, {"a": 1}, "a", 0, {}, "L['x'] has no key 'a', had one"),
    (K.LacksKey, {}, "a", 0, {"a": 1}, "L['x'] has the key 'a', had not"),
    (
        K.Keys,
        {"a": 1, "b": 2},
        ("a", "b"),
        0,
        {"b": 1, "a": 2},
        "L['x'] has the keys ['b', 'a'], had ['a', 'b']",
    ),
    (K.Keys, {}, (), 0, 5, "L['x'] is an int, was a dict"),
    (K.Number, torch.tensor(3), 3, 0, torch.tensor(4), "L['x'] no longer holds 3"),
    (K.Number, torch.tensor(0.5), 0.5, 0, torch.tensor([0.5, 1]), "L['x'] no longer holds 0.5"),
    (K.Number, torch.tensor(True), True, 0, 1, "L['x'] no longer holds True"),
    (K.Tensor, W, W, 0, torch.ones(1), "L['x'] is a Tensor, was a Parameter"),
    (K.Tensor, W.detach(), W.detach(), 0, W * 1, "L['x'] requires grad, did not"),
    (K.Tensor, PLAIN, PLAIN, 0, PLAIN.double(), "L['x'] is float64, was float32"),
    (K.Tensor, PLAIN, PLAIN, 0, PLAIN[:1], "L['x'] has the sizes [1, 3], had [2, 3]"),
    (K.Tensor, PLAIN, PLAIN, 0, PLAIN[0], "L['x'] has the sizes [3], had [2, 3]"),
    (K.Tensor, PLAIN, PLAIN, 0, STRIDED, "L['x'] has the strides [6, 1], had [3, 1]"),
    (
        K.Tensor,
        PLAIN,
        PLAIN,
        0,
        torch.ones(3, 3)[1:],
        "L['x'] begins at element 3 of its storage, began at 0",
    ),
    (
        K.Tensor,
        DEEP,
        DEEP,
        0,
        DEEP[:, :, :, :1],
        "L['x'] has the sizes [1, 2, 1, 1], had [1, 2, 1, 3]",
    ),
    (
        K.Tensor,
        DEEPEST,
        DEEPEST,
        0,
        DEEPEST.mT,
        "L['x'] has the strides [4, 4, 4, 4, 4, 1, 2], had [4, 4, 4, 4, 4, 2, 1]",
    ),
]


@pytest.mark.parametrize(("kind", "good", "expected", "number", "bad", "text"), KINDS)
def test_each_kind_says_why(kind, good, expected, number, bad, text):
    p = one(kind, good, expected, number)
    assert not agree(p, bad)
    assert p.why_not((bad,)) == (0, text)
    assert agree(p, good)


def test_missing_and_identities():
    class A:
        pass

    t, g = SourceTable(), GuardSet()
    x, y = t.local(0, "x"), t.local(1, "y")
    g.add(K.Missing, t.type_attribute(t.pinned(A, "A"), "f"))
    g.add(K.SameAs, x, other=y)
    p = GuardProgram(t, g)
    a, b = [], []
    assert agree(p, a, a) and not agree(p, a, b)
    assert p.why_not((a, b)) == (1, "L['x'] is no longer L['y']")
    A.f = 1
    assert not agree(p, a, a) and p.why_not((a, a)) == (0, "A.f is there, was not")
    del A.f
    assert agree(p, a, a)
    g = GuardSet()
    g.add(K.NotSameAs, x, other=y)
    p = GuardProgram(t, g)
    assert agree(p, a, b) and not agree(p, a, a)
    assert p.why_not((a, a))[1] == "L['x'] is now L['y']"


def test_text_and_sets():
    t, g = SourceTable(), GuardSet()
    d = attr(t, t.local(0, "self"), "_modules")
    w = t.dict_item(
        attr(t, t.dict_item(attr(t, t.dict_item(d, "layers"), "_modules"), "0"), "_parameters"), "w"
    )
    assert t.text(w) == "L['self'].layers[0].w"
    assert t.text(t.item(t.closure(t.pinned(agree, "agree"), 0), 1)) == "agree.__closure__[0][1]"
    assert (
        t.dict_item(d, "layers")
        == t.dict_item(d, "layers")
        != t.dict_item(d, 1)
        != t.dict_item(d, True)
    )
    for line in (3, 4):
        g.add(K.Equals, w, 1.5, stack=[("a/model.py", line, "forward", "h = x @ self.w")])
    assert len(g) == 1
    assert (
        GuardProgram(t, g).text() == "L['self'].layers[0].w == 1.5  # model.py:3  h = x @ self.w\n"
    )


class Plain:
    kind = "plain"


class Other(Plain):
    pass


class Slots:
    __slots__ = ("s",)


def make_function():
    cell = 1

    def f(a=2, *, b=3):
        return cell + a + b

    return f


class World:
    """Objects of every sort that sources go through, and one program that guards them all."""

    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        self.o = Plain()
        self.o.scale, self.o.items, self.o.pair, self.o.od = 1.5, [1, Plain()], (1, (2, 3)), None
        self.o.od = collections.OrderedDict(a=1, b=2)
        self.o.items[1].depth = 7
        self.slots = Slots()
        self.slots.s = 5
        self.f = make_function()
        self.table = {"a": 1, 2: "two"}
        self.program = self.make()

    def locals(self):
        return self.model, self.o, self.slots, self.f, self.table

    def make(self):
        t, g = SourceTable(), GuardSet()
        model, o, slots, f, table = (
            t.local(i, n) for i, n in enumerate(["model", "o", "slots", "f", "table"])
        )
        modules = attr(t, model, "_modules")
        g.add(K.TypeIs, model, torch.nn.Sequential)
        g.add(K.Keys, modules, ("0", "1"))
        fetch = []
        for name in "01":
            layer = t.dict_item(modules, name)
            g.add(K.TypeIs, layer, torch.nn.Linear)
            g.add(K.LacksKey, t.instance_dict(layer), "forward")
            weight = t.dict_item(attr(t, layer, "_parameters"), "weight")
            g.add(K.Tensor, weight, self.model[int(name)].weight)
            fetch.append(weight)
        g.add(K.TypeIs, o, Plain)
        g.add(K.LacksKey, t.instance_dict(o), "extra")
        g.add(K.Equals, attr(t, o, "scale"), 1.5)
        items = attr(t, o, "items")
        g.add(K.Length, items, None, 2)
        g.add(K.Equals, t.item(items, 0), 1)
        g.add(K.Equals, attr(t, t.item(items, 1), "depth"), 7)
        g.add(K.TypeIs, t.item(items, 1), Plain)
        pair = attr(t, o, "pair")
        g.add(K.Equals, t.item(t.item(pair, 1), 0), 2)
        g.add(K.Keys, attr(t, o, "od"), ("a", "b"))
        cls = t.pinned(Plain, "Plain")
        g.add(K.Equals, t.type_attribute(cls, "kind"), "plain")
        g.add(K.Missing, t.type_attribute(cls, "late"))
        g.add(K.Equals, t.attribute(slots, "s"), 5)
        g.add(K.Equals, t.cell_contents(t.closure(f, 0)), 1)
        g.add(K.Equals, t.default_(f, 0), 2)
        g.add(K.Equals, t.kw_default(f, "b"), 3)
        g.add(K.IdIs, t.code(f), self.f.__code__)
        g.add(K.Equals, t.dict_item(table, "a"), 1)
        g.add(K.Equals, t.dict_item(table, 2), "two")
        pinned = t.pinned(GLOBALS, "G")
        g.add(K.Equals, t.dict_item(pinned, "flag"), "on")
        g.add(K.NotSameAs, fetch[0], other=fetch[1])
        return GuardProgram(t, g, [*fetch, items, t.attribute(slots, "s")])

    def agree(self):
        return agree(self.program, *self.locals())


GLOBALS = {"flag": "on"}


def share_storage(w):
    w.model[1].weight.data = w.model[0].weight.data


def swap_data(w):
    a, b = w.model[0].weight, w.model[1].weight
    a.data, b.data = b.data, a.data


def in_place(method, *args):
    def change(w):
        with torch.no_grad():
            getattr(w.model[0].weight, method)(*args)

    return change


def new_data(make):
    def change(w):
        w.model[0].weight.data = make(w.model[0].weight.data)

    return change


def swap_tensors(w):
    torch.utils.swap_tensors(w.model[0].weight, torch.nn.Parameter(torch.ones(3, 2)))


def resize(w):
    w.model[0].weight.requires_grad_(False).resize_(1, 2).requires_grad_()


def reorder_modules(w):
    modules = w.model._modules
    modules["0"] = modules.pop("0")


def other_parameter(w):
    w.model[0].weight = torch.nn.Parameter(torch.ones(2, 2))


def new_dict(w):
    w.o.__dict__ = {**w.o.__dict__, "scale": 2.5}


def same_dict(w):
    w.o.__dict__ = dict(w.o.__dict__)


def swap_items(w):
    w.o.items[1] = Plain()


def write_many(w):
    for i in range(100):  # specialised stores
        w.o.noise = i


def shared_dict(w):
    w.o.__dict__ = w.o.items[1].__dict__


CHANGES = {  # what it does, whether the guards then hold, how it is undone
    "setattr": (lambda w: setattr(w.o, "scale", 2.5), False, lambda w: setattr(w.o, "scale", 1.5)),
    "setattr of an equal value": (lambda w: setattr(w.o, "scale", float("1.5")), True, None),
    "setattr of another type": (lambda w: setattr(w.o, "scale", 1), False, None),
    "delattr": (lambda w: delattr(w.o, "scale"), False, lambda w: setattr(w.o, "scale", 1.5)),
    "new attribute": (lambda w: setattr(w.o, "extra", 1), False, lambda w: delattr(w.o, "extra")),
    "attribute nobody looks at": (write_many, True, None),
    "new __dict__": (new_dict, False, lambda w: setattr(w.o, "scale", 1.5)),
    "copied __dict__": (same_dict, True, None),
    "__dict__ of another object": (shared_dict, False, None),
    "__class__": (
        lambda w: setattr(w.o, "__class__", Other),
        False,
        lambda w: setattr(w.o, "__class__", Plain),
    ),
    "__class__ below a list": (lambda w: setattr(w.o.items[1], "__class__", Other), False, None),
    "new parameter": (other_parameter, True, None),
    "frozen parameter": (
        lambda w: w.model[1].weight.requires_grad_(False),
        False,
        lambda w: w.model[1].weight.requires_grad_(True),
    ),
    "plain tensor as parameter": (
        lambda w: w.model[1]._parameters.__setitem__("weight", torch.ones(2, 2)),
        False,
        None,
    ),
    "parameters replaced": (
        lambda w: w.model[1]._parameters.__setitem__(
            "weight", torch.nn.Parameter(torch.ones(2, 2))
        ),
        True,
        None,
    ),
    "parameter of another shape": (
        lambda w: w.model[1]._parameters.__setitem__(
            "weight", torch.nn.Parameter(torch.ones(2, 3))
        ),
        False,
        None,
    ),
    "deleted parameter": (lambda w: w.model[1].__delattr__("weight"), False, None),
    "no parameter": (lambda w: setattr(w.model[1], "weight", None), False, None),
    "data": (new_data(torch.clone), True, None),
    "data of another dtype": (new_data(torch.Tensor.double), False, None),
    "data of another shape": (new_data(lambda t: t[:1]), False, None),
    "transposed data": (new_data(torch.t), False, None),
    "data with an offset": (new_data(lambda t: torch.ones(3, 2)[1:]), False, None),
    "swapped data": (swap_data, True, None),
    "shared data": (share_storage, False, None),
    "resize_": (resize, False, None),
    "set_": (in_place("set_", torch.ones(2, 2)), True, None),
    "set_ of another shape": (in_place("set_", torch.ones(4)), False, None),
    "t_": (in_place("t_"), False, in_place("t_")),
    "written": (in_place("zero_"), True, None),
    "swap_tensors": (swap_tensors, False, None),
    "module.double": (lambda w: w.model.double(), False, lambda w: w.model.float()),
    "order of the modules": (reorder_modules, False, None),
    "a name that shadows a submodule": (
        lambda w: w.model[0].__dict__.__setitem__("forward", abs),
        False,
        lambda w: w.model[0].__dict__.pop("forward"),
    ),
    "_parameters": (
        lambda w: setattr(w.model[1], "_parameters", dict(w.model[1]._parameters)),
        True,
        None,
    ),
    "tied": (lambda w: setattr(w.model[1], "weight", w.model[0].weight), False, None),
    "new layer": (lambda w: w.model.append(torch.nn.ReLU()), False, lambda w: w.model.pop(2)),
    "replaced layer": (lambda w: w.model.__setitem__(1, torch.nn.Linear(2, 2)), True, None),
    "layer of another class": (lambda w: w.model.__setitem__(1, torch.nn.ReLU()), False, None),
    "forward on the layer": (
        lambda w: setattr(w.model[0], "forward", abs),
        False,
        lambda w: delattr(w.model[0], "forward"),
    ),
    "class of a layer": (
        lambda w: setattr(w.model[1], "__class__", torch.nn.Bilinear),
        False,
        None,
    ),
    "list append": (lambda w: w.o.items.append(1), False, lambda w: w.o.items.pop()),
    "list item": (
        lambda w: w.o.items.__setitem__(0, 2),
        False,
        lambda w: w.o.items.__setitem__(0, 1),
    ),
    "object in a list": (swap_items, False, lambda w: setattr(w.o.items[1], "depth", 7)),
    "equal tuple": (lambda w: setattr(w.o, "pair", (9, (2, 4))), True, None),
    "other tuple": (lambda w: setattr(w.o, "pair", (9, (3, 4))), False, None),
    "order of an OrderedDict": (
        lambda w: w.o.od.move_to_end("a"),
        False,
        lambda w: w.o.od.move_to_end("b"),
    ),
    "slot": (lambda w: setattr(w.slots, "s", 6), False, lambda w: setattr(w.slots, "s", 5)),
    "empty slot": (lambda w: delattr(w.slots, "s"), False, lambda w: setattr(w.slots, "s", 5)),
    "cell": (lambda w: setattr(w.f.__closure__[0], "cell_contents", 2), False, None),
    "defaults": (lambda w: setattr(w.f, "__defaults__", (3,)), False, None),
    "no defaults": (lambda w: setattr(w.f, "__defaults__", None), False, None),
    "keyword defaults": (lambda w: w.f.__kwdefaults__.update(b=4), False, None),
    "code": (lambda w: setattr(w.f, "__code__", w.f.__code__.replace(co_name="g")), False, None),
    "another function": (lambda w: setattr(w, "f", make_function()), True, None),
    "dict item": (lambda w: w.table.update(a=2), False, lambda w: w.table.update(a=1)),
    "dict clear": (lambda w: w.table.clear(), False, lambda w: w.table.update({"a": 1, 2: "two"})),
    "another dict": (lambda w: setattr(w, "table", {"a": 1, 2: "two"}), True, None),
    "type attribute": (
        lambda w: setattr(Plain, "kind", "odd"),
        False,
        lambda w: setattr(Plain, "kind", "plain"),
    ),
    "type attribute appears": (
        lambda w: setattr(Plain, "late", 1),
        False,
        lambda w: delattr(Plain, "late"),
    ),
    "another type attribute": (lambda w: setattr(Plain, "noise", 1), True, None),
    "global": (lambda w: GLOBALS.update(flag="off"), False, lambda w: GLOBALS.update(flag="on")),
    "another global": (lambda w: GLOBALS.update(noise=object()), True, None),
    "another object": (lambda w: setattr(w, "o", Plain()), False, None),
    "the same in other objects": (
        lambda w: w.__dict__.update(World().__dict__ | {"program": w.program}),
        True,
        None,
    ),
}


@pytest.fixture(autouse=True)
def clean():
    yield
    GLOBALS.clear()
    GLOBALS["flag"] = "on"
    Plain.kind = "plain"
    if "late" in Plain.__dict__:
        del Plain.late


@pytest.mark.parametrize(
    "warm", [0, 1, 3]
)  # nothing cached; versions cached; nothing written since
@pytest.mark.parametrize("name", CHANGES)
def test_changes(name, warm):
    change, stays, undo = CHANGES[name]
    w = World()
    for _ in range(warm):
        assert w.agree()
    change(w)
    for _ in range(3):
        assert w.agree() == stays
    if undo:
        undo(w)
        for _ in range(3):
            assert w.agree()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(CHANGES)), st.booleans(), st.integers(0, 2)), max_size=12
    )
)
def test_random_changes(steps):
    w = World()
    w.agree()
    for name, undone, checks in steps:
        change, _, undo = CHANGES[name]
        for act in (change, undo if undone else None):
            try:
                if act:
                    act(w)
            except (AttributeError, KeyError, IndexError, RuntimeError, TypeError, ValueError):
                pass  # an earlier change took away what this one wants
            for _ in range(checks):
                w.agree()
    GLOBALS["flag"], Plain.kind = "on", "plain"
    if "late" in Plain.__dict__:
        del Plain.late
    w.agree()


def test_changes_that_write_no_dict():
    """What no version of a dict tells of."""
    w, other, odd = World(), Plain(), Plain()
    other.scale = 2.5
    p, roots = w.program, w.locals()
    o, own, second, cell, slots = w.o, w.o.__dict__, w.o.items[1], w.f.__closure__[0], w.slots
    odd_dict, second_dict = odd.__dict__, second.__dict__
    items, found = o.items, []
    for _ in range(3):
        found.append(p.check(roots) is not None)
    for name, value, before in (
        ("__dict__", other.__dict__, own),
        ("__class__", Other, Plain),
    ):
        setattr(o, name, value)
        found.append(p.check(roots) is not None)
        setattr(o, name, before)
        found.append(p.check(roots) is not None)
        found.append(p.check(roots) is not None)
    second.__dict__ = odd_dict
    found.append(p.check(roots) is not None)
    second.__dict__ = second_dict
    found.append(p.check(roots) is not None)
    for holder, name, value, before in ((cell, "cell_contents", 2, 1), (slots, "s", 6, 5)):
        setattr(holder, name, value)
        found.append(p.check(roots) is not None)
        setattr(holder, name, before)
        found.append(p.check(roots) is not None)
    items[0] = 2
    found.append(p.check(roots) is not None)
    items[0] = 1
    found.append(p.check(roots) is not None)
    assert found == [True] * 3 + [False, True, True] * 2 + [False, True] * 4


def twice(p, *locals_):
    """Whether all holds, and what the second of two checks needed to see that; writes no dict in
    between."""
    p.check(locals_)
    found = p.check(locals_)
    return found is not None, p.last_level


def test_levels():
    w, noise = World(), {}
    p, roots = w.program, w.locals()
    assert twice(p, *roots) == (True, Level.NothingWritten)
    for change, level in (
        (lambda: noise.update(a=object()), Level.DictsWritten),
        (lambda: setattr(w.o, "noise", 1), Level.DictsWritten),
        (lambda: setattr(w.model[0], "noise", 1), Level.DictsWritten),
        (lambda: setattr(Plain(), "__class__", Other), Level.ObjectsChanged),
        (lambda: setattr(Plain(), "__dict__", {}), Level.ObjectsChanged),
        (lambda: vars(w).update(o=Plain()) or vars(w).update(o=roots[1]), Level.DictsWritten),
    ):
        change()
        assert p.check(roots) is not None and p.last_level == level
        assert twice(p, *roots) == (True, Level.NothingWritten)
    w.o.__dict__ = dict(w.o.__dict__)  # another dict: what hung on the old one is looked up again
    assert p.check(roots) is not None and p.last_level == Level.Walk
    assert twice(p, *roots) == (True, Level.NothingWritten)


def test_levels_of_a_deep_model():
    """However many layers: nothing but the argument is looked at where no dict was written."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.linear = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(self.norm(x))

    def run(model, x):
        return model(x)

    model, x = torch.nn.Sequential(*(Block() for _ in range(4))), torch.randn(2, 4)
    compiled = oxyfuel.compile(run, backend="eager")
    with torch.no_grad():
        compiled(model, x)
        (p,) = compiled.guards()
        for change in (
            lambda: None,
            lambda: torch.ones(1),
            lambda: model(x),
            lambda: compiled(model, x),
        ):
            change()
            assert twice(p, model, x) == (True, Level.NothingWritten)
    model[2].norm.eps = 1e-3
    assert not agree(p, model, x)


class Raising(torch.nn.Module, Exception):
    """Its __dict__ can be set through Exception's setter as well as through Module's."""


class WithSlot:
    __slots__ = ("__dict__",)


@pytest.mark.parametrize("cls", [torch.nn.Module, Raising, WithSlot, Plain, RuntimeError])
def test_another_dict_or_class_deep_inside(cls):
    """No version tells of it, and nothing else happens in between."""

    class Sub(cls):
        __slots__ = ()

    holder, other = Plain(), cls()
    holder.one = cls()
    holder.one.depth, other.depth = 1, 2
    one, wrong, right = holder.one, other.__dict__, holder.one.__dict__
    t, g = SourceTable(), GuardSet()
    source = attr(t, t.local(0, "x"), "one")
    g.add(K.TypeIs, source, cls)
    g.add(K.Equals, attr(t, source, "depth"), 1)
    p = GuardProgram(t, g)
    roots, found, can_change_class = (holder,), [], cls is not RuntimeError
    setters = [
        base.__dict__["__dict__"].__set__ for base in cls.__mro__ if "__dict__" in vars(base)
    ]
    assert len(setters) == 1 + (cls is Raising)
    for setter in setters:
        for value in (right, wrong, wrong, right, right):
            setter(one, value)
            found.append(p.check(roots) is not None)
    assert found == [True, False, False, True, True] * len(setters)
    if can_change_class:
        found = []
        for value in (Sub, Sub, cls, cls):
            object.__setattr__(one, "__class__", value)
            found.append(p.check(roots) is not None)
        assert found == [False, False, True, True]


def test_modules_at_the_addresses_of_others():
    """A layer dies and another is made where it lay."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    t, g = SourceTable(), GuardSet()
    modules = attr(t, t.local(0, "model"), "_modules")
    for name in "01":
        layer = t.dict_item(modules, name)
        g.add(K.LacksKey, t.instance_dict(layer), "mark")
        g.add(K.Equals, attr(t, layer, "in_features"), 2)
        weight = t.dict_item(attr(t, layer, "_parameters"), "weight")
        g.add(K.Tensor, weight, model[int(name)].weight)
    p = GuardProgram(t, g)
    found = set()
    for i in range(300):
        assert agree(p, model)
        model[1] = torch.nn.Linear(2 + (i % 7 == 3), 2)
        if i % 5 == 2:
            model[1].mark = i
        if i % 11 == 4:
            model[1].weight.data = torch.ones(3, 3)
        found.add(agree(p, model))
        model[1] = torch.nn.Linear(2, 2)
    assert found == {True, False}


def test_storages_that_meet():
    t, g = SourceTable(), GuardSet()
    tensors = [torch.ones(4) for _ in range(20)]
    for i, x in enumerate(tensors):
        g.add(K.Tensor, t.item(t.local(0, "x"), i), x)
    tensors[3] = tensors[2].view(4)
    assert not agree(GuardProgram(t, g), tensors)
    p = GuardProgram(t, g)
    for i in range(20):
        tensors[i] = torch.ones(4)
        if i >= 3:
            assert agree(p, tensors)  # one storage is another than the last time
    kept = list(tensors)
    for i, j in ((0, 19), (7, 8), (19, 0)):
        tensors[i] = kept[j].view(4)
        assert not agree(p, tensors) and not agree(p, tensors)
        low, high = sorted((i, j))
        text = f"L['x'][{low}] and L['x'][{high}] share memory, did not"
        assert p.why_not((tensors,)) == (high, text)
        tensors[i] = kept[i]
        assert agree(p, tensors)
    tensors[:] = [x.clone() for x in kept]  # all of them are others
    assert agree(p, tensors)


def test_storages_that_part():
    base = torch.ones(4)
    t, g = SourceTable(), GuardSet()
    for i, name in enumerate("xyz"):
        g.add(K.Tensor, t.local(i, name), [base, base.view(4), torch.ones(4)][i])
    p = GuardProgram(t, g)
    apart, both = torch.ones(4), torch.ones(4)
    for _ in range(3):
        assert agree(p, base, base.view(4), torch.ones(4))
        assert agree(p, both, both.view(4), apart)
        assert not agree(p, base, apart, torch.ones(4))
        assert p.why_not((base, apart, both))[1] == "L['x'] and L['y'] share no memory, did"
        assert not agree(p, base, base.view(4), base)


def test_fresh_arguments_and_reused_addresses():
    """Arguments made anew for each call, often where the last one lay."""
    t, g = SourceTable(), GuardSet()
    x, y = t.local(0, "x"), t.local(1, "y")
    g.add(K.Equals, attr(t, x, "scale"), 1.5)
    g.add(K.Equals, t.item(y, 0), 2.5)
    p = GuardProgram(t, g)
    for i in range(200):
        o = Plain()
        o.scale = 1.5 if i % 3 else 2.0
        agree(p, o, (2.5 if i % 5 else float(i),))


def test_no_python_code_runs():
    class Loud:
        def __getattribute__(self, name):
            raise AssertionError(name)

        def __eq__(self, other):
            raise AssertionError("eq")

        def __hash__(self):
            raise AssertionError("hash")

    t, g = SourceTable(), GuardSet()
    x = t.local(0, "x")
    g.add(K.Equals, x, 1)
    g.add(K.HasKey, t.instance_dict(x), "a")
    g.add(K.Length, x, None, 1)
    g.add(K.Equals, t.attribute(x, "y"), 1)
    p = GuardProgram(t, g)
    assert p.check((Loud(),)) is None and p.why_not((Loud(),))[0] == 0


def test_reference_counts():
    w = World()
    watched = [
        w.model,
        w.model[0].weight,
        w.o,
        w.o.items,
        w.f,
        w.table,
        w.slots,
        w.o.__dict__,
        Plain,
    ]
    w.agree()
    before = [sys.getrefcount(x) for x in watched]
    for _ in range(50):
        w.agree()
        w.o.scale = 1.0
        w.agree()
        w.o.scale = 1.5
    assert [sys.getrefcount(x) for x in watched] == before
    dead = [weakref.ref(w.model), weakref.ref(w.model[0].weight), weakref.ref(w.o)]
    program = w.program
    del w, watched
    gc.collect()
    assert [r() for r in dead] == [None] * 3
    assert program.check(World().locals()) is not None


def test_a_program_lets_go_of_what_it_pins():
    module = types.ModuleType("pinned")
    ref = weakref.ref(module)
    t, g = SourceTable(), GuardSet()
    g.add(K.LacksKey, t.instance_dict(t.pinned(module, "pinned")), "a")
    p = GuardProgram(t, g)
    assert agree(p)
    module.a = 1
    assert not agree(p)
    del module, t, g, p
    gc.collect()
    assert ref() is None


def test_the_code_of_a_function_that_is_held():
    def f():
        return 1

    t, g = SourceTable(), GuardSet()
    first, second = f.__code__, f.__code__.replace(co_name="g")
    g.add(K.IdIs, t.code(t.pinned(f, "f")), first)
    p = GuardProgram(t, g)
    found = []
    for code in (first, first, second, second, first, first, second):
        f.__code__ = code
        found += [p.check(()) is not None, p.check_fully(()) is not None]
    assert found == [True] * 4 + [False] * 4 + [True] * 4 + [False] * 2


def test_what_a_set_gives_away_next():
    for size in (1, 4, 50):
        items = set(range(0, 7 * size, 7))
        while items:
            t, g = SourceTable(), GuardSet()
            source = t.next_popped(t.local(0, "s"))
            g.add(K.TypeIs, source, int)
            p = GuardProgram(t, g, [source])
            (taken,) = p.check((items,))
            assert taken == items.pop()
        assert p.check((items,)) is None


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict])
def test_keys_in_their_order(kind):
    o = Plain()
    o.d = kind()
    o.d.update(a=1, b=2)
    t, g = SourceTable(), GuardSet()
    keys = t.key(attr(t, t.pinned(o, "o"), "d"), 0), t.key(attr(t, t.pinned(o, "o"), "d"), 1)
    g.add(K.Equals, keys[0], "a")
    g.add(K.Equals, keys[1], "b")
    p = GuardProgram(t, g, list(keys))
    assert twice(p) == (True, Level.NothingWritten)
    o.d["c"] = 3
    assert agree(p) and twice(p) == (True, Level.NothingWritten)
    o.d["a"] = o.d.pop("a")
    assert not agree(p)
    for key in "bca":
        o.d[key] = o.d.pop(key)
    assert not agree(p)
    for key in "abc":
        o.d[key] = o.d.pop(key)
    assert agree(p) and twice(p)[0]
    if kind is collections.OrderedDict:  # no version tells of it
        o.d.move_to_end("a")
        assert not agree(p)
    o.d = kind(b=1, a=2)
    assert not agree(p)


def test_what_a_weak_reference_refers_to():
    class A:
        pass

    t, g = SourceTable(), GuardSet()
    first, second = A(), A()
    r = t.referent(t.local(0, "r"))
    g.add(K.IdIs, r, first)
    p = GuardProgram(t, g)
    assert t.text(r) == "L['r']()"
    assert agree(p, weakref.ref(first))
    assert not agree(p, weakref.ref(second))
    assert not agree(p, first)
    gone = weakref.ref(second)
    del second
    gc.collect()
    assert gone() is None and not agree(p, gone)


def test_words_whose_objects_die():
    """A slot, a cell and defaults get objects that lie where the last ones lay."""

    class Plain:
        pass

    t, g = SourceTable(), GuardSet()
    slots, f = Slots(), make_function()
    slots.s = float("5.5")
    cell = f.__closure__[0]
    x, y = t.local(0, "x"), t.pinned(f, "f")
    g.add(K.Equals, t.attribute(t.pinned(slots, "slots"), "s"), 5.5)
    g.add(K.Equals, t.cell_contents(t.closure(y, 0)), 1)
    g.add(K.Equals, t.default_(y, 0), 2)
    g.add(K.Equals, t.attribute(y, "__kwdefaults__"), None)
    g.add(K.TypeIs, x, int)
    f.__kwdefaults__ = None
    p = GuardProgram(t, g)
    for _ in range(40):  # more often than a word may move
        assert twice(p, 0) == (True, Level.NothingWritten)
        slots.s = None
        slots.s = float("6.5")
        assert not agree(p, 0)
        slots.s = float("5.5")
        cell.cell_contents = None
        assert not agree(p, 0)
        cell.cell_contents = int("1")
        for wrong in ((float("2"),), (), None, (Plain(),)):
            f.__defaults__ = wrong
            assert not agree(p, 0)
        f.__defaults__ = (int("2"),)
        f.__kwdefaults__ = {}
        assert not agree(p, 0)
        f.__kwdefaults__ = None


def test_what_words_hold():
    """Nothing that is large stays alive for a guard."""

    class Large:
        pass

    t, g = SourceTable(), GuardSet()
    slots, f = Slots(), make_function()
    slots.s, f.__closure__[0].cell_contents, f.__defaults__ = Large(), Large(), (Large(),)
    holder = {"slots": slots, "f": f}
    table = t.pinned(holder, "holder")
    function = t.dict_item(table, "f")
    sources = [
        t.attribute(t.dict_item(table, "slots"), "s"),
        t.cell_contents(t.closure(function, 0)),
        t.default_(function, 0),
    ]
    for source in sources:
        g.add(K.TypeIs, source, Large)
    p = GuardProgram(t, g)
    assert twice(p)[0]
    held = (slots.s, f.__closure__[0].cell_contents, f.__defaults__[0], f)
    dead = [weakref.ref(o) for o in held]
    holder.clear()
    del slots, f, held
    gc.collect()
    assert [r() for r in dead] == [None] * 4


def test_the_same_object_in_two_places():
    """One in a dict keeps the other one, in a slot, from being exchanged unseen."""

    class Mark:
        __slots__ = ()

    class OtherMark:
        __slots__ = ()

    def program(first_in_slot):
        t, g = SourceTable(), GuardSet()
        table, slots = {"mark": Mark()}, Slots()
        slots.s = table["mark"]
        in_slot = t.attribute(t.pinned(slots, "slots"), "s") if first_in_slot else None
        in_dict = t.dict_item(t.pinned(table, "table"), "mark")
        in_slot = in_slot or t.attribute(t.pinned(slots, "slots"), "s")
        g.add(K.TypeIs, in_slot, Mark)
        g.add(K.SameAs, in_dict, other=in_slot)
        g.add(K.TypeIs, t.local(0, "x"), int)
        return GuardProgram(t, g), table, slots

    for first_in_slot in (False, True):
        p, table, slots = program(first_in_slot)
        for kind in (Mark, OtherMark, Mark, OtherMark, Mark, OtherMark, OtherMark, Mark):
            table["mark"] = slots.s = None
            table["mark"] = slots.s = kind()
            assert agree(p, 0) == (kind is Mark)
            assert twice(p, 0)[0] == (kind is Mark)
            slots.s = kind()
            assert not agree(p, 0)
            slots.s = table["mark"]
            assert agree(p, 0) == (kind is Mark)


def test_types_that_change_while_no_dict_is_looked_at():
    class A:
        kind = 1

    class B:
        kind = 2

    class C(A):
        pass

    class D(C):
        __slots__ = ("s",)

    t, g = SourceTable(), GuardSet()
    d = D()
    d.s = 3
    g.add(K.Equals, t.type_attribute(t.pinned(D, "D"), "kind"), 1)
    g.add(K.Equals, t.attribute(t.pinned(d, "d"), "s"), 3)
    g.add(K.TypeIs, t.local(0, "x"), int)
    p = GuardProgram(t, g)
    slot = D.__dict__["s"]

    def bases(*b):
        C.__bases__ = b

    for change, undo in (
        (lambda: bases(B), lambda: bases(A)),
        (lambda: setattr(A, "kind", 2), lambda: setattr(A, "kind", 1)),
        (lambda: setattr(D, "kind", 2), lambda: delattr(D, "kind")),
        (lambda: setattr(D, "s", 3), lambda: setattr(D, "s", slot)),
    ):
        for _ in range(3):
            assert twice(p, 0) == (True, Level.NothingWritten)
            change()
            assert not agree(p, 0)
            assert not agree(p, 0)
            undo()
            assert agree(p, 0)
    A.noise = 1
    assert p.check((0,)) is not None and p.last_level == Level.DictsWritten


LAYOUTS = [
    torch.ones(()),
    torch.ones(3),
    torch.ones(0, 3),
    torch.ones(2, 3).t(),
    torch.ones(2, 3, 4).transpose(0, 2),
    torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    torch.ones(2, 1, 2, 1, 2),
    torch.ones(2, 1, 2, 1, 2, 2),
    torch.ones(8)[1::2],
    torch.ones(3, dtype=torch.bfloat16),
    torch.ones(2, 2, requires_grad=True),
    torch.ones(2, 2, requires_grad=True) * 1,
]


def variants(x):
    """Others that differ in one thing, each in every dimension."""
    yield x.double()
    yield x.detach() if x.requires_grad else x.clone().requires_grad_()
    base = torch.ones(4096, dtype=x.dtype)
    for d in range(x.dim()):
        for size in {0, 1, x.shape[d] + 1} - {x.shape[d]}:
            sizes = list(x.shape)
            sizes[d] = size
            yield base.as_strided(sizes, x.stride(), x.storage_offset())
        strides = list(x.stride())
        strides[d] += 1
        yield base.as_strided(x.shape, strides, x.storage_offset())
    yield base.as_strided(x.shape, x.stride(), x.storage_offset() + 1)
    yield base.as_strided([*x.shape, 1], [*x.stride(), 1], x.storage_offset())


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("case", range(len(LAYOUTS)))
def test_images_of_tensors(case, position):
    """Data in place of a parameter's, seen by the memory of the tensor alone; among others."""
    example = LAYOUTS[case]
    holder = {name: torch.ones(2) for name in "abc"}
    name = "abc"[position]
    if example.is_leaf:
        x = torch.empty(0, dtype=example.dtype)
        x.data = example.detach()
        x.requires_grad_(example.requires_grad)
    else:
        x = example
    holder[name] = x
    t, g = SourceTable(), GuardSet()
    table = t.pinned(holder, "holder")
    sources = [t.dict_item(table, n) for n in "abc"]
    for source, n in zip(sources, "abc", strict=True):
        g.add(K.Tensor, source, holder[n])
    g.add(K.TypeIs, t.local(0, "x"), int)
    p = GuardProgram(t, g, sources)
    assert twice(p, 0)[0]
    if x.is_leaf:
        kept = x.detach()
        for other in variants(kept):
            if other.requires_grad:
                x.requires_grad_(not x.requires_grad)
            elif other.dtype != x.dtype and x.requires_grad:
                continue  # torch lets data of a leaf that requires grad have no other dtype
            else:
                x.data = other
            assert not agree(p, 0) and not agree(p, 0)
            if other.requires_grad:
                x.requires_grad_(not x.requires_grad)
            x.data = kept
            assert agree(p, 0)
            assert twice(p, 0)[0]
    for other in variants(x):
        holder[name] = other
        same = other.shape == x.shape and other.stride() == x.stride()
        assert not agree(p, 0), (other.shape, other.stride(), same)
        holder[name] = x
        assert agree(p, 0)


def test_more_layouts_than_images_are_shared():
    tensors = {n: torch.ones(n + 1) for n in range(60)}
    t, g = SourceTable(), GuardSet()
    table = t.pinned(tensors, "tensors")
    for n, x in tensors.items():
        g.add(K.Tensor, t.dict_item(table, n), x)
    g.add(K.TypeIs, t.local(0, "x"), int)
    p = GuardProgram(t, g)
    for n in (0, 20, 30, 59):
        kept = tensors[n].data
        assert twice(p, 0)[0]
        for other in (torch.ones(n + 2), torch.ones(n + 1).double()):
            tensors[n].data = other
            assert not agree(p, 0)
            tensors[n].data = kept
            assert agree(p, 0)
        tensors[n] = torch.ones(n + 1)  # the same layout again
        assert agree(p, 0)


def test_arguments_of_many_layouts():
    """Where each call has another tensor, of sizes that are no matter."""
    t, g = SourceTable(), GuardSet()
    x = t.local(0, "x")
    g.add(K.SizedTensor, x, torch.ones(2, 3))
    p = GuardProgram(t, g, [x])
    for n in range(200):
        assert agree(p, torch.ones(n % 7, n)) and not agree(p, torch.ones(n))
        assert not agree(p, torch.ones(n % 7, n).double())


def test_tangents():
    """Forward-mode AD puts one beside a tensor that is there; it goes with its level."""
    from torch.autograd import forward_ad

    holder = {"w": torch.ones(3), "v": torch.ones(3)}
    t, g = SourceTable(), GuardSet()
    table = t.pinned(holder, "holder")
    for name in "wv":
        g.add(K.Tensor, t.dict_item(table, name), holder[name])
    g.add(K.TypeIs, t.local(0, "x"), int)
    p = GuardProgram(t, g)
    for name in "wvw":
        assert twice(p, 0)[0]
        with forward_ad.dual_level():
            assert agree(p, 0)
            dual = forward_ad.make_dual(torch.ones(3), torch.ones(3))
            assert agree(p, 0)
            holder[name].copy_(dual)
            assert forward_ad.unpack_dual(holder[name]).tangent is not None
            assert not agree(p, 0) and not agree(p, 0)
        assert agree(p, 0) and twice(p, 0)[0]


def test_a_history_that_comes_in_place():
    """A tensor that is no leaf any more requires gradients, whatever its own mark says."""
    holder = {"w": torch.ones(3)}
    t, g = SourceTable(), GuardSet()
    w = t.dict_item(t.pinned(holder, "holder"), "w")
    g.add(K.Tensor, w, holder["w"])
    g.add(K.TypeIs, t.local(0, "x"), int)
    p = GuardProgram(t, g, [w])
    assert twice(p, 0)[0]
    holder["w"].mul_(torch.ones(3, requires_grad=True))
    assert not agree(p, 0) and not agree(p, 0)
    holder["w"].detach_()
    assert agree(p, 0) and twice(p, 0)[0]


def test_tensors_that_are_swapped_for_others_of_their_kind():
    holder = {"w": torch.nn.Parameter(torch.ones(2)), "v": torch.nn.Parameter(torch.ones(2))}
    t, g = SourceTable(), GuardSet()
    table = t.pinned(holder, "holder")
    sources = [t.dict_item(table, name) for name in "wv"]
    for source, x in zip(sources, holder.values(), strict=True):
        g.add(K.Tensor, source, x)
    p = GuardProgram(t, g, sources)
    assert twice(p)[0]
    torch.utils.swap_tensors(holder["w"], torch.nn.Parameter(torch.zeros(2)))
    assert agree(p) and twice(p)[0]
    torch.utils.swap_tensors(holder["v"], torch.nn.Parameter(torch.zeros(3)))
    assert not agree(p)
    torch._C._swap_tensor_impl(holder["v"], torch.nn.Parameter(torch.zeros(2)))
    assert agree(p)
