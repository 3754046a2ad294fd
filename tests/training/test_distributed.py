"""DistributedDataParallel over gloo with two local processes: gradients are eager's, compiled by
torch.compile, which cuts the graph where the buckets end, and by oxyfuel.compile."""

import datetime
import os
import sys
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

import oxyfuel

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

WAYS = ("eager", "torch", "oxyfuel")


class Model(nn.Module):
    """Its parameters fill three buckets of a megabyte."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((8, 600), (600, 600), (600, 600)))
        self.norm = nn.LayerNorm(600)
        self.head = nn.Linear(600, 3)

    def forward(self, x):
        for layer in self.layers:
            x = nn.functional.gelu(layer(x))
        return self.head(nn.functional.dropout(self.norm(x), 0.1, self.training))


def wrapped(way, model):
    if way == "torch":
        return torch.compile(model, backend="oxyfuel")
    return oxyfuel.compile(model) if way == "oxyfuel" else model


def trained(way, rank):
    """Losses and gradients of some steps with accumulation, and what Oxyfuel has counted."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=1)
    oxyfuel.reset()
    torch._dynamo.reset()
    run = wrapped(way, model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    torch.manual_seed(rank)
    losses = []
    for step in range(4):
        with model.no_sync() if step == 1 else warnings.catch_warnings():
            loss = run(torch.randn(4, 8)).square().mean()
            loss.backward()
        losses.append(loss.detach())
        if step != 1:
            optimizer.step()
            gradients = [p.grad.clone() for p in model.parameters()]
            optimizer.zero_grad()
    return losses, gradients, oxyfuel.stats()


def pieces_of(result):
    """The nodes of a compiled backward, in the order in which they run."""
    found, waiting = [], [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in found:
            continue
        is_ours = type(node).__name__ == "CppFunction"  # torch's own have classes
        if is_ours and node.name() != "OxyfuelHandsOver":
            found.append(node)
        waiting.extend(f for f, _ in node.next_functions)
    return found


def events_of_a_step():
    """When pieces of a backward and the communication of buckets begin."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=1)
    oxyfuel.reset()
    run = oxyfuel.compile(model)
    events = []

    def communicate(_, bucket):
        events.append(f"bucket {bucket.index()}")
        reduced = dist.all_reduce(bucket.buffer().div_(2), async_op=True).get_future()
        return reduced.then(lambda f: f.value()[0])

    model.register_comm_hook(None, communicate)
    for _ in range(3):  # torch puts gradients in buckets by their order in the first step
        events.clear()
        result = run(torch.randn(4, 8))
        for i, node in enumerate(pieces_of(result)):
            node.register_prehook(lambda _, i=i: events.append(f"piece {i}"))
        result.square().mean().backward()
    return events


def work(rank, folder):
    """One of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=120),
    )
    found = {way: trained(way, rank) for way in WAYS}
    torch.save({**found, "events": events_of_a_step()}, f"{folder}/{rank}")
    dist.destroy_process_group()


def test_gradients_are_eagers(tmp_path, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / str(rank)) for rank in range(2)]
    for found in ranks:
        for way in WAYS[1:]:
            torch.testing.assert_close(found[way][:2], found["eager"][:2])
            stats = found[way][2]
            assert stats["fallbacks"] == stats["unsupported"] == stats["grad_fallbacks"] == 0
        assert found["torch"][2]["graphs"] == 3
        assert found["oxyfuel"][2]["graphs"] >= 1
        # A bucket is on its way before the next piece of the backward begins.
        assert found["events"] == [
            "piece 0",
            "bucket 0",
            "piece 1",
            "bucket 1",
            "piece 2",
            "bucket 2",
        ]
    torch.testing.assert_close(ranks[0]["oxyfuel"][1], ranks[1]["oxyfuel"][1])
    assert not torch.equal(ranks[0]["eager"][0][0], ranks[1]["eager"][0][0])
