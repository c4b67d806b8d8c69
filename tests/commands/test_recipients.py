"""`keys`, `anonymize --to` and `recover --identity`: photos and folders that open for recipients."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from faceanon.photo.file import load_photo
from faceanon.photo.manifests import manifest_of
from faceanon.pipeline.many.journal import JOURNAL_NAME
from faceanon.sealed.recipients import Identity
from test_pipeline import PHOTO
from torchless import without_torch

ANNA, BEN = Identity.new(), Identity.new()
WORDS = "words of the passphrase"


@pytest.fixture
def faceanon(in_process, monkeypatch, tmp_path):
    """Run a command in this process; gives exit code, output and error output."""
    monkeypatch.delenv("FACEANON_PASSWORD", raising=False)
    monkeypatch.setenv("PW", "right words")
    for name, identity in (("anna", ANNA), ("ben", BEN)):
        (tmp_path / f"{name}.key").write_text(identity.secret_text())
        (tmp_path / f"{name}.pub").write_text(f"{identity.recipient}\n")
    Image.fromarray(PHOTO).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    return in_process


def refused(answer, message):
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.startswith("faceanon: ")
    assert err.count("\n") == 1
    assert message in err


def test_two_recipients_and_no_password(faceanon, tmp_path, monkeypatch):
    # Set by habit: a file for recipients does not open with it all the same.
    monkeypatch.setenv("FACEANON_PASSWORD", "of other files")
    assert faceanon("anonymize", "a.png", "h.png", "--to", "anna.pub", "--to", BEN.recipient, "--vault")[0] == 0
    for name in ("anna", "ben"):
        assert faceanon("recover", "h.png", f"{name}.png", "--identity", f"{name}.key")[0] == 0
    assert np.array_equal(load_photo("anna.png").pixels, load_photo("ben.png").pixels)
    assert faceanon("recover", "h.png", "exact.png", "--exact", "--identity", "ben.key")[0] == 0
    assert np.array_equal(load_photo("exact.png").pixels, PHOTO)
    refused(faceanon("recover", "h.png", "x.png"), "no password opens it")
    _, out, _ = faceanon("inspect", "h.png")
    assert "sealed for 2 recipient(s)" in out
    assert "salt" not in out
    shown = json.loads(faceanon("inspect", "--json", "h.png")[1])
    assert (shown["salt"], set(shown["wrapped"])) == (None, {"recipients", "password"})
    for text in (out, json.dumps(shown)):
        assert ANNA.recipient not in text


def test_a_password_beside_recipients_opens_too(faceanon):
    assert faceanon("anonymize", "a.png", "h.png", "--to", "anna.pub", "--password-env", "PW")[0] == 0
    assert faceanon("recover", "h.png", "b.png", "--password-env", "PW")[0] == 0
    assert faceanon("recover", "h.png", "c.png", "--identity", "anna.key")[0] == 0
    refused(faceanon("recover", "h.png", "x.png", "--identity", "ben.key"), "the identity does not open it")
    assert "for 1 recipient(s) and for a password with salt" in faceanon("inspect", "h.png")[1]


def test_deniable_is_for_passwords_alone_and_says_why(faceanon, tmp_path):
    faceanon("anonymize", "a.png", "h.png", "--to", "anna.pub", "--password-env", "PW")
    before = set(tmp_path.iterdir())
    refused(
        faceanon("recover", "h.png", "x.png", "--deniable", "--password-env", "PW"), "holds a sealed key, which tells"
    )
    refused(
        faceanon("recover", "h.png", "x.png", "--deniable", "--identity", "anna.key"), "--deniable is for passwords"
    )
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--to", "age1none"), "no key of a recipient"),
        (("--to", "nobody"), "no key of a recipient, and no file"),
        (("--to", "anna.key"), "secret key"),
        (("--to", ANNA.secret_text()), "secret key"),
        (("--to", "empty.pub"), "holds no key"),
    ],
)
def test_a_recipient_that_is_none_is_one_line(faceanon, tmp_path, words, message):
    (tmp_path / "empty.pub").write_text("# nobody yet\n")
    before = set(tmp_path.iterdir())
    answer = faceanon("anonymize", "a.png", "h.png", *words)
    refused(answer, message)
    assert ANNA.secret_text()[20:40] not in answer[2]
    assert set(tmp_path.iterdir()) == before


def test_a_folder_gives_each_file_a_key_of_its_own_and_resumes_for_the_same_people_only(faceanon, tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("1.png", "2.png"):
        Image.fromarray(PHOTO).save(tmp_path / "in" / name)
    assert faceanon("anonymize", "in", "out", "--to", "anna.pub", "--to", "ben.pub")[0] == 0
    one, two = (manifest_of(tmp_path / "out" / name)[0] for name in ("1.png", "2.png"))
    assert one.wrapped != two.wrapped
    # Each file's own key chooses the strangers, so one person becomes two of them.
    assert not np.array_equal(load_photo("out/1.png").pixels, load_photo("out/2.png").pixels)
    assert ANNA.recipient not in (tmp_path / "out" / JOURNAL_NAME).read_text()
    Image.fromarray(PHOTO).save(tmp_path / "in/3.png")
    refused(faceanon("anonymize", "in", "out", "--to", "anna.pub"), "to")
    assert faceanon("anonymize", "in", "out", "--to", "ben.pub", "--to", "anna.pub")[0] == 0
    assert faceanon("recover", "out", "back", "--identity", "ben.key")[0] == 0
    assert len(list((tmp_path / "back").glob("*.png"))) == 3


def test_a_folder_with_a_password_beside_notices_another_one(faceanon, tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    Image.fromarray(PHOTO).save(tmp_path / "in/1.png")
    words = ("anonymize", "in", "out", "--to", "anna.pub", "--password-env", "PW")
    assert faceanon(*words)[0] == 0
    Image.fromarray(PHOTO).save(tmp_path / "in/2.png")
    monkeypatch.setenv("PW", "other words")
    refused(faceanon(*words), "another password")
    monkeypatch.setenv("PW", "right words")
    assert faceanon(*words)[0] == 0


def test_the_same_stranger_needs_a_secret_that_the_sender_keeps(faceanon, tmp_path):
    (tmp_path / "in").mkdir()
    Image.fromarray(PHOTO).save(tmp_path / "in/1.png")
    refused(faceanon("anonymize", "in", "out", "--same-stranger", "--to", "anna.pub"), "--password-file FILE")


def test_a_file_of_recipients_has_lost_its_key_with_its_metadata(faceanon):
    faceanon("anonymize", "a.png", "h.png", "--to", "anna.pub")
    with Image.open("h.png") as image:
        Image.fromarray(np.asarray(image)).save("bare.png")
    words = ("recover", "bare.png", "x.png", "--like", "h.png", "--identity", "anna.key")
    refused(faceanon(*words), "--like cannot help")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_recipients_without_torch_as_a_user_would(tmp_path):
    """A new identity under a passphrase, the shipped model, a photo for its owner; other words and people refused."""
    from faceanon.photo.party import photo_party

    photo_party().save(tmp_path / "in.png")
    key, hidden, back = tmp_path / "anna.key", tmp_path / "h.png", tmp_path / "b.png"
    made = without_torch("keys", "new", key, password=WORDS)
    assert made.returncode == 0, made.stderr
    assert made.stdout == (tmp_path / "anna.key.pub").read_text()
    assert made.stdout.startswith("age1")
    assert key.stat().st_mode & 0o077 == 0
    done = without_torch("anonymize", tmp_path / "in.png", hidden, "--to", f"{key}.pub", password="")
    assert done.returncode == 0, done.stderr
    wrong = without_torch("recover", hidden, back, "--identity", key, password="other words")
    assert (wrong.returncode, wrong.stdout, back.exists()) == (2, "", False)
    assert "wrong passphrase" in wrong.stderr
    right = without_torch("recover", hidden, back, "--identity", key, password=WORDS)
    assert right.returncode == 0, right.stderr
    moved = without_torch("rekey", hidden, tmp_path / "r.png", "--identity", key, "--to", BEN.recipient, password=WORDS)
    assert moved.returncode == 0, moved.stderr
    late = without_torch("recover", tmp_path / "r.png", tmp_path / "c.png", "--identity", key, password=WORDS)
    assert late.returncode == 2
    assert late.stderr.count("\n") == 1
    again = without_torch("keys", "new", key, password=WORDS)
    assert again.returncode == 2
    assert "exists" in again.stderr
    for run in (made, done, wrong, right, moved, late, again):
        assert WORDS not in run.stdout + run.stderr
        assert "AGE-SECRET-KEY" not in run.stdout + run.stderr


def test_no_terminal_and_no_passphrase_is_one_line(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "FACEANON_PASSWORD"}
    done = subprocess.run(
        [sys.executable, "-m", "faceanon", "keys", "new", str(tmp_path / "a.key")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
