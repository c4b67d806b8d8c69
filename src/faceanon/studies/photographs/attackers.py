"""Attackers that train on a model's pictures, beside the same attackers before a face that is painted over.

Half of the persons are the attackers' own, and the other half are attacked. Whatever is found behind a painted-over
face is told by hair, clothes and light around it, so only what is found beyond that is the model's fault.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
import torch
from torch import Tensor

from faceanon.attacks.base import BUDGETS
from faceanon.attacks.parrot import learn, parrot
from faceanon.attacks.recognised import Recognised, chance, recognised
from faceanon.attacks.reidentify import Reidentified, reidentify
from faceanon.attacks.target import Target
from faceanon.backbones.base import Backbone
from faceanon.backbones.pictures import WithoutCodes
from faceanon.data.batches import hold_out
from faceanon.data.files import read_photo
from faceanon.errors import UserError
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.pipeline import Pipeline
from faceanon.studies.photographs.figures import Figures
from faceanon.studies.photographs.judges import Judge
from faceanon.studies.photographs.people import Person
from faceanon.studies.photographs.readings import Mesh
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle
from faceanon.weights.files import write_atomic

GROW = 1.06  # of the hull of the mesh: the points end where the skin does
FEWEST_PEOPLE = 4


class JudgedBundle:
    """A bundle with a judge from outside; everything else is the bundle's own.

    Args:
        bundle: The model's.
        judge: Who says whether two pictures show one person, by the cosine of the embeddings.
    """

    def __init__(self, bundle: Bundle, judge: Judge) -> None:
        self._bundle = bundle
        self._judge = judge
        self.judge_name = judge.name

    def has(self, role: str) -> bool:
        """Whether there is a network for `role`."""
        return role == "judge" or self._bundle.has(role)

    def judge(self, image: Tensor) -> Tensor:
        """Embeddings `(B, E)` of `(B, 3, S, S)` in [-1, 1]."""
        return self._judge.embed(image.cpu()).to(image.device)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the bundle has
        return getattr(self._bundle, name)


class PaintedOver(WithoutCodes):
    """A method that paints the face grey: the hull of its mesh, a little grown, and nothing around it.

    Args:
        bundle: Gives the size of the pictures and the attackers' recogniser.
        mesh: Finds the face.
    """

    reversible = False
    key_shape = (1,)
    key_bits = None
    trained_by = ()
    licence = "no weights of its own"

    def __init__(self, bundle: Bundle, mesh: Mesh) -> None:
        super().__init__()
        self.bundle = bundle
        self.mesh = mesh

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """`(B, 3, S, S)` with grey faces; `key` is ignored."""
        faces = to_bytes(image).numpy()
        points, _ = self.mesh.points(faces)
        middle = points.mean(1, keepdims=True)
        painted = faces.copy()
        for face, outline in zip(painted, middle + GROW * (points - middle), strict=True):
            hull = cv2.convexHull(np.round(outline).astype(np.int32))
            cv2.fillConvexPoly(face, hull, (128, 128, 128))
        return from_bytes(torch.from_numpy(painted), image.device)


@contextmanager
def judged(backbone: Backbone, judge: Judge) -> Iterator[None]:
    """Give a model's bundle a judge while the block runs."""
    own = backbone.bundle
    backbone.bundle = cast(Bundle, JudgedBundle(own, judge))
    try:
        yield
    finally:
        backbone.bundle = own


