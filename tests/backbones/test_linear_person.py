"""Persons drawn and read by linear maps: what the rotation and Mirage do with them."""

import math

import pytest
import torch
from linear_probes import KEPT, only_the_kept_numbers_come_from_the_attributes
from torch.nn import functional as F

from faceanon.backbones.mirage import Mirage
from faceanon.backbones.rotation import Rotation
from faceanon.errors import UserError
from faceanon.models import load_backbone, load_into, save_backbone
from faceanon.testing import check_backbone, smooth_faces
from faceanon.types import FaceBatch

MAPS = {"attributes_kept": KEPT, "identity_draft": 1.5}
METHODS = {
    "rotation": (Rotation, {"components": 8}),
    "mirage": (Mirage, {"grades": [4, 4]}),
}


def made(name, bundle):
    """A method that starts from linear maps, measured on random pictures."""
    kind, options = METHODS[name]
    torch.manual_seed(0)
    method = kind(str(bundle), **options, **MAPS).eval()
    some = torch.rand(96, 3, 64, 64, generator=torch.Generator().manual_seed(5)) * 2 - 1
    nobody = torch.full((16,), -1)
    method.calibrate([FaceBatch(part, nobody, nobody) for part in some.split(16)])
    return method


@pytest.fixture(params=METHODS)
def method(request, tiny_bundle):
    return made(request.param, tiny_bundle)


@pytest.mark.parametrize("name", METHODS)
def test_they_keep_the_contract(name, tiny_bundle):
    method = made(name, tiny_bundle)
    # Until it is measured a reader reads the same of every picture.
    images = torch.rand(64, 3, 64, 64, generator=torch.Generator().manual_seed(6)) * 2 - 1
    with torch.no_grad():
        method.calibrate_reader([(method.encode(images), images)])
    check_backbone(method, smooth_faces(64))


def test_nothing_but_the_kept_numbers_comes_from_the_attributes(method):
    only_the_kept_numbers_come_from_the_attributes(method, smooth_faces(64))


@torch.no_grad()
def test_the_draft_draws_the_codes_that_embeddings_tell(method):
    images = torch.rand(96, 3, 64, 64, generator=torch.Generator().manual_seed(5)) * 2 - 1
    codes = method.encode(images)
    own = codes.attributes[:, 0, 3:]
    centred = own - own.mean(0)
    drafted = method.identity_draft(codes.identity)[:, 3:] - own.mean(0)
    # Of the pictures it was measured on it says something, and of the next picture's code less.
    assert F.cosine_similarity(drafted, centred).mean() > F.cosine_similarity(drafted, centred.roll(1, 0)).mean() + 0.1


@torch.no_grad()
def test_a_reader_reads_the_encoders_code_and_not_the_recogniser(method):
    images = smooth_faces(64)
    drawn = method.encode(images)
    # As if the pictures had been drawn from identities that no recogniser sees in them.
    others = torch.randn(drawn.identity.shape, generator=torch.Generator().manual_seed(8))
    method.calibrate_reader([(drawn.with_identity(others), images)] * 4)
    read = method.encode_anonymized(images)
    assert F.cosine_similarity(read.identity, others).mean() > 0.8
    assert torch.equal(read.attributes, drawn.attributes)


@torch.no_grad()
def test_the_key_is_undone_in_the_code(method):
    code = method.encode(smooth_faces(64)).identity
    key, other = method.sample_key(4), method.sample_key(4)
    moved = method.transform(code, key)
    torch.testing.assert_close(method.transform(moved, key, inverse=True), code, atol=1e-3, rtol=1e-3)
    assert (method.transform(moved, other, inverse=True) - code).norm() > 0.1 * code.norm()


