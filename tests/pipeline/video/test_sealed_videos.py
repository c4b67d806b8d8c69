"""Clips whose faces come back from sealed codes, one for each face of each frame, beside the clip."""

import json
import shutil

import numpy as np
import pytest
from video_clips import FilmDetector, face_at, film, write_clip

from faceanon import cli
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.pipeline import Pipeline
from faceanon.pipeline.rekey import rekey_film
from faceanon.pipeline.video.anonymize import VideoOptions, anonymize_video
from faceanon.pipeline.video.frames import read_frames
from faceanon.pipeline.video.record import read_record, sidecar_of
from faceanon.pipeline.video.recover import recover_video
from faceanon.pipeline.video.writer import Quality
from faceanon.sealed.openers import Openers
from faceanon.sealed.recipients import Identity
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
    assert {path.name for path in target.parent.iterdir()} == {"hidden.mp4", "hidden.mp4.faceanon.json"}
    record = read_record(target, None)
    assert record.body.codes == len(record.segments[0].places) == 6
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


def copied(hidden, folder):
    """The anonymized clip and its sidecar, to be changed."""
    target = folder / "copy.mp4"
    shutil.copy(hidden[0], target)
    shutil.copy(sidecar_of(hidden[0]), sidecar_of(target))
    return target


@pytest.mark.parametrize("deniable", [False, True])
def test_a_sidecar_that_somebody_cut_writes_nothing(pipe, hidden, tmp_path, deniable):
    target = copied(hidden, tmp_path)
    data = sidecar_of(target).read_bytes()
    for text, message in (
        (data[:-1], r"copy\.mp4: the video's faceanon data are cut short"),
        (data + b"x", r"copy\.mp4: the video's faceanon data are damaged"),
        (data[:200], r"copy\.mp4: the video's faceanon data are damaged"),
    ):
        sidecar_of(target).write_bytes(text)
        with pytest.raises(UserError, match=message) as caught:
            recover_video(pipe, target, tmp_path / "back.mp4", Password("right"), EXACT, deniable=deniable)
        assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"copy.mp4", "copy.mp4.faceanon.json"}


def test_a_single_damaged_code_writes_nothing(pipe, hidden, tmp_path):
    target = copied(hidden, tmp_path)
    data = bytearray(sidecar_of(target).read_bytes())
    # Of the last face of all, so that every other one opens.
    data[-1] ^= 1
    sidecar_of(target).write_bytes(data)
    with pytest.raises(UserError, match="tampered"):
        recover_video(pipe, target, tmp_path / "back.mp4", Password("right"), EXACT)
    assert not (tmp_path / "back.mp4").exists()
    recover_video(pipe, target, tmp_path / "other.mp4", Password("right"), EXACT, deniable=True)
    assert (tmp_path / "other.mp4").exists()


def test_a_record_that_lost_its_codes_says_so(pipe, hidden, tmp_path):
    target = copied(hidden, tmp_path)
    values = json.loads(sidecar_of(target).read_bytes().partition(b"\n")[0])
    del values["sealed_codes"]
    del values["sealed_bytes"]
    sidecar_of(target).write_text(json.dumps(values))
    assert read_record(target, None).body is None
    with pytest.raises(UserError, match="carries no sealed codes"):
        recover_video(pipe, target, tmp_path / "back.mp4", Password("right"), EXACT)


def test_an_anonymized_video_is_refused_with_the_way_out(pipe, hidden, tmp_path):
    with pytest.raises(UserError, match=r"hidden\.mp4 was anonymized by faceanon already; recover it first"):
        anonymize_video(pipe, hidden[0], tmp_path / "twice.mp4", Password("second", kdf=CHEAP))
    assert list(tmp_path.iterdir()) == []


def test_inspect_shows_a_video_by_its_name_and_by_its_sidecar(hidden, capsys):
    target = hidden[0]
    sidecar = sidecar_of(target)
    for name in (target, sidecar):
        assert cli.main(["inspect", str(name)]) == 0
        out = capsys.readouterr().out
        for words in (sidecar.name, "6 frames", "1 followed, 6 in all frames", "encrypted", "a password with salt"):
            assert words in out
        assert cli.main(["inspect", "--json", str(name)]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(sidecar.read_bytes().partition(b"\n")[0])


def test_inspect_says_of_other_videos_that_they_carry_nothing(clip, tmp_path, capsys):
    assert cli.main(["inspect", str(clip)]) == 2
    assert "in.mp4 carries no faceanon data" in capsys.readouterr().err
    (tmp_path / "a.mp4.faceanon.json").write_text("{")
    for name in ("a.mp4", "a.mp4.faceanon.json", "b.mp4.faceanon.json"):
        assert cli.main(["inspect", str(tmp_path / name)]) == 2
        line = capsys.readouterr().err
        assert name in line
        assert line.count("\n") == 1


class BrokenOffError(Exception):
    pass


def test_a_run_that_breaks_off_leaves_nothing(clip, pipe, tmp_path):
    def told(stage, done, total):
        # When the first codes are in their file.
        if stage == "faces":
            raise BrokenOffError

    detector = FilmDetector([[face_at(x, y, 16)] for x, y in WHERE])
    fresh = Pipeline(pipe.backbone, detector)
    with pytest.raises(BrokenOffError):
        anonymize_video(fresh, clip, tmp_path / "a.mp4", Password("right", kdf=CHEAP), progress=told)
    assert list(tmp_path.iterdir()) == []


def test_a_film_for_recipients_is_handed_on_without_touching_it(clip, pipe, tmp_path):
    anna, ben = Identity.new(), Identity.new()
    target = tmp_path / "hidden.mp4"
    anonymize_video(pipe, clip, target, Openers(recipients=[anna.recipient]), VideoOptions(quality=EXACT))
    with pytest.raises(UserError, match="no password opens it"):
        recover_video(pipe, target, tmp_path / "back.mp4", Password("right"), EXACT)
    with pytest.raises(UserError, match="sealed key, which tells"):
        recover_video(pipe, target, tmp_path / "back.mp4", Openers(identity=anna), EXACT, deniable=True)
    recover_video(pipe, target, tmp_path / "back.mp4", Openers(identity=anna), EXACT)
    new = tmp_path / "new/hidden.mp4"
    with pytest.raises(UserError, match="the identity does not open it"):
        rekey_film(target, new, Openers(identity=ben), Openers(Password("right", kdf=CHEAP)))
    rekey_film(target, new, Openers(identity=anna), Openers(Password("right", kdf=CHEAP), [ben.recipient]))
    assert new.read_bytes() == target.read_bytes()
    assert {path.name for path in new.parent.iterdir()} == {"hidden.mp4", "hidden.mp4.faceanon.json"}
    with pytest.raises(UserError, match="the identity does not open it"):
        recover_video(pipe, new, tmp_path / "x.mp4", Openers(identity=anna), EXACT)
    for number, opener in enumerate((Openers(identity=ben), Password("right"))):
        recover_video(pipe, new, tmp_path / f"{number}.mp4", opener, EXACT)
        assert np.array_equal(stack(tmp_path / f"{number}.mp4"), stack(tmp_path / "back.mp4"))
    # To a password alone: as one that never had recipients.
    last = tmp_path / "last.mp4"
    rekey_film(new, last, Openers(identity=ben), Openers(Password("last", kdf=CHEAP)))
    assert read_record(last, None).shared.wrapped is None
    recover_video(pipe, last, tmp_path / "end.mp4", Password("last"), EXACT)
