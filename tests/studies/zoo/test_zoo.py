import json
import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import partial
from unittest.mock import Mock

import lightning as L
import pytest
import yaml

from bundles import make_latent_bundle
from faceanon.cli import main
from faceanon.errors import RunError, UserError
from faceanon.report.board import Column
from faceanon.report.methods import markdown, summary
from faceanon.studies.tables.spec import AblationTraining
from faceanon.studies.zoo import jobs as _zoo_jobs
from faceanon.studies.zoo import photographs
from faceanon.studies.zoo import recipes as _recipes
from faceanon.studies.zoo import train as _zoo
from faceanon.studies.zoo.jobs import _begin
from faceanon.training import cli as training
from faceanon.training.signals import StoppedError
from few_pictures import shipping_few


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_latent_bundle(tmp_path_factory.mktemp("bundle"), without=("parser",))


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A further config: photographs in one version, prepared once."""
    cache = tmp_path_factory.mktemp("prepared")
    path = cache / "few.yaml"
    path.write_text(yaml.safe_dump({"data": {"init_args": {"versions": 1, "batch_size": 4, "cache": str(cache)}}}))
    return str(path)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return shipping_few(tmp_path_factory.mktemp("few") / "few")


@pytest.fixture(autouse=True)
def small_world(monkeypatch, pictures):
    monkeypatch.setattr(photographs, "SHIPPED", str(pictures))
    monkeypatch.setattr("faceanon.backbones.riddle.STRANGERS", 8)


def zoo(bundle, out, few, *words):
    words = ["--steps", "2", "--bundle", str(bundle), "--out", str(out), "--config", few, *words]
    return main(["zoo", *words])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_methods_go_into_one_table_and_nothing_is_repeated(bundle, few, tmp_path, monkeypatch, capsys):
    words = ["--methods", "riddle", "blur", "--seeds", "1"]
    assert zoo(bundle, tmp_path, few, *words) == 0
    content = json.loads((tmp_path / "zoo.json").read_text())
    assert set(content["methods"]) == {"riddle", "blur"}
    assert set(content["methods"]["riddle"]["seeds"]) == {"1"}
    assert set(content["methods"]["blur"]["seeds"]) == {"0"}  # nothing of it is random
    riddle = content["methods"]["riddle"]["summary"]
    assert 0 <= riddle["recovery_rate/tiny_judge/file"]["mean"] <= 1
    assert riddle["cost/train_cpu_minutes"]["mean"] > 0
    assert "recovery_rate/tiny_judge/file" not in content["methods"]["blur"]["summary"]
    cost = json.loads((tmp_path / "riddle/seed1/riddle_s2/cost.json").read_text())
    assert cost["batches"] == 2
    lines = (tmp_path / "zoo.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["method", "---", "riddle", "blur"]
    assert {path.name for path in (tmp_path / "sheets").iterdir()} == {"riddle.png", "blur.png", "all.png"}

    monkeypatch.setattr(training, "run", lambda words: pytest.fail(f"ran again: {words[:3]}"))
    assert zoo(bundle, tmp_path, few, *words) == 0
    assert zoo(bundle, tmp_path, few, *words, "--steps", "3") == 2
    assert "other settings" in capsys.readouterr().err


class Stop(L.Callback):
    """Sends SIGTERM in the second batch."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx == 1:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stopped_training_goes_on_with_the_same_command(bundle, few, tmp_path, monkeypatch):
    """In the middle of an epoch, to the very weights of one that was not stopped."""
    overlay = tmp_path / "stop.yaml"
    overlay.write_text(f"trainer: {{callbacks: [{{class_path: {Stop.__module__}.Stop}}]}}")
    fit = training.run
    # Behind the zoo's own words, which leave callbacks out.
    monkeypatch.setattr(training, "run", lambda words: fit([*words, f"--config={overlay}"]))
    (method,) = _recipes.find_methods(["riddle"])
    settings = _zoo.ZooSettings(4, str(bundle), [few])
    told = r"stopped by SIGTERM after batch 2, saved as .*last.ckpt; the same command goes on from there"
    with pytest.raises(RunError, match=told) as raised:
        _zoo.prepare(method, 0, tmp_path / "stopped", settings)
    assert raised.value.code == 128 + signal.SIGTERM
    place = tmp_path / "stopped/riddle/seed0/riddle_s2"
    before = json.loads((place / "spent.json").read_text())["seconds"]
    assert before > 0
    assert not (place / "cost.json").exists()

    monkeypatch.setattr(training, "run", fit)
    model = _zoo.prepare(method, 0, tmp_path / "stopped", settings)
    assert not list(place.rglob("*.ckpt"))
    assert not (place / "spent.json").exists()
    cost = json.loads((place / "cost.json").read_text())
    assert cost["batches"] == 4
    assert cost["seconds"] > before
    whole = _zoo.prepare(method, 0, tmp_path / "whole", settings)
    assert (model / "weights.safetensors").read_bytes() == (whole / "weights.safetensors").read_bytes()


