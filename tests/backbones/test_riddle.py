import pytest
import torch
from backbone_training import trained_parts

from faceanon.backbones.riddle import Riddle
from faceanon.testing import smooth_faces


@pytest.fixture
def backbone(tiny_bundle):
    torch.manual_seed(0)
    return Riddle(str(tiny_bundle), add_linear=True, add_pos_embedding=True).eval()


@torch.no_grad()
def test_the_password_is_mapped_and_given_to_every_layer(backbone):
    images, key = smooth_faces(64), backbone.sample_key(4)
    codes = backbone.encode(images)
    assert codes.identity.shape == (4, 10, 16)
    password = backbone.generator.mapping(key)[:, None].expand(-1, 10, -1)
    expected = backbone.mapper(codes.identity, password)
    torch.testing.assert_close(backbone.transform(codes.identity, key), expected)
    torch.testing.assert_close(backbone.transform(codes.identity, 3 * key), expected, atol=1e-4, rtol=1e-3)


@torch.no_grad()
def test_encryption_and_decryption_are_one_network(backbone):
    code, key = backbone.encode(smooth_faces(64)).identity, backbone.sample_key(4)
    assert torch.equal(backbone.transform(code, key), backbone.transform(code, key, inverse=True))
    assert [part.self_attn.embed_dim for part in backbone.mapper.layers] == [16, 16, 16]
    assert backbone.mapper.split == [4, 4, 2]


def test_the_frozen_key_mapping_stays_out_of_the_model(backbone):
    assert not [name for name in backbone.state_dict() if name.startswith("key_mapping")]
    assert not backbone.train().encoder.training


def test_its_stage_trains_the_mapper_alone(tiny_bundle, tmp_path):
    changed, terms = trained_parts("riddle_s2", tiny_bundle, tmp_path)
    assert changed == {"mapper"}
    assert terms == {"identity", "reconstruction", "perceptual"}
