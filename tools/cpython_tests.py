"""CPython's own tests, plain and with OXYFUEL_CAPTURE=all: `python tools/cpython_tests.py [--tests
FOLDER] [NAME ...]`.

Each test file runs twice in processes of its own; compared is the outcome of each test, by its
name. FOLDER has the test files where the interpreter comes without them (Debian:
libpython3.11-testsuite, unpacked). Left out are files that are about what a capture cannot keep:
frames, tracing, garbage collection by count, recursion limits, threads' timing; and those that take
minutes (test_builtin, test_functools, test_long, test_math, test_statistics).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

_NAMES = """
test_augassign test_binop test_bool test_call test_class test_compare test_complex test_contains
test_contextlib test_copy test_dataclasses test_decorators test_defaultdict test_deque test_dict
test_dictcomps test_dictviews test_dynamicclassattribute test_enumerate test_exception_group
test_exceptions test_float test_fnmatch test_format test_fractions test_frozen test_fstring
test_funcattrs test_generator_stop test_generators test_genericalias test_genexps test_getopt
test_graphlib test_heapq test_index test_int test_isinstance test_iter test_itertools
test_keywordonlyarg test_list test_listcomps test_operator test_opcodes test_ordered_dict test_patma
test_positional_only_arg test_pow test_property test_raise test_range test_richcmp test_scope
test_set test_setcomps test_slice test_string test_super test_textwrap test_tuple test_types
test_unpack test_unpack_ex test_userdict test_userlist test_userstring test_with test_yield_from
"""
FILES = _NAMES.split()
HEADING = "## CPython {}.{}".format(*sys.version_info)
# Of files in the list, with the first version that has them.
SINCE = {"test_exception_group": (3, 11)}

# Tests that may end in another way, by the end of their names, and why.
EXCEPTED = {
    "what a guard names, and what a break hands on, lives longer than in plain Python": (
        "test_container_iterator",
        "test_free_after_iterating",
        "test_copy_weakkeydict",
        "test_copy_weakvaluedict",
        "test_deepcopy_weakkeydict",
        "test_deepcopy_weakvaluedict",
        "TestReversed.test_bug1229429",
        "test_ref_counting_behavior",
        "TestBasicOps.test_tee",
        "test_reference_loop",
        "TestSetSubclass.test_weakref",
        "PurePythonOrderedDictTests.test_highly_nested_subclass",
        "ScopeTests.testLeaks",
        "ExceptionTests.testExceptionCleanupState",
        "ExceptionTests.test_3114",
        "ExceptionTests.test_memory_error_cleanup",
        "ExceptionTests.test_recursion_error_cleanup",
    ),
    "it reads a traceback, where a resume function is a frame of its own": (
        "ContextManagerTestCase.test_contextmanager_traceback",
        "TestExitStack.test_exit_exception_traceback",
        "TestBaseExitStack.test_exit_exception_traceback",
        "TestTracebackType.test_attrs",
    ),
    "it reads how much memory an object takes": (
        "test_splittable_del",
        "test_splittable_pop",
        "test_splittable_popitem",
        "test_splittable_setdefault",
    ),
    "CPython changes in place the int that its own Python code, captured, has returned": (
        "PyLongModuleTests.test_pylong_str_to_int",
    ),
    "a test of time that skips itself where the machine takes less than 16 ms": (
        "test_denial_of_service_prevented_int_to_str",
        "test_denial_of_service_prevented_str_to_int",
    ),
}

RUNNER = """
import json, sys, unittest, warnings
name, tests, capture = sys.argv[1:4]
import test
if tests: test.__path__.append(tests)
if capture == "all":
    import oxyfuel
warnings.simplefilter("ignore")
class Result(unittest.TestResult):
    def __init__(self, *rest):
        super().__init__(*rest)
        self.outcomes = {}
    def note(self, test, outcome):
        self.outcomes[test.id()] = outcome
    def addSuccess(self, test): self.note(test, "ok")
    def addFailure(self, test, error): self.note(test, "failed: " + repr(error[1])[:200])
    def addError(self, test, error): self.note(test, "error: " + repr(error[1])[:200])
    def addSkip(self, test, reason): self.note(test, "skipped")
    def addExpectedFailure(self, test, error): self.note(test, "expected failure")
    def addUnexpectedSuccess(self, test): self.note(test, "unexpected success")
    def addSubTest(self, test, subtest, error):
        if error: self.note(subtest, "failed: " + repr(error[1])[:200])
