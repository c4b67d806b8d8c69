"""Whom a denied wrong password shows: how often the original person is recognised behind the second stranger.

  python examples/denied_strangers.py --pictures PERSONS --mobilefacenet 068.ckpt

PERSONS holds FFHQ-aligned pictures, a folder a person. Each is anonymized under one key and saved, and a second
stranger is put on the first under another key, in three ways: `unguessed` looks at the first stranger alone, `as it
ships` also avoids whom the surroundings ask for, and `known` avoids the person, whom nobody knows who has the picture
alone. Judges accept from their thresholds at a false accept rate of 1e-2 on, as in `faceanon report photographs`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor
from tqdm import tqdm

from faceanon.backbones.persona import Persona
from faceanon.key import Secret
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.models import load_backbone
from faceanon.studies.photographs.judges import accepted, dlib_resnet, mobilefacenet
from faceanon.studies.photographs.people import find_people, read_faces

MODEL = "persona_photo128"
SIDE = 128
BATCH = 12


def drawn(way: Callable[[Tensor, Tensor], Tensor], pictures: Tensor, key: Tensor) -> Tensor:
    """Pictures `(B, 3, S, S)` with strangers as files of 8 bits hold them; as they are where no face is made out."""
    made = way(pictures, key.expand(len(pictures), -1, -1))
    return from_bytes(to_bytes(torch.where(made.isnan(), pictures, made)))


@torch.inference_mode()
def strangers(method: Persona, faces: Tensor, right: Tensor, wrong: Tensor) -> dict[str, Tensor]:
    """Faces `(B, 3, S, S)` anonymized, and the three ways of a second stranger on each."""
    first = drawn(method.anonymize, faces, right)
    persons = method.bundle.recogniser(faces)
    found = {"anonymized": first}
    found["unguessed"] = drawn(method.anonymize, first, wrong)
    found["as it ships"] = drawn(method.deny, first, wrong)
    with patch.object(method, "_guessed", lambda codes: persons):
        found["known"] = drawn(method.deny, first, wrong)
    return found


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument("--mobilefacenet", type=Path, required=True, metavar="FILE", help="weights of the first judge")
    parser.add_argument("--limit", type=int, default=4, help="pictures of a person (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of the two keys (default: 0)")
    arguments = parser.parse_args()
    method, _ = load_backbone(MODEL)
    assert isinstance(method, Persona)
    method.eval()
    judges = [mobilefacenet(arguments.mobilefacenet), dlib_resnet()]
    few, person = read_faces(find_people(arguments.pictures, None, 2), SIDE)
    limits = [judge.threshold(judge.embed(few), person) for judge in judges]
    keys = [method.key_from_secret(Secret.random(2 * arguments.seed + one), 1) for one in range(2)]
    faces, _ = read_faces(find_people(arguments.pictures, None, arguments.limit), SIDE)
    hits: dict[str, list[Tensor]] = {}
    for some in tqdm(faces.split(BATCH), unit="batch"):
        known = [judge.embed(some) for judge in judges]
        for name, pictures in strangers(method, some, *keys).items():
            hits.setdefault(name, []).append(accepted(judges, limits, known, pictures))
    for name, rates in hits.items():
        told = ", ".join(f"{rate:.3f}" for rate in torch.cat(rates).mean(0).tolist())
        print(f"{name}: recognised {told} of {len(faces)} pictures")


if __name__ == "__main__":
    main()
