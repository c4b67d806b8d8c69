"""Every shipped YAML goes through the real command line's parser."""

from pathlib import Path

import pytest
import torch
import yaml
from jsonargparse import Namespace

from bundles import make_tiny_bundle
from faceanon.backbones.base import Backbone
from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.persona import Persona
from faceanon.data.prepared import USUAL
from faceanon.errors import UserError
from faceanon.stages.base import trainable_parameters
from faceanon.studies.zoo.photographs import NO_DATA
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


@pytest.mark.parametrize("stage", ["dbaf_s1", "dbaf_s2", "hford_s1", "hford_s2"])
def test_dbaf_and_hford_on_photographs_are_the_paper_s_stages_with_what_photographs_need(parse, stage):
    paper = parse("--config", CONFIGS / f"{stage}.yaml").model.init_args
    config = parse("--config", CONFIGS / f"photo128/{stage}.yaml")
    given = config.model.init_args
    assert config.model.class_path == parse("--config", CONFIGS / f"{stage}.yaml").model.class_path
    # The frame needs no encoder features.
    assert given.trainable == [part for part in paper.trainable if part != "maar"]
    assert given.backbone.init_args.bundle == "photo128_prior"
    # Light and skin are kept by `keep_light`, so fewer numbers have to stay.
    assert given.backbone.init_args.flips == 8
    assert (given.backbone.init_args.keep_light > 0) == stage.endswith("_s2")
    assert given.weights.parsing == 0
    assert not given.backbone.init_args.maar
    assert config.data.class_path == "faceanon.data.prepared.PreparedFaces"
    assert given.export == Path(f"runs/{stage[:-3]}_photo128_{stage[-2:]}/model")


# Who cuts faces out needs what lies around them, and Persona has networks of its own.
BESIDE_THE_PRIOR = {"ciagan": "photo128_pictures", "deepprivacy": "photo128_pictures", "persona": "photo128"}


@pytest.mark.parametrize("name", names("photo128"))
def test_a_run_on_photographs_stands_on_the_prior_and_writes_where_it_is_called(parse, name):
    config = parse("--config", CONFIGS / name)
    method, stage = Path(name).stem.rsplit("_", 1)
    bundle = BESIDE_THE_PRIOR.get(method, "photo128_prior")
    assert config.model.init_args.backbone.init_args.bundle == bundle
    assert config.data.class_path == "faceanon.data.prepared.PreparedFaces"
    assert config.model.init_args.export == Path(f"runs/{method}_photo128_{stage}/model")
    if bundle != "photo128_prior":
        return
    # What is trained is there, and nothing of the prior is: it has no time to learn anew.
    assert config.model.init_args.trainable
    assert not {"generator", "encoder"} & set(config.model.init_args.trainable)


def test_a_test_does_not_log_over_the_training(parse):
    logger = parse("--config", CONFIGS / "dbaf_s2.yaml").trainer.logger.init_args
    assert (logger.name, logger.version) == ("dbaf_s2", "")
    logger = parse("--config", CONFIGS / "dbaf_s2.yaml", command="test").trainer.logger.init_args
    assert (logger.name, logger.version) == ("dbaf_s2", "test")


@pytest.mark.parametrize("name", [name for name in names("trainer") if name != "trainer/default.yaml"])
def test_a_trainer_config_is_accepted_behind_a_stage(parse, name, monkeypatch):
    # Or bfloat16 would be replaced on processors without it (tests/training/test_precision.py).
    monkeypatch.setattr("faceanon.training.precision.has_bfloat16", lambda: True)
    written = yaml.safe_load((CONFIGS / name).read_text())["trainer"]
    config = parse("--config", CONFIGS / "dbaf_s1.yaml", "--config", CONFIGS / name)
    assert {key: config.trainer[key] for key in written} == written
    assert config.trainer.max_epochs == 1
    accelerated = yaml.safe_load((CONFIGS / name).read_text()).get("acceleration", {})
    assert {key: config.acceleration[key] for key in accelerated} == accelerated


@pytest.mark.parametrize("stage", ["persona_s1", "persona_s2"])
def test_layers_for_large_faces_train_alone_behind_a_stage(parse, stage):
    config = parse("--config", CONFIGS / f"{stage}.yaml", "--config", CONFIGS / "size/persona256.yaml")
    assert config.model.init_args.backbone.init_args.sizes == [128, 256]
    assert config.data.init_args.image_size == 256
    backbone = Persona(hidden=32, sizes=[128, 256])
    small = set(Persona(hidden=32).state_dict())
    trained = trainable_parameters(backbone, config.model.init_args.trainable)
    names_of = {id(weight): name for name, weight in backbone.named_parameters()}
    assert {names_of[id(weight)] for weight in trained} == set(names_of.values()) - small


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


