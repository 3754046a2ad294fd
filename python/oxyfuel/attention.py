"""torch's flex_attention in captured code. Few scores are one matrix: two gemms and a softmax, and
in between what the program gives for the scores and their mask, mapped over batch, heads, queries
and keys. Many are made a block at a time, as in FlashAttention (Dao et al., 2022), of those blocks
alone that the block mask lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensors = tuple[torch.Tensor, ...]
BLOCK = 128  # queries, and keys, of a block where no mask has other ones


def go_by_blocks(scores: int) -> bool:
    """Whether so many scores, or a number of them that varies, are better met by blocks: what a
    capture knows of the machine."""
    del scores
    return False


def scores_at_once() -> int:
    """How many of them a block should have for all heads that are met together."""
    return 0


def meet_blocks(
    partial: Callable[..., Tensors], full: Callable[..., Tensors], front: Tensors, tiles: Tensors
) -> tuple[Tensors] | None:
    """A capture makes a node of it and gives the results in a tuple, or None where it cannot."""
    del partial, full, front, tiles


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable[..., torch.Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: tuple[Any, ...] = (),
    mask_mod_other_buffers: tuple[Any, ...] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The op of that name: the result, in the order of the query's strides, and for each query the
    logarithm to base 2 of the sum of its scores' exponentials, and log2(e) times their maximum.

    query: (batch, heads, queries, size), key: (batch or 1, heads / n, keys, size), value: (batch or
    1, heads / n, keys, size of a value). `block_mask`: BlockMask.as_tuple().
    """
    device = query.device
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
        narrow = [t if t.dtype == torch.float64 else t.to(dtype) for t in (query, key, value)]
        with torch.autocast(device.type, enabled=False):
            return flex_attention(
                *narrow,
                score_mod,
                block_mask,
                scale,
                kernel_options,
                score_mod_other_buffers,
                mask_mod_other_buffers,
            )
    batch, heads, queries, _ = query.shape
    if key.shape[0] not in (1, batch):
        raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={batch} and Bkv={key.shape[0]}")
    mask_mod = block_mask[-1]
    lists = lists_of(block_mask, query)

    def scores(q: torch.Tensor, k: torch.Tensor, places: Sequence[torch.Tensor]) -> torch.Tensor:
        made = product(grouped(q, k), k.transpose(-2, -1)).view(*q.shape[:3], k.shape[2]) * scale
        mod = mapped(score_mod, (0,), len(score_mod_other_buffers))
        return mod(made, *places, *score_mod_other_buffers).to(made.dtype)

    def allowed(places: Sequence[torch.Tensor]) -> torch.Tensor:
        return mapped(mask_mod, (), len(mask_mod_other_buffers))(*places, *mask_mod_other_buffers)

    made = None
    if go_by_blocks(batch * heads * queries * key.shape[2]):
        from torch.nn.attention.flex_attention import noop_mask

        met = lists or every_block(query, key, masked=mask_mod is not noop_mask)
        made = by_blocks(query, key, value, scores, allowed, met)
    if made is None:
        places = [torch.arange(n, device=device) for n in (batch, heads, queries, key.shape[2])]
        wide_key, wide_value = (t.expand(batch, -1, -1, -1) for t in (key, value))
        kept = allowed(places)
        if lists is not None:
            kept = kept & lists.listed(places[2], places[3])
        masked = torch.where(kept, scores(query, wide_key, places), -math.inf)
        sums = masked.logsumexp(-1)
        sums = torch.where((masked == -math.inf).all(-1), -math.inf, sums)
        most = masked.amax(-1)
        shares = without_subnormals(torch._safe_softmax(masked, -1)).to(query.dtype)
        result = (grouped(shares, value) @ wide_value).view(batch, heads, queries, -1)
    else:
        most, total, result = made
        result = torch.where(total == 0, 0.0, result / total).to(query.dtype)
        sums = (most + total.log()).squeeze(-1)
        most = most.squeeze(-1)
    return laid_out(result, query), sums / math.log(2), most / math.log(2)


def mapped(mod: Callable[..., Any], leading: tuple[int | None, ...], others: int) -> Any:
    """`mod` of numbers as a function of whole dimensions: batch, heads, queries, keys."""
    for dim in (3, 2, 1, 0):
        places = [0 if i == dim else None for i in range(4)]
        mod = torch.vmap(mod, in_dims=(*leading, *places, *([None] * others)))
    return mod


