"""Codes of faces through the codec of photographs: what comes back, where, and at how many bytes."""

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.errors import UserError
from faceanon.sealed.envelope import sealed_size
from faceanon.sealed.faces import codes_of_cells, faces_of_cells
from faceanon.testing import smooth_faces
from faceanon.weights.bundle import Bundle


@pytest.fixture(scope="module")
def codec():
    return Bundle("photo128").codec


def oval(side):
    """An oval around a face, a third of the cells: `(1, 1, side / 8, side / 8)`."""
    cells = side // 8
    places = (torch.arange(cells) + 0.5) / cells
    inside = ((places[None] - 0.5) / 0.3) ** 2 + ((places[:, None] - 0.56) / 0.37) ** 2 < 1
    return inside[None, None]


def pixels_of(mask):
    return mask.repeat_interleave(8, -1).repeat_interleave(8, -2)


def psnr(image, original):
    return 10 * torch.log10(4 / (image.clamp(-1, 1) - original).square().mean((1, 2, 3)))


def test_the_coded_cells_come_back_and_the_others_stay_to_the_bit(codec):
    image = smooth_faces(64)
    mask = oval(64).expand(4, -1, -1, -1)
    hidden = torch.where(pixels_of(mask), -image.flip(0), image)
    recovered = faces_of_cells(codec, hidden, codes_of_cells(codec, image, mask))
    outside = ~pixels_of(mask).expand_as(image)
    assert torch.equal(recovered[outside], hidden[outside])
    assert (psnr(recovered, image) > psnr(hidden, image) + 10).all()


def test_a_second_drawing_is_nearer_to_the_original(codec):
    image = smooth_faces(128)
    mask = oval(128).expand(4, -1, -1, -1)
    hidden = torch.where(pixels_of(mask), -image.flip(0), image)
    codes = codes_of_cells(codec, image, mask)
    once = psnr(faces_of_cells(codec, hidden, codes, passes=1), image)
    twice = psnr(faces_of_cells(codec, hidden, codes), image)
    assert (twice > once).all()


def test_codes_of_another_size_or_number_are_refused(codec):
    small = codes_of_cells(codec, smooth_faces(64), oval(64).expand(4, -1, -1, -1))
    with pytest.raises(UserError, match="for faces of 64 x 64 px, and the model's are 128 x 128 px"):
        faces_of_cells(codec, smooth_faces(128), small)
    with pytest.raises(ValueError, match="as many codes"):
        faces_of_cells(codec, smooth_faces(64), small[:3])


@pytest.mark.parametrize(
    ("side", "least", "most"), [(128, 31.0, 2048), pytest.param(256, 32.0, 6144, marks=pytest.mark.slow)]
)
def test_photographs_come_back_sharp_from_few_bytes(codec, shared, side, least, most):
    files = sorted((shared / "photofaces" / "aligned256").glob("*.jpg"))[::160]
    faces = []
    for file in files:
        with Image.open(file) as picture:
            faces.append(np.array(picture.convert("RGB").resize((side, side), Image.Resampling.LANCZOS)))
    image = torch.from_numpy(np.stack(faces)).permute(0, 3, 1, 2) / 127.5 - 1
    mask = oval(side).expand(len(image), -1, -1, -1)
    hidden = torch.where(pixels_of(mask), image.roll(1, 0), image)
    codes = codes_of_cells(codec, image, mask)
    assert psnr(faces_of_cells(codec, hidden, codes), image).mean() >= least
    assert max(sealed_size(len(code)) for code in codes) <= most
