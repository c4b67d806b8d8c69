"""The method and the device that a command works with, by what was typed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.errors import UserError

if TYPE_CHECKING:
    import torch

    from faceanon.backbones.base import Backbone
    from faceanon.backbones.presets import Listed


def device(name: str) -> torch.device:
    """A device that computes; of several processes each has a `cuda` of its own.

    Raises:
        UserError: There is none of this name.
    """
    import torch

    # LOCAL_RANK is set by the launchers of torch and Lightning, SLURM_LOCALID by SLURM's srun.
    own = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or "0"
    try:
        chosen = torch.device(f"cuda:{own}" if name == "cuda" else name)
        # torch.device takes names of devices that are not there; an allocation does not.
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        kind = name.partition(":")[0]
        reason = str(error).splitlines()[0] if kind == "cuda" else "no such device here"
        raise UserError(f"cannot compute on {name!r}: {reason}; give cpu, or cuda where there is a GPU") from error
    return chosen


def presets() -> list[str]:
    """Names of the shipped and announced presets."""
    from faceanon.backbones.presets import announced, shipped

    return sorted({listed.name for listed in (*announced(), *shipped())})


def untrained(name: str, bundle: Path | None = None) -> Backbone:
    """A preset that needs no training, in eval mode, as it is used on pictures.

    Args:
        name: One of `presets()`.
        bundle: Folder of the bundle that it stands on; None: the preset's.

    Raises:
        UserError: It has to be trained.
    """
    from faceanon.backbones.presets import backbone_class

    listed = _listed(name)
    kind = backbone_class(listed.class_path)
    if kind.trained_by:
        raise UserError(
            f"{name} has to be trained first, by {', '.join(kind.trained_by)}; "
            "give the folder or the checkpoint of a trained one"
        )
    return _built(listed, bundle)


def before_training(name: str, bundle: Path | None = None) -> Backbone:
    """Any preset as it is before it is trained, in eval mode: good for what its weights do not matter to, as its cost.

    Args:
        name: One of `presets()`.
        bundle: As `untrained` takes it.
    """
    return _built(_listed(name), bundle)


def _listed(name: str) -> Listed:
    from faceanon.backbones.presets import announced, shipped

    # The shipped ones last: a package that announces one of their names must not take its place.
    return {one.name: one for one in (*announced(), *shipped())}[name]


def _built(listed: Listed, bundle: Path | None) -> Backbone:
    from faceanon.backbones.in_frame import in_use
    from faceanon.backbones.presets import backbone_class

    changed = {} if bundle is None else {"bundle": str(bundle)}
    backbone = backbone_class(listed.class_path)(**{**listed.init_args, **changed})
    return in_use(backbone.eval().requires_grad_(False))


def trained(model: str | Path) -> Backbone:
    """A trained model that a test can judge.

    Raises:
        UserError: There is none, it is damaged, or it is an exported one, which comes without a judge.
    """
    from faceanon.models import load_backbone

    backbone, _ = load_backbone(model)
    if getattr(backbone, "bundle", None) is None:
        raise UserError(f"{model} is an exported method, without a bundle that could judge it; give the model itself")
    return backbone


def method(name: str, bundle: Path | None = None) -> Backbone:
    """A trained model, or a preset that needs no training; a model of the name goes first.

    Args:
        name: Of the preset, or name or folder of the model.
        bundle: As `untrained` takes it; a trained model has its own.

    Raises:
        UserError: There is none of this name, or it has to be trained.

    Examples:
        >>> from faceanon.methods import method
        >>> type(method("blur")).__name__, type(method("persona_photo128")).__name__
        ('Blur', 'Persona')
    """
    from faceanon.paths import checkpoints

    here = any(folder.exists() for folder in (Path(name), checkpoints() / name))
    if here or name not in presets():
        return trained(name)
    return untrained(name, bundle)
