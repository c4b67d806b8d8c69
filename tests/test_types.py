"""Batches keep every field, whatever is done to them."""

from dataclasses import fields

import pytest
import torch

from faceanon.types import FaceBatch


def batch(rows=4):
    """Every field filled, each row of a field with numbers of its own."""
    torch.manual_seed(0)
    return FaceBatch(
        image=torch.rand(rows, 3, 16, 16),
        identity=torch.arange(rows),
        attribute=torch.arange(rows) + 10,
        parsing=torch.randint(0, 5, (rows, 16, 16)),
        latents=torch.rand(rows, 32, 2, 2),
        mesh=torch.rand(rows, 468, 2),
        embedding=torch.rand(rows, 8),
    )


NAMES = [field.name for field in fields(FaceBatch)]


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_taken_of_every_field(name):
    whole = batch()
    part = whole.map(lambda tensor: tensor[1:3])
    assert len(part) == 2
    assert torch.equal(getattr(part, name), getattr(whole, name)[1:3])


@pytest.mark.parametrize("name", NAMES)
def test_every_field_moves_to_a_device(name):
    moved = batch().to(torch.device("meta"))
    assert getattr(moved, name).device.type == "meta"


def test_every_field_is_pinned(monkeypatch):
    pinned = []

    def pin(tensor):
        pinned.append(tuple(tensor.shape))
        return tensor

    # Page-locked memory needs a GPU; which tensors are asked to go there does not.
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    whole = batch()
    whole.pin_memory()
    assert pinned == [tuple(getattr(whole, name).shape) for name in NAMES]


def test_what_is_not_known_stays_none():
    bare = FaceBatch(torch.rand(2, 3, 8, 8), torch.zeros(2), torch.zeros(2))
    for changed in (bare.map(lambda tensor: tensor[:1]), bare.to("cpu")):
        assert [getattr(changed, name) for name in NAMES[3:]] == [None] * 4
