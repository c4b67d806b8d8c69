"""YuNet: parity with OpenCV's, sizes, turns, places, agreement of views, and bad input."""

import csv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from faceanon.errors import UserError
from faceanon.photo.party import CROWD, photo_crowd
from faceanon.photo.views import turned
from faceanon.photo.yunet import YunetConfig, YunetDetector

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def detector():
    return YunetDetector(threads=1)


@pytest.fixture(scope="module")
def group():
    """Twelve people of 386 px at half that size, and the same again at a quarter."""
    crowd = photo_crowd()
    half = np.array(crowd.resize((crowd.width // 2, crowd.height // 2), Image.Resampling.LANCZOS))
    quarter = np.array(crowd.resize((crowd.width // 4, crowd.height // 4), Image.Resampling.LANCZOS))
    wall = np.full((len(half) + len(quarter), half.shape[1], 3), 128, np.uint8)
    wall[: len(half)] = half
    wall[len(half) :, : quarter.shape[1]] = quarter
    return wall


@pytest.fixture(scope="module")
def photofaces(shared):
    """24 synthetic photographs of 256 px with their five points `(5, 2)`."""
    with (shared / "photofaces" / "manifest.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[::80]
    names = ("leye", "reye", "nose", "lmouth", "rmouth")
    faces = []
    for row in rows:
        picture = np.array(Image.open(shared / "photofaces" / "aligned256" / row["file"]).convert("RGB"))
        faces.append((picture, np.array([[float(row[f"{name}_{axis}"]) for axis in "xy"] for name in names])))
    return faces


def overlap(one, other):
    low = np.maximum(one[:2], other[:2])
    high = np.minimum(one[2:], other[2:])
    common = np.clip(high - low, 0, None).prod()
    return common / ((one[2:] - one[:2]).prod() + (other[2:] - other[:2]).prod() - common)


def assert_same_faces(some, others):
    """The same number of faces, each with its box and points."""
    assert len(some) == len(others) > 0
    for face in some:
        twin = max(others, key=lambda other: overlap(np.array(face.box), np.array(other.box)))
        np.testing.assert_allclose(face.box, twin.box, atol=0.02)
        np.testing.assert_allclose(face.points, twin.points, atol=0.02)


def test_one_view_is_what_opencv_sees(detector, group):
    file = REPO / "checkpoints/photo_seers/yunet.onnx"
    height, width = group.shape[:2]
    opencv = cv2.FaceDetectorYN.create(str(file), "", (width, height), 0.6, 0.3, 5000)
    wanted = opencv.detect(np.ascontiguousarray(group[..., ::-1]))[1]
    found = detector.view(group, 1.0, 0.6)
    assert len(found) == len(wanted) > 10
    wanted = wanted[np.argsort(-wanted[:, 14])]
    found = found[np.argsort(-found[:, 4])]
    np.testing.assert_allclose(found[:, 4], wanted[:, 14], atol=1e-4)
    np.testing.assert_allclose(found[:, :2], wanted[:, :2], atol=0.02)
    np.testing.assert_allclose(found[:, 2:4] - found[:, :2], wanted[:, 2:4], atol=0.02)
    np.testing.assert_allclose(found[:, 5:], wanted[:, 4:14], atol=0.02)


def test_all_of_a_group_are_found_the_largest_first(detector, group):
    found = detector.detect(group)
    assert len(found) == 2 * CROWD
    sizes = [face.size for face in found]
    assert sizes == sorted(sizes, reverse=True)
    for face in found:
        x1, y1, x2, y2 = face.box
        assert (face.points > [x1, y1]).all()
        assert (face.points < [x2, y2]).all()
        left_eye, right_eye, _, left_mouth, right_mouth = face.points
        assert left_eye[0] < right_eye[0]
        assert left_mouth[0] < right_mouth[0]
        assert left_eye[1] < left_mouth[1]


@pytest.mark.parametrize("side", [20, 40, 120, 500, 1000])
def test_photographs_are_found_at_any_size(detector, photofaces, side):
    missed = 0
    for face, points in photofaces[::3]:
        picture = Image.fromarray(face).resize((side, side), Image.Resampling.LANCZOS)
        margin = 30 if side < 500 else 0
        photo = np.pad(np.array(picture), ((margin, margin), (margin, margin), (0, 0)), mode="edge")
        found = detector.detect(photo)
        near = [np.linalg.norm(one.points - margin - points * side / 256, axis=1).mean() < 0.1 * side for one in found]
        missed += not any(near)
    # A picture of 20 px shows a face of about 12, the smallest that is looked for.
    assert missed <= (2 if side == 20 else 0)


def test_points_are_those_of_the_set(detector, photofaces):
    away = []
    for face, points in photofaces:
        found = detector.detect(np.pad(face, ((64, 64), (64, 64), (0, 0)), mode="edge"))
        if found:
            eyes = np.linalg.norm(points[1] - points[0])
            away.append(np.linalg.norm(found[0].points - 64 - points, axis=1).mean() / eyes)
    assert len(away) >= len(photofaces) - 1
    assert np.median(away) < 0.08


def test_a_moved_face_is_found_as_far_away(detector, photofaces):
    photo = np.full((400, 500, 3), 128, np.uint8)
    moved = photo.copy()
    photo[32:288, 32:288] = photofaces[0][0]
    moved[64:320, 96:352] = photofaces[0][0]
    before = detector.detect(photo)[0]
    after = detector.detect(moved)[0]
    np.testing.assert_allclose(after.points - before.points, np.tile([64, 32], (5, 1)), atol=2)


def test_the_smallest_face_is_honoured(group):
    large = YunetDetector(YunetConfig(min_face=100), threads=1).detect(group)
    every = YunetDetector(YunetConfig(min_face=12), threads=1).detect(group)
    assert {face.size >= 100 * 0.75 for face in large} == {True}
    assert len(large) >= sum(face.size >= 80 for face in every)
    assert 0 < len(large) < len(every)


@pytest.mark.parametrize("size", [(1, 1), (3, 700), (33, 31), (5000, 20)])
def test_odd_pictures_show_nobody(detector, size):
    assert detector.detect(np.full((*size, 3), 200, np.uint8)) == []


def test_noise_shows_nobody(detector):
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    assert detector.detect(noise) == []


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_pictures_without_faces_show_nobody(detector, shared, turn):
    paths = sorted((shared / "testbed/negatives").glob("*.jpg"))
    wrong = 0
    for path in paths:
        wrong += bool(detector.detect(turned(np.array(Image.open(path).convert("RGB")), turn)))
    assert len(paths) > 30
    assert wrong <= 1


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_photo_that_lies_is_not_searched_upside_down(group, monkeypatch, turn):
    detector = YunetDetector(threads=1)
    seen = detector._seen
    searched = []

    def noted(image, views, turn, only=None):
        if only is None:
            searched.append(turn)
        return seen(image, views, turn, only)

    monkeypatch.setattr(detector, "_seen", noted)
    faces = detector.detect(turned(group, turn))
    assert len(faces) == 24
    assert searched == [0, 4 - turn]


def test_what_looks_like_a_face_upside_down_is_none_however_the_photo_lies(detector, shared):
    # A shirt with a hand below it, which an enlarged view takes for a face that stands on its head.
    photo = np.array(Image.open(shared / "testbed/wild/group_17.jpg").convert("RGB"))
    assert [len(detector.detect(turned(photo, turn))) for turn in range(4)] == [2, 2, 2, 2]


def test_threads_may_share_a_detector(detector, group):
    alone = detector.detect(group)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(detector.detect, [group, group[:, ::-1], group, group[:300]]))
    assert_same_faces(together[0], alone)
    assert_same_faces(together[2], alone)


@pytest.mark.parametrize("options", [{"min_face": 3}, {"min_face": float("nan")}])
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(UserError, match="px"):
        YunetConfig(**options)


def test_a_missing_network_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"yunet\.onnx.*install faceanon again"):
        YunetDetector(folder=tmp_path)
