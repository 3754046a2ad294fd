"""Tensors: functional calls, writes in place, views."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from families.entry import Family

functional = Family("functional")
inplace = Family("inplace")
views = Family("views")
FAMILIES = [functional, inplace, views]


@functional.case
def relu_gelu(x):
    return F.relu(x) + F.gelu(x, approximate="tanh")


@functional.on(lambda: (torch.randn(2, 4), torch.randn(3, 4), torch.randn(3)))
def linear(x, w, b):
    return F.linear(x, w, b)


@functional.on(lambda: (torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)))
def convolution(x, w):
    return F.max_pool2d(F.conv2d(x, w, padding=1, stride=2), 2)


@functional.on(lambda: (torch.randn(2, 4), torch.randn(4), torch.randn(4)))
def layer_norm(x, w, b):
    return F.layer_norm(x, (4,), w, b, eps=1e-6)


@functional.on(lambda: (torch.randn(3, 4), torch.tensor([1, 0, 3])))
def cross_entropy(x, target):
    return F.cross_entropy(x, target, label_smoothing=0.1)


@functional.on(lambda: (torch.randn(1, 2, 5, 4),))
def attention(q):
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


@functional.case
def dropout_off(x):
    return F.dropout(x, 0.5, training=False) + 1


@functional.on(lambda: (torch.tensor([1, 0, 2]), torch.randn(4, 3)))
def embedding(ids, table):
    return F.embedding(ids, table)


@functional.case
def joined(x, y):
    return torch.cat([x, y], dim=0), torch.stack((x, y), -1)


@functional.case
def split(x):
    a, b = x.split(2, dim=1)
    return a * b, torch.chunk(x, 3)[0]


@functional.on(lambda: (torch.randn(2, 3, 4), torch.randn(2, 4, 5)))
def einsum(a, b):
    return torch.einsum("bij,bjk->bik", a, b)


@functional.case
def one_hot(x):
    return F.one_hot(x.argmax(1), 4), F.pad(x, (1, 1))


@functional.case
def out_argument(x):
    result = torch.empty_like(x)
    torch.add(x, 1, out=result)
    return result


@functional.case
def normalised(x):
    return F.normalize(x, dim=-1), F.cosine_similarity(x, x + 1)


@inplace.case
def temporary(x):
    y = x + 1
    y.mul_(2)
    y += x
    return y


@inplace.case
def argument(x):
    x.add_(1)
    return x * 2


@inplace.case
def argument_returned(x):
    x.mul_(2)
    return x


@inplace.case
def argument_nothing_returned(x, y):
    x.copy_(y)


@inplace.case
def augmented(x, y):
    x += y
    x *= 2
    x -= 1
    x /= 3
    return x


@inplace.case
def setitem(x):
    y = x.clone()
    y[0] = 1.0
    y[:, 1] = x[:, 2]
    return y


@inplace.case
def setitem_on_argument(x):
    x[1:, ::2] = 0
    return x.sum()


@inplace.case
def setitem_mask(x):
    x[x > 0] = 0.0
    return x


@inplace.case
def augmented_item(x):
    x[0] += 1
    return x


@inplace.case
def through_a_view(x):
    y = x.clone()
    y.view(-1)[0:2].zero_()
    return y


@inplace.case
def view_of_argument(x):
    x[0].fill_(3)
    return x + 1


@inplace.on(lambda: (torch.zeros(4), torch.tensor([0, 1, 1]), torch.ones(3)))
def scatter(x, index, source):
    x.scatter_add_(0, index, source)
    return x.index_add(0, index, source)


@inplace.case
def chained(x):
    return x.clone().add_(1).mul_(2).relu_()


@inplace.case
def functional_inplace(x):
    return F.relu(x + 1, inplace=True)


@inplace.on(lambda: (lambda x: (x, x))(torch.randn(3)))
def same_argument_twice(x, y):
    x.add_(1)
    return y * 2


@views.case
def basic(x):
    return x[0], x[-1], x[1:], x[:, 1], x[..., None], x[None]


@views.case
def steps(x):
    return x[::2, 1:3], x[0, 1], x[0][1]


@views.on(lambda: (torch.randn(3, 4), torch.tensor([2, 0])))
def advanced(x, index):
    return x[index], x[:, index], x[[0, 1]], x[index, 1:]


@views.case
def mask(x):
    return x * (x > 0)[:, :1]


@views.case
def returned_view(x):
    return x.t(), x.view(-1), x[1]


@views.case
def reshaped(x):
    return x.reshape(2, 6).unsqueeze(0).squeeze(0).permute(1, 0).flatten()


@views.case
def expanded(x):
    return x[0].expand(2, 4) + x.unsqueeze(1).repeat(1, 2, 1).sum(0)[:2]


@views.case
def unbound(x):
    first, *rest = x.unbind(0)
    return first + rest[0] + rest[-1]


@views.case
def iterated(x):
    total = 0
    for row in x:
        total = total + row * 2
    return total


@views.case
def rows_unpacked(x):
    a, b, c = x
    return a * b + c


@views.case
def swapped(x):
    return x.transpose(0, 1).swapaxes(0, 1).movedim(0, 1), x.narrow(1, 1, 2)


@views.on(lambda: (torch.randn(3, 4), slice(0, 2)))
def slice_argument(x, part):
    return x[part], x[part, part]
