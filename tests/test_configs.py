"""Every shipped YAML goes through the real command line's parser, and says what it sets."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from jsonargparse import Namespace

from bundles import make_tiny_bundle
from faceanon.backbones.base import Backbone
from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.presets import backbone_class
from faceanon.errors import UserError
from faceanon.stages.base import trainable_parameters
from faceanon.studies.tables.full_scale import recipes
from faceanon.studies.tables.spec import as_typed, load_table
from faceanon.testing import smooth_faces
from faceanon.training import cli as training

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
MOST_FILES = 85


def names(folder):
    return sorted(path.relative_to(CONFIGS).as_posix() for path in (CONFIGS / folder).glob("*.yaml"))


STAGES = [name for name in [*names("."), *names("paper")] if name.endswith(("_s1.yaml", "_s2.yaml"))]
PHOTOGRAPHS = [name for name in STAGES if not name.startswith("paper/")]


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


def test_there_are_few_configs():
    assert len(list(CONFIGS.rglob("*.yaml"))) <= MOST_FILES


@pytest.mark.parametrize("name", [*names("."), *names("paper")])
def test_a_config_is_accepted(parse, name):
    written = yaml.safe_load((CONFIGS / name).read_text())
    config = parse("--config", CONFIGS / name)
    assert config.model.class_path.rsplit(".", 1)[-1] == written["model"]["class_path"].rsplit(".", 1)[-1]
    assert config.trainer.max_epochs == written["trainer"]["max_epochs"]
    if "weights" in written["model"]["init_args"]:
        assert vars(config.model.init_args.weights).items() >= written["model"]["init_args"]["weights"].items()


@pytest.mark.parametrize("stage", ["dbaf_s1", "dbaf_s2", "hford_s1", "hford_s2", "ifadit_s1", "ifadit_s2"])
def test_a_preset_named_after_a_paper_is_the_paper_on_photographs_too(parse, stage):
    paper = parse("--config", CONFIGS / f"paper/{stage}.yaml").model
    given = parse("--config", CONFIGS / f"{stage}.yaml").model
    assert given.class_path == paper.class_path
    mine = plain(given.init_args)
    theirs = plain(paper.init_args)
    backbones = mine.pop("backbone"), theirs.pop("backbone")
    assert backbones[0]["class_path"] == backbones[1]["class_path"]
    # Where it is drawn, and inside the frame nothing of a background is to be kept.
    for name in ("bundle", "background"):
        for backbone in backbones:
            backbone["init_args"].pop(name, None)
    assert backbones[0]["init_args"] == backbones[1]["init_args"]
    # No parser ships, rates are those of a short training, and the protocol is that of the papers' data.
    for side in (mine, theirs):
        side["weights"].pop("parsing")
        for name in ("optimizer_g", "optimizer_d"):
            (side[name] or {"init_args": {"lr": None}})["init_args"].pop("lr")
        for name in ("samples_every", "protocol", "export", "report"):
            side.pop(name, None)
    assert mine == theirs


@pytest.mark.parametrize("stage", ["dbaf_flips_s1", "dbaf_flips_s2", "hford_flips_s1", "hford_flips_s2"])
def test_dbaf_and_hford_with_flips_have_what_photographs_need(parse, stage):
    given = parse("--config", CONFIGS / f"{stage}.yaml").model.init_args
    backbone = given.backbone.init_args
    # Light and skin are kept by `keep_light`, so fewer numbers have to stay.
    assert backbone.flips == 8
    assert (given.frame.keep_light > 0) == stage.endswith("_s2")


# Who cuts faces out needs what lies around them, and Persona has networks of its own.
BESIDE_THE_PRIOR = {"ciagan": "photo128_pictures", "deepprivacy": "photo128_pictures", "persona": "photo128"}


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_a_stage_stands_on_photographs_that_ship(parse, name):
    config = parse("--config", CONFIGS / name)
    bundle = BESIDE_THE_PRIOR.get(Path(name).stem.rsplit("_", 1)[0], "photo128_prior")
    assert config.model.init_args.backbone.init_args.bundle == bundle
    assert config.data.class_path == "faceanon.data.prepared.PreparedFaces"
    assert config.data.init_args.root is None
    if bundle != "photo128_prior":
        return
    # What is trained is there, and nothing of the prior is: it has no time to learn anew.
    assert config.model.init_args.trainable
    # iFADIT's phase I trains its encoder of attributes, as the paper has it.
    shared = {"generator"} if name == "ifadit_s1.yaml" else {"generator", "encoder"}
    assert not shared & set(config.model.init_args.trainable)


@pytest.mark.parametrize("name", [name for name in STAGES if name.startswith("paper/")])
def test_a_stage_of_a_paper_stands_on_its_public_networks_and_your_photographs(parse, name):
    config = parse("--config", CONFIGS / name)
    # iFADIT reads attributes by a pSp.
    assert config.model.init_args.backbone.init_args.bundle == ("ffhq256_psp" if "ifadit" in name else "ffhq256")
    assert config.data.class_path == "faceanon.data.folder.FolderFaces"
    assert config.data.init_args.image_size == 256


@pytest.mark.parametrize("card", names("gpu"))
@pytest.mark.parametrize("name", [name for name in STAGES if name.startswith("paper/")])
def test_a_card_s_config_goes_behind_a_paper_s_stage(parse, name, card, monkeypatch):
    monkeypatch.setattr("faceanon.training.precision.has_bfloat16", lambda: True)
    config = parse("--config", CONFIGS / name, "--config", CONFIGS / card)
    batch = config.data.init_args.batch_size
    assert batch % config.model.init_args.accumulate == 0
    assert batch == parse("--config", CONFIGS / name).data.init_args.batch_size
    assert config.trainer.precision == "bf16-mixed"
    # FFHQ's 70,000 pictures fit.
    assert config.data.init_args.memory_limit * 1e9 > 70_000 * 256**2 * 3


@pytest.mark.parametrize("table", ["dbaf-4", "hford-4", "ifadit-5"])
def test_every_row_of_an_ablation_has_a_recipe_at_full_scale(parse, table):
    named = recipes(load_table(table))
    paper = {row.ours[0] for row in load_table(table).rows if row.paper}
    assert set(named) == paper
    for name, trainings in named.items():
        for stage in trainings:
            assert stage.config.startswith("paper/"), name
            config = parse("--config", CONFIGS / f"{stage.config}.yaml", *as_typed(stage.set))
            whole = parse("--config", CONFIGS / f"{stage.config}.yaml")
            assert (config.model != whole.model or config.trainer != whole.trainer) == bool(stage.set)


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


@pytest.mark.parametrize("name", names("data"))
def test_a_data_config_is_accepted(parse, name):
    config = parse("--config", CONFIGS / "dbaf_s1.yaml", f"--data={CONFIGS / name}")
    assert config.data.class_path == yaml.safe_load((CONFIGS / name).read_text())["class_path"]


@pytest.mark.parametrize("name", names("backbone"))
def test_a_backbone_preset_is_built(parse, name):
    spec = parse("--config", CONFIGS / "dbaf_s1.yaml", f"--model.init_args.backbone={CONFIGS / name}")
    spec = spec.model.init_args.backbone
    backbone = backbone_class(spec.class_path)(**vars(spec.init_args))
    assert isinstance(backbone, Backbone)
    written = yaml.safe_load((CONFIGS / name).read_text())["init_args"]
    assert backbone.bundle.name == written["bundle"]
    assert written.items() <= backbone.init_args.items()


def plain(value):
    """Without the parser's own kind of dict, and as YAML writes a tuple."""
    value = list(value) if isinstance(value, tuple) else value
    return value.as_dict() if isinstance(value, Namespace) else value


