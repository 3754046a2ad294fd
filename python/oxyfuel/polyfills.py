"""Functions of itertools, functools, collections, heapq, bisect, re, torch and texts that are
written in C, and call what they are given, compare it or put it in containers, in Python.

Captures follow them in the place of the originals (src/python/capture/natives.cpp), by the names
that they have there; CPython itself never runs them. Each takes its iterator at once, as the
original does.
"""

import _string
import operator
import re
import typing

import torch


def accumulate(iterable, func=None, *, initial=None):
    return _accumulate(iter(iterable), func, initial)


def _accumulate(iterator, function, total):
    if total is None:
        for first in iterator:
            total = first
            break
        else:
            return
    yield total
    for item in iterator:
        total = total + item if function is None else function(total, item)
        yield total


def _count_elements(mapping, iterable, /):
    get = mapping.get
    for item in iterable:
        mapping[item] = get(item, 0) + 1


def _lru_cache_wrapper(user_function, maxsize, typed, cache_info_type):
    results = {}  # the one that has not been asked for longest is the first
    mark, hits, misses = object(), 0, 0

    def cached(*args, **kwargs):
        nonlocal hits, misses
        key = args
        if kwargs:
            key += (mark, *[part for item in kwargs.items() for part in item])
        if typed:
            key += (*[type(value) for value in args], *[type(value) for value in kwargs.values()])
        elif not kwargs and len(args) == 1 and type(args[0]) in (int, str):
            key = args[0]
        if key in results:
            hits += 1
            result = results.pop(key)
        else:
            misses += 1
            result = user_function(*args, **kwargs)
            if maxsize is not None and len(results) >= maxsize:
                if maxsize <= 0:
                    return result
                del results[next(iter(results))]
        results[key] = result
        return result

    def cache_clear():
        nonlocal hits, misses
        results.clear()
        hits = misses = 0

    cached.cache_info = lambda: cache_info_type(hits, misses, maxsize, len(results))
    cached.cache_clear = cache_clear
    return cached


def missing_member(cls, value):
    error = result = None
    try:
        result = cls._missing_(value)
    except Exception as e:
        error = e
    if isinstance(result, cls):
        return result
    invalid = ValueError(f"{value!r} is not a valid {cls.__qualname__}")
    if error is None:
        if result is None:
            raise invalid
        error = TypeError(
            f"error in {cls.__name__}._missing_: "
            f"returned {result!r} instead of None or a valid member"
        )
    if not isinstance(error, ValueError):
        error.__context__ = invalid
    raise error


