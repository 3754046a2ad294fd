"""Ordinary training programs. Each is a class whose `__init__` makes models, optimizers and data
from a seed, and whose `step(i)` trains for one step and returns what eager returns; `state()` names
all that is compared behind the steps."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize


class Recipe:
    """A training program. `model` is what is compiled where the model alone is."""

    model: nn.Module

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.build()
        torch.manual_seed(1)

    def build(self) -> None:
        raise NotImplementedError

    def step(self, i: int) -> Any:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Parameters, gradients and buffers of all modules, and tensors, of the program."""
        out: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, nn.Module):
                for n, p in value.named_parameters():
                    out[f"{name}.{n}"] = p.detach()
                    out[f"{name}.{n}.grad"] = p.grad
                out.update({f"{name}.{n}": b for n, b in value.named_buffers()})
            elif isinstance(value, torch.Tensor):
                out[name] = value.detach()
        return out


def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class Gan(Recipe):
    """Two optimizers, detach, noise."""

    def build(self):
        self.g, self.model = mlp(4, 16, 8), mlp(8, 16, 1, act=nn.SiLU)
        self.go = torch.optim.Adam(self.g.parameters(), 1e-3, betas=(0.5, 0.999))
        self.do = torch.optim.Adam(self.model.parameters(), 1e-3, betas=(0.5, 0.999))
        self.real = torch.randn(6, 8)

    def step(self, i):
        z = torch.randn(6, 4)
        fake = self.g(z)
        self.do.zero_grad()
        a, b = self.model(self.real), self.model(fake.detach())
        d = F.binary_cross_entropy_with_logits(a, torch.ones_like(a))
        d = d + F.binary_cross_entropy_with_logits(b, torch.zeros_like(b))
        d.backward()
        self.do.step()
        self.go.zero_grad()
        c = self.model(fake)
        g = F.binary_cross_entropy_with_logits(c, torch.ones_like(c))
        g.backward()
        self.go.step()
        return d.detach(), g.detach()


class WganGp(Recipe):
    """A gradient penalty: the gradient by interpolated samples is part of the loss."""

    def build(self):
        self.g, self.model = mlp(4, 16, 8), mlp(8, 16, 1, act=nn.Tanh)
        self.go = torch.optim.RMSprop(self.g.parameters(), 1e-3)
        self.do = torch.optim.RMSprop(self.model.parameters(), 1e-3)
        self.real = torch.randn(6, 8)

    def step(self, i):
        fake = self.g(torch.randn(6, 4)).detach()
        mix = torch.rand(6, 1)
        between = (mix * self.real + (1 - mix) * fake).requires_grad_(True)
        score = self.model(between)
        (slope,) = torch.autograd.grad(
            score, between, torch.ones_like(score), create_graph=True, retain_graph=True
        )
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        loss = self.model(fake).mean() - self.model(self.real).mean() + 10 * penalty
        self.do.zero_grad()
        loss.backward()
        self.do.step()
        return loss.detach(), penalty.detach()


class R1Penalty(Recipe):
    """The gradient by a detached copy of the batch."""

    def build(self):
        self.model = mlp(8, 16, 1, act=nn.Softplus)
        self.o = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.real = torch.randn(6, 8)

    def step(self, i):
        x = self.real.detach()
        x.requires_grad = True
        score = self.model(x)
        grad = torch.autograd.grad(score.sum(), x, create_graph=True)[0]
        loss = F.softplus(-score).mean() + grad.pow(2).sum(1).mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class MoCo(Recipe):
    """A contrastive loss with a queue, and a momentum encoder."""

    def build(self):
        self.model = mlp(8, 16, 4)
        self.k = copy.deepcopy(self.model)
        for p in self.k.parameters():
            p.requires_grad = False
        self.queue = F.normalize(torch.randn(4, 12), dim=0)
        self.at = torch.zeros(1, dtype=torch.long)
        self.o = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
        self.x = torch.randn(4, 8)

    @torch.no_grad()
    def move_keys(self):
        for q, k in zip(self.model.parameters(), self.k.parameters()):
            k.data = k.data * 0.99 + q.data * 0.01

    def step(self, i):
        a, b = self.x + 0.1 * torch.randn_like(self.x), self.x + 0.1 * torch.randn_like(self.x)
        q = F.normalize(self.model(a), dim=1)
        with torch.no_grad():
            self.move_keys()
            k = F.normalize(self.k(b), dim=1)
        positive = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([positive, negative], dim=1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(4, dtype=torch.long))
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        with torch.no_grad():
            at = (i * 4) % 12
            self.queue[:, at : at + 4] = k.T
        return loss.detach()


