"""A small program for each opcode of CPython 3.11: `PROGRAMS` maps the opcodes that a program is
there for to its text.

Each defines `main(x, n, items, table, thing)`, called with a tensor, an int, a list of ints, a dict
and an object that has `a` and `b` (tests/property/python_prelude.py). `BREAKS` names those that
have a graph break by what they do, `LEFT_OUT` the opcodes that no function which is captured can
have.
"""

import sys

# Of 3.10 alone.
LEFT_OUT_OF_310 = {
    "SETUP_ASYNC_WITH": "only in coroutines, which are left alone",
}

LEFT_OUT = {
    "ASYNC_GEN_WRAP": "only in asynchronous generators, which are left alone",
    "BEFORE_ASYNC_WITH": "only in coroutines, which are left alone",
    "END_ASYNC_FOR": "only in coroutines, which are left alone",
    "GET_AITER": "only in coroutines, which are left alone",
    "GET_ANEXT": "only in coroutines, which are left alone",
    "GET_AWAITABLE": "only in coroutines, which are left alone",
    "CACHE": "no instruction: room behind one",
    "IMPORT_STAR": "only in modules",
    "PRINT_EXPR": "only in interactive code",
}

BREAKS = {}

PROGRAMS: dict[str, tuple[str, str]] = {}


def program(name: str, opcodes: str, text: str) -> None:
    PROGRAMS[name] = (opcodes, text)


