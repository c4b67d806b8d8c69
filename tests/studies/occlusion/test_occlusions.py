"""Occluders with a true mask, drawn over photographs."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from faceanon.data.files import list_photos, read_photos
from faceanon.data.prepared import shipped_photos
from faceanon.photo.detect import Detection
from faceanon.photo.yunet import YunetDetector
from faceanon.studies.occlusion.pictures import DRAWN, draw, photo_batches
from faceanon.studies.occlusion.rows import visible

SIZE = 64


@dataclass(frozen=True)
class Faces:
    """Photographs `(B, 3, S, S)` with their five points `(B, 5, 2)`, and numbers to draw from."""

    image: torch.Tensor
    points: torch.Tensor
    numbers: list[int]


@pytest.fixture(scope="module")
def faces():
    """Sixteen photographs that ship; points are found where they are larger."""
    paths = [photo.path for photo in shipped_photos("test")[:16]]
    large = read_photos(paths, 256)
    detector = YunetDetector()
    points = torch.tensor(np.stack([detector.detect(picture)[0].points for picture in large])).float()
    image = torch.from_numpy(read_photos(paths, SIZE)).permute(0, 3, 1, 2).float() / 127.5 - 1
    return Faces(image, points * 2 / 256 - 1, list(range(16)))


def drawn(faces, kind, rows=slice(None), shift=0.0):
    return draw(kind, faces.image[rows], faces.points[rows] + torch.tensor([shift, 0.0]), faces.numbers[rows])


@pytest.mark.parametrize("kind", DRAWN)
def test_a_drawn_occluder_leaves_the_rest_alone(faces, kind):
    made = drawn(faces, kind)
    near = functional.max_pool2d(made.mask[:, None].float(), 5, 1, 2)[:, 0] > 0
    change = (made.image - faces.image).abs().amax(1)
    lenses = kind == "glasses"  # clear ones dim what lies behind them
    assert change[~near].max() < (0.25 if lenses else 1e-6)
    assert change[made.mask].mean() > 0.1
    levels = (made.image + 1) * 127.5
    assert (levels - levels.round()).abs().max() < 1e-3  # as a file holds it


def test_drawn_occluders_lie_where_they_belong(faces):
    points = faces.points
    mouth = points[:, 3:].mean(1, keepdim=True)
    eyes, nose = points[:, :2], points[:, 2:3]
    assert not visible(mouth, drawn(faces, "mask").mask).any()
    assert visible(eyes, drawn(faces, "mask").mask).all()
    assert visible(torch.cat([mouth, nose], 1), drawn(faces, "glasses").mask).all()
    hidden = ~visible(eyes, drawn(faces, "glasses").mask).all(1)
    assert 0 < hidden.sum() < len(hidden)  # dark lenses on some, clear ones on others
    assert visible(eyes, drawn(faces, "hand").mask).all()
    assert (~visible(torch.cat([mouth, points], 1), drawn(faces, "hand").mask)).any(1).float().mean() > 0.5


@pytest.mark.parametrize("kind", DRAWN)
def test_a_drawn_occluder_moves_with_the_points_and_not_with_the_batch(faces, kind):
    whole = drawn(faces, kind)
    alone = drawn(faces, kind, rows=slice(3, 4))
    assert torch.equal(whole.image[3:4], alone.image)
    moved = drawn(faces, kind, shift=8 / SIZE * 2)
    both = (moved.mask[:, :, 8:] & whole.mask[:, :, :-8]).sum() / moved.mask[:, :, 8:].sum()
    assert both > 0.95


def test_drawing_refuses_what_does_not_fit(faces):
    with pytest.raises(ValueError, match="glasses, mask, hand"):
        draw("hat", faces.image, faces.points, faces.numbers)
    with pytest.raises(ValueError, match=r"\(16, 5, 2\)"):
        draw("mask", faces.image, faces.points[:, :4], faces.numbers)


class Points:
    """A detector that finds a face in every picture but a black one."""

    def detect(self, image):
        points = np.array([(22, 28), (42, 28), (32, 38), (25, 48), (39, 48)], dtype=float)
        return [Detection((0, 0, 64, 64), 1.0, points)] if image.any() else []


def test_photographs_get_every_drawn_kind_and_bad_ones_are_named(faces, tmp_path):
    for person, row in (("a", 0), ("b", 2)):
        (tmp_path / person).mkdir()
        pixels = ((faces.image[row] + 1) * 127.5).byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(tmp_path / person / "1.png")
    Image.new("RGB", (64, 64)).save(tmp_path / "a" / "2.png")
    (tmp_path / "b" / "2.png").write_bytes(b"no picture")
    left_out = []
    (first, second) = list(photo_batches(list_photos(tmp_path), SIZE, Points(), 2, left_out))
    assert [len(first.plain), len(second.plain)] == [1, 1]
    assert set(first.worn) == set(DRAWN)
    assert first.plain.identity != second.plain.identity
    assert len(left_out) == 2
    assert "a/2.png: the detector finds no face" in left_out[0]
