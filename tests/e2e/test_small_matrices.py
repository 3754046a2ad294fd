"""Factorizations of many small matrices and equations with them: kernels, with eager's errors."""

import pytest
import torch

import oxyfuel

MANY = 50


def matrices(n, dtype, *, many=(MANY,), layout="rows"):
    torch.manual_seed(n)
    a = torch.randn(*many, n, n, dtype=dtype)
    if layout == "columns":
        return a.mT.contiguous().mT
    if layout == "sliced":
        return torch.randn(*many, n + 1, 2 * n, dtype=dtype)[..., 1:, ::2].copy_(a)
    return a


def definite(n, dtype, **kwargs):
    a = matrices(n, dtype, **kwargs)
    return a @ a.mT + torch.eye(n, dtype=dtype)


def run(f, *tensors, kernels=True):
    oxyfuel.reset()
    found = oxyfuel.compile(f, fullgraph=True)(*tensors)
    if kernels:
        assert oxyfuel.stats()["extern_calls"] == 0
    return found if isinstance(found, tuple) else (found,)


def check(f, *tensors, kernels=True):
    """Layouts are eager's, and values but for what rounding makes of ill-conditioned matrices."""
    eager = f(*tensors)
    eager = eager if isinstance(eager, tuple) else (eager,)
    exact = f(*(t.double() for t in tensors))
    exact = exact if isinstance(exact, tuple) else (exact,)
    for o, e, x in zip(run(f, *tensors, kernels=kernels), eager, exact, strict=True):
        assert (o.dtype, o.shape, o.stride()) == (e.dtype, e.shape, e.stride())
        if not o.dtype.is_floating_point:
            assert torch.equal(o, e)
            continue
        # As far from what f64 gives as eager is, in each matrix.
        own, other = ((v.double() - x).reshape(MANY, -1).norm(dim=1) for v in (o, e))
        floor = 30 * torch.finfo(o.dtype).eps * x.reshape(MANY, -1).norm(dim=1) + 1e-12
        bound = 20 * other + floor if o.dtype == torch.float32 else 1e-9 + 1e6 * floor
        assert (own <= bound).all(), (own / bound).max()


