import pytest
import torch
from torch.nn import functional as F

from faceanon.networks import e4e
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.psp import GradualStyleEncoder

SMALL = {"stylegan_size": 64, "style_dim": 16, "input_size": 64, "widths": (4, 4, 6, 8, 10), "units": (1, 2, 2, 1)}


@pytest.fixture(scope="module")
def public(golden):
    """No codes of the public pSp were recorded; its weights and trunk are e4e's, whose codes were."""
    case = golden.case("e4e_small")
    return golden.load(GradualStyleEncoder(32), "generic", case), golden.image("e4e_small:x", (2, 3, 64, 64)), case


def as_e4e(codes):
    """What e4e makes of the same rows: the first for all layers, the others added to it."""
    return torch.cat([codes[:, :1], codes[:, :1] + codes[:, 1:]], 1)


def test_rows_are_the_public_corrections_without_the_base(public, rms_error):
    net, image, case = public
    with torch.no_grad():
        codes, features = net.with_features(image)
        assert torch.equal(net(image), codes)
    assert rms_error(as_e4e(codes), case["codes_inference"]) < 1e-4
    corrections = case["codes_inference"][:, 1:] - case["codes_w"][:, 1:]
    assert rms_error(codes[:, 1:], corrections) < 1e-4
    assert rms_error(codes, case["codes_inference"]) > 1  # one file decoded as the other
    for name, side in (("c1", 16), ("c2", 8), ("c3", 4)):
        assert rms_error(features[side].mean((2, 3)), case[f"{name}_chan_mean"]) < 1e-4, name


def test_unaligned_corners_are_exposed(public, rms_error, monkeypatch):
    net, image, case = public
    monkeypatch.setattr(
        e4e, "upsample_add", lambda x, y: F.interpolate(x, y.shape[-2:], mode="bilinear", align_corners=False) + y
    )
    with torch.no_grad():
        assert rms_error(as_e4e(net(image)), case["codes_inference"]) > 1e-2


def test_either_encoder_is_called_alike():
    torch.manual_seed(0)
    taps = {"feature_taps": (-1, 0, 2)}
    psp, other = GradualStyleEncoder(**SMALL, **taps).eval(), Encoder4Editing(**SMALL, **taps).eval()
    other.load_state_dict(psp.state_dict(), strict=True)
    image = torch.randn(2, 3, 64, 64)
    codes, features = psp.with_features(image)
    other_codes, other_features = other.with_features(image)
    assert codes.shape == (2, 10, 16)
    torch.testing.assert_close(as_e4e(codes), other_codes)
    assert {side: f.shape[1] for side, f in features.items()} == psp.feature_channels == {64: 4, 32: 4, 16: 6}
    assert all(torch.equal(features[side], other_features[side]) for side in features)


def test_every_row_has_its_own_block():
    torch.manual_seed(0)
    net = GradualStyleEncoder(**SMALL).eval()
    image = torch.randn(2, 3, 64, 64)
    before = net(image)
    with torch.no_grad():
        net.styles[4].linear.bias += 1
    change = (net(image) - before).abs().amax((0, 2))
    torch.testing.assert_close(change, F.one_hot(torch.tensor(4), 10).float())


def test_other_inputs_than_rgb():
    net = GradualStyleEncoder(**SMALL, input_nc=19).eval()
    assert net(torch.randn(1, 19, 64, 64)).shape == (1, 10, 16)
    assert list(net.state_dict()) == list(GradualStyleEncoder(**SMALL).state_dict())
    with pytest.raises(ValueError, match="too large"):
        net(torch.zeros(1, 19, 128, 128))
