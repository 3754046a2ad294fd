"""Prints the tails of file, header and function sizes, so that a growing giant is seen while it is
small.

usage: size_report.py [--top N]
"""

import argparse
import ast
import pathlib
import re
import statistics

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = ("src", "python", "tools", "bench", "examples", "tests")
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
# The opening line of a C++ function's body:
# `... ) [const] [noexcept] [override] [-> T] [: inits] {`.
FUNCTION = re.compile(
    r"^(?!\s*(if|for|while|switch|else|do|return|namespace|catch)\b).*\)[^;=]*\{$"
)


def sources():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".py", ".def"):
                yield path


def indent(line):
    return len(line) - len(line.lstrip())


def cpp_functions(lines):
    """(length, name) of each function that clang-format's layout shows: from its opening line to
    the `}` of its indent.

    The head's last line is deeper than its first where arguments or initialisers are broken.
    """
    start = None
    for number, line in enumerate(lines):
        if start is None and line.endswith("{") and FUNCTION.match(line):
            start = number
        elif (
            start is not None
            and line.lstrip().startswith("}")
            and indent(line) <= indent(lines[start])
        ):
            name = re.search(r"([\w:~]+)\s*\(", lines[start])
            yield number - start + 1, name.group(1) if name else f"line {start + 1}"
            start = None


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.end_lineno - node.lineno + 1, node.name


def table(title, rows, top):
    """Median, 99th percentile and the largest of (size, what)."""
    if not rows:
        return
    sizes = sorted(size for size, _ in rows)
    percentile = sizes[min(len(sizes) - 1, len(sizes) * 99 // 100)]
    print(
        f"{title}: {len(sizes)}, {sum(sizes)} lines, median {statistics.median(sizes):.0f}, "
        f"99th percentile {percentile}, largest {sizes[-1]}"
    )
    for size, what in sorted(rows, key=lambda row: (-row[0], row[1]))[:top]:
        print(f"  {size:6}  {what}")


def main():
    parser = argparse.ArgumentParser(description="Tails of file, header and function sizes.")
    parser.add_argument("--top", type=int, default=8, help="how many of the largest to list")
    top = parser.parse_args().top
    headers, files, functions, python = [], [], [], []
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text()
        lines = text.splitlines()
        (headers if path.suffix in (".h", ".def") else files).append((len(lines), name))
        if path.suffix == ".py":
            python += [(size, f"{name} {function}") for size, function in python_functions(text)]
        else:
            code = RAW_STRING.sub('""', text).splitlines()
            functions += [(size, f"{name} {function}") for size, function in cpp_functions(code)]
    table("headers and tables", headers, top)
    table(".cpp and .py files", files, top)
    table("C++ functions", functions, top)
    table("Python functions", python, top)


if __name__ == "__main__":
    main()
