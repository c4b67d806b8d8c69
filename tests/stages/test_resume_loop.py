"""A small model that draws from every source of random numbers, stopped and gone on with."""

import contextlib
import csv

import lightning as L
import pytest
import torch
from resume_probes import BATCHES, Noisy, Rows, StopError

from faceanon.errors import UserError
from faceanon.training.checkpoint_file import read_checkpoint
from faceanon.training.checkpoints import RunCheckpoint, SafeCheckpointIO
from faceanon.training.csv_logger import CSVLogger
from faceanon.training.run_state import RunState


def fit(folder, manual, every=1, stop=None, resume=None, workers=0, **options):
    L.seed_everything(11 if resume is None else 99, verbose=False)  # a resumed process starts elsewhere
    model, data = Noisy(manual, stop), Rows(workers)
    trainer = L.Trainer(
        **{"accelerator": "cpu", "max_epochs": 3, "log_every_n_steps": 1, "num_sanity_val_steps": 0, **options},
        logger=CSVLogger(folder, name="run", version=""),
        callbacks=[RunState(), RunCheckpoint(minutes=0, every_n_batches=every)],
        plugins=[SafeCheckpointIO()],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with contextlib.suppress(StopError):
        trainer.fit(model, data, ckpt_path=resume)
    return model, data


def rows(folder):
    with (folder / "run/metrics.csv").open(newline="") as file:
        return [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]


CASES = {
    "epochs": {},
    "sparse rows": {"log_every_n_steps": 3},
    "validation inside": {"val_check_interval": 2},
    "steps": {"max_epochs": -1, "max_steps": 13},
    "part of the data": {"limit_train_batches": 4},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_stop_before_every_batch(tmp_path, case, manual):
    options = dict(CASES[case])
    if manual and "max_steps" in options:
        options["max_steps"] *= 2  # two optimizers
    whole, _ = fit(tmp_path / "whole", manual, **options)
    expected = rows(tmp_path / "whole")
    for stop in (2, BATCHES, 2 * BATCHES - 2):  # inside an epoch, at its end, and one batch before one
        folder = tmp_path / str(stop)
        broken, _ = fit(folder, manual, stop=stop, **options)
        assert broken.seen == whole.seen[:stop]
        resumed, data = fit(folder, manual, resume=folder / "run/checkpoints/last.ckpt", **options)
        assert resumed.seen == whole.seen[len(whole.seen) - len(resumed.seen) :], stop
        assert len(data.asked) == len(resumed.seen), "skipped batches are not fetched"
        assert torch.equal(resumed.layer.weight, whole.layer.weight), stop
        assert torch.equal(resumed.layer.bias, whole.layer.bias), stop
        assert [list(row.items()) for row in rows(folder)] == [list(row.items()) for row in expected], stop


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("first", "options"), [(7, {}), (10, {}), (7, {"val_check_interval": 2})])
def test_a_run_that_was_over_goes_on_longer(tmp_path, first, options):
    whole, _ = fit(tmp_path / "whole", False, max_epochs=-1, max_steps=13, **options)
    fit(tmp_path / "part", False, every=0, max_epochs=-1, max_steps=first, **options)
    path = tmp_path / "part/run/checkpoints/last.ckpt"
    longer, _ = fit(tmp_path / "part", False, every=0, resume=path, max_epochs=-1, max_steps=13, **options)
    assert longer.seen == whole.seen[first:]
    assert torch.equal(longer.layer.weight, whole.layer.weight)
    assert rows(tmp_path / "part") == rows(tmp_path / "whole")


@pytest.mark.filterwarnings("ignore")
def test_validation_puts_a_save_off_by_one_batch(tmp_path):
    fit(tmp_path, False, every=2, stop=4, val_check_interval=2)
    content = read_checkpoint(tmp_path / "run/checkpoints/last.ckpt")
    assert content["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["processed"] == 3


def test_processes_that_go_on_from_different_steps_are_refused():
    state, module = RunState(), L.LightningModule()
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    state.on_fit_start(trainer, module)
    trainer.strategy.broadcast = lambda mine: mine + 6
    state.on_load_checkpoint(trainer, module, {"global_step": 4})
    with pytest.raises(UserError, match=r"different steps \(process 0 from 4, process 0 from 10\)"):
        state.on_fit_start(trainer, module)