def slice_indices(self, length):
    def whole(n):
        if not hasattr(type(n), "__index__"):
            raise TypeError("slice indices must be integers or None or have an __index__ method")
        return operator.index(n)

    length = operator.index(length)
    if length < 0:
        raise ValueError("length should not be negative")
    step = 1 if self.step is None else whole(self.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    least, most = (0, length) if step > 0 else (-1, length - 1)
    ends = [least, most] if step > 0 else [most, least]
    for place, n in enumerate((self.start, self.stop)):
        if n is not None:
            n = whole(n)
            ends[place] = max(n + length, least) if n < 0 else min(n, most)
    return (*ends, step)


class _ItemsInOrder:  # after another exception it goes on, as no generator does
    def __init__(self, sequence):
        self.sequence, self.at = sequence, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.sequence is not None:
            try:
                item = self.sequence[self.at]
            except (IndexError, StopIteration):
                self.sequence = None
            else:
                self.at += 1
                return item
        raise StopIteration


def items_in_order(sequence, /):
    return _ItemsInOrder(sequence)


def ask_for_length(iterable):
    """What a list or tuple is allocated by."""
    kind = type(iterable)
    try:
        if hasattr(kind, "__len__"):
            len(iterable)
            return
    except TypeError:
        pass
    if not hasattr(kind, "__length_hint__"):
        return
    try:
        hint = kind.__length_hint__(iterable)
    except TypeError:
        return
    if hint is NotImplemented:
        return
    if not isinstance(hint, int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(hint).__name__}")
    if hint < 0:
        raise ValueError("__length_hint__() should return >= 0")


class _ResultsUntil:
    def __init__(self, function, sentinel):
        self.function, self.sentinel = function, sentinel

    def __iter__(self):
        return self

    def __next__(self):
        if self.function is not None:
            try:
                result = self.function()
            except StopIteration:
                self.function = None
            else:
                if self.sentinel is result or self.sentinel == result:
                    self.function = None
                else:
                    return result
        raise StopIteration


try:
    iter(None, None)
except TypeError as e:
    _NOT_CALLABLE = str(e)  # 3.12 has a text of its own


def results_until(function, sentinel, /):
    if not callable(function):
        raise TypeError(_NOT_CALLABLE)
    return _ResultsUntil(function, sentinel)


def takewhile(predicate, iterable, /):
    return _takewhile(predicate, iter(iterable))


def _takewhile(predicate, iterator):
    for item in iterator:
        if not predicate(item):
            return
        yield item


def dropwhile(predicate, iterable, /):
    return _dropwhile(predicate, iter(iterable))


def _dropwhile(predicate, iterator):
    for item in iterator:
        if not predicate(item):
            yield item
            break
    yield from iterator


def compress(data, selectors):
    return _compress(iter(data), iter(selectors))


def _compress(data, selectors):
    # The item is taken before the answer.
    for item, chosen in zip(data, selectors):
        if chosen:
            yield item


def filterfalse(predicate, iterable, /):
    return _filterfalse(predicate, iter(iterable))


def _filterfalse(predicate, iterator):
    for item in iterator:
        if not (item if predicate is None else predicate(item)):
            yield item


def _nothing():
    pass


def groupby(iterable, key=None):
    return _groupby(iter(iterable), key)


def _groupby(iterator, function):
    current = target = value = _nothing
    turn = 0

    def step():
        nonlocal current, value
        for value in iterator:
            current = value if function is None else function(value)
            return True
        return False

    def group(key, mine):
        nonlocal current, value
        while turn == mine:
            if value is _nothing and not step():
                return
            if not (key is current or key == current):
                return
            item = value
            value = current = _nothing
            yield item

    while True:
        turn += 1
        while current is _nothing or (
            target is not _nothing and (target is current or target == current)
        ):
            if not step():
                return
        target = current
        yield current, group(target, turn)


def tee(iterable, n=2, /):
    if n < 0:
        raise ValueError("n must be >= 0")
    iterator = iter(iterable)
    waiting = [[] for _ in range(n)]
    return tuple([_tee(iterator, mine, waiting) for mine in waiting])


def _tee(iterator, mine, waiting):
    while True:
        if not mine:
            for item in iterator:
                for each in waiting:
                    each.append(item)
                break
            else:
                return
        yield mine.pop(0)


def starmap(function, iterable, /):
    return _starmap(function, iter(iterable))


def _starmap(function, iterator):
    for arguments in iterator:
        yield function(*arguments)


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    groups = {}
    for i, first in enumerate(tensorlistlist[0]):
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in tensorlistlist], [])
        lists, indices = groups[key]
        for mine, tensors in zip(lists, tensorlistlist):
            if len(tensors) > 0:
                mine.append(tensors[i])
        if with_indices:
            indices.append(i)
    return groups


def heappush(heap, item, /):
    heap.append(item)
    _rise(heap, len(heap) - 1, 0)


def heappop(heap, /):
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    return _replace_first(heap, last) if heap else last


def heapreplace(heap, item, /):
    if not heap:
        raise IndexError("index out of range")
    return _replace_first(heap, item)


def heappushpop(heap, item, /):
    return _replace_first(heap, item) if heap and heap[0] < item else item


