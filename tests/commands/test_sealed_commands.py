"""`anonymize` and `recover` with sealed codes: wrong passwords, --deniable, --carry pixels."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon import cli
from faceanon.photo.file import load_photo
from test_pipeline import PHOTO


@pytest.fixture
def faceanon(in_process, monkeypatch):
    """Run a command in this process under a password; gives exit code, output and error output."""

    def run(password, *words):
        monkeypatch.setenv("PW", password)
        return in_process(*words, "--password-env", "PW")

    return run


def pixels(path):
    return load_photo(path).pixels.astype(float)


def psnr(one, other):
    return 10 * np.log10(255**2 / max(np.square(one - other).mean(), 1e-9))


def test_a_wrong_password_is_one_line_and_exit_code_2_and_nothing_is_written(faceanon, tmp_path):
    Image.fromarray(PHOTO).save(tmp_path / "a.png")
    assert faceanon("right", "anonymize", tmp_path / "a.png", tmp_path / "h.png")[0] == 0
    code, out, err = faceanon("wrong", "recover", tmp_path / "h.png", tmp_path / "b.png")
    assert (code, out) == (2, "")
    assert "wrong password" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "b.png").exists()
    assert faceanon("right", "recover", tmp_path / "h.png", tmp_path / "b.png")[0] == 0
    original = pixels(tmp_path / "a.png")
    assert psnr(pixels(tmp_path / "b.png"), original) > psnr(pixels(tmp_path / "h.png"), original) + 8


def test_a_deniable_recovery_says_the_same_of_both_passwords(faceanon, tmp_path):
    Image.fromarray(PHOTO).save(tmp_path / "a.png")
    faceanon("right", "anonymize", tmp_path / "a.png", tmp_path / "h.png")
    said = []
    for word in ("right", "wrong"):
        said.append(faceanon(word, "recover", tmp_path / "h.png", tmp_path / "b.png", "--deniable", "--overwrite"))
        (tmp_path / "b.png").rename(tmp_path / f"{word}.png")
    assert said[0] == said[1]
    assert said[0][0] == 0
    assert psnr(pixels(tmp_path / "right.png"), pixels(tmp_path / "wrong.png")) < 25


def test_a_folder_names_the_files_that_do_not_open(faceanon, tmp_path):
    for name, word in (("a", "right"), ("b", "other")):
        Image.fromarray(PHOTO).save(tmp_path / f"{name}.png")
        faceanon(word, "anonymize", tmp_path / f"{name}.png", tmp_path / f"in/{name}.png")
    code, out, _ = faceanon("right", "recover", tmp_path / "in", tmp_path / "out")
    assert code == 3
    assert "skipped: " in out
    assert "b.png: wrong password" in out
    assert sorted(path.name for path in (tmp_path / "out").glob("*.png")) == ["a.png"]
    assert faceanon("wrong", "recover", tmp_path / "in", tmp_path / "none")[0] == 2


def test_pixels_carry_what_recovery_needs(faceanon, tmp_path, capsys):
    Image.fromarray(PHOTO).save(tmp_path / "a.png")
    code, _, err = faceanon("right", "anonymize", tmp_path / "a.png", tmp_path / "h.jpg", "--carry", "pixels")
    assert code == 2
    assert "keeps every pixel" in err
    assert not (tmp_path / "h.jpg").exists()
    assert faceanon("right", "anonymize", tmp_path / "a.png", tmp_path / "h.png", "--carry", "pixels")[0] == 0
    with Image.open(tmp_path / "h.png") as image:
        Image.fromarray(np.asarray(image)).save(tmp_path / "bare.png")
    assert faceanon("right", "recover", tmp_path / "bare.png", tmp_path / "b.png")[0] == 0
    assert psnr(pixels(tmp_path / "b.png"), pixels(tmp_path / "a.png")) > 24
    assert cli.main(["inspect", str(tmp_path / "bare.png")]) == 0
    assert "recovery data: in the pixels" in capsys.readouterr().out
    code, _, err = faceanon("wrong", "recover", tmp_path / "bare.png", tmp_path / "w.png")
    assert code == 2
    assert "wrong password" in err


def test_inspect_says_how_many_bytes_are_carried(faceanon, tmp_path, capsys):
    Image.fromarray(PHOTO).save(tmp_path / "a.png")
    faceanon("right", "anonymize", tmp_path / "a.png", tmp_path / "h.png")
    assert cli.main(["inspect", str(tmp_path / "h.png")]) == 0
    assert "bytes, encrypted: what recovery needs" in capsys.readouterr().out
    assert cli.main(["inspect", "--json", str(tmp_path / "h.png")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["codes"]) == sum(len(layer) for layer in shown["layers"]) > 0


def test_exact_and_deniable_contradict_each_other(faceanon, tmp_path):
    Image.fromarray(PHOTO).save(tmp_path / "a.png")
    code, _, err = faceanon("x", "recover", tmp_path / "a.png", tmp_path / "b.png", "--exact", "--deniable")
    assert code == 2
    assert "leave --deniable away" in err


@pytest.mark.slow
def test_the_method_for_photographs_through_the_command_line(shared, tmp_path):
    from faceanon.backbones.persona import Persona
    from faceanon.models import save_backbone

    torch.manual_seed(0)
    save_backbone(Persona(), tmp_path / "model")
    face = sorted((shared / "photofaces" / "aligned256").glob("*.jpg"))[7]
    with Image.open(face) as picture:
        picture.convert("RGB").resize((128, 128), Image.Resampling.LANCZOS).save(tmp_path / "a.png")

    def run(password, command, source, target, *words):
        files = [str(tmp_path / source), str(tmp_path / target)]
        arguments = [command, *files, "--model", str(tmp_path / "model"), *words]
        environment = os.environ | {"FACEANON_PASSWORD": password}
        line = [sys.executable, "-m", "faceanon", *arguments]
        return subprocess.run(line, capture_output=True, text=True, env=environment, check=False)

    hidden = run("right", "anonymize", "a.png", "h.png", "--aligned", "--carry", "pixels")
    assert hidden.returncode == 0, hidden.stderr
    wrong = run("wrong", "recover", "h.png", "w.png")
    assert wrong.returncode == 2
    assert "wrong password" in wrong.stderr
    assert not (tmp_path / "w.png").exists()
    for word in ("right", "wrong"):
        done = run(word, "recover", "h.png", f"{word}.png", "--deniable")
        assert done.returncode == 0, done.stderr
    original = pixels(tmp_path / "a.png")
    assert psnr(pixels(tmp_path / "right.png"), original) > psnr(pixels(tmp_path / "wrong.png"), original) + 6
    assert psnr(pixels(tmp_path / "right.png"), original) > psnr(pixels(tmp_path / "h.png"), original) + 6
