"""What `faceanon zoo` can train: the presets with configs of their own, and the ablations of the papers' tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.backbones.presets import Listed, shipped
from faceanon.errors import UserError
from faceanon.files import read_yaml
from faceanon.paths import configs

if TYPE_CHECKING:
    from faceanon.studies.tables.spec import AblationTraining

STAGES = {"DisentangleStage": "s1", "AnonymizeStage": "s2"}  # how the name of a stage's config ends
SHIPS = {"persona": "persona_photo128"}  # models that are tested as they ship, since their training takes hours
LENGTH = "data.init_args.train_batches"


@dataclass(frozen=True)
class ZooStage:
    """One training.

    Args:
        name: Of its config.
        owner: Method in whose folder it is trained: an ablation starts from a stage of the whole method where it has
            none of its own, and such a stage is trained once.
        settings: What an ablation sets, by the names of `faceanon fit`'s options.
    """

    name: str
    owner: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The shipped config that trains it, before `settings`."""
        return configs() / f"{self.name}.yaml"

    def batches(self, overlays: Sequence[str] = ()) -> int:
        """Length of its training.

        Args:
            overlays: Further config files behind its own: the last one that says a length wins.

        Raises:
            UserError: Nothing says a length.
        """
        for file in reversed(overlays):
            batches = _length_in(read_yaml(Path(file)))
            if batches is not None:
                return batches
        found = self.settings.get(LENGTH, _length_in(read_yaml(self.file)))
        if not isinstance(found, int):
            raise UserError(f"{self.file} says no {LENGTH}; give the length with --steps")
        return found


def _length_in(content: Any) -> int | None:  # noqa: ANN401 - whatever a config holds
    """What a config says of the length of a training, if it does."""
    for name in LENGTH.split("."):
        if not isinstance(content, dict):
            return None
        content = content.get(name)
    return content if isinstance(content, int) else None


@dataclass(frozen=True)
class Method:
    """A method of the table.

    Args:
        name: Of its row.
        listed: Its preset.
        stages: What trains it, in order; none where nothing is to be trained.
        ships: Name of the model that ships and is tested; None where the zoo trains or builds one.
    """

    name: str
    listed: Listed
    stages: tuple[ZooStage, ...]
    ships: str | None = None


def find_methods(names: Iterable[str] | None) -> list[Method]:
    """The presets of these names, or all that can be trained with a config of their own or need no training.

    Raises:
        UserError: No such preset, or no configs to train it with.
    """
    methods: dict[str, Method] = {}
    lacking: dict[str, str] = {}
    for listed in shipped():
        method = _method(listed)
        missing = []
        for stage in method.stages:
            if not stage.file.is_file():
                missing.append(stage.name)
        if missing:
            lacking[listed.name] = f"there is no config {' and no '.join(missing)}"
        else:
            methods[listed.name] = method
    for name in names or ():
        if name in lacking:
            raise UserError(f"{name} cannot be trained: {lacking[name]}")
        if name not in methods:
            raise UserError(f"no method {name!r}: there are {', '.join(methods)}")
    return [methods[name] for name in (methods if names is None else names)]


def _method(listed: Listed) -> Method:
    """A preset with the stages that its class needs, each with the config of that name."""
    from faceanon.backbones.presets import backbone_class

    if listed.name in SHIPS:
        return Method(listed.name, listed, (), SHIPS[listed.name])
    needed = backbone_class(listed.class_path).trained_by
    stages = []
    for kind, ending in STAGES.items():
        if kind in needed:
            stages.append(ZooStage(f"{listed.name}_{ending}", listed.name))
    return Method(listed.name, listed, tuple(stages))


def find_ablations(tables: Sequence[str]) -> list[Method]:
    """What the papers' tables of these names ablate: every row that says how it is trained, the whole method's too.

    Raises:
        UserError: No such table, or one that is no ablation.
    """
    from faceanon.studies.tables.spec import load_table

    methods: dict[str, Method] = {}
    for table in tables:
        rows = []
        for row in load_table(table).rows:
            if row.train:
                rows.append(row)
        if not rows:
            raise UserError(f"--ablations {table}: no row of that table is an ablation; dbaf-4, hford-4, ifadit-5 are")
        # The whole method, which changes nothing, goes first: others start from its stage 1.
        for row in sorted(rows, key=lambda row: any(training.set for training in row.train)):
            methods[row.ours[0]] = read_recipe(row.ours[0], row.train)
    return list(methods.values())


def read_recipe(name: str, trainings: Sequence[AblationTraining]) -> Method:
    """A row's `train` as stages of a method.

    Args:
        name: Of the method that the row is filled by.
        trainings: At least one.

    Raises:
        UserError: A training names a config that is not there.
    """
    # A config is named after preset and stage; the name of an ablation is that of no preset.
    preset = re.sub(r"_s[12]$", "", trainings[0].config)
    stages = []
    # From the first training that sets something on, models are the ablation's own.
    owner = preset if any(training.set for training in trainings) else name
    for training in trainings:
        if training.set:
            owner = name
        stages.append(ZooStage(training.config, owner, training.set))
    for stage in stages:
        if not stage.file.is_file():
            told = ", then ".join(map(str, trainings))
            raise UserError(f"{name} is trained by {told}, but there is no config {stage.file}")
    (entire,) = find_methods([preset])
    return Method(name, entire.listed, tuple(stages))
