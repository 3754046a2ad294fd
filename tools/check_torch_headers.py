"""Holds what src/torch_bridge relies on against torch's headers, by name: every virtual function of
the classes that it derives from is overridden or left to torch on purpose, and the classes whose
memory it reads have the data members that it knows.

    python tools/check_torch_headers.py INCLUDE_FOLDER

Configuring the build runs it. See docs/torch_versions.md for what to do about a difference.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

BRIDGE = Path(__file__).parent.parent / "src/torch_bridge"


class Derived(NamedTuple):
    """A class of torch that a file of ours derives from."""

    header: str
    name: str
    ours: str
    left: str = ""  # the virtual functions that keep torch's meaning


class Read(NamedTuple):
    """A class of torch whose memory is read: its data members in order."""

    header: str
    name: str
    members: str


# What nodes of autograd's graph leave to torch: its hooks, and what only compiled autograd asks.
NODE = """
    tensor_pre_hooks tensor_post_acc_grad_hooks will_release_variables is_traceable
    passes_state_transparently compiled_args apply_with_saved is_aot_backward"""

DERIVED = [
    Derived("c10/core/impl/PyInterpreter.h", "PyInterpreterVTable", "interpreter_vtable.cpp"),
    Derived(
        "c10/core/SymNodeImpl.h",
        "SymNodeImpl",
        "sym_node.cpp",
        left="""
            float_truediv int_truediv int_floordiv guard_size_oblivious guard_or_false guard_or_true
            expect_true is_nested_int nested_int nested_int_coeff _graph_repr""",
    ),
    Derived(
        "c10/core/TensorImpl.h",
        "TensorImpl",
        "symbolic_shapes.cpp",
        left="""
            sym_sizes_custom sym_size_custom size_custom sym_strides_custom sym_numel_custom
            sym_storage_offset_custom dim_custom sym_is_contiguous_custom is_strides_like_custom
            sym_is_non_overlapping_and_dense_custom device_custom layout_custom layout_impl
            has_storage set_size set_stride set_storage_offset shallow_copy_from
            tensorimpl_type_name""",
    ),
    Derived("ATen/FunctionalStorageImpl.h", "ViewMeta", "exact_views.cpp", left="to_out_index"),
    Derived(
        "torch/csrc/autograd/node.h",
        "Node",
        "backward_call.h",
        left=f"{NODE} release_variables",
    ),
    Derived(
        "torch/csrc/autograd/node.h",
        "Node",
        "joint_recording.cpp",
        left=f"{NODE} name release_variables",
    ),
]

READ = [
    Read(
        "c10/core/TensorImpl.h",
        "TensorImpl",
        """storage_ autograd_meta_ extra_meta_ version_counter_ pyobj_slot_ sizes_and_strides_
           storage_offset_ numel_ data_type_ device_opt_ is_contiguous_ storage_access_should_throw_
           is_channels_last_ is_channels_last_contiguous_ is_channels_last_3d_
           is_channels_last_3d_contiguous_ is_non_overlapping_and_dense_ is_wrapped_number_
           allow_tensor_metadata_change_ reserved_ sizes_strides_policy_ has_symbolic_sizes_strides_
           custom_sizes_strides_ device_policy_ layout_policy_ custom_device_ custom_layout_
           python_custom_sizes_strides_ python_custom_device_ python_custom_layout_ key_set_""",
    ),
    Read(
        "c10/core/impl/SizesAndStrides.h",
        "SizesAndStrides",
        "size_ outOfLineStorage_ inlineStorage_",
    ),
]


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def body_of(text: str, name: str) -> str:
    """What stands between the braces of a class."""
    head = re.search(rf"\b(?:struct|class)\s+(?:\w+\s+)*?{name}\b[^;{{}}()]*\{{", text)
    if head is None:
        return ""
    depth = 1
    for at in range(head.end(), len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[head.end() : at]
    return ""


def flat(body: str) -> str:
    """A class's own declarations: whatever is in braces is left out, unions apart."""
    body = re.sub(r"\bunion\s*\{((?:[^{}]|\{\})*)\}", r"\1", body)
    while (less := re.sub(r"\{[^{}]*\}", ";", body)) != body:
        body = less
    return body


def virtuals(body: str) -> list[str]:
    found = re.findall(r"\bvirtual\b[^;{}()]*?\b(\w+)\s*\(", body)
    return [name for name in dict.fromkeys(found) if f"~{name}" not in body]


def members(body: str) -> list[str]:
    return re.findall(r"\b(\w+_)(?:\[[^\]]*\])?\s*(?:;|=[^=;]*;|:\s*\d+[^;]*;)", flat(body))


def overridden(source: str) -> set[str]:
    """The names of the functions that a file of ours overrides."""
    plain = re.findall(r"\b(\w+)\((?:[^(){};]|\([^()]*\))*\)\s*(?:const\s*)?override", source)
    return {*plain, *re.findall(r"OXY_TO_TORCH\((?:[^,()]|\([^()]*\))+,\s*(\w+),", source)}


def differences(include: Path) -> list[str]:
    """What is not as we know it."""
    wrong = []
    for header, name, ours, left in DERIVED:
        body = body_of(without_comments((include / header).read_text()), name)
        declared = virtuals(body)
        if not declared:
            wrong.append(f"{header}: no class {name} with virtual functions")
        known = overridden((BRIDGE / ours).read_text()) | set(left.split())
        wrong += [
            f"{header}: {name}::{v} is virtual; src/torch_bridge/{ours} does not override it"
            for v in declared
            if v not in known
        ]
    for header, name, known in READ:
        found = members(body_of(without_comments((include / header).read_text()), name))
        if found != known.split():
            new = [m for m in found if m not in known.split()]
            gone = [m for m in known.split() if m not in found]
            wrong.append(
                f"{header}: {name} has its data members in another order"
                if not new + gone
                else f"{header}: {name} has other data members: new {new}, gone {gone}"
            )
    return wrong


def main() -> int:
    wrong = differences(Path(sys.argv[1]))
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
