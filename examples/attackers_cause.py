"""What do trained attackers see in the pictures of persona_photo128? The method with one thing changed at a time.

  python examples/attackers_cause.py --pictures PERSONS --mobilefacenet 068.ckpt --out runs/attackers

PERSONS holds FFHQ-aligned pictures, a folder a person; the first six of each are taken. Every variant meets the
attackers of `faceanon report photographs --attackers small`, once for each seed; a seed decides who is attacked, the
keys and the training. Figures are kept in the folder of `--out`, so an interrupted run resumes where it was.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from unittest.mock import patch

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.backbones.persona import Persona
from faceanon.files import write_atomic
from faceanon.landmarks import swap
from faceanon.landmarks.cast import READ, Cast, Choice
from faceanon.landmarks.drawings import (
    INNER_LIPS,
    LEFT_BROW,
    LEFT_EYE,
    NOSE_BASE,
    NOSE_BRIDGE,
    OUTER_LIPS,
    OUTLINE,
    RIGHT_BROW,
    RIGHT_EYE,
)
from faceanon.landmarks.mesh import FaceMesh
from faceanon.landmarks.swap import MOVING, SwapTarget, aligned
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.models import load_backbone
from faceanon.studies.photographs.attackers import GROW, KINDS, AsShown, PaintedOver, attack, halves
from faceanon.studies.photographs.figures import Figures
from faceanon.studies.photographs.judges import mobilefacenet
from faceanon.studies.photographs.people import find_people
from faceanon.studies.security.base import BUDGETS
from faceanon.types import Codes
from faceanon.weights.bundle import Bundle

MODEL = "persona_photo128"
SIDE = 128
PICTURES = 6  # a person
GREY = 128
LINES = (LEFT_EYE, RIGHT_EYE, LEFT_BROW, RIGHT_BROW, OUTER_LIPS, INNER_LIPS, NOSE_BRIDGE, NOSE_BASE, OUTLINE)
CLOSED = (True, True, True, True, True, True, False, False, True)
SHOWN = {
    "rank 1 fine-tuned": "attack/recogniser",
    "not fine-tuned": "attack/recogniser/untrained",
    "inversion": "attack/inversion",
}
HEAD = 1.6  # of the mesh around its middle: hair and neck lie within


def middling(cast: Cast) -> int:
    """Number of the donor of middling skin."""
    brightness = cast.tones[cast.closed].mean(1)
    return int(cast.closed[np.argsort(brightness, kind="stable")[len(brightness) // 2]])


class Mesh(PaintedOver):
    """Painted over, with the face's own lines on the paint: its shape, pose and expression, and nothing else of it."""

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """`(B, 3, S, S)`."""
        painted = to_bytes(super().anonymize(image, key)).numpy()
        points, _ = self.mesh.points(to_bytes(image).numpy())
        for face, mesh in zip(painted, points, strict=True):
            for part, closed in zip(LINES, CLOSED, strict=True):
                line = np.round(mesh[list(part)] * 8).astype(np.int32)
                cv2.polylines(face, [line], closed, (255, 255, 255), 1, cv2.LINE_AA, 3)
        return from_bytes(torch.from_numpy(painted), image.device)


class Head(PaintedOver):
    """The whole head painted over, so that clothes and background are left."""

    def __init__(self, bundle: Bundle, mesh: FaceMesh) -> None:
        super().__init__(bundle, mesh, HEAD)


