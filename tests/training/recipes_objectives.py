"""More training programs as in recipes.py: reinforcement, generative models, metric losses,
gradients of gradients."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from recipes import Recipe, mlp
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint


class Ppo(Recipe):
    """The clipped objective, with torch.distributions."""

    def build(self):
        self.model, self.value = mlp(4, 16, 3, act=nn.Tanh), mlp(4, 16, 1, act=nn.Tanh)
        all_ = [*self.model.parameters(), *self.value.parameters()]
        self.o, self.all_ = torch.optim.Adam(all_, 3e-3, eps=1e-5), all_
        self.x, self.act = torch.randn(8, 4), torch.randint(3, (8,))
        self.adv, self.ret = torch.randn(8), torch.randn(8)
        self.old = torch.full((8,), -1.1)

    def step(self, i):
        dist = torch.distributions.Categorical(logits=self.model(self.x))
        ratio = (dist.log_prob(self.act) - self.old).exp()
        adv = (self.adv - self.adv.mean()) / (self.adv.std() + 1e-8)
        policy = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        value = F.mse_loss(self.value(self.x).squeeze(-1), self.ret)
        loss = policy + 0.5 * value - 0.01 * dist.entropy().mean()
        self.o.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.all_, 0.5)
        self.o.step()
        return loss.detach()


class GaussianPolicy(Recipe):
    """A squashed Gaussian policy (soft actor critic), sampled by rsample."""

    def build(self):
        self.model = mlp(4, 16, 4)
        self.q = mlp(6, 16, 1).requires_grad_(False)
        self.alpha = nn.Parameter(torch.zeros(()))
        self.o = torch.optim.Adam([*self.model.parameters(), self.alpha], 3e-3)
        self.x = torch.randn(8, 4)

    def step(self, i):
        mean, log_std = self.model(self.x).chunk(2, -1)
        dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        u = dist.rsample()
        a = torch.tanh(u)
        logp = (dist.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)).sum(-1)
        loss = (
            self.alpha.exp().detach() * logp - self.q(torch.cat([self.x, a], -1)).squeeze(-1)
        ).mean()
        loss = loss - (self.alpha * (logp + 2).detach()).mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Dqn(Recipe):
    """A target net, copied every third step; double Q."""

    def build(self):
        self.model = mlp(4, 16, 3)
        self.t = copy.deepcopy(self.model)
        self.o = torch.optim.RMSprop(self.model.parameters(), 1e-3)
        self.x, self.next = torch.randn(8, 4), torch.randn(8, 4)
        self.act, self.r = torch.randint(3, (8, 1)), torch.randn(8)
        self.done = torch.rand(8) < 0.3

    def step(self, i):
        q = self.model(self.x).gather(1, self.act).squeeze(1)
        with torch.no_grad():
            best = self.model(self.next).argmax(1, keepdim=True)
            after = self.t(self.next).gather(1, best).squeeze(1)
            after[self.done] = 0.0
            target = self.r + 0.9 * after
        loss = F.smooth_l1_loss(q, target)
        self.o.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            p.grad.data.clamp_(-1, 1)
        self.o.step()
        return loss.detach()

    def between(self):
        self.t.load_state_dict(self.model.state_dict())


class Vae(Recipe):
    """Reparameterisation, Bernoulli likelihood and the closed-form divergence."""

    def build(self):
        self.model, self.decode = mlp(12, 16, 6), mlp(3, 16, 12)
        self.o = torch.optim.Adam([*self.model.parameters(), *self.decode.parameters()], 1e-2)
        self.x = torch.rand(7, 12)

    def step(self, i):
        mu, logvar = self.model(self.x).chunk(2, dim=1)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        out = torch.sigmoid(self.decode(z))
        bce = F.binary_cross_entropy(out, self.x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        self.o.zero_grad()
        (bce + kld).backward()
        self.o.step()
        return bce.detach(), kld.detach()


class VaeOfDistributions(Recipe):
    """The same by torch.distributions."""

    def build(self):
        self.model, self.decode = mlp(12, 16, 6), mlp(3, 16, 12)
        self.o = torch.optim.Adam([*self.model.parameters(), *self.decode.parameters()], 1e-2)
        self.x = torch.rand(7, 12).round()

    def step(self, i):
        D = torch.distributions
        mu, logvar = self.model(self.x).chunk(2, dim=1)
        q = D.Independent(D.Normal(mu, F.softplus(logvar) + 1e-3), 1)
        p = D.Independent(D.Normal(torch.zeros(3), torch.ones(3)), 1)
        z = q.rsample()
        like = D.Bernoulli(logits=self.decode(z)).log_prob(self.x).sum(1)
        loss = (D.kl_divergence(q, p) - like).mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class VqVae(Recipe):
    """A codebook with straight-through gradients."""

    def build(self):
        self.model, self.decode = mlp(8, 16, 4), mlp(4, 16, 8)
        self.book = nn.Embedding(10, 4)
        all_ = [*self.model.parameters(), *self.decode.parameters(), *self.book.parameters()]
        self.o = torch.optim.Adam(all_, 1e-2)
        self.x = torch.randn(7, 8)

    def step(self, i):
        z = self.model(self.x)
        code = torch.cdist(z, self.book.weight).argmin(1)
        q = self.book(code)
        loss = F.mse_loss(q.detach(), z) * 0.25 + F.mse_loss(q, z.detach())
        q = z + (q - z).detach()
        loss = loss + F.mse_loss(self.decode(q), self.x)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        usage = torch.bincount(code, minlength=10)
        return loss.detach(), usage


class Coupling(nn.Module):
    def __init__(self, d, flip):
        super().__init__()
        self.net, self.flip = mlp(d // 2, 16, d), flip

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = s.tanh()
        b = b * s.exp() + t
        return torch.cat((b, a) if self.flip else (a, b), 1), s.sum(1)


class Flow(Recipe):
    """A normalizing flow of affine couplings."""

    def build(self):
        self.model = nn.ModuleList([Coupling(4, k % 2 == 1) for k in range(4)])
        self.o = torch.optim.Adamax(self.model.parameters(), 1e-2)
        self.x = torch.randn(9, 4) * 2 + 1

    def step(self, i):
        z, logdet = self.x, torch.zeros(9)
        for layer in self.model:
            z, d = layer(z)
            logdet = logdet + d
        loss = (0.5 * (z**2 + math.log(2 * math.pi)).sum(1) - logdet).mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Diffusion(Recipe):
    """A denoising step at random times, with EMA of the weights by AveragedModel."""

    def build(self):
        self.model, self.time = mlp(12, 24, 4, act=nn.SiLU), nn.Embedding(20, 8)
        self.o = torch.optim.AdamW([*self.model.parameters(), *self.time.parameters()], 1e-2)
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.x = torch.randn(6, 4)
        self.alpha = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 20), 0)

    def step(self, i):
        t, noise = torch.randint(0, 20, (6,)), torch.randn_like(self.x)
        a = self.alpha[t][:, None]
        noisy = a.sqrt() * self.x + (1 - a).sqrt() * noise
        out = self.model(torch.cat([noisy, self.time(t)], 1))
        loss = ((out - noise) ** 2).mean(1)
        loss = (loss * (1 / (1 - self.alpha))[t].clamp(max=5)).mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        self.ema.update_parameters(self.model)
        return loss.detach()


class Triplet(Recipe):
    """The hardest positive and negative of a batch."""

    def build(self):
        self.model = mlp(8, 16, 4)
        self.o = torch.optim.Adagrad(self.model.parameters(), 0.05)
        self.x, self.y = torch.randn(8, 8), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])

    def step(self, i):
        e = F.normalize(self.model(self.x))
        d = (e[:, None] - e[None]).pow(2).sum(-1).clamp(min=1e-12).sqrt()
        same = self.y[:, None] == self.y[None]
        far = (d * same).max(1).values
        near = d.masked_fill(same, float("inf")).min(1).values
        loss = F.relu(far - near + 0.3).mean()
        loss = loss + F.triplet_margin_loss(e[0::2], e[1::2], e.roll(2, 0)[0::2])
        loss = loss + F.cosine_embedding_loss(e[0::2], e[1::2], torch.ones(4))
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Ctc(Recipe):
    """Connectionist temporal classification over a GRU."""

    def build(self):
        self.model, self.head = nn.GRU(5, 8, bidirectional=True), nn.Linear(16, 6)
        self.o = torch.optim.NAdam([*self.model.parameters(), *self.head.parameters()], 1e-2)
        self.x, self.y = torch.randn(12, 3, 5), torch.randint(1, 6, (3, 4))

    def step(self, i):
        logp = self.head(self.model(self.x)[0]).log_softmax(-1)
        loss = F.ctc_loss(logp, self.y, (12, 11, 9), (4, 3, 2))
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Segmentation(Recipe):
    """Focal and dice loss of a small U-net."""

    def build(self):
        self.model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Mish())
        self.up = nn.Sequential(nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(4, 4, 2, 2))
        self.head = nn.Conv2d(8, 2, 1)
        all_ = [*self.model.parameters(), *self.up.parameters(), *self.head.parameters()]
        self.o = torch.optim.Adam(all_, 1e-2)
        self.x, self.y = torch.randn(2, 1, 8, 8), torch.randint(2, (2, 8, 8))

    def step(self, i):
        h = self.model(self.x)
        logits = self.head(torch.cat([h, self.up(h)], 1))
        ce = F.cross_entropy(logits, self.y, reduction="none")
        focal = (0.25 * (1 - torch.exp(-ce)) ** 2 * ce).mean()
        probs, hot = logits.softmax(1), F.one_hot(self.y, 2).permute(0, 3, 1, 2).float()
        both = (probs * hot).sum((2, 3))
        dice = 1 - ((2 * both + 1) / (probs.sum((2, 3)) + hot.sum((2, 3)) + 1)).mean()
        self.o.zero_grad()
        (focal + dice).backward()
        self.o.step()
        return focal.detach(), dice.detach()


class Sam(Recipe):
    """Sharpness-aware minimisation: two backwards a step."""

    def build(self):
        self.model = mlp(8, 16, 3)
        self.o = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self.x, self.y = torch.randn(6, 8), torch.randint(3, (6,))

    def step(self, i):
        loss = F.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        moved = []
        with torch.no_grad():
            norm = torch.norm(torch.stack([p.grad.norm() for p in self.model.parameters()]))
            for p in self.model.parameters():
                e = p.grad * (0.05 / (norm + 1e-12))
                p.add_(e)
                moved.append(e)
        self.o.zero_grad()
        F.cross_entropy(self.model(self.x), self.y).backward()
        with torch.no_grad():
            for p, e in zip(self.model.parameters(), moved):
                p.sub_(e)
        self.o.step()
        self.o.zero_grad()
        return loss.detach()


class Checkpointed(Recipe):
    """Checkpoints with dropout inside."""

    def build(self):
        block = lambda: nn.Sequential(
            nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 8)
        )
        self.model, self.second = block(), block()
        self.o = torch.optim.Adam([*self.model.parameters(), *self.second.parameters()], 1e-2)
        self.x = torch.randn(5, 8)

    def step(self, i):
        h = checkpoint(self.model, self.x, use_reentrant=False)
        h = h + checkpoint(self.second, h, use_reentrant=False)
        loss = h.square().mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, mode, table):
        ctx.scale, ctx.mode = scale, mode
        ctx.save_for_backward(x)
        return x * scale if mode == "up" else x / table["by"]

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.scale * (x > 0), None, None, None


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.alpha, None


class Adversarial(Recipe):
    """Domain adaptation by gradient reversal; a function with arguments that are no tensors."""

    def build(self):
        self.model, self.label, self.domain = mlp(8, 16, 6), nn.Linear(6, 3), nn.Linear(6, 2)
        all_ = [*self.model.parameters(), *self.label.parameters(), *self.domain.parameters()]
        self.o = torch.optim.SGD(all_, 0.1)
        self.x, self.y, self.d = torch.randn(6, 8), torch.randint(3, (6,)), torch.randint(2, (6,))

    def step(self, i):
        alpha = 2.0 / (1.0 + math.exp(-10 * i / 10)) - 1
        h = Scaled.apply(self.model(self.x), 1.5, "up", {"by": 2.0})
        loss = F.cross_entropy(self.label(h), self.y)
        loss = loss + F.cross_entropy(self.domain(Reversal.apply(h, alpha)), self.d)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Hooked(Recipe):
    """Hooks on gradients: of a result, and of parameters."""

    def build(self):
        self.model = mlp(8, 16, 3)
        self.seen = torch.zeros(())
        self.model[0].weight.register_hook(lambda g: g * 0.5)
        self.o = torch.optim.SGD(self.model.parameters(), 0.1)
        self.x, self.y = torch.randn(6, 8), torch.randint(3, (6,))

    def step(self, i):
        out = self.model(self.x)
        out.register_hook(lambda g: g.clamp(-0.1, 0.1))
        loss = F.cross_entropy(out, self.y)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Bag(Recipe):
    """EmbeddingBag with offsets and weights."""

    def build(self):
        self.model, self.head = nn.EmbeddingBag(15, 6, mode="sum"), nn.Linear(6, 1)
        self.o = torch.optim.Adagrad([*self.model.parameters(), *self.head.parameters()], 0.1)
        self.ids, self.offsets = torch.randint(15, (10,)), torch.tensor([0, 3, 3, 7])
        self.w, self.y = torch.rand(10), torch.randint(2, (4, 1)).float()

    def step(self, i):
        out = self.head(self.model(self.ids, self.offsets, per_sample_weights=self.w))
        loss = F.binary_cross_entropy_with_logits(out, self.y, pos_weight=torch.tensor([2.0]))
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class SparseEmbedding(Recipe):
    """Sparse gradients with SparseAdam."""

    def build(self):
        self.model, self.head = nn.Embedding(15, 6, sparse=True), nn.Linear(6, 3)
        self.so = torch.optim.SparseAdam(list(self.model.parameters()), 0.05)
        self.o = torch.optim.Adam(self.head.parameters(), 0.01)
        self.ids, self.y = torch.randint(15, (7,)), torch.randint(3, (7,))

    def step(self, i):
        loss = F.cross_entropy(self.head(self.model(self.ids)), self.y)
        self.so.zero_grad()
        self.o.zero_grad()
        loss.backward()
        self.so.step()
        self.o.step()
        return loss.detach()


class Maml(Recipe):
    """Inner steps by autograd.grad with create_graph, an outer step through them."""

    def build(self):
        self.model = mlp(3, 8, 1, act=nn.Tanh)
        self.o = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.x, self.y = torch.randn(2, 6, 3), torch.randn(2, 6, 1)

    def step(self, i):
        params = dict(self.model.named_parameters())
        total = 0.0
        for x, y in zip(self.x, self.y):
            fast = params
            for _ in range(2):
                loss = F.mse_loss(torch.func.functional_call(self.model, fast, (x[:3],)), y[:3])
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {n: p - 0.1 * g for (n, p), g in zip(fast.items(), grads)}
            total = total + F.mse_loss(
                torch.func.functional_call(self.model, fast, (x[3:],)), y[3:]
            )
        self.o.zero_grad()
        total.backward()
        self.o.step()
        return total.detach()


class HessianVector(Recipe):
    """A product of the Hessian with a vector preconditions the step."""

    def build(self):
        self.model = mlp(5, 8, 1, act=nn.Sigmoid)
        self.x, self.y = torch.randn(6, 5), torch.randn(6, 1)

    def step(self, i):
        params = list(self.model.parameters())
        loss = F.mse_loss(self.model(self.x), self.y)
        grads = torch.autograd.grad(loss, params, create_graph=True)
        v = [torch.randint_like(p, 2) * 2 - 1 for p in params]
        hv = torch.autograd.grad(grads, params, grad_outputs=v)
        with torch.no_grad():
            for p, g, h, s in zip(params, grads, hv, v):
                p.sub_(0.1 * g / ((h * s).abs() + 1))
        return loss.detach(), [h.norm() for h in hv]


class AttackedTraining(Recipe):
    """Adversarial training by projected gradient steps on the input."""

    def build(self):
        self.model = mlp(8, 16, 3)
        self.o = torch.optim.SGD(self.model.parameters(), 0.1)
        self.x, self.y = torch.rand(6, 8), torch.randint(3, (6,))

    def step(self, i):
        delta = torch.zeros_like(self.x).uniform_(-0.1, 0.1)
        delta.requires_grad_()
        for _ in range(2):
            loss = F.cross_entropy(self.model(self.x + delta), self.y)
            (g,) = torch.autograd.grad(loss, delta)
            delta = (delta + 0.03 * g.sign()).clamp(-0.1, 0.1).detach().requires_grad_(True)
        self.o.zero_grad()
        loss = F.cross_entropy(self.model((self.x + delta.detach()).clamp(0, 1)), self.y)
        loss.backward()
        self.o.step()
        return loss.detach()


class FastAttack(Recipe):
    """The gradient by the input, taken from its `grad`."""

    def build(self):
        self.model = mlp(8, 16, 3)
        self.o = torch.optim.SGD(self.model.parameters(), 0.1)
        self.x, self.y = torch.rand(6, 8), torch.randint(3, (6,))

    def step(self, i):
        x = self.x.clone().detach().requires_grad_(True)
        F.cross_entropy(self.model(x), self.y).backward()
        x = (x + 0.05 * x.grad.sign()).detach()
        self.o.zero_grad()
        loss = F.cross_entropy(self.model(x), self.y)
        loss.backward()
        self.o.step()
        return loss.detach()


class MaskedAutoencoder(Recipe):
    """A learned token in the place of what is masked: x[mask] = token."""

    def build(self):
        self.model, self.token = mlp(6, 12, 6), nn.Parameter(torch.randn(6))
        self.o = torch.optim.Adam([*self.model.parameters(), self.token], 1e-2)
        self.x = torch.randn(4, 5, 6)

    def step(self, i):
        mask = torch.rand(4, 5) < 0.4
        h = self.x * 1.0
        h[mask] = self.token
        loss = (self.model(h) - self.x).square().mean(-1)
        loss = (loss * mask).sum() / mask.sum().clamp(min=1)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()


class Amp(Recipe):
    """bfloat16 autocast with a gradient scaler that does nothing on a CPU in bfloat16."""

    def build(self):
        self.model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))
        self.o = torch.optim.AdamW(self.model.parameters(), 1e-2)
        self.scaler = torch.amp.GradScaler("cpu", enabled=True, init_scale=128.0)
        self.x, self.y = torch.randn(6, 8), torch.randint(3, (6,))

    def step(self, i):
        self.o.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(self.x), self.y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.o)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.o)
        self.scaler.update()
        return loss.detach()


class Simclr(Recipe):
    """Two views of a batch, each the other's positive."""

    def build(self):
        first = nn.Linear(8, 16, bias=False)
        self.model = nn.Sequential(first, nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
        self.o = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self.s = torch.optim.lr_scheduler.OneCycleLR(self.o, 0.2, total_steps=20)
        self.x = torch.randn(5, 8)

    def step(self, i):
        both = torch.cat([self.x + 0.1 * torch.randn(5, 8), self.x * (torch.rand(5, 8) > 0.2)])
        z = F.normalize(self.model(both), dim=-1)
        sim = z @ z.T / 0.5
        sim.fill_diagonal_(float("-inf"))
        labels = torch.arange(10).roll(5)
        loss = F.cross_entropy(sim, labels)
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        return loss.detach()

    def between(self):
        self.s.step()


class Byol(Recipe):
    """BYOL: a predictor, a moving target by lerp_ of lists."""

    def build(self):
        self.model, self.predict = mlp(8, 16, 4), mlp(4, 8, 4)
        self.t = copy.deepcopy(self.model)
        self.o = torch.optim.Adam([*self.model.parameters(), *self.predict.parameters()], 1e-2)
        self.x = torch.randn(5, 8)

    def step(self, i):
        a = self.predict(self.model(self.x + 0.1 * torch.randn(5, 8)))
        with torch.no_grad():
            b = self.t(self.x)
        loss = (2 - 2 * F.cosine_similarity(a, b, dim=-1)).mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.t.parameters()), list(self.model.parameters()), 0.05)
        return loss.detach()
