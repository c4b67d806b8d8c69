import copy
import json
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from faceanon.networks import stylegan2_layers, upfirdn
from faceanon.networks.stylegan2 import Generator
from faceanon.networks.stylegan2_layers import EqualLinear, FusedLeakyReLU, ModulatedConv2d, PixelNorm

TINY = {4: 16, 8: 16, 16: 16, 32: 16, 64: 8}
LIMIT = 1e-4


def tiny():
    return Generator(64, style_dim=32, n_mlp=2, channel_multiplier=1, channels=TINY)


@pytest.fixture
def small():
    torch.manual_seed(0)
    net = Generator(32, style_dim=8, n_mlp=2, channels={4: 8, 8: 8, 16: 6, 32: 4})
    for name, parameter in net.named_parameters():
        if name.endswith("noise.weight"):
            torch.nn.init.constant_(parameter, 0.3)
    return net


@pytest.mark.parametrize("size", [256, 512, 1024])
def test_layout_is_the_public_one(golden, size):
    with torch.device("meta"):
        net = Generator(size)
    assert [(key, tuple(t.shape)) for key, t in net.state_dict().items()] == golden.manifest(f"stylegan2_g_{size}")


@pytest.mark.parametrize(("name", "build", "batch"), [("tiny", tiny, 3), ("32", lambda: Generator(32), 2)])
def test_images_equal_the_public_network(golden, rms_error, name, build, batch):
    case = golden.case(f"stylegan2_g_{name}")
    net = golden.load(build(), "stylegan2", case)
    w_plus = golden.normal(f"g_{name}:wplus", (batch, net.n_latent, net.style_dim))
    z, z2 = (golden.normal(f"g_{name}:{key}", (batch, net.style_dim)) for key in ("z", "z2"))
    mean = 0.5 * golden.normal(f"g_{name}:wmean", (1, net.style_dim))
    noise = [golden.normal(f"g_{name}:noise{i}", (1, 1, side, side)) for i, side in enumerate(net.noise_sides)]
    half = net.n_latent // 2
    with torch.no_grad():
        w, w2 = net.mapping(z), net.mapping(z2)
        mixed = torch.cat([w[:, None].repeat(1, half, 1), w2[:, None].repeat(1, net.n_latent - half, 1)], 1)
        results = {
            "w": w,
            "img_wplus": net.synthesis(w_plus),
            "img_z": net(z),
            "img_z_trunc07": net.synthesis(mean + 0.7 * (w - mean)),
            "latent_mix": mixed,
            "img_mix": net.synthesis(mixed),
            "img_noise_list": net.synthesis(w_plus, noise),
            "img_w_broadcast": net.synthesis(w_plus[:, 0]),
        }
    errors = {key: rms_error(value, case[key]) for key, value in results.items()}
    assert max(errors.values()) < LIMIT, errors


def _gradients(golden, net, name, w_plus, noise=None):
    w_plus = w_plus.clone().requires_grad_()
    image = net.synthesis(w_plus, noise)
    loss = (image * golden.normal(f"g_{name}:proj", image.shape)).sum() / math.sqrt(image.numel())
    loss.backward()
    return w_plus.grad


def test_gradients_equal_the_public_network(golden, rms_error):
    case = golden.case("stylegan2_g_tiny")
    net = golden.load(tiny(), "stylegan2", case)
    grad = _gradients(golden, net, "tiny", golden.normal("g_tiny:wplus", (3, 10, 32)))
    assert rms_error(grad, case["grad_wplus"]) < LIMIT
    parameters = dict(net.named_parameters())
    norms = [parameters[key].grad.norm().item() for key in case["grad_param_names"]]
    np.testing.assert_allclose(norms, case["grad_norms"], rtol=1e-3)


def test_wide_gradients_equal_the_public_network(golden, rms_error):
    """In the recorded run one activation of convs.4 sits 2e-6 from the kink of its leaky ReLU, on the other side."""
    case = golden.case("stylegan2_g_32")
    net = golden.load(Generator(32), "stylegan2", case)
    w_plus = golden.normal("g_32:wplus", (2, 8, 512))
    seen = []
    hook = net.convs[4].register_forward_hook(lambda module, args, out: seen.append(out.detach()))
    plain = _gradients(golden, net, "32", w_plus)
    hook.remove()
    out = torch.where(seen[0] < 0, seen[0] / stylegan2_layers.SLOPE, seen[0])
    nearest = int(out.abs().flatten().argmin())
    _, _, row, column = np.unravel_index(nearest, out.shape)
    noise = [item.clone() for item in net.noises.buffers()]
    shift = 2 * out.flatten()[nearest] / (math.sqrt(2) * net.convs[4].noise.weight.item())
    noise[5][0, 0, row, column] -= shift
    flipped = _gradients(golden, net, "32", w_plus, noise)
    assert rms_error(plain[:, 6:], case["grad_wplus"][:, 6:]) < LIMIT  # past the kink
    assert min(rms_error(grad, case["grad_wplus"]) for grad in (plain, flipped)) < LIMIT


