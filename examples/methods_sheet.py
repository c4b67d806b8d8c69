"""The same eight synthetic photographs by several methods, each with what the right key brings back.

  python examples/methods_sheet.py sheet.webp dbaf=runs/dbaf_photo128_s2/model ifadit=runs/ifadit_s2/model blur=blur

Photographs are the first of those that ship for the test. Every method has its first key of the same seed. What is
recovered comes from the picture of 8 bits.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.data.prepared import shipped_faces, shipped_pictures
from faceanon.methods import method
from faceanon.metrics.saved import saved
from faceanon.report.sheets import sheet
from faceanon.weights.bundle import Bundle
from faceanon.weights.spec import bundle_path

BUNDLE = "photo128"
COUNT = 8
SIDE = 128


@torch.inference_mode()
def rows_of(name: str, backbone: Backbone, faces: Tensor) -> dict[str, Tensor]:
    """The pictures that a method makes of faces `(B, 3, S, S)`."""
    key = backbone.sample_key(len(faces), torch.Generator().manual_seed(0))
    hidden = saved(backbone.anonymize(faces, key))
    rows = {name: hidden}
    if backbone.recovers_from_pictures:
        rows[f"{name}, recovered"] = saved(backbone.recover(hidden, key))
    return rows


def main() -> None:
    """Draw what the command line says."""
    if len(sys.argv) < 3 or not all("=" in word for word in sys.argv[2:]):
        sys.exit(__doc__)
    bundle = Bundle(BUNDLE)
    faces = shipped_faces(bundle, shipped_pictures(bundle, "test")[:COUNT], SIDE)
    rows = {"original": faces}
    for word in sys.argv[2:]:
        name, model = word.split("=", 1)
        # Loaded outside of inference mode: FALCO takes gradients through its networks.
        rows |= rows_of(name, method(model, bundle_path(BUNDLE)), faces)
    sheet(rows, scale=1).save(sys.argv[1], quality=85)


if __name__ == "__main__":
    main()