program(
    "operators",
    "BINARY_OP COMPARE_OP CONTAINS_OP IS_OP UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE",
    """
def main(x, n, items, table, thing):
    y = (x + n) * 2 - x / 3 + (x ** 2) % 5
    k = n << 2 | n >> 1 & 7 ^ 3
    k += n // 2
    k -= 1
    y = y @ x + -x + +n + ~k
    return y, k, n < 3, 2 in items, "z" not in table, x is y, thing is not None, not items
""",
)
program(
    "containers",
    "BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SET BUILD_SLICE BUILD_TUPLE LIST_EXTEND "
    "SET_UPDATE DICT_UPDATE "
    "LIST_TO_TUPLE BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR",
    """
def main(x, n, items, table, thing):
    a = {"p": x, "q": n}
    b = {n: x, **table}
    c = [n, x, *items]
    d = {n, 5, *items}
    e = (*items, n)
    c[0] = c[1:3:1]
    del c[-1], b["a"]
    table["new"] = items[n - 2:]
    return a, b, c, sorted(d), e, x[0], {1, 2, 3}
""",
)
program(
    "comprehensions",
    "LIST_APPEND SET_ADD MAP_ADD FOR_ITER GET_ITER MAKE_FUNCTION JUMP_BACKWARD POP_TOP",
    """
def main(x, n, items, table, thing):
    a = [i * x for i in items if i > 1]
    b = {i % 2 for i in items}
    c = {k: v + n for k, v in table.items()}
    d = sum(i for i in items)
    return a, sorted(b), c, d, (lambda q=n: q)()
""",
)
program(
    "strings",
    "BUILD_STRING FORMAT_VALUE",
    """
def main(x, n, items, table, thing):
    return f"{n}", f"{n:>4}|{items!r}|{n!s:<3}|{'a'!a}", f"{n}{n}", x + 1
""",
)
program(
    "calls",
    "CALL CALL_FUNCTION_EX DICT_MERGE KW_NAMES PRECALL PUSH_NULL LOAD_METHOD LOAD_GLOBAL "
    "LOAD_CONST LOAD_FAST STORE_FAST",
    """
def f(a, b=2, /, *rest, c=3, d, **more):
    return a + b, rest, c, d, more

def main(x, n, items, table, thing):
    g = f
    return (f(n, d=1), g(x, *items, d=n), f(*items, **table, d=2), g(1, d=4, **{"e": n}),
            thing.method(n), x.add(n), apply(second=1, first=n), abs(-n))
""",
)
program(
    "jumps",
    "JUMP_FORWARD JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP POP_JUMP_FORWARD_IF_FALSE "
    "POP_JUMP_FORWARD_IF_NONE "
    "POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE NOP RESUME RETURN_VALUE",
    """
def main(x, n, items, table, thing):
    y = n or x
    z = n and items
    if n is None:
        y = 1
    if table.get("z") is not None:
        y = 2
    if not (n > 2 or n < 0) and z:
        x = x + 1
    else:
        x = x - 1
    while True:
        if n > 3:
            break
        n += 1
    pass
    return x, y, z, n, 1 if items else 2
""",
)
program(
    "jumps back",
    "POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_NONE "
    "POP_JUMP_BACKWARD_IF_NOT_NONE",
    """
def main(x, n, items, table, thing):
    i = 3
    while i:
        i -= 1
        x = x + i
    while not i > 2:
        i += 1
    node = [1, [2, [3, None]]]
    while node is not None:
        x = x * node[0]
        node = node[1]
    found = None
    while found is None:
        i -= 1
        found = i if i < 1 else None
    return x, i, found
""",
)
program(
    "cells",
    "COPY_FREE_VARS DELETE_DEREF LOAD_CLOSURE LOAD_DEREF MAKE_CELL STORE_DEREF",
    """
def main(x, n, items, table, thing):
    count, gone = 0, 1
    def add(k):
        nonlocal count, gone
        count += k
        gone = k
        return x * count
    def drop():
        nonlocal gone
        del gone
    a = add(n), add(2)
    drop()
    try:
        gone
    except NameError as e:
        message = str(e)
    return a, count, message, [lambda: n for _ in range(2)][1]()
""",
)
program(
    "names and attributes",
    "DELETE_ATTR DELETE_FAST LOAD_ATTR STORE_ATTR STORE_GLOBAL IMPORT_NAME IMPORT_FROM",
    """
def main(x, n, items, table, thing):
    global total
    import math
    from operator import add as plus
    import os.path as p
    thing.a = n
    thing.new = x
    del thing.new
    k = 1
    del k
    total = plus(total, n)
    try:
        k
    except UnboundLocalError as e:
        k = str(e)
    return math.floor(2.5), k, thing.a, x, total, p.sep
""",
)
program(
    "del global",
    "DELETE_GLOBAL",
    """
here = 1

def main(x, n, items, table, thing):
    global here
    here = 2
    del here
    try:
        here
    except NameError as e:
        return x * 2, str(e)
""",
)
program(
    "unpacking",
    "UNPACK_EX UNPACK_SEQUENCE COPY SWAP",
    """
def main(x, n, items, table, thing):
    a, *b, c = items
    d, e = table
    (f, g), h = (x, n), n
    a, c = c, a
    i = j = n
    a, b, c = c, b, a
    items[0] += 1
    x[0], y = 5 - n, 1 < n < 5
    return a, b, c, d, e, f, g, h, i, j, y
""",
)
program(
    "match",
    "MATCH_CLASS MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE GET_LEN",
    """
def main(x, n, items, table, thing):
    out = []
    for o in (items, table, thing, n, "s", (1, [2, 3]), Point(1, 2)):
        match o:
            case [a, b, c]:
                out.append((a, b, c))
            case [a, [b, *c]]:
                out.append(c)
            case {"a": a, **rest}:
                out.append((a, rest))
            case Point(a, 2):
                out.append(a)
            case Base(a=a):
                out.append(a)
            case int(k) if k > 2:
                out.append(-k)
            case str() | 2 as k:
                out.append(k)
            case _:
                out.append(None)
    return out, x + len(out)
""",
)
program(
    "exceptions",
    "CHECK_EXC_MATCH POP_EXCEPT PUSH_EXC_INFO RAISE_VARARGS RERAISE LOAD_ASSERTION_ERROR",
    """
def main(x, n, items, table, thing):
    out = []
    for kind in (KeyError, ValueError, ZeroDivisionError, AssertionError, None):
        try:
            try:
                x = x + 1
                if kind is KeyError:
                    table["none"]
                elif kind is ValueError:
                    raise Problem(n) from KeyError(1)
                elif kind is ZeroDivisionError:
                    n // 0
                assert kind is None, "not none"
            except (KeyError, ZeroDivisionError) as e:
                out.append(repr(e))
                raise ValueError(n)
            except Problem as e:
                out.append((chain(e), e.args))
            else:
                out.append("else")
            finally:
                out.append("finally")
                x = x * 2
        except ValueError as e:
            out.append(chain(e))
        except AssertionError as e:
            try:
                raise
            except Exception as f:
                out.append((e is f, str(f)))
    return out, x
""",
)
program(
    "with",
    "BEFORE_WITH WITH_EXCEPT_START",
    """
def main(x, n, items, table, thing):
    with Manager("a", KeyError) as m, Manager("b", ValueError):
        x = x + 1
        raise KeyError(n)
    with contextlib.suppress(IndexError):
        items[99]
    with managed(n) as k:
        x = x * k
        raise ValueError(k)
    try:
        with Manager("c", KeyError):
            x = x + 1
            raise IndexError(2)
    except IndexError as e:
        return x, m.name, k, e.args
""",
)
if sys.version_info >= (3, 11):
    program(
        "except star",
        "CHECK_EG_MATCH PREP_RERAISE_STAR",
        """
def main(x, n, items, table, thing):
    out = []
    try:
        raise ExceptionGroup("all", [ValueError(n), KeyError(2)])
    except* ValueError as e:
        out.append(e.exceptions[0].args)
    except* KeyError as e:
        out.append(str(e))
    return out, x + 1
""",
    )
