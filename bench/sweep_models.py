"""The sweep's models: models/NAME/DTYPE, in evaluation mode.

The architectures of transformers are the cases of tests/models, four times as wide on four times as
long a text; those of torch.nn stand here.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from sweep_enlarge import DTYPES, Call

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))

WIDER = 4
WIDTHS = ("hidden_size", "intermediate_size", "d_model", "n_embd", "ffn_dim", "d_inner", "dim",
          "hidden_dim", "dff", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "d_kv", "d_head",
          "head_dim", "emb_dim", "state_size", "moe_intermediate_size")  # fmt: skip
Tensor = torch.Tensor
Made = tuple[nn.Module, tuple[Any, ...]]
NETWORKS: dict[str, Callable[[], Made]] = {}


def network(make: Callable[[], Made]) -> Callable[[], Made]:
    """A model of torch.nn with its inputs, by the function's name."""
    NETWORKS[make.__name__] = make
    return make


class Applied(nn.Module):
    """Modules and a function of them and the inputs."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        """The function's result."""
        return self.function(self.parts, *inputs)


def block(n: int, m: int, stride: int = 1, groups: int = 1, kernel: int = 3) -> nn.Sequential:
    """Convolution, batch norm, relu."""
    conv = nn.Conv2d(n, m, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(m), nn.ReLU())


@network
def lstm() -> Made:
    return nn.LSTM(64, 128, 2, batch_first=True), (torch.randn(4, 32, 64),)


@network
def gru_both_ways() -> Made:
    return nn.GRU(64, 96, bidirectional=True), (torch.randn(24, 4, 64),)


@network
def rnn_tagger() -> Made:
    tag = lambda p, x: p["out"](p["rnn"](p["table"](x))[0])
    parts = {"table": nn.Embedding(1000, 64), "rnn": nn.RNN(64, 128), "out": nn.Linear(128, 20)}
    return Applied(tag, **parts), (torch.randint(0, 1000, (32, 8)),)


@network
def lstm_cells() -> Made:
    def run(p: Any, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[1], 128)
        for t in range(x.shape[0]):
            h, c = p["cell"](x[t], (h, c))
        return h

    return Applied(run, cell=nn.LSTMCell(64, 128)), (torch.randn(16, 8, 64),)


@network
def u_net() -> Made:
    def run(p: Any, x: Tensor) -> Tensor:
        a = p["a"](x)
        b = p["b"](F.max_pool2d(a, 2))
        c = p["c"](F.max_pool2d(b, 2))
        b = p["d"](torch.cat((p["up1"](c), b), 1))
        return p["out"](p["e"](torch.cat((p["up2"](b), a), 1)))

    parts = {"a": block(3, 16), "b": block(16, 32), "c": block(32, 64), "d": block(64, 32),
             "e": block(32, 16), "up1": nn.ConvTranspose2d(64, 32, 2, 2),
             "up2": nn.ConvTranspose2d(32, 16, 2, 2), "out": nn.Conv2d(16, 2, 1)}  # fmt: skip
    return Applied(run, **parts), (torch.randn(2, 3, 64, 64),)