def test_the_steps_are_shared_between_the_stages(tmp_path, monkeypatch):
    seen = []

    def fit(method, stage, seed, place, settings, batches, start):
        seen.append((stage.name, batches, start))
        place.mkdir(parents=True)
        (place / "cost.json").write_text("{}")

    monkeypatch.setattr(_zoo, "_fit", fit)
    (method,) = _recipes.find_methods(["dbaf"])
    model = _zoo.prepare(method, 0, tmp_path, _zoo.ZooSettings(7))
    first = tmp_path / "dbaf/seed0/dbaf_s1/model"
    assert seen == [("dbaf_s1", 4, None), ("dbaf_s2", 3, first)]
    assert model == tmp_path / "dbaf/seed0/dbaf_s2/model"
    for name in ("dbaf_recovery_latent", "dbaf_no_cid", "dbaf_single_stage"):
        (method,) = (method for method in _recipes.find_ablations(["dbaf-4"]) if method.name == name)
        assert _zoo.prepare(method, 0, tmp_path, _zoo.ZooSettings(7)) == tmp_path / name / "seed0/dbaf_s2/model"
    assert seen[2:] == [
        ("dbaf_s2", 3, first),  # the whole method's first stage is not trained again
        ("dbaf_s1", 4, None),
        ("dbaf_s2", 3, tmp_path / "dbaf_no_cid/seed0/dbaf_s1/model"),
        ("dbaf_s2", 7, None),
    ]