def _asymmetric_pad(monkeypatch, net):
    net.convs[0].conv.blur.pad = (2, 0)


def _no_gain(monkeypatch, net):
    monkeypatch.setattr(stylegan2_layers.FusedLeakyReLU, "forward", lambda self, x: x)
    monkeypatch.setattr(stylegan2_layers.math, "sqrt", lambda value: 1.0)


def _rolled_kernel(monkeypatch, net):
    net.to_rgbs[0].upsample.kernel.copy_(net.to_rgbs[0].upsample.kernel.roll(1, 0))


def _no_demodulation(monkeypatch, net):
    monkeypatch.setattr(torch, "rsqrt", torch.ones_like)


@pytest.mark.parametrize("mistake", [_asymmetric_pad, _no_gain, _rolled_kernel, _no_demodulation])
def test_the_golden_images_expose_mistakes(golden, rms_error, monkeypatch, mistake):
    case = golden.case("stylegan2_g_tiny")
    net = golden.load(tiny(), "stylegan2", case)
    mistake(monkeypatch, net)
    with torch.no_grad():
        image = net.synthesis(golden.normal("g_tiny:wplus", (3, 10, 32)))
    assert rms_error(image, case["img_wplus"]) > 100 * LIMIT


def test_resampling_equals_the_public_code(golden, rms_error):
    case = golden.case("ops")
    kernel, x = golden.normal("ops:kernel", (4, 3)), golden.normal("ops:x", (2, 3, 7, 9))
    for item in json.loads(str(case["meta"]))["cases"]:
        up, down = (tuple(v) if isinstance(v, list) else v for v in (item["up"], item["down"]))
        result = upfirdn.upfirdn2d(x, kernel, up, down, tuple(item["pad"]))
        assert rms_error(result, case[item["out"]]) < LIMIT, item
    taps = (1.0, 2.0, 5.0, 1.0)
    for name, module, source in [
        ("Upsample", upfirdn.Resample((2, 1), up=2, gain=4.0, taps=taps), x),
        ("Downsample", upfirdn.Resample((1, 1), down=2, taps=taps), golden.normal("ops:x8", (2, 3, 8, 8))),
        ("Blur_p11", upfirdn.Resample((1, 1), gain=4.0, taps=taps), x),
        ("Blur_p22", upfirdn.Resample((2, 2), taps=taps), x),
    ]:
        assert rms_error(module.kernel, case[f"{name}_kernel"]) < LIMIT
        assert rms_error(module(source), case[name]) < LIMIT, name


def test_small_layers_equal_the_public_code(golden, rms_error):
    case = golden.case("ops")
    activate = FusedLeakyReLU(3)
    activate.bias.data = golden.normal("ops:bias", (3,))
    x, x2 = golden.normal("ops:x", (2, 3, 7, 9)), golden.normal("ops:x2", (5, 3))
    assert rms_error(activate(x), case["fused_lrelu_4d"]) < LIMIT
    assert rms_error(activate(x2), case["fused_lrelu_2d"]) < LIMIT
    lx = golden.normal("ops:lx", (5, 6))
    assert rms_error(PixelNorm()(lx), case["pixelnorm"]) < LIMIT
    for name, active in (("equal_linear_act", True), ("equal_linear_lin", False)):
        linear = EqualLinear(6, 4, lr_mul=0.01, activate=active)
        linear.weight.data, linear.bias.data = 100 * golden.normal("ops:lw", (4, 6)), 10 * golden.normal("ops:lb", (4,))
        assert rms_error(linear(lx), case[name]) < LIMIT


MODULATED = {
    "plain": (3, {}),
    "up": (3, {"upsample": True}),
    "nodemod": (3, {"demodulate": False}),
    "k1": (1, {"demodulate": False}),
}


