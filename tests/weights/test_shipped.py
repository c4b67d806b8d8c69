"""The trained models that ship: their files belong together, and the default hides and brings back people."""

import pytest
import torch

from faceanon.data.prepared import shipped_faces, shipped_pictures
from faceanon.files import read_yaml, sha256
from faceanon.losses.identity import cosine
from faceanon.metrics.saved import saved
from faceanon.metrics.versions import bring_back, codes_or_none
from faceanon.models import CARD, WEIGHTS, default_model, load_backbone
from faceanon.paths import checkpoints
from faceanon.results import load_results
from faceanon.weights.bundle import Bundle

FACES = 6
SHIPPED = sorted(path.parent.name for path in checkpoints().glob(f"*/{CARD}"))


def test_the_default_ships():
    assert default_model().name in SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_weights_are_those_of_the_card_beside_them(name):
    folder = checkpoints() / name
    assert read_yaml(folder / CARD)["sha256"] == sha256(folder / WEIGHTS)


@pytest.mark.slow
def test_people_are_hidden_and_come_back_by_their_key_alone():
    backbone, _ = load_backbone(default_model())
    faces = shipped_faces(Bundle("photo128"), shipped_pictures(Bundle("photo128"), "test")[:FACES], 128)
    threshold = load_results(default_model()).figures["threshold/dlib_resnet"]
    key = backbone.sample_key(FACES, torch.Generator().manual_seed(0))
    with torch.no_grad():
        hidden = saved(backbone.anonymize(faces, key))
        back = saved(bring_back(backbone, hidden, key, codes_or_none(backbone, faces)))
        judge = backbone.bundle.judge
        original = judge(faces)
        assert int((cosine(judge(back), original) > threshold).sum()) == FACES
        assert int((cosine(judge(hidden), original) > threshold).sum()) == 0
