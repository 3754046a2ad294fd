"""What CPython's own tests have found, a case a kind (`./dev cpython` runs them): plain Python's
result, whatever breaks."""

import collections
import contextlib
import datetime
import itertools
import operator
import os
import subprocess
import sys
import textwrap
import time

import pytest
import torch

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict_without_grad"), pytest.mark.filterwarnings("ignore")]

SEEN = []


def outcome(function, *args):
    SEEN.clear()
    try:
        result = function(*args)
    except Exception as e:
        result = (type(e).__name__, str(e))
    return repr(result), list(SEEN)


class Asked:
    """Says on SEEN what it is asked for."""

    def __init__(self, answer=NotImplemented):
        self.answer = answer

    def __hash__(self):
        SEEN.append("hash")
        return 1

    def __eq__(self, other):
        SEEN.append("eq")
        return self.answer

    def __lt__(self, other):
        SEEN.append("lt")
        return self.answer

    def __radd__(self, other):
        SEEN.append("radd")
        return self.answer

    def __iadd__(self, other):
        SEEN.append("iadd")
        return self.answer

    def __repr__(self):
        return "Asked"


class Derived(Asked):
    def __radd__(self, other):
        SEEN.append("derived radd")
        return self.answer


class Blocked(Asked):
    __iadd__ = None
    __contains__ = None


class Untrue:
    def __bool__(self):
        return self


class Dying:
    def __del__(self):
        SEEN.append("del")


class Reversed(dict):
    def __iter__(self):
        return iter(["b", "a"])

    def keys(self):
        return iter(self)


class Plain:
    def __repr__(self):
        return "PLAIN"

    hidden = property(None)
    chained = classmethod(property(lambda cls: cls.__name__))


def in_itself():
    nested = [1]
    nested.append(nested)
    return repr(nested)


def deleted():
    o = Plain()
    try:
        del o.missing
    except AttributeError as e:
        return str(e)


def deleted_of_class():
    class Local:
        pass

    try:
        del Local.missing
    except AttributeError as e:
        return str(e)


class Half(float):
    def __repr__(self):
        return "half"


HALF = Half(0.5)


def with_neither():
    with Plain():
        pass


def caught_traceback():
    try:
        raise ValueError(1)
    except ValueError as e:
        return e.__traceback__ is None


def named_error():
    try:
        return Plain().missing
    except AttributeError as e:
        return e.name, type(e.obj).__name__


def handed_on_generator():
    def numbers():
        yield 1

    made = numbers()
    return made.__name__, made.gi_running, next(made)


def looks_at_locals():
    dead = 1
    oxyfuel.graph_break()
    return sorted(locals())


def names_of_locals():
    first, late = 1, 2
    seen = [list(locals())]

    def inner(of_inner):
        nonlocal late
        late += of_inner
        return list(locals().items())

    for _ in range(2):
        seen.append(inner(5))
    named = locals()
    del first
    seen.append(sorted(k for k in locals() if k != "named"))
    named["late"] = 0
    return seen, late, "first" in named, str(locals()["late"])


def locals_around_a_break():
    named = locals()
    named["kept"] = 3
    oxyfuel.graph_break()
    return locals().get("kept"), locals() is named


def weakly_held():
    import weakref

    held, other = Plain(), Plain()
    held.value = 3
    reference, proxy = weakref.ref(held), weakref.proxy(other)
    by_number = weakref.WeakValueDictionary({1: held})
    proxy.value = 2
    oxyfuel.graph_break()
    return reference().value, proxy.value, by_number[1].value, len(weakref.WeakSet([held]))


def dropped():
    Dying()


def proxied():
    import weakref

    o = Plain()
    proxy = weakref.proxy(o)
    proxy.value = 3
    return o.value


def attribute_of_ordered():
    made = collections.OrderedDict(a=1)
    made.extra = 2
    return made


def match_too_much():
    match 3:
        case range(1):
            return 1


def lacking_by_object():
    try:
        object.__getattribute__(Plain(), "missing")
    except AttributeError as e:
        return e.name, type(e.obj).__name__


def asked_while_it_runs():
    def key(n):
        return list(group) and n if n == 2 else n

    for _, group in itertools.groupby(range(4), key):
        SEEN.append(list(group))


def wrapped_mapping():
    made = collections.UserDict({"a": 1})
    return collections.UserDict(made).data, list(collections.ChainMap(made).items())


def raises_on_a_line():
    try:
        return 1 / 0
    finally:
        SEEN.append("left")


def raises_behind_another_handler():
    try:
        [][1]
    except KeyError:
        SEEN.append("not this one")


def raises_in_with():
    with contextlib.nullcontext():
        SEEN.append("in")
        raise ValueError(1)


