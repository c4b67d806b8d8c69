"""Faces of many photos share calls of the backbone, and no photo can tell."""

import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.backbones.dbaf import DBAF
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.photo.detect import Detection
from faceanon.photo.file import load_photo
from faceanon.pipeline import Pipeline
from faceanon.pipeline.many.engine import run_tasks
from faceanon.pipeline.tasks import AnonymizeTask, run_task
from fakes import KeyedTint

SECRET = Password("hush", bytes(16), KdfParameters(memory_kib=64, iterations=1, lanes=1))


class AsManyAsTold:
    """Finds as many faces, in a row, as the first pixel says; the first two overlap."""

    def detect(self, image):
        points = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]]) * 10
        xs = [30 + 70 * index - (40 if index == 1 else 0) for index in range(image[0, 0, 0])]
        return [Detection((x - 12, 40, x + 12, 70), 0.9, points + np.array([x, 50])) for x in xs]


def make_photo(path, faces):
    noise = np.random.default_rng(faces).integers(40, 216, (6, 40, 3), dtype=np.uint8)
    pixels = np.asarray(Image.fromarray(noise).resize((400, 100), Image.Resampling.BICUBIC)).copy()
    pixels[0, 0] = faces
    Image.fromarray(pixels).save(path)
    return path


class Elsewhere(Pipeline):
    """A pipeline that says its backbone runs on a GPU, so that the engine runs it beside the threads."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.method.on_processor = False


class Counting(Pipeline):
    def change(self, faces, keys, inverse=False):
        self.calls = [*getattr(self, "calls", []), len(faces)]
        return super().change(faces, keys, inverse)


class CountingElsewhere(Counting, Elsewhere):
    pass


@pytest.mark.parametrize("kind", [Counting, CountingElsewhere])
def test_calls_are_full_and_results_those_of_single_photos(kind, tmp_path):
    pipe = kind(KeyedTint(), AsManyAsTold(), batch=4)
    counts = [1, 3, 0, 5, 2, 1, 1]
    sources = [make_photo(tmp_path / f"{index}.png", count) for index, count in enumerate(counts)]
    tasks = [AnonymizeTask(pipe, path, tmp_path / "many" / path.name, SECRET) for path in sources]
    results = {task.source.name: result for task, result in run_tasks(pipe, iter(tasks), workers=3, rows=4)}
    assert isinstance(results["2.png"], UserError)
    assert [results[f"{i}.png"].faces for i in (0, 1, 3, 4, 5, 6)] == [1, 3, 5, 2, 1, 1]
    assert set(pipe.calls) == {4}
    assert len(pipe.calls) <= 6  # 13 faces, of which three wait for the neighbour they overlap
    for task in tasks:
        if task.source.name != "2.png":
            run_task(AnonymizeTask(pipe, task.source, tmp_path / "one" / task.source.name, SECRET))
            one, many = (load_photo(tmp_path / name / task.source.name) for name in ("one", "many"))
            np.testing.assert_array_equal(one.pixels, many.pixels)
            assert one.manifest == many.manifest


@pytest.mark.parametrize("kind", [Counting, CountingElsewhere])
def test_one_photo_may_need_several_calls(kind, tmp_path):
    pipe = kind(KeyedTint(), AsManyAsTold(), batch=2)
    task = AnonymizeTask(pipe, make_photo(tmp_path / "a.png", 5), tmp_path / "b.png", SECRET)
    [(_, outcome)] = run_tasks(pipe, iter([task]), workers=2, rows=2)
    assert outcome.faces == 5
    assert pipe.calls == [2, 2, 2]  # four faces, then the one that overlaps another


@pytest.mark.parametrize("kind", [Pipeline, Elsewhere])
def test_a_bug_is_raised_and_threads_end(kind, tmp_path):
    class Broken(kind):
        def change(self, faces, keys, inverse=False):
            raise RuntimeError("a bug")

    cores = torch.get_num_threads()
    pipe = Broken(KeyedTint(), AsManyAsTold(), batch=2)
    tasks = [AnonymizeTask(pipe, make_photo(tmp_path / "a.png", 2), tmp_path / "b.png", SECRET)]
    with pytest.raises(RuntimeError, match="a bug"):
        list(run_tasks(pipe, iter(tasks), workers=2, rows=2))
    assert not (tmp_path / "b.png").exists()
    assert torch.get_num_threads() == cores


@pytest.fixture
def two_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("kind", "at_once"), [(Pipeline, 2), (Elsewhere, 1)])
def test_calls_run_at_once_on_cores_and_one_by_one_on_a_gpu(kind, at_once, tmp_path, two_cores):
    running, most, threads, cores = set(), [], set(), set()

    class Watching(kind):
        def change(self, faces, keys, inverse=False):
            running.add(threading.get_ident())
            threads.add(threading.current_thread().name)
            cores.add(torch.get_num_threads())
            # Patient where a second call is to come, and not for long where none must.
            end = time.monotonic() + (30 if at_once == 2 and not most else 0.05)
            while len(running) < 2 and time.monotonic() < end:
                time.sleep(0.005)
            most.append(len(running))
            time.sleep(0.05)
            running.discard(threading.get_ident())
            return super().change(faces, keys, inverse)

    pipe, path = Watching(KeyedTint(), AsManyAsTold(), batch=2), make_photo(tmp_path / "a.png", 3)
    tasks = (AnonymizeTask(pipe, path, tmp_path / f"{index}.png", SECRET) for index in range(14))
    assert len(list(run_tasks(pipe, tasks, workers=2, rows=2))) == 14
    assert max(most) == at_once
    # All cores for the one call of a GPU's thread, one core for each of two.
    assert cores == {2 // at_once}
    assert threads <= ({"faceanon_0", "faceanon_1"} if at_once == 2 else {"faceanon-network_0"})


def test_faces_stay_in_their_places_when_a_later_call_ends_first(tmp_path, two_cores):
    begun = []

    class LaterFirst(Pipeline):
        def change(self, faces, keys, inverse=False):
            begun.append(None)
            if len(begun) == 1:
                patience = time.monotonic() + 30
                while len(begun) < 2 and time.monotonic() < patience:
                    time.sleep(0.005)
                time.sleep(0.2)
            return super().change(faces, keys, inverse)

    path = make_photo(tmp_path / "a.png", 6)
    pipe = LaterFirst(KeyedTint(), AsManyAsTold(), batch=2)
    [(_, outcome)] = run_tasks(pipe, iter([AnonymizeTask(pipe, path, tmp_path / "many.png", SECRET)]), 2, 2)
    assert outcome.faces == 6
    run_task(AnonymizeTask(Pipeline(KeyedTint(), AsManyAsTold()), path, tmp_path / "one.png", SECRET))
    assert np.array_equal(load_photo(tmp_path / "many.png").pixels, load_photo(tmp_path / "one.png").pixels)


def test_few_photos_are_held_at_once(tmp_path):
    pipe, held = Pipeline(KeyedTint(), AsManyAsTold(), batch=2), []
    path = make_photo(tmp_path / "a.png", 1)
    started = []

    def tasks():
        for index in range(30):
            started.append(index)
            yield AnonymizeTask(pipe, path, tmp_path / f"{index}.png", SECRET)

    for ended, _ in enumerate(run_tasks(pipe, tasks(), workers=2, rows=2), 1):
        held.append(len(started) - ended)
    assert max(held) <= 2 * 2 + 2
    assert len(held) == 30
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("kind", [Pipeline, Elsewhere])
def test_photos_end_while_the_backbone_works(kind, tmp_path):
    """Else they would hold their places, and the next call would wait for photos that nobody had begun to decode."""
    ended, patience = [], time.monotonic() + 120

    class Waiting(kind):
        calls = 0

        def change(self, faces, keys, inverse=False):
            while len(ended) < 2 * self.calls:  # all photos of the earlier calls
                assert time.monotonic() < patience, f"call {self.calls} waits for photos to end"
                time.sleep(0.005)
            self.calls += 1
            time.sleep(0.2)  # so that the whole window is decoded and the next call starts at once
            return super().change(faces, keys, inverse)

    pipe, path = Waiting(KeyedTint(), AsManyAsTold(), batch=2), make_photo(tmp_path / "a.png", 1)
    tasks = (AnonymizeTask(pipe, path, tmp_path / f"{index}.png", SECRET) for index in range(14))
    for task, _ in run_tasks(pipe, tasks, workers=2, rows=2):
        ended.append(task.target)
    assert pipe.calls == 7
    assert len(set(ended)) == 14


def test_networks_do_not_see_the_neighbours_in_a_call(tiny_bundle):
    """What makes a resumed run equal an uninterrupted one: a row depends on the number of rows alone."""
    torch.manual_seed(0)
    pipe = Pipeline(DBAF(str(tiny_bundle), cid_depth=1, cid_heads=2, cid_head_dim=8))
    faces = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    keys = pipe.backbone.key_from_secret(SECRET.secret(), 1).expand(3, *pipe.backbone.key_shape)
    together = pipe.change(faces, keys)
    for rows in ([0, 0, 0], [1, 0, 2]):
        again = pipe.change(faces[rows], keys)
        torch.testing.assert_close(again[rows.index(0)], together[0], rtol=0, atol=0)


class TwoSizes(KeyedTint):
    """Takes small faces at 48 px, and large ones at 64 px."""

    face_sizes = (48, 64)

    def anonymize(self, image, key):
        return image / 2 + key.mean((1, 2, 3), keepdim=True).tanh() / 2


class SmallAndLarge:
    """Finds a small and a large face in every photo."""

    def detect(self, image):
        points = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]])
        return [
            Detection((48, 38, 72, 66), 0.9, points * 9 + np.array([60, 50])),
            Detection((230, 30, 270, 80), 0.9, points * 22 + np.array([250, 45])),
        ]


class Sides(Pipeline):
    def change(self, faces, keys, inverse=False):
        self.sides = [*getattr(self, "sides", []), faces.shape[-1]]
        return super().change(faces, keys, inverse)


def test_faces_of_two_sizes_share_no_call_and_results_are_those_of_single_photos(tmp_path):
    pipe = Sides(TwoSizes(), SmallAndLarge(), batch=4)
    sources = [make_photo(tmp_path / f"{index}.png", index) for index in range(5)]
    tasks = [AnonymizeTask(pipe, path, tmp_path / "many" / path.name, SECRET) for path in sources]
    results = [result for _, result in run_tasks(pipe, iter(tasks), workers=2, rows=4)]
    assert [result.faces for result in results] == [2] * 5
    assert sorted(set(pipe.sides)) == [48, 64]
    for task in tasks:
        alone = AnonymizeTask(pipe, task.source, tmp_path / "alone" / task.source.name, SECRET)
        run_task(alone)
        assert np.array_equal(load_photo(task.target).pixels, load_photo(alone.target).pixels)
