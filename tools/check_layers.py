"""Checks the order of the folders: a file includes only its own folder and folders before it in the data flow.

The list is the one in CMakeLists.txt (OXY_LAYERS), with torch_bridge and python behind it. Headers of torch belong to
these two alone, Python.h to python alone.

usage: check_layers.py [ROOT]
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
PYTHON = re.compile(
    r"^(Python|frameobject|structmember|opcode|pybind11/.*|internal/pycore_\w+)(\.h)?$"
)
LLVM = re.compile(r"^(clang|llvm)/")
# (file, header): the precompiled header of the extension serves both of its folders.
ALLOWED = {("torch_bridge/pch.h", "torch/csrc/autograd/python_variable.h")}


def layers(root):
    """The folders of src/ in order."""
    text = (root / "CMakeLists.txt").read_text()
    core = re.search(r"set\(OXY_LAYERS ([^)]*)\)", text).group(1).split()
    return [*core, "torch_bridge", "python"]


def problem(file, header, quoted, order):
    """What is wrong with this include of a file (its path below src/), or None."""
    if (file, header) in ALLOWED:
        return None
    folder = file.split("/")[0]
    target = header.split("/")[0]
    if quoted and "/" not in header:
        return "write the path from src/"
    if quoted and target not in order:
        return f"src/{target} is not in the list of folders"
    if quoted and order.index(target) > order.index(folder):
        return f"{folder} comes before {target}"
    if TORCH.match(header) and folder not in ("torch_bridge", "python"):
        return "headers of torch belong to torch_bridge and python"
    if (PYTHON.match(header) or "python_variable" in header) and folder != "python":
        return "headers of Python belong to python"
    if LLVM.match(header) and not file.startswith("jit/clang/"):
        return "headers of LLVM belong to jit/clang"
    return None


def check(root):
    """Lines "file:line: header: problem" for everything below src/."""
    order = layers(root)
    source = root / "src"
    found = []
    for path in sorted(p for p in source.rglob("*") if p.suffix in (".h", ".cpp", ".def")):
        file = path.relative_to(source).as_posix()
        if file.split("/")[0] not in order:
            found.append(f"src/{file}: its folder is not in the list of folders")
            continue
        text = path.read_text()
        for match in INCLUDE.finditer(text):
            what = problem(file, match.group(2), match.group(1) == '"', order)
            if what:
                line = text.count("\n", 0, match.start(1)) + 1
                found.append(f"src/{file}:{line}: {match.group(2)}: {what}")
    return found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    found = check(root)
    print("\n".join(found) if found else "layers: every include is in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
