"""Nothing is anonymized twice by accident, and what is anonymized twice on purpose comes back by both passwords."""

import json

import numpy as np
import pytest
from PIL import Image

from faceanon import cli
from faceanon.commands import anonymize, recover
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password, Secret
from faceanon.manifest import MOST_RECORDS, Manifest
from faceanon.photo.file import load_photo, read_manifest, read_vault
from faceanon.photo.metadata import MANIFEST_KEY, sidecar_of
from faceanon.pipeline import Pipeline, anonymize_file, recover_file
from faceanon.pipeline.tasks import Output
from fakes import FixedDetector, KeyedTint, SealedPatch
from test_pipeline import ALONE, CROWD, PHOTO, psnr

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
FIRST = Password("first", kdf=CHEAP)
SECOND = Password("second", kdf=CHEAP)


@pytest.fixture
def pipe():
    return Pipeline(KeyedTint(), FixedDetector(ALONE))


@pytest.fixture
def sealed_pipe(sealed_bundle):
    return Pipeline(SealedPatch(str(sealed_bundle)), FixedDetector(ALONE))


@pytest.fixture
def photo(tmp_path):
    Image.fromarray(PHOTO).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def pixels(path):
    return load_photo(path).pixels


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("a.png", Output()),
        ("a.webp", Output()),
        ("a.jpg", Output()),
        ("a.png", Output(sidecar=True)),
        ("a.png", Output(vault=True)),
    ],
)
def test_a_result_is_refused_with_the_way_out(pipe, photo, tmp_path, name, output):
    anonymize_file(pipe, photo, tmp_path / name, FIRST, output=output)
    with pytest.raises(UserError, match=rf"{name} was anonymized .* recover it first, or give --again"):
        anonymize_file(pipe, tmp_path / name, tmp_path / "twice.png", SECOND)
    assert not (tmp_path / "twice.png").exists()


def test_a_result_that_has_its_data_in_the_pixels_alone_is_refused(sealed_pipe, photo, tmp_path):
    anonymize_file(sealed_pipe, photo, tmp_path / "a.png", FIRST, output=Output(carry=True))
    Image.fromarray(pixels(tmp_path / "a.png")).save(tmp_path / "bare.png")
    with pytest.raises(UserError, match=r"bare\.png was anonymized"):
        anonymize_file(sealed_pipe, tmp_path / "bare.png", tmp_path / "b.png", SECOND)
    anonymize_file(sealed_pipe, tmp_path / "bare.png", tmp_path / "b.png", SECOND, again=True)
    assert read_manifest(load_photo(tmp_path / "b.png")).records == 2


@pytest.mark.parametrize("method", ["keyed", "sealed"])
@pytest.mark.parametrize(
    ("first", "second", "back"),
    [
        ("a.png", "b.png", "c.png"),
        ("a.webp", "b.webp", "c.webp"),
        ("a.jpg", "b.png", "c.png"),
        ("a.jpg", "b.jpg", "c.jpg"),
    ],
)
def test_both_passwords_in_turn_bring_the_person_back(request, photo, tmp_path, method, first, second, back):
    pipe = request.getfixturevalue("pipe" if method == "keyed" else "sealed_pipe")
    anonymize_file(pipe, photo, tmp_path / first, FIRST)
    pipe.detector = FixedDetector(CROWD)  # other squares than the first time
    anonymize_file(pipe, tmp_path / first, tmp_path / second, SECOND, again=True)
    assert read_manifest(load_photo(tmp_path / second)).records == 2
    outcome = recover_file(pipe, tmp_path / second, tmp_path / back, SECOND)
    assert "recover the result again" in outcome.photo.notes[-1]
    assert read_manifest(load_photo(tmp_path / back)).records == 1
    assert psnr(pixels(tmp_path / first), pixels(tmp_path / back)) > 24
    recover_file(pipe, tmp_path / back, tmp_path / "person.png", FIRST)
    assert load_photo(tmp_path / "person.png").manifest is None
    changed = np.abs(pixels(tmp_path / first).astype(int) - PHOTO).max(-1) > 8
    assert psnr(PHOTO[changed], pixels(tmp_path / "person.png")[changed]) > 22


def test_the_first_password_alone_opens_nothing_of_the_second(sealed_pipe, photo, tmp_path):
    anonymize_file(sealed_pipe, photo, tmp_path / "a.png", FIRST)
    anonymize_file(sealed_pipe, tmp_path / "a.png", tmp_path / "b.png", SECOND, again=True)
    with pytest.raises(UserError, match="wrong password"):
        recover_file(sealed_pipe, tmp_path / "b.png", tmp_path / "c.png", FIRST)


