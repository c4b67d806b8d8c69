"""iFADIT with linear maps of the person and a flow that starts as a turn."""

import pytest
import torch
from five_pictures import branches_of
from linear_probes import KEPT, only_the_kept_numbers_come_from_the_attributes
from torch.nn import functional as F

from faceanon.backbones.ifadit_linear import LinearIFADIT
from faceanon.errors import UserError
from faceanon.losses.diversity import inter_identity
from faceanon.models import load_backbone, load_into, save_backbone
from faceanon.types import FaceBatch

GROUPS = {f"{group}_{kind}" for group in ("anonymized", "recovered") for kind in ("image", "identity", "landmarks")}
ALL = GROUPS | {"inter_identity", "inter_key"}
SMALL = {"components": 8, "flow_hidden": 64, "attributes_kept": KEPT, "identity_draft": 1.5, "flow_turn": 110.0}


@pytest.fixture(scope="module")
def images():
    return torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1


def make(tiny_bundle, **options):
    torch.manual_seed(0)
    return LinearIFADIT(str(tiny_bundle), **SMALL | options).eval()


def test_phase_two_terms_by_hand(tiny_bundle, images):
    backbone = make(tiny_bundle).train()
    batch = FaceBatch(images, torch.tensor([0, 0, 1, -1]), torch.full((4,), -1))
    branches = branches_of(backbone, images)
    terms = backbone.anonymize_terms(batch, branches, ALL)
    assert set(terms) == ALL
    assert all(term.ndim == 0 and term.isfinite() for term in terms.values())
    original, found = backbone.bundle.recogniser(images), backbone.bundle.recogniser(branches.pictures).chunk(5)
    away = torch.cat([(found[i] * original).sum(1) for i in (0, 1, 3, 4)]).clamp(min=0).mean()
    torch.testing.assert_close(terms["anonymized_identity"], away)
    torch.testing.assert_close(terms["recovered_identity"], (found[2] - original).abs().mean())
    landmarks = backbone.bundle.landmarks
    expected = (landmarks(branches.pictures[8:12]) - landmarks(images)).abs().mean()
    torch.testing.assert_close(terms["recovered_landmarks"], expected)
    first, second = branches.edited.identity.chunk(2)
    torch.testing.assert_close(terms["inter_key"], F.cosine_similarity(first, second).clamp(min=0).mean())
    under_one = backbone.transform(branches.original.identity, branches.keys[:1].expand(4, -1))
    torch.testing.assert_close(terms["inter_identity"], inter_identity(under_one, batch.identity))
    assert set(backbone.anonymize_terms(batch, branches, {"inter_key", "unheard_of"})) == {"inter_key"}


def calibrated(tiny_bundle, images, **options):
    """A method that starts from a linear map of the identity and from a turn, measured on random pictures."""
    method = make(tiny_bundle, **options)
    some = torch.rand(96, 3, 64, 64, generator=torch.Generator().manual_seed(5)) * 2 - 1
    batches = [FaceBatch(part, torch.full((len(part),), -1), torch.full((len(part),), -1)) for part in some.split(16)]
    method.calibrate(batches)
    return method


@torch.no_grad()
def test_a_flow_that_starts_as_a_turn_leaves_every_person_and_comes_back(tiny_bundle, images):
    method = calibrated(tiny_bundle, images, components=32, flow_hidden=128)
    # As long as the axes are those of the codes, whitened codes are turned by the angle.
    white = torch.randn(200, method.code_dim, generator=torch.Generator().manual_seed(3))
    code = method.axes.coloured(white)
    key, other = method.sample_key(200), method.sample_key(200)
    moved = method.transform(code, key)
    turned = F.cosine_similarity(method.axes.white(moved), white).mean()
    assert turned == pytest.approx(-0.34, abs=0.12)  # cos 110
    assert (method.transform(moved, key, inverse=True) - code).abs().max() < 1e-4 * max(1, float(code.abs().max()))
    two_keys = F.cosine_similarity(method.axes.white(method.transform(code, other)), method.axes.white(moved)).mean()
    assert two_keys < 0.5


@torch.no_grad()
def test_of_principal_components_a_key_leads_away_and_back(tiny_bundle, images):
    method = calibrated(tiny_bundle, images, flow_stretch=1.4)
    assert method.encode(images).identity.shape == (4, 8)
    # The pictures that they were measured on have entries of mean 0 and variance 1, no two of which go together.
    some = torch.rand(96, 3, 64, 64, generator=torch.Generator().manual_seed(5)) * 2 - 1
    measured = method.encode(some).identity
    torch.testing.assert_close(measured.T @ measured / 96, torch.eye(8), atol=1e-2, rtol=0)
    code = torch.randn(200, 8, generator=torch.Generator().manual_seed(3))
    key = method.sample_key(200)
    wrong = method.sample_key(200)
    moved = method.transform(code, key)
    assert F.cosine_similarity(moved, code).mean() < 0
    torch.testing.assert_close(method.transform(moved, key, inverse=True), code, atol=1e-4, rtol=1e-4)
    assert F.cosine_similarity(method.transform(moved, wrong, inverse=True), code).mean() < 0.7