class MeanTeacher(Recipe):
    """The teacher follows in place."""

    def build(self):
        first = nn.Linear(8, 16, bias=False)
        self.model = nn.Sequential(first, nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
        self.t = copy.deepcopy(self.model)
        self.t.requires_grad_(False)
        self.o = torch.optim.AdamW(self.model.parameters(), 1e-2)
        self.x, self.y = torch.randn(6, 8), torch.randint(4, (6,))

    def step(self, i):
        out = self.model(self.x)
        with torch.no_grad():
            target = self.t(self.x + 0.1 * torch.randn_like(self.x)).softmax(-1)
        loss = F.cross_entropy(out, self.y) + F.mse_loss(out.softmax(-1), target)
        self.o.zero_grad(set_to_none=False)
        loss.backward()
        self.o.step()
        for p, t in zip(self.model.parameters(), self.t.parameters()):
            t.data.mul_(0.9).add_(p.data, alpha=0.1)
        return loss.detach()


class Distillation(Recipe):
    """Soft targets of a frozen teacher."""

    def build(self):
        self.model, self.t = mlp(8, 12, 5), mlp(8, 32, 5).eval()
        self.o = torch.optim.SGD(self.model.parameters(), 0.1, nesterov=True, momentum=0.9)
        self.x, self.y = torch.randn(6, 8), torch.randint(5, (6,))

    def step(self, i):
        with torch.inference_mode():
            soft = F.softmax(self.t(self.x) / 4.0, dim=-1)
        soft = soft.clone()
        out = self.model(self.x)
        loss = 0.7 * F.kl_div(F.log_softmax(out / 4.0, -1), soft, reduction="batchmean") * 16
        loss = loss + 0.3 * F.cross_entropy(out, self.y, label_smoothing=0.1)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Mixup(Recipe):
    """A number drawn for each batch mixes samples and losses."""

    def build(self):
        self.model = mlp(8, 16, 3, act=nn.GELU)
        self.o = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.x, self.y = torch.randn(6, 8), torch.randint(3, (6,))

    def step(self, i):
        lam = torch.rand(()) * 0.5 + 0.5
        index = torch.randperm(6)
        out = self.model(lam * self.x + (1 - lam) * self.x[index])
        loss = lam * F.cross_entropy(out, self.y) + (1 - lam) * F.cross_entropy(out, self.y[index])
        loss.backward()
        self.o.step()
        self.o.zero_grad()
        return loss.detach()


class CutMix(Recipe):
    """A box of another sample, at another place each step."""

    def build(self):
        self.model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
        self.o = torch.optim.SGD(self.model.parameters(), 0.05)
        self.x, self.y = torch.randn(4, 1, 8, 8), torch.randint(3, (4,))

    def step(self, i):
        top, left = (i * 3) % 5, (i * 2) % 4
        x = self.x.clone()
        index = torch.randperm(4)
        x[:, :, top : top + 3, left : left + 4] = self.x[index, :, top : top + 3, left : left + 4]
        lam = 1 - 12 / 64
        out = self.model(x)
        loss = F.cross_entropy(out, self.y) * lam + F.cross_entropy(out, self.y[index]) * (1 - lam)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Accumulation(Recipe):
    """Three small batches a step, clipped by norm, with a schedule."""

    def build(self):
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 2))
        self.o = torch.optim.AdamW(self.model.parameters(), 1e-2)
        self.s = torch.optim.lr_scheduler.CosineAnnealingLR(self.o, 10)
        self.x, self.y = torch.randn(9, 8), torch.randn(9, 2)

    def step(self, i):
        total = 0.0
        for k in range(3):
            part = slice(3 * k, 3 * k + 3)
            loss = F.mse_loss(self.model(self.x[part]), self.y[part]) / 3
            loss.backward()
            total = total + loss.detach()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.o.step()
        self.o.zero_grad()
        return total, norm

    def between(self):
        self.s.step()


