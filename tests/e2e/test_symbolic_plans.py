"""One plan for all sizes: a recording with symbolic sizes is compiled once, and computes what eager
does at every size that its facts allow."""

from __future__ import annotations

import functools
import resource
import threading
import time

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from test_symbolic_recording import (
    BY_BATCH_AND_TIME,
    SIMPLE,
    Causal,
    WithMask,
    WithSdpa,
    WrittenOut,
    captured,
    copies,
    grid,
    record,
    rows,
    tiny_config,
)
from torch import nn

from oxyfuel import _C
from oxyfuel.compiler import _attribute_slots
from oxyfuel.options import make_settings

SIZES = (3, 6), (5, 11), (2, 2), (9, 70), (2, 33)


class Compiled:
    """A function compiled for inputs like `args`, with symbols for their dynamic dimensions."""

    def __init__(self, fn, args, dynamic, **settings):
        self.gm = fn if isinstance(fn, torch.fx.GraphModule) else torch.fx.symbolic_trace(fn)
        self.ir, self.recording = record(self.gm, copies(args), dynamic)
        options = make_settings({"strict": True, "verify": True, **settings})
        with torch.no_grad():
            self.plan = _C.make_plan(self.recording, self.ir, tuple(args), options)
        self.made = 0

        def give(*_):
            self.made += 1
            assert self.made == 1, "the plan is not for these inputs"
            return self.plan

        def failed(kind, text):
            raise AssertionError(f"{kind}: {text}")

        self.run = _C.CompiledGraph(self.gm, give, failed, _attribute_slots(self.gm))

    def check(self, args, rtol=1e-5, atol=1e-5):
        """Whether its facts allow these inputs; then it does what eager does with them."""
        if self.recording.match(args) is None:
            return False
        expected_args, actual_args = copies(args), copies(args)
        with torch.no_grad():
            expected = self.gm(*expected_args)
            actual = self.run(*actual_args)
        equal = functools.partial(torch.testing.assert_close, rtol=rtol, atol=atol)
        equal(actual, expected, check_stride=True, equal_nan=True)
        for a, b in zip(actual_args, expected_args, strict=True):
            equal(a, b, check_stride=True) if isinstance(a, torch.Tensor) else None
        return True


def check(fn, make, sizes, dynamic, least=None, **settings):
    """Compiles for make(*sizes[0]) and runs at all of the sizes, there and back again."""
    torch.manual_seed(0)
    compiled = Compiled(fn, make(*sizes[0]), dynamic, **settings)
    ran = [compiled.check(make(*s)) for s in sizes]
    assert sum(ran) >= (len(sizes) if least is None else least), compiled.recording.facts()
    assert all(compiled.check(make(*s)) == r for s, r in zip(sizes[::-1], ran[::-1], strict=True))
    return compiled


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_functions(name):
    check(SIMPLE[name], grid, SIZES, BY_BATCH_AND_TIME, least=4)


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_functions_as_calls(name):
    check(SIMPLE[name], grid, SIZES, BY_BATCH_AND_TIME, least=4, kernels=False)


# ---- models ----


@pytest.mark.parametrize("kind", [WrittenOut, WithSdpa, Causal, WithMask])
def test_attention(kind):
    torch.manual_seed(0)
    model = torch.fx.symbolic_trace(kind().eval())
    for sizes in (SIZES, ((4, 64), *SIZES)):
        check(model, lambda b, t: grid(b, t, 16), sizes, BY_BATCH_AND_TIME)


def test_mlp_with_norm():
    model = nn.Sequential(nn.Linear(8, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 4)).eval()
    gm = torch.fx.symbolic_trace(model)
    for hint in (3, 40):
        check(gm, rows, [(n,) for n in (hint, 2, 7, 16, 17, 300)], {0: [0]})


def test_convolution_with_symbolic_batch():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 8, 3),
    ).eval()
    gm = torch.fx.symbolic_trace(model)
    check(gm, lambda b: [torch.randn(b, 3, 8, 8)], [(3,), (5,), (2,), (17,)], {0: [0]})


