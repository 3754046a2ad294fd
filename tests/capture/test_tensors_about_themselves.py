"""What a tensor says of itself and no graph has: whose view it is, where it lies in autograd's
graph and in memory. The value of each call, or a break."""

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")

ANSWERS = {
    "views": lambda x, y, z, q: [t._is_view() for t in (x, y, z, q, q.view(-1))],
    "bases": lambda x, y, z, q: (x._base is None, y._base is x, z._base is None, q._base is None),
    "leaves": lambda x, y, z, q: [t.is_leaf for t in (x, y, z, q)],
    "nodes": lambda x, y, z, q: [t.grad_fn is None for t in (x, y, z, q)],
    "output_nr": lambda x, y, z, q: [t.output_nr for t in (x, y, z, q)],
    "versions": lambda x, y, z, q: (x._version, q.add_(1)._version),
    "places": lambda x, y, z, q: (
        x.data_ptr() == y.data_ptr(),
        x.const_data_ptr() == z.data_ptr(),
        x.untyped_storage().data_ptr() == z.untyped_storage().data_ptr(),
        x.data_ptr() == q.data_ptr(),
    ),
    "sets": lambda x, y, z, q: (x.is_set_to(z), x.is_set_to(y), x.is_set_to(q)),
}


def arguments():
    b, w = torch.arange(12.0), torch.ones(4, 3, requires_grad=True)
    inner = w * 2
    return [b, b.view(3, 4), b[1:], w[1:], w.unbind()[1], w.detach(), w, inner, inner.unbind()[1]]


@pytest.mark.parametrize("anew", [False, True], ids=["one capture", "a capture each"])
@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name, anew):
    def f(x):
        y, z, q = x[..., 1:], x.detach(), x * 2
        return ANSWERS[name](x, y, z, q)

    compiled = oxyfuel.compile(f)
    for x in arguments():
        if anew:
            oxyfuel.reset()
        assert compiled(x) == f(x)
