"""Calls on which eager raises for the dtypes or the numbers that it is given: so does what is
compiled."""

import operator
import warnings

import pytest
import torch
from torch._dynamo import config

import oxyfuel

F = torch.nn.functional
MASK = torch.tensor([True, False, True])
PLACES = torch.tensor([0, 2])
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int64,
    torch.uint16,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.complex64,
]
NUMBERS = [350, -1, -200, 2**40, 1e30, 1e39, 3.7, float("nan"), float("inf"), 1 + 0j, 1 + 1j, True]


def outcome(function, *args):
    """What the call gives, as text, or what it raises."""
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = function(*copies)
        except Exception as error:
            return type(error), str(error).split("\n")[0]
    return getattr(result, "dtype", None), str(result)


def values(dtype):
    return torch.tensor([1, 2, 1]).to(dtype)


def set_item(x, number):
    x[0] = number
    return x


WITH_NUMBERS = {
    "full": lambda x, s: torch.full((2,), s, dtype=x.dtype),
    "full_like": lambda x, s: torch.full_like(x, s),
    "new_full": lambda x, s: x.new_full((2,), s),
    "scalar_tensor": lambda x, s: torch.scalar_tensor(s, dtype=x.dtype),
    "tensor": lambda x, s: torch.tensor([s], dtype=x.dtype),
    "fill_": lambda x, s: x.fill_(s),
    "fill_diagonal_": lambda x, s: x.expand(3, 3).clone().fill_diagonal_(s),
    "setitem": set_item,
    "masked_fill": lambda x, s: x.masked_fill(MASK, s),
    "masked_fill_": lambda x, s: x.masked_fill_(MASK, s),
    "index_fill": lambda x, s: x.index_fill(0, PLACES, s),
    "index_add": lambda x, s: x.index_add(0, PLACES, x[:2], alpha=s),
    "scatter": lambda x, s: x.scatter(0, PLACES, s),
    "scatter_add": lambda x, s: x.scatter_(0, PLACES, s, reduce="add"),
    "where": lambda x, s: torch.where(MASK, x, s),
    "clamp": lambda x, s: x.clamp(max=s),
    "clamp_min_": lambda x, s: x.clamp_min_(s),
    "hardtanh": lambda x, s: F.hardtanh(x, 0, s),
    "threshold": lambda x, s: F.threshold(x, 0, s),
    "leaky_relu": lambda x, s: F.leaky_relu(x, s),
    "elu": lambda x, s: F.elu(x, s),
    "softplus": lambda x, s: F.softplus(x, s),
    "hardshrink": lambda x, s: F.hardshrink(x, s),
    "softshrink": lambda x, s: F.softshrink(x, s),
    "pad": lambda x, s: F.pad(x, (1, 1), value=s),
    "arange": lambda x, s: torch.arange(s, s + 3, dtype=x.dtype),
    "alpha": lambda x, s: torch.add(x, x, alpha=s),
    "addcmul": lambda x, s: torch.addcmul(x, x, x, value=s),
    "lerp": lambda x, s: torch.lerp(x, x, s),
    "logit": lambda x, s: torch.logit(x, s),
    "std": lambda x, s: torch.std(x, 0, correction=s),
    "pow": lambda x, s: x**s,
    "add": lambda x, s: x + s,
    "greater": lambda x, s: x > s,
}


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_numbers_that_a_dtype_does_not_hold(name):
    op = WITH_NUMBERS[name]
    for dtype in DTYPES:
        for number in NUMBERS:

            def call(x, op=op, number=number):
                return op(x, number)

            x = values(dtype)
            assert outcome(oxyfuel.compile(call), x) == outcome(call, x), (dtype, number)


OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and_",
    "or_",
    "lshift",
    "lt",
    "eq",
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "iand",
    "ilshift",
]
OPERAND_DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_and_dtypes(name):
    op = getattr(operator, name)
    for dtype in [*OPERAND_DTYPES, torch.complex64]:
        for number in [True, 2, 1.5, 2 + 1j]:
            for swapped in [False, True]:

                def call(x, number=number, swapped=swapped):
                    return op(number, x) if swapped else op(x, number)

                if not (swapped and name.startswith("i")):
                    x = values(dtype)
                    assert outcome(oxyfuel.compile(call), x) == outcome(call, x), (dtype, number)
        for other in OPERAND_DTYPES:
            compiled = oxyfuel.compile(lambda x, y: op(x, y))
            both = values(dtype), values(other)
            assert outcome(compiled, *both) == outcome(op, *both), (dtype, other)


