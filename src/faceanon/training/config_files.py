"""What a config file of a training may say beside the settings themselves: `about`, `over` and `base`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader
from jsonargparse.typing import Path_fr

from faceanon.errors import UserError
from faceanon.files import is_bounded

OF_A_CLASS = frozenset({"class_path"})
OF_A_RUN = frozenset({"seed_everything", "model", "data", "trainer", "acceleration", "name"})
REMARKS = ("about", "over")
"""Entries for readers, and for programs that list configs: no setting of a training."""
CONFIG = "--config"

_load_yaml = get_loader("yaml")


def load_config(text: str) -> Any:  # noqa: ANN401 - whatever a config holds
    """YAML as jsonargparse reads it, with `base` filled in and remarks left out.

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
    """The settings of a file alone: no remarks, and every `base` replaced by the class that it names."""
    if not isinstance(value, dict):
        return value
    remarked = not OF_A_CLASS.isdisjoint(value) or not OF_A_RUN.isdisjoint(value)
    settings = {}
    for name, entry in value.items():
        # Only beside the settings of a class or a run: elsewhere these words may be names of arguments.
        if remarked and (name in REMARKS or (name == "base" and isinstance(entry, list))):
            continue
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
        raise yaml.YAMLError(f"base: {file} holds no class_path; name a file such as configs/data/synth64.yaml")
    own = described.get("init_args") or {}
    if not isinstance(own, dict) or not isinstance(arguments, dict):
        raise yaml.YAMLError(f"base: {file}: init_args must be entries `name: value`")
    return {"class_path": described["class_path"], "init_args": {**own, **arguments}}


def with_bases(words: Sequence[str]) -> list[str]:
    """The words of a command, with the configs that a config names as its `base` put before it.

    A config of a run may begin with `base: [FILE, ...]`, paths relative to it: it is laid over these, in that order,
    as if each had been given with a `--config` of its own.

    Args:
        words: What follows the name of the command.

    Raises:
        UserError: A config is its own base, or `base` is no list of files.
    """
    expanded = []
    waiting = False
    for word in words:
        option, equals, value = word.partition("=")
        if waiting or (option == CONFIG and equals):
            file = Path(word if waiting else value)
            expanded += _with_bases_of(file, ())
            waiting = False
        elif word == CONFIG:
            waiting = True
        else:
            expanded.append(word)
    if waiting:
        # Without its file, about which the parser says more.
        expanded.append(CONFIG)
    return expanded


def _with_bases_of(file: Path, above: tuple[Path, ...]) -> list[str]:
    """The words that stand for a config: those of its bases, then its own; `above` are the configs laid over it."""
    own = [CONFIG, str(file)]
    try:
        bases = _bases(file)
    # The parser reads it again, and says what is wrong with it.
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return own
    path = file.resolve()
    if path in above:
        raise UserError(f"{file} is laid over itself: take it out of its base")
    words = []
    for base in bases:
        words += _with_bases_of(base, (*above, path))
    return [*words, *own]


def _bases(file: Path) -> list[Path]:
    """The files that a config of a run names as its base; none of other configs.

    Raises:
        UserError: `base` of a run is no list of files that are there.
    """
    content = _load_yaml(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or OF_A_RUN.isdisjoint(content) or "base" not in content:
        return []
    named = content["base"]
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise UserError(f"{file}: base must be a list of config files")
    bases = []
    for name in named:
        base = file.parent / name
        if not base.is_file():
            raise UserError(f"{file}: base names {name}, which is not there; paths are relative to the config")
        bases.append(base)
    return bases
