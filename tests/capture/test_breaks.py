"""Graph breaks: whatever breaks, and wherever, results, effects and exceptions are those of
eager."""

import dis
import functools
import sys
import traceback

import oracle
import pytest
import torch
from corpus import ENTRIES

import oxyfuel

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.filterwarnings("ignore")]


def agree(function, *inputs):
    compiled = oxyfuel.compile(function)
    for _ in range(2):
        torch.testing.assert_close(compiled(*inputs), function(*inputs))


def test_toy_in_three_pieces(capfd):
    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    oxyfuel.set_logs("bytecode")
    try:
        compiled = oxyfuel.compile(toy)
        for sign in (1, -1, 1, -1):
            a, b = torch.randn(10), sign * torch.rand(10)
            assert torch.equal(compiled(a, b), toy(a, b))
    finally:
        oxyfuel.set_logs("")
    stats = oxyfuel.stats()
    assert (stats["graphs"], stats["graph_breaks"], stats["recompiles"]) == (3, 1, 0)
    original, modified = capfd.readouterr().err.split("MODIFIED BYTECODE")[:2]
    code = list(dis.get_instructions(toy))
    jump = next(i for i, instruction in enumerate(code) if "JUMP" in instruction.opname)
    assert "ORIGINAL BYTECODE" in original and code[jump].opname in original
    resumed = f"__resume_at_{code[jump + 1].offset}_2", f"__resume_at_{code[jump].argval}_3"
    for word in ("__compiled_fn_1", *resumed):
        assert word in modified and word not in original


def test_inlined_calls_break_where_they_stand():
    def inner(x, scale):
        y = x * scale
        oxyfuel.graph_break()
        return y + 1

    def middle(x, *scales, **more):
        for s in scales:
            x = inner(x, s)
        return inner(x, **more)

    def outer(x):
        return middle(x * 2, 3.0, 4.0, scale=0.5) - 1

    agree(outer, torch.randn(3))
    assert oxyfuel.stats()["fallbacks"] == 0


def test_under_with_try_and_finally():
    log = []

    class Note:
        def __enter__(self):
            log.append("in")
            return self

        def __exit__(self, kind, value, trace):
            log.append(kind)
            return kind is KeyError

    def inner(x, key):
        oxyfuel.graph_break()
        return {"a": x + 1}[key]

    def f(x, key):
        try:
            with torch.no_grad(), Note():
                x = x * 2
                x = inner(x, key)
                x = x - 3
        finally:
            x = x + 4
        return x, torch.is_grad_enabled()

    for key in ("a", "b"):
        expected = f(torch.ones(2), key), list(log)
        log.clear()
        compiled = oxyfuel.compile(f)
        for _ in range(2):
            assert str((compiled(torch.ones(2), key), log)) == str(expected)
            log.clear()
        assert torch.is_grad_enabled()


def test_a_loop_does_not_grow_the_stack():
    def f(x, n):
        for _ in range(n):
            x = x + 1
            oxyfuel.graph_break()
        return x

    compiled = oxyfuel.compile(f)
    limit = sys.getrecursionlimit()
    assert torch.equal(compiled(torch.zeros(2), 3 * limit), torch.full((2,), 3.0 * limit))
    assert oxyfuel.stats()["graphs"] <= 3


def test_exceptions_behind_a_break_have_eagers_lines():
    def fails(x, y):
        oxyfuel.graph_break()
        return x @ y

    def f(x, y):
        x = x + 1
        z = fails(x, y)
        return z * 2

    def lines(function):
        try:
            function(torch.ones(2, 3), torch.ones(2, 3))
        except RuntimeError as e:
            mine = [
                entry.lineno
                for entry in traceback.extract_tb(e.__traceback__)
                if entry.filename == __file__
            ]
            return str(e), mine[1:]
        raise AssertionError("it does not fail")

    compiled = oxyfuel.compile(f)
    expected = lines(f)
    for _ in range(2):
        message, found = lines(compiled)
        assert message == expected[0]
        assert found[-1] == expected[1][-1] and set(found) == set(expected[1])


def test_closures_cells_and_super_across_a_break():
    class Base:
        def __init__(self, x):
            self.x = x

        def run(self, y):
            return self.x + y

    class Derived(Base):
        def run(self, y):
            y = y * 2
            oxyfuel.graph_break()
            return super().run(y)

    def f(x):
        count = 0

        def add(n):
            nonlocal count
            count += n
            return x * count

        a = add(1)
        oxyfuel.graph_break()
        b = add(2)
        oxyfuel.graph_break()
        return a + b, count, Derived(x).run(a)

    agree(f, torch.randn(3))


