"""A photo as a telephone writes it: with previews, a maker's notes, names, a serial number and a place."""

import base64
import io
import json
import shutil
import struct
import subprocess

import pytest
from PIL import Image, ImageOps
from PIL.ExifTags import IFD, Base
from PIL.TiffImagePlugin import IFDRational

TIME = "2024:05:06 07:08:09"
# Nothing that stands in one of these may be in a result, whatever is kept.
SECRETS = [b"Anna", b"SERIAL", b"MAKER", b"at home", b"Editor"]
SIGNS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF", b"II*\0", b"MM\0*", b"GIF8", b"BM")

needs_exiftool = pytest.mark.skipif(
    shutil.which("exiftool") is None, reason="exiftool is not installed (Debian: libimage-exiftool-perl)"
)


def exiftool(path):
    """What exiftool reads, by group and name, in plain numbers."""
    done = subprocess.run(
        ["exiftool", "-json", "-a", "-n", "-G1", str(path)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)[0]


def small_jpeg(image):
    data = io.BytesIO()
    ImageOps.contain(image, (48, 48)).save(data, "JPEG")
    return data.getvalue()


def camera_exif(image):
    """EXIF data of all kinds; the maker's notes hold a preview."""
    exif = Image.Exif()
    exif.update({Base.Make: "Acme", Base.Model: "Phone 9", Base.DateTime: TIME, Base.Orientation: 1})
    exif.update({Base.Software: "Editor 5", Base.Artist: "Anna", Base.ImageDescription: "at home"})
    exif.get_ifd(IFD.Exif).update(
        {
            Base.DateTimeOriginal: TIME,
            Base.OffsetTimeOriginal: "+02:00",
            Base.SubsecTimeOriginal: "123",
            Base.ExposureTime: IFDRational(1, 250),
            Base.FNumber: IFDRational(9, 5),
            Base.ExposureBiasValue: IFDRational(-1, 3),
            Base.ISOSpeedRatings: 200,
            Base.LensModel: "Acme 26mm",
            Base.LensSpecification: (IFDRational(42, 10), IFDRational(42, 10), IFDRational(9, 5), IFDRational(9, 5)),
            Base.CameraOwnerName: "Anna",
            Base.BodySerialNumber: "SERIAL1",
            Base.LensSerialNumber: "SERIAL2",
            Base.UserComment: b"ASCII\0\0\0at home",
            Base.MakerNote: b"MAKER" + small_jpeg(image),
        }
    )
    exif.get_ifd(IFD.GPSInfo).update(
        {0: b"\2\3\0\0", 1: "N", 2: (48.0, 8.0, 30.5), 3: "E", 4: (11.0, 34.0, 1.25), 7: (7.0, 8.0, 9.0), 29: TIME[:10]}
    )
    return exif


def with_thumbnail(exif, thumbnail):
    """EXIF bytes with a second directory, which names a JPEG behind it."""
    data = exif.tobytes().removeprefix(b"Exif\0\0")
    order, word = ("little", "<") if data.startswith(b"II") else ("big", ">")
    start = int.from_bytes(data[4:8], order)
    following = start + 2 + 12 * int.from_bytes(data[start : start + 2], order)
    place = len(data)
    directory = struct.pack(f"{word}HHHIIHHIII", 2, 0x0201, 4, 1, place + 30, 0x0202, 4, 1, len(thumbnail), 0)
    return (
        b"Exif\0\0" + data[:following] + struct.pack(f"{word}I", place) + data[following + 4 :] + directory + thumbnail
    )


def write_camera_photo(path, image):
    """A photo of one of the kinds that hold EXIF data and XMP."""
    preview = small_jpeg(image)
    xmp = (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about="" xmlns:xmpGImg="http://ns.adobe.com/xap/1.0/g/img/" xmpGImg:image="'
        f'{base64.b64encode(preview).decode()}" xmlns:dc="http://purl.org/dc/elements/1.1/" dc:source="at home"/>'
        "</rdf:RDF></x:xmpmeta>"
    ).encode()
    options = {"xmp": xmp} if path.suffix != ".png" else {}
    image.save(path, exif=with_thumbnail(camera_exif(image), preview), **options)
    return path


def pictures_in(data):
    """How many pictures bytes hold, the file itself, all that is inside it, and all that is written in base64."""
    found = 0
    for sign in SIGNS:
        start = -1
        while (start := data.find(sign, start + 1)) >= 0:
            found += opens(data[start:])
    start = -1
    while (start := data.find(b"/9j/", start + 1)) >= 0:
        text = data[start:].split(b'"')[0].split(b"<")[0]
        found += opens(base64.b64decode(text[: len(text) // 4 * 4]))
    return found


def opens(data):
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except Exception:
        return False
    return True