WRITES = {
    "iadd": lambda x, y: operator.iadd(operator.iadd(x, y), 2),
    "isub": lambda x, y: operator.isub(operator.isub(x, y), 2),
    "imul": lambda x, y: operator.imul(operator.imul(x, y), 2),
    "itruediv": lambda x, y: operator.itruediv(operator.itruediv(x, y), 2),
    "lerp": lambda x, y: x.lerp_(y, 0.5),
    "lerp_by_tensor": lambda x, y: x.lerp_(y, y),
    "addcmul": lambda x, y: x.addcmul_(y, y, value=2),
    "addcdiv": lambda x, y: x.addcdiv_(x + 1, y),
}


@pytest.mark.parametrize("name", WRITES)
def test_shapes_that_an_operand_in_place_does_not_have(name, monkeypatch):
    call = WRITES[name]
    asked = []  # torch's checks in Python, the first of which imports sympy
    for check in ("check_inplace_broadcast", "elementwise_dtypes"):
        original = getattr(torch._meta_registrations, check)
        note = lambda *a, original=original, **k: asked.append(a) or original(*a, **k)  # noqa: E731
        monkeypatch.setattr(torch._meta_registrations, check, note)

    for shape in [(3, 4), (4,), (1, 1), (), (2, 3, 4), (3,), (2, 4), (1, 3, 4)]:
        asked.clear()
        args = torch.ones(3, 4), torch.ones(shape)
        expected = outcome(call, *args)
        raises = isinstance(expected[0], type)
        assert outcome(oxyfuel.compile(call, fullgraph=not raises), *args) == expected, shape
        assert raises or not asked, shape


METHODS = [
    "add_",
    "sub_",
    "mul_",
    "div_",
    "floor_divide_",
    "remainder_",
    "pow_",
    "bitwise_and_",
    "lt_",
    "eq_",
    "logical_and_",
    "clamp_max_",
    "__imul__",
    "__isub__",
]
# Those of three operands.
THIRD = {"lerp_": lambda y: 0.5, "addcmul_": lambda y: y, "addcdiv_": lambda y: y}


@pytest.mark.parametrize("name", [*METHODS, *THIRD])
def test_results_written_to_another_dtype(name):
    for dtype in OPERAND_DTYPES:
        for other in [True, 2, 1.5, 2 + 1j, *(values(d) for d in OPERAND_DTYPES)]:

            def call(x, y):
                third = [THIRD[name](y)] if name in THIRD else []
                return getattr(x, name)(y, *third)

            x = values(dtype)
            assert outcome(oxyfuel.compile(call), x, other) == outcome(call, x, other)


@pytest.mark.parametrize("name", ["add", "mul", "div", "pow", "lt", "logical_and", "maximum"])
def test_out(name):
    function = getattr(torch, name)
    for dtype in OPERAND_DTYPES:
        for to in OPERAND_DTYPES:

            def call(x, out):
                return function(x, x, out=out)

            args = values(dtype), torch.zeros(3, dtype=to)
            assert outcome(oxyfuel.compile(call), *args) == outcome(call, *args), (dtype, to)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.float16, torch.int64])
@pytest.mark.parametrize("name", ["full", "fill_", "masked_fill", "clamp", "where", "setitem"])
def test_numbers_that_vary(name, dtype):
    """Every call looks at the number that it is given, and at one made of sizes."""
    op = WITH_NUMBERS[name]
    compiled = oxyfuel.compile(lambda x, s: op(x, s))
    for number in [3, 4, 200, 350, -5, 70000, 100, 2**40]:
        args = values(dtype), number
        assert outcome(compiled, *args) == outcome(op, *args), number
    of_floats = oxyfuel.compile(lambda x, s: op(x, s))
    for number in [3.5, 4.5, 200.25, 350.0, 70000.0, 1e39, float("inf"), float("nan"), 2.0]:
        args = values(dtype), number
        assert outcome(of_floats, *args) == outcome(op, *args), number

    def of_sizes(x, y):
        return op(x, y.shape[0] * 300)

    compiled = oxyfuel.compile(of_sizes)
    for size in [2, 3, 0, 1, 400]:
        args = values(dtype), torch.zeros(size)
        assert outcome(compiled, *args) == outcome(of_sizes, *args), size


