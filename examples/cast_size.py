"""What more donors would bring: the figures of Persona with a part of its cast, as a table.

  python examples/cast_size.py --pictures PERSONS --mobilefacenet 068.ckpt

PERSONS holds FFHQ-aligned pictures, a folder a person; the first two of each are taken, under two keys. A part of the
cast is drawn at random, three times for each size. A judge takes two pictures for one person from its threshold at a
false accept rate of 1e-2 on, of the originals. Figures of several judges stand beside each other.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from faceanon.backbones.persona import Persona
from faceanon.data.files import read_photo
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.models import load_backbone
from faceanon.studies.photographs.judges import Judge, dlib_resnet, mobilefacenet
from faceanon.studies.photographs.people import find_people

SIDE = 128
BATCH = 12
PICTURES = 2  # a person
KEYS = 2
DRAWS = 3  # parts of one size
FIGURES = ("recognised", "two keys alike", "a wrong password denied, recognised")


def embedded(judge: Judge, pictures: Tensor) -> Tensor:
    """What a judge sees in pictures `(N, 3, S, S)`."""
    parts = []
    for start in range(0, len(pictures), BATCH):
        parts.append(judge.embed(pictures[start : start + BATCH]))
    return torch.cat(parts)


def anonymized(method: Persona, faces: Tensor, seed: int) -> Tensor:
    """Faces `(N, 3, S, S)` under a key each, as a file keeps them; NaN where the method does not fit."""
    numbers = torch.Generator().manual_seed(seed)
    drawn = []
    for start in range(0, len(faces), BATCH):
        part = faces[start : start + BATCH]
        drawn.append(method.anonymize(part, method.sample_key(len(part), numbers)))
    pictures = torch.cat(drawn)
    saved = from_bytes(to_bytes(pictures.nan_to_num()))
    return torch.where(pictures.isfinite(), saved, torch.nan)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument("--mobilefacenet", type=Path, metavar="FILE", help="public checkpoint of a judge")
    parser.add_argument("--sizes", nargs="+", type=int, default=[15, 30, 60, 120, 182], metavar="N")
    arguments = parser.parse_args()
    method, _ = load_backbone("persona_photo128")
    assert isinstance(method, Persona)
    judges = [dlib_resnet()]
    if arguments.mobilefacenet is not None:
        judges.insert(0, mobilefacenet(arguments.mobilefacenet))
    pixels = []
    person = []
    for one in find_people(arguments.pictures, None, PICTURES):
        for picture in one.pictures:
            pixels.append(read_photo(picture.path, SIDE)[0])
            person.append(one.number)
    faces = from_bytes(torch.from_numpy(np.stack(pixels)))
    # Those with closed lips and those who laugh, who are put on people who laugh.
    everybody = np.concatenate([method.cast.closed, method.cast.open])
    laughing = method.cast.open
    heads = ["donors"]
    for what in FIGURES:
        for judge in judges:
            heads.append(f"{what}, {judge.name}")
    print("| " + " | ".join(heads) + " |", flush=True)
    with torch.inference_mode():
        known = [embedded(judge, faces) for judge in judges]
        thresholds = []
        for judge, seen in zip(judges, known, strict=True):
            thresholds.append(judge.threshold(seen, torch.tensor(person)))
        for size in arguments.sizes:
            found = []
            for draw in range(DRAWS if size < len(everybody) else 1):
                chosen = np.random.default_rng(draw).choice(everybody, min(size, len(everybody)), replace=False)
                method.cast.open = np.intersect1d(chosen, laughing)
                method.cast.closed = np.setdiff1d(chosen, laughing)
                found.append(figures(method, faces, judges, known, thresholds))
            mean = np.mean(found, axis=0)
            print(f"| {size} | " + " | ".join(f"{value:.3f}" for value in mean) + " |", flush=True)


def figures(
    method: Persona, faces: Tensor, judges: list[Judge], known: list[Tensor], thresholds: list[float]
) -> list[float]:
    """The row of one part of the cast.

    Args:
        method: The model, with that part.
        faces: The originals, `(N, 3, S, S)`.
        judges: Those whose figures stand in the row.
        known: What each of them sees in the originals.
        thresholds: From where each of them takes two pictures for one person.
    """
    results = [anonymized(method, faces, key) for key in range(KEYS)]
    # A wrong password that is denied anonymizes what it finds once more.
    results.append(anonymized(method, results[0].nan_to_num(), KEYS))
    shown = torch.stack([result.flatten(1).isfinite().all(1) for result in results]).all(0)
    by_judge = []
    for judge, originals, threshold in zip(judges, known, thresholds, strict=True):
        first, second, denied = (embedded(judge, result[shown]) for result in results)
        shares = []
        for one, other in ((first, originals[shown]), (first, second), (denied, originals[shown])):
            shares.append(float((judge.compare(one, other).diagonal() > threshold).float().mean()))
        by_judge.append(shares)
    # Figure by figure, the judges beside each other.
    return np.array(by_judge).T.ravel().tolist()


if __name__ == "__main__":
    main()
