"""The methods that ship with faceanon and those that installed packages announce, by name and by class path."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import yaml

from faceanon.errors import UserError
from faceanon.paths import configs

if TYPE_CHECKING:
    from faceanon.backbones.base import Backbone


@dataclass(frozen=True)
class Listed:
    """A method as it is listed.

    Args:
        name: Name of its YAML, or of its entry point.
        class_path: Import path of its class.
        init_args: Arguments in the YAML.
        remark: The YAML's `about`, or the package that announces it.
    """

    name: str
    class_path: str
    init_args: dict[str, Any]
    remark: str


def shipped() -> Iterator[Listed]:
    """The presets in configs/backbone/.

    Examples:
        >>> from faceanon.backbones.presets import shipped
        >>> {preset.name: preset.class_path for preset in shipped()}["persona"]
        'faceanon.backbones.persona.Persona'
    """
    for path in sorted((configs() / "backbone").glob("*.yaml")):
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
        yield Listed(path.stem, spec["class_path"], spec.get("init_args") or {}, spec.get("about", ""))


def announced() -> Iterator[Listed]:
    """The backbones of other packages."""
    for entry in sorted(entry_points(group="faceanon.backbones"), key=lambda item: item.name):
        package = entry.dist.name if entry.dist else "?"
        yield Listed(entry.name, entry.value.replace(":", "."), {}, f"from package {package}")


def backbone_class(class_path: str) -> type[Backbone]:
    """A shipped backbone, or one that an installed package announces under `faceanon.backbones`.

    Raises:
        UserError: Any other class: a model file must not name code to import.

    Examples:
        >>> from faceanon.backbones.presets import backbone_class
        >>> backbone_class("faceanon.backbones.classical.Blur").reversible
        False
        >>> backbone_class("os.system")
        Traceback (most recent call last):
        faceanon.errors.UserError: no backbone 'os.system': install ...
    """
    from faceanon.backbones.base import Backbone  # here: it imports torch, and a list of presets should not

    known = set()
    for entry in entry_points(group="faceanon.backbones"):
        known.add(entry.value.replace(":", "."))
    if not class_path.startswith("faceanon.backbones.") and class_path not in known:
        raise UserError(f"no backbone {class_path!r}: install the package that announces it (group faceanon.backbones)")
    module, _, name = class_path.rpartition(".")
    try:
        kind: type[Backbone] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"cannot import backbone {class_path!r}: {error}") from error
    if not isinstance(kind, type) or not issubclass(kind, Backbone):  # else a card could call what a file imports
        raise UserError(f"{class_path!r} is no backbone; use the faceanon that wrote the model")
    return kind
