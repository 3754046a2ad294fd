"""`python -m oxyfuel`: an unmodified program whose torch.compile is oxyfuel.compile."""

import json
import os
import subprocess
import sys
import textwrap
import zipfile

import pytest


def run(folder, *arguments, expected=0):
    environment = {**os.environ, "OXYFUEL_STRICT": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "oxyfuel", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == expected, done.stderr
    return done


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    return write


PROGRAM = """
    import sys
    import torch
    import oxyfuel

    @torch.compile
    def bare(x):
        return x + 1

    @torch.compile(mode="max-autotune", fullgraph=True, dynamic=False)
    def decorated(x):
        return x * 2

    x = torch.ones(3)
    with torch.no_grad():
        for f in (bare, decorated):
            f(x)
        for backend in (None, "inductor", "eager", "aot_eager", lambda gm, inputs: gm.forward):
            f = torch.compile(lambda x: x - 1, backend=backend)
            assert torch.equal(f(x), x - 1)
        m = torch.nn.Linear(3, 3)
        before = m(x)
        m.compile(fullgraph=True)
        torch.testing.assert_close(m(x), before)
        assert list(m.state_dict()) == ["weight", "bias"]
    assert "torch._inductor.compile_fx" not in sys.modules
    print(oxyfuel.stats()["graphs"], oxyfuel.stats()["graph_breaks"])
"""


def test_each_use_of_torch_compile(tmp_path, write):
    write("program.py", PROGRAM)
    assert run(tmp_path, "program.py").stdout.split() == ["8", "0"]


WHO_AM_I = """
    import json, pickle, sys
    import __main__
    from beside import BESIDE

    class Thing:
        pass

    assert type(pickle.loads(pickle.dumps(Thing()))) is Thing and __main__.Thing is Thing
    spec = __spec__ and __spec__.name
    print(json.dumps([__name__, __file__, __package__, spec, sys.argv, sys.path[0], BESIDE]))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["folder/program.py", "a", "-m", "--b"],
        ["-m", "folder.program", "-x", "1"],
        ["-m", "folder.package", "2"],
        ["folder", "3"],
        ["archive.zip", "4"],
    ],
    ids=["script", "module", "package", "folder", "archive"],
)
def test_the_program_sees_what_python_shows(tmp_path, write, arguments):
    for name in ("program", "package/__main__", "__main__"):
        write(f"folder/{name}.py", WHO_AM_I)
    write("folder/package/__init__.py", "")
    for name in ("beside.py", "folder/beside.py"):
        write(name, "BESIDE = __file__")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for name in ("__main__.py", "beside.py"):
            archive.write(tmp_path / "folder" / name, name)
    alone = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert alone.returncode == 0, alone.stderr
    assert json.loads(run(tmp_path, *arguments).stdout) == json.loads(alone.stdout)


def test_exit_status_and_exceptions(tmp_path, write):
    write("leaves.py", "import sys; sys.exit(7)")
    run(tmp_path, "leaves.py", expected=7)
    write("fails.py", "\n\n1 / 0")
    said = run(tmp_path, "fails.py", expected=1).stderr
    assert 'fails.py", line 3' in said and said.endswith("ZeroDivisionError: division by zero\n")
    assert "No such file" in run(tmp_path, "absent.py", expected=2).stderr
    assert "no_such_module" in run(tmp_path, "-m", "no_such_module", expected=1).stderr
    assert "usage" in run(tmp_path, expected=1).stderr
    assert "usage" in run(tmp_path, "--help").stdout


def test_foreign_options_are_left_out_and_said(tmp_path, write):
    write(
        "program.py",
        """
        import torch

        f = torch.compile(lambda x: x + 1, options={"triton.cudagraphs": True}, recompile_limit=2)
        print(f(torch.ones(1)).item())
        try:
            torch.compile(lambda x: x, backend="no_such")
        except ValueError as e:
            print(e)
        """,
    )
    done = run(tmp_path, "program.py")
    assert "recompile_limit" in done.stderr and "triton.cudagraphs" in done.stderr
    assert done.stdout.startswith("2.0\n") and "aot_eager, eager, native" in done.stdout


PROCESSES = """
    import concurrent.futures
    import multiprocessing
    import pickle
    import sys
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            torch.nn.init.eye_(self.linear.weight)  # sums that no order of additions rounds

        def forward(self, x):
            return self.linear(x).relu()

    @torch.compile
    def add(x, y):
        return x.sin() + y

    def is_ours(_=None):
        import oxyfuel
        assert add(torch.ones(2), 1).tolist() == (torch.ones(2).sin() + 1).tolist()
        return oxyfuel.stats()["graphs"]

    def in_another(_):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(is_ours)

    def forward(net):
        with torch.no_grad():
            return net(torch.ones(3)).tolist()

    if __name__ == "__main__":
        net = torch.compile(Net())
        found = [is_ours()]
        for method in ("spawn", "fork", "forkserver"):
            context = multiprocessing.get_context(method)
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                found.append(pool.submit(is_ours).result())
                assert pool.submit(forward, net).result() == forward(net)
        found.append(in_another(None))
        print(found)
        assert type(pickle.loads(pickle.dumps(net))) is Net
        assert pickle.loads(pickle.dumps(add)) is add
        sys.exit(3)
"""


@pytest.mark.parametrize("arguments", [["program.py"], ["-m", "program"]], ids=["script", "module"])
def test_processes_that_the_program_starts(tmp_path, write, arguments):
    write("program.py", PROCESSES)
    done = run(tmp_path, *arguments, expected=3)
    assert (done.stdout, done.stderr) == ("[1, 1, 2, 1, 1]\n", "")  # a fork has its parent's two
