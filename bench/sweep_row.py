"""One row of the sweep: eager and Oxyfuel, in turn, in one process; and the process that works on
many of them.

A row is timed forward, under no_grad, or, with /step behind its name, as the gradients of
everything that has one (forward and backward).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

import one
import oxyfuel
import sweep_drawn
import sweep_models
import sweep_ops
from sweep_enlarge import SECONDS_MOST, Call, Skip, bytes_of, tensors_in

FAMILIES: dict[str, Callable[[list[str]], Call]] = {
    "ops": sweep_ops.make_op,
    "modules": sweep_ops.make_module,
    "drawn": sweep_drawn.make,
    "models": sweep_models.make,
}
TIMES_MOST, TIMES_LEAST = 200, 5
ELEMENTS_MOST = 1 << 28
WARM = 20
ERROR_MOST = 8  # times that of eager


def make(name: str) -> Call:
    """The call that a name says; Skip where there is none."""
    family, *rest = name.removesuffix("/step").split("/")
    return FAMILIES[family](rest)


# ---- what is compared ----

TOLERANCE = {torch.float64: 1e-7, torch.float32: 2e-4, torch.bfloat16: 3e-2, torch.float16: 6e-3,
             torch.complex64: 2e-4, torch.complex128: 1e-7}  # fmt: skip


def difference(expected: Any, found: Any) -> str:
    """What is wrong with a result; empty where it is eager's."""
    one, spec = pytree.tree_flatten(expected)
    two, other = pytree.tree_flatten(found)
    if spec != other:
        return f"another structure: {other}"
    for i, (e, f) in enumerate(zip(one, two)):
        if not isinstance(e, torch.Tensor):
            if isinstance(e, (int, float, complex, str)) and e != f and e == e:
                return f"result {i}: {f!r}, not {e!r}"
            wrong = difference(held(e), held(f)) if hasattr(e, "__dict__") else ""
            if wrong:
                return f"in result {i}: {wrong}"
            continue
        if e.layout != torch.strided:
            continue
        if (e.shape, e.dtype, e.stride()) != (f.shape, f.dtype, f.stride()):
            return (
                f"result {i}: {f.dtype} {tuple(f.shape)} {f.stride()}, "
                f"not {e.dtype} {tuple(e.shape)} {e.stride()}"
            )
        wrong = value_difference(e.detach(), f.detach())
        if wrong:
            return f"result {i}: {wrong}"
    return ""


def held(x: Any) -> list[Any]:
    """The tensors that an object, or objects in its lists, hold (a model's cache)."""
    found: list[Any] = []
    for _, value in sorted(vars(x).items()):
        leaves = pytree.tree_leaves(value)
        found += [y for y in leaves if isinstance(y, torch.Tensor)]
        if isinstance(value, list):
            found += [z for y in value if hasattr(y, "__dict__") for z in held(y)]
    return found


def value_difference(e: torch.Tensor, f: torch.Tensor) -> str:
    """Elements that are not eager's; sums may be associated differently."""
    if e.dtype not in TOLERANCE:
        wrong = int((e != f).sum())
        return f"{wrong} of {e.numel()} differ" if wrong else ""
    wide = torch.complex128 if e.is_complex() else torch.float64
    tolerance = TOLERANCE[e.dtype]
    e, f = e.to(wide), f.to(wide)
    finite = e.isfinite()
    largest = float(e[finite].abs().max()) if finite.any() else 0.0
    return close(e, f, tolerance, largest)


def close(e: torch.Tensor, f: torch.Tensor, tolerance: float, largest: float) -> str:
    """As `value_difference`, of wide values."""
    wrong = ~torch.isclose(f, e, rtol=tolerance, atol=tolerance * max(1e-3, min(largest, 1e6)),
                           equal_nan=True)  # fmt: skip
    count = int(wrong.sum())
    if not count:
        return ""
    worst = (e - f).abs()[wrong].nan_to_num(math.inf).max()
    return f"{count} of {e.numel()} differ, by up to {float(worst):.3g}"


