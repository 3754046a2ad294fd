"""Written-out attention in the forms that models use: fused where the scores are large, gemms where
they are small."""

import math

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

LONG, SHORT = 1700, 20  # positions of 3 heads: scores of 35 MB, and of nothing


def plain(q, k, v):
    return torch.matmul(q, k.transpose(-2, -1)).div(8.0).softmax(dim=-1).matmul(v)


def multiplied(q, k, v):
    return torch.matmul(q, k.transpose(-2, -1)).mul(0.125).softmax(dim=-1).matmul(v)


def unscaled(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v


def dropout_in_inference(q, k, v):
    return F.dropout(torch.softmax(q @ k.mT / 8.0, -1), p=0.1, training=False) @ v


def scaled_query(q, k, v):
    return torch.softmax((q / math.sqrt(q.shape[-1])) @ k.mT, -1) @ v


def permuted(q, k, v):
    q, k, v = (x.permute(0, 2, 1, 3) for x in (q, k, v))
    return torch.matmul(q, k.transpose(-1, -2)).div(8.0).softmax(-1).matmul(v)


def three_dimensional(q, k, v):
    q, k, v = (x.reshape(-1, x.shape[-2], x.shape[-1]) for x in (q, k, v))
    return torch.bmm(torch.bmm(q, k.mT).mul(0.125).softmax(-1), v)


def masked(q, k, v, mask):
    return torch.softmax(q @ k.mT / 8.0 + mask, dim=-1) @ v


def masked_permuted(q, k, v, mask):
    q, k, v = (x.permute(0, 2, 1, 3) for x in (q, k, v))
    scores = torch.matmul(q, k.transpose(-2, -1)).div(8.0)
    return (mask + scores).softmax(-1).matmul(v).permute(0, 2, 1, 3).reshape(1, -1, 48)


def added_three_dimensional(q, k, v, mask):
    q, k, v = (x.reshape(-1, x.shape[-2], x.shape[-1]) for x in (q, k, v))
    return torch.bmm(torch.softmax(torch.bmm(q, k.mT) + mask[0], -1), v)


def heads_first(length):
    return [torch.randn(1, 3, length, 16) for _ in range(3)]


def heads_second(length):
    return [torch.randn(1, length, 3, 16) for _ in range(3)]


def targets(fn, *inputs):
    compiled = oxyfuel.compile(fn)
    with torch.no_grad():
        expected, got = fn(*inputs), compiled(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert got.stride() == expected.stride()
    assert oxyfuel.stats()["fallbacks"] == 0
    return oxyfuel.stats()["extern_calls"]


PLAIN = [
    (plain, heads_first),
    (multiplied, heads_first),
    (unscaled, heads_first),
    (dropout_in_inference, heads_first),
    (scaled_query, heads_first),
    (permuted, heads_second),
    (three_dimensional, heads_first),
]
MASKED = [
    (masked, heads_first, (1, 1, 1, 0)),
    (masked, heads_first, (1, 1, 0, 0)),
    (masked, heads_first, (0, 0)),
    (masked, heads_first, (0,)),
    (masked, heads_first, (1, 3, 0, 0)),
    (masked_permuted, heads_second, (1, 1, 0, 0)),
    (added_three_dimensional, heads_first, (1, 3, 1, 0)),
]


@pytest.mark.parametrize("length,calls", [(LONG, 1), (SHORT, 0)])
@pytest.mark.parametrize("fn,inputs", PLAIN, ids=lambda f: f.__name__)
def test_forms(fn, inputs, length, calls):
    assert targets(fn, *inputs(length)) == calls


@pytest.mark.parametrize("length,calls", [(LONG, 1), (SHORT, 0)])
@pytest.mark.parametrize("fn,inputs,shape", MASKED)
def test_masks(fn, inputs, shape, length, calls):
    mask = torch.randn([n or length for n in shape])
    assert targets(fn, *inputs(length), mask) == calls


@pytest.mark.parametrize("length", [LONG, SHORT])
def test_a_row_that_is_masked_as_a_whole_is_nan(length):
    mask = torch.zeros(1, 1, length, length)
    mask[..., 3, :] = -math.inf
    mask[..., 5, 2:] = -math.inf
    targets(masked, *heads_first(length), mask)


def test_scores_that_are_returned_stay():
    def with_shares(q, k, v):
        shares = torch.softmax(q @ k.mT, -1)
        return shares @ v, shares

    q, k, v = heads_first(LONG)
    compiled = oxyfuel.compile(with_shares)
    with torch.no_grad():
        for a, b in zip(compiled(q, k, v), with_shares(q, k, v)):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert oxyfuel.stats()["extern_calls"] == 0


def test_booleans_and_bf16_stay_as_written():
    def selected(q, k, v, mask):
        return torch.softmax((q @ k.mT).masked_fill(mask, -math.inf), -1) @ v

    causal = torch.ones(LONG, LONG, dtype=torch.bool).triu(1)
    assert targets(selected, *heads_first(LONG), causal) == 0


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "masked row", "scale", "permuted"])
def test_small_attention_by_the_op(kind, batch):
    q, k, v = (torch.randn(batch, 4, 23, 16) for _ in range(3))
    options = {}
    if kind == "causal":
        options["is_causal"] = True
    elif kind == "scale":
        options["scale"] = 0.3
    elif kind == "permuted":
        q, k, v = (torch.randn(batch, 23, 4, 16).transpose(1, 2) for _ in range(3))
    elif kind.startswith("mask"):
        mask = torch.randn(batch, 1, 23, 23)
        if kind == "masked row":
            mask[0, 0, 7] = -math.inf
        options["attn_mask"] = mask

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **options)

    calls = targets(attention, q, k, v)
    assert calls == 0


def test_queries_and_keys_of_different_lengths():
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = torch.randn(1, 2, 9, 16), torch.randn(1, 2, 30, 16), torch.randn(1, 2, 30, 16)
    assert targets(attention, q, k, v) == 0
    oxyfuel.reset()
    q = torch.randn(1, 2, 40, 16)
    assert targets(attention, q, k, v) == 0


@pytest.mark.parametrize("dynamic", (None, True))
def test_a_permuted_query_with_a_mask_of_another_argument(monkeypatch, dynamic):
    """The op lays its result out as the query lies, which here is a copy."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    torch.manual_seed(0)
    keys, weight = torch.randn(1, 2, 8, 4), torch.randn(8, 24)

    def decode(x, places):
        q, _, _ = (x @ weight).view(1, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mask = torch.arange(8)[None, :] <= places[:, None]
        return F.scaled_dot_product_attention(q, keys, keys, attn_mask=mask)

    compiled = oxyfuel.compile(decode, dynamic=dynamic)
    for length in (3, 4, 1, 7):
        x, places = torch.randn(1, length, 8), torch.arange(length)
        result, expected = compiled(x, places), decode(x, places)
        torch.testing.assert_close(result, expected)
        assert length == 1 or result.stride() == expected.stride()