class ClipValue(Recipe):
    """Gradients are clipped by value, then by norm without foreach."""

    def build(self):
        self.model = mlp(8, 16, 2)
        self.o = torch.optim.SGD(self.model.parameters(), 0.5, foreach=True)
        self.x, self.y = torch.randn(9, 8), torch.randn(9, 2)

    def step(self, i):
        self.o.zero_grad()
        loss = F.smooth_l1_loss(self.model(self.x) * 5, self.y)
        loss.backward()
        nn.utils.clip_grad_value_(self.model.parameters(), 0.05)
        norm = nn.utils.clip_grad_norm_(
            self.model.parameters(), 0.2, norm_type=math.inf, foreach=False
        )
        total = nn.utils.get_total_norm([p.grad for p in self.model.parameters()])
        self.o.step()
        return loss.detach(), norm, total


class SpectralNorm(Recipe):
    """Spectral norm's power iteration, and a weight norm."""

    def build(self):
        self.model = nn.Sequential(
            parametrizations.spectral_norm(nn.Linear(8, 16)),
            nn.LeakyReLU(0.2),
            parametrizations.weight_norm(nn.Linear(16, 4)),
        )
        self.o = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.x = torch.randn(5, 8)

    def step(self, i):
        loss = self.model(self.x).square().mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class OldNorms(Recipe):
    """torch.nn.utils.weight_norm and spectral_norm, which are hooks."""

    def build(self):
        self.model = nn.Sequential(
            nn.utils.spectral_norm(nn.Conv1d(3, 6, 3)),
            nn.ELU(),
            nn.Flatten(),
            nn.utils.weight_norm(nn.Linear(36, 4)),
        )
        self.o = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.x = torch.randn(5, 3, 8)

    def step(self, i):
        loss = self.model(self.x).square().mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


class Parametrized(Recipe):
    """A parametrization of the user's, and orthogonal weights."""

    def build(self):
        first, second = nn.Linear(6, 6), nn.Linear(6, 6)
        parametrize.register_parametrization(first, "weight", Symmetric())
        parametrizations.orthogonal(second)
        self.model = nn.Sequential(first, nn.Tanh(), second)
        self.o = torch.optim.SGD(self.model.parameters(), 0.1)
        self.x = torch.randn(5, 6)

    def step(self, i):
        loss = (self.model(self.x) - 1).square().mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class TiedLm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, 8), nn.RMSNorm(8)
        self.mix, self.head = nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        h = self.embed(ids)
        h = h + self.mix(self.norm(h).cumsum(1))
        return self.head(self.norm(h))


class TiedWeights(Recipe):
    """A language model whose embedding is its head; padding is ignored."""

    def build(self):
        self.model = TiedLm()
        self.o = torch.optim.AdamW(self.model.parameters(), 1e-2, weight_decay=0.1)
        self.ids = torch.randint(20, (3, 7))
        self.ids[0, 5:] = 0

    def step(self, i):
        logits = self.model(self.ids[:, :-1])
        labels = self.ids[:, 1:].masked_fill(self.ids[:, 1:] == 0, -100)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        loss.backward()
        self.o.step()
        self.o.zero_grad(set_to_none=True)
        return loss.detach()


class Unfreezing(Recipe):
    """A layer is frozen for the first steps."""

    def build(self):
        self.model = mlp(8, 16, 4)
        self.o = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.x, self.y = torch.randn(6, 8), torch.randint(4, (6,))
        self.model[0].requires_grad_(False)

    def step(self, i):
        loss = F.cross_entropy(self.model(self.x), self.y)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()

    def between(self):
        self.count = getattr(self, "count", 0) + 1
        self.model[0].requires_grad_(self.count % 4 >= 2)


class LoraLinear(nn.Module):
    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale, self.drop = alpha / rank, nn.Dropout(0.1)

    def forward(self, x):
        return self.base(x) + (self.drop(x) @ self.a.T @ self.b.T) * self.scale


