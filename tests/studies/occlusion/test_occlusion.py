"""Figures under occlusion, methods that are known to be bad at it, and the report."""

import json
import math
from dataclasses import replace

import pytest
import torch
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio
from torch.nn import functional

from faceanon.backbones.base import Backbone
from faceanon.backbones.classical import Blur
from faceanon.cli import main
from faceanon.models import save_backbone
from faceanon.results import Results, load_results
from faceanon.studies.occlusion.figures import OcclusionTest
from faceanon.studies.occlusion.page import occlusion_board, write_occlusion
from faceanon.studies.occlusion.pictures import DRAWN, OccludedBatch, Occlusion
from faceanon.studies.occlusion.rows import label_iou, mask_iou, masked_psnr, occlusion_faults, visible
from faceanon.types import Codes
from metrics.metric_fakes import SIZE, FakeBundle, _labels
from metrics.metric_fakes import faces as fake_faces

PEOPLE = 8
GREEN = torch.tensor([-1.0, 1.0, -1.0]).view(3, 1, 1)
PLACES = {"mask": (14, 21), "glasses": (8, 11), "hat": (0, 4), "hand": (16, 24)}  # rows


class GreenBundle(FakeBundle):
    """Whatever is green is in front of a face."""

    def __init__(self):
        super().__init__()
        self.parser = self.parse

    def parse(self, image):
        labels = _labels(len(image))
        labels[labels == 3] = 1
        labels[((image - GREEN).abs() < 0.1).all(1)] = 3
        return functional.one_hot(labels, 4).permute(0, 3, 1, 2).float()


@pytest.fixture(scope="module")
def bundle():
    return GreenBundle()


@pytest.fixture(scope="module")
def faces():
    """Sixteen faces of eight people, bare and behind green bars."""
    plain = fake_faces(PEOPLE, 2, truth=False)
    # On 256 levels, as files hold them.
    plain = replace(plain, image=((plain.image + 1) * 127.5).round() / 127.5 - 1)
    worn = {}
    for kind, (top, bottom) in PLACES.items():
        mask = torch.zeros(len(plain), SIZE, SIZE, dtype=torch.bool)
        mask[:, top:bottom, 5:19] = True
        worn[kind] = Occlusion(torch.where(mask[:, None], GREEN, plain.image), mask)
    return OccludedBatch(plain, worn, list(range(len(plain))))


def only(batch, *kinds):
    return OccludedBatch(batch.plain, {kind: batch.worn[kind] for kind in kinds}, batch.numbers)


def part(batch, rows):
    worn = {kind: type(item)(item.image[rows], item.mask[rows]) for kind, item in batch.worn.items()}
    return OccludedBatch(batch.plain.map(lambda t: t[rows]), worn, batch.numbers[rows])


# Rows


def test_masked_psnr_agrees_with_scikit_image():
    generator = torch.Generator().manual_seed(0)
    image, other = torch.rand(2, 3, 3, 12, 12, generator=generator) * 2 - 1
    mask = torch.zeros(3, 12, 12, dtype=torch.bool)
    mask[0, 2:9, 3:8] = mask[1] = True
    found = masked_psnr(image, other, mask)
    for row in (0, 1):
        pair = [((item[row].permute(1, 2, 0)[mask[row]] + 1) / 2).numpy() for item in (other, image)]
        assert float(found[row]) == pytest.approx(peak_signal_noise_ratio(*pair, data_range=1.0), abs=1e-4)
    assert math.isnan(found[2])
    assert float(masked_psnr(image, image, mask)[0]) == 100


def test_ious_by_hand():
    reference = torch.tensor([[[0, 0, 1, 1]], [[2, 2, 2, 2]]])
    labels = torch.tensor([[[0, 1, 1, 2]], [[2, 2, 2, 2]]])
    mask = torch.tensor([[[True, True, True, False]], [[False, False, False, False]]])
    found = label_iou(labels, reference, mask)
    assert float(found[0]) == pytest.approx(2 / 4)  # two of three pixels agree, so 2 / (3 + 3 - 2)
    assert math.isnan(found[1])
    covered = mask_iou(labels == 1, mask)
    assert float(covered[0]) == pytest.approx(2 / 3)
    assert math.isnan(covered[1])


def test_landmarks_under_the_mask_or_outside_the_picture_do_not_count():
    mask = torch.zeros(1, 10, 10, dtype=torch.bool)
    mask[0, 2, 7] = True
    points = torch.tensor([[[0.5, -0.5], [-0.5, 0.5], [1.2, 0.0]]])
    assert visible(points, mask).tolist() == [[False, True, False]]


