from pathlib import Path

import pytest
import timm
import torch
import yaml
from torch.nn import functional as F

from faceanon.errors import UserError
from faceanon.files import load_strictly, load_tensors, save_tensors
from faceanon.networks.timm_encoder import TimmEncoder
from faceanon.weights.bundle import network_class

SMALL = {"stylegan_size": 64, "style_dim": 16, "input_size": 64, "width": 12}
CHANNELS = {
    "resnet18": {16: 64, 8: 128, 4: 256},
    "convnext_atto": {16: 40, 8: 80, 4: 160},
    "mobilenetv3_small_050": {16: 8, 8: 16, 4: 24},
}


@pytest.fixture
def image():
    return torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.mark.parametrize("name", CHANNELS)
def test_codes_and_maps(image, name):
    net = TimmEncoder(name, **SMALL)
    codes, maps = net(image)
    assert codes.shape == (2, net.n_latent, 16) == (2, 10, 16)
    assert {side: item.shape[1] for side, item in maps.items()} == net.feature_channels == CHANNELS[name]
    assert all(item.shape[2:] == (side, side) for side, item in maps.items())


def test_public_features_are_at_64_32_and_16_px():
    with torch.device("meta"):
        net = TimmEncoder("resnet18")
        codes, maps = net(torch.zeros(1, 3, 256, 256))
    assert codes.shape == (1, 14, 512)
    assert net.feature_channels == {64: 64, 32: 128, 16: 256}
    assert list(maps) == [64, 32, 16]


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto"])
def test_every_parameter_and_the_image_get_a_gradient(image, name):
    net = TimmEncoder(name, **SMALL)
    image.requires_grad_()
    codes, _ = net(image)
    codes.square().sum().backward()
    assert image.grad.abs().max() > 0
    without = [key for key, value in net.named_parameters() if value.grad is None or not value.grad.isfinite().all()]
    assert without == []


@pytest.mark.parametrize("name", CHANNELS)
def test_strict_round_trip(image, tmp_path, name):
    torch.manual_seed(0)
    net = TimmEncoder(name, **SMALL)
    net(image)  # moves the batch statistics
    save_tensors(tmp_path / "encoder.safetensors", net.state_dict())
    other = TimmEncoder(name, **SMALL)
    load_strictly(other, load_tensors(tmp_path / "encoder.safetensors"), "it")
    with torch.no_grad():
        expected, actual = net.eval()(image), other.eval()(image)
    assert torch.equal(expected[0], actual[0])
    assert all(torch.equal(expected[1][side], actual[1][side]) for side in expected[1])
    with pytest.raises(UserError, match="missing"):
        load_strictly(TimmEncoder("resnet34", **SMALL), net.state_dict(), "it")


def test_the_trunk_sees_what_it_was_trained_on():
    net, seen = TimmEncoder("resnet18", **SMALL).eval(), []
    net.trunk.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    net(torch.tensor([-1.0, 0.0, 1.0])[None, :, None, None].expand(1, 3, 64, 64))
    expected = [(0.0 - 0.485) / 0.229, (0.5 - 0.456) / 0.224, (1.0 - 0.406) / 0.225]
    torch.testing.assert_close(seen[0][0, :, 5, 5], torch.tensor(expected))


def test_pictures_of_another_side_are_resized_first(image):
    net = TimmEncoder("convnext_atto", **SMALL | {"input_size": 128}).eval()
    large = F.interpolate(image, (128, 128), mode="bilinear", align_corners=False, antialias=True)
    with torch.no_grad():
        codes, maps = net(image)
        assert torch.equal(codes, net(large)[0])
    assert {side: item.shape[1] for side, item in maps.items()} == net.feature_channels == {32: 40, 16: 80, 8: 160}


@torch.no_grad()
def test_what_it_sees_are_pictures_of_one_size_whatever_its_bundle_draws_on(image):
    net = TimmEncoder("resnet18", **SMALL | {"input_size": 128}).eval()
    seen = net.seen(image)
    assert seen[0].numel() == net.input_nc * net.input_size**2
    assert torch.equal(net.seen(seen), seen)
    assert torch.equal(net(seen)[0], net(image)[0])
    # A bundle with a codec lends it to every encoder; this one reads pictures all the same.
    net.lend(lambda: pytest.fail("the codec was asked for"))
    assert torch.equal(net.seen(image), seen)


def test_a_model_with_channels_last_fits(image):
    args = {"img_size": 64, "window_size": 2, "embed_dim": 24}
    net = TimmEncoder("swin_tiny_patch4_window7_224", **SMALL, model_args=args)
    codes, maps = net(image)
    assert codes.shape == (2, 10, 16)
    assert {side: item.shape[1] for side, item in maps.items()} == net.feature_channels == {16: 24, 8: 48, 4: 96}


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_050"])
def test_the_trunk_starts_from_a_local_file(tmp_path, name, suffix):
    torch.manual_seed(1)
    whole = timm.create_model(name, pretrained=False, num_classes=7)  # the classifier's shape does not matter
    path = tmp_path / f"trunk.{suffix}"
    if suffix == "pth":
        torch.save(whole.state_dict(), path)
    else:
        save_tensors(path, whole.state_dict())
    trunk = TimmEncoder(name, **SMALL, trunk_file=str(path)).trunk.state_dict()
    expected = whole.state_dict()
    assert sum(tensor.numel() for tensor in trunk.values()) > 50_000
    assert [key for key, tensor in trunk.items() if not torch.equal(tensor, expected[key])] == []
    if name == "resnet18":
        with pytest.raises(UserError, match=r"does not fit ResNet \(Missing key"):
            TimmEncoder("resnet34", **SMALL, trunk_file=str(path))


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no model 'resnt18'; did you mean .*resnet18") as caught:
        TimmEncoder("resnt18")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no model 'hf-hub:someone/something'"):
        TimmEncoder("hf-hub:someone/something")
    with pytest.raises(UserError, match=r"has no weights 'a9_in1k'; it knows a1_in1k"):
        TimmEncoder("resnet18.a9_in1k")
    with pytest.raises(UserError, match=r"maps at 1/16, 1/16.*needs one each at 1/4, 1/8 and 1/16"):
        TimmEncoder("vit_tiny_patch16_224", **SMALL, model_args={"img_size": 64})
    with pytest.raises(UserError, match="gives no feature maps of a 64 px image"):
        TimmEncoder("swin_tiny_patch4_window7_224", **SMALL)
    with pytest.raises(UserError, match="16 times a power of two, not 96"):
        TimmEncoder("resnet18", **SMALL | {"input_size": 96})
    with pytest.raises(UserError, match=r"no file .*missing.safetensors: give the weights of timm's resnet18"):
        TimmEncoder("resnet18", **SMALL, trunk_file=str(tmp_path / "missing.safetensors"))


def test_the_shipped_config_fits_the_embedded_bundle(repo: Path):
    spec = yaml.safe_load((repo / "configs/encoder/timm.yaml").read_text())
    with torch.device("meta"):
        net = network_class(spec["class_path"])(**spec["init_args"])
        codes, maps = net(torch.zeros(1, 3, 64, 64))
    generator = yaml.safe_load((repo / "configs/paper/prior.yaml").read_text())["model"]["init_args"]["generator"]
    assert codes.shape == (1, 10, generator["init_args"]["style_dim"])
    assert list(maps) == [64, 32, 16]
