"""Every shipped YAML goes through the real command line's parser."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from jsonargparse import Namespace

from bundles import make_tiny_bundle
from faceanon.backbones.base import Backbone
from faceanon.backbones.dbaf import DBAF
from faceanon.errors import UserError
from faceanon.stages.base import trainable_parameters
from faceanon.testing import smooth_faces
from faceanon.training import cli as training

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def names(folder):
    return sorted(path.relative_to(CONFIGS).as_posix() for path in (CONFIGS / folder).glob("*.yaml"))


class ParsedOnly(training.FaceAnonCLI):
    """Stops behind the parser: nothing is built and nothing runs."""

    def before_instantiate_classes(self):
        super().before_instantiate_classes()
        raise StopIteration(self.config[self.subcommand])


@pytest.fixture
def parse(monkeypatch):
    """`faceanon fit WORDS` as far as the checked configuration."""
    monkeypatch.setattr(training, "FaceAnonCLI", ParsedOnly)

    def parsed(*words, command="fit"):
        with pytest.raises(StopIteration) as caught:
            training.run([command, *(str(word) for word in words)])
        return caught.value.value

    return parsed


@pytest.mark.parametrize("name", [*names("."), *names("critics")])
def test_a_config_is_accepted(parse, name):
    written = yaml.safe_load((CONFIGS / name).read_text())
    config = parse("--config", CONFIGS / name)
    assert config.model.class_path.rsplit(".", 1)[-1] == written["model"]["class_path"].rsplit(".", 1)[-1]
    assert config.trainer.max_epochs == written["trainer"]["max_epochs"]
    if "weights" in written["model"]["init_args"]:
        assert vars(config.model.init_args.weights).items() >= written["model"]["init_args"]["weights"].items()


def test_a_test_does_not_log_over_the_training(parse):
    logger = parse("--config", CONFIGS / "dbaf_s2.yaml").trainer.logger.init_args
    assert (logger.name, logger.version) == ("dbaf_s2", "")
    logger = parse("--config", CONFIGS / "dbaf_s2.yaml", command="test").trainer.logger.init_args
    assert (logger.name, logger.version) == ("dbaf_s2", "test")


@pytest.mark.parametrize("name", names("trainer"))
def test_a_trainer_config_is_accepted_behind_a_stage(parse, name):
    written = yaml.safe_load((CONFIGS / name).read_text())["trainer"]
    config = parse("--config", CONFIGS / "dbaf_s1.yaml", "--config", CONFIGS / name)
    assert {key: config.trainer[key] for key in written} == written
    assert config.trainer.max_epochs == 1
    accelerated = yaml.safe_load((CONFIGS / name).read_text()).get("acceleration", {})
    assert {key: config.acceleration[key] for key in accelerated} == accelerated


@pytest.mark.parametrize("name", names("bundle"))
def test_a_bundle_config_moves_backbone_and_data(parse, name):
    written = yaml.safe_load((CONFIGS / name).read_text())
    config = parse("--config", CONFIGS / "dbaf_s1.yaml", "--config", CONFIGS / name)
    bundle = written["model"]["init_args"]["backbone"]["init_args"]["bundle"]
    assert config.model.init_args.backbone.init_args.bundle == bundle
    assert config.model.init_args.trainable == ["cid", "maar"]


@pytest.mark.parametrize("name", names("data"))
def test_a_data_config_is_accepted(parse, name):
    config = parse("--config", CONFIGS / "dbaf_s1.yaml", f"--data={CONFIGS / name}")
    assert config.data.class_path == yaml.safe_load((CONFIGS / name).read_text())["class_path"]


# Persona stands on a bundle with a codec: tests/backbones/test_persona.py builds it.
@pytest.mark.parametrize("name", [name for name in names("backbone") if not str(name).endswith("persona.yaml")])
def test_a_backbone_preset_is_built_on_another_bundle(parse, name, tiny_bundle):
    words = [
        f"--model.init_args.backbone={CONFIGS / name}",
        f"--model.init_args.backbone.init_args.bundle={tiny_bundle}",
    ]
    spec = parse("--config", CONFIGS / "dbaf_s1.yaml", *words).model.init_args.backbone
    module, _, leaf = spec.class_path.rpartition(".")
    backbone = getattr(__import__(module, fromlist=[leaf]), leaf)(**vars(spec.init_args))
    assert isinstance(backbone, Backbone)
    assert backbone.bundle.name == "tiny64"
    written = yaml.safe_load((CONFIGS / name).read_text())["init_args"]
    assert {**written, "bundle": str(tiny_bundle)}.items() <= backbone.init_args.items()


def flat(tree, prefix=""):
    """Leaves of a nested dict by dotted name."""
    for key, value in tree.items():
        if isinstance(value, dict) and not key.endswith("weights"):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def plain(value):
    """Without the parser's own kind of dict, and as YAML writes a tuple."""
    value = list(value) if isinstance(value, tuple) else value
    return vars(value) if isinstance(value, Namespace) else value


@pytest.mark.parametrize("name", names("ablation"))
def test_an_ablation_says_behind_which_config_it_goes_and_changes_it(parse, name):
    text = (CONFIGS / name).read_text()
    (base,) = re.findall(r"behind --config configs/(\w+\.yaml)", text)
    before, after = parse("--config", CONFIGS / base), parse("--config", CONFIGS / base, "--config", CONFIGS / name)
    written = dict(flat(yaml.safe_load(text)))
    assert {key: plain(after[key]) for key in written} == written
    assert {key: plain(before.get(key)) for key in written} != written


@pytest.mark.parametrize("name", [name for name in names("ablation") if name.startswith("ablation/dbaf")])
def test_the_parts_that_an_ablation_of_dbaf_trains_are_there(parse, name, tiny_bundle):
    (base,) = re.findall(r"behind --config configs/(\w+\.yaml)", (CONFIGS / name).read_text())
    config = parse("--config", CONFIGS / base, "--config", CONFIGS / name).model.init_args
    backbone = DBAF(**{**vars(config.backbone.init_args), "bundle": str(tiny_bundle)})
    assert trainable_parameters(backbone, config.trainable)
    parts = {part.split(".")[0] for part, item in backbone.named_parameters() if item.requires_grad}
    assert parts == set(config.trainable)
    assert ("cid" in dict(backbone.named_children())) == ("no_cid" not in name)
    key = backbone.sample_key(2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert backbone.eval().anonymize(smooth_faces(64)[:2], key).isfinite().all()


def test_the_parser_would_notice(parse):
    with pytest.raises(UserError, match="widht"):
        parse("--config", CONFIGS / "dbaf_s1.yaml", "--model.init_args.widht=3")


def test_the_tiny_bundle_has_every_role_of_the_embedded_one(tmp_path):
    embedded = yaml.safe_load((CONFIGS.parent / "checkpoints/synth64/bundle.yaml").read_text())["networks"]
    tiny = yaml.safe_load((make_tiny_bundle(tmp_path) / "bundle.yaml").read_text())["networks"]
    assert set(embedded) <= set(tiny)
