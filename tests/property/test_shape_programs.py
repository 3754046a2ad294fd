"""Random programs over sizes: views, slices, concatenations, products, reductions, loops, branches.
Each is compiled with symbolic sizes and called with five combinations of them.

    python tests/property/test_shape_programs.py FIRST LAST    runs seeds and prints what differs
"""

from __future__ import annotations

import math
import os
import random
import sys
import traceback

import pytest
import torch

import oxyfuel

SEEDS = 120
SIZES = ((3, 5), (4, 7), (2, 12), (6, 5), (1, 9))


class Program:
    """A function of x, [b, t, 8], and w, [8, 8], as Python text; all values keep the last
    dimension."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines = ["b, t, c = x.shape"]
        self.values = ["x"]  # of three dimensions, the last one 8
        self.count = 0
        for _ in range(self.random.randint(3, 8)):
            self.step()
        results = [self.values[-1], self.random.choice(self.values)]
        self.lines.append(f"return {', '.join(results)}, b * t, x.shape[1] - 1")

    def new(self, text: str, *, usable: bool = True) -> str:
        name = f"v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        if usable:
            self.values.append(name)
        return name

    def value(self) -> str:
        return self.random.choice(self.values[-4:])

    def size(self, v: str) -> str:
        """A size of a value, in one of the ways in which code asks for it."""
        d = self.random.randint(0, 1)
        return self.random.choice((f"{v}.shape[{d}]", f"{v}.size({d - 3})", f"{v}.size()[{d}]"))

    def step(self) -> None:
        v, r = self.value(), self.random
        n = self.size(v)
        steps = (
            lambda: self.new(f"{v} * {n} + 1"),
            lambda: self.new(f"{v} / ({n} + 2)"),
            lambda: self.new(f"{v}[:, : max({n} // 2, 1)].relu()"),
            lambda: self.new(f"{v}[:, {r.randint(0, 1)} :] - 0.5"),
            lambda: self.new(f"{v}[:, -1:].expand(-1, {v}.shape[1], -1) + {v}"),
            lambda: self.new(f"{v}.transpose(0, 1)"),
            lambda: self.new(f"{v}.transpose(0, 1).contiguous()"),
            lambda: self.new(f"torch.cat([{v}, {v} * 2], {r.randint(0, 1)})"),
            lambda: self.new(f"torch.cat([{v}, {v}[:, :1]], 1)"),
            lambda: self.new(f"({v}.reshape(-1, 8) @ w).view({v}.shape)"),
            lambda: self.new(f"torch.bmm({v}, {v}.transpose(1, 2)).softmax(-1) @ {v}"),
            lambda: self.new(f"{v} - {v}.mean({r.randint(-3, 2)}, keepdim=True)"),
            lambda: self.new(f"{v} + {v}.amax(1, keepdim=True).tanh()"),
            lambda: self.new(f"{v}.cumsum({r.randint(0, 2)})"),
            lambda: self.new(f"{v} + torch.arange({v}.shape[1])[:, None]"),
            lambda: self.new(f"{v}.reshape({v}.shape[0] * {v}.shape[1], 8)[None]"),
            lambda: self.new(f"{v}.reshape(*{v}.shape[:-1], 2, 4).permute(0, 1, 3, 2).flatten(2)"),
            lambda: self.new(f"torch.nn.functional.layer_norm({v}, (8,))"),
            lambda: self.new(f"torch.nn.functional.pad({v}, (0, 0, 1, {r.randint(0, 2)}))"),
            lambda: self.new(f"torch.where({v} > 0, {v}, {v} * {n})"),
            lambda: self.new(f"{v}.masked_fill(torch.ones({v}.shape[1], 8).tril() == 0, 0.25)"),
            lambda: self.new(f"{v}.index_select(1, torch.arange({v}.shape[1]).flip(0))"),
            lambda: self.new(f"{v}.gather(1, torch.zeros_like({v}, dtype=torch.int64))"),
            lambda: self.new(f"{v}.clone().mul_(2).add_({n})"),
            lambda: self.new(f"{v}.repeat(1, 2, 1)[:, ::2]"),
            lambda: self.new(f"{v}.new_zeros({v}.shape[0], {v}.shape[1] + 1, 8) + {v}[:, :1]"),
            lambda: self.new(f"{v} * {v}.numel() if {n} > {r.randint(2, 6)} else {v} - 1"),
            lambda: self.new(f"{v} + (1 if {n} % 2 else 2)"),
            lambda: self.new(f"sum([{v}[i : i + 1] for i in range({v}.shape[0])])"),
            lambda: self.new(f"torch.stack([{v}, {v} + 1], 1).sum(1)"),
            lambda: self.new(f"{v}.sum((0, 1)) + {v}"),
            lambda: self.new(f"{v}.unsqueeze(1).squeeze(1).roll(1, 1)"),
            lambda: self.new(f"{v}.reshape(-1, 4).t().reshape({v}.shape)"),
            lambda: self.new(f"torch.einsum('btc,bsc->bts', {v}, {v}) @ {v} / 8"),
            lambda: self.new(f"{v}.view_as({v}).unfold(2, 8, 1).flatten(2)"),
            lambda: self.new(f"{v} * (1 / ({n} + 1))"),
            lambda: self.new(f"{v} * ({n} + 1) ** -0.5 + math.sqrt({n})"),
            lambda: self.new(f"({v}.sum() * ({n} / 7)) + {v} / float({n} + 3)"),
            lambda: self.new(f"{v}[:, : math.ceil({n} / 2) + int({n} * 0.25)]"),
        )
        r.choice(steps)()

    def text(self) -> str:
        return "\n    ".join(["def program(x, w):", *self.lines]) + "\n"

    def function(self):
        names: dict = {"math": math, "torch": torch}
        exec(self.text(), names)
        return names["program"]


LAYOUTS = {
    "dense": lambda b, t: torch.randn(b, t, 8),
    "part": lambda b, t: torch.randn(b * t * 8 + 9 * t)[7 * t :][: b * t * 8].view(b, t, 8),
    "columns": lambda b, t: torch.randn(b, t, 13 + b)[..., 2:10],
    "rows": lambda b, t: torch.randn(b, t + b, 8)[:, b:],
    "transposed": lambda b, t: torch.randn(t, b, 8).transpose(0, 1),
    "expanded": lambda b, t: torch.randn(b, 1, 8).expand(b, t, 8),
}


def outcome(fn, *args):
    try:
        return fn(*args)
    except (RuntimeError, IndexError) as e:
        if "Oxyfuel" in str(e) or "InternalError" in type(e).__name__:
            raise
        return type(e).__name__


def strides(t, of_ones):
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if of_ones or n != 1]


def is_close(actual, expected):
    return torch.allclose(actual, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def compare(actual, expected, exact, of_ones):
    """`exact`: makes the results in f64, from which ours may be as far as eager's are, where a sum
    has lost most of its digits. `of_ones`: strides of dimensions of one element count as well."""
    if isinstance(expected, str):
        assert actual == expected, actual
        return
    for at, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if isinstance(e, torch.Tensor):
            assert a.dtype == e.dtype and a.shape == e.shape
            if not is_close(a, e):
                right = exact()[at]
                assert (a - right).abs().max() <= 3 * (e - right).abs().max(), (a, e)
            same = a.numel() == 0 or strides(a, of_ones) == strides(e, of_ones)
            assert same, (a.shape, a.stride(), e.stride())
        else:
            assert type(a) is type(e) and a == e, (a, e)


def run(seed: int, dynamic: bool | None) -> None:
    fn = Program(seed).function()
    compiled = oxyfuel.compile(fn, dynamic=dynamic)
    torch.manual_seed(seed)
    name = random.Random(seed).choice(list(LAYOUTS))
    layout = LAYOUTS[name]
    for b, t in SIZES:
        x, w = layout(b, t), torch.randn(8, 8)
        before = x.clone()
        with torch.no_grad():
            # Of other layouts torch asks whether a size is 1; ours serves both.
            compare(
                outcome(compiled, x, w),
                outcome(fn, x, w),
                lambda x=x, w=w: fn(x.double(), w.double()),
                name in ("dense", "part"),
            )
        assert torch.equal(x, before)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_shape_programs(seed, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    run(seed, True if seed % 2 else None)


if __name__ == "__main__":
    os.environ["OXYFUEL_STRICT"] = "1"
    bad = 0
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        oxyfuel.reset()
        try:
            run(number, True if number % 2 else None)
        except Exception:
            bad += 1
            print(f"seed {number}\n{Program(number).text()}{traceback.format_exc(limit=-2)}")
    print(f"{bad} differ")
    sys.exit(bad > 0)
