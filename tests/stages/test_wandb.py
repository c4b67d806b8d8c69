"""W&B without a network: the same terms, sheets, figures and report as in the files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from stage_probes import SMALL_CID, fit

from face_files import write_faces
from faceanon.paths import configs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def finished(monkeypatch):
    """W&B offline, and no run of it left open."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    yield wandb
    wandb.finish()


def test_offline_run_holds_terms_and_sheets(tiny_bundle, tmp_path, finished):
    logger = {
        "class_path": "lightning.pytorch.loggers.WandbLogger",
        "init_args": {"offline": True, "save_dir": str(tmp_path), "project": "faceanon-tests"},
    }
    more = (f"--trainer.logger={json.dumps(logger)}", "--trainer.max_epochs=1", "--trainer.limit_train_batches=2")
    cli = fit("pixels_s2", tiny_bundle, tmp_path, more=more, samples_every=2)
    summary = dict(cli.trainer.logger.experiment.summary)
    assert {"train/g/recovery", "train/g/anchor", "val_psnr_recovered", "samples"} <= set(summary)
    assert list(tmp_path.rglob("offline-run-*/run-*.wandb"))
    assert list(tmp_path.rglob("media/images/samples_*.png"))


def faceanon(*words):
    """Run the command as a user does."""
    line = [sys.executable, "-m", "faceanon", *map(str, words)]
    return subprocess.run(line, check=True, capture_output=True, text=True)


def test_one_word_adds_it_and_the_picture_shows_all(tmp_path, tiny_bundle, finished):
    stage = configs() / "paper/dbaf_s2.yaml"
    backbone = {"bundle": tiny_bundle, **SMALL_CID}
    data = {"root": write_faces(tmp_path / "faces", 20), "image_size": 64, "batch_size": 8}
    data |= {"val_fraction": 0.2, "test_fraction": 0.2}
    shared = [f"--model.init_args.backbone.init_args.{name}={value}" for name, value in backbone.items()]
    shared += [f"--data.init_args.{name}={value}" for name, value in data.items()]
    common = [*shared, f"--trainer.default_root_dir={tmp_path}", "--wandb=faceanon-tests", "--name=tiny"]
    often = ["--model.init_args.samples_every=1", "--trainer.log_every_n_steps=1"]
    faceanon("fit", "--config", stage, *common, *often)
    tested = [f"--model.init_args.init_from={tmp_path / 'tiny/model'}", "--model.init_args.protocol=null"]
    faceanon("test", "--config", stage, *common, *tested)
    # The run's own files are where they are without W&B.
    assert (tmp_path / "tiny/metrics.csv").is_file()
    assert (tmp_path / "tiny/report/results.json").is_file()
    saved = yaml.safe_load((tmp_path / "tiny/config.yaml").read_text())
    assert saved["wandb"] is None
    assert len(saved["trainer"]["logger"]) == 2
    runs = sorted(tmp_path.glob("wandb/offline-run-*"))
    picture = tmp_path / "picture.png"
    subprocess.run([sys.executable, ROOT / "tools/wandb_picture.py", picture, *runs], check=True)
    assert picture.stat().st_size > 0
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from wandb_picture import read_run, records
    finally:
        sys.path.pop(0)
    trained, tested = map(read_run, runs)
    assert len(trained.curves["train/g/reconstruction"]) > 1
    assert trained.sheet.is_file()
    names = [row[0] for row in tested.table]
    assert "deid_rate/tiny_judge" in names
    (file,) = runs[1].glob("*.wandb")
    sent = [record.artifact for record in records(file) if record.WhichOneof("record_type") == "artifact"]
    contents = {entry.path for artifact in sent if artifact.type == "report" for entry in artifact.manifest.contents}
    assert {"report.html", "results.json"} <= contents
