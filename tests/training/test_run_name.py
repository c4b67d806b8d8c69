"""What the `name` of a run gives, and what wins over it."""

from pathlib import Path

import pytest
import yaml

from faceanon.errors import UserError
from faceanon.training import cli as training
from faceanon.training.run_name import trainer_defaults

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
STAGE = CONFIGS / "paper/dbaf_s2.yaml"
CSV = "lightning.pytorch.loggers.CSVLogger"
SPELLED_OUT = f"""
seed_everything: 0
model:
  class_path: faceanon.stages.AnonymizeStage
  init_args:
    backbone:
      class_path: faceanon.backbones.dbaf.DBAF
      init_args: {{bundle: ffhq256}}
    trainable: [cid, maar, kria]
    objective: dbaf
    loop: image
    margin: 0.0
    latent_norm: mean_code
    hand_on: true
    protocol: dbaf-v1
    optimizer_g: {{class_path: faceanon.optim.Ranger, init_args: {{lr: 0.0001}}}}
    optimizer_d: {{class_path: faceanon.optim.Ranger, init_args: {{lr: 0.0001}}}}
    export: runs/paper/dbaf_s2/model
    report: runs/paper/dbaf_s2/report
data:
  class_path: faceanon.data.folder.FolderFaces
  init_args: {{root: photos, image_size: 256, batch_size: 8, val_fraction: 0.001, test_fraction: 0.0142857}}
trainer:
  accelerator: cpu
  default_root_dir: runs
  max_epochs: 5
  log_every_n_steps: 10
  num_sanity_val_steps: 0
  logger: {{class_path: {CSV}, init_args: {{save_dir: runs, name: paper/dbaf_s2, version: ''}}}}
  callbacks:
    - {{class_path: lightning.pytorch.callbacks.RichProgressBar}}
"""


class ParsedOnly(training.FaceAnonCLI):
    def before_instantiate_classes(self):
        super().before_instantiate_classes()
        raise StopIteration(self.config[self.subcommand])


@pytest.fixture
def parse(monkeypatch, tmp_path):
    """A command as far as its checked configuration, in a folder of its own."""
    monkeypatch.setattr(training, "FaceAnonCLI", ParsedOnly)
    monkeypatch.chdir(tmp_path)

    def parsed(*words, command="fit"):
        with pytest.raises(StopIteration) as caught:
            training.run([command, *(str(word) for word in words)])
        return caught.value.value

    return parsed


def folders(config):
    """Where a run logs, and where its model and report go."""
    model = config.model.init_args
    logger = config.trainer.logger.init_args
    return f"{logger.save_dir}/{logger.name}/{logger.version}", str(model.export), str(model.report)


def written(path, text):
    path.write_text(text)
    return path


def as_dict(config):
    """Settings alone, without the files that they come from."""
    found = config.clone().as_dict()
    for name in ("config", "name"):
        found.pop(name, None)
    return without_paths(found)


def without_paths(value):
    """Without jsonargparse's notes on files, and paths as text."""
    if isinstance(value, dict):
        return {key: without_paths(entry) for key, entry in value.items() if key != "__path__"}
    if isinstance(value, list | tuple):
        return [without_paths(entry) for entry in value]
    return value if isinstance(value, int | float | None) else str(value)


@pytest.mark.parametrize("command", ["fit", "test"])
def test_a_short_config_means_what_the_one_that_spells_it_out_meant(parse, tmp_path, command):
    """As stage configs were written before, and as users have copied them."""
    before = parse("--config", written(tmp_path / "old.yaml", SPELLED_OUT), command=command)
    after = parse("--config", STAGE, command=command)
    assert as_dict(before) == as_dict(after)
    assert (before.name, after.name) == (None, "paper/dbaf_s2")


def test_another_name_moves_all_of_a_run(parse, tmp_path):
    assert folders(parse("--config", STAGE, "--name", "other")) == (
        "runs/other/",
        "runs/other/model",
        "runs/other/report",
    )
    later = written(tmp_path / "later.yaml", "name: third\n")
    assert folders(parse("--config", STAGE, "--config", later))[1] == "runs/third/model"


def test_another_folder_of_runs_moves_all_of_them(parse):
    config = parse("--config", STAGE, "--trainer.default_root_dir=elsewhere")
    assert folders(config) == (
        "elsewhere/paper/dbaf_s2/",
        "elsewhere/paper/dbaf_s2/model",
        "elsewhere/paper/dbaf_s2/report",
    )


