"""By what does a network tell the faces that persona_photo128 puts on? The method with one thing changed at a time.

  python examples/telling_cause.py --pictures PERSONS --out runs/telling

PERSONS holds FFHQ-aligned pictures, a folder a person; the first six of each are taken. For every variant and seed the
network of `faceanon report photographs --tell-steps` learns to tell its pictures from real ones on half of the persons
and is tested on the others; a seed decides who is who, the keys and the training. Areas under the ROC curve are kept in
the folder of `--out`, so an interrupted run resumes where it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from statistics import mean
from unittest.mock import patch

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from faceanon.backbones.persona import Persona
from faceanon.files import write_atomic
from faceanon.landmarks.drawings import pupils
from faceanon.landmarks.swap import Donor, SwapTarget, put_on, skin_tone
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.models import load_backbone
from faceanon.studies.photographs.people import Person, find_people, read_faces
from faceanon.studies.photographs.pictures import RoundTrip
from faceanon.studies.photographs.telling import TellingPairs, split_people, tell

MODEL = "persona_photo128"
SIDE = 128
PICTURES = 6  # a person
BATCH = 16
SMOOTH = 2.0  # pixels, sigma of a Gaussian: what is left is coarser than skin, lashes and noise
RIM = 9  # pixels: what lies nearer to the edge of the new face than half of this

Pictures = tuple[Tensor, Tensor]  # the method's `(N, 3, S, S)`, and real ones


class Group:
    """Pictures of some persons, and all that does not depend on the variant.

    Args:
        method: The shipped model.
        people: Whose pictures they are.
        seed: Of the keys.
    """

    def __init__(self, method: Persona, people: list[Person], seed: int) -> None:
        self.method = method
        self.image, self.person = read_faces(people, SIDE)
        generator = torch.Generator().manual_seed(seed)
        self.key = method.sample_key(len(self.image), generator)
        self.targets: list[SwapTarget] = []
        with torch.no_grad():
            for part in torch.split(self.image, BATCH):
                self.targets += method._targets(part, method.encode(part))

    @torch.no_grad()
    def through(self, change: Callable[[Tensor, Tensor], Tensor], image: Tensor) -> Tensor:
        """Pictures after a method `(image, key) -> image`, as a file of 8 bits holds them."""
        drawn = []
        for part, key in zip(torch.split(image, BATCH), torch.split(self.key, BATCH), strict=True):
            drawn.append(change(part, key))
        # NaN is where no face was made out: there the photograph stays as it is.
        whole = torch.where(torch.cat(drawn).isnan(), image, torch.cat(drawn))
        return from_bytes(to_bytes(whole))

    def anonymized(self) -> Tensor:
        """What the method makes of the pictures, with the cast as it is now."""
        return self.through(self.method.anonymize, self.image)

    @cached_property
    def shipped(self) -> Tensor:
        """The method's pictures, with the whole cast."""
        return self.anonymized()

    @cached_property
    def put_on(self) -> Tensor:
        """The method's pictures, with faces as they are put on: none is redrawn."""
        with patch.object(self.method, "redraws", False):
            return self.anonymized()

    @cached_property
    def trips(self) -> Tensor:
        """The pictures themselves, whose faces went through the codec."""
        return self.round_trip(self.image)

    def round_trip(self, image: Tensor) -> Tensor:
        """Pictures whose faces went through the codec."""
        return self.through(RoundTrip(self.method.bundle, SIDE, self.method).anonymize, image)

    def put_back(self, donors: list[int]) -> Tensor:
        """Every face with another photograph's face of the group put on, by the number of that photograph."""
        lenders = []
        for target in self.targets:
            looks = pupils(target.picture, target.mesh[:, :2])
            lenders.append(Donor(target.picture, target.mesh, looks, skin_tone(target.picture, target.mesh)))
        drawn = []
        for target, number in zip(self.targets, donors, strict=True):
            drawn.append(put_on(target, lenders[number], self.method.cast.triangles))
        return from_bytes(torch.from_numpy(np.stack(drawn)))

    def shown(self, areas: list[NDArray[np.bool_]], image: Tensor) -> Tensor:
        """Pictures, grey but for an area of each."""
        return torch.where(torch.from_numpy(np.stack(areas))[:, None], image, 0.0)


def codec_alone(group: Group, test: bool) -> Pictures:
    """Photographs, and their round trips: nothing is put on."""
    return group.image, group.trips


def shipped_trips(group: Group, test: bool) -> Pictures:
    """The figure of the study: results, and round trips of the originals."""
    return group.shipped, group.trips


def both_trips(group: Group, test: bool) -> Pictures:
    """Results and originals, both through the codec, so that its traces tell nothing."""
    return group.round_trip(group.shipped), group.trips


def shipped(group: Group, test: bool) -> Pictures:
    """Results, and the originals as they are."""
    return group.shipped, group.image


def put_on_trips(group: Group, test: bool) -> Pictures:
    """Faces that were put on and not redrawn, and round trips of the originals."""
    return group.put_on, group.trips


def only_put_on(group: Group, test: bool) -> Pictures:
    """Faces that were put on and not redrawn, and the originals as they are."""
    return group.put_on, group.image


def on_itself(group: Group, test: bool) -> Pictures:
    """Every face put on itself: cut out, bent, lit and set in, and nobody else's."""
    return group.put_back(list(range(len(group.image)))), group.image


