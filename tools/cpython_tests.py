"""CPython's own tests, plain and with OXYFUEL_CAPTURE=all: `python tools/cpython_tests.py [--tests FOLDER] [NAME ...]`.

Each test file runs twice in processes of its own; compared is the outcome of each test, by its name. FOLDER has the test
files where the interpreter comes without them (Debian: libpython3.11-testsuite, unpacked). Left out are files that are
about what a capture cannot keep: frames, tracing, garbage collection by count, recursion limits, threads' timing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

_NAMES = """
test_augassign test_binop test_bool test_builtin test_call test_class test_compare test_complex test_contains
test_contextlib test_copy test_dataclasses test_decorators test_defaultdict test_deque test_dict test_dictcomps
test_dictviews test_dynamicclassattribute test_enumerate test_exception_group test_exceptions test_float test_fnmatch
test_format test_fractions test_frozen test_fstring test_funcattrs test_functools test_generator_stop test_generators
test_genericalias test_genexps test_getopt test_graphlib test_heapq test_index test_int test_isinstance test_iter
test_itertools test_keywordonlyarg test_list test_listcomps test_long test_math test_operator test_opcodes
test_ordered_dict test_patma test_positional_only_arg test_pow test_property test_raise test_range test_richcmp
test_scope test_set test_setcomps test_slice test_statistics test_string test_super test_textwrap test_tuple
test_types test_unpack test_unpack_ex test_userdict test_userlist test_userstring test_with test_yield_from
"""
FILES = _NAMES.split()

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
with open(sys.argv[4], "w") as out: json.dump(result.outcomes, out)
"""


def outcomes(name: str, tests: str, capture: str, seconds: int) -> dict[str, str] | str:
    """The outcome of each test of the file, or why there are none."""
    path = f"/tmp/cpython_tests_{os.getpid()}.json"
    environment = {**os.environ, "OXYFUEL_CAPTURE": capture, "OXYFUEL_STRICT": "1"}
    environment["PYTHONHASHSEED"] = "0"
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, name, tests, capture, path],
            env=environment, timeout=seconds, capture_output=True, text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "ran out of time"
    if done.returncode != 0:
        return f"exit status {done.returncode}: {done.stderr[-300:]}"
    with open(path) as f:
        return json.load(f)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="test files; all of the list if there are none")
    parser.add_argument("--tests", default="", help="a folder with CPython's test files")
    parser.add_argument("--seconds", type=int, default=300, help="for each run of a file")
    arguments = parser.parse_args()
    same = 0
    names = arguments.names or FILES
    for name in names:
        plain, captured = (
            outcomes(name, arguments.tests, capture, arguments.seconds)
            for capture in ("marked", "all")
        )
        differing = ["no result: " + captured] if isinstance(captured, str) else []
        if isinstance(plain, str):
            print(f"{name}: plain Python gives no result: {plain}", flush=True)
            continue
        if not differing:
            keys = sorted(plain.keys() | captured.keys())
            pairs = [(k, plain.get(k), captured.get(k)) for k in keys]
            differing = [f"{k}: {p} became {c}" for k, p, c in pairs if p != c]
        same += not differing
        print(f"{name}: {len(plain)} tests, {len(differing)} differ", flush=True)
        for line in differing[:8]:
            print("    " + line, flush=True)
    print(f"{same} of {len(names)} files behave the same")
    return 0 if same == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
