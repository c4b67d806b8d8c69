import json

import pytest
import torch
from torch.nn import functional as F

from faceanon.networks import bisenet
from faceanon.networks.bisenet import MEAN, STD, BiSeNet, FaceParser


@pytest.fixture(scope="module")
def public(golden):
    case = golden.case("bisenet")
    return golden.load(BiSeNet(19), "generic2", case), case


@pytest.fixture(scope="module")
def small(golden):
    return golden.image("bis:x", (2, 3, 96, 128))


def test_heads_equal_the_public_network(public, small, rms_error):
    net, case = public
    with torch.no_grad():
        heads = net(small, aux=True)
        assert torch.equal(net(small), heads[0])
    assert rms_error(heads[0], case["small_out"]) < 1e-4
    assert rms_error(heads[1][..., ::4, ::4], case["small_out16"]) < 1e-4
    assert rms_error(heads[2][..., ::4, ::4], case["small_out32"]) < 1e-4


def test_parsing_at_full_size_equals_the_public_network(golden, public, rms_error):
    net, case = public
    noise = json.loads(str(case["meta"]))["float32_noise"]
    with torch.no_grad():
        heads = net(golden.image("bis:X", (1, 3, 512, 512)), aux=True)
    for name, head in zip(("full_out", "full_out16", "full_out32"), heads, strict=True):
        assert head.shape == (1, 19, 512, 512)
        assert rms_error(head[..., ::16, ::16], case[f"{name}_stride16"]) < 1e-4, name
        statistics = torch.stack([head.mean((2, 3)), head.std((2, 3), unbiased=False)])
        assert rms_error(statistics, case[f"{name}_mean_std"]) < 1e-4, name
    clear = torch.from_numpy(case["full_argmax_margin_stride4"]) > 2 * noise["full_out"]["max_abs"]
    classes = heads[0].argmax(1)[:, ::4, ::4]
    assert clear.float().mean() > 0.99
    assert torch.equal(classes[clear], torch.from_numpy(case["full_argmax_stride4"]).long()[clear])


def unaligned(logits, image):
    return F.interpolate(logits, size=image.shape[-2:], mode="bilinear", align_corners=False)


def smooth(x, like):
    return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


@pytest.mark.parametrize(("name", "mistake"), [("_enlarge", unaligned), ("_nearest", smooth)])
def test_another_interpolation_is_exposed(public, small, rms_error, monkeypatch, name, mistake):
    net, case = public
    monkeypatch.setattr(bisenet, name, mistake)
    with torch.no_grad():
        assert rms_error(net(small), case["small_out"]) > 1e-2


def test_swapped_sides_are_exposed(public, small, rms_error):
    net, case = public
    with torch.no_grad():
        assert rms_error(net(small.mT).mT, case["small_out"]) > 1e-2


def test_face_parser_normalises_and_comes_back_to_the_picture(golden, public):
    net, _ = public
    parser = FaceParser(working_size=64).eval()
    parser.load_state_dict(net.state_dict(), strict=True)
    picture = golden.image("parser", (1, 3, 64, 64))
    unit = (picture + 1) / 2
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    with torch.no_grad():
        expected, given = net((unit - mean) / std), parser(picture)
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)
        assert (net(picture) - expected).abs().max() > 1  # the normalisation forgotten
        large = picture.repeat_interleave(2, 2).repeat_interleave(3, 3)
        heads = parser(large, aux=True)
    assert [tuple(head.shape) for head in heads] == [(1, 19, 128, 192)] * 3
    assert (heads[0].argmax(1)[:, ::2, 1::3] == expected.argmax(1)).float().mean() > 0.8


def test_shrinking_uses_every_pixel():
    """Like the image library's bilinear filter, with which the public network is fed."""
    checkered = torch.arange(64).add(torch.arange(64)[:, None]).remainder(2).float().expand(1, 1, 64, 64)
    shrunk = bisenet._resize(checkered, (16, 16))
    assert (shrunk - 0.5).abs().max() < 0.1
    assert bisenet._resize(checkered, (64, 64)) is checkered


def test_gradients_reach_the_picture_and_every_weight():
    torch.manual_seed(0)
    parser = FaceParser(n_classes=5, width=4, working_size=48)
    picture = torch.rand(2, 3, 40, 56).mul(2).sub(1).requires_grad_()
    heads = parser(picture, aux=True)
    assert [tuple(head.shape) for head in heads] == [(2, 5, 40, 56)] * 3
    sum(head.square().mean() for head in heads).backward()
    assert picture.grad.abs().sum() > 0
    assert [name for name, parameter in parser.named_parameters() if parameter.grad is None] == []
