"""The detector on photos as cameras make them: portraits, many megapixels, panoramas, pictures and people that lie."""

import resource
import subprocess
import sys

import numpy as np
import pytest
from made_photos import grid, people, placed, portrait

from faceanon.key import Secret
from faceanon.paths import checkpoints
from faceanon.persona.light import LightPersona
from faceanon.photo.align import geometry_from_points
from faceanon.photo.views import TILE
from faceanon.photo.yunet import YunetDetector
from faceanon.pipeline.photo import Pipeline

GROUP = {"width": 700, "height": 500, "face": 24, "middles": grid(6, 4, 100, 80)}


@pytest.fixture(scope="module")
def detector():
    return YunetDetector(threads=1)


def near(found, middles, face):
    """Of how many middles a face was found, and how many faces lie elsewhere."""
    hit = set()
    elsewhere = 0
    for one in found:
        x = (one.box[0] + one.box[2]) / 2
        y = (one.box[1] + one.box[3]) / 2
        distances = [np.hypot(x - u, y - v) for u, v in middles]
        closest = int(np.argmin(distances))
        if distances[closest] < 0.6 * face:
            hit.add(closest)
        else:
            elsewhere += 1
    return len(hit), elsewhere


@pytest.mark.parametrize(
    "side", [500, 1000, pytest.param(2000, marks=pytest.mark.slow), pytest.param(4000, marks=pytest.mark.slow)]
)
def test_a_portrait_shows_one_person(detector, side):
    count = 6 if side < 2000 else 24
    wrong = 0
    for picture in people(count):
        wrong += len(detector.detect(portrait(picture, side))) != 1
    # Of the larger ones, enlarged 25 times, some have a face of hair beside their own.
    assert wrong <= count // 8


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
def test_a_photo_that_lies_shows_as_many_as_upright(detector, turn):
    photo = np.ascontiguousarray(np.rot90(placed(**GROUP), turn))
    found = detector.detect(photo)
    assert 23 <= len(found) <= 24
    # Against the clock: the faces' right points upwards after one quarter.
    wanted = [(1, 0), (0, -1), (-1, 0), (0, 1)][turn]
    for face in found:
        square = geometry_from_points(face.points)
        assert np.dot(wanted, (square.axis_x, square.axis_y)) > 0.8 * np.hypot(square.axis_x, square.axis_y)


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_somebody_who_lies_among_others_who_stand_is_found(detector, turn):
    photo = placed(600, 260, 60, [(100, 130), (230, 130)])
    lying = placed(200, 260, 60, [(100, 130)], turn=turn, start=5)
    photo[:, 380:580] = lying
    found = detector.detect(photo)
    assert near(found, [(100, 130), (230, 130), (480, 130)], 60) == (3, 0)


def test_faces_on_the_borders_of_tiles_are_found_once(detector):
    # Every 40 px around the border, in rows of different shifts.
    middles = [(TILE - 330 + 110 * column + 37 * row, 60 + 110 * row) for row in range(3) for column in range(6)]
    found = detector.detect(placed(2 * TILE, 400, 40, middles))
    assert near(found, middles, 40) == (18, 0)
    assert len(found) == 18


@pytest.mark.parametrize(
    ("width", "height", "face"),
    [
        pytest.param(6000, 4000, 29, marks=pytest.mark.slow),
        pytest.param(8000, 6000, 29, marks=pytest.mark.slow),
        pytest.param(16000, 1000, 58, marks=pytest.mark.slow),
    ],
)
def test_small_faces_in_large_photos_are_found(detector, width, height, face):
    random = np.random.default_rng(width)
    columns = np.linspace(200, width - 200, 13).astype(int)
    middles = [(int(x), int(random.integers(200, height - 200))) for x in columns]
    found = detector.detect(placed(width, height, face, middles))
    assert near(found, middles, face) == (13, 0)


def test_a_lying_person_is_replaced_and_comes_back():
    pipeline = Pipeline(LightPersona(checkpoints() / "persona_photo128"))
    pipeline.detector = YunetDetector(threads=1)
    upright = placed(300, 300, 110, [(150, 150)])
    photo = np.ascontiguousarray(np.rot90(upright, 1))
    secret = Secret.random(0)
    hidden, manifest = pipeline.anonymize_with_manifest(photo, secret)
    assert manifest.faces == 1
    assert not manifest.hidden
    back = pipeline.recover(hidden, secret, manifest=manifest)
    changed = np.abs(hidden.astype(int) - photo).mean()
    left = np.abs(back.astype(int) - photo).mean()
    assert changed > 1.0
    assert left < 0.4 * changed


MEMORY = """
import resource, sys
import numpy as np
from made_photos import placed
from faceanon.photo.yunet import YunetDetector
photo = placed(8000, 6000, 400, [(3000, 3000)])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert len(YunetDetector(threads=1).detect(photo)) == 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are counted in KiB on Linux alone")
def test_searching_48_megapixels_takes_little_memory(request):
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY], cwd=request.path.parent, capture_output=True, text=True, check=True
    )
    # Half a gigabyte beside the photo, whose pixels alone take 144 MB.
    assert int(ran.stdout) < 500_000
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
