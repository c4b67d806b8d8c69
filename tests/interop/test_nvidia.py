"""NVIDIA's networks after conversion, against their arithmetic written out anew."""

import json
import math

import pytest
import torch
from torch.nn import functional as F

import nvidia_files as nvidia_made
from faceanon.errors import UserError
from faceanon.interop.public import nvidia
from faceanon.interop.public.nvidia import discriminator_state, generator_state, read_nvidia_pickle
from faceanon.networks.stylegan2 import Discriminator, Generator

CHANNELS = nvidia_made.CHANNELS


def lrelu(x):
    return F.leaky_relu(x, 0.2) * math.sqrt(2)


def blur(x, pad, gain=1.0):
    kernel = gain * nvidia_made.kernel().expand(x.shape[1], 1, 4, 4)
    return F.conv2d(F.pad(x, (pad[0], pad[1], pad[0], pad[1])), kernel, groups=x.shape[1])


def spread(x):
    """Every pixel followed by a zero, in both directions."""
    return F.pad(x[..., None, :, None], (0, 1, 0, 0, 0, 1)).flatten(-2).flatten(-3, -2)


def modulated(x, weight, style, up, demodulate=True):
    """A convolution per sample; `weight` is applied as a correlation, after the up-sampling."""
    gain = 1 / math.sqrt(weight[0].numel())
    outputs = []
    for sample, row in zip(x, style, strict=True):
        own = gain * weight * row[None, :, None, None]
        if demodulate:
            own = own * torch.rsqrt(own.square().sum((1, 2, 3), keepdim=True) + 1e-8)
        if up:
            outputs.append(F.conv2d(blur(spread(sample[None]), (3, 2), 4.0), own))
        else:
            outputs.append(F.conv2d(sample[None], own, padding=weight.shape[-1] // 2))
    return torch.cat(outputs)


def draw(dense, layer, const, z, depth=2):
    """StyleGAN2's generator: `dense(i)` and `layer(side, name)` give what a file holds."""
    w = z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8)
    for index in range(depth):
        weight, bias = dense(index)
        w = lrelu(w @ weight.t() * 0.01 / math.sqrt(weight.shape[1]) + 0.01 * bias)
    x, image = const.expand(len(z), -1, -1, -1), None
    for side in CHANNELS:
        for name in ("conv0", "conv1") if side > 4 else ("conv1",):
            weight, bias, (affine, shift), noise = layer(side, name)
            style = w @ affine.t() / math.sqrt(w.shape[1]) + shift
            x = lrelu(modulated(x, weight, style, name == "conv0") + noise + bias[None, :, None, None])
        weight, bias, (affine, shift), _ = layer(side, "torgb")
        style = w @ affine.t() / math.sqrt(w.shape[1]) + shift
        rgb = modulated(x, weight, style, False, demodulate=False) + bias[None, :, None, None]
        image = rgb if image is None else blur(spread(image), (2, 1), 4.0) + rgb
    return image


def pytorch_image(p, z):
    """stylegan2-ada-pytorch: up-sampling layers do a true convolution, the others a correlation."""

    def layer(side, name):
        at = f"synthesis.b{side}.{name}"
        weight = p[f"{at}.weight"].flip(2, 3) if name == "conv0" else p[f"{at}.weight"]
        noise = 0.0 if name == "torgb" else p[f"{at}.noise_const"] * p[f"{at}.noise_strength"]
        return weight, p[f"{at}.bias"], (p[f"{at}.affine.weight"], p[f"{at}.affine.bias"]), noise

    def dense(index):
        return p[f"mapping.fc{index}.weight"], p[f"mapping.fc{index}.bias"]

    return draw(dense, layer, p["synthesis.b4.const"][None], z)


def tensorflow_image(network, z):
    """The TensorFlow version: `tf.nn.conv2d` everywhere, a correlation with (kH, kW, I, O); the style's bias plus 1."""
    mapping, synthesis = (
        dict(network.state["components"][name].state["variables"]) for name in ("mapping", "synthesis")
    )

    def layer(side, name):
        label = {"conv0": "Conv0_up", "conv1": "Conv1" if side > 4 else "Conv", "torgb": "ToRGB"}[name]
        p = {k.split("/")[-1]: torch.tensor(v) for k, v in synthesis.items() if k.startswith(f"{side}x{side}/{label}/")}
        index = 2 * (side.bit_length() - 3) - int(name == "conv0")
        noise = 0.0 if name == "torgb" else torch.from_numpy(synthesis[f"noise{index}"]) * p["noise_strength"]
        return p["weight"].permute(3, 2, 0, 1), p["bias"], (p["mod_weight"].t(), p["mod_bias"] + 1), noise

    def dense(index):
        return torch.tensor(mapping[f"Dense{index}/weight"]).t(), torch.tensor(mapping[f"Dense{index}/bias"])

    return draw(dense, layer, torch.tensor(synthesis["4x4/Const/const"]), z)


def logits(p, image):
    """StyleGAN2's discriminator for one group of samples."""

    def conv(x, name, pad=0, stride=1):
        weight = p[f"{name}.weight"]
        return F.conv2d(x, weight / math.sqrt(weight[0].numel()), p.get(f"{name}.bias"), stride, pad)

    def dense(x, name):
        weight = p[f"{name}.weight"]
        return x @ weight.t() / math.sqrt(weight.shape[1]) + p[f"{name}.bias"]

    x = lrelu(conv(image, f"b{max(CHANNELS)}.fromrgb"))
    for side in sorted(CHANNELS, reverse=True)[:-1]:
        skip = conv(blur(x, (1, 1))[..., ::2, ::2], f"b{side}.skip")
        y = lrelu(conv(blur(lrelu(conv(x, f"b{side}.conv0", 1)), (2, 2)), f"b{side}.conv1", 0, 2))
        x = (y + skip) * math.sqrt(0.5)
    spread_of_group = (x.var(0, unbiased=False) + 1e-8).sqrt().mean().expand(len(x), 1, 4, 4)
    x = lrelu(conv(torch.cat([x, spread_of_group], 1), "b4.conv", 1))
    return dense(lrelu(dense(x.flatten(1), "b4.fc")), "b4.out")


@pytest.fixture(scope="module")
def made():
    return nvidia_made.generator(), nvidia_made.discriminator()


@pytest.fixture(scope="module")
def files(made, tmp_path_factory):
    """One file of each program, with the same networks."""
    folder = tmp_path_factory.mktemp("nvidia")
    generator, discriminator = made
    average = {name: value if name.endswith("_filter") else 0.5 * value for name, value in generator.items()}
    torch_content = {
        "G": nvidia_made.module(generator),
        "D": nvidia_made.module(discriminator, "Discriminator"),
        "G_ema": nvidia_made.module(average),
        "augment_pipe": None,
        "training_set_kwargs": nvidia_made.EasyDict(path="faces"),
    }
    tf_content = (
        nvidia_made.tf_generator(generator),
        nvidia_made.tf_discriminator(discriminator),
        nvidia_made.tf_generator(average),
    )
    return {
        "torch": nvidia_made.write(folder / "torch.pkl", torch_content),
        "tf": nvidia_made.write(folder / "tf.pkl", tf_content),
    }


def load(state):
    latent_avg = state["latent_avg"]
    net = Generator(16, len(latent_avg), 2, channels=CHANNELS)
    net.load_state_dict({name: value for name, value in state.items() if name != "latent_avg"})
    return net.eval()


def deviation(actual, expected):
    return float((actual - expected).abs().max() / expected.square().mean().sqrt())


def z():
    return torch.randn(3, 8, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("program", ["torch", "tf"])
def test_a_file_becomes_networks_that_load_strictly(files, made, program):
    found = read_nvidia_pickle(files[program])
    assert set(found) == {"G", "D", "G_ema"}
    assert torch.equal(found["G"]["latent_avg"], made[0]["mapping.w_avg"])
    assert torch.equal(found["G_ema"]["input.input"], 0.5 * made[0]["synthesis.b4.const"][None])
    load(found["G_ema"])
    Discriminator(16, channels=CHANNELS).load_state_dict(found["D"])


def test_both_programs_files_give_the_same_networks(files):
    one, other = (read_nvidia_pickle(files[program]) for program in ("torch", "tf"))
    for role, state in one.items():
        assert state.keys() == other[role].keys()
        for name, value in state.items():
            torch.testing.assert_close(value, other[role][name], msg=f"{role} {name}")


@torch.no_grad()
def test_a_generator_draws_what_nvidias_pytorch_version_draws(files, made):
    net = load(read_nvidia_pickle(files["torch"])["G"])
    assert deviation(net(z()), pytorch_image(made[0], z())) < 1e-5


@torch.no_grad()
def test_a_generator_draws_what_nvidias_tensorflow_version_draws(files, made):
    net = load(read_nvidia_pickle(files["tf"])["G"])
    assert deviation(net(z()), tensorflow_image(nvidia_made.tf_generator(made[0]), z())) < 1e-5


MUTATIONS = {
    "_flipped": lambda kernel: kernel,
    "_tf_layout": lambda value: (
        value.permute(3, 2, 1, 0) if value.ndim == 4 else value.t() if value.ndim == 2 else value
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_kernel_the_wrong_way_round_is_exposed(files, made, monkeypatch, name):
    monkeypatch.setattr(nvidia, name, MUTATIONS[name])
    net = load(read_nvidia_pickle(files["tf"])["G"])
    assert deviation(net(z()), tensorflow_image(nvidia_made.tf_generator(made[0]), z())) > 1e-2


@torch.no_grad()
def test_the_comparison_sees_every_converted_tensor(files, made):
    expected, source = pytorch_image(made[0], z()), torch.Generator().manual_seed(9)
    net = load(read_nvidia_pickle(files["torch"])["G"])
    for name, value in net.state_dict().items():
        before = value.clone()
        value += 0.1 * before.square().mean().sqrt() * torch.randn(before.shape, generator=source)
        assert deviation(net(z()), expected) > 1e-4, name
        value.copy_(before)
    assert deviation(net(z()), expected) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("program", ["torch", "tf"])
def test_a_discriminator_judges_as_nvidias(files, made, program):
    net = Discriminator(16, channels=CHANNELS)
    net.load_state_dict(read_nvidia_pickle(files[program])["D"])
    image = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(6))
    expected = logits(made[1], image)
    assert deviation(net(image), expected) < 1e-5
    assert deviation(net(image.flip(3)), expected) > 1e-2


def manifest(shared, name):
    entries = json.loads((shared / f"golden/manifests/{name}.json").read_text())["entries"]
    return {key: tuple(shape) for key, shape, _ in entries}


@pytest.mark.parametrize("size", [256, 1024])
def test_full_size_names_and_shapes_are_the_public_ones(shared, size):
    sides = [2**i for i in range(2, size.bit_length())]
    channels = {side: min(512, 32768 // side) for side in sides}
    state = generator_state(nvidia_made.generator(channels, 512, 8, device="meta"), "made")
    assert state.pop("latent_avg").shape == (512,)
    assert {name: tuple(value.shape) for name, value in state.items()} == manifest(shared, f"stylegan2_g_{size}")
    state = discriminator_state(nvidia_made.discriminator(channels, device="meta"), "made")
    assert {name: tuple(value.shape) for name, value in state.items()} == manifest(shared, f"stylegan2_d_{size}")


def refuse(match, path):
    with pytest.raises(UserError, match=match) as caught:
        read_nvidia_pickle(path)
    assert "\n" not in str(caught.value)


def test_networks_of_another_kind_are_refused(made, tmp_path):
    generator, path = made[0], tmp_path / "g.pkl"
    conditional = generator | {"mapping.embed.weight": torch.zeros(8, 2)}
    refuse("mapping.embed.weight.*unconditional", nvidia_made.write(path, {"G": nvidia_made.module(conditional)}))
    partial = {name: value for name, value in generator.items() if "b8.conv0.noise" not in name}
    refuse("2 tensors differ, e.g. convs.0.noise", nvidia_made.write(path, {"G": nvidia_made.module(partial)}))
    quick = nvidia_made.module(generator, mapping_rate=0.1)
    refuse("0.1 times the rate", nvidia_made.write(path, {"G": quick}))
    refuse("0.1 times the rate", nvidia_made.write(path, nvidia_made.tf_generator(generator, mapping_lrmul=0.1)))
    progressive = nvidia_made.Network("G", {"synthesis/ToRGB_lod0/weight": generator["mapping.w_avg"].numpy()})
    refuse("ToRGB_lod0", nvidia_made.write(path, progressive))
    refuse("no StyleGAN2 networks", nvidia_made.write(path, {"G": "a text"}))
    refuse("no StyleGAN2 networks", nvidia_made.write(path, [1, 2]))
    wild = nvidia_made.Network("G", {"synthesis/noise999999999": generator["mapping.w_avg"].numpy()})
    refuse("noise999999999", nvidia_made.write(path, wild))


def test_a_lone_tensorflow_generator_is_the_average(made, tmp_path):
    path = nvidia_made.write(tmp_path / "Gs.pkl", nvidia_made.tf_generator(made[0]))
    assert set(read_nvidia_pickle(path)) == {"G_ema"}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_is_read(made, tmp_path, protocol):
    for content in (nvidia_made.tf_generator(made[0]), {"G_ema": nvidia_made.module(made[0])}):
        path = nvidia_made.write(tmp_path / "x.pkl", content, protocol)
        assert torch.equal(read_nvidia_pickle(path)["G_ema"]["style.1.weight"], made[0]["mapping.fc0.weight"])
