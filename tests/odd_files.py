"""Damaged and odd picture files, made on the spot and always the same."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

PLAIN = ("png", "jpg", "webp", "gif", "bmp", "tif", "ppm")
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def face(size=(64, 64), seed=0):
    noise = np.random.default_rng(seed).integers(40, 216, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def saved(image, suffix, **options):
    data = io.BytesIO()
    kind = {"jpg": "JPEG", "tif": "TIFF", "ppm": "PPM"}.get(suffix, suffix.upper())
    image.save(data, kind, **options)
    return data.getvalue()


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, bits=8, colour=2, *more, data=b""):
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return SIGNATURE + head + b"".join(more) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def cut(suffix, count):
    whole = saved(face(), suffix)
    for index in range(count):
        yield f"cut{index:02}.{suffix}", whole[: len(whole) * index // count]


def flipped(suffix, count):
    whole = saved(face(), suffix)
    for seed in range(count):
        draw, data = np.random.default_rng(seed), bytearray(whole)
        for place in draw.integers(0, len(data), 1 + seed % 8):
            data[place] ^= 1 << int(draw.integers(8))
        yield f"flip{seed:02}.{suffix}", bytes(data)


def misnamed():
    for one, other in zip(PLAIN, (*PLAIN[1:], PLAIN[0]), strict=True):
        yield f"right_{one}_named.{other}", saved(face(), one)


def modes():
    """Whole pictures of every kind; each must come out."""
    yield "right_cmyk.jpg", saved(face().convert("CMYK"), "jpg")
    yield "right_cmyk.tif", saved(face().convert("CMYK"), "tif")
    yield "right_grey.jpg", saved(face().convert("L"), "jpg")
    yield "right_bilevel.png", saved(face().convert("1"), "png")
    yield "right_palette.gif", saved(face(), "gif")
    yield "right_grey_alpha.png", saved(face().convert("LA"), "png")
    yield "right_alpha.webp", saved(face().convert("RGBA"), "webp")
    yield "right_lab.tif", saved(face().convert("RGB"), "tif", compression="tiff_lzw")
    wide = np.asarray(face().convert("L")).astype(np.uint16) * 257
    yield "right_16bit.png", saved(Image.fromarray(wide), "png")
    yield "right_16bit.tif", saved(Image.fromarray(wide), "tif")
    rows = b"".join(b"\0" + np.asarray(face())[row].astype(">u2").tobytes() for row in range(64))
    yield "right_16bit_rgb.png", png(64, 64, 16, 2, data=rows)
    yield "right_progressive.jpg", saved(face(), "jpg", progressive=True)
    yield "right_no_profile.png", saved(face(), "png", icc_profile=b"\0" * 200)
    for turn in range(10):  # 0 and 9 mean nothing
        exif = Image.Exif()
        exif[0x0112] = turn
        yield f"right_turned{turn}.jpg", saved(face(), "jpg", exif=exif)
    for name, body in (
        ("short", b"Exif\0\0II*\0"),
        ("far", b"Exif\0\0II*\0\xff\xff\xff\x7f"),
        ("noise", b"Exif\0\0" + b"\7" * 90),
    ):
        yield f"right_exif_{name}.jpg", saved(face(), "jpg", exif=body)


def odd():
    yield "empty.png", b""
    yield "text.png", b"this is no picture\n"
    yield "zeros.jpg", bytes(1000)
    yield "script.png", b"#!/bin/sh\nexit 1\n"
    yield "archive.png", b"PK\x03\x04" + bytes(100)
    yield "signature.png", SIGNATURE
    yield "page.webp", b"<html><body>not found</body></html>"
    yield "tiny.png", saved(face((1, 1)), "png")
    yield "flat.png", saved(face((64, 1)), "png")
    yield "oblong.jpg", saved(face((64, 80)), "jpg")
    yield "wall.png", png(20000, 20000)
    yield "wide.png", png(2**31 - 1, 1)
    yield "nothing.png", png(0, 0)
    yield "bomb.png", png(9500, 9500, 8, 0, data=bytes(1_000_000))
    yield "text_bomb.png", png(64, 64, 8, 2, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(8_000_000))))
    yield "profile_bomb.png", png(64, 64, 8, 2, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(8_000_000))))
    yield "long.gif", saved(face(), "gif", save_all=True, append_images=[face(seed=1), face(seed=2)])
    yield "moving.webp", saved(face(), "webp", save_all=True, append_images=[face(seed=1)])
    yield "moving.png", saved(face(), "png", save_all=True, append_images=[face(seed=1)])
    yield "pages.tif", saved(face(), "tif", save_all=True, append_images=[face(seed=1)])
    yield "floats.tif", saved(Image.fromarray(np.ones((64, 64), dtype=np.float32)), "tif")
    yield "wall.bmp", saved(face(), "bmp")[:18] + struct.pack("<ii", 50000, 50000) + bytes(100)
    yield "wall.gif", b"GIF89a" + struct.pack("<HH", 65535, 65535) + bytes(40)


def corpus(many):
    """Pairs of name and bytes; names that begin with `right_` must give a result. Some 90, or with `many` over 300."""
    made = dict([*modes(), *odd(), *misnamed()])
    for suffix in PLAIN:
        made |= dict(cut(suffix, 24 if many else 3))
        made |= dict(flipped(suffix, 24 if many else 2))
    return made