def attack_figures(
    pipeline: Pipeline, judge: Judge, mesh: Mesh, people: Sequence[Person], budget: str, keep: Path, seed: int = 0
) -> Figures:
    """Train attackers on a model's pictures and on painted-over faces; figures are named `attack/...`.

    `attack/inversion` is the share of persons whom the judge recognises in what a network without the key makes of
    their pictures, `attack/recogniser` the share whom a fine-tuned recogniser finds among other pictures (rank 1);
    both with `/painted` for the same before painted-over faces.

    Args:
        pipeline: The model; its bundle has a training recogniser.
        judge: Who says whether the inverted picture shows the person.
        mesh: Finds the faces that are painted over.
        people: Half of them are attacked, with all their pictures.
        budget: `small` or `full`; see `faceanon.attacks.base.BUDGETS`.
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
    path = keep / f"attackers-{_digest(pipeline, judge, people, budget, seed)}.json"
    if path.is_file():
        return _load(path)
    attacked, known = _halves(people, backbone.image_size, seed)
    painted = PaintedOver(bundle, mesh)
    figures = Figures()
    with judged(backbone, judge), judged(painted, judge):
        target = Target(backbone, attacked, lambda: known, BUDGETS[budget], seed, pipeline.device)
        before_paint = Target(painted, attacked, lambda: known, BUDGETS[budget], seed, pipeline.device)
        _inversion(target, before_paint, figures)
        _recogniser(reidentify(target), reidentify(before_paint), figures)
    figures.values["attack/people"] = float(len(torch.unique(target.probes.identity)))
    figures.values["attack/chance"] = chance(target.probes.identity)
    write_atomic(path, json.dumps(asdict(figures)).encode())
    return figures


def _inversion(target: Target, painted: Target, figures: Figures) -> None:
    """Undo the model, a blur as the control of the attacker's strength, and the paint."""
    found = parrot(target)
    restore = learn(painted, painted.known_hidden, painted.known.image, "undoing the paint")
    shown = painted.embed(painted.batched(restore, painted.hidden))
    behind = recognised(shown, painted.gallery, painted.probes.identity, painted.threshold)
    _add(figures, "attack/inversion", found.after.same, found.after.same_interval)
    _add(figures, "attack/inversion/painted", behind.same, behind.same_interval)
    _add(figures, "attack/inversion/blur", found.control_after.same, found.control_after.same_interval)
    _add(figures, "attack/inversion/rank1", found.after.rank1, found.after.rank1_interval)
    _add(figures, "attack/inversion/rank1/painted", behind.rank1, behind.rank1_interval)


def _recogniser(found: Reidentified, behind: Reidentified, figures: Figures) -> None:
    parts: dict[str, Recognised] = {
        "attack/recogniser": found.trained,
        "attack/recogniser/painted": behind.trained,
        "attack/recogniser/untrained": found.untrained,
        "attack/recogniser/originals": found.originals,
    }
    for name, one in parts.items():
        _add(figures, name, one.rank1, one.rank1_interval)
        figures.values[f"{name}/auc"] = one.auc


def _add(figures: Figures, name: str, value: float, interval: tuple[float, float]) -> None:
    figures.values[name] = value
    figures.intervals[name] = interval


def _halves(people: Sequence[Person], side: int, seed: int) -> tuple[FaceBatch, FaceBatch]:
    """Pictures of the attacked and of the attackers' own persons."""
    names = [str(person.number) for person in people]
    _, attacked = hold_out(names, 0, len(people) // 2, seed)
    first = [person for person in people if str(person.number) in attacked]
    second = [person for person in people if str(person.number) not in attacked]
    return _batch(first, side), _batch(second, side)


def _batch(people: Sequence[Person], side: int) -> FaceBatch:
    pixels = []
    labels = []
    for person in people:
        for picture in person.pictures:
            pixels.append(read_photo(picture.path, side)[0])
            labels.append(person.number)
    image = from_bytes(torch.from_numpy(np.stack(pixels)))
    return FaceBatch(image, torch.tensor(labels), torch.full((len(labels),), -1))


def _digest(pipeline: Pipeline, judge: Judge, people: Sequence[Person], budget: str, seed: int) -> str:
    pictures = [picture.key for person in people for picture in person.pictures]
    facts = [pipeline.backbone.method, pipeline.weights, judge.name, judge.digest, budget, seed, *pictures]
    return hashlib.sha256(" ".join(map(str, facts)).encode()).hexdigest()[:16]


def _load(path: Path) -> Figures:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        intervals = {name: (float(low), float(high)) for name, (low, high) in kept["intervals"].items()}
        return Figures({name: float(value) for name, value in kept["values"].items()}, intervals)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: delete it, and the attackers are trained again") from error
