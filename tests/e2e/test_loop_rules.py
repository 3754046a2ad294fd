"""Compiled calls of ops with loop rules against eager: values, strides and dtypes, in the layouts
that callers have.

Every call must run without an extern call where the table says that it has a loop.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def layouts(x: torch.Tensor):
    """The tensor, and the same values lying differently."""
    yield x
    wide = torch.empty([2 * n for n in x.shape], dtype=x.dtype)
    holes = wide[tuple(slice(None, None, 2) for _ in x.shape)]
    yield holes.copy_(x)
    yield x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if x.dim() == 4:
        yield x.contiguous(memory_format=torch.channels_last)


def eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def check(f, *args, tolerance: float = 2e-6, loops: bool = True, **options) -> None:
    """`f` of the arguments, compiled and in eager."""
    oxyfuel.reset()
    compiled = oxyfuel.compile(f, options={"strict": True, **options})
    with torch.no_grad():
        expected = f(*args)
        for _ in range(2):
            got = compiled(*args)
            pairs = zip(got, expected) if isinstance(expected, tuple) else [(got, expected)]
            for a, b in pairs:
                assert a.dtype == b.dtype and a.stride() == b.stride()
                loose = tolerance and max(tolerance, 2 * eps(b.dtype))
                loose = loose if b.is_floating_point() else 0.0
                torch.testing.assert_close(a, b, rtol=loose, atol=loose, equal_nan=True)
    assert not loops or oxyfuel.stats()["extern_calls"] == 0


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_functions(dtype):
    for x in layouts(torch.randn(5, 33).to(dtype)):
        y = x.flip(0)
        check(torch.sinc, x)
        check(torch.special.entr, x)
        check(torch.special.xlog1py, x, y)
        check(torch.logaddexp2, x, y)
        check(lambda a: torch.round(a, decimals=2), x)
        check(lambda a: (torch.isposinf(a / 0), torch.isneginf(a / 0), torch.angle(a)), x)
        check(lambda a: F.celu(a, 0.7), x)
        check(lambda a: torch.deg2rad(a) + torch.rad2deg(a), x)
        check(torch.nextafter, x, y, loops=dtype in (torch.float32, torch.float64))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_losses(dtype, reduction):
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
    for x in layouts(torch.randn(7, 19).to(dtype)):
        y = torch.rand(7, 19).to(dtype)
        losses = (
            F.mse_loss,
            F.smooth_l1_loss,
            F.huber_loss,
            F.soft_margin_loss,
            F.binary_cross_entropy_with_logits,
            lambda a, b, **of: F.binary_cross_entropy(a.sigmoid(), b, **of),
            lambda a, b, **of: F.binary_cross_entropy(a.sigmoid().round(), b, b[0], **of),
        )
        for loss in losses:
            check(lambda a, b, f=loss: f(a, b, reduction=reduction), x, y, tolerance=tolerance)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy(reduction):
    target = torch.tensor([1, 4, -100, 0, 18, 3, 3])
    weight = torch.rand(19)
    for x in layouts(torch.randn(7, 19)):
        check(lambda a, t: F.cross_entropy(a, t, reduction=reduction), x, target)
        check(lambda a, t, w: F.nll_loss(a, t, w, reduction=reduction), x, target, weight)
    for x in layouts(torch.randn(2, 5, 6, 7)):
        check(
            lambda a, t: F.cross_entropy(a, t, reduction=reduction),
            x,
            torch.randint(0, 5, (2, 6, 7)),
        )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_binary_cross_entropy_raises_outside_of_0_to_1(reduction):
    def loss(x, y):
        return F.binary_cross_entropy(x, y, reduction=reduction) * 2

    def unused(x, y):
        F.binary_cross_entropy(x, y, reduction=reduction)
        return x * 2

    x, y = torch.rand(7, 19), torch.rand(7, 19)
    for f in (loss, unused):
        compiled = oxyfuel.compile(f, options={"strict": True})
        torch.testing.assert_close(compiled(x, y), f(x, y))
        for wrong in (-0.001, 1.001, float("nan"), float("inf")):
            for one, other in ((wrong, 0.5), (0.5, wrong)):
                with pytest.raises(RuntimeError, match="between 0 and 1"):
                    compiled(
                        x.index_fill(0, torch.tensor(5), one),
                        y.index_fill(0, torch.tensor(5), other),
                    )


def test_cross_entropy_out_of_range():
    x = torch.randn(7, 19)
    compiled = oxyfuel.compile(F.cross_entropy, options={"strict": True})
    compiled(x, torch.arange(7))
    for wrong in (19, -1, 1 << 40):
        target = torch.arange(7).index_fill(0, torch.tensor([5]), wrong)
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(x, target)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8])
def test_moves(dtype):
    for x in layouts(torch.randint(0, 9, (2, 8, 6, 20)).to(dtype)):
        for mode in ("reflect", "replicate"):
            check(lambda a, m=mode: F.pad(a, (3, 1, 0, 4), mode=m), x)
        check(lambda a: F.pixel_shuffle(a, 2), x)
        check(lambda a: F.pixel_unshuffle(a, 2), x)
        check(lambda a: F.channel_shuffle(a, 4), x)
        check(lambda a: torch.native_channel_shuffle(a, 4), x)
        check(lambda a: (torch.rot90(a, 1, [2, 3]), torch.rot90(a, -2, [1, 3])), x)
        scatter, part = lambda a, b: torch.diagonal_scatter(a, b, 1, 2, 3), x[..., 0, :6].clone()
        # Its result has the gaps of its input.
        check(scatter, x, part, loops=scatter(x, part).untyped_storage().nbytes() == x.nbytes)
        check(lambda a: torch.narrow_copy(a, 1, 2, 5), x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_windows(dtype):
    for x in layouts(torch.randn(2, 4, 18, 24).to(dtype)):
        check(lambda a: F.max_pool2d(a, 3, 2, 1), x)
        check(lambda a: F.max_pool2d(a, 3, 2, 1, ceil_mode=True, return_indices=True), x)
        check(lambda a: F.max_pool2d(a, (2, 3), dilation=2), x)
        check(lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), x)
        check(lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True), x)
        check(lambda a: F.adaptive_avg_pool2d(a, (9, 6)), x)
        check(lambda a: F.interpolate(a, scale_factor=2), x)
        check(lambda a: F.interpolate(a, scale_factor=3, mode="nearest-exact"), x)
        check(lambda a: F.unfold(a, 3, padding=1, stride=2), x)
        check(lambda a: F.relu(F.max_pool2d(a * 2, 2)) + 1, x)
    odd = torch.randn(2, 3, 20, 20)
    odd[0, :, ::3, ::2] = float("nan")
    odd[1, :, :8] = -float("inf")
    check(lambda a: F.max_pool2d(a, 3, 2, 1, return_indices=True), odd.to(dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8, torch.bool])
def test_scans(dtype):
    """Exactly eager's numbers: one order of additions, in ATen's accumulator."""
    for shape in ((6, 70), (5, 2100), (3, 4, 50), (7, 3, 9), (70, 83), (3, 30, 33)):
        for x in layouts((torch.randn(shape) * 3).to(dtype)):
            for dim in range(len(shape)):
                check(lambda a, d=dim: torch.cumsum(a, d), x, tolerance=0)
                check(lambda a, d=dim: torch.cumprod(a, d), x, tolerance=0)
    x = torch.randn(9, 33).to(dtype)
    check(lambda a: torch.cumsum(a, 1, dtype=torch.float64), x, tolerance=0)
    check(lambda a: (a.float() * 2 + 1).cumsum(0).relu() - 1, x)
    check(lambda a: a.t().cumsum(0).cumsum(1), x)
    check(lambda a: torch.cumsum(a[3:3], 1), x)
    check(lambda a: torch.cumsum(a.flatten(), 0), x, tolerance=0, loops=False)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8, torch.bool])
def test_scans_of_transposed_rows(dtype):
    """The lanes are the rows whose loads are contiguous."""
    x, mask = (torch.randn(4, 45, 37) * 3).to(dtype), torch.rand(4, 45, 37) < 0.5
    for order in ((0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0)):
        for dim in range(3):
            a, m = x.permute(order), mask.permute(order)
            check(lambda a, d=dim: torch.cumsum(a, d), a, tolerance=0)
            check(lambda a, m, d=dim: torch.where(m, a, 1).cumprod(d), a, m, tolerance=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("repeated", [1, 3, 40])
def test_floating_point_to_integers(dtype, repeated):
    """What does not fit too: it gives what the machine's conversion gives, cut to the type."""
    few = [
        0.0,
        -0.0,
        1.5,
        -1.5,
        127.9,
        128.0,
        255.9,
        256.0,
        -128.9,
        -129.0,
        300.7,
        32767.5,
        4e4,
        -4e4,
    ]
    x = torch.tensor(few)
    powers = [2.0**k for k in (16, 31, 32, 33, 62, 63, 64, 100)]
    far = torch.tensor([*powers, *(p * 0.999 for p in powers), 3e9, float("inf"), float("nan")])
    for values in (x, torch.cat((x, far, -far))):
        values = values.repeat(repeated).to(dtype)
        for to in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
            check(lambda a, to=to: a.to(to), values)