def test_a_sidecar_is_kept_inside_the_new_one(pipe, photo, tmp_path):
    output = Output(sidecar=True)
    anonymize_file(pipe, photo, tmp_path / "a.png", FIRST, output=output)
    anonymize_file(pipe, tmp_path / "a.png", tmp_path / "b.png", SECOND, output=output, again=True)
    first = Manifest.from_json(sidecar_of(tmp_path / "a.png").read_text())
    assert Manifest.from_json(sidecar_of(tmp_path / "b.png").read_text()).earlier == first


def test_the_vault_of_the_first_time_outlives_the_second(pipe, photo, tmp_path):
    anonymize_file(pipe, photo, tmp_path / "a.png", FIRST, output=Output(vault=True))
    with pytest.raises(UserError, match="has a vault already"):
        anonymize_file(pipe, tmp_path / "a.png", tmp_path / "b.png", SECOND, output=Output(vault=True), again=True)
    anonymize_file(pipe, tmp_path / "a.png", tmp_path / "b.png", SECOND, again=True)
    recover_file(pipe, tmp_path / "b.png", tmp_path / "c.png", SECOND)
    assert read_vault(tmp_path / "c.png") == read_vault(tmp_path / "a.png")
    recover_file(pipe, tmp_path / "c.png", tmp_path / "person.png", FIRST, exact=True)
    changed = np.abs(pixels(tmp_path / "a.png").astype(int) - PHOTO).max(-1) > 8
    np.testing.assert_array_equal(pixels(tmp_path / "person.png")[changed], PHOTO[changed])


def test_an_exact_second_recovery_gives_the_first_file_back(pipe, photo, tmp_path):
    anonymize_file(pipe, photo, tmp_path / "a.png", FIRST)
    anonymize_file(pipe, tmp_path / "a.png", tmp_path / "b.png", SECOND, output=Output(vault=True), again=True)
    recover_file(pipe, tmp_path / "b.png", tmp_path / "c.png", SECOND, exact=True)
    np.testing.assert_array_equal(pixels(tmp_path / "c.png"), pixels(tmp_path / "a.png"))
    assert read_manifest(load_photo(tmp_path / "c.png")) == read_manifest(load_photo(tmp_path / "a.png"))


def test_what_does_not_fit_its_data_is_not_anonymized_again(pipe, photo, tmp_path):
    anonymize_file(pipe, photo, tmp_path / "a.png", FIRST, output=Output(sidecar=True))
    Image.new("RGB", PHOTO.shape[1::-1]).save(tmp_path / "a.png")
    with pytest.raises(UserError, match="is not as it was anonymized"):
        anonymize_file(pipe, tmp_path / "a.png", tmp_path / "b.png", SECOND, again=True)


def test_there_is_a_most_of_times(pipe):
    image = Image.fromarray(PHOTO)
    for count in range(MOST_RECORDS):
        image = pipe.anonymize(image, Secret.random(count), again=True)
    with pytest.raises(UserError, match=f"anonymized {MOST_RECORDS} times"):
        pipe.anonymize(image, Secret.random(9), again=True)


def test_pictures_in_python_are_refused_too(pipe):
    image = pipe.anonymize(Image.fromarray(PHOTO), Secret.random(1))
    with pytest.raises(UserError, match="again=True"):
        pipe.anonymize(image, Secret.random(2))
    twice = pipe.anonymize(image, Secret.random(2), again=True)
    once = pipe.recover(twice, Secret.random(2))
    assert MANIFEST_KEY in once.info
    assert psnr(PHOTO, np.asarray(pipe.recover(once, Secret.random(1)))) > 33


def test_on_the_command_line(pipe, photo, tmp_path, monkeypatch, capsys):
    for command in (anonymize, recover):
        monkeypatch.setattr(command, "load_pipeline", lambda *asked, **more: pipe)
    monkeypatch.setattr(KdfParameters.__init__, "__defaults__", ("argon2id", 64, 1, 1, 19))
    monkeypatch.setattr(anonymize, "_pipeline", lambda *asked: pipe)
    monkeypatch.setenv("PW", "first")
    word = ["--password-env", "PW"]
    names = [str(tmp_path / name) for name in ("photo.png", "a.png", "b.png", "c.png", "d.png")]
    assert cli.main(["anonymize", names[0], names[1], *word]) == 0
    assert cli.main(["anonymize", names[1], names[2], *word]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert cli.main(["anonymize", names[1], names[2], "--again", *word]) == 0
    assert cli.main(["inspect", names[2]]) == 0
    assert "2 times" in capsys.readouterr().out
    assert cli.main(["inspect", "--json", names[2]]) == 0
    assert json.loads(capsys.readouterr().out)["earlier"]["version"] == 5
    assert cli.main(["recover", names[2], names[3], *word]) == 0
    assert "recover the result again" in capsys.readouterr().out.replace("\n", " ")
    assert cli.main(["recover", names[3], names[4], *word]) == 0
    assert psnr(PHOTO, pixels(tmp_path / "d.png")) > 33
