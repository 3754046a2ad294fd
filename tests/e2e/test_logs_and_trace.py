"""What a user sees of a compilation: the log artefacts and the trace folder."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import oxyfuel

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def quiet_behind(strict_without_grad):
    yield
    oxyfuel.set_logs()


def attention(x, w, mask):
    q, k = (x @ w).chunk(2, -1)
    scores = (q @ k.transpose(-1, -2)).masked_fill(mask, float("-inf"))
    return torch.nn.functional.layer_norm(scores.softmax(-1) @ x, x.shape[-1:]).sin()


def attention_inputs():
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    return torch.randn(2, 6, 16), torch.randn(16, 32), mask


def compile_and_run(f, inputs, **options):
    return torch.compile(f, backend="oxyfuel", options=options)(*inputs)


# What each artefact of a compilation of `attention` says somewhere.
SAID = {
    "graph_code": 'l_x_.matmul|"f32[2, 6, 16]',
    "aot_graphs": "graph aten(",
    "ir_pre_fusion": "loop op",
    "ir_post_fusion": "kernel fused_",
    "fusion": "graph",  # the header: nothing here was refused
    "schedule": "arena",
    "output_code": "plan arena=",
    "kernel_code": 'extern "C"',
    "perf": "compile kernels",
    "bandwidth": "GB/s",
}


def artifact_texts(text):
    """The text below each header of a log."""
    found = {}
    for part in text.split("[oxyfuel ")[1:]:
        name, _, body = part.partition("]")
        found.setdefault(name, "")
        found[name] += body
    return found


def test_all_artefacts(capfd):
    oxyfuel.set_logs("all")
    compile_and_run(attention, attention_inputs())
    found = artifact_texts(capfd.readouterr().err)
    assert set(found) == set(SAID)
    for name, words in SAID.items():
        assert any(w in found[name] for w in words.split("|")), f"{name}: {found[name][:500]}"
    assert "test_logs_and_trace.py" in found["graph_code"]  # where the user's line stands
    assert "record" in found["perf"]


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    return x * b.view(-1).sum()


def test_the_graph_of_a_capture_reads_as_torchs(capfd):
    oxyfuel.set_logs("graph_code")
    oxyfuel.compile(toy_example, dynamic=True)(torch.ones(10), torch.ones(3, 4))
    first = toy_example.__code__.co_firstlineno
    lines = [
        line.strip().split(";")[0].replace(__file__, "FILE")
        for line in capfd.readouterr().err.splitlines()
    ]
    assert [line for line in lines if line][1:] == [
        "class GraphModule(torch.nn.Module):",
        'def forward(self, L_a_: "f32[s0]", L_b_: "f32[s1, s2]"):',
        "l_a_ = L_a_",
        "l_b_ = L_b_",
        f"# File: FILE:{first + 1} in toy_example, code: x = a / (torch.abs(a) + 1)",
        'abs_1: "f32[s0]" = torch.abs(l_a_)',
        'add: "f32[s0]" = abs_1 + 1',
        'truediv: "f32[s0]" = l_a_ / add',
        f"# File: FILE:{first + 2} in toy_example, code: return x * b.view(-1).sum()",
        'view: "f32[s1*s2]" = l_b_.view(-1)',
        'sum_1: "f32[]" = view.sum()',
        'mul: "f32[s0]" = truediv * sum_1',
        "return (mul,)",
    ]


def test_inputs_of_one_name():
    def f(x):
        return x["a"]["b"] + x["a_b"] * 2

    seen = []
    x = {"a": {"b": torch.ones(2)}, "a_b": torch.ones(2)}
    backend = lambda gm, inputs: seen.append(gm) or gm
    assert torch.equal(oxyfuel.compile(f, backend=backend)(x), f(x))
    names = [n.target for n in seen[0].graph.nodes if n.op == "placeholder"]
    assert names == ["L_x_a_b_", "L_x_a_b__1"]


@pytest.mark.parametrize("name", ["graph_code", "schedule"])
def test_one_artefact(name, capfd):
    oxyfuel.set_logs(**{name: True})
    compile_and_run(lambda x: x.sin() + 1, (torch.ones(4),))
    assert set(artifact_texts(capfd.readouterr().err)) == {name}
    oxyfuel.set_logs()
    compile_and_run(lambda x: x.cos() + 1, (torch.ones(4),))
    assert capfd.readouterr().err == ""


def test_an_unknown_artefact_is_an_error_that_names_the_known():
    with pytest.raises(ValueError, match="fusoin") as e:
        oxyfuel.set_logs("fusoin")
    assert all(name in str(e.value) for name in SAID)


def test_logs_from_the_environment():
    program = "import torch, oxyfuel; torch.compile(torch.sin, backend='oxyfuel')(torch.ones(3))"
    environment = {**os.environ, "OXYFUEL_LOGS": "output_code"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert set(artifact_texts(done.stderr)) == {"output_code"}


FILES = [
    "fx_graph_readable.py",
    "fx_graph_runnable.py",
    "fx_graph_transformed.py",
    "torch_graph.txt",
    "aten_graph.txt",
    "aten_graph_transformed.txt",
    "ir_pre_fusion.txt",
    "ir_post_fusion.txt",
    "fusion.txt",
    "schedule.txt",
    "output_code.txt",
    "compile_time.json",
    "compile_time.txt",
    "graph_diagram.dot",
]


def only_folder(parent):
    (folder,) = parent.iterdir()
    return folder


def run_alone(program):
    """With plain Python: nothing of this checkout can be found."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_folder(folder, results):
    for name in FILES:
        assert (folder / name).is_file(), name
    for name in ("fx_graph_readable.py", "fx_graph_transformed.py", "fx_graph_runnable.py"):
        ast.parse((folder / name).read_text())
    events = json.loads((folder / "compile_time.json").read_text())["traceEvents"]
    assert {"record", "passes", "schedule", "compile kernels"} <= {e["name"] for e in events}
    assert len(run_alone(folder / "fx_graph_runnable.py").splitlines()) == results


