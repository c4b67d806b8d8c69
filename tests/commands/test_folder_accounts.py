"""A folder as a camera or a messenger leaves it: every file is done, or named with the reason why not."""

import csv
import os
import signal

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from faceanon.cli import main
from faceanon.commands import anonymize, recover
from faceanon.commands._folder import look_into, outputs
from faceanon.errors import UserError
from faceanon.files import unfinished
from faceanon.key import Secret
from faceanon.photo.decode import picture_endings
from faceanon.photo.file import load_photo
from faceanon.pipeline import Pipeline
from faceanon.pipeline.many.folder import FilmOutcome
from faceanon.pipeline.many.journal import Journal
from fakes import FixedDetector, KeyedTint

OPENERS = {".jfif": "JPEG", ".jpe": "JPEG", ".jp2": "JPEG2000", ".tga": "TGA", ".dib": "DIB", ".pgm": "PPM"}
FILES = ("png", "gif", "tif", "avif", "bmp", "webp", "jpeg")


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch):
    """A model that needs no file, and a derivation that costs nothing."""
    pipe = Pipeline(KeyedTint(), FixedDetector([]))
    for command in (anonymize, recover):
        monkeypatch.setattr(command, "load_pipeline", lambda *asked, **more: pipe)
    monkeypatch.setattr(
        Secret, "from_password", lambda text, salt, kdf: Secret.random(int.from_bytes(salt + text.encode(), "big"))
    )
    monkeypatch.setenv("PW", "hush")


@pytest.fixture
def films(monkeypatch):
    """Films that are copied, by whoever would anonymize them; the sources that were done, with salt and password."""
    done = []

    def copied(*asked):
        def film(source, target, password, told):
            if b"broken" in source.read_bytes():
                raise UserError(f"{source} is not a video that can be read")
            told("frames", 8, 8)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(b"anonymized " + source.read_bytes())
            done.append((source.name, password.salt))
            return FilmOutcome(source, 2, 8, ("sound not copied",))

        return film

    monkeypatch.setattr(anonymize, "film_anonymizer", copied)
    monkeypatch.setattr(recover, "film_recoverer", copied)
    return done


