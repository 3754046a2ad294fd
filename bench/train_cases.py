"""The cases of the benchmark of training: name -> the function that is compiled, and one step with
it.

Models come from `transformers` with random weights, as in cases.py; a step is forward, loss and
backward, of an optimizer its step alone.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

import cases

F = nn.functional


class Case(NamedTuple):
    """`step(f)`: one step with the function, or with a compiled one in its place; gives it."""

    function: Callable[..., Any]
    step: Callable[[Callable[..., Any]], torch.Tensor]


def training(model: nn.Module, *inputs: torch.Tensor, loss=None) -> Case:
    """A module with the mean square of its result as the loss, unless it is another one."""
    model.train()
    loss = loss or (lambda out: out.float().square().mean())

    def step(f):
        model.zero_grad(set_to_none=True)
        for x in inputs:
            x.grad = None
        value = loss(f(*inputs))
        value.backward()
        return value.detach()

    return Case(model, step)


def alone(module: nn.Module, *inputs: torch.Tensor) -> Case:
    """A module without a loss: the gradient of its result is there."""
    module.train()
    gradient = torch.randn_like(module(*inputs))

    def step(f):
        module.zero_grad(set_to_none=True)
        for x in inputs:
            x.grad = None
        out = f(*inputs)
        out.backward(gradient)
        return out.detach()[0].sum()

    return Case(module, step)


def features(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


def language_model(model: str, config: str, **sizes: Any) -> Case:
    """4 layers, a batch of 2 texts of 128 tokens."""
    made = cases.huggingface(model, config, **sizes).train()
    ids = cases.tokens(2, 128, made.config.vocab_size)
    parameters = list(made.parameters())
    labels = {} if model == "BertModel" else {"labels": ids}

    def step(f):
        for p in parameters:
            p.grad = None
        out = f(input_ids=ids, **labels)
        value = out.loss if labels else out.last_hidden_state.square().mean()
        value.backward()
        return value.detach()

    return Case(made, step)


class Block(nn.Module):
    """The block of ResNet-18."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        short = nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
        self.short = nn.Sequential(*(short if stride > 1 or before != after else ()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet18(batch: int) -> Case:
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
              nn.MaxPool2d(3, 2, 1)]  # fmt: skip
    sizes = [64, 64, 128, 256, 512]
    for i, (before, after) in enumerate(itertools.pairwise(sizes)):
        layers += [Block(before, after, 1 + (i > 0)), Block(after, after, 1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return classifier(model, batch)


def classifier(model: nn.Module, batch: int) -> Case:
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    return training(model, images, loss=lambda out: F.cross_entropy(out, labels))


class VisionTransformer(nn.Module):
    """ViT-small of patches of 16 pixels."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        config = transformers.ViTConfig(
            hidden_size=384, num_attention_heads=6, intermediate_size=1536
        )
        self.body = transformers.ViTModel(config, add_pooling_layer=False)
        self.head = nn.Linear(384, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).last_hidden_state[:, 0])


def mlp() -> Case:
    sizes = [512, 2048, 2048, 512]
    layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.GELU())]
    return training(nn.Sequential(*layers), torch.randn(128, 512))


def loss_of(module: nn.Module, target: torch.Tensor, *shape: int) -> Case:
    x = features(*shape)

    def step(f):
        x.grad = None
        value = f(x, target)
        value.backward()
        return value.detach()

    return Case(module, step)


def adamw(**options: Any) -> Case:
    """A step over 200 parameters."""
    parameters = [torch.randn(128, 64).requires_grad_() for _ in range(200)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, **options)

    def step(f):
        f()
        return parameters[0].detach().sum()

    return Case(optimizer.step, step)


def tiny(layers: int) -> Case:
    made = [m for _ in range(layers) for m in (nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())]
    return training(nn.Sequential(*made), torch.randn(4, 8))


WIDE = (4096, 1024)
IMAGE = (16, 64, 56, 56)

CASES: dict[str, Callable[[], Case]] = {
    "bert": lambda: language_model("BertModel", "BertConfig", num_hidden_layers=4),
    "gpt2": lambda: language_model("GPT2LMHeadModel", "GPT2Config", n_layer=4),
    "llama": lambda: language_model(
        "LlamaForCausalLM",
        "LlamaConfig",
        num_hidden_layers=4,
        hidden_size=768,
        intermediate_size=2048,
        num_attention_heads=12,
        num_key_value_heads=4,
        vocab_size=8000,
    ),
    "resnet18_2": lambda: resnet18(2),
    "resnet18_16": lambda: resnet18(16),
    "vit_2": lambda: classifier(VisionTransformer(), 2),
    "vit_16": lambda: classifier(VisionTransformer(), 16),
    "mlp": mlp,
    "layer_norm": lambda: alone(nn.LayerNorm(1024), features(*WIDE)),
    "rms_norm": lambda: alone(nn.RMSNorm(1024), features(*WIDE)),
    "batch_norm": lambda: alone(nn.BatchNorm2d(64), features(*IMAGE)),
    "group_norm": lambda: alone(nn.GroupNorm(32, 64), features(*IMAGE)),
    "relu": lambda: alone(nn.ReLU(), features(*WIDE)),
    "gelu": lambda: alone(nn.GELU(), features(*WIDE)),
    "silu": lambda: alone(nn.SiLU(), features(*WIDE)),
    "softmax": lambda: alone(nn.Softmax(-1), features(*WIDE)),
    "dropout": lambda: alone(nn.Dropout(0.1), features(*WIDE)),
    "cross_entropy": lambda: loss_of(
        nn.CrossEntropyLoss(), torch.randint(0, 8000, (1024,)), 1024, 8000
    ),
    "mse_loss": lambda: loss_of(nn.MSELoss(), torch.randn(WIDE), *WIDE),
    "bce_with_logits": lambda: loss_of(nn.BCEWithLogitsLoss(), torch.rand(WIDE), *WIDE),
    "adamw": adamw,
    "adamw_foreach": lambda: adamw(foreach=True),
    "linear_8": lambda: alone(nn.Linear(8, 8), torch.randn(8, 8)),
    "tiny_48": lambda: tiny(48),
}
MEMORY_BOUND = ("layer_norm", "rms_norm", "batch_norm", "group_norm", "relu", "gelu", "silu",
                "softmax", "dropout", "cross_entropy", "mse_loss", "bce_with_logits", "adamw",
                "adamw_foreach")  # fmt: skip
