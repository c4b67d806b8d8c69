"""CIAGAN and DeepPrivacy: what they may see, and what trains them."""

from dataclasses import replace

import pytest
import torch
from backbone_training import trained_parts
from torch import nn

from faceanon.backbones.ciagan import CIAGAN, dots
from faceanon.backbones.deepprivacy import DeepPrivacy
from faceanon.errors import UserError
from faceanon.stages import AnonymizeStage
from faceanon.stages.anonymize_terms import AnonymizeWeights
from faceanon.testing import smooth_faces
from faceanon.types import Branches, FaceBatch

SMALL = {"key_dim": 8, "widths": [4, 8, 8]}


def cut_out(backbone, rows, columns, points, monkeypatch):
    """Have the method find the same hole and the same landmarks in every picture."""
    hole = torch.zeros(1, 1, backbone.image_size, backbone.image_size)
    hole[..., rows, columns] = 1
    monkeypatch.setattr(
        "faceanon.backbones.inpainting.face_hole", lambda bundle, image: hole.expand(len(image), -1, -1, -1)
    )
    found = torch.linspace(-0.3, 0.3, points)[:, None].expand(points, 2)
    monkeypatch.setitem(backbone.bundle.__dict__, "landmarks", lambda image: found.expand(len(image), -1, -1))


@pytest.fixture(params=[CIAGAN, DeepPrivacy], ids=lambda kind: kind.__name__)
def backbone(request, tiny_bundle, monkeypatch):
    torch.manual_seed(0)
    backbone = request.param(str(tiny_bundle), **SMALL).eval()
    cut_out(backbone, slice(20, 44), slice(16, 48), points=16, monkeypatch=monkeypatch)
    return backbone


@torch.no_grad()
def test_nothing_of_the_face_reaches_the_result(backbone):
    images, key = smooth_faces(64), backbone.sample_key(4)
    others = images.clone()
    others[..., 20:44, 16:48] = 0.7
    assert torch.equal(backbone.anonymize(images, key), backbone.anonymize(others, key))
    others[..., :10, :] = -0.7
    assert not torch.equal(
        backbone.anonymize(images, key)[..., 20:44, 16:48], backbone.anonymize(others, key)[..., 20:44, 16:48]
    )


@torch.no_grad()
def test_the_surroundings_stay_and_the_key_chooses(backbone):
    images, key = smooth_faces(64), backbone.sample_key(4)
    drawn, again = backbone.anonymize(images, key), backbone.anonymize(images, backbone.sample_key(4))
    changed = (drawn != images).any(1)
    assert changed[:, 20:44, 16:48].all()
    assert not changed[:, :17].any()
    assert not changed[:, 47:].any()
    assert not torch.equal(drawn, again)
    codes = backbone.encode(images)
    assert not codes.identity.any()
    assert torch.equal(backbone.transform(codes.identity, key), key)


def test_there_is_no_way_back(backbone):
    with pytest.raises(NotImplementedError, match="cannot be undone"):
        backbone.recover(smooth_faces(64), backbone.sample_key(4))
    with pytest.raises(NotImplementedError, match="cannot be undone"):
        backbone.transform(torch.zeros(4, 8), backbone.sample_key(4), inverse=True)


def test_dots_lie_at_the_landmarks():
    points = torch.tensor([[[-0.5, 0.25], [0.5, 0.25]]])
    found = dots(points, 64)
    assert found.shape == (1, 1, 64, 64)
    for column in (15, 16, 47, 48):
        assert found[0, 0, 39:41, column].min() > 0.85
    assert found[0, 0, 40, 32] < 0.01


def test_guidance_asks_for_one_person_under_one_key(tiny_bundle, monkeypatch):
    backbone = CIAGAN(str(tiny_bundle), **SMALL).eval()
    batch = FaceBatch(smooth_faces(64), torch.arange(4), torch.arange(4))
    keys, codes = backbone.sample_key(8), backbone.encode(batch.image)
    embeddings = torch.eye(32)[:4].repeat(2, 1)
    branches = Branches(torch.rand(8, 3, 64, 64), codes, codes, None, None, keys)
    seen = []
    monkeypatch.setitem(backbone.bundle.__dict__, "recogniser", lambda image: seen.append(image) or embeddings)
    good = backbone.anonymize_terms(batch, branches, {"guidance"})
    embeddings = embeddings.roll(1, 0)
    embeddings[4:] = embeddings[4:].roll(1, 0)
    bad = backbone.anonymize_terms(batch, branches, {"guidance"})
    assert good["guidance"] < 0.01 < 1 < bad["guidance"]
    with torch.no_grad():
        expected = backbone.anonymize(batch.image.roll(1, 0), keys[:4])
    torch.testing.assert_close(seen[0][4:], expected)
    assert backbone.anonymize_terms(batch, branches, set()) == {}


