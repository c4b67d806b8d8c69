"""Jittered crops: image and parsing move together, only in training."""

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from PIL import Image

from faceanon.data.folder import FolderFaces
from faceanon.data.jitter import CropJitter
from faceanon.data.streams import stream
from faceanon.errors import UserError
from faceanon.types import FaceBatch

SIDE = 64


def spots(rows=8):
    """Blurred spots of three colours at three points; the parsing numbers their surroundings."""
    points = torch.tensor([[-0.4, -0.3], [0.35, -0.25], [0.1, 0.45]]).expand(rows, 3, 2)
    steps = (torch.arange(SIDE) + 0.5) / SIDE * 2 - 1
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    distance = torch.stack([(x - px) ** 2 + (y - py) ** 2 for px, py in points[0].tolist()])  # (3, S, S)
    image = (torch.exp(-distance / 0.02) * 2 - 1).expand(rows, 3, SIDE, SIDE)
    near, nearest = distance.min(0)
    parsing = torch.where(near < 0.02, nearest + 1, 0).expand(rows, SIDE, SIDE)
    labels = torch.arange(rows)
    return FaceBatch(image.clone(), labels, labels, parsing.clone())


def centres(weight):
    """Centre of mass `(B, 2)` of non-negative `(B, S, S)`."""
    steps = (torch.arange(SIDE) + 0.5) / SIDE * 2 - 1
    total = weight.sum((1, 2))
    return torch.stack([(weight.sum(1) * steps).sum(1), (weight.sum(2) * steps).sum(1)], 1) / total[:, None]


def test_no_jitter_leaves_the_batch_alone():
    batch = spots()
    assert CropJitter()(batch, stream("x")) is batch
    assert not CropJitter()
    still = CropJitter(shift=1e-9)(batch, stream("x"))
    torch.testing.assert_close(still.image, batch.image, atol=1e-5, rtol=0)
    assert torch.equal(still.parsing, batch.parsing)


@pytest.mark.parametrize(
    "jitter", [CropJitter(scale=0.3), CropJitter(shift=0.06), CropJitter(rotation=20), CropJitter(0.1, 0.06, 5)]
)
def test_image_and_parsing_move_together(jitter):
    batch = spots()
    moved = jitter(batch, stream("x"))
    for point in range(3):
        before = centres((batch.image[:, point] + 1) / 2)
        seen = centres((moved.image[:, point] + 1) / 2)
        assert (seen - before).norm(dim=-1).max() > 0.05
        labelled = centres((moved.parsing == point + 1).float())
        torch.testing.assert_close(labelled, seen, atol=2 / SIDE, rtol=0)
    assert moved.parsing.dtype == torch.int64
    assert torch.equal(moved.identity, batch.identity)


def test_the_settings_are_the_largest_changes():
    crops = CropJitter(0.1, 0.06, 5).draw(4000, stream("x"))
    side = crops[:, :, 0].norm(dim=1)
    angle = torch.atan2(crops[:, 1, 0], crops[:, 0, 0]).rad2deg()
    for drawn, most in ((side - 1, 0.1), (crops[:, :, 2] / 2, 0.06), (angle, 5.0)):
        assert 0.97 * most < drawn.max() <= most * 1.0001
        assert -0.97 * most > drawn.min() >= -most * 1.0001


@pytest.mark.parametrize("wrong", [{"scale": -0.1}, {"shift": 0.6}, {"rotation": 200.0}])
def test_a_wrong_setting_is_named(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        CropJitter(**wrong)


class Keep(LightningModule):
    """Keeps the pictures that it is given."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = {"train": [], "val": []}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch, batch_idx):
        self.seen["train"].append(batch.image)
        return self.weight.sum()

    def validation_step(self, batch, batch_idx):
        self.seen["val"].append(batch.image)


def train(tmp_path, **settings):
    folder = tmp_path / "faces"
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0)
    for number in range(20):
        Image.fromarray(noise.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / f"{number:02}.png")
    data = FolderFaces(str(folder), image_size=16, batch_size=8, val_fraction=0.1, test_fraction=0.1, **settings)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    model = Keep()
    Trainer(default_root_dir=tmp_path, max_epochs=1, **quiet).fit(model, data)
    return {split: torch.cat(parts) for split, parts in model.seen.items()}, tmp_path


def test_only_training_is_jittered_and_a_second_run_repeats_it(tmp_path):
    plain, _ = train(tmp_path / "plain")
    moved, _ = train(tmp_path / "moved", jitter=CropJitter(0.1, 0.06, 5))
    again, folder = train(tmp_path / "again", jitter=CropJitter(0.1, 0.06, 5))
    assert torch.equal(plain["val"], moved["val"])
    assert (plain["train"] - moved["train"]).abs().amax((1, 2, 3)).min() > 0.01
    assert torch.equal(moved["train"], again["train"])
    (checkpoint,) = folder.rglob("*.ckpt")
    assert torch.load(checkpoint, weights_only=True)["epoch"] == 0  # settings in it are plain numbers


def test_share_of_the_crops_stays_exact():
    drawn = CropJitter(scale=0.2, shift=0.1, rotation=5, share=0.25).draw(400, torch.Generator().manual_seed(0))
    still = (drawn == torch.eye(2, 3)).all((1, 2)).float().mean()
    assert 0.68 < still < 0.82
    assert not CropJitter(scale=0.2, share=0.0)
