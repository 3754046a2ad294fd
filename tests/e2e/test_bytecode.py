"""Code objects taken apart and put together: executed functions, liveness, breaks. The standard
library: tests/bytecode."""

import contextlib
import copy
import dis
import io
import pathlib
import sys
import types

import pytest

from oxyfuel import _C


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def dis_text(code):
    out = io.StringIO()
    dis.dis(code, file=out, depth=0)
    return [line for line in out.getvalue().splitlines() if line]


def with_code(function, code):
    made = types.FunctionType(
        code,
        function.__globals__,
        closure=function.__closure__,
        argdefs=function.__defaults__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def plain(function):
    """The function with plain instructions alone: what the code around breaks is made of."""
    return with_code(function, _C.bytecode_plain(function.__code__))


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="dis prints labels instead of offsets")
def test_text_is_that_of_dis():
    for code in code_objects(compile(pathlib.Path(dis.__file__).read_bytes(), "dis.py", "exec")):
        if any(
            instruction.opcode == dis.EXTENDED_ARG for instruction in dis.get_instructions(code)
        ):
            continue
        text = _C.bytecode_text(code)
        if sys.version_info < (3, 11):  # the ranges of blocks, of which dis has no table
            text = text.partition("ExceptionTable:\n")[0]
        lines = [line for line in text.splitlines() if line]
        # dis 3.11 does not show the constant of KW_NAMES, 3.12 names intrinsics.
        unlike = ("KW_NAMES", "CALL_INTRINSIC")
        shown = [
            [x.split(" (")[0] if any(u in x for u in unlike) else x for x in part]
            for part in (lines, dis_text(code))
        ]
        assert shown[0] == shown[1]


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
@pytest.mark.parametrize("make", [_C.bytecode_round_trip, _C.bytecode_plain])
def test_round_trip_runs(make, function, arguments):
    made = with_code(function, make(function.__code__))
    assert made(*arguments) == function(*arguments)


def live_at(function, operation, argument):
    """The live locals in front of the first such instruction."""
    function = plain(function)
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


def states(function, arguments):
    """{offset: (live slots, their values)} where the stack is empty, at each first visit."""
    code = function.__code__
    names = [*code.co_varnames, *code.co_cellvars, *code.co_freevars]
    depths, live = dict(_C.bytecode_depths(code)), dict(_C.bytecode_live(code))
    closure = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    found = {}

    def trace(frame, event, _):
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        at = frame.f_lasti
        if event == "opcode" and depths.get(at) == 0 and at not in found:
            values = {
                n: copy.deepcopy(frame.f_locals[n])
                for n in code.co_varnames
                if n in live[at] and n in frame.f_locals
            } | closure
            found[at] = [names.index(n) for n in values], list(values.values())
        return trace

    for _ in range(2):  # 3.12 tells of opcodes from the second run on
        sys.settrace(trace)
        try:
            function(*arguments)
        finally:
            sys.settrace(None)
    assert found
    return found


def tries(a, b):
    result = a
    try:
        result = a // b
        result += a[0]
    except ZeroDivisionError:
        result = -1
    except TypeError as error:
        result = result, str(error)
    finally:
        b = 0
    return result, b


RESUMED = [
    (fibonacci, (9,)),
    (tries, (3, 0)),
    (tries, (3, 2)),
    (handled, ([1, 0, 2],)),
    (calls, (1, 2, 3)),
    (loops, (9,)),
    (matched, ({"a": [1, 2, 3]},)),
    (Derived.method, (Derived(), 3)),
]


@pytest.mark.parametrize(("function", "arguments"), RESUMED)
def test_resuming_with_the_live_locals_only(function, arguments):
    expected = function(*arguments)
    function = plain(function)
    found = states(function, arguments)
    starts = (i.offset for i in dis.get_instructions(function) if i.opname == "RESUME")
    resume = next(starts, 0)  # of 3.10 the first instruction
    for offset, (slots, values) in found.items():
        if offset > resume:
            state = ([], slots)
            made = _C.bytecode_resume(function.__code__, offset, state, function.__globals__)
            assert made.__name__ == f"__resume_at_{offset}_0"
            assert made(*values) == expected, offset


def product(c, k):
    if k < 0:
        raise ValueError
    return c * k


def broken(a, b):
    c = a + b
    try:
        d = product(c, k=a)
    except ValueError:
        d = -1

    def h():
        return c

    return d * 2 + h()


# What a call finds on the stack: below its arguments, and above them the names of keywords.
CALLEE = {10: [False], 13: [False, True]}.get(sys.version_info[1], [True, False])
NAMES = [] if sys.version_info[:2] in ((3, 11), (3, 12)) else [("k",)]
CALLS = ("PRECALL", "CALL", "CALL_KW", "CALL_FUNCTION_KW")


def test_a_break_in_a_call_under_a_handler():
    code = _C.bytecode_plain(broken.__code__)
    operations = [(i.offset, i.opname) for i in dis.get_instructions(code)]
    call = next(at for at, name in operations if name in CALLS)
    behind = next(at for at, name in operations if at > call and name == "STORE_FAST")
    c = len(code.co_varnames)
    resume = _C.bytecode_resume(code, behind, ([False], [c]), globals())
    assert resume(6, types.CellType(5)) == 17

    def compiled(inputs):
        a, b = inputs
        return product, a + b, a, *NAMES, types.CellType(a + b)

    before = ([*CALLEE, False, False, *(False for _ in NAMES)], [c])
    made = _C.bytecode_break(code, call, compiled, before, resume, [c], None, [])
    assert made.co_varnames[:3] == ("a", "b", "___inputs")
    function = types.FunctionType(made, globals())
    assert function(None, None, (2, 3)) == broken(2, 3)
    assert function(None, None, (-2, 3)) == broken(-2, 3)

    inner = _C.bytecode_inner_break(code, call, False, before, resume, [c], globals())
    assert inner(product, 5, 2, *NAMES, types.CellType(5)) == broken(2, 3)
    assert inner(product, 1, -2, *NAMES, types.CellType(1)) == broken(-2, 3)
    outer = _C.bytecode_inner_break(code, call, True, (CALLEE, [c]), resume, [c], globals())
    assert outer(lambda: 10, types.CellType(5)) == 25
    assert outer(lambda: product(1, -1), types.CellType(5)) == 3


def test_super_after_a_resume_with_a_value_on_the_stack():
    code = _C.bytecode_plain(Derived.method.__code__)
    store = next(i.offset for i in dis.get_instructions(code) if i.opname == "STORE_FAST")
    resume = _C.bytecode_resume(code, store, ([False], [0, 3]), globals())
    assert resume(7, Derived(), Derived.method.__closure__[0]) == 16
