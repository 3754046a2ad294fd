"""Where in their storages arguments begin: parts of one tensor, as a loop over batches hands them
in, are served by one capture unless the code depends on the place."""

from __future__ import annotations

import pytest
import torch

import oxyfuel


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    with torch.no_grad():
        yield


def same(actual, expected, base, expected_base):
    """Equal results; views of arguments at the same places of the same storage."""
    if isinstance(expected, (tuple, list)):
        for a, e in zip(actual, expected, strict=True):
            same(a, e, base, expected_base)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected)
        assert actual.stride() == expected.stride()
        if expected.untyped_storage().data_ptr() == expected_base.untyped_storage().data_ptr():
            assert actual.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
            assert actual.storage_offset() == expected.storage_offset()
    else:
        assert actual == expected


def compare(fn, arguments, base, dynamic=None):
    """`arguments(base)`: the calls' arguments, parts of it."""
    compiled = oxyfuel.compile(fn, dynamic=dynamic)
    ours, eagers = base.clone(), base.clone()
    for a, e in zip(arguments(ours), arguments(eagers), strict=True):
        same(compiled(*a), fn(*e), ours, eagers)
        torch.testing.assert_close(ours, eagers)
    return oxyfuel.stats()["recompiles"]


def written(x):
    x.add_(1)
    return x.sum(0)


def written_view(x):
    x[1:3].mul_(2)
    return x * 2, x[2:]


FUNCTIONS = {
    "pointwise": lambda x: x * 2 + 1,
    "softmax": lambda x: x.float().softmax(-1) @ x.float().t(),
    "sum": lambda x: (x.sum(0), x.sum(1), x.sum()),
    "views": lambda x: (x[1:], x.t(), x.view(-1), x[:, 2:], x * 2),
    "itself": lambda x: (x, x + 1),
    "as_strided": lambda x: x.as_strided((2, 3), (3, 1)) + 1,
    "view_as_strided": lambda x: (x.as_strided((2, 3), (3, 1)), x + 1),
    "detach": lambda x: (x.detach(), x.reshape(-1), x.expand(2, *x.shape)),
    "written": written,
    "written_view": written_view,
    "sort": lambda x: x.sort(0).values,
    "linear": lambda x: torch.nn.functional.linear(x.float(), torch.ones(5, x.shape[1])),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.uint8, torch.int64, torch.bool)


