"""Loaders that keep up with training, and the same batches whichever way they come."""

from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from faceanon.data import held_out
from faceanon.data.feeding import GPU_WORKERS, feeding
from faceanon.data.folder import FolderFaces


def trainer(kind):
    return SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(kind)))


@pytest.mark.parametrize(
    ("kind", "workers", "in_memory", "expected"),
    [
        ("cpu", 2, True, 0),
        ("cpu", 3, False, 3),
        ("cpu", None, False, GPU_WORKERS),
        ("cuda", 3, True, 3),
        ("cuda", None, True, GPU_WORKERS),
        ("cuda", 0, True, 0),
    ],
)
def test_workers_where_they_do_not_take_the_trainings_time(kind, workers, in_memory, expected):
    found = feeding(trainer(kind), workers, in_memory)
    assert found == {"num_workers": expected, "persistent_workers": expected > 0, "pin_memory": kind == "cuda"}


def test_workers_yield_what_the_process_itself_would(monkeypatch, tmp_path):
    for number in range(28):
        Image.new("RGB", (16, 16), (9 * number, 0, 0)).save(tmp_path / f"{number}.png")

    def batches():
        data = FolderFaces(str(tmp_path), image_size=16, batch_size=8)
        data.setup("fit")
        return [batch.image for batch in data.train_dataloader()]

    own = batches()
    settings = {"num_workers": 2, "persistent_workers": True, "pin_memory": False}
    monkeypatch.setattr(held_out, "feeding", lambda *_, **__: settings)
    ahead = batches()
    assert len(own) == 3
    assert all(torch.equal(a, b) for a, b in zip(own, ahead, strict=True))
