"""Every result says that trained algorithms made a part of it, in words that tell nothing else."""

import io
import time
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from camera_files import SECRETS, exiftool, needs_exiftool, pictures_in, write_camera_photo
from faceanon.key import KdfParameters, Password
from faceanon.manifest import CropGeometry, Manifest
from faceanon.photo.file import LoadedPhoto, load_photo, read_manifest, write_photo
from faceanon.photo.mark import NAMESPACE, SOURCE_TYPE, is_marked, packet, xmp_of
from faceanon.photo.metadata import embedded
from faceanon.pipeline import Pipeline, anonymize_file, recover_file
from faceanon.pipeline.tasks import Output
from fakes import FixedDetector, KeyedTint

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
FACES = tuple(CropGeometry(5.25, 5 + index / 7, 3, 1) for index in range(20))
MANIFEST = Manifest("a.B", "m", "ab" * 32, 64, 20, 10, (FACES,), bytes(16), CHEAP)
CROWD = Manifest("a.B", "m", "ab" * 32, 64, 20, 10, (FACES * 50,))  # too much for one segment of a JPEG
NAMES = ["a.png", "a.jpg", "a.webp"]
PIXELS = np.full((10, 20, 3), 99, np.uint8)


def smooth():
    noise = np.random.default_rng(0).integers(40, 216, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((64, 64), Image.Resampling.BICUBIC)


def said(path):
    """The term that a file's XMP says, read as XML."""
    with Image.open(path) as image:
        xmp = xmp_of(image)
    if not xmp:
        return None
    tree = ElementTree.fromstring(xmp.decode().partition("?>")[2].rpartition("<?")[0])
    found = [element.get(f"{{{NAMESPACE}}}DigitalSourceType") for element in tree.iter()]
    return next(filter(None, found), None)


def pipe():
    return Pipeline(KeyedTint(), FixedDetector([]))


def hidden(source, target, **options):
    anonymize_file(pipe(), source, target, Password("hush", bytes(16), CHEAP), aligned=True, output=Output(**options))
    return target


@pytest.mark.parametrize("manifest", [None, MANIFEST, CROWD], ids=["sidecar", "few", "crowd"])
@pytest.mark.parametrize("name", NAMES)
def test_every_format_carries_the_mark(tmp_path, name, manifest):
    text = None if manifest is None else manifest.to_json()
    write_photo(tmp_path / name, LoadedPhoto(PIXELS, text, marked=True))
    assert said(tmp_path / name) == SOURCE_TYPE
    assert manifest is None or read_manifest(load_photo(tmp_path / name)) == manifest
    write_photo(tmp_path / name, LoadedPhoto(PIXELS, text))
    assert said(tmp_path / name) is None
    assert b"DigitalSourceType" not in (tmp_path / name).read_bytes()


@needs_exiftool
@pytest.mark.parametrize("manifest", [None, MANIFEST, CROWD], ids=["sidecar", "few", "crowd"])
@pytest.mark.parametrize("name", NAMES)
def test_exiftool_reads_the_mark(tmp_path, name, manifest):
    text = None if manifest is None else manifest.to_json()
    write_photo(tmp_path / name, LoadedPhoto(PIXELS, text, marked=True))
    read = exiftool(tmp_path / name)
    assert read["XMP-iptcExt:DigitalSourceType"] == SOURCE_TYPE
    assert not [field for field in read if "Warning" in field or "Error" in field]


@pytest.mark.parametrize("name", NAMES)
def test_the_mark_goes_when_the_original_comes_back(tmp_path, name):
    smooth().save(tmp_path / "in.png")
    hidden(tmp_path / "in.png", tmp_path / name)
    assert said(tmp_path / name) == SOURCE_TYPE
    assert load_photo(tmp_path / name).marked
    recover_file(pipe(), tmp_path / name, tmp_path / f"back_{name}", Password("hush"))
    assert b"iptc" not in (tmp_path / f"back_{name}").read_bytes()
    hidden(tmp_path / "in.png", tmp_path / name, mark=False)
    assert said(tmp_path / name) is None


def test_a_vault_brings_an_unmarked_original_back(tmp_path):
    smooth().save(tmp_path / "in.png")
    hidden(tmp_path / "in.png", tmp_path / "a.png", vault=True)
    recover_file(pipe(), tmp_path / "a.png", tmp_path / "b.png", Password("hush"), exact=True)
    assert said(tmp_path / "b.png") is None


def test_what_was_anonymized_twice_is_marked_until_the_original_is_back(tmp_path):
    smooth().save(tmp_path / "in.png")
    word = Password("hush", bytes(16), CHEAP)
    hidden(tmp_path / "in.png", tmp_path / "a.png")
    anonymize_file(pipe(), tmp_path / "a.png", tmp_path / "b.png", word, aligned=True, again=True)
    recover_file(pipe(), tmp_path / "b.png", tmp_path / "c.png", word)
    assert said(tmp_path / "c.png") == SOURCE_TYPE
    recover_file(pipe(), tmp_path / "c.png", tmp_path / "d.png", word)
    assert said(tmp_path / "d.png") is None


def test_a_mark_of_somebody_else_is_dropped_with_the_rest_of_his_xmp(tmp_path):
    smooth().save(tmp_path / "in.webp", xmp=packet(elements="<note>at home</note>"), lossless=True)
    with Image.open(tmp_path / "in.webp") as image:
        assert is_marked(image)
    hidden(tmp_path / "in.webp", tmp_path / "a.webp", mark=False)
    assert said(tmp_path / "a.webp") is None
    assert b"at home" not in hidden(tmp_path / "in.webp", tmp_path / "b.webp").read_bytes()


@pytest.mark.parametrize("keep", [frozenset(), frozenset({"time", "camera", "place"})])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["in.jpg", "in.png", "in.webp"])
def test_no_byte_of_a_result_is_a_picture_of_the_person(tmp_path, kind, name, keep):
    source = write_camera_photo(tmp_path / kind, smooth())
    data = source.read_bytes()
    assert pictures_in(data) > 2  # the photo, and previews
    assert [secret for secret in SECRETS if secret not in data] == []
    data = hidden(source, tmp_path / name, keep=keep).read_bytes()
    assert pictures_in(data) == 1
    assert [secret for secret in SECRETS if secret in data] == []


def test_results_are_alike_to_the_byte(tmp_path):
    source = write_camera_photo(tmp_path / "in.jpg", smooth())
    for name in NAMES:
        written = [hidden(source, tmp_path / f"{turn}_{name}", keep=frozenset({"time"})) for turn in range(2)]
        assert written[0].read_bytes() == written[1].read_bytes()


def test_xmp_that_begins_a_manifest_again_and_again_costs_no_time():
    data = io.BytesIO()
    xmp = packet(' xmlns:faceanon="urn:faceanon:1"', "<faceanon:manifest>" * 30_000)
    Image.new("RGB", (8, 8)).save(data, "WEBP", xmp=xmp)
    with Image.open(data) as image:
        begun = time.process_time()
        assert embedded(image) is None
        assert time.process_time() - begun < 1
