"""What a config file of a training may say beside the settings themselves: `about` and `base`."""

from __future__ import annotations

from typing import Any

import yaml
from jsonargparse import get_loader
from jsonargparse.typing import Path_fr

from faceanon.files import is_bounded

ABOUT = "about"
"""Entry of a preset for readers: no setting of its class."""

_load_yaml = get_loader("yaml")


def load_config(text: str) -> Any:  # noqa: ANN401 - whatever a config holds
    """YAML as jsonargparse reads it, with `base` filled in and `about` left out.

    Raises:
        yaml.YAMLError: No YAML, text that would unfold without end, or a `base` that is not there.
    """
    try:
        value = _load_yaml(text)
    # Nested too deeply, or a number of thousands of digits.
    except (RecursionError, ValueError) as error:
        raise yaml.YAMLError(f"{str(error)[:200]}") from error
    if not is_bounded(value):
        raise yaml.YAMLError("aliases that refer to themselves, or unfold to too many entries")
    return _settings(value)


def _settings(value: Any) -> Any:  # noqa: ANN401 - whatever a config holds
    """The settings of a file alone: no `about`, and every `base` replaced by the class that it names."""
    if not isinstance(value, dict):
        return value
    settings = {}
    for name, entry in value.items():
        # Only beside a class: elsewhere the word may be the name of an argument.
        if not (name == ABOUT and "class_path" in value):
            settings[name] = _settings(entry)
    if set(settings) == {"base", "init_args"}:
        return _on_base(settings["base"], settings["init_args"])
    return settings


def _on_base(file: object, arguments: object) -> dict[str, Any]:
    """The class that a file describes, with some arguments of its own.

    Args:
        file: Path of a YAML with `class_path` and `init_args`, relative to the file that names it.
        arguments: What differs from the file's `init_args`; an argument takes the place of the file's as a whole.

    Raises:
        yaml.YAMLError: There is no such file, it describes no class, or the arguments are no entries by name.
    """
    try:
        # jsonargparse's own kind of path: it counts from the folder of the config that is being read.
        described = _load_yaml(Path_fr(str(file)).read_text())
    except (TypeError, ValueError, RecursionError) as error:
        raise yaml.YAMLError(f"base: {str(error)[:200]}") from error
    if not isinstance(described, dict) or "class_path" not in described or not is_bounded(described):
        raise yaml.YAMLError(f"base: {file} holds no class_path; name a file such as configs/backbone/dbaf.yaml")
    own = described.get("init_args") or {}
    if not isinstance(own, dict) or not isinstance(arguments, dict):
        raise yaml.YAMLError(f"base: {file}: init_args must be entries `name: value`")
    return {"class_path": described["class_path"], "init_args": {**own, **arguments}}