class Lora(Recipe):
    """Low-rank adapters over frozen layers."""

    def build(self):
        self.model = nn.Sequential(
            LoraLinear(nn.Linear(8, 16)), nn.GELU(), LoraLinear(nn.Linear(16, 4))
        )
        self.o = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], 1e-2)
        self.x, self.y = torch.randn(6, 8), torch.randint(4, (6,))

    def step(self, i):
        loss = F.cross_entropy(self.model(self.x), self.y)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0.0 or not self.training:
            return x
        keep = 1 - self.p
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        if keep > 0.0:
            mask.div_(keep)
        return x * mask


class Block(nn.Module):
    def __init__(self, d, p):
        super().__init__()
        self.n1, self.n2, self.path = nn.LayerNorm(d), nn.LayerNorm(d), DropPath(p)
        self.att = nn.MultiheadAttention(d, 2, batch_first=True, dropout=0.1)
        self.mlp = mlp(d, 2 * d, d, act=nn.GELU)
        self.gamma = nn.Parameter(torch.full((d,), 0.1))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.path(self.gamma * self.att(h, h, h, need_weights=False)[0])
        return x + self.path(self.gamma * self.mlp(self.n2(x)))


class StochasticDepth(Recipe):
    """A small vision transformer's blocks with drop path and layer scale."""

    def build(self):
        self.model = nn.Sequential(Block(8, 0.0), Block(8, 0.3), nn.LayerNorm(8))
        self.o = torch.optim.SGD(self.model.parameters(), 0.1)
        self.x = torch.randn(4, 5, 8)

    def step(self, i):
        loss = (self.model(self.x).mean(1) - 1).square().mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class MultiTask(Recipe):
    """Losses weighted by learned log-variances; two groups of an optimizer."""

    def build(self):
        self.model, self.a, self.b = mlp(8, 12, 6), nn.Linear(6, 1), nn.Linear(6, 3)
        self.logs = nn.ParameterList([nn.Parameter(torch.zeros(())) for _ in range(2)])
        rest = [*self.model.parameters(), *self.a.parameters(), *self.b.parameters()]
        self.o = torch.optim.Adam(
            [{"params": rest}, {"params": self.logs.parameters(), "lr": 0.05}], 1e-2
        )
        self.x, self.y, self.c = torch.randn(6, 8), torch.randn(6, 1), torch.randint(3, (6,))

    def step(self, i):
        h = self.model(self.x).relu()
        losses = [F.l1_loss(self.a(h), self.y), F.cross_entropy(self.b(h), self.c)]
        loss = sum(torch.exp(-s) * one + s for s, one in zip(self.logs, losses))
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return [one.detach() for one in losses]


class TruncatedBptt(Recipe):
    """The state of an LSTM goes from step to step, detached."""

    def build(self):
        self.embed = nn.Embedding(12, 6)
        self.model, self.head = nn.LSTM(6, 10, 2, batch_first=True, dropout=0.1), nn.Linear(10, 12)
        all_ = [*self.embed.parameters(), *self.model.parameters(), *self.head.parameters()]
        self.o = torch.optim.SGD(all_, 0.5)
        self.all_ = all_
        self.ids = torch.randint(12, (2, 41))
        self.h = None

    def step(self, i):
        ids, labels = self.ids[:, 4 * i : 4 * i + 4], self.ids[:, 4 * i + 1 : 4 * i + 5]
        if self.h is not None:
            self.h = tuple(h.detach() for h in self.h)
        out, self.h = self.model(self.embed(ids), self.h)
        loss = F.cross_entropy(self.head(out).reshape(-1, 12), labels.reshape(-1))
        self.o.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.all_, 0.25)
        self.o.step()
        return loss.detach()


class GruCell(Recipe):
    """A cell called in a loop over time."""

    def build(self):
        self.model, self.head = nn.GRUCell(4, 8), nn.Linear(8, 1)
        self.o = torch.optim.Adam([*self.model.parameters(), *self.head.parameters()], 1e-2)
        self.x, self.y = torch.randn(5, 3, 4), torch.randn(3, 1)

    def step(self, i):
        h = torch.zeros(3, 8)
        for x in self.x:
            h = self.model(x, h)
        loss = F.huber_loss(self.head(h), self.y)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()
