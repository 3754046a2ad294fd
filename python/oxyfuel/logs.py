"""Logs, with the artefact names of torch's logs."""

from __future__ import annotations

import os

from oxyfuel import _C


def set_logs(artifacts: str = "", **switches: bool) -> None:
    """Chooses what is printed to stderr while Oxyfuel compiles, in place of what was chosen before.

    ``set_logs("fusion,output_code")`` and ``set_logs(fusion=True, output_code=True)`` are the same;
    ``set_logs()`` switches everything off. Raises UserError for an unknown name, naming the known
    ones.
    """
    named = [("+" if on else "-") + name for name, on in switches.items()]
    _C.set_logs(",".join(filter(None, [artifacts, *named])))


def log(artifact: str, header: str, text: str) -> None:
    """Prints an artefact if it is switched on."""
    _C.log(artifact, header, text)


set_logs(os.environ.get("OXYFUEL_LOGS", ""))
