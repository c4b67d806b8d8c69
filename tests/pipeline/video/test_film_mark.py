"""A film says that trained algorithms made a part of it, and keeps what was named of time and place."""

import av
import numpy as np
import pytest
from test_frames import stack
from video_clips import call, face_at, film, sound_of, use_tiny_model, write_clip

from camera_files import exiftool, needs_exiftool
from faceanon.cli import main
from faceanon.photo.mark import SOURCE_TYPE
from faceanon.pipeline.video.frames import read_info
from faceanon.pipeline.video.mark import XMP_BOX, add_mark, is_marked
from faceanon.pipeline.video.record import read_record
from faceanon.pipeline.video.tags import kept_tags

SHOTS, WHERE = film(8)
FACES = [[face_at(x, y, 16)] for x, y in WHERE]
TIME = "2024-05-06T07:08:09.000000Z"
PLACE = "+48.1000+011.5000/"
SAID = {"creation_time": TIME, "location": PLACE, "title": "Anna", "comment": "our holiday"}


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch):
    use_tiny_model(monkeypatch, FACES)


def clip(folder):
    return write_clip(folder / "in.mp4", SHOTS, metadata=SAID)


def tags(path):
    with av.open(str(path)) as container:
        return {name.lower(): text for name, text in container.metadata.items()}


@pytest.mark.parametrize("name", ["out.mp4", "out.mov"])
def test_a_film_is_marked_until_the_original_is_back(tmp_path, name):
    source = clip(tmp_path)
    target = tmp_path / name
    assert call("anonymize", source, target, "--every", 1) == 0
    assert is_marked(target)
    data = target.read_bytes()
    assert data.count(SOURCE_TYPE.encode()) == data.count(b"uuid" + XMP_BOX) == 1
    # Readers of films see none of it.
    assert read_record(target, read_info(target).comment).tracks == 1
    assert len(stack(target)) == len(SHOTS)
    np.testing.assert_array_equal(sound_of(target)[1], sound_of(source)[1])
    assert call("recover", target, tmp_path / "back.mp4") == 0
    assert SOURCE_TYPE.encode() not in (tmp_path / "back.mp4").read_bytes()
    assert not is_marked(tmp_path / "back.mp4")


@needs_exiftool
@pytest.mark.parametrize("name", ["out.mp4", "out.mov"])
def test_exiftool_reads_the_mark_of_a_film(tmp_path, name):
    assert call("anonymize", clip(tmp_path), tmp_path / name, "--every", 1) == 0
    read = exiftool(tmp_path / name)
    assert read["XMP-iptcExt:DigitalSourceType"] == SOURCE_TYPE
    assert not [field for field in read if "Warning" in field or "Error" in field]


def test_a_film_without_a_mark(tmp_path, capsys):
    assert call("anonymize", clip(tmp_path), tmp_path / "out.mp4", "--every", 1, "--no-mark") == 0
    assert b"iptc" not in (tmp_path / "out.mp4").read_bytes()
    capsys.readouterr()
    assert call("anonymize", tmp_path / "in.mp4", tmp_path / "out.mkv", "--every", 1) == 0
    assert capsys.readouterr().out.count("note: .mkv has no place for the mark") == 1
    assert b"iptc" not in (tmp_path / "out.mkv").read_bytes()


def test_inspect_says_that_a_film_is_marked(tmp_path, capsys):
    call("anonymize", clip(tmp_path), tmp_path / "out.mp4", "--every", 1)
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "out.mp4")]) == 0
    assert "mark:          made in part by trained algorithms" in capsys.readouterr().out


def test_a_deniable_recovery_says_that_nothing_is_marked(tmp_path, capsys):
    call("anonymize", clip(tmp_path), tmp_path / "out.mp4", "--every", 1)
    capsys.readouterr()
    assert call("recover", tmp_path / "out.mp4", tmp_path / "back.mp4", "--deniable") == 0
    assert capsys.readouterr().out.count("note: with --deniable no result has a mark") == 1
    assert not is_marked(tmp_path / "back.mp4")


@pytest.mark.parametrize("name", ["out.mp4", "out.mov", "out.mkv"])
@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        (None, {}),
        ("time", {"creation_time": TIME}),
        ("place", {"location": PLACE}),
        ("all", {"creation_time": TIME, "location": PLACE}),
    ],
)
def test_time_and_place_stay_where_they_are_named(tmp_path, name, kinds, kept):
    target = tmp_path / name
    words = () if kinds is None else ("--keep-metadata", kinds)
    assert call("anonymize", clip(tmp_path), target, "--every", 1, *words) == 0
    assert call("recover", target, tmp_path / f"back_{name}") == 0
    for path in (target, tmp_path / f"back_{name}"):
        found = tags(path)
        assert {tag: found[tag] for tag in ("creation_time", "location") if tag in found} == kept
        assert b"Anna" not in path.read_bytes()
        assert b"holiday" not in path.read_bytes()


def test_a_film_keeps_no_camera(tmp_path, capsys):
    assert call("anonymize", clip(tmp_path), tmp_path / "out.mp4", "--keep-metadata", "time,camera") == 2
    error = capsys.readouterr().err.strip()
    assert "--keep-metadata camera is for photos only" in error
    assert len(error.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.mp4"]


def test_a_film_in_a_folder_keeps_what_films_have(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    clip(tmp_path / "in")
    words = "anonymize", tmp_path / "in", tmp_path / "out", "--every", 1, "--keep-metadata", "time,camera"
    assert call(*words) == 0
    assert "note: --keep-metadata camera is for photos; films keep no camera" in capsys.readouterr().out
    assert is_marked(tmp_path / "out/in.mp4")
    found = tags(tmp_path / "out/in.mp4")
    assert found["creation_time"] == TIME
    assert "location" not in found


def test_tags_that_are_no_time_and_no_place_are_dropped():
    both = {"time", "place"}
    assert kept_tags({"creation_time": "Anna's birthday", "location": "Anna's house"}, both) == {}
    phone = {"com.apple.quicktime.location.ISO6709": "+48.1371+011.5754+520.000/", "com.apple.quicktime.model": "Phone"}
    assert kept_tags(phone, both) == {"location": "+48.1371+011.5754+520.000/"}
    assert kept_tags({"CREATION_TIME": TIME}, {"place"}) == {}


def test_files_that_are_cut_are_read_without_harm(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes((20).to_bytes(4, "big") + b"ftyp" + bytes(12))
    assert not is_marked(path)
    add_mark(path)
    assert is_marked(path)
    data = path.read_bytes()
    for cut in (3, 22, 30, 60):
        path.write_bytes(data[:cut])
        assert not is_marked(path)
    for length in (0, 1, 2):
        path.write_bytes(length.to_bytes(4, "big") + b"free" + bytes(8))
        assert not is_marked(path)
