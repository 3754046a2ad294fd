"""Loops whose rounds have sizes that depend on data: one break, the loop in eager, what is around
it compiled."""

import gc

import pytest
import torch

import oxyfuel

pytestmark = [
    pytest.mark.usefixtures("strict", "breaking"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def breaking():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=False):
        yield


def experts(x, w, hits):
    scaled = x * 2
    out = torch.zeros_like(x)
    for i in hits:
        rows = torch.where(w == i)[0]
        out.index_add_(0, rows, scaled[rows] * i)
    return out.relu() + 1


def agree(function, *calls, breaks=None):
    compiled = oxyfuel.compile(function)
    for call in calls:
        torch.testing.assert_close(compiled(*call), function(*call))
    if breaks is not None:
        assert oxyfuel.stats()["graph_breaks"] == breaks
    return compiled


def test_one_break_for_all_rounds_and_sizes():
    calls = [(torch.randn(9, 4), torch.randint(0, k, (9,)), (0, 1, 2, 3)) for k in (1, 2, 3, 4)]
    agree(experts, *calls, breaks=1)
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["recompiles"]) == (2, 0)


def test_comprehensions():
    def f(x):
        parts = [x[x[:, 0] > u] for u in (-1.0, 0.0, 1.0)]
        return [p.sum() for p in parts], len(parts)

    agree(f, (torch.randn(20, 2),))


def test_every_way_out_of_the_loop():
    def f(x, how):
        total = x.sum() * 0
        try:
            for i in range(6):
                rows = (x > i).nonzero()
                if how == "break" and i == 3:
                    break
                if how == "continue" and i == 1:
                    continue
                if how == "return" and i == 2:
                    return total, i
                if how == "raise" and i == 4:
                    raise KeyError(i)
                total = total + len(rows)
            else:
                total = total * 3
        except KeyError as e:
            return total, e.args
        finally:
            x = x + 1
        return total + x.sum(), i

    x = torch.arange(8.0)
    compiled = oxyfuel.compile(f)
    for how in ("none", "break", "continue", "return", "raise"):
        torch.testing.assert_close(compiled(x, how), f(x, how))


def test_names_that_only_the_loop_binds():
    def f(x, n):
        for i in range(n):
            found = x[x > i]
            if i == 2:
                last = found
        return last.sum() + i

    x = torch.arange(8.0)
    compiled = oxyfuel.compile(f)
    torch.testing.assert_close(compiled(x, 4), f(x, 4))
    for n in (0, 1):
        with pytest.raises(UnboundLocalError):
            compiled(x, n)


def test_loops_in_loops_and_with_cells():
    def f(x):
        out = []
        for scale in (1.0, 2.0):
            seen = 0

            def note(rows):
                nonlocal seen
                seen += len(rows)
                return rows * scale

            for bound in (0.0, 0.5):
                out.append(note(x[x > bound]))
            out.append(seen)
        return out, x * 2

    agree(f, (torch.randn(12),), (torch.randn(12),))


def test_values_die_when_they_do_in_eager():
    class Noted:
        def __init__(self, log, name):
            self.log, self.name = log, name

        def __del__(self):
            self.log.append(self.name)

    def f(x, log, pool):
        rows = x
        for i in range(2):
            held = pool.pop()
            rows = x[x > i]
        log.append("behind")
        y = rows * 2
        log.append("end" if held is not None else "")
        return y

    compiled, logs = oxyfuel.compile(f), ([], [])
    x = torch.arange(4.0)
    for run, log in zip((compiled, f), logs):
        run(x, log, [Noted(log, name) for name in "ab"])
        gc.collect()
    assert logs[0] == logs[1] == ["b", "behind", "end", "a"]


def test_a_finalizer_runs_once():
    class Noted:
        def __init__(self, log):
            self.log = log

        def __del__(self):
            self.log.append("gone")

    def f(x, log):
        held = Noted(log)
        y = x + 1
        oxyfuel.graph_break()
        log.append("behind")
        return y * 2, held is not None

    compiled, logs = oxyfuel.compile(f), ([], [])
    x = torch.randn(3)
    for run, log in zip((compiled, f), logs):
        run(x, log)
        gc.collect()
    assert logs[0] == logs[1] == ["behind", "gone"]


def test_what_the_loop_calls_is_compiled():
    def part(rows):
        return rows.sin().cos().sum()

    def f(x):
        total = x.sum()
        for i in range(3):
            total = total + part(x[: (x > i).nonzero().shape[0]])
        return total

    agree(f, (torch.arange(5.0),), breaks=1)


def test_one_hot_is_a_graph():
    def f(x, n):
        return torch.nn.functional.one_hot(x, n) * 2, torch.nn.functional.one_hot(x, num_classes=n)

    compiled = agree(f, (torch.tensor([[0, 2], [1, 1]]), 3), (torch.tensor(1), 4), breaks=0)
    for bad in (torch.tensor([0, 3]), torch.tensor([-1, 0])):
        with pytest.raises(RuntimeError) as ours:
            compiled(bad, 3)
        with pytest.raises(RuntimeError) as eagers:
            f(bad, 3)
        assert str(ours.value) == str(eagers.value)


def test_without_a_setting_there_is_one_graph(nothing_said_of_sizes):
    calls = [(torch.randn(9, 4), torch.randint(0, k, (9,)), (0, 1, 2, 3)) for k in (1, 2, 3, 4)]
    agree(experts, *calls, breaks=0)
    assert oxyfuel.stats()["graphs"] == 1
