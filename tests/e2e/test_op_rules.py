"""The op table against torch: each row's schema, and what its rules give for the calls of
op_cases.py.

Shapes are compared with eager's real results (sizes, strides, offset, dtype); values come from the
rules by the scalar evaluator of `oxy-ops --check`.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import torch._prims
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from op_cases import all_cases
from run_text_tests import find_tool

import ops_page
import oxyfuel
from ops_page import DTYPES

ROOT = Path(__file__).resolve().parents[2]


def run_tool(*options: str, text: str = "") -> str:
    done = subprocess.run(
        [find_tool("oxy-ops"), *options], input=text, capture_output=True, text=True, check=True
    )
    return done.stdout


def op_of(name: str):
    namespace, op, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), op), overload)


def test_schemas():
    rows = [line.split("\t") for line in run_tool().splitlines()]
    assert len(rows) > 300
    oxyfuel.compile(torch.sin)(torch.ones(2))  # the first recording registers our own ops
    for name, schema, _traits, _rules in rows:
        text = str(op_of(name)._schema)
        assert schema == text[text.index("(") :], name


def test_page():
    """docs/ops.md is what tools/ops_page.py writes."""
    assert ops_page.page(find_tool("oxy-ops")) == ops_page.PAGE.read_text(), (
        "run python tools/ops_page.py"
    )


# ---- the text of a call ----


def type_text(t: torch.Tensor | None) -> str:
    if t is None:  # a result that was not asked for
        return "None"
    offset = f" offset={t.storage_offset()}" if t.storage_offset() else ""
    return f"{DTYPES[t.dtype]}{list(t.shape)} strides={list(t.stride())}{offset}"


def data_text(t: torch.Tensor) -> str:
    return "data " + " ".join(
        repr(v + 0 if isinstance(v, bool) else v) for v in t.reshape(-1).tolist()
    )


@dataclass
class Writer:
    inputs: list[torch.Tensor] = field(default_factory=list)

    def arg(self, a) -> str:
        if isinstance(a, torch.Tensor):
            self.inputs.append(a)
            return f"%a{len(self.inputs) - 1}"
        if isinstance(a, (list, tuple)):
            return "[" + ", ".join(self.arg(x) for x in a) + "]"
        if isinstance(a, torch.dtype):
            return DTYPES[a]
        if isinstance(a, torch.memory_format):
            return {
                torch.contiguous_format: "memory_format(contiguous)",
                torch.preserve_format: "memory_format(preserve)",
            }[a]
        return f'"{a}"' if isinstance(a, str) else repr(a)


def call(name: str, args: list):
    op = op_of(name)
    schema = op._schema.arguments
    positional = [a for a, s in zip(args, schema) if not s.kwarg_only]
    keywords = {s.name: a for a, s in zip(args, schema) if s.kwarg_only}
    with torch.no_grad():
        return op(*positional, **keywords)


def case_text(
    name: str, args: list, outputs: list[torch.Tensor], is_list: bool, shapes_only: bool = False
) -> str:
    writer = Writer()
    call_args = ", ".join(writer.arg(a) for a in args)
    inputs = ", ".join(f"%a{i}: {type_text(t)}" for i, t in enumerate(writer.inputs))
    results = ", ".join(f"%r{i}: {type_text(t)}" for i, t in enumerate(outputs))
    count = f"[{len(outputs)}]" if is_list else ""
    lines = [
        f"graph aten({inputs}) {{",
        f"{results} = {name}{count}({call_args})",
        "return " + ", ".join(f"%r{i}" for i, t in enumerate(outputs) if t is not None),
        "}",
    ]
    data = ["shapes"] if shapes_only else [data_text(t) for t in writer.inputs]
    return "\n".join([*lines, *data, "end", ""])


@dataclass
class Result:
    name: str
    args: list
    outputs: list[torch.Tensor]
    refused: bool = False  # eager raises
    shape: str = ""
    reason: str = ""
    values: list[list[float]] = field(default_factory=list)

    def describe(self) -> str:
        writer = Writer()
        text = ", ".join(writer.arg(a) for a in self.args)
        types = "; ".join(type_text(t) for t in writer.inputs)
        want = "; ".join(type_text(t) for t in self.outputs)
        return f"{self.name}({text}) of {types}, eager gives {want}"


def number(word: str) -> float:
    return float(word) if word not in ("True", "False") else float(word == "True")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    found, texts = [], []
    for name, args in all_cases():
        refused = False
        try:
            out = call(name, args)
        except (RuntimeError, IndexError, NotImplementedError):
            out, refused = torch.tensor(0.0), True
        is_list = isinstance(out, list)
        outputs = list(out) if isinstance(out, (list, tuple)) else [out]
        if not outputs:
            continue
        found.append(Result(name, args, outputs, refused))
        texts.append(case_text(name, args, outputs, is_list, refused))
    answers = run_tool("--check", text="".join(texts)).split("end\n")[:-1]
    assert len(answers) == len(found)
    for result, answer in zip(found, answers):
        for line in answer.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "shape":
                result.shape = rest.partition(" ")[2]
            elif kind == "no":
                result.reason = rest
            else:
                result.values.append([number(w) for w in rest.split()])
    return found


# ---- comparison ----


def close(got: list[float], want: torch.Tensor) -> bool:
    """Within two units in the last place for one op; sums of float32 differ by their order."""
    flat = want.reshape(-1).double()
    have = torch.tensor(got, dtype=torch.float64)
    if have.shape != flat.shape:
        return False
    eps = torch.finfo(want.dtype).eps if want.dtype.is_floating_point else 0.0
    tolerance = {torch.float32: 16 * eps, torch.float64: 64 * eps}.get(want.dtype, eps)
    same = (have == flat) | (have.isnan() & flat.isnan())
    near = (have - flat).abs() <= tolerance * (flat.abs() + (0 if eps == 0 else 1))
    return bool((same | near).all())


def test_shapes(results):
    wrong = [
        r.describe() + ", the rule: " + r.shape
        for r in results
        if r.shape.startswith("differs") and not r.refused
    ]
    assert not wrong, "\n".join(wrong)


def test_refused_calls(results):
    """What eager refuses no shape rule accepts: the recorder asks torch, which raises."""
    accepted = [r.describe() for r in results if r.refused and not r.shape.startswith("unknown")]
    assert not accepted, "\n".join(accepted)


def test_most_shapes_are_known(results):
    """Of the ops that have a shape rule."""
    rows = [line.split("\t") for line in run_tool().splitlines()]
    with_rule = {row[0] for row in rows if "shape" in row[3].split(",")}
    known = [r for r in results if r.name in with_rule and not r.refused]
    unknown = [r for r in known if r.shape.startswith("unknown")]
    assert len(unknown) < 0.04 * len(known), "\n".join(r.describe() for r in unknown)


def test_values(results):
    wrong = []
    for r in results:
        if r.reason or r.refused:
            continue
        for got, want in zip(r.values, (t for t in r.outputs if t is not None)):
            if not close(got, want):
                wrong.append(
                    f"{r.describe()}\n  rule  {got[:8]}\n  eager {want.reshape(-1)[:8].tolist()}"
                )
    assert not wrong, f"{len(wrong)} of {len(results)}\n" + "\n".join(wrong)


def test_rules_exist(results):
    """What has no rule is what runs as an extern call on purpose."""
    extern = (
        "aten.mm",
        "aten.addmm",
        "aten.bmm",
        "aten.baddbmm",
        "aten.mv",
        "aten.dot",
        "aten.convolution",
        "aten.max_pool",
        "aten.avg_pool",
        "aten._adaptive",
        "aten._scaled",
        "aten.as_strided",
        "aten.linalg_lstsq",
        "aten.geqrf",
        "aten.histogram",
        "aten._histogramdd",
        "aten.fake_quantize",
        "aten._fake_quantize",
    )
    missing = {
        r.name: r.reason
        for r in results
        if r.reason and not r.refused and not r.name.startswith(extern)
    }
    allowed = {
        "aten.prod.default",
        "aten.view.dtype",
    }  # fp16 and bf16; bit patterns are not evaluated
    unexpected = {k: v for k, v in missing.items() if k not in allowed and "no rule" not in v}
    assert not unexpected, unexpected
    declined = [r for r in results if r.reason and not r.refused and not r.name.startswith(extern)]
    assert len(declined) < 0.05 * len(results), [r.describe() for r in declined]


def test_evaluator_keeps_nan():
    text = case_text(
        "aten.add.Tensor", [torch.tensor([math.nan])] * 2, [torch.tensor([math.nan])], False
    )
    assert "out nan" in run_tool("--check", text=text)
