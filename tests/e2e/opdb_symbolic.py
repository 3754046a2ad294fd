"""Torch's operator database with symbolic sizes: one recording of each call with every dimension of
its tensors a symbol, run at other sizes against eager.

usage: python tests/e2e/opdb_symbolic.py [--limit N] [--layout NAME] [--jobs N] [--facts]
[--quiet] [--write FILE] [NAME ...]

Of each entry the samples of equal ranks, dtypes and other arguments are one form. Its first sample
of tensors larger than 1 is recorded. Where the facts of the recording allow the sizes of another
sample, or of the same one grown, the recording for these sizes must give what eager gives: a size
that was taken for a constant without a fact shows as a wrong result.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from opdb import GRADIENTS, SYMBOLIC, outcomes
from opdb_cases import ENTRIES, LAYOUTS, FxCase, Sample, copy_all, dtypes_of, full_name, samples_of
from opdb_check import Outcome, Setup, difference
from opdb_known import UNDEFINED_VALUES, Closeness, by_name, closeness_of
from torch.testing._internal.opinfo.core import OpInfo

from oxyfuel import _C
from oxyfuel.compiler import _attribute_slots
from oxyfuel.options import make_settings

Sizes = dict[int, int]
# How the sizes of a sample grow: each size of the sample to another one, 0 and 1 stay.
GROWTHS: dict[str, Callable[[int], int]] = {
    "one more": lambda n: n + 1,
    "twice": lambda n: 2 * n,
    "twice and one": lambda n: 2 * n + 1,
    "all equal": lambda n: 12,
}
# Entries whose data are places among other data: sizes grown alone make calls that eager answers
# with memory that was never written.
NOT_GROWN = {"nn.functional.embedding_bag", "_segment_reduce.lengths"}
# LAPACK's last bits depend on where its input lies in memory.
NEAR = {"norm.nuc", "linalg.matrix_norm", "linalg.norm", "norm"}
# Entries of which a size becomes a number in the first form, or that are not recorded, by the
# reason.
NOT_SYMBOLIC = by_name(
    {
        "the sample has the size as a number among its other arguments": """
            broadcast_to expand expand_copy native_layer_norm nn.functional.layer_norm
            nn.functional.rms_norm unflatten split.list_args split_with_sizes
            split_with_sizes_copy fft.hfft fft.irfft nn.functional.multi_head_attention_forward
            nn.functional.adaptive_max_pool3d nn.functional.max_unpool2d
            nn.functional.max_unpool2d.grad nn.functional.max_unpool3d
            nn.functional.max_unpool3d.grad nn.functional.ctc_loss""",
        "the size says how many results or steps there are": """
            chunk unsafe_chunk unbind unbind_copy _chunk_cat block_diag""",
        "the operator wants this size": """
            cross linalg.cross nn.functional.grid_sample grid_sampler_2d grid_sampler_3d
            view_as_complex""",
        "a float is made of the size": """
            nn.functional.scaled_dot_product_attention linalg.matrix_rank
            linalg.matrix_rank.hermitian""",
        "torch's kernel for the composite operator reads the size": """
            gradient kron linalg.multi_dot stft take_along_dim""",
        "the shape of the result, or a number that the operator reads, depends on data": """
            argwhere corrcoef cov masked_select
            nn.functional.gaussian_nll_loss tensor_split""",
        "torch has no shape rule for the operator": "geqrf histogramdd to_sparse",
        "the storage of an input changes in place": "resize_ resize_as_",
    }
)
PIN = re.compile(r"s\d+ == \d+|\d+ == s\d+")
OF_DATA = re.compile(r"\bu0\b")  # the first such symbol


class Recorded(NamedTuple):
    """A recording, and what it takes to run it."""

    module: torch.fx.GraphModule
    ir: Any
    recording: Any

    def run(self, args: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor]] | None:
        """The result at these sizes and the inputs after it; None where the facts refuse them."""
        values = self.recording.match(args)
        if values is None:
            return None
        special = self.recording.specialize(values)
        special.verify()
        settings = make_settings({"strict": True, "kernels": False, "verify": True})
        inputs = copy_all(args)
        plan = _C.make_plan(special, self.ir, tuple(inputs), settings)

        def failed(kind: str, text: str) -> None:
            raise AssertionError(f"{kind}: {text}")

        graph = _C.CompiledGraph(
            self.module, lambda *_: plan, failed, _attribute_slots(self.module)
        )
        torch.manual_seed(1)
        return graph(*inputs), inputs


def record(case: FxCase) -> Recorded:
    """Records a call, every dimension of its inputs symbolic.

    RuntimeError where a size depends on data: other inputs do not tell it.
    """
    args = copy_all(case.tensors)
    ir = _C.TorchGraph.from_fx(case.module)
    dynamic = {i: list(range(t.dim())) for i, t in enumerate(args)}
    torch.manual_seed(1)
    recording = _C.record(ir, args, dynamic=dynamic)
    recording.verify()
    if OF_DATA.search(recording.text(stacks=False)):
        raise RuntimeError("a size depends on data")
    return Recorded(case.module, ir, recording)


def form_of(sample: Sample) -> str:
    """What samples of one recording share."""

    def describe(x: Any) -> str:
        if not isinstance(x, torch.Tensor):
            return repr(x)
        small = [n if n < 2 else "n" for n in x.shape]
        return f"{x.dtype} {small} {x.layout}"

    leaves, spec = pytree.tree_flatten((sample.args, sample.kwargs))
    return f"{sample.function} {spec} {[describe(x) for x in leaves]}"


def tensors_of(sample: Sample) -> list[torch.Tensor]:
    """The tensors among the arguments."""
    leaves = pytree.tree_leaves((sample.args, sample.kwargs))
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def grown(t: torch.Tensor, grow: Callable[[int], int]) -> torch.Tensor:
    """A tensor of other sizes with the values of `t`, dense, in its order of dimensions."""
    sizes = [grow(n) if n > 1 else n for n in t.shape]
    count = 1
    for n in sizes:
        count *= n
    flat = t.reshape(-1)
    values = flat[(torch.arange(count) * 7) % max(1, flat.numel())] if count else flat[:0]
    order = sorted(range(t.dim()), key=lambda d: (-t.stride(d), d))
    laid_out = values.reshape([sizes[d] for d in order])
    return laid_out.permute([order.index(d) for d in range(t.dim())])


def grown_sample(sample: Sample, how: str) -> Sample | None:
    """The sample with larger tensors; None where eager refuses them."""
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda t: grown(t, GROWTHS[how]), (sample.args, sample.kwargs)
    )
    larger = Sample(sample.function, args, kwargs, f"{sample.label}, {how}")
    try:
        copied_args, copied_kwargs = copy_all((args, kwargs))
        sample.function(*copied_args, **copied_kwargs)
    except Exception:
        return None
    return larger


def check_sizes(recorded: Recorded, sample: Sample, close: Closeness | None) -> Outcome:
    """What the recording gives for another sample."""
    case = FxCase(sample, {})
    expected = case.run(case.eager)
    if isinstance(expected[0], Exception):
        return Outcome("eager refuses")
    try:
        found = recorded.run(case.tensors)
    except Exception as e:
        return Outcome("failed", f"{type(e).__name__}: {e}")
    if found is None:
        return Outcome("other facts")
    wrong = difference(expected, found, close)
    return Outcome("failed", wrong) if wrong else Outcome("served")


def check_form(op: OpInfo, samples: list[Sample]) -> Iterator[Outcome]:
    """Records one form of an entry and runs it at all sizes there are."""
    name = full_name(op)
    close = None if op.name in UNDEFINED_VALUES else closeness_of(name, name in NEAR)
    first = max(samples, key=lambda s: sum(n > 1 for t in tensors_of(s) for n in t.shape))
    label = f"{name} {first.label}"
    if not any(n > 1 for t in tensors_of(first) for n in t.shape):
        yield Outcome("no sizes", label)
        return
    case = FxCase(first, {})
    expected, _ = case.run(case.eager)
    if isinstance(expected, Exception):
        yield Outcome("eager refuses", f"{label}: {expected}")
        return
    try:
        recorded = record(case)
    except (_C.Unsupported, RuntimeError) as e:
        yield Outcome("not recorded", f"{label}: {e}")
        return
    facts = recorded.recording.facts()
    by = zip(facts, recorded.recording.fact_ops())
    origins = "; ".join(f"{fact} by {op}" if op else fact for fact, op in by)
    pins = [f for f in facts if PIN.fullmatch(f)]
    status = "pinned" if pins else "with facts" if facts else "free"
    yield Outcome(status, f"{label}: {origins}")
    others = [s for s in samples if s is not first]
    growths = () if name in NOT_GROWN else GROWTHS
    variants = [v for how in growths if (v := grown_sample(first, how))]
    for sample in [first, *others, *variants]:
        status, text = check_sizes(recorded, sample, close)
        yield Outcome(status, f"{label} at {sample.label}: {text} [{origins}]")


def check_entry(op: OpInfo, setup: Setup) -> Iterator[Outcome]:
    """What comes of an entry's forms."""
    forms: dict[str, list[Sample]] = collections.defaultdict(list)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for sample in samples_of(op, setup.dtype, setup.layout, None):
            if all(t.layout == torch.strided for t in tensors_of(sample)):
                forms[form_of(sample)].append(sample)
        for samples in list(forms.values())[: setup.limit]:
            yield from check_form(op, samples)