@pytest.fixture
def by_person(tiny_bundle):
    torch.manual_seed(0)
    backbone = CIAGAN(str(tiny_bundle), **SMALL, by_person=True).eval()
    backbone.calibrate([FaceBatch(smooth_faces(64), torch.arange(4), torch.arange(4))])
    return backbone


@torch.no_grad()
def test_by_person_two_people_are_two_strangers_under_one_key(by_person):
    images, key = smooth_faces(64), by_person.sample_key(1).expand(4, -1)
    codes = by_person.encode(images)
    vectors = by_person.transform(codes.identity, key)
    # Only signs are the person's: what a code measures besides does not reach the drawing.
    torch.testing.assert_close(vectors.abs(), key.abs())
    assert torch.equal(vectors, by_person.transform(7 * codes.identity, key))
    assert len(vectors.unique(dim=0)) > 1
    # The same person and key give the same vector; another key gives another.
    assert torch.equal(vectors, by_person.transform(by_person.encode(images).identity, key))
    assert not torch.equal(vectors, by_person.transform(codes.identity, by_person.sample_key(4)))


@torch.no_grad()
def test_by_person_signs_of_the_key_hide_the_person_s_signs(by_person):
    one, other = torch.ones(4000, 8), -torch.ones(4000, 8)
    keys = by_person.sample_key(4000)
    # Vectors of two people are distributed alike: what is drawn tells nothing without the key.
    for vectors in (by_person.transform(one, keys), by_person.transform(other, keys)):
        assert vectors.mean(0).abs().max() < 0.08
        assert (vectors.std(0) - 1).abs().max() < 0.08


def test_by_person_more_numbers_than_an_embedding_has_are_refused(tiny_bundle):
    with pytest.raises(UserError, match="key_dim is 999; with by_person give at most"):
        CIAGAN(str(tiny_bundle), key_dim=999, widths=[4, 8, 8], by_person=True)


