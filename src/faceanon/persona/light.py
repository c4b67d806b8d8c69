"""A model of Persona from its folder, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from faceanon.errors import UserError
from faceanon.files import checked_bytes, load_arrays, read_yaml
from faceanon.light.networks import UnfitError, check_layout
from faceanon.paths import checkpoints
from faceanon.persona.cells import SIZE, Array
from faceanon.persona.graphs import GraphNetworks, below
from faceanon.persona.space import CodeSpace
from faceanon.persona.use import METHOD, PersonaUse
from faceanon.weights.spec import bundle_path, fingerprint, read_spec

CARD = "model.yaml"
WEIGHTS = "weights.safetensors"
ARGUMENTS = {"bundle", "dropout"}  # of `backbones.persona.Persona`


class LightPersona(PersonaUse):
    """The method for photographs with onnxruntime's networks.

    Args:
        folder: Of the model: `model.yaml` and `weights.safetensors`.
        provider: What of onnxruntime computes, as `light.providers.provider_named` takes it.

    Attributes:
        name: Of the model.
        weights: SHA-256 of its weights.
        framing: Where the faces it knows lie; arguments of `photo.align.reframed`.
        recogniser_name: Of what tells people apart.

    Raises:
        UnfitError: If the graphs that ship do not describe this model.
        UserError: If a file or the provider is unusable, or the bundle is not the one that the model was trained on.

    Examples:
        >>> from faceanon.key import Secret
        >>> from faceanon.paths import checkpoints
        >>> from faceanon.persona.light import LightPersona
        >>> from faceanon.photo.party import photo_party
        >>> from faceanon.pipeline.photo import Pipeline
        >>> pipeline = Pipeline(LightPersona(checkpoints() / "persona_photo128"))
        >>> hidden = pipeline.anonymize(photo_party(), Secret.random(0))
        >>> pipeline.recover(hidden, Secret.random(0)).size == hidden.size
        True
    """

    def __init__(self, folder: Path, provider: str = "cpu") -> None:
        card = read_card(folder)
        if not is_persona(card):
            raise UnfitError(f"{folder.name} is of {card['class_path']}, for which there are no graphs")
        arguments = card["init_args"]
        bundle = bundle_path(arguments.get("bundle", "photo128"))
        spec = read_spec(bundle)
        _check_bundle(card, folder, spec, bundle)
        self.name = folder.name
        self.weights = str(card["sha256"])
        self.framing = {"scale": 1.0, "right": 0.0, "down": 0.0} | spec.get("framing", {})
        if spec.get("image_size") != SIZE:
            raise UnfitError(f"{bundle} is of faces of {spec.get('image_size')} px, and the graphs that ship of {SIZE}")
        if unknown := sorted(set(arguments) - ARGUMENTS):
            raise UnfitError(f"{folder.name} has options that the graphs know nothing of: {', '.join(unknown)}")
        # Recovery needs no flow, so its weights are read when a face is redrawn; but the file has to be the card's.
        checked_bytes(folder / WEIGHTS, self.weights)
        networks = GraphNetworks(spec, bundle, partial(_read_flow, folder, self.weights), provider)
        self.recogniser_name = str(spec["networks"]["recogniser"].get("name", "recogniser"))
        super().__init__(networks, CodeSpace(networks.read("identity_space")))


def model_folder(model: str | Path) -> Path | None:
    """The folder of a trained model by path or shipped name; None where there is none with a card."""
    for folder in (Path(model), checkpoints() / model):
        if folder.exists():
            return folder if (folder / CARD).is_file() else None
    return None


def read_card(folder: Path) -> dict[str, Any]:
    """What `model.yaml` says.

    Raises:
        UnfitError: If it does not describe a backbone; torch's reader says what is wrong with it.
        UserError: If it cannot be read.
    """
    card = read_yaml(folder / CARD)
    kinds = {"class_path": str, "init_args": dict, "bundle": dict, "sha256": str}
    for name, kind in kinds.items():
        if not isinstance(card.get(name), kind):
            raise UnfitError(f"{folder / CARD} does not describe a backbone")
    return card


def is_persona(card: Mapping[str, Any]) -> bool:
    """Whether a card is of the method that there are graphs for."""
    return bool(card["class_path"] == METHOD)


def _check_bundle(card: Mapping[str, Any], folder: Path, spec: dict[str, Any], bundle: Path) -> None:
    ours = fingerprint(spec, bundle)
    theirs = card["bundle"].get("fingerprint")
    if ours != theirs:
        raise UserError(
            f"{folder} was trained on another bundle ({str(theirs)[:12]}) than {bundle} ({ours[:12]}); "
            "install that bundle"
        )


def _read_flow(folder: Path, expected: str) -> dict[str, Array]:
    path = folder / WEIGHTS
    weights = load_arrays(path, expected=expected)
    flow = below(weights, "flow.")
    if len(flow) != len(weights):
        raise UnfitError(f"{path} holds more than a flow")
    check_layout("flow", flow, str(path))
    return flow
