"""Options: the settings table of the compiler, the environment, and what the user passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from oxyfuel import _C

# torch.compile's modes: what each sets. reduce-overhead is about CUDA graphs.
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"autotune": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
    "lite": {"kernels": False},
}


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


def options_of_mode(mode: str | None, options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The options that a mode stands for, or ``options``. ValueError for an unknown mode, and where
    both are given."""
    if mode is None:
        return {} if options is None else options
    if mode not in _MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(_MODES)}")
    if options:
        raise ValueError("mode and options cannot be given together")
    return _MODES[mode]


def make_settings(options: Mapping[str, Any] | None) -> _C.Settings:
    """The defaults, changed by the environment, then by ``options``.

    Raises UserError (a ValueError) for an unknown name, naming the known ones, and for a bad value;
    TypeError for what is no mapping.
    """
    settings = _C.Settings.from_env()
    if not isinstance(options, Mapping | None):
        raise TypeError(
            f"options is a mapping from names to values, not a {type(options).__name__}"
        )
    for name, value in (options or {}).items():
        settings.set(name, str(value))
    return settings
