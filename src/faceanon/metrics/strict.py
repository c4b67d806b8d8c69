"""Plain data from a YAML file to frozen dataclasses, strictly: unknown, missing and mistyped entries are errors."""

from __future__ import annotations

import math
import reprlib
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from faceanon.errors import UserError

T = TypeVar("T")
NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "entries `name: value`"}


def typed(cls: type[T], data: object, where: str) -> T:
    """Build a dataclass of numbers, texts, Literals, `X | None`, tuples `(X, ...)`, dicts of anything and dataclasses.

    Args:
        cls: The dataclass; fields with a default may be left out.
        data: What a YAML reader gave.
        where: File, and place in it, for messages.

    Raises:
        UserError: An entry is unknown, missing, or of another type; the message names file and place.

    Examples:
        >>> from dataclasses import dataclass
        >>> from faceanon.metrics.strict import typed
        >>> @dataclass
        ... class Choice:
        ...     far: float
        ...     detector: str = "mtcnn"
        >>> typed(Choice, {"far": 0.01}, "eval.yaml")
        Choice(far=0.01, detector='mtcnn')
        >>> typed(Choice, {"far": 0.01, "detectr": "yunet"}, "eval.yaml")
        Traceback (most recent call last):
        faceanon.errors.UserError: eval.yaml: unknown entry 'detectr'; known are far, detector
    """
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: expected entries `name: value`, got {reprlib.repr(data)}")
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    # Keys of a YAML file may be numbers.
    unknown = sorted(set(map(str, data)) - set(known))
    if unknown:
        raise UserError(f"{where}: unknown entry {reprlib.repr(unknown[0])}; known are {', '.join(known)}")
    needed = []
    for name, f in known.items():
        if f.default is MISSING and f.default_factory is MISSING:
            needed.append(name)
    missing = []
    for name in needed:
        if name not in data:
            missing.append(name)
    if missing:
        raise UserError(f"{where}: entry {missing[0]!r} is missing; known are {', '.join(known)}")
    # Annotations are texts in modules with `from __future__ import annotations`; this call makes types of them.
    hints = get_type_hints(cls)
    arguments = {}
    for name, item in data.items():
        arguments[str(name)] = _value(hints[str(name)], item, f"{where}: {name}")
    return cls(**arguments)


def _value(hint: Any, item: object, where: str) -> object:  # noqa: ANN401 - a type
    """`item` checked against, and converted to, the type `hint`."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = []
        for option in get_args(hint):
            if option is not type(None):
                inner.append(option)
        if item is None:
            return None
        return _value(inner[0], item, where)
    if get_origin(hint) is Literal:
        if item not in get_args(hint):
            raise UserError(f"{where} must be one of {', '.join(map(str, get_args(hint)))}, got {reprlib.repr(item)}")
        return item
    if get_origin(hint) is tuple:
        return _tuple(get_args(hint), item, where)
    if get_origin(hint) is dict:
        return _plain(dict, item, where)
    if is_dataclass(hint):
        return typed(hint, item, where)  # type: ignore[arg-type]
    return _plain(hint, item, where)


def _tuple(hints: tuple[Any, ...], item: object, where: str) -> tuple[object, ...]:
    if not isinstance(item, list):
        raise UserError(f"{where} must be a list, got {reprlib.repr(item)}")
    if hints[-1] is not Ellipsis and len(hints) != len(item):
        raise UserError(f"{where} must have {len(hints)} entries, got {len(item)}")
    each = list(hints)
    if hints[-1] is Ellipsis:
        each = [hints[0]] * len(item)
    return tuple(_value(hint, one, f"{where}[{i}]") for i, (hint, one) in enumerate(zip(each, item, strict=True)))


def _plain(hint: type, item: object, where: str) -> object:
    # YAML reads 1 as a whole number where 1.0 is meant; true and false are whole numbers to Python.
    if hint is float and isinstance(item, int) and not isinstance(item, bool):
        return float(item)
    wrong = not isinstance(item, hint) or (isinstance(item, bool) and hint is not bool)
    if wrong or (isinstance(item, float) and not math.isfinite(item)):
        raise UserError(f"{where} must be {NAMES[hint]}, got {reprlib.repr(item)}")
    return item