@pytest.mark.parametrize("layout", ["rows", "columns", "sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_factors(n, dtype, layout):
    a = matrices(n, dtype, many=(5, 10), layout=layout).flatten(0, 1)
    check(torch.linalg.lu_factor_ex, a)
    check(torch.linalg.inv_ex, a)
    check(torch.linalg.det, a)
    check(torch.linalg.slogdet, a)
    spd = definite(n, dtype, layout=layout)
    check(torch.linalg.cholesky_ex, spd)
    check(lambda s: torch.linalg.cholesky_ex(s, upper=True), spd)


@pytest.mark.parametrize(
    "n, columns, layout",
    [(1, 2, "rows"), (2, 1, "columns"), (3, 2, "rows"), (3, 4, "columns"), (4, 3, "rows")],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_systems(n, columns, layout, dtype):
    a = matrices(n, dtype, layout=layout)
    lu, pivots = torch.linalg.lu_factor(a)
    b = torch.randn(MANY, n, columns, dtype=dtype)
    check(lambda a, b: torch.linalg.solve_ex(a, b)[0], a, b)
    check(lambda a, b: torch.linalg.solve_ex(a, b, left=False)[0], a, b.mT)
    for upper in (False, True):
        t = (a.triu() if upper else a.tril()) + 2 * torch.eye(n, dtype=dtype)
        for unit in (False, True):
            solve = lambda t, b, left=True: torch.linalg.solve_triangular(  # noqa: E731
                t,
                b,
                upper=upper,
                unitriangular=unit,
                left=left,  # noqa: B023
            )
            check(solve, t, b)
            check(lambda t, b: solve(t, b, left=False), t, b.mT)  # noqa: B023
    for adjoint in (False, True):
        for left in (False, True):
            right = b if left else b.mT.contiguous()
            f = lambda lu, b: torch.linalg.lu_solve(  # noqa: E731
                lu,
                pivots,
                b,
                left=left,
                adjoint=adjoint,  # noqa: B023
            )
            check(f, lu, right)
    check(lambda a, b: torch.linalg.solve_ex(a, b)[0], a, torch.randn(MANY, n, dtype=dtype))
    # One right-hand side for all.
    check(lambda a, b: torch.linalg.solve_ex(a, b)[0], a, torch.randn(n, 3, dtype=dtype))


def test_batches_of_several_dimensions():
    a, b = matrices(3, torch.float32, many=(2, 25)), torch.randn(2, 25, 3)
    for f in (
        lambda a, b: torch.linalg.solve_ex(a, b)[0],
        lambda a, b: torch.linalg.inv_ex(a)[0] @ b[..., None],
        lambda a, b: torch.linalg.det(a),
    ):
        (o,), e = run(f, a, b), f(a, b)
        torch.testing.assert_close(o, e, rtol=1e-3, atol=1e-4)
        assert o.stride() == e.stride()


def test_singular_matrices():
    a = matrices(3, torch.float32)
    a[7, 1] = 0
    a[9] = 0
    # Without rounding, whatever the order of the library's sums.
    a[11] = torch.tensor([[4.0, 2, 2], [2, 3, 3], [1, 1, 1]])
    for f in (torch.linalg.inv_ex, lambda a: torch.linalg.solve_ex(a, a)):
        assert torch.equal(run(f, a)[-1], f(a)[-1])  # which pivot is zero
    lu, pivots, info = run(torch.linalg.lu_factor_ex, a)
    for o, e in zip((lu, pivots, info), torch.linalg.lu_factor_ex(a), strict=True):
        torch.testing.assert_close(o, e)
    torch.testing.assert_close(run(torch.linalg.det, a)[0], torch.linalg.det(a))
    for o, e in zip(run(torch.linalg.slogdet, a), torch.linalg.slogdet(a), strict=True):
        torch.testing.assert_close(o, e)
    for f in (torch.linalg.inv, lambda a: torch.linalg.solve(a, a[:, 0])):
        with pytest.raises(torch.linalg.LinAlgError) as expected:
            f(a)
        with pytest.raises(torch.linalg.LinAlgError) as found:
            run(f, a, kernels=False)
        assert str(found.value) == str(expected.value)
    spd = definite(3, torch.float32)
    spd[5] = -spd[5]
    spd[6, 2, 2] = 0
    assert torch.equal(run(torch.linalg.cholesky_ex, spd)[1], torch.linalg.cholesky_ex(spd)[1])
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        run(torch.linalg.cholesky, spd, kernels=False)


def test_nan_and_infinity():
    a = matrices(3, torch.float32)
    a[3, 0, 0], a[4, 2, 1] = float("nan"), float("inf")
    for o, e in zip(run(torch.linalg.inv_ex, a), torch.linalg.inv_ex(a), strict=True):
        rest = torch.arange(MANY).sub(3).clamp(0, 2) != 1
        rest[3], rest[4] = False, False
        torch.testing.assert_close(o[rest], e[rest], rtol=1e-3, atol=1e-3)
    assert run(torch.linalg.det, a)[0][3].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [2, 3])
def test_gradients(n, dtype):
    a, b = definite(n, dtype), torch.randn(MANY, n, 2, dtype=dtype)
    for f in (
        lambda a, b: torch.linalg.inv(a) @ b,
        lambda a, b: torch.det(a)[:, None, None] * b,
        lambda a, b: torch.logdet(a)[:, None, None] * b,
        torch.linalg.solve,
        lambda a, b: torch.linalg.solve(a, b.mT, left=False),
        lambda a, b: torch.linalg.cholesky(a) @ b,
        lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
    ):
        oxyfuel.reset()
        results = []
        for g in (f, oxyfuel.compile(f, fullgraph=True)):
            x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
            out = g(x, y)
            out.square().sum().backward()
            results.append((out.detach(), x.grad, y.grad))
        for o, e in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(o, e, rtol=2e-3, atol=2e-3)
            assert o.stride() == e.stride()


def test_one_compilation_for_all_batches():
    f = oxyfuel.compile(lambda a, b: torch.linalg.solve(a, b), dynamic=True)
    for many in (20, 33, 64, 2, 100):
        a, b = matrices(3, torch.float32, many=(many,)), torch.randn(many, 3)
        torch.testing.assert_close(f(a, b), torch.linalg.solve(a, b), rtol=1e-3, atol=1e-3)
    assert oxyfuel.stats()["recompiles"] == 0


@pytest.mark.parametrize("many", [0, 1, 15, 16])
def test_few_or_no_matrices(many):
    a = matrices(3, torch.float32, many=(many,))
    for f in (torch.linalg.inv, torch.linalg.det):
        torch.testing.assert_close(run(f, a, kernels=False)[0], f(a), rtol=1e-3, atol=1e-3)
    large = matrices(5, torch.float32)
    torch.testing.assert_close(
        run(torch.linalg.inv, large, kernels=False)[0], torch.linalg.inv(large)
    )


def test_complex_matrices():
    a = torch.randn(MANY, 3, 3, dtype=torch.complex64)
    torch.testing.assert_close(run(torch.linalg.inv, a, kernels=False)[0], torch.linalg.inv(a))
