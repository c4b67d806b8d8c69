"""Methods that draw in the frame of a mesh, in use on pictures."""

import pytest
import torch

from faceanon.backbones.classical import Blur
from faceanon.backbones.dbaf_flips import DBAFWithFlips
from faceanon.backbones.frame_options import FrameOptions
from faceanon.backbones.in_frame import InMeshFrame, in_use
from faceanon.data.prepared import shipped_faces, shipped_pictures
from faceanon.key import Secret
from faceanon.metrics.saved import saved
from faceanon.weights.bundle import Bundle

SMALL = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8, "cid_start": 0.0}


@pytest.fixture(scope="module")
def faces():
    bundle = Bundle("photo128_mesh")
    return shipped_faces(bundle, shipped_pictures(bundle, "test")[:4], 128)


@pytest.fixture(scope="module")
def plain():
    torch.manual_seed(0)
    # Untrained: KRIA adds nothing, and the key changes signs.
    return DBAFWithFlips("photo128_prior", flips=10, **SMALL).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def method(plain):
    return in_use(plain)


@pytest.fixture(scope="module")
def keys(method):
    return method.key_from_secret(Secret.random(0), 4)


def alike(first, second):
    bundle = Bundle("photo128")
    return (bundle.recogniser(first) * bundle.recogniser(second)).sum(1)


def test_it_hides_and_brings_back_from_the_picture_alone(method, faces, keys):
    hidden = saved(method.anonymize(faces, keys))
    assert alike(hidden, faces).mean() < 0.45
    back = saved(method.recover(hidden, keys))
    assert alike(back, faces).mean() > alike(hidden, faces).mean() + 0.1
    wrong = saved(method.recover(hidden, method.key_from_secret(Secret.random(1), 4)))
    assert alike(wrong, faces).mean() < alike(back, faces).mean() - 0.1


def test_hair_and_background_are_the_picture_s(method, faces, keys):
    hidden = method.anonymize(faces, keys)
    assert torch.equal(hidden[:, :, :16], faces[:, :, :16])
    assert torch.equal(hidden[..., :8], faces[..., :8])
    assert (hidden - faces)[:, :, 60:80, 54:74].abs().mean() > 0.02


def test_the_head_stays_turned_as_it_is(method, faces, keys):
    bundle = Bundle("photo128_mesh")
    before = bundle.landmarks(faces)
    after = bundle.landmarks(method.anonymize(faces, keys))
    others = (before - before.roll(1, 0)).norm(dim=-1).mean()
    assert (after - before).norm(dim=-1).mean() < 0.4 * others


def test_the_three_steps_give_what_anonymize_gives(method, faces, keys):
    codes = method.edit(method.encode(faces), keys)
    assert torch.allclose(method.decode(codes), method.anonymize(faces, keys), atol=1e-5)
    # As in a clip, whose frames share one identity code.
    same = method.encode(faces).identity[:1].expand(4, -1, -1)
    assert method.anonymize_as(faces, same, keys).shape == faces.shape


@torch.no_grad()
def test_a_correction_has_the_right_code_read(plain, method, faces, keys):
    torch.manual_seed(0)
    corrected = DBAFWithFlips("photo128_prior", flips=10, **SMALL).eval()
    corrected.frame_options = FrameOptions(corrections=1)
    corrected.load_state_dict(plain.state_dict())
    corrected = in_use(corrected)
    codes = method.encode(faces)
    meant = method.edit(codes, keys).identity
    once = saved(method.anonymize(faces, keys))
    again = saved(corrected.anonymize(faces, keys))
    missed = (method.encode_anonymized(once).identity - meant).norm()
    assert (method.encode_anonymized(again).identity - meant).norm() < missed
    assert not torch.equal(once, again)
    # The way back asks for nothing more, and frames of a clip are drawn in the same way.
    torch.testing.assert_close(method.recover(again, keys), corrected.recover(again, keys))
    torch.testing.assert_close(saved(corrected.anonymize_as(faces, codes.identity, keys)), again)


@torch.no_grad()
def test_light_and_skin_of_the_picture_stay_there_and_back(plain, method, faces, keys):
    torch.manual_seed(0)
    lit = DBAFWithFlips("photo128_prior", flips=0, **SMALL).eval()
    lit.frame_options = FrameOptions(keep_light=0.16)
    lit.load_state_dict(plain.state_dict())
    unlit = DBAFWithFlips("photo128_prior", flips=0, **SMALL).eval()
    unlit.load_state_dict(plain.state_dict())
    lit = in_use(lit)
    mesh = lit.bundle.landmarks(faces)

    def skin(pictures):
        # The mean colours of the whole face.
        cut = lit.frame.cut(pictures, mesh)
        return cut[:, :, lit.frame.hull > 0.99].mean(-1)

    hidden = saved(lit.anonymize(faces, keys))
    other = saved(in_use(unlit).anonymize(faces, keys))
    assert (skin(hidden) - skin(faces)).abs().mean() < 0.3 * (skin(other) - skin(faces)).abs().mean()
    assert alike(hidden, faces).mean() < 0.45
    back = saved(lit.recover(hidden, keys))
    assert alike(back, faces).mean() > alike(hidden, faces).mean() + 0.1
    codes = lit.edit(lit.encode(faces), keys)
    torch.testing.assert_close(saved(lit.decode(codes)), hidden)


def test_it_is_the_method_inside_to_whoever_asks(method, plain):
    assert method.method == plain.method
    assert method.init_args == plain.init_args
    assert method.key_label == plain.key_label
    assert method.key_shape == plain.key_shape
    assert method.recovers_from_pictures
    assert method.works_through_codes
    assert in_use(method) is method


def test_methods_without_need_of_a_frame_go_without(tiny_bundle):
    blur = Blur("photo128_prior")
    assert in_use(blur) is blur
    assert not isinstance(in_use(DBAFWithFlips(str(tiny_bundle), **SMALL)), InMeshFrame)
