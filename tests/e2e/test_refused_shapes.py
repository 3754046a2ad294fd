"""Calls on which eager raises for the shapes and windows that it is given: so does what is
compiled, also where nothing reads the result, and with sizes that vary."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

LONG = torch.int64
LENGTHS = torch.tensor([5, 5]), torch.tensor([2, 2])


def long(*sizes):
    return torch.zeros(sizes, dtype=LONG)


def convolved(transposed=False, dims=2, **options):
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    return lambda x: getattr(F, name)(
        x.expand(2, 3, *[6] * dims), x.new_ones(3, 3, *[3] * dims), **options
    )


def ctc(t=5, lengths=LENGTHS[0], of_targets=LENGTHS[1]):
    return lambda x: F.ctc_loss(
        x.new_ones(t, 2, 4).log_softmax(2), torch.ones(2, 2, dtype=LONG), lengths, of_targets
    )


CALLS = {
    **{
        f"{'transposed ' * transposed}{dims}d {options}": convolved(transposed, dims, **options)
        for transposed in (False, True)
        for dims in (1, 2, 3)
        for options in (
            {"stride": 0}, {"padding": -1}, {"dilation": 0}, {"groups": 2}, {"groups": 0},
            {"stride": (1,) * (dims + 1)}, {"padding": (1,) * (dims + 1)},
            {"bias": torch.ones(4)}, {"bias": torch.ones(3, 1)}, {"bias": torch.ones(3)},
            {"stride": 2, "padding": 1},
        )
    },
    **{
        f"transposed {dims}d {options}": convolved(True, dims, **options)
        for dims in (1, 2, 3)
        for options in (
            {"output_padding": 1}, {"output_padding": -1}, {"stride": 2, "output_padding": 2},
            {"stride": 2, "output_padding": 1}, {"dilation": 2, "output_padding": 1},
        )
    },
    "transposed channels": lambda x: F.conv_transpose1d(x.expand(2, 3, 6), x.new_ones(2, 4, 3)),
    "adaptive pool": lambda x: F.adaptive_avg_pool3d(x.new_ones(2, 0, 4, 4, 4), 2),
    "max_pool3d of channels that lie last, without a batch": lambda x: F.max_pool3d(
        x.expand(2, 3, 4, 6).contiguous(memory_format=torch.channels_last), 2
    ),
    "logits of integers": lambda x: F.binary_cross_entropy_with_logits(
        x, x.to(LONG), reduction="none"
    ),
    "integers as logits": lambda x: F.binary_cross_entropy_with_logits(x.to(LONG), x),
    "logits of bools": lambda x: F.binary_cross_entropy_with_logits(x, x > 0, reduction="none"),
    "soft margin": lambda x: F.soft_margin_loss(x.to(LONG), x.to(LONG)),
    "ctc of long inputs": ctc(lengths=torch.tensor([6, 5])),
    "ctc of long targets": ctc(of_targets=torch.tensor([3, 2])),
    "ctc of few lengths": ctc(lengths=torch.tensor([5])),
    "ctc": ctc(),
    "layer norm": lambda x: F.layer_norm(x.expand(4, 6), (4, 6), x.new_ones(6)),
    "layer norm of few": lambda x: F.layer_norm(x.expand(4, 6), (6,), x.new_ones(4)),
    "unfold": lambda x: F.unfold(x.expand(1, 2, 6, 6), 2, padding=-1),
    "dropout of attention": lambda x: F.scaled_dot_product_attention(
        *[x.expand(1, 2, 4, 6)] * 3, dropout_p=-0.1
    ),
    "celu": lambda x: F.celu(x, 0.0),
    **{
        f"gather {sizes} along {dim}": lambda x, s=sizes, d=dim: x.expand(4, 6).gather(d, long(*s))
        for sizes in ((5, 6), (4, 7), (2, 2), (0, 9))
        for dim in (0, 1, -1)
    },
    "index_reduce": lambda x: x.new_ones(0, 5).index_reduce(2, long(2), x.new_ones(0, 5), "amax"),
    "masked_scatter": lambda x: x[0].masked_scatter(torch.ones(2, dtype=torch.uint8), x),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 1), -1),
    "pinv": lambda x: torch.linalg.pinv(x.expand(6, 6) * float("nan")),
    "pivots": lambda x: torch.linalg.lu(x.new_ones(3, 3), pivot=False),
    "lu_factor": lambda x: torch.linalg.lu_factor(x.new_ones(3, 3), pivot=False),
    "addmm": lambda x: torch.addmm(x.new_ones(3, 3, 1), x.new_ones(3, 3), x.new_ones(3, 3)),
    "addmv": lambda x: torch.addmv(x.new_ones(3, 1), x.new_ones(3, 3), x.new_ones(3)),
    **{
        f"{name} of {n} rows": lambda x, name=name, sizes=sizes, n=n: getattr(torch, name)(
            x.new_ones(n, *sizes[0][1:]), *(x.new_ones(s) for s in sizes[1:])
        )
        for name, *sizes in (
            ("addmm", (3, 3), (3, 6), (6, 3)), ("addmv", (3,), (3, 6), (6,)),
            ("addr", (3, 3), (3,), (3,)), ("baddbmm", (2, 3, 3), (2, 3, 6), (2, 6, 3)),
            ("addbmm", (3, 3), (2, 3, 6), (2, 6, 3)),
        )
        for n in (0, 1, 2, 3, 7)
    },
    "least of nothing": lambda x: torch.linalg.vector_norm(x[:0], -1),
    "most of nothing": lambda x: torch.linalg.vector_norm(x[:0], float("inf")),
    "norm of nothing": lambda x: torch.linalg.vector_norm(x[:0]),
    "norms of nothing": lambda x: torch.linalg.vector_norm(x.new_ones(0, 3), -1, dim=1),
    "narrower norm": lambda x: torch.linalg.vector_norm(x, dtype=torch.float16),
    "wider norm": lambda x: torch.linalg.vector_norm(x, dtype=torch.float64),
    "norm of integers": lambda x: torch.linalg.vector_norm(x.to(LONG), dtype=torch.float32),
    "fft of nothing": lambda x: torch.fft.rfft(x.new_ones(0, 4)),
    "ifft of nothing": lambda x: torch.fft.ifft(x.new_ones(0, 4)),
    "tril_indices": lambda x: torch.tril_indices(3, 3, dtype=torch.uint8),
    "triu_indices": lambda x: torch.triu_indices(3, 3, dtype=torch.int32),
    **{
        f"{name} of {dtype}": lambda x, name=name, dtype=dtype: getattr(torch, name)(4, dtype=dtype)
        for name in ("hann_window", "hamming_window", "bartlett_window", "kaiser_window")
        for dtype in (LONG, torch.complex64, torch.float64)
    },
}  # fmt: skip


def kind_of_error(function, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(x)
        except Exception as e:
            return type(e)
    return None


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_refused(name, dynamic, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    call, x = CALLS[name], torch.ones(6)

    def unread(x):
        call(x)
        return x.clone()

    for f in (call, unread):
        expected = kind_of_error(f, x)
        assert kind_of_error(oxyfuel.compile(f, dynamic=dynamic), x) == expected


@pytest.mark.parametrize("shape", [(6, 1), (2, 3)])
@pytest.mark.parametrize("training", [False, True])
def test_a_weight_of_other_dimensions_for_a_batch_norm(training, shape):
    def f(x, w):
        mean, variance = torch.zeros(6), torch.ones(6)
        return F.batch_norm(x, mean, variance, w, w, training), mean, variance

    x, w = torch.randn(2, 6, 4), torch.randn(shape)
    expected = f(x, w)
    torch.testing.assert_close(oxyfuel.compile(f, options={"strict": True})(x, w), expected)


@pytest.mark.parametrize("queries", [1, 4])
def test_attention_with_more_values_than_keys(queries):
    """Eager's op takes it, and gives what lies there in memory."""
    inputs = [torch.randn(2, 2, n, 8) for n in (queries, 4, 5)]
    compiled = oxyfuel.compile(F.scaled_dot_product_attention, options={"strict": True})
    assert compiled(*inputs).shape == inputs[0].shape


def test_an_index_that_becomes_larger_than_what_it_selects_of():
    compiled = oxyfuel.compile(torch.gather, dynamic=True)
    x = torch.randn(4, 5)
    for sizes in ((3, 5), (4, 9), (5, 5), (2, 5)):
        index = long(*sizes)
        expected = kind_of_error(lambda i: x.gather(1, i), index)
        assert kind_of_error(lambda i: compiled(x, 1, i), index) == expected
