"""Files of boxes for films: everybody as found, one who stays, a face that no detector saw, and what no film has."""

import json
from dataclasses import replace

import numpy as np
import pytest
from test_staying import EXACT, FRAMES, SECRET, SIDE, WIDTH, made, places, visible

from faceanon import cli
from faceanon.commands import anonymize
from faceanon.errors import UserError
from faceanon.key import KdfParameters
from faceanon.photo.boxes import DecidedBox, DecidedPhoto, Decisions, read_decisions
from faceanon.photo.detect import shipped_detector
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.video.anonymize import anonymize_video, find_tracks
from faceanon.pipeline.video.decided import decided_film, follow_decided
from faceanon.pipeline.video.frames import read_frames, read_info
from faceanon.pipeline.video.recover import recover_video
from faceanon.pipeline.video.tracks import TrackOptions
from faceanon.pipeline.video.writer import Quality
from fakes import FixedDetector, KeyedTint, SealedPatch

SIZE = (WIDTH, 200)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return made(tmp_path_factory.mktemp("clip"), 0, 2)


@pytest.fixture(scope="module")
def found(clip):
    """The tracks, and their boxes as a file has them."""
    info = read_info(clip)
    tracks, _ = find_tracks(Pipeline(KeyedTint(), shipped_detector("yunet", 20)), clip, info, TrackOptions())
    path = clip.with_name("boxes.json")
    Decisions(decided_film("in.mp4", info, tracks)).write(path)
    return tracks, read_decisions(path)


def blind(boxes):
    pipeline = Pipeline(KeyedTint(), FixedDetector([]))
    pipeline.boxes = boxes
    return pipeline


def film(*boxes, name="in.mp4", size=SIZE):
    """A file with boxes, each a frame and what lies in it."""
    return Decisions(tuple(DecidedPhoto(name, *size, (box,), frame) for frame, box in boxes), "boxes.json")


def shown(clip, target, boxes):
    """In which frames each of the two is as she was, and the outcome."""
    outcome = anonymize_video(blind(boxes), clip, target, SECRET, EXACT)
    same = np.zeros((2, FRAMES), bool)
    for before, after in zip(read_frames(clip), read_frames(target), strict=True):
        for who, left in enumerate(places(before.index)):
            left = min(left, WIDTH - SIDE)
            face = np.s_[90 - 30 * (1 - who) : 120 - 30 * (1 - who), left + 50 : left + 80]
            off = np.abs(before.pixels[face].astype(int) - after.pixels[face])
            same[who, before.index] = off.mean() < 3
    return same, outcome


def test_boxes_as_found_give_the_same_tracks(clip, found):
    tracks, boxes = found
    again, _, _ = follow_decided(blind(boxes), clip, read_info(clip), TrackOptions(), boxes)
    assert [track.seen for track in again] == [track.seen for track in tracks]
    for one, other in zip(tracks, again, strict=True):
        assert [(s.start, s.stop) for s in one.segments] == [(s.start, s.stop) for s in other.segments]
        for a, b in zip(one.segments, other.segments, strict=True):
            assert np.abs(a.places - b.places).max() <= 1  # a sixteenth of a pixel: the file rounds


def test_whoever_the_file_keeps_is_shown_in_every_frame(clip, found, tmp_path):
    tracks, boxes = found
    # The one who walks is seen in every frame; the other one is covered for a while, and so two tracks.
    longest = max(tracks, key=lambda track: track.covered)
    changed = []
    for decided in boxes.photos:
        own = tuple(replace(box, choice="keep" if box.track == longest.number else "stranger") for box in decided.boxes)
        changed.append(replace(decided, boxes=own))
    same, outcome = shown(clip, tmp_path / "out.mkv", Decisions(tuple(changed), "boxes.json"))
    assert same[1][visible()].all()
    assert not same[0][visible()].any()
    (stay,) = outcome.stays
    assert (stay.name, stay.shown, stay.likeness) == ("boxes.json", longest.covered, None)
    # One box that does not say so hides the face in all its frames.
    odd = replace(changed[5], boxes=tuple(replace(box, choice="stranger") for box in changed[5].boxes))
    same, outcome = shown(clip, tmp_path / "all.mkv", Decisions((*changed[:5], odd, *changed[6:]), "boxes.json"))
    assert not same[:, visible()].any()
    assert outcome.stays == ()


def test_a_face_that_nobody_found_is_hidden_between_two_boxes_and_comes_back(clip, tmp_path):
    """The first and the last frame are enough for somebody who walks straight on; the other one stays."""

    def box(frame):
        left, _ = places(frame)
        return DecidedBox((left + 25, 40, left + 105, 140), track=7)

    same, outcome = shown(clip, tmp_path / "out.mkv", film((0, box(0)), (FRAMES - 1, box(FRAMES - 1))))
    assert not same[0][visible()].any()
    assert same[1][visible()].all()
    (report,) = outcome.tracks
    assert (report.track.given, report.track.covered, report.track.missing) == (7, FRAMES, ())
    pipeline = Pipeline(KeyedTint(), FixedDetector([]))
    recover_video(pipeline, tmp_path / "out.mkv", tmp_path / "back.mkv", SECRET, Quality(lossless=True))
    for before, after in zip(read_frames(clip), read_frames(tmp_path / "back.mkv"), strict=True):
        assert np.abs(before.pixels.astype(int) - after.pixels).mean() < 3


