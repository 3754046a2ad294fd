"""Plans with symbolic sizes against plans for one size each, both of ours: what it costs that one
compilation serves all sizes.

usage: shapes.py [CASE...] [--budget SECONDS] [--threads N]

A case is recorded once with one dimension symbolic (models: the length, images: the batch), then
compiled as it is, and for each size once more with that size as a constant. Both plans run on the
same tensors, in turn, in one process; times are minima in milliseconds. `resize` is the first call
at a size after calls at another one, less a call at the same size. With one thread, times are of
the processor, so that other processes on the machine do not count.
"""

import argparse
import math
import time

import torch

import cases
from oxyfuel import _C
from oxyfuel.options import make_settings

LENGTHS = (2, 5, 8, 16, 17, 32, 64, 100, 128, 250, 384, 512)

# name: (make(size), sizes, the hint, dimension of each dynamic argument)
MODELS = {
    "bert": (lambda n: (cases.tokens(1, n),), LENGTHS, 128, {0: 1}),
    "gpt2": (lambda n: (cases.tokens(1, n),), LENGTHS, 128, {0: 1}),
    "llama": (lambda n: (cases.tokens(1, n, 8000),), LENGTHS, 128, {0: 1}),
    "vit": (lambda n: (torch.randn(n, 3, 224, 224),), (2, 3, 4), 2, {0: 0}),
    "resnet50": (lambda n: (torch.randn(n, 3, 224, 224),), (2, 3, 4), 2, {0: 0}),
}

# The symbolic dimension of arguments of the other cases.
DYNAMIC = {
    "pointwise": {0: 0},
    "mlp": {0: 0},
    "softmax": {0: 1},
    "layernorm": {0: 0},
    "rmsnorm_bf16": {0: 0},
    "colsum": {0: 0},
    "transpose_add": {0: 1, 1: 0},
    "swiglu": {0: 0, 1: 0},
    "group_norm": {0: 0},
    "batch_norm_relu": {0: 0},
    "gelu_tanh": {0: 1},
    "rope": {0: 2, 1: 0, 2: 0},
    "masked_softmax": {0: 2, 1: 2},
    "embedding_norm": {0: 1},
    "cross_entropy": {0: 0, 1: 0},
    "argmax": {0: 1},
    "cumsum": {0: 1},
    "index_add": {1: 0, 2: 0},
    "upsample": {0: 0},
    "max_pool": {0: 0},
    "cat_slices": {0: 0, 1: 0},
    "dequantise": {0: 0, 1: 0, 2: 0},
    "where_chain": {0: 0, 1: 0},
    "outer_sum": {0: 0, 2: 0},
    "middle_sum": {0: 1},
    "permute_4d": {0: 0},
    "boolean_masks": {0: 0, 1: 0},
    "variance": {0: 1},
    "tiny": {0: 0},
    "adds1000": {0: 0},
    "deep_tiny": {0: 0},
    "residual_tiny": {0: 0},
}


def captured(fn, args, kwargs, dynamic):
    """(graph module, inputs, dynamic inputs) of a call as torch's capture hands them over."""
    calls = []

    def backend(gm, _):
        def call(*inputs):
            calls.append((gm, inputs))
            return gm(*inputs)

        return call

    torch._dynamo.reset()
    for i, a in enumerate(args):
        if i in dynamic:
            torch._dynamo.mark_dynamic(a, dynamic[i])
    with torch.no_grad():
        torch.compile(fn, backend=backend, fullgraph=True)(*args, **kwargs)
    gm, inputs = calls[0]
    found = {}
    for i, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder"):
        example = node.meta["example_value"]
        if isinstance(example, torch.SymInt):
            found[i] = []
        elif dims := [d for d, s in enumerate(example.shape) if isinstance(s, torch.SymInt)]:
            found[i] = dims
    return gm, inputs, found


clock = time.perf_counter


def compare(symbolic, fixed, args, other, budget):
    """Seconds of both plans on `args`, and of the symbolic one behind a call on `other`."""
    ours, theirs, first = [], [], []
    count = 1
    fixed.run(args), symbolic.run(args)
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(ours) < 3:
        for times, plan in ((ours, symbolic), (theirs, fixed)):
            start = clock()
            for _ in range(count):
                plan.run(args)
            times.append((clock() - start) / count)
        if len(ours) == 1:
            count = max(1, int(2e-4 / min(theirs)))
        if len(ours) % 4 == 0:
            symbolic.run(other)
            start = clock()
            symbolic.run(args)
            first.append(clock() - start)
            symbolic.run(args)
    return min(ours), min(theirs), min(first, default=math.nan)


def run_case(name, settings, budget):
    torch.manual_seed(0)
    fn, example, kwargs = cases.make(name)
    if name in MODELS:
        make, sizes, hint, dynamic = MODELS[name]
    else:
        dynamic = DYNAMIC[name]
        hint = example[next(iter(dynamic))].shape[dynamic[next(iter(dynamic))]]
        sizes = sorted({hint, max(2, hint // 2), max(2, hint // 2 + 1)})

        def make(n):
            def resized(i, a):
                if i not in dynamic:
                    return a
                d = dynamic[i]
                index = torch.arange(n) % a.shape[d]
                return a.index_select(d, index)

            return tuple(resized(i, a) for i, a in enumerate(example))

    gm, inputs, found = captured(fn, make(hint), kwargs, dynamic)
    ir = _C.TorchGraph.from_fx(gm)
    with torch.no_grad():
        recording = _C.record(ir, inputs, dynamic=found)
        start = time.perf_counter()
        symbolic = _C.make_plan(recording, ir, inputs, settings)
        seconds = time.perf_counter() - start
    ratios = []
    calls = {n: captured(fn, make(n), kwargs, dynamic)[1] for n in sizes}
    for n in [n for n in sizes if recording.match(calls[n]) is None]:
        print(f"{name:16} {n:8}  not by this recording: {recording.facts()}", flush=True)
        del calls[n]
    for n, args in calls.items():
        values = recording.match(args)
        other = next((a for m, a in calls.items() if m != n), args)
        with torch.no_grad():
            start = time.perf_counter()
            fixed = _C.make_plan(recording.specialize(values), ir, args, settings)
            fixed_seconds = time.perf_counter() - start
            a, b, c = compare(symbolic, fixed, args, other, budget)
        ratios.append(a / b)
        print(
            f"{name:16} {n:8} {a * 1e3:10.4f} {b * 1e3:10.4f} {a / b:7.3f}"
            f"   resize {max(0, c - a) * 1e6:8.1f} us"
            f"   compile {seconds:.2f} {fixed_seconds:.2f} s",
            flush=True,
        )
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.threads == 1:
        global clock
        clock = time.thread_time
    settings = make_settings({"strict": True})
    ratios = []
    print(f"{'case':16} {'size':>8} {'symbolic':>10} {'static':>10} {'ratio':>7}", flush=True)
    for name in options.cases or [*DYNAMIC, *MODELS]:
        ratios += run_case(name, settings, options.budget)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {mean:.3f}, worst {max(ratios):.3f}, of {len(ratios)}")


if __name__ == "__main__":
    main()
