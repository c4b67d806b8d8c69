"""PNG, JPEG, WebP and a sidecar carry the manifest; recovery works from each, as well as its pixels allow."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageCms

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.manifest import CropGeometry, Manifest
from faceanon.photo.detect import Detection
from faceanon.photo.file import LoadedPhoto, load_photo, read_manifest, write_photo
from faceanon.photo.manifests import manifest_like, manifest_of
from faceanon.photo.metadata import sidecar_of
from faceanon.pipeline import Pipeline, anonymize_file, recover_file
from faceanon.pipeline.tasks import Output
from fakes import FixedDetector, KeyedTint

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
FACES = tuple(CropGeometry(5.25, 5 + index / 7, 3, 1) for index in range(20))
MANIFEST = Manifest("a.B", "t<i>ny & co", "ab" * 32, 64, 20, 10, (FACES,), bytes(16), CHEAP)


def smooth(size=(64, 64), seed=0):
    noise = np.random.default_rng(seed).integers(40, 216, (4, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)).copy()


def psnr(one, other):
    return 10 * np.log10(255**2 / max(np.square(one.astype(float) - other).mean(), 1e-9))


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.JPEG", "a.webp"])
def test_every_format_carries_the_manifest(tmp_path, name):
    path, pixels = tmp_path / name, smooth((20, 10))
    write_photo(path, LoadedPhoto(pixels, MANIFEST.to_json()))
    loaded = load_photo(path)
    assert read_manifest(loaded) == MANIFEST
    assert manifest_of(path) == (MANIFEST, "in the file")
    assert psnr(loaded.pixels, pixels) > (35 if "j" in name.lower() else 90)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp"])
def test_a_sidecar_leaves_the_picture_bare(tmp_path, name):
    path = tmp_path / name
    write_photo(path, LoadedPhoto(smooth((20, 10)), MANIFEST.to_json()), sidecar=True)
    assert b"weights" not in path.read_bytes()
    assert read_manifest(load_photo(path)) == MANIFEST
    assert manifest_like(tmp_path) == manifest_of(sidecar_of(path))[0] == MANIFEST
    write_photo(path, LoadedPhoto(smooth((20, 10))))
    assert not sidecar_of(path).exists()


@pytest.mark.parametrize(("name", "quality", "least"), [("b.jpg", None, 32), ("b.jpg", 75, 28), ("b.webp", None, 38)])
def test_recovery_from_a_stated_quality(tmp_path, name, quality, least):
    Image.fromarray(smooth()).save(tmp_path / "a.png")
    pipe, secret = Pipeline(KeyedTint(), FixedDetector([])), Password("hush", bytes(16), CHEAP)
    anonymize_file(pipe, tmp_path / "a.png", tmp_path / name, secret, aligned=True, output=Output(quality))
    hidden = load_photo(tmp_path / name)
    expected = {("b.jpg", None): "JPEG 95", ("b.jpg", 75): "JPEG 75", ("b.webp", None): "WEBP"}[name, quality]
    assert read_manifest(hidden).encoding == expected
    recover_file(pipe, tmp_path / name, tmp_path / "c.png", Password("hush"))
    assert psnr(smooth(), hidden.pixels) < least - 5
    assert psnr(smooth(), load_photo(tmp_path / "c.png").pixels) > least


def test_stripped_files_need_a_sibling_and_say_so(tmp_path):
    points = np.array([[-12, 0], [12, 0], [0, 12], [-10, 24], [10, 24]]) + np.array([64, 58.0])
    pipe = Pipeline(KeyedTint(), FixedDetector([Detection((40, 40, 88, 100), 0.9, points)]))
    secret = Password("hush", kdf=CHEAP)
    photo = smooth((128, 128))
    for name in ("a.png", "b.png"):
        Image.fromarray(photo).save(tmp_path / name)
        anonymize_file(pipe, tmp_path / name, tmp_path / f"hidden_{name}", secret)
    Image.fromarray(load_photo(tmp_path / "hidden_a.png").pixels).save(tmp_path / "bare.png")
    with pytest.raises(UserError, match=r"carries no faceanon data.*--like"):
        recover_file(pipe, tmp_path / "bare.png", tmp_path / "c.png", Password("hush"))
    like = manifest_like(tmp_path / "hidden_b.png")
    outcome = recover_file(pipe, tmp_path / "bare.png", tmp_path / "c.png", Password("hush"), like=like)
    assert outcome.redetected
    assert psnr(photo, load_photo(tmp_path / "c.png").pixels) > 35


def test_a_jpeg_keeps_no_transparency(tmp_path):
    clear = LoadedPhoto(smooth((20, 10)), alpha=np.full((10, 20), 9, dtype=np.uint8))
    with pytest.raises(UserError, match="no transparency"):
        write_photo(tmp_path / "a.jpg", clear)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sidecar", [False, True])
def test_a_jpeg_keeps_a_thousand_faces(tmp_path, sidecar):
    crowd = Manifest("a.B", "m", "ab" * 32, 64, 20, 10, (FACES * 50,))
    write_photo(tmp_path / "a.jpg", LoadedPhoto(smooth((20, 10)), crowd.to_json()), sidecar=sidecar)
    assert read_manifest(load_photo(tmp_path / "a.jpg")) == crowd


@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_alpha_is_kept_and_hides_no_face(tmp_path, suffix):
    rgba = np.dstack([smooth(), np.full((64, 64), 255, dtype=np.uint8)])
    rgba[:, :20, 3], rgba[:, 20:40, 3] = 0, 100
    Image.fromarray(rgba).save(tmp_path / f"a.{suffix}", lossless=True, exact=True)
    loaded = load_photo(tmp_path / f"a.{suffix}")
    np.testing.assert_array_equal(loaded.alpha, rgba[..., 3])
    assert (loaded.pixels[:, :20] == 255).all()
    np.testing.assert_array_equal(loaded.pixels[:, 20:], rgba[:, 20:, :3])
    write_photo(tmp_path / f"b.{suffix}", loaded)
    again = load_photo(tmp_path / f"b.{suffix}")
    np.testing.assert_array_equal(again.pixels, loaded.pixels)
    np.testing.assert_array_equal(again.alpha, loaded.alpha)


def swapped_profile():
    """An sRGB profile whose red and green colorants are exchanged: easy to tell from sRGB."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    tags = {bytes(data[p : p + 4]): p for p in range(132, 132 + 12 * struct.unpack(">I", data[128:132])[0], 12)}
    red, green = tags[b"rXYZ"], tags[b"gXYZ"]
    data[red + 4 : red + 12], data[green + 4 : green + 12] = data[green + 4 : green + 12], data[red + 4 : red + 12]
    return bytes(data).replace(b"sRGB", b"odd ").replace("sRGB".encode("utf-16-be"), "odd ".encode("utf-16-be"))


