"""A film with a signed manifest comes back, and holds no picture of its own."""

import pytest
from video_clips import call, face_at, film, use_tiny_model, write_clip

from camera_files import pictures_in
from faceanon.cli import main
from faceanon.errors import UserError
from faceanon.photo.c2pa import Credentials, is_signed
from faceanon.pipeline.video.mark import is_marked
from signers import check_manifest, needs_c2pa, write_signer

SHOTS, WHERE = film(6)
FACES = [[face_at(x, y, 16)] for x, y in WHERE]


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch):
    use_tiny_model(monkeypatch, FACES)


def words(folder, name):
    source = write_clip(folder / "in.mp4", SHOTS, metadata={"title": "Anna"})
    return "anonymize", source, folder / name, "--every", 1, "--c2pa", *write_signer(folder)


@needs_c2pa
@pytest.mark.parametrize("name", ["out.mp4", "out.mov"])
def test_a_signed_film_comes_back_and_holds_no_picture(tmp_path, capsys, name):
    target = tmp_path / name
    assert call(*words(tmp_path, name)) == 0
    check_manifest(target)
    assert is_marked(target)
    data = target.read_bytes()
    assert pictures_in(data) == 0
    assert b"Anna" not in data
    assert main(["inspect", str(target)]) == 0
    assert "C2PA:          a manifest that fits" in capsys.readouterr().out
    assert call("recover", target, tmp_path / "back.mp4") == 0
    assert not is_signed((tmp_path / "back.mp4").read_bytes())
    assert {path.name for path in tmp_path.iterdir()} == {"in.mp4", name, "back.mp4", "chain.pem", "key.pem"}


@needs_c2pa
def test_a_film_that_c2pa_does_not_sign_is_one_line(tmp_path, capsys):
    assert call(*words(tmp_path, "out.mkv")) == 2
    said = capsys.readouterr().err
    assert said.endswith("out.mkv: C2PA does not sign this kind of film; write .mp4 or .mov, or leave --c2pa away\n")
    assert said.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"in.mp4", "chain.pem", "key.pem"}


@needs_c2pa
def test_nothing_stays_of_a_film_that_cannot_be_signed(tmp_path, capsys, monkeypatch):
    works = Credentials.sign

    def fails(self, source, target, path):
        if path.name != "out.mp4":
            return works(self, source, target, path)
        target.write(b"half")
        raise UserError(f"cannot sign {path.name}: no")

    monkeypatch.setattr(Credentials, "sign", fails)
    assert call(*words(tmp_path, "out.mp4")) == 2
    assert "cannot sign out.mp4: no\n" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"in.mp4", "chain.pem", "key.pem"}
