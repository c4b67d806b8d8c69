"""Folders of faces that a bundle's generator draws."""

import numpy as np
import pytest
import torch
from PIL import Image

from bundles import make_tiny_bundle
from faceanon import cli
from faceanon.data.folder import FolderFaces
from faceanon.errors import UserError
from faceanon.interop.sampling import sample
from faceanon.weights.bundle import Bundle

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_tiny_bundle(tmp_path_factory.mktemp("bundle"))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.png")}


def pixels(path):
    return np.asarray(Image.open(path)).astype(int)


def test_a_set_does_not_depend_on_the_batch_and_goes_on_after_an_interrupt(bundle, tmp_path):
    assert list(sample(Bundle(bundle), tmp_path / "a", 5, 0, 2, CPU)) == [0, 2, 4, 5]
    whole = files(tmp_path / "a")
    assert len(set(whole.values())) == 5
    steps = sample(Bundle(bundle), tmp_path / "b", 5, 0, 3, CPU)
    next(steps)
    assert next(steps) == 3
    steps.close()
    there = files(tmp_path / "b")
    assert list(sample(Bundle(bundle), tmp_path / "b", 5, 0, 3, CPU)) == [3, 5]
    again = files(tmp_path / "b")
    assert there.items() <= again.items()
    for name in whole:
        assert np.abs(pixels(tmp_path / "a" / name) - pixels(tmp_path / "b" / name)).max() <= 1


def test_a_seed_is_a_set_of_its_own_and_no_folder_has_two(bundle, tmp_path):
    list(sample(Bundle(bundle), tmp_path / "a", 2, 0, 2, CPU))
    list(sample(Bundle(bundle), tmp_path / "b", 2, 1, 2, CPU))
    assert not set(files(tmp_path / "a").values()) & set(files(tmp_path / "b").values())
    with pytest.raises(UserError, match="another generator or seed"):
        next(sample(Bundle(bundle), tmp_path / "a", 2, 1, 2, CPU))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/photo.png").write_bytes(b"")
    with pytest.raises(UserError, match="has other files"):
        next(sample(Bundle(bundle), tmp_path / "mine", 2, 0, 2, CPU))
    with pytest.raises(UserError, match="batch is 0"):
        next(sample(Bundle(bundle), tmp_path / "c", 2, 0, 0, CPU))
    assert not (tmp_path / "c").exists()


def test_what_the_command_draws_can_be_trained_on(bundle, tmp_path, capsys):
    out = tmp_path / "drawn"
    assert cli.main(["weights", "sample", str(bundle), "--out", str(out), "--count", "12", "--batch", "8"]) == 0
    assert "12 pictures" in capsys.readouterr().out
    data = FolderFaces(str(out), image_size=64, batch_size=4, val_fraction=0.1, test_fraction=0.1, workers=0)
    data.setup("fit")
    assert next(iter(data.train_dataloader())).image.shape == (4, 3, 64, 64)
