"""The check of torch's headers names what a torch has that this tree does not know."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_torch_headers  # noqa: E402

INCLUDE = pathlib.Path(torch.__file__).parent / "include"
HEADERS = sorted({c.header for c in [*check_torch_headers.DERIVED, *check_torch_headers.READ]})


def findings(folder, header, old, new):
    """The differences of torch's headers with one text replaced in one of them."""
    for name in HEADERS:
        text = (INCLUDE / name).read_text()
        if name == header:
            assert old in text
            text = text.replace(old, new, 1)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return check_torch_headers.differences(folder)


def test_this_torch_is_known():
    assert check_torch_headers.differences(INCLUDE) == []


@pytest.mark.parametrize(
    ("header", "old", "new", "named"),
    [
        (
            "c10/core/impl/PyInterpreter.h",
            "virtual std::string name()",
            "virtual int news(\n    PyObject* o) const { return 0; }\n  virtual std::string name()",
            "PyInterpreterVTable::news is virtual",
        ),
        (
            "c10/core/SymNodeImpl.h",
            "virtual bool is_int()",
            "virtual SymNode news(const SymNode&) { return {}; }\n  virtual bool is_int()",
            "SymNodeImpl::news is virtual",
        ),
        (
            "c10/core/TensorImpl.h",
            "int64_t numel_ = 1;",
            "int64_t news_ = 0;\n  int64_t numel_ = 1;",
            "TensorImpl has other data members: new ['news_'], gone []",
        ),
        (
            "c10/core/impl/SizesAndStrides.h",
            "int64_t* outOfLineStorage_;",
            "int64_t* elsewhere_;",
            "new ['elsewhere_'], gone ['outOfLineStorage_']",
        ),
        (
            "ATen/FunctionalStorageImpl.h",
            "virtual Tensor forward(",
            "virtual Tensor news() { return {}; }\n  virtual Tensor forward(",
            "ViewMeta::news is virtual",
        ),
    ],
    ids=lambda v: v[:40] if isinstance(v, str) else "",
)
def test_a_difference_is_named(tmp_path, header, old, new, named):
    (line,) = findings(tmp_path, header, old, new)
    assert line.startswith(header) and named in line
