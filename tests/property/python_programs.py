"""Random Python programs: `make_source(seed)` gives the text of a module with a function `main(x,
n, items, table, thing)`, to be read behind the prelude.

The text is made by kinds of value (int, text, list ...): an expression of a kind is made of
variables of that kind in scope, constants, and operations on smaller expressions. Most expressions
run; some raise, since an index may lie outside a list and a key may be missing, and a program may
leave a variable unbound. All loops end. What is drawn depends on the seed alone.
"""

from __future__ import annotations

import contextlib
import random

from python_prelude import CLASSES

KINDS = ("int", "text", "list", "dict", "tuple", "set", "tensor", "flag", "float", "thing", "call")
ERRORS = ("ValueError", "KeyError", "Problem", "Detailed", "ZeroDivisionError", "IndexError")
ATTRIBUTES = ("'a'", "'extra'", "'zz'")
SIZED = ("list", "dict", "text", "tuple", "set", "thing")
KEYS = ("'a'", "'b'", "'c'", "'d'")
GLOBALS = {"total": "int", "notes": "list", "settings": "dict", "shared": "thing"}


class Scope:
    """The names that a function may use, by kind, and what it may do."""

    def __init__(self, names: dict[str, str], outer: Scope | None = None) -> None:
        self.names = dict(names)
        self.outer = outer
        self.in_loop = False
        self.in_generator = False
        self.in_handler = False


class Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 0
        self.scope = Scope({})
        self.count = 0
        self.budget = self.random.choice((8, 14, 22, 32))
        self.functions: list[str] = []  # of the module, taking an int and a list

    # --------------------------------------------------------------------------------------- pieces

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextlib.contextmanager
    def block(self, head: str):
        self.put(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.put("pass")
        self.depth -= 1

    def pick(self, *choices):
        return self.random.choice(choices)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def new_name(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def names(self, kind: str) -> list[str]:
        found, scope = [], self.scope
        while scope is not None:
            found += [n for n, k in scope.names.items() if k == kind]
            scope = scope.outer
        return found + [n for n, k in GLOBALS.items() if k == kind]

    def local(self, kind: str) -> str | None:
        own = [n for n, k in self.scope.names.items() if k == kind]
        return self.pick(*own) if own else None

    def variable(self, kind: str) -> str:
        names = self.names(kind)
        return self.pick(*names) if names else self.constant(kind)

    def expr(self, kind: str, depth: int = 2) -> str:
        if depth <= 0 or self.chance(0.25):
            return self.constant(kind) if self.chance(0.4) else self.variable(kind)
        return getattr(self, "make_" + kind)(depth - 1)

    def any_expr(self, depth: int = 2) -> str:
        return self.expr(self.pick("int", "int", "text", "list", "dict", "tuple", "tensor"), depth)

    def constant(self, kind: str) -> str:
        r = self.random
        match kind:
            case "int":
                return str(r.randint(-2, 6))
            case "text":
                return self.pick("'a'", "'bc'", "''", "'x y'", "'Zed'")
            case "list":
                return str([r.randint(-1, 4) for _ in range(r.randint(0, 4))])
            case "dict":
                keys = r.sample(KEYS, r.randint(0, 3))
                return "{" + ", ".join(f"{k}: {r.randint(0, 5)}" for k in keys) + "}"
            case "tuple":
                return f"({r.randint(0, 4)}, {r.randint(0, 4)})"
            case "set":
                return self.pick("{1, 2}", "set()", "{3}", "{0, 1, 2, 3}")
            case "tensor":
                return self.pick("torch.ones(3)", "x", "torch.arange(3.0)")
            case "flag":
                return self.pick("True", "False")
            case "float":
                return self.pick("0.5", "1.5", "-2.0", "3.25")
            case "thing":
                return self.make_thing(0)
            case _:
                return self.pick("abs", "twice", "(lambda q: q + 1)", "operator.neg")

    # ---------------------------------------------------------------------------------- expressions

    def make_int(self, d: int) -> str:
        i, l, t = (lambda: self.expr("int", d)), (lambda: self.expr("list", d)), self.expr
        b = self.new_name("q")
        return self.pick(
            lambda: f"({i()} + {i()})",
            lambda: f"({i()} - {i()})",
            lambda: f"({i()} * {i()}) % 97",
            lambda: f"({i()} // {i()})",
            lambda: f"({i()} % {i()})",
            lambda: f"({i()} & {i()} | {i()} ^ 5)",
            lambda: f"(-{i()})",
            lambda: f"(~{i()} << 1)",
            lambda: f"len({t(self.pick(*SIZED), d)})",
            lambda: f"sum({l()})",
            lambda: f"max({l()}, default={i()})",
            lambda: f"min({i()}, {i()})",
            lambda: f"{l()}[{i()}]",
            lambda: f"{t('dict', d)}[{self.pick(*KEYS)}]",
            lambda: f"{t('dict', d)}.get({self.pick(*KEYS)}, {i()})",
            lambda: f"({i()} if {t('flag', d)} else {i()})",
            lambda: f"(lambda {b}, k={i()}: {b} + k)({i()})",
            lambda: f"functools.reduce(operator.add, {l()}, {i()})",
            lambda: f"next(iter({l()}), {i()})",
            lambda: f"{l()}.count({i()})",
            lambda: f"{t('text', d)}.find('a')",
            lambda: f"divmod({i()}, {i()})[1]",
            lambda: f"{t('thing', d)}.{self.pick('a', 'b', 'double', 'missing')}",
            lambda: f"{t('thing', d)}.method({i()})",
            lambda: f"{t('thing', d)}[{i()}]",
            lambda: f"getattr({t('thing', d)}, {self.pick(*ATTRIBUTES)}, {i()})",
            lambda: f"{t('call', d)}({i()})",
            lambda: f"int({t('float', d)})",
            lambda: f"x.shape[0] + {i()}",
            lambda: f"sum({b} for {b} in {l()} if {b} > {i()})",
            lambda: f"{self.pick(*self.functions, 'twice')}({i()})",
            lambda: f"apply(*{t('tuple', d)})",
            lambda: f"apply({i()}, **{{'second': {i()}}})",
            lambda: f"operator.itemgetter(0)({l()})",
            lambda: f"math.gcd({i()}, {i()})",
            lambda: f"list({t('dict', d)}.values())[{i()}]",
            lambda: f"cached({i()})",
            lambda: f"(w := {i()}) + w",
        )()

    def make_text(self, d: int) -> str:
        i, s = (lambda: self.expr("int", d)), (lambda: self.expr("text", d))
        a_number, a_list = self.variable("int"), self.variable("list")
        return self.pick(
            lambda: f"({s()} + {s()})[:12]",
            lambda: f"{s()}.upper()",
            lambda: f"{s()}[::-1]",
            lambda: f"{s()}[{i()}:]",
            lambda: f"str({self.any_expr(d - 1) if d < 1 else i()})",
            lambda: f"f'{{{a_number}:>4}}|{{{a_list}!r}}'",
            lambda: f"'%s-%d' % ({s()}, {i()})",
            lambda: f"'{{}},{{!r}}'.format({i()}, {s()})",
            lambda: f"','.join(map(str, {self.expr('list', d)}))",
            lambda: f"repr({self.expr(self.pick('list', 'dict', 'tuple'), d)})",
            lambda: f"{s()}.replace('a', {s()})[:12]",
            lambda: f"{s()}.split()[{i()}]",
            lambda: f"type({self.expr('thing', d)}).__name__",
            lambda: f"{s()}.strip().title().center(5, '*')",
        )()

    def make_list(self, d: int) -> str:
        i, l = (lambda: self.expr("int", d)), (lambda: self.expr("list", d))
        b, c = self.new_name("q"), self.new_name("q")
        return self.pick(
            lambda: f"[{b} + {i()} for {b} in {l()}]",
            lambda: f"[{b} for {b} in range({i()} % 5) if {b} % 2]",
            lambda: f"[{b} * {c} for {b} in {l()}[:3] for {c} in {l()}[:2]]",
            lambda: f"sorted({l()}, key=lambda {b}: -{b})",
            lambda: f"sorted({l()}, reverse={self.expr('flag', d)})",
            lambda: f"{l()}[{i()}:{i()}]",
            lambda: f"({l()} + {l()})[:6]",
            lambda: f"[*{l()}, {i()}, *{self.expr('tuple', d)}]",
            lambda: f"list(map({self.expr('call', d)}, {l()}))",
            lambda: f"list(filter(None, {l()}))",
            lambda: f"list({self.expr('dict', d)}.values())",
            lambda: f"list(reversed({l()}))",
            lambda: f"[{b} + {c} for {b}, {c} in zip({l()}, {l()})]",
            lambda: f"[{b} - {c} for {b}, {c} in enumerate({l()}, {i()})]",
            lambda: f"list(itertools.chain({l()}, {l()}))",
            lambda: f"list(itertools.islice(counter({i()}), {i()} % 4))",
            lambda: f"list({self.expr('thing', d)})",
            lambda: f"list({self.expr('tuple', d)})",
            lambda: f"sorted({self.expr('set', d)})",
            lambda: f"{l()}.copy()",
            lambda: f"list(itertools.accumulate({l()}))",
            lambda: f"[{b} for {b}, in zip({l()})]",
            lambda: f"list(itertools.takewhile(lambda {b}: {b} < {i()}, {l()}))",
            lambda: f"list(collections.deque({l()}, maxlen=3))",
        )()

    def make_dict(self, d: int) -> str:
        i, m, b = (
            (lambda: self.expr("int", d)),
            (lambda: self.expr("dict", d)),
            self.new_name("q"),
        )
        return self.pick(
            lambda: f"{{**{m()}, {self.pick(*KEYS)}: {i()}}}",
            lambda: f"({m()} | {m()})",
            lambda: f"dict(zip('abc', {self.expr('list', d)}))",
            lambda: f"{{k: {b} + {i()} for k, {b} in {m()}.items()}}",
            lambda: f"dict(a={i()}, **{{'b': {i()}}})",
            lambda: f"dict(sorted({m()}.items()))",
            lambda: f"{m()}.copy()",
            lambda: f"collections.Counter({self.expr('text', d)})",
            lambda: f"collections.OrderedDict({m()})",
            lambda: f"dict.fromkeys('ab', {i()})",
        )()

    def make_tuple(self, d: int) -> str:
        i = lambda: self.expr("int", d)
        return self.pick(
            lambda: f"({i()}, {i()})",
            lambda: f"divmod({i()}, {i()})",
            lambda: f"tuple({self.expr('list', d)})",
            lambda: f"(*{self.expr('list', d)}, {i()})",
            lambda: f"{self.expr('tuple', d)}[::-1]",
            lambda: f"Pair({i()}, {i()})",
            lambda: f"Pair({i()}, 1)._replace(left={i()})",
        )()

    def make_set(self, d: int) -> str:
        s = lambda: self.expr("set", d)
        b = self.new_name("q")
        return self.pick(
            lambda: f"set({self.expr('list', d)})",
            lambda: f"({s()} | {s()})",
            lambda: f"({s()} & {s()})",
            lambda: f"({s()} - {s()})",
            lambda: f"{{{b} % 3 for {b} in {self.expr('list', d)}}}",
        )()

    def make_tensor(self, d: int) -> str:
        t, i = (lambda: self.expr("tensor", d)), (lambda: self.expr("int", d))
        return self.pick(
            lambda: f"({t()} + {t()})",
            lambda: f"({t()} * {i()})",
            lambda: f"({i()} - {t()})",
            lambda: f"torch.relu({t()})",
            lambda: f"{t()}.sum()",
            lambda: f"({t()} - {t()}).clamp(min=-9, max=9)",
            lambda: f"torch.where({t()} > {i()}, {t()}, 0.5)",
            lambda: f"sum([{t()}, {t()}])",
            lambda: f"{t()}[..., None].squeeze(-1)",
        )()

    def make_flag(self, d: int) -> str:
        i, f = (lambda: self.expr("int", d)), (lambda: self.expr("flag", d))
        return self.pick(
            lambda: f"({i()} < {i()})",
            lambda: f"({i()} == {i()})",
            lambda: f"({i()} <= {i()} < {i()})",
            lambda: f"({i()} in {self.expr(self.pick('list', 'set', 'tuple', 'thing'), d)})",
            lambda: f"({self.pick(*KEYS)} not in {self.expr('dict', d)})",
            lambda: f"(not {f()})",
            lambda: f"({f()} and {f()})",
            lambda: f"({f()} or {i()})",
            lambda: (
                f"isinstance({self.any_expr(d)}, {self.pick('int', '(str, list)', 'Base', 'dict')})"
            ),
            lambda: f"({self.variable('tensor')} is None)",
            lambda: f"({self.variable('list')} is {self.variable('list')})",
            lambda: f"any(q > {i()} for q in {self.expr('list', d)})",
            lambda: f"all({self.expr('list', d)})",
            lambda: f"bool({self.expr(self.pick('list', 'dict', 'text', 'thing'), d)})",
            lambda: f"hasattr({self.expr('thing', d)}, {self.pick(*ATTRIBUTES)})",
            lambda: f"({self.expr('thing', d)} == {self.expr('thing', d)})",
            lambda: f"({self.expr('list', d)} != {self.expr('list', d)})",
            lambda: f"({self.expr('tuple', d)} < {self.expr('tuple', d)})",
        )()

    def make_float(self, d: int) -> str:
        f, i = (lambda: self.expr("float", d)), (lambda: self.expr("int", d))
        return self.pick(
            lambda: f"({f()} + {i()})",
            lambda: f"({i()} / {i()})",
            lambda: f"math.floor({f()}) * 0.5",
            lambda: f"round({f()}, 1)",
            lambda: f"abs({f()})",
            lambda: f"math.sqrt(abs({i()}))",
            lambda: f"float({i()})",
        )()

    def make_thing(self, d: int) -> str:
        i = lambda: self.expr("int", d)
        return self.pick(
            lambda: f"{self.pick(*CLASSES)}({i()}, {i()})",
            lambda: f"{self.pick(*CLASSES)}({i()}, b={i()})",
            lambda: f"({self.expr('thing', d)} + {self.expr('thing', d)})",
            lambda: f"({self.expr('thing', d)} + {i()})",
            lambda: f"{self.expr('thing', d)}.clone()",
        )()

    def make_call(self, d: int) -> str:
        b = self.new_name("q")
        return self.pick(
            lambda: f"(lambda {b}: {b} + {self.expr('int', d)})",
            lambda: f"functools.partial(apply, {self.expr('int', d)})",
            lambda: f"{self.expr('thing', d)}.method",
            lambda: "twice",
            lambda: f"adder({self.expr('int', d)})",
            lambda: f"(lambda {b}, *rest: len(rest) + {b})",
        )()

    # ----------------------------------------------------------------------------------- statements

    def statements(self, least: int = 1, most: int = 4) -> None:
        for _ in range(self.random.randint(least, most)):
            if self.budget <= 0:
                return
            self.statement()

    def statement(self) -> None:
        self.budget -= 1
        simple = [self.assign] * 4 + [self.change] * 6 + [self.say] * 2 + [self.unpack, self.leave]
        nested = [self.branch, self.loop, self.loop, self.attempt, self.attempt, self.attempt]
        nested += [self.manage, self.choose, self.closure, self.generator, self.own_class]
        if self.depth > 5:
            nested = []
        self.pick(*simple, *nested)()

    def assign(self) -> None:
        kind = self.pick(*KINDS)
        value = self.expr(kind)
        name = self.local(kind) if self.chance(0.3) else None
        if name is None or self.is_loop_variable(name):
            name = self.new_name()
        self.put(f"{name} = {value}")
        self.scope.names[name] = kind

    def is_loop_variable(self, name: str) -> bool:
        return name.startswith("k")

    def change(self) -> None:
        i, l = (lambda: self.expr("int")), (lambda: self.variable("list"))
        m, o, key = (
            (lambda: self.variable("dict")),
            (lambda: self.variable("thing")),
            self.pick(*KEYS),
        )
        changes = [
            lambda: f"{l()}.append({i()})",
            lambda: f"{l()}.extend({self.expr('list')})",
            lambda: f"{l()}.insert({i()}, {i()})",
            lambda: f"{l()}.pop()",
            lambda: f"{l()}.remove({i()})",
            lambda: f"{l()}.reverse()",
            lambda: f"{l()}.sort(key=lambda q: (q % 3, q))",
            lambda: f"{l()}[{i()}] = {i()}",
            lambda: f"{l()}[{i()}:{i()}] = {self.expr('list')}",
            lambda: f"{l()}[0] += {i()}",
            lambda: f"del {l()}[{i()}]",
            lambda: f"del {l()}[:1]",
            lambda: f"{m()}[{key}] = {i()}",
            lambda: f"{m()}[{key}] += {i()}",
            lambda: f"{m()}.update({self.expr('dict')})",
            lambda: f"{m()}.update(a={i()})",
            lambda: f"{m()}.pop({key}, None)",
            lambda: f"{m()}.pop({key})",
            lambda: f"{m()}.setdefault({key}, {i()})",
            lambda: f"{m()}.popitem()",
            lambda: f"del {m()}[{key}]",
            lambda: f"{o()}.a = {i()}",
            lambda: f"{o()}.{self.pick('a', 'b')} += {i()}",
            lambda: f"{o()}.double = {i()}",
            lambda: f"{o()}.extra = {self.any_expr()}",
            lambda: f"del {o()}.{self.pick('a', 'extra')}",
            lambda: f"{o()}[{i()}] = {i()}",
            lambda: f"setattr({o()}, 'b', {i()})",
            lambda: f"{self.variable('set')}.add({i()})",
            lambda: f"{self.variable('set')}.discard({i()})",
            lambda: f"bump({i()})",
            lambda: f"notes.append({self.any_expr()})" if self.chance(0.3) else "bump()",
        ]
        for kind, op in (("int", "+="), ("list", "+="), ("text", "+="), ("dict", "|=")):
            name = self.local(kind)
            if name is not None and not self.is_loop_variable(name):
                changes += [lambda n=name, k=kind, p=op: f"{n} {p} {self.expr(k)}"] * 2
        name = self.local("tensor")
        if name is not None:
            changes += [lambda: f"{name} {self.pick('+=', '*=')} {i()}"]
            changes += [lambda: f"{name} = {name} - {self.expr('tensor')}"]
        self.put(self.pick(*changes)())

    def say(self) -> None:
        self.put(f"print({self.any_expr(1)}, {self.expr('text', 1)})")

    def unpack(self) -> None:
        a, b, c = (self.new_name() for _ in range(3))
        forms = [
            (f"{a}, *{b} = {self.expr('list')}", {a: "int", b: "list"}),
            (f"*{a}, {b} = {self.expr('tuple')}", {a: "list", b: "int"}),
            (f"{a}, {b} = {self.expr('tuple')}", {a: "int", b: "int"}),
            (f"({a}, {b}), {c} = {self.expr('tuple')}, {self.expr('int')}", {a: "int", c: "int"}),
            (f"{a} = {b} = {self.expr('list')}", {a: "list", b: "list"}),
        ]
        text, names = self.pick(*forms)
        self.put(text)
        self.scope.names.update(names)

    def leave(self) -> None:
        scope = self.scope
        ways = []
        if scope.in_loop:
            ways += [lambda: "break", lambda: "continue"]
        if not scope.in_generator:
            ways.append(lambda: f"return {self.any_expr(1)}")
        ways += [lambda: self.raising(), lambda: self.raising()]
        ways.append(lambda: f"assert {self.expr('flag', 1)}, {self.expr('text', 1)}")
        if scope.in_handler:
            ways += [lambda: "raise"] * 2
        with self.block(f"if {self.expr('flag')}:"):
            self.put(self.pick(*ways)())

    def raising(self) -> str:
        error = self.pick(*ERRORS)
        text = f"raise {error}({self.expr('int', 1)}, {self.expr('text', 1)})"
        if self.chance(0.1):
            return f"raise {error}" if error != "Detailed" else text
        if self.chance(0.25):
            text += " from " + self.pick("None", "OSError(1)", "KeyError")
        return text

    def branch(self) -> None:
        with self.block(f"if {self.expr('flag')}:"):
            self.statements()
        if self.chance(0.3):
            with self.block(f"elif {self.expr('flag')}:"):
                self.statements()
        if self.chance(0.5):
            with self.block("else:"):
                self.statements()

    def loop(self) -> None:
        k = self.new_name("k")
        names = {k: "int"}
        head = self.pick(
            lambda: f"for {k} in {self.expr('list', 1)}[:5]:",
            lambda: f"for {k} in range({self.random.randint(0, 4)}):",
            lambda: f"for {k} in range({self.expr('int', 1)} % 4):",
            lambda: f"for {k} in counter({self.expr('int', 1)} % 5):",
            lambda: f"for {k} in list({self.variable('thing')})[:4]:",
            lambda: self.with_second(k, names, "enumerate({})", self.expr("list", 1) + "[:4]"),
            lambda: self.with_second(k, names, "zip({0}, {0})", self.expr("list", 1) + "[:4]"),
            lambda: self.while_head(k),
        )()
        self.scope.names.update(names)
        outer, self.scope.in_loop = self.scope.in_loop, True
        with self.block(head):
            self.statements()
        self.scope.in_loop = outer
        if self.chance(0.3):
            with self.block("else:"):
                self.statements(1, 2)

    def with_second(self, k: str, names: dict[str, str], form: str, inside: str) -> str:
        other = self.new_name("k")
        names[other] = "int"
        return f"for {k}, {other} in {form.format(inside)}:"

    def while_head(self, k: str) -> str:
        self.put(f"{k} = {self.random.randint(1, 4)}")
        return f"while ({k} := {k} - 1) >= 0" + self.pick("", f" and {self.expr('flag', 1)}") + ":"

    def attempt(self) -> None:
        with self.block("try:"):
            self.statements()
            if self.chance(0.6):
                self.put(self.raising())
        handlers = self.random.randint(0, 2)
        for h in range(handlers):
            kinds = self.pick(*ERRORS, "Exception", "(KeyError, Problem)", "ArithmeticError")
            name = self.new_name("e")
            bare = self.chance(0.2) and h == handlers - 1
            head = "except:" if bare else f"except {kinds} as {name}:"
            outer, self.scope.in_handler = self.scope.in_handler, True
            with self.block(head):
                if not bare and self.chance(0.6):
                    self.put(
                        self.pick(
                            f"print(type({name}).__name__, {name}.args)",
                            f"notes.append(repr({name}))",
                            f"print(chain({name}))",
                            f"notes.append(str({name}.__cause__))",
                        )
                    )
                self.statements(0 if bare else 1, 3)
                if self.chance(0.2):
                    again = f"raise {self.pick(*ERRORS)}(9, 'again')"
                    self.put(self.pick("raise", again, again if bare else f"{again} from {name}"))
            self.scope.in_handler = outer
        if handlers and self.chance(0.3):
            with self.block("else:"):
                self.statements(1, 2)
        if not handlers or self.chance(0.4):
            outer, self.scope.in_loop = self.scope.in_loop, False
            with self.block("finally:"):
                self.statements(1, 2)
            self.scope.in_loop = outer

    def manage(self) -> None:
        name = self.new_name("m")
        head = self.pick(
            f"with contextlib.suppress({self.pick(*ERRORS)}):",
            f"with Manager({self.expr('text', 1)}, {self.pick(*ERRORS)}) as {name}:",
            f"with Manager('o', {self.pick(*ERRORS)}), Manager('i', Problem) as {name}:",
            f"with managed({self.expr('int', 1)}) as {name}:",
            f"with contextlib.nullcontext({self.expr('int', 1)}) as {name}:",
            "with torch.no_grad():",
            f"with contextlib.ExitStack() as {name}:",
        )
        with self.block(head):
            if "ExitStack" in head:
                self.put(f"{name}.callback(notes.append, {self.expr('int', 1)})")
                self.put(f"{name}.enter_context(Manager('s', {self.pick(*ERRORS)}))")
            self.statements()
            if self.chance(0.4):
                self.put(self.raising())

    def choose(self) -> None:
        a, b = self.new_name(), self.new_name()
        subject = self.expr(self.pick("int", "list", "tuple", "dict", "thing", "text"))
        cases = [
            ("0 | 1", {}),
            (f"int({a})", {a: "int"}),
            ("[]", {}),
            (f"[{a}, *{b}]", {a: "int", b: "list"}),
            (f"({a}, {b})", {a: "int", b: "int"}),
            (f"{{'a': {a}, **{b}}}", {a: "int", b: "dict"}),
            (f"Base(a={a})", {a: "int"}),
            (f"Point({a}, {b})", {a: "int", b: "int"}),
            (f"str() as {a}", {a: "text"}),
            (f"[int({a}) | str({a}), *_] if {a}", {a: "int"}),
        ]
        with self.block(f"match {subject}:"):
            for pattern, names in self.random.sample(cases, self.random.randint(1, 3)):
                with self.block(f"case {pattern}:"):
                    own = dict(self.scope.names)
                    self.scope.names.update(names)
                    self.statements(1, 2)
                    self.scope.names = own
            if self.chance(0.6):
                with self.block("case _:"):
                    self.statements(1, 2)

    @contextlib.contextmanager
    def function(self, head: str, names: dict[str, str], generator: bool = False):
        outer = self.scope
        with self.block(head):
            self.scope = Scope(names, outer)
            self.scope.in_generator = generator
            yield
        self.scope = outer

    def parameters(self) -> tuple[str, dict[str, str]]:
        return self.pick(
            ("p, *rest, q=2, **more", {"p": "int", "rest": "tuple", "q": "int", "more": "dict"}),
            ("p, q=3", {"p": "int", "q": "int"}),
            ("p, /, q=1, *, r=2", {"p": "int", "q": "int", "r": "int"}),
            (f"p, q={self.expr('list', 1)}", {"p": "int", "q": "list"}),
        )

    def closure(self) -> None:
        name = self.new_name("f")
        text, names = self.parameters()
        own = [n for n, k in self.scope.names.items() if k == "int" and n[0] in "vn"]
        if self.chance(0.15):
            self.put("@noted")
        with self.function(f"def {name}({text}):", names):
            if own and self.chance(0.6) and self.scope.outer.outer is not None:
                cell = self.pick(*own)
                self.put(f"nonlocal {cell}")
                self.put(f"{cell} += {self.pick('1', 'p')}")
            self.statements(0, 3)
            self.put(f"return {self.expr('int')}")
        calls = [f"{name}({self.expr('int', 1)})", f"{name}(*[{self.expr('int', 1)}])"]
        calls += [f"list(map({name}, {self.expr('list', 1)}))", f"{name}(1, 2, 3)"]
        calls.append(f"{name}(1, **{{'q': 2}})")
        for call in self.random.sample(calls, self.random.randint(1, 2)):
            self.put(f"{self.new_name()} = {call}")
        self.scope.names[name] = "call"

    def generator(self) -> None:
        name, g, sent = self.new_name("g"), self.new_name("it"), self.new_name()
        with self.function(f"def {name}(p):", {"p": "int"}, generator=True):
            self.put(f"{sent} = yield {self.expr('int', 1)}")
            self.put(f"print('sent', {sent})")
            head = self.pick("if p:", "for k in range(2):", "try:", "with managed(p):")
            with self.block(head):
                self.statements(0, 2)
                self.put(f"yield {self.expr('int', 1)}")
            if head == "try:":
                with self.block(self.pick("except ValueError as err:", "finally:")):
                    self.put("print('leaving')")
                    if self.chance(0.3):
                        self.put("yield 99")
            if self.chance(0.4):
                self.put(f"yield from {self.pick('counter(2)', self.expr('list', 1))}")
            if self.chance(0.5):
                self.put(f"return {self.expr('int', 1)}")
        uses = [
            f"print(list({name}({self.expr('int', 1)})))",
            f"{g} = {name}({self.expr('int', 1)}); print(next({g})); print({g}.send(5))",
            f"{g} = {name}(1); next({g}); {g}.close()",
            f"{g} = {name}(1); next({g}); print({g}.throw(ValueError(3)))",
            f"{g} = {name}(0); print(next({g}, 7), next({g}, 8), next({g}, 9))",
            f"print([q for q in {name}(2)], sum({name}(1)))",
            f"{g}, *{g}r = {name}(1)",
        ]
        for use in self.random.sample(uses, self.random.randint(1, 2)):
            for part in use.split("; "):
                self.put(part)

    def own_class(self) -> None:
        name, o = self.new_name("C"), self.new_name("o")
        with self.block(f"class {name}{self.pick('', '(Base)', '(Base)')}:"):
            self.put(f"c = {self.expr('int', 1)}")
            with self.function("def __init__(self, a=1, b=2):", {"a": "int", "b": "int"}):
                self.put("self.a, self.b = a, b")
                self.statements(0, 1)
            with self.function("def method(self, p):", {"p": "int", "self": "own"}):
                self.statements(0, 2)
                self.put(f"return self.a + p + {self.expr('int', 1)}")
            if self.chance(0.5):
                with self.block("@property"):
                    pass
                self.lines.pop()
                with self.block("def double(self):"):
                    self.put("return self.a * 2 + self.c")
        self.put(f"{o} = {name}({self.expr('int', 1)})")
        self.put(f"print({o}.method({self.expr('int', 1)}), {o}.{self.pick('a', 'c', 'double')})")

    # --------------------------------------------------------------------------------------- module

    def module(self) -> str:
        for _ in range(self.random.randint(0, 2)):
            name = self.new_name("helper")
            with self.function(
                f"def {name}(p, q={self.expr('int', 0)}):", {"p": "int", "q": "int"}
            ):
                self.statements(1, 3)
                self.put(f"return {self.expr('int')}")
            self.functions.append(name)
            self.put("")
        names = {"x": "tensor", "n": "int", "items": "list", "table": "dict", "thing": "thing"}
        with self.function("def main(x, n, items, table, thing):", names):
            while self.budget > 0:
                self.statements()
            results = [self.variable(k) for k in ("int", "list", "tensor", "dict", "text", "thing")]
            self.put(f"return {', '.join(self.random.sample(results, 4))}")
        return "\n".join(self.lines) + "\n"


def make_source(seed: int) -> str:
    # A walrus in what a comprehension goes through is a syntax error: then another text is drawn.
    while True:
        text = Writer(seed).module()
        try:
            compile(text, "<program>", "exec")
            return text
        except SyntaxError:
            seed += 1_000_003
