"""Persona as the stages train it: places on the flow's way, put-on donors, and what the stages ask of its weights."""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch
from persona_faces import held_out_faces, prepared
from scipy.ndimage import binary_dilation

from covered_faces import images, whole_faces, with_masks
from faceanon.backbones import persona as module
from faceanon.backbones.persona import CODE_NOISE, NEAR, STARTS, STEPS, UNTOLD
from faceanon.backbones.persona_cells import numbers_of
from faceanon.backbones.persona_networks import TorchNetworks
from faceanon.landmarks.covers import SHARE
from faceanon.models import load_backbone
from faceanon.networks.flow_painter import FlowPainter
from faceanon.persona.use import PutOnFaces, SeenFaces
from faceanon.types import Branches, Codes


@pytest.fixture(scope="module")
def faces():
    return held_out_faces()


@pytest.fixture(scope="module")
def persona():
    """The flow that ships, ready to train; without dropout, as in stage 2."""
    method = load_backbone("persona_photo128")[0]
    method.flow.requires_grad_(True)
    for part in method.flow.modules():
        if hasattr(part, "dropout"):
            part.dropout = 0.0
    return method


@pytest.fixture(scope="module")
def batch(persona, faces):
    return prepared(persona, faces)


@pytest.fixture
def training(persona):
    """The same in training mode, with the same random numbers in every test."""
    torch.manual_seed(0)
    persona.train()
    yield persona
    persona.eval()
    persona.zero_grad()


def drawn_codes(persona, batch, times):
    """Codes of several draws of a training batch."""
    with torch.no_grad():
        return [persona.encode_batch(batch) for _ in range(times)]


def noise_behind(noisy, latents, time):
    """x(0) of places x(t) on the way to latents x(1)."""
    time = time[:, None, None, None]
    return (noisy - time * latents) / (1 - time)


def is_standard_normal(numbers):
    return abs(numbers.mean()) < 0.05 and abs(numbers.std() - 1) < 0.05


# Codes


@torch.no_grad()
def test_a_batch_that_is_not_trained_on_is_encoded_as_its_pictures_are(persona, batch):
    persona.eval()
    ours, theirs = persona.encode_batch(batch), persona.encode(batch.image)
    for field in fields(Codes):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name == "features":
            one, other = one[16], other[16]
        assert (one is None) == (other is None), field.name
        if one is not None:
            torch.testing.assert_close(one, other, msg=field.name)
    assert ours.noisy is None


def test_what_was_prepared_of_a_batch_is_not_computed_again(training, batch, monkeypatch):
    for name in ("encode", "points", "embed"):
        monkeypatch.setattr(TorchNetworks, name, lambda *asked: pytest.fail("a network was asked"))
    space = training.identities
    sibling = replace(batch, embedding=batch.embedding.roll(1, 0))
    codes = training.encode_batch(sibling)
    # The code is that of another version of the picture, the looks are this one's.
    theirs, own = space.code(sibling.embedding), training.encode_batch(batch).identity
    torch.testing.assert_close(codes.identity @ space.free_basis, theirs @ space.free_basis, atol=1e-3, rtol=0)
    looks = space.kept_basis[:, :3]
    torch.testing.assert_close(codes.identity @ looks, own @ looks, atol=1e-3, rtol=0)
    assert torch.equal(codes.mesh, batch.mesh)


def test_training_puts_every_face_somewhere_on_the_straight_way_from_noise_of_its_own(training, batch):
    times = []
    starts = []
    for codes in drawn_codes(training, batch, 20):
        assert codes.noisy.shape == batch.latents.shape
        times.append(codes.time)
        starts.append(noise_behind(codes.noisy, batch.latents, codes.time))
    times = torch.cat(times)
    assert 0 < times.min() < 0.3
    assert 0.7 < times.max() < 1
    assert len(times.unique()) == 80
    start = torch.cat(starts).flatten(1)
    assert is_standard_normal(start)
    for row in start:
        assert is_standard_normal(row)
    assert (torch.corrcoef(start) - torch.eye(80)).abs().max() < 0.1


def test_random_covers_leave_cells_of_a_quarter_of_the_faces(training, batch):
    whole = training.eval().face_mask(batch.image).float()
    training.train()
    covered = torch.cat([whole - codes.mask for codes in drawn_codes(training, batch, 40)])
    assert covered.min() == 0
    holes = (covered.amax((1, 2, 3)) > 0).float().mean()
    # Not all covers lie where the face is.
    assert SHARE / 2 < holes < 1.3 * SHARE


@torch.no_grad()
def test_a_covered_cell_is_not_painted_and_its_maps_say_so(training, batch):
    whole = training.eval().face_mask(batch.image).float()
    training.train()
    for codes in drawn_codes(training, batch, 20):
        covered = whole - codes.mask
        if covered.sum() == 0:
            continue
        maps = codes.features[16]
        assert torch.equal(maps[:, :1], codes.mask)
        assert (maps[:, -3:] * covered == 0).all()
        assert torch.equal(training.paint(codes) * covered, codes.latents * covered)
        return
    pytest.fail("no cover was drawn")


