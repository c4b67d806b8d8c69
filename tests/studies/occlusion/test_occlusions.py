"""Occluders with a true mask: the renderer's and drawn ones."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from faceanon.data.files import list_photos
from faceanon.photo.detect import Detection
from faceanon.studies.occlusion.pictures import DRAWN, FIVE, RENDERED, draw, photo_batches, rendered_batches, wearing
from faceanon.studies.occlusion.rows import visible

SIZE = 64


@pytest.fixture(scope="module")
def faces():
    """Sixteen faces of eight people, all kinds."""
    return next(rendered_batches(8, 2, SIZE, 16))


@pytest.mark.parametrize("kind", RENDERED)
def test_a_rendered_occluder_changes_its_mask_and_little_else(faces, kind):
    worn, bare = faces.worn[kind], faces.plain.image
    change = (worn.image - bare).abs().mean(1)
    share = worn.mask.float().mean((1, 2))
    assert (share > 0.01).all()
    assert (share < 0.5).all()
    assert change[worn.mask].mean() > 0.15
    assert change[~worn.mask].mean() < 0.02  # shadows, soft edges, clear lenses


def test_the_renderer_refuses_other_kinds(faces):
    with pytest.raises(ValueError, match="glasses, mask, hand, hat"):
        wearing("beard", faces.plain.factors, SIZE)


def drawn(faces, kind, rows=slice(None), shift=0.0):
    points = faces.plain.landmarks[rows][:, list(FIVE)] + torch.tensor([shift, 0.0])
    return draw(kind, faces.plain.image[rows], points, faces.numbers[rows])


@pytest.mark.parametrize("kind", DRAWN)
def test_a_drawn_occluder_leaves_the_rest_alone(faces, kind):
    made = drawn(faces, kind)
    near = functional.max_pool2d(made.mask[:, None].float(), 5, 1, 2)[:, 0] > 0
    change = (made.image - faces.plain.image).abs().amax(1)
    lenses = kind == "glasses"  # clear ones dim what lies behind them
    assert change[~near].max() < (0.25 if lenses else 1e-6)
    assert change[made.mask].mean() > 0.1
    levels = (made.image + 1) * 127.5
    assert (levels - levels.round()).abs().max() < 1e-3  # as a file holds it


def test_drawn_occluders_lie_where_they_belong(faces):
    points = faces.plain.landmarks[:, list(FIVE)]
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
        draw("hat", faces.plain.image, faces.plain.landmarks[:, :5], faces.numbers)
    with pytest.raises(ValueError, match=r"\(16, 5, 2\)"):
        draw("mask", faces.plain.image, faces.plain.landmarks, faces.numbers)


class Points:
    """A detector that finds a face in every picture but a black one."""

    def detect(self, image):
        points = np.array([(22, 28), (42, 28), (32, 38), (25, 48), (39, 48)], dtype=float)
        return [Detection((0, 0, 64, 64), 1.0, points)] if image.any() else []


def test_photographs_get_every_drawn_kind_and_bad_ones_are_named(faces, tmp_path):
    for person, row in (("a", 0), ("b", 2)):
        (tmp_path / person).mkdir()
        pixels = ((faces.plain.image[row] + 1) * 127.5).byte().permute(1, 2, 0).numpy()
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
