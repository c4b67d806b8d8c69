"""Where classes are now that configs and saved models know by an earlier import path.

Users' YAML, the `config.yaml` of a run and the card of a model name classes by their import path. A class that moves
mostly keeps its name, so a table of modules is enough, with a second one for classes that were renamed: a path from
before the move leads to the class of today. One class was split in two, which its arguments tell apart.
"""

from __future__ import annotations

from typing import Any

MOVED = {
    "faceanon.backbones.onnx_graph": "faceanon.interop.onnx.backbone",
    "faceanon.callbacks.acceleration": "faceanon.training.acceleration",
    "faceanon.callbacks.checkpoints": "faceanon.training.checkpoints",
    "faceanon.callbacks.csv_logger": "faceanon.training.csv_logger",
    "faceanon.callbacks.guard": "faceanon.training.guard",
    "faceanon.callbacks.replay": "faceanon.training.replay",
    "faceanon.callbacks.run_state": "faceanon.training.run_state",
    "faceanon.callbacks.signals": "faceanon.training.signals",
    "faceanon.losses.critics": "faceanon.losses.auxiliary",
}
"""Module of old, and module of today, of classes that a YAML file can name."""

RENAMED = {
    "faceanon.networks.unet.UNetParser": "faceanon.networks.unet.CelebAMaskParser",
    "faceanon.stages.CriticStage": "faceanon.stages.AuxiliaryStage",
    "faceanon.stages.critic.CriticStage": "faceanon.stages.auxiliary.AuxiliaryStage",
}
"""Path of old, and path of today, of classes that have another name as well."""


def current_path(path: str) -> str:
    """The import path of today.

    Args:
        path: Of a class, such as `faceanon.callbacks.guard.FiniteGuard`; anything else comes back as it is.

    Examples:
        >>> from faceanon.names import current_path
        >>> current_path("faceanon.backbones.persona.Persona")
        'faceanon.backbones.persona.Persona'
    """
    if path in RENAMED:
        return RENAMED[path]
    module, _, name = path.rpartition(".")
    if module in MOVED:
        return f"{MOVED[module]}.{name}"
    return path


SPLIT = "faceanon.backbones.dbaf.DBAF"
KEYED = "faceanon.backbones.keyed.Keyed"
KEYED_ALONE = frozenset({"keyed_path", "code_dim", "principal", "turn_dim", "turn_away", "reader"})
"""Arguments that `SPLIT` had while `KEYED` was its setting: `keyed_path`, and those that meant nothing without it."""


def _split(entry: dict[Any, Any]) -> dict[Any, Any]:
    """A class with its arguments, where they are of the one class of old."""
    given = entry.get("init_args")
    if entry.get("class_path") != SPLIT or not isinstance(given, dict):
        return entry
    # With this setting the class of old was what is `KEYED` today.
    if given.get("keyed_path") is True:
        arguments = {}
        for name, value in given.items():
            if name != "keyed_path":
                arguments[name] = value
        return {**entry, "class_path": KEYED, "init_args": arguments}
    # Without that setting the arguments of `KEYED_ALONE` had no effect, and the class of today does not take them.
    common = {}
    for name, value in given.items():
        if name not in KEYED_ALONE:
            common[name] = value
    return {**entry, "init_args": common}


def with_current_paths(value: Any) -> Any:  # noqa: ANN401 - whatever a YAML file holds
    """The content of a YAML file with every class path of old replaced; what else it holds stays."""
    if isinstance(value, str):
        return current_path(value)
    if isinstance(value, dict):
        renamed = {}
        for key, entry in value.items():
            renamed[key] = with_current_paths(entry)
        return _split(renamed)
    if isinstance(value, list):
        entries = []
        for entry in value:
            entries.append(with_current_paths(entry))
        return entries
    return value