def test_of_some_faces_only_the_nearest_cells_around_are_shown(training, batch):
    hidden = 0
    rows = 0
    for codes in drawn_codes(training, batch, 40):
        for latents, mask, own in zip(codes.latents, codes.mask[:, 0], batch.latents, strict=True):
            near = torch.from_numpy(binary_dilation(mask.numpy() > 0.5, np.ones((3, 3)), iterations=2))
            assert not near.all()
            assert torch.equal(latents, own) or torch.equal(latents, own * near)
            hidden += int(not torch.equal(latents, own))
            rows += 1
    assert abs(hidden / rows - NEAR) < 0.1


def test_training_does_not_look_for_what_covers_a_face(training):
    batch = prepared(training, images(with_masks(whole_faces(128, 2))[0]))
    found = training.eval().encode(batch.image).mask.sum()
    training.train()
    assert max(codes.mask.sum() for codes in drawn_codes(training, batch, 5)) > 1.2 * found


@torch.no_grad()
def test_codes_of_stage_1_are_noisy_in_training_and_some_say_nobody_in_particular(training, batch):
    space = training.identities
    codes = training.encode_batch(batch).map(lambda item: item.repeat(100, *[1] * (item.ndim - 1)))
    rows = torch.arange(len(codes.identity))
    mixed = training.mixed_identity(codes, rows)
    # Sex, age and skin are all that a code of nobody in particular says.
    untold = (mixed @ space.free_basis).abs().amax(1) < 1e-4
    assert abs(untold.float().mean() - UNTOLD) < 0.08
    torch.testing.assert_close(mixed[untold], space.anybody(codes.identity)[untold], atol=1e-4, rtol=0)
    assert is_standard_normal((mixed - codes.identity)[~untold] / CODE_NOISE)
    training.eval()
    torch.testing.assert_close(training.mixed_identity(codes, rows), codes.identity, atol=1e-4, rtol=0)


# Put-on donors


@dataclass(frozen=True)
class PutOn:
    """Codes of training faces, edited under keys; what `PersonaUse` knows of the same; when the flow was asked."""

    key: torch.Tensor
    codes: Codes
    edited: Codes
    person: SeenFaces
    donors: PutOnFaces
    asked: list[torch.Tensor]


