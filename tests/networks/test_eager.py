"""Inference takes other roads than training; they must lead to the same place and leave what they were given alone."""

import pytest
import torch

from faceanon.networks.discriminator import Discriminator
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.eager import in_turn, inference, one_by_one
from faceanon.networks.stylegan2 import Generator

CHANNELS = {4: 8, 8: 8, 16: 8, 32: 6, 64: 6}
ENCODER = {"stylegan_size": 64, "style_dim": 8, "input_size": 64, "widths": (4, 4, 6, 8, 10), "units": (1, 2, 2, 1)}


def generator():
    net = Generator(64, style_dim=8, n_mlp=2, channels=CHANNELS)
    for name, parameter in net.named_parameters():
        if name.endswith(("noise.weight", "activate.bias")):
            torch.nn.init.normal_(parameter)
    codes, wide = torch.randn(3, 10, 8), {64: torch.randn(3, 6, 64, 64), 8: torch.randn(1, 1, 8, 8)}
    return net, (codes, None, wide), lambda *given: (net.synthesis(*given),)


def discriminator():
    net = Discriminator(64, channels=CHANNELS)
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return net, (torch.randn(3, 3, 64, 64),), lambda image: (net(image),)


def encoder():
    net = Encoder4Editing(**ENCODER, feature_taps=(-1, 0, 2)).eval()
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean):
                torch.nn.init.normal_(tensor)
            torch.nn.init.uniform_(module.running_var, 0.5, 2)
    net.double()  # large activations after random norms
    return net, (torch.randn(3, 3, 64, 64).double(),), lambda image: (net(image)[0], *net(image)[1].values())


def tensors(items):
    for item in items:
        yield from item.values() if isinstance(item, dict) else [item] if isinstance(item, torch.Tensor) else []


@pytest.mark.parametrize("make", [generator, discriminator, encoder])
def test_inference_equals_the_recorded_pass_and_changes_no_input(make):
    torch.manual_seed(0)
    net, given, run = make()
    recorded = [item.detach() for item in run(*given)]
    held = [*tensors(given), *net.state_dict().values()]
    before = [item.clone() for item in held]
    for quiet in (torch.no_grad, torch.inference_mode):
        with quiet():
            looked = run(*given)
        for got, wanted in zip(looked, recorded, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5 * wanted.abs().max().item())
    assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))


def test_samples_are_split_only_where_nothing_records_them():
    x = torch.randn(3, 2)
    seen = []

    def run(part):
        seen.append(len(part))
        return 2 * part

    assert torch.equal(in_turn(run, x), 2 * x)
    with torch.no_grad():
        assert torch.equal(in_turn(run, x), 2 * x)
        assert inference(x)
        assert not one_by_one(x[:1])
        assert not one_by_one(x.to("meta"))
    assert not inference(x)
    assert seen == [3, 1, 1, 1]


def test_the_compiler_sees_one_road():
    def road(x):
        return x + 1 if inference(x) else x - 1

    with torch.no_grad():
        compiled = torch.compile(road, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), -1.0))


def test_a_map_of_one_sample_is_drawn_as_in_a_batch():
    """Folding the style into the weight, and scaling the map by it, are the same convolution."""
    torch.manual_seed(0)
    net, (codes, _, _), _ = generator()
    with torch.no_grad():
        torch.testing.assert_close(net.synthesis(codes)[:1], net.synthesis(codes[:1]), rtol=1e-4, atol=1e-4)
        layer = net.convs[-1].conv
        x, style = torch.randn(2, 6, 64, 64), torch.randn(2, 8)
        assert layer._folds(x[:1])
        assert not layer._folds(x)
        torch.testing.assert_close(layer(x, style)[:1], layer(x[:1], style[:1]), rtol=1e-4, atol=1e-5)
