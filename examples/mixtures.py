"""What stage 1 has separated: each person drawn with the next one's attributes, looked at by independent judges.

  python examples/mixtures.py MODEL --pictures PERSONS --mobilefacenet 068.ckpt --sheet sheet.png

MODEL is a folder that a `DisentangleStage` exports or its .ckpt; PERSONS holds FFHQ-aligned pictures, a folder a
person, whom no training saw; one picture of each person is taken. A mixture should be taken for the person whose
identity it has, and have yaw, pitch and mouth of the one whose attributes it has. A judge takes two pictures for one
person from its threshold at a false accept rate of 1e-2 on. Keep the sheet away from what is published: it shows real
persons.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from faceanon.landmarks.expression import expression
from faceanon.landmarks.mesh import FaceMesh
from faceanon.metrics.quality import psnr
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.models import load_backbone
from faceanon.report.sheets import png_bytes, sheet
from faceanon.studies.photographs.judges import dlib_resnet, mobilefacenet, shipped_recogniser
from faceanon.studies.photographs.people import find_people, read_faces
from faceanon.weights.bundle import Bundle

BATCH = 12
SHOWN = 12  # persons on the sheet
KNOWN = 3  # pictures of a person that set the judges' thresholds


def places(mesh: FaceMesh, pictures: Tensor) -> dict[str, Tensor]:
    """Yaw, pitch and mouth of pictures, each `(N,)`."""
    points, _ = mesh.points(to_bytes(pictures).numpy())
    return expression(torch.from_numpy(points))


def main() -> None:
    """Print the table, and write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument("--mobilefacenet", type=Path, metavar="FILE", help="public checkpoint of the judge")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="a PNG with the first persons")
    arguments = parser.parse_args()
    method = load_backbone(arguments.model)[0].eval()
    known, person = read_faces(find_people(arguments.pictures, None, KNOWN), method.image_size)
    judges = [dlib_resnet(), shipped_recogniser(Bundle("photo128"), method.bundle)]
    if arguments.mobilefacenet is not None:
        judges.insert(0, mobilefacenet(arguments.mobilefacenet))
    first = torch.tensor([int((person == number).nonzero()[0]) for number in person.unique()])
    image = known[first]
    drawn = []
    mixed = []
    with torch.inference_mode():
        whole = torch.cat([method.encode(part).identity for part in image.split(BATCH)])
        # Person n lends the identity to person n + 1.
        lent = whole.roll(1, 0)
        for part, identity in zip(image.split(BATCH), lent.split(BATCH), strict=True):
            codes = method.encode(part)
            drawn.append(method.decode(codes))
            mixed.append(method.decode(codes.with_identity(identity)))
        # Through the bytes of a file, as everything that is published.
        plain = from_bytes(to_bytes(torch.cat(drawn)))
        mixture = from_bytes(to_bytes(torch.cat(mixed)))
        source = image.roll(1, 0)
        print("| | plain reconstruction | mixture to its identity source | mixture to its attribute source |")
        print("|---|---|---|---|")
        for judge in judges:
            everybody = judge.embed(known)
            threshold = judge.threshold(everybody, person)
            own = everybody[first]
            shares = []
            for seen, wanted in ((plain, own), (mixture, own.roll(1, 0)), (mixture, own)):
                same = judge.compare_rows(judge.embed(seen), wanted) > threshold
                shares.append(f"{same.float().mean():.3f}")
            print(f"| recognised, {judge.name}{' (white box)' if judge.white_box else ''} | {' | '.join(shares)} |")
    mesh = FaceMesh()
    shown = places(mesh, mixture)
    of_identity = places(mesh, source)
    of_attributes = places(mesh, image)
    again = places(mesh, plain)
    for name in shown:
        row = []
        for values, wanted in ((again, of_attributes), (shown, of_identity), (shown, of_attributes)):
            row.append(f"{float(np.corrcoef(values[name], wanted[name])[0, 1]):.3f}")
        print(f"| correlation of {name} | {' | '.join(row)} |")
    fidelity = psnr(((plain - image) / 2).square().flatten(1).mean(1)).mean()
    print(f"{len(image)} persons; plain reconstructions at {fidelity:.2f} dB")
    if arguments.sheet is not None:
        chosen = torch.arange(min(SHOWN, len(image)))
        rows = {
            "identity": source[chosen],
            "attributes": image[chosen],
            "mixture": mixture[chosen],
            "plain": plain[chosen],
        }
        arguments.sheet.write_bytes(png_bytes(sheet(rows)))


if __name__ == "__main__":
    main()
