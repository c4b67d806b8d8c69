"""What every method that draws persons by linear maps has to keep (`backbones.linear_person`)."""

import torch

from faceanon.types import Codes

KEPT = 3  # numbers that the methods in these tests keep


@torch.no_grad()
def only_the_kept_numbers_come_from_the_attributes(method, images):
    """Assert it of a measured method whose network starts at nothing, so that kept numbers are added as they are."""
    codes = method.encode(images)
    drawn = method.w_plus(codes)
    attributes = codes.attributes.clone()
    attributes[..., KEPT:] += 1
    assert torch.equal(method.w_plus(Codes(codes.identity, attributes)), drawn)
    attributes[..., :KEPT] += 1
    changed = method.w_plus(Codes(codes.identity, attributes)) - drawn
    torch.testing.assert_close(changed[..., :KEPT], torch.ones_like(changed[..., :KEPT]))
    assert changed[..., KEPT:].abs().max() < 1e-5
    swapped = method.w_plus(codes.with_identity(codes.identity.roll(1, 0)))
    assert (swapped - drawn)[..., :KEPT].abs().max() < 1e-5
    assert (swapped - drawn)[..., KEPT:].abs().mean() > 1e-3
