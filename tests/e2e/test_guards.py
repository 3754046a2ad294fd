"""Guards: every kind, and every way to change what they look at, with what was cached compared to
the full walk."""

import functools

import hypothesis.strategies as st
import pytest
import torch
from guard_check import GLOBALS, Other, Plain, World, agree, attr, make_function, one
from hypothesis import given, settings
from oxyfuel._C import GuardKind as K
from oxyfuel._C import GuardProgram, GuardSet, SourceTable

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


def with_dict(o):
    vars(o)
    return o


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
    (
        K.HasDict,
        functools.partial(print),
        None,
        0,
        with_dict(functools.partial(print)),
        "L['x'] has a __dict__: no longer 0",
    ),
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