def test_sizes_that_a_dtype_holds_share_a_compilation():
    """That the number is held is a guard, not its value."""

    def call(x):
        return torch.full((2,), x.shape[0], dtype=torch.uint8)

    compiled = oxyfuel.compile(call, dynamic=True)
    before = oxyfuel.stats()["graphs"]
    for size in [5, 6, 100, 255]:
        assert outcome(compiled, torch.zeros(size)) == outcome(call, torch.zeros(size))
    assert oxyfuel.stats()["graphs"] == before + 1
    assert outcome(compiled, torch.zeros(256)) == outcome(call, torch.zeros(256))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float16])
@config.patch(capture_scalar_outputs=True)
def test_numbers_of_data(dtype):
    """A call checks them while it runs, and leaves those that do not fit to eager."""

    def call(x, t):
        return torch.full((2,), t.item(), dtype=dtype), x.to(dtype).masked_fill(x > 3, t.item())

    compiled = oxyfuel.compile(call, fullgraph=True)
    for number in [2, 3, 300, 5, 70000, -1, 2**40, 7]:
        args = torch.arange(10.0), torch.tensor(number)
        results = []
        for function in (compiled, call):
            try:
                results.append([(r.dtype, r.tolist()) for r in function(*args)])
            except RuntimeError as error:
                results.append(str(error).split("\n")[0])
        assert results[0] == results[1], number


@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
def test_alpha_that_varies_beside_integers(name):
    def function(x, alpha):
        return getattr(torch, name)(x, x, alpha=alpha)

    compiled = oxyfuel.compile(function)
    x = torch.tensor([1, 2])
    for alpha in (1, 2, 3, 1.5, 2.5, 3.5, 4):
        assert outcome(compiled, x, alpha) == outcome(function, x, alpha)


@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile, torch.Tensor.quantile])
def test_quantiles_that_there_are_not(function):
    compiled = oxyfuel.compile(function, fullgraph=True)
    for q in 0.5, -1e-8, [0.0, 1.0], [0.5, 1.0001], float("nan"), 2.0:
        args = torch.arange(5.0), torch.tensor(q)
        assert outcome(compiled, *args) == outcome(function, *args)


NUMBER_OF = {F.smooth_l1_loss: "beta", F.huber_loss: "delta"}


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("loss", NUMBER_OF)
def test_numbers_that_a_loss_does_not_take(loss, reduction, monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    for number in [-1.0, 0.0, 0.5, float("nan")]:

        def call(x, number=number):
            return loss(x, x + 1, reduction=reduction, **{NUMBER_OF[loss]: number})

        def caught(x, number=number):
            try:
                return loss(x, x + 1, reduction=reduction, **{NUMBER_OF[loss]: number})
            except RuntimeError as error:
                return x + 2 if "support" in str(error) else x * 2

        for f in (call, caught):
            x = torch.ones(3)
            assert outcome(oxyfuel.compile(f), x) == outcome(f, x), number


@pytest.mark.parametrize("name", ["index_fill", "alpha", "pow", "full", "clamp"])
def test_a_refused_number_where_nothing_reads_the_result(name):
    op = WITH_NUMBERS[name]

    def call(x, number):
        try:
            op(x, number)
        except RuntimeError as error:
            return x, str(error).split("\n")[0]
        return x, "taken"

    for dtype in [torch.bool, torch.int64, torch.float32]:
        for number in [-1, 3.7, True, 1 + 0j, 1 + 1j]:
            compiled = oxyfuel.compile(lambda x, number=number: call(x, number))
            assert compiled(values(dtype))[1] == call(values(dtype), number)[1], (dtype, number)


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "batch_norm", "instance_norm"])
def test_parameters_of_norms_of_another_dtype(name):
    functions = {
        "layer_norm": lambda x, w, b: F.layer_norm(x, (4,), w, b),
        "group_norm": lambda x, w, b: F.group_norm(x, 2, w, b),
        "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        "instance_norm": lambda x, w, b: F.instance_norm(x, None, None, w, b),
    }
    call = functions[name]
    dtypes = [torch.float16, torch.float32, torch.float64]
    shape = (3, 4, 4) if name == "instance_norm" else (3, 4)
    for of_input in dtypes:
        for of_weight in dtypes:
            for of_bias in dtypes:
                args = (
                    torch.arange(float(torch.Size(shape).numel())).view(shape).to(of_input),
                    torch.ones(4, dtype=of_weight),
                    torch.ones(4, dtype=of_bias),
                )
                expected = outcome(call, *args)
                if expected[0] is RuntimeError:
                    assert outcome(oxyfuel.compile(call), *args) == expected


def test_logsumexp_over_no_dimension():
    for keepdim in (False, True):

        def call(x, keepdim=keepdim):
            return torch.logsumexp(x, (), keepdim)

        for x in (torch.ones(2, 3), torch.ones(()), torch.ones(2, 3, dtype=torch.int64)):
            assert outcome(oxyfuel.compile(call), x) == outcome(call, x)


