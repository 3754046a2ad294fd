"""What random programs found once, by hand and small."""

import pytest
import torch

import oxyfuel


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    with torch.no_grad():
        yield


def compiled(f):
    return oxyfuel.compile_fx(torch.fx.symbolic_trace(f))


@pytest.mark.parametrize(
    "view",
    [lambda x: x[1:], lambda x: x.t(), lambda x: x.unsqueeze(0), lambda x: x.diagonal()],
    ids=["slice", "transpose", "unsqueeze", "diagonal"],
)
def test_view_of_a_written_input_with_gaps_and_an_offset(view):
    """Rebuilt on the written value, the view had that value's strides and no offset."""

    def f(x):
        x.neg_()
        return view(x)

    a, b = torch.arange(40.0), torch.arange(40.0)
    expected, result = (
        f(a.as_strided((4, 4), (8, 2), 3)),
        compiled(f)(b.as_strided((4, 4), (8, 2), 3)),
    )
    assert torch.equal(result, expected) and torch.equal(a, b)
    assert result.stride() == expected.stride()
    assert result.storage_offset() == expected.storage_offset()


def test_reshape_of_a_written_input_that_eager_copies():
    def f(x):
        return x.neg_().flatten()

    a, b = torch.arange(12.0).view(3, 4)[:, :3], torch.arange(12.0).view(3, 4)[:, :3]
    expected, result = f(a), compiled(f)(b)
    assert torch.equal(result, expected) and torch.equal(a, b)
    assert result.data_ptr() != b.data_ptr()


def test_write_through_a_view_that_overlaps_itself():
    def f(x):
        x.unfold(0, 2, 1).zero_()
        return x * 2

    assert torch.equal(compiled(f)(torch.ones(4)), torch.zeros(4))


def test_a_kernel_with_nine_buffers_and_booleans():
    """The ninth buffer was called b8, as the type of booleans."""

    def f(x):
        a = [x + i for i in range(9)]
        return (*a, x > 0, torch.where(x > 0, x, 1.0), x.amax(-1), (x > 1).any(-1), x.argmax(-1))

    x = torch.randn(5, 19)
    for ours, eager in zip(compiled(f)(x), f(x), strict=True):
        assert torch.equal(ours, eager)


def test_log_sigmoid_of_a_transposed_tensor_is_contiguous():
    x = torch.randn(6, 7).t()
    ours = compiled(lambda x: torch.nn.functional.logsigmoid(x))(x)
    eager = torch.nn.functional.logsigmoid(x)
    assert ours.stride() == eager.stride()
    torch.testing.assert_close(ours, eager)


def test_masked_moves_of_booleans():
    """Ranges of a loop on booleans: a load of one is no logic operation."""

    def f(x, y):
        pad = torch.nn.functional.pad(x, [1, 2], mode="circular")
        return torch.cat((pad, y & x[..., :2], ~y), -1)

    x, y = torch.rand(1, 2, 5) > 0.5, torch.rand(1, 2, 2) > 0.5
    assert torch.equal(compiled(f)(x, y), f(x, y))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: torch.nn.functional.pad(x[i], (1, 1)),
        lambda x, i: torch.cat([x[i], x[i]]),
        lambda x, i: torch.cat([x[i], x, x[i.flip(0)]]),
        lambda x, i: torch.nn.functional.pad(x.gather(0, i % 20), (3, 2)),
        lambda x, i: torch.nn.functional.pad(x.index_select(0, i % 20), (3, 2)).flip(0),
        lambda x, i: torch.nn.functional.embedding(i % 20, x[:, None].expand(20, 3)).roll(2, 1),
        lambda x, i: x[i].roll(2),
        lambda x, i: torch.slice_scatter(x, x[i][:4], 0, 3, 7),
        lambda x, i: torch.nn.functional.pad(x[i], (3, 2)).sum(),
        lambda x, i: torch.nn.functional.pad(x[i][i % 13], (1, 1)),
        lambda x, i: torch.nn.functional.pad(x[:0][i[:0]], (1, 1)),
    ],
    ids=[
        "pad",
        "cat",
        "three",
        "gather",
        "index_select",
        "embedding",
        "roll",
        "slice",
        "sum",
        "twice",
        "empty",
    ],
)
def test_pieces_that_are_gathered(f):
    """The loops of the ranges bound one symbol: where one loaded nothing, the others loaded its
    constant's element."""
    x, i = torch.arange(20.0), torch.tensor([3, 5, -1, 7, 0, -20, 19, 2, 2, 11, -3, 4, 8])
    assert torch.equal(oxyfuel.compile(f)(x, i), f(x, i))


def test_an_index_out_of_bounds_in_a_piece():
    def f(x, i):
        return torch.nn.functional.pad(x[i], (1, 1))

    with pytest.raises(IndexError, match="index 25 is out of bounds"):
        oxyfuel.compile(f)(torch.arange(20.0), torch.tensor([3, 25]))


