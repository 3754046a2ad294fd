"""The log of what each kernel moves, and how fast."""

import re

import torch

import oxyfuel


def test_rows_of_kernels(capfd):
    oxyfuel.reset()
    oxyfuel.set_logs(bandwidth=True)
    try:
        x, y = torch.randn(1000, 1000), torch.randn(1000)
        oxyfuel.compile(lambda x, y: (x + y).relu())(x, y)
    finally:
        oxyfuel.set_logs(bandwidth=False)
    text = capfd.readouterr().err
    row = re.search(r"(\S+) +([\d.]+) MB +([\d.]+) ms +([\d.]+) GB/s +(\d+) %", text)
    assert row, text
    assert float(row[2]) == 8.004
    assert "a copy of 128 MB" in text
    assert oxyfuel.stats()["moved_bytes"] == 8_004_000


def test_gathers_count_what_they_read():
    oxyfuel.reset()
    table, index = torch.randn(5000, 64), torch.randint(0, 5000, (128,))
    oxyfuel.compile(lambda t, i: t[i] * 2)(table, index)
    assert oxyfuel.stats()["moved_bytes"] == 128 * 64 * 4 * 2 + 128 * 8