def test_what_is_given_wins_over_the_name(parse, tmp_path):
    words = ["--model.init_args.report=mine", "--trainer.logger.init_args.save_dir=logs"]
    assert folders(parse("--config", STAGE, *words)) == ("logs/paper/dbaf_s2/", "runs/paper/dbaf_s2/model", "mine")
    words = ["--trainer.logger.init_args.name=n", "--trainer.logger.init_args.version=3"]
    assert folders(parse("--config", STAGE, *words))[0] == "runs/n/3"
    overlay = written(tmp_path / "o.yaml", "model: {init_args: {export: there}}\ntrainer: {num_sanity_val_steps: 2}\n")
    config = parse("--config", STAGE, "--config", overlay)
    assert folders(config) == ("runs/paper/dbaf_s2/", "there", "runs/paper/dbaf_s2/report")
    assert config.trainer.num_sanity_val_steps == 2


def test_null_is_given_too(parse):
    config = parse("--config", STAGE, "--model.init_args.export=null", "--trainer.callbacks=null")
    assert config.model.init_args.export is None
    assert config.trainer.callbacks is None


def test_other_loggers_and_none_are_left_alone(parse):
    assert parse("--config", STAGE, "--trainer.logger=false").trainer.logger is False
    several = f"[{{class_path: {CSV}, init_args: {{save_dir: a}}}}, {{class_path: {CSV}, init_args: {{save_dir: b}}}}]"
    loggers = parse("--config", STAGE, f"--trainer.logger={several}").trainer.logger
    assert [(logger.init_args.save_dir, logger.init_args.name) for logger in loggers] == [
        ("a", "lightning_logs"),
        ("b", "lightning_logs"),
    ]


def test_without_a_name_nothing_is_added(parse, tmp_path):
    text = SPELLED_OUT.split("trainer:")[0] + "trainer: {max_epochs: 1}\n"
    text = text.replace("    export: runs/paper/dbaf_s2/model\n", "")
    config = parse("--config", written(tmp_path / "own.yaml", text))
    trainer = config.trainer
    assert (trainer.accelerator, trainer.logger, trainer.callbacks) == ("auto", None, None)
    assert config.model.init_args.export is None
    nameless = parse("--config", STAGE, "--name", "null")
    assert nameless.trainer.accelerator == "auto"
    assert nameless.model.init_args.export is None


@pytest.mark.parametrize("name", ["", "../up", "a/../../b", "/root"])
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(UserError, match="names no folder for a run"):
        training.run(["fit", "--config", str(STAGE), f"--name={name}"])


def test_a_mistake_is_told_once_and_as_before():
    with pytest.raises(UserError, match=r"widht.*see --help"):
        training.run(["fit", "--config", str(STAGE), "--model.init_args.widht=3"])


def test_the_printed_config_holds_all_and_gives_the_same_run(parse, tmp_path, capsys):
    with pytest.raises(SystemExit):
        training.run(["fit", "--config", str(STAGE), "--print_config", "--name=printed"])
    text = capsys.readouterr().out
    printed = yaml.safe_load(text)
    assert (printed["name"], printed["model"]["init_args"]["export"]) == ("printed", "runs/printed/model")
    again = parse("--config", written(tmp_path / "printed.yaml", text))
    assert as_dict(again) == as_dict(parse("--config", STAGE, "--name=printed"))


def test_the_name_finds_the_checkpoint_that_its_run_left(parse, tmp_path, capsys):
    (tmp_path / "runs/other/checkpoints").mkdir(parents=True)
    (tmp_path / "runs/other/checkpoints/last.ckpt").write_bytes(b"cut off")
    with pytest.raises(UserError, match="runs/other/checkpoints"):
        training.run(["fit", "--config", str(STAGE), "--name=other", "--ckpt_path=last"])
    assert parse("--config", STAGE, "--ckpt_path=last").ckpt_path is None


class OwnExport(training.L.LightningModule):
    """A stage of somebody's own that writes a model, but no report."""

    def __init__(self, export: Path | None = None, depth: int = 1) -> None:
        super().__init__()


class OwnNothing(training.L.LightningModule):
    def __init__(self, depth: int = 1) -> None:
        super().__init__()


@pytest.mark.parametrize(("kind", "arguments"), [("OwnExport", {"depth", "export"}), ("OwnNothing", {"depth"})])
def test_a_stage_gets_only_the_folders_that_it_takes(parse, kind, arguments):
    words = ["--model", f"test_run_name.{kind}", "--data", CONFIGS / "data/folder.yaml", "--name=own"]
    model = parse(*words).model.init_args
    assert set(model.keys()) == arguments
    assert str(model.get("export", "runs/own/model")) == "runs/own/model"


def test_the_defaults_are_the_trainers_alone():
    assert set(yaml.safe_load(trainer_defaults().read_text())) == {"trainer"}
