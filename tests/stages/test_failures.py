"""What ends a training: one line, an exit code, the last good checkpoint as it was, and a saved batch that replays."""

import errno
import re
import resource
import stat
import subprocess
import time
from pathlib import Path

import pytest
import torch
from failure_probes import arguments, checkpoints, last, train, train_apart
from stage_probes import REPO, checkpoint

from faceanon.cli import main
from faceanon.errors import RunError, UserError
from faceanon.training.cli import run
from faceanon.training.failures import explain
from faceanon.training.ranks import RankWatch
from faceanon.training.replay import OutcomeError, read
from faceanon.training.replay import arguments as replay_words

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
DDP = ["--config", str(REPO / "configs/trainer/ddp_cpu.yaml"), "--data.init_args.groups=16"]


def probe(name, **init):
    return {"class_path": f"failure_probes.{name}", "init_args": init}


def saved_batch(out):
    (path,) = Path(out).rglob("failures/*.pt")
    return path


def processed(out):
    return checkpoint(out)["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["processed"]


def replay(file, scratch):
    with pytest.raises(OutcomeError) as found:
        run(replay_words(file, scratch))
    return found.value


@pytest.fixture
def whole_files():
    """Put the limit of a file's size back."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_bad_pixel_names_the_terms_and_leaves_a_batch_that_fails_again(tiny_bundle, tmp_path, capsys):
    code, lines = train(capsys, tiny_bundle, tmp_path, probe("Poison", batch=5))
    file = saved_batch(tmp_path)
    assert code == 1
    assert lines == [
        "faceanon: batch 5 (epoch 1, process 0), seed 0: the loss is not finite: reconstruction is nan, edges is nan, "
        f"perceptual is nan and 2 more; no step was taken on it; last good checkpoint {last(tmp_path)}; "
        f"look at it with: faceanon doctor --replay {file}"
    ]
    assert processed(tmp_path) == 4
    assert all(bool(value.isfinite().all()) for value in checkpoint(tmp_path)["state_dict"].values())
    assert not (tmp_path / "model").exists()

    content = torch.load(file, weights_only=True)
    assert bool(content["batch"]["image"][1].isnan().any())
    assert content["batch"]["identity"].shape == (8,)
    bad = [name for name, value in content["state"].items() if not value.isfinite().all()]
    assert all(".running_" in name for name in bad), "batch statistics see the batch; no parameter took a step on it"
    assert not [name for name in content["state"] if name.startswith("ema.")]
    assert content["config"] == "../config.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    outcome = replay(file, tmp_path)
    assert outcome.again
    assert "reconstruction is nan" in str(outcome)


def test_a_bad_gradient_is_named_and_the_replay_computes_the_very_same_loss(tiny_bundle, tmp_path, capsys):
    # A discriminator takes its step before; the bad gradient is no part of the batch, so that a replay is finite.
    code, lines = train(capsys, tiny_bundle, tmp_path, probe("Poison", batch=5, gradient=True), config="dbaf_s1")
    assert code == 1
    assert re.search(r"gradients are not finite, though this process's loss is [\d.]+: backbone\.", lines[0])
    file = saved_batch(tmp_path)
    outcome = replay(file, tmp_path)
    assert not outcome.again
    for name, value in read(file)["terms"].items():
        assert f"{name} {value:.6g}" in str(outcome)


def test_the_replay_draws_what_the_process_drew_that_failed(tiny_bundle, tmp_path, capsys):
    words = (probe("Poison", batch=1, gradient=True), probe("SecondOfTwo"))
    weights = {"weights__anchor": 1.0, "saved_noise": 1.0}  # no init_from: the anchors' model is in the file too
    code, _ = train(capsys, tiny_bundle, tmp_path, *words, config="pixels_s2", **weights)
    assert code == 1
    file = saved_batch(tmp_path)
    assert read(file)["progress"]["place"] == (1, [8, 8])
    outcome = replay(file, tmp_path)
    assert read(file)["terms"]["anchor"] > 0
    for name, value in read(file)["terms"].items():
        assert f"{name} {value:.6g}" in str(outcome)


def test_a_gradient_that_is_large_but_finite_does_not_stop_a_run(tiny_bundle, tmp_path, capsys):
    big = probe("Poison", batch=5, gradient=True, value=3e38)
    assert train(capsys, tiny_bundle, tmp_path, big, gradient_clip=0.0, more=["--trainer.max_epochs=2"])[0] == 0


def test_the_doctor_replays(tiny_bundle, tmp_path, capsys):
    train(capsys, tiny_bundle, tmp_path, probe("Poison", batch=1))
    file = saved_batch(tmp_path)
    for path, code, words in ((file, 0, "came again"), (tmp_path / "none.pt", 2, "there is no")):
        assert main(["doctor", "--replay", str(path)]) == code
        said = capsys.readouterr()
        assert words in said.out + said.err
    (file.parent.parent / "config.yaml").write_text("changed: 1")
    with pytest.raises(UserError, match="has changed since"):
        replay_words(file, tmp_path)


@pytest.mark.parametrize("content", [b"", b"rubbish", "a checkpoint"])
def test_another_file_is_no_saved_batch(tmp_path, content):
    file = tmp_path / "x.pt"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save({"state_dict": {}}, file)
    with pytest.raises(UserError, match=r"x\.pt is damaged or no saved batch"):
        read(file)


@pytest.mark.usefixtures("whole_files")
@pytest.mark.parametrize(("what", "limit"), [("checkpoint", 20_000), ("log", 600)])
def test_a_full_disk(tiny_bundle, tmp_path, capsys, what, limit):
    code, lines = train(capsys, tiny_bundle, tmp_path, probe("SmallDisk", batch=5, limit=limit))
    assert code == 2
    assert len(lines) == 1
    assert "larger than this process or file system may write" in lines[0]
    assert processed(tmp_path) == 4
    assert [path.name for path in tmp_path.rglob("*ckpt*") if path.is_file()] == [p.name for p in checkpoints(tmp_path)]
    assert not (tmp_path / "model").exists()


@pytest.mark.usefixtures("whole_files")
def test_a_full_disk_when_the_model_is_written(tiny_bundle, tmp_path, capsys):
    code, lines = train(capsys, tiny_bundle, tmp_path, probe("SmallDiskAtTheEnd", limit=20_000))
    assert code == 2
    assert len(lines) == 1
    assert "cannot write" in lines[0]
    assert "weights.safetensors" in lines[0]
    assert processed(tmp_path) == 12
    assert list(tmp_path.rglob("model/*")) == []


@pytest.mark.parametrize(
    ("how", "code", "line"),
    [
        ("kill", 1, r"faceanon: worker \d+ of the data loader died \((is killed by signal: Killed|exited .+)\), .*"),
        ("raise", 2, r"faceanon: photo\.png is damaged; take it out"),
    ],
)
@pytest.mark.filterwarnings("ignore:Exception ignored in.*MultiProcessing:pytest.PytestUnraisableExceptionWarning")
def test_a_dead_worker(tiny_bundle, tmp_path, capsys, how, code, line):
    """Torch may handle the worker's end while it takes the last epoch's loader down; then the reason is lost there."""
    found, lines = train(
        capsys,
        tiny_bundle,
        tmp_path,
        more=["--data", "failure_probes.WorkerFaces", f"--data.init_args.how={how}"],
    )
    assert found == code
    assert len(lines) == 1
    assert re.fullmatch(line, lines[0])
    assert processed(tmp_path) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "how"), [(1, "kill"), (0, "kill"), (1, "others hang"), (0, "others hang")])
def test_a_dead_rank_ends_the_others_within_a_minute(tiny_bundle, tmp_path, rank, how):
    killed = probe("KillRank", rank=rank, batch=6, how=how)
    code, lines, stderr = train_apart(tiny_bundle, tmp_path, killed, more=DDP)
    (killed_at,) = map(float, re.findall(r"killed at ([\d.]+)", stderr))
    assert time.time() - killed_at < 60  # stderr closes when the last process is gone
    assert code == (1 if rank else -9), stderr
    assert len(lines) == 1, stderr
    assert ("process 1 of 2" if rank else "process of this training is gone") in lines[0]
    assert "resume from the last checkpoint" in lines[0]
    assert processed(tmp_path) == 4


def test_a_watch_names_the_process_that_died():
    children = [subprocess.Popen(["sleep", "60"]), subprocess.Popen(["sh", "-c", "kill -9 $$"])]
    try:
        children[1].wait()
        watch = RankWatch(children)
        assert re.fullmatch(r"process 2 of 3 \(pid \d+\) was killed by signal 9", watch.dead())
    finally:
        watch.end_children(grace=0)
    assert all(child.wait() for child in children)


WORKER = "DataLoader worker (pid(s) 7, 8) exited unexpectedly with exit code 1. Details are lost"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(errno.ENOSPC, "x", "a.ckpt"), UserError, "no space left on the disk a.ckpt; free some"),
        (OSError(errno.EDQUOT, "x"), UserError, "quota"),
        (RuntimeError("[enforce fail at inline_container.cc:659] . unexpected pos 128 vs 22"), UserError, "no space"),
        (RuntimeError("unable to write to file </torch_1>: No space left on device (28)"), UserError, "no space"),
        (RuntimeError(WORKER), RunError, "worker 7, 8 of the data loader died"),
        (RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:1"), RunError, "is gone"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None, ""),
        (OSError(errno.ENOENT, "x"), None, ""),
    ],
)
def test_errors_become_one_line(error, kind, words):
    found = explain(error)
    assert type(found) is kind or isinstance(found, kind or type(None))
    assert words in str(found or "")
    assert "\n" not in str(found or "")


def test_what_came_first_is_told():
    closing = OSError(errno.ENOSPC, "x")
    closing.__context__ = RunError("the loss is not finite")
    assert str(explain(closing)) == "the loss is not finite"
    closing.__context__ = OSError(errno.ENOSPC, "x", "last.ckpt")
    assert "last.ckpt" in str(explain(closing))


@pytest.mark.usefixtures("whole_files")
def test_a_full_disk_when_a_report_is_written(tiny_bundle, tmp_path, capsys):
    more = [f"--model.init_args.report={tmp_path / 'report'}", "--model.init_args.protocol=null"]
    words = arguments(tiny_bundle, tmp_path, probe("SmallDiskAtTheEnd", limit=2_000), config="pixels_s2", more=more)
    assert main(["test", *words[1:], "--data", "failure_probes.TestFaces"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("faceanon: ")]
    assert len(lines) == 1
    assert "write" in lines[0]
