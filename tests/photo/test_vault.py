"""A vault gives the original faces back to the last bit, to the password alone, and names what is wrong with it."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from faceanon.errors import UserError
from faceanon.key import Password, Secret
from faceanon.manifest import CropGeometry, HiddenFace, Manifest
from faceanon.photo import vault as module
from faceanon.photo.file import load_photo, read_vault
from faceanon.photo.metadata import vault_of
from faceanon.photo.vault import HEAD, MAGIC, seal, unseal
from faceanon.pipeline import Pipeline, anonymize_file, recover_file
from faceanon.pipeline.tasks import Output
from fakes import FixedDetector, KeyedTint
from vault_photos import CHEAP, FACES, WORD, hide, make_photo, show

BOTH = pytest.mark.parametrize("name", ["b.png", "b.webp"])
MANIFEST = Manifest("a.B", "tiny", "ab" * 32, 64, 20, 10, ((CropGeometry(5, 5, 3, 1),),), bytes(16), CHEAP, (), "PNG")
PIXELS = np.random.default_rng(3).integers(0, 256, (10, 20, 3), dtype=np.uint8)


@pytest.fixture
def pipe():
    return Pipeline(KeyedTint(), FixedDetector(FACES), batch=4)


@BOTH
@pytest.mark.parametrize("sidecar", [False, True])
def test_every_pixel_comes_back_from_a_file_that_keeps_pixels(tmp_path, pipe, name, sidecar):
    source = make_photo(tmp_path / "a.jpg", quality=90)
    done = hide(pipe, source, tmp_path / name, sidecar=sidecar)
    assert (done.faces, done.hidden, done.kept) == (4, 1, True)
    assert vault_of(tmp_path / name).exists() == (sidecar or name == "b.webp")
    original, hidden = load_photo(source).pixels, load_photo(tmp_path / name).pixels
    assert (original != hidden).any(-1).mean() > 0.2
    back = show(pipe, tmp_path / name, tmp_path / "c.png")
    assert (back.faces, back.hidden, back.photo.notes) == (4, 0, ())
    np.testing.assert_array_equal(load_photo(tmp_path / "c.png").pixels, original)
    with Image.open(tmp_path / "c.png") as image:
        assert not image.getexif()
        assert not image.info


def test_the_windows_hold_all_that_anonymizing_changes(tmp_path, pipe):
    done = hide(pipe, make_photo(tmp_path / "a.png"), tmp_path / "b.png")
    outside = np.ones((160, 180), dtype=bool)
    for left, top, right, bottom in module.touched(done.records, 180, 160):
        outside[top:bottom, left:right] = False
    original = load_photo(tmp_path / "a.png").pixels
    assert outside.mean() > 0.1
    np.testing.assert_array_equal(done.photo.pixels[outside], original[outside])


def test_a_lossy_file_gives_exact_faces_and_says_what_the_rest_is(tmp_path, pipe):
    source = make_photo(tmp_path / "a.png")
    done = hide(pipe, source, tmp_path / "b.jpg", quality=80)
    original, hidden = load_photo(source).pixels, load_photo(tmp_path / "b.jpg").pixels
    back = show(pipe, tmp_path / "b.jpg", tmp_path / "c.png")
    assert back.photo.notes == (
        "the faces are exact; around them the picture is as JPEG 80, or a later change, left it",
    )
    expected = hidden.copy()
    for left, top, right, bottom in module.touched(done.records, 180, 160):
        expected[top:bottom, left:right] = original[top:bottom, left:right]
    np.testing.assert_array_equal(load_photo(tmp_path / "c.png").pixels, expected)


def test_transparency_and_a_whole_aligned_face(tmp_path, pipe):
    pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 4), dtype=np.uint8)
    pixels[:9, :, 3] = 0
    Image.fromarray(pixels).save(tmp_path / "a.png")
    anonymize_file(
        pipe,
        tmp_path / "a.png",
        tmp_path / "b.webp",
        Password(WORD, kdf=CHEAP),
        aligned=True,
        output=Output(vault=True),
    )
    assert show(pipe, tmp_path / "b.webp", tmp_path / "c.png").photo.notes == ()
    original, back = load_photo(tmp_path / "a.png"), load_photo(tmp_path / "c.png")
    np.testing.assert_array_equal(back.pixels, original.pixels)
    np.testing.assert_array_equal(back.alpha, original.alpha)


def test_exact_recovery_needs_neither_model_nor_weights(tmp_path, pipe):
    source = make_photo(tmp_path / "a.png")
    hide(pipe, source, tmp_path / "b.png")

    class Unusable(KeyedTint):
        def recover(self, image, key):
            raise AssertionError("the model was asked")

    show(Pipeline(Unusable(), FixedDetector([]), weights="cd" * 32), tmp_path / "b.png", tmp_path / "c.png")
    np.testing.assert_array_equal(load_photo(tmp_path / "c.png").pixels, load_photo(source).pixels)


def refused(tmp_path, pipe, source, message, word=WORD):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=message) as caught:
        show(pipe, source, tmp_path / "c.png", word)
    assert "\n" not in str(caught.value)
    assert WORD not in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_wrong_password_shows_itself(tmp_path, pipe):
    hide(pipe, make_photo(tmp_path / "a.png"), tmp_path / "b.png")
    refused(tmp_path, pipe, tmp_path / "b.png", r"b\.png: wrong password", word="correct-horse-batterz")
    recover_file(pipe, tmp_path / "b.png", tmp_path / "d.png", Password("correct-horse-batterz"))  # as ever: a stranger


def test_a_file_without_a_vault_says_so(tmp_path, pipe):
    source = make_photo(tmp_path / "a.png")
    anonymize_file(pipe, source, tmp_path / "b.png", Password(WORD, kdf=CHEAP))
    refused(tmp_path, pipe, tmp_path / "b.png", "has no vault")
    hide(pipe, source, tmp_path / "b.jpg")
    vault_of(tmp_path / "b.jpg").rename(tmp_path / "elsewhere")
    refused(tmp_path, pipe, tmp_path / "b.jpg", "has no vault")
    refused(tmp_path, pipe, source, "carries no faceanon data")


def test_a_lossy_target_is_refused(tmp_path, pipe):
    hide(pipe, make_photo(tmp_path / "a.png"), tmp_path / "b.png")
    for target, output in ((tmp_path / "c.jpg", Output()), (tmp_path / "c.webp", Output(quality=90))):
        with pytest.raises(UserError, match="keeps every pixel"):
            recover_file(pipe, tmp_path / "b.png", target, Password(WORD), output, exact=True)
        assert not target.exists()


@pytest.mark.parametrize("place", [0, len(MAGIC), len(MAGIC) + 9, HEAD - 1, HEAD, HEAD + 5000, -1])
def test_a_damaged_vault_is_named(tmp_path, pipe, place):
    hide(pipe, make_photo(tmp_path / "a.png"), tmp_path / "b.webp")
    beside = vault_of(tmp_path / "b.webp")
    data = bytearray(beside.read_bytes())
    data[place] ^= 1
    beside.write_bytes(bytes(data))
    refused(tmp_path, pipe, tmp_path / "b.webp", r"its vault is damaged")


@pytest.mark.parametrize("keep", [0, 5, len(MAGIC), HEAD, HEAD + 15, HEAD + 4096])
def test_a_vault_cut_short_is_named(keep):
    vault = seal(PIXELS, [(0, 0, 9, 9)], Secret.random(0), MANIFEST)
    with pytest.raises(UserError, match="damaged"):
        unseal(vault[:keep], Secret.random(0), MANIFEST, "x")


def resealed(vault, place):
    """Change a byte as a forger would: with the checksum made right again."""
    data = bytearray(vault)
    data[place] ^= 1
    start = len(MAGIC) + module.SUM
    data[len(MAGIC) : start] = module.hashlib.sha256(bytes(data[start:])).digest()[: module.SUM]
    return bytes(data)


@pytest.mark.parametrize(
    ("place", "message"),
    [(HEAD, "tampered"), (-1, "tampered"), (HEAD - 1, "tampered"), (len(MAGIC) + module.SUM, "another picture")],
)
def test_a_forged_vault_is_named(place, message):
    vault = seal(PIXELS, [(0, 0, 9, 9)], Secret.random(0), MANIFEST)
    with pytest.raises(UserError, match=message):
        unseal(resealed(vault, place), Secret.random(0), MANIFEST, "x")


@pytest.mark.parametrize(
    "change",
    [
        {"width": 21},
        {"weights": "cd" * 32},
        {"encoding": "JPEG 95"},
        {"layers": ((CropGeometry(5.0001, 5, 3, 1),),)},
        {"hidden": (HiddenFace((1.0, 1.0, 2.0, 2.0), "blur"),)},
    ],
)
def test_a_vault_opens_with_its_own_manifest_only(change):
    vault = seal(PIXELS, [(0, 0, 9, 9)], Secret.random(0), MANIFEST)
    for unbound in ({"model": "renamed"}, {"salt": bytes(15) + b"1"}, {"salt": None, "kdf": None}):
        assert unseal(vault, Secret.random(0), dataclasses.replace(MANIFEST, **unbound), "x").regions
    with pytest.raises(UserError, match="another picture"):
        unseal(vault, Secret.random(0), dataclasses.replace(MANIFEST, **change), "x")


def plain_of(head, blob=b""):
    text = json.dumps(head).encode()
    return len(text).to_bytes(4, "big") + text + blob


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\xff" * 40,
        plain_of([]),
        plain_of({"sha256": "", "regions": [{"box": [0, 0, 21, 2], "bytes": 3}]}, b"png"),
        plain_of({"sha256": "", "regions": [{"box": [0, 0, 2, 2], "bytes": 3}]}, b"png"),
        plain_of({"sha256": "", "regions": [{"box": [0, 0, 2, 2], "bytes": 99}]}, b"png"),
        plain_of({"sha256": "", "regions": [{"box": "nope", "bytes": 3}]}, b"png"),
        plain_of({"sha256": "", "regions": [{"box": [0, 0, float("inf"), 2], "bytes": 3}]}, b"png"),
        (2000).to_bytes(4, "big") + b"[" * 2000,
    ],
)
def test_rubbish_under_the_right_key_is_one_line(monkeypatch, plain):
    monkeypatch.setattr(module, "_pack", lambda original, boxes: plain)
    vault = seal(PIXELS, [], Secret.random(0), MANIFEST)
    with pytest.raises(UserError, match="no faces that can be read"):
        unseal(vault, Secret.random(0), MANIFEST, "x")


def test_two_vaults_of_one_photo_share_nothing_and_tell_little():
    box = [(0, 0, 20, 10)]
    one, other = (seal(PIXELS, box, Secret.random(0), MANIFEST) for _ in range(2))
    start = len(MAGIC) + module.SUM + module.BINDING
    assert not {one[i : i + 12] for i in range(start, len(one) - 12)} & {
        other[i : i + 12] for i in range(start, len(other) - 12)
    }
    flat = seal(np.zeros_like(PIXELS), box, Secret.random(0), MANIFEST)
    assert len(flat) == len(one)  # padded
    assert (len(one) - HEAD - module.TAG) % module.PAD == 0


def test_writing_anew_without_a_vault_leaves_none(tmp_path, pipe):
    source, target = make_photo(tmp_path / "a.png"), tmp_path / "b.webp"
    hide(pipe, source, target)
    assert read_vault(target)
    anonymize_file(pipe, source, target, Password(WORD, kdf=CHEAP))
    assert read_vault(target) is None


def test_a_write_that_fails_leaves_nothing(tmp_path, pipe, monkeypatch):
    from faceanon.photo import file as photo

    source = make_photo(tmp_path / "a.png")
    real = photo.write_atomic

    def failing(path, data):
        if path.suffix == ".webp":
            raise UserError("no space left on the disk")
        real(path, data)

    monkeypatch.setattr(photo, "write_atomic", failing)
    with pytest.raises(UserError, match="no space"):
        hide(pipe, source, tmp_path / "b.webp")
    assert list(tmp_path.iterdir()) == [source]


def test_saving_the_picture_anew_drops_the_vault_with_the_manifest(tmp_path, pipe):
    hide(pipe, make_photo(tmp_path / "a.png"), tmp_path / "b.png")
    with Image.open(tmp_path / "b.png") as image:
        image.save(tmp_path / "c.png")
    assert read_vault(tmp_path / "c.png") is None


def test_what_would_exhaust_the_machine_is_neither_sealed_nor_opened(monkeypatch):
    vault = seal(PIXELS, [(0, 0, 20, 10)] * 3, Secret.random(0), MANIFEST)
    assert len(unseal(vault, Secret.random(0), MANIFEST, "x").regions) == 3
    monkeypatch.setattr(module, "MOST_PIXELS", 2 * 200)
    with pytest.raises(UserError, match="no faces that can be read"):
        unseal(vault, Secret.random(0), MANIFEST, "x")
    with pytest.raises(UserError, match="cannot hold them all"):
        seal(PIXELS, [(0, 0, 20, 10)] * 3, Secret.random(0), MANIFEST)
