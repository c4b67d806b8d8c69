"""Public recognisers, parser and perceptual net against what the public code gave (numbers beside the checkout)."""

import numpy as np
import pytest
import torch

from faceanon.errors import UserError
from faceanon.metrics.fingerprints import bundle_hashes
from faceanon.networks.adapters import Normalised, PerceptualDistance
from faceanon.networks.mobileface import MobileFaceNet
from faceanon.networks.mobileface_v2 import MobileFaceV2
from faceanon.networks.squeezenet import SqueezeNetFeatures
from faceanon.networks.unet_small import SmallUNet
from faceanon.weights.bundle import Bundle
from testbed_bundle import (
    CHANNEL_OF_CLASS,
    convert_mobileface_v2,
    convert_small_unet,
    convert_squeezenet,
    make_judging_bundle,
    make_testbed_bundle,
)


@pytest.fixture(scope="module")
def testbed(shared):
    folder = shared / "testbed"
    if not folder.is_dir():
        pytest.skip("no testbed beside the checkout")
    return folder


def numbers(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def tensors(path):
    return {name: torch.from_numpy(value) for name, value in numbers(path).items()}


def checkpoint(path):
    return torch.load(path, map_location="cpu", weights_only=True)


def picture(pixels):
    """uint8 NHWC -> float NCHW in [-1, 1]."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1


def loaded(net, state):
    net.load_state_dict(state, strict=True)
    return net.eval()


@torch.no_grad()
def test_mobilefacenet_equals_the_public_network(testbed, rms_error):
    public = checkpoint(testbed / "weights/recognition/mobilefacenet_casia_068.ckpt")
    net, golden = loaded(MobileFaceNet(), public["net_state_dict"]), numbers(testbed / "golden/recognition.npz")
    found = net(picture(golden["crops_rgb"])[..., 8:104])
    assert rms_error(found, golden["emb_mobilefacenet_casia"]) < 1e-4


@torch.no_grad()
def test_mobileface_v2_equals_the_public_network(testbed, rms_error):
    state = convert_mobileface_v2(tensors(testbed / "weights/recognition/mobileface_v2.npz"))
    net, golden = loaded(MobileFaceV2(), state), numbers(testbed / "golden/recognition.npz")
    assert rms_error(net(picture(golden["crops_rgb"])), golden["emb_mobileface_v2"]) < 1e-4


@torch.no_grad()
def test_parser_equals_the_public_network_in_celebamask_order(testbed, rms_error):
    public = checkpoint(testbed / "weights/parsing/unet_small_19.pth")
    net, golden = loaded(SmallUNet(), convert_small_unet(public)), numbers(testbed / "golden/parsing.npz")
    logits = net(picture(golden["images_rgb"][:2]))
    order = np.array(CHANNEL_OF_CLASS)
    assert rms_error(logits.mean((2, 3)), golden["logits_mean_per_channel"][:2, order]) < 1e-4
    assert (order[logits.argmax(1).numpy()] == golden["argmax_model_channels"][:2]).mean() > 0.9999


@torch.no_grad()
def test_squeezenet_equals_the_public_network(testbed, rms_error):
    state = convert_squeezenet(tensors(testbed / "weights/perceptual/squeezenet11_features.npz"))
    net, golden = loaded(SqueezeNetFeatures(), state), numbers(testbed / "golden/perceptual.npz")
    images = picture(golden["images_rgb"])
    for number, found in enumerate(net(images)):
        assert rms_error(found.mean((2, 3)), golden[f"layer{number}_mean"]) < 1e-4
    distance = PerceptualDistance(net)
    for other in (1, 2):
        expected = float(golden[f"dist_0_{other}"][0])
        assert float(distance(images[:1], images[other : other + 1])[0]) == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_the_bundle_of_these_weights_works_at_64_px(testbed, tmp_path):
    missing = make_testbed_bundle(tmp_path, testbed=testbed, parser_size=64, judge="mobilefacenet_casia")
    assert missing == ["generator.safetensors", "encoder.safetensors", "latent_avg.safetensors"]
    bundle, image = Bundle(tmp_path), torch.rand(2, 3, 64, 64) * 2 - 1
    assert (bundle.recogniser_name, bundle.judge_name) == ("mobileface_v2", "mobilefacenet_casia")
    for net, length in ((bundle.recogniser, 256), (bundle.judge, 128)):
        torch.testing.assert_close(net(image).norm(dim=1), torch.ones(2))
        assert net(image).shape == (2, length)
    assert bundle.parser(image).shape == (2, 19, 64, 64)
    assert not bundle.has("landmarks")
    with pytest.raises(UserError, match="written down for"):
        make_testbed_bundle(tmp_path / "larger", image_size=256, testbed=testbed)


def test_a_judging_bundle_has_two_judges_that_trained_nothing(testbed, tmp_path):
    make_judging_bundle(tmp_path, "photo128_pictures", testbed)
    bundle = Bundle(tmp_path)
    own = Bundle("photo128_pictures")
    assert bundle_hashes(bundle)["recogniser"] == bundle_hashes(own)["recogniser"]
    assert bundle.judge_name == "mobilefacenet_casia"
    assert bundle.entry("judge_second")["name"] == own.judge_name == "dlib_resnet"
    assert bundle.own_scale == {"dlib_resnet"}
    image = torch.rand(1, 3, 128, 128) * 2 - 1
    assert bundle.judge(image).shape == (1, 128)
    assert not bundle.compares_latents
    assert float(bundle.perceptual(image, image)) == pytest.approx(0, abs=1e-6)


class Looks(torch.nn.Module):
    """A recogniser that shows what it was given."""

    def forward(self, image):
        self.seen = image
        return image.flatten(1)


def test_growing_crops_are_interpolated_from_their_exact_place():
    column = (torch.arange(64.0) + 0.5) / 64  # a ramp: the value is the place
    ramp = column.expand(1, 3, 64, 64)
    net = Looks()
    Normalised(net, (112, 96), (0.1, 0.9, 0.2, 0.9))(ramp)
    expected = 0.2 + (torch.arange(96.0) + 0.5) / 96 * 0.7
    torch.testing.assert_close(net.seen, expected.expand(1, 3, 112, 96))
    Normalised(net, (112, 96), (0.1, 0.9, 0.2, 0.9))(ramp.mT)
    expected = 0.1 + (torch.arange(112.0) + 0.5) / 112 * 0.8
    torch.testing.assert_close(net.seen, expected[:, None].expand(1, 3, 112, 96))


def test_shrinking_and_untouched_pictures_are_as_before():
    image = torch.rand(2, 3, 256, 256)
    net = Looks()
    Normalised(net, 112, (35 / 256, 223 / 256, 32 / 256, 220 / 256))(image)
    assert torch.equal(net.seen, torch.nn.functional.adaptive_avg_pool2d(image[..., 35:223, 32:220], 112))
    Normalised(net)(image)
    assert net.seen is image
    Normalised(net, 256)(image)
    assert net.seen is image


def test_growing_lets_gradients_through():
    image = torch.rand(1, 3, 16, 16, requires_grad=True)
    Normalised(Looks(), 24, (0.0, 0.75, 0.25, 1.0))(image)[0, :5].sum().backward()
    assert image.grad[..., :12, 4:].abs().sum() > 0
    assert image.grad[..., 13:, :].abs().sum() == 0