def write_to_the_first_row(x):
    x.expand(3, 6)[0].mul_(1e-9)
    return x * 2


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x.expand(3, 6).fill_(1), x * 2)[1],
        lambda x: (x.expand(3, 6).zero_(), x)[1],
        lambda x: x.expand(3, 6).fill_(-0.0),
        lambda x: (x.view(6, 1).expand(6, 3).t().fill_(3), x * 2)[1],
        lambda x: (x.expand(3, 6).unsqueeze(-1).expand(3, 6, 2).fill_(4), x * 2)[1],
        lambda x: (x.expand(0, 6).fill_(4), x * 2)[1],
        lambda x: (x.expand(1, 6).sub_(0.5), x * 2)[1],
        lambda x: (x.expand_as(x).mul_(3), x * 2)[1],
        write_to_the_first_row,
        lambda x: (x.unfold(0, 2, 4).add_(1), x * 2)[1],
        lambda x: (x.view(2, 3).unfold(-1, 2, 2).add_(1), x * 2)[1],
    ],
    ids=[
        "fill",
        "zero",
        "result",
        "column",
        "twice",
        "nothing",
        "one copy",
        "same size",
        "one of the copies",
        "windows with gaps",
        "windows and a rest",
    ],
)
@pytest.mark.parametrize("kernels", [True, False])
def test_write_through_an_expanded_or_unfolded_view(f, kernels, monkeypatch):
    """torch's functionalisation carries it back as base + sum(view - base), and as 0 between
    windows."""
    monkeypatch.setenv("OXYFUEL_STRICT", "0")  # a write to one of the copies runs in eager
    a, b = (torch.tensor([torch.inf, -1, 1e30, 0, torch.nan, 7]) for _ in range(2))
    expected, result = f(a), oxyfuel.compile(f, options={"kernels": kernels})(b)
    same = torch.testing.assert_close
    same(result, expected, rtol=0, atol=0, equal_nan=True)
    same(b, a, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(a.signbit(), b.signbit())


def test_write_through_an_expanded_view_of_booleans():
    def f(x):
        return x.expand(3, 4).fill_(0.5)

    a, b = torch.tensor([True, False, True, False]), torch.tensor([True, False, True, False])
    assert torch.equal(compiled(f)(b), f(a)) and torch.equal(a, b)


GAPS = {
    "gaps and an offset": lambda: torch.arange(40.0).as_strided((4, 3), (8, 2), 3),
    "a size of one": lambda: torch.arange(400.0).as_strided((4, 1, 3), (3, 54, 1)),
    "transposed": lambda: torch.arange(12.0).view(3, 4).t(),
    "an offset": lambda: torch.arange(20.0)[4:16].view(3, 4),
}


@pytest.mark.parametrize("make", GAPS.values(), ids=GAPS)
@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.contiguous(),
        lambda x: x.reshape(-1),
        lambda x: x[1:].contiguous(),
        lambda x: x.relu(),
        lambda x: x,
        lambda x: x.as_strided((2, 2), (1, 2)),
    ],
    ids=["contiguous", "reshape", "slice", "relu", "itself", "as_strided"],
)
def test_a_written_input_keeps_its_layout(make, read, monkeypatch):
    """Once written it was dense: contiguous() gave the input itself, and the next write changed
    what it had given."""
    monkeypatch.setenv("OXYFUEL_STRICT", "0")  # as_strided runs in eager

    def f(x):
        x.mul_(2)
        y = read(x)
        x.fill_(7)
        return y

    a, b = make(), make()
    expected, result = f(a), oxyfuel.compile(f)(b)
    assert torch.equal(result, expected) and torch.equal(a, b)
    assert result.stride() == expected.stride()
    assert (result.data_ptr() == b.data_ptr()) == (expected.data_ptr() == a.data_ptr())


@pytest.mark.parametrize(
    ("shifts", "dims"), [(2, 0), (1, 3), ((1, 2), (0, 1)), (0, 1), (3, 0), (3, None)]
)
def test_roll_of_a_channels_last_tensor(shifts, dims):
    """A concatenation of two slices: row-major where one of them is empty."""

    def f(x):
        return x.roll(shifts) if dims is None else x.roll(shifts, dims)

    x = torch.randn(3, 7, 7, 31).to(memory_format=torch.channels_last)
    result = oxyfuel.compile(f, options={"strict": True})(x)
    assert torch.equal(result, f(x)) and result.stride() == f(x).stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("op", [torch.mul, torch.div])
def test_a_wider_scalar_tensor_with_fp16_and_bf16(op, dtype):
    """ATen rounds the first operand to the 16-bit type, and a second one of one element not."""
    x, s = (torch.rand(4000) + 0.3).to(dtype), torch.tensor(1.2345678)
    f = compiled(lambda x, s: (op(x, s), op(s, x)))
    for ours, eager in zip(f(x, s), (op(x, s), op(s, x)), strict=True):
        assert torch.equal(ours, eager)


def test_a_gather_of_a_transposed_tensor():
    """The place of its load is known in the loop alone: no tile of it can be transposed before."""

    def f(x):
        turned = x.as_strided((16, 4, 16), (76, 19, 1), 0).transpose(2, 0)
        return torch.gather(turned, 1, turned % 4)

    x = torch.randint(0, 100, (1213,))
    assert torch.equal(compiled(f)(x), f(x))


@pytest.mark.parametrize("softmax", [True, False])
def test_rest_of_a_kernel_whose_copy_of_an_input_is_written_in_place(softmax):
    """What the rest keeps in local memory had become a buffer of the program, of no number."""

    def f(x, index):
        y = x.exp()
        x.scatter_(1, index, 2)
        d = y.view_as(y).diagonal(1)
        return d.log_softmax(0) if softmax else d.sum(0) * y[:3, 0]

    index = torch.tensor([[1]])
    a, b = (torch.ones(33, 4, dtype=torch.bfloat16) for _ in range(2))
    assert torch.equal(oxyfuel.compile(f)(b, index), f(a, index)) and torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}])
def test_convolution_of_no_channels_by_itself(dtype, options):
    def f(x):
        return torch.conv2d(x[:, :0], x[:, :0], **options)

    x = torch.ones(1, 1, 8, 8).to(dtype)
    assert torch.equal(oxyfuel.compile(f, options={"verify": "True"})(x), f(x))
