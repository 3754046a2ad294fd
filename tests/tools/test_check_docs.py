"""The check of pages and comments finds each kind of problem, and nothing in the project."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_docs  # noqa: E402


def test_a_section_that_was_pasted_twice(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text(
        "# A\n## B\ntext\n```\n# code\n# code\n```\n## B\nmore\n"
    )
    (tmp_path / "docs/other.md").write_text("# A\n## B\n### A\n")
    assert check_docs.check(tmp_path) == ["docs/page.md: ## B: stands there twice"]


def test_sources(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/good.cpp").write_text("// What it is.\n" + "x" * 100 + "\n")
    (tmp_path / "src/wide.def").write_text("// A table.\n// " + "x" * 98 + "\n")
    (tmp_path / "src/bare.cpp").write_text('#include "bare.h"\n')
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/good.py").write_text('#!/usr/bin/env python3\n"""What it is."""\n')
    (tmp_path / "tools/bare.py").write_text("import sys\n")
    assert check_docs.check(tmp_path) == [
        "src/bare.cpp:1: does not open with what it is",
        "src/wide.def:2: 101 columns, more than 100",
        "tools/bare.py:1: does not open with what it is",
    ]


def test_the_project():
    assert check_docs.check(ROOT) == []