@network
def depthwise_net() -> Made:
    layers = [block(3, 32, 2)]
    for n, m, s in ((32, 64, 1), (64, 128, 2), (128, 128, 1)):
        layers += [block(n, n, s, groups=n), block(n, m, kernel=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), (
        torch.randn(2, 3, 96, 96),
    )


@network
def residual_net() -> Made:
    def run(p: Any, x: Tensor) -> Tensor:
        x = p["stem"](x)
        for name in ("r1", "r2", "r3"):
            x = F.relu(x + p[name](x))
        return p["head"](x.mean((2, 3)))

    inner = lambda: nn.Sequential(block(32, 32), nn.Conv2d(32, 32, 3, padding=1))
    rest = {f"r{i}": inner() for i in (1, 2, 3)}
    return Applied(run, stem=block(3, 32), head=nn.Linear(32, 10), **rest), (
        torch.randn(4, 3, 32, 32),
    )


@network
def wave_net() -> Made:
    def run(p: Any, x: Tensor) -> Tensor:
        for i in range(5):
            gate, value = p[f"c{i}"](x).chunk(2, 1)
            x = x + torch.sigmoid(gate) * torch.tanh(value)
        return x

    parts = {f"c{i}": nn.Conv1d(32, 64, 3, padding=2**i, dilation=2**i) for i in range(5)}
    return Applied(run, **parts), (torch.randn(2, 32, 800),)


@network
def video_net() -> Made:
    return nn.Sequential(
        nn.Conv3d(3, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
        nn.Linear(32, 5),
    ), (torch.randn(1, 3, 8, 48, 48),)  # fmt: skip


@network
def generator() -> Made:
    layers: list[nn.Module] = []
    for n, m in ((64, 64), (64, 32), (32, 16)):
        layers += [nn.ConvTranspose2d(n, m, 4, 2, 1), nn.BatchNorm2d(m), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(16, 3, 3, padding=1), nn.Tanh()), (
        torch.randn(2, 64, 8, 8),
    )


@network
def graph_net() -> Made:
    def run(p: Any, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for name in ("one", "two"):
            message = p[name](x)[source]
            total = torch.zeros_like(message[: x.shape[0]]).index_add(0, target, message)
            degree = torch.zeros(x.shape[0], dtype=x.dtype).index_add(
                0, target, x.new_ones(len(target))
            )
            x = F.relu(total / degree.clamp(min=1)[:, None])
        return p["out"](x)

    parts = {"one": nn.Linear(64, 64), "two": nn.Linear(64, 64), "out": nn.Linear(64, 8)}
    edges = torch.randint(0, 1000, (2, 8000))
    return Applied(run, **parts), (torch.randn(1000, 64), edges[0], edges[1])


@network
def graph_attention() -> Made:
    def run(p: Any, x: Tensor, near: Tensor) -> Tensor:
        q, k, v = (p[n](x) for n in "qkv")
        scores = (q @ k.mT / 8).masked_fill(~near, float("-inf"))
        return p["o"](scores.softmax(-1) @ v)

    parts = {n: nn.Linear(64, 64) for n in "qkvo"}
    near = (torch.rand(400, 400) < 0.1) | torch.eye(400, dtype=torch.bool)
    return Applied(run, **parts), (torch.randn(400, 64), near)


@network
def recommendation() -> Made:
    def run(p: Any, dense: Tensor, ids: Tensor) -> Tensor:
        rows = [p["bottom"](dense)] + [p[f"t{i}"](ids[:, i]) for i in range(6)]
        z = torch.stack(rows, 1)
        pairs = (z @ z.mT).flatten(1)
        return torch.sigmoid(p["top"](torch.cat((rows[0], pairs), 1)))

    tables = {f"t{i}": nn.Embedding(5000, 32) for i in range(6)}
    bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
    top = nn.Sequential(nn.Linear(32 + 49, 64), nn.ReLU(), nn.Linear(64, 1))
    return Applied(run, bottom=bottom, top=top, **tables), (
        torch.randn(256, 13),
        torch.randint(0, 5000, (256, 6)),
    )


@network
def wide_and_deep() -> Made:
    def run(p: Any, ids: Tensor) -> Tensor:
        return p["wide"](ids) + p["deep"](p["table"](ids).flatten(1))

    deep = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
    parts = {"wide": nn.EmbeddingBag(10000, 1, mode="sum"), "table": nn.Embedding(10000, 16)}
    return Applied(run, deep=deep, **parts), (torch.randint(0, 10000, (256, 8)),)


@network
def encoder_layer() -> Made:
    return nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), (torch.randn(4, 48, 128),)


@network
def decoder_layer() -> Made:
    return nn.TransformerDecoderLayer(128, 4, 256, batch_first=True), (
        torch.randn(4, 32, 128),
        torch.randn(4, 48, 128),
    )


@network
def mixer() -> Made:
    def run(p: Any, x: Tensor) -> Tensor:
        x = x + p["tokens"](p["n1"](x).mT).mT
        return x + p["channels"](p["n2"](x))

    mlp = lambda n, m: nn.Sequential(nn.Linear(n, m), nn.GELU(), nn.Linear(m, n))
    parts = {"n1": nn.LayerNorm(128), "n2": nn.LayerNorm(128), "tokens": mlp(64, 128),
             "channels": mlp(128, 512)}  # fmt: skip
    return Applied(run, **parts), (torch.randn(8, 64, 128),)


@network
def autoencoder() -> Made:
    sizes = (784, 256, 64, 256, 784)
    layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.SELU())]
    return nn.Sequential(*layers), (torch.randn(64, 784),)


