"""The zoo on a bundle of photographs: which pictures, which configs, and the whole way on a tiny one."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from bundles import make_latent_bundle
from faceanon.cli import main
from faceanon.errors import UserError
from faceanon.files import read_yaml
from faceanon.paths import checkpoints, configs
from faceanon.studies.zoo import photographs
from faceanon.studies.zoo import train as _zoo
from faceanon.studies.zoo.recipes import find_ablations, find_methods
from faceanon.training import cli as training

SHIPPED = checkpoints() / "photo128"


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


def test_stages_train_on_photographs_as_many_batches_as_wanted(bundle, words):
    (dbaf,) = find_methods(["dbaf"], str(bundle))
    files, options = words(dbaf, dbaf.stages[0], _zoo.ZooSettings(10, 4, str(bundle)))
    shared = ["bundle/photo128_prior.yaml", "features/photo128_flips.yaml", "features/photo128_frame.yaml"]
    assert files == ["dbaf_s1.yaml", *shared, "features/photo128_mixtures.yaml"]
    assert options["model.init_args.backbone.init_args.bundle"] == str(bundle)
    assert options["data.init_args.root"] == "null"
    assert options["data.init_args.train_batches"] == "5"
    assert options["trainer.max_epochs"] == "1"
    assert options["data.init_args.image_size"] == "128"
    # Pictures are prepared for one seed: another one would prepare them anew.
    assert not {"data.init_args.seed", "data.init_args.train_groups"} & set(options)
    files, options = words(dbaf, dbaf.stages[1], _zoo.ZooSettings(10, 4, str(bundle), photos=["a", "b"]))
    assert files == ["dbaf_s2.yaml", *shared, "features/photo128_recovery.yaml"]
    assert options["data.init_args.root"] == '["a", "b"]'


def test_procedural_faces_stay_as_they_were(words):
    (dbaf,) = find_methods(["dbaf"])
    files, options = words(dbaf, dbaf.stages[0], _zoo.ZooSettings(10, 4))
    assert files == ["dbaf_s1.yaml"]
    assert options["data"].endswith(".SyntheticFaces")
    assert options["data.init_args.train_groups"] == "5"


def test_an_ablation_comes_behind_what_photographs_need(bundle, words):
    ablation = next(method for method in find_ablations(["dbaf-4"]) if method.name == "dbaf_no_cid")
    files, _ = words(ablation, ablation.stages[0], _zoo.ZooSettings(10, 4, str(bundle)))
    assert files[-1] == "ablation/dbaf_no_cid_s1.yaml"
    assert "features/photo128_frame.yaml" in files


def test_a_method_for_photographs_stands_on_its_own_bundle(bundle, words):
    (persona,) = find_methods(["persona"], str(bundle))
    _, options = words(persona, persona.stages[0], _zoo.ZooSettings(10, 4, str(bundle)))
    assert options["model.init_args.backbone.init_args.bundle"] == "photo128"
    assert "persona" in {method.name for method in find_methods(None, str(bundle))}
    assert "persona" not in {method.name for method in find_methods(None)}


def test_without_a_length_a_method_is_trained_by_its_own_configs(bundle, words):
    (dbaf,) = find_methods(["dbaf"], str(bundle), whole=True)
    settings = _zoo.ZooSettings(None, None, str(bundle))
    files, options = words(dbaf, dbaf.stages[1], settings)
    assert files == ["photo128/dbaf_s2.yaml"]
    assert options["model.init_args.backbone.init_args.bundle"] == str(bundle)
    assert not {"data", "data.init_args.batch_size"} & set(options)


def test_batches_of_a_method_are_those_of_its_own_configs(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(_zoo, "_fit", lambda method, stage, seed, place, *rest: trained.append((place.name, rest[1])))
    (ifadit,) = find_methods(["ifadit"], "photo128_prior", whole=True)
    _zoo.prepare(ifadit, 0, tmp_path, _zoo.ZooSettings(None, None, "photo128_prior"))
    assert trained == [("ifadit_s1", 500), ("ifadit_s2", 120)]


def test_a_further_config_may_say_another_length(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(_zoo, "_fit", lambda method, stage, seed, place, *rest: trained.append((place.name, rest[1])))
    (riddle,) = find_methods(["riddle"], "photo128_prior", whole=True)
    longer = tmp_path / "longer.yaml"
    longer.write_text("data: {init_args: {train_batches: 180}}\n")
    on_it = tmp_path / "on_it.yaml"
    on_it.write_text("base: [longer.yaml]\nmodel: {init_args: {margin: 0.2}}\n")
    for name, overlays in (("longer", [str(longer)]), ("on_it", [str(on_it)]), ("own", [])):
        _zoo.prepare(riddle, 0, tmp_path / name, _zoo.ZooSettings(None, None, "photo128_prior", overlays=overlays))
    assert trained == [("riddle_s2", 180), ("riddle_s2", 180), ("riddle_s2", batches_in("riddle_s2"))]


def test_a_config_that_says_no_length_is_named(tmp_path, monkeypatch):
    (riddle,) = find_methods(["riddle"], "photo128_prior", whole=True)
    monkeypatch.setattr(photographs, "read_yaml", lambda path: {"data": None})
    with pytest.raises(UserError, match=r"riddle_s2\.yaml says no data\.init_args\.train_batches"):
        photographs.batches_of(riddle.stages[0])


def batches_in(config):
    return yaml.safe_load((configs() / f"photo128/{config}.yaml").read_text())["data"]["init_args"]["train_batches"]


@pytest.mark.parametrize("table", ["dbaf-4", "hford-3", "ifadit-5"])
def test_on_photographs_an_ablation_is_laid_over_a_method_s_own_configs(table):
    found = find_ablations([table], whole=True)
    assert found[0].name == table.split("-")[0]  # the whole method stands first
    assert len({method.name for method in found}) == len(found) > 2
    for method in found:
        assert method.stages[-1].owner == method.name  # a model of its own each
        assert method.stages[0].owner in (method.name, found[0].name)
        assert all(stage.whole and stage.name.startswith("photo128/") for stage in method.stages)
        assert all(photographs.batches_of(stage) > 0 for stage in method.stages)
    assert all(any(stage.overlays for stage in method.stages) for method in found[1:])


def test_ablations_on_photographs_are_as_long_as_their_configs_say(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(
        _zoo, "_fit", lambda method, stage, seed, place, *rest: trained.append((place.parts[-3], place.name, rest[1]))
    )
    methods = {method.name: method for method in find_ablations(["dbaf-4"], whole=True)}
    for name in ("dbaf", "dbaf_single_stage", "dbaf_first_stage"):
        _zoo.prepare(methods[name], 0, tmp_path, _zoo.ZooSettings(None, None, "photo128_prior"))
    first, second = batches_in("dbaf_s1"), batches_in("dbaf_s2")
    assert trained == [
        ("dbaf", "dbaf_s1", first),
        ("dbaf", "dbaf_s2", second),
        ("dbaf_single_stage", "dbaf_s2", first + second),
        ("dbaf", "dbaf_s1", first),  # the whole method's own, which is found there in a real run
        ("dbaf_first_stage", "dbaf_s2", 1),
    ]


def test_the_words_of_an_ablation_on_photographs(bundle, words):
    methods = {method.name: method for method in find_ablations(["dbaf-4"], whole=True)}
    settings = _zoo.ZooSettings(None, None, str(bundle))
    files, _ = words(methods["dbaf_no_cid"], methods["dbaf_no_cid"].stages[0], settings)
    assert files == ["photo128/dbaf_s2.yaml", "ablation/photo128_no_cid.yaml"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ablations_on_photographs_are_trained_and_tested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("faceanon.backbones.dbaf.STRANGERS", 8)
    monkeypatch.setattr(_zoo, "batches_of", lambda *given: 1)
    short = {
        "data": {"init_args": {"versions": 1, "cache": str(tmp_path / "prepared")}},
        "trainer": {"limit_test_batches": 1},
    }
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(short))
    words = ["--bundle", "photo128_prior", "--ablations", "hford-3", "--seeds", "0", "--out", str(tmp_path / "zoo")]
    assert main(["zoo", *words, "--config", str(tmp_path / "short.yaml")]) == 0
    told = json.loads((tmp_path / "zoo/zoo.json").read_text())["methods"]
    assert list(told) == ["hford", "hford_no_idm", "hford_arm"]
    built = {}
    for name in told:
        card = yaml.safe_load((tmp_path / f"zoo/{name}/seed0/hford_s2/model/model.yaml").read_text())
        built[name] = (card["init_args"]["cid_depth"] > 0, card["init_args"]["maar"])
    assert built == {"hford": (True, False), "hford_no_idm": (False, False), "hford_arm": (True, True)}


def test_of_persona_the_model_that_ships_is_tested(tmp_path, monkeypatch):
    (persona,) = find_methods(["persona"], "photo128_prior", whole=True)
    settings = _zoo.ZooSettings(None, None, "photo128_prior")
    model = _zoo.prepare(persona, 0, tmp_path, settings)
    assert model == checkpoints() / "persona_photo128"
    seen = []
    monkeypatch.setattr(training, "run", seen.append)
    with pytest.raises(UserError):  # nothing was tested, so no results are there
        _zoo.test(persona, 0, model, tmp_path, settings)
    (said,) = seen
    assert str(configs() / "photo128/persona_test.yaml") in said
    assert f"--model.init_args.init_from={model}" in said
    assert "--model.init_args.backbone.init_args.bundle=photo128" in said


def test_a_method_that_trains_nothing_borrows_a_test_and_not_what_its_method_needs(tmp_path, monkeypatch):
    (blur,) = find_methods(["blur"], "photo128_prior", whole=True)
    seen = []
    monkeypatch.setattr(training, "run", seen.append)
    with pytest.raises(UserError):  # nothing was tested, so no results are there
        _zoo.test(blur, 0, tmp_path, tmp_path, _zoo.ZooSettings(None, None, "photo128_prior"))
    (said,) = seen
    assert str(configs() / f"{_zoo.PLAIN}.yaml") in said
    assert not [word for word in said if "/features/" in word]


def test_every_method_that_can_be_trained_has_configs_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("faceanon.studies.zoo.run.run_zoo", lambda methods, *rest: None)
    assert main(["zoo", "--bundle", "photo128_prior", "--out", str(tmp_path)]) == 0
    assert "not yet trained on photographs" not in capsys.readouterr().out


def test_methods_without_configs_of_their_own_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("faceanon.studies.zoo.recipes.RECIPES", "photographs_of_nobody")
    monkeypatch.setattr("faceanon.studies.zoo.run.run_zoo", lambda methods, *rest: None)
    assert main(["zoo", "--bundle", "photo128_prior", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "not yet trained on photographs, left out: " in told
    assert "rotation" in told
    assert "blur" not in told
    assert main(["zoo", "--bundle", "photo128_prior", "--methods", "rotation", "--out", str(tmp_path)]) == 2
    assert "rotation cannot be trained: there is no config photographs_of_nobody/rotation_s" in capsys.readouterr().err


def test_every_config_of_a_length_of_its_own_says_it():
    for method in find_methods(None, "photo128_prior", whole=True):
        for stage in method.stages:
            assert photographs.batches_of(stage) > 0


def test_every_overlay_names_stages_that_are_there():
    for path in (configs() / photographs.OVERLAYS).glob("*.yaml"):
        for stage in yaml.safe_load(path.read_text())["over"]:
            assert (configs() / f"{stage}.yaml").is_file(), f"{path.name} names {stage}"


def test_the_faces_of_the_sheets_are_the_first_of_the_shipped_test(bundle):
    faces = _zoo.faces(_zoo.ZooSettings(10, 4, str(bundle)))
    assert faces.shape == (8, 3, 128, 128)
    assert -1 <= faces.min() < -0.5 < 0.5 < faces.max() <= 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--photos", "somewhere"], "--photos: bundle synth64 has no codec"),
        (["--methods", "persona"], "persona cannot be trained: it is for photographs"),
        (["--methods", "blur", "--test-identities", "0"], "--test-identities 0: give 1 or more"),
        (["--bundle", "photo128", "--test-identities", "5"], "--test-identities: the test of photographs"),
        (["--bundle", "photo128", "--methods", "blur", "--photos", "nowhere"], "nowhere"),
        (["--bundle", "photo128", "--batch", "8"], "--batch: without --steps each method's own configs"),
    ],
)
def test_what_does_not_fit_the_bundle_is_one_line(options, problem, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["zoo", "--out", str(tmp_path / "zoo"), *options]) == 2
    told = capsys.readouterr().err.strip()
    assert problem in told
    assert "\n" not in told


def test_a_folder_from_before_there_were_photographs_still_serves(tmp_path):
    before = {"steps": 4, "batch": 4, "bundle": "synth64", "test_identities": 200, "overlays": []}
    (tmp_path / "settings.json").write_text(json.dumps(before))
    _zoo.ZooSettings(4, 4).keep(tmp_path)


def shipping_few(folder):
    """photo128 with few of its pictures: eight to train on, one to validate, two persons for the test."""
    wanted = {"train": 8, "val": 1, "test": 2}
    shutil.copytree(SHIPPED, folder, ignore=shutil.ignore_patterns("pictures*"))
    (folder / "pictures").mkdir()
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    rows = []
    for split, count in wanted.items():
        rows += [row for row in table if row["split"] == split][:count]
    for row in rows:
        shutil.copyfile(SHIPPED / "pictures" / row["file"], folder / "pictures" / row["file"])
    with (folder / "pictures.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_methods_of_three_kinds_go_through(bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(photographs, "SHIPPED", str(shipping_few(tmp_path / "few")))
    cache = tmp_path / "data.yaml"
    cache.write_text(yaml.safe_dump({"data": {"init_args": {"versions": 2, "cache": str(tmp_path / "prepared")}}}))
    words = ["--steps", "4", "--batch", "4", "--seeds", "0", "--bundle", str(bundle), "--out", str(tmp_path / "zoo")]
    assert main(["zoo", "--methods", "dbaf", "ciagan", "blur", "--config", str(cache), *words]) == 0
    content = json.loads((tmp_path / "zoo/zoo.json").read_text())["methods"]
    assert set(content) == {"dbaf", "ciagan", "blur"}
    for found in content.values():
        assert 0 <= found["summary"]["deid_rate/tiny_judge"]["mean"] <= 1
        assert torch.isfinite(torch.tensor(found["summary"]["landmark_distance/anonymized"]["mean"]))
    assert "recovery_rate/tiny_judge/file" in content["dbaf"]["summary"]
    cost = json.loads((tmp_path / "zoo/dbaf/seed0/dbaf_s2/cost.json").read_text())
    assert (cost["batches"], cost["batch"]) == (2, 4)
    assert {path.name for path in (tmp_path / "zoo/sheets").iterdir()} == {
        "dbaf.png", "ciagan.png", "blur.png", "all.png"
    }  # fmt: skip


def overlays_with_extra_weights():
    for path in sorted((configs() / "features").glob("*.yaml")):
        written = read_yaml(path)
        if "extra_weights" in written.get("model", {}).get("init_args", {}):
            for stage in written["over"]:
                # A stage that weighs no extra terms has none to lose.
                if "extra_weights" in read_yaml(configs() / f"{stage}.yaml")["model"]["init_args"]:
                    yield path, stage


@pytest.mark.parametrize(("overlay", "stage"), list(overlays_with_extra_weights()), ids=str)
def test_an_overlay_names_all_extra_weights_of_its_stage(overlay, stage):
    # A dictionary of a later config takes the place of the one before, and terms would be lost in silence.
    before = read_yaml(configs() / f"{stage}.yaml")["model"]["init_args"]["extra_weights"]
    after = read_yaml(overlay)["model"]["init_args"]["extra_weights"]
    assert after.keys() == before.keys()
