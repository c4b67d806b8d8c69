"""What the zoo types for a stage, how long it trains, and the whole way on a tiny bundle."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from bundles import make_latent_bundle
from faceanon.cli import main
from faceanon.errors import UserError
from faceanon.paths import checkpoints, configs
from faceanon.studies.zoo import photographs, recipes
from faceanon.studies.zoo import train as _zoo
from faceanon.studies.zoo.recipes import find_ablations, find_methods
from faceanon.training import cli as training
from few_pictures import framing_few, shipping_few


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_latent_bundle(tmp_path_factory.mktemp("bundle"), without=("parser",))


@pytest.fixture
def words(monkeypatch, tmp_path):
    """What the zoo would type for a stage, as a list of configs and options by name."""

    def typed(method, stage, settings):
        seen = []
        monkeypatch.setattr(training, "run", seen.append)
        _zoo._fit(method, stage, 0, tmp_path, settings, 5, None)
        (said,) = seen
        paths = [said[number + 1] for number, word in enumerate(said) if word == "--config"]
        files = [Path(path).relative_to(configs()).as_posix() for path in paths]
        options = dict(word.removeprefix("--").split("=", 1) for word in said if "=" in word)
        return files, options

    return typed


def test_a_stage_trains_by_its_own_config_as_long_as_is_wanted(bundle, words):
    (dbaf,) = find_methods(["dbaf"])
    files, options = words(dbaf, dbaf.stages[0], _zoo.ZooSettings(10, str(bundle)))
    assert files == ["dbaf_s1.yaml"]
    assert options["model.init_args.backbone.init_args.bundle"] == str(bundle)
    assert options["data.init_args.root"] == "null"
    assert options["data.init_args.train_batches"] == "5"
    assert options["trainer.max_epochs"] == "1"
    assert options["data.init_args.image_size"] == "128"
    # Pictures are prepared for one seed: another one would prepare them anew.
    assert not {"data.init_args.seed", "data.init_args.batch_size"} & set(options)
    files, options = words(dbaf, dbaf.stages[1], _zoo.ZooSettings(10, str(bundle), photos=["a", "b"]))
    assert files == ["dbaf_s2.yaml"]
    assert options["data.init_args.root"] == '["a", "b"]'


def test_a_method_that_draws_whole_pictures_stands_on_its_own_bundle(words):
    (ciagan,) = find_methods(["ciagan"])
    _, options = words(ciagan, ciagan.stages[0], _zoo.ZooSettings(10))
    assert options["model.init_args.backbone.init_args.bundle"] == "photo128_pictures"
    assert options["data.init_args.bundle"] == "photo128"


def test_batches_of_a_method_are_those_of_its_own_configs(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(_zoo, "_fit", lambda method, stage, seed, place, *rest: trained.append((place.name, rest[1])))
    (ifadit,) = find_methods(["ifadit"])
    _zoo.prepare(ifadit, 0, tmp_path, _zoo.ZooSettings(None))
    assert trained == [("ifadit_s1", 500), ("ifadit_s2", 240)]


def test_a_further_config_may_say_another_length(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(_zoo, "_fit", lambda method, stage, seed, place, *rest: trained.append((place.name, rest[1])))
    (riddle,) = find_methods(["riddle"])
    longer = tmp_path / "longer.yaml"
    longer.write_text("data: {init_args: {train_batches: 180}}\n")
    for name, overlays in (("longer", [str(longer)]), ("own", [])):
        _zoo.prepare(riddle, 0, tmp_path / name, _zoo.ZooSettings(None, overlays=overlays))
    assert trained == [("riddle_s2", 180), ("riddle_s2", batches_in("riddle_s2"))]


def test_a_config_that_says_no_length_is_named(monkeypatch):
    (riddle,) = find_methods(["riddle"])
    monkeypatch.setattr(recipes, "read_yaml", lambda path: {"data": None})
    with pytest.raises(UserError, match=r"riddle_s2\.yaml says no data\.init_args\.train_batches"):
        riddle.stages[0].batches()


def batches_in(config):
    return yaml.safe_load((configs() / f"{config}.yaml").read_text())["data"]["init_args"]["train_batches"]


@pytest.mark.parametrize("table", ["dbaf-4", "hford-4", "ifadit-5"])
def test_every_ablation_of_a_table_has_its_configs(table):
    found = find_ablations([table])
    assert found[0].name == table.split("-")[0]  # the whole method stands first
    assert len({method.name for method in found}) == len(found) > 2
    for method in found:
        assert method.stages[-1].owner == method.name  # a model of its own each
        assert method.stages[0].owner in (method.name, found[0].name)
        assert all(stage.batches() > 0 for stage in method.stages)
    assert all(any(stage.settings for stage in method.stages) for method in found[1:])


def test_ablations_on_photographs_are_as_long_as_their_configs_say(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(
        _zoo, "_fit", lambda method, stage, seed, place, *rest: trained.append((place.parts[-3], place.name, rest[1]))
    )
    methods = {method.name: method for method in find_ablations(["dbaf-4"])}
    for name in ("dbaf", "dbaf_single_stage", "dbaf_first_stage"):
        _zoo.prepare(methods[name], 0, tmp_path, _zoo.ZooSettings(None))
    first, second = batches_in("dbaf_s1"), batches_in("dbaf_s2")
    assert trained == [
        ("dbaf", "dbaf_s1", first),
        ("dbaf", "dbaf_s2", second),
        ("dbaf_single_stage", "dbaf_s2", first + second),
        ("dbaf", "dbaf_s1", first),  # the whole method's own, which is found there in a real run
        ("dbaf_first_stage", "dbaf_s2", 1),
    ]


def test_the_words_of_an_ablation_on_photographs(bundle, words):
    methods = {method.name: method for method in find_ablations(["dbaf-4"])}
    settings = _zoo.ZooSettings(None, str(bundle))
    files, options = words(methods["dbaf_no_cid"], methods["dbaf_no_cid"].stages[0], settings)
    assert files == ["dbaf_s1.yaml"]
    assert options["model.init_args.backbone.init_args.cid_form"] == "mlp"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ablations_on_photographs_are_trained_and_tested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(photographs, "FRAMED", str(framing_few(tmp_path / "few")))
    monkeypatch.setattr(recipes.ZooStage, "batches", lambda *given: 1)
    # Of the usual width it is the writing of checkpoints that takes time.
    narrow = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}
    short = {
        "model": {"init_args": {"backbone": {"init_args": narrow}}},
        "data": {"init_args": {"versions": 1, "batch_size": 4, "cache": str(tmp_path / "prepared")}},
        "trainer": {"limit_test_batches": 1},
    }
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(short))
    words = ["--ablations", "hford-4", "--seeds", "0", "--out", str(tmp_path / "zoo")]
    assert main(["zoo", *words, "--config", str(tmp_path / "short.yaml")]) == 0
    told = json.loads((tmp_path / "zoo/zoo.json").read_text())["methods"]
    assert set(told) == {"hford", "hford_no_adversarial", "hford_no_pretrain", "hford_no_idm", "hford_no_arm"}
    built = {}
    for name in told:
        card = yaml.safe_load((tmp_path / f"zoo/{name}/seed0/hford_s2/model/model.yaml").read_text())
        built[name] = (card["init_args"]["cid_form"], card["init_args"]["maar"])
    assert built.pop("hford_no_idm") == ("mlp", True)
    assert built.pop("hford_no_arm") == ("levels", False)
    assert set(built.values()) == {("levels", True)}


def asked_of_a_test(method, model, tmp_path, monkeypatch):
    """What the zoo would type for a test."""
    seen = []
    monkeypatch.setattr(training, "run", seen.append)
    with pytest.raises(UserError):  # nothing was tested, so no results are there
        _zoo.test(method, 0, model, tmp_path, _zoo.ZooSettings(None))
    (said,) = seen
    return said


def test_of_persona_the_model_that_ships_is_tested(tmp_path, monkeypatch):
    (persona,) = find_methods(["persona"])
    model = _zoo.prepare(persona, 0, tmp_path, _zoo.ZooSettings(None))
    assert model == checkpoints() / "persona_photo128"
    said = asked_of_a_test(persona, model, tmp_path, monkeypatch)
    assert str(configs() / "test.yaml") in said
    assert f"--model.init_args.init_from={model}" in said
    (backbone,) = [word for word in said if word.startswith("--model.init_args.backbone=")]
    card = {"class_path": "faceanon.backbones.persona.Persona", "init_args": {"bundle": "photo128"}}
    assert json.loads(backbone.partition("=")[2]) == card


def test_a_method_that_trains_nothing_is_built_and_tested(tmp_path, monkeypatch):
    (blur,) = find_methods(["blur"])
    model = _zoo.prepare(blur, 0, tmp_path, _zoo.ZooSettings(None))
    said = asked_of_a_test(blur, model, tmp_path, monkeypatch)
    assert str(configs() / "test.yaml") in said
    assert "--data.init_args.bundle=photo128" in said


def test_every_config_says_its_length():
    methods = find_methods(None)
    assert {"ciagan", "dbaf", "deepprivacy", "fit", "mirage", "riddle", "rotation"} <= {one.name for one in methods}
    for method in methods:
        for stage in method.stages:
            assert stage.batches() > 0


def test_the_faces_of_the_sheets_are_the_first_of_the_shipped_test(bundle):
    faces = _zoo.faces(_zoo.ZooSettings(10, str(bundle)))
    assert faces.shape == (8, 3, 128, 128)
    assert -1 <= faces.min() < -0.5 < 0.5 < faces.max() <= 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--steps", "1"], "--steps 1: give 2 or more"),
        (["--methods", "blur", "--photos", "nowhere"], "nowhere"),
        (["--methods", "ifadit_released"], "ifadit_released cannot be trained: there is no config"),
    ],
)
def test_a_mistake_is_one_line(options, problem, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["zoo", "--out", str(tmp_path / "zoo"), *options]) == 2
    told = capsys.readouterr().err.strip()
    assert problem in told
    assert "\n" not in told


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_methods_of_three_kinds_go_through(bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(photographs, "SHIPPED", str(shipping_few(tmp_path / "few")))
    cache = tmp_path / "data.yaml"
    cache.write_text(yaml.safe_dump({"data": {"init_args": {"versions": 2, "cache": str(tmp_path / "prepared")}}}))
    words = ["--steps", "4", "--seeds", "0", "--bundle", str(bundle), "--out", str(tmp_path / "zoo")]
    assert main(["zoo", "--methods", "dbaf", "ciagan", "blur", "--config", str(cache), *words]) == 0
    content = json.loads((tmp_path / "zoo/zoo.json").read_text())["methods"]
    assert set(content) == {"dbaf", "ciagan", "blur"}
    for found in content.values():
        assert 0 <= found["summary"]["deid_rate/tiny_judge"]["mean"] <= 1
        assert torch.isfinite(torch.tensor(found["summary"]["landmark_distance/anonymized"]["mean"]))
    assert "recovery_rate/tiny_judge/file" in content["dbaf"]["summary"]
    cost = json.loads((tmp_path / "zoo/dbaf/seed0/dbaf_s2/cost.json").read_text())
    assert cost["batches"] == 2
    assert {path.name for path in (tmp_path / "zoo/sheets").iterdir()} == {
        "dbaf.png", "ciagan.png", "blur.png", "all.png"
    }  # fmt: skip