class Filled(PaintedOver):
    """Painted over, and one donor's face stretched to the paint.

    It is made of the painted picture alone, so it tells no more than that: an attacker can do it himself.
    """

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """`(B, 3, S, S)`."""
        cast = Cast()
        donor = cast.donor(middling(cast), SIDE)
        points = donor.points[:, :2]
        middle = points.mean(0)
        outline = middle + GROW * (points - middle)
        low = outline.min(0)
        painted = to_bytes(super().anonymize(image, key)).numpy()
        for face in painted:
            paint = (face == GREY).all(-1)
            # Single grey pixels belong to the background.
            found = cv2.morphologyEx(paint.astype(np.uint8), cv2.MORPH_OPEN, np.ones((5, 5)))
            left, top, width, height = cv2.boundingRect(found)
            scale = np.array([width, height]) / (outline.max(0) - low)
            move = np.column_stack([np.diag(scale), np.array([left, top]) - scale * low])
            filling = cv2.warpAffine(donor.picture, move, (SIDE, SIDE), borderMode=cv2.BORDER_REFLECT)
            face[paint] = filling[paint]
        return from_bytes(torch.from_numpy(painted), image.device)


class Within(Persona):
    """Grey where the shipped method puts a face on, and nowhere else: a rim of the face, hair and covers stay."""

    def _with_donors(
        self, targets: list[SwapTarget], codes: Codes, embedding: Tensor, key: Tensor
    ) -> tuple[NDArray[np.float32], list[Choice]]:
        pictures = from_bytes(torch.from_numpy(np.stack([target.picture for target in targets])))
        return np.where(self._area(targets), np.float32(0), pictures.numpy()), []

    def _area(self, targets: list[SwapTarget]) -> NDArray[np.bool_]:
        """Pixels that the method may change, `(B, 1, S, S)`."""
        return np.stack([target.area for target in targets])[:, None]


class Soft(Persona):
    """The method as it was before its edge became narrow: a wide one, in which the person's own pixels are mixed in."""

    def _targets(self, image: Tensor, codes: Codes) -> list[SwapTarget]:
        with patch.object(swap, "EDGE", 3 * swap.EDGE):
            targets = super()._targets(image, codes)
        # No ring: in so wide an edge colours need not meet.
        return [replace(target, ring=np.zeros_like(target.ring)) for target in targets]


class Opaque(Persona):
    """The shipped method without a soft edge: of what lies within its area nothing of the person's own is mixed in."""

    def _targets(self, image: Tensor, codes: Codes) -> list[SwapTarget]:
        targets = super()._targets(image, codes)
        return [replace(target, edge=target.area[..., None].astype(np.float32)) for target in targets]


class Wide(Persona):
    """The shipped method on the area that is painted over, less hair over the forehead and covers."""

    def _targets(self, image: Tensor, codes: Codes) -> list[SwapTarget]:
        with patch.object(swap, "WITHIN", GROW):
            return super()._targets(image, codes)


class WideOpaque(Opaque, Wide):
    """Both: the person's own pixels end where they end behind paint, apart from hair and covers."""


class FaceAlone(Within):
    """The shipped method's faces, and grey around them."""

    def _with_donors(
        self, targets: list[SwapTarget], codes: Codes, embedding: Tensor, key: Tensor
    ) -> tuple[NDArray[np.float32], list[Choice]]:
        drawn, choices = Persona._with_donors(self, targets, codes, embedding, key)
        return np.where(self._area(targets), drawn, np.float32(0)), choices


class DonorAlone(Persona):
    """The photographs of the donors whom the shipped method takes: what the choice of the donor tells."""

    def _with_donors(
        self, targets: list[SwapTarget], codes: Codes, embedding: Tensor, key: Tensor
    ) -> tuple[NDArray[np.float32], list[Choice]]:
        _, choices = super()._with_donors(targets, codes, embedding, key)
        sheets = []
        for choice in choices:
            donor = self.cast.donor(choice.donor, SIDE).picture
            # cv2 takes the shift that brings the middle of one picture to that of the other.
            shift = (SIDE - np.array(donor.shape[1::-1])) / 2
            move = np.array([[1, 0, shift[0]], [0, 1, shift[1]]])
            sheets.append(cv2.warpAffine(donor, move, (SIDE, SIDE), borderValue=(GREY, GREY, GREY)))
        return from_bytes(torch.from_numpy(np.stack(sheets))).numpy(), choices


