"""How odd painted faces are: photographs, and what goes wrong."""

import csv

import numpy as np
import pytest
import torch

from faceanon.data.files import read_photo
from faceanon.networks.codec import LatentCodec
from faceanon.paths import checkpoints
from faceanon.persona.light import LightPersona
from faceanon.weights.bundle import Bundle

SHIPPED = checkpoints() / "photo128"


@pytest.fixture(scope="module")
def typical():
    return LightPersona(checkpoints() / "persona_photo128")


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
        return codec.eval().encode(faces).numpy()


@pytest.fixture
def mask():
    middle = np.zeros((16, 1, 16, 16), np.float32)
    middle[:, :, 4:13, 4:12] = 1
    return middle


def test_photographs_are_as_odd_as_photographs_are(typical, latents, mask):
    odd = typical._oddness(latents, mask)
    assert odd.shape == (16,)
    assert 0.8 < odd.mean() < 1.2


def test_what_photographs_do_not_have_is_odder(typical, latents, mask):
    own = typical._oddness(latents, mask)
    mean = typical.typical["mean"]
    harsh = mean + 1.5 * (latents - mean)
    assert (typical._oddness(harsh, mask) > 2 * own).all()
    # Each cell as in some photograph, but of another place in the face.
    assert (typical._oddness(np.roll(latents, 4, 2), mask) > own).all()
    noise = np.random.default_rng(0).standard_normal(latents.shape, np.float32)
    assert (typical._oddness(latents + noise, mask) > 2 * own).all()


def test_only_the_painted_cells_count(typical, latents, mask):
    changed = latents + 3 * (1 - mask)
    np.testing.assert_allclose(typical._oddness(changed, mask), typical._oddness(latents, mask), rtol=1e-5)
    assert typical._oddness(latents, np.zeros_like(mask)).tolist() == [0] * 16
