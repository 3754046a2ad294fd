"""Writes down what a CPython says of its bytecode, for tests where it is not at hand.

tools/record_bytecode.py runs this inside of that CPython, and check_recorded.py reads it.
"""

import importlib.util
import json
import marshal
import opcode
import sys

import reference

# Of the standard library. `dis` is written down for one of their code objects in so many.
MODULES = ["asyncio.taskgroups", "asyncio.timeouts", "contextlib", "functools"]
MODULES += ["string.templatelib", "textwrap"]
STRIDE = 7

# With these there is every instruction. Too new a syntax for the machine's own Python.
EXAMPLES = """
count: int = 0

def template(name, width):
    return t"{name!r} is {width:>{width}} wide", f"{name!s:{width}}{-width}{~width}"

def match(subject):
    match subject:
        case [first, *rest, last]:
            return first, rest, last
        case {"a": a, **others} if a:
            return others
        case complex(real=real) | str(real):
            return real
        case None:
            global count
            count += 1
            del count

def groups(call):
    try:
        call()
    except* ValueError as error:
        print(error)
    except* (TypeError, KeyError):
        pass

async def each(source, lock):
    async with lock:
        async for item in source:
            if await item is not lock:
                yield [x async for x in item]

def delegate(a, b):
    first, *rest = {*a, *b}
    a[first:b] = yield from b
    c = d = {**a, first: rest}
    return all(x for x in c), {x: x for x in d}, a[b], a[1:2], a[first:b:c]

class Base[T: int = str]:
    type Alias[*Ts] = tuple[*Ts]
    def method(self, *args: T, **more: Alias) -> "Base":
        assert args, more
        return super().method(*args, **more), super().value, self.method(*args), self.f(a=1, b=2)

def cells(x):
    class Inner:
        y = x
        def get(self):
            return __class__, x
    del x
    return Inner

def maybe(a):
    if a is not None and a in (1, 2):
        b = [a for a in a for b in a if not a]
    del a
    with b, open(b) as c:
        return lambda: b(c)
"""
# Without deferred annotations, and with jumps that are long.
MORE_EXAMPLES = (
    """
from __future__ import annotations
count: int = 0
def long(items):
    for i in items:
        while i:
            try:
                i.go(i.on, items)
"""
    + "\n".join(f"                i.a{n} = i.b[{n * 100}]" for n in range(140))
    + """
            except ValueError:
                continue
"""
)
LISTS = ["hascompare", "hasconst", "hasfree", "hasjabs", "hasjrel", "haslocal", "hasname"]


def tables():
    """The module `opcode`."""
    facts = {name: sorted(getattr(opcode, name)) for name in LISTS}
    facts["opname"] = opcode.opname
    facts["_specialized_opmap"] = opcode._specialized_opmap
    facts["_inline_cache_entries"] = opcode._inline_cache_entries
    facts["HAVE_ARGUMENT"] = opcode.HAVE_ARGUMENT
    return facts


def stack_effects(lines, jumps):
    """{name: a number, or one for each argument} of what these lines have, and of small arguments
    besides."""
    arguments = {}
    for line in lines:
        few = () if line.argument is None else range(8)
        arguments.setdefault(line.name, {*few}).add(line.argument)
    found = {}
    for name, tried in arguments.items():
        effects = {value: reference.stack_effect(name, value, jumps) for value in tried}
        constant = len({*effects.values()}) == 1
        found[name] = effects.popitem()[1] if constant else effects
    return found


def marshalled(code):
    """Readable for every version from 3.11 on."""
    return marshal.dumps(code, 4).hex()


def without_slices(constant):
    """Versions before 3.14 cannot read slices."""
    if isinstance(constant, slice):
        return repr(constant)
    if isinstance(constant, tuple):
        return tuple(map(without_slices, constant))
    if hasattr(constant, "co_consts"):
        return constant.replace(co_consts=without_slices(constant.co_consts))
    return constant


def sources():
    for name in MODULES:
        yield name, importlib.util.find_spec(name).loader.get_source(name)
    yield "examples", EXAMPLES
    yield "more examples", MORE_EXAMPLES


def seen_by_dis(code):
    constants = {*opcode.hasconst}
    depths = reference.depths(code)
    places = reference.places(code)
    lines = [
        [*line[:4], "" if opcode.opmap[line.name] in constants else line.text]
        for line in reference.shown(code)
    ]
    return {
        "lines": lines,
        "places": [places[offset // 2] for offset, *_ in lines],
        "depths": [depths.get(offset) for offset, *_ in lines],
        "ranges": reference.ranges(code),
    }


def recorded():
    """As JSON: [the tables, the code objects]."""
    modules = []
    for name, source in sources():
        modules.append((name, without_slices(compile(source, name, "exec"))))
    codes = [code for _, module in modules for code in reference.code_objects(module)]
    kept = [
        {
            "name": name,
            "code": marshalled(module),
            "seen": {
                index: seen_by_dis(code)
                for index, code in enumerate(reference.code_objects(module))
                if index % STRIDE == 0 or "examples" in name
            },
        }
        for name, module in modules
    ]
    runs = []
    for function, argument in reference.RUN:
        raised, offsets = reference.visits(function, argument)
        runs.append(
            {"code": marshalled(function.__code__), "raised": raised, "offsets": sorted(offsets)}
        )
        codes.append(function.__code__)
    codes.append(reference.written_twice.__code__)
    facts = {"version": sys.version.split()[0], "hexversion": sys.hexversion, **tables()}
    facts["habits"] = reference.habits()
    lines = [line for code in codes for line in reference.shown(code)]
    jumps = [line for line in lines if line.target is not None]
    facts["stack_effects"] = stack_effects(lines, False)
    facts["stack_effects_of_jumps"] = stack_effects(jumps, True)
    written_twice = marshalled(reference.written_twice.__code__)
    return json.dumps([facts, {"modules": kept, "runs": runs, "written_twice": written_twice}])
