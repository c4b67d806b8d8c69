"""Which of a camera's notes stay: those of the kinds that were named, and no others."""

import io

import numpy as np
import pytest
from PIL import Image
from PIL.ExifTags import GPS, IFD, Base

from camera_files import TIME, camera_exif, exiftool, needs_exiftool, write_camera_photo
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.photo.exif import ALL, KINDS, kept, kinds_in, kinds_of
from faceanon.photo.file import load_photo
from faceanon.pipeline import Pipeline, anonymize_file, recover_file
from faceanon.pipeline.tasks import Output
from fakes import FixedDetector, KeyedTint

NAMES = ["a.png", "a.jpg", "a.webp"]
OF_KIND = {
    "time": {Base.DateTime, Base.DateTimeOriginal, Base.OffsetTimeOriginal, Base.SubsecTimeOriginal},
    "camera": {
        Base.Make,
        Base.Model,
        Base.ExposureTime,
        Base.FNumber,
        Base.ExposureBiasValue,
        Base.ISOSpeedRatings,
        Base.LensModel,
        Base.LensSpecification,
    },
    "place": {GPS.GPSVersionID, *range(1, 5)},
}
CLOCK = {GPS.GPSTimeStamp, GPS.GPSDateStamp}


def portrait():
    noise = np.random.default_rng(0).integers(40, 216, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((64, 64), Image.Resampling.BICUBIC)


def pipe():
    return Pipeline(KeyedTint(), FixedDetector([]))


def password():
    return Password("hush", bytes(16), KdfParameters(memory_kib=64, iterations=1, lanes=1))


def exif_of(path):
    with Image.open(path) as image:
        exif = image.getexif()
        parts = [dict(exif), exif.get_ifd(IFD.Exif), exif.get_ifd(IFD.GPSInfo)]
    return parts


def tags(path):
    main, details, place = exif_of(path)
    structure = {IFD.Exif, IFD.GPSInfo, Base.ExifVersion}
    return (set(main) | set(details)) - structure, set(place)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_kind_that_is_named_stays_alone_and_through_recovery(tmp_path, name, kind):
    source = write_camera_photo(tmp_path / "in.jpg", portrait())
    anonymize_file(pipe(), source, tmp_path / name, password(), True, Output(keep=frozenset({kind})))
    recover_file(pipe(), tmp_path / name, tmp_path / f"back_{name}", password())
    for path in (tmp_path / name, tmp_path / f"back_{name}"):
        expected = (set(), OF_KIND[kind]) if kind == "place" else (OF_KIND[kind], set())
        assert tags(path) == expected
        with Image.open(path) as image:
            assert kinds_in(image) == (kind,)


@pytest.mark.parametrize("name", NAMES)
def test_all_of_them_keep_their_values(tmp_path, name):
    source = write_camera_photo(tmp_path / "in.jpg", portrait())
    anonymize_file(pipe(), source, tmp_path / name, password(), True, Output(keep=ALL))
    assert tags(tmp_path / name) == (OF_KIND["time"] | OF_KIND["camera"], OF_KIND["place"] | CLOCK)
    for before, after in zip(exif_of(source), exif_of(tmp_path / name), strict=True):
        for tag, value in after.items():
            assert tag in (IFD.Exif, IFD.GPSInfo, Base.ExifVersion) or before[tag] == value


@needs_exiftool
@pytest.mark.parametrize("name", NAMES)
def test_exiftool_reads_what_stays(tmp_path, name):
    source = write_camera_photo(tmp_path / "in.jpg", portrait())
    assert "IFD1:ThumbnailImage" in exiftool(source)
    anonymize_file(pipe(), source, tmp_path / name, password(), True, Output(keep=ALL))
    before, after = exiftool(source), exiftool(tmp_path / name)
    for field in ("ExifIFD:DateTimeOriginal", "IFD0:Model", "ExifIFD:ExposureCompensation", "GPS:GPSLatitude"):
        assert after[field] == before[field]
    odd = [field for field in after if any(word in field for word in ("Thumbnail", "Preview", "Serial", "Owner"))]
    assert odd == []


def test_nothing_stays_by_default(tmp_path):
    source = write_camera_photo(tmp_path / "in.jpg", portrait())
    for name in NAMES:
        anonymize_file(pipe(), source, tmp_path / name, password(), True)
        assert tags(tmp_path / name) == (set(), set())


def test_the_photo_is_turned_once(tmp_path):
    exif = camera_exif(portrait())
    exif[Base.Orientation] = 6
    portrait().save(tmp_path / "in.png", exif=exif)
    loaded = load_photo(tmp_path / "in.png", ALL)
    np.testing.assert_array_equal(loaded.pixels, np.rot90(np.asarray(portrait()), -1))
    assert Base.Orientation not in read(loaded.exif)


def read(data):
    exif = Image.Exif()
    exif.load(data)
    return exif


def opened_with(exif):
    data = io.BytesIO()
    portrait().save(data, "PNG", exif=exif)
    return Image.open(data)


def test_a_value_that_could_hide_a_picture_is_dropped():
    exif = camera_exif(portrait())
    exif[Base.Make] = "A" * 5000
    exif.get_ifd(IFD.Exif)[Base.ISOSpeedRatings] = tuple(range(5000))
    exif.get_ifd(IFD.GPSInfo)[GPS.GPSAreaInformation] = b"A" * 5000
    with opened_with(exif) as image:
        data = kept(image, ALL).data
    assert len(data) < 1500
    assert read(data)[Base.Model] == "Phone 9"


def test_the_clock_of_a_place_is_a_time():
    with opened_with(camera_exif(portrait())) as image:
        place = read(kept(image, {"place"}).data).get_ifd(IFD.GPSInfo)
        both = read(kept(image, {"place", "time"}).data).get_ifd(IFD.GPSInfo)
    assert not CLOCK & set(place)
    assert set(both) > CLOCK
    assert both[GPS.GPSDateStamp] == TIME[:10]


@pytest.mark.parametrize("cut", [10, 20, 60, 200])
def test_damaged_data_cost_nothing_but_themselves(tmp_path, cut):
    data = bytearray(camera_exif(portrait()).tobytes())
    data[cut : cut + 8] = b"\xff" * 8
    portrait().save(tmp_path / "in.png", exif=bytes(data))
    loaded = load_photo(tmp_path / "in.png", ALL)
    np.testing.assert_array_equal(loaded.pixels, np.asarray(portrait()))
    assert loaded.exif is None or len(loaded.exif) < 2000


def test_words_are_known_or_named():
    assert kinds_of(None) == frozenset()
    assert kinds_of("all") == kinds_of("time,camera,place") == ALL
    for text in ("", "time,", "Time", "gps", "time camera"):
        with pytest.raises(UserError, match="takes time, camera, place or all"):
            kinds_of(text)
