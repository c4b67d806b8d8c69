import pytest
import torch
from backbone_training import trained_parts

from faceanon.backbones.riddle import Riddle
from faceanon.errors import UserError
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


@torch.no_grad()
def test_with_flips_the_key_undoes_itself_before_any_training(tiny_bundle):
    torch.manual_seed(0)
    method = Riddle(str(tiny_bundle), add_linear=True, add_pos_embedding=True, flips=3, flip_share=0.7).eval()
    code = method.encode(smooth_faces(64)).identity
    key, other = method.sample_key(4), method.sample_key(4)
    stranger = method.transform(code, key)
    torch.testing.assert_close(method.transform(stranger, key), code)
    assert (method.transform(stranger, other) - code).norm() > 0.5 * (code - method.latent_avg).norm()
    # The first numbers, which hold light and skin, stay.
    assert torch.equal(stranger[:, 0, :3], code[:, 0, :3])
    assert (stranger[:, 0, 3:] - code[:, 0, 3:]).abs().max() > 0
    # What is learnt is added to the changed code, which the encryptor sees.
    method.addition.weight.copy_(torch.eye(16))
    added = method.transform(code, key) - stranger
    password = method.key_mapping(key)
    torch.testing.assert_close(added, method.mapper(stranger, password), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_a_stretch_draws_strangers_farther_from_the_mean_and_the_way_back_divides_again(tiny_bundle):
    torch.manual_seed(0)
    method = Riddle(str(tiny_bundle), flips=3, flip_share=0.7, flip_stretch=1.5).eval()
    code, key = method.encode(smooth_faces(64)).identity, method.sample_key(4)
    stretched = method.transform(code, key) - method.latent_avg
    torch.testing.assert_close(method.transform(stretched + method.latent_avg, key, inverse=True), code)
    method.flip_stretch = 1.0
    plain = method.transform(code, key) - method.latent_avg
    torch.testing.assert_close(stretched[..., 3:], 1.5 * plain[..., 3:])
    torch.testing.assert_close(stretched[..., :3], plain[..., :3])


@pytest.mark.parametrize(("flips", "stretch"), [(3, 0), (None, 1.5)])
def test_a_stretch_that_is_none_or_has_nothing_to_stretch_is_told(tiny_bundle, flips, stretch):
    with pytest.raises(UserError, match="flip_stretch is"):
        Riddle(str(tiny_bundle), flips=flips, flip_stretch=stretch)


def test_a_share_that_is_none_is_told(tiny_bundle):
    with pytest.raises(UserError, match="flip_share is 1"):
        Riddle(str(tiny_bundle), flips=3, flip_share=1)


def test_without_flips_nothing_is_added_to_the_paper_s_network(backbone):
    assert not [name for name in backbone.state_dict() if name.startswith("addition")]
