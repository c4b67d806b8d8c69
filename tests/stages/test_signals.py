"""Ctrl-C and SIGTERM save, say how to resume, and leave with the code that shells expect."""

import json
import signal

import pytest
import torch
from failure_probes import checkpoints, last, train, train_apart
from stage_probes import REPO, checkpoint, losses

TERM = int(signal.SIGTERM)
RESUME = "resume with the same command and --ckpt_path last"


@pytest.fixture(autouse=True)
def listening():
    """Ctrl-C reaches the tests also where a shell started them in the background, which ignores it for them."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def at(batch, number=TERM, times=1):
    init = {"number": int(number), "batch": batch, "times": times}
    return {"class_path": "failure_probes.SignalAt", "init_args": init}


@pytest.mark.filterwarnings("ignore:The dirpath has changed")  # the resumed run writes elsewhere, to compare
def test_ctrl_c_saves_after_the_batch_at_hand_and_the_run_goes_on_from_there(tiny_bundle, tmp_path, capsys):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    broken, whole, resumed = tmp_path / "broken", tmp_path / "whole", tmp_path / "resumed"
    code, lines = train(capsys, tiny_bundle, broken, at(5, signal.SIGINT))
    path = last(broken)
    assert code == 130
    assert lines == [f"faceanon: stopped by Ctrl-C after batch 6, saved as {path}; {RESUME}"]
    assert checkpoint(broken)["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["processed"] == 6
    assert len(losses(broken)["train/g/perceptual"]) == 6, "the batch was saved but not logged"
    assert not (broken / "model").exists()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers

    assert train(capsys, tiny_bundle, whole) == (0, [])
    assert train(capsys, tiny_bundle, resumed, more=[f"--ckpt_path={path}"]) == (0, [])
    expected, found = checkpoint(whole)["state_dict"], checkpoint(resumed)["state_dict"]
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []


def test_a_signal_in_an_epochs_last_batch_waits_for_the_epochs_checkpoint(tiny_bundle, tmp_path, capsys):
    code, lines = train(capsys, tiny_bundle, tmp_path, at(3))
    assert code == 143
    assert lines == [f"faceanon: stopped by SIGTERM after batch 4, saved as {last(tmp_path)}; {RESUME}"]
    assert checkpoint(tmp_path)["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["processed"] == 4


def test_without_checkpoints_a_signal_ends_after_the_batch_too(tiny_bundle, tmp_path, capsys):
    more = ["--trainer.enable_checkpointing=false", f"--trainer.callbacks={json.dumps([at(1)])}"]
    code, lines = train(capsys, tiny_bundle, tmp_path, more=more)
    assert code == 143
    assert lines == ["faceanon: stopped by SIGTERM after batch 2; there is no checkpoint yet, start again"]
    assert checkpoints(tmp_path) == []


def test_a_second_signal_leaves_at_once(tiny_bundle, tmp_path, capsys):
    code, lines = train(capsys, tiny_bundle, tmp_path, at(5, times=2))
    path = last(tmp_path)
    assert code == 143
    assert lines == [f"faceanon: stopped by SIGTERM a second time, at once, saved as {path}; {RESUME}"]
    assert checkpoint(tmp_path)["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["processed"] == 4


def test_a_batch_is_saved_once_though_two_callbacks_would(tiny_bundle, tmp_path, capsys):
    every = {"class_path": "faceanon.training.checkpoints.RunCheckpoint", "init_args": {"every_n_batches": 1}}
    assert train(capsys, tiny_bundle, tmp_path, at(1), every)[0] == 143
    before = torch.load(last(tmp_path).with_name("previous.ckpt"), weights_only=True)
    assert before["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["processed"] == 1


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_before_the_first_batch(tiny_bundle, tmp_path, capsys, number, name):
    early = {"class_path": "failure_probes.SignalWhileStarting", "init_args": {"number": int(number)}}
    code, lines = train(capsys, tiny_bundle, tmp_path, early)
    assert code == 128 + number
    assert lines == [f"faceanon: stopped by {name}; nothing was saved that was not saved before"]
    assert checkpoints(tmp_path) == []


def test_a_signal_in_the_last_batch_lets_the_training_end(tiny_bundle, tmp_path, capsys):
    assert train(capsys, tiny_bundle, tmp_path, at(11)) == (0, [])
    assert (tmp_path / "model/weights.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_process_ends_with_that_code(tiny_bundle, tmp_path, number, code):
    found, lines, stderr = train_apart(tiny_bundle, tmp_path, at(2, number))
    assert (found, len(lines)) == (code, 1), stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_two_processes_stop_after_the_same_batch(tiny_bundle, tmp_path, rank):
    told = {"class_path": "failure_probes.SignalRank", "init_args": {"rank": rank, "batch": 3}}
    code, lines, stderr = train_apart(
        tiny_bundle,
        tmp_path,
        told,
        more=["--config", str(REPO / "configs/trainer/ddp_cpu.yaml"), "--data.init_args.groups=16"],
    )
    assert code == 143, stderr
    path = last(tmp_path)
    assert lines == [f"faceanon: stopped by SIGTERM after batch 5, saved as {path}; {RESUME}"]
    assert "Traceback" not in stderr
