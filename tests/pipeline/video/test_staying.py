"""Who stays in a film: two people who ship, one of whom walks past the other."""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from video_clips import write_clip

from faceanon import cli
from faceanon.commands._video import seconds
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.paths import checkpoints
from faceanon.persona.light import LightPersona
from faceanon.photo.detect import shipped_detector
from faceanon.photo.party import photo_party
from faceanon.photo.people import People, Reference, light_likeness, read_reference, threshold_of
from faceanon.pipeline.photo import NoFaceError, Pipeline
from faceanon.pipeline.video.anonymize import VideoOptions, anonymize_video
from faceanon.pipeline.video.frames import read_frames
from faceanon.pipeline.video.recover import recover_video
from faceanon.pipeline.video.staying import _surely
from faceanon.pipeline.video.writer import Quality
from fakes import KeyedTint

FRAMES = 80
SIDE = 128  # of each person's picture
HEIGHT, WIDTH = 200, 760
COVERED = range(70, 75)
EXACT = VideoOptions(quality=Quality(lossless=True), probe=False)
MODEL = checkpoints() / "persona_photo128"
SECRET = Password("hush", bytes(16), KdfParameters(memory_kib=64, iterations=1, lanes=1))


@cache
def person(number):
    """One of three people, `(256, 256, 3)`."""
    left = 14 + 270 * number
    return photo_party().crop((left, 14, left + 256, 270))


def small(number):
    return np.array(person(number).resize((SIDE, SIDE)))


def places(frame):
    """Left edges of the one who stays and of the one who walks past her; the camera pans."""
    pan = frame // 6
    return 310 - pan, 8 * frame


def made(folder, stays, walks):
    """A film of two people: one is covered for five frames, the other walks past her."""
    shots = np.full((FRAMES, HEIGHT, WIDTH, 3), 128, np.uint8)
    for frame, shot in enumerate(shots):
        left, other = places(frame)
        shot[20 : 20 + SIDE, left : left + SIDE] = small(stays)
        if frame in COVERED:
            shot[40:140, left + 20 : left + 110] = 60
        other = min(other, WIDTH - SIDE)
        shot[50 : 50 + SIDE, other : other + SIDE] = small(walks)
    path = folder / "in.mp4"
    return write_clip(path, shots, times=[25 * step for step in range(FRAMES)], options={"crf": "8"})


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return made(tmp_path_factory.mktemp("clip"), 0, 2)


@pytest.fixture(scope="module")
def likeness():
    light = LightPersona(MODEL)
    return light_likeness(light, threshold_of(light.recogniser_name, MODEL))


@pytest.fixture(scope="module")
def reference(likeness, tmp_path_factory):
    """A person by another picture of her: darker, larger, on another ground."""

    def read(number):
        path = tmp_path_factory.mktemp("reference") / f"person{number}.png"
        person(number).resize((300, 300)).point(lambda value: 0.8 * value).save(path)
        return read_reference(path, shipped_detector("yunet", 20), likeness)

    return read


def shown(clip, target, people, options=EXACT):
    """In which frames each of the two is as she was, and the outcome."""
    pipeline = Pipeline(KeyedTint(), shipped_detector("yunet", 20))
    pipeline.people = people
    outcome = anonymize_video(pipeline, clip, target, SECRET, options)
    same = np.zeros((2, FRAMES), bool)
    for before, after in zip(read_frames(clip), read_frames(target), strict=True):
        for who, left in enumerate(places(before.index)):
            left = min(left, WIDTH - SIDE)
            face = np.s_[90 - 30 * (1 - who) : 120 - 30 * (1 - who), left + 50 : left + 80]
            off = np.abs(before.pixels[face].astype(int) - after.pixels[face])
            same[who, before.index] = off.mean() < 3
    return same, outcome


def visible():
    """Frames in which nothing is before the one who stays."""
    free = np.ones(FRAMES, bool)
    free[list(COVERED)] = False
    for frame in range(FRAMES):
        stays, walks = places(frame)
        free[frame] &= abs(stays - walks) > SIDE
    return free


def test_the_kept_person_is_shown_and_the_other_never(clip, reference, likeness, tmp_path):
    people = People(likeness, exclude=(reference(0),))
    same, outcome = shown(clip, tmp_path / "out.mkv", people)
    assert same[0][visible()].mean() >= 0.95
    assert not same[1].any()
    assert sum(stay.shown for stay in outcome.stays) >= 0.95 * visible().sum()
    assert {stay.name for stay in outcome.stays} == {"person0.png"}
    assert outcome.unmet == ()
    # What was shown needs no way back, and what was hidden has one.
    pipeline = Pipeline(KeyedTint(), shipped_detector("yunet", 20))
    recover_video(pipeline, tmp_path / "out.mkv", tmp_path / "back.mkv", SECRET, Quality(lossless=True))
    for before, after in zip(read_frames(clip), read_frames(tmp_path / "back.mkv"), strict=True):
        assert np.abs(before.pixels.astype(int) - after.pixels).mean() < 3