def as_exact(call: Call, results: dict[str, Any], step: bool) -> bool:
    """Whether ours is about as near to the result of the wider dtype as eager is: sums of numbers
    that cancel differ by more than a tolerance."""
    wide = lambda t: t.double() if t.is_floating_point() else t
    function = call.function
    if isinstance(function, torch.nn.Module):
        function = copy.deepcopy(function).double()
    args, kwargs = pytree.tree_map_only(torch.Tensor, wide, (call.args, call.kwargs))
    exact = Call(function, args, kwargs)
    torch.manual_seed(1)
    try:
        if step:
            exact = gradients_of(require_gradients(exact), function)()
        else:
            exact = function(*args, **kwargs)
    except Exception:
        return False
    found = zip(*(tensors_in(x) for x in (exact, results["eager"], results["ours"])))
    return all(nearly_as_near(*three) for three in found)


def nearly_as_near(exact: torch.Tensor, e: torch.Tensor, f: torch.Tensor) -> bool:
    """Of one result: the error, in the largest and in the mean, a few times that of eager's."""
    if (e.shape, e.dtype, e.stride()) != (f.shape, f.dtype, f.stride()) or e.dtype not in TOLERANCE:
        return torch.equal(e, f) and e.stride() == f.stride()
    errors = [(x.to(exact.dtype) - exact).abs().nan_to_num(0, 0, 0) for x in (e, f)]
    undefined = [~x.isfinite() for x in (e, f)]
    return torch.equal(*undefined) and all(
        float(ours) <= ERROR_MOST * float(eager) + 1e-30
        for eager, ours in (([x.max() for x in errors]), [x.double().mean() for x in errors])
    )


# ---- what is timed ----


def gradients_of(call: Call, function: Callable[..., Any]) -> Callable[[], Any]:
    """Forward and backward of a call, as a function of nothing, as a training step has them: with
    `.grad` of the leaves. The tangents are drawn: behind a norm the gradient of a sum is zero."""
    leaves = [t for t in tensors_in((call.args, call.kwargs)) if t.requires_grad]
    if isinstance(call.function, torch.nn.Module):
        leaves += [p for p in call.function.parameters() if p.requires_grad]
    if not leaves:
        raise Skip("nothing has a gradient")
    tangents: list[torch.Tensor] = []

    def step() -> Any:
        out = tensors_in(function(*call.args, **call.kwargs))
        out = [t for t in out if t.requires_grad]
        if not out:
            raise Skip("no result has a gradient")
        if not tangents:
            drawn = torch.Generator().manual_seed(2)
            draw = lambda t: torch.randn(t.shape, generator=drawn).bfloat16().to(t.dtype)
            tangents.extend(map(draw, out))
        for leaf in leaves:
            leaf.grad = None
        torch.autograd.backward(out, tangents)
        return [leaf.grad for leaf in leaves]

    return step


def require_gradients(call: Call) -> Call:
    """The call with leaves of floating inputs."""
    leaf = lambda t: t.detach().requires_grad_() if t.is_floating_point() else t
    args, kwargs = pytree.tree_map_only(torch.Tensor, leaf, (call.args, call.kwargs))
    return Call(call.function, args, kwargs, call.text)


def facts() -> dict[str, Any]:
    """How Oxyfuel ran the calls so far."""
    stats = oxyfuel.stats()
    keys = ("fallbacks", "unsupported", "grad_fallbacks", "graph_breaks")
    broken = {k: stats[k] for k in keys if stats[k]}
    out = {k: stats[k] for k in ("plans", "kernels", "extern_calls", "moved_bytes")}
    out["one_graph"] = not broken and stats["plans"] > 0
    if broken:
        out["broken"] = broken
    return out