class Chosen(Persona):
    """Donors chosen in another way, whether the result looks like the person or not."""

    def _with_donors(
        self, targets: list[SwapTarget], codes: Codes, embedding: Tensor, key: Tensor
    ) -> tuple[NDArray[np.float32], list[Choice]]:
        choices = []
        for target, looks, one in zip(targets, codes.identity.numpy(), key.numpy(), strict=True):
            # The key decides, as it does in the shipped method.
            numbers = np.random.default_rng(one.view(np.uint32).ravel())
            choices.append(Choice(int(numbers.choice(self.candidates(target, looks)))))
        return self._put_on(targets, choices), choices

    def candidates(self, target: SwapTarget, looks: NDArray[np.float32]) -> NDArray[np.intp]:
        """Numbers of the donors, of whom each is as likely as the others."""
        raise NotImplementedError


class Fitting(Chosen):
    """Anybody who fits in sex, age and skin."""

    def candidates(self, target: SwapTarget, looks: NDArray[np.float32]) -> NDArray[np.intp]:
        """Those of whom the shipped method chooses."""
        kept = self.identities.kept_basis.numpy()
        return self.cast.fitting(looks @ kept[:, :READ], target.appearance, kept)


class Anybody(Chosen):
    """Anybody of the whole cast: nothing of the person decides."""

    def candidates(self, target: SwapTarget, looks: NDArray[np.float32]) -> NDArray[np.intp]:
        """All who lend their faces."""
        return self.cast.closed


class One(Chosen):
    """One donor for everybody, the one of middling skin; some things of the person's own face can be left out.

    `light`: skin and light are the person's, else the donor's. `shape`: shape, expression and pupils are the person's,
    else the donor's, in the person's pose.
    """

    light = True
    shape = True

    def candidates(self, target: SwapTarget, looks: NDArray[np.float32]) -> NDArray[np.intp]:
        """The one."""
        return np.array([middling(self.cast)])

    def _put_on(self, targets: list[SwapTarget], choices: list[Choice]) -> NDArray[np.float32]:
        changed = []
        for target, choice in zip(targets, choices, strict=True):
            # Where no skin is seen, colours stay the donor's.
            one = target if self.light else replace(target, skin=np.zeros_like(target.skin))
            changed.append(one if self.shape else self._of_donor(one, choice.donor))
        return super()._put_on(changed, choices)

    def _of_donor(self, target: SwapTarget, number: int) -> SwapTarget:
        """A target whose mesh is the donor's own, in the person's pose."""
        donor = self.cast.donor(number, SIDE)
        steady = np.ones(len(target.mesh), bool)
        for part in MOVING:
            steady[list(part)] = False
        posed = aligned(donor.points, target.mesh, steady)
        # Pupils go to where the donor's lie between the corners of the eyes.
        pupils = np.concatenate([donor.pupils, donor.points[:1, 2].repeat(2)[:, None]], 1)
        looks = []
        for eye, pupil in zip((LEFT_EYE, RIGHT_EYE), pupils, strict=True):
            offset = pupil[:2] - donor.points[list(eye), :2].mean(0)
            looks.append(posed[list(eye), :2].mean(0) + offset)
        return replace(target, mesh=posed, looks=np.stack(looks), free=np.zeros_like(target.free))


class OneUnlit(One):
    """One donor in the colours of the photograph."""

    light = False


class OneShape(One):
    """One donor in the own shape, in the person's light."""

    shape = False


class OneUnlitShape(OneUnlit):
    """One donor in the own shape and colours: pose is all of the person's face that is left."""

    shape = False


class OneWide(OneUnlitShape, WideOpaque):
    """One donor in the own shape and colours, and nothing of the person's own pixels within the wide area."""


