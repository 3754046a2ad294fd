"""Notes in docs/versions.md how tests ended under the running Python and its torch.

usage: versions_page.py TESTS SUMMARY

TESTS says which tests they were, SUMMARY is pytest's last line. There is a row for each Python,
torch and TESTS; the one that is there is replaced.
"""

import datetime
import pathlib
import platform
import re
import sys

import torch

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "versions.md"
HEAD = """# Versions of Python and torch

Written by `./dev torch VERSION` and `./dev pythons`, a row for each run: the Python tests whole, or
those of the front end, in an environment with that Python and that torch.

| Python | torch | tests | passed | failed | skipped | date |
| --- | --- | --- | ---: | ---: | ---: | --- |
"""


def by_version(row):
    """Rows in the order of their versions, as numbers."""
    return [[int(n) for n in re.findall(r"\d+", cell)] for cell in row[:2]], row[2]


def main(tests, summary):
    """Writes the page with the row of this run."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (PAGE.read_text().splitlines() if PAGE.exists() else [])
        if re.match(r"\| \d", line)
    ]
    versions = [platform.python_version(), torch.__version__.split("+")[0], tests]
    counts = [
        str(sum(int(n) for n in re.findall(rf"(\d+) (?:{words})\b", summary)))
        for words in ("passed", "failed|errors?", "skipped|xfailed")
    ]
    if counts[0] == "0":
        sys.exit(f"not a summary of pytest with tests that passed: {summary!r}")
    rows = [row for row in rows if row[:3] != versions]
    rows.append([*versions, *counts, datetime.date.today().isoformat()])
    lines = ["| " + " | ".join(row) + " |\n" for row in sorted(rows, key=by_version)]
    PAGE.write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