def of_the_person(group: Group, test: bool) -> Pictures:
    """The person's face of the next photograph put on: another light and sharpness, and nobody else's."""
    person = group.person.tolist()
    donors = []
    for number, label in enumerate(person):
        own = [other for other, owner in enumerate(person) if owner == label]
        donors.append(own[(own.index(number) + 1) % len(own)])
    return group.put_back(donors), group.image


def of_others(group: Group, test: bool) -> Pictures:
    """Faces of other real persons put on, of the same group: photographs of the same kind as the originals."""
    draw = np.random.default_rng(0)
    person = group.person.numpy()
    tones = np.stack([target.appearance.tone for target in group.targets])
    donors = []
    for number, label in enumerate(person):
        others = np.flatnonzero(person != label)
        # Of the six most alike in skin and light, as the method chooses by looks.
        near = others[np.abs(tones[others] - tones[number]).sum(1).argsort()[:6]]
        donors.append(int(draw.choice(near)))
    return group.put_back(donors), group.image


def other_donors(group: Group, test: bool) -> Pictures:
    """Results, of donors whom the network has not met where it is tested: half of the cast for either."""
    cast = group.method.cast
    half = slice(int(test), None, 2)
    # Those who laugh too: they are put on people who laugh.
    with patch.multiple(cast, closed=cast.closed[half], open=cast.open[half]):
        return group.anonymized(), group.image


def same_half(group: Group, test: bool) -> Pictures:
    """Results, with one half of the cast for all."""
    return other_donors(group, False)


def smooth(group: Group, test: bool) -> Pictures:
    """Results and originals, smoothed: no skin, lashes or noise."""
    kernel = 2 * round(3 * SMOOTH) + 1
    drawn, real = shipped(group, test)
    return gaussian_blur(drawn, [kernel] * 2, [SMOOTH] * 2), gaussian_blur(real, [kernel] * 2, [SMOOTH] * 2)


def edge_alone(group: Group, test: bool) -> Pictures:
    """Results and originals, grey within the face: its edge and what lies around it."""
    around = []
    for target in group.targets:
        around.append(cv2.erode(target.area.astype(np.uint8), np.ones((RIM, RIM))) == 0)
    drawn, real = shipped(group, test)
    return group.shown(around, drawn), group.shown(around, real)


def face_alone(group: Group, test: bool) -> Pictures:
    """Results and originals, grey around the face and at its edge."""
    within = []
    for target in group.targets:
        within.append(cv2.erode(target.area.astype(np.uint8), np.ones((RIM, RIM))) > 0)
    drawn, real = shipped(group, test)
    return group.shown(within, drawn), group.shown(within, real)


VARIANTS: dict[str, tuple[Callable[[Group, bool], Pictures], str]] = {
    "codec-alone": (codec_alone, "originals against their round trips: nothing is put on"),
    "shipped-trips": (shipped_trips, "as it ships, against round trips"),
    "both-trips": (both_trips, "as it ships, through the codec too, against round trips"),
    "shipped": (shipped, "as it ships, against the originals"),
    "put-on-trips": (put_on_trips, "not redrawn, against round trips"),
    "put-on": (only_put_on, "not redrawn, against the originals"),
    "itself": (on_itself, "every face put on itself"),
    "person": (of_the_person, "the person's face of another photograph put on"),
    "others": (of_others, "faces of other real persons of the set put on"),
    "same-half": (same_half, "half of the cast"),
    "other-donors": (other_donors, "half of the cast for training, the other half for the test"),
    "smooth": (smooth, "as it ships, all smoothed"),
    "edge": (edge_alone, "as it ships, grey within the face"),
    "face": (face_alone, "as it ships, grey around the face"),
}


def area_of(name: str, groups: list[Group], steps: int, seed: int) -> float:
    """Area under the curve on persons and keys that the network has not met."""
    change = VARIANTS[name][0]
    parts = []
    for number, group in enumerate(groups):
        drawn, real = change(group, number == len(groups) - 1)
        parts.append(TellingPairs(drawn, real, group.person))
    return tell(parts, steps, seed=seed).area


def main() -> None:
    """Print a line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="training batches of the network")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where figures are kept")
    arguments = parser.parse_args()
    method, _ = load_backbone(MODEL)
    assert isinstance(method, Persona)
    people = find_people(arguments.pictures, None, PICTURES)
    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[float]] = {name: [] for name in arguments.variants}
    for seed in arguments.seeds:
        groups = [Group(method, some, seed + place) for place, some in enumerate(split_people(people, seed))]
        for name in arguments.variants:
            path = arguments.out / f"{name}-{arguments.steps}-{seed}.json"
            if not path.is_file():
                write_atomic(path, json.dumps(area_of(name, groups, arguments.steps, seed)).encode())
            found[name].append(float(json.loads(path.read_text(encoding="utf-8"))))
            print(f"seed {seed}, {VARIANTS[name][1]}: {found[name][-1]:.3f}", flush=True)
    print("over the seeds: mean, least and most")
    for name, areas in found.items():
        print(f"{VARIANTS[name][1]}: {mean(areas):.3f} ({min(areas):.3f} to {max(areas):.3f})")


if __name__ == "__main__":
    main()
