"""Mutated PNG, JPEG and WebP bytes: pixels and a manifest, or one line; never more, never a crash."""

import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hostile import asked, fuzz, mutated
from hypothesis import given
from PIL import Image
from test_hostile_manifests import MANIFEST

from faceanon.data.files import read_photo
from faceanon.errors import UserError
from faceanon.photo.decode import MAX_PIXELS, decode_bytes, opened
from faceanon.photo.file import load_photo, read_manifest, read_vault, write_photo
from faceanon.photo.metadata import Inside, encode
from odd_files import face, png, saved

PIXELS = np.asarray(face((20, 10)))
SEEDS = {
    "png": encode(PIXELS, None, None, Path("a.png"), None, Inside(MANIFEST.to_json(), b"a vault that is none")),
    "jpg": encode(PIXELS, None, None, Path("a.jpg"), None, Inside(MANIFEST.to_json())),
    "webp": encode(PIXELS, None, None, Path("a.webp"), None, Inside(MANIFEST.to_json())),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pictures")


def open_all(path):
    """Every way in which a picture file is read."""
    loaded = asked(load_photo, path)
    if loaded is not None:
        assert loaded.pixels.dtype == np.uint8
        assert loaded.pixels.shape[0] * loaded.pixels.shape[1] <= MAX_PIXELS
        asked(read_manifest, loaded)
        again = path.with_name(f"again{path.suffix}")
        write_photo(again, loaded)
        assert load_photo(again).pixels.shape == loaded.pixels.shape
        again.unlink()
    asked(read_vault, path)
    small = asked(read_photo, path, 8)
    assert small is None or small[0].shape == (8, 8, 3)


def correct_checksums(data):
    """PNG chunks with their checksums made right, so that mutations reach the code behind them."""
    out, at = bytearray(data[:8]), 8
    while at + 12 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        length = min(length, len(data) - at - 12)
        body = data[at + 4 : at + 8 + length]
        out += struct.pack(">I", length) + body + struct.pack(">I", zlib.crc32(body))
        at += 12 + length
    return bytes(out)


def check(folder, kind, data):
    path = folder / f"a.{kind}"
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning would be a second line on the user's terminal
        warnings.filterwarnings("ignore", "unclosed", ResourceWarning)
        open_all(path)
    assert [item.name for item in folder.iterdir()] == [path.name]
    path.unlink()


@fuzz(70)
@given(data=mutated([SEEDS["png"], saved(face((9, 9)).convert("LA"), "png")]))
def test_mutated_png(folder, data):
    check(folder, "png", data)
    check(folder, "png", correct_checksums(data))


@fuzz(70)
@given(
    data=mutated(
        [
            SEEDS["jpg"],
            saved(face((9, 9)).convert("CMYK"), "jpg"),
            saved(face((9, 9)), "jpg", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"),
        ]
    )
)
def test_mutated_jpeg(folder, data):
    check(folder, "jpg", data)


@fuzz(50)
@given(data=mutated([SEEDS["webp"], saved(face((9, 9)).convert("RGBA"), "webp")]))
def test_mutated_webp(folder, data):
    check(folder, "webp", data)


@pytest.mark.parametrize("kind", SEEDS)
def test_the_unmutated_files_are_right(folder, kind):
    path = folder / f"whole.{kind}"
    path.write_bytes(SEEDS[kind])
    assert read_manifest(load_photo(path)) == MANIFEST
    assert decode_bytes(SEEDS[kind]).pixels.shape == (10, 20, 3)
    path.unlink()


def test_a_large_picture_is_refused_before_it_is_decoded(tmp_path):
    path = tmp_path / "wall.png"
    path.write_bytes(png(9000, 9000, 8, 0))
    with pytest.raises(UserError, match="million pixels"):
        load_photo(path)


def test_what_is_opened_is_closed(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (4, 4)).save(path)
    with opened(path) as image:
        kept = image
    with pytest.raises((ValueError, AttributeError)):
        kept.fp.read()
    assert io.BytesIO(path.read_bytes()).read(4) == b"\x89PNG"
