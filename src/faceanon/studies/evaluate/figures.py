"""What is kept of a face beside who it is: mesh, expression, light and skin; and how often it is found again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from faceanon.losses.light import fit_light, light_surface
from faceanon.metrics.recognition import chance
from faceanon.metrics.suite import RecognitionSuite
from faceanon.networks.hull import convex_hull
from faceanon.studies.photographs.figures import Figures, add_mesh

LEVELS = 127.5  # of 8 bits, in a unit of [-1, 1]


class KeptOfFaces:
    """Collect the mesh of each face, and light and skin under it.

    Args:
        landmarks: `(B, 3, S, S)` in [-1, 1] -> points of the mesh `(B, 468, 2)` in [-1, 1].
    """

    def __init__(self, landmarks: Callable[[Tensor], Tensor]) -> None:
        self.landmarks = landmarks
        self.points: dict[str, list[Tensor]] = defaultdict(list)
        self.rows: dict[str, list[Tensor]] = defaultdict(list)

    @torch.no_grad()
    def update(self, images: Mapping[str, Tensor]) -> None:
        """Add a batch: `(B, 3, S, S)` in [-1, 1] by name, `original` among them."""
        original = images["original"]
        for what, image in images.items():
            self.points[what].append(self.landmarks(image).cpu())
        mask = convex_hull(self.points["original"][-1], original.shape[-1])
        for what, image in images.items():
            if what != "original":
                skin, light = colour_distances(image.cpu(), original.cpu(), mask)
                self.rows[f"skin_distance/{what}"].append(skin)
                self.rows[f"light_distance/{what}"].append(light)

    def compute(self, people: Tensor, figures: Figures) -> None:
        """Add all figures; `people` `(N,)` are the labels of the faces."""
        points = {what: torch.cat(parts) for what, parts in self.points.items()}
        original = points.pop("original")
        for what, version in points.items():
            add_mesh(figures, original, version[None], people, f"/{what}")
        for name, parts in self.rows.items():
            figures.add_mean(name, torch.cat(parts), people, rate=False)


def colour_distances(image: Tensor, reference: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """How far a face's mean colour is off, and how far the course of light over it, in levels of 255: `(B,)` each.

    Args:
        image: `(B, 3, S, S)` in [-1, 1].
        reference: The same faces.
        mask: `(B, 1, S, S)` of 0 and 1, where the face is.
    """
    area = mask.sum((2, 3)).clamp(min=1)
    # A fit is linear in the colours, but for its stiffness: the surface of a difference is the difference of surfaces.
    surface = light_surface(fit_light(image, mask) - fit_light(reference, mask), image.shape[-1])
    skin = ((image - reference) * mask).sum((2, 3)) / area
    even = (surface * mask).sum((2, 3)) / area
    course = ((surface - even[..., None, None]).abs() * mask).sum((2, 3)) / area
    return skin.abs().mean(1) * LEVELS, course.mean(1) * LEVELS


def add_retrieval(suites: Mapping[str, RecognitionSuite], people: Tensor, figures: Figures) -> None:
    """Add how often the nearest of all originals shows the person, and what a guess would find."""
    for name, suite in suites.items():
        for what in ("anonymized", "recovered"):
            if what in suite.lookups:
                figures.add_mean(f"retrieved/{name}/{what}", suite.lookups[what].lookup().retrieved().cpu(), people)
    figures.values["chance/retrieved"] = chance(people, own=True)
    guess = chance(people)
    # NaN where nobody has a second picture.
    if guess == guess:
        figures.values["chance/rank1"] = guess
