"""Plans saved, loaded in a fresh process and run: the results of the plans that were saved."""

import pathlib
import random
import re
import subprocess

import numpy
import pytest
import torch
from run_text_tests import find_tool
from saved_plans import check, check_changed_files, copy_of, kept_plans, run

import oxyfuel
from oxyfuel import _C

pytestmark = pytest.mark.usefixtures("strict_without_grad")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x, image):
        hidden = torch.nn.functional.gelu(self.a(self.norm(x)))
        return x + self.b(hidden), self.conv(image).relu().mean((2, 3))


def mutated(x, y):
    x.add_(y)
    y[1:].mul_(2)
    return x.t(), y.view(-1), x, x.shape[0], torch.sort(y)[0], None


def drawn(x):
    return torch.nn.functional.dropout(x.sin(), 0.5, True), torch.rand_like(x), x.softmax(-1)


def extern(x):
    values, indices = torch.sort(x.cumsum(0).double(), dim=0, descending=True)
    return values.to(torch.complex64), indices, torch.cat([x, x[:0]]), x.new_full((3,), 1.5)


CASES = {
    "block": (lambda: Block().eval(), lambda: (torch.randn(7, 32), torch.randn(2, 3, 8, 8))),
    "mutated": (lambda: mutated, lambda: (torch.randn(4, 5), torch.randn(4, 5))),
    "drawn": (lambda: drawn, lambda: (torch.randn(6, 33),)),
    "extern": (lambda: extern, lambda: (torch.randn(5, 4),)),
    "half": (lambda: lambda x, w: (x @ w).relu(), lambda: torch.randn(2, 8, 8).bfloat16().unbind()),
}


def plans_of(name, **options):
    make, arguments = CASES[name]
    with kept_plans() as kept:
        oxyfuel.compile(make(), options=options)(*arguments())
    assert kept
    return kept


