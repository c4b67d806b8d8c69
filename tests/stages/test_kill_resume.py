"""kill -9 at random moments, `--ckpt_path last`, and nobody can tell it from a run that was left alone."""

import contextlib
import json
import multiprocessing
import os
import random
import time

import pytest
import torch
from resume_probes import BATCHES
from stage_probes import small, words

from faceanon.errors import UserError
from faceanon.training.checkpoint_file import check, read_checkpoint
from faceanon.training.cli import run

CONTEXT = multiprocessing.get_context("forkserver")  # children start with everything imported
CONTEXT.set_forkserver_preload(["faceanon.training.cli", "faceanon.stages", "stage_probes", "resume_probes"])


def arguments(folder, epochs, every=1):
    saved = {"class_path": "faceanon.training.checkpoints.RunCheckpoint", "init_args": {"every_n_batches": every}}
    written = {"save_dir": str(folder), "name": "run", "version": ""}
    keys = {
        "default_root_dir": folder,
        "accelerator": "cpu",
        "max_epochs": epochs,
        "callbacks": json.dumps([saved]),
        "logger": json.dumps({"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": written}),
        "log_every_n_steps": 1,
        "num_sanity_val_steps": 0,
        "enable_progress_bar": "false",
        "enable_model_summary": "false",
    }
    model = ["--model", "resume_probes.Noisy", "--data", "resume_probes.Rows"]
    return ["fit", *model, *(f"--trainer.{key}={value}" for key, value in keys.items())]


def child(command, output):
    """Train in a process of its own, which is killed."""
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    torch.set_num_threads(1)
    run([*command, "--ckpt_path=last"])


def newest_time(folder):
    """When the newest checkpoint was written; they are renamed while we look."""
    times = [0]
    for path in folder.rglob("*.ckpt"):
        with contextlib.suppress(FileNotFoundError):
            times.append(path.stat().st_mtime_ns)
    return max(times)


def timed(command):
    """Train in this process, undisturbed. How many seconds it took."""
    start = time.monotonic()
    run(command)
    return time.monotonic() - start


def train_under_fire(command, folder, kills, seed, seconds):
    """Start, kill after a random time, start again; the last one may finish.

    `seconds` is what the undisturbed run took. No attempt gets more than half of a kill's share of it, so that a
    machine of any speed is killed `kills` times before it is done.
    """
    folder.mkdir()
    draw, share, opening = random.Random(seed), seconds / (2 * kills), 0.5
    for number in range(kills):
        before, start = newest_time(folder), time.monotonic()
        process = CONTEXT.Process(target=child, args=(command, folder / "output.txt"))
        process.start()
        if number % 5 == 4:  # dies anywhere, also at its start
            time.sleep(draw.random() * (opening + share))
        else:  # gets on by a checkpoint first
            while process.is_alive() and newest_time(folder) == before:
                time.sleep(0.001)
            opening = time.monotonic() - start
            time.sleep(draw.random() * share)
        process.kill()
        process.join()
        assert process.exitcode == -9, (folder / "output.txt").read_text()[-3000:]
    process = CONTEXT.Process(target=child, args=(command, folder / "output.txt"))
    process.start()
    process.join()
    assert process.exitcode == 0, (folder / "output.txt").read_text()[-3000:]


def same(one, other):
    """Whether two states hold the same bits."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def compare(whole, broken):
    """Weights, averages, optimizers, counters, random numbers and the log, to the last bit; and nothing left over."""
    (one,), (other,) = (list(folder.rglob("last.ckpt")) for folder in (whole, broken))
    states = read_checkpoint(one), read_checkpoint(other)
    for part in ("state_dict", "optimizer_states", "loops", "run_state", "global_step", "epoch"):
        assert same(states[0][part], states[1][part]), part
    (one,), (other,) = (list(folder.rglob("metrics.csv")) for folder in (whole, broken))
    assert one.read_bytes() == other.read_bytes()
    # "epoch=..." are those of a ModelCheckpoint, which a kill keeps from removing the one before.
    left = {path.name for path in broken.rglob("*.ckpt*") if not path.name.startswith("epoch=")}
    assert left == {"last.ckpt", "previous.ckpt"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path, kills):
    epochs = 6 * kills
    seconds = timed(arguments(tmp_path / "whole", epochs))
    train_under_fire(arguments(tmp_path / "broken", epochs), tmp_path / "broken", kills, kills, seconds)
    compare(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
def test_a_real_stage_killed_ten_times(tiny_bundle, tmp_path):
    saver = {"class_path": "faceanon.training.checkpoints.RunCheckpoint", "init_args": {"every_n_batches": 1}}

    def command(folder):
        options = small("dbaf_s1", {"r1_interval": 3, "schedule": "cosine", "warmup": 3})
        data = {"groups": 4, "batch_size": 4, "jitter.scale": 0.1, "jitter.shift": 0.06}
        given = [f"--data.init_args.{name}={value}" for name, value in data.items()]
        return ["fit", *words("dbaf_s1", tiny_bundle, folder, saver, **options), *given, "--trainer.max_epochs=8"]

    seconds = timed(command(tmp_path / "whole"))
    train_under_fire(command(tmp_path / "broken"), tmp_path / "broken", 10, 1, seconds)
    compare(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_checkpoint_falls_back(tmp_path, caplog):
    run(arguments(tmp_path / "whole", 2))
    run(arguments(tmp_path / "broken", 1))
    folder = tmp_path / "broken/run/checkpoints"
    content = bytearray((folder / "last.ckpt").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "last.ckpt").write_bytes(content)
    check(folder / "previous.ckpt")
    caplog.clear()
    run([*arguments(tmp_path / "broken", 2), "--ckpt_path=last"])
    (line,) = [line for line in caplog.messages if "is damaged" in line]
    assert "last.ckpt is damaged; resuming from the one before, " in line
    assert line.endswith("previous.ckpt")
    compare(tmp_path / "whole", tmp_path / "broken")

    (folder / "last.ckpt").write_bytes(content)
    with pytest.raises(UserError, match=r"--ckpt_path: .*last\.ckpt is damaged"):
        run([*arguments(tmp_path / "broken", 3), f"--ckpt_path={folder / 'last.ckpt'}"])
    for path in folder.glob("*.ckpt"):
        path.write_bytes(b"rubbish")
    with pytest.raises(UserError, match="every checkpoint is damaged"):
        run([*arguments(tmp_path / "broken", 3), "--ckpt_path=last"])


@pytest.mark.filterwarnings("ignore")
def test_last_starts_anew_where_there_is_none_and_a_new_run_keeps_the_old_one(tmp_path, caplog):
    run([*arguments(tmp_path, 1), "--ckpt_path=last"])
    assert "no checkpoint yet in" in caplog.text
    folder = tmp_path / "run/checkpoints"
    first = (folder / "last.ckpt").read_bytes()
    run(arguments(tmp_path, 1))
    assert "holds an earlier run" in caplog.text
    assert (folder / "last.ckpt.earlier").read_bytes() == first
    assert len((tmp_path / "run/metrics.csv").read_text().splitlines()) == 1 + BATCHES + 1
