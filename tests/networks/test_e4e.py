import pytest
import torch
from torch.nn import functional as F

from faceanon.networks import e4e
from faceanon.networks.e4e import Encoder4Editing

STAGES = {"w": 0, "delta2": 2, "delta5": 5, "inference": 18}
SMALL = {"stylegan_size": 64, "style_dim": 16, "input_size": 64, "widths": (4, 4, 6, 8, 10), "units": (1, 2, 2, 1)}


@pytest.fixture(scope="module")
def public(golden):
    case = golden.case("e4e_small")
    return golden.load(Encoder4Editing(32), "generic", case), golden.image("e4e_small:x", (2, 3, 64, 64)), case


@pytest.mark.parametrize("size", [256, 1024])
def test_layout_is_the_public_one(golden, size):
    with torch.device("meta"):
        net = Encoder4Editing(size)
    expected = golden.manifest(f"e4e_{size}", "encoder.")
    assert [(key, tuple(t.shape)) for key, t in net.state_dict().items()] == expected


def test_codes_of_every_stage_and_features_equal_the_public_network(public, rms_error):
    net, image, case = public
    for name, stage in STAGES.items():
        net.progressive_stage = stage
        with torch.no_grad():
            codes, features = net(image)
        assert rms_error(codes, case[f"codes_{name}"]) < 1e-4, name
    maps = dict(zip(("c1", "c2", "c3"), (features[side] for side in (16, 8, 4)), strict=True))
    maps["p2"], maps["p1"] = net.pyramid(*maps.values())[1:]
    for name, value in maps.items():
        assert tuple(value.shape) == tuple(case[f"{name}_shape"])
        assert rms_error(value[0, 0], case[f"{name}_sample0_ch0"]) < 1e-4, name
        assert rms_error(value.mean((2, 3)), case[f"{name}_chan_mean"]) < 1e-4, name


def test_unaligned_corners_are_exposed(public, rms_error, monkeypatch):
    net, image, case = public
    net.progressive_stage = 18
    monkeypatch.setattr(
        e4e, "upsample_add", lambda x, y: F.interpolate(x, y.shape[-2:], mode="bilinear", align_corners=False) + y
    )
    with torch.no_grad():
        assert rms_error(net(image)[0], case["codes_inference"]) > 1e-2


def test_public_features_are_at_64_32_and_16_px():
    with torch.device("meta"):
        net = Encoder4Editing(256)
        codes, features = net(torch.zeros(1, 3, 256, 256))
    assert codes.shape == (1, 14, 512)
    assert {side: tuple(f.shape[1:]) for side, f in features.items()} == {
        64: (128, 64, 64), 32: (256, 32, 32), 16: (512, 16, 16)
    }  # fmt: skip
    assert net.feature_channels == {64: 128, 32: 256, 16: 512}


def test_a_small_encoder_taps_features_where_it_is_told():
    net = Encoder4Editing(**SMALL, feature_taps=(-1, 0, 2)).eval()
    codes, features = net(torch.randn(2, 3, 64, 64))
    assert codes.shape == (2, 10, 16)
    assert {side: f.shape[1] for side, f in features.items()} == net.feature_channels == {64: 4, 32: 4, 16: 6}
    assert all(f.shape[2:] == (side, side) for side, f in features.items())


def test_a_row_is_the_base_plus_its_correction_and_idle_ones_get_no_gradient():
    torch.manual_seed(0)
    net = Encoder4Editing(**SMALL).eval()
    image = torch.randn(2, 3, 64, 64)
    full, _ = net(image)
    net.progressive_stage = 4
    codes, _ = net(image)
    torch.testing.assert_close(codes[:, :5], full[:, :5])
    assert all(torch.equal(codes[:, row], codes[:, 0]) for row in range(5, 10))
    codes.sum().backward()
    assert net.styles[4].linear.weight.grad is not None
    assert net.styles[5].linear.weight.grad is None
    assert net.latlayer2.weight.grad is None


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="body indices go from -1"):
        Encoder4Editing(**SMALL, feature_taps=(9,))
    with pytest.raises(ValueError, match="two maps of 16 px"):
        Encoder4Editing(**SMALL, feature_taps=(1, 2))


@torch.no_grad()
def test_pictures_of_a_larger_generator_are_shrunk_by_averaging():
    net = Encoder4Editing(**SMALL).eval()
    picture = torch.randn(2, 3, 128, 128, generator=torch.Generator().manual_seed(0))
    halved = (picture[..., ::2] + picture[..., 1::2]) / 2
    halved = (halved[..., ::2, :] + halved[..., 1::2, :]) / 2
    codes, maps = net(picture)
    expected, expected_maps = net(halved)
    torch.testing.assert_close(codes, expected)
    assert set(maps) == set(expected_maps)
