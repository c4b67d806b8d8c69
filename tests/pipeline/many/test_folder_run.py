"""A run over a folder that is killed anywhere and gone on with ends as if it had never been interrupted."""

import csv
import errno
import json
import os
import random
import signal
import time

import numpy as np
import pytest
from PIL import Image

from faceanon import files
from faceanon.errors import NoRoomError, UserError
from faceanon.key import KdfParameters, Password
from faceanon.photo.file import load_photo
from faceanon.pipeline import Pipeline
from faceanon.pipeline.many.folder import FolderRun, plan_folder
from faceanon.pipeline.many.journal import JOURNAL_NAME, Journal, read_journal
from faceanon.pipeline.many.table import write_table
from faceanon.pipeline.tasks import AnonymizeTask, RecoverTask
from fakes import KeyedTint

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
SETTINGS = {"command": "test"}
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")


def make_photos(folder, count):
    for index in range(count):
        path = folder / ("a" if index % 2 else "b/c") / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(index).integers(40, 216, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((64, 64), Image.Resampling.BICUBIC).save(path)
    (folder / "b/broken.png").write_bytes(b"no picture")
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return make_photos(tmp_path_factory.mktemp("photos"), 10)


def start(photos, target, password="hush", pipe=None, salt=bytes(16), settings=SETTINGS, overwrite=False):
    pipe = pipe or Pipeline(KeyedTint(), batch=4)
    jobs = [(path, target / path.relative_to(photos)) for path in sorted(photos.rglob("*.png"))]
    plan = plan_folder(photos, target, jobs, settings, overwrite)
    secret = Password(password, salt, CHEAP)

    def make(source, output, salt, kdf):
        return AnonymizeTask(pipe, source, output, secret, salt, kdf, aligned=True)

    return FolderRun(plan, pipe, secret, make, workers=2)


def run_all(photos, target, **options):
    run = start(photos, target, **options)
    results = list(run.results())
    write_table(target / "faceanon.csv", [run.lines[run.plan.name(source)] for source, _ in run.plan.jobs])
    return results


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != JOURNAL_NAME
    }


@pytest.fixture(scope="module")
def uninterrupted(photos, tmp_path_factory):
    target = tmp_path_factory.mktemp("whole") / "out"
    results = run_all(photos, target)
    assert sum(isinstance(result, UserError) for _, result in results) == 1
    return tree(target)


def test_a_run_mirrors_the_tree_and_lists_every_face(photos, uninterrupted):
    assert len(uninterrupted) == 11  # ten pictures and the table
    rows = list(csv.DictReader(uninterrupted["faceanon.csv"].decode().splitlines()))
    assert [row["status"] for row in rows].count("done") == 10
    skipped = next(row for row in rows if row["status"] == "skipped")
    assert skipped["source"] == "b/broken.png"
    assert "not a picture" in skipped["note"]
    assert {row["done_by"] for row in rows} == {"model", ""}


