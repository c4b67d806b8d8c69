"""Recovery data of videos from outside: the right codes, or one line; and nothing of another's disk is touched."""

import json
from io import BytesIO

import numpy as np
import pytest
from hostile import altered, asked, fuzz, mutated
from hypothesis import given

from faceanon.key import KdfParameters, Secret
from faceanon.manifest import Manifest
from faceanon.photo.metadata import sidecar_of
from faceanon.pipeline.video.codes import CodeWriter, stored_codes
from faceanon.pipeline.video.record import VideoRecord, read_record
from faceanon.pipeline.video.tracks import Segment
from faceanon.sealed.envelope import SIZES

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
SECRET = Secret.random(0)
PLACES = np.array([[800, 700, 512, 0], [804, 700, 510, 6]], dtype=np.int32)
SHARED = Manifest("a.B", "m", "ab" * 32, 64, 128, 96, (), bytes(16), CHEAP)
RECORD = VideoRecord(SHARED, 3, (Segment(0, 0, PLACES), Segment(1, 1, PLACES)))
CODES = {(0, 0): b"one", (1, 0): b"two", (1, 1): b"three", (2, 1): b"four"}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory):
    """A video, whose frames nobody looks at, and its sidecar."""
    video = tmp_path_factory.mktemp("video") / "a.mp4"
    codes = CodeWriter(BytesIO(), sidecar_of(video), RECORD, SECRET)
    for (frame, track), code in CODES.items():
        codes.add(frame, track, code)
    codes.save()
    return video, sidecar_of(video)


def read(video):
    record = read_record(video, None)
    with stored_codes(video, record, SECRET) as codes:
        codes.check()
        return dict(codes)


@pytest.fixture(scope="module")
def seed(sidecar):
    """The sidecar as it was written."""
    return sidecar[1].read_bytes()


def tried(sidecar, data):
    """What opens is what was sealed, whatever else the file says."""
    video, file = sidecar
    file.write_bytes(data)
    found = asked(lambda: read(video))
    assert found is None or found == CODES
    assert {path.name for path in video.parent.iterdir()} == {file.name}
    return found


def test_the_unaltered_sidecar_is_read(sidecar, seed):
    assert tried(sidecar, seed) == CODES


def test_mutated_sidecars(sidecar, seed):
    line, _, body = seed.partition(b"\n")

    @fuzz(150)
    @given(mutated([seed, line, line + b"\n" + body[: -SIZES[0]], body]))
    def each(data):
        tried(sidecar, data)

    each()


def test_altered_records_before_codes(sidecar, seed):
    line, _, body = seed.partition(b"\n")
    values = json.loads(line)

    @fuzz(150)
    @given(altered(values, (*values, "weights", "width", 0, 1, 2)))
    def each(other):
        tried(sidecar, json.dumps(other).encode() + b"\n" + body)

    each()


@pytest.mark.parametrize("version", [3, 4])
def test_a_track_beyond_any_float(sidecar, seed, version):
    line, _, body = seed.partition(b"\n")
    values = json.loads(line) | {"version": version}
    for number in (10**400, 1e999, 2**31, -1):
        other = values | {"segments": [[number, 0, 2], [1, 1, 2]]}
        assert tried(sidecar, json.dumps(other).encode() + b"\n" + body) is None