@network
def state_space() -> Made:
    def run(p: Any, x: Tensor) -> Tensor:
        decay = torch.sigmoid(p["decay"](x))
        value = p["value"](x)
        logs = decay.log().cumsum(1)
        state = (value * torch.exp(-logs)).cumsum(1) * torch.exp(logs)
        return p["out"](F.silu(p["gate"](x)) * state)

    parts = {n: nn.Linear(64, 64) for n in ("decay", "value", "gate", "out")}
    return Applied(run, **parts), (torch.randn(4, 24, 64),)


@network
def experts() -> Made:
    def run(p: Any, x: Tensor) -> Tensor:
        weight, chosen = p["router"](x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for i in range(4):
            share = (weight * (chosen == i)).sum(-1, keepdim=True)
            out = out + p[f"e{i}"](x) * share
        return out

    mlp = lambda: nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64))
    return Applied(run, router=nn.Linear(64, 4), **{f"e{i}": mlp() for i in range(4)}), (
        torch.randn(128, 64),
    )


@functools.cache
def architectures() -> dict[str, Any]:
    """The cases of tests/models by name."""
    import model_cases

    return {case.name: case for case in model_cases.CASES}


def names() -> Iterator[str]:
    """Every row."""
    for name in (*(f"nn.{n}" for n in NETWORKS), *architectures()):
        for dtype in ("f32", "bf16"):
            yield f"models/{name}/{dtype}"


def longer(t: Tensor) -> Tensor:
    """Token ids and masks of four times the length; pictures and sound in a larger batch."""
    if t.dim() == 2 and not t.is_floating_point():
        return t.repeat(1, WIDER)
    return t.repeat(WIDER, *(1 for _ in t.shape[1:])) if t.is_floating_point() else t


def architecture(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A model of transformers; as small as in the tests where it cannot be wider or longer."""
    case = architectures()[name]
    wide = lambda d: {k: v * WIDER if k in WIDTHS and type(v) is int else v for k, v in d.items()}
    settings = {**wide(case.settings)}
    if "max_position_embeddings" in settings:
        settings["max_position_embeddings"] *= WIDER
    for variant in (case._replace(settings=settings), case):
        try:
            model, args, kwargs = variant.make()
            given = {k: longer(v) for k, v in kwargs.items()}
            with torch.no_grad():
                model(*args, **given)
            return model, args, given
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            continue
    return case.make()


def make(rest: list[str]) -> Call:
    """The call of a model."""
    name, dtype = rest
    torch.manual_seed(0)
    kwargs: dict[str, Any] = {}
    if name.startswith("nn."):
        model, args = NETWORKS[name.removeprefix("nn.")]()
    else:
        model, args, kwargs = architecture(name)
    model = model.eval().to(DTYPES[dtype])
    cast = lambda t: t.to(DTYPES[dtype]) if t.is_floating_point() else t
    args = tuple(cast(t) for t in args)
    kwargs = {k: cast(v) if isinstance(v, Tensor) else v for k, v in kwargs.items()}
    return Call(model, args, kwargs, ", ".join("x".join(map(str, t.shape)) for t in args))
