"""Methods on W+ where the generator draws larger pictures than the encoder takes, as at 1024 px."""

import pytest
import torch

from bundles import make_tiny_bundle
from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.ifadit import IFADIT
from faceanon.backbones.riddle import Riddle
from faceanon.stages import AnonymizeStage
from faceanon.stages.anonymize_terms import AnonymizeWeights
from faceanon.types import FaceBatch

SMALL_CID = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}
METHODS = {"dbaf": (DBAF, SMALL_CID), "ifadit": (IFADIT, {"flow_hidden": 16}), "riddle": (Riddle, {})}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_tiny_bundle(tmp_path_factory.mktemp("larger"), side=128)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_draws_recovers_and_trains_at_twice_the_encoder_s_side(bundle, name):
    torch.manual_seed(0)
    kind, options = METHODS[name]
    method = kind(str(bundle), **options)
    faces = torch.rand(2, 3, 128, 128) * 2 - 1
    stage = AnonymizeStage(method, AnonymizeWeights(latent=0.0), loop="image")
    batch = FaceBatch(faces, torch.arange(2), torch.full((2,), -1))
    branches = stage.draw(faces)
    assert branches.pictures.shape == (10, 3, 128, 128)
    terms = stage.generator_terms(batch, branches)
    assert {"perceptual", "identity", "parsing"} <= set(terms)
    sum(terms.values()).backward()
    gradients = [item.grad for item in method.parameters() if item.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)
    key = method.sample_key(2)
    with torch.no_grad():
        assert method.eval().recover(method.anonymize(faces, key), key).shape == faces.shape
