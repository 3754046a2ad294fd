"""Mutated inputs that kernels write where they lie: eager's result, no copy, and none written too
early."""

import random
import shutil
import warnings

import pytest
import torch

import oxyfuel


@pytest.fixture(autouse=True)
def trace(strict_without_grad, monkeypatch, tmp_path):
    monkeypatch.setenv("OXYFUEL_TRACE", str(tmp_path))


@pytest.fixture
def plan(tmp_path):
    """The text of the plan that was compiled last."""

    def read():
        texts = sorted(tmp_path.glob("**/output_code.txt"), key=lambda p: p.stat().st_mtime_ns)
        return texts[-1].read_text()

    return read


def check(f, *args):
    """Runs compiled and eager code on equal arguments: results, arguments and versions are equal.
    Twice."""
    compiled = torch.compile(f, backend="oxyfuel")
    for _ in range(2):
        ours, theirs = ([a.clone() for a in args] for _ in range(2))
        before = [a._version for a in ours]
        torch.testing.assert_close(compiled(*ours), f(*theirs))
        for a, b, version in zip(ours, theirs, before, strict=True):
            torch.testing.assert_close(a, b)
            assert (a._version > version) == (b._version > 0)
    assert oxyfuel.stats()["fallbacks"] == 0 and oxyfuel.stats()["unsupported"] == 0


def cache():
    return torch.randn(2, 4, 16, 8)


def token(n=1):
    return torch.randn(2, 4, n, 8)


def test_elementwise(plan):
    def f(x, y):
        x.add_(y)
        return x * 2

    check(f, torch.randn(100), torch.randn(100))
    assert "mutate input 0 in place" in plan() and "arena=0" in plan()


def test_a_row_that_is_read_before_it_is_written(plan):
    def f(x):
        x.copy_(torch.softmax(x, -1))

    check(f, torch.randn(64, 300))
    assert "in place" in plan()


def test_a_value_read_elsewhere_than_it_is_written_is_copied(plan):
    def f(x):
        x.copy_(x.flip(0))

    check(f, torch.randn(50))
    assert "mutate input 0 <-" in plan()


def test_a_transposed_input_is_copied(plan):
    def f(x):
        x.copy_(x.t() + 1)

    check(f, torch.randn(32, 32))
    assert "mutate input 0 <-" in plan()


def test_a_slice_is_all_that_is_written(plan):
    def f(c, k):
        c[:, :, 5:6] = k
        return c.sum()

    check(f, cache(), token())
    assert "in place" in plan() and "= extern" not in plan() and "arena=0" in plan()


def test_a_selected_index(plan):
    def f(c, k):
        c[:, 3].copy_(k)

    check(f, cache(), torch.randn(2, 16, 8))
    assert "in place" in plan() and "= extern" not in plan()


def test_updates_of_a_slice_in_a_row(plan):
    def f(c, k):
        c[:, :, 4:6].mul_(2.0).add_(k)
        return c * 3

    check(f, cache(), token(2))
    assert "in place" in plan()


def test_a_strided_slice(plan):
    def f(c, k):
        c[:, :, 1:9:2] = k

    check(f, cache(), token(4))
    assert "in place" in plan()


@pytest.mark.parametrize("positions", [[3], [0, 5, 15], [2, 2, 7, 2]])
def test_index_copy(plan, positions):
    def f(c, i, k):
        c.index_copy_(2, i, k)
        return c + 1

    check(f, cache(), torch.tensor(positions), token(len(positions)))
    assert "in place" in plan() and "= extern" not in plan()


def test_index_copy_of_two_caches(plan):
    def f(a, b, i, k):
        a.index_copy_(2, i, k)
        b.index_copy_(2, i, k * 2)
        return a @ b.transpose(-1, -2)

    check(f, cache(), cache(), torch.tensor([4]), token())
    assert "index_copy." not in plan()


def test_an_index_that_is_out_of_range_leaves_the_input_alone(plan):
    def f(c, i, k):
        c.index_copy_(2, i, k)

    compiled = torch.compile(f, backend="oxyfuel")
    c, k = cache(), token()
    compiled(c, torch.tensor([1]), k)
    before = c.clone()
    with pytest.raises(IndexError):
        compiled(c, torch.tensor([16]), k)
    assert torch.equal(c, before)


