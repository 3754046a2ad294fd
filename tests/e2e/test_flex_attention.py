"""torch's flex_attention: one graph, and the numbers of eager, which makes all scores."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    flex_attention,
    or_masks,
)

import oxyfuel

pytestmark = [
    pytest.mark.usefixtures("strict_without_grad"),
    pytest.mark.filterwarnings("ignore:flex_attention called without"),
]

HEADS, FEW, MANY = 4, 70, 420  # queries and keys; MANY are met a block at a time
SLOPES = torch.tensor([0.5, 0.25, 0.0625, 0.0])
DOCUMENTS = torch.tensor([0, 1, 1, 2, 4, 4]).repeat_interleave(MANY // 6)
TABLE = torch.linspace(-1, 1, HEADS * 2 * MANY).view(HEADS, 2 * MANY)

SCORES = {
    "plain": None,
    "relative": lambda s, b, h, q, k: s + (q - k),
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "table": lambda s, b, h, q, k: s + TABLE[h, q - k + MANY],
    "rows of a table": lambda s, b, h, q, k: s * TABLE[h][q + k],
    "softcap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
    "masking": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
    "first of a table": lambda s, b, h, q, k: s + TABLE[0, k] + b,
}


def causal(b, h, q, k):
    return q >= k


def near(b, h, q, k):
    return (q - k).abs() < 30 * (h + 1)


def of_documents(b, h, q, k):
    return DOCUMENTS[q] == DOCUMENTS[k]


MASKS = {
    "none": None,
    "causal": causal,
    "window": lambda b, h, q, k: (q - k).abs() <= 20,
    "documents": and_masks(causal, of_documents),
    "prefix": or_masks(causal, lambda b, h, q, k: k < 100),
    "rows of nothing": lambda b, h, q, k: (q % 3 > 0) & (k < q),
    "nothing": lambda b, h, q, k: k < 0,
}


def operands(length=MANY, keys=None, dtype=torch.float32, batch=2, key_heads=HEADS, turned=False):
    torch.manual_seed(length)

    def made(heads, count, size):
        if turned:
            return torch.randn(batch, count, heads, size).transpose(1, 2).to(dtype)
        return torch.randn(batch, heads, count, size).to(dtype)

    keys = keys or length
    return made(HEADS, length, 16), made(key_heads, keys, 16), made(key_heads, keys, 24)


def mask_of(mask, length, keys=None, batch=None, heads=None, block=128):
    if mask is None:
        return None
    sizes = (batch, heads, length, keys or length)
    return create_block_mask(mask, *sizes, device="cpu", BLOCK_SIZE=block)


def check(f, given, dynamic=None, rtol=2e-4, atol=2e-5):
    expected = f(*given)
    before = oxyfuel.stats()
    compiled = oxyfuel.compile(f, fullgraph=True, dynamic=dynamic)
    result = compiled(*given)
    after = oxyfuel.stats()
    assert after["graphs"] == before["graphs"] + 1
    torch.testing.assert_close(result, expected, rtol=rtol, atol=atol)
    assert result.stride() == expected.stride()
    return compiled


@pytest.mark.parametrize("length", [FEW, MANY])
@pytest.mark.parametrize("score", SCORES)
def test_functions_of_scores(score, length):
    mask = mask_of(causal, length)
    check(lambda q, k, v: flex_attention(q, k, v, SCORES[score], mask), operands(length))


@pytest.mark.parametrize("length", [FEW, MANY])
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask, length):
    blocks = mask_of(MASKS[mask], length)
    check(lambda q, k, v: flex_attention(q, k, v, SCORES["alibi"], blocks), operands(length))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [FEW, MANY])
def test_dtypes(dtype, length):
    blocks = mask_of(causal, length)
    tolerance = {} if dtype == torch.float64 else {"rtol": 2e-2, "atol": 2e-2}
    given = operands(length, dtype=dtype)
    check(lambda q, k, v: flex_attention(q, k, v, SCORES["relative"], blocks), given, **tolerance)


@pytest.mark.parametrize(
    ("form", "mask"),
    [
        ({"keys": 300}, {}),
        ({"length": 130, "keys": 3000}, {}),
        ({"turned": True}, {}),
        ({"key_heads": 2}, {}),
        ({"key_heads": 1, "turned": True}, {}),
        ({"batch": 1}, {"block": 256}),
        ({"keys": 290}, {"block": 256}),
        ({}, {"block": 64}),
        ({}, {"block": 192}),
        ({}, {"block": (64, 128)}),
        ({}, {"batch": 2, "heads": HEADS}),
        ({"key_heads": 2}, {"heads": HEADS}),
    ],
)
def test_forms(form, mask):
    length, keys = form.get("length", MANY), form.get("keys")
    blocks = mask_of(near, length, keys, **{"heads": HEADS, **mask})
    shared = form.get("key_heads", HEADS) != HEADS

    def f(q, k, v):
        return flex_attention(q, k, v, SCORES["alibi"], blocks, scale=0.3, enable_gqa=shared)

    check(f, operands(**form))


@pytest.mark.parametrize("length", [FEW, MANY])
@pytest.mark.parametrize("form", [{"batch": 3}, {"heads": 2}, None])
def test_masks_whose_function_says_all(form, length):
    if form:
        mask = mask_of(causal, length, **form)
    else:
        one = torch.ones(1, 1, 1, dtype=torch.int32)
        mask = BlockMask.from_kv_blocks(
            one,
            one.unsqueeze(-1) - 1,
            BLOCK_SIZE=1 << 30,
            mask_mod=causal,
            seq_lengths=[length] * 2,
        )
    check(lambda q, k, v: flex_attention(q, k, v, None, mask), operands(length))


def test_keys_of_one_batch():
    query, (_, key, value) = operands()[0], operands(batch=1)
    blocks = mask_of(causal, MANY, batch=2)
    check(lambda q, k, v: flex_attention(q, k, v, None, blocks), (query, key, value))


def test_lengths_that_vary():
    def f(q, k, v):
        blocks = mask_of(causal, q.shape[2])
        return flex_attention(q, k, v, SCORES["alibi"], blocks)

    compiled = oxyfuel.compile(f, fullgraph=True, dynamic=True)
    before = oxyfuel.stats()["graphs"]
    for length in (MANY, 500, 391, 256, 640):
        given = operands(length)
        torch.testing.assert_close(compiled(*given), f(*given), rtol=2e-4, atol=2e-5)
    assert oxyfuel.stats()["graphs"] == before + 1


def test_through_dynamo():
    blocks = mask_of(near, MANY, heads=HEADS)

    def f(q, k, v):
        return flex_attention(q * 2, k, v, SCORES["table"], blocks).relu()

    compiled = torch.compile(f, backend="oxyfuel", fullgraph=True)
    before = oxyfuel.stats()["graphs"]
    given = operands()
    torch.testing.assert_close(compiled(*given), f(*given), rtol=2e-4, atol=2e-5)
    assert oxyfuel.stats()["graphs"] == before + 1


def test_autocast():
    weight = torch.randn(16, 16)
    blocks = mask_of(causal, MANY)

    def f(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return flex_attention(q @ weight, k, v, SCORES["softcap"], blocks)

    check(f, operands(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("length", "size"), [(FEW, 18), (MANY, 105)])
def test_what_is_not_listed_is_not_met(length, size):
    """As in TorchInductor's kernels; eager looks at the function of the mask alone."""
    counts = torch.tensor([[[1, 0, 2, 1]]], dtype=torch.int32)
    indices = torch.tensor([[[[0, 1, 2, 3], [1, 0, 2, 3], [1, 3, 0, 2], [3, 0, 1, 2]]]]).int()
    mask = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=size, seq_lengths=(length, length))
    given = operands(length)
    result = oxyfuel.compile(lambda q, k, v: flex_attention(q, k, v, None, mask))(*given)
    block = torch.arange(length) // size
    listed = torch.zeros(4, 4, dtype=torch.bool)
    for row in range(4):
        listed[row, indices[0, 0, row, : counts[0, 0, row]].long()] = True
    scores = (given[0] @ given[1].transpose(-2, -1)) / 4
    scores = scores.masked_fill(~listed[block][:, block], -torch.inf)
    expected = scores.softmax(-1).nan_to_num() @ given[2]
    torch.testing.assert_close(result, expected, rtol=2e-4, atol=2e-5)


