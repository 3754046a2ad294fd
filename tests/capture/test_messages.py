"""Warnings and log messages of captured code: eager's, once the graph has run."""

import functools
import io
import itertools
import logging
import unittest
import warnings

import pytest
import torch

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict")
LOG = logging.getLogger("oxyfuel tests of messages")


def warns(x, n):
    y = x * 2
    warnings.warn(f"{n} is small", DeprecationWarning, stacklevel=1)
    if n > 1:
        warnings.warn("it is more than one", stacklevel=1)
    return y + 1


def warns_by_object(x, n):
    warnings.warn(DeprecationWarning(f"{n} is small"), stacklevel=1)
    return x + n


def outer(x, n):
    return told_of_caller(x, n) + 1


def told_of_caller(x, n):
    warnings.warn("the caller", UserWarning, 2)
    return x + n


def seen(function, *inputs, filters="always"):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter(filters)
        globals().pop("__warningregistry__", None)
        results = [function(*inputs) for _ in range(2)]
    return results, [
        (str(w.message), w.category, w.filename, w.lineno)
        for w in said
        if "oxyfuel" not in str(w.message)
    ]


@pytest.mark.parametrize("function", [warns, warns_by_object, outer])
@pytest.mark.parametrize("filters", ["always", "once", "default", "module", "ignore"])
def test_warnings_are_eagers(function, filters):
    x = torch.randn(3)
    compiled = oxyfuel.compile(function)
    ours, eagers = seen(compiled, x, 2, filters=filters), seen(function, x, 2, filters=filters)
    torch.testing.assert_close(ours[0], eagers[0])
    assert ours[1] == eagers[1]
    assert oxyfuel.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("action", ["error", "always"])
def test_an_iterator_of_itertools_that_is_handed_on(action):
    """CPython itself warns, from 3.12 on, where somebody asks such an iterator what it holds."""

    def chained(x):
        numbers = itertools.chain([1, 2], itertools.islice([3, 4, 5], 2))
        y = x * next(numbers)
        try:
            oxyfuel.graph_break()
            return y + sum(numbers)
        except Warning:
            return y

    x = torch.randn(3)
    ours, eagers = (seen(f, x, filters=action) for f in (oxyfuel.compile(chained), chained))
    torch.testing.assert_close(ours[0], eagers[0])
    assert ours[1] == eagers[1] == []