def test_stage_one_asks_for_the_code_that_was_drawn(method):
    images = smooth_faces(64)
    batch = FaceBatch(images, torch.arange(4), torch.full((4,), -1))
    codes = method.encode(images)
    own = torch.arange(4)
    wanted = {"image", "drawn_code"}
    # The very pictures show the codes that were read off them.
    terms = method.disentangle_terms(batch, codes, images, own, wanted)
    assert set(terms) == wanted
    assert terms["image"].abs() < 1e-4
    assert terms["drawn_code"].abs() < 1e-4
    # Turned codes are not those of the pictures; and no picture says how a mixture should look.
    turned = codes.with_identity(method.transform(codes.identity, method.sample_key(4)))
    terms = method.disentangle_terms(batch, turned, images, own.roll(1), wanted)
    assert terms["drawn_code"] > 0.3
    assert terms["image"] == 0


def test_a_saved_model_brings_its_maps_along(tmp_path, tiny_bundle):
    first = made("rotation", tiny_bundle)
    save_backbone(first, tmp_path / "first")
    again, _ = load_backbone(tmp_path / "first")
    again = getattr(again, "inner", again)
    assert torch.equal(again.identity_draft.weight, first.identity_draft.weight)
    assert torch.equal(again.principal.directions, first.principal.directions)
    other = Rotation(str(tiny_bundle), components=8)
    with pytest.raises(UserError, match="identity_draft"):
        load_into(other, tmp_path / "first")


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (Rotation, {"components": 7}, "components is 7; give an even number from 2 to 32"),
        (Rotation, {"components": 0}, "components is 0; give an even number from 2 to 32"),
        (Rotation, {"components": 34}, "components is 34; give an even number from 2 to 32"),
        (Rotation, {"stretch": 0.0}, r"stretch is 0\.0; give a number above 0"),
        (Rotation, {"components": 8, "attributes_kept": 16}, "attributes_kept is 16; give a number from 0 to 15"),
        (Rotation, {"components": 8, "identity_draft": 0.0}, r"identity_draft is 0\.0; give a number above 0"),
        (Mirage, {"turn_stretch": -1.0}, r"turn_stretch is -1\.0; give a number above 0"),
        (Mirage, {"turn": 180.0}, r"turn is 180\.0; give degrees between 0 and 180"),
        (Mirage, {"grades": [20, 20]}, "components is 40"),
    ],
)
def test_numbers_that_cannot_be_are_one_line(tiny_bundle, kind, options, told):
    with pytest.raises(UserError, match=told):
        kind(str(tiny_bundle), **options)


@torch.no_grad()
def test_measured_codes_end_at_the_angle_of_the_turn(tiny_bundle):
    method = made("rotation", tiny_bundle)
    code = method.encode(smooth_faces(64)).identity
    turned = method.transform(code, method.sample_key(4))
    expected = torch.full((4,), math.cos(math.radians(110)))
    torch.testing.assert_close(F.cosine_similarity(code, turned), expected, atol=1e-4, rtol=0)


@torch.no_grad()
def test_a_stretch_moves_strangers_away_from_the_mean_and_the_way_back_undoes_it(tiny_bundle):
    for name, argument in (("rotation", "stretch"), ("mirage", "turn_stretch")):
        kind, options = METHODS[name]
        plain = made(name, tiny_bundle)
        stretched = kind(str(tiny_bundle), **options, **MAPS, **{argument: 1.5}).eval()
        stretched.load_state_dict(plain.state_dict())
        code = plain.encode(smooth_faces(64)).identity
        key = plain.sample_key(4)
        stranger = stretched.transform(code, key)
        torch.testing.assert_close(stranger, 1.5 * plain.transform(code, key), atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(stretched.transform(stranger, key, inverse=True), code, atol=1e-4, rtol=1e-3)


def test_stage_two_may_stretch_what_stage_one_did_not(tmp_path, tiny_bundle):
    save_backbone(made("rotation", tiny_bundle), tmp_path / "first")
    kind, options = METHODS["rotation"]
    second = kind(str(tiny_bundle), **options, **MAPS, stretch=1.5)
    load_into(second, tmp_path / "first")
    assert second.turn.stretch == 1.5
