"""Attackers that train on a model's pictures, beside the same attackers before a face that is painted over.

Half of the persons are the attackers' own, and the other half are attacked. Whatever is found behind a painted-over
face is told by hair, clothes and light around it, so only what is found beyond that is the model's fault.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.backbones.classical import Blur
from faceanon.backbones.pictures import WithoutCodes
from faceanon.data.batches import hold_out
from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.metrics.recognition import chance
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.pipeline.photo import Pipeline
from faceanon.studies.photographs.figures import Figures
from faceanon.studies.photographs.judges import Judge
from faceanon.studies.photographs.people import Person, read_faces
from faceanon.studies.photographs.pictures import drawing_facts
from faceanon.studies.photographs.readings import Mesh
from faceanon.studies.security.base import BUDGETS, Budget
from faceanon.studies.security.parrot import control, learn
from faceanon.studies.security.recognised import recognised
from faceanon.studies.security.reidentify import reidentify
from faceanon.studies.security.target import Target
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle

GROW = 1.06  # of the hull of the mesh: the points end where the skin does
FEWEST_PEOPLE = 4
KINDS = ("inversion", "recogniser")


class PaintedOver(WithoutCodes):
    """A method that paints the face grey: the hull of its mesh, a little grown, and nothing around it.

    Args:
        bundle: Gives the size of the pictures and the attackers' recogniser.
        mesh: Finds the face.
        grow: Size of what is painted, in hulls of the mesh.
    """

    reversible = False
    key_shape = (1,)
    key_bits = None
    trained_by = ()
    licence = "no weights of its own"

    def __init__(self, bundle: Bundle, mesh: Mesh, grow: float = GROW) -> None:
        super().__init__()
        self.bundle = bundle
        self.mesh = mesh
        self.grow = grow

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """`(B, 3, S, S)` with grey faces; `key` is ignored."""
        faces = to_bytes(image).numpy()
        points, _ = self.mesh.points(faces)
        middle = points.mean(1, keepdims=True)
        painted = faces.copy()
        for face, outline in zip(painted, middle + self.grow * (points - middle), strict=True):
            hull = cv2.convexHull(np.round(outline).astype(np.int32))
            cv2.fillConvexPoly(face, hull, (128, 128, 128))
        return from_bytes(torch.from_numpy(painted), image.device)


class Blurred(WithoutCodes):
    """A plain blur, the control: attackers who do not even undo that are too weak to conclude from.

    Args:
        bundle: Gives the size of the pictures and the attackers' recogniser.
    """

    reversible = False
    key_shape = (1,)
    key_bits = None
    trained_by = ()
    licence = "no weights of its own"

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()
        self.bundle = bundle

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """`(B, 3, S, S)`, blurred; `key` is ignored."""
        return control(image)


class AsShown(WithoutCodes):
    """A method as the product shows it: a face that it gives no picture of is blurred.

    Args:
        method: The method; one with a bundle.
    """

    reversible = False
    trained_by = ()

    def __init__(self, method: Backbone) -> None:
        super().__init__()
        self.inner = method
        self.bundle = method.bundle
        self.key_shape = method.key_shape
        self.key_bits = method.key_bits
        self.blur = Blur(str(method.bundle.folder), region="picture")

    def sample_key(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Random keys, as the attacked method draws them itself."""
        return self.inner.sample_key(batch, generator)

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """`(B, 3, S, S)`, all of it finite."""
        shown = self.inner.anonymize(image, key)
        # NaN is how a method says that it has no picture.
        drawn = shown.flatten(1).isfinite().all(1)[:, None, None, None]
        return torch.where(drawn, shown, self.blur.anonymize(image, key))


