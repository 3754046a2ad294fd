"""Checks the order of the folders: a file includes only its own folder and folders before it in the
data flow.

The list is the one in CMakeLists.txt (OXY_LAYERS), with torch_bridge and python behind it. Headers
of torch belong to these two alone, Python.h to python alone. The subfolders of src/python have an
order of their own; between them and the files of src/python itself (a header and its source are one
part) there is no cycle of includes.

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
# The subfolders of src/python; its own files stand between them and behind them.
PYTHON_FOLDERS = ["cpython", "bytecode", "guards", "capture"]
# (file, header): the precompiled header of the extension serves both of its folders.
ALLOWED = {("torch_bridge/pch.h", "torch/csrc/autograd/python_variable.h")}


def layers(root):
    """The folders of src/ in order."""
    text = (root / "CMakeLists.txt").read_text()
    core = re.search(r"set\(OXY_LAYERS ([^)]*)\)", text).group(1).split()
    return [*core, "torch_bridge", "python"]


def is_neutral(file):
    """Whether a file of schedule/ belongs to every device: its sub-folders are one device's
    each."""
    return file.startswith("schedule/") and file.count("/") == 1


def part_of(file):
    """What a file of src/python belongs to: its subfolder, or the header and source of one name."""
    inside = file.removeprefix("python/")
    return inside.split("/")[0] if "/" in inside else inside.rsplit(".", 1)[0]


def python_problem(file, header):
    """What is wrong with an include from src/python to src/python, or None."""
    folder, target = part_of(file), part_of(header)
    for path, part in ((file, folder), (header, target)):
        if path.count("/") > 1 and part not in PYTHON_FOLDERS:
            return f"python/{part} is not in the list of its folders"
    listed = folder in PYTHON_FOLDERS and target in PYTHON_FOLDERS
    if listed and PYTHON_FOLDERS.index(target) > PYTHON_FOLDERS.index(folder):
        return f"python/{folder} comes before python/{target}"
    return None


def cycle(graph):
    """The parts of a cycle in a graph {part: set of parts}, the first one again at the end; None
    where there is none."""
    done = set()

    def search(part, path):
        if part in path:
            return [*path[path.index(part) :], part]
        if part in done:
            return None
        for other in sorted(graph.get(part, ())):
            if found := search(other, [*path, part]):
                return found
        done.add(part)
        return None

    return next((found for part in sorted(graph) if (found := search(part, []))), None)


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
    if header.startswith("schedule/cpu/") and is_neutral(file):
        return "what is true for every device knows none"
    if folder == target == "python" and (what := python_problem(file, header)):
        return what
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
    parts = {}  # of src/python
    for path in sorted(p for p in source.rglob("*") if p.suffix in (".h", ".cpp", ".def")):
        file = path.relative_to(source).as_posix()
        if file.split("/")[0] not in order:
            found.append(f"src/{file}: its folder is not in the list of folders")
            continue
        text = path.read_text()
        for match in INCLUDE.finditer(text):
            header, quoted = match.group(2), match.group(1) == '"'
            what = problem(file, header, quoted, order)
            within = quoted and file.startswith("python/") and header.startswith("python/")
            if within and part_of(file) != part_of(header):
                parts.setdefault(part_of(file), set()).add(part_of(header))
            if what:
                line = text.count("\n", 0, match.start(1)) + 1
                found.append(f"src/{file}:{line}: {header}: {what}")
    if circle := cycle(parts):
        found.append(f"src/python: a cycle of includes: {' -> '.join(circle)}")
    return found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    found = check(root)
    print("\n".join(found) if found else "layers: every include is in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
