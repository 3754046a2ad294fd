"""Checks that no heading stands twice in one page: a section that was pasted a second time is found
so.

usage: check_docs.py [ROOT]
"""

import pathlib
import re
import sys

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+ .*?)\s*$", re.MULTILINE)


def check(root):
    """Lines "file: heading: problem" for the pages of the project."""
    found = []
    for path in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
        headings = HEADING.findall(FENCED.sub("", path.read_text()))
        for heading in dict.fromkeys(h for h in headings if headings.count(h) > 1):
            found.append(f"{path.relative_to(root).as_posix()}: {heading}: stands there twice")
    return found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    found = check(root)
    print("\n".join(found) if found else "docs: every heading stands once in its page")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