# Kernels that lack dtypes, of an argument of 3 x 3 numbers.
LACKING = {
    "softmax": lambda x: torch.softmax(x, 0),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "celu": F.celu,
    "mse_loss": lambda x: F.mse_loss(x, x, reduction="none"),
    "unfold": lambda x: F.unfold(x[None, None], 2),
    "clamp": lambda x: torch.clamp(x, x, x),
    "trunc": lambda x: torch.div(x, x, rounding_mode="trunc"),
    "trunc of integers": lambda x: torch.div(x, PLACES[1], rounding_mode="trunc"),
    "fmod": lambda x: torch.fmod(x, x),
    "remainder": lambda x: torch.remainder(3, x),
    "max": lambda x: x[0, 0].max(),
    "amax": lambda x: x[0, 0].amax(0),
    "argmax": lambda x: x[0, 0].argmax(),
    "complex": lambda x: torch.complex(x, x),
    "complex of two dtypes": lambda x: torch.complex(x, x.float()),
    "polar": lambda x: torch.polar(x, x),
    "avg_pool3d": lambda x: F.avg_pool3d(x.expand(1, 2, 3, 3, 3), 2),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "cdist": lambda x: torch.cdist(x, x),
    "cdist of two dtypes": lambda x: torch.cdist(x, x.float()),
    "dist": lambda x: torch.dist(x.float(), x),
    "ldexp": lambda x: torch.ldexp(x.float(), x),
    "searchsorted": lambda x: torch.searchsorted(x[0], x[0]),
    "bucketize": lambda x: torch.bucketize(x, x[0]),
    "pdist": F.pdist,
    "stft": lambda x: torch.stft(x[0], 2, return_complex=True, window=x[0, :2]),
    "nearest": lambda x: F.interpolate(x[None], scale_factor=2),
    "nearest-exact": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="nearest-exact"),
    "bicubic": lambda x: F.interpolate(
        x[None, None], scale_factor=2, mode="bicubic", antialias=True
    ),
    "qr": torch.linalg.qr,
    "det": torch.linalg.det,
    "lu_factor": torch.linalg.lu_factor,
    "cholesky_inverse": torch.cholesky_inverse,
    "solve": lambda x: torch.linalg.solve_ex(x, x),
}


@pytest.mark.parametrize("name", LACKING)
def test_dtypes_that_a_kernel_lacks(name):
    """Also where nothing reads the result."""

    def read(x):
        return LACKING[name](x)

    def unread(x):
        LACKING[name](x)
        return x.clone()

    for dtype in [*DTYPES, torch.int32, torch.float64]:
        x = (torch.eye(3) + 1).to(dtype)
        for call in (read, unread):
            raised = [outcome(f, x) for f in (call, oxyfuel.compile(call))]
            raised = [r if isinstance(r[0], type) else None for r in raised]
            assert raised[0] == raised[1], (dtype, call)


ALONG = {
    **{
        name: getattr(torch, name)
        for name in [
            *("sum", "mean", "prod", "amax", "argmin", "max", "min", "any", "aminmax", "std"),
            *("sort", "argsort", "median", "nanmedian", "mode", "kthvalue", "topk", "msort"),
            *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "logsumexp", "softmax"),
            *("log_softmax", "flip", "squeeze", "unsqueeze", "unbind", "diff"),
        ]
    },
    "kthvalue": lambda x, dim: torch.kthvalue(x, 1, dim),
    "topk": lambda x, dim: torch.topk(x, 1, dim),
    "msort": lambda x, dim: torch.msort(x),
    "diff": lambda x, dim: torch.diff(x, dim=dim),
    "select": lambda x, dim: x.select(dim, 0),
}


@pytest.mark.parametrize("name", ALONG)
def test_dimensions_that_there_are_not(name):
    """Also where nothing reads the result."""

    def unread(x, dim):
        ALONG[name](x, dim)
        return x.clone()

    inputs = [torch.ones(3, 4), torch.ones(3, 0), torch.ones(3, 4) > 0, torch.tensor(2.0)]
    for x in [*inputs, torch.ones(3, 4, dtype=torch.int64), torch.ones(3, 4).half()]:
        for dim in (0, 1, 7, -3):
            raised = [outcome(f, x, dim) for f in (unread, oxyfuel.compile(unread))]
            raised = [r if isinstance(r[0], type) else None for r in raised]
            assert raised[0] == raised[1], (x, dim)
