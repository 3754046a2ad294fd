"""Records the bytecode of a CPython that the machine lacks: what tests/bytecode/check_recorded.py
holds the bytecode layer against.

The PyPI package componentize-py has a CPython for WebAssembly in it, which wasmtime runs: 3.14 in
version 0.25. In an environment of its own:

    pip install componentize-py wasmtime && python tools/record_bytecode.py
"""

import gzip
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from wasmtime import Engine, Store, WasiConfig
from wasmtime.component import Component, Linker

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests/bytecode"
WORLD = """
package local:recorder;
world recorder { export recorded: func() -> string; }
"""
# Files can be read only while the component is made.
PROGRAM = """
import recording

RECORDED = recording.recorded()

class WitWorld:
    def recorded(self):
        return RECORDED
"""


def component(folder):
    (folder / "world.wit").write_text(WORLD)
    (folder / "program.py").write_text(PROGRAM)
    for name in ("recording.py", "reference.py"):
        shutil.copy(TESTS / name, folder)
    tool = pathlib.Path(sys.executable).parent / "componentize-py"
    made = folder / "program.wasm"
    command = [tool, "-q", "-d", folder / "world.wit", "-w", "recorder", "componentize"]
    subprocess.run([*command, "-p", folder, "program", "-o", made], check=True)
    return made


def run(path):
    engine = Engine()
    store = Store(engine)
    store.set_wasi(WasiConfig())
    linker = Linker(engine)
    linker.add_wasip2()
    instance = linker.instantiate(store, Component.from_file(engine, str(path)))
    return instance.get_func(store, "recorded")(store)


def main():
    with tempfile.TemporaryDirectory() as folder:
        tables, code = json.loads(run(component(pathlib.Path(folder))))
    version = ".".join(tables["version"].split(".")[:2])
    folder = TESTS / "recorded"
    rows = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in tables.items())
    (folder / f"opcode-{version}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
    packed = json.dumps(code, separators=(",", ":")).encode()
    (folder / f"code-{version}.json.gz").write_bytes(gzip.compress(packed, mtime=0))


if __name__ == "__main__":
    main()
