"""Random functions as Python text: statements over tensors with out=, writes to views, mixed dtypes
and odd numbers.

A function is made statement by statement by running it: one that eager refuses is left out. There
are two kinds, by the seed. Exact ones use only operations of which every correct implementation has
the same bits. Rough ones sum, divide and call functions of the math library, and never ask for more
than a value (no comparison, rounding or index made of one).
"""

from __future__ import annotations

import random
import warnings

import torch

DTYPES = [
    "float32",
    "float64",
    "bfloat16",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
]
SIZES = [
    (),
    (0,),
    (1,),
    (7,),
    (4, 5),
    (3, 1),
    (2, 3, 4),
    (16, 17),
    (33,),
    (5, 0),
    (2, 3, 4, 5),
    (1, 6),
    (130,),
]
NUMBERS = ["0", "1", "2", "3", "-1", "0.5", "-0.0", "1.5", "True", "False", "7", "100", "-3", "2.0"]
ODD_NUMBERS = [
    "float('inf')",
    "float('nan')",
    "1e-40",
    "1e30",
    "127",
    "255",
    "-128",
    "2**31",
    "1e-8",
]

VIEWS = [
    "{a}.t()",
    "{a}.T",
    "{a}.transpose(0, -1)",
    "{a}.swapaxes(0, -1)",
    "{a}[1:]",
    "{a}[::2]",
    "{a}[..., 1:]",
    "{a}[..., ::2]",
    "{a}[0]",
    "{a}[-1]",
    "{a}[None]",
    "{a}[:, None]",
    "{a}.unsqueeze(-1)",
    "{a}.squeeze()",
    "{a}.view(-1)",
    "{a}.flatten()",
    "{a}.reshape(-1)",
    "{a}.expand(2, *{a}.shape)",
    "{a}.expand_as({b})",
    "{a}.diagonal()",
    "{a}.diagonal(1)",
    "{a}.narrow(0, 0, 2)",
    "{a}.select(-1, 0)",
    "{a}.unfold(0, 2, 1)",
    "{a}.chunk(2)[-1]",
    "{a}.split(2)[0]",
    "{a}.unbind()[-1]",
    "{a}.movedim(0, -1)",
    "{a}.detach()",
    "{a}.view_as({a})",
    "{a}.view(*{a}.shape, 1)",
    "{a}.as_strided((2, 2), (1, 1))",
    "{a}.broadcast_to(3, *{a}.shape)",
    "{a}.permute(*range({a}.dim())[::-1])",
    "{a}.real",
    "{a}.adjoint()",
    "{a}.mT",
    "{a}.view(torch.{same})",
    "{a}.unflatten(0, (1, -1))",
    "{a}.alias()" if False else "{a}[:]",
]
EXACT = [
    "{a} + {b}",
    "{a} - {b}",
    "{a} * {b}",
    "{a} + {n}",
    "{n} - {a}",
    "{a} * {n}",
    "-{a}",
    "abs({a})",
    "{a} == {b}",
    "{a} < {b}",
    "{a} >= {n}",
    "{a} != {n}",
    "{a} & {b}",
    "{a} | {b}",
    "{a} ^ {b}",
    "~{a}",
    "{a} << {s}",
    "{a} >> {s}",
    "{a} // {p}",
    "{a} % {p}",
    "torch.where({m}, {a}, {b})",
    "torch.where({m}, {a}, {n})",
    "torch.maximum({a}, {b})",
    "torch.minimum({a}, {b})",
    "{a}.clamp({n}, {n})",
    "{a}.clamp(min={n})",
    "{a}.clamp(max={b})",
    "{a}.sign()",
    "{a}.relu()",
    "{a}.floor()",
    "{a}.round()",
    "{a}.trunc()",
    "{a}.square()",
    "{a}.max()",
    "{a}.amax(0)",
    "{a}.amin(-1, keepdim=True)",
    "{a}.argmax(0)",
    "{a}.argmin()",
    "{a}.any()",
    "{a}.all(0)",
    "{a}.to(torch.{d})",
    "{a}.type_as({b})",
    "{a}.clone()",
    "{a}.contiguous()",
    "{a}.flip(0)",
    "{a}.roll(1, 0)",
    "torch.cat([{a}, {b}])",
    "torch.stack([{a}, {b}], -1)",
    "torch.cat([{a}, {a}], -1)",
    "{a}.repeat(2, *[1] * {a}.dim())",
    "{a}.tril()",
    "{a}.triu(1)",
    "{a}[{i}]",
    "{a}.index_select(0, {i})",
    "{a}.take({i})",
    "{a}.gather(0, {g})",
    "{a}.masked_fill({m}, {n})",
    "{a}.scatter(0, {g}, {n})",
    "{a}.scatter(0, {g}, {b})",
    "{a}.index_add(0, {i}, {a}[{i}])",
    "{a}.index_fill(0, {i}, {n})",
    "{a}.index_copy(0, {i}, {b})",
    "{a}.sort(-1)[0]",
    "{a}.sort(0, stable=True)[1]",
    "{a}.isnan()",
    "{a}.isinf()",
    "{a}.logical_not()",
    "{a}.logical_and({b})",
    "torch.zeros_like({a})",
    "torch.full_like({a}, {n})",
    "{a}.new_ones(3)",
    "torch.arange(5)",
    "torch.eye(3)",
    "{a}.count_nonzero()",
    "torch.isin({a}, {b})",
    "{a}.eq({b})",
    "{a}.copysign({b})",
    "torch.fmax({a}, {b})",
    "{a}.nan_to_num()",
    "torch.nextafter({a}, {b})",
    "{a}.heaviside({b})",
    "{a}.signbit()",
    "torch.lerp({a}, {a}, 0.5)",
    "{a}.bitwise_not()",
    "torch.nn.functional.pad({a}, (1, 1))",
    "torch.nn.functional.one_hot({i}, 8)",
    "{a}.cummax(0)[0]",
    "{a}.diag()",
    "torch.bucketize({a}, torch.arange(3.))",
    "{a} ** 2",
    "{a} ** {s}",
    "torch.rot90({a}, 1, (0, 1))",
    "{a}.frac()",
    "{a}.fmod({p})",
    "{a}.remainder({p})",
    "torch.tensor([1, 2, 3])",
]
ROUGH = [
    "{a} + {b}",
    "{a} - {b}",
    "{a} * {b}",
    "{a} / {p}",
    "{a} + {n}",
    "{a} * {n}",
    "{n} - {a}",
    "{a}.sum()",
    "{a}.sum(0)",
    "{a}.sum(-1, keepdim=True)",
    "{a}.mean(-1)",
    "{a}.sin()",
    "{a}.cos()",
    "{a}.tanh()",
    "{a}.sigmoid()",
    "{a}.exp().clamp(max=100)",
    "{a}.softmax(-1)",
    "{a}.log_softmax(0)",
    "{a}.cumsum(0)",
    "{a}.abs().sqrt()",
    "{a} @ {a}.mT",
    "torch.addcmul({a}, {a}, {b}, value=2)",
    "torch.lerp({a}, {b}, 0.25)",
    "{a}.gelu()" if False else "torch.nn.functional.gelu({a})",
    "torch.nn.functional.silu({a})",
    "{a}.var(-1)",
    "torch.nn.functional.layer_norm({a}, {a}.shape[-1:])",
    "{a}.to(torch.{f})",
    "torch.cat([{a}, {b}])",
    "{a}.clone()",
    "{a}.flip(-1)",
    "{a}[{i}]",
    "{a}.index_add(0, {i}, {a}[{i}])",
    "torch.where({m}, {a}, {b})",
    "{a}.masked_fill({m}, {n})",
    "{a}.scatter_add(0, {g}, {a})",
    "torch.outer({a}.flatten()[:4], {b}.flatten()[:4])",
    "{a}.logsumexp(0)",
    "{a}.norm()",
    "{a}.prod(-1)",
    "torch.hypot({a}, {b})",
    "torch.atan2({a}, {b})",
    "{a}.expm1().clamp(-9, 9)",
    "{a}.abs().log1p()",
    "{a}.square()",
    "{a}.cumprod(-1).clamp(-9, 9)",
    "torch.baddbmm({a}, {a}, {a})",
    "torch.einsum('...i,...i->...', {a}, {a})",
    "{a}.erf()",
    "{a}.reciprocal().clamp(-9, 9)",
    "torch.nn.functional.softplus({a})",
    "{a}.trace()",
    "{a}.std()",
]
EXACT_WRITES = [
    "{a}.add_({b})",
    "{a}.add_({n})",
    "{a}.mul_({n})",
    "{a}.sub_({b}, alpha=2)",
    "{a}.copy_({b})",
    "{a}.fill_({n})",
    "{a}.zero_()",
    "{a}.neg_()",
    "{a}.clamp_({n}, {n})",
    "{a}.masked_fill_({m}, {n})",
    "{a}.index_fill_(0, {i}, {n})",
    "{a}.scatter_(0, {g}, {n})",
    "{a}.scatter_(0, {g}, {b})",
    "{a}.index_copy_(0, {i}, {b})",
    "{a}[{i}] = {n}",
    "{a}[0] = {b}",
    "{a}[..., 1:] = {n}",
    "{a}[::2] += {n}",
    "{a}[{m}] = {n}",
    "{a} += {b}",
    "{a} *= {n}",
    "{a} -= {n}",
    "{a} &= {b}",
    "{a} |= {n}",
    "{a} <<= {s}",
    "{a} //= {p}",
    "{a} %= {p}",
    "{a}.t_()",
    "{a}.squeeze_()",
    "{a}.unsqueeze_(0)",
    "{a}.transpose_(0, -1)",
    "{a}.relu_()",
    "{a}.abs_()",
    "{a}.eq_({b})",
    "{a}.logical_not_()",
    "{a}.tril_()",
    "{a}.swapaxes_(0, -1)",
    "{a}.index_put_(({i},), {a}[{i}])",
    "{a}.put_({i}, {b}.flatten()[:{i}.numel()])",
    "{a}.bitwise_xor_({b})",
    "{a}.floor_()",
    "{a}.sign_()",
    "{a}.fill_diagonal_({n})",
    "{a}.masked_scatter_({m}, {b})",
    "{a}.trunc_()",
    "{a}.pow_(2)",
    "{a}.square_()",
    "{a}.set_({b})" if False else "{a}.copysign_({b})",
    "{a}.clamp_(min={b})",
    "{a}.lt_({n})",
    "{a}[{i}] += {n}",
    "{a}[-1].add_({n})",
    "{a}.unsqueeze(0).mul_({n})",
    "{a}.diagonal().fill_({n})",
    "{a}.view(-1)[1:3] = {n}",
    "{a}.T.copy_({b})",
]
ROUGH_WRITES = [
    "{a}.add_({b})",
    "{a}.mul_({b})",
    "{a}.div_({p})",
    "{a}.sin_()",
    "{a}.tanh_()",
    "{a}.addcmul_({a}, {b})",
    "{a}.lerp_({b}, 0.5)",
    "{a}.copy_({b})",
    "{a}[..., 1:] *= {n}",
    "{a}[0] = {b}",
    "{a} += {b}",
    "{a} /= {p}",
    "{a}.sigmoid_()",
    "{a}.index_add_(0, {i}, {a}[{i}])",
    "{a}.scatter_add_(0, {g}, {b})",
    "{a}.cumsum_(0)",
    "{a}.t_()",
    "{a}.unsqueeze_(0)",
    "{a}.masked_fill_({m}, {n})",
    "{a}.diagonal().mul_({n})",
    "{a}.view(-1)[::2].add_({n})",
    "{a}.abs_().sqrt_()",
    "{a}.index_put_(({i},), {a}[{i}], accumulate=True)",
    "{a}.addcdiv_({b}, {p})",
]
EXACT_OUT = [
    "torch.add({a}, {b}, out={o})",
    "torch.mul({a}, {n}, out={o})",
    "torch.sub({a}, {b}, alpha=2, out={o})",
    "torch.maximum({a}, {b}, out={o})",
    "torch.clamp({a}, {n}, {n}, out={o})",
    "torch.neg({a}, out={o})",
    "torch.abs({a}, out={o})",
    "torch.eq({a}, {b}, out={o})",
    "torch.where({m}, {a}, {b}, out={o})",
    "torch.cat([{a}, {b}], out={o})",
    "torch.stack([{a}, {a}], out={o})",
    "torch.index_select({a}, 0, {i}, out={o})",
    "torch.gather({a}, 0, {g}, out={o})",
    "torch.amax({a}, 0, out={o})",
    "torch.argmax({a}, 0, out={o})",
    "torch.any({a}, 0, out={o})",
    "torch.logical_not({a}, out={o})",
    "torch.bitwise_and({a}, {b}, out={o})",
    "torch.arange(4, out={o})",
    "torch.zeros({a}.shape, out={o})",
    "torch.full({a}.shape, {n}, out={o})",
    "torch.tril({a}, out={o})",
    "torch.sign({a}, out={o})",
    "torch.square({a}, out={o})",
    "torch.floor({a}, out={o})",
    "torch.take({a}, {i}, out={o})",
]
ROUGH_OUT = [
    "torch.add({a}, {b}, out={o})",
    "torch.sum({a}, 0, out={o})",
    "torch.sum({a}, -1, True, out={o})",
    "torch.mean({a}, -1, out={o})",
    "torch.exp({a}.clamp(max=9), out={o})",
    "torch.sin({a}, out={o})",
    "torch.matmul({a}, {a}.mT, out={o})",
    "torch.mm({a}, {b}, out={o})",
    "torch.cumsum({a}, 0, out={o})",
    "torch.div({a}, {p}, out={o})",
    "torch.softmax({a}, -1, out={o})",
    "torch.prod({a}, -1, out={o})",
    "torch.addcmul({a}, {a}, {b}, out={o})",
    "torch.cat([{a}, {b}], out={o})",
    "torch.logsumexp({a}, 0, out={o})",
    "torch.var({a}, -1, out={o})",
    "torch.sigmoid({a}, out={o})",
]
# Ops that read other elements of an operand than the one that they write.
NOT_BY_ELEMENT = [
    *("scatter", "index_", ".T.", "[0] =", "cat(", "stack(", "gather(", "amax(", "argmax(", "any("),
    *("take(", "tril(", "put_("),
]
SAME_WIDTH = {
    1: ["int8", "uint8"],
    2: ["int16", "bfloat16", "float16"],
    4: ["int32", "float32"],
    8: ["int64", "float64"],
}


