"""`--c2pa`: results with a signed manifest that holds no picture, as the commands are typed."""

import io
import sys

import numpy as np
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from PIL import Image

from camera_files import SECRETS, pictures_in, write_camera_photo
from faceanon.errors import UserError
from faceanon.photo.c2pa import Credentials, is_signed, read_credentials
from faceanon.photo.file import load_photo
from signers import check_manifest, needs_c2pa, write_key, write_signer
from test_pipeline import PHOTO

NAMES = ["b.png", "b.jpg", "b.webp"]
OLD = ("--password-env", "OLD")


@pytest.fixture
def faceanon(in_process, monkeypatch, tmp_path):
    monkeypatch.delenv("FACEANON_PASSWORD", raising=False)
    monkeypatch.setenv("OLD", "old words")
    monkeypatch.setenv("NEW", "new words")
    monkeypatch.chdir(tmp_path)
    write_signer(tmp_path)
    write_camera_photo(tmp_path / "a.jpg", Image.fromarray(PHOTO))
    return in_process


def signed(faceanon, name, *more):
    code, _, err = faceanon("anonymize", "a.jpg", name, "--c2pa", "chain.pem", "key.pem", *OLD, *more)
    assert code == 0, err


@needs_c2pa
@pytest.mark.parametrize("more", [(), ("--sidecar",), ("--vault",)], ids=["inside", "sidecar", "vault"])
@pytest.mark.parametrize("name", NAMES)
def test_a_signed_photo_comes_back_and_holds_no_picture(faceanon, tmp_path, name, more):
    signed(faceanon, name, *more)
    check_manifest(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    assert pictures_in(data) == 1
    assert [secret for secret in SECRETS if secret in data] == []
    assert "C2PA:          a manifest that fits" in faceanon("inspect", name)[1]
    code, _, err = faceanon("recover", name, f"c{name}", *OLD)
    assert code == 0, err
    assert not is_signed((tmp_path / f"c{name}").read_bytes())
    original, drawn, back = (load_photo(path).pixels.astype(float) for path in ("a.jpg", name, f"c{name}"))
    assert np.abs(back - original).max() < np.abs(drawn - original).max()


@needs_c2pa
def test_inspect_sees_that_a_signed_photo_was_changed(faceanon, tmp_path):
    signed(faceanon, "b.jpg")
    data = bytearray((tmp_path / "b.jpg").read_bytes())
    data[-10] ^= 1  # among the pixels
    (tmp_path / "b.jpg").write_bytes(data)
    assert "C2PA:          a manifest that does not fit the file" in faceanon("inspect", "b.jpg")[1]


@needs_c2pa
@pytest.mark.parametrize("name", NAMES)
def test_rekey_takes_the_manifest_off(faceanon, tmp_path, name):
    signed(faceanon, name)
    code, out, err = faceanon("rekey", name, f"c{name}", *OLD, "--new-password-env", "NEW")
    assert code == 0, err
    assert out.count("its C2PA manifest is gone") == 1
    assert not is_signed((tmp_path / f"c{name}").read_bytes())
    assert "C2PA" not in faceanon("inspect", f"c{name}")[1]
    assert faceanon("recover", f"c{name}", "d.png", "--password-env", "NEW")[0] == 0


@needs_c2pa
@pytest.mark.parametrize("name", NAMES)
def test_rekey_of_data_beside_a_photo_leaves_it_signed(faceanon, tmp_path, name):
    signed(faceanon, name, "--sidecar")
    code, out, err = faceanon("rekey", name, f"c{name}", *OLD, "--new-password-env", "NEW")
    assert code == 0, err
    assert "C2PA" not in out
    check_manifest(tmp_path / f"c{name}")


@needs_c2pa
def test_a_folder_is_signed_and_keeps_to_its_signer(faceanon, tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "b.jpg"):
        write_camera_photo(tmp_path / "in" / name, Image.fromarray(PHOTO))
    words = "anonymize", "in", "out", "--format", "jpg", *OLD
    code, _, err = faceanon(*words, "--c2pa", "chain.pem", "key.pem")
    assert code == 0, err
    for name in ("a.jpg", "b.jpg"):
        check_manifest(tmp_path / "out" / name)
    assert "give the same again" in faceanon(*words)[2]
    write_signer(tmp_path)
    assert "give the same again" in faceanon(*words, "--c2pa", "chain.pem", "key.pem")[2]


@needs_c2pa
def test_nothing_stays_of_a_photo_that_cannot_be_signed(faceanon, tmp_path, monkeypatch):
    works = Credentials.sign

    def fails(self, source, target, path):
        if path.name != "b.png":
            return works(self, source, target, path)
        target.write(b"half")
        raise UserError(f"cannot sign {path}: no")

    monkeypatch.setattr(Credentials, "sign", fails)
    before = set(tmp_path.iterdir())
    code, _, err = faceanon("anonymize", "a.jpg", "b.png", "--sidecar", "--c2pa", "chain.pem", "key.pem", *OLD)
    assert (code, err) == (2, "faceanon: cannot sign b.png: no\n")
    assert set(tmp_path.iterdir()) == before


def other_key(folder):
    write_key(folder / "key.pem")


def locked_key(folder):
    write_key(folder / "key.pem", passphrase=b"hush")


def no_key(folder):
    (folder / "key.pem").write_bytes((folder / "chain.pem").read_bytes())


def no_key_file(folder):
    (folder / "key.pem").unlink()


def no_certificates(folder):
    (folder / "chain.pem").write_bytes((folder / "key.pem").read_bytes())


def other_purpose(folder):
    write_signer(folder, purpose=ExtendedKeyUsageOID.SERVER_AUTH)


def too_old(folder):
    write_signer(folder, age=40)


@needs_c2pa
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (other_key, "key.pem does not fit the first certificate of chain.pem"),
        (locked_key, "key.pem is protected by a passphrase"),
        (no_key, "key.pem holds no private key in PEM"),
        (no_key_file, "cannot read key.pem: No such file or directory"),
        (no_certificates, "chain.pem holds no certificates in PEM"),
        (other_purpose, "C2PA does not accept chain.pem: the certificate"),
        (too_old, "C2PA does not accept chain.pem: the certificate was not valid at time of signing"),
    ],
)
def test_what_cannot_sign_is_one_line_before_anything_is_done(faceanon, tmp_path, spoil, said):
    spoil(tmp_path)
    before = set(tmp_path.iterdir())
    code, out, err = faceanon("anonymize", "a.jpg", "b.png", "--c2pa", "chain.pem", "key.pem", *OLD)
    assert (code, out) == (2, "")
    assert err.startswith(f"faceanon: {said}")
    assert err.count("\n") == 1
    assert set(tmp_path.iterdir()) == before


def test_without_the_package_it_is_named(faceanon, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "c2pa", None)
    code, _, err = faceanon("anonymize", "a.jpg", "b.png", "--c2pa", "chain.pem", "key.pem", *OLD)
    assert (code, err) == (2, "faceanon: --c2pa needs the package c2pa-python: pip install 'faceanon[c2pa]'\n")


@needs_c2pa
def test_the_key_is_shown_nowhere_and_written_nowhere(tmp_path):
    credentials = read_credentials(*write_signer(tmp_path))
    assert "PRIVATE" not in repr(credentials)
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    assert b"PRIVATE" not in credentials.signed(picture.getvalue(), tmp_path / "a.png")
