"""Frames of clips with faces put on, and redrawn as clips are: who is recognised, and how much the new faces flicker.

  python examples/clip_redrawing.py --clips FRAMES --pictures PERSONS --mobilefacenet 068.ckpt

FRAMES holds a folder a clip, with cut-out faces of one person, frame after frame. PERSONS holds FFHQ-aligned pictures,
a folder a person: the judges' thresholds come from the first two of each, as in `faceanon report photographs`. Flicker
is how much the new face changes from frame to frame, over what the original's did. One password serves all clips.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from unittest.mock import patch

import torch
from torch import Tensor
from tqdm import tqdm

from faceanon.backbones.persona import Persona
from faceanon.key import Secret
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.models import load_backbone
from faceanon.pipeline.video.faces import EVERY
from faceanon.pipeline.video.flicker import FlickerMeter
from faceanon.studies.photographs.judges import accepted, dlib_resnet, mobilefacenet
from faceanon.studies.photographs.people import find_people, read_faces

MODEL = "persona_photo128"
SIDE = 128
WAYS = {"put on": False, "redrawn": True}


@torch.inference_mode()
def strangers(method: Persona, frames: Tensor, key: Tensor) -> dict[str, Tensor]:
    """A clip's frames `(N, 3, S, S)` with a stranger's face, put on and redrawn, as files of 8 bits hold them."""
    code = method.encode(frames).identity.mean(0)
    code = method.unlike(frames[::EVERY], code, key)
    every = (code.expand(len(frames), -1), key.expand(len(frames), -1, -1))
    found = {}
    for name, redraws in WAYS.items():
        with patch.object(method, "redraws", redraws):
            drawn = method.anonymize_as(frames, *every)
        # NaN is where no face was made out: there the photograph stays as it is.
        found[name] = from_bytes(to_bytes(torch.where(drawn.isnan(), frames, drawn)))
    return found


def main() -> None:
    """Print a line for either way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, required=True, metavar="DIR", help="a folder of frames a clip")
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument("--mobilefacenet", type=Path, required=True, metavar="FILE", help="weights of the first judge")
    arguments = parser.parse_args()
    method, _ = load_backbone(MODEL)
    assert isinstance(method, Persona)
    method.eval()
    judges = [mobilefacenet(arguments.mobilefacenet), dlib_resnet()]
    people, person = read_faces(find_people(arguments.pictures, None, 2), SIDE)
    limits = [judge.threshold(judge.embed(people), person) for judge in judges]
    key = method.key_from_secret(Secret.random(0), 1)
    flicker = {name: FlickerMeter() for name in WAYS}
    hits: dict[str, list[Tensor]] = {name: [] for name in WAYS}
    clips, clip = read_faces(find_people(arguments.clips), SIDE)
    numbers = range(int(clip.max()) + 1)
    for track in tqdm(numbers, unit="clip"):
        frames = clips[clip == track]
        known = [judge.embed(frames) for judge in judges]
        for name, drawn in strangers(method, frames, key).items():
            for number, (before, after) in enumerate(zip(frames, drawn, strict=True)):
                flicker[name].add(track, number, before, after)
            hits[name].append(accepted(judges, limits, known, drawn))
    for name in WAYS:
        rates = torch.cat(hits[name]).mean(0).tolist()
        told = ", ".join(f"{rate:.3f}" for rate in rates)
        lively = []
        for track in numbers:
            figure = flicker[name].of(track)
            # None for a clip that stands still.
            if figure is not None:
                lively.append(figure)
        print(f"{name}: recognised {told} of {len(torch.cat(hits[name]))} frames;", end=" ")
        print(f"flicker {mean(lively):.3f} ({min(lively):.3f} to {max(lively):.3f})")


if __name__ == "__main__":
    main()