def ablations():
    for table in ("dbaf-4", "hford-4", "ifadit-5"):
        for row in load_table(table).rows:
            for number, training_of in enumerate(row.train):
                if training_of.set:
                    yield pytest.param(training_of, id=f"{row.ours[0]}-{number}")


@pytest.mark.parametrize("ablation", list(ablations()))
def test_an_ablation_changes_each_setting_that_it_names(parse, ablation):
    config = CONFIGS / f"{ablation.config}.yaml"
    words = [f"--{name}={value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True)}"
             for name, value in ablation.set.items()]  # fmt: skip
    before = parse("--config", config)
    after = parse("--config", config, *words)
    for name, value in ablation.set.items():
        found = plain(after[name])
        if isinstance(value, dict) and "class_path" in value:
            assert found["class_path"] == value["class_path"]
        elif isinstance(value, dict):
            # What it leaves out has its default.
            assert value.items() <= found.items()
        else:
            assert found == value
        assert found != plain(before.get(name))


@pytest.mark.parametrize("config", ["ifadit_s1", "ifadit_s2", "paper/ifadit_s1", "paper/ifadit_s2"])
def test_ifadit_trains_by_adam_as_it_is_printed(parse, config):
    """What the paper does not name is torch's own, not what an option's default has of another class."""
    optimizer = parse("--config", CONFIGS / f"{config}.yaml").model.init_args.optimizer_g
    assert optimizer.class_path == "torch.optim.Adam"
    weight = torch.nn.Parameter(torch.ones(1))
    options = vars(optimizer.init_args)
    made = torch.optim.Adam([weight], **{**options, "betas": tuple(options["betas"])})
    assert made.defaults == torch.optim.Adam([weight], lr=4e-4, betas=(0.0, 0.999)).defaults


