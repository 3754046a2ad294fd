"""Short rows, whose results go through functions in vectors, and columns in tiles that are not
whole: both keep what an iteration needs in padded scratch memory."""

import pytest
import torch

import oxyfuel

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

ROWS = {
    "logsumexp": lambda x: x.logsumexp(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "of_two_folds": lambda x: torch.log(x.exp().sum(-1) + 1) - torch.tanh(x.amax(-1)),
    "in_front_of_the_fold": lambda x: (x * torch.exp(x[..., :1])).sum(-1),
    "position": lambda x: torch.log(x.argmax(-1).to(x.dtype) + 1),
    "extreme_and_position": lambda x: [torch.exp(r.to(x.dtype)) for r in x.max(-1)],
    "result_and_rows": lambda x: (x.logsumexp(-1), x - x.logsumexp(-1, keepdim=True)),
    "any": lambda x: torch.where((x > 2).any(-1), x.sum(-1).sin(), x.sum(-1).cos()),
}


def check(f, x):
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if x.element_size() == 2 else {}
    got, want = oxyfuel.compile(f)(x), f(x)
    torch.testing.assert_close(got, want, equal_nan=True, **tolerance)


@pytest.mark.usefixtures("strict_without_grad")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_results_of_rows(name, dtype):
    torch.manual_seed(0)
    check(ROWS[name], torch.randn(2113, 5).to(dtype))
    check(ROWS[name], torch.randn(50, 50, 34).to(dtype)[..., ::2])


@pytest.mark.usefixtures("strict_without_grad")
@pytest.mark.parametrize("dtype", (*DTYPES, torch.int64, torch.uint8), ids=str)
def test_scans_of_rows(dtype):
    torch.manual_seed(0)
    for columns in (5, 12, 15, 33):
        x = torch.randint(1, 4, (130, columns + 3)).to(dtype)
        for rows in (x[:, 1 : 1 + columns], x[:, :columns].T.contiguous().T):
            check(lambda x: x.cumsum(-1), rows)
            check(lambda x: 1 + (x // x.amax()).cumsum(-1), rows)


FEW = {
    "sum": lambda x: x.sum(-1),
    "sums of both": lambda x: x.unflatten(0, (-1, 2)).sum((1, -1)),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: (x + 1).amin(-1, keepdim=True) * x,
    "prod": lambda x: x.prod(-1),
    "any": lambda x: (x > 2).any(-1),
    "all": lambda x: x.bool().all(-1),
    "columns": lambda x: x.T.contiguous().sum(0),
    "normal": lambda x: x - x.amax(-1, keepdim=True),
    "logsumexp": lambda x: x.double().logsumexp(-1),
}


@pytest.mark.usefixtures("strict_without_grad")
@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("dtype", (*DTYPES, torch.int64, torch.uint8, torch.bool), ids=str)
def test_few_elements(name, dtype):
    torch.manual_seed(0)
    if dtype == torch.bool and name in ("amin", "normal", "logsumexp"):
        return
    for elements in (2, 3, 4):
        x = torch.randint(0, 4, (1300, elements)).to(dtype)
        if dtype.is_floating_point:
            x[7, 1], x[8, 0], x[9, 1] = float("nan"), float("inf"), -float("inf")
        check(FEW[name], x)
    x = x[:1].expand(1300, 4)
    check(FEW[name], x)


@pytest.mark.usefixtures("strict_without_grad")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_rows(dtype):
    """Folds at each element of an axis that a later fold takes."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 64, 16).to(dtype), torch.randn(4096, 8, 2).to(dtype)
    check(lambda x: x.sum(2).amax(0), x)
    check(lambda x: ((v := x.transpose(1, 2).contiguous() + 1).sum(2).amax(0), v), x)
    check(lambda y: (s := y.sum(-1)) - s.amax(-1, keepdim=True), y)
    check(lambda y: y.sum(-1).exp().softmax(-1), y)


@pytest.mark.usefixtures("strict_without_grad")
def test_results_of_rows_of_any_number():
    f = oxyfuel.compile(ROWS["log_softmax"], dynamic=True)
    for rows in (4096, 63, 64, 65, 2111, 0, 1):
        x = torch.randn(rows, 7)
        torch.testing.assert_close(f(x), x.log_softmax(-1))
    assert oxyfuel.stats()["recompiles"] <= 2, "but for 0 and 1 one compilation"


FLOATS = {
    "softmax": lambda x: x.softmax(0),
    "var": lambda x: x.var(0),
    "centred": lambda x: x - x.mean(0),
}
COLUMNS = {
    "sum": lambda x: x.sum(0),
    "amax": lambda x: x.amax(0),
    "mixed": lambda x: (x.sum(0), x.prod(0), (x > 0).any(0), x / (x.abs().amax(0) + 1)),
}


@pytest.mark.usefixtures("strict_without_grad")
@pytest.mark.parametrize("dtype", (*DTYPES, torch.int64, torch.uint8), ids=str)
def test_columns_in_tiles(dtype):
    torch.manual_seed(0)
    for shape in ((1000, 100), (257, 17), (3, 3001)):
        x = (torch.randn(shape) * 0.1 + 1).to(dtype)
        for f in (COLUMNS | (FLOATS if dtype.is_floating_point else {})).values():
            check(f, x)


@pytest.mark.usefixtures("strict_without_grad")
def test_columns_of_rows_at_indices():
    """What is read at a loaded index differs from row to row."""
    x, i, w = torch.randn(500, 100), torch.randint(0, 500, (300,)), torch.rand(300, 100)
    for f in (
        lambda x, i, w: (x[i].exp() * w).sum(0),
        lambda x, i, w: (x[i].tanh() * w + w.exp()).var(0),
        lambda x, i, w: (x[i].exp().log() * w).softmax(0),
    ):
        torch.testing.assert_close(oxyfuel.compile(f)(x, i, w), f(x, i, w))


@pytest.mark.usefixtures("strict_without_grad")
def test_results_take_over_memory(tmp_path, monkeypatch):
    """Of what their kernel reads last, where that is all that reads it."""
    monkeypatch.setenv("OXYFUEL_TRACE", str(tmp_path))
    torch.manual_seed(0)
    x = torch.randn(300, 300) / 10  # small numbers, whose exponentials do not blow up last bits
    for f, taken in (
        (lambda x: (x.exp() @ x).softmax(0), True),
        (lambda x: torch.relu(x.softmax(0) @ x.exp() + 1), True),
        (lambda x: [a := x.exp(), a @ x, a + 1], False),
        (lambda x: (a := x.softmax(0)) + a.mT, False),
    ):
        check(f, x)
        texts = sorted(tmp_path.glob("**/output_code.txt"), key=lambda p: p.stat().st_mtime_ns)
        buffers = [line for line in texts[-1].read_text().splitlines() if ": view of " in line]
        assert taken == any(line.startswith("  buffer buf") for line in buffers), buffers


@pytest.mark.usefixtures("strict_without_grad")
@pytest.mark.parametrize(
    "options", ({}, {"gemm_backend": "own"}, {"gemm_backend": "aten"}), ids=str
)
def test_views_of_what_lies_in_results(options):
    x, y = torch.randn(256, 256), torch.randn(256, 256)

    def both(x, y):
        a = x.exp() * 0.1
        b = a.view(128, 512).t() @ y[:128]
        return b, a / (a.sum(-1, keepdim=True) + b[:256])

    def batched(x, y):
        a = x.softmax(-1)
        b = torch.bmm(a.view(4, 64, 256), a.view(4, 64, 256).transpose(1, 2))
        return b, a - b.mean()

    def centred(x, y):
        h = torch.tanh(x @ y + 1)
        return (h - h.mean(0)) * 2

    for f in (both, batched, centred):
        for dynamic in (None, True):
            compiled = oxyfuel.compile(f, dynamic=dynamic, options=options)
            torch.testing.assert_close(compiled(x, y), f(x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [2, 4, 5])
def test_sums_of_negative_zeros(n):
    for x in (torch.full((4096, n), -0.0), torch.full((n, 4096), -0.0)):
        for f in (lambda x: 1 / x.sum(0), lambda x: 1 / x.sum(1), lambda x: 1 / x.mean(1)):
            assert torch.equal(oxyfuel.compile(f)(x), f(x))
