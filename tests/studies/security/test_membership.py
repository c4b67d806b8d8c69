"""The membership test finds people who were learnt by heart, and nothing in a model that learnt nobody."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from attack_fakes import BUDGET, SIZE, Irreversible, Shift, pictures, target, training_faces
from PIL import Image

from faceanon.errors import UserError
from faceanon.metrics.strict import typed
from faceanon.studies.security import run as study
from faceanon.studies.security.base import DoesNotApplyError
from faceanon.studies.security.membership import TOGETHER, Membership, Signal, measure, membership
from faceanon.studies.security.target import Target

PEOPLE = 40


class ByHeart(Shift):
    """Draws only those whom it was trained on well."""

    def __init__(self, learnt):
        super().__init__()
        self.learnt = {self.mark(picture) for picture in learnt.image}

    def mark(self, picture):
        return round(float(picture.mean()), 4)

    def decode(self, codes):
        drawn = super().decode(codes).clone()
        for row, picture in enumerate(codes.identity):
            if self.mark(picture) not in self.learnt:
                drawn[row] += 0.1 * torch.randn(drawn[row].shape, generator=torch.Generator().manual_seed(row))
        return drawn


def groups():
    return training_faces(PEOPLE)


def attacked(method, training=groups):
    aim = target(method)
    aim.training = training
    return membership(aim)


def test_a_model_that_learnt_by_heart_is_found_out():
    found = attacked(ByHeart(groups()[0]))
    signals = {signal.name: signal for signal in found.signals}
    assert signals["redrawn without a key: PSNR"].auc > 0.95
    assert signals["redrawn without a key: PSNR"].named > 0.8
    assert signals[TOGETHER].auc > 0.8
    assert found.verdicts()[0].outcome == "fails"
    assert "redrawn without a key" in found.verdicts()[0].text


def test_a_model_that_learnt_nobody_shows_nothing():
    found = attacked(Shift())
    assert (found.members, found.outsiders) == (PEOPLE, PEOPLE)
    assert all(signal.interval[0] <= 0.5 <= signal.interval[1] for signal in found.signals)
    assert found.verdicts()[0].outcome in ("holds", "open")
    assert len(found.rows()) == 4 * len(found.signals)


def test_a_method_without_codes_or_a_way_back_has_fewer_signals():
    names = {signal.name for signal in attacked(Irreversible()).signals}
    assert not any("recovered" in name for name in names)
    assert TOGETHER in names


def test_nobody_knows_the_training_faces():
    with pytest.raises(DoesNotApplyError, match="--trained-on"):
        attacked(Shift(), None)


@pytest.mark.parametrize(("shift", "expected"), [(0.0, 0.5), (1.0, 0.76), (4.0, 1.0)])
def test_areas_and_their_intervals(shift, expected):
    """Two normal scores `shift` apart: AUC is Phi(shift / sqrt 2)."""
    generator = torch.Generator().manual_seed(3)
    inside, outside = (torch.randn(400, generator=generator) for _ in range(2))
    found = measure("x", inside + shift, outside)
    assert found.auc == pytest.approx(expected, abs=0.04)
    assert found.interval[0] <= found.auc <= found.interval[1]
    wide = measure("x", inside + shift, outside, tests=8)
    assert wide.auc == found.auc
    assert wide.interval[0] <= found.interval[0] <= found.interval[1] <= wide.interval[1]
    assert found.named_interval[0] <= found.named <= found.named_interval[1]


def test_intervals_cover_the_truth():
    """95% intervals of 60 trials without any difference: three misses are expected, ten would be a fault."""
    generator = torch.Generator().manual_seed(4)
    trials = [measure("x", *torch.randn(2, 50, generator=generator)) for _ in range(60)]
    assert sum(not one.interval[0] <= 0.5 <= one.interval[1] for one in trials) < 10


def signal(auc, low, high, named=0.01, least=0.0):
    return Signal("x", auc, (low, high), named, (least, 1.0))


@pytest.mark.parametrize(
    ("one", "outcome"),
    [
        (signal(0.52, 0.45, 0.58), "holds"),
        (signal(0.55, 0.51, 0.58), "holds"),
        (signal(0.68, 0.61, 0.74), "partly"),
        (signal(0.9, 0.8, 0.95), "fails"),
        (signal(0.5, 0.2, 0.8), "open"),
        (signal(0.66, 0.49, 0.74), "open"),
        (signal(0.55, 0.45, 0.6, named=0.1, least=0.02), "partly"),
        (signal(0.55, 0.45, 0.6, named=0.4, least=0.2), "fails"),
        (signal(0.55, 0.45, 0.6, named=0.4, least=0.0), "holds"),
    ],
)
def test_verdicts(one, outcome):
    assert Membership((signal(0.5, 0.45, 0.55), one), 100, 100).verdicts()[0].outcome == outcome


def test_findings_survive_a_file():
    found = Membership((signal(0.5, 0.4, 0.6),), 3, 4)
    assert typed(Membership, json.loads(json.dumps(asdict(found))), "x") == found


def test_training_faces_are_those_of_the_folder_and_outsiders_those_of_the_test(tmp_path):
    for person in range(5):
        folder = tmp_path / f"p{person}"
        folder.mkdir()
        for photo in range(2):
            Image.new("RGB", (SIZE, SIZE), (40 * person, 100 * photo, 9)).save(folder / f"{photo}.png")
    budget = replace(BUDGET, members=3)
    test = pictures(0, 6, 2)
    inside, outside = study._training(tmp_path, test, Shift(), budget)()
    reds = ((inside.image[:, 0, 0, 0] + 1) * 127.5).round().int().tolist()
    assert sorted(reds) == [0, 0, 40, 40, 80, 80]
    assert torch.equal(outside.image, test.image[:6])


def test_training_faces_without_the_attack_are_refused():
    with pytest.raises(UserError, match="is for membership, which --attacks leaves out"):
        study.run_security(study.SecurityOptions("blur", attacks="leak", trained_on=Path("faces")))


def test_a_target_keeps_what_it_was_given():
    aim = Target(Shift().eval(), pictures(0, 4), lambda: pictures(50, 4), BUDGET, training=groups)
    assert aim.training is groups
