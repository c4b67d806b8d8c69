import errno
import json
import os
from dataclasses import replace

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from faceanon.errors import UserError
from faceanon.key import KdfParameters
from faceanon.manifest import MOST_RECORDS, CropGeometry, Manifest
from faceanon.photo import decode as module
from faceanon.photo.file import LoadedPhoto, load_photo, read_manifest, to_image, write_photo

MANIFEST = Manifest(
    method="a.B",
    model="tiny",
    weights="ab" * 32,
    image_size=64,
    width=20,
    height=10,
    layers=((CropGeometry(5, 5, 3, 1), CropGeometry(15.5, 5, 3, 0)), (CropGeometry(7, 5, 3, 0),)),
    salt=bytes(range(16)),
    kdf=KdfParameters(),
)
PIXELS = np.random.default_rng(0).integers(0, 256, (10, 20, 3), dtype=np.uint8)


def test_manifest_survives_a_png(tmp_path):
    path = tmp_path / "new" / "a.png"
    write_photo(path, LoadedPhoto(PIXELS, MANIFEST.to_json()))
    loaded = load_photo(path)
    np.testing.assert_array_equal(loaded.pixels, PIXELS)
    assert read_manifest(loaded) == MANIFEST
    assert read_manifest(load_photo(Image.open(path))) == MANIFEST
    assert to_image(loaded).info["faceanon"] == MANIFEST.to_json()
    assert [file.name for file in path.parent.iterdir()] == ["a.png"]


def change(**entries):
    return json.loads(MANIFEST.to_json()) | entries


FACE = MANIFEST.layers[0][0].to_dict()


@pytest.mark.parametrize(
    "values",
    [
        change(version=3),
        change(version=True),
        change(version=4.0),
        change(signature=None),
        change(signature="no base64!"),
        change(signature="A" * 10_000),
        change(earlier=[]),
        change(earlier={}),
        change(earlier=change(earlier=change(width=0))),
        change(hidden=1),
        change(hidden=[{"box": [1, 2, 3], "by": "blur"}]),
        change(hidden=[{"box": [1, 2, 3, 4], "by": 5}]),
        change(encoding=None),
        change(extra=1),
        {key: value for key, value in change().items() if key != "layers"},
        change(layers=[]),
        change(layers=[[]]),
        change(layers=[[FACE | {"axis_x": float("nan")}]]),
        change(layers=[[FACE | {"axis_x": 1e12}]]),
        change(layers=[[FACE | {"axis_x": 0, "axis_y": 0}]]),
        change(layers=[[FACE | {"center_x": "5"}]]),
        change(layers=[[{"center_x": 5}]]),
        change(layers=[[FACE] * 10_001]),
        change(weights="xyz"),
        change(weights=None),
        change(salt="00"),
        change(salt=None),
        change(kdf={"name": "argon2id"}),
        change(kdf=KdfParameters().to_dict() | {"memory_kib": 1 << 40}),
        change(image_size=10**9),
        change(width=0),
        change(model="a\nb"),
        [1],
    ],
)
def test_damaged_manifest_is_refused(values):
    with pytest.raises(UserError, match=r"manifest|key derivation") as caught:
        Manifest.from_json(json.dumps(values))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_manifest_keeps_earlier_ones_up_to_a_depth():
    manifest = MANIFEST
    for _ in range(MOST_RECORDS - 1):
        manifest = replace(manifest, earlier=manifest)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert manifest.records == MOST_RECORDS
    with pytest.raises(UserError, match="inside each other"):
        Manifest.from_json(replace(manifest, earlier=manifest).to_json())


def test_text_that_is_no_json_is_refused():
    for text in ("", "{", "[" * 100_000):
        with pytest.raises(UserError, match="manifest"):
            Manifest.from_json(text)


def test_foreign_pictures_are_named(tmp_path):
    path = tmp_path / "small.png"
    Image.fromarray(PIXELS).save(path)
    with pytest.raises(UserError, match=r"small\.png carries no faceanon data"):
        read_manifest(load_photo(path))