def test_what_was_written_is_written_once_and_before_the_break():
    class Holder:
        pass

    def f(x, holder, seen):
        holder.a = x + 1
        seen(holder)
        holder.a = holder.a * 2
        return holder.a

    def seen(holder):
        counts.append(holder.a.sum().item())

    counts = []
    compiled = oxyfuel.compile(f)
    for function in (f, compiled, compiled):
        holder = Holder()
        out = function(torch.ones(2), holder, oxyfuel.disable(seen))
        assert out is holder.a and torch.equal(out, torch.full((2,), 4.0))
    assert counts == [4.0] * 3


def test_a_frame_that_looks_at_itself_runs_in_eager():
    def f(x):
        y = x + 1
        return sorted(vars()), y

    compiled = oxyfuel.compile(f)
    assert compiled(torch.ones(2))[0] == ["x", "y"]


def test_fullgraph_names_reason_line_and_hint():
    def inner(x):
        return x.storage()

    def f(x):
        return inner(x.sum()), 1

    with pytest.raises(oxyfuel.GraphBreak, match=r"(?s)hint:.*test_breaks.py.*in f.*in inner"):
        oxyfuel.compile(f, fullgraph=True)(torch.ones(2))


def places(entry, every):
    """Counts of instructions at which to break; some of them if not `every`, other ones for each
    entry."""
    place = 1 if every else 4 + len(entry.id) % 7
    while place < 2000:
        yield place
        place += 1 if every else place + 1


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.id)
def test_a_break_anywhere(entry, request):
    for place in places(entry, request.config.getoption("--every-break")):
        oxyfuel.reset()
        compiler = functools.partial(oxyfuel.compile, backend="eager", options={"break_at": place})
        found = oracle.value_differences(entry, compiler)
        assert not found, f"break at {place}: " + "\n".join(found)
        if oxyfuel.stats()["graph_breaks"] == 0:
            break


def test_what_a_broken_frame_calls_is_compiled():
    compiled = oxyfuel.compile(_reads_its_frame)
    x = torch.randn(3)
    for _ in range(2):
        assert torch.equal(compiled(x), _reads_its_frame(x))
    assert oxyfuel.stats()["graphs"] == 1  # of _helper
    assert oxyfuel.stats()["graph_breaks"] == 1


def test_functions_that_shared_their_code():
    def make():
        def called(x):
            oxyfuel.graph_break()
            return x + 1

        return called

    one, two = make(), make()
    compiled = oxyfuel.compile(lambda x, f: list(map(f, [x])))
    x = torch.zeros(1)
    assert compiled(x, one) == compiled(x, two) == [1]
    one.__code__ = (lambda x: x + 100).__code__
    assert (compiled(x, one), compiled(x, two)) == ([100], [1])


def test_what_is_disabled_is_left_alone_with_all_that_it_calls():
    compiled = oxyfuel.compile(_calls_disabled)
    x = torch.randn(3)
    for _ in range(2):
        assert torch.equal(compiled(x), _calls_disabled(x))
    assert oxyfuel.stats()["graphs"] == 1  # x + 1, and nothing of the helper
    assert oxyfuel.stats()["graph_breaks"] == 1


def _helper(x, *rest, scale=2, **more):
    return x * scale + sum(rest) + more["shift"]


def _reads_its_frame(x):
    names = sorted(vars())
    return _helper(x, 1, len(names), scale=3, shift=4)


@oxyfuel.disable
def _disabled(x):
    return _helper(x, shift=1)


def _calls_disabled(x):
    return _disabled(x + 1)


def test_deep_recursion_in_a_broken_frame():
    compiled = oxyfuel.compile(_recursive)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        assert compiled(torch.zeros(1), 15_000) == _recursive(torch.zeros(1), 15_000)
    finally:
        sys.setrecursionlimit(limit)


def _recursive(x, n):
    vars()
    return 0 if n == 0 else 1 + _count(n - 1)


def _count(n):
    return 0 if n == 0 else 1 + _count(n - 1)


QUANTIZED = {
    "by_tensor": lambda x: torch.quantize_per_tensor(x * 2, 0.1, 0, torch.quint8),
    "by_channel": lambda x: torch.quantize_per_channel(
        x * 2, torch.full((3,), 0.1), torch.zeros(3), 0, torch.qint8
    ),
    "by_values": lambda x: torch.quantize_per_tensor_dynamic(x * 2, torch.qint8, False),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_tensors_are_made_in_eager(name):
    function = QUANTIZED[name]
    compiled = oxyfuel.compile(lambda x: function(x).dequantize() + 1)
    for n in (3, 4, 5):
        x = torch.rand(3, n)
        assert torch.equal(compiled(x), function(x).dequantize() + 1)
    assert oxyfuel.stats()["fallbacks"] == 0
    assert function(x).dtype == oxyfuel.compile(function)(x).dtype


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz])
def test_dtypes_that_no_graph_knows(dtype):
    def f(x):
        return torch.ones((), dtype=dtype).float() + x

    x = torch.rand(3)
    assert torch.equal(oxyfuel.compile(f)(x), f(x))
    assert oxyfuel.stats()["fallbacks"] == 0
