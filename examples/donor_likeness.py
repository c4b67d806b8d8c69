"""What makes two strangers alike, the donor or the photo? Every fitting donor put on a photo of every person.

  python examples/donor_likeness.py --pictures PERSONS --mobilefacenet 068.ckpt

PERSONS holds FFHQ-aligned pictures, a folder a person; the first of each is taken. Of all pairs of results it says how
many count as one person: two donors on one photo (two keys, if a key chose among all donors), one donor on the photos
of two persons, and two donors on the photos of two persons. A judge takes two pictures for one person from its
threshold at a false accept rate of 1e-2 on, of the originals.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from faceanon.backbones.persona import Persona
from faceanon.data.files import read_photo
from faceanon.landmarks.cast import READ, Choice
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.models import load_backbone
from faceanon.studies.photographs.judges import Judge, dlib_resnet, mobilefacenet, shipped_recogniser
from faceanon.studies.photographs.people import find_people

SIDE = 128
BATCH = 32


def fitting_donors(method: Persona, face: Tensor) -> tuple[Tensor, list[int]]:
    """A face `(1, 3, S, S)` with each donor who fits, `(N, 3, S, S)` as a file keeps it, and the donors' numbers."""
    codes, _, _ = method._look(face)
    target = method._targets(face, codes)[0]
    space = method.identities
    kept = space.kept_basis.numpy()
    donors = method.cast.fitting((codes.identity.numpy() @ kept[:, :READ])[0], target.appearance, kept).tolist()
    drawn = torch.from_numpy(method.cast.put_on([target] * len(donors), [Choice(donor) for donor in donors]))
    seen = drawn.flatten(1).isfinite().all(1)
    return from_bytes(to_bytes(drawn[seen])), [donor for donor, ok in zip(donors, seen.tolist(), strict=True) if ok]


def embedded(judge: Judge, pictures: Tensor) -> Tensor:
    """What a judge sees in pictures `(N, 3, S, S)`."""
    return torch.cat([judge.embed(part) for part in pictures.split(BATCH)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument("--mobilefacenet", type=Path, metavar="FILE", help="public checkpoint of the judge")
    arguments = parser.parse_args()
    method, _ = load_backbone("persona_photo128")
    assert isinstance(method, Persona)
    people = find_people(arguments.pictures)
    judges = [dlib_resnet(), shipped_recogniser(method.bundle, method.bundle)]
    if arguments.mobilefacenet is not None:
        judges.insert(0, mobilefacenet(arguments.mobilefacenet))
    originals = []
    person = []
    for one in people:
        for picture in one.pictures[:6]:
            originals.append(read_photo(picture.path, SIDE)[0])
            person.append(one.number)
    results = []
    photo: list[int] = []
    donor: list[int] = []
    with torch.inference_mode():
        for one in people:
            pixels = read_photo(one.pictures[0].path, SIDE)[0].copy()
            drawn, donors = fitting_donors(method, from_bytes(torch.from_numpy(pixels[None])))
            results.append(drawn)
            photo += [one.number] * len(donors)
            donor += donors
        pictures = torch.cat(results)
        photos = np.array(photo)
        donors_of = np.array(donor)
        upper = np.triu(np.ones((len(photos), len(photos)), bool), 1)
        same_photo = photos[:, None] == photos[None]
        same_donor = donors_of[:, None] == donors_of[None]
        kinds = {
            "two donors on one photo": upper & same_photo & ~same_donor,
            "one donor on two persons": upper & ~same_photo & same_donor,
            "two donors on two persons": upper & ~same_photo & ~same_donor,
        }
        print(f"{len(photos)} pictures: {len(people)} photos, {len(photos) / len(people):.1f} donors each")
        known = from_bytes(torch.from_numpy(np.stack(originals)))
        for judge in judges:
            threshold = judge.threshold(embedded(judge, known), torch.tensor(person))
            seen = embedded(judge, pictures)
            scores = judge.compare(seen, seen).numpy()
            print(judge.name)
            for name, pairs in kinds.items():
                print(f"  {name}: {(scores[pairs] > threshold).mean():.3f} of {pairs.sum()} pairs are alike")
            alike = scores > threshold
            by_photo = []
            for number in np.unique(photos):
                own = kinds["two donors on one photo"] & (photos == number)[:, None]
                by_photo.append(alike[own].mean())
            print(f"  two donors on one photo, by photo: {min(by_photo):.2f} to {max(by_photo):.2f}")


if __name__ == "__main__":
    main()
