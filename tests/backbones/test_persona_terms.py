"""What stage 2 pulls put-on faces towards: each term is small where its wish is granted, and large where it is not."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from persona_faces import held_out_faces, prepared
from torch.nn import functional as F

from faceanon.backbones import persona_terms as module
from faceanon.backbones.persona import SEEN
from faceanon.backbones.persona_terms import PersonaTerms, seen_otherwise
from faceanon.models import load_backbone
from faceanon.types import Branches

EVERY = frozenset({"hide", "apart", "donor", "expression"})


@pytest.fixture(scope="module")
def persona():
    return load_backbone("persona_photo128")[0]


@pytest.fixture(scope="module")
def faces():
    return held_out_faces()


@pytest.fixture(scope="module")
def batch(persona, faces):
    return prepared(persona, faces)


@pytest.fixture(scope="module")
def two_keys(persona, batch):
    """Codes of the photographs, and of donors under two keys; with the latents of the donors as they are put on."""
    torch.manual_seed(0)
    keys = persona.sample_key(8, torch.Generator().manual_seed(5))
    persona.train()
    codes = persona.encode_batch(batch)
    twice = codes.map(lambda item: torch.cat([item, item]))
    edited = persona.edit(twice, keys)
    persona.eval()
    _, donors = persona.use.put_on(twice.image.numpy(), keys.numpy())
    return codes, edited, torch.from_numpy(donors.latents)


def terms_of(persona, batch, codes, edited, latents, wanted=EVERY):
    """The terms of drawn latents `(N, 32, 16, 16)`; each call turns and lights the pictures alike."""
    torch.manual_seed(2)
    view = torch.cat([latents, torch.zeros(len(latents), SEEN, 16, 16)], 1)
    found = persona.anonymize_terms(batch, Branches(view, codes, edited, None, None, keys=view), wanted)
    return {name: value.item() for name, value in found.items()}


@torch.no_grad()
def test_the_person_s_own_face_is_not_hidden_and_a_donor_s_is(persona, batch, two_keys):
    codes, edited, donors = two_keys
    own = terms_of(persona, batch, codes, edited, edited.latents)
    put_on = terms_of(persona, batch, codes, edited, donors)
    assert own["hide"] > 1.0
    assert put_on["hide"] < 0.3
    # The same the other way round: whose face is wanted is the donor's.
    assert put_on["donor"] < 0.5
    assert own["donor"] > put_on["donor"] + 0.3


@torch.no_grad()
def test_the_mirror_image_of_a_person_is_not_hidden_either(persona, batch, two_keys, monkeypatch):
    codes, edited, _ = two_keys

    def by_pixels(picture):
        """Embeddings that take a face and its mirror image for two persons'."""
        small = F.avg_pool2d(picture, 8).mean(1).flatten(1)
        return F.normalize(small - small.mean(1, keepdim=True))

    monkeypatch.setattr(module, "seen_otherwise", lambda picture: picture)
    bundle = SimpleNamespace(codec=persona.bundle.codec, recogniser=by_pixels)
    identities = SimpleNamespace(code=lambda embedding: embedding[:, :64], free_basis=torch.eye(64))
    terms = PersonaTerms(bundle, identities, persona.mesh)
    branches = Branches(edited.latents, codes, edited, None, None, keys=edited.latents)
    found = []
    for image in (batch.image, batch.image.flip(-1), batch.image.roll(1, 0)):
        found.append(terms.hiding(replace(batch, image=image), branches, edited.latents, {"hide"})["hide"].item())
    own, mirrored, other = found
    assert own > 2.5
    assert mirrored == pytest.approx(own, abs=0.1)
    assert other < 1


@torch.no_grad()
def test_two_keys_faces_are_pulled_apart_where_they_are_alike(persona, batch, two_keys):
    codes, edited, donors = two_keys
    different = terms_of(persona, batch, codes, edited, donors)["apart"]
    first = torch.cat([donors[:4], donors[:4]])
    alike = terms_of(persona, batch, codes, edited, first)["apart"]
    assert alike > 0.3
    assert different < alike / 2
    # Under one key there is nothing to compare.
    one = edited.map(lambda item: item[:4])
    assert set(terms_of(persona, batch, codes, one, donors[:4])) == EVERY - {"apart"}


