"""How odd painted faces are: photographs, what goes wrong, and the engine without torch."""

import csv

import numpy as np
import pytest
import torch

from faceanon.data.files import read_photo
from faceanon.errors import UserError
from faceanon.landmarks.typical import FILE, TypicalFaces
from faceanon.light.method import LightPersona
from faceanon.networks.codec import LatentCodec
from faceanon.paths import checkpoints
from faceanon.weights.bundle import Bundle

SHIPPED = checkpoints() / "photo128"


@pytest.fixture(scope="module")
def typical():
    return TypicalFaces()


@pytest.fixture(scope="module")
def latents():
    """Of sixteen test photographs, which the statistics were not made of: `(16, 32, 16, 16)`."""
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        names = [row["file"] for row in csv.DictReader(file) if row["split"] == "test"][:16]
    pictures = np.stack([read_photo(SHIPPED / "pictures" / name, 128)[0] for name in names])
    faces = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1
    codec = Bundle("photo128").build("codec")
    assert isinstance(codec, LatentCodec)
    with torch.no_grad():
        return codec.eval().encode(faces)


@pytest.fixture
def mask():
    middle = torch.zeros(16, 1, 16, 16)
    middle[:, :, 4:13, 4:12] = 1
    return middle


def test_photographs_are_as_odd_as_photographs_are(typical, latents, mask):
    odd = typical.oddness(latents, mask)
    assert odd.shape == (16,)
    assert 0.8 < odd.mean() < 1.2


def test_what_photographs_do_not_have_is_odder(typical, latents, mask):
    own = typical.oddness(latents, mask)
    harsh = typical.mean + 1.5 * (latents - typical.mean)
    assert (typical.oddness(harsh, mask) > 2 * own).all()
    # Each cell as in some photograph, but of another place in the face.
    assert (typical.oddness(latents.roll(4, 2), mask) > own).all()
    noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(0))
    assert (typical.oddness(latents + noise, mask) > 2 * own).all()


def test_only_the_painted_cells_count(typical, latents, mask):
    changed = latents + 3 * (1 - mask)
    torch.testing.assert_close(typical.oddness(changed, mask), typical.oddness(latents, mask))
    assert typical.oddness(latents, torch.zeros_like(mask)).tolist() == [0] * 16


def test_the_engine_without_torch_finds_the_same(typical, latents, mask):
    light = LightPersona(checkpoints() / "persona_photo128")
    found = light._oddness(latents.numpy(), mask.numpy())
    np.testing.assert_allclose(found, typical.oddness(latents, mask).numpy(), rtol=1e-4)


def test_another_file_is_refused_in_one_line(tmp_path):
    (tmp_path / FILE).write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"typical.safetensors is damaged or another file"):
        TypicalFaces(tmp_path)
