"""Golden text tests: a tool reads a text and writes another, which must be the expected one.

A test is a .txt file under tests/text/:

    # run: oxy-opt --pass=dce
    # what it shows, in a line or two
    <input>
    # ----
    <expected output>

The tool is a program of the build folder. A test whose header has `# fails` expects exit status 1
and the error message as output. Run all with `python tests/text/run_text_tests.py [-k WORD]` or
under pytest; OXYFUEL_BLESS=1 writes the present output into the files instead of comparing. The
build folder: OXYFUEL_BUILD, else build/Release, else the newest under build/ that has the tool.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SEPARATOR = "# ----\n"


class BadTest(AssertionError):
    """The test file does not have the form described above."""


@dataclass
class Test:
    path: Path
    command: list[str]
    fails: bool
    input: str  # all before the separator: the header is comments, which every tool skips
    expected: str


def read_test(path: Path) -> Test:
    text = path.read_text()
    head, _, expected = text.partition(SEPARATOR)  # a new test may still lack its second half
    first, _, _ = head.partition("\n")
    if not first.startswith("# run: "):
        raise BadTest(f"{path}: the first line is not '# run: TOOL OPTIONS'")
    header = []
    for line in head.splitlines():
        if not line.startswith("#"):
            break
        header.append(line)
    command = shlex.split(first.removeprefix("# run: "))
    return Test(path, command, "# fails" in header, head, expected)


def find_tests() -> list[Path]:
    return sorted(HERE.rglob("*.txt"))


def find_tool(name: str) -> Path:
    chosen = os.environ.get("OXYFUEL_BUILD")
    folders = [Path(chosen)] if chosen else [ROOT / "build/Release"]
    if not chosen:
        others = {p.parent for p in (ROOT / "build").glob(f"*/{name}")} - set(folders)
        folders += sorted(others, key=lambda p: (p / name).stat().st_mtime, reverse=True)
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"no {name} in {', '.join(map(str, folders))}: build it, or set OXYFUEL_BUILD"
    )


def output_of(test: Test) -> str:
    """What the tool writes; an exit status other than the expected one is an AssertionError."""
    tool, *options = test.command
    run = subprocess.run(
        [find_tool(tool), *options], input=test.input, capture_output=True, text=True, timeout=60
    )
    expected_status = 1 if test.fails else 0
    if run.returncode != expected_status:
        raise AssertionError(f"{test.path}: exit status {run.returncode}\n{run.stderr}{run.stdout}")
    return run.stderr if test.fails else run.stdout


def check(path: Path, bless: bool | None = None) -> bool:
    """Runs one test; raises AssertionError with a diff, or rewrites the file when blessing. Whether
    it was rewritten."""
    if bless is None:
        bless = os.environ.get("OXYFUEL_BLESS") == "1"
    test = read_test(path)
    output = output_of(test)
    if output == test.expected:
        return False
    if bless:
        path.write_text(test.input + SEPARATOR + output)
        return True
    diff = difflib.unified_diff(
        test.expected.splitlines(True), output.splitlines(True), "expected", "written"
    )
    raise AssertionError(f"{path.relative_to(ROOT)}: {shlex.join(test.command)}\n{''.join(diff)}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Golden text tests; OXYFUEL_BLESS=1 blesses.")
    parser.add_argument("-k", default="", help="only files whose path contains this")
    options = parser.parse_args()
    tests = [p for p in find_tests() if options.k in str(p.relative_to(HERE))]
    failed = blessed = 0
    for path in tests:
        try:
            blessed += check(path)
        except (AssertionError, FileNotFoundError) as error:
            failed += 1
            print(error)
    print(f"{len(tests)} text tests, {failed} failed" + (f", {blessed} blessed" if blessed else ""))
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
