"""Colours as the file says them: profiles are told by their curves and primaries, never by their names."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

from faceanon.photo.file import load_photo

# Primaries as columns of XYZ under D50, as profiles hold them.
SRGB = np.array([[0.4361, 0.3851, 0.1431], [0.2225, 0.7169, 0.0606], [0.0139, 0.0971, 0.7141]])
P3 = np.array([[0.5151, 0.2920, 0.1571], [0.2412, 0.6922, 0.0666], [-0.0011, 0.0419, 0.7841]])
ADOBE = np.array([[0.6097, 0.2053, 0.1492], [0.3111, 0.6257, 0.0632], [0.0195, 0.0609, 0.7446]])
COLOURS = np.array([[200, 120, 90], [40, 60, 50], [128, 128, 128], [250, 240, 230], [12, 10, 8]], np.uint8)[None]


def srgb_curve(light):
    light = np.clip(light, 0, 1)
    return 255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def fixed(value):
    return struct.pack(">i", round(value * 65536))


def curve(points):
    """A `curv` tag: a number is a gamma, a list is a table of 0 to 1."""
    if isinstance(points, float):
        return b"curv" + bytes(4) + struct.pack(">IH", 1, round(points * 256)) + bytes(2)
    table = np.round(np.asarray(points) * 65535).astype(">u2").tobytes()
    return b"curv" + bytes(4) + struct.pack(">I", len(points)) + table + bytes(len(table) % 4)


def profile(name, points, primaries=None):
    """A profile of version 2: of RGB by primaries, of grey without."""
    text = name.encode() + b"\0"
    tags = {
        b"desc": b"desc" + bytes(4) + struct.pack(">I", len(text)) + text + bytes(79 + -len(text) % 4 + 1),
        b"wtpt": b"XYZ " + bytes(4) + fixed(0.9642) + fixed(1) + fixed(0.8249),
    }
    if primaries is None:
        tags[b"kTRC"] = curve(points)
    else:
        for number, letter in enumerate((b"r", b"g", b"b")):
            tags[letter + b"XYZ"] = b"XYZ " + bytes(4) + b"".join(fixed(value) for value in primaries[:, number])
            tags[letter + b"TRC"] = curve(points)
    place = 128 + 4 + 12 * len(tags)
    rows = b""
    body = b""
    for tag, data in tags.items():
        rows += tag + struct.pack(">II", place + len(body), len(data))
        body += data
    space = b"GRAY" if primaries is None else b"RGB "
    head = bytes(8) + b"\x02\x10\0\0" + b"mntr" + space + b"XYZ " + bytes(12) + b"acsp" + bytes(28)
    head += fixed(0.9642) + fixed(1) + fixed(0.8249)
    whole = head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + rows + body
    return struct.pack(">I", len(whole)) + whole[4:]


def shown(tmp_path, image, suffix=".png", **options):
    image.save(tmp_path / f"a{suffix}", **options)
    return load_photo(tmp_path / f"a{suffix}")


def expected(gamma, primaries):
    light = (COLOURS / 255.0) ** gamma @ primaries.T @ np.linalg.inv(SRGB).T
    return srgb_curve(light)


@pytest.mark.parametrize("name", ["sRGB", "sRGB-elle-V2-g10.icc", "camera"])
@pytest.mark.parametrize(
    ("gamma", "primaries"), [(1.0, SRGB), (1.8, SRGB), (2.2, P3), (2.2, ADOBE)], ids=["linear", "1.8", "P3", "Adobe"]
)
def test_a_profile_is_applied_whatever_its_name(tmp_path, name, gamma, primaries):
    photo = shown(tmp_path, Image.fromarray(COLOURS), icc_profile=profile(name, gamma, primaries))
    assert np.abs(photo.pixels - expected(gamma, primaries)).max() <= 3
    assert (photo.icc, photo.notes) == (None, ())


@pytest.mark.parametrize("name", ["sRGB", "c2", "Generic RGB"])
def test_what_does_what_srgb_does_changes_no_pixel(tmp_path, name):
    steps = np.linspace(0, 1, 1024)
    table = np.where(steps <= 0.04045, steps / 12.92, ((steps + 0.055) / 1.055) ** 2.4)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    photo = shown(tmp_path, Image.fromarray(pixels), icc_profile=profile(name, table, SRGB))
    assert np.array_equal(photo.pixels, pixels)


def test_littlecms_own_srgb_changes_no_pixel(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert np.array_equal(shown(tmp_path, Image.fromarray(pixels), icc_profile=icc).pixels, pixels)


@pytest.mark.parametrize("mode", ["L", "LA", "16"])
def test_grey_by_its_own_profile(tmp_path, mode):
    ramp = np.arange(0, 256, 5, dtype=np.uint8)[None].repeat(8, 0)
    if mode == "16":
        image = Image.fromarray(ramp.astype(np.uint16) * 257)
    else:
        image = Image.fromarray(ramp).convert(mode)
    photo = shown(tmp_path, image, icc_profile=profile("grey sRGB", 1.0))
    assert np.abs(photo.pixels - srgb_curve(ramp / 255.0)[..., None]).max() <= 2
    assert photo.notes == ()


def test_grey_by_a_profile_of_colours(tmp_path):
    ramp = np.arange(0, 256, 5, dtype=np.uint8)[None]
    photo = shown(tmp_path, Image.fromarray(ramp), icc_profile=profile("camera", 1.0, P3))
    assert np.abs(photo.pixels - srgb_curve(ramp / 255.0)[..., None]).max() <= 2


@pytest.mark.parametrize(
    "icc",
    [b"no profile", profile("sRGB", 1.0, SRGB)[:150], profile("sRGB", 2.2), bytes(300)],
    ids=["text", "cut short", "of grey for colours", "zeros"],
)
def test_a_profile_that_does_not_fit_is_named_and_left(tmp_path, icc):
    photo = shown(tmp_path, Image.fromarray(COLOURS), icc_profile=icc)
    assert np.array_equal(photo.pixels, COLOURS)
    assert photo.notes == ("unusable colour profile ignored, colours taken as sRGB",)


def test_lab(tmp_path):
    lab = ImageCms.profileToProfile(
        Image.fromarray(COLOURS.repeat(8, 0)),
        ImageCms.createProfile("sRGB"),
        ImageCms.createProfile("LAB"),
        outputMode="LAB",
    )
    photo = shown(tmp_path, lab, ".tif")
    assert np.abs(photo.pixels.astype(int) - COLOURS).max() <= 4


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "16"])
@pytest.mark.parametrize("gamma", [1.0, 0.55556])
def test_gamma_of_a_png_without_profile(tmp_path, mode, gamma):
    ramp = np.arange(0, 256, 5, dtype=np.uint8)[None]
    image = Image.fromarray(ramp.astype(np.uint16) * 257) if mode == "16" else Image.fromarray(ramp).convert(mode)
    photo = shown(tmp_path, image, pnginfo=said(b"gAMA", round(gamma * 100_000)))
    assert np.abs(photo.pixels - srgb_curve((ramp / 255.0) ** (1 / gamma))[..., None]).max() <= 1


@pytest.mark.parametrize("gamma", [45455, 0, 4_000_000_000])
def test_gamma_of_srgb_or_of_nonsense_changes_nothing(tmp_path, gamma):
    photo = shown(tmp_path, Image.fromarray(COLOURS), pnginfo=said(b"gAMA", gamma))
    assert np.array_equal(photo.pixels, COLOURS)


def said(name, number):
    chunks = PngInfo()
    chunks.add(name, struct.pack(">I", number))
    return chunks


def test_the_picture_of_a_result_keeps_its_profile_and_its_pixels():
    data = io.BytesIO()
    Image.fromarray(COLOURS).save(data, "PNG", icc_profile=profile("sRGB", 1.0, SRGB))
    image = Image.open(data)
    image.info["faceanon"] = "{}"
    photo = load_photo(image)
    assert np.array_equal(photo.pixels, COLOURS)
    assert photo.icc is not None
