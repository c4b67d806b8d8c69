import argparse
import csv
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.commands import _files, anonymize, recover
from faceanon.commands._secret import read_password
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.manifest import Manifest
from faceanon.photo.detect import Detection
from faceanon.photo.file import load_photo
from faceanon.pipeline import Pipeline
from fakes import FixedDetector, KeyedTint


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch):
    """A model that needs no file, and a derivation that costs nothing."""
    monkeypatch.setattr(_files, "load_pipeline", lambda *asked, **more: Pipeline(KeyedTint(), FixedDetector([])))
    for command in (anonymize, recover):
        monkeypatch.setattr(command, "load_pipeline", _files.load_pipeline)
    monkeypatch.setattr(
        Secret, "from_password", lambda text, salt, kdf: Secret.random(int.from_bytes(salt + text.encode(), "big"))
    )
    monkeypatch.setenv("PW", "hush")


def call(command, *words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


def make_face(path, seed=0, size=(64, 64)):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(40, 216, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


def pixels(path):
    return load_photo(path).pixels.astype(float)


def error(one, other):
    return np.abs(pixels(one) - pixels(other)).mean()


def test_one_photo_there_and_back(tmp_path, capsys):
    source = make_face(tmp_path / "a.png")
    assert call(anonymize, source, tmp_path / "b.png", "--aligned", "--password-env", "PW") == 0
    assert "anonymized 1 face(s) in 1 photo(s)" in capsys.readouterr().out
    assert call(recover, tmp_path / "b.png", tmp_path / "c.png", "--password-env", "PW") == 0
    assert error(source, tmp_path / "b.png") > 20 * error(source, tmp_path / "c.png")


def test_folder_is_mirrored_and_bad_files_are_named(tmp_path, capsys):
    faces = [make_face(tmp_path / "in" / name, seed) for seed, name in enumerate(("a.png", "x/b.png", "x/y/c.webp"))]
    (tmp_path / "in/broken.jpg").write_text("no picture")
    (tmp_path / "in/notes.txt").write_text("no picture either")
    make_face(tmp_path / "in/oblong.png", size=(64, 80))
    words = tmp_path / "in", tmp_path / "hidden", "--aligned", "--password-env", "PW"
    assert call(anonymize, *words) == 3
    out = capsys.readouterr().out
    assert "broken.jpg is not a picture" in out
    assert "must be square, not 64x80" in out
    assert "3 face(s) in 3 photo(s)" in out
    assert "notes.txt: no kind of picture" in out
    assert "3 file(s) skipped" in out
    assert call(recover, tmp_path / "hidden", tmp_path / "back", "--password-env", "PW") == 0
    for face in faces:
        place = face.relative_to(tmp_path / "in").with_suffix(".png")
        assert error(face, tmp_path / "hidden" / place) > 10 * error(face, tmp_path / "back" / place)
    salts = {Manifest.from_json(load_photo(path).manifest).salt for path in (tmp_path / "hidden").rglob("*.png")}
    assert len(salts) == 1


def found_faces(monkeypatch):
    """Two faces in every picture, of 40 and 10 px."""
    shape = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]])
    big = Detection((12, 12, 52, 52), 0.9, shape * 12 + np.array([32, 26]))
    tiny = Detection((52, 52, 62, 62), 0.8, shape * 3 + np.array([57, 55]))
    detector = FixedDetector([big, tiny])
    monkeypatch.setattr(anonymize, "load_pipeline", lambda *asked, **more: Pipeline(KeyedTint(), detector))


def test_list_faces_numbers_them_and_writes_nothing(tmp_path, capsys, monkeypatch):
    found_faces(monkeypatch)
    source = make_face(tmp_path / "a.png")
    assert call(anonymize, source, "--list-faces") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "  face 1: 40 px at (32, 32), score 0.90: model",
        "  face 2: 10 px at (57, 57), score 0.80: blur (smaller than 20 px)",
        "Faces below 12 px of the photo were not looked for.",
    ]
    assert call(anonymize, source, "--list-faces", "--exclude", "1", "--small-faces", "mask") == 0
    assert "left (as asked)" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [source]


def test_faces_are_chosen_by_number_and_reported(tmp_path, capsys, monkeypatch):
    found_faces(monkeypatch)
    source = make_face(tmp_path / "in/a.png")
    one = source, tmp_path / "b.png", "--password-env", "PW"
    assert call(anonymize, *one, "--exclude", "1") == 0
    out = capsys.readouterr().out
    assert "1 hidden for good instead" in out
    assert "1 left readable, as asked" in out
    with pytest.raises(UserError, match=r"every face of .*b\.png was hidden for good \(blur\)"):
        call(recover, tmp_path / "b.png", tmp_path / "c.png", "--password-env", "PW")
    for words, message in (
        (("--select", "x"), "takes numbers"),
        (("--select", "7"), "has no face 7"),
        (("--small-faces", "refuse"), "face 2 cannot be given"),
    ):
        with pytest.raises(UserError, match=message):
            call(anonymize, *one, "--overwrite", *words)
    with pytest.raises(UserError, match="of one photo"):
        call(anonymize, tmp_path / "in", tmp_path / "out", "--select", "1")
    assert call(anonymize, tmp_path / "in", tmp_path / "out", "--password-env", "PW", "--csv", tmp_path / "t.csv") == 0
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [(row["face"], row["done_by"], row["note"]) for row in rows] == [
        ("1", "model", ""),
        ("2", "blur", "smaller than 20 px"),
    ]


