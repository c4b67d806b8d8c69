"""What the tests of the papers' tables share."""

import torch
import yaml
from PIL import Image

from faceanon.metrics.protocol import folder
from metrics.metric_fakes import Shift

ALL = ["dbaf-1", "dbaf-2", "dbaf-3", "dbaf-4", "hford-1", "hford-2", "hford-3", "hford-4"]
ALL += ["ifadit-1", "ifadit-2", "ifadit-3", "ifadit-4", "ifadit-5"]


def shift():
    """An ideal method, with weights that one can change."""
    backbone = Shift()
    backbone.init_args = {"bundle": "fake"}
    backbone.weight = torch.nn.Parameter(torch.ones(1))
    return backbone


def small_protocol(place):
    """The protocol of the photographs that ship, at 64 px and without detectors, as a file in a folder."""
    written = yaml.safe_load((folder() / "photo128-v1.yaml").read_text())
    written["pictures"]["image_size"] = 64
    written["detectors"] = []
    path = place / "small.yaml"
    path.write_text(yaml.safe_dump(written))
    return str(path)


def plain_photographs(folder):
    """Two persons, three plain pictures each, in a new folder."""
    for person in ("anna", "ben"):
        (folder / person).mkdir(parents=True)
        for number in range(3):
            colour = (40 * number, 90 if person == "anna" else 200, 10)
            Image.new("RGB", (32, 32), colour).save(folder / person / f"{number}.png")
    return folder
