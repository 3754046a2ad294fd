"""Functions and classes whose parts are replaced between calls: what is inlined is Python's of the
moment."""

import functools
import inspect

import pytest
import torch
from snapshot import outcome, outcome_differences

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

X = torch.arange(3.0)


def helper(x, scale=2.0, *, shift=1.0):
    return x * scale + shift


def other(x, scale=3.0, *, shift=5.0):
    return x / scale - shift


def calls(x):
    return helper(x)


def reads_defaults(x):
    return x * helper.__defaults__[0] + helper.__kwdefaults__["shift"]


def reads_code(x):
    return x * helper.__code__.co_argcount + len(helper.__code__.co_varnames)


def reads_names(x):
    return x, helper.__name__, helper.__doc__, helper.__module__, helper.__annotations__


def reads_signature(x):
    return x * len(inspect.signature(helper).parameters), str(inspect.signature(helper))


def wraps(x):
    @functools.wraps(helper)
    def run(y):
        return helper(y)

    return run(x), run.__name__, run.__wrapped__ is helper


def new_code():
    helper.__code__ = other.__code__


def code_with_more_arguments():
    helper.__code__ = (lambda x, scale=1, more=2, *, shift=3: x + scale + more + shift).__code__
    helper.__defaults__ = (4.0, 5.0)


def new_defaults():
    helper.__defaults__ = (7.0,)


def no_defaults():
    helper.__defaults__ = None


def new_keyword_defaults():
    helper.__kwdefaults__ = {"shift": 11.0}


def written_keyword_defaults():
    helper.__kwdefaults__["shift"] = 12.0


def new_names():
    helper.__name__ = "renamed"
    helper.__doc__ = "told"
    helper.__annotations__["x"] = int


CHANGES = [
    new_code,
    code_with_more_arguments,
    new_defaults,
    no_defaults,
    new_keyword_defaults,
    written_keyword_defaults,
    new_names,
]
READERS = [calls, reads_defaults, reads_code, reads_names, reads_signature, wraps]


@pytest.fixture(autouse=True)
def as_it_was():
    def parts():
        return {
            "__code__": helper.__code__,
            "__defaults__": helper.__defaults__,
            "__kwdefaults__": dict(helper.__kwdefaults__),
            "__annotations__": dict(helper.__annotations__),
            "__name__": helper.__name__,
            "__doc__": helper.__doc__,
        }

    before = parts()
    yield
    for name, value in before.items():
        setattr(helper, name, value)


@pytest.mark.parametrize("reader", READERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_change_is_seen(change, reader):
    compiled = oxyfuel.compile(reader)

    def agree():
        results = [outcome(run, reader, (X,), {}) for run in (reader, compiled)]
        assert not outcome_differences(*results)

    agree()
    agree()
    change()
    agree()
    agree()


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_the_compiled_function_itself_changes(change):
    compiled = oxyfuel.compile(helper)
    for step in (None, change):
        if step:
            step()
        results = [outcome(run, helper, (X,), {}) for run in (helper, compiled, compiled)]
        assert not outcome_differences(*results[:2])
        assert not outcome_differences(*results[1:])


def test_a_code_that_comes_back_is_not_captured_again():
    compiled = oxyfuel.compile(helper)
    first = helper.__code__
    for code in (first, other.__code__, first, other.__code__):
        helper.__code__ = code
        assert torch.equal(compiled(X), helper(X))
    assert oxyfuel.stats()["graphs"] == 2


def test_special_methods_that_come_later():
    class Box:
        def __init__(self, items):
            self.items = items

        def __len__(self):
            return len(self.items)

        def __getitem__(self, i):
            return self.items[i]

    def f(x, box):
        return x * (2 if box else 3) + box[0]

    compiled = oxyfuel.compile(f)
    box = Box([1.0])
    assert torch.equal(compiled(X, box), f(X, box))
    Box.__bool__ = lambda self: False
    assert torch.equal(compiled(X, box), f(X, box))
    Box.__getitem__ = lambda self, i: 9.0
    assert torch.equal(compiled(X, box), f(X, box))
    del Box.__bool__
    assert torch.equal(compiled(X, box), f(X, box))


class Logged:
    """A data descriptor of the user's."""

    def __init__(self, log):
        self.log = log

    def __set_name__(self, owner, name):
        self.key = "_" + name

    def __get__(self, o, owner=None):
        if o is None:
            return self
        self.log.append("get")
        return o.__dict__[self.key]

    def __set__(self, o, value):
        self.log.append("set")
        o.__dict__[self.key] = value

    def __delete__(self, o):
        self.log.append("delete")
        del o.__dict__[self.key]


def test_descriptors_of_the_user_s():
    def run(wrap):
        log = []

        class Holder:
            value = Logged(log)

            @functools.cached_property
            def twice(self):
                log.append("twice")
                return self.value * 2

        def f(x, holder):
            holder.value = x + 1
            holder.value += 1
            y = holder.value + holder.twice + holder.twice
            is_itself = Holder.value is type(holder).__dict__["value"]
            del holder.value
            try:
                return holder.value
            except KeyError as e:
                return y, is_itself, str(e)

        call, out = wrap(f), []
        for _ in range(3):
            holder = Holder()
            out.append((call(X, holder), sorted(holder.__dict__)))
        Logged.__get__, before = (lambda self, o, owner=None: 5.0), Logged.__get__
        try:
            out.append(call(X, Holder()))
        finally:
            Logged.__get__ = before
        return out, log

    expected, actual = run(lambda f: f), run(oxyfuel.compile)
    assert str(actual) == str(expected)


def test_descriptors_are_in_the_graph():
    class Holder:
        value = Logged([])

    def f(x, holder):
        holder.value = x + 1
        return holder.value * 2

    holder = Holder()
    compiled = oxyfuel.compile(f, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(X, holder), (X + 1) * 2)
    assert torch.equal(holder.__dict__["_value"], X + 1)


def write_a_default(x, f):
    f.__kwdefaults__["shift"] = 5.0
    return f(x), str(inspect.signature(f)), functools.partial(f, scale=1.0)(x)


def delete_a_default(x, f):
    del f.__kwdefaults__["shift"]
    try:
        return f(x)
    except TypeError as e:
        return x, str(e)


@pytest.mark.parametrize("function", [write_a_default, delete_a_default])
def test_defaults_that_captured_code_writes(function):
    def made(x, scale=2.0, *, shift=1.0):
        return x * scale + shift

    compiled, found = oxyfuel.compile(function), []
    for run in (function, compiled, compiled):
        made.__kwdefaults__ = {"shift": 1.0}
        found.append(str((run(X, made), made.__kwdefaults__)))
    assert found[0] == found[1] == found[2]
