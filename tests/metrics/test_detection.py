import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from faceanon.errors import UserError
from faceanon.metrics.detection import DetectionSuite, DetectorAgreement, DlibDetector, largest_faces, make_detector
from faceanon.photo.detect import Detection
from faceanon.photo.mtcnn import MtcnnDetector
from faceanon.photo.yunet import YunetDetector


def face(shift=0.0, points=5):
    places = np.arange(2.0 * points).reshape(points, 2) + np.array([shift, 0])
    return Detection((4 + shift, 5, 20 + shift, 25), 0.9, places)


class BrightSpot:
    """Finds a face where the picture is bright: its box starts at the first bright column."""

    def detect(self, image):
        columns = np.flatnonzero(image.mean((0, 2)) > 128)
        return [face(float(columns[0])), face(50.0)] if len(columns) else []


def spot(column):
    image = torch.full((1, 3, 32, 32), -1.0)
    image[..., column:] = 1
    return image


def test_rates_and_distances_by_hand():
    metric = DetectorAgreement()
    metric.update([face(), face(3), None], [face(), face(), face()])
    metric.update([face(1), face()], [None, face()])
    found = metric.compute()
    assert float(found["detection_rate"]) == pytest.approx(4 / 5)
    assert float(found["box_distance"]) == pytest.approx((0 + 3 * 2 / 4 + 0) / 3)  # two of four edges move
    assert float(found["landmark_distance"]) == pytest.approx((0 + 3 / 2 + 0) / 3)  # one of two coordinates


def test_suite_names_figures_and_intervals():
    suite = DetectionSuite({"spot": BrightSpot()}, draws=200)
    original = torch.cat([spot(4)] * 6)
    dark = torch.full_like(spot(4), -1)
    suite.update(original, {"anonymized": torch.cat([spot(6), dark] * 3), "recovered": original})
    figures, intervals = suite.compute(torch.arange(6))
    assert figures == pytest.approx(
        {
            "detection_rate/spot/original": 1,
            "detection_rate/spot": 0.5,
            "box_distance/spot": 1,
            "landmark_distance/spot": 1,
            "detection_rate/spot/recovered": 1,
            "box_distance/spot/recovered": 0,
            "landmark_distance/spot/recovered": 0,
        }
    )
    low, high = intervals["detection_rate/spot"]
    assert 0 < low < 0.5 < high < 1


def test_nothing_found_has_a_rate_and_no_distance():
    metric = DetectorAgreement()
    metric.update([None], [face()])
    found = metric.compute()
    assert found["detection_rate"] == 0
    assert math.isnan(found["box_distance"])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="at least one"):
        DetectorAgreement().update([], [])
    with pytest.raises(ValueError, match="as many"):
        DetectorAgreement().update([face()], [])
    with pytest.raises(ValueError, match="same points"):
        DetectorAgreement().update([face(points=68)], [face()])
    with pytest.raises(ValueError, match="empty"):
        largest_faces(BrightSpot(), torch.zeros(0, 3, 32, 32))
    with pytest.raises(ValueError, match=r"\[-1, 1\]"):
        largest_faces(BrightSpot(), spot(3) * 255)
    with pytest.raises(UserError, match="no detector 'yolo'"):
        make_detector("yolo", 64)


def test_mtcnn_finds_no_face_in_noise():
    detector = make_detector("mtcnn", 64)
    assert isinstance(detector, MtcnnDetector)
    assert detector.config.min_face == 16
    noise = torch.rand(1, 3, 48, 48, generator=torch.Generator().manual_seed(0)) * 2 - 1
    assert largest_faces(detector, noise) == [None]


def test_yunet_is_made_by_its_name_for_faces_that_fill_the_picture():
    detector = make_detector("yunet", 64)
    assert isinstance(detector, YunetDetector)
    assert detector.config.min_face == 16


def test_mtcnn_finds_a_face_of_the_testbed(shared):
    from PIL import Image

    path = sorted((shared / "testbed/sfhq_synth256").glob("*.jpg"))[0]
    pixels = torch.from_numpy(np.array(Image.open(path).convert("RGB").resize((128, 128)))).permute(2, 0, 1)[None]
    image = pixels.float() / 127.5 - 1
    (found,) = largest_faces(make_detector("mtcnn", 128), image)
    assert found is not None
    assert found.points.shape == (5, 2)
    assert abs(found.points[:2].mean(0)[0] - 64) < 10  # FFHQ's frame: the eyes around the middle


class FakeShape:
    def parts(self):
        return [SimpleNamespace(x=i, y=2 * i) for i in range(68)]


class FakeBox:
    def __init__(self, side):
        self.side = side

    left = top = staticmethod(lambda: 1)

    def right(self):
        return 1 + self.side

    bottom = right


def test_dlib_is_used_as_it_is_meant(monkeypatch, tmp_path):
    calls = []

    def run(image, upsample, threshold):
        calls.append(upsample)
        return [FakeBox(5), FakeBox(9)], [0.3, 0.8], [0, 0]

    dlib = SimpleNamespace(
        get_frontal_face_detector=lambda: SimpleNamespace(run=run),
        shape_predictor=lambda path: lambda image, box: FakeShape(),
    )
    monkeypatch.setitem(sys.modules, "dlib", dlib)
    path = tmp_path / "predictor.dat"
    path.write_bytes(b"x")
    found = DlibDetector(path).detect(np.zeros((20, 20, 3), np.uint8))
    assert [detection.box for detection in found] == [(1, 1, 10, 10), (1, 1, 6, 6)]
    assert found[0].points.shape == (68, 2)
    assert found[0].points[3].tolist() == [3, 6]
    assert calls == [1]


def test_missing_dlib_is_named(monkeypatch, tmp_path):
    with pytest.raises(UserError, match="shape_predictor_68"):
        DlibDetector(tmp_path / "none.dat")
    monkeypatch.setitem(sys.modules, "dlib", None)
    path = tmp_path / "predictor.dat"
    path.write_bytes(b"x")
    with pytest.raises(UserError, match="pip install dlib"):
        DlibDetector(path)
