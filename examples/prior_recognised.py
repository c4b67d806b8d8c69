"""Does a prior of photographs draw the person? Reconstructions of real persons, looked at by independent judges.

  python examples/prior_recognised.py BUNDLE --pictures PERSONS --mobilefacenet 068.ckpt --sheet sheet.png

BUNDLE is what `faceanon fit --config configs/prior.yaml` exports; PERSONS holds FFHQ-aligned pictures, a
folder a person, whom no training saw. Each face is drawn in the bundle's frame from the first row of its w+ code and
from all of it, with encoder features where the bundle has a network for them, and put back; the codec's own round trip
is the most that can be reached. A judge takes two pictures for one person from its threshold at a false
accept rate of 1e-2 on. Keep the sheet away from what is published: it shows real persons.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from faceanon.metrics.quality import psnr
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.report.sheets import png_bytes, sheet
from faceanon.studies.photographs.judges import Judge, accepted, dlib_resnet, mobilefacenet, shipped_recogniser
from faceanon.studies.photographs.people import find_people, read_faces
from faceanon.weights.bundle import Bundle

SIDE = 128
BATCH = 16
SHOWN = 12  # pictures on the sheet


class Drawer:
    """Draws pictures in several ways.

    Args:
        bundle: With generator, encoder and codec, and for features a `maar`.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.generator = bundle.generator().eval()
        self.encoder = bundle.encoder().eval()
        self.maar = bundle.build("maar").eval() if bundle.has("maar") else None

    def ways(self, image: Tensor) -> dict[str, Tensor]:
        """Pictures `(B, 3, S, S)` drawn again, by the name of the way."""
        frame = self.bundle.frame
        if frame is None:
            return {name: self.bundle.codec.decode(drawn) for name, drawn in self.latents(image).items()}
        mesh = self.bundle.landmarks(image)
        way = frame.way(mesh, image.shape[-1])
        pictures = {}
        for name, drawn in self.latents(frame.cut(image, mesh)).items():
            pictures[name] = frame.put(self.bundle.codec.decode(drawn).float().clamp(-1, 1), image, way)
        return pictures

    def latents(self, face: Tensor) -> dict[str, Tensor]:
        """Latents of faces as the generator draws them, by the name of the way."""
        latents = self.bundle.codec.encode(face)
        codes, maps = self.encoder.with_features(latents)
        codes = codes + self.bundle.latent_avg
        first = codes[:, :1].expand(-1, codes.shape[1], -1)
        drawn = {"the first row alone": self.generator.draw(first), "w+ alone": self.generator.draw(codes)}
        if self.maar is not None:
            drawn["w+ and features"] = self.generator.draw(codes, features=self.maar(maps))
        return drawn | {"the codec alone": latents}


def main() -> None:
    """Print the table, and write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument("--mobilefacenet", type=Path, metavar="FILE", help="public checkpoint of the judge")
    parser.add_argument("--limit", type=int, default=3, metavar="N", help="pictures of a person (%(default)s)")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="a PNG with the first pictures")
    arguments = parser.parse_args()
    bundle = Bundle(arguments.bundle)
    judges: list[Judge] = [dlib_resnet(), shipped_recogniser(Bundle("photo128"), bundle)]
    if arguments.mobilefacenet is not None:
        judges.insert(0, mobilefacenet(arguments.mobilefacenet))
    image, person = read_faces(find_people(arguments.pictures, None, arguments.limit), SIDE)
    drawer = Drawer(bundle)
    drawn: dict[str, list[Tensor]] = {}
    with torch.inference_mode():
        for part in image.split(BATCH):
            for name, picture in drawer.ways(part).items():
                # Through the bytes of a file, as everything that is published.
                drawn.setdefault(name, []).append(from_bytes(to_bytes(picture)))
        pictures = {name: torch.cat(parts) for name, parts in drawn.items()}
        columns = [f"{judge.name}{' (white box)' if judge.white_box else ''}" for judge in judges]
        print(f"| drawn from | {' | '.join(columns)} | PSNR |\n|---|{'---|' * (len(columns) + 1)}")
        thresholds = []
        originals = []
        for judge in judges:
            originals.append(judge.embed(image))
            thresholds.append(judge.threshold(originals[-1], person))
        for name, shown in pictures.items():
            shares = [f"{share:.3f}" for share in accepted(judges, thresholds, originals, shown).mean(0).tolist()]
            error = ((shown - image) / 2).square().flatten(1).mean(1)
            print(f"| {name} | {' | '.join(shares)} | {psnr(error).mean():.2f} dB |")
    print(f"{len(image)} pictures of {len(person.unique())} persons")
    if arguments.sheet is not None:
        chosen = torch.linspace(0, len(image) - 1, SHOWN).long()
        rows = {"original": image[chosen]} | {name: shown[chosen] for name, shown in pictures.items()}
        arguments.sheet.write_bytes(png_bytes(sheet(rows)))


if __name__ == "__main__":
    main()