OF_BYTES = {
    "compare": lambda a, b: (a < b, a >= b, a == b, a != b.flip(0)),
    "masks": lambda a, b: ((a > 0) & ~(b <= 1) | (a == b)) ^ (b > a),
    "arithmetic": lambda a, b: (a + b, torch.maximum(a, b), torch.minimum(a, b)),
    "where": lambda a, b: torch.where(a > b, a, b + b),
    "other types": lambda a, b: ((a > b).to(a.dtype), a.bool() | b.bool(), a.to(torch.int8) > 3),
}


@pytest.mark.parametrize("vectors", [-1, 32, 0])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.bool], ids=str)
@pytest.mark.parametrize("name", OF_BYTES)
def test_bytes(name, dtype, vectors):
    """Vectors of them fill registers, where nothing else is in a kernel."""
    compiled = oxyfuel.compile(OF_BYTES[name], options={"strict": True, "vector_bytes": vectors})
    draw = lambda *sizes: torch.randint(-100, 100, sizes).to(dtype)
    pairs = [(draw(n), draw(n)) for n in (0, 1, 31, 64, 203)]
    pairs += [(draw(9, 70), draw(70)), (draw(70, 9).t(), draw(9, 70)), (draw(), draw())]
    pairs += [(draw(9, 140)[:, ::2], draw(9, 73)[:, 3:]), (draw(9, 1), draw(1, 70))]
    for a, b in pairs:
        found, wanted = compiled(a, b), OF_BYTES[name](a, b)
        found, wanted = (r if isinstance(r, tuple) else (r,) for r in (found, wanted))
        assert all(torch.equal(f, w) for f, w in zip(found, wanted, strict=True))
        assert [f.stride() for f in found] == [w.stride() for w in wanted]