def heapify(heap, /):
    for at in range(len(heap) // 2 - 1, -1, -1):
        _settle(heap, at)


def _heappop_max(heap, /):
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    return _replace_first(heap, last, True) if heap else last


def _heapreplace_max(heap, item, /):
    if not heap:
        raise IndexError("index out of range")
    return _replace_first(heap, item, True)


def _heapify_max(heap, /):
    for at in range(len(heap) // 2 - 1, -1, -1):
        _settle(heap, at, True)


# `falls`: the largest item is the first.


def _replace_first(heap, item, falls=False):
    first = heap[0]
    heap[0] = item
    _settle(heap, 0, falls)
    return first


def _rise(heap, at, top, falls=False):
    item = heap[at]
    while at > top:
        parent = heap[(at - 1) // 2]
        if not (parent < item if falls else item < parent):
            break
        heap[at] = parent
        at = (at - 1) // 2
    heap[at] = item


def _settle(heap, top, falls=False):
    """Down to a leaf along the first of two children, and up from there: as many comparisons as
    C's."""
    at, item = top, heap[top]
    while 2 * at + 1 < len(heap):
        child = 2 * at + 1
        if child + 1 < len(heap):
            one, two = heap[child], heap[child + 1]
            if not (two < one if falls else one < two):
                child += 1
        heap[at] = heap[child]
        at = child
    heap[at] = item
    _rise(heap, at, top, falls)


def bisect_left(a, x, lo=0, hi=None, *, key=None):
    lo, hi = _range_of_bisect(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


def bisect_right(a, x, lo=0, hi=None, *, key=None):
    lo, hi = _range_of_bisect(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def insort_left(a, x, lo=0, hi=None, *, key=None):
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


def insort_right(a, x, lo=0, hi=None, *, key=None):
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


def _range_of_bisect(a, lo, hi):
    if lo < 0:
        raise ValueError("lo must be non-negative")
    return lo, len(a) if hi is None or hi == -1 else hi


def fields_of(text, numbering=None):
    """What str.format finds in a text, for format_fields; run by CPython, not followed."""
    numbering = {"next": 0, "given": None} if numbering is None else numbering
    found = []
    for literal, field, spec, conversion in _string.formatter_parser(text):
        if field is None:
            found.append((literal, None, (), (), None))
            continue
        name, rest = _string.formatter_field_name_split(field)
        if name == "" or type(name) is int:
            given = name != ""
            if numbering["given"] is not None and numbering["given"] != given:
                words = ["automatic field numbering", "manual field specification"]
                raise ValueError(f"cannot switch from {words[not given]} to {words[given]}")
            numbering["given"] = given
            if not given:
                name, numbering["next"] = numbering["next"], numbering["next"] + 1
        found.append((literal, name, tuple(rest), fields_of(spec, numbering), conversion))
    return tuple(found)


def follows_fields(fields):
    """Whether a field reads attributes or items, or has a specification with fields."""
    return any(
        rest or any(inner is not None for _, inner, *_ in spec) for _, _, rest, spec, _ in fields
    )


def format_fields(fields, args, kwargs):
    text = ""
    for literal, name, rest, spec, conversion in fields:
        if name is None:
            text = f"{text}{literal}"
            continue
        if type(name) is str:
            value = kwargs[name]
        elif name < len(args):
            value = args[name]
        else:
            raise IndexError(f"Replacement index {name} out of range for positional args tuple")
        for is_attribute, part in rest:
            value = getattr(value, part) if is_attribute else value[part]
        spec = format_fields(spec, args, kwargs)
        if conversion == "r":
            text = f"{text}{literal}{value!r:{spec}}"
        elif conversion == "s":
            text = f"{text}{literal}{value!s:{spec}}"
        elif conversion == "a":
            text = f"{text}{literal}{value!a:{spec}}"
        else:
            text = f"{text}{literal}{value:{spec}}"
    return text


def places_of_subclasses(kind):
    """Where in memory they are, which a capture keeps there."""
    return tuple(id(each) for each in type.__subclasses__(kind))


def members_of_protocol(protocol):
    """What isinstance looks for: all names, and those that may not be None; run by CPython."""
    names = getattr(protocol, "__protocol_attrs__", None) or typing._get_protocol_attrs(protocol)
    data = getattr(protocol, "__non_callable_proto_members__", None)  # from 3.13 on
    if data is None:
        data = [n for n in names if not callable(getattr(protocol, n, None))]
    return tuple(sorted(names)), tuple(sorted(n for n in names if n not in data))


def has_members(instance, names, methods):
    for name in names:
        if not hasattr(instance, name) or (name in methods and getattr(instance, name) is None):
            return False
    return True


def istft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    normalized=False,
    onesided=None,
    length=None,
    return_complex=False,
):
    """As torch's, which looks at the sum of the windows in C++; here a branch leads to a raise."""
    step = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    start = n_fft // 2 if center else 0
    plain = (
        not return_complex
        and input.is_complex()
        and input.dim() in (2, 3)
        and input.numel() > 0
        and 0 < step <= width <= n_fft
        and (window is None or (not window.is_complex() and tuple(window.shape) == (width,)))
    )
    if plain:
        bins, frames = input.shape[-2:]
        half = bins != n_fft if onesided is None else onesided
        total = n_fft + step * (frames - 1)
        end = total - start if length is None else start + length
        plain = bins == (n_fft // 2 + 1 if half else n_fft) and start < end <= total
    if not plain:
        return torch.ops.aten.istft(
            input,
            n_fft,
            hop_length,
            win_length,
            window,
            center,
            normalized,
            onesided,
            length,
            return_complex,
        )
    if window is None:
        window = torch.ones(width, dtype=input.real.dtype, device=input.device)
    if width < n_fft:
        left = (n_fft - width) // 2
        window = torch.constant_pad_nd(window, (left, n_fft - width - left))
    spectra = (input.unsqueeze(0) if input.dim() == 2 else input).transpose(1, 2)
    if not half:
        spectra = spectra.narrow(-1, 0, n_fft // 2 + 1)
    by_root, by_size = 1, 2  # native::fft_norm_mode
    parts = torch.ops.aten._fft_c2r(spectra, [2], by_root if normalized else by_size, n_fft)
    overlapped = torch.ops.aten.unfold_backward
    parts = parts * window.view(1, 1, n_fft)
    signal = overlapped(parts, [parts.shape[0], total], 1, n_fft, step)[:, start:end]
    windows = window.pow(2).expand(1, frames, n_fft)
    windows = overlapped(windows, [1, total], 1, n_fft, step)[:, start:end]
    if windows.abs().min() < 1e-11:
        raise RuntimeError("istft: the windows leave gaps")  # eager says which
    signal = signal / windows
    return signal.squeeze(0) if input.dim() == 2 else signal


def sub(pattern, repl, string, count=0, flags=0):
    """Of the module re, with a function that makes each replacement."""
    return subn(pattern, repl, string, count, flags)[0]


def subn(pattern, repl, string, count=0, flags=0):
    if not isinstance(pattern, re.Pattern):
        pattern = re.compile(pattern, flags)
    return pattern_subn(pattern, repl, string, count)


def pattern_sub(pattern, repl, string, count=0):
    return pattern_subn(pattern, repl, string, count)[0]


def pattern_subn(pattern, repl, string, count=0):
    parts, at, done = [], 0, 0
    for match in pattern.finditer(string):
        if count and done >= count:
            break
        parts += [string[at : match.start()], repl(match)]
        at, done = match.end(), done + 1
    parts.append(string[at:])
    return string[:0].join(parts), done


def reversed_sequence(sequence):
    return _reversed_sequence(sequence, len(sequence))


def _reversed_sequence(sequence, length):
    for i in range(length - 1, -1, -1):
        try:
            item = sequence[i]
        except (IndexError, StopIteration):
            return
        yield item


def tensor_of_class(dtype, *args):
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        (items,) = args
        if not isinstance(items, torch.Size):
            return torch.tensor(items, dtype=dtype)
        args = items
    return torch.empty(args or (0,), dtype=dtype)