def attack_figures(
    pipeline: Pipeline, judge: Judge, mesh: Mesh, people: Sequence[Person], budget: str, keep: Path, seed: int = 0
) -> Figures:
    """Train attackers on a model's pictures and on painted-over faces; figures are named `attack/...`.

    `attack/inversion` is the share of persons whom the judge recognises in what a network without the key makes of
    their pictures, `attack/recogniser` the share whom a fine-tuned recogniser finds among other pictures (rank 1);
    with `/painted` for the same before painted-over faces, and `/blur` before a blur, the control.

    Args:
        pipeline: The model; its bundle has a training recogniser.
        judge: Who says whether the inverted picture shows the person.
        mesh: Finds the faces that are painted over.
        people: Half of them are attacked, with all their pictures.
        budget: `small` or `full`; see `faceanon.studies.security.base.BUDGETS`.
        keep: Folder in which the figures are kept, so that an interrupted study does not train the attackers again.
        seed: Of the split, of keys and of training.

    Raises:
        UserError: There are too few persons, no such budget, the judge is not independent, or the model has no bundle
            or recogniser.
    """
    if judge.white_box:
        raise UserError(
            f"{judge.name} cannot judge the attackers, who train with it: give another judge, as --mobilefacenet FILE"
        )
    if budget not in BUDGETS:
        raise UserError(f"no budget {budget!r} for the attackers: there are {', '.join(BUDGETS)}")
    if len(people) < FEWEST_PEOPLE:
        raise UserError(f"{len(people)} persons are too few for attackers, who learn from some and attack others")
    backbone = pipeline.backbone
    bundle = getattr(backbone, "bundle", None)
    if bundle is None or not bundle.has("recogniser"):
        raise UserError(f"{pipeline.name} comes without a training recogniser, so no attacker can fine-tune it")
    # What the figures depend on: with any of it different, the attackers train again.
    facts = [bundle.entry("recogniser").get("sha256"), backbone.image_size, judge.name, judge.digest, budget, seed]
    for person in people:
        for picture in person.pictures:
            facts.append(picture.key)
    # Paint and blur do not depend on the model, so what is found behind them serves for every model of the bundle.
    methods = {
        "": (AsShown(backbone), " ".join(drawing_facts(pipeline))),
        "/painted": (PaintedOver(bundle, mesh), "paint"),
        "/blur": (Blurred(bundle), "blur"),
    }
    figures = Figures()
    faces: tuple[FaceBatch, FaceBatch] | None = None
    for suffix, (method, what) in methods.items():
        digest = hashlib.sha256(" ".join(map(str, [what, *facts])).encode()).hexdigest()[:16]
        path = keep / f"attackers-{digest}.json"
        if path.is_file():
            attacked = _load(path)
        else:
            # Read once, and only where something is left to train.
            faces = faces or halves(people, backbone.image_size, seed)
            attacked = attack(method, judge, *faces, BUDGETS[budget], seed, pipeline.device)
            write_atomic(path, json.dumps(asdict(attacked)).encode())
        for name, value in attacked.values.items():
            figures.values[f"{name}{suffix}"] = value
        for name, interval in attacked.intervals.items():
            figures.intervals[f"{name}{suffix}"] = interval
    return figures


def attack(
    method: Backbone,
    judge: Judge,
    attacked: FaceBatch,
    known: FaceBatch,
    budget: Budget,
    seed: int,
    device: torch.device,
    kinds: Sequence[str] = KINDS,
) -> Figures:
    """Undo a method without its key, and look for persons with a recogniser that learnt its pictures.

    Args:
        method: What is attacked; it has a bundle with a training recogniser.
        judge: Who says whether an undone picture shows the person.
        attacked: Pictures of the persons whom the attackers look for.
        known: Pictures of other persons, whom the attackers anonymize themselves to learn from.
        budget: How long they learn.
        seed: Of keys and training.
        device: Where the networks run.
        kinds: `inversion`, `recogniser` or both. The recogniser alone draws other random numbers than after the other.
    """
    figures = Figures()
    # One state of torch's random numbers for each method: what is found does not depend on what was attacked before.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # A judge takes pictures on the CPU, and moves them itself where it computes elsewhere.
        target = Target(
            method, attacked, lambda: known, budget, seed, device, judge=lambda face: judge.embed(face.cpu())
        )
        if "inversion" in kinds:
            _undo(target, figures)
        if "recogniser" in kinds:
            _look_for(target, figures)
    figures.values["attack/people"] = float(len(torch.unique(target.probes.identity)))
    figures.values["attack/chance"] = chance(target.probes.identity)
    return figures


def _undo(target: Target, figures: Figures) -> None:
    """Add who is recognised in what a network makes of the pictures, without the key."""
    restore = learn(target, target.known_hidden, target.known.image, "undoing without a key")
    shown = target.embed(target.batched(restore, target.hidden))
    undone = recognised(shown, target.gallery, target.probes.identity, target.threshold)
    _add(figures, "attack/inversion", undone.same, undone.same_interval)
    _add(figures, "attack/inversion/rank1", undone.rank1, undone.rank1_interval)


def _look_for(target: Target, figures: Figures) -> None:
    """Add who is found by a recogniser, fine-tuned and as it is."""
    found = reidentify(target)
    for name, one in (("attack/recogniser", found.trained), ("attack/recogniser/untrained", found.untrained)):
        _add(figures, name, one.rank1, one.rank1_interval)
        figures.values[f"{name}/auc"] = one.auc
    figures.values["attack/originals"] = found.originals.rank1


def _add(figures: Figures, name: str, value: float, interval: tuple[float, float]) -> None:
    figures.values[name] = value
    figures.intervals[name] = interval


def halves(people: Sequence[Person], side: int, seed: int) -> tuple[FaceBatch, FaceBatch]:
    """Pictures of the attacked and of the attackers' own persons, `side` pixels wide; a seed draws who is who."""
    names = [str(person.number) for person in people]
    _, attacked = hold_out(names, 0, len(people) // 2, seed)
    first = []
    for person in people:
        if str(person.number) in attacked:
            first.append(person)
    second = []
    for person in people:
        if str(person.number) not in attacked:
            second.append(person)
    return _batch(first, side), _batch(second, side)


def _batch(people: Sequence[Person], side: int) -> FaceBatch:
    image, labels = read_faces(people, side)
    return FaceBatch(image, labels, torch.full((len(labels),), -1))


def _load(path: Path) -> Figures:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        intervals = {}
        for name, (low, high) in kept["intervals"].items():
            intervals[name] = (float(low), float(high))
        values = {}
        for name, value in kept["values"].items():
            values[name] = float(value)
        return Figures(values, intervals)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: delete it, and the attackers are trained again") from error
