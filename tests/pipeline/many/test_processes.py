import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faceanon.commands._files import FileOptions
from faceanon.commands._run import check_shares
from faceanon.commands._secret import PasswordOptions
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.pipeline import Pipeline
from faceanon.pipeline.many.folder import FolderRun, plan_folder
from faceanon.pipeline.many.journal import JOURNAL_NAME, PART_NAME, Journal, read_run
from faceanon.pipeline.tasks import AnonymizeTask
from fakes import KeyedTint

SRC = Path(__file__).resolve().parents[3] / "src"
CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
HEAD = {"settings": {}, "weights": "w", "salt": "00" * 16, "kdf": {}}


def make_photos(folder, count, size=64):
    random = np.random.default_rng(0)
    for index in range(count):
        place = folder / ("a" if index % 2 else "b/c")
        place.mkdir(parents=True, exist_ok=True)
        tile = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(tile).resize((size, size)).save(place / f"{index:02}.png")
    return folder


def start(photos, target, salt=bytes(16), **options):
    pipeline, secret = Pipeline(KeyedTint(), batch=4), Password("hush", salt, CHEAP)
    jobs = [(path, target / path.relative_to(photos)) for path in sorted(photos.rglob("*.png"))]
    plan = plan_folder(photos, target, jobs, {"command": "test"}, options.get("overwrite", False))

    def make(source, output, salt, kdf):
        return AnonymizeTask(pipeline, source, output, secret, salt, kdf, aligned=True)

    return FolderRun(plan, pipeline, secret, make, workers=2)