def test_exif_is_applied_and_dropped(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn right by 90 degrees
    exif[0x010E] = "taken at home"
    Image.fromarray(PIXELS).save(tmp_path / "in.png", exif=exif)
    loaded = load_photo(tmp_path / "in.png")
    np.testing.assert_array_equal(loaded.pixels, np.rot90(PIXELS, -1))
    write_photo(tmp_path / "out.png", loaded)
    assert b"home" not in (tmp_path / "out.png").read_bytes()
    np.testing.assert_array_equal(load_photo(tmp_path / "out.png").pixels, loaded.pixels)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "CMYK", "I;16", "RGBA", "YCbCr"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    grey = np.full((8, 9), 255, dtype=np.uint8)
    if mode == "I;16":
        image = Image.fromarray(np.full((8, 9), 65535, dtype=np.uint16))
    else:
        image = Image.fromarray(grey).convert("RGB").convert(mode)
    path = tmp_path / {"CMYK": "a.tif", "YCbCr": "a.jpg"}.get(mode, "a.png")
    image.save(path)
    pixels = load_photo(path).pixels
    assert pixels.shape == (8, 9, 3)
    assert pixels.dtype == np.uint8
    assert pixels.min() >= 254


def test_transparent_is_white():
    assert (load_photo(Image.new("RGBA", (4, 4), (9, 9, 9, 0))).pixels == 255).all()


def test_arrays_are_copied_and_checked():
    loaded = load_photo(PIXELS)
    loaded.pixels[:] = 0
    assert PIXELS.any()
    for bad in (PIXELS.astype(np.float32), PIXELS[..., 0], PIXELS[:0], np.zeros((4, 4, 4), dtype=np.uint8)):
        with pytest.raises(UserError, match="must be"):
            load_photo(bad)


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "webp"])
def test_truncated_file_is_named(tmp_path, suffix):
    path = tmp_path / f"cut.{suffix}"
    noise = np.random.default_rng(1).integers(0, 256, (80, 80, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=rf"cut\.{suffix}"):
        load_photo(path)


def test_unreadable_files_are_named(tmp_path):
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "empty.png").touch()
    for name in ("text.png", "empty.png", "missing.png"):
        with pytest.raises(UserError, match=name):
            load_photo(tmp_path / name)
    with pytest.raises(UserError, match="cannot be read"):
        load_photo(tmp_path)


def test_huge_pictures_are_refused_before_decoding(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PIXELS", 100)
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png has more than"):
        load_photo(tmp_path / "a.png")


def test_only_formats_that_carry_a_manifest_are_written(tmp_path):
    with pytest.raises(UserError, match=r"must be a \.png"):
        write_photo(tmp_path / "a.bmp", LoadedPhoto(PIXELS))
    assert not list(tmp_path.iterdir())


def test_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="no space"):
        write_photo(path, LoadedPhoto(PIXELS))
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_a_heic_is_turned_once_and_shows_its_primary_picture(tmp_path):
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:20, :30] = 250
    views = pillow_heif.HeifFile()
    views.add_from_pillow(Image.new("RGB", (32, 32), "red"))
    views.add_from_pillow(Image.fromarray(pixels))
    views.save(tmp_path / "live.heic", quality=95, primary_index=1)
    live = load_photo(tmp_path / "live.heic").pixels
    assert live.shape == (40, 60, 3)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: what is bright at the top left comes to the top right
    pillow_heif.from_pillow(Image.fromarray(pixels)).save(tmp_path / "turned.heic", exif=exif.tobytes(), quality=95)
    turned = load_photo(tmp_path / "turned.heic").pixels
    assert turned.shape == (60, 40, 3)
    assert turned[10, 30].min() > 200
    assert turned[10, 10].max() < 50


def test_a_heic_of_ten_bits_is_read(tmp_path):
    ramp = np.linspace(0, 65535, 64).astype(np.uint16)
    wide = np.broadcast_to(ramp[None, :, None], (64, 64, 3))
    pillow_heif.encode("RGB;16", (64, 64), wide.tobytes(), tmp_path / "wide.heic", quality=-1)
    shown = load_photo(tmp_path / "wide.heic").pixels.astype(int)
    assert np.abs(shown - (wide >> 8)).max() <= 4


def test_a_jpeg_carries_manifests_that_fill_several_segments(tmp_path):
    for length in (10, 60_000, 70_000, 400_000):
        text = "<&é" * (length // 3)
        write_photo(tmp_path / "a.jpg", LoadedPhoto(np.zeros((16, 16, 3), np.uint8), text))
        assert load_photo(tmp_path / "a.jpg").manifest == text