@torch.no_grad()
def test_eyes_and_mouth_are_wanted_where_the_put_on_face_has_them(persona, batch, two_keys):
    codes, edited, donors = two_keys
    right = terms_of(persona, batch, codes, edited, donors)["expression"]
    assert right < 0.01
    lower = replace(edited, mesh=edited.mesh + torch.tensor([0.0, 0.1, 0.0]))
    # The mean over both coordinates of what is off in one of them.
    assert abs(terms_of(persona, batch, codes, lower, donors)["expression"] - 0.05) < 0.01


@torch.no_grad()
def test_what_is_not_wanted_is_not_given(persona, batch, two_keys):
    codes, edited, donors = two_keys
    assert set(terms_of(persona, batch, codes, edited, donors, {"apart", "donor"})) == {"apart", "donor"}


def test_every_term_teaches_what_is_drawn_under_the_mask(persona, faces, two_keys):
    codes, edited, donors = two_keys
    # Two persons are enough.
    batch = prepared(persona, faces[:2])
    codes = codes.map(lambda item: item[:2])
    edited = edited.map(lambda item: item[[0, 1, 4, 5]])
    # As if the donor's face had come out like the person's, and both keys' alike.
    mixed = (edited.latents + donors[:2].repeat(2, 1, 1, 1)) / 2
    latents = torch.where(edited.mask > 0.5, mixed, edited.latents).requires_grad_()
    view = torch.cat([latents, torch.zeros(len(latents), SEEN, 16, 16)], 1)
    torch.manual_seed(2)
    terms = persona.anonymize_terms(batch, Branches(view, codes, edited, None, None, keys=view), EVERY)
    assert set(terms) == EVERY
    inside = edited.mask.expand_as(latents) > 0.5
    for name, term in terms.items():
        (gradient,) = torch.autograd.grad(term, latents, retain_graph=True)
        assert gradient.isfinite().all(), name
        assert gradient[inside].abs().max() > 0, name


# How a recogniser meets pictures


def test_pictures_seen_otherwise_keep_their_shape_and_range_and_teach_every_part_of_them(faces):
    torch.manual_seed(0)
    picture = faces.clone().requires_grad_()
    seen = seen_otherwise(picture)
    assert seen.shape == faces.shape
    assert seen.abs().max() <= 1.2
    seen.square().sum().backward()
    assert picture.grad.isfinite().all()
    # A picture's edge may be moved out of sight.
    middle = picture.grad[:, :, 16:112, 16:112]
    assert (middle != 0).float().mean() > 0.99
    assert seen_otherwise(3 * faces.abs() + 2).max() == pytest.approx(1.2)


@torch.no_grad()
def test_pictures_are_seen_otherwise_each_time_and_are_of_the_same_persons(persona, faces):
    torch.manual_seed(0)
    recogniser = persona.bundle.recogniser
    own = recogniser(faces)
    first, second = seen_otherwise(faces), seen_otherwise(faces)
    assert ((first - second).abs().mean((1, 2, 3)) > 0.02).all()
    for seen in (first, second):
        alike = recogniser(seen) @ own.T
        assert alike.argmax(1).tolist() == [0, 1, 2, 3]
        assert alike.diagonal().mean() > 0.7


@torch.no_grad()
def test_a_grey_picture_is_seen_lighter_or_darker_and_nothing_else():
    torch.manual_seed(0)
    seen = seen_otherwise(torch.full((64, 3, 32, 32), 0.5))
    light = seen.mean((1, 2, 3))
    assert (seen - light[:, None, None, None]).abs().max() < 1e-5
    assert 0.5 * 0.85 <= light.min() < 0.5 * 0.9
    assert 0.5 * 1.1 < light.max() <= 0.5 * 1.15


@torch.no_grad()
def test_half_of_the_pictures_are_seen_in_a_mirror():
    torch.manual_seed(0)
    picture = torch.zeros(200, 3, 32, 32)
    picture[..., :16] = 1.0
    seen = seen_otherwise(picture)
    mirrored = seen[..., :16].mean((1, 2, 3)) < seen[..., 16:].mean((1, 2, 3))
    assert 0.4 < mirrored.float().mean() < 0.6