def test_convolution_with_symbolic_image():
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3)).eval()
    gm = torch.fx.symbolic_trace(model)
    sizes = [(2, 10, 12), (3, 16, 9), (2, 33, 20), (4, 5, 5)]
    check(gm, lambda b, h, w: [torch.randn(b, 16, h, w)], sizes, {0: [0, 2, 3]}, least=1)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_bert(attention):
    transformers, sizes = tiny_config()
    torch.manual_seed(0)
    model = transformers.BertModel(
        transformers.BertConfig(**sizes, attn_implementation=attention)
    ).eval()

    def inputs(b, t):
        mask = torch.ones(b, t, dtype=torch.int64)
        mask[0, t // 2 :] = 0
        return torch.randint(0, 100, (b, t)), mask

    def fn(ids, mask):
        return model(ids, attention_mask=mask)[0]

    def make(b, t):
        return list(captured(fn, *inputs(b, t))[1])

    gm, args, dynamic = captured(fn, *inputs(3, 7))
    compiled = Compiled(gm, list(args), dynamic)
    for b, t in ((3, 7), (5, 12), (2, 2), (2, 40), (3, 7)):
        assert compiled.check(make(b, t))


# ---- gemms ----


@pytest.mark.parametrize("hint", [3, 100])
def test_gemms_of_few_and_many_rows(hint):
    weights, bias = torch.randn(48, 70), torch.randn(70)
    sizes = [(n,) for n in (hint, 2, 8, 9, 16, 17, 64, 257)]

    def make(n):
        return [torch.randn(n, 48), weights, bias]

    for fn in (
        lambda x, w, b: x @ w,
        lambda x, w, b: torch.addmm(b, x, w),
        lambda x, w, b: F.linear(x, w.t().contiguous(), b),
        lambda x, w, b: F.gelu(torch.addmm(b, x, w)),
        lambda x, w, b: F.relu(F.linear(x, w.t().contiguous(), b)) * 2,
        lambda x, w, b: torch.addmm(b, x, w) + x.sum(1, keepdim=True),
    ):
        check(fn, make, sizes, {0: [0]})


@pytest.mark.parametrize("hint", [3, 100])
def test_gemms_of_all_sizes_symbolic(hint):
    sizes = [(2, hint, hint + 1, hint + 2), (3, 2, 5, 7), (2, 40, 17, 64), (4, 9, 130, 33)]

    def make(b, m, k, n):
        return [torch.randn(b, m, k), torch.randn(b, k, n)]

    dynamic = {0: [0, 1, 2], 1: [0, 1, 2]}
    check(lambda x, y: x @ y, make, sizes, dynamic)
    check(lambda x, y: (x @ y).relu() + 1, make, sizes, dynamic)
    check(lambda x, y: (x @ y).softmax(-1), make, sizes, dynamic)
    check(lambda x, y: x @ y.transpose(1, 2).contiguous().transpose(1, 2), make, sizes, dynamic)


def test_a_row_times_a_matrix():
    def make(t):
        return [torch.randn(2, 1, 16), torch.randn(2, t, 16)]

    sizes = [(5,), (2,), (64,), (500,)]
    check(lambda q, k: (q @ k.transpose(1, 2)).softmax(-1) @ k, make, sizes, {1: [1]})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype):
    weights = torch.randn(48, 32).to(dtype)
    sizes = [(20,), (2,), (7,), (65,)]
    torch.manual_seed(0)
    compiled = Compiled(
        lambda x, w: (x @ w).relu(), [torch.randn(20, 48).to(dtype), weights], {0: [0]}
    )
    for (n,) in sizes:
        assert compiled.check([torch.randn(n, 48).to(dtype), weights], rtol=2e-2, atol=2e-2)


# ---- what a call sees ----


def test_mutated_inputs():
    def fn(x):
        x.mul_(2)
        x[:, 0].fill_(x.shape[0])
        return x.sum(1)

    check(fn, grid, SIZES, BY_BATCH_AND_TIME)
    check(lambda x: x.add_(1), grid, SIZES, BY_BATCH_AND_TIME)
    check(
        lambda x, y: x.copy_(y) * 2,
        lambda b, t: grid(b, t) + grid(b, t),
        SIZES,
        {0: [0, 1], 1: [0, 1]},
    )


