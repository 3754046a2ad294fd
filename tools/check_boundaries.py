"""Checks that no C++ exception can cross a frame of C: what C is given to call has its body in a
`boundary`.

Callbacks are functions (or lambdas) that stand in a table of methods or slots, or that go to a
function of CPython's which keeps them. src/python/cpython/boundary.h says what a boundary is.

usage: check_boundaries.py [ROOT]
"""

import pathlib
import re
import sys

# Where a callback is named: a name, `name<...>`, or a cast of one.
NAME = r"(?:reinterpret_cast<[^;{}]*?>\(\s*)*&?(\w+)(?:<[^<>;]*>)?\)*"
PLACES = [
    re.compile(r"\{\s*(?:\"[^\"]*\"|[\w.>()-]*c_str\(\))\s*,\s*" + NAME + r"\s*,\s*METH_", re.S),
    re.compile(
        r"\{\s*Py_(?:tp|nb|sq|mp|bf|am)_(?!methods|members|doc|getset)\w+\s*,\s*" + NAME, re.S
    ),
    re.compile(r"->vectorcall\s*=\s*" + NAME),
    re.compile(r"->[gs]et\s*(?:,|=(?!=))\s*" + NAME),
    # Assignments to slots of a type, not to what it has beside them.
    re.compile(
        r"(?:->|\.)(?:tp|nb|sq|mp|bf|am)_"
        r"(?!flags|\w*(?:offset|size)|name|doc|bases?\b|dict\b|mro|cache)\w+"
        r"\s*=(?!=)\s*" + NAME
    ),
    re.compile(r"_SetEvalFrameFunc\([^;]*,\s*" + NAME + r"\s*\);"),
    re.compile(r"Py_AtExit\(\s*" + NAME),
]
# Rows of a table of attributes, whose getters and setters are called.
ATTRIBUTES = re.compile(r"PyGetSetDef\s+\w+(?:\[\w*\])?\s*=\s*\{(.*?)\};", re.S)
ROW = re.compile(r"\{\s*[^{},]+,\s*" + NAME + r"\s*(?:,\s*" + NAME + ")?", re.S)
# Lambdas that go to CPython.
LAMBDA = re.compile(r"(?:PyCapsule_New\(|CodeExtra \w+\()[^;{}]*?\[[^\]]*\]\([^)]*\)\s*\{", re.S)
# CPython's own.
FOREIGN = {"PyVectorcall_Call", "previous"}


def body_at(text, brace):
    """The text between a brace and its partner."""
    depth = 0
    for i in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[brace : i + 1]
    return text[brace:]


def named_callbacks(text):
    """(offset, name) of the functions that C is given by name."""
    for place in PLACES:
        for match in place.finditer(text):
            yield match.start(), match.group(1)
    for table in ATTRIBUTES.finditer(text):
        for row in ROW.finditer("{" + table.group(1)):
            for name in row.groups():
                yield table.start(), name


def problems(text):
    """(offset, what is wrong) of the callbacks of a file."""
    for offset, name in named_callbacks(text):
        if name is None or name in FOREIGN or name == "nullptr":
            continue
        found = re.search(rf"\b{name}\((?:[^;{{}}]|\n)*?\)\s*\{{", text)
        if not found or "boundary(" not in body_at(text, found.end() - 1):
            yield offset, f"{name} is called by C and has no boundary"
    for match in LAMBDA.finditer(text):
        if "boundary(" not in body_at(text, match.end() - 1):
            yield match.start(), "a lambda is called by C and has no boundary"


def check(root):
    """Lines "file:line: problem" for src/python."""
    found = []
    for path in sorted((root / "src/python").rglob("*.cpp")):
        text = path.read_text()
        for offset, what in sorted(problems(text)):
            line = text.count("\n", 0, offset) + 1
            found.append(f"{path.relative_to(root).as_posix()}:{line}: {what}")
    return found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    found = check(root)
    print("\n".join(found) if found else "boundaries: every callback of C has one")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