def test_a_filter_that_raises():
    def f(x):
        try:
            warnings.warn("now an exception", stacklevel=1)
        except UserWarning:
            return x - 1
        return x + 1

    compiled = oxyfuel.compile(f)
    x = torch.randn(3)
    for action in ("ignore", "error", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            warnings.filterwarnings("ignore", "oxyfuel")
            assert torch.equal(compiled(x), f(x))


def warns_under(action):
    def f(x):
        warnings.warn("before", stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            warnings.warn("inside", stacklevel=1)
            y = x + 1
        warnings.warn("behind", stacklevel=1)
        return y

    return f


def breaks_under_filters(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oxyfuel.graph_break()
        warnings.warn("inside", stacklevel=1)
        y = x * 2
    warnings.warn("behind", stacklevel=1)
    return y


def leaves_a_filter(x):
    warnings.warn("before", stacklevel=1)
    warnings.simplefilter("ignore")
    warnings.warn("behind", stacklevel=1)
    return x * 2


@pytest.mark.parametrize(
    "function",
    [warns_under(action) for action in ("ignore", "once", "default", "always", "module")]
    + [breaks_under_filters, leaves_a_filter],
)
@pytest.mark.parametrize("filters", ["always", "default", "ignore"])
def test_filters_of_the_captured_code(function, filters):
    x = torch.randn(3)
    compiled = oxyfuel.compile(function)
    ours, eagers = (seen(f, x, filters=filters) for f in (compiled, function))
    torch.testing.assert_close(ours[0], eagers[0])
    assert ours[1] == eagers[1]
    assert oxyfuel.stats()["graph_breaks"] == 0 or function is breaks_under_filters


@pytest.mark.parametrize("breaks", [False, True])
def test_recorded_warnings_are_counted(breaks):
    def f(x):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if breaks:
                oxyfuel.graph_break()
            warnings.warn("first", stacklevel=1)
            warnings.warn("second", stacklevel=1)
            return x * len(said), [str(w.message) for w in said]

    x, compiled = torch.randn(3), oxyfuel.compile(f)
    for _ in range(2):
        (ours, messages), (eagers, expected) = compiled(x), f(x)
        torch.testing.assert_close(ours, eagers)
        assert messages == expected == ["first", "second"]


def test_warnings_that_are_recorded_around_a_break():
    class Caught:
        def __enter__(self):
            oxyfuel.graph_break()
            self.said = warnings.catch_warnings(record=True)
            self.list = self.said.__enter__()
            warnings.simplefilter("always")
            oxyfuel.graph_break()
            return self

        def __exit__(self, *error):
            self.said.__exit__(*error)
            self.count = len(self.list)

    def f(x):
        with Caught() as caught:
            warnings.warn("it", stacklevel=1)
            y = x + 1
        return y * caught.count

    def of_unittest(x):
        with unittest.TestCase().assertWarns(UserWarning):
            warnings.warn("it", stacklevel=1)
        return x + 1

    x = torch.randn(3)
    torch.testing.assert_close(oxyfuel.compile(f)(x), f(x))
    torch.testing.assert_close(oxyfuel.compile(of_unittest)(x), of_unittest(x))
    assert oxyfuel.stats()["fallbacks"] == 0


class Told(UserWarning):
    pass


def test_a_warning_that_is_an_object_is_that_one():
    def f(x, code):
        told = Told("it")
        told.code = code
        told.__notes__ = ["noted"]
        told.__cause__ = KeyError(code)
        warnings.warn(told, stacklevel=1)
        told.late = code
        return x + 1, told

    def run(do):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            given = [do(torch.ones(2), code)[1] for code in (1, 1, 2)]
        kept = [w.message for w in said if w.category is Told]
        assert all(k is g for k, g in zip(kept, given, strict=True))
        return [(vars(k), k.args, repr(k.__cause__), k.__suppress_context__) for k in kept]

    assert str(run(oxyfuel.compile(f))) == str(run(f))
    assert oxyfuel.stats()["graph_breaks"] == 0


def test_who_shows_them():
    shown = []
    compiled = oxyfuel.compile(warns)
    x = torch.randn(3)
    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda m, *rest: shown.append(str(m))
        compiled(x, 0)
    assert warnings.showwarning is before
    assert "0 is small" in shown


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(
            (record.levelno, record.getMessage(), record.pathname, record.lineno, record.funcName)
        )


def logs(x, n):
    LOG.debug("not shown %d", n)
    LOG.warning("%s of %s", n, "three")
    y = x.sin()
    LOG.info("plain")
    log_for_caller(n)
    return y * n


def log_for_caller(n):
    LOG.error("of the caller", stacklevel=2)


@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR, logging.CRITICAL])
def test_log_messages_are_eagers(level):
    x, kept = torch.randn(3), []
    for run in (oxyfuel.compile(logs), logs):
        handler = Kept()
        LOG.setLevel(level)
        LOG.addHandler(handler)
        try:
            kept.append(([run(x, 2) for _ in range(2)], handler.records))
        finally:
            LOG.removeHandler(handler)
    torch.testing.assert_close(kept[0][0], kept[1][0])
    assert kept[0][1] == kept[1][1]
    assert oxyfuel.stats()["graph_breaks"] == 0


COUNTS = {"seen": 0}


class Counts(logging.Handler):
    def __init__(self, told):
        super().__init__()
        self.told, self.last = told, None
        self.addFilter(lambda record: told.append("filtered") or True)

    def emit(self, record):
        COUNTS["seen"] += 1
        self.last = record.getMessage()


def test_what_handlers_change_is_read_behind_the_message():
    """It happens in the middle of the call in eager."""

    def f(x, handler, told):
        told.append("begin")
        LOG.info("of %s", tuple(x.shape))
        y = x * len(told)
        LOG.info("once more")
        told.append("end")
        return y * COUNTS["seen"], handler.last, list(told)

    seen = []
    for run in (oxyfuel.compile(f), f):
        told = []
        handler = Counts(told)
        COUNTS["seen"] = 0
        LOG.setLevel(logging.INFO)
        LOG.addHandler(handler)
        try:
            seen.append([run(torch.ones(n), handler, told) for n in (2, 2, 3, 4)])
        finally:
            LOG.removeHandler(handler)
    assert [r[1:] for r in seen[0]] == [r[1:] for r in seen[1]]
    torch.testing.assert_close([r[0] for r in seen[0]], [r[0] for r in seen[1]])


class Elsewhere(logging.Formatter):
    def format(self, record):
        COUNTS["seen"] += 10
        return "told"


def add_a_handler():
    LOG.addHandler(Counts([]))


def add_a_filter():
    LOG.handlers[0].addFilter(lambda record: COUNTS.update(seen=7) or True)


def set_a_formatter():
    LOG.handlers[0].setFormatter(Elsewhere())


@pytest.mark.parametrize("change", [add_a_handler, add_a_filter, set_a_formatter])
def test_who_is_told_has_changed(change, monkeypatch):
    def f(x):
        LOG.info("of %s", tuple(x.shape))
        return x * COUNTS["seen"]

    seen = []
    for run in (oxyfuel.compile(f), f):
        monkeypatch.setattr(LOG, "handlers", [logging.StreamHandler(io.StringIO())])
        monkeypatch.setitem(COUNTS, "seen", 1)
        LOG.setLevel(logging.INFO)
        seen.append([run(torch.ones(2)).tolist() for _ in range(2)])
        change()
        seen[-1] += [run(torch.ones(2)).tolist() for _ in range(3)]
    assert seen[0] == seen[1]


def test_in_front_of_a_break():
    def f(x, n):
        warnings.warn("first", stacklevel=1)
        if x.sum() > 0:
            warnings.warn("second", stacklevel=1)
        return x + n

    x = torch.ones(3)
    assert seen(oxyfuel.compile(f), x, 2)[1] == seen(f, x, 2)[1]


@functools.lru_cache(None)
def warn_once(logger, *args):
    """What transformers adds to loggers."""
    logger.warning(*args)


def logs_once(x, n):
    y = x * n
    LOG.warning_once("%s of a kind", n)
    LOG.warning("always")
    warn_once(LOG, f"{n} again")
    LOG.warning_once("%s of a kind", n)
    return y + 1


@pytest.mark.parametrize("level", [logging.INFO, logging.CRITICAL])
def test_what_is_logged_once(level, monkeypatch):
    monkeypatch.setattr(logging.Logger, "warning_once", warn_once, raising=False)
    x, kept = torch.randn(3), []
    for run in (oxyfuel.compile(logs_once), logs_once):
        handler = Kept()
        LOG.setLevel(level)
        LOG.addHandler(handler)
        warn_once.cache_clear()
        try:
            results = [run(x, n) for n in (1, 1, 2, 1)]
            warn_once.cache_clear()  # it says it once more
            results.append(run(x, 1))
        finally:
            LOG.removeHandler(handler)
        kept.append((results, handler.records, warn_once.cache_info()))
    torch.testing.assert_close(kept[0][0], kept[1][0])
    assert kept[0][1:] == kept[1][1:]
    assert len(kept[0][1]) == (11 if level == logging.INFO else 0)
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["fallbacks"] == stats["unsupported"] == 0


def test_a_cached_method_that_does_more_than_log():
    counted = []

    @functools.lru_cache(None)
    def count(logger, by):
        logger.info("counted")
        counted.append(by)
        return by + len(counted)

    def f(x, n):
        return x + count(LOG, n)

    x = torch.randn(3)
    found = []
    for run in (oxyfuel.compile(f), f):
        counted.clear()
        count.cache_clear()
        found.append([run(x, n) for n in (1, 1, 2, 1)] + [list(counted)])
    torch.testing.assert_close(found[0][:-1], found[1][:-1])
    assert found[0][-1] == found[1][-1] == [1, 2]


def test_a_cached_method_of_a_logger_that_is_made_inside():
    def f(x, name):
        warn_once(logging.Logger(name), "said")
        return x + 1

    x = torch.randn(3)
    assert torch.equal(oxyfuel.compile(f)(x, "inside"), x + 1)


@pytest.mark.parametrize("filters", ["always", "error"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.std(),
        lambda x: x.expand(2, 1).var(1) + 1,
        lambda x: torch.var_mean(x, 0, correction=3),
        lambda x: torch.autograd.grad(x.sum() * 2, x)[0].std(),
        lambda x: x.detach().random_(-(2**25), 2**25),
    ],
)
def test_warnings_of_kernels(function, filters):
    """Every call has them, as Python's warnings."""
    compiled = oxyfuel.compile(function)
    for call in (function, compiled, compiled):
        x = torch.ones(1, requires_grad=True)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(filters)
            if filters == "error":
                with pytest.raises(UserWarning, match="freedom|bounds"):
                    call(x)
                continue
            call(x)
        assert found, call
        assert all("freedom" in str(w.message) or "bounds" in str(w.message) for w in found)
