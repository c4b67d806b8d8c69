"""CelebAMask-HQ's U-Net. No outputs of the public network are at hand, so its numbers could not be compared.

The keys and shapes below are what its published code builds; the forward pass is compared with one written straight
from a state dict of these keys, which shares no code with ours.
"""

import pytest
import torch
from torch.nn import functional as F

from faceanon.networks import unet
from faceanon.networks.parsing_classes import (
    BISENET,
    CELEBAMASK_HQ,
    PARTS,
    class_numbers,
)
from faceanon.networks.unet import CelebAMaskParser

DOWN = {"conv1": (3, 16), "conv2": (16, 32), "conv3": (32, 64), "conv4": (64, 128), "center": (128, 256)}
UP = {"up_concat4": (256, 128), "up_concat3": (128, 64), "up_concat2": (64, 32), "up_concat1": (32, 16)}


def double(name, inputs, outputs):
    for part, width in (("conv1", inputs), ("conv2", outputs)):
        yield f"{name}.{part}.0.weight", (outputs, width, 3, 3)
        yield f"{name}.{part}.0.bias", (outputs,)
        for leaf in ("weight", "bias", "running_mean", "running_var"):
            yield f"{name}.{part}.1.{leaf}", (outputs,)
        yield f"{name}.{part}.1.num_batches_tracked", ()


def public_layout():
    for name, (inputs, outputs) in DOWN.items():
        yield from double(name, inputs, outputs)
    for name, (inputs, outputs) in UP.items():
        yield from double(f"{name}.conv", inputs, outputs)
        yield f"{name}.up.weight", (inputs, outputs, 2, 2)
        yield f"{name}.up.bias", (outputs,)
    yield "final.weight", (19, 16, 1, 1)
    yield "final.bias", (19,)


def written_out(state, image):
    """The public forward pass as one formula over the tensors."""

    def twice(name, x):
        for part in ("conv1", "conv2"):
            conv, norm = f"{name}.{part}.0", f"{name}.{part}.1"
            x = F.conv2d(x, state[f"{conv}.weight"], state[f"{conv}.bias"], padding=1)
            moments = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
            x = F.relu(F.batch_norm(x, *moments, state[f"{norm}.weight"], state[f"{norm}.bias"]))
        return x

    skips = {}
    for level, name in enumerate(DOWN, 1):
        image = skips[level] = twice(name, image if level == 1 else F.max_pool2d(image, 2))
    for level in (4, 3, 2, 1):
        name = f"up_concat{level}"
        up = F.conv_transpose2d(image, state[f"{name}.up.weight"], state[f"{name}.up.bias"], stride=2)
        image = twice(f"{name}.conv", torch.cat([skips[level], up], 1))
    return F.conv2d(image, state["final.weight"], state["final.bias"])


@pytest.fixture(scope="module")
def net(golden):
    net = CelebAMaskParser(working_size=None)
    shapes = {key: tuple(t.shape) for key, t in net.state_dict().items()}
    weights = golden.recipe.state_dict(shapes, "generic2")
    net.load_state_dict({key: torch.from_numpy(value) for key, value in weights.items()})
    return net.eval()


def test_layout_is_the_public_one():
    with torch.device("meta"):
        net = CelebAMaskParser()
    assert [(key, tuple(t.shape)) for key, t in net.state_dict().items()] == list(public_layout())


@torch.no_grad()
def test_forward_equals_the_formula_and_swapped_skips_are_exposed(net, golden, rms_error, monkeypatch):
    image = golden.image("unet:x", (2, 3, 64, 32))
    expected = written_out(net.state_dict(), image).numpy()
    assert expected.shape == (2, 19, 64, 32)
    assert rms_error(net(image), expected) < 1e-4
    monkeypatch.setattr(unet, "cat", lambda maps, dim: torch.cat(maps[::-1], dim))
    assert rms_error(net(image), expected) > 0.1


@torch.no_grad()
def test_pictures_are_repeated_or_averaged_to_the_working_size_and_logits_back(net, monkeypatch):
    image = torch.rand(1, 3, 32, 32) * 2 - 1
    monkeypatch.setattr(net, "working_size", 64)
    grown = image.repeat_interleave(2, 2).repeat_interleave(2, 3)
    expected = net(grown).unflatten(2, (32, 2)).unflatten(4, (32, 2)).mean((3, 5))
    torch.testing.assert_close(net(image), expected)
    monkeypatch.setattr(net, "working_size", 16)
    small = net(image.unflatten(2, (16, 2)).unflatten(4, (16, 2)).mean((3, 5)))
    torch.testing.assert_close(net(image), small.repeat_interleave(2, 2).repeat_interleave(2, 3))


def test_a_side_that_cannot_be_halved_four_times_is_named(net):
    with pytest.raises(ValueError, match=r"40 x 40 px; both must be multiples of 16"):
        net(torch.zeros(1, 3, 40, 40))
    with torch.device("meta"):
        assert CelebAMaskParser()(torch.zeros(1, 3, 40, 40)).shape == (1, 19, 40, 40)


def test_the_two_orders_hold_the_same_classes():
    assert len(set(CELEBAMASK_HQ)) == 19
    assert sorted(CELEBAMASK_HQ) == sorted(BISENET)
    in_celebamask_hq = (0, 1, 6, 7, 4, 5, 3, 8, 9, 15, 2, 10, 11, 12, 17, 16, 18, 13, 14)
    assert class_numbers(BISENET) == in_celebamask_hq


def test_the_parts_are_the_channels_of_the_published_loss():
    assert class_numbers(PARTS) == (2, 4, 5, 10, 11, 12)
    assert class_numbers(("hair", "hat"), BISENET) == (17, 18)
    with pytest.raises(ValueError, match="no parsing class 'beard'"):
        class_numbers(("beard",))
