"""The check of the pages finds a section that stands there twice, and nothing in the project."""

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


def test_the_project():
    assert check_docs.check(ROOT) == []