def test_an_op_that_may_raise_after_the_write(plan):
    """cholesky raises: the rerun in eager must find the input as it was."""

    def f(x, a):
        x.add_(1)
        return torch.linalg.cholesky(x.sum() * a)

    good, bad = torch.eye(3), -torch.eye(3)
    check(f, torch.rand(5), good)
    assert "mutate input 0 <-" in plan()
    compiled = torch.compile(f, backend="oxyfuel")
    x = torch.rand(5)
    compiled(x, good)
    before = x.clone()
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(x, bad)
    assert torch.equal(x, before + 1)  # once, as in eager


def test_a_write_moves_behind_an_op_that_does_not_need_it(plan):
    def f(x, a):
        x.add_(1)
        return torch.linalg.cholesky(a), x * 2

    check(f, torch.rand(5), torch.eye(3))
    assert "mutate input 0 in place" in plan()
    compiled = torch.compile(f, backend="oxyfuel")
    x = torch.zeros(5)
    compiled(x, torch.eye(3))
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(x, -torch.eye(3))
    assert torch.equal(x, torch.full((5,), 2.0))


def test_the_old_value_is_returned(plan):
    def f(x):
        old = x.clone()
        x.add_(1)
        return old

    check(f, torch.randn(10))


def test_two_inputs_change_places(plan):
    def f(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    check(f, torch.randn(10), torch.randn(10))


def test_a_later_reader_of_the_old_value(plan):
    def f(x, y):
        s = x.sum()
        m = x.flip(0) * y
        x.mul_(2)
        return m, s, x.mean()

    check(f, torch.randn(40), torch.randn(40))


def test_a_view_of_what_is_written():
    def f(x):
        x.mul_(2)
        return x[1:]

    compiled = torch.compile(f, backend="oxyfuel")
    x = torch.ones(4)
    for factor in (2, 4):
        y = compiled(x)
        assert y._base is x and y._version == x._version
        assert torch.equal(y, torch.full((3,), float(factor)))


def test_a_slice_of_the_users_memory():
    def f(x, y):
        x.add_(y)
        return x + 1

    compiled = torch.compile(f, backend="oxyfuel")
    for stride in (1, 2):
        memory, other = torch.randn(2, 40)
        expected = memory.clone()
        f(expected[4:24:stride], other[: 20 // stride])
        compiled(memory[4:24:stride], other[: 20 // stride])
        assert torch.equal(memory, expected)


def test_inputs_apart_in_one_memory_that_meet_later():
    def f(x, y):
        x.add_(1)
        return y * 2 + x.sum()

    compiled = torch.compile(f, backend="oxyfuel")
    for start in (8, 4, 0):
        ours, theirs = torch.arange(16.0), torch.arange(16.0)
        a = compiled(ours[:8], ours[start : start + 8])
        b = f(theirs[:8], theirs[start : start + 8])
        torch.testing.assert_close(a, b)
        assert torch.equal(ours, theirs)


def compile_through_dynamo(f, options):
    return torch.compile(f, backend="oxyfuel", options=options)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler to stand behind the script")
@pytest.mark.parametrize("make", [oxyfuel.compile, compile_through_dynamo])
def test_a_kernel_that_fails_when_an_input_has_been_written(make, monkeypatch, tmp_path):
    """An error: eager would write it once more. A compiler makes each kernel report a status."""
    monkeypatch.setenv("OXYFUEL_STRICT", "0")
    script = tmp_path / "compiler"
    script.write_text(
        "#!/bin/sh\n"
        'for a in "$@"; do\n'
        '  case $a in *.cpp) sed -i "s/return status;/return 7;/" "$a";; esac\n'
        "done\n"
        'exec g++ "$@"\n'
    )
    script.chmod(0o755)

    def f(x, y):
        x.add_(y.sin() + 1)
        return x.mean()

    run = make(f, options={"compiler": "external", "cxx": str(script)})
    x, y = torch.zeros(1000), torch.zeros(1000)
    with pytest.raises(RuntimeError, match="with status 7.*inputs have been written before it"):
        run(x, y)
    assert torch.equal(x, torch.ones(1000))

    def reads(x, y):
        return x.mul(y).sum()

    x, y = torch.ones(1000), torch.ones(1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = make(reads, options={"compiler": "external", "cxx": str(script)})
        assert run(x, y) == 1000 and oxyfuel.stats()["fallbacks"] == 1


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("size", "step"), [(1, 1), (1, 2), (2, 2), (2, 3)])
def test_windows_keep_the_sign_of_zero(dim, size, step):
    def f(x):
        x.unfold(dim, size, step).mul_(2)
        return x

    x = torch.tensor([[-0.0, 1, -0.0, 3, -0.0], [1, -0.0, 2, 4, 5]])
    expected, got = f(x.clone()), oxyfuel.compile(f)(x.clone())
    assert torch.equal(got, expected) and torch.equal(got.signbit(), expected.signbit())


@pytest.mark.parametrize("shape", [(0,), (1, 0), (1,)])
@pytest.mark.parametrize(
    "view", [lambda x: x.expand(3, *x.shape[:-1], 0), lambda x: x.unfold(-1, 0, 1)]
)
def test_a_write_to_nothing_is_a_write(view, shape):
    def f(x):
        return view(x).mul_(2)

    check(f, torch.ones(shape))


def added_rows(w, i, g):
    w[i] += g
    return w[i].sum(1)


def rows_of_rows(w, i, g):
    w[i] = w[i.flip(0)] * 2 + g
    return w[1] * 1


def written_then_sampled(w, i, g):
    w[40:44] *= 2
    return w[i] + 1


def added_then_read(w, i, g):
    w.index_add_(0, i, g)
    return w[i].sum(1), w[:2] * 1


def flat_element(w, i, g):
    w.view(-1)[7] = 5
    w[-1] += 1
    return w[i, 0] * 1


def written_twice(w, i, g):
    w[3] = g[0]
    w[40:44] *= 2
    return w[i] + 1


def cleared(w, i, g):
    w[10:50].zero_()
    w[:, 2] = g[0, 0]
    return w.amax()


IN_PLACE = [added_rows, rows_of_rows, written_then_sampled, added_then_read, cleared]
ROWS = [*IN_PLACE, flat_element, written_twice]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(600, 64), (2048, 5), (130, 520)], ids=str)
@pytest.mark.parametrize("f", ROWS)
def test_rows_of_an_input(f, shape, threads, plan):
    """Also the same row several times: the last of them, or all of them."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for rows in (torch.tensor([5, 9, 5, 41, 0]), torch.tensor([3, 3, 7]), torch.arange(60)):
            oxyfuel.reset()
            check(f, torch.randn(shape), rows, torch.randn(len(rows), shape[1]))
            assert f not in IN_PLACE or "in place" in plan()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("f", ROWS)
def test_rows_that_are_not_there(f):
    """Eager's error, and what eager has written by then."""
    compiled = torch.compile(f, backend="oxyfuel")
    ours, theirs = torch.ones(60, 8), torch.ones(60, 8)
    good, bad = torch.tensor([1, 2]), torch.tensor([1, 99])
    g = torch.full((2, 8), 2.0)
    torch.testing.assert_close(compiled(ours, good, g), f(theirs, good, g))
    if f is cleared:  # without indices
        return
    with pytest.raises(Exception) as error, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(theirs, bad, g)
    with pytest.raises(type(error.value)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(ours, bad, g)
    torch.testing.assert_close(ours, theirs)


def test_a_few_rows_are_all_that_moves():
    for f in (written_then_sampled, added_then_read, added_rows):
        oxyfuel.reset()
        w, i = torch.randn(20000, 64), torch.arange(20)
        torch.compile(f, backend="oxyfuel")(w, i, torch.randn(20, 64))
        assert oxyfuel.stats()["moved_bytes"] < w.nbytes / 10


DIAGONALS = {
    "added": lambda x: x.diagonal().add_(1),
    "above": lambda x: x.diagonal(1).mul_(2),
    "below": lambda x: x.diagonal(-2).copy_(x[0, 0]),
    "filled": lambda x: x.fill_diagonal_(3),
    "wrapped": lambda x: x.fill_diagonal_(3, wrap=True),
    "transposed": lambda x: x.t().diagonal(1).fill_(5),
    "of_a_part": lambda x: x[1:, 2:].diagonal().add_(x[0, 0]),
    "by_strides": lambda x: x.as_strided((3,), (x.stride(0) + 1,)).fill_(7),
    "of_another": lambda x: x.diagonal().copy_(x[:, 0][: x.diagonal().shape[0]].clone()),
}


@pytest.mark.parametrize("shape", [(40, 40), (70, 9), (9, 70), (4, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("f", DIAGONALS.values(), ids=DIAGONALS)
def test_diagonals(f, dtype, shape):
    def run(x):
        f(x)
        return x[1] * 1

    compiled = oxyfuel.compile(run)
    for laid_out in (lambda x: x, lambda x: x.T.contiguous().T):
        x = torch.randint(-9, 9, shape).to(dtype)
        ours, theirs = laid_out(x.clone()), laid_out(x.clone())
        if f is DIAGONALS["wrapped"] and not theirs.is_contiguous():
            continue  # eager refuses some of them
        torch.testing.assert_close(compiled(ours), run(theirs), rtol=0, atol=0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_a_diagonal_is_all_that_moves():
    x = torch.randn(512, 512)
    for f in (DIAGONALS["added"], DIAGONALS["filled"]):
        oxyfuel.reset()
        oxyfuel.compile(lambda x, f=f: (f(x), None)[1])(x)
        assert oxyfuel.stats()["moved_bytes"] < x.nbytes / 50


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.bool], ids=str)
@pytest.mark.parametrize("layout", ["row major", "transposed", "sliced"])
def test_put(layout, dtype, accumulate):
    def run(x, i, v):
        x.put_(i, v, accumulate)
        return x[0] * 1, torch.put(x.clone(), i, v, accumulate)

    if dtype == torch.bool and accumulate:
        pytest.skip("eager adds no booleans")
    compiled = oxyfuel.compile(run)
    lay_out = {
        "row major": lambda x: x,
        "transposed": lambda x: x.T.contiguous().T,
        "sliced": lambda x: torch.nn.functional.pad(x, (1, 2))[:, 1:-2],
    }[layout]
    for shape, places in [((70, 30), [3, 3, -1, 2099, 7, -2100]), ((4, 5), [[1, 2], [0, -3]])]:
        x, i = torch.randint(0, 9, shape).to(dtype), torch.tensor(places)
        v = torch.randint(0, 9, i.shape).to(dtype)
        ours, theirs = lay_out(x.clone()), lay_out(x.clone())
        torch.testing.assert_close(compiled(ours, i, v), run(theirs, i, v), rtol=0, atol=0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    for places, values in [([1, 10**6], 2), ([1, 2, 3], 2)]:  # out of range; not enough
        ours, theirs = lay_out(x.clone()), lay_out(x.clone())
        i, v = torch.tensor(places), torch.ones(values).to(dtype)
        with pytest.raises(Exception) as error:
            run(theirs, i, v)
        with pytest.raises(type(error.value)):
            compiled(ours, i, v)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_put_moves_what_it_puts():
    x = torch.randn(512, 512)
    oxyfuel.compile(lambda x, i, v: (x.put_(i, v), None)[1])(x, torch.arange(9), torch.ones(9))
    assert oxyfuel.stats()["moved_bytes"] < x.nbytes / 100


def edges(u):
    u[0], u[-1] = 0, 3


def mirrored(u):
    u[0] = u[1]
    u[-1] = u[-2]


def all_around(u):
    mirrored(u)
    u[:, 0] = u[:, 1]
    u[:, -1] = u[:, -2]


def one_after_the_other(u):
    u[1] = u[0]
    u[2] = u[1] + 1


def exchanged(u):
    u[0], u[-1] = u[-1].clone(), u[0].clone()


def shifted(u):
    u[:-1] = u[1:].clone()
    u[-1] = 0


def overlapping(u):
    u[0:3] = 1
    u[2:5] = u[0:3] * 2


def framed(u):
    u[0], u[-1] = 0, 0
    u[:, 0] = u[:, -1] = 2


def one_element(u):
    u[3, 5] += 1
    u[1, 2] = 4


def rows_and_their_parts(u):
    u[3] += 1
    u[1] *= 2
    u[4] -= u[3]
    u[2, 1:4] /= 2


def patch(u):
    u[2:5, 1:4] *= 3


def patches(u):
    u[1:3, 1:5] = 1
    u[2:5, 3:6] = 2
    u[4, 4] = u[0, 0]


def columns(u):
    u[:, 1:3] = u[:, 3:5]
    u[:, 5] += 1
    u[:, 2] += 1


def exchanged_columns(u):
    left = u[:, 1].clone()
    u[:, 1] = u[:, 4]
    u[:, 4] = left


def chained(u):
    u[0] = u[1]
    u[1] = u[2]
    u[2] = u[3]


EDGES = [edges, mirrored, all_around, one_after_the_other, exchanged, shifted, overlapping]
EDGES += [framed, one_element, rows_and_their_parts, patch, patches, columns, exchanged_columns]
EDGES += [chained]


@pytest.mark.parametrize("shape", [(6, 7), (130, 70), (5, 600)], ids=str)
@pytest.mark.parametrize("f", EDGES)
def test_edges(f, shape):
    compiled = oxyfuel.compile(f)
    u = torch.randint(-9, 9, shape).float()
    ours, theirs = u.clone(), u.clone()
    for _ in range(2):
        compiled(ours), f(theirs)
        assert torch.equal(ours, theirs)


def test_edges_are_all_that_moves():
    for f in (edges, mirrored, all_around, framed, exchanged, one_element, patch,
              chained):  # fmt: skip
        oxyfuel.reset()
        u = torch.randn(512, 512)
        oxyfuel.compile(f)(u)
        assert oxyfuel.stats()["moved_bytes"] < u.nbytes / 50, f.__name__


def drawn_writes(seed):
    """A function that writes parts of a matrix of 9 x 11, some of what it has written before."""
    r = random.Random(seed)

    def span(n):
        begin = r.randrange(n)
        return r.choice([begin, begin - n, slice(begin, r.randrange(begin, n) + 1), slice(None)])

    steps = []
    for _ in range(r.randrange(1, 5)):
        rows, columns = span(9), span(11)
        by = [r.randrange(-2, 3), r.randrange(-2, 3)]
        steps.append((rows, columns, r.randrange(4), r.randrange(1, 4), by))

    def f(u):
        for rows, columns, kind, n, (down, right) in steps:
            part = u[rows, columns]
            if kind == 0:
                u[rows, columns] = n
            elif kind == 1:
                u[rows, columns] = part * n
            elif kind == 2:
                u[rows, columns] = torch.roll(u, (down, right), (0, 1))[rows, columns] + n
            else:
                u[rows, columns] += u.flip(0)[rows, columns]
        return u[0] + u[-1]

    return f


@pytest.mark.parametrize("seed", range(120))
def test_drawn_writes(seed):
    f = drawn_writes(seed)
    u = torch.randint(-9, 9, (9, 11)).float()
    ours, theirs = u.clone(), u.clone()
    assert torch.equal(oxyfuel.compile(f)(ours), f(theirs))
    assert torch.equal(ours, theirs)


def planes(x):
    x[..., 0, :] = x[..., 1, :]
    x[..., -1, :] = 0
    x[:, 0].sub_(1).mul_(2)
    x[1, 1, 2] = 5


def patches_of_planes(x):
    x[:, :, 2:5, 3:7] = 0
    x[1, :, 1:3, 1:4] += 1


def stacked(x):
    x[0, :, 2:4] = x[1, :, 3:5] * 2
    x[1, :, 2:4] = 7
    x[0].add_(1)
    x[1].add_(1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(2, 3, 8, 9), (2, 3, 130, 100)], ids=str)
@pytest.mark.parametrize("f", [planes, patches_of_planes, stacked])
def test_parts_of_planes(f, shape, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ours = torch.randint(-9, 9, shape).float()
        theirs = ours.clone()
        oxyfuel.compile(f)(ours), f(theirs)
        assert torch.equal(ours, theirs)
    finally:
        torch.set_num_threads(before)