def test_stop_refuses_at_the_first_bad_file(tmp_path):
    make_face(tmp_path / "in/z.png")
    (tmp_path / "in/a.jpg").write_text("no picture")
    with pytest.raises(UserError, match=r"a\.jpg"):
        call(anonymize, tmp_path / "in", tmp_path / "out", "--aligned", "--password-env", "PW", "--on-error", "stop")
    assert not (tmp_path / "out/a.png").exists()


def test_nothing_done_is_code_two(tmp_path, capsys):
    make_face(tmp_path / "in/a.png")
    assert call(recover, tmp_path / "in", tmp_path / "out", "--password-env", "PW") == 2
    assert "carries no faceanon data" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_photo_without_a_face_writes_nothing(tmp_path):
    Image.new("RGB", (60, 50), "grey").save(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"no face found in .*a\.png"):
        call(anonymize, tmp_path / "a.png", tmp_path / "b.png", "--password-env", "PW")
    assert not (tmp_path / "b.png").exists()


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("missing.png", "b.png", "no such file"),
        ("in", "in/out", "lies in"),
        ("in", "taken.png", "is a file"),
        ("empty", "out", "no pictures in"),
        ("in/a.png", "b.bmp", "must be a .png"),
        ("in/a.png", "in/a.png", "is the input itself"),
        ("in/a.png", "taken.png", "--overwrite"),
    ],
)
def test_wrong_paths_are_refused_before_the_password(tmp_path, source, target, message):
    for name in ("in/a.png", "taken.png"):
        make_face(tmp_path / name)
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=message):
        call(anonymize, tmp_path / source, tmp_path / target, "--aligned")
    assert sorted(tmp_path.rglob("*")) == before


def test_overwrite_and_folder_target(tmp_path):
    source = make_face(tmp_path / "a.png")
    words = source, tmp_path / "out", "--aligned", "--password-env", "PW"
    (tmp_path / "out").mkdir()
    assert call(anonymize, *words) == 0
    with pytest.raises(UserError, match=r"out/a\.png exists"):
        call(anonymize, *words)
    assert call(anonymize, *words, "--overwrite") == 0


def test_password_sources(tmp_path, monkeypatch):
    path = tmp_path / "pw"
    path.write_bytes(b"hush\r\n")
    expected = read_password("PW", None, confirm=True)
    assert read_password(None, str(path), confirm=True).secret(expected.salt) == expected.secret()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    answers = iter(["hush", "hush", "hush", "hash"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    assert read_password(None, None, confirm=True).secret(expected.salt) == expected.secret()
    with pytest.raises(UserError, match="differ"):
        read_password(None, None, confirm=True)


@pytest.mark.parametrize(
    ("env", "content", "message"),
    [
        (None, None, "no terminal"),
        ("NOT_SET", None, "not set"),
        ("PW", b"hush", "not both"),
        ("EMPTY", None, "empty"),
        (None, b"", "empty"),
        (None, b"\xff\xfehush", "not UTF-8"),
        (None, b"h" * 5000, "longer than"),
    ],
)
def test_unusable_password_sources(tmp_path, monkeypatch, env, content, message):
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    path = tmp_path / "pw"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_password(env, None if content is None else str(path), confirm=False)
    assert "hush" not in str(caught.value)


def test_password_file_must_exist(tmp_path):
    with pytest.raises(UserError, match="cannot read the password file"):
        read_password(None, str(tmp_path / "none"), confirm=False)


@pytest.mark.parametrize("command", [anonymize, recover])
def test_help_teaches_and_takes_no_password(command):
    parser = argparse.ArgumentParser(description=command.__doc__)
    command.add_arguments(parser)
    text = " ".join(parser.format_help().split())
    assert "--password-env" in text
    assert "persona_photo128" in text
    assert not any(option in ("--password", "-p") for action in parser._actions for option in action.option_strings)


@pytest.mark.parametrize(("name", "kind"), [("yunet", "YunetDetector"), ("mtcnn", "MtcnnDetector")])
def test_a_detector_may_be_named(name, kind):
    detector = anonymize._detector(name, 30, torch.device("cpu"))
    assert type(detector).__name__ == kind
    assert detector.config.min_face == 30


def test_a_detector_that_is_no_file_is_one_line(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        anonymize._detector(str(tmp_path / "nowhere.onnx"), 30, torch.device("cpu"))
