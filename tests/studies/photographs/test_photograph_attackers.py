"""Attackers that train, on tiny networks and a tiny budget: what is measured, kept and refused."""

import json

import numpy as np
import pytest
import torch
from study_fakes import CountingMesh, write_people

from faceanon.backbones.classical import Blur
from faceanon.errors import UserError
from faceanon.pipeline import Pipeline
from faceanon.studies.photographs.attackers import AsShown, PaintedOver, attack_figures
from faceanon.studies.photographs.judges import Judge
from faceanon.studies.photographs.people import find_people
from faceanon.studies.security.base import BUDGETS, Budget
from faceanon.weights.bundle import Bundle


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    return find_people(write_people(tmp_path_factory.mktemp("people"), people=6, pictures=3))


@pytest.fixture
def tiny_budget(monkeypatch):
    monkeypatch.setitem(BUDGETS, "tiny", Budget("tiny", people=3, known_people=3, steps=12, batch=4))


@pytest.fixture(scope="module")
def blur(tiny_bundle):
    return Pipeline(Blur(str(tiny_bundle)), name="blur")


def judge_of(pipeline):
    return Judge("tiny judge", Bundle(pipeline.backbone.bundle.folder).judge, digest="v1")


def test_attackers_are_measured_beside_a_painted_over_face_and_kept(blur, people, tiny_budget, tmp_path):
    mesh = CountingMesh()
    figures = attack_figures(blur, judge_of(blur), mesh, people, "tiny", tmp_path)
    for name in ("attack/inversion", "attack/recogniser"):
        for reference in ("", "/painted", "/blur"):
            low, high = figures.intervals[f"{name}{reference}"]
            assert 0 <= low <= figures.values[f"{name}{reference}"] <= high <= 1
    assert figures.values["attack/people"] == 3
    assert figures.values["attack/chance"] == pytest.approx(2 / 8)
    seen = mesh.seen
    again = attack_figures(blur, judge_of(blur), mesh, people, "tiny", tmp_path)
    assert again == figures
    assert mesh.seen == seen
    kept = sorted(tmp_path.glob("attackers-*.json"))
    assert len(kept) == 3
    # Another model finds paint and blur done.
    blur.weights, own = "0" * 64, blur.weights
    other = attack_figures(blur, judge_of(blur), mesh, people, "tiny", tmp_path)
    blur.weights = own
    assert mesh.seen == seen
    assert other == figures
    assert len(list(tmp_path.glob("attackers-*.json"))) == 4
    for path in kept:
        path.write_text(json.dumps({"values": {}}))
    with pytest.raises(UserError, match="is damaged: delete it"):
        attack_figures(blur, judge_of(blur), mesh, people, "tiny", tmp_path)


def test_a_face_without_a_picture_is_attacked_as_the_product_shows_it(blur, tiny_bundle):
    class Half(Blur):
        def anonymize(self, image, key):
            shown = image.clone()
            shown[0] = float("nan")
            return shown

    image = torch.rand(2, 3, 64, 64) * 2 - 1
    method = Half(str(tiny_bundle))
    shown = AsShown(method).anonymize(image, method.sample_key(2))
    assert shown.isfinite().all()
    assert torch.equal(shown[1], image[1])
    assert shown[0].std() < 0.5 * image[0].std()


def test_paint_covers_the_hull_of_the_mesh_and_nothing_else(blur):
    image = torch.rand(2, 3, 64, 64) * 2 - 1
    mesh = CountingMesh()
    painted = PaintedOver(blur.backbone.bundle, mesh).anonymize(image, torch.zeros(2, 1))
    changed = (painted - image).abs().amax(1) > 0.01
    grey = (painted - 1 / 255).abs().amax(1) < 0.01
    assert bool((changed <= grey).all())
    assert 0.3 < changed.float().mean() < 0.6
    assert not changed[:, :6].any()
    points, _ = mesh.points(((image.permute(0, 2, 3, 1) + 1) * 127.5).round().byte().numpy())
    columns, rows = np.floor(points[0]).astype(int).T
    assert grey[0].numpy()[rows, columns].all()


def test_wrong_input_is_refused(blur, people, tmp_path):
    with pytest.raises(UserError, match="no budget 'huge'"):
        attack_figures(blur, judge_of(blur), CountingMesh(), people, "huge", tmp_path)
    with pytest.raises(UserError, match="too few for attackers"):
        attack_figures(blur, judge_of(blur), CountingMesh(), people[:3], "small", tmp_path)
    with pytest.raises(UserError, match="cannot judge the attackers"):
        attack_figures(blur, Judge("own", lambda x: x, white_box=True), CountingMesh(), people, "small", tmp_path)
