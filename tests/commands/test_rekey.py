"""`rekey`: other recipients and passwords for photos, folders and films, and not a pixel changed."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faceanon.commands import anonymize
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.manifest import Manifest
from faceanon.photo.file import load_photo, read_vault, write_photo
from faceanon.photo.manifests import manifest_of
from faceanon.photo.mark import is_marked
from faceanon.photo.metadata import sidecar_of, vault_of
from faceanon.photo.policy import Policy
from faceanon.pipeline import Pipeline, anonymize_file
from faceanon.pipeline.rekey import rekey_film
from faceanon.pipeline.video.codes import new_codes
from faceanon.pipeline.video.record import VideoRecord, read_sidecar_record
from faceanon.pipeline.video.tracks import Segment
from faceanon.sealed import pixels
from faceanon.sealed.openers import Openers
from faceanon.sealed.recipients import Identity
from fakes import FixedDetector, KeyedTint
from test_pipeline import ALONE, PHOTO, face_at

ANNA, BEN, EVE = Identity.new(), Identity.new(), Identity.new()


@pytest.fixture
def faceanon(in_process, monkeypatch, tmp_path):
    """Run a command in this process under a password in PW; gives exit code, output and error output."""
    monkeypatch.delenv("FACEANON_PASSWORD", raising=False)
    monkeypatch.setenv("OLD", "old words")
    monkeypatch.setenv("NEW", "new words")
    for name, identity in (("anna", ANNA), ("ben", BEN), ("eve", EVE)):
        (tmp_path / f"{name}.key").write_text(identity.secret_text())
        (tmp_path / f"{name}.pub").write_text(f"# of {name}\n{identity.recipient}\n")
    monkeypatch.chdir(tmp_path)
    return in_process


OLD = ("--password-env", "OLD")
NEW = ("--new-password-env", "NEW")
NEW_OPENS = ("--password-env", "NEW")
TO_BOTH = ("--to", "anna.pub", "--to", BEN.recipient)


def hidden(faceanon, name="h.png", *more):
    Image.fromarray(PHOTO).save("in.png")
    code, _, err = faceanon("anonymize", "in.png", name, *more)
    assert code == 0, err
    return name


def refused(answer, *words):
    code, out, err = answer
    assert code == 2
    assert out == ""
    assert err.startswith("faceanon: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    return err


def opens(faceanon, name, *more):
    code, _, err = faceanon("recover", name, "back.png", "--overwrite", *more)
    assert code in (0, 2)
    assert (err == "") == (code == 0)
    return code == 0


def same_pixels(one, other):
    return np.array_equal(load_photo(one).pixels, load_photo(other).pixels)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("h.png", ()),
        ("h.png", ("--sidecar",)),
        ("h.jpg", ()),
        ("h.webp", ()),
        ("h.webp", ("--quality", "80")),
        ("h.jpg", ("--sidecar",)),
    ],
)
def test_from_a_password_to_two_recipients_and_back(faceanon, name, more):
    hidden(faceanon, name, *OLD, *more)
    target = f"r{name[1:]}"
    assert faceanon("rekey", name, target, *OLD, *TO_BOTH)[0] == 0
    assert same_pixels(name, target)
    with Image.open(target) as shown:
        assert is_marked(shown)
    assert opens(faceanon, target, "--identity", "anna.key")
    assert opens(faceanon, target, "--identity", "ben.key")
    assert not opens(faceanon, target, "--identity", "eve.key")
    assert not opens(faceanon, target, *OLD)
    again = f"p{name[1:]}"
    assert faceanon("rekey", target, again, "--identity", "ben.key", *NEW)[0] == 0
    assert same_pixels(name, again)
    assert opens(faceanon, again, "--password-env", "NEW")
    assert not opens(faceanon, again, *OLD)
    assert not opens(faceanon, again, "--identity", "anna.key")
    assert opens(faceanon, name, *OLD)  # the old file opens as before, which the output says


def test_compressed_pixels_stay_byte_by_byte(faceanon):
    hidden(faceanon, "h.png", *OLD)
    faceanon("rekey", "h.png", "r.png", *OLD, *TO_BOTH)
    parts = []
    for name in ("h.png", "r.png"):
        data = Path(name).read_bytes()
        parts.append(data[data.index(b"IDAT") :])
    assert parts[0] == parts[1]


def test_what_came_back_is_the_same_for_both(faceanon, tmp_path):
    hidden(faceanon, "h.png", *OLD)
    faceanon("rekey", "h.png", "r.png", *OLD, *TO_BOTH)
    assert faceanon("recover", "h.png", "one.png", *OLD)[0] == 0
    assert faceanon("recover", "r.png", "two.png", "--identity", "ben.key")[0] == 0
    assert same_pixels("one.png", "two.png")
    assert not same_pixels("one.png", "h.png")


def test_nothing_of_the_old_key_stays(faceanon):
    """The old salt would let the old password derive the old key, and the old codes would open under it."""
    hidden(faceanon, "h.png", *OLD)
    faceanon("rekey", "h.png", "r.png", *OLD, *TO_BOTH)
    old, new = manifest_of_name("h.png"), manifest_of_name("r.png")
    assert new.salt is None
    assert not set(old.codes) & set(new.codes)
    assert new.layers == old.layers
    assert new.signature == old.signature
    assert old.salt.hex().encode() not in Path("r.png").read_bytes()


def manifest_of_name(name):
    return manifest_of(Path(name))[0]


@pytest.mark.parametrize(("name", "more"), [("h.png", ()), ("h.png", ("--sidecar",)), ("h.jpg", ()), ("h.webp", ())])
def test_a_vault_goes_along(faceanon, tmp_path, name, more):
    hidden(faceanon, name, *OLD, "--vault", *more)
    target = tmp_path / f"r{name[1:]}"
    assert faceanon("rekey", name, target, *OLD, *TO_BOTH)[0] == 0
    assert read_vault(target) != read_vault(tmp_path / name)
    assert vault_of(target).exists() == vault_of(tmp_path / name).exists()
    assert opens(faceanon, target, "--exact", "--identity", "ben.key")
    with Image.open("back.png") as back, Image.open("in.png") as original:
        there = np.asarray(back.convert("RGB"))
        if name != "h.jpg":
            assert np.array_equal(there, np.asarray(original.convert("RGB")))
    assert not opens(faceanon, target, "--exact", *OLD)
    assert not opens(faceanon, target, "--exact", "--identity", "eve.key")


def test_a_photo_that_was_anonymized_twice_leaves_what_the_key_does_not_open(faceanon, monkeypatch):
    hidden(faceanon, "h.png", *OLD)
    monkeypatch.setenv("SECOND", "second words")
    assert faceanon("anonymize", "h.png", "hh.png", "--again", "--password-env", "SECOND")[0] == 0
    code, out, _ = faceanon("rekey", "hh.png", "r.png", "--password-env", "SECOND", *TO_BOTH)
    assert code == 0
    assert "note: hh.png" in out
    assert "wrong password" in out
    assert opens(faceanon, "r.png", "--identity", "anna.key")
    shutil.copy("back.png", "once.png")
    assert opens(faceanon, "once.png", *OLD)
    # Under one password both records are for others now.
    assert faceanon("anonymize", "h.png", "hh.png", "--again", "--overwrite", *OLD)[0] == 0
    code, out, _ = faceanon("rekey", "hh.png", "s.png", *OLD, *TO_BOTH)
    assert (code, "note" in out) == (0, False)
    manifest = manifest_of_name("s.png")
    assert manifest.wrapped.count == manifest.earlier.wrapped.count == 2
    assert manifest.salt is manifest.earlier.salt is None


def test_a_wrong_key_writes_nothing(faceanon, tmp_path):
    hidden(faceanon, "h.png", *OLD)
    before = set(tmp_path.iterdir())
    refused(faceanon("rekey", "h.png", "r.png", "--password-env", "NEW", *TO_BOTH), "h.png: wrong password")
    refused(faceanon("rekey", "h.png", "r.png", "--identity", "anna.key", *NEW), "no identity opens it")
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("h.png", "r.png", *OLD), "say what is to open OUT"),
        (("h.png", "r.png", *OLD, "--to", "age1nobody"), "no key of a recipient"),
        (("h.png", "r.png", *OLD, "--to", "nowhere.pub"), "no key of a recipient, and no file"),
        (("h.png", "r.png", *OLD, "--to", "h.png"), "is it the right file"),
        (("h.png", "r.png", *OLD, "--to", "anna.key"), "secret key"),
        (("h.png", "r.png", *OLD, *NEW, "--new-password"), "not both"),
        (("h.png", "r.jpg", *OLD, *TO_BOTH), "must end in .png"),
        (("h.png", "h.png", *OLD, *TO_BOTH, "--overwrite"), "is the input itself"),
        (("h.png", "in.png", *OLD, *TO_BOTH), "exists"),
        (("in.png", "r.png", *OLD, *TO_BOTH), "carries no faceanon data"),
        (("none.png", "r.png", *OLD, *TO_BOTH), "no such file"),
        (("h.png", "r.png", "--identity", "none.key", *NEW), "cannot read the identity"),
        (("h.png", "r.png", "--identity", "anna.pub", *NEW), "is no identity"),
    ],
)
def test_wrong_words_are_one_line(faceanon, words, message):
    hidden(faceanon, "h.png", *OLD)
    refused(faceanon("rekey", *words), message)


def test_what_pixels_carry_would_still_open_so_it_is_refused(faceanon):
    hidden(faceanon, "h.png", *OLD, "--carry", "pixels")
    refused(faceanon("rekey", "h.png", "r.png", *OLD, *TO_BOTH), "--carry pixels")
    with Image.open("h.png") as image:
        Image.fromarray(np.asarray(image)).save("bare.png")
    refused(faceanon("rekey", "bare.png", "r.png", *OLD, *TO_BOTH), "--carry pixels")


def test_a_model_whose_key_made_the_pixels_is_refused(faceanon, tmp_path):
    Image.fromarray(PHOTO).save("in.png")
    keyed = Pipeline(KeyedTint(), FixedDetector(ALONE))
    anonymize_file(keyed, tmp_path / "in.png", tmp_path / "h.png", Password("old words"))
    refused(faceanon("rekey", "h.png", "r.png", *OLD, *TO_BOTH), "no sealed codes")


def test_a_damaged_file_is_one_line(faceanon):
    hidden(faceanon, "h.png", *OLD)
    data = Path("h.png").read_bytes()
    code = json.loads(manifest_of_name("h.png").to_json())["codes"][0].encode()
    place = data.index(code) + 40
    for name, changed in (
        ("cut.png", data[: len(data) // 2]),
        ("code.png", data[:place] + (b"A" if data[place : place + 1] != b"A" else b"B") + data[place + 1 :]),
    ):
        Path(name).write_bytes(changed)
        refused(faceanon("rekey", name, "r.png", *OLD, *TO_BOTH), name)


def test_a_folder_names_what_it_does_not_do(faceanon, tmp_path):
    for name in ("in/a.png", "in/deep/b.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        hidden(faceanon, name, *OLD)
    hidden(faceanon, "in/other.png", "--password-env", "NEW")
    (tmp_path / "in/readme.txt").write_text("x")
    code, out, _ = faceanon("rekey", "in", "out", *OLD, *TO_BOTH)
    assert code == 3
    assert "rekeyed 2 photo(s) for 2 recipient(s) -> out; 2 file(s) skipped" in out
    assert "other.png: wrong password" in out
    assert {p.name for p in (tmp_path / "out").rglob("*.*")} == {"a.png", "b.jpg"}
    assert faceanon("rekey", "in", "none", "--identity", "eve.key", *NEW)[0] == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_hundred_photos_in_ten_seconds(faceanon, backbone, tmp_path):
    """Equal pixels, the old key refused, either of two recipients opens, a third does not."""
    (tmp_path / "in").mkdir()
    pipe = Pipeline(backbone, FixedDetector(ALONE))
    # As a folder's run does: one salt for all. Argon2id at its full cost.
    password = Password("old words", kdf=KdfParameters("argon2id", 65536, 3, 4))
    Image.fromarray(PHOTO).save("in.png")
    for number in range(10):
        first = tmp_path / f"in/{number}0.png"
        anonymize_file(pipe, tmp_path / "in.png", first, password)
        for copy in range(1, 10):
            shutil.copy(first, tmp_path / f"in/{number}{copy}.png")
    # Of the processor, in all threads: what else runs on the machine does not count.
    start = time.process_time()
    code, out, _ = faceanon("rekey", "in", "out", *OLD, *TO_BOTH)
    seconds = time.process_time() - start
    assert code == 0
    assert "rekeyed 100 photo(s)" in out
    assert seconds < 10
    keys = set()
    for source in sorted((tmp_path / "in").iterdir()):
        target = tmp_path / "out" / source.name
        assert same_pixels(source, target)
        lock = manifest_of(target)[0].lock
        secret = Openers(identity=ANNA).open(lock, "x")
        assert secret == Openers(identity=BEN).open(lock, "x")
        keys.add(secret)
    assert len(keys) == 100
    assert opens(faceanon, "out/57.png", "--identity", "anna.key")
    assert opens(faceanon, "out/57.png", "--identity", "ben.key")
    refused(faceanon("recover", "out/57.png", "x.png", "--identity", "eve.key"), "does not open it")
    refused(faceanon("recover", "out/57.png", "x.png", *OLD), "no password opens it")


def test_a_sidecar_of_an_earlier_run_goes(faceanon, tmp_path):
    hidden(faceanon, "h.png", *OLD)
    hidden(faceanon, "s.png", *OLD, "--sidecar")
    shutil.copy("s.png", "r.png")
    shutil.copy(sidecar_of(tmp_path / "s.png"), sidecar_of(tmp_path / "r.png"))
    assert faceanon("rekey", "h.png", "r.png", *OLD, *TO_BOTH, "--overwrite")[0] == 0
    assert not sidecar_of(tmp_path / "r.png").exists()


def find_faces(faces):
    anonymize._pipeline().detector.detections = faces


def test_a_part_of_what_pixels_carry_would_still_open_so_it_is_refused(faceanon):
    five = [face_at(x, y, 14) for x, y in ((60, 60), (160, 60), (260, 60), (60, 160), (160, 160))]
    find_faces(five)
    hidden(faceanon, "h.png", *OLD, "--carry", "pixels")
    carrying = []
    for left, top in pixels._magics(load_photo("h.png").pixels):
        carrying.append([face for face in five if abs(face.box[0] - left) < 40 and abs(face.box[1] - top) < 40])
    assert len(carrying) > 1
    find_faces(carrying[0])
    assert faceanon("anonymize", "h.png", "hh.png", "--again", *OLD)[0] == 0
    shown = load_photo("hh.png")
    assert pixels.find(shown.pixels) is None
    refused(faceanon("rekey", "hh.png", "r.png", *OLD, *TO_BOTH), "--carry pixels")
    # Who turns it back has them again.
    write_photo(Path("turned.png"), replace(shown, pixels=np.rot90(shown.pixels)[:, ::-1].copy()))
    refused(faceanon("rekey", "turned.png", "r.png", *OLD, *TO_BOTH), "--carry pixels")
    assert not Path("r.png").exists()


@pytest.mark.parametrize("vault_with", ["h.png", "hh.png"])
def test_a_vault_that_fits_both_records_is_sealed_anew_once(faceanon, vault_with):
    for source, name in (("in.png", "h.png"), ("h.png", "hh.png")):
        more = ("--vault",) if name == vault_with else ()
        Image.fromarray(PHOTO).save("in.png")
        assert faceanon("anonymize", source, name, "--again", *OLD, *more)[0] == 0
    code, out, _ = faceanon("rekey", "hh.png", "r.png", *OLD, *TO_BOTH)
    assert (code, "note" in out) == (0, False)
    manifest = manifest_of_name("r.png")
    assert manifest.salt is manifest.earlier.salt is None
    assert not opens(faceanon, "r.png", *OLD)
    name = "r.png"
    if vault_with == "h.png":
        assert opens(faceanon, "r.png", "--identity", "ben.key")
        name = shutil.copy("back.png", "once.png")
    assert opens(faceanon, name, "--exact", "--identity", "ben.key")


def test_what_opens_first_opens_for_others_or_nothing_is_written(faceanon, monkeypatch):
    hidden(faceanon, "h.png", *OLD, "--vault")
    monkeypatch.setenv("SECOND", "second words")
    assert faceanon("anonymize", "h.png", "hh.png", "--again", "--password-env", "SECOND")[0] == 0
    refused(faceanon("rekey", "hh.png", "r.png", *OLD, *TO_BOTH), "hh.png: wrong password")
    assert not Path("r.png").exists()
    # The vault is that of the record which stays.
    code, out, _ = faceanon("rekey", "hh.png", "r.png", "--password-env", "SECOND", *TO_BOTH)
    assert code == 0
    notes = [line for line in out.splitlines() if line.startswith("note: hh.png: ")]
    assert len(notes) == 2
    assert "vault" in notes[1]
    assert [note.count("hh.png") for note in notes] == [1, 1]
    assert read_vault(Path("r.png")) == read_vault(Path("hh.png"))
    assert opens(faceanon, "r.png", "--identity", "anna.key")
    shutil.copy("back.png", "once.png")
    assert opens(faceanon, "once.png", "--exact", *OLD)


def test_a_folder_that_lies_in_out_is_not_written_over(faceanon, tmp_path):
    for name in ("n/b/x.png", "n/b/b/x.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    hidden(faceanon, "n/b/x.png", *OLD)
    shutil.copy("n/b/x.png", "n/b/b/x.png")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    refused(faceanon("rekey", "n/b", "n", *OLD, *TO_BOTH, "--overwrite"), "is itself an input")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.png")} == before


def test_where_all_faces_are_hidden_for_good_no_password_seems_right(faceanon):
    anonymize._pipeline().policy = Policy(min_face=200)
    hidden(faceanon, "h.png", *OLD)
    refused(faceanon("rekey", "h.png", "r.png", *NEW, *OLD), "h.png holds nothing that a key opens")
    assert not Path("r.png").exists()
    # A vault shows which one is.
    hidden(faceanon, "v.png", "--vault", *OLD)
    refused(faceanon("rekey", "v.png", "r.png", "--password-env", "NEW", *TO_BOTH), "v.png: wrong password")
    assert faceanon("rekey", "v.png", "r.png", *OLD, *TO_BOTH)[0] == 0
    assert opens(faceanon, "r.png", "--exact", "--identity", "anna.key")
    # Inside another record, and around another one: what opens decides.
    anonymize._pipeline().policy = Policy()
    assert faceanon("anonymize", "h.png", "hh.png", "--again", *OLD)[0] == 0
    hidden(faceanon, "g.png", *OLD)
    anonymize._pipeline().policy = Policy(min_face=200)
    assert faceanon("anonymize", "g.png", "gg.png", "--again", *NEW_OPENS)[0] == 0
    for number, name in enumerate(("hh.png", "gg.png")):
        refused(faceanon("rekey", name, "x.png", *NEW_OPENS, *TO_BOTH), f"{name}: wrong password")
        assert faceanon("rekey", name, f"{number}.png", *OLD, *TO_BOTH)[0] == 0


def test_a_wrong_password_for_a_film_leaves_no_folder(faceanon, monkeypatch, tmp_path):
    film = tmp_path / "film.mp4"
    film.write_bytes(b"film")
    right = Openers(Password("right", kdf=KdfParameters(memory_kib=64, iterations=1, lanes=1)))
    secret, lock = right.new_key()
    shared = Manifest("package.Method", "model", "ab" * 32, 64, 640, 480, layers=()).locked(lock)
    record = VideoRecord(shared, 1, (Segment(0, 0, np.array([[1000, 1000, 500, 0]], np.int32)),))
    with new_codes(film, record, secret) as writer:
        writer.add(0, 0, b"code")
        writer.save()
    monkeypatch.setattr("faceanon.pipeline.rekey.record_of", lambda path: (read_sidecar_record(sidecar_of(path)), ""))
    new = Openers(recipients=[ANNA.recipient])
    target = tmp_path / "new/film.mp4"
    with pytest.raises(UserError, match="wrong password"):
        rekey_film(film, target, Openers(Password("wrong")), new)
    assert not target.parent.exists()
    rekey_film(film, target, right, new)
    assert target.read_bytes() == b"film"