def test_a_photo_of_somebody_else_shows_nobody(clip, reference, likeness, tmp_path):
    same, outcome = shown(clip, tmp_path / "out.mkv", People(likeness, exclude=(reference(1),)))
    assert not same.any()
    assert outcome.stays == ()
    assert outcome.unmet == ("person1.png",)


def test_the_selected_person_alone_is_hidden(reference, likeness, tmp_path):
    clip = made(tmp_path, 0, 1)
    same, outcome = shown(clip, tmp_path / "out.mkv", People(likeness, select=(reference(1),)))
    assert not same[1].any()
    assert same[0][visible()].mean() >= 0.95
    assert outcome.unmet == ()


def test_nothing_is_written_where_everybody_stays(clip, reference, likeness, tmp_path):
    with pytest.raises(UserError, match="everybody in it is to be left"):
        shown(clip, tmp_path / "out.mkv", People(likeness, select=(reference(1),)))
    assert not (tmp_path / "out.mkv").exists()


def test_a_frame_shows_a_person_only_amid_frames_that_do():
    like = np.array([1, 1, 1, 1, 0, 1, 1, 1, 1, 1], bool)
    frames = np.arange(10)
    assert _surely(like, frames).tolist() == [True, True, True, False, False, False, True, True, True, True]
    # Beyond a gap of the track nothing is asked.
    frames = np.array([0, 1, 2, 3, 10, 20, 21, 22, 23, 24])
    assert _surely(like, frames).tolist() == [True] * 4 + [False] + [True] * 5
    assert not _surely(np.zeros(3, bool), np.arange(3)).any()


def test_several_photos_of_one_person_count_as_the_likest(likeness, clip, reference, tmp_path):
    own = reference(0)
    blurred = Reference("blurred.png", -own.code)
    _, outcome = shown(clip, tmp_path / "out.mkv", People(likeness, exclude=(blurred, own)))
    assert {stay.name for stay in outcome.stays} == {"person0.png"}
    assert outcome.unmet == ("blurred.png",)


def test_beyond_a_part_of_the_film_everybody_is_shown(clip, tmp_path):
    # 24 frames a second.
    options = replace(EXACT, span=(0.5, 1.0))
    same, outcome = shown(clip, tmp_path / "out.mkv", None, options)
    hidden = np.zeros(FRAMES, bool)
    hidden[12:24] = True
    assert not same[:, hidden].any()
    assert same[:, ~hidden].all()
    assert all(12 <= segment.start < segment.stop <= 24 for item in outcome.tracks for segment in item.track.segments)
    pipeline = Pipeline(KeyedTint(), shipped_detector("yunet", 20))
    recover_video(pipeline, tmp_path / "out.mkv", tmp_path / "back.mkv", SECRET, Quality(lossless=True))
    for before, after in zip(read_frames(clip), read_frames(tmp_path / "back.mkv"), strict=True):
        assert np.abs(before.pixels.astype(int) - after.pixels).mean() < 3


def test_the_frame_on_the_screen_when_a_part_begins_is_hidden_too(tmp_path):
    shots = np.full((8, HEIGHT, WIDTH, 3), 128, np.uint8)
    shots[:, 20 : 20 + SIDE, 310 : 310 + SIDE] = small(0)
    # Of slides: the fourth is shown from 1.5 s to 4 s. A second has 600 units.
    clip = write_clip(tmp_path / "in.mp4", shots, times=[0, 300, 600, 900, 2400, 2700, 3000, 3300])
    pipeline = Pipeline(KeyedTint(), shipped_detector("yunet", 20))
    options = replace(EXACT, span=(2.0, 4.2))
    (item,) = anonymize_video(pipeline, clip, tmp_path / "out.mkv", SECRET, options).tracks
    assert [(segment.start, segment.stop) for segment in item.track.segments] == [(3, 5)]


def test_a_part_without_a_face_is_one_line(clip, tmp_path):
    with pytest.raises(NoFaceError, match="no face found in that part of"):
        shown(clip, tmp_path / "out.mkv", None, replace(EXACT, span=(100, 200)))
    assert not (tmp_path / "out.mkv").exists()


@pytest.mark.parametrize(("text", "found"), [("90", 90), ("1:30", 90), ("0:01:30.5", 90.5), ("0", 0)])
def test_times_are_read_as_people_write_them(text, found):
    assert seconds(text) == found


@pytest.mark.parametrize("words", [["2", "1"], ["1", "1"], ["-1", "2"], ["a", "2"], ["nan", "2"]])
def test_a_part_that_is_none_is_one_line(clip, tmp_path, capsys, words):
    with pytest.raises(SystemExit) if words[0] in ("-1", "a", "nan") else nullcontext() as stop:
        code = cli.main(["anonymize", str(clip), str(tmp_path / "out.mp4"), "--between", *words])
    assert (stop.value.code if stop else code) == 2
    assert "--between" in capsys.readouterr().err
    assert not (tmp_path / "out.mp4").exists()