def batches(base):
    return [(base[at : at + 48].view(6, 8),) for at in (0, 48, 1, 7, 100, 3)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_capture_for_all_batches(name, dtype):
    if dtype == torch.bool and name in ("written", "written_view"):
        pytest.skip("sums of bool in place are no operation of torch's")
    base = torch.randn(200).mul(9).abs().to(dtype)
    assert compare(FUNCTIONS[name], batches, base) == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_of_any_size(name):
    calls = [(0, 48), (48, 96), (100, 132), (3, 43), (7, 47), (1, 57)]
    count = compare(
        FUNCTIONS[name], lambda b: [(b[i:j].view(-1, 8),) for i, j in calls], torch.randn(200)
    )
    assert count <= 1
    oxyfuel.reset()
    count = compare(
        FUNCTIONS[name], lambda b: [(b[i:j].view(-1, 8),) for i, j in calls], torch.randn(200), True
    )
    assert count == 0


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_columns(name, dynamic):
    compare(
        FUNCTIONS[name] if name not in ("views", "detach") else FUNCTIONS["sum"],
        lambda b: [(b.view(20, 20)[2:8, at : at + 8],) for at in (0, 3, 12, 5)],
        torch.randn(400),
        dynamic,
    )


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_place_in_the_storage(dynamic):
    base = torch.randn(200)
    compare(lambda x: x.as_strided((2, 3), (3, 1), 5) + 1, batches, base, dynamic)
    compare(lambda x: (x + 1, x.as_strided((4,), (2,), 9)), batches, base, dynamic)
    compare(lambda x: (x * x.storage_offset(), x.storage_offset()), batches, base, dynamic)
    compare(lambda x: torch.as_strided_copy(x, (2, 3), (3, 1), 5), batches, base, dynamic)


def test_a_view_as_a_wider_dtype():
    base = torch.randn(200).half()
    even = lambda b: [(b[at : at + 48].view(6, 8),) for at in (0, 48, 2, 100, 4)]  # noqa: E731
    compare(lambda x: (x.view(torch.int32), x + 1), even, base)
    compare(lambda x: x.view(torch.int16) + 1, batches, base)


def pairs_of(bounds):
    """As `arguments` of compare: two parts of the base a call, where each begins and ends."""
    return lambda base: [(base[i:j], base[k:n]) for i, j, k, n in bounds]


def add_to_first(a, b):
    a.add_(1)
    return b * 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_parts_that_may_overlap(dynamic):
    parts = [
        (0, 8, 8, 16),
        (0, 8, 4, 12),
        (0, 8, 0, 8),
        (8, 16, 0, 8),
        (0, 8, 100, 108),
        (3, 11, 9, 17),
    ]
    arguments = pairs_of(parts)
    compare(add_to_first, arguments, torch.randn(200), dynamic)
    compare(lambda a, b: a + b, arguments, torch.randn(200), dynamic)
    longer = [(0, 6, 6, 16), (0, 8, 8, 20), (0, 10, 6, 16), (0, 7, 10, 20), (0, 12, 10, 19)]
    arguments = pairs_of(longer)
    compare(add_to_first, arguments, torch.randn(200), dynamic)
    compare(lambda a, b: a[:5] + b[:5], arguments, torch.randn(200), dynamic)


def read_between(a, b):
    before = b.flip(0) * 2
    a.add_(b[:1].clone())
    a.mul_(before.mean())
    return before, b + 1, a * 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_parts_that_begin_to_overlap(dynamic):
    parts = [
        (0, 6, 6, 12),
        (0, 9, 9, 20),
        (0, 9, 6, 17),
        (0, 4, 6, 20),
        (0, 30, 6, 20),
        (9, 12, 0, 10),
    ]
    arguments = pairs_of(parts)
    compare(read_between, arguments, torch.randn(200), dynamic)


def test_parts_that_are_only_read():
    pairs = [(0, 48), (48, 96), (100, 20), (3, 7)]
    arguments = lambda b: [(b[i : i + 48], b[j : j + 48]) for i, j in pairs]  # noqa: E731
    assert compare(lambda a, b: a * b, arguments, torch.randn(200)) == 0


def test_rows_of_a_cache():
    def step(row, new):
        row.copy_(new * 2)
        return row.sum()

    compiled = oxyfuel.compile(step)
    cache, expected = torch.zeros(6, 10), torch.zeros(6, 10)
    for i in range(6):
        new = torch.randn(10)
        torch.testing.assert_close(compiled(cache[i], new), step(expected[i], new))
        torch.testing.assert_close(cache, expected)
    assert oxyfuel.stats()["recompiles"] == 0


LAYOUTS = {
    "wider_rows": lambda k: torch.randn(6, 8 + k)[:, :8],
    "wider_and_more": lambda k: torch.randn(6 + k, 8 + k)[:, :8],
    "more_columns": lambda k: torch.randn(6, 16 + k)[:, 2 : 2 + k],
    "transposed": lambda k: torch.randn(8, 6 + k).t(),
    "every_other": lambda k: torch.randn(2 * k, 8)[::2],
    "steps": lambda k: torch.randn(60, 8)[::k],
    "transposed_part": lambda k: torch.randn(9, 40 + k)[:8, 3 : 3 + k].t(),
    "expanded": lambda k: torch.randn(1, 8 + k)[:, :8].expand(k, 8),
}


@pytest.mark.parametrize("name", ["pointwise", "softmax", "sum", "itself", "written", "sort"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_that_vary(layout, name):
    if layout == "expanded" and name == "written":
        pytest.skip("torch refuses to write to it")
    fn = FUNCTIONS[name]
    compiled = oxyfuel.compile(fn)
    for k in (2, 5, 3, 9, 12, 4):
        x = LAYOUTS[layout](k)
        mine = torch.empty_strided(x.shape, x.stride()).copy_(x) if layout != "expanded" else x
        expected, actual = fn(x), compiled(mine)
        for a, e in zip(
            *[r if isinstance(r, tuple) else (r,) for r in (actual, expected)], strict=True
        ):
            torch.testing.assert_close(a, e)
            assert a.stride() == e.stride() or 1 in e.shape
        torch.testing.assert_close(mine, x)
    assert oxyfuel.stats()["recompiles"] <= 2


def reads_two(a, b, out):
    out[0] = a.sum() * b[0]
    return a + b


def writes_one(a, b, out):
    a.mul_(2)
    out[0] = b.sum()
    return a + b


def writes_both(a, b, out):
    a += 1
    b *= 2
    return a - b + out


PLACES = (
    *((0, 4, None), (1, 5, None), (2, 9, None), (3, 3, None), (2, 4, None), (5, 1, None)),
    *((0, 4, 10), (0, 4, 2), (0, 12, 5), (7, 8, 8)),
)


@pytest.mark.parametrize("dynamic", (None, True, False))
@pytest.mark.parametrize("function", (reads_two, writes_one, writes_both))
def test_places_in_one_storage(function, dynamic):
    """Only where the storage is written do the places matter, and the results are eager's."""
    compiled = oxyfuel.compile(function, dynamic=dynamic)
    for of_a, of_b, of_out in PLACES:
        results = []
        for run in (function, compiled):
            memory, apart = torch.arange(20.0), torch.zeros(4)
            out = apart if of_out is None else memory[of_out : of_out + 4]
            a, b = memory[of_a : of_a + 4], memory[of_b : of_b + 4]
            results.append([run(a, b, out), memory, apart])
        torch.testing.assert_close(*results)
    if function is reads_two:
        assert oxyfuel.stats()["recompiles"] <= 6


def test_rows_of_a_tensor_that_is_not_written():
    def f(row, rows, out):
        out[0] = row.sum()
        return rows * row

    compiled = oxyfuel.compile(f)
    rows = torch.randn(20, 3)
    for i in range(20):
        out, expected = torch.zeros(2), torch.zeros(2)
        torch.testing.assert_close(compiled(rows[i], rows, out), f(rows[i], rows, expected))
        torch.testing.assert_close(out, expected)
    assert oxyfuel.stats()["recompiles"] == 0
