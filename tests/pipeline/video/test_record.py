import base64
import json
import zlib

import numpy as np
import pytest

from faceanon.errors import UserError
from faceanon.key import KdfParameters
from faceanon.manifest import Manifest
from faceanon.pipeline.video.record import VideoRecord, fits_inside, read_record
from faceanon.pipeline.video.tracks import Segment

SHARED = Manifest("m.M", "mine", "ab" * 32, 64, 128, 96, (), b"s" * 16, KdfParameters(), encoding="H.264 crf 10")


def walk(track, start, n, seed=0):
    """A smooth path, as tracks give it."""
    steps = np.random.default_rng(seed).normal(0, 3, (n, 4)).cumsum(0)
    return Segment(track, start, np.add(steps, [900, 800, 512, 0]).round().astype(np.int32))


RECORD = VideoRecord(SHARED, 2000, (walk(0, 0, 1500), walk(1, 20, 700, 1), walk(0, 1600, 400, 2)))


def test_round_trip_in_few_bytes():
    text = RECORD.to_json()
    back = VideoRecord.from_json(text)
    assert back.shared.salt == SHARED.salt
    assert back.shared.encoding == "H.264 crf 10"
    for one, other in zip(RECORD.segments, back.segments, strict=True):
        assert (one.track, one.start) == (other.track, other.start)
        np.testing.assert_array_equal(one.places, other.places)
    assert len(text) / 2600 < 6  # bytes a face and frame; random walks are harder than real faces
    assert [track for track, _ in back.at(30)] == [0, 1]
    assert back.at(30)[1][1] == RECORD.segments[1].at(30)
    assert back.at(1550) == []


def damaged():
    values = json.loads(RECORD.to_json())
    small = base64.b64encode(zlib.compress(bytes(100))).decode()
    bomb = base64.b64encode(zlib.compress(bytes(10_000_000))).decode()
    zeros = base64.b64encode(zlib.compress(bytes(16 * 2600))).decode()
    for change in (
        {"version": 3},
        {"version": 5},
        {"frames": 0},
        {"frames": 1999},
        {"frames": "many"},
        {"frames": 1e300},
        {"segments": []},
        {"segments": [[0, 0, 10**12]], "frames": 10**13},
        {"segments": [[0, -1, 2600]]},
        {"places": small},
        {"places": bomb},
        {"places": zeros},
        {"places": "!" + values["places"]},
        {"places": values["places"][:-9]},
        {"shared": {}},
        {"shared": values["shared"] | {"weights": "x"}},
    ):
        yield json.dumps(values | change)
    yield "[]"
    yield RECORD.to_json()[:-20]


@pytest.mark.parametrize("text", list(damaged()))
def test_damage_is_one_line(text):
    with pytest.raises(UserError) as caught:
        VideoRecord.from_json(text)
    assert "\n" not in str(caught.value)


def test_sidecar_stands_in(tmp_path):
    video = tmp_path / "a.mp4"
    with pytest.raises(UserError, match=r"a\.mp4 carries no faceanon data.*a\.mp4\.faceanon\.json"):
        read_record(video, "a holiday")
    (tmp_path / "a.mp4.faceanon.json").write_text(RECORD.to_json())
    assert read_record(video, "a holiday").frames == 2000
    (tmp_path / "a.mp4.faceanon.json").write_text("{")
    with pytest.raises(UserError, match=r"a\.mp4: .*damaged"):
        read_record(video, None)


def test_quicktime_holds_less(tmp_path):
    assert fits_inside(tmp_path / "a.mp4", "x" * 70_000)
    assert not fits_inside(tmp_path / "a.mov", "x" * 70_000)
    assert not fits_inside(tmp_path / "a.mp4", "x" * 1_000_001)
