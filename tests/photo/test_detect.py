import json

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.data.files import read_photos
from faceanon.data.prepared import shipped_photos
from faceanon.errors import UserError
from faceanon.photo.align import geometry_from_points
from faceanon.photo.mtcnn import MtcnnConfig, MtcnnDetector


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Hundreds of tiny calls: on a busy machine a second thread makes them slower by far."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def detector():
    return MtcnnDetector()


@pytest.fixture(scope="module")
def faces():
    """Photographs that ship `(8, 128, 128, 3)`, aligned as FFHQ."""
    return read_photos([photo.path for photo in shipped_photos("test")[:8]], 128)


def test_finds_faces_where_they_are(detector, faces):
    hits = 0
    for face in faces:
        photo = np.full((300, 400, 3), 128, dtype=np.uint8)
        photo[100:228, 200:328] = face
        found = detector.detect(photo)
        hits += bool(found)
        if found:
            geometry = geometry_from_points(found[0].points)
            assert np.hypot(geometry.center_x - 264, geometry.center_y - 164) < 30
            assert 90 < geometry.side < 190
            assert found[0].points[0, 0] < found[0].points[1, 0]  # the eye at the photo's left comes first
    assert hits >= 6


def test_largest_face_comes_first(detector, faces):
    good = next(face for face in faces if detector.detect(face))
    photo = np.full((300, 400, 3), 128, dtype=np.uint8)
    photo[:64, :64] = good[::2, ::2]
    photo[100:228, 200:328] = good
    found = detector.detect(photo)
    assert len(found) == 2
    assert found[0].size > 1.5 * found[1].size
    assert found[0].box[0] > 200


@pytest.mark.parametrize("shape", [(5, 400, 3), (1, 1, 3), (11, 11, 3), (200, 300, 3)])
def test_no_face_no_detection(detector, shape):
    assert detector.detect(np.full(shape, 90, dtype=np.uint8)) == []


def test_large_photos_are_searched_at_a_bounded_size(faces):
    bounded = MtcnnDetector(MtcnnConfig(max_side=200))
    seen = []
    bounded.pnet.register_forward_pre_hook(lambda net, inputs: seen.append(max(inputs[0].shape)))
    photo = np.repeat(np.repeat(faces[0], 5, 0), 5, 1)
    found = bounded.detect(photo)
    assert max(seen) <= 200
    assert all(face.size > 200 for face in found)


def test_absurd_min_face_is_refused():
    for value in (11, 0, -3, float("nan")):
        with pytest.raises(UserError, match="smallest face"):
            MtcnnConfig(min_face=value)


def test_agrees_with_yunet_on_real_photographs(shared):
    """Two photographs with ten sure faces or so; numbers only."""
    detector = MtcnnDetector(MtcnnConfig(min_face=30))
    entries = {entry["file"]: entry for entry in json.loads((shared / "testbed/wild.json").read_text())}
    hits = total = 0
    for name in ("group_03.jpg", "single_01.jpg"):
        photo = np.asarray(Image.open(shared / "testbed/wild" / name).convert("RGB"))
        found = detector.detect(photo)
        for face in entries[name]["yunet"]:
            if face["score"] < 0.8:
                continue
            total += 1
            points = np.array(face["points"]) + 0.5
            unit = np.hypot(*(points[1] - points[0]))
            hits += any(np.abs(other.points - points).mean() < 0.15 * unit for other in found)
    assert total >= 8
    assert hits >= 0.85 * total


def test_no_face_in_negatives(detector, shared):
    paths = sorted((shared / "testbed/negatives").iterdir())[:4]
    assert [path.name for path in paths if detector.detect(np.asarray(Image.open(path).convert("RGB")))] == []
