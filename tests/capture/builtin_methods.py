"""A call or two of each public method of the builtin types: `METHODS[type]` maps a method to
arguments, `MAKE[type]` makes an object anew. An argument is an expression; `q` in it is the object
itself."""

import collections
import sys

MAKE = {
    str: "'a-bC d'",
    bytes: "b'ab c'",
    int: "n + 12",
    float: "n + 1.25",
    complex: "complex(n, 2)",
    bool: "n > 1",
    list: "[3, n, 1]",
    tuple: "(3, n, 1, 3)",
    dict: "{'a': 1, 'b': n}",
    set: "{1, n, 5}",
    frozenset: "frozenset([1, n, 5])",
    range: "range(1, n + 9, 2)",
    slice: "slice(1, n + 5, 2)",
    collections.deque: "collections.deque([1, n, 3], maxlen=5)",
    collections.OrderedDict: "collections.OrderedDict(a=1, b=n)",
    collections.defaultdict: "collections.defaultdict(list, a=[1], b=[n])",
    collections.Counter: "collections.Counter({'a': 2, 'b': n})",
}

_TEXT = {
    "capitalize casefold isalnum isalpha isascii isdigit islower isspace": [""],
    "istitle isupper lower swapcase title upper": [""],
    "isdecimal isidentifier isnumeric isprintable": [""],
    "center ljust rjust": ["12", "9, '*'"],
    "count find index rfind rindex": ["'b'", "'b', 1"],
    "encode": ["", "'utf-8'"],
    "endswith startswith": ["'a'", "('x', 'a')", "'b', 1"],
    "expandtabs": ["", "2"],
    "format": ["1, n"],
    "format_map": ["{'a': n}"],
    "join": ["['x', 'y']", "(str(k) for k in [1, n])"],
    "lstrip rstrip strip": ["", "'ad'"],
    "maketrans": ["'ab', 'xy'"],
    "partition rpartition": ["'-'", "'?'"],
    "removeprefix removesuffix": ["'a'"],
    "replace": ["'a', 'z'", "'a', 'z', 1"],
    "split rsplit": ["", "'-'", "'-', 1"],
    "splitlines": ["", "True"],
    "translate": ["{97: 'x'}"],
    "zfill": ["9"],
}
_BYTES = {
    "capitalize isalnum isalpha isascii isdigit islower isspace": [""],
    "istitle isupper lower swapcase title upper": [""],
    "center ljust rjust": ["12", "9, b'*'"],
    "count find index rfind rindex": ["b'b'"],
    "decode": ["", "'ascii'"],
    "endswith startswith": ["b'a'"],
    "expandtabs": [""],
    "fromhex": ["'6162'"],
    "hex": ["", "'-'"],
    "join": ["[b'x', b'y']"],
    "lstrip rstrip strip": ["", "b'a'"],
    "maketrans": ["b'ab', b'xy'"],
    "partition rpartition": ["b' '"],
    "removeprefix removesuffix": ["b'a'"],
    "replace": ["b'a', b'z'"],
    "split rsplit": ["", "b' '"],
    "splitlines": [""],
    "translate": ["None, b'a'"],
    "zfill": ["9"],
}
_INT = {
    "as_integer_ratio bit_count bit_length conjugate": [""],
    "to_bytes": ["2, 'big'"],
    "from_bytes": ["b'ab', 'big'"],
}
if sys.version_info >= (3, 12):
    _INT["is_integer"] = [""]
_DICT = {
    "clear copy items keys popitem values": [""],
    "fromkeys": ["['x', 'y'], n"],
    "get": ["'a'", "'z', n"],
    "pop": ["'a'", "'z', 4", "'z'"],
    "setdefault": ["'a', n", "'z', n"],
    "update": ["{'c': n}", "c=n", "[('d', 1)]"],
}
_SET = {
    "copy": [""],
    "difference intersection union": ["{1, 7}", "[5], (n,)"],
    "isdisjoint issubset issuperset": ["{1, 7}"],
    "symmetric_difference": ["{1, 7}"],
}

METHODS = {
    str: _TEXT,
    bytes: _BYTES,
    int: _INT,
    bool: _INT,
    float: {
        "as_integer_ratio conjugate hex is_integer": [""],
        "fromhex": ["'0x1.8p1'"],
    },
    complex: {"conjugate": [""]},
    list: {
        "append": ["n", "q"],
        "clear copy reverse": [""],
        "count index": ["3", "99"],
        "extend": ["[1, n]", "(k for k in [n, 2])", "q"],
        "insert": ["1, n", "-9, n"],
        "pop": ["", "0", "99"],
        "remove": ["3", "99"],
        "sort": ["", "reverse=True", "key=lambda k: -k"],
    },
    tuple: {"count index": ["3", "99"]},
    dict: _DICT,
    set: {
        **_SET,
        "add discard": ["n", "77"],
        "clear pop": [""],
        "remove": ["1", "99"],
        "difference_update intersection_update update": ["{1, 7}", "[5], (n,)"],
        "symmetric_difference_update": ["{1, 7}"],
    },
    frozenset: _SET,
    range: {"count index": ["3", "98"]},
    slice: {"indices": ["7"]},
    collections.deque: {
        "append appendleft": ["n"],
        "clear copy pop popleft reverse": [""],
        "count index": ["1", "99"],
        "extend extendleft": ["[7, n]"],
        "insert": ["1, n"],
        "remove": ["1", "99"],
        "rotate": ["", "-1"],
    },
    collections.OrderedDict: {**_DICT, "move_to_end": ["'a'", "'b', last=False", "'z'"]},
    collections.defaultdict: _DICT,
    collections.Counter: {
        **{k: v for k, v in _DICT.items() if k != "fromkeys"},
        "elements": [""],
        "fromkeys": ["'ab'"],
        "most_common": ["", "1"],
        "subtract": ["{'a': 1}", "a=3"],
        "total": [""],
    },
}

# Operators and builtins on an object `q`, whatever its type; those that raise must raise the same.
OPERATIONS = """
q == q
q != 1
bool(q)
not q
len(q)
list(q)
tuple(q)
sorted(q)
list(reversed(q))
q + q
q * 2
2 * q
q - q
q & q
q | q
q ^ q
q < q
q[0]
q[-1]
q[1:]
q['a']
3 in q
'a' in q
iter(q) is q
next(iter(q))
max(q)
sum(q)
any(q)
all(q)
repr(q)
str(q)
f"{q}"
hash(q)
type(q)
isinstance(q, (list, int))
abs(q)
-q
~q
int(q)
float(q)
round(q)
divmod(q, 2)
q // 2
q % 2
q ** 2
q << 1
[*q]
{**q}
set(q)
dict(q)
dict.fromkeys(q)
list(zip(q, q))
list(enumerate(q))
list(map(str, q))
[k for k in q]
copy.copy(q)
copy.deepcopy(q)
callable(q)
q is None
q.__class__
""".strip().splitlines()
