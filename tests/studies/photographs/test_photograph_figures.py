"""Figures of the study of photographs: judges, ratios, chance, expression."""

import math

import numpy as np
import pytest
import torch
from study_fakes import colour_judge

from faceanon.landmarks.drawings import LEFT_CHEEK, RIGHT_CHEEK
from faceanon.landmarks.expression import LOWER_LIP, UPPER_LIP, expression
from faceanon.landmarks.mesh import LEFT_EYE, LEFT_MOUTH, NOSE, RIGHT_EYE, RIGHT_MOUTH
from faceanon.metrics.recognition import chance, compare_all, compare_rows
from faceanon.studies.photographs.figures import (
    Figures,
    add_statistic,
    judge_figures,
)
from faceanon.studies.photographs.judges import Judge
from faceanon.studies.photographs.readings import Measured


def test_every_judge_has_a_threshold_of_its_own():
    person = torch.arange(20).repeat_interleave(3)
    torch.manual_seed(0)
    embedding = torch.nn.functional.one_hot(person).float() + 0.2 * torch.randn(60, 20)
    same = {"anonymized": embedding[None].repeat(2, 1, 1)}
    judges = [colour_judge("far"), colour_judge("angle", "cosine")]
    known = {judge.name: embedding for judge in judges}
    measured = Measured(person, known, {judge.name: same for judge in judges}, {}, {}, {})
    figures = Figures()
    for judge in judges:
        judge_figures(judge, measured, figures)
        impostors = judge.impostors(embedding, person)
        assert len(impostors) == 20 * 19 // 2 * 9
        share = float((impostors > figures.values[f"threshold/{judge.name}"]).float().mean())
        assert 0.005 < share <= 0.01
    assert figures.values["threshold/far"] < 0 < figures.values["threshold/angle"]


def test_the_euclidean_judge_compares_rows_as_it_compares_all_with_all():
    torch.manual_seed(1)
    some, others = torch.randn(5, 8), torch.randn(5, 8)
    for kind in ("cosine", "euclidean"):
        judge = Judge("x", lambda image: image, kind)
        one, two = judge.prepared(some), judge.prepared(others)
        assert torch.allclose(compare_all(one, two, kind).diagonal(), compare_rows(one, two, kind), atol=1e-6)
    assert compare_rows(some, torch.full_like(some, math.nan)).isnan().all()


def test_chance_is_the_share_of_the_persons_other_pictures():
    assert chance(torch.tensor([0, 0, 1, 1])) == pytest.approx(1 / 3)
    assert chance(torch.tensor([0, 0, 0, 1, 1])) == pytest.approx((3 * 2 + 2 * 1) / 5 / 4)


def test_the_interval_of_a_ratio_holds_the_ratio():
    rng = np.random.default_rng(0)
    person = torch.arange(30).repeat_interleave(4)
    data = np.stack([rng.uniform(0.4, 0.6, 120), rng.uniform(0.8, 1.0, 120)], 1)
    figures = Figures()
    add_statistic(figures, "ratio", data, person, lambda chosen: float(chosen[:, 0].mean() / chosen[:, 1].mean()))
    low, high = figures.intervals["ratio"]
    assert low < figures.values["ratio"] < high
    assert high - low < 0.1


def upright():
    """One mesh that looks straight ahead with a closed mouth, in a square of side 1."""
    points = torch.full((1, 468, 2), 0.5)
    for group, x in ((LEFT_EYE, 0.35), (RIGHT_EYE, 0.65)):
        points[:, list(group)] = torch.tensor([x, 0.4])
    places = {NOSE: (0.5, 0.55), LEFT_MOUTH: (0.4, 0.7), RIGHT_MOUTH: (0.6, 0.7), LEFT_CHEEK: (0.2, 0.5)}
    places |= {RIGHT_CHEEK: (0.8, 0.5), UPPER_LIP: (0.5, 0.7), LOWER_LIP: (0.5, 0.7)}
    for number, place in places.items():
        points[:, number] = torch.tensor(place)
    return points


def test_a_face_that_looks_ahead_has_no_yaw_and_a_closed_mouth():
    found = expression(upright())
    assert found["yaw"] == pytest.approx(0, abs=1e-6)
    assert found["mouth"] == pytest.approx(0, abs=1e-6)
    assert found["pitch"] == pytest.approx(0.5, abs=1e-6)


def test_each_movement_moves_its_own_figure():
    turned, nodding, speaking = upright(), upright(), upright()
    turned[:, NOSE, 0] += 0.1
    nodding[:, NOSE, 1] += 0.05
    speaking[:, LOWER_LIP, 1] += 0.09
    still = expression(upright())
    for points, name, change in ((turned, "yaw", 1 / 3), (nodding, "pitch", 1 / 6), (speaking, "mouth", 0.3)):
        found = expression(points)
        for other, value in still.items():
            wanted = float(value) + (change if other == name else 0)
            assert float(found[other]) == pytest.approx(wanted, abs=1e-5), (name, other)


@pytest.mark.parametrize("angle", [0.3, -1.2])
def test_expression_does_not_change_when_the_picture_is_turned_moved_or_scaled(angle):
    points = upright()
    points[:, NOSE] += torch.tensor([0.05, -0.03])
    points[:, LOWER_LIP, 1] += 0.05
    cosine, sine = math.cos(angle), math.sin(angle)
    turned = 2.5 * points @ torch.tensor([[cosine, sine], [-sine, cosine]]) + 3
    before, after = expression(points), expression(turned)
    assert all(float(before[name]) == pytest.approx(float(after[name]), abs=1e-4) for name in before)
