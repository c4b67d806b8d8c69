import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password, Secret
from faceanon.manifest import Manifest
from faceanon.photo.detect import Detection
from faceanon.photo.file import LoadedPhoto, load_photo, read_manifest, write_photo
from faceanon.photo.policy import Policy
from faceanon.photo.yunet import YunetDetector
from faceanon.pipeline import NoFaceError, Pipeline, anonymize_file, recover_file
from faceanon.weights.bundle import Bundle
from fakes import FixedDetector, KeyedTint

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
RIGHT, WRONG = Secret.random(1), Secret.random(2)


def face_at(x, y, eyes):
    """A detection with eyes this far apart: a square of side 4 * eyes around (x, y + eyes / 10)."""
    points = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]]) * eyes + [x, y]
    return Detection((x - eyes, y - eyes, x + eyes, y + 2 * eyes), 0.99, points)


def make_photo(size=(240, 320), seed=0):
    noise = np.random.default_rng(seed).integers(40, 216, (size[0] // 20, size[1] // 20, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize(size[::-1], Image.Resampling.BICUBIC)).copy()


PHOTO = make_photo()
ALONE = [face_at(80, 100, 25), face_at(230, 110, 22)]  # two squares apart
CROWD = [face_at(90, 100, 25), face_at(140, 110, 22), face_at(190, 100, 20)]  # each overlaps the next


def psnr(one, other):
    error = np.square(one.astype(float) - other).mean()
    return 10 * np.log10(255**2 / max(error, 1e-9))


def pipeline(faces=ALONE, **options):
    return Pipeline(KeyedTint(), FixedDetector(faces), **options)


@pytest.mark.parametrize("faces", [ALONE, CROWD])
def test_the_right_secret_brings_the_faces_back(faces):
    pipe = pipeline(faces)
    anonymized = pipe.anonymize(Image.fromarray(PHOTO), RIGHT)
    hidden = np.asarray(anonymized)
    manifest = Manifest.from_json(anonymized.info["faceanon"])
    assert manifest.faces == len(faces)
    assert len(manifest.layers) == (1 if faces is ALONE else 2)
    right, wrong = (np.asarray(pipe.recover(anonymized, secret)) for secret in (RIGHT, WRONG))
    changed = np.abs(hidden.astype(int) - PHOTO).max(-1) > 8
    assert changed.mean() > 0.05
    assert psnr(PHOTO[changed], hidden[changed]) < 20
    assert psnr(PHOTO[changed], right[changed]) > 33
    assert psnr(PHOTO[changed], wrong[changed]) < 20


def test_overlapping_faces_need_the_opposite_order():
    """Taking the layers off in the order they were put on must be visibly worse, or the order would be idle."""
    pipe = pipeline(CROWD)
    outcome = pipe.anonymize_photo(load_photo(PHOTO), RIGHT)
    manifest = read_manifest(outcome.photo)
    flipped = replace(manifest, layers=manifest.layers[::-1])
    good, bad = (pipe.recover_photo(outcome.photo, RIGHT, m).photo.pixels for m in (manifest, flipped))
    assert psnr(PHOTO, good) > psnr(PHOTO, bad) + 3


def test_background_is_untouched():
    hidden = pipeline().anonymize(PHOTO, RIGHT)
    assert isinstance(hidden, np.ndarray)
    np.testing.assert_array_equal(hidden[170:], PHOTO[170:])
    assert (hidden[100, 80] != PHOTO[100, 80]).any()


def test_array_out_for_array_and_recovery_by_detection_warns():
    pipe = pipeline()
    hidden = pipe.anonymize(PHOTO, RIGHT)
    with pytest.warns(UserWarning, match="no manifest"):
        back = pipe.recover(hidden, RIGHT)
    assert psnr(PHOTO, back) > 35


def test_aligned_faces_round_trip_without_detection():
    face = make_photo((64, 64), seed=3)
    pipe = Pipeline(KeyedTint(), detector=None)
    hidden = pipe.anonymize(face, RIGHT, aligned=True)
    assert psnr(face, hidden) < 20
    assert psnr(face, pipe.recover(hidden, RIGHT, aligned=True)) > 40
    assert psnr(face, pipe.recover(hidden, WRONG, aligned=True)) < 20
    assert pipe._detector is None


def test_batches_do_not_change_the_result():
    small, large = (pipeline(batch=batch).anonymize(PHOTO, RIGHT) for batch in (1, 16))
    np.testing.assert_array_equal(small, large)


def test_same_secret_same_photo():
    one, two = (pipeline().anonymize(PHOTO, secret) for secret in (RIGHT, Secret.random(1)))
    np.testing.assert_array_equal(one, two)
    assert (one != pipeline().anonymize(PHOTO, WRONG)).any()


def test_small_faces_are_hidden_and_counted():
    outcome = pipeline([face_at(100, 100, 10), ALONE[1]]).anonymize_photo(load_photo(PHOTO), RIGHT)
    assert (outcome.faces, outcome.coarse) == (2, 1)
    assert psnr(PHOTO[95:110, 92:108], outcome.photo.pixels[95:110, 92:108]) < 25


def test_face_at_the_border():
    pipe = pipeline([face_at(5, 100, 25)])
    hidden = pipe.anonymize(Image.fromarray(PHOTO), RIGHT)
    assert psnr(PHOTO[80:130, :30], np.asarray(hidden)[80:130, :30]) < 20
    assert psnr(PHOTO[80:130, :30], np.asarray(pipe.recover(hidden, RIGHT))[80:130, :30]) > 30


def test_no_face_and_no_square_are_refused():
    with pytest.raises(NoFaceError, match="no face found in the photo"):
        pipeline([]).anonymize(PHOTO, RIGHT)
    with pytest.raises(UserError, match="must be square"):
        pipeline().anonymize(PHOTO, RIGHT, aligned=True)


def test_files_come_back_with_password_alone(tmp_path):
    source, hidden, back = tmp_path / "in.jpg", tmp_path / "hidden.png", tmp_path / "back.png"
    Image.fromarray(PHOTO).save(source, quality=95)
    outcome = anonymize_file(pipeline(), source, hidden, Password("hush", kdf=CHEAP))
    assert (outcome.faces, outcome.coarse) == (2, 0)
    recover_file(pipeline([]), hidden, back, Password("hush"))
    original = load_photo(source).pixels
    assert psnr(original, load_photo(hidden).pixels) < 32
    assert psnr(original, load_photo(back).pixels) > 38
    assert load_photo(back).manifest is None
    assert b"hush" not in hidden.read_bytes()


def test_other_weights_are_named(tmp_path):
    hidden = tmp_path / "hidden.png"
    Image.fromarray(PHOTO).save(tmp_path / "in.png")
    anonymize_file(pipeline(name="mine"), tmp_path / "in.png", hidden, Password("hush", kdf=CHEAP))
    other = pipeline(name="yours", weights=hashlib.sha256(b"other").hexdigest())
    with pytest.raises(UserError, match=r"hidden\.png was anonymized with mine \(.*but the model is yours"):
        recover_file(other, hidden, tmp_path / "back.png", Password("hush"))
    assert not (tmp_path / "back.png").exists()


def test_weights_hash_follows_the_weights():
    one, same, other = KeyedTint(), KeyedTint(), KeyedTint()
    with torch.no_grad():
        other.strength += 0.01
    hashes = [Pipeline(backbone).weights for backbone in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_one_way_method_says_so():
    class OneWay(KeyedTint):
        reversible = False

    pipe = Pipeline(OneWay(), FixedDetector(ALONE))
    hidden = pipe.anonymize(Image.fromarray(PHOTO), RIGHT)
    with pytest.raises(UserError, match="OneWay cannot recover"):
        pipe.recover(hidden, RIGHT)


def test_secret_of_ones_own_needs_python(tmp_path):
    outcome = pipeline().anonymize_photo(LoadedPhoto(PHOTO), RIGHT)
    write_photo(tmp_path / "a.png", outcome.photo)
    with pytest.raises(UserError, match="not with a password"):
        recover_file(pipeline(), tmp_path / "a.png", tmp_path / "b.png", Password("hush"))


@pytest.mark.parametrize(("min_face", "searched"), [(20, 12), (60, 36)])
def test_faces_too_small_for_the_model_are_looked_for_too(min_face, searched):
    pipeline = Pipeline(KeyedTint(), policy=Policy(min_face=min_face))
    assert pipeline.detector.config.min_face == searched


@pytest.mark.parametrize(("name", "kind"), [("photo128", YunetDetector), ("photo128_prior", YunetDetector)])
def test_a_model_of_photographs_finds_faces_with_yunet(name, kind):
    backbone = KeyedTint()
    backbone.bundle = Bundle(name)
    pipeline = Pipeline(backbone, policy=Policy(min_face=50))
    assert isinstance(pipeline.detector, kind)
    assert pipeline.detector.config.min_face == 30
