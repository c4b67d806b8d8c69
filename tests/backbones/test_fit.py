import pytest
import torch
from backbone_training import trained_parts

from faceanon.backbones.fit import FIT
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.testing import smooth_faces
from faceanon.types import Branches, Codes, FaceBatch

SMALL = {"width": 8, "blocks": 1}


@pytest.fixture
def backbone(tiny_bundle):
    torch.manual_seed(0)
    return FIT(str(tiny_bundle), **SMALL).eval()


@pytest.mark.parametrize("bits", [16, 64, 300])
def test_passwords_of_any_length(tiny_bundle, bits):
    backbone = FIT(str(tiny_bundle), password_bits=bits, **SMALL)
    assert backbone.key_bits == min(bits, 256)
    many = backbone.sample_key(200)
    assert set(many.unique().tolist()) == {-0.5, 0.5}
    assert many.mean().abs() < 0.05
    typed = torch.cat([backbone.key_from_secret(Secret.random(i), 1) for i in range(200)])
    assert set(typed.unique().tolist()) == {-0.5, 0.5}
    assert typed.mean().abs() < 0.05
    assert backbone.translator[0].in_channels == 3 + bits


@torch.no_grad()
def test_every_bit_counts_and_the_way_back_takes_the_inverse_password(backbone):
    image, key = smooth_faces(64)[:1], backbone.sample_key(1)
    drawn = backbone.anonymize(image, key)
    for bit in range(16):
        other = key.clone()
        other[0, bit] *= -1
        assert (backbone.anonymize(image, other) - drawn).abs().max() > 1e-5, bit
    assert torch.equal(backbone.recover(drawn, key), backbone.anonymize(drawn, -key))
    assert drawn.abs().max() <= 1


def test_the_password_term_compares_each_pair_with_its_own_password(backbone):
    class KnowsAll(torch.nn.Module):
        """Sure of what it is told, in the order of the pairs."""

        def forward(self, pairs):
            assert pairs.shape == (10, 6, 64, 64)
            return told * 100

    batch = FaceBatch(smooth_faces(64)[:2], torch.arange(2), torch.arange(2))
    keys = backbone.sample_key(8)
    told = torch.cat([keys[0:2], keys[2:4], -keys[0:2], -keys[4:6], -keys[6:8]])
    codes = Codes(batch.image)
    branches = Branches(torch.rand(10, 3, 64, 64), codes, codes, None, codes, keys)
    backbone.reader = KnowsAll()
    assert backbone.anonymize_terms(batch, branches, {"password"})["password"] < 1e-6
    told = -told
    assert backbone.anonymize_terms(batch, branches, {"password"})["password"] > 10
    assert backbone.anonymize_terms(batch, branches, set()) == {}


def test_no_bits(tiny_bundle):
    with pytest.raises(UserError, match="give at least 1"):
        FIT(str(tiny_bundle), password_bits=0)


def test_its_stage_trains_network_and_reader(tiny_bundle, tmp_path):
    changed, terms = trained_parts("fit_s2", tiny_bundle, tmp_path)
    assert changed == {"translator", "reader"}
    assert terms == {"adversarial", "identity", "reconstruction", "recovery", "password"}
