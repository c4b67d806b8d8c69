"""How often is a person recognised whose face became somebody's who has nothing to do with them?

  python examples/unrelated_strangers.py --pictures PERSONS --mobilefacenet 068.ckpt --sheet sheet.png

PERSONS holds FFHQ-aligned pictures, a folder a person. Methods on photo128_prior draw a face in the frame of its mesh.
Hair, head, pose and the code's first numbers (light and skin) stay. Here the other numbers are not the person's own
under a key, but those of somebody else: of another person of the set, or of nobody, as the prior draws people. What
hides better than this leads away from the person, and then wrong keys lead back. Each judge has its threshold at a
false accept rate of 1e-2. Keep the sheet away from what is published: it shows real persons.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.in_frame import in_use
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.networks.keyed import stretched
from faceanon.report.sheets import png_bytes, sheet
from faceanon.studies.photographs.judges import Judge, dlib_resnet, mobilefacenet
from faceanon.studies.photographs.people import find_people, read_faces

BUNDLE = "photo128_prior"
SIDE = 128
BATCH = 12
SHOWN = 12  # pictures on the sheet


class Faces:
    """Pictures of persons, and their codes as the encoder reads them.

    Args:
        image: `(N, 3, S, S)` in [-1, 1].
        person: `(N,)`, whom they show.
    """

    def __init__(self, image: Tensor, person: Tensor) -> None:
        self.image = image
        self.person = person
        # Without what DBAF learns: nothing is taken from the code or added to it.
        self.method = DBAF(BUNDLE, cid_depth=0, maar=False).eval()
        self.framed = in_use(self.method)
        self.codes = [self.framed.encode(part) for part in torch.split(image, BATCH)]
        self.identity = torch.cat([item.identity for item in self.codes])

    def another_persons(self, generator: torch.Generator) -> Tensor:
        """For each picture the code `(N, L, D)` of a picture of another person, drawn at random."""
        chosen = []
        for label in self.person:
            others = (self.person != label).nonzero()[:, 0]
            chosen.append(others[torch.randint(len(others), (), generator=generator)])
        return self.identity[torch.stack(chosen)]

    def nobodys(self, generator: torch.Generator) -> Tensor:
        """For each picture the code `(N, L, D)` of a person whom the prior makes up."""
        drawn = torch.randn(len(self.identity), self.identity.shape[2], generator=generator)
        code: Tensor = self.method.generator.style(drawn)
        return code[:, None].expand_as(self.identity)

    def drawn_as(self, stranger: Tensor, kept: int) -> Tensor:
        """The pictures with strangers' faces, as files of 8 bits hold them.

        Args:
            stranger: `(N, L, D)`.
            kept: First numbers of a code that stay the person's own.
        """
        mixed = torch.cat([self.identity[..., :kept], stranger[..., kept:]], -1)
        pictures = []
        for item, code in zip(self.codes, torch.split(mixed, BATCH), strict=True):
            pictures.append(from_bytes(to_bytes(self.framed.decode(item.with_identity(code)))))
        return torch.cat(pictures)


class Seen:
    """What a judge sees in the originals.

    Args:
        judge: Who compares pictures.
        faces: The originals.
    """

    def __init__(self, judge: Judge, faces: Faces) -> None:
        self.judge = judge
        self.originals = judge.embed(faces.image)
        self.threshold = judge.threshold(self.originals, faces.person)

    def recognised(self, pictures: Tensor) -> float:
        """The share of pictures in which the person of the original is accepted."""
        scores = self.judge.compare_rows(self.judge.embed(pictures), self.originals)
        return (scores > self.threshold).float().mean().item()


def main() -> None:
    """Print the table, and write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument("--mobilefacenet", type=Path, metavar="FILE", help="public checkpoint of the judge")
    parser.add_argument("--limit", type=int, default=2, metavar="N", help="pictures of a person (%(default)s)")
    parser.add_argument("--strangers", type=int, default=4, metavar="N", help="for each picture (%(default)s)")
    parser.add_argument("--kept", type=int, nargs="+", default=[0, 16, 20], help="first numbers that stay")
    parser.add_argument("--stretch", type=float, nargs="+", default=[1.0, 1.5], help="from the mean (%(default)s)")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="a PNG with the first pictures")
    arguments = parser.parse_args()

    judges: list[Judge] = [dlib_resnet()]
    if arguments.mobilefacenet is not None:
        judges.insert(0, mobilefacenet(arguments.mobilefacenet))
    people = find_people(arguments.pictures, None, arguments.limit)
    with torch.inference_mode():
        faces = Faces(*read_faces(people, SIDE))
        seen = [Seen(judge, faces) for judge in judges]
        sources: dict[str, Callable[[torch.Generator], Tensor]] = {
            "another person's": faces.another_persons,
            "nobody's": faces.nobodys,
        }
        rows = {"original": faces.image}
        print(f"| whose numbers | first that stay | stretch | {' | '.join(judge.name for judge in judges)} |")
        print(f"|{'---|' * (len(judges) + 3)}")
        for name, kept, stretch in itertools.product(sources, arguments.kept, arguments.stretch):
            # The same strangers in every row.
            generator = torch.Generator().manual_seed(0)
            shares = torch.zeros(len(judges))
            for _ in range(arguments.strangers):
                pictures = faces.drawn_as(stretched(sources[name](generator), stretch, 0), kept)
                shares += torch.tensor([judge.recognised(pictures) for judge in seen])
            rows[f"{name}, {kept} stay, {stretch:g}"] = pictures
            figures = " | ".join(f"{share:.3f}" for share in shares / arguments.strangers)
            print(f"| {name} | {kept} | {stretch:g} | {figures} |", flush=True)
    print(f"{len(faces.image)} pictures of {len(people)} persons, {arguments.strangers} strangers each")
    if arguments.sheet is not None:
        chosen = torch.linspace(0, len(faces.image) - 1, SHOWN).long()
        arguments.sheet.write_bytes(png_bytes(sheet({name: shown[chosen] for name, shown in rows.items()})))


if __name__ == "__main__":
    main()
