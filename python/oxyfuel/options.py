"""Options: the settings table of the compiler, the environment, and what the user passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from oxyfuel import _C

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Option(NamedTuple):
    """A row of the settings table."""

    name: str
    type: str
    default: str
    environment: str
    choices: str
    help: str


def known_options() -> list[Option]:
    """Every option that ``options={...}`` takes, with its default and the variable that sets it."""
    return [Option(*row) for row in _C.setting_table()]


def make_settings(options: Mapping[str, Any] | None) -> _C.Settings:
    """The defaults, changed by the environment, then by ``options``.

    Raises UserError (a ValueError) for an unknown name, naming the known ones, and for a bad value; TypeError for what
    is no mapping.
    """
    settings = _C.Settings.from_env()
    if not isinstance(options, Mapping | None):
        raise TypeError(
            f"options is a mapping from names to values, not a {type(options).__name__}"
        )
    for name, value in (options or {}).items():
        settings.set(name, str(value))
    return settings
