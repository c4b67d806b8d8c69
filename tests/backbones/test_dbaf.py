import pytest
import torch

from faceanon.backbones.dbaf import DBAF
from faceanon.key import Secret

SMALL = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}


@pytest.fixture(scope="module")
def images():
    return torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1


@pytest.fixture
def backbone(tiny_bundle):
    torch.manual_seed(0)
    return DBAF(str(tiny_bundle), **SMALL).eval()


@torch.no_grad()
def test_shapes_and_ranges_of_the_contract(backbone, images):
    key = backbone.sample_key(4, torch.Generator().manual_seed(2))
    assert key.shape == (4, 3, 16)
    codes = backbone.encode(images)
    assert codes.attributes.shape == (4, 10, 16)
    assert set(codes.features) == {16, 32, 64}
    assert backbone.w_plus(codes).shape == (4, 10, 16)
    for picture in (backbone.anonymize(images, key), backbone.recover(images, key), backbone.decode(codes)):
        assert picture.shape == images.shape
        assert picture.isfinite().all()


@torch.no_grad()
def test_a_result_does_not_depend_on_the_rest_of_the_batch(backbone, images):
    key = backbone.sample_key(4, torch.Generator().manual_seed(2))
    together = backbone.anonymize(images, key)
    alone = torch.cat([backbone.anonymize(images[i : i + 1], key[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(together, alone, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_the_released_axis_mixes_the_pictures_of_a_batch(tiny_bundle, images):
    torch.manual_seed(0)
    released = DBAF(str(tiny_bundle), **SMALL, cid_axis="batch", cid_form="levels").eval()
    together, alone = released.encode(images).attributes[:1], released.encode(images[:1]).attributes
    assert (together - alone).abs().max() > 1e-3


@torch.no_grad()
def test_the_key_changes_the_face_and_is_deterministic(backbone, images):
    first, second = backbone.sample_key(2, torch.Generator().manual_seed(2)).split(1)
    one = backbone.encode(images[:1]).identity
    edited = backbone.transform(one, first)
    torch.testing.assert_close(edited, backbone.transform(one, first))
    assert (edited - backbone.transform(one, second)).abs().max() > 1e-3


def test_gradients_reach_what_trains_and_are_finite(backbone, images):
    backbone.train()
    key = backbone.sample_key(2)
    backbone.recover(backbone.anonymize(images[:2], key), key).square().mean().backward()
    grads = {name: p.grad for name, p in backbone.named_parameters() if p.grad is not None}
    assert {"cid", "maar", "generator", "encoder"} <= {name.split(".")[0] for name in grads}
    assert all(grad.isfinite().all() for grad in grads.values())
    assert not backbone.encoder.training


def test_state_dict_goes_round_and_holds_no_frozen_network(backbone, tiny_bundle):
    other = type(backbone)(**backbone.init_args)
    other.load_state_dict(backbone.state_dict())
    assert not [name for name in backbone.state_dict() if "recogniser" in name or "key_mapping" in name]


def test_a_password_gives_one_key_for_every_face(backbone):
    secret = Secret.from_password("correct horse battery staple", b"0123456789abcdef")
    keys = backbone.key_from_secret(secret, 3)
    assert keys.shape == (3, 3, 16)
    assert (keys == keys[:1]).all()
    other = backbone.key_from_secret(Secret.from_password("another one", b"0123456789abcdef"), 1)
    assert (keys[:1] - other).abs().max() > 0.1
