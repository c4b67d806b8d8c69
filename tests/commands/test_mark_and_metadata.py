"""`--no-mark`, `--keep-metadata` and `--deniable`: what a result says beside its pixels, as the commands are typed."""

import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from camera_files import SECRETS, exiftool, needs_exiftool, pictures_in, write_camera_photo
from faceanon import cli
from faceanon.commands import anonymize, recover
from faceanon.key import Secret
from faceanon.photo.exif import kinds_in
from faceanon.photo.mark import is_marked
from faceanon.photo.party import photo_party
from faceanon.pipeline import Pipeline
from fakes import FixedDetector, KeyedTint


@pytest.fixture
def faceanon(monkeypatch, capsys):
    """Run a command in this process; gives exit code, output and error output."""
    pipe = Pipeline(KeyedTint(), FixedDetector([]))
    monkeypatch.setattr(anonymize, "_pipeline", lambda *asked: pipe)
    monkeypatch.setattr(recover, "load_pipeline", lambda *asked, **more: pipe)
    monkeypatch.setattr(
        Secret, "from_password", lambda text, salt, kdf: Secret.random(int.from_bytes(salt + text.encode(), "big"))
    )
    monkeypatch.setenv("PW", "hush")

    def run(command, *words):
        aligned = ["--aligned"] if command == "anonymize" else []
        code = cli.main([command, *map(str, words), *aligned, "--password-env", "PW"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def camera_photo(path, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(40, 216, (4, 4, 3), dtype=np.uint8)
    return write_camera_photo(path, Image.fromarray(noise).resize((64, 64), Image.Resampling.BICUBIC))


def says(path):
    """Whether a picture is marked, and which kinds of metadata it has."""
    with Image.open(path) as image:
        return is_marked(image), kinds_in(image)


@pytest.mark.parametrize("name", ["b.png", "b.jpg", "b.webp"])
def test_a_photo_is_marked_and_bare_unless_other_words_are_typed(faceanon, tmp_path, name):
    source = camera_photo(tmp_path / "a.jpg")
    for words, expected in (
        ((), (True, ())),
        (("--no-mark",), (False, ())),
        (("--keep-metadata", "place,time"), (True, ("time", "place"))),
        (("--sidecar", "--keep-metadata", "all"), (True, ("time", "camera", "place"))),
    ):
        assert faceanon("anonymize", source, tmp_path / name, "--overwrite", *words)[0] == 0
        assert says(tmp_path / name) == expected
        assert faceanon("recover", tmp_path / name, tmp_path / "c.png", "--overwrite")[0] == 0
        assert says(tmp_path / "c.png") == (False, expected[1])


@pytest.mark.parametrize("word", ["names", "time,names", "time,", "Time"])
def test_an_unknown_kind_is_one_line_before_anything_is_done(faceanon, tmp_path, word):
    source = camera_photo(tmp_path / "a.jpg")
    code, out, err = faceanon("anonymize", source, tmp_path / "b.png", "--keep-metadata", word)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "takes time, camera, place or all" in err
    assert list(tmp_path.iterdir()) == [source]


def test_a_folder_keeps_to_its_first_words(faceanon, tmp_path):
    for seed in range(3):
        camera_photo(tmp_path / f"in/{seed}.jpg", seed)
    words = "anonymize", tmp_path / "in", tmp_path / "out", "--keep-metadata", "time"
    assert faceanon(*words)[0] == 0
    (tmp_path / "out/1.png").unlink()
    for other in (("--keep-metadata", "all"), ("--keep-metadata", "time", "--no-mark"), ()):
        code, _, err = faceanon(*words[:3], *other)
        assert code == 2
        assert "give the same again" in err
    code, out, _ = faceanon(*words)
    assert code == 0
    assert "2 file(s) were done before" in out
    assert {says(path) for path in (tmp_path / "out").glob("*.png")} == {(True, ("time",))}
    assert faceanon("recover", tmp_path / "out", tmp_path / "back", "--format", "webp")[0] == 0
    assert {says(path) for path in (tmp_path / "back").glob("*.webp")} == {(False, ("time",))}


def test_a_deniable_recovery_says_that_nothing_is_marked(faceanon, tmp_path):
    source = camera_photo(tmp_path / "in/a.jpg")
    faceanon("anonymize", source, tmp_path / "hidden/a.png")
    for target in (("hidden/a.png", "b.png"), ("hidden", "back")):
        code, out, _ = faceanon("recover", tmp_path / target[0], tmp_path / target[1], "--deniable")
        assert code == 0
        assert out.count("note: with --deniable no result has a mark") == 1
    assert not says(tmp_path / "b.png")[0]
    assert not says(tmp_path / "back/a.png")[0]
    faceanon("anonymize", tmp_path / "hidden/a.png", tmp_path / "twice.png", "--again")
    faceanon("recover", tmp_path / "twice.png", tmp_path / "once.png", "--deniable")
    assert not says(tmp_path / "once.png")[0]


def test_inspect_says_what_everybody_can_read(faceanon, tmp_path, capsys):
    faceanon("anonymize", camera_photo(tmp_path / "a.jpg"), tmp_path / "b.png", "--keep-metadata", "camera")
    assert cli.main(["inspect", str(tmp_path / "b.png")]) == 0
    out = capsys.readouterr().out
    assert "mark:          made in part by trained algorithms" in out
    assert "metadata:      camera of the original" in out
    faceanon("anonymize", tmp_path / "a.jpg", tmp_path / "b.png", "--no-mark", "--overwrite")
    assert cli.main(["inspect", str(tmp_path / "b.png")]) == 0
    out = capsys.readouterr().out
    assert "mark:" not in out
    assert "metadata:" not in out


@needs_exiftool
def test_the_command_as_it_is_typed(tmp_path):
    write_camera_photo(tmp_path / "a.jpg", photo_party())
    run = [sys.executable, "-m", "faceanon"]
    environment = os.environ | {"FACEANON_PASSWORD": "correct horse battery staple"}

    def faceanon(*words):
        return subprocess.run([*run, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)

    done = faceanon("anonymize", "a.jpg", "b.jpg", "--keep-metadata", "time,camera")
    assert done.returncode == 0, done.stderr
    read = exiftool(tmp_path / "b.jpg")
    assert read["XMP-iptcExt:DigitalSourceType"].endswith("/compositeWithTrainedAlgorithmicMedia")
    assert read["IFD0:Model"] == "Phone 9"
    assert not [field for field in read if "GPS" in field or "Thumbnail" in field]
    data = (tmp_path / "b.jpg").read_bytes()
    assert pictures_in(data) == 1
    assert [secret for secret in SECRETS if secret in data] == []
    done = faceanon("recover", "b.jpg", "c.jpg")
    assert done.returncode == 0, done.stderr
    read = exiftool(tmp_path / "c.jpg")
    assert "XMP-iptcExt:DigitalSourceType" not in read
    assert read["IFD0:Model"] == "Phone 9"
    done = faceanon("anonymize", "a.jpg", "d.jpg", "--keep-metadata", "everything")
    assert done.returncode == 2
    assert done.stderr == (
        "faceanon: --keep-metadata takes time, camera, place or all, with commas between; not 'everything'\n"
    )
    assert not (tmp_path / "d.jpg").exists()
