"""What stage 1 compares its mixtures with, and how much each row counts."""

import pytest
import torch
from stage_probes import SMALL_CID, crossed_faces

from faceanon.backbones.dbaf import DBAF
from faceanon.errors import UserError
from faceanon.stages import DisentangleStage
from faceanon.stages.disentangle import DisentangleWeights, Mixed
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
