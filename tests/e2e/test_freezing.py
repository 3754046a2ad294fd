"""The option `freezing`: parameters as constants, and what happens when they change."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")


def frozen(model):
    return oxyfuel.compile(model, options={"freezing": True})


def check(model, compiled, *inputs, tolerance=1e-5):
    with torch.no_grad():
        expected, got = model(*inputs), compiled(*inputs)
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(40, 50)
        self.second = torch.nn.Linear(50, 33, bias=False)
        self.register_buffer("shift", torch.randn(33))

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) + self.shift.exp()


class ConvNorm(torch.nn.Module):
    def __init__(self, bias=True, affine=True):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 21, 3, padding=1, bias=bias)
        self.norm = torch.nn.BatchNorm2d(21, affine=affine)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)
        self.last = torch.nn.Conv2d(21, 16, 1)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.conv(x))))


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 300])
def test_linear_layers(rows):
    model = Small().eval()
    compiled = frozen(model)
    x = torch.randn(rows, 40)
    for _ in range(2):
        check(model, compiled, x)
    assert oxyfuel.stats()["fallbacks"] == 0
    assert oxyfuel.stats()["plans"] == 1


@pytest.mark.parametrize("m,k,n", [(5, 1, 1), (9, 700, 15), (64, 289, 130), (270, 16, 16)])
def test_packed_gemms_of_odd_sizes(m, k, n):
    model = torch.nn.Linear(k, n).eval()
    check(model, frozen(model), torch.randn(m, k))


def test_batches_of_constant_matrices():
    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(3, 20, 37))

        def forward(self, x):
            return torch.bmm(x, self.w)

    model = Experts().eval()
    check(model, frozen(model), torch.randn(3, 9, 20))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_goes_into_the_convolution(bias, affine):
    model = ConvNorm(bias, affine).eval()
    compiled = frozen(model)
    check(model, compiled, torch.randn(2, 8, 13, 9))
    oxyfuel.reset()
    without = oxyfuel.compile(model)
    check(model, without, torch.randn(2, 8, 13, 9))


def test_batch_norm_in_training_is_left_alone():
    model = ConvNorm().train()
    reference = ConvNorm().train()
    reference.load_state_dict(model.state_dict())
    compiled = frozen(model)
    x = torch.randn(2, 8, 13, 9)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), reference(x), rtol=1e-4, atol=1e-4)
    for name, buffer in reference.named_buffers():
        torch.testing.assert_close(dict(model.named_buffers())[name], buffer)


def test_depthwise_and_transposed_convolutions():
    for conv in (
        torch.nn.Conv2d(8, 8, 3, groups=8),
        torch.nn.ConvTranspose2d(8, 6, 3),
        torch.nn.Conv1d(8, 6, 3),
    ):
        norm = (
            torch.nn.BatchNorm1d if isinstance(conv, torch.nn.Conv1d) else torch.nn.BatchNorm2d
        )(conv.out_channels)
        norm.running_mean.normal_()
        model = torch.nn.Sequential(conv, norm).eval()
        shape = (2, 8, 12) if isinstance(conv, torch.nn.Conv1d) else (2, 8, 12, 12)
        check(model, frozen(model), torch.randn(shape))


def add_in_place(model):
    with torch.no_grad():
        model.first.weight.add_(1)


def new_data(model):
    model.first.weight.data = torch.randn(50, 40)


def new_parameter(model):
    model.first.weight = torch.nn.Parameter(torch.randn(50, 40))


def load(model):
    model.load_state_dict(Small().state_dict())


def load_assign(model):
    model.load_state_dict(Small().state_dict(), assign=True)


def optimizer_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(3, 40)).sum().backward()
    optimizer.step()


def foreach_step(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)
    model(torch.randn(3, 40)).sum().backward()
    optimizer.step()


def write_buffer(model):
    model.shift.zero_()


def new_buffer(model):
    model.shift = torch.ones(33)


def swap(model):
    torch.utils.swap_tensors(model.second.weight, torch.nn.Parameter(torch.randn(33, 50)))


def to_double_and_back(model):
    model.double()
    with torch.no_grad():
        model.first.weight.mul_(2)
    model.float()


CHANGES = [
    add_in_place,
    new_data,
    new_parameter,
    load,
    load_assign,
    optimizer_step,
    foreach_step,
    write_buffer,
    new_buffer,
    swap,
    to_double_and_back,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_a_change_is_noticed(change):
    model = Small().eval()
    compiled = frozen(model)
    x = torch.randn(6, 40)
    check(model, compiled, x)
    for _ in range(2):
        change(model)
        check(model, compiled, x)
        check(model, compiled, x)
    assert oxyfuel.stats()["fallbacks"] == 0


def test_many_changes_end_freezing():
    model = Small().eval()
    compiled = frozen(model)
    x = torch.randn(6, 40)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(12):
            add_in_place(model)
            check(model, compiled, x, tolerance=1e-4)  # weights grow, and what cancels with them
    assert sum("without freezing" in str(w.message) for w in said) == 1
    plans = oxyfuel.stats()["plans"]
    assert plans <= 9
    add_in_place(model)
    check(model, compiled, x, tolerance=1e-4)
    assert oxyfuel.stats()["plans"] == plans


def test_state_that_the_call_writes_is_not_frozen():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(4))

        def forward(self, x):
            self.calls.add_(1)
            return x * self.calls

    model = Counter().eval()
    compiled = frozen(model)
    x = torch.ones(4)
    with torch.no_grad():
        for n in range(1, 5):
            assert torch.equal(compiled(x), x * n)
    assert oxyfuel.stats()["plans"] == 1


def test_a_constant_result_is_a_new_tensor_each_time():
    class Constant(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(4))

        def forward(self, x):
            return self.w.exp().log(), self.w.exp() + x

    model = Constant().eval()
    compiled = frozen(model)
    with torch.no_grad():
        first, _ = compiled(torch.ones(4))
        first.zero_()
        check(model, compiled, torch.ones(4))


def test_arguments_are_not_frozen():
    def gemm(x, w):
        return x @ w

    compiled = oxyfuel.compile(gemm, options={"freezing": True})
    for _ in range(3):
        x, w = torch.randn(8, 20), torch.nn.Parameter(torch.randn(20, 30))
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, w), x @ w)
    assert oxyfuel.stats()["plans"] == 1


def test_large_expansions_are_not_folded():
    class Quantised(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.randint(-9, 9, (1024, 1024), dtype=torch.int8))
            self.register_buffer("scale", torch.rand(1024, 1))

        def forward(self, x):
            return F.linear(x, self.w.float() * self.scale)

    model = Quantised().eval()
    check(model, frozen(model), torch.randn(5, 1024), tolerance=1e-3)


def test_nothing_is_frozen_where_gradients_are_needed():
    model = Small().eval()
    compiled = frozen(model)
    x = torch.randn(3, 40)
    for _ in range(2):
        result = compiled(x)
        result.sum().backward()
        torch.testing.assert_close(result, model(x))
        with torch.no_grad():
            model.first.weight.add_(1)
    assert model.first.weight.grad is not None
    assert oxyfuel.stats()["thaws"] == oxyfuel.stats()["grad_fallbacks"] == 0


def test_inference_mode():
    model = Small().eval()
    compiled = frozen(model)
    x = torch.randn(6, 40)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), model(x))
    check(model, compiled, x)


def test_two_shapes_and_tied_weights():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(100, 32)
            self.head = torch.nn.Linear(32, 100, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids):
            return self.head(self.embedding(ids))

    model = Tied().eval()
    compiled = frozen(model)
    for length in (5, 9, 1):
        check(model, compiled, torch.randint(0, 100, (2, length)))


def test_behind_dynamo():
    model = ConvNorm().eval()
    compiled = torch.compile(model, backend="oxyfuel", options={"freezing": True})
    x = torch.randn(2, 8, 13, 9)
    check(model, compiled, x)
    with torch.no_grad():
        model.norm.running_var.mul_(3)
        model.conv.weight.add_(0.1)
    check(model, compiled, x)
    assert oxyfuel.stats()["thaws"] == 1


def test_what_keeps_changing_is_no_constant():
    model = torch.nn.Linear(4, 4)
    ours, theirs = (
        frozen(model),
        torch.compile(model, backend="oxyfuel", options={"freezing": True}),
    )
    for compiled in (ours, theirs):
        oxyfuel.reset()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(12):
                with torch.no_grad():
                    model.weight.add_(1)
                check(model, compiled, torch.randn(2, 4))
        assert oxyfuel.stats()["thaws"] == 8
        assert sum("have changed 8 times" in str(w.message) for w in said) == 1


# ---- sizes that vary ----

LENGTHS = (6, 9, 3, 40, 2, 300, 1, 0)


def transformer():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return torch.nn.Sequential(torch.nn.Embedding(50, 32), layer, torch.nn.Linear(32, 7))


@pytest.mark.parametrize("dynamic", [None, True])
def test_lengths(dynamic):
    model = Small().eval()
    compiled = oxyfuel.compile(model, dynamic=dynamic, options={"freezing": True, "strict": True})
    for n in LENGTHS:
        check(model, compiled, torch.randn(n, 40))
    stats = oxyfuel.stats()
    assert stats["static_captures"] == stats["fallbacks"] == 0
    assert stats["plans"] == (4 if dynamic is None else 3)  # 0 and 1 are numbers


def test_lengths_of_other_models():
    model = ConvNorm().eval()
    compiled = oxyfuel.compile(model, dynamic=True, options={"freezing": True, "strict": True})
    for b, h, w in ((2, 13, 9), (3, 20, 17), (5, 6, 33)):
        check(model, compiled, torch.randn(b, 8, h, w), tolerance=1e-4)
    assert oxyfuel.stats()["plans"] == 1
    oxyfuel.reset()
    model = transformer().eval()
    compiled = oxyfuel.compile(model, dynamic=True, options={"freezing": True, "strict": True})
    for n in LENGTHS[:-1]:
        check(model, compiled, torch.randint(0, 50, (2, n)), tolerance=1e-4)
    assert oxyfuel.stats()["static_captures"] == 0


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_a_change_is_noticed_at_all_lengths(change):
    model = Small().eval()
    compiled = oxyfuel.compile(model, dynamic=True, options={"freezing": True, "strict": True})
    check(model, compiled, torch.randn(6, 40))
    for n in (6, 9, 4):
        change(model)
        check(model, compiled, torch.randn(n, 40))
        check(model, compiled, torch.randn(n + 5, 40))
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == stats["unsupported"] == 0


def test_many_changes_end_freezing_at_all_lengths():
    model = Small().eval()
    compiled = oxyfuel.compile(model, dynamic=True, options={"freezing": True, "strict": True})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(2, 16):
            with torch.no_grad():
                model.first.weight.mul_(1.01)
            check(model, compiled, torch.randn(n, 40), tolerance=1e-4)
    plans = oxyfuel.stats()["plans"]
    assert plans <= 9
    check(model, compiled, torch.randn(77, 40), tolerance=1e-4)
    assert oxyfuel.stats()["plans"] == plans


def test_slices_of_parameters_by_sizes_are_no_constants():
    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(64, 8))
            self.scale = torch.nn.Parameter(torch.randn(8))

        def forward(self, x):
            places = (self.table * 2)[: x.shape[0]] + self.scale.exp()
            return x * places + self.scale.expand(x.shape[0], 8)

    model = Positions().eval()
    compiled = oxyfuel.compile(model, dynamic=True, options={"freezing": True, "strict": True})
    for n in (5, 9, 64, 2):
        check(model, compiled, torch.randn(n, 8))
    assert oxyfuel.stats()["plans"] == 1


def test_parameters_that_vary_are_not_frozen():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4))

        def forward(self, x):
            return x + self.w.exp().sum()

    model = Scaled().eval()
    compiled = oxyfuel.compile(model, options={"freezing": True, "strict": True})
    for n in (4, 7, 9, 5):
        model.w = torch.nn.Parameter(torch.randn(n))
        check(model, compiled, torch.randn(3))
    assert oxyfuel.stats()["recompiles"] == 1
