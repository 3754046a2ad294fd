"""The corpus of the front end: small functions with inputs, each a way to write Python that a
capture must follow.

`ENTRIES` lists them all, by families (families/*.py); an entry makes fresh, equal inputs each time
it is asked.
"""

from families import (
    breaks,
    calls,
    containers,
    control,
    effects,
    functions,
    iteration,
    loops,
    modules,
    objects,
    operations,
    tensors,
)
from families.entry import Call, Entry

_VALUES = (tensors, operations, containers, objects, effects)
_CODE = (calls, functions, iteration, loops, control, breaks, modules)
FAMILIES = [family for part in _VALUES + _CODE for family in part.FAMILIES]
ENTRIES: list[Entry] = [entry for family in FAMILIES for entry in family.entries]

__all__ = ["ENTRIES", "FAMILIES", "Call", "Entry"]
