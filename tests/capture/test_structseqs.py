"""Tuples of C code that have fields behind those of the tuple: a time's zone, a file's times in
nanoseconds."""

from __future__ import annotations

import os
import time

import pytest
import torch

import oxyfuel

X = torch.arange(3.0)
now = 0


def stop():
    oxyfuel.graph_break()


def as_argument(x, t):
    stop()
    y = x + t[0]
    stop()
    return y, t


def as_local(x, _):
    t = time.localtime(now)
    stop()
    y = x + t.tm_yday
    stop()
    return y, t, t.tm_zone, t.tm_gmtoff


def hidden(x, t):
    return x + t.tm_gmtoff, t.tm_zone, t


def of_a_file(x, s):
    y = x + s.st_size
    stop()
    return y, s, s.st_mtime_ns, s.st_mtime


def handed_to_c(x, t):
    return x + t.tm_sec, time.mktime(t), time.strftime("%H %Z", t), repr(t), hash(t)


def in_a_list(x, t):
    items = [t, t]
    stop()
    return x * items[0].tm_sec, items


def in_another(x, t):
    kept = (t, 2)
    return x, kept


def made(x, t):
    u = time.struct_time(tuple(t)[:6] + (1, 1, 0))
    stop()
    return x + u.tm_min, u, u.tm_zone


def same(actual, expected):
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    elif isinstance(expected, (time.struct_time, os.stat_result)):
        assert actual.__reduce__() == expected.__reduce__()
    elif isinstance(expected, (tuple, list)):
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    else:
        assert actual == expected


OF_TIMES = (as_argument, as_local, hidden, handed_to_c, in_a_list, in_another, made)


@pytest.mark.parametrize("program", OF_TIMES)
def test_times(program, strict):
    compiled = oxyfuel.compile(program)
    global now
    for i in range(6):
        now = i * 3671
        given = time.localtime(now) if i % 3 else time.gmtime(now)
        same(compiled(X, given), program(X, given))


def test_zones(strict, monkeypatch):
    """Of times that are equal as tuples the fields behind tell captures apart."""
    compiled = oxyfuel.compile(hidden)
    items = tuple(time.gmtime(0))
    for zone, offset in (("UTC", 0), ("UTC", 3600), ("CET", 3600), ("UTC", 0), (None, 0)):
        given = time.struct_time(items, {"tm_zone": zone, "tm_gmtoff": offset})
        same(compiled(X, given), hidden(X, given))


def test_files(strict, tmp_path):
    compiled, path = oxyfuel.compile(of_a_file), tmp_path / "file"
    for i in range(5):
        path.write_text("a" * i)
        given = os.stat(path)
        same(compiled(X, given), of_a_file(X, given))
