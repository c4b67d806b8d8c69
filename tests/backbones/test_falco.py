import pytest
import torch

from faceanon.backbones.falco import FALCO, scaled_rows
from faceanon.backbones.in_frame import InMeshFrame
from faceanon.errors import UserError
from faceanon.methods import method
from faceanon.testing import smooth_faces
from faceanon.weights.spec import bundle_path

SMALL = {"steps": 4, "bank": 8}


@pytest.fixture
def backbone(tiny_bundle):
    return FALCO(str(tiny_bundle), **SMALL).eval()


def test_the_rows_scale_with_the_generator():
    assert scaled_rows(18, None, None) == scaled_rows(14, None, None) == (3, 7)
    assert scaled_rows(10, None, None) == (2, 5)
    assert scaled_rows(10, 3, 7) == (3, 7)
    with pytest.raises(UserError, match="from 0 to 9"):
        scaled_rows(10, 3, 10)


def test_the_search_lowers_the_objective_and_leaves_the_other_rows(tiny_bundle, monkeypatch):
    backbone = FALCO(str(tiny_bundle), steps=20, bank=8)
    images, key = smooth_faces(64), backbone.sample_key(4, torch.Generator().manual_seed(0))
    drawn = []
    synthesis = backbone.generator.net.synthesis
    monkeypatch.setattr(backbone.generator.net, "synthesis", lambda codes: drawn.append(codes) or synthesis(codes))
    result = backbone.anonymize(images, key)
    start, end = drawn[1], drawn[-1]  # the first call draws the bank
    with torch.no_grad():
        inverted = backbone.encoder.net.with_features(images)[0] + backbone.latent_avg
        wanted = backbone.bundle.recogniser(images), backbone.attribute_features(images)
        before, after = (backbone.objective(synthesis(codes), *wanted) for codes in (start, end))
        torch.testing.assert_close(result, synthesis(end))
    assert (after < before).all()
    torch.testing.assert_close(end[:, [0, 1, 6, 7, 8, 9]], inverted[:, [0, 1, 6, 7, 8, 9]])
    assert not torch.isclose(end[:, 2:6], start[:, 2:6]).all(-1).any()


def test_the_start_is_the_nearest_face_moved_towards_the_keys(backbone):
    key = backbone.sample_key(3)
    with torch.no_grad():
        backbone._start(smooth_faces(64)[:1], key[:1])
        shown = backbone.generator.net.synthesis(backbone.bank_codes[[5, 2, 5]])
        start = backbone._start(shown, key)
        expected = (backbone.bank_codes[[5, 2, 5]] + backbone.generator.net.mapping(key)) / 2
    torch.testing.assert_close(start, expected)


def test_it_searches_where_gradients_are_off_and_leaves_nothing_behind(backbone):
    images, key = smooth_faces(64)[:2], backbone.sample_key(2)
    with torch.inference_mode():
        quiet = backbone.anonymize(images.clone(), key.clone())
    result = backbone.anonymize(images, key)
    assert torch.equal(quiet, result)
    assert not result.requires_grad
    assert not list(backbone.parameters())
    assert list(backbone.state_dict()) == ["latent_avg"]
    assert all(item.grad is None for item in backbone.generator.net.parameters())


def test_attributes_as_the_parser_sees_them(tiny_bundle):
    backbone = FALCO(str(tiny_bundle), attributes="parser", **SMALL)
    features = backbone.attribute_features(smooth_faces(64))
    assert features.shape == (4, 10, 16, 16)
    torch.testing.assert_close(features.sum(1), torch.ones(4, 16, 16))
    assert backbone.anonymize(smooth_faces(64), backbone.sample_key(4)).isfinite().all()


def test_no_way_back_and_no_codes(backbone):
    image, key = smooth_faces(64), backbone.sample_key(4)
    with pytest.raises(NotImplementedError, match="cannot be undone"):
        backbone.recover(image, key)
    with pytest.raises(NotImplementedError, match="no codes"):
        backbone.encode(image)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"bank": 0}, {"margin": 1.0}])
def test_arguments_out_of_range(tiny_bundle, wrong):
    with pytest.raises(UserError, match="give steps"):
        FALCO(str(tiny_bundle), **wrong)


def test_a_prior_with_a_draft_gives_its_rows_and_keeps_light_and_skin(monkeypatch):
    backbone = FALCO("photo128_prior", steps=1, bank=2).eval()
    assert backbone.rows == (0, 0)
    assert backbone.bundle.steady_numbers == 20
    picture = smooth_faces(128)[:1]
    drawn = []
    synthesis = backbone.generator.net.synthesis
    monkeypatch.setattr(backbone.generator.net, "synthesis", lambda codes: drawn.append(codes) or synthesis(codes))
    backbone.anonymize(picture, backbone.sample_key(1))
    start, end = drawn[1], drawn[-1]  # the first call draws the bank
    with torch.no_grad():
        inverted = backbone.encoder.net.with_features(picture)[0] + backbone.latent_avg
    assert torch.equal(end[:, 0, :20], inverted[:, 0, :20])
    assert torch.equal(end[:, 1:], inverted[:, 1:])
    assert not torch.isclose(end[:, 0, 20:], start[:, 0, 20:]).any()


def test_rows_that_are_asked_for_win_over_a_draft():
    assert FALCO("photo128_prior", first=1, last=2).rows == (1, 2)


def test_by_name_on_a_bundle_with_a_frame_it_works_on_pictures():
    by_name = method("falco", bundle_path("photo128_prior"))
    assert isinstance(by_name, InMeshFrame)
    assert isinstance(by_name.inner, FALCO)
    # The hull of a mask needs no frame.
    assert not isinstance(method("mask", bundle_path("photo128_pictures")), InMeshFrame)
