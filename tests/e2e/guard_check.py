"""Programs of guards, and objects that they look at."""

import collections

import torch
from oxyfuel._C import GuardKind as K
from oxyfuel._C import GuardProgram, GuardSet, SourceTable


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