@pytest.mark.parametrize("options", [{}, {"kernels": False}, {"freezing": True}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_fresh_process_gives_the_same(name, options, tmp_path):
    check(plans_of(name, **options), tmp_path)


def test_a_loaded_plan_saves_as_the_same_bytes():
    for plan, inputs, settings in plans_of("block"):
        saved = plan.save()
        loaded = _C.load_plan(saved, plan.attributes(), inputs, settings)
        assert loaded.save() == saved and loaded.kernel_calls() == plan.kernel_calls()


def test_changed_files_are_errors(tmp_path):
    check_changed_files(plans_of("block") + plans_of("extern"), tmp_path, 300)


def test_other_inputs_are_refused():
    plan, inputs, settings = plans_of("drawn")[0]
    with pytest.raises(_C.UserError, match="other inputs"):
        plan.run((torch.randn(2, 2),))
    with pytest.raises(_C.InternalError, match="a plan for 1 inputs got 0"):
        _C.load_plan(plan.save(), plan.attributes(), (), settings)
    (example,) = inputs
    for other in (example[:1], example[0], example.double(), example.expand(2, *example.shape)):
        with pytest.raises(_C.UserError, match="other inputs"):
            _C.load_plan(plan.save(), plan.attributes(), (other,), settings)


DYNAMIC = """plan arena=0 {
  size %0 = size(0, 0)
  size %1 = mul(%0, 24)
  size %2 = mul(%0, 6)
  size %3 = floordiv(%0, 2)
  input f32[%0, 6] strides=[6, 1]
  buffer in0: input 0 f32[%0, 6] strides=[6, 1] bytes=%1
  buffer buf1: extern f32[%2] strides=[1] bytes=%1
  buffer buf2: extern f32[%3, 6] strides=[6, 1] bytes=%1
  buffer view3: view of buf1 f32[6, %0] strides=[1, 6] bytes=%1
  buffer buf4: extern f32[6, %0] strides=[%0, 1] bytes=%1
  extern_steps
  return buf1
  return buf2
  return %3
  return view of input 0: f32[6, %0] strides=[1, 6]
  return buf4
}
""".replace(
    "extern_steps",
    """buf1 = extern aten.reshape.default(in0, [%2]) origin=0
  buf2 = extern aten.slice.Tensor(in0, 0, 0, %3, 1) origin=1
  buf4 = extern aten.clone.default(view3, memory_format(contiguous)) origin=2""",
)


def test_one_plan_for_many_sizes():
    """Sizes, strides, views, arguments of extern calls and numbers come from the call."""
    plan = _C.load_plan_text(DYNAMIC, [], (torch.randn(4, 6),), _C.Settings.from_env())
    assert plan.text() == DYNAMIC
    for n in (4, 7, 1, 100, 4):
        x = torch.randn(n, 6)
        flat, half, number, view, copy = plan.run((x,))
        assert torch.equal(flat, x.reshape(-1)) and torch.equal(half, x[: n // 2])
        assert number == n // 2 and torch.equal(view, x.t()) and view._base is x
        assert torch.equal(copy, x.t()) and copy.is_contiguous()
    with pytest.raises(_C.UserError, match="other inputs"):
        plan.run((torch.randn(4, 5),))
    with pytest.raises(_C.UserError, match="other inputs"):
        plan.run((torch.randn(6, 4).t(),))


STATIC = """plan arena=64 {
  input f32[2, 4] strides=[4, 1]
  input f32[2, 4] strides=[4, 1] offset=3
  input b8[] strides=[]
  buffer in0: input 0 f32[2, 4] strides=[4, 1] bytes=32
  buffer in1: input 1 f32[2, 4] strides=[4, 1] offset=3 bytes=44
  buffer in2: input 2 b8[] strides=[] bytes=1
  buffer buf3: extern f32[2, 4] strides=[4, 1] bytes=32
  buffer view4: view of buf3 f32[4, 2] strides=[1, 4] bytes=32
  buffer buf5: extern f32[4, 2] strides=[2, 1] bytes=32
  buffer buf6: extern f32[2, 4] strides=[4, 1] bytes=32
  buffer view7: view of in1 f32[4] strides=[2] offset=4 bytes=44
  buffer buf8: extern f32[4] strides=[1] bytes=16
  region plan arena=0 {
    input f32[2, 4] strides=[4, 1]
    buffer in0: input 0 f32[2, 4] strides=[4, 1] bytes=32
    buffer buf1: extern f32[2, 4] strides=[4, 1] bytes=32
    buf1 = extern aten.neg.default(in0) origin=0
    return buf1
  }
  region plan arena=0 {
    input f32[2, 4] strides=[4, 1]
    buffer in0: input 0 f32[2, 4] strides=[4, 1] bytes=32
    buffer buf1: extern f32[2, 4] strides=[4, 1] bytes=32
    buf1 = extern aten.sin.default(in0) origin=0
    return buf1
  }
  buf3 = extern aten.add.Tensor(in0, in1, 2) origin=0
  buf5 = extern aten.clone.default(view4, memory_format(contiguous)) origin=1
  buf6 = cond [0, 1](in2, buf3)
  buf8 = extern aten.neg.default(view7) origin=2
  free buf8
  mutate input 0 <- buf6
  return buf5
  return buf6
  return view of input 1: f32[4] strides=[1] offset=3
  return view of output 0: f32[3] strides=[2] offset=1
  return 12
}
"""


def static_inputs():
    return torch.ones(2, 4), torch.arange(16.0)[3:11].view(2, 4), torch.tensor(True)


@pytest.mark.parametrize(
    ("text", "inputs"), [(DYNAMIC, lambda: (torch.randn(4, 6),)), (STATIC, static_inputs)]
)
def test_plans_whose_numbers_are_changed_run_or_are_errors(text, inputs):
    """Results are read to their last element: nothing lies beyond memory."""
    settings, generator, ran = _C.Settings.from_env(), random.Random(1), 0
    places = [match.span() for match in re.finditer(r"\d+", text)]
    values = [0, 1, 2, 3, 5, 8, 64, 1000, 2**62, 2**63 - 1, -1, -8]
    for _ in range(5000):
        changed = text
        for begin, end in sorted(generator.sample(places, generator.choice([1, 2])), reverse=True):
            changed = changed[:begin] + str(generator.choice(values)) + changed[end:]
        try:
            for result in _C.load_plan_text(changed, [], inputs(), settings).run(inputs()):
                str(result)
            ran += 1
        except (_C.UserError, _C.InternalError, _C.Unsupported, RuntimeError):
            pass
    assert ran > 200


# ---- oxy-run ----


def tool(*arguments):
    command = [find_tool("oxy-run"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_oxy_run(tmp_path):
    def f(x, y):
        x.mul_(2)
        return (x + y).relu(), x.t() * 3, x.shape[0]

    with kept_plans() as kept:
        oxyfuel.compile(f)(torch.randn(40, 30), torch.randn(40, 30))
    ((plan, inputs, _),) = kept
    (tmp_path / "plan").write_bytes(plan.save())
    for i, t in enumerate(inputs):
        numpy.save(tmp_path / f"in{i}.npy", t.numpy())
    out = tmp_path / "out"
    done = tool(tmp_path / "plan", tmp_path / "in0.npy", tmp_path / "in1.npy", f"--out={out}")
    assert done.returncode == 0, done.stderr
    outputs, after = run(plan, copy_of(inputs))
    for i, expected in enumerate(outputs):
        if isinstance(expected, torch.Tensor):
            assert numpy.array_equal(numpy.load(f"{out}{i}.npy"), expected.numpy())
        else:
            assert f"result {i}: {expected}\n" in done.stdout
    assert numpy.array_equal(numpy.load(f"{out}_input0.npy"), after[0].numpy())
    done = tool("--print", tmp_path / "plan")
    assert done.stdout == plan.text()


def test_oxy_run_says_what_it_cannot(tmp_path):
    with kept_plans() as kept:
        oxyfuel.compile(lambda x: torch.topk(x, 2)[0] + 1)(torch.randn(4))
        oxyfuel.compile(lambda x: x.sin())(torch.randn(4))
    numpy.save(tmp_path / "x.npy", torch.randn(4).numpy())
    numpy.save(tmp_path / "y.npy", torch.randn(5).numpy())
    for name, (plan, _, _) in zip(("topk", "sin"), kept):
        (tmp_path / name).write_bytes(plan.save())
    done = tool(tmp_path / "topk", tmp_path / "x.npy")
    assert done.returncode == 1 and "which needs torch" in done.stderr
    done = tool(tmp_path / "sin", tmp_path / "x.npy")
    assert done.returncode == 1 and "--math" in done.stderr
    maths = f"--math={next((pathlib.Path(torch.__file__).parent / 'lib').glob('libtorch_cpu.so'))}"
    done = tool(tmp_path / "sin", tmp_path / "x.npy", maths, f"--out={tmp_path}/out")
    assert done.returncode == 0, done.stderr
    x = torch.from_numpy(numpy.load(tmp_path / "x.npy"))
    torch.testing.assert_close(torch.from_numpy(numpy.load(tmp_path / "out0.npy")), x.sin())
    done = tool(tmp_path / "sin", tmp_path / "y.npy", maths)
    assert done.returncode == 1 and "other sizes" in done.stderr
    (tmp_path / "text").write_text("plan arena=0 {\n  return 5\n}\n")
    assert tool(tmp_path / "text").stdout == "plan arena=0 {\n  return 5\n}\n"
    (tmp_path / "text").write_text("plan arena=0 {\n  launch a()\n}\n")
    done = tool(tmp_path / "text")
    assert done.returncode == 1 and "no such kernel" in done.stderr


def test_a_commit_that_fails_half_done_says_so():
    text = """plan arena=0 {
  input f32[2] strides=[1]
  input f32[2] strides=[1]
  buffer in0: input 0 f32[2] strides=[1] bytes=8
  buffer in1: input 1 f32[2] strides=[1] bytes=8
  buffer buf2: extern f32[2] strides=[1] bytes=8
  buffer buf3: extern f32[2] strides=[1] bytes=8
  buf2 = extern aten.neg.default(in0) origin=0
  buf3 = extern aten.neg.default(in1) origin=1
  mutate input 0 <- buf2
  mutate input 1 <- buf3 as f32[2] strides=[1000000000000]
}
"""
    plan = _C.load_plan_text(text, [], (torch.ones(2), torch.ones(2)), _C.Settings.from_env())
    x, y = torch.ones(2), torch.ones(2)[:]
    with pytest.raises(_C.InternalError, match="inputs have been written before it"):
        plan.run((x, y))
    assert x.tolist() == [-1, -1]