# Methods


class Keep(Backbone):
    """Hides nobody and keeps all."""

    key_shape = (4,)

    def __init__(self, bundle):
        super().__init__()
        self.bundle = bundle

    def encode(self, image):
        return Codes(image)

    def transform(self, identity, key, inverse=False):
        return identity

    def decode(self, codes):
        return codes.identity

    def occluded(self, image):
        found = self.bundle.parser(image).argmax(1) == self.bundle.occluder_class
        return functional.max_pool2d(found[:, None].float(), 3, 1, 1) > 0


class Turn(Keep):
    """Hides by moving and inverting the picture, whatever the key, and undoes it exactly."""

    def transform(self, identity, key, inverse=False):
        return -identity.roll((SIZE // 2, SIZE // 2), (2, 3))


class Fill(Keep):
    """Fills what covers the face with the colour of skin."""

    def anonymize(self, image, key):
        return torch.where(self.occluded(image), torch.tensor([0.5, 0.1, -0.1]).view(1, 3, 1, 1), image)


class PaintOver(Keep):
    """Takes what covers the face for damage, and repairs it as well as anyone could."""

    def __init__(self, bundle, bare):
        super().__init__(bundle)
        self.bare = bare

    def anonymize(self, image, key):
        return torch.where(self.occluded(image), self.bare, image)


class Gives(Turn):
    """Gives up where something covers the face."""

    def anonymize(self, image, key):
        share = self.occluded(image).float().mean((1, 2, 3))[:, None, None, None]
        return torch.where(share > 0.08, image, super().anonymize(image, key))


class Forgets(Turn):
    """Cannot find back what was covered."""

    def recover(self, image, key):
        back = super().recover(image, key)
        share = self.occluded(back).float().mean((1, 2, 3))[:, None, None, None]
        return torch.where(share > 0.08, image, back)


class NoWayBack(Turn):
    reversible = False


def examine(method, batch, size=16):
    test = OcclusionTest(method.bundle, far=0.05, draws=50)
    for start in range(0, len(batch.numbers), size):
        test.update(part(batch, slice(start, start + size)), method)
    test.compute()
    return test


def test_a_method_that_keeps_all_keeps_occluders_and_hides_nobody(bundle, faces):
    test = examine(Keep(bundle), only(faces, "mask", "glasses"))
    figures = test.figures
    for kind in ("mask", "glasses"):
        assert figures[f"occluder_psnr/{kind}/anonymized"] == pytest.approx(100)
        assert figures[f"occluder_parsing_iou/{kind}/anonymized"] == 1
        ours, original = (figures[f"occluder_mask_iou/{kind}/{what}"] for what in ("anonymized", "original"))
        assert ours == original > 0.4
        assert figures[f"landmark_distance/{kind}"] == pytest.approx(0, abs=1e-4)
    assert test.ci["landmark_distance/mask"] == pytest.approx((0, 0), abs=1e-4)
    assert "nothing is anonymized under mask" in test.faults["deid_rate/judge/mask"]
    assert "lock is open without" in test.faults["wrong_key_rate/judge/none"]
    assert not any(name.startswith("occluder") for name in test.faults)


def test_a_method_that_paints_over_occluders_shows_it(bundle, faces):
    test = examine(PaintOver(bundle, faces.plain.image), only(faces, "mask", "hat"))
    for kind in ("mask", "hat"):
        assert test.figures[f"occluder_psnr/{kind}/anonymized"] < 20
        assert test.figures[f"occluder_parsing_iou/{kind}/anonymized"] < 0.3
        assert test.figures[f"occluder_mask_iou/{kind}/anonymized"] < 0.3
        assert f"{kind}: painted over" in test.faults[f"occluder_parsing_iou/{kind}/anonymized"]


def test_a_method_that_fills_occluders_shows_it(bundle, faces):
    test = examine(Fill(bundle), only(faces, "mask"))
    assert "mask: not kept" in test.faults["occluder_psnr/mask/anonymized"]


def test_a_method_that_gives_up_under_a_mask_shows_it(bundle, faces):
    test = examine(Gives(bundle), only(faces, "mask"))
    assert test.figures["deid_rate/judge/none"] < 0.5
    assert "under mask" in test.faults["deid_rate/judge/mask"]
    assert "deid_rate/judge/none" not in test.faults


def test_recovery_that_a_mask_breaks_shows_it(bundle, faces):
    test = examine(Forgets(bundle), only(faces, "mask"))
    assert test.figures["recovery_rate/judge/none"] == 1
    assert "recovery does not survive mask" in test.faults["recovery_rate/judge/mask"]


def test_a_small_loss_is_blamed_only_beyond_its_interval():
    figures = {"deid_rate/j/none": 0.1, "deid_rate/j/hat": 0.3}
    assert occlusion_faults(figures, {"deid_rate/j/hat": (0.05, 0.6)}, "j", ["hat"]) == {}
    found = occlusion_faults(figures, {"deid_rate/j/hat": (0.2, 0.4)}, "j", ["hat"])
    assert "hat undoes anonymity" in found["deid_rate/j/hat"]


def test_figures_do_not_depend_on_the_batch(bundle, faces):
    few = part(only(faces, "hand"), slice(0, 16))
    whole, pieces = examine(Turn(bundle), few), examine(Turn(bundle), few, size=5)
    assert whole.figures == pytest.approx(pieces.figures, rel=1e-5)
    assert whole.ci.keys() == pieces.ci.keys()
    assert whole.meta == pieces.meta
    assert whole.meta["people"] == PEOPLE


def test_a_method_without_a_way_back(bundle, faces, tmp_path):
    test = examine(NoWayBack(bundle), only(faces, "mask"))
    assert "recovery and wrong keys: the method is not reversible" in test.skipped
    assert not any(name.startswith(("recovery_rate", "wrong_key")) for name in test.figures)
    board = occlusion_board(Results(test.figures, test.ci, test.meta))
    assert "recovered" not in [column.title for column in board.columns]


def test_few_people_are_said(bundle, faces):
    test = OcclusionTest(bundle, far=0.01)
    test.update(part(only(faces, "hat"), slice(0, 4)), Keep(bundle))
    test.compute()
    assert "few people: 4 impostor pairs" in test.faults["threshold"]
    with pytest.raises(ValueError, match="no batch"):
        OcclusionTest(bundle).compute()


# Report and command


def test_the_page_stands_alone_and_says_all(bundle, faces, tmp_path):
    test = examine(Fill(bundle), only(part(faces, slice(0, 6)), "mask"))
    results = Results(test.figures, test.ci, test.meta, ["<b>odd</b>"], test.skipped)
    page, table = write_occlusion(tmp_path / "new", results, test.samples)
    text = page.read_text()
    assert {path.name for path in page.parent.iterdir()} == {
        f"occlusion.{end}" for end in ("html", "json", "md", "png")
    }
    assert "&lt;b&gt;odd" in text
    assert text.count("data:image/png") == 2
    assert not any(word in text for word in ("http://", "https://", "<script"))
    assert table.splitlines()[0].split() == ["occluder", "none", "mask"]
    marked = (tmp_path / "new/occlusion.md").read_text().splitlines()[0]
    assert [cell.strip() for cell in marked.split("|")[2:-1]] == ["none", "mask"]
    assert load_results(page.parent / "occlusion.json").figures == pytest.approx(test.figures)


def test_the_command(tmp_path, capsys):
    save_backbone(Blur(), tmp_path / "blur")
    out = tmp_path / "out"
    assert main(["report", "occlusion", "--model", str(tmp_path / "blur"), "--faces", "4", "--out", str(out)]) == 0
    assert "occluder kept: PSNR" in capsys.readouterr().out
    content = json.loads((out / "occlusion.json").read_text())
    assert content["meta"]["method"] == "Blur"
    assert content["meta"]["occluders"] == list(DRAWN)
    assert content["figures"]["detection_rate/mtcnn/none/original"] > 0.5


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing-here"], "no model at nothing-here"),
        (["blur", "--faces", "3"], "--faces 3"),
        (["blur", "--device", "abacus"], "cannot compute on 'abacus'"),
        (["blur", "--photos", "missing"], "no folder missing"),
    ],
)
def test_mistakes_are_one_line(words, told, capsys, tmp_path):
    assert main(["report", "occlusion", "--out", str(tmp_path / "out"), "--model", *words]) == 2
    line = capsys.readouterr().err.strip()
    assert told in line
    assert "\n" not in line
    assert not (tmp_path / "out").exists()


def test_photographs_of_nobody_in_particular_are_refused(tmp_path, capsys):
    Image.new("RGB", (64, 64)).save(tmp_path / "1.png")
    assert main(["report", "occlusion", "--model", "blur", "--photos", str(tmp_path)]) == 2
    assert "two known people are needed, there are 0" in capsys.readouterr().err
