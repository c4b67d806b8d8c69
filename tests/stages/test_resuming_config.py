"""What `faceanon fit` makes of a trainer's configuration, without training."""

from pathlib import Path

import pytest
from jsonargparse import Namespace

from faceanon.errors import UserError
from faceanon.training.checkpoint_file import write_checkpoint
from faceanon.training.checkpoints import RunCheckpoint, SafeCheckpointIO
from faceanon.training.resume import go_on_with_logs, last_of_run, one_last, run_folders, with_checkpoints

CSV = "lightning.pytorch.loggers.CSVLogger"
WANDB = "lightning.pytorch.loggers.WandbLogger"


def entry(path, **settings):
    return Namespace(class_path=path, init_args=Namespace(**settings))


def config(tmp_path, logger, callbacks=None):
    return Namespace(default_root_dir=str(tmp_path), logger=logger, callbacks=callbacks)


def saved(folder):
    write_checkpoint({"state_dict": {}}, folder / "checkpoints/last.ckpt")
    return folder / "checkpoints"


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({"name": "x", "version": ""}, "logs/x"),
        ({"name": "x", "version": 2}, "logs/x/version_2"),
        ({"name": "x", "version": "mine"}, "logs/x/mine"),
        ({"name": None, "version": ""}, "logs"),
    ],
)
def test_folder_of_a_named_version(tmp_path, settings, folder):
    logger = entry(CSV, save_dir=str(tmp_path / "logs"), **settings)
    assert list(run_folders(config(tmp_path, logger))) == [tmp_path / folder / "checkpoints"]


def test_without_a_version_the_newest_run_goes_on_where_it_was(tmp_path):
    for number in (0, 1):
        saved(tmp_path / f"x/version_{number}")
    trainer = config(tmp_path, [entry(CSV, save_dir=str(tmp_path), name="x", version=None)])
    path = last_of_run(trainer)
    assert path == str(tmp_path / "x/version_1/checkpoints/last.ckpt")
    go_on_with_logs(trainer, path, {})
    assert trainer.logger[0].init_args["version"] == "version_1"
    assert trainer.logger[0].class_path == "faceanon.training.csv_logger.CSVLogger"


def test_wandb_goes_on_with_its_run(tmp_path):
    checkpoint = {"run_state": {"wandb": ["abc123"]}}
    folder = saved(tmp_path / "faces/abc123")
    trainer = config(tmp_path, entry(WANDB, save_dir=str(tmp_path), project="faces", id=None, version=None))
    path = last_of_run(trainer)
    assert Path(path).parent == folder
    go_on_with_logs(trainer, path, checkpoint)
    assert trainer.logger.init_args["id"] == "abc123"
    named = config(tmp_path, entry(WANDB, project="faces", id="mine"))
    go_on_with_logs(named, path, checkpoint)
    assert named.logger.init_args["id"] == "mine"


def test_no_logger_and_a_folder_of_ones_own(tmp_path):
    assert next(iter(run_folders(config(tmp_path, False)))) == tmp_path / "checkpoints"
    own = entry("faceanon.training.checkpoints.RunCheckpoint", dirpath="elsewhere")
    assert list(run_folders(config(tmp_path, False, [own]))) == [Path("elsewhere")]


def test_a_model_checkpoint_leaves_last_to_ours(tmp_path):
    theirs = entry("lightning.pytorch.callbacks.ModelCheckpoint", save_last=True, dirpath=None)
    elsewhere = entry("lightning.pytorch.callbacks.ModelCheckpoint", save_last=True, dirpath="best")
    one_last(config(tmp_path, None, [theirs, elsewhere]))
    assert not theirs.init_args.save_last
    assert elsewhere.init_args.save_last


def test_what_is_installed(tmp_path):
    whole = with_checkpoints({"callbacks": None}, fit=True)
    assert [type(item) for item in whole["callbacks"] + whole["plugins"]] == [RunCheckpoint, SafeCheckpointIO]
    mine = RunCheckpoint(minutes=1)
    assert with_checkpoints({"callbacks": [mine]}, fit=True)["callbacks"] == [mine]
    assert with_checkpoints({"enable_checkpointing": False}, fit=True)["callbacks"] == []
    assert with_checkpoints({}, fit=False)["callbacks"] == []


def test_a_test_does_not_start_anew(tmp_path):
    assert last_of_run(config(tmp_path, False)) is None
    with pytest.raises(UserError, match="--ckpt_path last: no checkpoint yet"):
        last_of_run(config(tmp_path, False), fit=False)


def test_negative_numbers_are_refused():
    with pytest.raises(UserError, match="minutes is -1"):
        RunCheckpoint(minutes=-1)
