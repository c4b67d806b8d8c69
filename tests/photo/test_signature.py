"""Recovery knows its picture: turned and mirrored ones are turned back, changed and exchanged ones are refused."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter
from PIL.PngImagePlugin import PngInfo

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password, Secret
from faceanon.manifest import CropGeometry, Manifest
from faceanon.photo.file import load_photo
from faceanon.photo.metadata import MANIFEST_KEY
from faceanon.photo.party import photo_party
from faceanon.photo.signature import AS_IT_WAS, TURNS, fitted, signature_of
from faceanon.pipeline import Pipeline
from faceanon.pipeline.exact import ExactTask
from faceanon.pipeline.tasks import AnonymizeTask, Output, RecoverTask, run_task
from fakes import FixedDetector, KeyedTint
from test_pipeline import CROWD, PHOTO, psnr

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
SECRET = Secret.random(1)
PARTY = np.asarray(photo_party())
HEIGHT, WIDTH = PARTY.shape[:2]
SQUARES = ((CropGeometry(WIDTH / 2, HEIGHT / 2, HEIGHT / 5, 0.0), CropGeometry(40.0, 40.0, 12.0, 1.0)),)
RECORD = Manifest("a.B", "m", "ab" * 32, 64, WIDTH, HEIGHT, SQUARES, signature=signature_of(PARTY, SQUARES))


def happened(turn, pixels):
    """A picture that was turned and mirrored; the inverse is `Turn.undo`."""
    turned = np.rot90(pixels, -turn.quarters)
    return np.ascontiguousarray(turned[:, ::-1] if turn.mirrored else turned)


def changed(change, pixels=PARTY):
    return np.asarray(change(Image.fromarray(pixels)))


def jpeg(image, quality, subsampling=2):
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality, subsampling=subsampling)
    return Image.open(io.BytesIO(data.getvalue())).convert("RGB")


def refused(pixels, manifest=RECORD):
    with pytest.raises(UserError) as caught:
        fitted(load_photo(pixels), manifest)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("turn", TURNS, ids=str)
def test_each_of_the_eight_turns_is_taken_back_to_the_pixel(turn):
    back = fitted(load_photo(happened(turn, PARTY)), RECORD)
    np.testing.assert_array_equal(back.pixels, PARTY)
    if turn == AS_IT_WAS:
        assert back.notes == ()
    else:
        assert back.notes == (f"the picture was {turn}: turned back",)


@pytest.mark.parametrize("turn", TURNS, ids=str)
def test_turns_of_a_square_picture_saved_as_jpeg_are_told_apart(turn):
    side = min(HEIGHT, WIDTH)
    square = PARTY[:side, :side]
    layers = ((CropGeometry(side / 2, side / 2, side / 5, 0.0),),)
    manifest = replace(RECORD, width=side, height=side, layers=layers, signature=signature_of(square, layers))
    turned = happened(turn, square)
    back = fitted(load_photo(np.asarray(jpeg(Image.fromarray(turned), 75))), manifest)
    assert psnr(square, back.pixels) > 25


@pytest.mark.parametrize("quality", [95, 75, 50])
@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("width", [100, WIDTH])
def test_a_new_jpeg_is_the_same_picture(quality, subsampling, width):
    small = np.asarray(Image.fromarray(PARTY).resize((width, width * HEIGHT // WIDTH)))
    squares = ((CropGeometry(small.shape[1] / 2, small.shape[0] / 2, small.shape[0] / 5, 0.0),),)
    manifest = replace(
        RECORD, width=small.shape[1], height=small.shape[0], layers=squares, signature=signature_of(small, squares)
    )
    again = changed(lambda image: jpeg(image, quality, subsampling), small)
    assert fitted(load_photo(again), manifest).notes == ()


def test_a_picture_that_is_its_own_mirror_image_stays_as_it_was():
    half = PARTY[:, : WIDTH // 2]
    twin = np.concatenate([half, half[:, ::-1]], axis=1)
    square = ((CropGeometry(twin.shape[1] / 2, HEIGHT / 2, HEIGHT / 5, 0.0),),)
    manifest = replace(RECORD, width=twin.shape[1], layers=square, signature=signature_of(twin, square))
    again = changed(lambda image: jpeg(image, 75), twin)
    assert fitted(load_photo(again), manifest).notes == ()


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda image: image.point(lambda level: 0), "is another picture"),
        (lambda image: image.filter(ImageFilter.GaussianBlur(6)), "blurred|edited"),
        (lambda image: ImageEnhance.Brightness(image).enhance(1.3), "brightness or colours"),
        (lambda image: ImageEnhance.Color(image).enhance(0.0), "brightness or colours"),
        (lambda image: image.crop((30, 20, image.width - 30, image.height - 20)).resize(image.size), "cropped"),
        (lambda image: Image.fromarray(PHOTO).resize(image.size), "is another picture"),
    ],
)
def test_a_changed_picture_of_the_same_size_is_refused_with_its_cause(change, cause):
    line = refused(changed(change))
    assert re.search(cause, line)
    assert "--force" in line
    assert fitted(load_photo(changed(change)), RECORD, force=True).pixels.shape == PARTY.shape


def test_another_face_in_the_same_picture_is_named():
    pixels = PARTY.copy()
    middle = HEIGHT // 2
    pixels[middle - 20 : middle + 20, WIDTH // 2 - 20 : WIDTH // 2 + 20] = 0
    assert "a face in it was changed" in refused(pixels)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda image: image.resize((image.width // 2, image.height // 2)), "it was scaled"),
        (lambda image: image.crop((0, 0, image.width - 40, image.height)), "it was cropped"),
    ],
)
def test_another_size_says_what_happened_and_force_does_not_help(change, cause):
    assert cause in refused(changed(change))
    with pytest.raises(UserError, match="was anonymized at"):
        fitted(load_photo(changed(change)), RECORD, force=True)


def test_without_a_signature_only_the_size_counts():
    bare = replace(RECORD, signature=b"")
    assert fitted(load_photo(np.zeros_like(PARTY)), bare).notes == ()
    with pytest.raises(UserError, match="was anonymized at"):
        fitted(load_photo(happened(TURNS[1], PARTY)), bare)


@pytest.mark.parametrize("length", [1, 191, 192, 192 + 49, 192 + 3 * 49])
def test_a_signature_of_other_faces_is_damaged(length):
    with pytest.raises(UserError, match="signature in its faceanon data is damaged"):
        fitted(load_photo(PARTY), replace(RECORD, signature=bytes(length)))


def saved(folder):
    Image.fromarray(PHOTO).save(folder / "photo.png")
    return folder / "photo.png"


def with_other_pixels(file, target, change):
    """A file with the metadata of `file` and other pixels, as an image viewer writes it."""
    with Image.open(file) as image:
        data = image.info[MANIFEST_KEY]
        pixels = change(np.asarray(image))
    chunks = PngInfo()
    chunks.add_itxt(MANIFEST_KEY, data)
    Image.fromarray(pixels).save(target, pnginfo=chunks)
    return target


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hidden")
    pipe = Pipeline(KeyedTint(), FixedDetector(CROWD))
    output = Output(vault=True)
    run_task(AnonymizeTask(pipe, saved(folder), folder / "hidden.png", Password("right", kdf=CHEAP), output=output))
    return pipe, folder / "hidden.png"


@pytest.mark.parametrize("turn", TURNS, ids=str)
def test_turned_files_are_recovered_upright_as_well_as_others(hidden, tmp_path, turn):
    pipe, file = hidden
    source = with_other_pixels(file, tmp_path / "a.png", lambda pixels: happened(turn, pixels))
    outcome = run_task(RecoverTask(pipe, source, tmp_path / "b.png", Password("right")))
    assert psnr(PHOTO, load_photo(tmp_path / "b.png").pixels) > 33
    assert [note for note in outcome.photo.notes if "turned back" in note] or turn == AS_IT_WAS


def test_a_turn_by_a_tag_alone_is_taken_back_too(hidden, tmp_path):
    pipe, file = hidden
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(file) as image:
        data = image.info[MANIFEST_KEY]
        chunks = PngInfo()
        chunks.add_itxt(MANIFEST_KEY, data)
        image.save(tmp_path / "a.png", pnginfo=chunks, exif=exif)
    run_task(RecoverTask(pipe, tmp_path / "a.png", tmp_path / "b.png", Password("right")))
    assert psnr(PHOTO, load_photo(tmp_path / "b.png").pixels) > 33


@pytest.mark.parametrize("exact", [False, True])
def test_a_black_picture_with_the_data_of_another_is_refused_and_nothing_is_written(hidden, tmp_path, exact):
    pipe, file = hidden
    source = with_other_pixels(file, tmp_path / "black.png", np.zeros_like)
    kind = ExactTask if exact else RecoverTask
    with pytest.raises(UserError, match=r"black\.png is not as it was anonymized: .* another picture"):
        run_task(kind(pipe, source, tmp_path / "b.png", Password("right")))
    assert not (tmp_path / "b.png").exists()
    if not exact:
        run_task(kind(pipe, source, tmp_path / "b.png", Password("right"), force=True))
        assert (tmp_path / "b.png").exists()


def test_pictures_in_python_are_turned_back_too():
    pipe = Pipeline(KeyedTint(), FixedDetector(CROWD))
    image = pipe.anonymize(Image.fromarray(PHOTO), SECRET)
    turned = image.transpose(Image.Transpose.TRANSVERSE)
    turned.info[MANIFEST_KEY] = image.info[MANIFEST_KEY]
    assert psnr(PHOTO, np.asarray(pipe.recover(turned, SECRET))) > 33
    black = Image.new("RGB", image.size)
    black.info[MANIFEST_KEY] = image.info[MANIFEST_KEY]
    with pytest.raises(UserError, match="another picture"):
        pipe.recover(black, SECRET)
    assert pipe.recover(black, SECRET, force=True).size == image.size
