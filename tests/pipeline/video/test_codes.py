"""Sealed codes of a clip's faces in a file: written one by one, found again, refused where somebody changed them."""

import errno
import json
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
import pytest

from faceanon.errors import NoRoomError, UserError
from faceanon.key import KdfParameters, Secret
from faceanon.manifest import Manifest
from faceanon.photo.metadata import sidecar_of
from faceanon.pipeline.video.codes import CodeWriter, new_codes, stored_codes
from faceanon.pipeline.video.record import VideoRecord, read_record
from faceanon.pipeline.video.tracks import Segment
from faceanon.sealed.envelope import SIZES, WrongPasswordError

SHARED = Manifest("m.M", "mine", "ab" * 32, 64, 128, 96, (), b"s" * 16, KdfParameters())
RIGHT = Secret.random(0)
WRONG = Secret.random(1)


def part(track, start, count):
    steps = np.arange(4 * count).reshape(count, 4)
    return Segment(track, start, np.add(steps, [800, 700, 512, 0]).astype(np.int32))


# Two tracks together from frame 2 on; the first comes back after a gap.
RECORD = VideoRecord(SHARED, 12, (part(3, 0, 5), part(3, 8, 4), part(1, 2, 8)))
ORDER = [(0, 3), (1, 3), (2, 1), (2, 3), (3, 1), (3, 3), (4, 1), (4, 3), (5, 1), (6, 1), (7, 1), (8, 1), (8, 3)]
ORDER += [(9, 1), (9, 3), (10, 3), (11, 3)]


def code_of(frame, track):
    # Of several sizes.
    return f"{frame} of {track} ".encode() * (10 + 7 * frame)


@pytest.fixture
def video(tmp_path):
    """A video whose codes lie beside it; nobody looks at its frames."""
    target = tmp_path / "a.mp4"
    with new_codes(target, RECORD, RIGHT) as codes:
        for frame, track in ORDER:
            codes.add(frame, track, code_of(frame, track))
        codes.save()
    return target


def opened(video, secret=RIGHT):
    """All codes of a video, as recovery reads them."""
    with stored_codes(video, read_record(video, None), secret) as codes:
        codes.check()
        return dict(codes)


def parts_of(video):
    """The record of a sidecar and what follows it."""
    line, _, body = sidecar_of(video).read_bytes().partition(b"\n")
    return json.loads(line), body


def rewrite(video, values, body):
    sidecar_of(video).write_bytes(json.dumps(values, separators=(",", ":")).encode() + b"\n" + body)


def test_all_codes_come_back_by_frame_and_track(video, tmp_path):
    found = opened(video)
    assert list(found) == ORDER
    assert found == {place: code_of(*place) for place in ORDER}
    values, body = parts_of(video)
    assert (values["version"], values["sealed_codes"], values["sealed_bytes"]) == (4, len(ORDER), len(body))
    assert "codes" not in values
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4.faceanon.json"]


def test_a_code_is_found_by_many_threads_at_once(video):
    with stored_codes(video, read_record(video, None), RIGHT) as codes, ThreadPoolExecutor(8) as pool:
        places = ORDER * 50
        for place, code in zip(places, pool.map(codes.__getitem__, places), strict=True):
            assert code == code_of(*place)
        for nowhere in ((5, 3), (0, 1), (12, 3), (0, 4)):
            assert nowhere not in codes
        file = codes._file
        assert not file.closed
    assert file.closed


def test_codes_are_read_while_they_are_being_written(tmp_path):
    """As the probe does, before the sidecar is there."""
    with new_codes(tmp_path / "a.mp4", RECORD, RIGHT) as codes:
        for frame, track in ORDER:
            codes.add(frame, track, code_of(frame, track))
        stored = codes.stored("a.mp4")
        assert stored[8, 3] == code_of(8, 3)
        assert stored[0, 3] == code_of(0, 3)
        codes.save()
    assert opened(tmp_path / "a.mp4")[8, 3] == code_of(8, 3)


def test_a_record_without_codes_says_what_is_missing(tmp_path):
    video = tmp_path / "a.mp4"
    sidecar_of(video).write_text(RECORD.to_json())
    with pytest.raises(UserError, match="carries no sealed codes"):
        opened(video)
    sidecar_of(video).write_text(RECORD.to_json() + "\nmore")
    with pytest.raises(UserError, match="damaged"):
        read_record(video, None)


def test_a_wrong_password_opens_none(video):
    with pytest.raises(WrongPasswordError, match=r"a\.mp4: wrong password"):
        opened(video, WRONG)
    values, body = parts_of(video)
    # The last one of all, and two that changed places: each is noticed before a face is drawn.
    spoilt = bytearray(body)
    spoilt[-1] ^= 1
    swapped = body[257:514] + body[:257] + body[514:]
    assert body[0] == body[257] == 0
    for other in (bytes(spoilt), swapped):
        rewrite(video, values, other)
        with pytest.raises(WrongPasswordError, match="tampered"):
            opened(video)


def test_a_code_of_another_version_says_so_under_any_password(video):
    values, body = parts_of(video)
    rewrite(video, values, body[:1] + b"\x02" + body[2:])
    for secret in (RIGHT, WRONG):
        with pytest.raises(UserError, match="version that this faceanon does not read"):
            opened(video, secret)