def in_child(work):
    """Do `work` in a forked process; gives back its number."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def killed(child):
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def kill_itself_at(monkeypatch, place, count):
    """Make the process kill itself at the `count`th passage of a delicate place."""
    seen = []

    def passing():
        seen.append(1)
        if len(seen) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    write, real = Journal.write, files.Path.replace
    if place == "before the rename":
        monkeypatch.setattr(files.Path, "replace", lambda self, other: (passing(), real(self, other)))
    elif place == "after the rename":
        monkeypatch.setattr(files.Path, "replace", lambda self, other: (real(self, other), passing()))
    else:

        def half(self, line, durable=False):
            if len(seen) == count - 1:
                self._file.write(json.dumps(line).encode()[:20])
            passing()
            write(self, line, durable)

        monkeypatch.setattr(Journal, "write", half)


def check_nothing_is_half(target):
    """What a kill leaves: whole pictures, a journal, and perhaps hidden unfinished files."""
    for path in target.rglob("*.png"):
        if not path.name.startswith("."):
            load_photo(path)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("place", ["before the rename", "after the rename", "inside a line"])
def test_a_kill_at_a_delicate_place_costs_nothing_but_time(photos, uninterrupted, tmp_path, monkeypatch, place):
    target = tmp_path / "out"
    with monkeypatch.context() as patch:
        kill_itself_at(patch, place, 12 if "line" in place else 5)
        assert killed(in_child(lambda: run_all(photos, target)))
    check_nothing_is_half(target)
    before = len(tree(target))
    results = run_all(photos, target, salt=bytes(range(16)))  # the first run's salt counts
    assert 0 < len(results) < 11
    assert before > 0
    assert tree(target) == uninterrupted


def kill_at_random(photos, uninterrupted, target, moments, draw):
    child, began = in_child(lambda: run_all(photos, target / "timing")), time.monotonic()
    assert not killed(child)
    duration, kills = time.monotonic() - began, 0
    for moment in range(moments):
        out = target / f"out{moment}"
        child = in_child(lambda out=out: run_all(photos, out))
        time.sleep(draw.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        kills += killed(child)
        check_nothing_is_half(out)
        run_all(photos, out)
        assert tree(out) == uninterrupted, f"moment {moment}"
    return kills


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kills_at_random_moments(photos, uninterrupted, tmp_path):
    kill_at_random(photos, uninterrupted, tmp_path, 3, random.Random(6))


@needs_fork
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kills_at_thirty_random_moments(photos, uninterrupted, tmp_path):
    assert kill_at_random(photos, uninterrupted, tmp_path, 30, random.Random(7)) >= 15


def test_a_finished_run_has_nothing_left_and_sees_what_changed(tmp_path):
    photos, target = make_photos(tmp_path / "in", 3), tmp_path / "out"
    run_all(photos, target)
    assert [source.name for source, _ in run_all(photos, target)] == ["broken.png"]
    (target / "a/01.png").unlink()
    os.utime(photos / "b/c/00.png", ns=(1, 1))
    assert sorted(source.name for source, _ in run_all(photos, target)) == ["00.png", "01.png", "broken.png"]


def test_another_password_model_or_setting_does_not_go_on(photos, tmp_path):
    target = tmp_path / "out"
    run_all(photos, target)
    for entry in ("a/01.png", "b/c/02.png"):
        (target / entry).unlink()
    with pytest.raises(UserError, match="another password"):
        run_all(photos, target, password="hash")
    with pytest.raises(UserError, match="another model"):
        run_all(photos, target, pipe=Pipeline(KeyedTint(), weights="ab" * 32))
    with pytest.raises(UserError, match="holds a run with command test, not other"):
        run_all(photos, target, settings={"command": "other"})
    run_all(photos, target, password="hash", overwrite=True)


def test_files_of_others_are_not_replaced(photos, tmp_path):
    (tmp_path / "out/a").mkdir(parents=True)
    (tmp_path / "out/a/01.png").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"01\.png exists"):
        start(photos, tmp_path / "out")
    assert (tmp_path / "out/a/01.png").read_bytes() == b"mine"


def test_two_runs_do_not_write_to_one_folder(tmp_path):
    with Journal(tmp_path / JOURNAL_NAME, {}), pytest.raises(UserError, match="another run"):
        Journal(tmp_path / JOURNAL_NAME, {})


@pytest.mark.parametrize("text", ["no json\n", "[]\n", '{"version":9,"run":{}}\n', '{"version":1,"run":{}}\n{"x":1}\n'])
def test_a_damaged_journal_is_named(tmp_path, text):
    (tmp_path / JOURNAL_NAME).write_text(text)
    with pytest.raises(UserError, match="is no journal"):
        read_journal(tmp_path / JOURNAL_NAME)


def test_recovery_of_a_folder_is_resumable_too(photos, uninterrupted, tmp_path):
    hidden, back = tmp_path / "hidden", tmp_path / "back"
    run_all(photos, hidden)
    pipe, secret = Pipeline(KeyedTint(), batch=4), Password("hush", kdf=CHEAP)
    jobs = [(path, back / path.relative_to(hidden)) for path in sorted(hidden.rglob("*.png"))]

    def recover():
        plan = plan_folder(hidden, back, jobs, SETTINGS, overwrite=False)
        run = FolderRun(plan, pipe, secret, lambda one, two, salt, kdf: RecoverTask(pipe, one, two, secret), 2)
        return len(list(run.results()))

    assert recover() == 10
    (back / "a/01.png").unlink()
    assert recover() == 1
    for path in back.rglob("*.png"):
        original = load_photo(photos / path.relative_to(back)).pixels.astype(float)
        assert np.abs(load_photo(path).pixels - original).mean() < 2


def test_another_precision_of_the_same_weights_is_refused(photos, tmp_path):
    class Rough(KeyedTint):
        precision = "int8"

    exact, rough = Pipeline(KeyedTint(), weights="ab", batch=4), Pipeline(Rough(), weights="ab", batch=4)
    list(start(photos, tmp_path, pipe=exact).results())
    with pytest.raises(UserError, match="holds a run of the model in float32, not int8"):
        start(photos, tmp_path, pipe=rough)
    journal = tmp_path / JOURNAL_NAME
    journal.write_text(journal.read_text().replace('"precision":"float32",', "", 1))  # as before there was any other
    assert len(start(photos, tmp_path, pipe=exact).todo) == 1
    with pytest.raises(UserError, match="not int8"):
        start(photos, tmp_path, pipe=rough)


def test_a_full_disk_ends_a_run_and_harms_no_journal(photos, tmp_path, monkeypatch):
    class Full:
        """A raw file with room for so many bytes."""

        def __init__(self, file, room):
            self.file, self.room = file, room

        def write(self, data):
            part = data[: self.room]
            self.room -= len(part)
            return self.file.write(part)

        def __getattr__(self, name):
            return getattr(self.file, name)

    real = Journal.__init__

    def full(self, *words):
        real(self, *words)
        self._file = Full(self._file, 1000)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "__init__", full)
        with pytest.raises(UserError, match="no space left on the disk"):
            list(start(photos, tmp_path).results())
    assert not (tmp_path / JOURNAL_NAME).read_bytes().endswith(b"\n")
    assert 0 < len(read_journal(tmp_path / JOURNAL_NAME)[0].last) < 10
    list(start(photos, tmp_path).results())
    assert len(list(tmp_path.rglob("*.png"))) == 10


def test_a_disk_without_room_for_a_photo_ends_the_run_and_fails_no_photo(photos, uninterrupted, tmp_path, monkeypatch):
    real = files.Path.replace
    written = []

    def full(self, other):
        written.append(other)
        if len(written) > 3:
            raise OSError(errno.ENOSPC, "full")
        return real(self, other)

    with monkeypatch.context() as patch:
        patch.setattr(files.Path, "replace", full)
        with pytest.raises(
            NoRoomError, match=r"no space left on the disk; .*; the same command then does what is left"
        ):
            list(start(photos, tmp_path).results())
    check_nothing_is_half(tmp_path)
    last = read_journal(tmp_path / JOURNAL_NAME)[0].last
    failed = [name for name, line in last.items() if line["event"] == "failed"]
    assert set(failed) <= {"b/broken.png"}
    assert len(list(tmp_path.rglob("[0-9]*.png"))) == 3
    assert len(run_all(photos, tmp_path)) == 8
    assert tree(tmp_path) == uninterrupted


def test_what_a_kill_left_of_the_table_goes_with_the_next_one(tmp_path):
    half = files.unfinished(tmp_path / "faceanon.csv")
    for name in (f"{half}thxj0n24", ".faceanon-notes"):
        (tmp_path / name).write_text("half")
    write_table(tmp_path / "faceanon.csv", [])
    assert {path.name for path in tmp_path.iterdir()} == {".faceanon-notes", "faceanon.csv"}
