"""The build backend of pyproject.toml: scikit-build-core's, told what the wheel is for.

It is for the torch at hand (tools/torch_at_hand.py), whose minor version becomes the wheel's
requirement, and for C libraries from this machine's on, which its tag says. Clang compiles it where
CXX names no other compiler.
"""

import os
import platform
import shutil
import sysconfig

from scikit_build_core import build

from torch_at_hand import torch_at_hand

build_editable = build.build_editable
get_requires_for_build_editable = build.get_requires_for_build_editable
get_requires_for_build_wheel = build.get_requires_for_build_wheel


def dynamic_metadata(settings, project):
    """What pyproject.toml leaves open."""
    major, minor = torch_at_hand()[0].split(".")[:2]
    return {"dependencies": [f"torch>={major}.{minor},<{major}.{int(minor) + 1}"]}


def tag():
    """The wheel's tag: this Python, and this machine's C library or a newer one."""
    python = sysconfig.get_config_var("SOABI").split("-")[1]
    library, version = platform.libc_ver()
    system = "linux"
    if library == "glibc":
        system = "manylinux_" + "_".join(version.split(".")[:2])
    return f"cp{python}-cp{python}-{system}_{platform.machine()}"


def _settings(given):
    settings = {"wheel.tags": tag(), **(given or {})}
    if "CXX" not in os.environ and (clang := shutil.which("clang++-19")):
        settings.setdefault("cmake.define.CMAKE_CXX_COMPILER", clang)
    return settings


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return build.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    return build.prepare_metadata_for_build_wheel(metadata_directory, _settings(config_settings))