suite = unittest.defaultTestLoader.loadTestsFromName("test." + name)
result = Result()
suite.run(result)
fallbacks = oxyfuel.stats()["fallbacks"] if capture == "all" else 0
with open(sys.argv[4], "w") as out: json.dump([result.outcomes, fallbacks], out)
"""


def outcomes(
    name: str, arguments: argparse.Namespace, capture: str
) -> tuple[dict[str, str], int] | str:
    """The outcome of each test of the file and how often Oxyfuel failed and eager ran, or why there
    are none."""
    environment = {**os.environ, "OXYFUEL_CAPTURE": capture, "PYTHONHASHSEED": "0"}
    environment["OXYFUEL_STRICT"] = "1" if arguments.strict else "0"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "outcomes.json")
        try:
            done = subprocess.run(
                [sys.executable, "-c", RUNNER, name, arguments.tests, capture, path],
                env=environment, timeout=arguments.seconds, capture_output=True, text=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "ran out of time"
        if done.returncode != 0:
            return f"exit status {done.returncode}: {done.stderr[-300:]}"
        with open(path) as f:
            return tuple(json.load(f))


def why_excepted(test: str) -> str | None:
    name = test.split(" ")[0]
    for reason, tests in EXCEPTED.items():
        if any(name.endswith("." + t) for t in tests):
            return reason
    return None


def compare(name: str, arguments: argparse.Namespace) -> tuple[int, list[str], list[str], int]:
    """How many tests, which differ, the reasons of those excepted, how often eager had to run."""
    plain, captured = (outcomes(name, arguments, capture) for capture in ("marked", "all"))
    if isinstance(plain, str):
        return 0, [f"plain Python gives no result: {plain}"], [], 0
    if isinstance(captured, str):
        return len(plain[0]), [f"no result: {captured}"], [], 0
    differing, excepted = [], []
    for test in sorted(plain[0].keys() | captured[0].keys()):
        was, became = plain[0].get(test), captured[0].get(test)
        if was == became:
            continue
        reason = why_excepted(test)
        if reason:
            excepted.append(reason)
        else:
            differing.append(f"{test}: {was} became {became}")
    return len(plain[0]), differing, excepted, captured[1]


def page(sections: dict[str, str]) -> str:
    """The page of docs/ with a section for each version."""
    head = [
        "# CPython's own tests",
        "",
        "Written by `./dev cpython`, a section for each version of CPython that it has run on:",
        "each file of its test suite in plain Python and with `OXYFUEL_CAPTURE=all`, test by test.",
        '"excepted" are tests that ask for what a capture does not keep (the reasons stand below);',
        '"eager" is how often a capture failed and eager ran, which changes no result.',
        "",
    ]
    by_version = sorted(sections, key=lambda heading: [int(n) for n in re.findall(r"\d+", heading)])
    return "\n".join([*head, "\n".join(sections[heading] for heading in by_version)])


def sections_of(path: str) -> dict[str, str]:
    """The sections that the page has, by their headings."""
    if not os.path.exists(path):
        return {}
    with open(path) as f:
        parts = re.split(r"^(## .*)$", f.read(), flags=re.MULTILINE)[1:]
    return {h: f"{h}{text.rstrip()}\n" for h, text in zip(parts[::2], parts[1::2], strict=True)}


def table(rows: list[tuple[str, int, list[str], list[str], int]]) -> str:
    """The rows as a section of the page."""
    same = sum(not differing for _, _, differing, _, _ in rows)
    lines = [
        HEADING,
        "",
        f"{same} of {len(rows)} files behave the same.",
        "",
        "| file | tests | differ | excepted | eager |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, tests, differing, excepted, fallbacks in rows:
        lines.append(f"| {name} | {tests} | {len(differing)} | {len(excepted)} | {fallbacks} |")
    lines += ["", "Excepted:", ""]
    for reason in EXCEPTED:
        count = sum(excepted.count(reason) for _, _, _, excepted, _ in rows)
        lines.append(f"- {count}: {reason}")
    differing = [f"- {text}" for row in rows for text in _in_words(row[2])]
    return "\n".join([*lines, *(["", "Differing:", "", *differing] if differing else []), ""])


def _in_words(differing: list[str]) -> list[str]:
    return [text.split(": ")[0].replace("test.", "", 1) for text in differing]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="test files; all of the list if there are none")
    parser.add_argument("--tests", default="", help="a folder with CPython's test files")
    parser.add_argument("--seconds", type=int, default=300, help="for each run of a file")
    parser.add_argument(
        "--strict", action="store_true", help="failures of Oxyfuel's own are errors"
    )
    parser.add_argument("--write", help="a page for the table")
    arguments = parser.parse_args()
    rows = []
    known = [name for name in FILES if sys.version_info >= SINCE.get(name, (3, 10))]
    for name in arguments.names or known:
        tests, differing, excepted, fallbacks = compare(name, arguments)
        rows.append((name, tests, differing, excepted, fallbacks))
        print(
            f"{name}: {tests} tests, {len(differing)} differ, {len(excepted)} excepted, "
            f"{fallbacks} in eager",
            flush=True,
        )
        for line in differing[:8]:
            print("    " + line, flush=True)
    same = sum(not row[2] for row in rows)
    print(f"{same} of {len(rows)} files behave the same")
    if arguments.write:
        sections = sections_of(arguments.write) | {HEADING: table(rows)}
        with open(arguments.write, "w") as f:
            f.write(page(sections))
    return 0 if same == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
