"""What a library can change in a process and another one can see, as far as it can be read."""

import atexit
import builtins
import ctypes
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import sys
import threading
import types
import warnings
from pathlib import Path

import numpy
import torch

_STATUS = ("Name", "Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "THP_enabled")
_EXCEPTION_FLAGS = 0x3F  # of MXCSR: every operation on floats may set them


def _status():
    lines = Path("/proc/self/status").read_text().splitlines()
    rows = dict(line.split(":", 1) for line in lines)
    return {name: rows[name].strip() for name in _STATUS if name in rows}


def _environment_of_c():
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    found = []
    while entries[len(found)] is not None:
        found.append(os.fsdecode(entries[len(found)]))
    return sorted(found)


def _floating_point():
    """The control words of x87 and SSE: rounding, denormals, masks of exceptions."""
    state = (ctypes.c_uint8 * 64)()
    ctypes.CDLL("libm.so.6").fegetenv(state)
    x87, sse = bytes(state[:2]), int.from_bytes(bytes(state[28:32]), "little")
    return x87, sse & ~_EXCEPTION_FLAGS


def _signal_stack():
    state = (ctypes.c_uint64 * 3)()
    ctypes.CDLL(None).sigaltstack(None, state)
    return list(state)


def _frame_evaluator():
    get_interpreter = ctypes.pythonapi.PyInterpreterState_Get
    get_evaluator = ctypes.pythonapi._PyInterpreterState_GetEvalFrameFunc
    get_interpreter.restype = get_evaluator.restype = ctypes.c_void_p
    get_evaluator.argtypes = [ctypes.c_void_p]
    return get_evaluator(get_interpreter())


def _setter(owner, name):
    """The C function in CPython's own table (PyGetSetDescrObject, PyGetSetDef)."""
    table = ctypes.c_void_p.from_address(id(owner.__dict__[name]) + 40).value
    return ctypes.c_void_p.from_address(table + 16).value


class _Plain:
    pass


def _setters():
    return [
        _setter(object, "__class__"),
        _setter(_Plain, "__dict__"),
        _setter(types.FunctionType, "__code__"),
    ]


def _interpreter_table():
    folder = Path(torch.__file__).parent / "lib"
    get = ctypes.CDLL(str(folder / "libc10.so"))._ZN3c104impl22getGlobalPyInterpreterEv
    get.restype = ctypes.c_void_p
    return ctypes.c_void_p.from_address(get()).value


def _loaded_libraries():
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return sorted(p for p in paths if ".so" in p)


def _open_files():
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:  # the one that listdir itself had open
            continue
    return found


def _files():
    """Under the folders in which libraries keep theirs."""
    folders = {os.environ.get(name) for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}
    return sorted(str(p) for f in folders if f for p in Path(f).rglob("*"))


def _loggers():
    named = logging.root.manager.loggerDict.items()
    found = {name: log for name, log in named if isinstance(log, logging.Logger)}
    found["root"] = logging.root
    return {
        name: (
            log.level,
            log.propagate,
            [id(h) for h in log.handlers],
            [id(f) for f in log.filters],
        )
        for name, log in found.items()
        if log.handlers or log.filters or log.level
    }


def _hooks():
    names = ("excepthook", "displayhook", "unraisablehook", "breakpointhook", "stdout", "stderr")
    return {
        **{name: id(getattr(sys, name)) for name in names},
        "meta_path": [id(x) for x in sys.meta_path],
        "path_hooks": [id(x) for x in sys.path_hooks],
        "path": list(sys.path),
        "trace": sys.gettrace(),
        "profile": sys.getprofile(),
        "threading.excepthook": id(threading.excepthook),
        "tools": [sys.monitoring.get_tool(i) for i in range(6)]
        if hasattr(sys, "monitoring")
        else [],
        "at exit": atexit._ncallbacks(),
        "threads at exit": len(getattr(threading, "_threading_atexits", [])),
        "faulthandler": faulthandler.is_enabled(),
        "import": id(builtins.__import__),
        "build_class": id(builtins.__build_class__),
    }


def _python():
    return {
        "filters": list(warnings.filters),
        "showwarning": id(warnings.showwarning),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_debug(), [id(c) for c in gc.callbacks]),
        "gc frozen": gc.get_freeze_count(),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "digits": sys.get_int_max_str_digits(),
        "handlers": {s.name: repr(signal.getsignal(s)) for s in signal.Signals},
        "timer": [signal.getitimer(t) for t in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)],
        "start method": multiprocessing.get_start_method(allow_none=True),
        "threads": sorted(t.name for t in threading.enumerate()),
    }


