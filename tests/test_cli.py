"""A user's mistakes: one clear line on standard error, exit code 2, and nothing written."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import lightning.pytorch  # noqa: F401 - its log handler keeps the stderr it finds, which in a test is soon closed
import pytest
import torch
from PIL import Image

from bundles import make_tiny_bundle
from face_files import write_faces
from faceanon import cli
from faceanon.backbones.dbaf import DBAF
from faceanon.models import description, save_backbone

REPO = Path(__file__).resolve().parents[1]
SMALL_CID = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}
PASSWORD = ("--password-env", "PW")


def run(*words, cwd=REPO):
    """`python -m faceanon WORDS` in a process of its own."""
    path = {"PYTHONPATH": str(REPO / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "faceanon", *(str(word) for word in words)]
    return subprocess.run(command, cwd=cwd, env={**os.environ, **path}, capture_output=True, text=True, timeout=250)


def tree(folder):
    return {path: path.stat().st_size for path in Path(folder).rglob("*")}


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Checks that `faceanon WORDS` refuses; gives back the line it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PW", "hush")

    def check(*words):
        before = tree(tmp_path)
        capsys.readouterr()
        assert cli.main([str(word) for word in words]) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(("Seed set", "INFO"))]
        assert len(lines) == 1, lines
        assert lines[0].startswith("faceanon: ")
        assert len(lines[0]) < 500
        assert tree(tmp_path) == before
        return lines[0]

    return check


@pytest.fixture
def stage_one(tiny_bundle, tmp_path_factory):
    """`fit` of paper stage 1 on the tiny bundle; a mistake is added behind."""
    backbone = {"bundle": tiny_bundle, **SMALL_CID}
    keys = {f"model.init_args.backbone.init_args.{name}": value for name, value in backbone.items()}
    faces = write_faces(tmp_path_factory.mktemp("faces"), 8)
    keys |= {"data.init_args.root": faces, "data.init_args.image_size": 64, "data.init_args.test_fraction": 0.0}
    keys |= {"trainer.enable_progress_bar": "false", "trainer.callbacks": "[]"}
    return [
        "fit",
        "--config",
        REPO / "configs/paper/dbaf_s1.yaml",
        *(f"--{name}={value}" for name, value in keys.items()),
    ]


@pytest.fixture(scope="module")
def model(tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_backbone(DBAF(str(tiny_bundle), **SMALL_CID), folder)
    return folder


def save_checkpoint(path, bundle, **changes):
    """What Lightning saves, as far as a mistake can be seen in it."""
    backbone = DBAF(str(bundle), **{**SMALL_CID, **changes})
    state = {f"ema.{name}": value for name, value in backbone.state_dict().items()}
    torch.save({"faceanon": description(backbone), "state_dict": state, "pytorch-lightning_version": "2.6.6"}, path)
    return path


def test_help_and_version(capsys):
    assert cli.main([]) == cli.main(["--help"]) == cli.main(["--version"]) == 0
    out = capsys.readouterr().out
    for word in ("fit", "test", "anonymize", "recover", "report", "demo", "web"):
        assert f"\n  {word}" in out


def test_unknown_command(tmp_path):
    done = run("anonymise", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "faceanon: no command 'anonymise'; run faceanon --help\n"


def test_an_unknown_key_in_a_process_of_its_own(tmp_path):
    done = run("fit", "--config", REPO / "configs/dbaf_s1.yaml", "--model.init_args.widht=3", cwd=tmp_path)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if "widht" in line and line.startswith("faceanon: ")]
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model.init_args.widht=3"], "widht"),
        (["--model.init_args.backbone.init_args.cid_deepth=3"], "cid_deepth"),
        (["--trainer.max_epochs=many"], "trainer.max_epochs"),
        (["--nonsense=1"], "nonsense"),
        (["--config", "nope.yaml"], "nope.yaml"),
        (["--model.init_args.backbone=nope.yaml"], "nope.yaml"),
        (["--model.init_args.backbone.init_args.bundle=nope"], "no bundle 'nope': give a folder"),
        (["--model.init_args.init_from=nope"], "no model at nope"),
        (["--ckpt_path=nope.ckpt"], "there is no nope.ckpt"),
        (["--ckpt_path=."], "is a folder and no sharded checkpoint; give the .ckpt itself"),
        (["--data.init_args.image_size=32"], "the data give 32 px, the model takes 64 px"),
        (["--trainer.accelerator=abacus"], "the trainer cannot be built: You selected an invalid accelerator name"),
        (["--trainer.devices=0"], "the trainer cannot be built"),
        (["--trainer.max_epochs=-5"], "`max_epochs` must be a non-negative integer or -1"),
        (["--trainer.max_time=long"], "is not a valid duration"),
    ],
)
def test_mistakes_in_a_training(refused, stage_one, words, expected):
    assert expected in refused(*stage_one, *words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(refused, stage_one):
    line = refused(*stage_one, "--config", REPO / "configs/trainer/gpu.yaml")
    assert "No supported gpu backend found" in line


def test_a_training_without_a_config(refused):
    assert "model" in refused("fit")


def test_damaged_checkpoints(refused, stage_one, tmp_path, tiny_bundle):
    (tmp_path / "rubbish.ckpt").write_bytes(b"rubbish")
    whole = save_checkpoint(tmp_path / "cut.ckpt", tiny_bundle).read_bytes()
    (tmp_path / "cut.ckpt").write_bytes(whole[: len(whole) // 2])
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.ckpt")
    for name in ("rubbish.ckpt", "cut.ckpt", "other.ckpt"):
        assert f"{name} is" in refused(*stage_one, f"--ckpt_path={name}")
        assert f"{name} is not a checkpoint of a faceanon stage" in refused(
            *stage_one, f"--model.init_args.init_from={name}"
        )


def test_checkpoints_of_another_backbone_or_bundle(refused, stage_one, tmp_path, tiny_bundle):
    save_checkpoint(tmp_path / "deep.ckpt", tiny_bundle, cid_depth=2)
    save_checkpoint(tmp_path / "foreign.ckpt", make_tiny_bundle(tmp_path / "foreign", seed=5))
    for option in ("--ckpt_path", "--model.init_args.init_from"):
        line = refused(*stage_one, f"{option}=deep.ckpt")
        assert "'cid_depth': 2" in line
        assert "'cid_depth': 1" in line
        assert "bundle" in refused(*stage_one, f"{option}=foreign.ckpt")


def test_pictures_that_cannot_be_used(refused, model, tmp_path):
    Image.new("RGB", (64, 64), "grey").save(tmp_path / "plain.png")
    Image.new("RGB", (64, 80), "grey").save(tmp_path / "oblong.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    (tmp_path / "empty").mkdir()
    rest = ("out.png", "--model", model, *PASSWORD)
    assert "broken.png is not a picture" in refused("anonymize", "broken.png", *rest)
    assert "no face found in plain.png" in refused("anonymize", "plain.png", *rest)
    assert "must be square, not 64x80" in refused("anonymize", "oblong.png", *rest, "--aligned")
    assert "no pictures in empty" in refused("anonymize", "empty", *rest)
    assert "no such file or folder" in refused("anonymize", "missing.png", *rest)
    assert "carries no faceanon data" in refused("recover", "plain.png", *rest)


def test_passwords_and_models_that_are_missing(refused, model, tmp_path, monkeypatch):
    Image.new("RGB", (64, 64), "grey").save(tmp_path / "a.png")
    words = ("anonymize", "a.png", "b.png", "--aligned")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert "no password and no terminal" in refused(*words, "--model", model)
    assert "not set" in refused(*words, "--model", model, "--password-env", "NO_SUCH_NAME")
    assert "no model at nowhere" in refused(*words, "--model", "nowhere", *PASSWORD)
    (tmp_path / "rubbish.ckpt").write_bytes(b"rubbish")
    assert "it is damaged" in refused(*words, "--model", "rubbish.ckpt", *PASSWORD)


def test_a_full_disk_is_one_line_too(refused, monkeypatch):
    def full(arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "last.ckpt")

    monkeypatch.setattr("faceanon.training.cli.run", full)
    assert "no space left on the disk last.ckpt" in refused("fit")


@pytest.mark.parametrize("error", [ValueError("a bug"), OSError(errno.EIO, "a bug")])
def test_a_bug_keeps_its_traceback(monkeypatch, error):
    def fail(arguments):
        raise error

    monkeypatch.setattr("faceanon.training.cli.run", fail)
    with pytest.raises(type(error), match="a bug"):
        cli.main(["fit"])


def test_a_bug_exits_with_one(tmp_path):
    code = "import faceanon.training.cli as t, faceanon.cli as c; t.run = lambda words: 1 / 0; c.main(['fit'])"
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
