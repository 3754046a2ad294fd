"""Numbers that captured code only counts or carries about: Python's values, and one capture for all
of them."""

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")


def tensor():
    return torch.arange(6.0).view(2, 3)


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.seconds = 0.5

    def forward(self, x):
        self.calls += 1
        self.seconds = self.seconds + 0.25
        return x + 1


class Plain:
    total = 0

    def __init__(self):
        self.calls = 0
        self.table = {"n": 0}
        self.other = self


COUNT = 0


def in_an_attribute(x, o):
    o.calls += 1
    o.calls += 2
    return x * 2


def in_a_global(x, o):
    global COUNT
    COUNT += 1
    return x * 2


def in_a_dict(x, o):
    o.table["n"] -= 3
    return x * 2


def in_a_class(x, o):
    type(o).total += 1
    return x * 2


def returned(x, o):
    o.calls += 1
    return o.calls


def through_two_names(x, o):
    o.calls += 1
    o.other.calls += 10
    return x * 2


def with_a_break(x, o):
    o.calls += 1
    oxyfuel.graph_break()
    o.calls *= 2
    return x * 2


COUNTERS = [
    in_an_attribute,
    in_a_global,
    in_a_dict,
    in_a_class,
    returned,
    through_two_names,
    with_a_break,
]


def read_as_well(x, o):
    o.calls += 1
    return x * o.calls, len(vars(o)), o.__dict__["calls"]


def kept_in_other_places(x, o):
    n = o.calls + 1
    o.calls = n
    o.pair = (n, o.calls)
    o.table["n"] = n
    return x, [n], list(o.table.values()), f"{n}"


def compared(x, o):
    o.calls += 1
    return x * 2 if o.calls % 2 == 0 else x * 3


def count_in_a_cell(wrap):
    n = 0

    def f(x, o):
        nonlocal n
        n += 1
        return x * 2

    run = wrap(f)
    return [(run(tensor(), None), n) for _ in range(12)]


@pytest.mark.parametrize(
    "function", [*COUNTERS, read_as_well, kept_in_other_places, compared], ids=lambda f: f.__name__
)
@pytest.mark.filterwarnings("ignore")
def test_counters(function):
    global COUNT
    seen = []
    for run in (function, oxyfuel.compile(function)):
        COUNT, Plain.total, o, found = 0, 0, Plain(), []
        for i in range(12):
            if i == 8:
                o.other = Plain()
            if i == 10:
                o.calls = 0.5
            found.append((run(tensor(), o), o.calls, o.table, COUNT, Plain.total, o.other.calls))
        seen.append(str(found))
    assert seen[0] == seen[1]
    if function in COUNTERS and function is not with_a_break:
        assert oxyfuel.stats()["graphs"] <= 3


@pytest.mark.parametrize("function", COUNTERS, ids=lambda f: f.__name__)
def test_a_counter_needs_one_capture(function):
    o, run = Plain(), oxyfuel.compile(function)
    for _ in range(12):
        run(tensor(), o)
    assert oxyfuel.stats()["recompiles"] == 0


def test_a_module_that_counts():
    module = Counting()
    run = oxyfuel.compile(module, fullgraph=True)
    for _ in range(20):
        run(tensor())
    assert (module.calls, module.seconds) == (20, 5.5)
    assert oxyfuel.stats()["recompiles"] == 0


def test_a_counter_in_a_cell():
    assert str(count_in_a_cell(oxyfuel.compile)) == str(count_in_a_cell(lambda f: f))
    assert oxyfuel.stats()["recompiles"] == 0
