"""Persona learns in both stages on a few shipped photographs: its terms, a resumed run, two processes."""

import csv
import json
from dataclasses import fields

import pytest
import torch
from persona_worker import build, train, train_in_two
from stage_probes import REPO, SAVE_LAST, checkpoint

from faceanon.backbones.persona import Persona
from faceanon.data.files import read_photo
from faceanon.errors import RunError, UserError
from faceanon.files import load_tensors
from faceanon.models import load_backbone
from faceanon.paths import checkpoints
from faceanon.stages import AnonymizeStage, DisentangleStage
from faceanon.stages.anonymize_terms import AnonymizeWeights
from faceanon.stages.disentangle import DisentangleWeights
from faceanon.training.cli import run

SHIPPED = checkpoints() / "photo128"


def table():
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Settings of data of eleven shipped pictures: eight for training in two versions, so four batches of four."""
    folder = tmp_path_factory.mktemp("photos")
    rows = [row for row in table() if row["split"] == "train" and row["source"] == "faker"][:11]
    for row in rows:
        (folder / row["file"]).write_bytes((SHIPPED / "pictures" / row["file"]).read_bytes())
    return {
        "root": str(folder),
        "cache": str(tmp_path_factory.mktemp("prepared")),
        "versions": 2,
        "val_fraction": 0.1,
        "test_fraction": 0.2,
    }


@pytest.fixture(scope="module")
def data(settings):
    """The same as words of the command."""
    options = {**settings, "batch_size": 4}
    return [f"--data.init_args.{name}={value}" for name, value in options.items()]


EVERY_BATCH = {"class_path": "faceanon.training.checkpoints.RunCheckpoint", "init_args": {"every_n_batches": 1}}


def fit(stage, out, data, *callbacks, more=()):
    keys = {
        "model.init_args.backbone.init_args.hidden": 32,
        "model.init_args.export": out / "model",
        "model.init_args.samples_every": 0,
        "trainer.callbacks": json.dumps([SAVE_LAST, *callbacks]),
        "trainer.default_root_dir": out,
        "trainer.logger.init_args.save_dir": out,
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
        "trainer.log_every_n_steps": 1,
        "trainer.max_epochs": 1,
    }
    if stage == "persona_s2":
        keys["model.init_args.report"] = "null"
    words = [f"--{key}={value}" for key, value in keys.items()]
    return run(["fit", "--config", str(REPO / f"configs/{stage}.yaml"), *words, *data, *more])


@pytest.mark.slow
def test_both_stages_train_the_painter_under_bf16(data, tmp_path):
    # Typed, it stays on processors that are slow in it.
    first = fit("persona_s1", tmp_path / "1", data, more=["--trainer.precision=bf16-mixed"]).model
    assert first.trainer.precision == "bf16-mixed"
    assert first.trainer.global_step > 0
    trained = load_backbone(tmp_path / "1" / "model")[0]
    torch.manual_seed(0)
    untrained = Persona(hidden=32)
    before = untrained.painter.state_dict()
    moved = [name for name, value in trained.painter.state_dict().items() if not torch.equal(value, before[name])]
    assert len(moved) > 10
    terms = {name for name in first.trainer.logged_metrics if name.startswith("train/g/")}
    wanted = {"itself", "likeness", "stranger", "watched", "expression", "light", "bounds"}
    assert wanted <= {name.rsplit("/", 1)[1] for name in terms}

    # The preset's head start is longer than this training.
    start = [f"--model.init_args.init_from={tmp_path / '1' / 'model'}", "--model.init_args.head_start=2"]
    second = fit("persona_s2", tmp_path / "2", data, more=start)
    terms = {name.rsplit("/", 1)[1] for name in second.model.trainer.logged_metrics if name.startswith("train/g/")}
    assert {"adversary", "apart", "likeness"} <= terms
    name = next(row["file"] for row in table() if row["split"] == "test" and row["source"] == "faker")
    face = torch.from_numpy(read_photo(SHIPPED / "pictures" / name, 128)[0].copy()).permute(2, 0, 1)[None] / 127.5 - 1
    model = load_backbone(tmp_path / "2" / "model")[0].eval()
    with torch.no_grad():
        assert model.anonymize(face, model.sample_key(1)).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["persona_s1", "persona_s2"])
def test_a_resumed_run_is_the_run_that_was_not_interrupted(data, tmp_path, stage):
    whole = tmp_path / "whole"
    broken = tmp_path / "broken"
    more = []
    if stage == "persona_s2":
        fit("persona_s1", tmp_path / "first", data)
        more = [f"--model.init_args.init_from={tmp_path / 'first' / 'model'}"]
    fit(stage, whole, data, more=more)
    stop = {"class_path": "stage_probes.Interrupt", "init_args": {"epoch": 0, "batch": 2}}
    with pytest.raises(RunError):
        fit(stage, broken, data, EVERY_BATCH, stop, more=more)
    before = checkpoint(broken)["state_dict"]
    fit(stage, broken, data, EVERY_BATCH, more=[*more, "--ckpt_path=last"])
    states = [checkpoint(folder)["state_dict"] for folder in (whole, broken)]
    assert states[0].keys() == states[1].keys()
    assert [name for name in states[0] if not torch.equal(states[0][name], states[1][name])] == []
    assert any(not torch.equal(states[0][name], value) for name, value in before.items())
    models = [load_tensors(folder / "model/weights.safetensors") for folder in (whole, broken)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["disentangle", "anonymize"])
def test_two_processes_learn_what_one_does_in_two_parts(settings, tmp_path, stage):
    first, second = train_in_two(stage, settings, tmp_path)
    alone = train(stage, settings)
    start = build(stage, accumulate=1).state_dict()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert max((first[name] - start[name]).abs().max() for name in start if "painter" in name) > 1e-4
    for name, value in alone.items():
        # Adam divides by a gradient's own size, so rounding shows where a gradient is next to nothing.
        torch.testing.assert_close(first[name], value, rtol=1e-5, atol=1e-4, msg=lambda text, n=name: n + text)


def test_where_pseudonyms_are_wanted_all_photos_of_a_batch_have_one_second_key():
    image = torch.zeros(3, 3, 128, 128)
    first, second = build("anonymize", accumulate=1, pseudonym=0.5)._keys(2, image).chunk(2)
    assert torch.equal(second, second[:1].expand_as(second))
    assert not torch.equal(first[0], first[1])
    apart = build("anonymize", accumulate=1)._keys(2, image)
    assert len(apart.flatten(1).unique(dim=0)) == 6


@pytest.mark.parametrize(
    ("stage", "weights", "name"),
    [(DisentangleStage, DisentangleWeights, "reconstruction"), (AnonymizeStage, AnonymizeWeights, "pseudonym")],
)
def test_terms_on_pictures_are_refused_as_persona_trains_on_latents(stage, weights, name):
    none = {field.name: 0.0 for field in fields(weights)}
    with pytest.raises(UserError, match=f"Persona trains on latents: set the weights of {name} to 0"):
        stage(Persona(), weights=weights(**none | {name: 1.0}))