def grouped(rows: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """(batch, heads, rows, size) with the heads of a head of the key as rows of one."""
    if rows.shape[1] == key.shape[1]:
        return rows
    return rows.reshape(rows.shape[0], key.shape[1], -1, rows.shape[3])


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In f32 of halves, which are not rounded between."""
    if a.dtype not in (torch.bfloat16, torch.float16):
        return a @ b
    flat = torch.ops.oxyfuel.bmm_to_f32(a.flatten(0, 1), b.flatten(0, 1))
    return flat.view(*a.shape[:3], b.shape[3])


def without_subnormals(shares: torch.Tensor) -> torch.Tensor:
    """Of shares of 1. Far from a query there are many of them, and gemms take long for each."""
    return torch.where(shares < torch.finfo(shares.dtype).tiny, 0.0, shares)


def laid_out(result: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """`result` with strides in the order of the query's, but its last dimension innermost."""
    outer = sorted(range(3), key=query.stride, reverse=True)
    inverse = [outer.index(dim) for dim in range(3)]
    return result.permute(*outer, 3).contiguous().permute(*inverse, 3)


class BlockLists:
    """Which blocks of keys a block of queries meets: those whose scores are masked, and others."""

    def __init__(self, sizes: tuple[int, int], tensors: Tensors) -> None:
        self.sizes = sizes
        self.tensors = tensors

    def listed(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Whether their blocks meet: (batch or 1, heads or 1, queries, keys)."""
        counts, indices, full_counts, full_indices = self.tensors
        blocks = torch.arange(indices.shape[-1], device=indices.device)

        def meets(counts: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
            is_listed = blocks < counts.unsqueeze(-1)
            return (is_listed.unsqueeze(-1) & (indices.unsqueeze(-1) == blocks)).any(-2)

        met = meets(counts, indices) | meets(full_counts, full_indices)
        rows, columns = queries // self.sizes[0], keys // self.sizes[1]
        return met.index_select(-2, rows).index_select(-1, columns)

    def finer(self, row: int, column: int) -> BlockLists:
        """Of blocks that are so many times shorter."""
        tensors: list[torch.Tensor] = []
        for counts, indices in (self.tensors[:2], self.tensors[2:]):
            parts = torch.arange(column, dtype=torch.int32, device=indices.device)
            indices = (indices.unsqueeze(-1) * column + parts).flatten(-2)
            tensors += [(counts * column).repeat_interleave(row, -1)]
            tensors += [indices.repeat_interleave(row, -2)]
        return BlockLists((self.sizes[0] // row, self.sizes[1] // column), tuple(tensors))


def lists_of(block_mask: tuple[Any, ...], query: torch.Tensor) -> BlockLists | None:
    """Those of the mask; None where it has none, or for other batches or heads: then its function
    says all."""
    counts, indices, full_counts, full_indices = block_mask[2:6]
    sizes = block_mask[-3:-1]
    batches, heads = counts.shape[:2]
    if max(sizes) >= 1 << 30 or batches not in (1, query.shape[0]):
        return None
    if heads not in (1, query.shape[1]):
        return None
    if full_counts is None:
        full_counts, full_indices = torch.zeros_like(counts), indices
    return BlockLists(sizes, (counts, indices, full_counts, full_indices))


def every_block(query: torch.Tensor, key: torch.Tensor, *, masked: bool) -> BlockLists:
    """All blocks of BLOCK queries and keys."""
    rows, columns = -(-query.shape[2] // BLOCK), -(-key.shape[2] // BLOCK)
    every = torch.arange(columns, dtype=torch.int32, device=query.device)
    counts, indices = every.new_zeros(1, 1, rows), every.expand(1, 1, rows, -1)
    lists = (counts + columns, indices), (counts, indices)
    partial, full = lists if masked else lists[::-1]
    return BlockLists((BLOCK, BLOCK), (*partial, *full))


def by_blocks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scores: Callable[..., torch.Tensor],
    allowed: Callable[..., torch.Tensor],
    lists: BlockLists,
) -> Tensors | None:
    """For each query the largest score, the sum of the others' exponentials behind it, and the sum
    of the values times these."""
    times = [size // BLOCK if size % BLOCK == 0 else 1 for size in lists.sizes]
    if times != [1, 1]:
        lists = lists.finer(*times)
    long_enough = query.shape[2] >= lists.sizes[0] and key.shape[2] >= lists.sizes[1]
    if max(lists.sizes) > BLOCK or not long_enough:
        return None
    rows, columns = lists.sizes
    heads, repeats = query.shape[1], query.shape[1] // key.shape[1]
    together = 1
    if lists.tensors[0].shape[1] == 1 and lists.tensors[2].shape[1] == 1:
        for n in range(2, heads + 1):
            fits = n % repeats == 0 or repeats % n == 0
            if heads % n == 0 and fits and n * rows * columns <= scores_at_once():
                together = n
    key_heads = max(1, together // repeats)

    def around(places: torch.Tensor) -> list[torch.Tensor]:
        return [
            places[i] + torch.arange(n, dtype=places.dtype, device=places.device)
            for i, n in enumerate((1, together, rows, columns))
        ]

    def meet(
        v: torch.Tensor, made: torch.Tensor, most: torch.Tensor, total: torch.Tensor, mixed: Any
    ) -> Tensors:
        now = torch.maximum(most, made.amax(-1, keepdim=True))
        finite = torch.where(now == -math.inf, 0.0, now)
        shares, earlier = without_subnormals((made - finite).exp()), (most - finite).exp()
        more = product(grouped(shares.to(v.dtype), v), v).view(mixed.shape)
        return now, total * earlier + shares.sum(-1, keepdim=True), mixed * earlier + more

    def partial(q: Any, k: Any, v: Any, places: Any, *state: torch.Tensor) -> Tensors:
        here = around(places)
        kept = allowed(here) & (here[3] >= places[4])
        return meet(v, torch.where(kept, scores(q, k, here), -math.inf), *state)

    def full(q: Any, k: Any, v: Any, places: Any, *state: torch.Tensor) -> Tensors:
        return meet(v, scores(q, k, around(places)), *state)

    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    total = query.new_zeros(1, together, rows, 1, dtype=precise)
    mixed = query.new_zeros(1, together, rows, value.shape[3], dtype=precise)
    tiles = (
        query[:1, :together, :rows],
        key[:1, :key_heads, :columns],
        value[:1, :key_heads, :columns],
        torch.zeros(5, dtype=torch.int32, device=query.device),
        total - math.inf,
        total,
        mixed,
    )
    made = meet_blocks(partial, full, (*lists.tensors, query, key, value), tiles)
    return None if made is None else made[0]


def run_blocks(
    front: Tensors, partial: Callable[..., Any], full: Callable[..., Any], operands: Tensors
) -> Tensors:
    """What the node does (block_sparse of src/ir/graph.h), for graphs that run in Python."""
    query, key, value = front[4:7]
    (_, heads, rows, _), (_, key_heads, columns, _) = operands[0].shape, operands[1].shape
    repeats = query.shape[1] // key.shape[1]
    out = tuple(query.new_empty(*query.shape[:3], s.shape[3], dtype=s.dtype) for s in operands[4:7])
    for b in range(query.shape[0]):
        for h in range(0, query.shape[1], heads):
            for r in range(-(-query.shape[2] // rows)):
                row = min(r * rows, query.shape[2] - rows)
                state = list(operands[4:7])
                for region, counts, indices in ((partial, *front[:2]), (full, *front[2:4])):
                    at = (b if counts.shape[0] > 1 else 0, h if counts.shape[1] > 1 else 0, r)
                    for c in indices[at][: int(counts[at])].tolist():
                        if c * columns >= key.shape[2]:
                            continue
                        column = min(c * columns, key.shape[2] - columns)
                        place = torch.tensor([b, h, row, column, c * columns], dtype=torch.int32)
                        batch = slice(b, b + 1) if key.shape[0] > 1 else slice(0, 1)
                        head = slice(h // repeats, h // repeats + key_heads)
                        tiles = [t[batch, head, column : column + columns] for t in (key, value)]
                        tile = query[b : b + 1, h : h + heads, row : row + rows]
                        meets = partial if column != c * columns else region
                        state = list(meets(tile, *tiles, place, *state, *operands[7:]))
                for whole, part in zip(out, state):
                    again = r * rows - row  # rows of the block before
                    whole[b : b + 1, h : h + heads, r * rows : row + rows] = part[:, :, again:]
    return out