def face(seed=0, size=(64, 64)):
    noise = np.random.default_rng(seed).integers(40, 216, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def write(path, content="face"):
    path.parent.mkdir(parents=True, exist_ok=True)
    if content == "face":
        face(len(path.name)).save(path)
    else:
        path.write_bytes(content)
    return path


def call(command, *words):
    aligned = ["--aligned"] if command == "anonymize" else []
    return main([command, *map(str, words), *aligned, "--password-env", "PW"])


def table(folder):
    return {row["source"]: row for row in csv.DictReader((folder / "faceanon.csv").read_text().splitlines())}


def made(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*") if path.suffix != ".csv")


def test_every_kind_that_cameras_and_messengers_write_is_done(tmp_path, capsys):
    source = tmp_path / "in"
    source.mkdir()
    for number, ending in enumerate(FILES):
        face(number).save(source / f"plain{number}.{ending}")
    for number, (ending, kind) in enumerate(OPENERS.items()):
        picture = face(number).convert("L") if ending == ".pgm" else face(number)
        picture.save(source / f"kind{number}{ending}", kind)
    for ending in ("HEIC", "heif", "hif"):
        pillow_heif.from_pillow(face()).save(source / f"phone_{ending}.{ending}")
    assert call("anonymize", source, tmp_path / "out") == 0
    count = len(FILES) + len(OPENERS) + 3
    assert f"{count} face(s) in {count} photo(s)" in capsys.readouterr().out
    assert len(list((tmp_path / "out").glob("*.png"))) == count
    assert call("recover", tmp_path / "out", tmp_path / "back") == 0


def test_every_file_is_named_with_its_reason(tmp_path, capsys):
    source = tmp_path / "in"
    write(source / "a.png")
    for name, content in {"notes.txt": b"x", "raw.CR3": b"x", "bare": b"x", "broken.jpg": b"no picture"}.items():
        write(source / "x" / name, content)
    (source / "gone.jpg").symlink_to("nothing.jpg")
    (source / "elsewhere").symlink_to(tmp_path)
    face().save(source / "moving.gif", save_all=True, append_images=[face(1)])
    for name in (".DS_Store", "Thumbs.db", "._a.jpg", ".cache/b.png", "x/old.png.faceanon.json"):
        write(source / name, b"x")
    assert call("anonymize", source, tmp_path / "out") == 3
    out = " ".join(capsys.readouterr().out.split())
    rows = table(tmp_path / "out")
    reasons = {
        "x/notes.txt": "no kind of picture or film that is read (.txt)",
        "x/raw.CR3": "no kind of picture or film that is read (.cr3)",
        "x/bare": "no kind of picture or film that is read (no ending)",
        "x/broken.jpg": "is not a picture",
        "gone.jpg": "a link to nothing",
        "elsewhere": "a link to a folder",
        "moving.gif": "holds 2 pictures",
    }
    for name, why in reasons.items():
        assert rows[name]["status"] == "skipped"
        assert why in rows[name]["note"]
        assert f"{source / name}" in out
    assert set(rows) == {"a.png", *reasons}
    assert "7 file(s) skipped, exit code 3; 4 hidden or system file(s) not looked at" in out


def test_a_folder_that_cannot_be_entered_is_named(tmp_path, monkeypatch):
    write(tmp_path / "a.png")
    walk = os.walk

    def refusing(folder, onerror):
        onerror(PermissionError(13, "Permission denied", str(tmp_path / "locked")))
        return walk(folder)

    monkeypatch.setattr(os, "walk", refusing)
    assert look_into(tmp_path).left == {tmp_path / "locked": "a folder that cannot be read: Permission denied"}


def test_recovery_of_a_folder_names_files_without_a_record(tmp_path, capsys):
    write(tmp_path / "in" / "a.png")
    assert call("anonymize", tmp_path / "in", tmp_path / "out") == 0
    write(tmp_path / "out" / "other.png")
    write(tmp_path / "out" / "notes.txt", b"x")
    assert call("recover", tmp_path / "out", tmp_path / "back") == 3
    rows = table(tmp_path / "back")
    assert [rows[name]["status"] for name in ("a.png", "notes.txt", "other.png")] == ["done", "skipped", "skipped"]
    assert "carries no faceanon data" in rows["other.png"]["note"]
    assert "faceanon.csv" not in capsys.readouterr().out


def test_list_faces_names_what_it_does_not_look_at(tmp_path, capsys):
    write(tmp_path / "a.png")
    write(tmp_path / "b.mp4", b"film")
    assert main(["anonymize", str(tmp_path), "--list-faces", "--aligned"]) == 3
    assert f"skipped: {tmp_path / 'b.mp4'}: --aligned is for photos only" in capsys.readouterr().out


def test_names_that_differ_in_their_endings_alone_keep_them(tmp_path, capsys):
    source = tmp_path / "in"
    for name in ("a.jpg", "a.png", "B.JPG", "b.webp", "c.bmp", "x/a.jpg"):
        write(source / name)
    assert call("anonymize", source, tmp_path / "out") == 0
    expected = ["B.JPG.png", "a.jpg.png", "a.png", "b.webp.png", "c.png", "x/a.png"]
    assert made(tmp_path / "out") == sorted([*expected, ".faceanon-journal.jsonl"])
    assert f"{source / 'a.jpg'} becomes {tmp_path / 'out' / 'a.jpg.png'}" in capsys.readouterr().out
    assert table(tmp_path / "out")["a.jpg"]["target"] == "a.jpg.png"
    assert call("anonymize", source, tmp_path / "out") == 0
    assert "6 file(s) were done before" in capsys.readouterr().out


def test_no_two_results_share_a_name(tmp_path):
    names = ["a.png", "a.PNG", "a.jpg", "a.webp", "a.jpg.png", "a.jpg.jpg", "a.jpg.png.tif", "a"]
    paths = [tmp_path / name for name in names]
    results = outputs(paths, ".png")
    assert len({str(path).casefold() for path in results}) == len(names)
    assert results == outputs(paths, ".png")


@pytest.mark.parametrize("letter", ["n", "ä", "象", "🙂"])
@pytest.mark.parametrize("options", [[], ["--sidecar"]])
def test_names_up_to_the_limit_of_the_file_system_go_there_and_back(tmp_path, capsys, letter, options):
    width = len(letter.encode())
    stem = letter * (251 // width) + "x" * (251 % width)
    source = write(tmp_path / "in" / f"{stem}.png")
    assert len(os.fsencode(source.name)) == 255
    assert call("anonymize", source, tmp_path / "out" / source.name, *options) == 0
    assert call("recover", tmp_path / "out" / source.name, tmp_path / "back.png") == 0
    assert call("anonymize", tmp_path / "in", tmp_path / "all", *options) == 0
    assert call("recover", tmp_path / "all", tmp_path / "back") == 0
    assert np.abs(load_photo(tmp_path / "back" / source.name).pixels.astype(int) - np.asarray(face(255))).mean() < 60


def test_results_whose_names_would_be_too_long_are_refused_before_any_work(tmp_path, capsys, films):
    short = write(tmp_path / "in" / "short.png")
    long = write(tmp_path / "in" / f"{'n' * 252}.ts", b"film")
    assert main(["anonymize", str(tmp_path / "in"), str(tmp_path / "out"), "--password-env", "PW"]) == 2
    assert films == []
    capsys.readouterr()
    assert call("anonymize", short, tmp_path / f"{'n' * 252}.png") == 2
    error = capsys.readouterr().err
    assert "the name has 256 bytes" in error
    assert error.count("\n") == 1
    assert long.read_bytes() == b"film"


def test_one_photo_into_a_folder_says_which_file_it_became(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    assert call("anonymize", write(tmp_path / "one.jpg"), tmp_path / "out") == 0
    assert f"-> {tmp_path / 'out' / 'one.png'}" in "".join(capsys.readouterr().out.splitlines())


def plain(*words):
    return main([*map(str, words), "--password-env", "PW"])


def camera(folder):
    write(folder / "a.mov", b"one")
    write(folder / "x" / "b.MP4", b"two")
    write(folder / "b.avi", b"broken")
    write(folder / "note.txt", b"x")
    return folder


def test_films_of_a_folder_are_done_under_the_salt_of_the_run(tmp_path, capsys, films):
    source = camera(tmp_path / "in")
    assert plain("anonymize", source, tmp_path / "out") == 3
    out = capsys.readouterr().out
    assert "0 face(s) in 0 photo(s) and 4 in 2 film(s)" in out
    assert "a.mov: sound not copied" in out
    assert [name for name, _ in films] == ["a.mov", "b.MP4"]
    assert len({salt for _, salt in films}) == 1
    rows = table(tmp_path / "out")
    assert rows["a.mov"]["target"] == "a.mp4"
    assert rows["a.mov"]["done_by"] == "film"
    assert rows["x/b.MP4"]["note"] == "2 face(s) in 8 frame(s); sound not copied"
    assert "not a video" in rows["b.avi"]["note"]
    assert plain("anonymize", source, tmp_path / "out") == 3
    assert "2 file(s) were done before" in capsys.readouterr().out
    assert len(films) == 2
    assert plain("recover", tmp_path / "out", tmp_path / "back") == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_run_that_is_killed_in_a_film_goes_on(tmp_path, capsys, films, monkeypatch):
    source = tmp_path / "in"
    write(source / "a.mov", b"one")
    write(source / "b.mov", b"two")
    real = Journal.write

    def dying(self, line, durable=False):
        real(self, line, durable)
        if line.get("target") == "b.mp4":
            (tmp_path / "out" / (unfinished(tmp_path / "out" / "b.mp4") + "x1y2z3.mp4")).write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(Journal, "write", dying)
            plain("anonymize", source, tmp_path / "out")
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert plain("anonymize", source, tmp_path / "out") == 0
    assert [name for name, _ in films] == ["b.mov"]
    assert made(tmp_path / "out") == [".faceanon-journal.jsonl", "a.mp4", "b.mp4"]


def test_films_are_named_where_an_option_is_for_photos_only(tmp_path, capsys):
    source = tmp_path / "in"
    write(source / "a.png")
    write(source / "b.mp4", b"film")
    assert call("anonymize", source, tmp_path / "out") == 3
    assert "--aligned is for photos only" in table(tmp_path / "out")["b.mp4"]["note"]
    assert call("recover", source, tmp_path / "exact", "--exact") == 2
    assert "--exact is for photos only" in capsys.readouterr().out


def test_endings_of_pictures_hold_no_films_and_nothing_that_other_programs_draw():
    assert {".jpg", ".jfif", ".jpe", ".heic", ".avif", ".jp2", ".tga", ".dib", ".mpo"} <= picture_endings()
    assert not {".mpg", ".mpeg", ".eps", ".ps", ".pdf", ".wmf", ".h5", ".txt"} & picture_endings()