@pytest.fixture(scope="module")
def put_on(persona, batch):
    key = persona.sample_key(4, torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    persona.train()
    codes = persona.encode_batch(batch)
    asked = []
    hook = persona.flow.register_forward_pre_hook(lambda net, given: asked.append(given[1].clone()))
    edited = persona.edit(codes, key)
    hook.remove()
    persona.eval()
    return PutOn(key, codes, edited, *persona.use.put_on(numbers_of(batch.image), key.numpy()), asked)


def test_edited_codes_are_of_the_donors_whom_use_would_put_on(put_on, faces):
    edited, person, donors = put_on.edited, put_on.person, put_on.donors
    np.testing.assert_array_equal(numbers_of(edited.identity), donors.code)
    np.testing.assert_array_equal(numbers_of(edited.features[16]), donors.maps)
    np.testing.assert_array_equal(numbers_of(edited.mesh), donors.mesh)
    # Where, in which light, and around what, is the photograph's.
    np.testing.assert_array_equal(numbers_of(edited.attributes[:, 0]), person.attributes)
    np.testing.assert_array_equal(numbers_of(edited.latents), person.latents)
    np.testing.assert_array_equal(numbers_of(edited.mask), person.mask)
    assert torch.equal(edited.image, faces)
    # They are other people, with lines of their own.
    assert torch.cosine_similarity(edited.identity, put_on.codes.identity).max() < 0.6
    assert (donors.maps[:, 1:-3] != person.maps[:, 1:-3]).any((1, 2, 3)).all()


def test_edited_codes_lie_one_or_two_of_three_steps_behind_a_mixture_with_noise(put_on):
    edited = put_on.edited
    start = put_on.asked[0]
    assert len(put_on.asked) == STEPS - 1
    assert (start >= STARTS[0]).all()
    assert (start <= STARTS[1]).all()
    assert len(start.unique()) == 4
    steps = (edited.time - start) / ((1 - start) / STEPS)
    assert torch.allclose(steps, steps.round(), atol=1e-4)
    assert set(steps.round().tolist()) <= {1.0, 2.0}
    assert (edited.time < 1).all()
    assert not edited.noisy.requires_grad


def test_a_flow_that_knows_the_way_to_the_donors_keeps_their_places_on_it(training, batch, put_on, monkeypatch):
    latents = torch.from_numpy(put_on.donors.latents)

    def exact(net, noisy, time, *known):
        return (latents - noisy) / (1 - time)[:, None, None, None]

    monkeypatch.setattr(FlowPainter, "forward", exact)
    edited = training.edit(put_on.codes, put_on.key)
    for row in noise_behind(edited.noisy, latents, edited.time):
        assert is_standard_normal(row)
    # And leads on to them.
    inside = edited.mask.expand_as(latents) > 0.5
    torch.testing.assert_close(training.paint(edited)[inside], latents[inside], atol=1e-4, rtol=0)


@torch.no_grad()
def test_in_use_codes_are_turned_and_nobody_is_put_on(persona, batch, put_on):
    persona.eval()
    codes = persona.encode(batch.image)
    edited = persona.edit(codes, put_on.key)
    assert torch.equal(edited.identity, persona.transform(codes.identity, put_on.key))
    assert edited.noisy is None
    assert edited.features is codes.features


@torch.no_grad()
def test_what_is_painted_of_a_donor_knows_nothing_of_the_old_face(put_on, training):
    edited = put_on.edited
    painted = training.paint(edited)
    other = replace(edited, latents=edited.latents * (1 - edited.mask) - 3 * edited.mask)
    assert torch.equal(training.paint(other), painted)
    # From where its donor is on the way: other noise there gives another face.
    inside = edited.mask.expand_as(painted) > 0.5
    moved = training.paint(replace(edited, noisy=edited.noisy.roll(1, 0)))
    assert (moved - painted)[inside].abs().mean() > 0.1
    assert torch.equal(painted[~inside], edited.latents[~inside])


@torch.no_grad()
def test_one_step_leads_from_a_place_on_the_way_to_the_face_that_is_expected_there(put_on, training):
    edited = put_on.edited
    told = torch.cat([edited.identity, edited.attributes[:, 0]], 1)
    direction = training.flow(edited.noisy, edited.time, edited.latents, edited.mask, edited.features[16], told)
    expected = edited.noisy + (1 - edited.time)[:, None, None, None] * direction
    inside = edited.mask.expand_as(expected) > 0.5
    torch.testing.assert_close(training.paint(edited)[inside], expected[inside])


# What stage 2 asks for


def branches_of(put_on, pictures):
    return Branches(pictures, put_on.codes, put_on.edited, None, None, keys=put_on.key)


def test_what_hides_a_person_teaches_the_flow_and_nothing_else(put_on, training, batch):
    branches = branches_of(put_on, training.drawn_view(put_on.edited))
    terms = training.anonymize_terms(batch, branches, {"hide"})
    assert set(terms) == {"hide"}
    assert terms["hide"] > 0
    terms["hide"].backward()
    named = dict(training.named_parameters())
    assert all(name.startswith("flow.") for name in named)
    silent = [name for name, value in named.items() if value.grad is None or value.grad.abs().max() == 0]
    assert silent == []
    assert all(value.grad.isfinite().all() for value in named.values())
    bundle = training.bundle
    for net in (bundle.codec, bundle.recogniser, training.mesh.net, training.looks.net, training.finder.net):
        assert all(value.grad is None for value in net.parameters())


def test_stage_2_goes_on_with_stage_1_s_own_term(put_on, training, batch, monkeypatch):
    # Whose noise would be other numbers.
    monkeypatch.setattr(training, "mixed_identity", lambda codes, source: codes.identity[source])
    codes = put_on.codes
    branches = branches_of(put_on, training.drawn_view(put_on.edited).detach())
    terms = training.anonymize_terms(batch, branches, {"flow", "donor"})
    assert set(terms) == {"flow", "donor"}
    wanted = training.disentangle_terms(batch, codes, training.drawn_view(codes), torch.arange(4), {"flow"})
    assert set(wanted) == {"flow"}
    torch.testing.assert_close(terms["flow"], wanted["flow"])
    # Photographs are drawn for it, and put-on faces are not asked.
    (gradient,) = torch.autograd.grad(terms["flow"], training.flow.painter.leave["16"][-1].weight)
    assert gradient.abs().max() > 0


@torch.no_grad()
def test_the_flow_of_before_is_led_away_from_the_person(put_on, training, batch, monkeypatch):
    edited = put_on.edited
    monkeypatch.setattr(module, "has_bfloat16", lambda: False)
    training.eval()
    person = training.encode(batch.image).identity
    # Who is put on and who is hidden are one: nobody is to be led away from.
    same = edited.with_identity(person)
    torch.testing.assert_close(training.drawn_before(batch.image, [same]), training.drawn_view(same))
    wanted, own = training.drawn_view(edited), training.drawn_view(same)
    before = training.drawn_before(batch.image, [edited, same])
    torch.testing.assert_close(before[:4], wanted + module.AWAY * (wanted - own), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(before[4:], own)
    assert (before[:4] - wanted).abs().max() > 0.02


@torch.no_grad()
def test_both_keys_faces_of_a_batch_are_led_away_from_their_own_persons(put_on, training, batch, monkeypatch):
    monkeypatch.setattr(module, "has_bfloat16", lambda: False)
    training.eval()
    twice = put_on.edited.map(lambda item: torch.cat([item, item]))
    both = training.drawn_before(batch.image, [twice])
    once = training.drawn_before(batch.image, [put_on.edited])
    torch.testing.assert_close(both, torch.cat([once, once]), atol=1e-4, rtol=1e-4)
