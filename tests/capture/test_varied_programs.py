"""Ordinary programs whose sizes vary from call to call: eager's results at each, one capture more
for all sizes but 0 and 1, no break."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oxyfuel


def R(*sizes):
    return torch.randn(*sizes)


# ---- ragged batches, sequences


def ragged_mean(x, lengths):
    mask = torch.arange(x.shape[1])[None, :] < lengths[:, None]
    return (x * mask[..., None]).sum(1) / lengths.clamp(min=1)[:, None]


def last_of_each(x, lengths):
    index = (lengths - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, x.shape[2])
    return x.gather(1, index).squeeze(1)


def masked_softmax(scores, lengths):
    mask = torch.arange(scores.size(-1)) >= lengths.unsqueeze(1)
    return scores.masked_fill(mask, float("-inf")).softmax(-1)


def packed_attention(x, ends):
    """Sequences behind one another; each sees itself alone."""
    at = torch.arange(x.shape[0])
    which = torch.bucketize(at, ends, right=True)
    scores = x @ x.t() / math.sqrt(x.shape[1])
    allowed = which[:, None] == which[None, :]
    return scores.masked_fill(~allowed, -1e9).softmax(-1) @ x


def sliding_windows(x, k):
    return x.unfold(0, k, 1).mean(-1), x.shape[0] - k + 1


def local_attention_mask(x):
    n = x.shape[0]
    i = torch.arange(n)
    mask = (i[None] - i[:, None]).abs() <= 2
    return (x @ x.t()).masked_fill(~mask, float("-inf")).softmax(-1)


def causal_with_prefix(x, prefix):
    n = x.shape[1]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    mask[:, :prefix] = True
    return torch.where(mask, x @ x.transpose(1, 2), torch.tensor(-1e4)).softmax(-1)


def chunked(x):
    out = []
    for part in x.split(4):
        out.append(part.cumsum(0) - part.mean(0))
    return torch.cat(out) if out else x


def padded_blocks(x):
    block = 8
    n = x.shape[0]
    pad = (-n) % block
    blocks = F.pad(x, (0, 0, 0, pad)).view(-1, block, x.shape[1])
    return blocks.amax(1), (n + pad) // block


def overlap_add(x):
    frames = F.pad(x, (2, 2)).unfold(-1, 4, 2) * torch.hann_window(4)
    return frames.sum(-1), frames.size(-2)


def shifted_tokens(ids, pad):
    out = ids.new_full(ids.shape, pad)
    out[:, 1:] = ids[:, :-1].clone()
    return out, (out == pad).sum()


# ---- positions


class Rope(nn.Module):
    def __init__(self, dim=8, most=128):
        super().__init__()
        inverse = 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim))
        angles = torch.outer(torch.arange(most).float(), inverse)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x, start):
        n = x.shape[1]
        cos, sin = self.cos[start : start + n], self.sin[start : start + n]
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class RelativeBias(nn.Module):
    def __init__(self, most=16, heads=2):
        super().__init__()
        self.most = most
        self.table = nn.Embedding(2 * most + 1, heads)

    def forward(self, q, k):
        distance = torch.arange(k.shape[1])[None] - torch.arange(q.shape[1])[:, None]
        bias = self.table(distance.clamp(-self.most, self.most) + self.most)
        return q @ k.transpose(1, 2) + bias.permute(2, 0, 1)[:1]


class Alibi(nn.Module):
    def forward(self, scores):
        h, n = scores.shape[1], scores.shape[-1]
        slopes = torch.tensor([2.0 ** (-8 * (i + 1) / 4) for i in range(4)])
        bias = torch.arange(n).view(1, 1, n) * slopes.view(4, 1, 1)
        return (scores + bias[:h]).softmax(-1)


class LearnedPositions(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(R(1, 65, 8))

    def forward(self, x):
        """A grid of positions for another number of patches than it was made for."""
        side = int(x.shape[1] ** 0.5)
        grid = self.positions[:, 1:].reshape(1, 8, 8, 8).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(side, side), mode="bilinear", align_corners=False)
        return x + grid.permute(0, 2, 3, 1).reshape(1, side * side, 8)


# ---- images


def half_size(x):
    h, w = x.shape[-2:]
    return F.interpolate(x, size=(h // 2 + 1, w // 2 + 1), mode="bilinear", antialias=False)


def resized_to_short_side(x):
    h, w = x.shape[-2:]
    scale = 12 / min(h, w)
    return F.interpolate(x, size=(int(h * 3 / 2 + 0.5), int(w * 1.3 + 0.5))), scale


def patches(x):
    b, c, h, w = x.shape
    x = F.pad(x, (0, -w % 4, 0, -h % 4))
    x = x.reshape(b, c, x.shape[2] // 4, 4, x.shape[3] // 4, 4)
    return x.permute(0, 2, 4, 3, 5, 1).flatten(1, 2).flatten(2)


def shifted_windows(x):
    b, h, w, c = x.shape
    x = torch.roll(x, (-2, -2), (1, 2))
    x = x.view(b, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)
    x = (x @ x.transpose(1, 2)).softmax(-1) @ x
    x = x.view(b, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(b, h, w, c)
    return torch.roll(x, (2, 2), (1, 2))


class ConvStack(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1),
        )  # fmt: skip
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.net(x).flatten(1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(6, 3, 2, stride=2)

    def forward(self, x):
        y = self.up(self.down(x).relu())
        y = y[..., : x.shape[-2], : x.shape[-1]]
        return torch.cat([x, y], 1)


def center_crop(x, size):
    top, left = (x.shape[-2] - size) // 2, (x.shape[-1] - size) // 2
    return x[..., top : top + size, left : left + size]


# ---- choices


def top_k(x, k):
    values, places = x.topk(k, dim=-1)
    return values.softmax(-1), places


def share_of_best(x):
    k = max(1, int(x.shape[-1] * 0.3))
    least = x.topk(k, -1).values[..., -1:]
    return x.masked_fill(x < least, 0)


def beam_step(scores, total, width):
    vocabulary = scores.shape[-1]
    best, at = (total[:, None] + scores.log_softmax(-1)).view(-1).topk(width)
    return best, at // vocabulary, at % vocabulary


def nucleus(x):
    ordered, index = x.softmax(-1).sort(-1, descending=True)
    keep = ordered.cumsum(-1) - ordered < 0.8
    return torch.zeros_like(x).scatter(-1, index, ordered * keep)


# ---- layers and training


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, padding):
        return self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)

    def forward(self, x):
        n = x.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        return self.layer(x, mask)


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x, past):
        q, k, v = self.qkv(x).chunk(3, -1)
        if past is not None:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        n, m = q.shape[1], k.shape[1]
        mask = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), (k, v)


def contrastive(a, b):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    logits = a @ b.t() * 10
    labels = torch.arange(a.shape[0])
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def mixed(x, weights):
    """einops' "b (h d) -> h b d" with h of a varied size, and back."""
    b, c = x.shape
    h = weights.shape[0]
    heads = x.reshape(b, h, c // h).permute(1, 0, 2)
    return (heads * weights.view(h, 1, 1)).permute(1, 0, 2).reshape(b, c)


def segment_sums(x, segments, count):
    return x.new_zeros(count, x.shape[1]).index_add(0, segments, x)


def pairwise(x):
    i, j = torch.triu_indices(x.shape[0], x.shape[0], 1)
    return (x[i] - x[j]).norm(dim=-1)


def normalised_by_size(x):
    n = x.shape[0]
    centred = x - x.mean(0)
    return centred.t() @ centred / max(n - 1, 1), n**-0.5 if n > 0 else 0.0


def resized_mask(mask):
    """Of one channel, to a shape of its own and back."""
    small = F.interpolate(mask[:, None], scale_factor=0.5)
    size = (int(mask.shape[1] * 1.5), mask.shape[2])
    return F.interpolate(small, size, mode="bilinear")[:, 0]


def places_one_hot(x):
    order = x[:, 0].argsort()
    return F.one_hot(order, x.shape[0]).float() @ x


PAIRS = ((3, 5), (4, 9), (2, 7), (5, 6), (1, 4))
LENGTHS = (6, 9, 2, 17, 1)
MASKS = ((2, 8, 12), (3, 10, 14), (3, 16, 6), (4, 9, 9))
IMAGES = ((2, 8, 10), (3, 12, 9), (2, 17, 20), (4, 16, 13), (1, 9, 8))


def ragged(b, t):
    return R(b, t, 8), torch.arange(b) + 1


def rows(n):
    return (R(n, 4),)


def images(b, h, w):
    return (R(b, 3, h, w),)


# A function or module, what makes the arguments of a call, of which sizes, and how many captures
# it may have behind the first.
PROGRAMS = {
    "ragged_mean": (ragged_mean, ragged, (*PAIRS, (0, 3)), 3),
    "last_of_each": (last_of_each, ragged, PAIRS, 2),
    "masked_softmax": (masked_softmax, lambda b, t: (R(b, t), torch.arange(b) + 1), PAIRS, 2),
    "packed_attention": (
        packed_attention,
        lambda *ends: (R(ends[-1], 8), torch.tensor(ends)),
        ((3, 7), (2, 5, 9), (12,), (1, 2, 3, 5), (4, 20)),
        2,
    ),
    "sliding_windows": (sliding_windows, lambda n: (R(n, 4), 3), (9, 12, 20, 7, 3), 2),
    "local_attention_mask": (local_attention_mask, rows, (*LENGTHS, 0), 3),
    "causal_with_prefix": (
        causal_with_prefix,
        lambda n, prefix: (R(2, n, 4), prefix),
        ((6, 2), (9, 3), (12, 5), (7, 4), (20, 6)),
        1,
    ),
    "chunked": (chunked, rows, (8, 7, 6, 5), 1),
    "padded_blocks": (padded_blocks, rows, (9, 16, 30, 7, 1, 8), 3),
    "overlap_add": (overlap_add, lambda n: (R(2, n),), (12, 20, 8, 31, 17), 1),
    "shifted_tokens": (
        shifted_tokens,
        lambda b, n: (torch.randint(5, 50, (b, n)), 3),
        PAIRS,
        2,
    ),
    "rope": (
        Rope(),
        lambda n, start: (R(2, n, 8), start),
        ((5, 0), (7, 5), (9, 12), (4, 21), (1, 25), (1, 26)),
        3,
    ),
    "relative_bias": (
        RelativeBias(),
        lambda n, m: (R(1, n, 4), R(1, m, 4)),
        ((5, 6), (7, 9), (3, 12), (20, 40), (1, 9)),
        2,
    ),
    "alibi": (Alibi(), lambda n: (R(2, 4, n, n),), LENGTHS, 2),
    "learned_positions": (LearnedPositions(), lambda n: (R(2, n * n, 8),), (4, 6, 9, 5, 8), 1),
    "half_size": (half_size, images, IMAGES, 2),
    "resized_to_short_side": (resized_to_short_side, images, IMAGES, 4),
    "patches": (patches, images, IMAGES, 2),
    "shifted_windows": (
        shifted_windows,
        lambda b, h, w: (R(b, h, w, 4),),
        ((2, 8, 12), (3, 16, 8), (2, 12, 20), (4, 16, 12), (1, 8, 8)),
        2,
    ),
    "conv_stack": (ConvStack().eval(), images, IMAGES, 2),
    "unet": (UNet(), images, IMAGES, 2),
    "center_crop": (
        center_crop,
        lambda h, w, size: (R(2, h, w), size),
        ((8, 10, 4), (12, 9, 5), (17, 20, 6), (16, 13, 7)),
        1,
    ),
    "top_k": (
        top_k,
        lambda b, n, k: (R(b, n), k),
        ((3, 10, 4), (4, 12, 5), (2, 9, 2), (5, 20, 7), (3, 9, 1), (3, 7, 7)),
        2,
    ),
    "share_of_best": (
        share_of_best,
        lambda b, n: (R(b, n),),
        ((3, 10), (4, 12), (2, 29), (5, 20), (3, 7)),
        1,
    ),
    "beam_step": (
        beam_step,
        lambda b, v, width: (R(b, v), R(b), width),
        ((3, 10, 3), (4, 12, 4), (2, 29, 5), (5, 20, 2)),
        1,
    ),
    "nucleus": (nucleus, lambda b, n: (R(b, n),), PAIRS, 2),
    "attention": (
        Attention().eval(),
        lambda b, t: (R(b, t, 8), torch.arange(t).expand(b, t) > t - 2),
        PAIRS,
        2,
    ),
    "encoder": (Encoder().eval(), lambda b, t: (R(b, t, 8),), PAIRS, 2),
    "contrastive": (contrastive, lambda n: (R(n, 8), R(n, 8)), LENGTHS, 2),
    "mixed": (
        mixed,
        lambda b, c, h: (R(b, c), R(h)),
        ((3, 12, 4), (4, 20, 5), (5, 21, 3), (2, 8, 2), (3, 12, 6)),
        2,
    ),
    "segment_sums": (
        segment_sums,
        lambda n: (R(n, 4), torch.arange(n) // 2, (n + 1) // 2),
        (6, 9, 4, 15, 5),
        1,
    ),
    "pairwise": (pairwise, rows, (6, 9, 4, 15, 3), 1),
    "normalised_by_size": (normalised_by_size, rows, LENGTHS, 2),
    "resized_mask": (resized_mask, lambda b, h, w: (R(b, h, w),), MASKS, 1),
    "places_one_hot": (places_one_hot, rows, LENGTHS, 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    fn, make, sizes, recompiles = PROGRAMS[name]
    compiled = oxyfuel.compile(fn)
    with torch.no_grad():
        for size in sizes:
            args = make(*size) if isinstance(size, tuple) else make(size)
            torch.testing.assert_close(
                compiled(*args), fn(*args), rtol=1e-4, atol=1e-5, equal_nan=True
            )
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= recompiles, stats
    assert stats["graph_breaks"] == stats["static_captures"] == stats["fallbacks"] == 0, stats


def test_growing_cache():
    """A prompt, then tokens one by one: a capture for each of the two and one for all lengths."""
    oxyfuel.reset()
    model = Cache()
    compiled = oxyfuel.compile(model)
    with torch.no_grad():
        for prompt in (5, 8, 3):
            past = expected_past = None
            for n in (prompt, 1, 1, 1, 1):
                x = R(2, n, 8)
                out, past = compiled(x, past)
                expected, expected_past = model(x, expected_past)
                torch.testing.assert_close(out, expected)
                torch.testing.assert_close(past, expected_past)
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= 3 and stats["graph_breaks"] == 0, stats


@pytest.mark.parametrize(
    "make", [ConvStack, Encoder, lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))]
)
def test_training_steps(make):
    """Batches of other sizes, the last one small: one capture more, one again where it is 1."""
    oxyfuel.reset()
    model, reference = make(), make()
    reference.load_state_dict(model.state_dict())
    images = isinstance(model, ConvStack)

    def step(m, x):
        loss = m(x).square().mean()
        loss.backward()
        return loss.detach()

    compiled = oxyfuel.compile(model)
    for b in (4, 6, 5, 3, 2, 1):
        if images and b == 1:
            continue
        x = R(b, 3, 12, 12) if images else R(b, 7, 8)
        torch.testing.assert_close(step(compiled, x), step(reference, x))
        for p, q in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)
            p.grad = q.grad = None
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= 2 and stats["graph_breaks"] == 0, stats
