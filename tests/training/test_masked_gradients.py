"""Assignments through masks with gradients by what is put there, against eager."""

import pytest
import torch

import oxyfuel


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


def mask_of(shape, count):
    mask = torch.zeros(shape, dtype=torch.bool).flatten()
    mask[torch.randperm(mask.numel())[:count]] = True
    return mask.view(shape)


def assign(x, mask, values):
    y = x * 1
    y[mask] = values
    return y


def assign_behind(x, mask, values):
    y = x * 1
    y[:, mask] = values
    return y


def put(x, mask, values):
    return x.index_put((mask,), values)


def add(x, mask, values):
    return x.index_put((mask,), values, accumulate=True)


def read_back(x, mask, values):
    y = x * 2
    y[mask] = values.exp()
    return y[mask].sin().sum() + y.cos().sum()


CASES = {
    "all dimensions": ((4, 5), (4, 5), 7, (7,)),
    "rows": ((4, 5), (4,), 3, (3, 5)),
    "rows, one value each": ((4, 5), (4,), 3, (3, 1)),
    "one row for all": ((4, 5), (4,), 3, (5,)),
    "one value": ((4, 5), (4, 5), 7, ()),
    "three dimensions": ((2, 3, 4), (2, 3), 4, (4, 4)),
    "half": ((6,), (6,), 2, (2,)),
    "nothing": ((4, 5), (4, 5), 0, (0,)),
    "no rows": ((4, 5), (4,), 0, (0, 5)),
    "one value for nothing": ((4, 5), (4, 5), 0, ()),
    "one row": ((4, 5), (4,), 1, (1, 5)),
    "one row in a list for all": ((4, 5), (4,), 3, (1, 5)),
    "one row in a list for none": ((4, 5), (4,), 0, (1, 5)),
}


@pytest.mark.parametrize("f", [assign, put, add, read_back])
@pytest.mark.parametrize("case", CASES)
def test_values_by_a_mask(f, case):
    shape, of_mask, count, of_values = CASES[case]
    if f is read_back and of_values[:1] != (count,):
        pytest.skip("the size of what is read depends on data")
    if f is read_back and of_values[:1] == (1,):
        pytest.skip("one value may be for any number of places")
    x, values = leaf(*shape), leaf(*of_values)
    compiled = oxyfuel.compile(f, fullgraph=True)
    for _ in range(3):  # other places, as many of them
        mask = mask_of(of_mask, count)
        found, expected = compiled(x, mask, values), f(x, mask, values)
        torch.testing.assert_close(found, expected)
        weights = torch.randn_like(found)
        torch.testing.assert_close(
            torch.autograd.grad(found, (x, values), weights),
            torch.autograd.grad(expected, (x, values), weights),
        )
    assert oxyfuel.stats()["unsupported"] == 0


def test_numbers_of_places_that_vary():
    def f(x, bound):
        y, mask = x * 2, x > bound
        y[mask] = y[mask] * 2
        return y.sin()

    compiled = oxyfuel.compile(f)
    for bound in (5.5, 3.5, 2.5, 4.5, 9.5):
        x, other = (torch.arange(6.0).requires_grad_() for _ in range(2))
        found, expected = compiled(x, bound), f(other, bound)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(x.grad, other.grad)
    assert oxyfuel.stats()["unsupported"] == 0


def test_a_mask_behind_whole_dimensions():
    x, mask, values = leaf(3, 6), mask_of((6,), 4), leaf(3, 4)
    found = oxyfuel.compile(assign_behind, fullgraph=True)(x, mask, values)
    expected = assign_behind(x, mask, values)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found.square().sum(), (x, values)),
        torch.autograd.grad(expected.square().sum(), (x, values)),
    )
    assert oxyfuel.stats()["unsupported"] == 0


@pytest.mark.parametrize(("length", "count"), [(3, 0), (3, 2), (3, 5), (0, 1), (0, 2)])
def test_another_number_of_places_is_an_error_as_in_eager(length, count):
    x, values = leaf(4, 5), leaf(length)
    compiled = oxyfuel.compile(assign)
    compiled(x, mask_of((4, 5), length), values).sum().backward()
    with pytest.raises((RuntimeError, IndexError), match="shape mismatch"):
        compiled(x, mask_of((4, 5), count), values)


def test_a_mask_that_is_written_afterwards():
    def f(x, mask, values):
        y = x * 1
        y[mask] = values
        mask.logical_not_()
        return y

    x, values, mask = leaf(4), leaf(3), torch.tensor([True, True, False, True])
    other = mask.clone()
    found, expected = oxyfuel.compile(f)(x, mask, values), None
    try:
        expected = torch.autograd.grad(f(x, other, values).square().sum(), (x, values))
    except RuntimeError as e:
        with pytest.raises(RuntimeError, match=str(e)[:40]):
            torch.autograd.grad(found.square().sum(), (x, values))
    else:
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), (x, values)), expected)
    torch.testing.assert_close(mask, other)
