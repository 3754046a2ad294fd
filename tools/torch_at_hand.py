"""The torch of a Python, without importing it.

Prints "VERSION;FOLDER" of the torch that this Python would import. Under pip's build isolation,
which hides what is installed, it is the one of the Python that pip runs in: what is built here fits
one torch, which has to be the one that it will run with.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys

_FIND = """
import importlib.util
spec = importlib.util.find_spec("torch")
print(spec.submodule_search_locations[0] if spec else "")
"""


def torch_at_hand():
    """(version, folder). Raises SystemExit with a sentence where there is none."""
    spec = importlib.util.find_spec("torch")
    if spec:
        folder = spec.submodule_search_locations[0]
    else:
        # -I: without the PYTHONPATH by which pip hides it.
        command = [sys.executable, "-I", "-c", _FIND]
        folder = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if not folder:
        sys.exit(
            f"no torch for {sys.executable}: install the torch that Oxyfuel is to run with, and "
            "build with --no-build-isolation"
        )
    text = pathlib.Path(folder, "version.py").read_text()
    return re.search(r"^__version__\b.*?['\"](.+?)['\"]", text, re.MULTILINE).group(1), folder


if __name__ == "__main__":
    print(*torch_at_hand(), sep=";")