def begin_with_few(shipped, threads):
    """A process of the zoo that starts anew, told of few pictures."""
    photographs.SHIPPED = shipped
    _begin(threads)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_methods_at_once_give_the_same_table(bundle, few, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(_zoo_jobs, "_begin", partial(begin_with_few, photographs.SHIPPED))
    words = ["--methods", "deepprivacy", "blur", "--seeds", "1", "2", "--jobs", "2"]
    assert zoo(bundle, tmp_path / "both", few, *words) == 0
    told = capfd.readouterr().out
    assert "3 to train and test, 2 at once" in told
    assert "3 of 3 after" in told
    assert "deepprivacy_s2, 2 batches" not in told  # that went into the log
    assert "deepprivacy_s2, 2 batches" in (tmp_path / "both/deepprivacy/seed2/log.txt").read_text()
    alone = ["--methods", "deepprivacy", "blur", "--seeds", "2"]
    assert zoo(bundle, tmp_path / "one", few, *alone) == 0
    both, one = (json.loads((tmp_path / name / "zoo.json").read_text())["methods"] for name in ("both", "one"))
    for name, seed in (("deepprivacy", "2"), ("blur", "0")):
        figures = [
            {key: value for key, value in found[name]["seeds"][seed].items() if not key.startswith("cost/")}
            for found in (both, one)
        ]
        assert figures[0] == pytest.approx(figures[1], rel=1e-3, abs=1e-3, nan_ok=True)


def test_ablations_that_share_a_stage_are_not_trained_beside_each_other():
    methods = _recipes.find_methods(["blur", "riddle"]) + _recipes.find_ablations(["ifadit-5"])
    chains = _zoo_jobs.share_stages([(method, seed) for method in methods for seed in (0, 1)])
    names = [[method.name for method, _ in chain] for chain in chains]
    assert ["blur"] in names
    assert ["riddle"] in names
    for chain in chains:
        assert len({seed for _, seed in chain}) == 1
        assert len({method.stages[0].owner for method, _ in chain if method.stages}) <= 1
    owners = [(chain[0][0].stages[0].owner, chain[0][1]) for chain in chains if chain[0][0].stages]
    assert len(owners) == len(set(owners)) < len(methods) * 2 - 2


@pytest.mark.parametrize("error", [UserError("no such thing"), StoppedError(signal.SIGTERM, ", saved", saved=True)])
def test_what_one_of_several_meets_ends_the_command(tmp_path, monkeypatch, error):
    """In threads, so that what is replaced here is replaced there."""
    monkeypatch.setattr(_zoo_jobs, "_pool", lambda jobs: ThreadPoolExecutor(jobs))
    monkeypatch.setattr(_zoo_jobs, "_into", lambda log: nullcontext())
    monkeypatch.setattr(_zoo, "prepare", lambda *args: (_ for _ in ()).throw(error))
    tasks = [(method, 0) for method in _recipes.find_methods(["riddle", "blur"])]
    with pytest.raises((UserError, RunError), match=str(error)) as raised:
        _zoo_jobs.run_at_once(tasks, 2, tmp_path, _zoo.ZooSettings(2))
    assert pickle.loads(pickle.dumps(raised.value)).args == raised.value.args
    assert getattr(raised.value, "code", None) == getattr(error, "code", None)


def test_a_killed_process_ends_the_command_with_one_line(tmp_path, capsys, monkeypatch):
    def broken(running, total):
        raise BrokenProcessPool

    monkeypatch.setattr(photographs, "prepare_photographs", lambda *given: None)
    monkeypatch.setattr(_zoo_jobs, "_follow", broken)
    monkeypatch.setattr(_zoo_jobs, "_pool", lambda jobs: nullcontext(Mock()))
    assert main(["zoo", "--methods", "blur", "riddle", "--jobs", "2", "--out", str(tmp_path)]) == 1
    assert "was killed" in capsys.readouterr().err
    assert main(["zoo", "--methods", "blur", "--jobs", "0", "--out", str(tmp_path)]) == 2


def test_all_methods_are_those_that_can_be_had():
    methods = {method.name: tuple(stage.name for stage in method.stages) for method in _recipes.find_methods(None)}
    assert methods["fit"] == ("fit_s2",)
    assert methods["ifadit"] == ("ifadit_s1", "ifadit_s2")
    assert methods["falco"] == methods["scramble"] == ()
    assert {"ciagan", "deepprivacy", "dbaf", "hford", "mirage", "riddle", "rotation"} <= set(methods)


@pytest.mark.parametrize(("name", "problem"), [("nobody", "there are"), ("ifadit_released", "no config")])
def test_unknown_methods_and_those_without_configs(name, problem):
    with pytest.raises(UserError, match=problem):
        _recipes.find_methods([name])


def test_tables_without_ablations_and_recipes_without_configs():
    with pytest.raises(UserError, match="no row of that table is an ablation"):
        _recipes.find_ablations(["dbaf-1"])
    with pytest.raises(UserError, match="no table 'dbaf-9'"):
        _recipes.find_ablations(["dbaf-9"])
    with pytest.raises(UserError, match=r"no config .*dbaf_s9"):
        _recipes.read_recipe(
            "odd", [AblationTraining("dbaf_s9", {"data.init_args.train_batches": 1}, from_scratch=True)]
        )


def test_the_table_says_mean_and_spread():
    columns = [Column("anonymity", "recognised", "deid_rate/judge"), Column("quality", "KID", "kid")]
    table = {
        "one": summary([{"deid_rate/judge": 0.1}, {"deid_rate/judge": 0.3}], columns),
        "two": summary([{"deid_rate/judge": 0.5, "kid": float("nan")}], columns),
    }
    assert table["one"]["deid_rate/judge"] == {"mean": pytest.approx(0.2), "std": pytest.approx(0.1414, abs=1e-4)}
    assert markdown(table, columns).splitlines() == [
        "| method | anonymity: recognised ↓ | quality: KID ↓ |",
        "| --- | ---: | ---: |",
        "| one | 20.0 % ± 14.1 % | - |",
        "| two | 50.0 % | - |",
    ]
