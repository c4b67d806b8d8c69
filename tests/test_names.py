"""Files from before a class moved are read as they were written."""

import importlib

import pytest
import torch
import yaml

from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.keyed import Keyed
from faceanon.backbones.presets import backbone_class
from faceanon.files import state_sha256
from faceanon.models import check_fit, load_backbone, load_into, read, save_backbone
from faceanon.names import MOVED, RENAMED, current_path, with_current_paths
from faceanon.networks.unet import CelebAMaskParser
from faceanon.training import cli as training

OF_OLD = """
seed_everything: 0
model:
  class_path: faceanon.stages.DisentangleStage
  init_args:
    backbone:
      class_path: faceanon.backbones.dbaf.DBAF
      init_args: {bundle: BUNDLE}
data:
  class_path: faceanon.data.folder.FolderFaces
  init_args: {root: photos, image_size: 64}
trainer:
  logger:
    class_path: faceanon.callbacks.csv_logger.CSVLogger
    init_args: {save_dir: FOLDER, name: run}
  callbacks:
  - class_path: faceanon.callbacks.run_state.RunState
  - class_path: faceanon.callbacks.guard.FiniteGuard
  - class_path: faceanon.callbacks.signals.GracefulStop
  - class_path: faceanon.callbacks.checkpoints.RunCheckpoint
  plugins:
  - class_path: faceanon.callbacks.checkpoints.SafeCheckpointIO
"""


class ParsedOnly(training.FaceAnonCLI):
    """Stops behind the parser: nothing is built and nothing runs."""

    def before_instantiate_classes(self):
        super().before_instantiate_classes()
        raise StopIteration(self.config[self.subcommand])


@pytest.fixture
def parse(monkeypatch):
    """`faceanon fit WORDS` as far as the checked configuration."""
    monkeypatch.setattr(training, "FaceAnonCLI", ParsedOnly)

    def parsed(*words):
        with pytest.raises(StopIteration) as caught:
            training.run(["fit", *(str(word) for word in words)])
        return caught.value.value

    return parsed


def test_a_run_of_old_is_configured_with_the_classes_of_today(parse, tiny_bundle, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(OF_OLD.replace("BUNDLE", str(tiny_bundle)).replace("FOLDER", str(tmp_path)))
    config = parse("--config", file)
    found = [callback.class_path for callback in config.trainer.callbacks]
    assert found == [
        "faceanon.training.run_state.RunState",
        "faceanon.training.guard.FiniteGuard",
        "faceanon.training.signals.GracefulStop",
        "faceanon.training.checkpoints.RunCheckpoint",
    ]
    assert config.trainer.logger.class_path == "faceanon.training.csv_logger.CSVLogger"
    assert config.trainer.plugins[0].class_path == "faceanon.training.checkpoints.SafeCheckpointIO"


def test_a_class_of_old_can_be_typed(parse, tiny_bundle, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(OF_OLD.replace("BUNDLE", str(tiny_bundle)).replace("FOLDER", str(tmp_path)))
    config = parse("--config", file, "--trainer.callbacks+=faceanon.callbacks.acceleration.Acceleration")
    assert config.trainer.callbacks[-1].class_path == "faceanon.training.acceleration.Acceleration"


def test_a_model_whose_class_has_moved_is_loaded(monkeypatch, tiny_bundle, tmp_path):
    kind = backbone_class("faceanon.backbones.rotation.Rotation")
    save_backbone(kind(str(tiny_bundle)), tmp_path / "model")
    card = tmp_path / "model/model.yaml"
    content = yaml.safe_load(card.read_text())
    card.write_text(yaml.safe_dump({**content, "class_path": "faceanon.backbones.attic.Rotation"}))
    monkeypatch.setitem(MOVED, "faceanon.backbones.attic", "faceanon.backbones.rotation")
    assert read(tmp_path / "model").class_path == "faceanon.backbones.rotation.Rotation"
    assert isinstance(load_backbone(tmp_path / "model")[0], kind)


AS_DBAF = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8, "cid_mlp_ratio": 4, "cid_dropout": 0.1, "maar": True}
OF_DBAF = {"keyed_path": False, "code_dim": 32, "principal": False, "turn_dim": None, "turn_away": 0.1, "reader": False}


@pytest.mark.parametrize("keyed", [False, True])
def test_a_model_of_the_one_class_of_old_is_loaded_by_its_settings(keyed, tiny_bundle, tmp_path):
    now = {**AS_DBAF, "blend": True, **({"code_dim": 16, "reader": True} if keyed else {})}
    kind = Keyed if keyed else DBAF
    made = kind(str(tiny_bundle), **now)
    save_backbone(made, tmp_path / "model")
    card = tmp_path / "model/model.yaml"
    content = yaml.safe_load(card.read_text())
    given = {"bundle": str(tiny_bundle), **OF_DBAF, **now, "keyed_path": keyed}
    old = {**content, "class_path": "faceanon.backbones.dbaf.DBAF", "init_args": given}
    card.write_text(yaml.safe_dump(old))
    loaded, _ = load_backbone(tmp_path / "model")
    assert type(loaded) is kind
    assert all(torch.equal(value, made.state_dict()[name]) for name, value in loaded.state_dict().items())
    load_into(kind(str(tiny_bundle), **now), tmp_path / "model")
    check_fit(old, made, "the checkpoint")


def test_a_config_of_the_one_class_of_old_is_read_by_its_settings(parse, tiny_bundle, tmp_path):
    file = tmp_path / "config.yaml"
    arguments = f"{{bundle: {tiny_bundle}, keyed_path: true, code_dim: 16, reader: true}}"
    text = OF_OLD.replace("{bundle: BUNDLE}", arguments).replace("FOLDER", str(tmp_path))
    file.write_text(text)
    backbone = parse("--config", file).model.init_args.backbone
    assert backbone.class_path == "faceanon.backbones.keyed.Keyed"
    assert (backbone.init_args.code_dim, backbone.init_args.reader) == (16, True)
    file.write_text(text.replace("keyed_path: true", "keyed_path: false"))
    backbone = parse("--config", file).model.init_args.backbone
    assert backbone.class_path == "faceanon.backbones.dbaf.DBAF"
    assert "code_dim" not in backbone.init_args


@pytest.mark.parametrize("old", MOVED)
def test_every_move_leads_to_a_module_and_from_none(old):
    importlib.import_module(MOVED[old])
    with pytest.raises(ImportError):
        importlib.import_module(old)


@pytest.mark.parametrize("old", RENAMED)
def test_every_renamed_class_is_found_under_its_name_of_today(old):
    module, _, name = current_path(old).rpartition(".")
    assert getattr(importlib.import_module(module), name).__name__ == name


def test_a_network_that_was_renamed_keeps_its_hash():
    network = CelebAMaskParser()
    of_old = type("UNetParser", (CelebAMaskParser,), {})()
    of_old.load_state_dict(network.state_dict())
    assert state_sha256(network) == state_sha256(of_old)


def test_what_has_not_moved_stays_as_it_is():
    content = {"a": ["faceanon.optim.Ranger", "faceanon.callbacks.guard", 3, None], "faceanon.callbacks.guard.X": 1.5}
    assert with_current_paths(content) == content
    assert current_path("") == ""
    assert current_path("guard.FiniteGuard") == "guard.FiniteGuard"