program(
    "generators",
    "GET_YIELD_FROM_ITER JUMP_BACKWARD_NO_INTERRUPT RETURN_GENERATOR SEND YIELD_VALUE",
    """
def inner(k):
    got = yield k
    try:
        yield got
    except ValueError as e:
        yield e.args
    return k + 1

def outer(k):
    r = yield from inner(k)
    yield r
    yield from [1, 2]

def main(x, n, items, table, thing):
    g = outer(n)
    first = next(g), g.send(x), g.throw(ValueError(3)), list(g)
    h = outer(1)
    next(h)
    h.close()
    return first, sum(outer(2), 0) if n < 0 else [*counter(3)], list(zip(counter(2), items))
""",
)
program(
    "class body",
    "LOAD_BUILD_CLASS LOAD_CLASSDEREF LOAD_NAME STORE_NAME DELETE_NAME SETUP_ANNOTATIONS",
    """
def main(x, n, items, table, thing):
    class Local(Base):
        size: int = n
        other = size + n
        gone = 1
        del gone
        def method(self, p):
            return super().method(p) + self.size
    o = Local(1, 2)
    return o.method(n), x * Local.other, Local.__annotations__, hasattr(o, "gone")
""",
)
program(
    "operators in place",
    "BINARY_OP",
    """
def main(x, n, items, table, thing):
    k, s, y = n + 40, {1, 2}, x + 1
    k //= 3
    k <<= 2
    k >>= 1
    k %= 7
    k *= 5
    k **= 2
    k &= 0xff
    k |= 3
    k ^= n
    s &= {2, 3}
    s |= {n + 9}
    y *= k
    y /= 3
    y @= x
    y -= 1
    items *= 2
    items += [k]
    return k, s, y
""",
)
program(
    "a pattern with many names",
    "MATCH_KEYS",
    """
def main(x, n, items, table, thing):
    match ([n, items, table, 3], 4):
        case ([a, [b, *c], {"a": d, **rest}, e], f) if e == 3:
            return a, b, c, d, rest, e, f, x + a
        case _:
            return x
""",
)
program(
    "many constants",
    "EXTENDED_ARG",
    "\ndef main(x, n, items, table, thing):\n    y = 0\n"
    + "".join(f"    y += {1000 + k}\n" for k in range(300))
    + "    return x + y, n\n",
)
