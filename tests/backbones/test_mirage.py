import pytest
import torch
from backbone_training import trained_parts

from faceanon.backbones.mirage import Mirage
from faceanon.key import Secret
from faceanon.models import load_backbone, save_backbone
from faceanon.networks.keyed_flow import KeyedFlow

SMALL = {"grades": [8, 8]}


@pytest.fixture
def backbone(tiny_bundle):
    torch.manual_seed(0)
    return Mirage(str(tiny_bundle), **SMALL).eval()


@torch.no_grad()
def test_the_code_is_turned_by_a_flow_and_back(backbone):
    assert isinstance(backbone.turn, KeyedFlow)
    code, key = torch.randn(8, 16), backbone.sample_key(8)
    assert key.shape == (8, backbone.turn.key_size)
    turned = backbone.transform(code, key)
    assert (backbone.transform(turned, key, inverse=True) - code).abs().max() < 1e-4
    assert (backbone.transform(turned, backbone.sample_key(8), inverse=True) - code).abs().max() > 0.1
    doubled = backbone.transform(2 * code, key)
    assert (doubled - 2 * turned).abs().max() > 0.1  # not linear


def test_a_password_gives_one_key(backbone):
    secret = Secret.from_password("correct horse battery staple", b"0123456789abcdef")
    keys = backbone.key_from_secret(secret, 2)
    assert keys.shape == (2, *backbone.key_shape)
    assert torch.equal(keys[0], keys[1])


def test_it_comes_back_from_disk(backbone, tmp_path):
    save_backbone(backbone, tmp_path)
    again, _ = load_backbone(tmp_path)
    assert isinstance(again, Mirage)
    assert again.turn.grades == (8, 8)
    assert again.state_dict().keys() == backbone.state_dict().keys()


def test_both_stages_train(tiny_bundle, tmp_path):
    changed, terms = trained_parts("mirage_s1", tiny_bundle, tmp_path / "1")
    assert changed == {"generator", "encoder", "expand"}
    assert "identity" in terms
    start = f"--model.init_args.init_from={tmp_path}/1/model"
    every = "--model.init_args.branches_every=1"
    changed, terms = trained_parts("mirage_s2", tiny_bundle, tmp_path / "2", start, every)
    assert changed == {"generator", "encoder", "expand"}
    assert {"adversarial", "wrong_anchor", "target", "recovery"} <= terms