def _torch():
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    c = torch._C
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "warn always": torch.is_warn_always_enabled(),
        "autocast": [
            (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")
        ],
        "autocast cache": torch.is_autocast_cache_enabled(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "matmul": torch.get_float32_matmul_precision(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "dispatch modes": len(_get_current_dispatch_mode_stack()),
        "function modes": torch._C._len_torch_function_stack(),
        "included": str(c._dispatch_tls_local_include_set()),
        "excluded": str(c._dispatch_tls_local_exclude_set()),
        "compiling": torch.compiler.is_compiling(),
        "interpreter table": _interpreter_table(),
        "print options": str(torch._tensor_str.PRINT_OPTS),
        "sharing": torch.multiprocessing.get_sharing_strategy(),
    }


def _random():
    state = numpy.random.get_state()
    return {
        "random": random.getstate(),
        "numpy": (state[0], state[1].tolist(), *state[2:]),
        "torch": torch.get_rng_state().tolist(),
    }


def _registered_ops():
    """Which op has a kernel of its own for which key; of all ops, what a fallback gives them."""
    c = torch._C
    return {
        "ops": sorted(map(str, c._dispatch_get_all_op_names())),
        "kernels": sorted(map(str, c._dispatch_get_registrations_for_dispatch_key())),
        "fallbacks": c._dispatch_dump_table("aten::add.Tensor").splitlines(),
    }


def _attributes():
    """Which object each name of a module stands for, and each of the classes in torch's."""
    found = {}
    for name, module in list(sys.modules.items()):
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if callable(value):
                found[f"{name}.{key}"] = id(value)
            if type(value) is type and str(vars(value).get("__module__")).startswith("torch"):
                members = vars(value).items()
                found |= {f"{name}.{key}.{k}": id(v) for k, v in members if callable(v)}
    return found


def _limits():
    names = [n for n in dir(resource) if n.startswith("RLIMIT_")]
    return {n: resource.getrlimit(getattr(resource, n)) for n in names}


def snapshot():
    """All of it: comparable things by name."""
    return {
        "process": _status(),
        "environment": dict(os.environ),
        "environment of C": _environment_of_c(),
        "folder": os.getcwd(),
        "open files": _open_files(),
        "files": _files(),
        "libraries": _loaded_libraries(),
        "limits": _limits(),
        "processors": sorted(os.sched_getaffinity(0)),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "floating point": _floating_point(),
        "signal stack": _signal_stack(),
        "locale": locale.setlocale(locale.LC_ALL),
        "modules": sorted(sys.modules),
        "hooks": _hooks(),
        "python": _python(),
        "loggers": _loggers(),
        "evaluator": _frame_evaluator(),
        "setters": _setters(),
        "torch": _torch(),
        "random": _random(),
        "ops": _registered_ops(),
        "attributes": _attributes(),
    }


def _rows(name, value):
    """(name, thing) of everything in nested dicts and lists of texts."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _rows(f"{name}: {key}", inner)
    elif isinstance(value, list) and all(isinstance(x, str) for x in value):
        yield from ((f"{name}: {x}", True) for x in value)
    else:
        yield name, value


def differences(before, after):
    """The names of what is not in both, or is another."""
    old, new = (dict(r for k, v in s.items() for r in _rows(k, v)) for s in (before, after))
    return sorted(
        k for k in old.keys() | new.keys() if k not in old or k not in new or old[k] != new[k]
    )
