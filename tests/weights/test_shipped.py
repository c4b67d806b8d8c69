"""The trained models that ship: their files belong together, and hide and bring back people whom no training saw."""

import pytest
import torch

from drawn.datamodule import SyntheticFaces
from faceanon.files import read_yaml, sha256
from faceanon.losses.identity import cosine
from faceanon.metrics.saved import saved
from faceanon.models import CARD, WEIGHTS, default_model, drawn_model, load_backbone
from faceanon.paths import checkpoints
from faceanon.results import load_results

FACES = 16
SHIPPED = sorted(path.parent.name for path in checkpoints().glob(f"*/{CARD}"))
# Models of photographs are tested on photographs (`report photographs`), not on the people of this page.
DRAWN = [name for name in SHIPPED if read_yaml(checkpoints() / name / CARD)["bundle"]["name"] == "synth64"]


@pytest.fixture(scope="module")
def faces():
    data = SyntheticFaces(64, test_identities=FACES, photos=1, batch_size=FACES)
    data.setup("test")
    return next(iter(data.test_dataloader())).image


def test_the_default_ships():
    assert default_model().name in SHIPPED
    assert drawn_model().name in DRAWN


@pytest.mark.parametrize("name", SHIPPED)
def test_weights_are_those_of_the_card_beside_them(name):
    folder = checkpoints() / name
    assert read_yaml(folder / CARD)["sha256"] == sha256(folder / WEIGHTS)


@pytest.mark.parametrize("name", DRAWN)
def test_figures_are_those_of_the_weights_beside_them(name):
    folder = checkpoints() / name
    results = load_results(folder)
    assert results.meta["images"] == 400
    assert f"checkpoints/{name}" in results.meta["command"]


@pytest.mark.parametrize("name", DRAWN)
def test_people_are_hidden_and_come_back_from_the_file_by_their_key_alone(name, faces):
    backbone, _ = load_backbone(name)
    threshold = load_results(checkpoints() / name).figures["threshold/conv_judge"]
    key, wrong = backbone.sample_key(2 * FACES, torch.Generator().manual_seed(0)).chunk(2)
    with torch.no_grad():
        hidden = saved(backbone.anonymize(faces, key))
        drawn = {"hidden": hidden, "back": backbone.recover(hidden, key), "wrong": backbone.recover(hidden, wrong)}
        judge = backbone.bundle.judge
        original = judge(faces)
        found = {name: int((cosine(judge(picture), original) > threshold).sum()) for name, picture in drawn.items()}
    assert found["back"] >= FACES - 1
    assert found["hidden"] <= 1
    assert found["wrong"] <= 2
