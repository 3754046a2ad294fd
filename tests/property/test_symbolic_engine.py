"""What the engine of symbolic sizes says, proved: over generated expressions, ranges and facts, Z3
shows that what it simplifies keeps its value, that what it knows is so, and that the facts it keeps
are those that were asked; SymPy that polynomials stay the same polynomials."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
import sympy

z3 = pytest.importorskip("z3", reason="z3-solver proves the rules")

BUILD = Path(os.environ.get("OXYFUEL_BUILD", Path(__file__).parents[2] / "build/Release"))
SYMBOLS = ("s0", "s1", "s2")
MOST_MS = 2000  # of a proof; one that takes longer is not counted


class Engine:
    """The engine as a process that answers line by line."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [BUILD / "oxy-sym"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, line: str) -> None:
        """Says something that has no answer."""
        self._process.stdin.write(line + "\n")

    def ask(self, line: str) -> str:
        """The answer to a question."""
        self.tell(line)
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"no answer to {line!r}"
        return answer.rstrip("\n")

    def facts(self) -> list[str]:
        """The facts that are kept."""
        lines = [self.ask("facts")]
        while lines[-1]:
            lines.append(self._process.stdout.readline().rstrip("\n"))
        return lines[:-1]

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        assert self._process.wait() == 0


@pytest.fixture(scope="module")
def engine():
    engine = Engine()
    yield engine
    engine.close()