PAPER_ABLATIONS = {
    "dbaf_s1": {"backbone.init_args.cid_form": "mlp"},
    "dbaf_s2": {"mixtures.contrastive": 1.0},
    "hford_s1": {"weights.adversarial": 0.0, "hand_on": False},
    "hford_s2": {"backbone.init_args.maar": False, "trainable": ["cid", "kria"]},
    "ifadit_s2": {"extra_weights.image": 0.0, "trainable": ["flow"]},
}


@pytest.mark.parametrize("stage", PAPER_ABLATIONS)
def test_a_paper_s_ablation_is_an_option_of_its_stage(parse, stage):
    """The options of docs/reference/tables.md."""
    given = PAPER_ABLATIONS[stage]
    words = []
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words.append(f"--model.init_args.{name}={text}")
    found = parse("--config", CONFIGS / f"paper/{stage}.yaml", *words).model.init_args
    for name, value in given.items():
        place = found
        for part in name.split("."):
            place = place[part]
        assert plain(place) == value
    if "mixtures.contrastive" in given:
        # Weights that are not named are stage 1's own.
        assert found.mixtures.reconstruction == 3.5


@pytest.mark.parametrize("parts", [["kria"], ["cid", "maar", "kria"], ["cid", "kria", "generator"]])
def test_the_parts_that_an_ablation_of_dbaf_trains_are_there(parts, tiny_bundle):
    backbone = DBAF(str(tiny_bundle), cid_depth=int("cid" in parts), cid_heads=2, cid_head_dim=8, maar="maar" in parts)
    assert trainable_parameters(backbone, parts)
    trained = {part.split(".")[0] for part, item in backbone.named_parameters() if item.requires_grad}
    assert trained == set(parts)
    key = backbone.sample_key(2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert backbone.eval().anonymize(smooth_faces(64)[:2], key).isfinite().all()


def test_the_parser_would_notice(parse):
    with pytest.raises(UserError, match="widht"):
        parse("--config", CONFIGS / "dbaf_s1.yaml", "--model.init_args.widht=3")


def test_the_tiny_bundle_has_every_role_of_the_prior_s(tmp_path):
    shipped = yaml.safe_load((CONFIGS.parent / "checkpoints/photo128_prior/bundle.yaml").read_text())["networks"]
    tiny = yaml.safe_load((make_tiny_bundle(tmp_path) / "bundle.yaml").read_text())["networks"]
    assert set(shipped) - {"codec", "frame"} <= set(tiny)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_config_has_one_weight_a_line_and_no_language_of_its_own(name):
    text = (CONFIGS / name).read_text()
    for line in text.splitlines():
        assert not ("weights: {" in line and "," in line), f"several weights in one line: {line}"
    written = yaml.safe_load(text)
    assert set(written) == {"name", "model", "data", "trainer"}
    backbone = written["model"]["init_args"]["backbone"]
    # At most a file with some arguments beside it, and in that file no other.
    if isinstance(backbone, str):
        backbone = {"base": backbone}
    if "base" in backbone:
        assert isinstance(yaml.safe_load((CONFIGS / backbone["base"]).read_text())["class_path"], str)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_config_has_the_name_of_its_file_and_leaves_trainer_and_folders_to_it(parse, name):
    written = yaml.safe_load((CONFIGS / name).read_text())
    folder = "runs/" + name.removesuffix(".yaml")
    config = parse("--config", CONFIGS / name)
    assert f"runs/{written['name']}" == folder
    assert set(written["trainer"]) <= {"max_epochs", "precision"}
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