CHOICES = {
    "copysign": lambda a, b: (torch.copysign(a, b), torch.copysign(a.exp(), b) * 2),
    "copysign of numbers": lambda a, b: (torch.copysign(a, -0.0), torch.copysign(b, 3)),
    "relu": lambda a, b: a.relu(),
    "sign bit": lambda a, b: (-a, a.abs(), (-a).abs().neg()),
    "clamp": lambda a, b: (a.clamp(-1.5, 2), a.clamp(max=0.1)),
    "extremes": lambda a, b: (torch.maximum(a, b), torch.minimum(-a, b.abs())),
    "where": lambda a, b: torch.where(a > b, a, -b),
    "behind arithmetic": lambda a, b: torch.maximum(a + b, -b),
    "pool": lambda a, b: torch.nn.functional.max_pool1d(a.view(1, 256, 256), 3, 2, 1),
    "adaptive pool": lambda a, b: torch.nn.functional.adaptive_max_pool1d(b.view(1, 256, 256), 50),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CHOICES)
def test_choices_among_all_halves(name, dtype):
    """They have the bits of one operand: every number, infinities and NaNs among them."""
    function, every = CHOICES[name], torch.arange(-(2**15), 2**15).to(torch.int16)
    a, b = every.view(dtype), every.roll(12345).view(dtype)
    found, wanted = oxyfuel.compile(function)(a, b), function(a, b)
    for f, w in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)), strict=True):
        assert torch.equal(f.isnan(), w.isnan())
        assert torch.equal(f.nan_to_num(0).view(torch.int16), w.nan_to_num(0).view(torch.int16))


