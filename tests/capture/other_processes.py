"""Checks that run in a process of their own."""

import os
import subprocess
import sys
import textwrap
import traceback
import warnings

import pytest
import torch


def in_a_fork(check):
    """What it leaves behind in its process is gone."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def run_program(text, folder, seconds=120):
    """(exit status, stdout, stderr) of a program."""
    (folder / "program.py").write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=seconds
    )
    return done.returncode, done.stdout, done.stderr