def test_a_box_without_a_face_is_hidden_all_the_same(clip, tmp_path):
    corner = DecidedBox((2, 150, 42, 198), track=0)
    outcome = anonymize_video(blind(film((10, corner), (20, corner))), clip, tmp_path / "out.mkv", SECRET, EXACT)
    (segment,) = outcome.tracks[0].track.segments
    assert segment.start <= 10
    assert segment.stop > 20
    assert abs(segment.at(15).center_x - 22) < 10


def test_a_person_becomes_another_stranger_of_the_key_in_all_frames_and_comes_back(clip, tmp_path, sealed_bundle):
    """Of two frames with a box one says which stranger it is."""
    box = DecidedBox((300, 40, 380, 140), track=0)
    results = []
    for number in (0, 1, 1):
        pipeline = Pipeline(SealedPatch(str(sealed_bundle)), FixedDetector([]))
        pipeline.boxes = film((10, box), (20, replace(box, stranger=number)))
        target = tmp_path / f"{len(results)}.mkv"
        outcome = anonymize_video(pipeline, clip, target, SECRET, EXACT)
        assert outcome.tracks[0].track.stranger == number
        results.append(np.stack([frame.pixels[60:120, 310:370] for frame in read_frames(target, range(10, 21))]))
    first, other, again = results
    np.testing.assert_array_equal(other, again)
    assert (np.abs(first.astype(int) - other).mean((1, 2, 3)) > 5).all()
    recover_video(pipeline, target, tmp_path / "back.mkv", SECRET, Quality(lossless=True))
    originals = read_frames(clip, range(10, 21))
    for before, after in zip(originals, read_frames(tmp_path / "back.mkv", range(10, 21)), strict=True):
        assert np.abs(before.pixels.astype(int) - after.pixels).mean() < 3


FACE = DecidedBox((300, 40, 380, 140), track=0)


@pytest.mark.parametrize(
    ("boxes", "reason"),
    [
        (film((FRAMES, FACE)), "names frame 80 of .*in.mp4, which has 80 frames"),
        (film((3, replace(FACE, track=None))), "a box in frame 3 of .*in.mp4 has no track_id"),
        (film((3, replace(FACE, choice="blur"))), "in a film a box is a face that is a stranger or keep"),
        (film((3, replace(FACE, region=True, choice="mask"))), "in a film a box is a face"),
        (film((3, replace(FACE, stranger=1))), "gives each key one stranger; recovery would not find another"),
        (film((None, FACE)), "names .*in.mp4 as a photo"),
        (film((3, FACE), name="other.mp4"), "says nothing of .*in.mp4"),
        (film((3, FACE), size=(10, 10)), "is for another in.mp4: of 10x10 px"),
        (film((3, replace(FACE, choice="keep"))), "everybody in it is to be left"),
    ],
    ids=range(9),
)
def test_what_no_film_has_is_one_line(clip, tmp_path, boxes, reason):
    with pytest.raises(UserError, match=reason):
        anonymize_video(blind(boxes), clip, tmp_path / "out.mkv", SECRET, EXACT)
    assert not (tmp_path / "out.mkv").exists()


def test_a_photo_is_no_film(tmp_path):
    with pytest.raises(UserError, match=r"names a.png as a film"):
        film((3, FACE), name="a.png", size=(9, 9)).of("a.png", 9, 9)


def test_films_are_listed_and_hidden_as_the_command_is_typed(clip, tmp_path, monkeypatch, capsys):
    def load(files, torch_for, photos):
        return Pipeline(KeyedTint())

    monkeypatch.setattr(anonymize, "load_pipeline", load)
    monkeypatch.setattr(KdfParameters.__init__, "__defaults__", ("argon2id", 64, 1, 1, 19))
    monkeypatch.setenv("PW", "hush")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "in.mp4").write_bytes(clip.read_bytes())
    boxes = tmp_path / "boxes.json"
    assert cli.main(["anonymize", str(folder), "--list-faces", "--write-boxes", str(boxes)]) == 0
    said = capsys.readouterr().out
    assert "  face 0: 38 frame(s), 0 to 37, seen in " in said
    values = json.loads(boxes.read_text())
    for annotation in values["annotations"]:
        if annotation["track_id"] == 1:
            annotation["attributes"]["choice"] = "keep"
    boxes.write_text(json.dumps(values))
    words = ["anonymize", str(folder / "in.mp4"), str(tmp_path / "out.mp4"), "--boxes", str(boxes)]
    assert cli.main([*words, "--password-env", "PW"]) == 0
    said = capsys.readouterr().out
    assert f"face 1 stays: shown in {FRAMES} of {FRAMES} frame(s) (as {boxes} says)" in said
    assert "anonymized 2 face(s)" in said
