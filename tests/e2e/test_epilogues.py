"""What follows a gemm or convolution element by element runs on the blocks that it has finished:
bit for bit as a kernel of its own does."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

FORMS = {
    "relu": lambda y, r: F.relu(y),
    "gelu": lambda y, r: F.gelu(y),
    "gelu_tanh": lambda y, r: F.gelu(y, approximate="tanh"),
    "silu": lambda y, r: F.silu(y),
    "residual": lambda y, r: y + r,
    "residual_relu": lambda y, r: F.relu(y + r),
    "gate": lambda y, r: F.silu(r) * y,
    "columns": lambda y, r: y * torch.rsqrt(r[..., :1, :].abs() + 1) + r[..., 1:2, :],
    "rows": lambda y, r: y * r[..., :1].sigmoid(),
    "compared": lambda y, r: torch.where(y > r, y, 0.1 * y),
    "halved": lambda y, r: (y + r).to(torch.bfloat16),
}


@pytest.fixture(autouse=True)
def fresh(fresh):
    threads = torch.get_num_threads()
    yield
    oxyfuel.set_logs()
    torch.set_num_threads(threads)


class Checker:
    """Compares a function compiled with epilogues, without them, and eager, results and written
    inputs."""

    def __init__(self, capfd):
        self._capfd = capfd

    def run(self, fn, inputs, epilogues, options):
        oxyfuel.reset()
        copies = [x.clone() for x in inputs]
        oxyfuel.set_logs("output_code")
        self._capfd.readouterr()
        with torch.no_grad():
            compiled = oxyfuel.compile(
                fn, options={"gemm_backend": "own", "epilogues": epilogues, **options}
            )
            result = compiled(*copies)
            made = self._capfd.readouterr().err.count(" epilogue ")
            again = compiled(*[x.clone() for x in inputs])
        oxyfuel.set_logs()
        assert oxyfuel.stats()["fallbacks"] == 0
        result = (result,) if isinstance(result, torch.Tensor) else tuple(result)
        again = (again,) if isinstance(again, torch.Tensor) else tuple(again)
        for a, b in zip(result, again, strict=True):
            assert torch.equal(a, b)
        return (*result, *copies), made

    def __call__(self, fn, *inputs, count=1, tolerance=2e-4, **options):
        copies = [x.clone() for x in inputs]
        with torch.no_grad():
            expected = fn(*copies)
        expected = (expected,) if isinstance(expected, torch.Tensor) else tuple(expected)
        got, made = self.run(fn, inputs, True, options)
        apart, none = self.run(fn, inputs, False, options)
        assert (made, none) == (count, 0)
        for g, a, e in zip(got, apart, (*expected, *copies), strict=True):
            assert g.dtype == e.dtype and g.stride() == e.stride()
            assert torch.equal(g, a)
            near = max(tolerance, 1e-2 if e.dtype in (torch.bfloat16, torch.float16) else 0)
            torch.testing.assert_close(g, e, rtol=near, atol=near)


@pytest.fixture
def check(capfd):
    return Checker(capfd)


def operands(m, k, n, dtype=torch.float32):
    return (
        torch.randn(m, k).to(dtype),
        torch.randn(n, k).to(dtype) / k**0.5,
        torch.randn(n).to(dtype),
        torch.randn(m, n).to(dtype),
    )


@pytest.mark.parametrize("form", FORMS)
def test_forms(check, form):
    def fn(x, w, b, r):
        return FORMS[form](F.linear(x, w, b), r)

    check(fn, *operands(70, 40, 128))


@pytest.mark.parametrize("threads,vector_bytes", [(1, -1), (2, 32)])
@pytest.mark.parametrize(
    "m,k,n",
    [
        (17, 9, 17),  # the fewest rows and columns
        (23, 31, 50),  # one panel, not whole
        (100, 40, 131),  # a last panel with partial vectors
        (600, 64, 192),  # several blocks of rows
        (300, 700, 128),  # several pieces of k
        (290, 1024, 160),  # and rows of A that are copied
        (64, 2048, 65),
    ],
)
@pytest.mark.parametrize("form", ["gelu", "columns"])
def test_shapes(check, form, m, k, n, threads, vector_bytes):
    torch.set_num_threads(threads)

    def fn(x, w, b, r):
        return FORMS[form](F.linear(x, w, b), r)

    check(fn, *operands(m, k, n), vector_bytes=vector_bytes)


@pytest.mark.parametrize("fence", ["start", "end"])
@pytest.mark.parametrize("m,k,n", [(70, 700, 131), (40, 16, 64)])
@pytest.mark.parametrize("form", ["gate", "columns"])
def test_fences(check, form, m, k, n, fence):
    def fn(x, w, b, r):
        return FORMS[form](F.linear(x, w, b), r)

    check(fn, *operands(m, k, n), fence=fence)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("form", ["relu", "residual", "gate"])
def test_fp16_and_bf16(check, form, dtype):
    def fn(x, w, b, r):
        return FORMS[form](F.linear(x, w, b), r)

    check(fn, *operands(80, 600, 100, dtype), tolerance=3e-2)


@pytest.mark.parametrize("shape", [(3, 33, 40, 96), (2, 300, 20, 70)])
@pytest.mark.parametrize("form", ["relu", "residual", "columns", "rows"])
def test_batches(check, form, shape):
    batch, m, k, n = shape
    x, y, r = torch.randn(batch, m, k), torch.randn(batch, k, n), torch.randn(batch, m, n)
    check(lambda x, y, r: FORMS[form](torch.bmm(x, y), r), x, y, r)


def test_a_view_of_more_dimensions(check):
    x, w, r = torch.randn(4, 30, 64), torch.randn(128, 64), torch.randn(4, 30, 128)
    check(lambda x, w, r: F.relu(F.linear(x, w) + r), x, w, r)
    heads = torch.randn(4, 2, 30, 64)
    check(lambda x, w, r: F.linear(x, w).view(4, 30, 2, 64).transpose(1, 2) + r, x, w, heads)


class Block(torch.nn.Module):
    def __init__(self, channels, residual):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.norm.running_mean.uniform_()
        self.norm.running_var.uniform_(0.5, 2)
        self.residual = residual

    def forward(self, x):
        y = self.norm(self.conv(x))
        return F.relu(y + x) if self.residual else F.relu(y)


@pytest.mark.parametrize("freezing", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("images,channels", [(1, 16), (1, 72), (1, 128), (2, 128)])
def test_convolutions(check, images, channels, residual, freezing):
    block = Block(channels, residual).eval()
    x = torch.randn(images, channels, 17, 19).to(memory_format=torch.channels_last)
    check(block, x, freezing=freezing)
    check(block, x, freezing=freezing, fence="end")


def test_frozen_weights(check):
    linear = torch.nn.Linear(700, 200)
    check(lambda x: F.gelu(linear(x)), torch.randn(300, 700), freezing=True)


def test_the_gemm_is_a_result_too(check):
    def fn(x, w, b, r):
        y = F.linear(x, w, b)
        return F.relu(y), y

    check(fn, *operands(70, 40, 128))


def test_the_gemm_is_read_by_others(check):
    def fn(x, w, b, r):
        y = F.linear(x, w, b)
        return F.gelu(y) @ r.t(), y @ r.t()

    check(fn, *operands(70, 40, 128))


def test_the_residual_is_an_operand(check):
    def fn(x, w, b, r):
        h = x.exp()
        h = h + F.linear(h, w, b)
        return F.relu(h + F.linear(h, w, b))

    check(fn, *operands(150, 128, 128), count=2, tolerance=1e-3)


def test_a_written_input(check):
    def fn(x, w, b, r):
        r.add_(F.linear(x, w, b))
        return r * 2

    check(fn, *operands(70, 40, 128))


def test_a_written_operand(check):
    """No block may be written before all others have been made from it."""

    def fn(x, w, b):
        x.add_(F.linear(x, w, b))

    x, w, b, _ = operands(600, 128, 128)
    check(lambda x, w, b: (fn(x, w, b), x.sum())[1], x, w, b, count=0, tolerance=1e-3)


def test_two_readers(check):
    def fn(x, w, b, r):
        y = F.linear(x, w, b)
        return F.relu(y), y.t() + 1

    check(fn, *operands(100, 40, 128))


def test_what_is_no_epilogue(check):
    def row_sums(x, w, b, r):
        return F.softmax(F.linear(x, w, b), -1)

    def moved(x, w, b, r):
        return F.linear(x, w, b)[1:] - F.linear(x, w, b)[:-1]

    def few_rows(x, w, b, r):
        return F.relu(F.linear(x[:16], w, b))

    for fn in (row_sums, moved, few_rows):
        check(fn, *operands(70, 40, 128), count=0)


def test_a_chain(check):
    def fn(x, w, b, r):
        for _ in range(3):
            x = F.gelu(F.linear(x, w, b)) + x
        return x

    check(fn, *operands(40, 64, 64), count=3)


def test_option(check):
    x, w, b, _ = operands(70, 40, 128)
    check(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b, count=0, fusion=False)
