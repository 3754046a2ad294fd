"""Code objects taken apart and put together: the standard library, executed functions, liveness."""

import contextlib
import dis
import io
import pathlib
import sysconfig
import types
import warnings

import pytest

from oxyfuel import _C

SKIPPED = {"test", "tests", "idle_test", "site-packages", "lib2to3", "turtledemo"}


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def library_codes():
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if SKIPPED.isdisjoint(path.relative_to(root).parts):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield from code_objects(compile(path.read_bytes(), path.name, "exec"))


def dis_text(code):
    out = io.StringIO()
    dis.dis(code, file=out, depth=0)
    return [line for line in out.getvalue().splitlines() if line]


def test_standard_library_round_trips():
    count = 0
    for code in library_codes():
        made = _C.bytecode_round_trip(code)
        where = f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"
        assert made.co_code == code.co_code, where
        assert made.co_exceptiontable == code.co_exceptiontable, where
        assert made.co_linetable == code.co_linetable, where
        assert made.co_stacksize == code.co_stacksize, where
        assert list(made.co_positions()) == list(code.co_positions()), where
        assert made == code, where
        count += 1
    assert count > 10000


def test_text_is_that_of_dis():
    for code in code_objects(compile(pathlib.Path(dis.__file__).read_bytes(), "dis.py", "exec")):
        if any(
            instruction.opcode == dis.EXTENDED_ARG for instruction in dis.get_instructions(code)
        ):
            continue
        lines = [line for line in _C.bytecode_text(code).splitlines() if line]
        # dis 3.11 does not show the constant of KW_NAMES.
        assert [x.split(" (")[0] if "KW_NAMES" in x else x for x in lines] == dis_text(code)


def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def closures(n):
    total = []

    def add(x):
        nonlocal n
        n += x
        total.append(n)
        return n

    return [add(i) for i in range(n)], total


def handled(values):
    result = []
    for value in values:
        try:
            result.append(10 // value)
        except ZeroDivisionError as error:
            result.append(str(error))
        except TypeError:
            continue
        else:
            result.append("else")
        finally:
            result.append("finally")
    return result


def with_blocks(n):
    log = []

    @contextlib.contextmanager
    def block(name):
        log.append(name)
        try:
            yield name
        finally:
            log.append(-name)

    with block(n) as first, block(n + 1):
        log.append(first)
    with contextlib.suppress(KeyError), block(n + 2):
        log.append({}[first])
    return log


def calls(a, *args, b=2, **kwargs):
    pairs = dict(zip(args, sorted(kwargs), strict=False))
    return f"{a!r:>4}{b}", {**pairs, "x": [*args]}, (lambda y, z=a: y + z)(b)


def loops(n):
    i = out = 0
    while True:
        i += 1
        if (i % 2 and i > 3) or i is None:
            continue
        for j in range(i):
            if j == 3:
                break
            out += j
        else:
            out += 100
        if i > n:
            break
    return out, i


def matched(value):
    match value:
        case {"a": [x, *rest]}:
            return x, rest
        case (1 | 2) as y:
            return y
        case str():
            return value.upper()
        case _:
            return None


class Base:
    def method(self, x):
        return x + 1


class Derived(Base):
    def method(self, x):
        y = super().method(x)
        return super().method(y) * 2

    def captured(self, x):
        return (lambda: self.method(x))() + super().method(x)


def methods(n):
    return Derived().method(n), Derived().captured(n)


CASES = [
    (fibonacci, (20,)),
    (closures, (5,)),
    (handled, ([1, 0, 2, None, 0, 5],)),
    (with_blocks, (3,)),
    (calls, (1, 2, 3)),
    (loops, (9,)),
    (matched, ({"a": [1, 2, 3]},)),
    (matched, (2,)),
    (matched, ("text",)),
    (matched, (None,)),
    (methods, (4,)),
    (Derived.method, (Derived(), 3)),
    (Derived.captured, (Derived(), 3)),
]


@pytest.mark.parametrize(("function", "arguments"), CASES)
def test_round_trip_runs(function, arguments):
    made = types.FunctionType(
        _C.bytecode_round_trip(function.__code__),
        function.__globals__,
        closure=function.__closure__,
        argdefs=function.__defaults__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    assert made(*arguments) == function(*arguments)


def live_at(function, operation, argument):
    """The live locals in front of the first such instruction."""
    sets = dict(_C.bytecode_live(function.__code__))
    for instruction in dis.get_instructions(function):
        if instruction.opname == operation and instruction.argval == argument:
            return set(sets[instruction.offset])
    raise AssertionError(f"no {operation} {argument}")


def test_a_local_is_live_until_its_last_read():
    def f(a, b):
        c = a + b
        d = c * 2
        return d

    assert live_at(f, "LOAD_FAST", "a") == {"a", "b"}
    assert live_at(f, "STORE_FAST", "c") == set()
    assert live_at(f, "LOAD_FAST", "c") == {"c"}
    assert live_at(f, "LOAD_FAST", "d") == {"d"}


def test_a_loop_keeps_what_its_next_round_reads():
    def f(xs, scale):
        total = 0
        for x in xs:
            total += x * scale
        return total

    assert live_at(f, "STORE_FAST", "x") == {"total", "scale"}
    assert live_at(f, "STORE_FAST", "total") == {"xs", "scale"}


def test_a_handler_keeps_what_it_reads():
    def f(a, b):
        result = a
        try:
            result = b()
        except ValueError:
            return result
        return 1

    # The call may raise before the second write.
    assert live_at(f, "LOAD_FAST", "b") == {"b", "result"}


def test_cells_and_the_argument_of_super_are_always_live():
    def f(a, b):
        def g():
            return a

        return g, b

    assert live_at(f, "LOAD_FAST", "b") == {"a", "b"}
    assert live_at(Derived.method, "LOAD_FAST", "y") == {"self", "y", "__class__"}


def test_a_deletion_reads():
    def f(a):
        del a
        a = 1
        return a

    assert live_at(f, "DELETE_FAST", "a") == {"a"}
    assert live_at(f, "LOAD_CONST", 1) == set()
