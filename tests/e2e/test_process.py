"""A process is left as it was found: what import, a capture and a call change (docs/process.md)."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def run(folder, program):
    """What a program prints in a fresh process with empty folders of its own."""
    folders = {name: str(folder / name) for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}
    for path in folders.values():
        Path(path).mkdir()
    environment = {
        **os.environ,
        **folders,
        "PYTHONPATH": os.pathsep.join(
            [str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        ),
        "OXYFUEL_STRICT": "1",
    }
    environment.pop("OXYFUEL_CAPTURE", None)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# What torch makes at its own first use is there before the first snapshot, and what glibc does when
# a process starts its first thread: a handler for a signal of its own (33). Where torch may use one
# processor alone, no thread of torch's does that.
STAGES = """
    import json
    import threading
    import torch
    import torch._dynamo
    from process_state import differences, snapshot

    x = torch.randn(512, 512)

    def model(x):
        return (x @ x).sin().softmax(-1).cumsum(0) + torch.rand(512).mean() + x.sort()[0]

    def broken(x):
        y = x + 1
        note()
        return y * 2

    @torch.compiler.disable
    def note():
        inside["a broken frame"] = snapshot()

    @torch.library.custom_op("oxyfuel_tests::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @noted.register_fake
    def _(x):
        inside["a recording"] = snapshot()
        return torch.empty_like(x)

    inside, found = {}, {}

    def stage(name, work):
        before = snapshot()
        random = torch.get_rng_state()
        work()
        torch.set_rng_state(random)
        found[name] = differences(before, snapshot())
        for part, state in inside.items():
            found[part] = differences(before, state)
        inside.clear()

    def import_it():
        import oxyfuel

    torch.set_grad_enabled(False)
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    torch.compile(model, backend="eager")(x)
    noted(x)
    snapshot()
    stage("nothing", lambda: None)
    stage("import", import_it)
    import oxyfuel
    compiled = oxyfuel.compile(model)
    compiled_broken = oxyfuel.compile(broken)
    compiled_noted = oxyfuel.compile(lambda x: noted(x) + 1)
    of_torch = torch.compile(model, backend="oxyfuel")
    stage("first call", lambda: compiled(x))
    stage("second call", lambda: compiled(x))
    stage("graph break", lambda: compiled_broken(x))
    stage("custom op", lambda: compiled_noted(x))
    with torch.autocast("cpu"):
        stage("autocast", lambda: compiled(x))
    stage("torch.compile", lambda: of_torch(x))
    stage("torch.compile, second call", lambda: of_torch(x))
    stage("reset", oxyfuel.reset)
    print(json.dumps(found))
"""

# What a stage may change; all other stages change nothing. Full matches.
OWN = r"(attributes|modules): oxyfuel(\..*)?"
ALLOWED = {
    "import": [OWN, r"libraries: .*/oxyfuel/(_C\.|liboxyfuel_core\.so).*"],
    "first call": [
        OWN,
        r"files: .*/oxyfuel",  # an empty folder
        r"libraries: .*/lib(oxyfuel_clang|z|zstd)\.so.*",
        r"ops: fallbacks: TESTING_ONLY_GenericMode: .*",
        r"ops: (ops|kernels): oxyfuel::.*",
        "setters",
    ],
    "a recording": [
        r"attributes: torch\._library\.fake_impl\.global_ctx_getter",  # torch's
        "evaluator",
        "python: gc",
        r"torch: (excluded|included|interpreter table)",
    ],
    "a broken frame": ["evaluator"],
    "torch.compile": [r"attributes: .*\.__compiled_fn_.*"],  # TorchDynamo's
}


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    return json.loads(run(tmp_path_factory.mktemp("process"), STAGES))


def test_each_stage_changes_what_the_page_says(changes):
    for stage, names in changes.items():
        allowed = ALLOWED.get(stage, [])
        others = [n for n in names if not any(re.fullmatch(a, n) for a in allowed)]
        assert others == [], stage
    assert set(ALLOWED) <= set(changes)


def test_changes_are_noticed(tmp_path):
    program = """
    import atexit, ctypes, gc, json, locale, os, random, signal, sys, threading, warnings
    import torch
    from process_state import differences, snapshot

    snapshot()
    before = snapshot()
    atexit.register(print, end="")
    ctypes.CDLL(None).setenv(b"ADDED", b"1", 1)
    gc.disable()
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    os.umask(0o123)
    random.random()
    signal.signal(signal.SIGUSR1, print)
    sys.meta_path.append(None)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    torch.set_flush_denormal(True)
    torch.set_grad_enabled(False)
    torch.relu = torch.sigmoid
    warnings.simplefilter("ignore")
    print(json.dumps(differences(before, snapshot())))
    sys.meta_path.pop()
    """
    expected = [
        "attributes: torch.relu",
        "environment of C: ADDED=1",
        "floating point",
        "hooks: at exit",
        "hooks: meta_path",
        "locale",
        "process: SigCgt",
        "process: Threads",
        "process: Umask",
        "python: filters",
        "python: gc",
        "python: handlers: SIGUSR1",
        "random: random",
        "torch: grad",
    ]
    assert set(expected) <= set(json.loads(run(tmp_path, program)))


# None of them is needed before something is compiled.
LARGE = ("torch._dynamo", "torch._inductor", "sympy", "transformers", "jinja2", "pandas", "html")


def test_import_brings_the_package_and_no_other(tmp_path):
    program = """
    import json, sys
    import torch
    before = set(sys.modules)
    import oxyfuel
    print(json.dumps([sorted(set(sys.modules) - before), sorted(sys.modules)]))
    """
    if not registered_by_entry_point():
        pytest.skip("the entry point is not installed: importing Oxyfuel registers the backend")
    new, all_modules = json.loads(run(tmp_path, program))
    assert [m for m in new if not m.startswith(("oxyfuel", "torch.fx"))] == []
    assert [m for m in LARGE if m in all_modules] == []


def registered_by_entry_point():
    found = importlib.metadata.entry_points(group="torch_dynamo_backends")
    return any(e.name == "oxyfuel" for e in found)


def test_nothing_is_left_behind(tmp_path):
    program = """
    import torch, oxyfuel
    with torch.no_grad():
        print(oxyfuel.compile(lambda x: x.sin().cumsum(-1).amax())(torch.zeros(9, 9)).item())
    """
    assert run(tmp_path, program) == "0.0\n"
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))
    assert files == ["HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CACHE_HOME/oxyfuel"]
