"""Photos whose faces come back from sealed codes: right and wrong passwords, damage, other models."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password, Secret
from faceanon.manifest import MAX_CODE_BYTES, CropGeometry, Manifest
from faceanon.photo.file import load_photo, read_manifest
from faceanon.pipeline import Pipeline
from faceanon.pipeline.many.engine import run_tasks
from faceanon.pipeline.tasks import AnonymizeTask, Output, RecoverTask, run_task
from faceanon.sealed.envelope import SIZES, WrongPasswordError
from faceanon.sealed.manifests import opened_codes, with_codes
from fakes import FixedDetector, SealedPatch
from test_pipeline import ALONE, CROWD, PHOTO, face_at, psnr

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
RIGHT, WRONG = Secret.random(1), Secret.random(2)


@pytest.fixture(scope="module")
def backbone(sealed_bundle):
    return SealedPatch(str(sealed_bundle))


def pipeline(backbone, faces=ALONE):
    return Pipeline(backbone, FixedDetector(faces))


def hidden_photo(backbone, faces=ALONE):
    """An anonymized photo and its manifest."""
    photo = pipeline(backbone, faces).anonymize_photo(load_photo(PHOTO), RIGHT).photo
    return photo, read_manifest(photo)


@pytest.mark.parametrize("faces", [ALONE, CROWD])
def test_the_right_password_brings_faces_back_also_where_they_overlap(backbone, faces):
    photo, manifest = hidden_photo(backbone, faces)
    assert len(manifest.codes) == len(faces)
    assert manifest.carried == sum(len(code) for code in manifest.codes) > 0
    recovered = pipeline(backbone).recover_photo(photo, RIGHT, manifest).photo.pixels
    changed = np.abs(photo.pixels.astype(int) - PHOTO).max(-1) > 8
    assert changed.mean() > 0.05
    assert psnr(PHOTO[changed], photo.pixels[changed]) < 16
    assert psnr(PHOTO[changed], recovered[changed]) > 26


def test_around_the_coded_cells_the_photo_keeps_every_pixel(backbone):
    photo, manifest = hidden_photo(backbone)
    recovered = pipeline(backbone).recover_photo(photo, RIGHT, manifest).photo.pixels
    height, width = PHOTO.shape[:2]
    down, right = np.mgrid[:height, :width] + 0.5
    near = np.zeros((height, width), bool)
    for face in manifest.layers[0]:
        # The double paints cells whose middle lies within .33 of the side; a cell is an eighth of it.
        near |= np.hypot(right - face.center_x, down - face.center_y) < (0.33 + 0.125) * face.side
    assert near.mean() < 0.4
    for pixels in (photo.pixels, recovered):
        assert np.array_equal(pixels[~near], PHOTO[~near])


def test_an_array_comes_back_by_its_manifest(backbone):
    pipe = pipeline(backbone)
    hidden, manifest = pipe.anonymize_with_manifest(PHOTO, RIGHT)
    assert isinstance(hidden, np.ndarray)
    kept = Manifest.from_json(manifest.to_json())
    recovered = pipe.recover(hidden, RIGHT, manifest=kept)
    changed = np.abs(hidden.astype(int) - PHOTO).max(-1) > 8
    assert psnr(PHOTO[changed], recovered[changed]) > 26
    with pytest.raises(WrongPasswordError):
        pipe.recover(hidden, WRONG, manifest=kept)
    with pytest.raises(UserError, match="was anonymized at"):
        pipe.recover(hidden[:-1], RIGHT, manifest=kept)


def test_an_array_without_manifest_says_that_nothing_brings_it_back(backbone):
    pipe = pipeline(backbone)
    with pytest.warns(UserWarning, match="anonymize_with_manifest"):
        hidden = pipe.anonymize(PHOTO, RIGHT)
    with pytest.raises(UserError, match="carries no sealed codes"):
        pipe.recover(hidden, RIGHT)


def test_a_picture_carries_its_manifest_and_its_codes(backbone, recwarn):
    pipe = pipeline(backbone)
    hidden, manifest = pipe.anonymize_with_manifest(Image.fromarray(PHOTO), RIGHT)
    assert read_manifest(load_photo(hidden)) == manifest
    assert psnr(PHOTO, np.asarray(pipe.recover(hidden, RIGHT))) > 26
    assert not recwarn.list


def test_a_wrong_password_opens_nothing(backbone):
    photo, manifest = hidden_photo(backbone)
    with pytest.raises(WrongPasswordError, match="wrong password"):
        pipeline(backbone).recover_photo(photo, WRONG, manifest)


def test_one_face_cannot_stand_for_another(backbone):
    photo, manifest = hidden_photo(backbone)
    swapped = replace(manifest, codes=manifest.codes[::-1])
    with pytest.raises(WrongPasswordError, match="tampered"):
        pipeline(backbone).recover_photo(photo, RIGHT, swapped)


def test_a_moved_face_or_another_size_of_the_photo_opens_nothing(backbone):
    _, manifest = hidden_photo(backbone)
    face = manifest.layers[0][0]
    moved = replace(face, center_x=face.center_x + 1)
    layers = ((moved, *manifest.layers[0][1:]), *manifest.layers[1:])
    for forged in (replace(manifest, layers=layers), replace(manifest, width=manifest.width + 1)):
        with pytest.raises(WrongPasswordError):
            opened_codes(forged, RIGHT, "x.png")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda codes: codes[:1], "one text for each face"),
        (lambda codes: [codes[0], "not base64!"], "not base64"),
        (lambda codes: [codes[0], ""], "at most"),
        (lambda codes: [codes[0], 7], "at most"),
        (lambda codes: [codes[0], "A" * (4 * MAX_CODE_BYTES)], "at most"),
        (lambda codes: "codes", "one text for each face"),
    ],
)
def test_a_manifest_with_bad_codes_is_refused(backbone, change, message):
    _, manifest = hidden_photo(backbone)
    values = json.loads(manifest.to_json())
    with pytest.raises(UserError, match=message):
        Manifest.from_json(json.dumps(values | {"codes": change(values["codes"])}))


def test_codes_of_absurd_size_together_are_refused(backbone):
    _, manifest = hidden_photo(backbone)
    values = json.loads(manifest.to_json())
    long = base64.b64encode(bytes(60_000)).decode()
    many = {"layers": [values["layers"][0][:1] * 50], "codes": [long] * 50}
    with pytest.raises(UserError, match="more than"):
        Manifest.from_json(json.dumps(values | many))
    places = [CropGeometry(float(10 + i), 10.0, 5.0, 0.0) for i in range(50)]
    with pytest.raises(UserError, match="cut the photo"):
        with_codes(replace(manifest, layers=(tuple(places),)), dict.fromkeys(places, bytes(60_000)), RIGHT)


@pytest.mark.parametrize("length", [1, 100, SIZES[0] + 1])
def test_a_code_cut_short_is_named_under_any_password(backbone, length):
    photo, manifest = hidden_photo(backbone)
    cut = replace(manifest, codes=(manifest.codes[0], manifest.codes[1][:length]))
    for deniable in (False, True):
        task_secret = WRONG if deniable else RIGHT
        with pytest.raises(UserError, match="cut short") as caught:
            pipeline(backbone).recover_photo(photo, task_secret, cut)
        assert not isinstance(caught.value, WrongPasswordError)


def test_a_manifest_without_codes_says_what_is_missing(backbone):
    photo, manifest = hidden_photo(backbone)
    with pytest.raises(UserError, match="carries no sealed codes"):
        pipeline(backbone).recover_photo(photo, RIGHT, replace(manifest, codes=()))


def saved_photo(folder):
    Image.fromarray(PHOTO).save(folder / "photo.png")
    return folder / "photo.png"


def test_files_come_back_and_a_wrong_password_writes_nothing(backbone, tmp_path):
    pipe = pipeline(backbone)
    run_task(AnonymizeTask(pipe, saved_photo(tmp_path), tmp_path / "hidden.png", Password("right", kdf=CHEAP)))
    run_task(RecoverTask(pipe, tmp_path / "hidden.png", tmp_path / "back.png", Password("right")))
    assert psnr(PHOTO, np.asarray(Image.open(tmp_path / "back.png"))) > 28
    with pytest.raises(UserError, match=r"hidden\.png: wrong password"):
        run_task(RecoverTask(pipe, tmp_path / "hidden.png", tmp_path / "wrong.png", Password("wrong")))
    assert not (tmp_path / "wrong.png").exists()


def test_a_deniable_recovery_draws_other_strangers_and_says_nothing(backbone, tmp_path):
    pipe = pipeline(backbone)
    run_task(AnonymizeTask(pipe, saved_photo(tmp_path), tmp_path / "hidden.png", Password("right", kdf=CHEAP)))
    outcomes = []
    for word in ("right", "wrong"):
        source = tmp_path / "hidden.png"
        task = RecoverTask(pipe, source, tmp_path / f"{word}.png", Password(word), deniable=True)
        outcomes.append(run_task(task))
    assert [(o.faces, o.coarse, o.hidden, o.redetected) for o in outcomes[:1]] == [
        (o.faces, o.coarse, o.hidden, o.redetected) for o in outcomes[1:]
    ]
    hidden, right, wrong = (np.asarray(Image.open(tmp_path / f"{n}.png")) for n in ("hidden", "right", "wrong"))
    changed = np.abs(hidden.astype(int) - PHOTO).max(-1) > 8
    assert psnr(PHOTO[changed], right[changed]) > 24
    assert psnr(PHOTO[changed], wrong[changed]) < 16
    assert psnr(hidden[changed], wrong[changed]) < 20


def test_a_stranger_that_cannot_be_drawn_again_stays_and_nothing_is_said(sealed_bundle):
    class Fails(SealedPatch):
        def transform(self, identity, key, inverse=False):
            return super().transform(identity, key, inverse) * torch.nan

    photo, manifest = hidden_photo(SealedPatch(str(sealed_bundle)))
    fails = pipeline(Fails(str(sealed_bundle)))
    fails.weights = manifest.weights
    outcome = fails.drive(fails.recovering(photo, manifest, WRONG, deniable=True), WRONG, inverse=True)
    assert np.array_equal(outcome.photo.pixels, photo.pixels)
    assert outcome.faces == manifest.faces


def test_many_photos_at_once_equal_one_at_a_time(backbone, tmp_path):
    pipe = pipeline(backbone)
    source = saved_photo(tmp_path)
    password = Password("right", kdf=CHEAP)
    tasks = [AnonymizeTask(pipe, source, tmp_path / f"{i}.png", password) for i in range(3)]
    assert all(not isinstance(result, UserError) for _, result in run_tasks(pipe, tasks, workers=2, rows=4))
    hidden = [load_photo(tmp_path / f"{i}.png") for i in range(3)]
    secret = password.secret()
    opened = [opened_codes(read_manifest(photo), secret, "x") for photo in hidden]
    # Fresh nonces make the sealed bytes differ; what they hold is the same.
    assert opened[0] == opened[1] == opened[2]
    assert len({read_manifest(photo).codes for photo in hidden}) == 3
    back = [RecoverTask(pipe, tmp_path / f"{i}.png", tmp_path / f"back{i}.png", password) for i in range(3)]
    assert all(not isinstance(result, UserError) for _, result in run_tasks(pipe, back, workers=2, rows=4))
    pixels = [np.asarray(Image.open(tmp_path / f"back{i}.png")) for i in range(3)]
    assert all(np.array_equal(one, pixels[0]) for one in pixels)


def test_a_sidecar_and_a_webp_and_a_jpeg_carry_the_codes(backbone, tmp_path):
    pipe = pipeline(backbone)
    source = saved_photo(tmp_path)
    for name, output in (("a.png", Output(sidecar=True)), ("b.webp", Output()), ("c.jpg", Output())):
        run_task(AnonymizeTask(pipe, source, tmp_path / name, Password("right", kdf=CHEAP), output=output))
        run_task(RecoverTask(pipe, tmp_path / name, tmp_path / f"back_{name}.png", Password("right")))
        assert psnr(PHOTO, np.asarray(Image.open(tmp_path / f"back_{name}.png"))) > 26


def stripped(file, target):
    """The pixels of a file alone, as a service that removes metadata writes them."""
    with Image.open(file) as image:
        Image.fromarray(np.asarray(image.convert("RGB"))).save(target)
    return target


@pytest.mark.parametrize("name", ["hidden.png", "hidden.webp"])
def test_codes_in_the_pixels_outlive_the_metadata(backbone, tmp_path, name):
    pipe = pipeline(backbone)
    output = Output(carry=True)
    run_task(AnonymizeTask(pipe, saved_photo(tmp_path), tmp_path / name, Password("right", kdf=CHEAP), output=output))
    bare = stripped(tmp_path / name, tmp_path / "bare.png")
    assert load_photo(bare).manifest is None
    run_task(RecoverTask(pipe, bare, tmp_path / "back.png", Password("right")))
    run_task(RecoverTask(pipe, tmp_path / name, tmp_path / "other.png", Password("right")))
    back = np.asarray(Image.open(tmp_path / "back.png"))
    assert np.array_equal(back, np.asarray(Image.open(tmp_path / "other.png")))
    assert psnr(PHOTO, back) > 26
    with pytest.raises(UserError, match="wrong password"):
        run_task(RecoverTask(pipe, bare, tmp_path / "wrong.png", Password("wrong")))


def test_pixels_carry_only_in_files_that_keep_them(backbone, tmp_path):
    pipe = pipeline(backbone)
    for name, quality in (("a.jpg", None), ("b.webp", 90)):
        task = AnonymizeTask(
            pipe, saved_photo(tmp_path), tmp_path / name, Password("x"), output=Output(quality, carry=True)
        )
        with pytest.raises(UserError, match="keeps every pixel"):
            run_task(task)
        assert not (tmp_path / name).exists()


def test_faces_too_small_for_what_they_should_carry_are_named(backbone, tmp_path):
    pipe = pipeline(backbone, [face_at(60, 60, 7)])
    output = Output(carry=True)
    task = AnonymizeTask(pipe, saved_photo(tmp_path), tmp_path / "a.png", Password("x", kdf=CHEAP), output=output)
    with pytest.raises(UserError, match=r"photo\.png: .* too small for --carry pixels"):
        run_task(task)
    assert not (tmp_path / "a.png").exists()


def test_a_bare_file_that_carries_nothing_says_what_to_give(backbone, tmp_path):
    pipe = pipeline(backbone)
    with pytest.raises(UserError, match="carries no faceanon data"):
        run_task(RecoverTask(pipe, saved_photo(tmp_path), tmp_path / "a.png", Password("x")))


def test_a_vault_still_brings_every_pixel_back(backbone, tmp_path):
    from faceanon.pipeline.exact import ExactTask

    pipe = pipeline(backbone)
    output = Output(vault=True)
    password = Password("right", kdf=CHEAP)
    run_task(AnonymizeTask(pipe, saved_photo(tmp_path), tmp_path / "hidden.png", password, output=output))
    run_task(ExactTask(pipe, tmp_path / "hidden.png", tmp_path / "back.png", Password("right")))
    assert np.array_equal(np.asarray(Image.open(tmp_path / "back.png")), PHOTO)
