"""Small models train compiled as they do in eager: from the same seed, with dropout on, every loss
is eager's to rounding.

OXYFUEL_STEPS=200 trains longer than CI does.
"""

import os

import pytest
import torch
from torch import nn

import oxyfuel

STEPS = int(os.environ.get("OXYFUEL_STEPS", "30"))
F = nn.functional


def mlp():
    return nn.Sequential(
        nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(32), nn.Linear(32, 4)
    )


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout2d(0.1),
        nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 4),
    )


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.GRU(4, 12, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        return self.head(self.layers(x)[0][:, -1])


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16, padding_idx=0)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        words = self.embedding(x)
        count = (x != 0).sum(1, keepdim=True).clamp(min=1)
        return self.head(F.dropout(words.sum(1) / count, 0.3, self.training))


def features(*shape):
    return lambda: torch.randn(*shape)


def tokens(high):
    return lambda: torch.randint(0, high, (8, 6))


MODELS = {
    "mlp": (mlp, features(8, 16)),
    "convolutions": (convolutions, features(8, 1, 8, 8)),
    "transformer": (Transformer, tokens(20)),
    "recurrent": (Recurrent, features(8, 5, 4)),
    "bag": (Bag, tokens(50)),
}


def curve(name, wrap):
    """The losses of a training, and the outputs in evaluation mode behind it."""
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make()
    run = wrap(model)
    batches = [(inputs(), torch.randint(0, 4, (8,))) for _ in range(8)]
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        x, y = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = F.cross_entropy(run(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    model.eval()
    with torch.no_grad():
        return torch.stack(losses), run(batches[0][0]), torch.rand(2)


@pytest.mark.parametrize("name", MODELS)
def test_curve(name):
    expected = curve(name, lambda m: m)
    found = curve(name, oxyfuel.compile)
    # Roundings grow with the steps.
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found[0][:5], expected[0][:5], rtol=1e-5, atol=1e-6)
    assert torch.equal(found[2], expected[2])  # the random numbers go on in the same place
    stats = oxyfuel.stats()
    assert stats["grad_fallbacks"] == stats["unsupported"] == 0
    assert stats["recompiles"] <= 1  # for evaluation mode


def test_torch_compile():
    torch._dynamo.reset()
    expected = curve("mlp", lambda m: m)
    found = curve("mlp", lambda m: torch.compile(m, backend="oxyfuel"))
    torch._dynamo.reset()
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    assert torch.equal(found[2], expected[2])
