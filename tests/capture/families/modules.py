"""Modules: layers, containers of modules, hooks, buffers, shared weights, modules called from
functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from families.entry import Family
from torch import nn

layers = Family("layers")
module_containers = Family("module_containers")
modules = Family("modules")
hooks = Family("hooks")
FAMILIES = [layers, module_containers, modules, hooks]


@layers.made
def linear():
    return nn.Linear(4, 3), (torch.randn(2, 4),)


@layers.made
def linear_without_bias():
    return nn.Linear(4, 3, bias=False), (torch.randn(2, 4),)


@layers.made
def layer_norm():
    return nn.LayerNorm(4), (torch.randn(2, 4),)


@layers.made
def rms_norm():
    return nn.RMSNorm(4), (torch.randn(2, 4),)


@layers.made
def embedding():
    return nn.Embedding(10, 4, padding_idx=0), (torch.tensor([[1, 0, 5]]),)


@layers.made
def convolution():
    return nn.Conv2d(3, 4, 3, padding=1), (torch.randn(1, 3, 6, 6),)


@layers.made
def batch_norm_training():
    return nn.BatchNorm1d(4), (torch.randn(5, 4),)


@layers.made
def batch_norm_evaluation():
    return nn.BatchNorm1d(4).eval(), (torch.randn(5, 4),)


@layers.made
def dropout_evaluation():
    return nn.Dropout(0.5).eval(), (torch.randn(5, 4),)


@layers.made
def attention():
    return nn.MultiheadAttention(4, 2, batch_first=True), tuple(torch.randn(2, 3, 4) for _ in "qkv")


@layers.made
def activations():
    stack = nn.Sequential(nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Softmax(-1), nn.Identity())
    return stack, (torch.randn(2, 4),)


@layers.made
def pooling():
    return nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()), (
        torch.randn(1, 3, 4, 4),
    )


@layers.made
def loss():
    return nn.MSELoss(), (torch.randn(3), torch.randn(3))


@layers.made
def encoder_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return layer, (torch.randn(1, 3, 8),)


@module_containers.made
def sequential():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (torch.randn(2, 4),)


@module_containers.made
def sequential_nested():
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    return nn.Sequential(inner, inner, nn.Linear(4, 2)), (torch.randn(2, 4),)


class Stack(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(n))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        return x + len(self.layers)


@module_containers.made
def module_list():
    return Stack(), (torch.randn(2, 4),)


class Indexed(Stack):
    def forward(self, x):
        first = self.layers[0](x)
        for layer in self.layers[1:]:
            first = F.relu(layer(first))
        return self.layers[-1](first)


@module_containers.made
def module_list_indexed():
    return Indexed(), (torch.randn(2, 4),)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.LayerNorm(4)})

    def forward(self, x, which="b"):
        x = self.table[which](x)
        for name, branch in self.table.items():
            x = branch(x) + len(name)
        return x if "a" in self.table else -x


@module_containers.made
def module_dict():
    return Branches(), (torch.randn(2, 4),), {"which": "a"}


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.list = nn.ParameterList([torch.randn(4), torch.randn(4)])
        self.table = nn.ParameterDict({"w": torch.randn(4)})

    def forward(self, x):
        for w in self.list:
            x = x * w
        return x + self.table["w"]


@module_containers.made
def parameter_containers():
    return Weights(), (torch.randn(2, 4),)


class Block(nn.Module):
    def __init__(self, width=4, scale=0.5):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, width)
        self.scale = scale
        self.register_buffer("offset", torch.arange(float(width)))
        self.gain = nn.Parameter(torch.ones(width))
        self.register_parameter("missing", None)

    def inner(self, x):
        return self.project(self.norm(x)) * self.scale

    def forward(self, x, mask=None):
        y = x + self.inner(x) * self.gain + self.offset
        if mask is not None:
            y = y * mask
        return y if self.missing is None else y * 2


@modules.made
def block():
    return Block(), (torch.randn(2, 4),)


@modules.made
def block_keyword():
    return Block(), (torch.randn(2, 4),), {"mask": torch.ones(2, 1)}


@modules.made
def deep():
    return nn.Sequential(*[Block(scale=i / 2) for i in range(4)]), (torch.randn(2, 4),)


@modules.made
def method_of_module():
    return Block().inner, (torch.randn(2, 4),)


@modules.made
def closure_over_module():
    block = Block()
    return (lambda x: block(x) + block.inner(x)), (torch.randn(2, 4),)


@modules.on(lambda: (Block(), torch.randn(2, 4)))
def module_argument(m, x):
    return m(x) * m.scale + m.offset


@modules.on(lambda: (Block(), torch.randn(2, 4)))
def weights_read(m, x):
    return F.linear(x, m.project.weight) + m.gain + m.norm.bias


@modules.on(lambda: (Block(), torch.randn(4)))
def parameters_listed(m, x):
    return x + sum(p.sum() for p in m.parameters()) + len(list(m.named_buffers()))


@modules.on(lambda: (Block(), torch.randn(4)))
def children_named(m, x):
    for name, child in m.named_children():
        x = child(x) + len(name)
    return x


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids))


@modules.made
def shared_weights():
    return Shared(), (torch.tensor([1, 2, 5]),)


@modules.made
def shared_module():
    one = nn.Linear(4, 4)
    return nn.Sequential(one, nn.ReLU(), one), (torch.randn(2, 4),)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x):
        self.seen += 1
        self.seen.mul_(2)
        self.calls += 1
        return x * self.seen


@modules.made
def buffer_written():
    return Counting(), (torch.randn(3),)


class Replacing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.mean = self.mean * 0.9 + x * 0.1
        return x - self.mean


@modules.made
def buffer_replaced():
    return Replacing(), (torch.randn(3),)


class Modes(nn.Module):
    def forward(self, x):
        return x * 2 if self.training else x * 3


@modules.made
def training_mode():
    return Modes(), (torch.randn(3),)


@modules.made
def evaluation_mode():
    return Modes().eval(), (torch.randn(3),)


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = torch.zeros(5, 4)

    def forward(self, x, at: int):
        self.keys[at] = x
        return self.keys[: at + 1].sum(0)


@modules.made
def cache_written():
    return Cached(), (torch.randn(4), 2)


class Configured(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.act = {"relu": F.relu, "tanh": torch.tanh}[config["act"]]
        self.dense = nn.Linear(config["width"], config["width"])

    def forward(self, x):
        for _ in range(self.config["repeats"]):
            x = self.act(self.dense(x))
        return {"out": x, "config": self.config["act"]}


@modules.made
def configured():
    return Configured({"act": "tanh", "width": 4, "repeats": 2}), (torch.randn(2, 4),)


class Child(Block):
    def forward(self, x):
        return super().forward(x) + 1


@modules.made
def inherited_forward():
    return Child(), (torch.randn(2, 4),)


@modules.on(lambda: (torch.randn(2, 4),), breaks=True)
def built_inside(x):
    return nn.ReLU()(x) + nn.Softmax(dim=-1)(x)


@hooks.made
def forward_hook():
    m = nn.Linear(4, 4)
    m.register_forward_hook(lambda module, args, out: out * 2)
    return m, (torch.randn(2, 4),)


@hooks.made
def pre_hook():
    m = nn.Linear(4, 4)
    m.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return m, (torch.randn(2, 4),)


@hooks.made
def hook_with_state():
    m, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), []
    m[0].register_forward_hook(lambda module, args, out: seen.append(out))
    return (lambda x: (m(x), seen[-1] + 1)), (torch.randn(2, 4),)


@hooks.made
def hook_keywords():
    m = Block()
    m.register_forward_pre_hook(lambda module, a, k: (a, {"mask": k["mask"] * 2}), with_kwargs=True)
    return (lambda x, mask: m(x, mask=mask)), (torch.randn(2, 4), torch.ones(2, 1))