def test_a_profile_is_applied_and_dropped(tmp_path):
    pixels = smooth()
    Image.fromarray(pixels).save(tmp_path / "a.png", icc_profile=swapped_profile())
    loaded = load_photo(tmp_path / "a.png")
    assert psnr(loaded.pixels, pixels[..., [1, 0, 2]]) > 40
    assert loaded.icc is None
    Image.fromarray(pixels).save(tmp_path / "b.png", icc_profile=b"no profile at all")
    loaded = load_photo(tmp_path / "b.png")
    np.testing.assert_array_equal(loaded.pixels, pixels)
    assert "colour profile ignored" in loaded.notes[0]


def test_pixels_of_our_own_files_are_never_converted(tmp_path):
    photo = LoadedPhoto(smooth((20, 10)), MANIFEST.to_json(), icc=swapped_profile())
    write_photo(tmp_path / "a.png", photo)
    loaded = load_photo(tmp_path / "a.png")
    np.testing.assert_array_equal(loaded.pixels, photo.pixels)
    assert loaded.icc == photo.icc


def test_sixteen_bits_become_eight_by_scale(tmp_path):
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "a.png")
    assert np.abs(load_photo(tmp_path / "a.png").pixels[..., 0].astype(int) - ramp // 257).max() <= 1


def test_an_animation_is_refused(tmp_path):
    frames = [Image.fromarray(smooth(seed=seed)) for seed in range(3)]
    for name in ("a.gif", "a.webp", "a.png", "a.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        with pytest.raises(UserError, match="holds 3 pictures"):
            load_photo(tmp_path / name)


def test_bytes_of_the_original_do_not_travel(tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    exif.get_ifd(0x8825)[1] = "N"
    Image.fromarray(smooth()).save(tmp_path / "a.jpg", exif=exif, xmp=b"<x>at home</x>", comment=b"home")
    for name in ("b.png", "b.jpg", "b.webp"):
        write_photo(tmp_path / name, load_photo(tmp_path / "a.jpg"))
        data = (tmp_path / name).read_bytes()
        assert b"home" not in data
        with Image.open(io.BytesIO(data)) as image:
            assert not image.getexif()
