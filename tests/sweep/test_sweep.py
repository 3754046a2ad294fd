"""A share of the sweep's rows: ours gives eager's results. Times are no matter here."""

import argparse
import re
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import oxyfuel  # noqa: E402
import sweep  # noqa: E402
import sweep_drawn  # noqa: E402
import sweep_models  # noqa: E402
import sweep_ops  # noqa: E402
import sweep_page  # noqa: E402
import sweep_row  # noqa: E402
from sweep_enlarge import Skip, bytes_of, enlarge  # noqa: E402

HOW = argparse.Namespace(threads=1, seconds=0.0, realtime=False, inductor=False)
SMALL = re.compile(r"/(f32|bf16|i64|bool)/(contiguous|transposed|sliced)/l2$")


def share(names, part):
    return [n for n in names if sweep.drawn(n, part, "tests")]


ROWS = [
    *share([n for n in sweep_ops.names() if SMALL.search(n)], 0.004),
    *share(sweep_drawn.names(), 0.015),
    *share([n for n in sweep_models.names() if "/nn." in n], 0.2),
]


@pytest.mark.parametrize("name", ROWS)
def test_row(name):
    oxyfuel.reset()
    try:
        row = sweep_row.run(name, HOW)
    except Skip as e:
        pytest.skip(str(e))
    assert row["difference"] == ""
    assert not row.get("broken", {}).get("fallbacks")


def test_step():
    oxyfuel.reset()
    row = sweep_row.run("drawn/pointwise/4/f32/step", HOW)
    assert row["difference"] == "" and row["one_graph"]


def test_the_rule_that_enlarges():
    """Dimensions of one length grow together; indices stay within what they index."""
    tree = (torch.randn(4, 5), torch.randint(0, 4, (3,)), 2.0)
    run = lambda tree: tree[0][tree[1]] * tree[2]
    (x, index, number), text = enlarge(tree, 1 << 20, run)
    assert number == 2.0 and "4 to" in text
    assert (1 << 20) * 0.4 <= bytes_of((x, index, run((x, index, number)))) <= 2 << 20
    assert int(index.max()) < len(x)


def test_what_cannot_be_enlarged():
    def run(tree):
        raise RuntimeError

    with pytest.raises(Skip, match="none of the ways"):
        enlarge((torch.randn(3),), 1 << 20, run)


def test_differences_are_found():
    x = torch.randn(8)
    assert sweep_row.difference(x, x + 1e-7) == ""
    assert "differ" in sweep_row.difference(x, x + 0.1)
    assert "not torch.float32" in sweep_row.difference(x, x.double())
    assert "differ" in sweep_row.difference(torch.arange(3), torch.arange(3) + 1)


def test_page(tmp_path):
    row = {"name": "ops/add/f32/contiguous/l2", "eager_us": 100.0, "ours_us": 200.0, "ratio": 2.0,
           "kernels": 1, "extern_calls": 0, "one_graph": True, "difference": "", "shapes": "3x3",
           "bytes": 1000, "flops": 0}  # fmt: skip
    limits = {"machine": "m", "threads": 1, "copy_bandwidth": 1e10, "flops": 1e11}
    page = tmp_path / "page.md"
    sweep_page.write(page, [row, {"name": "ops/x/f32", "skipped": "no tensor"}], limits)
    text = page.read_text()
    assert "| ops/add/f32/contiguous/l2 | 3x3 | 100 | 200 | 2.00 | a kernel of ours |" in text
    assert "| no tensor | 1: x |" in text