FORMS = ("free", "with facts", "pinned", "not recorded", "eager refuses", "no sizes")
RUNS = ("served", "other facts", "failed")


def table(rows: dict[str, collections.Counter[str]]) -> str:
    """Entries by the worst of their forms, forms, and runs at other sizes."""
    entries: collections.Counter[str] = collections.Counter()
    total: collections.Counter[str] = collections.Counter()
    for counts in rows.values():
        total += counts
        order = ("failed", "not recorded", "pinned", "with facts", "free")
        entries[next((s for s in order if counts[s]), "no sizes")] += 1
    columns = (*FORMS, "failed")
    return "\n".join(
        [
            "| | " + " | ".join(columns) + " |",
            "| entries, by the worst | " + " | ".join(str(entries[s]) for s in columns) + " |",
            "| forms | " + " | ".join(str(total[s]) for s in FORMS) + " |",
            "| runs: " + ", ".join(f"{s} {total[s]}" for s in RUNS) + " |",
        ]
    )


TEXT = """
Written by `python tests/e2e/opdb_symbolic.py --write docs/opdb.md`: float32, every form of every
entry (the samples of equal ranks, dtypes and other arguments) recorded once with each size a
symbol, then run at the sizes of the other samples and at four grown ones against eager, to the bit.
Free: without facts but ranges. Pinned: a size became a number. Served: runs of other sizes by the
same recording; refused: what its facts exclude.

| layout | free | with facts | pinned | not recorded | served | refused | failed |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def check_all(names: list[str], setup: Setup, jobs: int) -> Iterator[Outcome]:
    """What comes of these entries, or of all."""
    chosen = [
        (i, setup)
        for i, op in enumerate(ENTRIES)
        if "float32" in dtypes_of(op) and (not names or full_name(op) in names or op.name in names)
    ]
    for _, found in outcomes(chosen, max(1, min(jobs, len(chosen))), check_entry):
        yield from found


def write_page(page: Path, jobs: int) -> None:
    """All layouts, every form: a row each, behind the heading at the end of the page."""
    rows = []
    for layout in LAYOUTS:
        setup = Setup(layout=layout, kernels=False, way="fx", limit=None)
        total = collections.Counter(status for status, _ in check_all([], setup, jobs))
        columns = ("free", "with facts", "pinned", "not recorded", *RUNS)
        rows.append(f"| {layout} | " + " | ".join(str(total[c]) for c in columns) + " |")
        print(rows[-1], flush=True)
    above, _, below = page.read_text().partition(SYMBOLIC)
    behind = "".join(below.partition(GRADIENTS)[1:])
    page.write_text(above + SYMBOLIC + "\n" + TEXT + "\n".join(rows) + "\n" + behind)


def main() -> int:
    """Checks the entries that the command line names, or all; prints failures and counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries; without one: all")
    parser.add_argument("--limit", type=lambda n: int(n) or None, default=3, help="forms; 0: all")
    parser.add_argument("--layout", choices=LAYOUTS, default="as given")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--facts", action="store_true", help="print each form's facts")
    parser.add_argument("--quiet", action="store_true", help="failures are counted, not printed")
    parser.add_argument("--write", metavar="FILE", type=Path, help="the table, of all, into it")
    a = parser.parse_args()
    if a.write:
        write_page(a.write, a.jobs)
        return 0
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    setup = Setup(layout=a.layout, kernels=False, way="fx", limit=a.limit)
    for status, text in check_all(a.names, setup, a.jobs):
        rows[text.split(" ")[0].rstrip(":")][status] += 1
        if (status == "failed" and not a.quiet) or (a.facts and status in FORMS):
            print(f"{status}: " + " ".join(text.split())[:500], flush=True)
    print(table(rows))
    return 1 if any(c["failed"] for c in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
