"""DBAF's key as a change of signs: undone by the same key alone, and learnt from."""

import pytest
import torch

from bundles import make_tiny_bundle
from faceanon.backbones.dbaf_flips import DBAFWithFlips
from faceanon.errors import UserError
from faceanon.models import load_into, save_backbone
from faceanon.networks.level_edits import flipped
from faceanon.testing import check_backbone

SMALL = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return str(make_tiny_bundle(tmp_path_factory.mktemp("bundle")))


def test_a_key_undoes_its_own_change_and_no_other():
    torch.manual_seed(0)
    code, key, other = torch.randn(4, 14, 64), torch.randn(4, 3, 64), torch.randn(4, 3, 64)
    stranger = flipped(code, key, kept=5)
    torch.testing.assert_close(flipped(stranger, key, kept=5), code)
    # Half of the signs are other ones: the codes are as far apart as two of different people.
    for wrong in (stranger, flipped(stranger, other, kept=5)):
        assert (wrong - code).norm() > code.norm()
    assert torch.equal(stranger[:, 0, :5], code[:, 0, :5])
    assert not torch.equal(stranger[:, 0, 5:], code[:, 0, 5:])


def test_with_more_signs_changed_strangers_are_the_opposite_and_two_keys_stay_apart():
    torch.manual_seed(0)
    share = 0.7
    code = torch.randn(1, 14, 4096)
    key, other = torch.randn(2, 1, 3, 4096)
    stranger = flipped(code, key, share=share)
    torch.testing.assert_close(flipped(stranger, key, share=share), code)
    second = flipped(code, other, share=share)
    wrong = flipped(stranger, other, share=share)
    for one, two, alike in ((stranger, code, 1 - 2 * share), (stranger, second, 0.16), (wrong, code, 0.16)):
        assert torch.cosine_similarity(one[:, 0], two[:, 0]).item() == pytest.approx(alike, abs=0.06)


@pytest.mark.parametrize("share", [0, 1, -0.5])
def test_a_share_that_is_none_is_told(bundle, share):
    with pytest.raises(UserError, match="flip_share is"):
        DBAFWithFlips(bundle, flips=2, flip_share=share, **SMALL)


def test_before_any_training_the_right_key_brings_the_code_back(bundle):
    torch.manual_seed(0)
    method = DBAFWithFlips(bundle, flips=2, **SMALL).eval()
    size = method.image_size
    codes = method.encode(torch.rand(2, 3, size, size) * 2 - 1)
    key, wrong = method.sample_key(4).chunk(2)
    stranger = method.edit(codes, key)
    with torch.no_grad():
        assert (stranger.identity - codes.identity).norm() > 0.1 * codes.identity.norm()
        back = method.edit(stranger, key, inverse=True)
        torch.testing.assert_close(back.identity, codes.identity, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(method.edit(stranger, wrong, inverse=True).identity, codes.identity, atol=1e-2)


def test_a_stretch_draws_strangers_farther_from_the_mean_and_the_way_back_divides_again(bundle):
    torch.manual_seed(0)
    plain = DBAFWithFlips(bundle, flips=2, **SMALL).eval()
    method = DBAFWithFlips(bundle, flips=2, flip_stretch=1.5, **SMALL).eval()
    size = method.image_size
    codes = method.encode(torch.rand(2, 3, size, size) * 2 - 1)
    key = method.sample_key(2)
    with torch.no_grad():
        stranger = method.transform(codes.identity, key)
        usual = plain.transform(codes.identity, key)
        # The numbers that keep their sign hold light and skin, and stay.
        torch.testing.assert_close(stranger[..., :2], usual[..., :2])
        torch.testing.assert_close(stranger[..., 2:], 1.5 * usual[..., 2:])
        back = method.transform(stranger, key, inverse=True)
        torch.testing.assert_close(back, codes.identity, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("flips", "stretch"), [(2, 0), (2, -1.0)])
def test_a_stretch_that_is_none_is_told(bundle, flips, stretch):
    with pytest.raises(UserError, match="flip_stretch is"):
        DBAFWithFlips(bundle, flips=flips, flip_stretch=stretch, **SMALL)


def test_a_later_stage_may_change_share_and_stretch(bundle, tmp_path):
    save_backbone(DBAFWithFlips(bundle, flips=2, flip_share=0.7, **SMALL), tmp_path)
    method = DBAFWithFlips(bundle, flips=2, flip_share=0.8, flip_stretch=1.4, **SMALL)
    load_into(method, tmp_path)
    assert (method.flip_share, method.flip_stretch) == (0.8, 1.4)


def test_kria_learns_what_to_add(bundle):
    method = DBAFWithFlips(bundle, flips=0, **SMALL)
    size = method.image_size
    codes = method.encode(torch.rand(2, 3, size, size) * 2 - 1)
    method.edit(codes, method.sample_key(2)).identity.square().sum().backward()
    for level in method.kria:
        assert level.net[-1].weight.grad.any()


def test_it_keeps_the_contract_of_a_method(bundle):
    check_backbone(DBAFWithFlips(bundle, flips=2, flip_stretch=1.5, **SMALL))


@torch.no_grad()
def test_a_small_start_of_cid_leaves_the_identity_the_whole_code(bundle):
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    found = {}
    for start in (1.0, 0.05):
        torch.manual_seed(0)
        found[start] = DBAFWithFlips(bundle, cid_start=start, **SMALL).eval().encode(images)
    usual = found[1.0]
    small = found[0.05]
    torch.testing.assert_close(small.identity + small.attributes, usual.identity + usual.attributes)
    assert small.attributes.square().mean() < 0.01 * usual.attributes.square().mean()