class Maker:
    """Random expressions and conditions as text, in the operators of Python and of the engine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def expression(self, depth: int, divisions: bool = True) -> str:
        r = self.random
        if depth == 0:
            return r.choice(SYMBOLS) if r.random() < 0.7 else str(r.randint(0, 12))
        a = self.expression(depth - 1, divisions)
        kinds = ["+", "-", "*", "c*"] + (["//", "%", "min", "max"] if divisions else [])
        kind = r.choice(kinds)
        if kind in ("//", "%"):
            return f"(({a}) {kind} {r.choice((2, 3, 4, 6, 8))})"
        if kind == "c*":
            return f"({r.randint(2, 6)}*({a}))"
        b = self.expression(depth - 1, divisions)
        return f"{kind}({a}, {b})" if kind in ("min", "max") else f"(({a}) {kind} ({b}))"

    def condition(self) -> str:
        r = self.random
        if r.random() < 0.25:
            return f"{r.choice(SYMBOLS)} % {r.choice((2, 3, 4, 8))} == 0"
        op = r.choice(("==", "!=", "<", "<="))
        return f"{self.expression(1)} {op} {self.expression(1)}"


# ---- the texts as terms of Z3; // and % of positive divisors are those of SMT-LIB ----


class Term:
    """A term with the operators of Python."""

    def __init__(self, z) -> None:
        self.z = z

    def __add__(self, o):
        return Term(self.z + of(o))

    def __radd__(self, o):
        return Term(of(o) + self.z)

    def __sub__(self, o):
        return Term(self.z - of(o))

    def __rsub__(self, o):
        return Term(of(o) - self.z)

    def __mul__(self, o):
        return Term(self.z * of(o))

    __rmul__ = __mul__

    def __neg__(self):
        return Term(-self.z)

    def __floordiv__(self, o):
        return Term(self.z / of(o))

    def __mod__(self, o):
        return Term(self.z % of(o))

    def __eq__(self, o):
        return self.z == of(o)

    def __ne__(self, o):
        return self.z != of(o)

    def __lt__(self, o):
        return self.z < of(o)

    def __le__(self, o):
        return self.z <= of(o)

    def __gt__(self, o):
        return self.z > of(o)

    def __ge__(self, o):
        return self.z >= of(o)


def of(x):
    return x.z if isinstance(x, Term) else x


def extremum(smaller):
    def of_all(*xs):
        result = of(xs[0])
        for x in map(of, xs[1:]):
            if isinstance(result, int) and isinstance(x, int):
                result = min(result, x) if smaller else max(result, x)
            else:
                result = z3.If(result <= x if smaller else result >= x, result, x)
        return Term(result) if not isinstance(result, int) else result

    return of_all


def as_z3(text: str):
    """An expression, or a condition as `print` writes it."""
    names = {s: Term(z3.Int(s)) for s in SYMBOLS} | {"min": extremum(True), "max": extremum(False)}
    for word, function in ((" or ", z3.Or), (" and ", z3.And)):
        if text.startswith("(") and word in text:  # of plain comparisons alone
            return function(*(as_z3(part) for part in text[1:-1].split(word)))
    return eval(text, {"__builtins__": {}}, names)


def counterexample(assumed: list, claim):
    """Where the claim does not hold although all of `assumed` does; None where there is no such
    place, or none is found in time."""
    solver = z3.Solver()
    solver.set("timeout", MOST_MS)
    solver.add(*assumed, z3.Not(claim))
    return solver.model() if solver.check() == z3.sat else None


def begin(engine: Engine, maker: Maker) -> list:
    """Symbols with ranges; what Z3 is to assume of them."""
    engine.tell("new")
    assumed = []
    for name in SYMBOLS:
        low = maker.random.choice((0, 1, 2, 2, 2))
        high = maker.random.choice((9, 40, 2**31))
        engine.tell(f"symbol {name} {low} {high} {maker.random.randint(low, min(high, 40))}")
        assumed += [z3.Int(name) >= low, z3.Int(name) <= high]
    return assumed


@pytest.mark.parametrize("seed", range(60))
def test_simplified_expressions_keep_their_value(engine, seed):
    maker = Maker(seed)
    assumed = begin(engine, maker)
    for _ in range(5):
        text = maker.expression(3)
        simple = engine.ask(f"simplify {text}")
        assert engine.ask(f"simplify {simple}") == simple
        where = counterexample(assumed, of(as_z3(text)) == of(as_z3(simple)))
        assert where is None, f"{text} became {simple}: {where}"


@pytest.mark.parametrize("seed", range(60))
def test_facts_are_what_was_asked(engine, seed):
    maker = Maker(1000 + seed)
    ranges = begin(engine, maker)
    asked = []
    for _ in range(4):
        text = maker.condition()
        answer = as_z3(text)
        if isinstance(answer, bool):
            continue
        asked.append((text, engine.ask(f"ask {text}") == "True"))
        said = [as_z3(t) if yes else z3.Not(as_z3(t)) for t, yes in asked]
        kept = engine.facts()
        facts = ranges + [as_z3(f) for f in kept]
        where = counterexample(facts, z3.And(*said))
        assert where is None, f"{kept} do not say {asked}: {where}"
        if not any("m" in t for t, _ in asked):  # which operand a min is may be a fact of its own
            where = counterexample(ranges + said, z3.And(*facts))
            assert where is None, f"{kept} say more than {asked}: {where}"
        for _ in range(4):
            text = maker.condition()
            known = engine.ask(f"known {text}")
            if known == "None" or isinstance(as_z3(text), bool):
                continue
            claim = as_z3(text) if known == "True" else z3.Not(as_z3(text))
            where = counterexample(facts, claim)
            assert where is None, f"{text} is not {known} under {kept}: {where}"
        text = maker.expression(2)
        simple = engine.ask(f"simplify {text}")
        where = counterexample(facts, of(as_z3(text)) == of(as_z3(simple)))
        assert where is None, f"{text} became {simple} under {kept}: {where}"


@pytest.mark.parametrize("seed", range(40))
def test_polynomials_are_sympys(engine, seed):
    maker = Maker(2000 + seed)
    begin(engine, maker)
    symbols = {s: sympy.Symbol(s) for s in SYMBOLS}
    for _ in range(10):
        text = maker.expression(3, divisions=False)
        simple = engine.ask(f"simplify {text}")
        difference = eval(f"({text}) - ({simple})", {"__builtins__": {}}, dict(symbols))
        assert sympy.expand(difference) == 0, f"{text} became {simple}"


# What the elimination must find, as sizes of models ask it.
FOLLOWS = [
    (["s1 < s0", "s2 < s1"], "s2 + 2 <= s0", "True"),
    (["s0 + s1 <= 30", "10 + s1 <= s0"], "s1 <= 10", "True"),
    (["s1 < s0//2"], "2*s1 < s0", "True"),
    (["s1 < s0"], "s1*s2 + s2 <= s0*s2", "True"),
    (["s0 % 8 == 0"], "2*(s0//2) == s0", "True"),
    (["s0 % 4 == 0"], "s0 == 4*s1 + 2", "False"),
    (["s0 <= s1"], "min(s0, s2) <= s1", "True"),
]


@pytest.mark.parametrize("assumed, question, answer", FOLLOWS)
def test_follows(engine, assumed, question, answer):
    engine.tell("new")
    for name, hint in zip(SYMBOLS, (16, 6, 5) if assumed != ["s0 <= s1"] else (5, 6, 7)):
        engine.tell(f"symbol {name} 2 1000000 {hint}")
    for fact in assumed:
        assert engine.ask(f"ask {fact}") == "True"
    assert engine.ask(f"known {question}") == answer
