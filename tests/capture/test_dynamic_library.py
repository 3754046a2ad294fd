"""What models are made of, at six sizes each: equal to eager, by at most two captures."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan

import oxyfuel

R = torch.randn
ints = torch.randint


def unet(x):
    down = F.relu(F.conv2d(x, torch.ones(4, 3, 3, 3) / 9, stride=2, padding=1))
    up = F.conv_transpose2d(down, torch.ones(4, 3, 2, 2) / 4, stride=2)
    return torch.cat([x, F.interpolate(up, size=x.shape[2:])], 1)


def written(x):
    y = x.clone()
    y[1:] = x[:-1] * 2
    return y


def windows(x):
    parts = x.view(1, x.shape[1] // 2, 2, x.shape[2] // 2, 2, 3)
    return parts.permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 3)


def graph_conv(edges, x):
    return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])


def filled_parts(x):
    out = x.new_empty(2, 4, x.shape[1], 24)
    out[..., :16] = x[:, None, :, :16]
    out[..., 16:] = x.mean()
    return out


def relative_positions(x):
    side = torch.arange(x.shape[0])
    places = torch.stack(torch.meshgrid(side, side, indexing="ij")).flatten(1)
    relative = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0).contiguous()
    relative[:, :, 0] += x.shape[0] - 1
    relative[:, :, 0] *= 2 * x.shape[0] - 1
    return relative.sum(-1)


# Convolutions of what is not row-major.
def normed_conv1d(x):
    y = F.conv1d(x, torch.ones(8, 1, 10), stride=5).transpose(1, 2)
    return F.conv1d(F.layer_norm(y, (8,)).transpose(1, 2), torch.ones(8, 8, 3), stride=2)


def normed_conv2d(x):
    y = F.conv2d(x, torch.ones(4, 3, 3, 3), stride=4, padding=1)
    rows = F.layer_norm(y.flatten(2).transpose(1, 2), (4,)).transpose(1, 2)
    y = rows.reshape(x.shape[0], 4, y.shape[2], -1)
    return F.conv2d(y, torch.ones(4, 1, 3, 3), groups=4, padding=1)


def masked_put(mask):
    y = (1.0 - mask[:, None, None, :].expand(2, 1, mask.shape[1], -1).float())[:, 0, 0, :]
    y[mask == 1] = 7.0
    return y


def gated(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)


# What is called (a class or a function without arguments makes it), and its arguments for a size.
PROGRAMS = {
    "gru_batch": (lambda: nn.GRU(8, 16, bidirectional=True), lambda n: (R(6, n, 8),)),
    "lstm_batch": (lambda: nn.LSTM(8, 16, 2, bidirectional=True), lambda n: (R(6, n, 8),)),
    "lstm_length": (
        lambda: nn.LSTM(8, 16, 2, batch_first=True, bias=False),
        lambda n: (R(3, n, 8),),
    ),
    "tensor_split": (lambda: lambda x: torch.tensor_split(x, 3), lambda n: (R(n, 4),)),
    "normed_pool1d": (
        lambda: lambda x: F.avg_pool1d(F.layer_norm(x, (8,)).mT, 2),
        lambda n: (R(2, n, 8),),
    ),
    "scan": (
        lambda: lambda x, y: associative_scan(gated, (x, y), 1, combine_mode="generic"),
        lambda n: (R(2, n, 3), R(2, n, 3)),
    ),
    "scan_from_the_end": (
        lambda: lambda x: associative_scan(torch.add, x, 0, reverse=True, combine_mode="generic"),
        lambda n: (R(n, 3),),
    ),
    "lerp_in_place": (
        lambda: lambda x, y: x.clone().lerp_(y, x.sigmoid()),
        lambda n: (R(n, 3), R(n, 3)),
    ),
    "quantile": (lambda: lambda x: torch.quantile(x, 0.3, dim=0), lambda n: (R(n, 3),)),
    "masked_put": (lambda: masked_put, lambda n: (ints(0, 2, (2, n)),)),
    "powers": (lambda: lambda x: (2.0**x.mT, torch.ldexp(x, x)), lambda n: (R(n, 3),)),
    "gru_cell": (lambda: nn.GRUCell(8, 16), lambda n: (R(n, 8),)),
    "lstm_cell": (lambda: nn.LSTMCell(8, 16), lambda n: (R(n, 8),)),
    "encoder": (encoder, lambda n: (R(2, n, 16),)),
    "transformer": (
        lambda: nn.Transformer(16, 4, 1, 1, 32, batch_first=True),
        lambda n: (R(2, n, 16), R(2, n + 2, 16)),
    ),
    "convnet_batch": (convnet, lambda n: (R(n, 3, 16, 16),)),
    "convnet_image": (convnet, lambda n: (R(2, 3, n + 8, n + 8),)),
    "convnet_sides": (convnet, lambda n: (R(2, 3, n + 8, 2 * n + 5),)),
    "adaptive": (lambda: nn.AdaptiveAvgPool2d(7), lambda n: (R(2, 3, n + 8, n + 8),)),
    "to_size": (
        lambda: lambda x, y: F.interpolate(x, size=y.shape[-2:], mode="bilinear"),
        lambda n: (R(1, 3, 8, 8), R(1, 3, n, n + 1)),
    ),
    "by_factor": (lambda: lambda x: F.interpolate(x, scale_factor=2), lambda n: (R(1, 3, n, n),)),
    "bicubic": (
        lambda: lambda x: F.interpolate(x, size=(11, 13), mode="bicubic"),
        lambda n: (R(1, 3, n, n),),
    ),
    "unet": (lambda: unet, lambda n: (R(1, 3, n, n + 3),)),
    "conv1d": (
        lambda: nn.Conv1d(4, 8, 5, padding="same", dilation=2),
        lambda n: (R(2, 4, n + 10),),
    ),
    "transposed_conv1d": (lambda: nn.ConvTranspose1d(4, 8, 4, 2, 1), lambda n: (R(2, 4, n),)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 3), lambda n: (R(1, 2, n, n + 1, 6),)),
    "bag": (lambda: nn.EmbeddingBag(50, 8), lambda n: (ints(0, 50, (n, 4)),)),
    "bag_offsets": (
        lambda: nn.EmbeddingBag(50, 8),
        lambda n: (ints(0, 50, (n,)), torch.tensor([0, 2, 4])),
    ),
    "causal": (
        lambda: (
            lambda x: (
                (x @ x.mT)
                .masked_fill(~torch.ones(x.shape[1], x.shape[1]).tril().bool(), -math.inf)
                .softmax(-1)
            )
        ),
        lambda n: (R(2, n, 4),),
    ),
    "rotary": (
        lambda: lambda x: x * torch.outer(torch.arange(x.shape[1]).float(), torch.ones(4)).cos(),
        lambda n: (R(2, n, 4),),
    ),
    "split_list": (lambda: lambda x: x.split([2, x.shape[0] - 2]), lambda n: (R(n, 4),)),
    "windows": (lambda: windows, lambda n: (R(1, 2 * n, 2 * n + 4, 3),)),
    "reflected": (lambda: lambda x: F.pad(x, (2, 1), mode="reflect"), lambda n: (R(1, 3, n),)),
    "unfolded": (lambda: lambda x: F.unfold(x, 3, padding=1), lambda n: (R(1, 3, n, n),)),
    "scattered": (
        lambda: (
            lambda x, to: (
                torch.zeros(9, x.shape[1]).index_add_(0, to, x),
                x.new_zeros(7, x.shape[1]).scatter_reduce_(
                    0, to[:, None].expand_as(x), x, "mean", include_self=False
                ),
            )
        ),
        lambda n: (R(n, 2 * n + 5), ints(0, 7, (n,))),
    ),
    "folded": (
        lambda: lambda x: F.fold(F.unfold(x, 3, padding=1, stride=2), x.shape[2:], 3, 1, 1, 2),
        lambda n: (R(1, 3, n, n + 1),),
    ),
    "unbound": (
        lambda: lambda x: [x := x + 1, *(p.mul_(i) for i, p in enumerate(x.unbind(1)))],
        lambda n: (R(n, 3, n + 1),),
    ),
    "shuffled": (lambda: lambda x: F.pixel_shuffle(x, 2), lambda n: (R(1, 4, n, n + 1),)),
    "topk": (lambda: lambda x: x.topk(3, 0), lambda n: (R(n, 4),)),
    "sorted": (lambda: lambda x: x.sort(0), lambda n: (R(n, 4),)),
    "cosine": (
        lambda: lambda x: F.cosine_similarity(x[:, None], x[None], dim=-1),
        lambda n: (R(n, 4),),
    ),
    "cross_entropy": (lambda: F.cross_entropy, lambda n: (R(n, 10), ints(0, 10, (n,)))),
    "instance_norm": (lambda: nn.InstanceNorm1d(4), lambda n: (R(2, 4, n),)),
    "einsum": (
        lambda: lambda x, y: torch.einsum("bid,bjd->bij", x, y),
        lambda n: (R(2, n, 4), R(2, n + 3, 4)),
    ),
    "graph_conv": (lambda: graph_conv, lambda n: (ints(0, n, (2, 3 * n)), R(n, 4))),
    "magnitudes": (lambda: lambda x: torch.fft.rfft(x).abs(), lambda n: (R(2 * n, 12),)),
    "complex": (
        lambda: lambda x: torch.view_as_real(torch.view_as_complex(x.view(-1, 2, 2)) * 1j),
        lambda n: (R(n, 4),),
    ),
    "one_hot": (lambda: lambda x: F.one_hot(x, 12).float(), lambda n: (ints(0, 12, (n,)),)),
    "grid": (
        lambda: (
            lambda x: torch.stack(
                torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="xy")
            )
        ),
        lambda n: (R(n, n + 2),),
    ),
    "filled_parts": (lambda: filled_parts, lambda n: (R(2, n, 16),)),
    "relative_positions": (lambda: relative_positions, lambda n: (R(n, 2),)),
    "normed_conv1d": (lambda: normed_conv1d, lambda n: (R(2, 1, 40 + 7 * n),)),
    "normed_conv2d": (lambda: normed_conv2d, lambda n: (R(2, 3, 4 * n, 4 * n),)),
    "half_steps": (lambda: lambda x: torch.arange(0.5, x.shape[0]), lambda n: (R(n),)),
    "three_quarter_steps": (
        lambda: lambda x: torch.arange(x.shape[0], -0.5, -0.75),
        lambda n: (R(n),),
    ),
    "shifted": (lambda: nn.ZeroPad2d((0, 0, 1, -1)), lambda n: (R(2, n, 4),)),
    "cut_or_padded": (lambda: lambda x: F.pad(x, (11 - x.shape[1], 2)), lambda n: (R(3, n),)),
    "cut_transposed": (lambda: lambda x: F.pad(x.mT, (-1, 0, -1, -2)), lambda n: (R(2, n, 6),)),
    "partial_windows": (
        lambda: lambda x: F.avg_pool2d(x, 16, ceil_mode=True),
        lambda n: (R(1, 2, n, n + 1),),
    ),
    "windows_of_turned_planes": (
        lambda: lambda x: (F.adaptive_avg_pool1d(x.mT, 3), F.max_pool2d(x.mT[None], 2)),
        lambda n: (R(n + 3, 4),),
    ),
    "weighted_bce": (
        lambda: (
            lambda x: F.binary_cross_entropy_with_logits(
                x, x.sigmoid(), weight=torch.arange(1.0, 4.0), pos_weight=torch.ones(3) * 2
            )
        ),
        lambda n: (R(n, 3),),
    ),
    "partial_volumes": (
        lambda: lambda x: F.avg_pool3d(x, 3, ceil_mode=True),
        lambda n: (R(1, 2, n, 4, 5),),
    ),
    "median": (lambda: lambda x: x.median(0).values, lambda n: (R(n, 4),)),
    "repeated": (lambda: lambda x: x.repeat_interleave(2, 0), lambda n: (R(n, 4),)),
    "written": (lambda: written, lambda n: (R(n, 4),)),
    "cache": (
        lambda: lambda cache, k: torch.cat([cache, k], 2).mean(2),
        lambda n: (R(1, 2, n, 4), R(1, 2, 3, 4)),
    ),
    "grouped_queries": (
        lambda: (
            lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True, is_causal=True)
        ),
        lambda n: (R(1, 4, n, 8), R(1, 2, n, 8)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_capture_for_all_sizes(name, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    make, arguments = PROGRAMS[name]
    torch.manual_seed(0)
    program = make()
    if isinstance(program, nn.Module):
        program.eval()
    compiled = oxyfuel.compile(program)
    with torch.no_grad():
        for n in (5, 9, 14, 33, 7, 20):
            given = arguments(n)
            torch.testing.assert_close(compiled(*given), program(*given), rtol=1e-4, atol=1e-5)
    stats = oxyfuel.stats()
    assert stats["recompiles"] <= 1, stats
    assert stats["graph_breaks"] == stats["static_captures"] == 0, stats


def odd_layout(x):
    """The channels last in memory, of a layout that torch knows nothing of."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