def pictures(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.png"))}


def hidden(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def in_shares(photos, target, count, stop_after=None):
    """What `count` processes would do, one after the other: the first owns the journal, each other a part."""
    first = start(photos, target)
    journal = first.open()
    for rank in range(count):
        run = first if rank == 0 else start(photos, target, salt=bytes([rank]) * 16)
        run.adopt(first.head)
        jobs = first.todo[rank::count][:stop_after]
        if rank == 0:
            list(run.work(journal, jobs))
            continue
        with Journal(target / PART_NAME.format(rank), first.head) as part:
            list(run.work(part, jobs))
    if stop_after is None:
        first.lines |= journal.take_parts(first.head)
    journal.close()
    return first


def test_shares_give_what_one_process_gives(tmp_path):
    photos = make_photos(tmp_path / "in", 7)
    alone = start(photos, tmp_path / "alone")
    list(alone.results())
    shared = in_shares(photos, tmp_path / "shared", 3)
    assert pictures(tmp_path / "alone") == pictures(tmp_path / "shared")
    assert shared.lines.keys() == alone.lines.keys()
    assert hidden(tmp_path / "shared") == [JOURNAL_NAME]
    assert start(photos, tmp_path / "shared").todo == []


@pytest.mark.parametrize("count", [2, 3])
def test_a_shared_run_that_was_killed_goes_on_with_any_number_of_processes(tmp_path, count):
    photos = make_photos(tmp_path / "in", 7)
    list(start(photos, tmp_path / "alone").results())
    in_shares(photos, tmp_path / "out", count, stop_after=2)
    assert len(hidden(tmp_path / "out")) == count  # parts were left behind
    rest = start(photos, tmp_path / "out", salt=bytes(range(16)))  # the first run's salt counts
    assert len(rest.todo) == 7 - 2 * count
    list(rest.results())
    assert pictures(tmp_path / "out") == pictures(tmp_path / "alone")
    assert hidden(tmp_path / "out") == [JOURNAL_NAME]
    assert len(read_run(tmp_path / "out" / JOURNAL_NAME)[0].last) == 7


def test_parts_of_another_run_count_for_nothing(tmp_path):
    with Journal(tmp_path / PART_NAME.format(1), {**HEAD, "salt": "11" * 16}) as part:
        part.write({"event": "done", "source": "old.png", "target": "old.png", "stamp": "s"})
    with Journal(tmp_path / PART_NAME.format(2), HEAD) as part:
        part.write({"event": "done", "source": "new.png", "target": "new.png", "stamp": "s"})
    with Journal(tmp_path / JOURNAL_NAME, HEAD) as journal:
        assert read_run(tmp_path / JOURNAL_NAME)[0].last.keys() == {"new.png"}
        assert journal.take_parts(HEAD).keys() == {"new.png"}
    assert hidden(tmp_path) == [JOURNAL_NAME]
    assert read_run(tmp_path / JOURNAL_NAME)[0].last.keys() == {"new.png"}


def test_a_part_that_is_being_written_is_not_taken(tmp_path):
    with Journal(tmp_path / JOURNAL_NAME, HEAD) as journal, Journal(tmp_path / PART_NAME.format(1), HEAD):
        with pytest.raises(UserError, match="another run"):
            journal.take_parts(HEAD)
        assert len(hidden(tmp_path)) == 2


def asked(devices=2, nodes=1, device="cpu", password_env="PW"):
    files = FileOptions("in", "out", None, device, None, None, False, None, "png", None, devices, nodes, None, "skip")
    return files, PasswordOptions(password_env, None, None, None)


@pytest.mark.parametrize(
    ("options", "folder", "said"),
    [
        ({"devices": 0}, True, "--devices must be 1 to 1024"),
        ({"nodes": 0}, True, "--nodes must be"),
        ({}, False, "share a folder; this is one file"),
        ({"device": "cuda:1"}, True, "cpu or cuda, not cuda:1"),
        ({"password_env": None}, True, "cannot ask for a password"),
    ],
)
def test_what_cannot_be_shared_is_one_line(options, folder, said, monkeypatch):
    monkeypatch.delenv("FACEANON_PASSWORD", raising=False)
    check_shares(*asked(), True)
    check_shares(*asked(devices=1, password_env=None, device="cuda:1"), False)
    with pytest.raises(UserError, match=said):
        check_shares(*asked(**options), folder)


def test_processes_take_the_usual_variable_s_password(monkeypatch):
    monkeypatch.setenv("FACEANON_PASSWORD", "a word")
    check_shares(*asked(password_env=None), True)
    # An empty one counts as not set.
    monkeypatch.setenv("FACEANON_PASSWORD", "")
    with pytest.raises(UserError, match="set FACEANON_PASSWORD"):
        check_shares(*asked(password_env=None), True)


def faceanon(*words):
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "PW": "a word"}
    command = [sys.executable, "-m", "faceanon", *map(str, words), "--password-env", "PW"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two starts of two processes: half a minute alone, much longer on a busy machine
def test_two_gloo_processes_give_what_one_gives(tmp_path):
    photos = make_photos(tmp_path / "in", 3)
    (photos / "a/broken.png").write_bytes(b"no picture")
    two = faceanon("anonymize", photos, tmp_path / "two", "--aligned", "--same-stranger", "--devices", 2)
    assert two.returncode == 3, two.stderr
    assert "anonymized 3 face(s) in 3 photo(s)" in two.stdout
    assert "1 file(s) skipped" in two.stdout.replace("\n", " ")
    assert "Traceback" not in two.stderr
    assert "arning" not in two.stderr
    lines = [json.loads(line) for line in (tmp_path / "two" / JOURNAL_NAME).read_text().splitlines()]
    done = [line["source"] for line in lines[1:] if line["event"] == "done"]
    assert sorted(done) == ["a/01.png", "b/c/00.png", "b/c/02.png"]
    assert hidden(tmp_path / "two") == [JOURNAL_NAME]
    # one process goes on under the salt of the two: the same files again, byte for byte
    before = pictures(tmp_path / "two")
    for name in list(before)[1:]:
        (tmp_path / "two" / name).unlink()
    # Several processes need torch; onnxruntime rounds in another way.
    one = faceanon("anonymize", photos, tmp_path / "two", "--aligned", "--same-stranger", "--engine", "torch")
    assert one.returncode == 3, one.stderr
    assert pictures(tmp_path / "two") == before
    # nothing but the broken file is left, so that one process has no photo at all
    again = faceanon("anonymize", photos, tmp_path / "two", "--aligned", "--same-stranger", "--devices", 2)
    assert again.returncode == 3, again.stderr
    assert "3 file(s) were done before" in again.stdout.replace("\n", " ")
    assert pictures(tmp_path / "two") == before
