"""Whether a program compiled does what it does in eager; and the smallest part of it that does
not."""

from __future__ import annotations

import contextlib
import dataclasses

import torch
from programs import FLOATS, Program, Ref, references

import oxyfuel


def check(program: Program, inference: bool = False, options: dict | None = None) -> None:
    """Runs the program twice, with different values, and raises AssertionError where it differs
    from eager."""
    gm = program.graph_module()
    compiled = oxyfuel.compile_fx(gm, options={"verify": "True", **(options or {})})
    with torch.inference_mode() if inference else torch.no_grad():
        for seed in (1, 2):
            with contextlib.ExitStack() as stack:
                if (
                    inference and seed == 2
                ):  # inputs that are inference tensors, and inputs that are not
                    stack.enter_context(torch.inference_mode(False))
                    stack.enter_context(torch.no_grad())
                expected, ours, wide = (
                    program.make_inputs(seed),
                    program.make_inputs(seed),
                    program.make_inputs(seed, wide=True),
                )
            try:
                expected_results = gm.forward(*expected)
            except RuntimeError:
                continue  # refused for these values
            results = compiled(*ours)
            largest: list[float] = []
            noisy = program.make_inputs(seed, wide=True)
            try:
                wide_results = program.run(wide, wide=True, largest=largest)
                noise = torch.Generator().manual_seed(seed)
                noisy_results = program.run(noisy, wide=True, noise=noise)
            except RuntimeError:  # dtypes that met in the program do not meet here
                wide, wide_results = noisy, noisy_results = expected, expected_results
                program.run(program.make_inputs(seed), largest=largest)
            _compare_all(
                program,
                (expected, ours, wide, noisy),
                (expected_results, results, wide_results, noisy_results),
                largest,
            )


def _compare_all(program, inputs, results, largest) -> None:
    expected, ours, wide, noisy = inputs
    expected_results, our_results, wide_results, noisy_results = results
    assert type(our_results) is type(expected_results) and len(our_results) == len(expected_results)
    for i, index in enumerate(program.results):
        name = f"result {i} (v{index})"
        values = expected_results[i], our_results[i], wide_results[i], noisy_results[i]
        _compare(name, *values, largest[index], program, index)
    for i in range(len(expected)):
        scale = max(largest)  # the program may have written anything to it
        values = expected[i], ours[i], wide[i], noisy[i]
        _compare(f"input {i} afterwards", *values, scale, program, i)
        if not expected[i].is_inference():
            a, b = expected[i]._version, ours[i]._version
            assert (a > 0) == (b > 0), f"version of input {i}: {b}, eager {a}"
    _compare_sharing([*expected, *expected_results], [*ours, *our_results])


def _compare(name, expected, ours, wide, noisy, scale, program, index) -> None:
    assert ours.dtype == expected.dtype, f"{name}: dtype {ours.dtype}, eager {expected.dtype}"
    assert ours.shape == expected.shape, f"{name}: shape {ours.shape}, eager {expected.shape}"
    assert ours.stride() == expected.stride(), (
        f"{name}: strides {ours.stride()}, eager {expected.stride()}"
    )
    if expected.dtype not in FLOATS or program.exact[index]:
        same = (ours == expected) | ((ours != ours) & (expected != expected))
        assert bool(same.all()), f"{name}: values\n{_first_difference(expected, ours, ~same)}"
        return
    a, b, c = expected.double(), ours.double(), wide.double()
    finite = a.isfinite() & b.isfinite() & c.isfinite()
    odd = ~finite & ~((a == b) | (a.isnan() & b.isnan()))
    largest = torch.finfo(expected.dtype).max
    odd &= ~((a.abs() > largest * 0.9) & (b.abs() > largest * 0.9) & (a.sign() == b.sign()))
    # Eager's kernels for AVX-512 and AMX make NaN of some (gelu(inf), bfloat16 gemms next to
    # special values).
    odd &= ~((b == c) | (a.isnan() & ((b - c).abs() <= 8 * program.eps[index] * scale)))
    assert not bool(odd.any()), (
        f"{name}: not finite where eager is, or the reverse\n{_first_difference(a, b, odd)}"
    )
    if not bool(finite.any()):
        return
    zero = torch.zeros((), dtype=torch.float64)
    eager_error = torch.where(finite, (a - c).abs(), zero).max()
    condition = (noisy.double() - c).abs().nan_to_num(0.0, 0.0, 0.0)
    bound = 4 * eager_error + 8 * program.eps[index] * scale + 4 * condition
    wrong = finite & ((b - c).abs() > bound)
    assert not bool(wrong.any()), (
        f"{name}: off by more than "
        f"{bound[wrong].min().item():.2e}\n{_first_difference(a, b, wrong, c)}"
    )


def _first_difference(expected, ours, where, wide=None) -> str:
    at = tuple(where.nonzero()[0].tolist())
    return (
        f"{int(where.sum())} of {where.numel()} differ, first at {at}: "
        f"eager {expected[at].item()!r}, ours {ours[at].item()!r}"
        + ("" if wide is None else f", in float64 {wide[at].item()!r}")
    )


def _compare_sharing(expected, ours) -> None:
    """Which of the inputs and results are the same object, or share memory, and at which
    distance."""

    def relation(a, b):
        if a is b:
            return "same object"
        if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
            return "different storages"
        return f"one storage, offsets {a.storage_offset()} and {b.storage_offset()}"

    for i in range(len(expected)):
        for j in range(i):
            a, b = relation(expected[i], expected[j]), relation(ours[i], ours[j])
            assert a == b, f"inputs and results {j} and {i}: {b}; in eager: {a}"


def torch_ir(program: Program) -> str:
    from oxyfuel import _C

    return str(_C.TorchGraph.from_fx(program.graph_module()))


def reduce(program: Program, fails) -> Program:
    """Leaves out results and steps while ``fails(program)`` stays true."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(program):
            if fails(smaller):
                program, changed = smaller, True
                break
    return program


def _smaller(program: Program):
    if len(program.results) > 1:
        for r in range(len(program.results)):
            yield dataclasses.replace(
                program, results=program.results[:r] + program.results[r + 1 :]
            )
    first = len(program.inputs)
    for s in reversed(range(len(program.steps))):
        for stand_in in (None, *references(program.steps[s].args)):
            smaller = _without(program, first + s, stand_in)
            if smaller is not None:
                yield smaller


def _without(program: Program, value: int, stand_in: int | None) -> Program | None:
    """The program without one step, whose users take ``stand_in``; None where that leaves a user or
    a result alone."""

    def moved(a):
        if isinstance(a, Ref):
            i = stand_in if a.index == value else a.index
            return Ref(i - (i > value))
        if isinstance(a, (tuple, list)):
            return type(a)(moved(x) for x in a)
        if isinstance(a, dict):
            return {k: moved(x) for k, x in a.items()}
        return a

    steps = [s for i, s in enumerate(program.steps, len(program.inputs)) if i != value]
    if stand_in is None and (
        value in program.results or any(value in references((s.args, s.kwargs)) for s in steps)
    ):
        return None
    results = [stand_in if r == value else r for r in program.results]
    marks = {"exact": list(program.exact), "eps": list(program.eps)}
    for m in marks.values():
        del m[value]
    return dataclasses.replace(
        program,
        steps=[dataclasses.replace(s, args=moved(s.args), kwargs=moved(s.kwargs)) for s in steps],
        results=[r - (r > value) for r in results],
        **marks,
    )
