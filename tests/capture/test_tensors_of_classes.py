"""torch.Tensor, torch.FloatTensor and its like, of the items of a list and of sizes."""

from __future__ import annotations

import pytest
import torch

import oxyfuel

X = torch.linspace(-1, 1, 12).view(3, 4)
ITEMS = [1, 2, 3, 4]

PROGRAMS = {
    "floats": lambda x: x + torch.FloatTensor([1, 2.5, 3, 4]),
    "indices": lambda x: x[torch.LongTensor([1, 0])],
    "a_size": lambda x: x + torch.IntTensor([x.shape[0]])[0],
    "sizes": lambda x: x + torch.FloatTensor(x.shape[0], 4).zero_(),
    "of_the_default_dtype": lambda x: torch.Tensor([1, 2.5, 3, 4]).to(x.device).unsqueeze(0) + x,
    "default_sizes": lambda x: torch.Tensor(x.shape).fill_(2) * torch.Tensor(x.shape[0], 4).zero_(),
    "a_torch_size": lambda x: torch.DoubleTensor(x.shape).fill_(2),
    "like": lambda x: torch.DoubleTensor(x.size()).zero_() + x,
    "truths": lambda x: x.masked_fill(torch.BoolTensor([True, False, True, False]), 0),
    "nested": lambda x: x + torch.DoubleTensor([[1.0, 2, 3, 4]]),
    "a_tuple": lambda x: torch.ShortTensor((1, 2)),
    "cut": lambda x: torch.LongTensor([1.7, -2.3]),
    "a_made_list": lambda x: x + torch.HalfTensor([float(i) for i in range(4)]),
    "global": lambda x: x + torch.BFloat16Tensor(ITEMS),
    "bytes": lambda x: torch.ByteTensor([1, 255]).sum() + torch.CharTensor([-1]),
    "empty": lambda x: (torch.FloatTensor(), torch.LongTensor([]), torch.IntTensor(0, 3)),
    "one_number": lambda x: torch.FloatTensor(3).zero_(),
    "of_items": lambda x: torch.FloatTensor([torch.tensor(1.5), 2]),
    "of_a_tensor": lambda x: torch.FloatTensor(x),
    "float_size": lambda x: torch.FloatTensor(2.0),
    "negative": lambda x: torch.FloatTensor(-1),
    "out_of_range": lambda x: torch.ByteTensor([300]),
    "uneven": lambda x: torch.FloatTensor([[1, 2], [3]]),
    "words": lambda x: torch.FloatTensor(["a"]),
}
BREAKS = {"of_items", "of_a_tensor", "float_size", "negative", "out_of_range", "uneven", "words"}


def run(f, x):
    try:
        return f(x)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("dynamic", (False, None))
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name, dynamic, strict):
    compiled = oxyfuel.compile(PROGRAMS[name], dynamic=dynamic)
    for rows in (3, 2, 3):
        actual, expected = run(compiled, X[:rows]), run(PROGRAMS[name], X[:rows])
        if isinstance(expected, type):
            assert actual is expected
        else:
            torch.testing.assert_close(actual, expected)
    if name not in BREAKS:
        stats = oxyfuel.stats()
        assert stats["graph_breaks"] == stats["fallbacks"] == 0, stats