class Function:
    """``source`` defines f; ``make_arguments(seed)`` gives what it is called with."""

    def __init__(self, seed: int):
        self.seed = seed
        rng = random.Random(seed)
        self.rough = seed % 2 == 1
        self.inputs = [self._random_input(rng) for _ in range(rng.randint(1, 3))]
        self.statements: list[str] = []
        self._grow(rng, rng.randint(2, 9))

    def _random_input(self, rng):
        dtype = rng.choice(DTYPES[:4]) if self.rough else rng.choice(DTYPES)
        form = rng.choice(["", "", "", ".t()", "[::2]", "[..., 1:]", ".expand(2, *shape)"])
        return dtype, rng.choice(SIZES), form

    def make_arguments(self, seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [self._argument(generator, i, *given) for i, given in enumerate(self.inputs)]

    def _argument(self, generator, i, dtype, shape, form):
        if dtype == "bool":
            t = torch.rand(shape, generator=generator) < 0.5
        elif dtype.startswith(("int", "uint")):
            t = torch.randint(-5 if dtype != "uint8" else 0, 6, shape, generator=generator)
            t = t.to(getattr(torch, dtype))
        else:
            t = torch.randn(shape, generator=generator, dtype=torch.float64)
            if not self.rough:  # small eighths: sums and products of a few are exact in any float
                t = (t * 8).round() / 8
                if self.seed % 3 == 0 and t.numel() > 4:
                    odd = [float("nan"), float("inf"), -float("inf"), -0.0, 1e-40]
                    t.view(-1)[: len(odd)] = torch.tensor(odd, dtype=t.dtype)[: t.numel()]
            t = t.to(getattr(torch, dtype))
        try:
            return eval(f"t{form}", {"t": t, "shape": t.shape})
        except (RuntimeError, IndexError):
            return t

    def _grow(self, rng, count):
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            state = {"torch": torch, "float": float, "range": range, "abs": abs}
            for i, t in enumerate(self.make_arguments(0)):
                state[f"a{i}"] = t
            for _ in range(6 * count):
                if len(self.statements) >= count:
                    break
                self._try(rng, state)
            names = [n for n, v in state.items() if isinstance(v, torch.Tensor)]
        rng.shuffle(names)
        self.results = sorted(names[: rng.randint(1, 4)])

    def _try(self, rng, state):
        names = [n for n, v in state.items() if isinstance(v, torch.Tensor)]
        writes, outs, news = (
            (ROUGH_WRITES, ROUGH_OUT, ROUGH) if self.rough else (EXACT_WRITES, EXACT_OUT, EXACT)
        )
        kind = rng.choice([VIEWS, VIEWS, news, news, news, writes, writes, outs])
        template = rng.choice(kind)
        a, b, o = rng.choice(names), rng.choice(names), rng.choice(names)
        like = [n for n in names if state[n].shape == state[a].shape]
        if rng.random() < 0.6:
            b = rng.choice(like)
        if rng.random() < 0.5:
            o = rng.choice(like)
        if rng.random() < 0.25 and "{o}" in template:
            o = f"torch.empty(0, dtype=torch.{str(state[a].dtype)[6:]})"
        t = state[a]
        odd = [] if self.rough else ODD_NUMBERS
        masks = [n for n in names if state[n].dtype == torch.bool]
        rows = max(t.shape[0], 1) if t.dim() else 1
        width = SAME_WIDTH.get(t.element_size(), ["int8"])
        text = template.format(
            a=a,
            b=b,
            o=o,
            s=rng.choice(["1", "2", "0"]),
            p=rng.choice(["2", "4", "-2", "0.5"]),
            n=rng.choice(NUMBERS + (odd if rng.random() < 0.3 else [])),
            m=rng.choice(masks)
            if masks and rng.random() < 0.7
            else f"(torch.arange({max(t.shape[-1], 1) if t.dim() else 1}) % 2 == 0)",
            i=f"torch.tensor([{rng.randrange(rows)}, {rng.randrange(rows)}])"
            if rng.random() < 0.5
            else f"torch.tensor([{rng.randrange(rows)}])",
            g=f"torch.zeros({[min(2, s) for s in t.shape]}, dtype=torch.int64)",
            d=rng.choice(DTYPES),
            f=rng.choice(DTYPES[:4]),
            same=rng.choice(width),
        )
        if self._has_no_one_value(template, t, state[b]):
            return
        target, read = (a, (b,)) if kind is writes else (o, (a, b))
        if (
            kind in (writes, outs)
            and target in state
            and any(self._order_matters(template, state[target], state[x]) for x in read)
        ):
            return
        fresh = f"v{len(self.statements)}"
        statement = text if kind is writes else f"{fresh} = {text}"
        if self._runs([*self.statements, statement]):
            self.statements.append(statement)
            exec(statement, state)

    def _has_no_one_value(self, template, a, b) -> bool:
        """Whether correct implementations differ, and eager's from one lane of a vector to the
        next."""
        if ".view(torch." in template:  # the bits of a rounded number or of a NaN, a bool that is 7
            rounded = a.is_floating_point() and (self.rough or bool(a.isnan().any()))
            return rounded or a.dtype == torch.bool
        if "alpha=2" in template:  # eager rounds the product to half where no vector is full
            return b.dtype in (torch.float16, torch.bfloat16)
        # What is left of x - x, over its own size.
        return "layer_norm" in template and a.dim() > 0 and a.shape[-1] == 1

    def _order_matters(self, template, written, read) -> bool:
        """Whether the op may read an element after it was written, which is nobody's promise."""
        if written.untyped_storage()._cdata != read.untyped_storage()._cdata:
            return False
        places = [(t.data_ptr(), t.shape, t.stride()) for t in (written, read)]
        by_element = not any(word in template for word in NOT_BY_ELEMENT)
        return places[0] != places[1] or not by_element or (self.rough and "{o}" in template)

    def _runs(self, statements) -> bool:
        """In eager, on fresh arguments, twice alike: what reads memory that nobody wrote is left
        out."""
        try:
            seen = []
            for seed in (0, 1, 0):
                state = {"torch": torch}
                for i, t in enumerate(self.make_arguments(seed)):
                    state[f"a{i}"] = t
                for s in statements:
                    exec(s, state)
                tensors = [v for v in state.values() if isinstance(v, torch.Tensor)]
                if any(t.numel() > 60_000 or t.is_complex() for t in tensors):
                    return False
                seen.append(tensors)
            return all(_same(x, y) for x, y in zip(seen[0], seen[2]))
        except (
            RuntimeError,
            IndexError,
            TypeError,
            ValueError,
            NotImplementedError,
            AttributeError,
            OverflowError,
        ):
            return False

    @property
    def source(self) -> str:
        arguments = ", ".join(f"a{i}" for i in range(len(self.inputs)))
        lines = [f"def f({arguments}):", *(f"    {s}" for s in self.statements)]
        return "\n".join([*lines, f"    return ({', '.join(self.results)},)"]) + "\n"

    def text(self) -> str:
        return f"# seed {self.seed}, inputs {self.inputs}\n{self.source}"


def _same(a, b) -> bool:
    return (
        a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    )


def compile_source(source: str):
    import linecache

    name = f"<statements {hash(source) & 0xFFFFFFFF:x}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {"torch": torch}
    exec(compile(source, name, "exec"), scope)
    return scope["f"]


def difference(function: Function, compiled, seed: int) -> str | None:
    """What differs between a compiled call and eager's: results, arguments afterwards, layouts,
    shared memory."""
    f = compile_source(function.source)
    ours, theirs = function.make_arguments(seed), function.make_arguments(seed)
    expected = [*f(*theirs), *theirs]
    found = [*compiled(*ours), *ours]
    names = [*function.results, *(f"a{i} afterwards" for i in range(len(ours)))]
    for name, a, b in zip(names, expected, found):
        if a.dtype != b.dtype or a.shape != b.shape or a.stride() != b.stride():
            return f"{name}: {_form(b)}, in eager {_form(a)}"
        if not (_close(a, b) if function.rough else _same(a, b)):
            return f"{name}: {b.flatten()[:8].tolist()}, in eager {a.flatten()[:8].tolist()}"
    for i in range(len(expected)):
        for j in range(i):
            if _relation(expected[i], expected[j]) != _relation(found[i], found[j]):
                both = f"{names[j]} and {names[i]}"
                return f"{both} share memory, or do not, as in eager they do not, or do"
    return None


def _form(t) -> str:
    return f"{str(t.dtype)[6:]}{list(t.shape)} strides {t.stride()}"


def _close(a, b) -> bool:
    if not a.is_floating_point():
        return _same(a, b)
    # Half precision may have been met on the way, in what has another dtype now.
    scale = a.double().abs().nan_to_num(0, 0, 0).amax().item() if a.numel() else 0.0
    return torch.allclose(
        a.double(), b.double(), rtol=0.05, atol=0.05 * scale + 0.02, equal_nan=True
    )


def _relation(a, b):
    if a is b:
        return "same"
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return "apart"
    return a.storage_offset() - b.storage_offset()


def reduce(function: Function, fails) -> Function:
    """Leaves out statements and results while ``fails(function)`` stays true."""
    import copy

    def smaller():
        for i in reversed(range(len(function.statements))):
            one = copy.copy(function)
            one.statements = [s for j, s in enumerate(function.statements) if j != i]
            yield one
        for r in function.results if len(function.results) > 1 else []:
            one = copy.copy(function)
            one.results = [x for x in function.results if x != r]
            yield one

    def runs(one):
        try:
            with torch.no_grad():
                compile_source(one.source)(*one.make_arguments(0))
            return True
        except Exception:
            return False

    changed = True
    while changed:
        changed = False
        for one in smaller():
            if runs(one) and fails(one):
                function, changed = one, True
                break
    return function