def raises_in_named_handler():
    try:
        raise ValueError(1)
    except ValueError as e:
        SEEN.append("in")
        raise KeyError(1) from e


def lines_of(error):
    """Where the frames of its traceback stand, and the lines of the entries."""
    found, trace = [], error.__traceback__
    while trace:
        first = trace.tb_frame.f_code.co_firstlineno
        found.append((trace.tb_frame.f_lineno - first, trace.tb_lineno - first))
        trace = trace.tb_next
    return found


CASES = {
    "equal_in_a_dict": lambda: {Asked(True): 1}.get(Asked(True)),
    "member_of_a_list": lambda: Asked() in [Asked(), 3],
    "compared": lambda: Asked() == Asked(),
    "not_equal": lambda: Asked() != 3,
    "less": lambda: operator.gt(3, Asked(True)),
    "reflected": lambda: 1 + Asked("r"),
    "reflected_of_derived": lambda: Asked(1) + Derived(2),
    "in_place_not_implemented": lambda: operator.iadd(Asked(), 1),
    "in_place_none": lambda: operator.iadd(Blocked(1), 1),
    "contains_none": lambda: 1 in Blocked(),
    "bool_of_itself": lambda: bool(Untrue()),
    "repr_of_a_text": lambda: f"{Plain()!r}|{Plain()!s}|{Plain()!r:>8}",
    "percent_of_a_text": lambda: [operator.mod("%s", HALF), operator.mod("%5s|%r", (HALF, HALF))],
    "dict_of_a_mapping": lambda: dict(collections.UserDict(abcd=1)),
    "dict_of_a_dict": lambda: list(dict(Reversed(a=1, b=2)).items()),
    "no_getter": lambda: Plain().hidden,
    "class_property": lambda: Plain().chained,
    "alias_of_a_type": lambda: [int] == list(list[int].__args__),
    "attrgetter_with_keywords": lambda: operator.attrgetter("a")(Plain(), x=1),
    "cause_that_is_none": lambda: (_ for _ in ()).throw(IndexError) if SEEN else None,
    "popitem_with_arguments": lambda: {}.popitem(42),
    "unpacks_what_has_no_items": lambda: [a for a, b in [Plain()]],
    "unpacks_a_number": lambda: [0, *3],
    "sum_of_floats": lambda: [
        sum([0.1] * 10), sum([0.1] * 10, 0.5), sum([0.1] * 10, True), sum([True] + [0.1] * 10),
        sum([True, 2, 0.1, 1e16, 1, -1e16, 0.5]),
        sum([-0.0, -0.0], -0.0), sum([1e308, 1e308, 1.0]), sum([0.1] * 10 + [2**80, 0.1]),
    ],
    "sum_of_floats_and_others": lambda: [
        sum([0.1] * 10 + [0j, 0.1]), sum([2**63] + [0.1] * 10), sum([2**62] * 2 + [0.1] * 10),
    ],
    "sort_with_arguments": lambda: [1].sort(None),
    "set_with_a_list": lambda: operator.isub({1}, [1]),
    "a_type_sets_attributes": lambda: type.__setattr__(Plain, "late", 1) or Plain.late,
    **{
        f.__name__: f
        for f in (
            in_itself, deleted, deleted_of_class, with_neither, caught_traceback, named_error,
            asked_while_it_runs, lacking_by_object, wrapped_mapping, handed_on_generator,
            looks_at_locals, names_of_locals, locals_around_a_break, weakly_held, dropped, proxied,
            attribute_of_ordered, match_too_much,
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    function = CASES[name]
    compiled = oxyfuel.compile(function, backend="eager")
    for _ in range(2):
        assert outcome(compiled) == outcome(function)


def test_membership_depends_on_which_object_it_is():
    kinds = (Plain(), Plain(), Plain())

    def is_early(o):
        return o in (kinds[0], kinds[1]), [kinds[0]].count(o), (o,) == (kinds[1],)

    compiled = oxyfuel.compile(is_early, backend="eager")
    for o in (*kinds, *kinds):
        assert compiled(o) == is_early(o)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "use", [str, "{!r:>9}".format, list, lambda o: f"{o}", lambda o: o.copy(), lambda o: [o, 1]]
)
def test_containers_in_themselves(use, dynamic):
    mapping, items = {"one": [1, 2]}, [1, 2]
    mapping["two"] = mapping
    items.append(items)
    for o in (mapping, items):
        compiled = oxyfuel.compile(lambda x, o=o: (x + 1, use(o)), dynamic=dynamic)
        assert str(compiled(torch.ones(3))[1]) == str(use(o))


def test_frames_of_c_code_are_not_run_by_a_capture():
    def run(x, o):
        return x + len({o: 1, 2: 3})

    compiled = oxyfuel.compile(run, backend="eager")
    o = Asked(True)
    SEEN.clear()
    assert torch.equal(compiled(torch.ones(2), o), torch.ones(2) + 2)
    assert SEEN == ["hash"]


@pytest.mark.parametrize(
    "function",
    [raises_on_a_line, raises_behind_another_handler, raises_in_with, raises_in_named_handler],
)
def test_frames_of_a_traceback_stand_where_they_were_left(function):
    def caught():
        try:
            function()
        except Exception as e:
            return e

    expected = lines_of(caught())[-1]
    compiled = oxyfuel.compile(caught, backend="eager")
    for _ in range(2):
        assert lines_of(compiled())[-1] == expected


def test_locals_of_the_frames_of_a_traceback_can_be_asked():
    number = 3

    def caught():
        try:
            raise ValueError(number)
        except ValueError as e:
            return e

    trace = oxyfuel.compile(caught, backend="eager")().__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    assert trace.tb_frame.f_code is caught.__code__
    assert trace.tb_frame.f_locals.get("number", number) == number


def test_a_generator_handles_only_its_own():
    compiled = oxyfuel.compile(lambda x: (x + 1, sys.exc_info), backend="eager")

    def generator():
        compiled(torch.ones(2))
        yield
        yield sys.exc_info()

    made = generator()
    try:
        raise ValueError
    except ValueError:
        next(made)
    assert next(made) == (None, None, None)


class Raises(Exception):
    pass


def raising():
    raise Raises
    yield 1


@pytest.mark.parametrize("method", ["union", "difference", "isdisjoint", "symmetric_difference"])
def test_an_iterator_is_asked_once(method):
    def run(items, iterator):
        try:
            getattr(items, method)(iterator)
        except Raises:
            return True
        return oxyfuel.graph_break()

    compiled = oxyfuel.compile(run, backend="eager")
    for items in (frozenset("abc"), {"a"}):
        assert compiled(items, raising())
        for kind in (iter, list.__iter__, reversed):
            taken, by_eager = kind(list("cab")), kind(list("cab"))
            assert compiled(items, taken) == run(items, by_eager)
            assert list(taken) == list(by_eager)


def test_keys_are_hashed_as_often():
    class Counted(int):
        def __hash__(self):
            SEEN.append("hash")
            return int.__hash__(self)

    def keyed(keys):
        return dict.fromkeys(keys, 1)

    compiled = oxyfuel.compile(keyed, backend="eager")
    keys = frozenset(map(Counted, range(3)))
    for _ in range(2):
        assert outcome(compiled, keys) == outcome(keyed, keys)


class Moment(datetime.datetime):
    pass


@pytest.mark.parametrize(
    "clock",
    [
        datetime.datetime.now,
        datetime.datetime.today,
        datetime.datetime.utcnow,
        Moment.now,
        lambda: datetime.datetime.now(datetime.timezone.utc),
        lambda: Moment.now(),
        lambda: next(map(datetime.datetime.now, [None])),
        lambda: super(Moment, Moment).now(),
    ],
)
def test_class_methods_that_read_the_clock(clock):
    def run(x):
        now = clock()
        return x + 1, (now.minute, now.second, now.microsecond)

    compiled = oxyfuel.compile(run, backend="eager")
    told = []
    for f in (run, compiled, compiled, run, compiled):
        told.append(f(torch.ones(2))[1])
        time.sleep(0.001)
    assert len(set(told)) == len(told)


def test_class_methods_that_read_the_time_zone(monkeypatch):
    def run(x):
        moment, day = datetime.datetime.fromtimestamp(0), datetime.date.fromtimestamp(80_000)
        return x + 1, moment.hour, day.day

    compiled = oxyfuel.compile(run, backend="eager")
    try:
        for zone in ("UTC", "UTC-5", "UTC+5"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert compiled(torch.ones(2))[1:] == run(torch.ones(2))[1:]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_class_methods_that_depend_on_their_arguments():
    def run(x, n):
        return (
            x + int.from_bytes(b"ab", "big") + float.fromhex("0x1p3"),
            dict.fromkeys("ab", n),
            collections.OrderedDict.fromkeys((n, 3)),
            bytes.fromhex("aa") + bytearray.fromhex("bb"),
            datetime.date.fromisoformat("2024-01-02").year,
            type.__instancecheck__(int, n),
            list.__class_getitem__(int) == list[int],
            type.__call__(int, "3"),
        )

    compiled = oxyfuel.compile(run, fullgraph=True)
    for n in (1, 2):
        ours, eager = compiled(torch.ones(2), n), run(torch.ones(2), n)
        assert torch.equal(ours[0], eager[0])
        assert ours[1:] == eager[1:]


@pytest.mark.skipif(not hasattr(float, "__setformat__"), reason="CPython 3.10 has it")
def test_a_class_method_that_changes_the_process():
    def change(to):
        before = float.__getformat__("double")
        float.__setformat__("double", to)
        return before, float.__getformat__("double")

    compiled = oxyfuel.compile(change, backend="eager")
    known = float.__getformat__("double")
    try:
        for _ in range(2):
            assert compiled("unknown") == (known, "unknown")
            assert compiled(known) == ("unknown", known)
    finally:
        float.__setformat__("double", known)


def raiser(error):
    def callback():
        raise error

    return callback


def contexts(error):
    names = []
    while error is not None:
        names.append(type(error).__name__)
        error = error.__context__
    return names


@pytest.mark.parametrize("first", [False, True])
def test_the_exception_that_the_caller_deals_with(first):
    def asks(x):
        return x + 1, sys.exc_info()[:2], getattr(sys, "exception", int)()

    def asks_later(x):
        try:
            raise KeyError
        except KeyError:
            inside = sys.exc_info()[0]
        return x + 1, inside, sys.exc_info()[:2]

    for f in (asks, asks_later):
        compiled = oxyfuel.compile(f, backend="eager")
        for outside in (first, not first, first, not first):
            if not outside:
                assert compiled(torch.ones(2))[1:] == f(torch.ones(2))[1:]
                continue
            try:
                raise IndexError
            except IndexError:
                assert compiled(torch.ones(2))[1:] == f(torch.ones(2))[1:]


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("body", [None, ZeroDivisionError])
@pytest.mark.parametrize(
    "errors",
    [[], [IndexError], [IndexError, KeyError], [IndexError, KeyError, OSError, ValueError]],
)
def test_exceptions_of_an_exit_stack(errors, body, outside):
    """Its __exit__ compiled alone, and the function that has the with statement."""
    seen = []

    def suppress(*details):
        seen.append(contexts(details[1]))
        return True

    def block(stack):
        with stack:
            for error in errors:
                stack.callback(raiser(error))
                if error is OSError:
                    stack.push(suppress)
            if body is not None:
                raise body

    class Compiled(contextlib.ExitStack):
        __exit__ = oxyfuel.compile(contextlib.ExitStack.__exit__, backend="eager")

    def chain(block, stack):
        seen.clear()
        try:
            if not outside:
                block(stack())
            try:
                raise MemoryError
            except MemoryError:
                block(stack())
        except Exception as error:
            return contexts(error), list(seen)
        return list(seen)

    compiled = oxyfuel.compile(block, backend="eager")
    expected = chain(block, contextlib.ExitStack)
    for _ in range(2):
        assert chain(block, Compiled) == expected
        assert chain(compiled, contextlib.ExitStack) == expected


@pytest.mark.parametrize("seconds", [120])
def test_everything_is_captured_from_the_import_on(tmp_path, seconds):
    (tmp_path / "program.py").write_text(
        textwrap.dedent(
            """
            import oxyfuel, dataclasses, typing

            def make(annotation):
                @dataclasses.dataclass
                class Made:
                    x: annotation = 10
                return [f.name for f in dataclasses.fields(Made)]

            print(make(typing.ClassVar[int]), make(int), make(typing.ClassVar[int]))
            """
        )
    )
    environment = {**os.environ, "OXYFUEL_CAPTURE": "all"}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True,
        text=True, timeout=seconds,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[] ['x'] []\n"), done.stderr
    assert "Fatal" not in done.stderr


def of_length(length, hint):
    class Items:
        def __iter__(self):
            SEEN.append("iter")
            return iter([1, 2])

        if length is not None:

            def __len__(self):
                SEEN.append("len")
                if isinstance(length, Exception):
                    raise length
                return length

        if hint is not None:

            def __length_hint__(self):
                SEEN.append("hint")
                if isinstance(hint, Exception):
                    raise hint
                return hint

    return Items()


def extended(o):
    items = []
    items.extend(o)
    return items


@pytest.mark.parametrize(
    "length, hint",
    [(2, 5), (None, 2), (None, "a"), (None, -1), (None, NotImplemented), (TypeError("t"), 2),
     (ValueError("v"), 2), (None, ValueError("v")), (None, TypeError("t")), (None, None)],
)  # fmt: skip
@pytest.mark.parametrize(
    "use",
    [list, tuple, set, sorted, sum, extended, lambda o: [*o], lambda o: (0, *o), lambda o: {*o},
     lambda o: max(*o, 0), lambda o: "".join(str(i) for i in o)],
)  # fmt: skip
def test_lengths_that_lists_are_allocated_by(use, length, hint):
    def function(x, o):
        return use(o), x + 1

    x, o = torch.ones(1), of_length(length, hint)
    assert outcome(oxyfuel.compile(function), x, o) == outcome(function, x, o)
