"""Trained backbones on disk: a folder of `weights.safetensors` and `model.yaml`, or one's own Lightning checkpoint."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from faceanon import __version__
from faceanon.backbones.base import Backbone
from faceanon.backbones.frame_options import AS_DRAWN, FrameOptions
from faceanon.backbones.in_frame import InMeshFrame, in_use
from faceanon.backbones.presets import backbone_class
from faceanon.errors import UserError
from faceanon.files import (
    load_strictly,
    load_tensors,
    read_yaml,
    save_tensors,
    sha256,
    write_atomic,
)
from faceanon.interop.onnx.method import CARD as ONNX_CARD
from faceanon.interop.public.export import Exportable, exportable
from faceanon.networks.local_weights import refuse_bomb
from faceanon.paths import checkpoints
from faceanon.weights.bundle import Bundle
from faceanon.weights.pairing import short

WEIGHTS = "weights.safetensors"
CARD = "model.yaml"
DISCRIMINATOR = "discriminator.safetensors"
_PARTS = ("generator", "encoder", "latent_avg")


@dataclass(frozen=True)
class Saved:
    """A trained backbone as it lies on disk.

    Args:
        class_path: Import path of its class.
        init_args: Its constructor's arguments.
        bundle: Name and fingerprint of the bundle it was trained on.
        frame: Its `FrameOptions`, those that are given.
        tensors: Its state dict.
        sha256: Of the weights file.
        source: Where it was read.
    """

    class_path: str
    init_args: dict[str, Any]
    bundle: dict[str, str]
    frame: dict[str, Any]
    tensors: dict[str, Tensor]
    sha256: str
    source: str


def default_model() -> Path:
    """The trained backbone for photographs that ships with faceanon.

    Examples:
        >>> from faceanon.models import default_model
        >>> default_model().name
        'persona_photo128'
    """
    return checkpoints() / "persona_photo128"


def description(backbone: Backbone) -> dict[str, Any]:
    """What a card says of a backbone: class, arguments, bundle, and options of the frame where there are any."""
    kind = type(backbone)
    bundle = {"name": backbone.bundle.name, "fingerprint": backbone.bundle.fingerprint}
    card: dict[str, Any] = {
        "class_path": f"{kind.__module__}.{kind.__qualname__}",
        "init_args": backbone.init_args,
        "bundle": bundle,
    }
    if backbone.frame_options != AS_DRAWN:
        card["frame"] = asdict(backbone.frame_options)
    return card


def save_backbone(backbone: Backbone, folder: Path, half: bool = False, int8: bool = False) -> str:
    """Write weights and card into `folder`; returns the sha256 of the weights.

    Args:
        backbone: To be saved.
        folder: It is made.
        half: Store weights in float16, to ship.
        int8: Store large weights in int8, to ship smaller still; what that costs has to be measured.

    Examples:
        >>> from pathlib import Path
        >>> from faceanon.backbones.classical import Pixelate
        >>> from faceanon.models import load_backbone, save_backbone
        >>> digest = save_backbone(Pixelate(cells=6), Path("model"))
        >>> backbone, weights = load_backbone("model")
        >>> backbone.cells, weights == digest
        (6, True)
    """
    digest = save_tensors(folder / WEIGHTS, backbone.state_dict(), half=half, int8=int8)
    # The card comes last: it names the hash of the weights, and a folder without it is no model.
    card = {**description(backbone), "faceanon": __version__, "sha256": digest}
    write_atomic(folder / CARD, yaml.safe_dump(card, sort_keys=False).encode())
    return digest


def save_discriminator(discriminator: nn.Module, folder: Path) -> None:
    """Write what trained against a backbone into the folder of its model, for the next stage."""
    save_tensors(folder / DISCRIMINATOR, discriminator.state_dict())


def load_discriminator(discriminator: nn.Module, path: str | Path) -> None:
    """Load an earlier stage's discriminator strictly.

    Args:
        discriminator: To be loaded.
        path: An exported folder, or a checkpoint.

    Raises:
        UserError: None lies there, or one of other shapes.
    """
    path = Path(path)
    if path.is_dir():
        file = path / DISCRIMINATOR
        if not file.is_file():
            raise UserError(
                f"hand_on: {path} holds no discriminator; train the earlier stage with hand_on, or set it off"
            )
        load_strictly(discriminator, load_tensors(file), str(file))
        return
    tensors = {}
    for name, value in _checkpoint(path)["state_dict"].items():
        if name.startswith("discriminator."):
            tensors[name.removeprefix("discriminator.")] = value
    if not tensors:
        raise UserError(f"hand_on: {path} holds no discriminator; train the earlier stage with one, or set it off")
    load_strictly(discriminator, tensors, str(path))


def read(path: str | Path) -> Saved:
    """Read an exported folder, one of `checkpoints/` by name, or a `.ckpt`; nothing in it is executed.

    Raises:
        UserError: Missing, corrupt, or not a backbone.
    """
    path = Path(path)
    for candidate in (Path(path), checkpoints() / path):
        if candidate.exists():
            path = candidate
            break
    if path.is_dir():
        if not (path / CARD).is_file():
            raise UserError(f"{path} holds no {CARD}: give the folder that training exported, or a .ckpt file")
        card = _checked(read_yaml(path / CARD), path / CARD)
        # A card without a hash gives the text `None`, which no file matches, so it is refused as well.
        digest = str(card.get("sha256"))
        return _saved(card, load_tensors(path / WEIGHTS, digest), digest, path)
    if not path.is_file():
        raise UserError(f"no model at {path}: give a folder that training exported, or a .ckpt file")
    return _read_checkpoint(path)


def _read_checkpoint(path: Path) -> Saved:
    content = _checkpoint(path)
    tensors = {}
    for name, value in content["state_dict"].items():
        # The averaged weights are what is exported and used.
        if name.startswith("ema."):
            tensors[name.removeprefix("ema.")] = value
    return _saved(_checked(content["faceanon"], path), tensors, sha256(path), path)


def _checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's `faceanon` (unchecked) and `state_dict` of tensors; nothing in it is executed."""
    try:
        # First: torch would unpack all of it into memory.
        refuse_bomb(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
        card = content["faceanon"]
        state = dict(content["state_dict"])
        if not all(isinstance(value, Tensor) for value in state.values()):
            raise TypeError("a state dict of other things than tensors")
    except UserError:
        raise
    except Exception as error:  # rubbish makes the unpickler raise whatever it stumbles over
        raise UserError(
            f"{path} is not a checkpoint of a faceanon stage, or it is damaged; train again or choose another"
        ) from error
    return {"faceanon": card, "state_dict": state}


def _checked(card: object, source: str | Path) -> dict[str, Any]:
    """A card that has what is needed to build a backbone."""
    entries: dict[str, Any] = {}
    if isinstance(card, dict):
        entries = card
    kinds = {"class_path": str, "init_args": dict, "bundle": dict}
    odd = []
    for name, kind in kinds.items():
        if not isinstance(entries.get(name), kind):
            odd.append(name)
    if not odd and not all(isinstance(name, str) for name in entries["init_args"]):
        odd = ["init_args"]
    if not odd and not isinstance(entries["bundle"].get("fingerprint"), str):
        odd = ["bundle"]
    if not odd and not isinstance(entries.get("frame", {}), dict):
        odd = ["frame"]
    if odd:
        raise UserError(f"{source} does not describe a backbone: {odd[0]} is missing or damaged; export it again")
    return entries


def _saved(card: dict[str, Any], tensors: dict[str, Tensor], digest: str, path: Path) -> Saved:
    frame = card.get("frame", {})
    return Saved(card["class_path"], card["init_args"], card["bundle"], frame, tensors, digest, str(path))


def load_into(backbone: Backbone, path: str | Path) -> None:
    """Load an earlier stage's backbone strictly; class, arguments and bundle have to agree.

    Its `stage_arguments` may differ: the ones of this stage hold.

    Raises:
        UserError: They do not; the message names both sides.
    """
    saved = read(path)
    own = description(backbone)
    saved_card: dict[str, Any] = {"class_path": saved.class_path, "init_args": saved.init_args, "bundle": saved.bundle}
    if saved.class_path == own["class_path"]:
        saved_card["init_args"] = _with_defaults(saved.init_args, type(backbone))
    set_anew = {name: own["init_args"][name] for name in backbone.stage_arguments & saved_card["init_args"].keys()}
    saved_card["init_args"] = saved_card["init_args"] | set_anew
    # Before the tensors: other arguments explain other shapes.
    _compare(saved_card, own, f"init_from {saved.source}")
    load_strictly(backbone, dict(saved.tensors), saved.source)


def check_fit(saved: dict[str, Any] | None, backbone: Backbone, source: str) -> None:
    """Compare a `description` with a backbone: class, bundle, then arguments.

    Raises:
        UserError: They differ; the message names the differing parts of both sides.
    """
    if saved is None:
        raise UserError(f"{source} holds no backbone; give one of a stage that trains a backbone")
    card = _checked(saved, source)
    own = description(backbone)
    if card["class_path"] == own["class_path"]:
        card = {**card, "init_args": _with_defaults(card["init_args"], type(backbone))}
    _compare(card, own, source)


def _compare(saved: dict[str, Any], own: dict[str, Any], source: str) -> None:
    arguments = []
    for card in (saved, own):
        arguments.append(_without_bundle(card["init_args"]))
    # In this order: a difference of class or bundle usually explains one of arguments.
    for what, theirs, mine in (
        ("backbone", saved["class_path"], own["class_path"]),
        ("bundle", saved["bundle"], own["bundle"]),
        ("backbone arguments", _beside(*arguments), _beside(*reversed(arguments))),
    ):
        if theirs != mine:
            raise UserError(f"{source} has {what} {theirs}, this run has {mine}; use the same configuration")


def _with_defaults(arguments: dict[str, Any], kind: type[Backbone]) -> dict[str, Any]:
    """Arguments that `kind` got since a model was saved have the defaults that keep it as it was."""
    parameters = inspect.signature(kind).parameters.values()
    defaults = {}
    for parameter in parameters:
        if parameter.default is not parameter.empty:
            defaults[parameter.name] = parameter.default
    return defaults | arguments


def _beside(some: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """The entries of `some` that `others` lacks or has otherwise."""
    different = {}
    for name, value in some.items():
        if name not in others or others[name] != value:
            different[name] = value
    return different


def _without_bundle(arguments: dict[str, Any]) -> dict[str, Any]:
    """The bundle is compared by its fingerprint: its path may differ between machines."""
    rest = {}
    for name, value in arguments.items():
        if name != "bundle":
            rest[name] = value
    return rest


def load_backbone(path: str | Path, device: torch.device | str = "cpu") -> tuple[Backbone, str]:
    """Build a trained backbone in eval mode.

    Args:
        path: An exported folder, a `.ckpt`, or a folder of `faceanon export --onnx`.
        device: Where the graphs of the latter run; a backbone of torch is moved by whoever uses it.

    Returns:
        The backbone and the sha256 of its weights.

    Raises:
        UserError: Missing or corrupt, an unknown class, or another bundle than it was trained on.

    Examples:
        >>> from faceanon.models import load_backbone
        >>> backbone, weights = load_backbone("persona_photo128")
        >>> type(backbone).__name__, backbone.image_size, len(weights)
        ('Persona', 128, 64)
    """
    if (exported := _exported(path)) is not None:
        from faceanon.interop.onnx.backbone import OnnxBackbone  # here: training needs no onnxruntime

        runner = OnnxBackbone(exported, device).eval()
        return runner, runner.card.weights
    saved = read(path)
    backbone = _built(saved)
    own = description(backbone)["bundle"]
    if own["fingerprint"] != saved.bundle["fingerprint"]:
        raise UserError(
            f"{saved.source} was trained on bundle {_named(saved.bundle)}, but here it is {_named(own)}; "
            "install that bundle"
        )
    load_strictly(backbone, saved.tensors, saved.source)
    return in_use(backbone.eval().requires_grad_(False)), saved.sha256


def _named(bundle: dict[str, Any]) -> str:
    """A bundle by name and the head of its fingerprint, cut short where the file holds a long text."""
    return f"{str(bundle.get('name', 'without a name'))[:40]} ({short(str(bundle['fingerprint']))})"


def _built(saved: Saved) -> Backbone:
    kind = backbone_class(saved.class_path)
    try:
        backbone = kind(**saved.init_args)
        backbone.frame_options = FrameOptions(**saved.frame)
        return backbone
    except (UserError, ImportError):
        raise
    except Exception as error:  # arguments from outside make a network raise whatever it stumbles over
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{saved.source} gives {saved.class_path} arguments that it does not take "
            f"({type(error).__name__}: {reason}); use the faceanon that wrote it, or export it again"
        ) from error


def _exported(path: str | Path) -> Path | None:
    """The folder of ONNX graphs at `path`, or None where there is none."""
    for candidate in (Path(path), checkpoints() / path):
        if (candidate / ONNX_CARD).is_file():
            return candidate
    return None


def shipped_figures(bundle: str) -> dict[str, float] | None:
    """Test figures of the model that ships for a bundle.

    Args:
        bundle: Name of the bundle.

    Returns:
        Figures by name, or None where no model for that bundle lies beside the package.
    """
    path = default_model() / "results.json"
    if bundle != "photo128" or not path.is_file():
        return None
    figures: dict[str, float] = json.loads(path.read_text())["figures"]
    return figures


def read_exportable(model: str | Path) -> Exportable:
    """Read a trained backbone (folder, `.ckpt` or name) or a bundle (folder or name).

    Raises:
        UserError: Neither is there, or its networks have no public layout.
    """
    for folder in (Path(model), checkpoints() / model):
        if (folder / CARD).is_file() or folder.is_file():
            backbone, _ = load_backbone(folder)
            # The frame around a method has no networks of its own.
            if isinstance(backbone, InMeshFrame):
                backbone = backbone.inner
            generator, encoder, average = (getattr(backbone, name, None) for name in _PARTS)
            return exportable(generator, encoder, average, f"{folder} ({type(backbone).__name__})")
        if (folder / "bundle.yaml").is_file():
            bundle = Bundle(folder)
            return exportable(bundle.build("generator"), bundle.build("encoder"), bundle.latent_avg, str(folder))
    raise UserError(f"no model or bundle at {model}: give the folder that training exported, a .ckpt, or a bundle")