def stages_under(name):
    """Files of the stages that an ablation says it is laid over."""
    return [f"{stage}.yaml" for stage in yaml.safe_load((CONFIGS / name).read_text())["over"]]


@pytest.mark.parametrize("name", names("ablation"))
def test_an_ablation_says_over_which_stages_it_is_laid_and_changes_each(parse, name):
    settings = yaml.safe_load((CONFIGS / name).read_text())
    assert settings.pop("about").endswith(".")
    assert settings.pop("over")
    written = dict(flat(settings))
    for base in stages_under(name):
        before = parse("--config", CONFIGS / base)
        after = parse("--config", CONFIGS / base, "--config", CONFIGS / name)
        assert {key: plain(after[key]) for key in written} == written
        assert {key: plain(before.get(key)) for key in written} != written


@pytest.mark.parametrize("name", names("features"))
def test_what_photographs_need_is_accepted_behind_each_stage_that_it_names(parse, name):
    settings = yaml.safe_load((CONFIGS / name).read_text())
    assert settings.pop("over")
    weights = settings["model"]["init_args"].pop("weights", {})
    written = dict(flat(settings)) | {f"model.init_args.weights.{key}": value for key, value in weights.items()}
    for base in stages_under(name):
        behind = ["--config", CONFIGS / "bundle/photo128_prior.yaml", "--config", CONFIGS / name]
        config = parse("--config", CONFIGS / base, f"--data={NO_DATA}", *behind)
        assert {key: plain(config[key]) for key in written} == written
        # What a stage says of procedural faces is gone.
        assert config.data.class_path.endswith(".PreparedFaces")
        assert config.data.init_args.seed == 0
        assert config.data.init_args.jitter == Namespace(vars(USUAL))


@pytest.mark.parametrize(
    ("name", "base"),
    [(name, base) for name in names("ablation") if name.startswith("ablation/dbaf") for base in stages_under(name)],
)
def test_the_parts_that_an_ablation_of_dbaf_trains_are_there(parse, name, base, tiny_bundle):
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


MOST_LINES = 15
LONGER = {
    "dbaf_keyed_s2.yaml": (22, "the house's own method: schedule, jitter and the terms of stage 2 are all its own"),
    "mirage_s2.yaml": (25, "as dbaf_keyed_s2.yaml, with a discriminator beside it"),
    "persona_s2.yaml": (20, "optimizers, clipping, sheets and a head start of the discriminator, all its own"),
    "real/dbaf_keyed_s1.yaml": (20, "photographs: a discriminator, and what stands in for crossed targets"),
    "real/dbaf_keyed_s2.yaml": (19, "photographs: a protocol, and the schedule of dbaf_keyed_s2.yaml"),
}
STAGES = [name for name in [*names("."), *names("real")] if name.endswith(("_s1.yaml", "_s2.yaml"))]


def lines(name):
    """Lines of a config that set something, but for its lists of weights, which have one a line."""
    found = 0
    listing = False
    for line in (CONFIGS / name).read_text().splitlines():
        if not line.strip() or line.strip().startswith("#"):
            continue
        if line.strip().split(":")[0] in ("weights", "extra_weights"):
            listing = True
            continue
        listing = listing and line.startswith(" " * 6)
        found += not listing
    return found


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_config_is_short_and_has_one_weight_a_line(name):
    most, _ = LONGER.get(name, (MOST_LINES, ""))
    assert lines(name) <= most
    assert name not in LONGER or lines(name) > MOST_LINES, "short enough by now: take it from the list"
    for line in (CONFIGS / name).read_text().splitlines():
        assert not ("weights: {" in line and "," in line), f"several weights in one line: {line}"


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_config_has_the_name_of_its_file_and_leaves_trainer_and_folders_to_it(parse, name):
    written = yaml.safe_load((CONFIGS / name).read_text())
    folder = "runs/" + name.removesuffix(".yaml").replace("real/dbaf_keyed", "real")
    photographs = ["--data.init_args.root=photos"] if name.startswith("real/") else []
    config = parse("--config", CONFIGS / name, *photographs)
    assert f"runs/{written['name']}" == folder
    assert set(written["trainer"]) <= {"max_epochs", "precision", "default_root_dir"}
    assert not {"export", "report"} & set(written["model"]["init_args"])
    trainer = config.trainer
    assert (trainer.accelerator, trainer.log_every_n_steps, trainer.num_sanity_val_steps) == ("cpu", 10, 0)
    assert [callback.class_path.rsplit(".", 1)[1] for callback in trainer.callbacks] == ["RichProgressBar"]
    logger = trainer.logger.init_args
    assert f"{logger.save_dir}/{logger.name}/{logger.version}" == f"{folder}/"
    assert str(config.model.init_args.export) == f"{folder}/model"
    if "report" in config.model.init_args:
        assert str(config.model.init_args.report) == f"{folder}/report"
    assert config.seed_everything == config.model.init_args.seed == 0
