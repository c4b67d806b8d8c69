"""Which rows of stage 1 are drawn under a key."""

import pytest
import torch
from stage_probes import SMALL_CID, crossed_faces

from faceanon.backbones.dbaf import DBAF
from faceanon.errors import UserError
from faceanon.stages import DisentangleStage
from faceanon.stages.disentangle import DisentangleWeights
from faceanon.stages.parallel import RowStreams

WEIGHTS = DisentangleWeights(adversarial=0, contrastive=0, latent=0, edges=1)


@pytest.fixture(scope="module")
def backbone(tiny_bundle):
    return DBAF(str(tiny_bundle), **SMALL_CID)


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
