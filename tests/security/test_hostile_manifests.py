"""Manifests from outside, in pictures and beside them: right, or one line; and nothing of another's disk is touched."""

import json

import numpy as np
import pytest
from hostile import PLAIN, altered, asked, fuzz, mutated
from hypothesis import example, given

from faceanon.errors import UserError
from faceanon.key import KdfParameters
from faceanon.manifest import CropGeometry, HiddenFace, Manifest
from faceanon.photo.file import LoadedPhoto, load_photo, read_manifest, write_photo
from faceanon.photo.metadata import MAX_TEXT_BYTES, sidecar_of

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
FACES = (CropGeometry(5.25, 5.5, 3, 1),)
MANIFEST = Manifest(
    "a.B", "m", "ab" * 32, 64, 20, 10, (FACES,), bytes(16), CHEAP, (HiddenFace((1.0, 2.0, 3.0, 4.0), "blur"),)
)
VALUES = json.loads(MANIFEST.to_json())
NAMES = (*VALUES, *VALUES["kdf"], "center_x", "axis_y", "box", 0)


def read(text):
    """Whatever is read says the same when it is written again."""
    found = asked(Manifest.from_json, text)
    assert found is None or Manifest.from_json(found.to_json()) == found
    return found


@fuzz(100)
@given(altered(VALUES, NAMES))
def test_altered_manifests(values):
    read(json.dumps(values))


@fuzz(60)
@given(PLAIN)
def test_json_that_is_no_manifest(values):
    assert read(json.dumps(values)) is None


@fuzz(100)
@given(mutated([MANIFEST.to_json().encode()]))
@example(b"[" * 100_000)
@example(b'{"version": ' + b"9" * 5000 + b"}")
@example(b'{"version": 1e999}')
def test_mutated_text(data):
    read(data.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    ("name", "value"), [("center_x", 10**400), ("axis_x", -(10**400)), ("center_y", 1e400), ("axis_y", float("nan"))]
)
def test_numbers_beyond_any_float(name, value):
    """A whole number that fits no float once ended in an OverflowError."""
    values = json.loads(MANIFEST.to_json())
    values["layers"][0][0][name] = value
    with pytest.raises(UserError, match=name):
        Manifest.from_json(json.dumps(values))


def test_the_unaltered_manifest_is_read():
    assert read(MANIFEST.to_json()) == MANIFEST


@fuzz(25)
@given(altered(VALUES, NAMES))
def test_a_picture_with_an_altered_sidecar(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("sidecar")
    path = folder / "a.png"
    write_photo(path, LoadedPhoto(np.zeros((10, 20, 3), np.uint8)))
    sidecar_of(path).write_text(json.dumps(values), encoding="utf-8", errors="surrogatepass")
    asked(lambda: read_manifest(load_photo(path)))
    assert {item.name for item in folder.iterdir()} == {path.name, sidecar_of(path).name}


@pytest.mark.parametrize("data", [b"\xff\xfe\0", b"", b" " * (MAX_TEXT_BYTES + 1)], ids=["utf8", "empty", "large"])
def test_sidecars_that_are_no_text(tmp_path, data):
    path = tmp_path / "a.png"
    write_photo(path, LoadedPhoto(np.zeros((10, 20, 3), np.uint8)))
    sidecar_of(path).write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_manifest(load_photo(path))
    assert "\n" not in str(caught.value)
