"""Does a prior of photographs draw the person? Reconstructions of real persons, looked at by independent judges.

  python examples/prior_recognised.py BUNDLE --pictures PERSONS --mobilefacenet 068.ckpt --sheet sheet.png

BUNDLE is what `faceanon fit --config configs/prior_photo128.yaml` exports; PERSONS holds FFHQ-aligned pictures, a
folder a person, whom no training saw. Each picture is drawn from the first row of its w+ code, from all of it, with
encoder features around the oval of configs/features/photo128_oval.yaml, and with features everywhere; the codec's own
round trip is the most that can be reached. A judge takes two pictures for one person from its threshold at a false
accept rate of 1e-2 on. Keep the sheet away from what is published: it shows real persons.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from faceanon.backbones.region import inside_oval
from faceanon.files import load_tensors
from faceanon.metrics.quality import psnr
from faceanon.metrics.recognition import threshold_at_far
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.networks.attention import MAAR
from faceanon.report.sheets import png_bytes, sheet
from faceanon.stages.prior import MAAR_FILE
from faceanon.studies.photographs.figures import FAR
from faceanon.studies.photographs.judges import Judge, dlib_resnet, mobilefacenet, shipped_recogniser
from faceanon.studies.photographs.people import find_people, read_faces
from faceanon.weights.bundle import Bundle

OVAL = (0.5625, 0.5, 0.375, 0.29375)
SIDE = 128
BATCH = 16
SHOWN = 12  # pictures on the sheet


class Drawer:
    """Draws latents in several ways.

    Args:
        bundle: With generator, encoder and codec.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.generator = bundle.generator().eval()
        self.encoder = bundle.encoder().eval()
        self.maar = MAAR(self.encoder.feature_channels, self.generator.channels).eval()
        self.maar.load_state_dict(load_tensors(bundle.folder / MAAR_FILE))

    def ways(self, latents: Tensor) -> dict[str, Tensor]:
        """Latents `(B, 32, h, h)` drawn again, by the name of the way."""
        codes, maps = self.encoder.with_features(latents)
        codes = codes + self.bundle.latent_avg
        first = codes[:, :1].expand(-1, codes.shape[1], -1)
        everywhere = self.generator.draw(codes, features=self.maar(maps))
        alone = self.generator.draw(codes)
        # As DBAF draws: w+ alone within the oval, features too around it.
        oval = inside_oval(OVAL, latents)
        return {
            "the first row alone": self.generator.draw(first),
            "w+ alone": alone,
            "w+ in the oval, features around it": torch.where(oval, alone, everywhere),
            "w+ and features": everywhere,
            "the codec alone": latents,
        }


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
    judges: list[Judge] = [dlib_resnet(), shipped_recogniser(bundle, bundle)]
    if arguments.mobilefacenet is not None:
        judges.insert(0, mobilefacenet(arguments.mobilefacenet))
    image, person = read_faces(find_people(arguments.pictures, None, arguments.limit), SIDE)
    drawer = Drawer(bundle)
    drawn: dict[str, list[Tensor]] = {}
    with torch.inference_mode():
        for part in image.split(BATCH):
            for name, latents in drawer.ways(bundle.codec.encode(part)).items():
                # Through the bytes of a file, as everything that is published.
                picture = from_bytes(to_bytes(bundle.codec.decode(latents)))
                drawn.setdefault(name, []).append(picture)
        pictures = {name: torch.cat(parts) for name, parts in drawn.items()}
        columns = [f"{judge.name}{' (white box)' if judge.white_box else ''}" for judge in judges]
        print(f"| drawn from | {' | '.join(columns)} | PSNR |\n|---|{'---|' * (len(columns) + 1)}")
        thresholds = []
        originals = []
        for judge in judges:
            originals.append(judge.embed(image))
            thresholds.append(threshold_at_far(judge.impostors(originals[-1], person), FAR))
        for name, shown in pictures.items():
            shares = []
            for judge, original, threshold in zip(judges, originals, thresholds, strict=True):
                same = judge.compare_rows(judge.embed(shown), original) > threshold
                shares.append(f"{same.float().mean():.3f}")
            error = ((shown - image) / 2).square().flatten(1).mean(1)
            print(f"| {name} | {' | '.join(shares)} | {psnr(error).mean():.2f} dB |")
    print(f"{len(image)} pictures of {len(person.unique())} persons")
    if arguments.sheet is not None:
        chosen = torch.linspace(0, len(image) - 1, SHOWN).long()
        rows = {"original": image[chosen]} | {name: shown[chosen] for name, shown in pictures.items()}
        arguments.sheet.write_bytes(png_bytes(sheet(rows)))


if __name__ == "__main__":
    main()
