"""What is cached of guards: what tells of changes, what is held, tensors of many layouts."""

import collections
import gc
import sys
import types
import weakref

import pytest
import torch
from guard_check import Other, Plain, Slots, World, agree, attr, make_function
from oxyfuel._C import GuardKind as K
from oxyfuel._C import GuardLevel as Level
from oxyfuel._C import GuardProgram, GuardSet, SourceTable

import oxyfuel


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
