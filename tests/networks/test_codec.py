"""The codec draws a part of a picture as it draws the whole."""

import pytest
import torch

from faceanon.networks.codec import LatentCodec

WINDOWS = [(0, 8, 0, 8), (2, 7, 1, 6), (0, 3, 4, 8), (5, 6, 3, 4)]


@pytest.fixture(scope="module")
def codec():
    torch.manual_seed(0)
    return LatentCodec().eval().requires_grad_(False)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_part_is_the_same_as_in_the_whole_picture(codec, window):
    latents = torch.randn(2, 32, 8, 8, generator=torch.Generator().manual_seed(1))
    top, bottom, left, right = (8 * edge for edge in window)
    part = codec.decode_part(latents, window)
    torch.testing.assert_close(part, codec.decode(latents)[:, :, top:bottom, left:right], rtol=0, atol=1e-5)


def test_every_pixel_that_a_part_looks_at_counts(codec):
    # A codec whose local layers looked further than `REACH` would draw another part.
    latents = torch.randn(1, 32, 8, 8, generator=torch.Generator().manual_seed(2), requires_grad=True)
    (gradient,) = torch.autograd.grad(codec.decode_part(latents, (3, 5, 3, 5)).square().sum(), latents)
    (whole,) = torch.autograd.grad(codec.decode(latents)[:, :, 24:40, 24:40].square().sum(), latents)
    torch.testing.assert_close(gradient, whole, rtol=1e-3, atol=1e-5)


def test_latents_that_are_known_are_not_computed_again(monkeypatch):
    codec = LatentCodec().eval()
    image = torch.rand(1, 3, 16, 16)
    latents = torch.randn(1, 32, 2, 2)
    codec.know(image, latents)
    assert codec.encode(image) is latents
    # Another tensor, even of the same numbers, and this one once it has changed, are encoded.
    computed = codec.encode(image.clone())
    assert not torch.equal(computed, latents)
    image.mul_(1)
    torch.testing.assert_close(codec.encode(image), computed)
    del image
    assert codec.encode(torch.rand(1, 3, 16, 16)) is not latents