@pytest.mark.parametrize("cut", [1, 256, 3000])
def test_a_sidecar_that_is_cut_short_is_noticed_first(video, cut):
    values, body = parts_of(video)
    rewrite(video, values, body[:-cut])
    with pytest.raises(UserError, match=rf"cut short, {len(body) - cut} of {len(body)} bytes"):
        read_record(video, None)
    # Where not even the record is whole.
    sidecar = sidecar_of(video)
    sidecar.write_bytes(sidecar.read_bytes()[: 100 + cut // 30])
    with pytest.raises(UserError, match=r"a\.mp4: .*damaged"):
        read_record(video, None)


def forged(values, body):
    """Changes of record and codes, none of which may be believed."""
    count = values["sealed_codes"]
    size = values["sealed_bytes"]
    for number in (count - 1, count + 1, 0, -1, 10**12, 10**400, True, 1.5, None, "17", [17]):
        yield {"sealed_codes": number}, body
    for number in (size - 1, size + 1, 0, -1, 10**12, 10**400, True, float("inf"), None, "17", [17]):
        yield {"sealed_bytes": number}, body
    yield {"segments": [[0, 0, 10**7]], "frames": 10**7, "sealed_codes": 10**7}, body
    yield {"segments": [[0, 0, 10**7]], "frames": 10**7, "sealed_codes": 10**7, "sealed_bytes": 10**10}, body
    # One track twice in a frame, and one beyond any number.
    first, second, third = values["segments"]
    yield {"segments": [first, [3, 2, 4], third]}, body
    yield {"segments": [first, second, [2**31, 2, 8]]}, body
    yield {"segments": [first, second, [1, float("inf"), 8]]}, body
    yield {"version": 2}, body
    yield {"version": 3}, body
    yield {"sizes": "", "codes": "", "version": 2}, body
    yield {}, body + b"x"
    yield {}, b""
    # Sizes: unknown, too large, of the same length together but for one.
    yield {}, b"\xff" + body[1:]
    yield {}, bytes([len(SIZES)]) + body[1:]
    yield {}, b"\x11" + body[1:]
    yield {}, body[:257] + b"\x01" + body[258:]
    yield {"sealed_bytes": size + 1}, body + b"\0"


def test_forged_records_and_codes_are_one_line_and_cost_no_memory(video):
    values, body = parts_of(video)
    changes = list(forged(values, body))
    for change, other in changes:
        rewrite(video, values | change, other)
        tracemalloc.start()
        try:
            with pytest.raises(UserError) as caught:
                opened(video)
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert not isinstance(caught.value, WrongPasswordError), change
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400
        assert peak < 1_000_000, change
    rewrite(video, values, body)
    assert len(opened(video)) == len(ORDER)


def test_a_comment_cannot_have_codes_behind_it(video):
    line = sidecar_of(video).read_bytes().partition(b"\n")[0].decode()
    with pytest.raises(UserError, match="cut short, 0 of"):
        read_record(video, line)


def test_codes_out_of_turn_are_a_mistake(tmp_path):
    codes = CodeWriter(BytesIO(), tmp_path / "x", RECORD, RIGHT)
    codes.add(0, 3, b"a")
    for frame, track in ((0, 3), (2, 3), (1, 1)):
        with pytest.raises(ValueError, match="out of turn"):
            codes.add(frame, track, b"b")
    with pytest.raises(ValueError, match="1 of 17 faces"):
        codes.save()
    assert list(tmp_path.iterdir()) == []


class FullDisk(BytesIO):
    """A file on a disk that has room for a byte."""

    def write(self, data):
        if len(data) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: FullDisk())
    with (
        pytest.raises(NoRoomError, match=r"cannot write .*a\.mp4\.faceanon\.json: no space left"),
        new_codes(tmp_path / "a.mp4", RECORD, RIGHT) as codes,
    ):
        codes.add(0, 3, b"a")
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_codes(tmp_path):
    video = tmp_path / "a.mp4"
    frames = 2500
    places = np.tile(np.array([800, 700, 512, 0], dtype=np.int32), (frames, 1))
    record = VideoRecord(SHARED, frames, (Segment(0, 0, places), Segment(1, 0, places + 16)))
    code = bytes(range(250)) * 4
    peaks = {}

    def measured(name):
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()

    tracemalloc.start()
    try:
        with new_codes(video, record, RIGHT) as codes:
            for frame in range(frames):
                for track in (0, 1):
                    codes.add(frame, track, code)
            measured("written")
            assert codes.stored("a.mp4")[frames // 2, 1] == code
            measured("looked at")
            codes.save()
        measured("saved")
        with stored_codes(video, read_record(video, None), RIGHT) as stored:
            measured("found")
            stored.check()
            measured("checked")
            for frame in range(0, frames, 3):
                assert stored[frame, frame % 2] == code
            measured("drawn")
    finally:
        tracemalloc.stop()
    total = sidecar_of(video).stat().st_size
    assert total > 6_000_000
    assert max(peaks.values()) < total / 5, peaks


def test_what_is_kept_of_a_face_are_twenty_bytes(tmp_path):
    places = np.tile(np.array([800, 700, 512, 0], dtype=np.int32), (100_000, 1))
    record = VideoRecord(SHARED, 100_000, (Segment(0, 0, places),))
    tracemalloc.start()
    try:
        codes = CodeWriter(BytesIO(), tmp_path / "x", record, RIGHT)
        kept, _ = tracemalloc.get_traced_memory()
        assert len(codes.stored("x")) == 100_000
    finally:
        tracemalloc.stop()
    assert kept < 20.2 * 100_000