def test_trace_folder(tmp_path):
    compile_and_run(attention, attention_inputs(), trace=str(tmp_path))
    folder = only_folder(tmp_path)
    check_folder(folder, results=1)
    assert "layer_norm" in (folder / "torch_graph.txt").read_text()
    if shutil.which("dot"):
        assert "<svg" in (folder / "graph_diagram.svg").read_text()


def test_one_folder_a_compilation(tmp_path, monkeypatch):
    monkeypatch.setenv("OXYFUEL_TRACE", str(tmp_path))
    f = oxyfuel.compile_fx(torch.fx.symbolic_trace(lambda x: x.sin()))
    f(torch.ones(3))
    f(torch.ones(3))
    f(torch.ones(4))
    assert len(list(tmp_path.iterdir())) == 2


def test_kernels_of_the_folder_compile(tmp_path):
    compiler = shutil.which("clang++-19") or shutil.which("g++")
    if not compiler:
        pytest.skip("no C++ compiler")
    compile_and_run(lambda x: x.softmax(-1).tanh(), (torch.randn(4, 40),), trace=str(tmp_path))
    kernels = list((only_folder(tmp_path) / "kernels").glob("*.cpp"))
    assert kernels
    for k in kernels:
        subprocess.run([compiler, "-march=native", "-fsyntax-only", "-Wno-psabi", k], check=True)


def mixed(x, y, mask, n):
    """Many kinds of arguments: dtypes, infinities, optional ones, lists, views, mutation, several
    results."""
    y.add_(x.to(torch.float64).sum(0))
    parts = torch.split(x, [1, 2, 1])
    top, where = x.topk(2, -1)
    filled = x.masked_fill(mask, -float("inf"))
    bounded = torch.clamp(x, min=None, max=0.5).to(torch.bfloat16)
    added = x[:, n]
    return parts[1], top, where, filled, bounded, added, x[:, 1:], torch.full((2,), 3, device="cpu")


