"""FolderFaces on real photographs, where they are."""

import pytest
import torch

from faceanon.data.faces import Faces
from faceanon.data.folder import FolderFaces


def read(root, **options):
    data = FolderFaces(str(root), **{"image_size": 16, "batch_size": 4, "workers": 1, **options})
    data.setup()
    return data


def photographs(shared, name):
    folder = shared / "testbed" / name
    if not folder.is_dir():
        pytest.skip(f"no {folder.name} in the shared test photographs")
    return folder


def test_real_persons_are_split_by_identity(shared):
    data = read(photographs(shared, "identity_rgb256"), image_size=32, batch_size=8, min_photos=3, test_identities=6)
    assert isinstance(data.faces["test"], Faces)
    assert len({photo.identity for photo in data.faces["test"].photos}) == 6
    for batch in data.test_dataloader():
        assert min(batch.identity.unique(return_counts=True)[1]) >= 2


def test_real_masks_belong_to_their_pictures(shared):
    root = photographs(shared, "celebamask_hq256")
    data = FolderFaces(str(root), image_size=32, workers=2, masks="masks")
    data.setup()
    counts = torch.bincount(data.faces["train"].cache[1].flatten().long(), minlength=19)
    assert counts[1] > counts[13] * 0.5 > 0  # skin and hair cover most of what is not background
    assert counts.sum() == len(data.faces["train"]) * 32 * 32
    batch = next(iter(data.train_dataloader()))
    assert batch.parsing.shape == (16, 32, 32)


def test_synthetic_photographs_are_flat(shared):
    data = read(photographs(shared, "sfhq_synth256"))
    assert set(data.faces["train"].labels) == {-1}
    assert len(data.faces["test"]) > 0
