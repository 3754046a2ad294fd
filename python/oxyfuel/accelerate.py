"""The backend's name in accelerate, which has a list of those that it knows of."""

from __future__ import annotations

from typing import Any

NAME = "OXYFUEL"  # accelerate writes names in capitals, and hands them to torch in small letters


def register_with_accelerate() -> None:
    """Lets accelerate take ``"oxyfuel"`` for a backend of torch.compile, and with it the Trainer of
    transformers: ``TrainingArguments(torch_compile=True, torch_compile_backend="oxyfuel")``.

    ``accelerate.utils.DynamoBackend`` is told where it looks for a name that is none of its own; a
    second call does nothing.

    Raises ModuleNotFoundError without accelerate.
    """
    from accelerate.utils import DynamoBackend

    if NAME in DynamoBackend:
        return
    member = str.__new__(DynamoBackend, NAME)
    member._name_ = member._value_ = NAME
    otherwise = DynamoBackend._missing_

    def missing(cls: Any, value: object) -> Any:
        return member if value == NAME else otherwise(value)

    DynamoBackend._missing_ = classmethod(missing)