VARIANTS: dict[str, tuple[type[Backbone], str]] = {
    "painted": (PaintedOver, "painted over"),
    "filled": (Filled, "painted over, one donor's face stretched to the paint"),
    "head": (Head, "the whole head painted over"),
    "within": (Within, "painted over where the method puts a face on, a smaller area"),
    "mesh": (Mesh, "painted over, the mesh's lines drawn on the paint"),
    "shipped": (Persona, "as it ships"),
    "fitting": (Fitting, "a donor at random among those who fit, no look at the result"),
    "anybody": (Anybody, "a donor at random of the whole cast"),
    "soft": (Soft, "as it ships, with an edge three times as wide"),
    "opaque": (Opaque, "as it ships, the area without a soft edge"),
    "wide": (Wide, "as it ships, the area as wide as the paint"),
    "wide-opaque": (WideOpaque, "as it ships, the area as wide as the paint and without a soft edge"),
    "one": (One, "one donor for everybody"),
    "one-unlit": (OneUnlit, "one donor, its own light and skin"),
    "one-shape": (OneShape, "one donor, its own shape and expression"),
    "one-unlit-shape": (OneUnlitShape, "one donor, its own light, skin, shape and expression"),
    "one-wide": (OneWide, "the same, the area as wide as the paint and without a soft edge"),
    "face": (FaceAlone, "as it ships, grey around the face"),
    "donor": (DonorAlone, "the chosen donor's photograph alone"),
}


def method_of(name: str, shipped: Persona, mesh: FaceMesh) -> Backbone:
    """A variant, set as the shipped model is."""
    kind = VARIANTS[name][0]
    if issubclass(kind, Persona):
        # Without weights: they are the painter's, who has nothing to do with faces that are put on. What redrawing
        # would make of a grey face, or of a donor's own photograph, says nothing.
        redrawn = kind in (Persona, Soft, Opaque, Wide, WideOpaque)
        return AsShown(kind(**{**shipped.init_args, "redraw": redrawn}).eval())
    return kind(shipped.bundle, mesh)


# Which attackers there are, and what their figures are kept under.
ATTACKERS = {
    "both": (KINDS, ""),
    "recogniser": (("recogniser",), "-alone"),
    "inversion": (("inversion",), "-inversion"),
}


def line_of(found: list[Figures]) -> str:
    """Mean, least and most of each figure over the seeds."""
    parts = []
    for what, name in SHOWN.items():
        values = [one.values[name] for one in found if name in one.values]
        if values:
            parts.append(f"{what} {mean(values):.3f} ({min(values):.3f} to {max(values):.3f})")
    return "; ".join(parts)


def main() -> None:
    """Print a line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument(
        "--mobilefacenet", type=Path, required=True, metavar="FILE", help="public checkpoint of the judge"
    )
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
    parser.add_argument(
        "--attackers", choices=ATTACKERS, default="both", help="one of the two takes half of the time (default: both)"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where figures are kept")
    arguments = parser.parse_args()
    shipped, _ = load_backbone(MODEL)
    assert isinstance(shipped, Persona)
    mesh = FaceMesh()
    people = find_people(arguments.pictures, None, PICTURES)
    judge = mobilefacenet(arguments.mobilefacenet)
    arguments.out.mkdir(parents=True, exist_ok=True)
    kinds, kept = ATTACKERS[arguments.attackers]
    found: dict[str, list[Figures]] = {name: [] for name in arguments.variants}
    # Seed by seed: what is interrupted has compared all variants on one split.
    for seed in arguments.seeds:
        attacked, known = halves(people, SIDE, seed)
        for name in arguments.variants:
            path = arguments.out / f"{name}-{seed}{kept}.json"
            if not path.is_file():
                method = method_of(name, shipped, mesh)
                cpu = torch.device("cpu")
                one = attack(method, judge, attacked, known, BUDGETS["small"], seed, cpu, kinds)
                write_atomic(path, json.dumps(asdict(one)).encode())
            found[name].append(Figures(**json.loads(path.read_text(encoding="utf-8"))))
            print(f"seed {seed}, {VARIANTS[name][1]}: {line_of(found[name][-1:])}", flush=True)
    print("over the seeds: mean, least and most")
    for name, figures in found.items():
        print(f"{VARIANTS[name][1]}: {line_of(figures)}")


if __name__ == "__main__":
    main()