def test_a_person_s_own_code_is_asked_for_the_person(by_person):
    images = smooth_faces(64)
    batch = FaceBatch(images, torch.arange(4), torch.arange(4))
    codes = by_person.encode(images)
    branches = Branches(torch.rand(8, 3, 64, 64), codes, codes, None, None, by_person.sample_key(8))
    terms = by_person.anonymize_terms(batch, branches, {"likeness", "seen"})
    with torch.no_grad():
        drawn = by_person.decode(codes)
        looks = by_person.bundle.perceptual(drawn, images).mean()
        known = (by_person.bundle.recogniser(drawn) * by_person.bundle.recogniser(images)).sum(1).mean()
    torch.testing.assert_close(terms["likeness"], looks)
    torch.testing.assert_close(terms["seen"], 1 - known)
    assert set(by_person.anonymize_terms(batch, branches, {"seen"})) == {"seen"}
    terms["seen"].backward()
    assert by_person.unet.unfold[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("widths", [[4], [4, 6], [0, 4], [4] * 9])
def test_widths_that_do_not_fit(tiny_bundle, widths):
    with pytest.raises(UserError, match="widths"):
        DeepPrivacy(str(tiny_bundle), widths=widths)


@pytest.mark.parametrize(
    ("name", "terms"),
    [("ciagan", {"adversarial", "identity", "guidance", "pose"}), ("deepprivacy", {"adversarial", "perceptual"})],
)
def test_the_stage_trains_methods_without_a_way_back(tiny_bundle, tmp_path, name, terms):
    widths = "--model.init_args.backbone.init_args.widths=[4, 8, 8]"
    changed, logged = trained_parts(f"{name}_s2", tiny_bundle, tmp_path, widths)
    assert changed == {"unet"}
    assert logged == terms


def test_a_weight_on_the_way_back_is_refused(tiny_bundle):
    with pytest.raises(UserError, match="DeepPrivacy is not reversible: set the weights of recovery, code to 0"):
        AnonymizeStage(DeepPrivacy(str(tiny_bundle), **SMALL), AnonymizeWeights(recovery=1.0, code=1.0))


def test_the_stage_draws_two_strangers_or_one(tiny_bundle):
    stage = AnonymizeStage(DeepPrivacy(str(tiny_bundle), **SMALL), AnonymizeWeights(latent=0.0))
    images = smooth_faces(64)
    for complete, count in ((True, 2), (False, 1)):
        branches = stage.draw(images, complete)
        assert (branches.size, branches.versions, len(branches.keys)) == (4, count, 4 * count)
        assert branches.recovered is branches.found is None
        assert torch.equal(branches.anonymized, branches.pictures)
        assert len(branches.pictures[branches.recovered_rows]) == 0
        terms = stage.generator_terms(FaceBatch(images, torch.arange(4), torch.arange(4)), branches)
        assert {"identity", "reconstruction", "perceptual", "parsing", "adversarial"} == set(terms)
    rows = stage.sample_rows(FaceBatch(images, torch.arange(4), torch.arange(4)))
    assert set(rows) == {"original", "anonymized, key 1", "anonymized, key 2"}


@pytest.fixture(params=[CIAGAN, DeepPrivacy], ids=lambda kind: kind.__name__)
def on_latents(request, monkeypatch):
    backbone = request.param("photo128_pictures", key_dim=8).eval()
    cut_out(backbone, slice(40, 88), slice(32, 96), points=468, monkeypatch=monkeypatch)
    return backbone


@torch.no_grad()
def test_with_a_codec_latents_are_drawn_from_what_lies_around(on_latents):
    images, key = smooth_faces(128)[:2], on_latents.sample_key(2)
    others = images.clone()
    others[..., 40:88, 32:96] = 0.7
    codes = on_latents.encode(images)
    drawn = on_latents.drawn_latents(on_latents.edit(codes, key))
    assert drawn.shape == (2, 32, 16, 16)
    # Before training nothing is added to what is seen.
    assert torch.equal(drawn, codes.features[16][:, :32])
    nn.init.normal_(on_latents.unet.painter.leave["16"][-1].weight, std=0.05)
    result = on_latents.anonymize(images, key)
    assert torch.equal(result, on_latents.anonymize(others, key))
    assert not torch.equal(result, on_latents.anonymize(images, on_latents.sample_key(2)))
    assert torch.equal(result[..., :32, :], images[..., :32, :])


def test_with_a_codec_widths_are_refused():
    with pytest.raises(UserError, match="set them to null for a bundle with a codec"):
        DeepPrivacy("photo128_pictures", widths=[4, 8])


def test_few_faces_become_pictures_for_a_person_s_own_code(monkeypatch):
    backbone = CIAGAN("photo128_pictures", key_dim=8, by_person=True).eval()
    cut_out(backbone, slice(40, 88), slice(32, 96), points=468, monkeypatch=monkeypatch)
    none = {"identity": 0.0, "reconstruction": 0.0, "perceptual": 0.0, "parsing": 0.0, "latent": 0.0}
    extra = {"likeness": 2.0, "seen": 1.0}
    stage = AnonymizeStage(backbone, AnonymizeWeights(adversarial=0.3, **none), extra_weights=extra)
    images = smooth_faces(128)[[0, 1, 2, 3, 0]]
    batch = FaceBatch(images, torch.arange(5), torch.arange(5), latents=backbone.bundle.codec.encode(images))
    decoded = []
    decode = backbone.bundle.codec.decode
    monkeypatch.setattr(backbone.bundle.codec, "decode", lambda latents: decoded.append(latents) or decode(latents))
    terms = backbone.anonymize_terms(batch, stage.draw(images), stage.wanted)
    assert set(terms) == {"likeness", "seen"}
    assert [len(latents) for latents in decoded] == [4]
    likeness = backbone.anonymize_terms(batch, stage.draw(images), {"likeness"})
    torch.testing.assert_close(likeness["likeness"], terms["likeness"])
    assert len(decoded) == 1


def test_the_codec_rests_where_no_term_looks_at_pixels(on_latents, monkeypatch):
    none = {"identity": 0.0, "reconstruction": 0.0, "parsing": 0.0, "latent": 0.0}
    images = smooth_faces(128)[:2]
    weights = AnonymizeWeights(adversarial=0.3, perceptual=3.0, **none)
    stage = AnonymizeStage(on_latents, weights)
    decoded = []
    decode = on_latents.bundle.codec.decode
    monkeypatch.setattr(on_latents.bundle.codec, "decode", lambda latents: decoded.append(latents) or decode(latents))
    branches = stage.draw(images)
    assert not decoded
    assert branches.pictures is branches.latents
    latents = on_latents.bundle.codec.encode(images)
    batch = FaceBatch(images, torch.arange(2), torch.arange(2), latents=latents)
    terms = stage.generator_terms(batch, branches)
    assert set(terms) == {"adversarial", "perceptual"}
    with_identity = AnonymizeStage(on_latents, replace(weights, identity=1.0))
    seen = with_identity.draw(images)
    assert seen.pictures.shape == (4, 3, 128, 128)
    # The same distance either way.
    same = replace(seen, latents=branches.latents)
    torch.testing.assert_close(stage.generator_terms(batch, same)["perceptual"], terms["perceptual"])
