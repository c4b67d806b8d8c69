"""What stage 1 compares its mixtures with, and how much each row counts."""

import pytest
import torch
from stage_probes import SMALL_CID, crossed_faces

from faceanon.backbones.dbaf import DBAF
from faceanon.errors import UserError
from faceanon.stages import DisentangleStage
from faceanon.stages.disentangle import DisentangleWeights, Mixed
from faceanon.stages.parallel import RowStreams
from faceanon.types import Codes

NAMES = ("reconstruction", "edges", "perceptual", "parsing")
WEIGHTS = DisentangleWeights(adversarial=0, contrastive=0, latent=0, edges=1)
SELF, MATE, STRANGER = torch.arange(8), torch.arange(8) ^ 1, (torch.arange(8) + 4) % 8


@pytest.fixture(scope="module")
def backbone(tiny_bundle):
    return DBAF(str(tiny_bundle), **SMALL_CID)


def terms(backbone, source, batch=None, **options):
    stage = DisentangleStage(backbone, WEIGHTS, **options)
    batch = crossed_faces(2, 0) if batch is None else batch
    drawn = torch.linspace(-1, 1, 8)[:, None, None, None] * torch.ones(8, 3, 64, 64) + batch.image.flip(0) / 2
    found = stage.generator_terms(batch, Mixed(source, Codes(source), drawn))
    assert set(found) == set(NAMES)
    return found


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_rows_with_a_strangers_identity_count_their_share(backbone, share):
    every = terms(backbone, STRANGER)
    for name, value in terms(backbone, STRANGER, stranger_share=share).items():
        torch.testing.assert_close(value, share * every[name])


@pytest.mark.parametrize("source", [SELF, MATE])
def test_rows_of_one_person_count_in_full(backbone, source):
    every = terms(backbone, source)
    for name, value in terms(backbone, source, stranger_share=0.1).items():
        torch.testing.assert_close(value, every[name])


def test_unknown_persons_are_strangers_to_all_but_themselves(backbone):
    batch = crossed_faces(2, 0)
    batch.identity.fill_(-1)
    every = terms(backbone, MATE, batch)
    for name, value in terms(backbone, MATE, batch, stranger_share=0.1).items():
        torch.testing.assert_close(value, 0.1 * every[name])
    own = terms(backbone, SELF, batch)
    assert terms(backbone, SELF, batch, stranger_share=0.1) == own


def test_a_strangers_picture_that_is_at_hand_counts_in_full(backbone):
    source = torch.tensor([2, 3, 0, 1, 6, 7, 4, 5])  # in crossed groups the swap of each of these is in the batch
    every = terms(backbone, source, crossed_targets=True)
    for name, value in terms(backbone, source, crossed_targets=True, stranger_share=0.1).items():
        torch.testing.assert_close(value, every[name])


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_its_range_is_refused(backbone, share):
    with pytest.raises(UserError, match=r"stranger_share is .*; it must lie in 0 to 1"):
        DisentangleStage(backbone, WEIGHTS, stranger_share=share)


@torch.no_grad()
def test_rows_of_others_alone_are_drawn_under_a_key(backbone):
    identity = backbone.encode(crossed_faces(2, 0).image).identity
    own = torch.arange(len(identity))
    source = own.roll(1)
    source[0] = 0  # this row keeps itself
    every = DisentangleStage(backbone, WEIGHTS, keyed_share=1.0)
    edited = every._some_edited(identity[source], source)
    assert torch.equal(edited[0], identity[0])
    assert (edited[1:] != identity[source][1:]).flatten(1).any(1).all()
    assert torch.equal(every._some_edited(identity, own), identity)
    # A row has its stream, so that its key does not depend on how a batch is dealt out.
    every.parallel.streams = RowStreams(1, 2, 0, len(identity))
    together = every._some_edited(identity[source], source)
    every.parallel.streams = RowStreams(1, 2, 2, len(identity) - 2)
    part = every._some_edited(identity[source][2:], source[2:] + len(identity))
    torch.testing.assert_close(part, together[2:])
    half = DisentangleStage(backbone, WEIGHTS, keyed_share=0.5)
    half.parallel.streams = RowStreams(1, 2, 0, 64)
    many = identity[:1].expand(64, *identity.shape[1:])
    changed = (half._some_edited(many, torch.full((64,), 99)) != many).flatten(1).any(1)
    assert 20 < int(changed.sum()) < 44


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_the_share_under_a_key_is_a_share(backbone, share):
    with pytest.raises(UserError, match=r"keyed_share is .*; it must lie in 0 to 1"):
        DisentangleStage(backbone, WEIGHTS, keyed_share=share)
