"""Clips whose faces come back from sealed codes, one for each face of each frame, beside the clip."""

import json

import numpy as np
import pytest
from video_clips import FilmDetector, face_at, film, write_clip

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.pipeline import Pipeline
from faceanon.pipeline.video.anonymize import VideoOptions, anonymize_video
from faceanon.pipeline.video.frames import read_frames
from faceanon.pipeline.video.record import VideoRecord, sidecar_of
from faceanon.pipeline.video.recover import recover_video
from faceanon.pipeline.video.writer import Quality
from fakes import SealedPatch

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
SHOTS, WHERE = film(frames=6)
EXACT = Quality(lossless=True)


def stack(path):
    return np.array([frame.pixels for frame in read_frames(path)]).astype(float)


def psnr(one, other):
    return 10 * np.log10(255**2 / max(np.square(one - other).mean(), 1e-9))


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clip") / "in.mp4", SHOTS, times=[25 * i for i in range(6)])


@pytest.fixture(scope="module")
def pipe(sealed_bundle):
    detector = FilmDetector([[face_at(x, y, 16)] for x, y in WHERE])
    return Pipeline(SealedPatch(str(sealed_bundle)), detector)


@pytest.fixture(scope="module")
def hidden(clip, pipe, tmp_path_factory):
    """The anonymized clip, and what its run says."""
    target = tmp_path_factory.mktemp("hidden") / "hidden.mp4"
    return target, anonymize_video(pipe, clip, target, Password("right", kdf=CHEAP), VideoOptions(quality=EXACT))


def test_every_face_of_every_frame_comes_back(clip, pipe, hidden, tmp_path):
    target, outcome = hidden
    assert outcome.sidecar == sidecar_of(target)
    assert outcome.recovery[1] > 25
    record = VideoRecord.from_json(sidecar_of(target).read_text())
    assert len(record.codes) == len(record.faces) == 6
    recover_video(pipe, target, tmp_path / "back.mp4", Password("right"), EXACT)
    original, drawn, found = stack(clip), stack(target), stack(tmp_path / "back.mp4")
    changed = np.abs(original - drawn).max(-1) > 8
    assert psnr(original[changed], drawn[changed]) < 16
    assert psnr(original[changed], found[changed]) > 22


def test_a_wrong_password_writes_nothing_or_draws_others(pipe, hidden, tmp_path):
    target, _ = hidden
    with pytest.raises(UserError, match=r"hidden\.mp4: wrong password"):
        recover_video(pipe, target, tmp_path / "wrong.mp4", Password("wrong"), EXACT)
    assert list(tmp_path.iterdir()) == []
    done = recover_video(pipe, target, tmp_path / "other.mp4", Password("wrong"), EXACT, deniable=True)
    right = recover_video(pipe, target, tmp_path / "right.mp4", Password("right"), EXACT, deniable=True)
    assert done == right
    drawn, other = stack(target), stack(tmp_path / "other.mp4")
    changed = np.abs(drawn - other).max(-1) > 8
    assert changed.mean() > 0.02


def test_swapped_frames_and_damaged_codes_are_noticed(pipe, hidden, tmp_path):
    target, _ = hidden
    record = VideoRecord.from_json(sidecar_of(target).read_text())
    values = json.loads(record.to_json())
    swapped = VideoRecord(record.shared, record.frames, record.segments, record.codes[::-1])
    with pytest.raises(UserError, match="tampered"):
        swapped.opened_codes(Password("right").secret(record.shared.salt, record.shared.kdf), "x.mp4")
    bad = ({"codes": values["codes"][:-8]}, {"codes": "!"}, {"sizes": "/w=="}, {"sizes": "", "codes": ""})
    for change in bad[:3]:
        with pytest.raises(UserError, match="damaged"):
            VideoRecord.from_json(json.dumps(values | change))
    without = VideoRecord.from_json(json.dumps(values | bad[3]))
    with pytest.raises(UserError, match="carries no sealed codes"):
        without.opened_codes(Password("right").secret(record.shared.salt, record.shared.kdf), "x.mp4")


def test_records_of_before_there_were_codes_are_read(hidden):
    values = json.loads(sidecar_of(hidden[0]).read_text())
    del values["codes"]
    del values["sizes"]
    assert VideoRecord.from_json(json.dumps(values | {"version": 1})).codes == ()
