"""Programs with exception groups: `PROGRAMS` by name, each defining `main(x, n, items, table,
thing)` (the arguments and names of tests/property/python_prelude.py). `BREAKS` names those that are
more than one graph, and why. Python 3.10 has no groups, and no program here."""

import sys

BREAKS = {
    "a derive of the program's": "CPython calls it",
    "a group that was there before": "its parts are not known",
    "methods": "they are not followed",
}

_TREE = """
def tree(e):
    if isinstance(e, BaseExceptionGroup):
        parts = [tree(p) for p in e.exceptions]
        return (type(e).__name__, e.message, parts, e.__suppress_context__)
    return (type(e).__name__, e.args)
"""

PROGRAMS = {
    name: _TREE + text
    for name, text in {
        "clauses": """
def main(x, n, items, table, thing):
    out = []
    try:
        raise ExceptionGroup("all", [ValueError(n), KeyError(2), ValueError(3)])
    except* ValueError as e:
        out.append(tree(e))
        x = x + len(e.exceptions)
    except* (KeyError, TypeError) as e:
        out.append(tree(e))
    except* OSError:
        out.append("never")
    else:
        out.append("never")
    finally:
        out.append("done")
    return out, x
""",
        "none raised": """
def main(x, n, items, table, thing):
    out = []
    try:
        y = x + n
    except* ValueError:
        out.append("never")
    else:
        out.append("else")
    return out, y
""",
        "one that is no group": """
def main(x, n, items, table, thing):
    out = []
    for kind in (ValueError, KeyError):
        try:
            try:
                raise kind(n)
            except* ValueError as e:
                out.append(tree(e))
        except KeyError as e:
            out.append(tree(e))
    return out, x
""",
        "what is left is raised": """
def main(x, n, items, table, thing):
    out = []
    try:
        try:
            raise ExceptionGroup("a",
                                 [ValueError(1), ExceptionGroup("b", [KeyError(n), ValueError(2)]),
                                  TypeError(3)])
        except* ValueError as e:
            out.append(tree(e))
    except ExceptionGroup as e:
        out.append(tree(e))
        out.append(tree(e.__context__) if e.__context__ else None)
    return out, x * 2
""",
        "raised again and raised anew": """
def main(x, n, items, table, thing):
    out = []
    for way in range(5):
        try:
            try:
                raise ExceptionGroup("a", [ValueError(1), KeyError(n), TypeError(3)])
            except* ValueError as e:
                if way == 0:
                    raise
                if way == 1:
                    raise e
                if way == 2:
                    raise OSError(n) from e
                if way == 3:
                    raise e.exceptions[0]
            except* KeyError:
                if way == 4:
                    raise
                raise Problem(n)
        except BaseExceptionGroup as e:
            out.append(tree(e))
            out.append([type(p.__context__).__name__ for p in e.exceptions])
        x = x + 1
    return out, x
""",
        "raised in a function": """
def check(values):
    wrong = [Problem(v) for v in values if v > 2]
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} are wrong", wrong)
    return len(values)

def main(x, n, items, table, thing):
    seen = 0
    for group in ([1], [n, 3], [3, 4, 5]):
        try:
            seen += check(group)
        except* Problem as e:
            seen += 10 * len(e.exceptions)
    return x + seen, seen
""",
        "nested in loops": """
def main(x, n, items, table, thing):
    out = []
    for k in range(3):
        try:
            try:
                raise ExceptionGroup("a", [ValueError(k), KeyError(k)])
            except* ValueError:
                out.append(k)
                if k == 1:
                    raise IndexError(k)
            except* KeyError:
                try:
                    raise ExceptionGroup("in", [TypeError(n)])
                except* TypeError as inner:
                    out.append(tree(inner))
        except* IndexError as e:
            out.append(tree(e))
        x = x * 2
    return out, x
""",
        "kept and returned": """
def main(x, n, items, table, thing):
    kept = []
    try:
        raise ExceptionGroup("all", [ValueError(n), Detailed(3)])
    except* ValueError as e:
        kept.append(e)
    except* Problem as e:
        e.add_note("seen")
        kept.append(e)
    return ([tree(e) for e in kept], kept[1].__notes__, str(kept[0]), kept[1].exceptions[0].code,
            x + n)
""",
        "leaves the function": """
def main(x, n, items, table, thing):
    items.append(n)
    try:
        raise ExceptionGroup("all", [Problem(n), Detailed(3)])
    except* Detailed:
        items.append("detailed")
""",
        "subclasses": """
class Many(ExceptionGroup):
    pass
def main(x, n, items, table, thing):
    out = []
    try:
        raise Many("many", [Detailed(1), ValueError(n)])
    except* Problem as e:
        out.append((tree(e), type(e) is Many))
    except* ValueError as e:
        out.append((tree(e), isinstance(e, ExceptionGroup)))
    return out, x
""",
        "errors of except star": """
def main(x, n, items, table, thing):
    out = []
    try:
        ExceptionGroup("empty", [])
    except ValueError as e:
        out.append(e.args)
    try:
        ExceptionGroup("wrong", [3])
    except ValueError as e:
        out.append(e.args)
    return out, x
""",
        "a derive of the program's": """
class Many(ExceptionGroup):
    def derive(self, parts):
        return Many(self.message + "!", parts)
def main(x, n, items, table, thing):
    out = []
    try:
        raise Many("many", [Detailed(1), ValueError(n)])
    except* Problem as e:
        out.append((tree(e), type(e) is Many))
    except* ValueError as e:
        out.append((tree(e), type(e) is Many))
    return out, x
""",
        "a group that was there before": """
kept = ExceptionGroup("kept", [ValueError(1), KeyError(2)])
def main(x, n, items, table, thing):
    out = []
    try:
        raise kept
    except* ValueError as e:
        out.append(tree(e))
    except* KeyError as e:
        out.append(tree(e))
    return out, x + n
""",
        "methods": """
def main(x, n, items, table, thing):
    g = ExceptionGroup("g", [ValueError(n), KeyError(2)])
    a, b = g.split(ValueError)
    c = g.subgroup(lambda e: isinstance(e, KeyError))
    return tree(a), tree(b), tree(c), x
""",
    }.items()
    if sys.version_info >= (3, 11)
}
