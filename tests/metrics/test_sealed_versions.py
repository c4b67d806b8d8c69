"""The evaluation of a method whose way back is a sealed code: levels, wrong keys, bytes beside the picture."""

import pytest
import torch

from faceanon.backbones.classical import Blur, Scramble
from faceanon.metrics.evaluation import Evaluation
from faceanon.metrics.versions import VersionMaker
from faceanon.report.figures import explain, format_value
from faceanon.sealed.envelope import sealed_size
from faceanon.testing import smooth_faces
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle
from fakes import SealedPatch


@pytest.fixture(scope="module")
def image():
    return smooth_faces(64)


def mse(one, other):
    return float((one - other).square().mean())


def test_recovery_goes_through_the_code_at_every_level(sealed_bundle, image):
    backbone = SealedPatch(str(sealed_bundle))
    with torch.no_grad():
        made = VersionMaker(2, 0, (75,)).make(backbone, image, list(range(4)))
    assert set(made.recovered) == {"image", "file", "jpeg75"}
    hidden = mse(made.anonymized[0], image)
    assert mse(made.recovered["file"], image) < hidden / 20
    assert mse(made.recovered["jpeg75"], image) < hidden / 5
    # A wrong key draws another stranger in the place of the first.
    assert mse(made.wrong, image) > hidden / 3
    assert mse(made.wrong, made.anonymized[0]) > hidden / 3
    assert made.carried.tolist() == [sealed_size(len(code)) for code in backbone.code_of(image)]


@pytest.mark.parametrize(("kind", "expected"), [(SealedPatch, True), (Scramble, False), (Blur, None)])
def test_bytes_beside_the_picture_are_a_figure_of_reversible_methods(kind, expected, sealed_bundle, image):
    backbone = kind(str(sealed_bundle))
    evaluation = Evaluation(Bundle(sealed_bundle), jpeg_qualities=())
    evaluation.update(FaceBatch(image, torch.tensor([0, 0, 1, 1]), torch.full((4,), -1)), backbone)
    figures = evaluation.compute()
    if expected is None:
        assert "carried_bytes" not in figures
        return
    sizes = [sealed_size(len(code)) for code in backbone.code_of(image)] if expected else [0.0]
    assert figures["carried_bytes"] == pytest.approx(sum(sizes) / len(sizes))
    assert any("sealed code" in line for line in evaluation.skipped) == expected
    assert ("recovery_rate/tiny_judge/latent" in figures) is False


class MissesTheFirst(SealedPatch):
    """Finds no face in the first picture of a batch."""

    def anonymize(self, image, key):
        drawn = super().anonymize(image, key)
        drawn[0] = torch.nan
        return drawn


def test_faces_that_a_sealed_method_cannot_make_out_are_blurred_for_good(sealed_bundle, image):
    with torch.no_grad():
        made = VersionMaker(2, 0, ()).make(MissesTheFirst(str(sealed_bundle)), image, list(range(4)))
    assert made.undrawn.tolist() == [True, False, False, False]
    assert made.carried[0] == 0
    assert (made.carried[1:] > 0).all()
    assert torch.equal(made.recovered["file"][0], made.anonymized[0][0])
    assert made.anonymized[0][0].std() < image[0].std()
    assert made.wrong.isfinite().all()
    evaluation = Evaluation(Bundle(sealed_bundle), jpeg_qualities=())
    batch = FaceBatch(image, torch.tensor([0, 0, 1, 1]), torch.full((4,), -1))
    evaluation.update(batch, MissesTheFirst(str(sealed_bundle)))
    assert evaluation.compute()["undrawn_rate"] == 0.25


def test_strangers_of_many_keys_are_measured_where_a_face_cannot_be_made_out_too(sealed_bundle, image):
    evaluation = Evaluation(Bundle(sealed_bundle), jpeg_qualities=(), kffa_keys=2)
    batch = FaceBatch(image, torch.tensor([0, 0, 1, 1]), torch.full((4,), -1))
    evaluation.update(batch, MissesTheFirst(str(sealed_bundle)))
    assert 0 < evaluation.compute()["kffa/tiny_judge"] <= 180


def test_the_figure_is_explained():
    assert explain("carried_bytes").better == "lower"
    assert format_value("carried_bytes", 1280.0) == "1280 B"