def test_runnable_of_many_kinds_of_arguments(tmp_path):
    inputs = (
        torch.randn(4, 5),
        torch.zeros(5, dtype=torch.float64),
        torch.rand(4, 5) < 0.5,
        torch.tensor([0, 3]),
    )
    compile_and_run(mixed, inputs, trace=str(tmp_path))
    check_folder(only_folder(tmp_path), results=8)


def test_runnable_of_symbolic_sizes(tmp_path):
    def f(x):
        n, m = x.shape
        return x[::2], torch.arange(n + 2), x.new_zeros(max(n, m) // 2), torch.ones(1 << n)

    options = {"trace": str(tmp_path)}
    oxyfuel.compile(f, dynamic=True, options=options)(torch.randn(3, 4))
    folder = only_folder(tmp_path)
    assert "s0" in (folder / "fx_graph_readable.py").read_text()
    assert "(5,)" in run_alone(folder / "fx_graph_runnable.py")


def test_without_kernels_there_is_a_folder_too(tmp_path):
    compile_and_run(torch.sin, (torch.ones(3),), trace=str(tmp_path), kernels=False)
    folder = only_folder(tmp_path)
    assert "aten.sin" in (folder / "output_code.txt").read_text()
    run_alone(folder / "fx_graph_runnable.py")


def test_a_folder_that_cannot_be_made_is_left_out(tmp_path):
    (tmp_path / "file").write_text("")
    x = torch.ones(3)
    assert torch.allclose(compile_and_run(torch.sin, (x,), trace=str(tmp_path / "file")), x.sin())


def test_bert(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=50,
    )
    model = transformers.BertModel(config).eval()
    compile_and_run(model, (torch.randint(0, 50, (2, 8)),), trace=str(tmp_path))
    for folder in tmp_path.iterdir():
        check_folder(folder, results=2)


def tool(name):
    found = sorted(ROOT.glob(f"build/*/{name}"), key=lambda p: p.stat().st_mtime)
    if not found:
        pytest.skip(f"{name} is not built")
    return found[-1]


def parse_back(program, file, *options):
    done = subprocess.run([program, *options], stdin=file.open(), capture_output=True, text=True)
    assert done.returncode == 0, f"{file.name}: {done.stderr}"
    return done.stdout


def without_comments(text):
    """A comment names the user's line and is no part of what parses back."""
    return re.sub(r"\s+# .*$", "", text, flags=re.MULTILINE).strip()


def test_graphs_parse_back(tmp_path):
    compile_and_run(attention, attention_inputs(), trace=str(tmp_path))
    folder = only_folder(tmp_path)
    for name in ("torch_graph.txt", "aten_graph.txt", "aten_graph_transformed.txt"):
        text = parse_back(tool("oxy-opt"), folder / name)
        assert without_comments(text) == without_comments((folder / name).read_text())


def test_the_transformed_graph_lowers_to_the_loops_that_were_shown(tmp_path):
    compile_and_run(
        lambda x: (x.softmax(-1).sin() + 1).sum(0), (torch.randn(8, 16),), trace=str(tmp_path)
    )
    folder = only_folder(tmp_path)
    loops = parse_back(tool("oxy-lower"), folder / "aten_graph_transformed.txt", "--to=loops")
    shown = (folder / "ir_pre_fusion.txt").read_text()
    assert without_comments(loops) == without_comments(shown)
    kernels = parse_back(tool("oxy-lower"), folder / "aten_graph_transformed.txt", "--to=schedule")
    assert kernels.startswith((folder / "schedule.txt").read_text().split("\n")[0])


def guards_and_stacks(text):
    """The lines of guards, each with the lines of the stack above it."""
    found, stack, in_stack = {}, "", False
    for line in text.splitlines()[1:]:
        is_guard = line.startswith(" " * 6)
        if is_guard:
            found[line.strip()] = stack
        else:
            stack = stack + line if in_stack else line
        in_stack = not is_guard
    return found


def test_guards_are_shown_with_who_asked(capfd):
    scale = torch.nn.Linear(3, 3)

    def f(x, options):
        y = scale(x)
        return y * 2 if options["double"] else y

    oxyfuel.set_logs("guards")
    oxyfuel.compile(f)(torch.ones(2, 3), {"double": True})
    asked = guards_and_stacks(artifact_texts(capfd.readouterr().err)["guards"])
    mine = f'File "{__file__}", line {f.__code__.co_firstlineno + 2}, in f'
    assert mine in asked["Equals    L['options']['double'] == True"]
    weight = next(g for g in asked if g.startswith("Tensor    ") and "weight" in g)
    assert weight.endswith("is a Parameter, float32[3, 3], strides [3, 1], requires grad")
    assert "in f" in asked[weight] and "in forward" in asked[weight]


RECOMPILATIONS = [  # what is different in the second call, and what is said of it
    (lambda x: x[:1], "L['x'] has the sizes [1, 3], had [2, 3]"),
    (lambda x: x.double(), "L['x'] is float64, was float32"),
    (lambda x: torch.ones(3, 2).t(), "L['x'] has the strides [1, 2], had [3, 1]"),
    (lambda x: torch.ones(3, 3)[1:], "L['x'] begins at element 3 of its storage, began at 0"),
    (lambda x: x.clone().requires_grad_(), "L['x'] requires grad, did not"),
    (torch.nn.Parameter, "L['x'] is a Parameter, was a Tensor"),
]


@pytest.mark.parametrize(("change", "said"), RECOMPILATIONS, ids=[r[1] for r in RECOMPILATIONS])
def test_a_recompilation_says_which_tensor_and_what_of_it(change, said, capfd):
    def f(x):
        return x + x.storage_offset()

    compiled, x = oxyfuel.compile(f), torch.ones(2, 3)
    oxyfuel.set_logs("recompiles")
    compiled(x)
    compiled(change(x))
    text = artifact_texts(capfd.readouterr().err)["recompiles"]
    assert said in text.splitlines()


def test_a_recompilation_says_who_asked_for_the_guard(capfd):
    def f(x, options):
        y = x + 1
        return y * options["scale"]

    compiled, x = oxyfuel.compile(f), torch.ones(2, 3)
    oxyfuel.set_logs("recompiles")
    compiled(x, {"scale": 2})
    compiled(x, {"scale": 3})
    lines = artifact_texts(capfd.readouterr().err)["recompiles"].splitlines()
    at = lines.index("L['options']['scale'] is 3, was 2")
    assert lines[at + 1] == f'  File "{__file__}", line {f.__code__.co_firstlineno + 2}, in f'


def test_a_recompilation_says_what_of_the_global_state(capfd):
    compiled, x = oxyfuel.compile(lambda x: x + 1), torch.ones(2, 3)
    oxyfuel.set_logs("recompiles")
    compiled(x)
    with torch.autocast("cpu", dtype=torch.float16):
        compiled(x)
    with torch.enable_grad():
        compiled(x)
    torch.use_deterministic_algorithms(True)
    try:
        compiled(x)
    finally:
        torch.use_deterministic_algorithms(False)
    first, second, third = capfd.readouterr().err.split("[oxyfuel recompiles]")[1:]
    assert (
        "autocast on the CPU is on, was off; autocast's dtype on the CPU is float16, was bfloat16"
        in first
    )
    assert second.splitlines()[1] == "grad mode is on, was off; autocast on the CPU is off, " + (
        "was on; autocast's dtype on the CPU is bfloat16, was float16"
    )
    assert "grad mode is on, was off" in second.splitlines()
    assert "use_deterministic_algorithms is on, was off" in third


def test_a_recompilation_speaks_of_every_capture(capfd):
    compiled = oxyfuel.compile(lambda x, y: x + y, dynamic=False)
    oxyfuel.set_logs("recompiles")
    a, b = torch.ones(2), torch.ones(3)
    compiled(a, a.clone())
    compiled(b, b.clone())
    compiled(a, a)
    last = capfd.readouterr().err.split("[oxyfuel recompiles]")[-1].splitlines()
    said = [line for line in last if line.startswith("L[")]
    assert said == ["L['x'] has the sizes [2], had [3]", "L['x'] and L['y'] share memory, did not"]
