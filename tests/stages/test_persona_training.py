"""Persona learns in both stages on a few shipped photographs: its terms, a resumed run, two processes."""

import csv
import json
from dataclasses import fields, replace

import pytest
import torch
from persona_worker import SMALL, build, small_persona, train, train_in_two
from stage_probes import REPO, SAVE_LAST, checkpoint

from faceanon.backbones.persona import Persona
from faceanon.data.files import read_photo
from faceanon.data.prepared import PreparedFaces
from faceanon.errors import RunError, UserError
from faceanon.files import load_tensors
from faceanon.models import load_backbone
from faceanon.networks.flow_painter import flow_error
from faceanon.paths import checkpoints
from faceanon.stages import AnonymizeStage, DisentangleStage
from faceanon.stages.anonymize_terms import AnonymizeWeights
from faceanon.stages.disentangle import DisentangleWeights
from faceanon.training.cli import run

SHIPPED = checkpoints() / "photo128"


def table():
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def small_flow(monkeypatch):
    monkeypatch.setattr("faceanon.backbones.persona.FlowPainter", SMALL)


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
    options = {**settings, "batch_size": 4, "train_batches": 4}
    return [f"--data.init_args.{name}={value}" for name, value in options.items()]


EVERY_BATCH = {"class_path": "faceanon.training.checkpoints.RunCheckpoint", "init_args": {"every_n_batches": 1}}


def fit(stage, out, data, *callbacks, more=()):
    keys = {
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


def error_on(state, batch):
    """How wrong the directions of a flow to a batch's photographs are."""
    method = small_persona().eval()
    method.load_state_dict(state)
    draw = torch.Generator().manual_seed(7)
    codes = method.encode(batch.image)
    time = torch.rand(len(batch), generator=draw) * 0.9
    noise = torch.randn(batch.latents.shape, generator=draw)
    noisy = torch.lerp(noise, batch.latents, time[:, None, None, None])
    with torch.no_grad():
        drawn = method.paint(replace(codes, noisy=noisy, time=time))
    return flow_error(drawn, batch.latents, codes.mask, time).mean().item()


def backbone_of(state):
    return {name.removeprefix("backbone."): value for name, value in state.items() if name.startswith("backbone.")}


@pytest.mark.slow
def test_stage_1_learns_the_directions_to_its_photographs(settings):
    batch = next(iter(prepared(settings).train_dataloader()))
    before = error_on(small_persona().state_dict(), batch)
    after = error_on(backbone_of(train("disentangle", settings, steps=24)), batch)
    assert after < 0.9 * before


def prepared(settings):
    data = PreparedFaces(**settings, batch_size=8)
    data.setup()
    return data


@pytest.mark.slow
def test_both_stages_train_the_flow_under_bf16(data, tmp_path):
    # Typed, it stays on processors that are slow in it.
    first = fit("persona_s1", tmp_path / "1", data, more=["--trainer.precision=bf16-mixed"]).model
    assert first.trainer.precision == "bf16-mixed"
    assert first.trainer.global_step > 0
    assert terms_of(first) == {"flow"}
    trained = load_backbone(tmp_path / "1" / "model")[0].state_dict()
    start = {name.removeprefix("ema."): value for name, value in first.state_dict().items() if name.startswith("ema.")}
    assert set(trained) == set(start)
    for name, value in trained.items():
        assert torch.equal(value, start[name]), name

    # The preset's head start is longer than this training.
    more = [f"--model.init_args.init_from={tmp_path / '1' / 'model'}", "--model.init_args.head_start=2"]
    second = fit("persona_s2", tmp_path / "2", data, more=more).model
    assert terms_of(second) == {"adversarial", "anchor", "hide", "apart", "donor", "expression", "flow"}
    # What anchors ask for is the flow of stage 1, and stays it.
    for name, value in second.teacher[0].state_dict().items():
        assert torch.equal(value, trained[name]), name
    moved = backbone_of(second.state_dict())
    assert all(value.isfinite().all() for value in moved.values())
    still = [name for name, value in moved.items() if torch.equal(value, trained[name])]
    assert still == []
    name = next(row["file"] for row in table() if row["split"] == "test" and row["source"] == "faker")
    face = torch.from_numpy(read_photo(SHIPPED / "pictures" / name, 128)[0].copy()).permute(2, 0, 1)[None] / 127.5 - 1
    model = load_backbone(tmp_path / "2" / "model")[0].eval()
    with torch.no_grad():
        assert model.anonymize(face, model.sample_key(1)).isfinite().all()


def terms_of(model):
    names = [name for name in model.trainer.logged_metrics if name.startswith("train/g/")]
    return {name.rsplit("/", 1)[1] for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["persona_s1", "persona_s2"])
def test_a_resumed_run_is_the_run_that_was_not_interrupted(data, tmp_path, stage):
    whole = tmp_path / "whole"
    broken = tmp_path / "broken"
    # The preset's head start is longer than this training. What anchors ask for is in the checkpoint.
    more = ["--model.init_args.head_start=1"] if stage == "persona_s2" else []
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
    assert max((first[name] - start[name]).abs().max() for name in start if "backbone.flow" in name) > 1e-4
    for name, value in alone.items():
        # Adam divides by a gradient's own size, so rounding shows where a gradient is next to nothing.
        torch.testing.assert_close(first[name], value, rtol=1e-5, atol=1e-4, msg=lambda text, n=name: n + text)


@pytest.mark.parametrize(
    ("stage", "weights", "name"),
    [(DisentangleStage, DisentangleWeights, "reconstruction"), (AnonymizeStage, AnonymizeWeights, "pseudonym")],
)
def test_terms_on_pictures_are_refused_as_persona_trains_on_latents(stage, weights, name):
    none = {field.name: 0.0 for field in fields(weights)}
    with pytest.raises(UserError, match=f"Persona trains on latents: set the weights of {name} to 0"):
        stage(Persona(), weights=weights(**none | {name: 1.0}))