UNARY = [
    "sin",
    "tan",
    "asin",
    "acosh",
    "atanh",
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sigmoid",
    "tanh",
    "erf",
    "erfinv",
    "digamma",
    "lgamma",
    "floor",
    "sign",
    "i0",
    "isinf",
    "isnan",
    "neg",
    "square",
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_functions_of_masks(dtype):
    """Kernels compute them of two numbers."""
    torch.manual_seed(0)
    m, n, x = torch.rand(3, 45) > 0.5, torch.rand(3, 45) > 0.5, torch.randn(3, 45).to(dtype)
    for name in UNARY:
        f = getattr(torch, name)
        check(lambda m, f=f: f(m.to(dtype)), m, loops=False)
        check(lambda m, x, f=f: f(m.to(dtype)) * x, m, x, loops=False)
    check(lambda m: (1 - m.to(dtype)) * torch.finfo(dtype).min, m)
    check(lambda m, n: (m.to(dtype) + n.to(dtype)).exp() * m.to(dtype), m, n)
    check(lambda m, x: torch.where(m.to(dtype).log() < -1, x, m.to(dtype).exp()), m, x)
    check(lambda m, x: torch.softmax((1 - m.to(dtype)) * -10 + x, -1), m, x)
    check(lambda m: torch.where(m, 2.0, -3.0).to(dtype).pow(3).sum(-1), m, tolerance=1e-2)
    check(lambda m: torch.where(m, 2, 0).to(dtype).reciprocal().cumsum(-1).isinf(), m)
    check(lambda m: m.to(dtype).log().amax(0), m)
    check(lambda m: torch.special.zeta(2 + m.float(), 1.5), m)


def test_quotients_of_masks():
    """By what may be 0: eager raises where it is."""
    all_hold = torch.ones(45, dtype=torch.bool)
    f = oxyfuel.compile(lambda m: 7 // m.long())
    assert torch.equal(f(all_hold), torch.full((45,), 7))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        f(~all_hold)


def test_scan_in_place():
    x = torch.randn(8, 40)
    for dim in (0, 1):
        expected, got = x.clone(), x.clone()
        expected.cumsum_(dim)
        oxyfuel.compile(lambda a, d=dim: a.cumsum_(d), options={"strict": True})(got)
        assert torch.equal(got, expected)


def test_scan_of_selected_rows():
    """The operand is a gather, whose indices are checked."""
    x, rows = torch.randn(9, 8), torch.tensor([3, 1, 8, 0])
    f = lambda a, i: torch.cumsum(torch.index_select(a, 0, i), 0)
    check(f, x, rows)
    compiled = oxyfuel.compile(f)
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, torch.tensor([3, 1, 9, 0]))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("n", [5, 16, 45])
def test_selections_of_what_bits_are_made_of(n, dtype):
    torch.manual_seed(0)
    a, b = torch.randint(0, 120, (2, n)).to(dtype)
    m = torch.rand(n) > 0.5
    check(lambda a, b, m: torch.where(m, a, (a & 5) | (b & ~5)), a, b, m)
    check(lambda a, b, m: torch.where(m, (a & 5) | (b & ~5), b), a, b, m)


@pytest.mark.parametrize("n", [5, 16, 45])
def test_selections_of_signs(n):
    torch.manual_seed(0)
    x, y = torch.randn(2, n)
    check(lambda x, y: torch.where(x > y, x, torch.copysign(y, x)), x, y)
    check(lambda x, y: torch.maximum(y, torch.copysign(x, y)), x, y)


@pytest.mark.parametrize("seed", range(4))
def test_quotients_are_correctly_rounded(seed):
    """Rows divided by one number each: all sizes, and mantissas next to powers of two, where
    rounding is hard."""
    generator = torch.Generator().manual_seed(seed)

    def bits(shape, exponents, mantissas):
        sign = torch.randint(0, 2, shape, generator=generator)
        exponent = torch.randint(*exponents, shape, generator=generator)
        return ((sign << 31) | (exponent << 23) | mantissas).to(torch.int32).view(torch.float32)

    def numbers(*shape):
        return torch.randint(0, 1 << 23, shape, generator=generator)

    x = bits((256, 1000), (60, 195) if seed % 2 else (0, 256), numbers(256, 1000))
    d = bits((256, 1), (60, 195), numbers(256, 1) | (0x7FF000 if seed // 2 else 0))
    odd = [0.0, -0.0, 2.0**-60, -(2.0**-61), 2.0**60, 1e-45, 3e38, float("inf"), float("nan")]
    x[:9, :9], d[:9, 0] = torch.tensor(odd), torch.tensor(odd)
    with torch.no_grad():
        got, expected = oxyfuel.compile(lambda x, d: x / d)(x, d), x / d
    same = got.view(torch.int32) == expected.view(torch.int32)
    assert bool((same | (got.isnan() & expected.isnan())).all())
