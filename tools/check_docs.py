"""Checks what there is to read: pages, and the comments of the sources.

- No heading stands twice in one page: a section that was pasted a second time is found so.
- No line of C++, of a table (.def) or of Python is longer than 100 columns.
- Each source file opens with a comment that says what it is.

usage: check_docs.py [ROOT]
"""

import pathlib
import re
import sys

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+ .*?)\s*$", re.MULTILINE)
OPENING = re.compile(r'// \S|(#!.*\n)?(# \S|""")')
WIDTH = 100
FOLDERS = ("src", "tests", "tools", "python", "bench", "examples")
SOURCES = (".cpp", ".h", ".def", ".py")


def check_page(text):
    """What is wrong with a page."""
    headings = HEADING.findall(FENCED.sub("", text))
    for heading in dict.fromkeys(h for h in headings if headings.count(h) > 1):
        yield f" {heading}: stands there twice"


def check_source(text):
    """What is wrong with a source file."""
    if text and not OPENING.match(text):
        yield "1: does not open with what it is"
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDTH:
            yield f"{number}: {len(line)} columns, more than {WIDTH}"


def check(root):
    """Lines "file: place: problem" for the pages and sources of the project."""
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    sources = [f for folder in FOLDERS for f in (root / folder).rglob("*") if f.suffix in SOURCES]
    found = []
    for path in sorted([*pages, *sources]):
        problems = (check_page if path.suffix == ".md" else check_source)(path.read_text())
        found += [f"{path.relative_to(root).as_posix()}:{what}" for what in problems]
    return found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    found = check(root)
    print("\n".join(found) if found else "docs: headings, openings and widths are in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