SLOW = {
    "conv1d": lambda x: F.conv1d(
        odd_layout(F.avg_pool1d(x[0], 40)), torch.ones(8, 2, 6), None, 2, 3, 1, 4
    ),
    "conv1d_of_long_steps": lambda x: F.conv1d(odd_layout(x[0]), torch.ones(8, 8, 9), stride=70),
    "conv2d": lambda x: F.conv2d(
        odd_layout(F.avg_pool2d(x[1], 16)), torch.ones(4, 8, 2, 2), stride=2
    ),
    "conv_transpose2d": lambda x: F.conv_transpose2d(
        odd_layout(F.avg_pool2d(x[1], 16)), torch.ones(8, 4, 2, 2), stride=2
    ),
    "fold": lambda x: fold_again(F.avg_pool2d(x[1], 16)),
    "max_pool2d": lambda x: F.max_pool2d(odd_layout(x[1]), 12, 16),
    "resized": lambda x: F.interpolate(odd_layout(F.avg_pool2d(x[1], 16)), scale_factor=2.0),
    "padded": lambda x: F.pad(odd_layout(F.avg_pool2d(x[1], 16)), (1, 1, 0, 2), mode="reflect"),
    "sorted": lambda x: F.avg_pool1d(x[0], 40).sort(-1).values,
    "cumulated": lambda x: torch.logcumsumexp(F.avg_pool1d(x[0], 40), -1),
}


def fold_again(h):
    return F.fold(F.unfold(h, 2, stride=2), h.shape[2:], 2, stride=2)


@pytest.mark.parametrize("order", [(8, 16, 12, 32, 10), (12, 8, 16, 10)])
@pytest.mark.parametrize("name", SLOW)
def test_sizes_that_move_slowly(name, order, monkeypatch):
    """A size of which an op sees a small part is no number: other calls have another part."""
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    compiled = oxyfuel.compile(SLOW[name])
    with torch.no_grad():
        for n in order:
            x = R(2, 8, 40 * n), R(2, 8, 16 * n, 16 * n)
            expected = SLOW[name](x)
            actual = compiled(x)
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
            assert actual.stride() == expected.stride()