def timed_in_turn(calls: dict[str, Callable[[], Any]], budget: float) -> dict[str, float]:
    """The least time of each, called one after the other."""
    least = dict.fromkeys(calls, math.inf)
    end = time.perf_counter() + budget
    for n in range(TIMES_MOST):
        for mode, call in calls.items():
            least[mode] = min(least[mode], one.timed(call))
        if n + 1 >= TIMES_LEAST and time.perf_counter() > end:
            break
    return least


def warm_up(call: Callable[[], Any], seconds: float) -> None:
    """Calls behind which Oxyfuel has decided how to go on (OXYFUEL_MEASURED_WAYS)."""
    end = time.perf_counter() + 5 * seconds
    for _ in range(WARM):
        call()
        if time.perf_counter() > end:
            break


def flops_of(call: Callable[[], Any]) -> int:
    """Of products and convolutions, as torch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    try:
        with FlopCounterMode(display=False) as counter:
            call()
        return counter.get_total_flops()
    except Exception:
        return 0


def shapes_of(call: Call) -> str:
    """The arguments as text."""
    text = lambda t: "x".join(map(str, t.shape)) or "number"
    return ", ".join(text(t) for t in tensors_in((call.args, call.kwargs)))[:120]


def versions(call: Call) -> list[int]:
    """That tell of writes to a call's tensors."""
    return [t._version for t in tensors_in((call.args, call.kwargs))]


def run(name: str, how: argparse.Namespace) -> dict[str, Any]:
    """The row of a name."""
    row: dict[str, Any] = {"name": name, "threads": how.threads}
    call = make(name)
    step = name.endswith("/step")
    if step:
        call = require_gradients(call)
    functions = {"eager": call.function, "ours": oxyfuel.compile(call.function)}
    if how.inductor:
        functions["inductor"] = torch.compile(call.function)
    calls = {}
    for mode, f in functions.items():
        calls[mode] = gradients_of(call, f) if step else lambda f=f: f(*call.args, **call.kwargs)
    with contextlib.nullcontext() if step else torch.no_grad():
        before = versions(call)
        results = {}
        for mode, f in calls.items():
            torch.manual_seed(1)
            try:
                seconds = one.timed(lambda: results.update({mode: f()}))
            except (RuntimeError, ValueError, AssertionError) as e:
                if mode == "eager":
                    raise Skip("eager refuses it at this size and layout") from e
                raise
            row[f"{mode}_first_s"] = seconds
            if mode == "eager":
                if versions(call) != before:
                    raise Skip("it writes to its arguments")
                if seconds > SECONDS_MOST:
                    raise Skip(f"eager takes {seconds:.1f} s")
        if sum(t.numel() for t in tensors_in(results["eager"])) > ELEMENTS_MOST:
            raise Skip("its result is a view with more elements than memory")
        row["bytes"] = bytes_of((call.args, call.kwargs, results["eager"]))
        row["shapes"] = call.text or shapes_of(call)
        row.update(facts())
        row["difference"] = difference(results["eager"], results["ours"])
        if row["difference"] and as_exact(call, results, step):
            row["difference"] = ""
        results.clear()
        warm_up(calls["ours"], how.seconds)
        with one.realtime(how.realtime):
            least = timed_in_turn(calls, how.seconds)
        row["flops"] = flops_of(calls["eager"])
    row.update({f"{mode}_us": s * 1e6 for mode, s in least.items()})
    row["ratio"] = least["ours"] / least["eager"]
    return row


def main() -> None:
    """Reads names, writes rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--inductor", action="store_true")
    how = parser.parse_args()
    torch.set_num_threads(how.threads)
    warnings.simplefilter("ignore")
    # A row that asks for more fails alone.
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for line in sys.stdin:
        name = line.strip()
        oxyfuel.reset()
        torch._dynamo.reset()
        try:
            row = run(name, how)
        except Skip as e:
            row = {"name": name, "skipped": str(e)}
        except Exception as e:
            row = {"name": name, "failed": f"{type(e).__name__}: " + " ".join(str(e).split())[:300]}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
