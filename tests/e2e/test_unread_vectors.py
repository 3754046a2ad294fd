"""Eigenvalues and singular values alone are computed without vectors, with and without gradients,
and with them where something reads them."""

import pytest
import torch

import oxyfuel

VALUES = {
    "eigvalsh": torch.linalg.eigvalsh,
    "upper": lambda a: torch.linalg.eigvalsh(a, UPLO="U"),
    "svdvals": torch.linalg.svdvals,
    "eigvals": torch.linalg.eigvals,
    "cond": torch.linalg.cond,
    "nuclear": lambda a: torch.linalg.matrix_norm(a, "nuc"),
    "spectral": lambda a: torch.linalg.matrix_norm(a, 2),
    "rank": torch.linalg.matrix_rank,
    "eigh": lambda a: torch.linalg.eigh(a)[0] * 2,
    "vectors": lambda a: torch.linalg.eigh(a)[1].abs(),
    "svd": lambda a: torch.linalg.svd(a)[1] + 1,
    "some of each": lambda a: (torch.linalg.svd(a)[2].abs(), torch.linalg.svdvals(a)),
}


def matrices(size, dtype):
    torch.manual_seed(0)
    return torch.randn(size, dtype=dtype)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.complex64))
def test_values(name, dtype):
    f = oxyfuel.compile(VALUES[name], options={"strict": True})
    for size in ((5, 5), (3, 4, 4), (2, 1, 1)):
        a = matrices(size, dtype)
        for given in (a, a.mT):
            with torch.no_grad():
                torch.testing.assert_close(f(given), VALUES[name](given))


@pytest.mark.parametrize("name", ("eigvalsh", "svdvals", "nuclear", "spectral", "eigh", "eigvals"))
def test_gradients_need_the_vectors(name):
    def loss(a):
        return VALUES[name](a).abs().square().sum()

    a = matrices((3, 4, 4), torch.float64).requires_grad_()
    b = a.detach().clone().requires_grad_()
    oxyfuel.compile(loss, options={"strict": True})(a).backward()
    loss(b).backward()
    torch.testing.assert_close(a.grad, b.grad)


def test_eigenvalues_are_those_of_the_same_routine():
    a = matrices((40, 40), torch.float32)
    with torch.no_grad():
        assert torch.equal(oxyfuel.compile(torch.linalg.eigvals)(a), torch.linalg.eigvals(a))
