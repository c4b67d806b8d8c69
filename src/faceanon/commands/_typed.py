"""From what argparse read to a frozen dataclass: the first line of every command's `run`."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def typed(kind: type[T], args: argparse.Namespace, **groups: DataclassInstance) -> T:
    """The options of a command.

    Args:
        kind: A dataclass whose fields are named like the arguments.
        args: What argparse read.
        groups: Fields that stand for several arguments each, filled already.
    """
    values: dict[str, Any] = dict(groups)
    # Field by field, since argparse's namespace also holds the command's name and the options of the other groups.
    for field in fields(kind):
        if field.name not in groups:
            values[field.name] = getattr(args, field.name)
    return kind(**values)
