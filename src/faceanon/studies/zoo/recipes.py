"""What `faceanon zoo` can train: the presets with configs of their own, and the ablations of the papers' tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.backbones.presets import Listed, shipped
from faceanon.errors import UserError
from faceanon.paths import configs
from faceanon.studies.zoo.photographs import RECIPES, of_photographs, stands_on

if TYPE_CHECKING:
    from faceanon.studies.tables.spec import AblationTraining

STAGES = {"DisentangleStage": "s1", "AnonymizeStage": "s2"}  # how the name of a stage's config ends


@dataclass(frozen=True)
class ZooStage:
    """One training.

    Args:
        name: Of its config.
        overlays: Names of configs behind that, such as `ablation/dbaf_no_cid_s1`.
        owner: Method in whose folder it is trained: an ablation starts from a stage of the whole method where it has
            none of its own, and such a stage is trained once.
        whole: Whether the config says all, the length too (`photographs.RECIPES`); the zoo then lays nothing over it.
    """

    name: str
    overlays: tuple[str, ...]
    owner: str
    whole: bool = False

    @property
    def folder(self) -> str:
        """Name of the folder that it is trained in."""
        return Path(self.name).name

    @property
    def files(self) -> list[Path]:
        """Config files of the recipe, in the order in which they are merged."""
        return [configs() / f"{name}.yaml" for name in (self.name, *self.overlays)]


@dataclass(frozen=True)
class Method:
    """A method of the table.

    Args:
        name: Of its row.
        listed: Its preset.
        stages: What trains it, in order; none where nothing is to be trained.
        tested_by: The stage whose config tests the model that ships, in place of a training, which would take too long;
            None for most.
    """

    name: str
    listed: Listed
    stages: tuple[ZooStage, ...]
    tested_by: ZooStage | None = None

    @property
    def ships(self) -> str | None:
        """Name of the model that ships and is tested; None where the zoo trains or builds one."""
        return None if self.tested_by is None else f"{self.name}_{RECIPES}"


def find_methods(names: Iterable[str] | None, bundle: str = "synth64", whole: bool = False) -> list[Method]:
    """The presets of these names, or all that can be trained with a config of their own or need no training.

    Args:
        names: Of the presets; None for all that can be trained on the bundle.
        bundle: That of the zoo, by name or folder. A method for photographs cannot be trained on one of drawn faces.
        whole: Each method is trained on photographs at the length that it needs, by configs that say so.

    Raises:
        UserError: No such preset, no configs to train it with, or a method for photographs on drawn faces.
    """
    methods: dict[str, Method] = {}
    lacking: dict[str, str] = {}
    for listed in shipped():
        method = _whole_method(listed) if whole else _method(listed)
        missing = []
        for stage in method.stages:
            if not stage.files[0].is_file():
                missing.append(stage.name)
        if missing:
            lacking[listed.name] = f"there is no config {' and no '.join(missing)}"
            if whole:
                lacking[listed.name] += "; it is not yet trained on photographs, --steps N tries it"
        elif of_photographs(stands_on(listed, bundle)) and not of_photographs(bundle):
            lacking[listed.name] = f"it is for photographs, and bundle {bundle} has no codec"
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

    needed = backbone_class(listed.class_path).trained_by
    stages = []
    for kind, ending in STAGES.items():
        if kind in needed:
            stages.append(ZooStage(f"{listed.name}_{ending}", (), listed.name))
    return Method(listed.name, listed, tuple(stages))


def _whole_method(listed: Listed) -> Method:
    """As `_method`, with configs for photographs that say the length too, or the model that ships."""
    method = _method(listed)
    test = ZooStage(f"{RECIPES}/{listed.name}_test", (), listed.name, whole=True)
    if test.files[0].is_file():
        return replace(method, stages=(), tested_by=test)
    stages = []
    for stage in method.stages:
        stages.append(replace(stage, name=f"{RECIPES}/{stage.name}", whole=True))
    return replace(method, stages=tuple(stages))


def find_ablations(tables: Sequence[str], whole: bool = False) -> list[Method]:
    """What the papers' tables of these names ablate: every row that says how it is trained, the whole method's too.

    Args:
        tables: Their names.
        whole: On photographs, each at the length that its configs say: the rows that say how they are trained there.

    Raises:
        UserError: No such table, or one that is no ablation.
    """
    from faceanon.studies.tables.spec import load_table

    methods: dict[str, Method] = {}
    for table in tables:
        rows = []
        for row in load_table(table).rows:
            trainings = row.photographs if whole else row.train
            if trainings:
                rows.append((row.ours[0], trainings))
        if not rows:
            raise UserError(f"--ablations {table}: no row of that table is an ablation; dbaf-4, hford-3, ifadit-5 are")
        for name, trainings in rows:
            methods[name] = read_recipe(name, trainings, whole)
    return list(methods.values())


def read_recipe(name: str, trainings: Sequence[AblationTraining], whole: bool = False) -> Method:
    """A row's `train` as stages of a method.

    Args:
        name: Of the method that the row is filled by.
        trainings: At least one.
        whole: Whether their configs say all, the length too.

    Raises:
        UserError: A training names a config that is not there.
    """
    # A config is named after preset and stage; the name of an ablation is that of no preset.
    preset = re.sub(r"_s[12]$", "", Path(trainings[0].config).name)
    # From the first training with an overlay on, models are the ablation's own.
    own = 0
    for number, training in enumerate(trainings):
        if training.overlays:
            own = number
            break
    stages = []
    for number, training in enumerate(trainings):
        owner = preset if number < own else name
        stages.append(ZooStage(training.config, training.overlays, owner, whole))
    files = []
    for stage in stages:
        files.extend(stage.files)
    for file in files:
        if not file.is_file():
            told = ", then ".join(map(str, trainings))
            raise UserError(f"{name} is trained by {told}, but there is no config {file}")
    (entire,) = find_methods([preset])
    return Method(name, entire.listed, tuple(stages))