@pytest.mark.parametrize("variant", MODULATED)
def test_modulated_convolution_equals_the_public_code(golden, rms_error, variant):
    case = golden.case("ops")
    side, options = MODULATED[variant]
    conv = ModulatedConv2d(5, 4, side, 6, **options)
    conv.weight.data = golden.normal(f"ops:mc{side}", conv.weight.shape)
    conv.modulation.weight.data = golden.normal("ops:mm", conv.modulation.weight.shape)
    conv.modulation.bias.data = 1 + 0.1 * golden.normal("ops:mb", (5,))
    x, style = golden.normal("ops:mx", (3, 5, 8, 8)), golden.normal("ops:ms", (3, 6))
    x.requires_grad_()
    style.requires_grad_()
    out = conv(x, style)
    assert rms_error(out, case[f"modconv_{variant}"]) < LIMIT
    (out * golden.normal(f"ops:proj_{variant}", out.shape)).sum().backward()
    for key, tensor in (("gx", x), ("gs", style), ("gw", conv.weight)):
        assert rms_error(tensor.grad, case[f"modconv_{variant}_{key}"]) < LIMIT, key


def test_modulated_convolution_equals_weights_built_per_sample():
    torch.manual_seed(1)
    conv = ModulatedConv2d(6, 7, 3, 5).double()
    x, style = torch.randn(4, 6, 9, 9).double(), torch.randn(4, 5).double()
    weight = conv.scale * conv.weight * conv.modulation(style)[:, None, :, None, None]  # (B, O, I, 3, 3)
    weight = weight / (weight.square().sum((2, 3, 4), keepdim=True) + 1e-8).sqrt()
    expected = torch.cat([F.conv2d(x[i : i + 1], weight[i], padding=1) for i in range(4)])
    torch.testing.assert_close(conv(x, style), expected)


def test_a_picture_does_not_depend_on_its_batch(small):
    w_plus = torch.randn(4, small.n_latent, 8)
    together = small.synthesis(w_plus)
    alone = torch.cat([small.synthesis(w_plus[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_state_dict_round_trip_is_strict_and_exact(small):
    other = Generator(32, style_dim=8, n_mlp=2, channels=small.channels)
    w_plus = torch.randn(2, small.n_latent, 8)
    assert not torch.equal(other.synthesis(w_plus), small.synthesis(w_plus))
    other.load_state_dict(small.state_dict(), strict=True)
    assert torch.equal(other.synthesis(w_plus), small.synthesis(w_plus))


def test_a_loaded_kernel_is_used(small):
    state = copy.deepcopy(small.state_dict())
    state["convs.0.conv.blur.kernel"] = torch.arange(16.0).view(4, 4) / 30
    w_plus = torch.randn(1, small.n_latent, 8)
    before = small.synthesis(w_plus)
    small.load_state_dict(state)
    assert (small.synthesis(w_plus) - before).abs().max() > 1e-2


def test_features_take_the_place_of_the_noise_of_their_resolution(small):
    w_plus = torch.randn(2, small.n_latent, 8)
    stored = list(small.noises.buffers())
    same = [stored[0], stored[1], stored[1], *stored[3:]]  # one map for both layers of 8 px
    features = {8: stored[1].expand(2, -1, -1, -1)}
    torch.testing.assert_close(small.synthesis(w_plus, features=features), small.synthesis(w_plus, same))
    wide = {16: torch.randn(2, 6, 16, 16, requires_grad=True)}
    image = small.synthesis(w_plus, features=wide)
    assert image.shape == (2, 3, 32, 32)
    image.square().sum().backward()
    assert wide[16].grad.abs().sum() > 0


def test_random_noise_is_fresh_and_stored_noise_is_not(small):
    w_plus = torch.randn(1, small.n_latent, 8)
    assert torch.equal(small.synthesis(w_plus), small.synthesis(w_plus))
    assert not torch.equal(small.synthesis(w_plus, "random"), small.synthesis(w_plus, "random"))


def test_mean_latent_repeats_with_its_generator(small):
    first = small.mean_latent(16, torch.Generator().manual_seed(3))
    assert first.shape == (1, 8)
    assert torch.equal(first, small.mean_latent(16, torch.Generator().manual_seed(3)))


def test_mistakes_are_named(small):
    w_plus = torch.randn(1, small.n_latent, 8)
    with pytest.raises(ValueError, match=r"takes \(B, 8, 8\)"):
        small.synthesis(w_plus[:, :-1])
    with pytest.raises(ValueError, match="noise has 1 maps"):
        small.synthesis(w_plus, [torch.zeros(1, 1, 4, 4)])
    with pytest.raises(ValueError, match=r"features\[16\]"):
        small.synthesis(w_plus, features={16: torch.zeros(1, 5, 16, 16)})
    with pytest.raises(ValueError, match="power of two"):
        Generator(48)
    with pytest.raises(ValueError, match="no entry for"):
        Generator(64, channels={4: 8})
