"""Where memory runs out, a call has happened as in eager or not at all: never a second time."""

import ctypes
import warnings

import pytest
import torch
from run_text_tests import find_tool

import oxyfuel


def in_place_and_sum(x, y):
    x.add_(y)
    return (x * 2).sum(0)


def two_in_place(x, y):
    x.mul_(2)
    y.add_(x)
    return x + y, y.t()


def swapped(x, y):
    a, b = y * 2, x + 1
    x.copy_(a)
    y.copy_(b)
    return a[:, ::2], b


def transposed(x, y):
    x.add_(1)
    y.copy_((x * 2).t())
    return x.view(-1), y, x.sum(0)


def behind_an_extern_call(x, y):
    a = torch.linalg.inv(x + 9 * torch.eye(64))
    x.add_(1)
    y.copy_(a)
    return a.t(), a[0], x


def values_of_what_is_written(x, y):
    x.add_(1)
    return x.clone(), (x + 0)[1:], (y * 2).expand(3, 64, 64), x.flatten()


def random_numbers(x, y):
    a = torch.rand(64, 64)
    x.add_(a)
    y.mul_(2)
    return x.relu(), torch.rand(3)


PROGRAMS = [in_place_and_sum, two_in_place, swapped, transposed, behind_an_extern_call,
            values_of_what_is_written, random_numbers]  # fmt: skip


def arguments():
    g = torch.Generator().manual_seed(0)
    return [torch.rand(64, 64, generator=g) for _ in range(2)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_allocation_fails_once(program, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "0")
    allocator = ctypes.CDLL(find_tool("libfailing_allocator.so"))
    allocator.allocation_has_failed.restype = ctypes.c_bool
    oxyfuel.reset()

    def outcome(f):
        inputs = arguments()
        torch.manual_seed(1)
        results = f(*inputs)
        return [*(results if isinstance(results, tuple) else [results]), *inputs]

    expected, run = outcome(program), oxyfuel.compile(program)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome(run)
        assert oxyfuel.stats()["plans"] > 0
        for n in range(1000):
            inputs = arguments()
            torch.manual_seed(1)
            allocator.fail_allocation(ctypes.c_int64(n))
            try:
                results = run(*inputs)
            finally:
                failed = allocator.allocation_has_failed()
                allocator.fail_allocation(ctypes.c_int64(-1))
            found = [*(results if isinstance(results, tuple) else [results]), *inputs]
            for a, b in zip(expected, found, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, msg=f"allocation {n}")
            if not failed:
                break
    assert 0 < n < 100  # as many as the plan makes