def test_a_mask_with_wrong_lists():
    mask = mask_of(causal, MANY)
    compiled = oxyfuel.compile(lambda q, k, v: flex_attention(q, k, v, None, mask))
    given = operands()
    compiled(*given)
    mask.kv_num_blocks = mask.kv_num_blocks + 9
    with pytest.raises(Exception, match="a block mask lists 10 of 4 blocks"):
        compiled(*given)


@pytest.mark.parametrize("length", [FEW, MANY])
def test_logarithms_of_sums(length):
    mask = mask_of(MASKS["rows of nothing"], length)

    def f(q, k, v):
        return flex_attention(q, k, v, None, mask, return_aux=AuxRequest(lse=True))

    given = operands(length)
    result = oxyfuel.compile(f, fullgraph=True)(*given)
    torch.testing.assert_close(result, f(*given), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("length", [FEW, MANY])
def test_gradients_of_what_scores_read(length):
    mask = mask_of(causal, length)
    slopes = SLOPES.clone().requires_grad_()

    def f(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + slopes[h] * (j - i), mask)

    given = operands(length)
    with torch.enable_grad():
        compiled = oxyfuel.compile(f, fullgraph=True)
        results = [f(*given), compiled(*given)]
        gradients = [torch.autograd.grad(r.square().sum(), slopes)[0] for r in results]
    torch.testing.assert_close(*results, rtol=2e-4, atol=2e-5)
    torch.testing.assert_close(*gradients, rtol=2e-4, atol=2e-4)


def test_what_torch_refuses():
    given = operands(FEW)
    compiled = oxyfuel.compile(flex_attention)
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        compiled(given[0].requires_grad_(), *given[1:])
    with pytest.raises(ValueError, match="same number of heads"):
        compiled(*operands(FEW, key_heads=2))
    with pytest.raises(NotImplementedError, match="max scores"):
        compiled(*operands(FEW), return_aux=AuxRequest(max_scores=True))


def test_the_op_itself():
    """Its logarithms are to the base 2."""
    op = importlib.import_module("torch._higher_order_ops.flex_attention")
    mask = mask_of(near, MANY, heads=HEADS).as_tuple()

    def f(q, k, v):
        return op.flex_attention(q, k, v, SCORES["alibi"], mask, 0.25, {})

    def dense(q, k, v):
        return op.math_attention(q, k, v, SCORES["alibi"], mask, 0.25, {})

    given = operands()
    result = oxyfuel.compile(f, fullgraph=True)(*given)
    torch.testing.assert_close(result, dense(*given), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("backend", ["eager", lambda module, inputs: module.forward])
def test_other_backends(backend):
    mask = mask_of(near, MANY, heads=HEADS)
    f = oxyfuel.compile(
        lambda q, k, v: flex_attention(q, k, v, SCORES["alibi"], mask), backend=backend
    )
    given = operands()
    expected = flex_attention(*given, SCORES["alibi"], mask)
    torch.testing.assert_close(f(*given), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("length", "by_blocks"), [(FEW, False), (MANY, True)])
def test_which_lengths_are_met_by_blocks(length, by_blocks, monkeypatch):
    texts = []
    compile_graph = oxyfuel.api.Compiler.compile

    def keep(self, graph, *args, **kwargs):
        texts.append(graph.text())
        return compile_graph(self, graph, *args, **kwargs)

    monkeypatch.setattr(oxyfuel.api.Compiler, "compile", keep)
    oxyfuel.compile(lambda q, k, v: flex_attention(q, k, v))(*operands(length))
    assert ["block_sparse(" in text for text in texts] == [by_blocks]
