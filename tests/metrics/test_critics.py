import pytest
import torch
from torch import nn

from faceanon.errors import UserError
from faceanon.losses.auxiliary import FactorObjective, IdentityObjective, LandmarkObjective, Objective, ParsingObjective
from faceanon.metrics.auxiliary import area_under_roc, examination_of
from faceanon.metrics.codes import CodeAgreement
from faceanon.types import FaceBatch


def faces(rows=8, **known):
    labels = torch.arange(rows) // 2
    image = torch.rand(rows, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return FaceBatch(image, labels, torch.arange(rows), **known)


class Fixed(nn.Module):
    """Answers the same, whatever it is shown."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, image):
        return self.answer


def test_area_under_roc_counts_pairs():
    genuine, impostor = torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0.5, 0.0])
    wins = [1, 1, 0.5, 1, 0, 1]
    assert area_under_roc(genuine, impostor) == pytest.approx(sum(wins) / 6)


def test_a_recogniser_that_knows_everybody_and_one_that_knows_nobody():
    batch = faces(8)
    perfect = Fixed(torch.eye(4)[batch.identity])
    figures = {}
    for name, network in (("good", perfect), ("blind", Fixed(torch.ones(8, 4)))):
        exam = examination_of(IdentityObjective(4), name, [], 16)
        exam.update(network, batch)
        figures |= exam.compute()
    assert figures["auc/good"] == 1
    assert figures["tar_at_far/good/0.01"] == figures["tar_at_far/good/0.001"] == 1
    assert figures["threshold/good"] == 0
    assert figures["auc/blind"] == 0.5
    assert figures["tar_at_far/blind/0.01"] == 0


def test_a_recogniser_needs_pairs():
    exam = examination_of(IdentityObjective(4), "x", [], 16)
    exam.update(Fixed(torch.rand(2, 4)), faces(2))
    with pytest.raises(UserError, match="several persons"):
        exam.compute()


def test_parser_iou_per_class_is_over_all_pixels():
    truth = torch.zeros(2, 16, 16, dtype=torch.int64)
    truth[0, :4] = 1
    found = torch.zeros_like(truth)
    found[0, 2:6] = 1
    exam = examination_of(ParsingObjective([1.0] * 3), "parser", ["skin", "hair", "hat"], 16)
    for row in range(2):
        logits = nn.functional.one_hot(found[[row]], 3).movedim(-1, 1).float()
        exam.update(Fixed(logits), faces(1, parsing=truth[[row]]))
    figures = exam.compute()
    assert figures["parsing_iou/hair"] == pytest.approx(2 / 6)
    assert figures["parsing_iou/skin"] == pytest.approx((512 - 96) / (512 - 32))
    assert figures["parsing_iou/mean"] == pytest.approx((2 / 6 + 416 / 480) / 2)
    assert "parsing_iou/hat" not in figures
    assert figures["pixel_accuracy"] == pytest.approx(1 - 64 / 512)


def test_landmark_error_is_in_pixels_and_per_point():
    truth = torch.zeros(4, 2, 2)
    found = truth + torch.tensor([[3 / 8, 4 / 8], [0, 0]])
    exam = examination_of(LandmarkObjective(), "landmarks", ["chin", "nose"], 16)
    exam.update(Fixed(found), faces(4, landmarks=truth))
    figures = exam.compute()
    assert figures["landmark_distance/chin"] == pytest.approx(5)
    assert figures["landmark_distance/nose"] == 0
    assert figures["landmark_distance/mean"] == pytest.approx(2.5)


def test_names_must_be_as_many_as_the_network_has():
    with pytest.raises(UserError, match="names 1 classes, the network has 3"):
        examination_of(ParsingObjective([1.0] * 3), "parser", ["skin"], 16)


@pytest.mark.parametrize("objective", [ParsingObjective([1.0] * 3), LandmarkObjective(), FactorObjective([4], 2)])
def test_truth_that_is_missing_is_named(objective):
    with pytest.raises(UserError, match="the data do not bring"):
        examination_of(objective, "x", [], 16).update(Fixed(torch.zeros(8, 3, 16, 16)), faces())


def test_a_linear_probe_reads_what_is_there_and_nothing_else():
    generator = torch.Generator().manual_seed(0)
    maps, noise = torch.randn(400, 2, 4, 4, generator=generator), torch.randn(400, 3, generator=generator)
    seen = torch.stack([maps[:, 0, 0, 0], maps[:, 1, 2, 3]], 1)
    for factors, least, most in ((seen, 0.9, 1.0), (noise, -0.5, 0.1)):
        exam = examination_of(FactorObjective([2], factors.shape[1]), "net", [], 16)
        exam.update(Fixed([maps]), faces(400, factors=factors))
        assert least < exam.compute()["probe_r2/net"] < most


def test_an_unknown_objective_speaks_for_itself():
    class Brightness(Objective):
        def terms(self, network, batch):
            return {}

        def figures(self, network, batch):
            return {"brightness": batch.image.mean()}

    exam, batch = examination_of(Brightness(), "net", [], 16), faces(6)
    exam.update(nn.Identity(), batch.map(lambda item: item[:2]))
    exam.update(nn.Identity(), batch.map(lambda item: item[2:]))
    assert exam.compute() == {"brightness/net": pytest.approx(float(batch.image.mean()), abs=1e-6)}


def test_codes_that_come_back_and_codes_that_do_not():
    wanted = torch.randn(2000, 3, 2, generator=torch.Generator().manual_seed(0)) + 5
    other = torch.randn(2000, 3, 2, generator=torch.Generator().manual_seed(1)) + 5
    for found, error, correlation in (
        (wanted, 0, 1),
        (wanted.mean(0).expand_as(wanted) + 1e-3 * other, 1, 0),
        (2 * wanted - 5, 1, 1),
        (other, 2, 0),
    ):
        metric = CodeAgreement()
        metric.update(found[:500], wanted[:500])
        metric.update(found[500:], wanted[500:])
        figures = metric.compute()
        assert float(figures["error"]) == pytest.approx(error, abs=0.1)
        assert float(figures["correlation"]) == pytest.approx(correlation, abs=0.05)


def test_entries_that_never_vary_do_not_count():
    wanted = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    still = torch.ones(50, 1)
    metric = CodeAgreement()
    metric.update(torch.cat([wanted, still], 1), torch.cat([wanted, still], 1))
    assert float(metric.compute()["correlation"]) == pytest.approx(1, abs=1e-5)
    constant = CodeAgreement()
    constant.update(still, still)
    assert constant.compute()["correlation"].isnan()