def test_a_drawing_of_the_drawn_components_has_no_identity_term(tiny_bundle, images):
    method = calibrated(tiny_bundle, images)
    batch = FaceBatch(images, torch.arange(4), torch.full((4,), -1))
    codes = method.encode(images)
    own = torch.arange(4)
    wanted = {"identity_l1", "drawn_code"}
    for term in method.disentangle_terms(batch, codes, images, own, wanted).values():
        assert term.abs() < 1e-5
    others = codes.with_identity(codes.identity.roll(1, 0))
    for term in method.disentangle_terms(batch, others, images, own, wanted).values():
        assert term > 0.1


@pytest.mark.parametrize("components", [7, -2, 0, 34])
def test_components_that_cannot_be_are_one_line(tiny_bundle, components):
    with pytest.raises(UserError, match=f"components is {components}; give an even number from 2 to 32"):
        make(tiny_bundle, components=components)


def test_nothing_but_the_kept_numbers_comes_from_the_attributes(tiny_bundle, images):
    method = calibrated(tiny_bundle, images)
    only_the_kept_numbers_come_from_the_attributes(method, images)


def test_a_turn_that_cannot_be_is_one_line(tiny_bundle):
    with pytest.raises(UserError, match="flow_turn is 200"):
        make(tiny_bundle, flow_turn=200.0)
    with pytest.raises(UserError, match="too narrow: halves of 16 need 64"):
        make(tiny_bundle, components=32, flow_hidden=32)


@torch.no_grad()
def test_a_stretch_moves_strangers_away_from_the_mean_and_the_way_back_undoes_it(tiny_bundle, images):
    plain = calibrated(tiny_bundle, images)
    stretched = calibrated(tiny_bundle, images, flow_stretch=1.5)
    stretched.load_state_dict(plain.state_dict())
    code = plain.encode(images).identity
    key = plain.sample_key(4, torch.Generator().manual_seed(2))
    # Codes of four pictures span little, and whitening divides by that: float32 rounds otherwise on every processor.
    for method in (plain, stretched):
        method.double()
    code = code.double()
    key = key.double()
    stranger = stretched.transform(code, key)
    farther = stretched.axes.white(stranger)
    expected = 1.5 * plain.axes.white(plain.transform(code, key))
    torch.testing.assert_close(farther, expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(stretched.transform(stranger, key, inverse=True), code, atol=1e-2, rtol=1e-3)


def test_phase_two_may_stretch_a_flow_that_phase_one_did_not(tiny_bundle, images, tmp_path):
    first = calibrated(tiny_bundle, images)
    save_backbone(first, tmp_path / "first")
    second = make(tiny_bundle, flow_stretch=1.5)
    load_into(second, tmp_path / "first")
    assert torch.equal(second.axes.colour, first.axes.colour)
    save_backbone(second, tmp_path / "second")
    again, _ = load_backbone(tmp_path / "second")
    assert getattr(again, "inner", again).flow_stretch == 1.5
    other = make(tiny_bundle, flow_turn=100.0)
    with pytest.raises(UserError, match="flow_turn"):
        load_into(other, tmp_path / "first")


def test_a_stretch_that_is_none_is_one_line(tiny_bundle):
    with pytest.raises(UserError, match="flow_stretch is 0; give a number above 0"):
        make(tiny_bundle, flow_stretch=0)


@torch.no_grad()
def test_a_reader_reads_the_encoders_code_and_not_the_recogniser(tiny_bundle, images):
    method = calibrated(tiny_bundle, images)
    drawn = method.encode(images)
    # As if the pictures had been drawn from identities that no recogniser sees in them.
    others = torch.randn(4, method.code_dim, generator=torch.Generator().manual_seed(8))
    method.calibrate_reader([(drawn.with_identity(others), images)] * 4)
    read = method.encode_anonymized(images)
    # ICL starts at nothing, so this is the reader's word.
    expected = method.identity_reader(drawn.attributes[:, 0])
    torch.testing.assert_close(read.identity, expected)
    assert F.cosine_similarity(read.identity, others).mean() > 0.9
    assert F.cosine_similarity(read.identity, drawn.identity).abs().max() < 0.8
    assert torch.equal(read.attributes, drawn.attributes)
