"""The check of the folder order finds what it should, and finds nothing in the project."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402


def findings(tmp_path, file, text):
    (tmp_path / "CMakeLists.txt").write_text(
        "set(OXY_LAYERS support ir schedule codegen jit runtime)\n"
    )
    path = tmp_path / "src" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return check_layers.check(tmp_path)


@pytest.mark.parametrize(
    ("file", "include", "reason"),
    [
        ("ir/graph.h", '"runtime/plan.h"', "ir comes before runtime"),
        ("ir/graph.h", '"elsewhere/plan.h"', "not in the list"),
        ("schedule/kernel.h", '"schedule/cpu/annotations.h"', "every device"),
        ("ir/graph.cpp", '"graph.h"', "path from src/"),
        ("runtime/plan.cpp", "<ATen/ATen.h>", "headers of torch"),
        ("torch_bridge/fake.cpp", "<Python.h>", "headers of Python"),
        ("torch_bridge/fake.h", "<torch/csrc/autograd/python_variable.h>", "headers of Python"),
        ("torch_bridge/fake.h", '"python/frame.h"', "torch_bridge comes before python"),
        ("jit/loader.cpp", "<llvm/IR/Module.h>", "headers of LLVM"),
        ("other/file.cpp", "<vector>", "not in the list"),
        (
            "python/bytecode/code.h",
            '"python/capture/break.h"',
            "bytecode comes before python/capture",
        ),
        ("python/other/code.h", '"python/replay.h"', "python/other is not in the list"),
    ],
)
def test_finds(tmp_path, file, include, reason):
    found = findings(tmp_path, file, f"// A file.\n#include {include}\n")
    assert len(found) == 1
    assert found[0].startswith(f"src/{file}")
    assert reason in found[0]


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("ir/graph.h", '"support/text.h"'),
        ("ir/graph.cpp", '"ir/graph.h"'),
        ("runtime/plan.cpp", "<vector>"),
        ("torch_bridge/fake.cpp", "<ATen/core/Tensor.h>"),
        ("torch_bridge/pch.h", "<torch/csrc/autograd/python_variable.h>"),
        ("python/frame.cpp", "<internal/pycore_frame.h>"),
        ("python/frame.cpp", '"python/capture/break.h"'),
        ("python/capture/break.h", '"python/frame.h"'),
        ("python/capture/break.h", '"python/guards/guard.h"'),
        ("jit/clang/api.cpp", "<llvm/IR/Module.h>"),
    ],
)
def test_allows(tmp_path, file, include):
    assert findings(tmp_path, file, f"#include {include}\n") == []


def test_finds_a_cycle_in_python(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text("set(OXY_LAYERS support)\n")
    python = tmp_path / "src" / "python"
    (python / "capture").mkdir(parents=True)
    (python / "capture" / "calls.cpp").write_text('#include "python/frames.h"\n')
    (python / "frames.h").write_text("// A file.\n")
    (python / "frames.cpp").write_text('#include "python/frames.h"\n#include "python/broken.h"\n')
    assert check_layers.check(tmp_path) == []
    (python / "broken.h").write_text('#include "python/capture/break.h"\n')
    found = check_layers.check(tmp_path)
    assert found == ["src/python: a cycle of includes: broken -> capture -> frames -> broken"]


def test_the_project_is_in_order():
    assert check_layers.check(ROOT) == []