def test_views_of_inputs():
    check(lambda x: x[:, 1:], grid, SIZES, BY_BATCH_AND_TIME)
    check(lambda x: (x.transpose(0, 1), x + 1), grid, SIZES, BY_BATCH_AND_TIME)
    check(lambda x: (y := x * 2, y[:, : x.shape[1] // 2]), grid, SIZES, BY_BATCH_AND_TIME)


def test_ops_without_kernels():
    check(lambda x: x.sort(1).values + 1, grid, SIZES, BY_BATCH_AND_TIME)
    check(lambda x: torch.cdist(x, x) * x.shape[1], grid, SIZES, BY_BATCH_AND_TIME, least=1)


def test_spreads():
    for fn in (
        lambda x: x.var(1),
        lambda x: x.std((0, 1), correction=0),
        lambda x: torch.var_mean(x, (1,), keepdim=True)[0],
        lambda x: x.var(1, correction=2),
    ):
        compiled = check(fn, grid, SIZES, BY_BATCH_AND_TIME)
        assert compiled.plan.extern_count() == 0


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolation_of_a_varying_batch(mode):
    fn = torch.fx.symbolic_trace(lambda x: F.interpolate(x, size=(20, 18), mode=mode) + 1)
    compiled = check(
        fn, lambda b: [torch.randn(b, 3, 10, 9)], [(4,), (2,), (7,)], {0: [0]}, least=1
    )
    assert compiled.plan.extern_count() == 0


def test_random_numbers():
    fn = torch.fx.symbolic_trace(lambda x: F.dropout(x, 0.5) + torch.rand_like(x))
    compiled = Compiled(fn, grid(3, 6), BY_BATCH_AND_TIME)
    for b, t in SIZES:
        x = torch.randn(b, t, 8)
        if compiled.recording.match([x]) is None:
            continue
        torch.manual_seed(1)
        expected = fn(x)
        torch.manual_seed(1)
        torch.testing.assert_close(compiled.run(x), expected)


def test_as_strided():
    def make(n):
        return [torch.randn(n, 8)]

    sizes = [(6,), (3,), (40,)]
    check(
        lambda x: x.as_strided((x.shape[0] - 1, 4), (8, 1), 2) * 2, make, sizes, {0: [0]}, least=1
    )
    check(lambda x: (x * 2).as_strided((x.shape[0], 2), (8, 3)), make, sizes, {0: [0]}, least=1)


def test_numbers_in_kernels():
    check(lambda x, n: x * n + n, lambda b, n: [torch.randn(b, 4), n], SIZES, {0: [0], 1: []})


def test_other_inputs_are_refused():
    compiled = Compiled(lambda x: x + 1, grid(3, 6), BY_BATCH_AND_TIME)
    with pytest.raises(_C.UserError):
        compiled.plan.run((torch.randn(3, 6, 9),))
    with pytest.raises(_C.UserError):
        compiled.plan.run((torch.randn(6, 3, 8).transpose(0, 1),))
    with pytest.raises(_C.UserError):
        compiled.plan.run((torch.randn(3, 6, 8, dtype=torch.float64),))


def test_a_region_gets_its_sizes():
    text = """plan arena=0 {
  size %0 = size(1, 0)
  size %1 = mul(%0, 4)
  input b8[] strides=[]
  input f32[%0] strides=[1]
  buffer in0: input 0 b8[] strides=[] bytes=1
  buffer in1: input 1 f32[%0] strides=[1] bytes=%1
  buffer buf2: extern f32[%0] strides=[1] bytes=%1
  region plan arena=0 {
    size %0 = size(0, 0)
    size %1 = mul(%0, 4)
    input f32[%0] strides=[1]
    input number %0
    buffer in0: input 0 f32[%0] strides=[1] bytes=%1
    buffer buf1: extern f32[%0] strides=[1] bytes=%1
    buf1 = extern aten.mul.Scalar(in0, %0) origin=1
    return buf1
  }
  region plan arena=0 {
    size %0 = number(1, 0)
    size %1 = size(0, 0)
    size %2 = mul(%0, 4)
    input f32[%0] strides=[1]
    input number %0
    buffer in0: input 0 f32[%0] strides=[1] bytes=%2
    buffer buf1: extern f32[%0] strides=[1] bytes=%2
    buf1 = extern aten.full.default([%0], 1.5, f32) origin=1
    return buf1
  }
  buf2 = cond [0, 1](in0, in1) numbers=[%0]
  return buf2
}
"""
    assert _C.parse_plan(text) == _C.parse_plan(_C.parse_plan(text))
    yes, no = torch.tensor(True), torch.tensor(False)
    plan = _C.load_plan_text(text, [], (yes, torch.randn(3)), make_settings({"strict": True}))
    for n in (3, 8, 2):
        x = torch.randn(n)
        torch.testing.assert_close(plan.run((yes, x))[0], x * n)
        torch.testing.assert_close(plan.run((no, x))[0], torch.full((n,), 1.5))


def test_many_shapes_in_a_row():
    """Memory stays bounded, and the last calls are no slower than the first."""
    compiled = Compiled(
        lambda x: ((x * 2).softmax(1) @ x.transpose(1, 2)).relu(), grid(3, 6), BY_BATCH_AND_TIME
    )
    torch.manual_seed(0)

    def seconds(first, count):
        start = time.thread_time()
        for i in range(first, first + count):
            compiled.run(torch.randn(2 + i % 97, 2 + i // 97 % 101, 8))
        return time.thread_time() - start

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the time of this one counts, whatever else the machine does
    try:
        seconds(97 * 100, 97)  # the largest ones
        begin, before = seconds(0, 1000), peak()
        seconds(1000, 8000)
        again = min(seconds(0, 1000) for _ in range(3))
    finally:
        torch.set_num_threads(threads)
    assert again < 2 * begin
    assert peak() - before < 64 << 10  # KiB


def test_two_threads_at_two_sizes():
    compiled = Compiled(lambda x: (x * 2).softmax(1).sum(2) + 1, grid(3, 6), BY_BATCH_AND_TIME)
    failures = []

    def work(seed):
        x = torch.randn(2 + seed, 5 + seed, 8)
        expected = (x * 2).softmax(1).sum(2) + 1
        for _ in range(300):
            if not torch.allclose(compiled.run(x), expected, atol=1e-5):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
