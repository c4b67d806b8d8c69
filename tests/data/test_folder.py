import io
import logging

import lightning as L
import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.data.files import list_photos
from faceanon.data.folder import FolderFaces
from faceanon.errors import UserError


def picture(seed=0, side=48, height=None):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, height or side), Image.Resampling.BICUBIC)


def save(path, seed=0, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(seed, **options).save(path)


@pytest.fixture
def persons(tmp_path):
    """Ten persons of three photos."""
    for person in range(10):
        for shot in range(3):
            save(tmp_path / "faces" / f"p{person}" / f"{shot}.png", seed=10 * person + shot)
    return tmp_path / "faces"


def make(root, **options):
    roots = root if isinstance(root, list) else str(root)
    data = FolderFaces(roots, **{"image_size": 16, "batch_size": 4, "workers": 1, **options})
    data.setup()
    return data


def spoil(root):
    """Put three damaged files among the pictures; return their names."""
    buffer = io.BytesIO()
    picture(side=128).save(buffer, "JPEG")
    (root / "p0" / "cut.jpg").write_bytes(buffer.getvalue()[:400])
    (root / "p0" / "empty.png").write_bytes(b"")
    (root / "p1" / "text.jpg").write_text("not a picture")
    return ["cut.jpg", "empty.png", "text.jpg"]


# --- layouts


def test_auto_sees_persons_ffhq_shards_and_flat_folders(tmp_path, persons):
    assert {photo.identity for photo in list_photos(persons)} == {f"p{i}" for i in range(10)}
    for shard in ("00000", "01000"):
        save(tmp_path / "ffhq" / shard / f"{shard}.png")
    save(tmp_path / "flat" / "a.png")
    save(tmp_path / "one" / "images" / "a.png")
    for root in ("ffhq", "flat", "one"):
        assert all(photo.identity is None for photo in list_photos(tmp_path / root))
    assert list_photos(tmp_path / "ffhq", "identity")[0].identity == "00000"


def test_listing_is_ordered_and_ignores_other_files(persons):
    (persons / "p0" / "notes.txt").write_text("x")
    (persons / "p0" / "BIG.PNG").write_bytes((persons / "p0" / "0.png").read_bytes())
    names = [photo.name for photo in list_photos(persons)]
    assert names == sorted(names)
    assert "p0/BIG.PNG" in names
    assert not any(name.endswith(".txt") for name in names)


@pytest.mark.parametrize("text", ["file,person\n{a},anna\n{b},anna\n", "{a} anna\n{b}   anna\n"])
def test_identities_from_a_list(tmp_path, text):
    for number in range(12):
        save(tmp_path / "flat" / f"{number}.png", seed=number)
    listed = tmp_path / "list.txt"
    listed.write_text(text.format(a="3.png", b="7") + "5.png bob\n")
    data = make(tmp_path / "flat", identities=str(listed), val_identities=0, test_identities=1)
    held = {photo.identity for photo in data.faces["test"].photos}
    assert len(held) == 1
    assert held <= {"0/anna", "0/bob"}
    assert not held & {photo.identity for photo in data.faces["train"].photos}
    assert sum(len(faces) for faces in data.faces.values()) == 12


def test_identity_list_that_fits_nothing_or_two_pictures(tmp_path, persons):
    listed = tmp_path / "list.csv"
    listed.write_text("zzz.png,anna\n")
    with pytest.raises(UserError, match="names none of the 30 pictures"):
        make(persons, identities=str(listed))
    listed.write_text("0.png,anna\n")
    with pytest.raises(UserError, match="fits 10 pictures"):
        make(persons, identities=str(listed))


# --- splits


def test_held_out_persons_are_never_in_training(persons):
    data = make(persons, val_identities=2, test_identities=3)
    who = {split: {photo.identity for photo in faces.photos} for split, faces in data.faces.items()}
    assert [len(who[split]) for split in ("train", "val", "test")] == [5, 2, 3]
    assert not who["train"] & (who["val"] | who["test"])
    assert not who["val"] & who["test"]
    labels = [set(faces.labels) for faces in data.faces.values()]
    assert set.union(*labels) == set(range(10))
    assert sum(map(len, labels)) == 10


def test_the_split_follows_from_the_seed_and_not_from_the_place(persons, tmp_path):
    moved = tmp_path / "moved"
    first = [photo.name for photo in make(persons).faces["test"].photos]
    other = [photo.name for photo in make(persons, seed=1).faces["test"].photos]
    persons.rename(moved)
    assert [photo.name for photo in make(moved).faces["test"].photos] == first
    assert other != first


def test_loose_pictures_train_beside_persons_and_are_split_alone(tmp_path, persons):
    for number in range(20):
        save(tmp_path / "flat" / f"{number}.png", seed=100 + number)
    joined = FolderFaces([str(persons), str(tmp_path / "flat")], image_size=16, workers=1, test_identities=2)
    joined.setup()
    assert sum(photo.identity is None for photo in joined.faces["train"].photos) == 20
    assert len(joined.faces["test"]) == 6
    counted = make(tmp_path / "flat", val_identities=2, test_identities=3)
    assert [len(counted.split(name)) for name in ("val", "test")] == [2, 3]
    alone = make(tmp_path / "flat", val_fraction=0.1, test_fraction=0.2)
    assert [len(alone.faces[split]) for split in ("train", "val", "test")] == [14, 2, 4]
    assert set(alone.faces["train"].labels) == {-1}


def test_equal_names_in_two_roots_are_two_persons(persons):
    data = FolderFaces([str(persons), str(persons)], image_size=16, workers=1)
    data.setup()
    assert len({label for faces in data.faces.values() for label in faces.labels}) == 20


# --- batches


def test_batches_are_face_batches_in_range(persons):
    batch = next(iter(make(persons).train_dataloader()))
    assert batch.image.shape == (4, 3, 16, 16)
    assert batch.image.dtype == torch.float32
    assert -1 <= batch.image.min() < -0.2 < 0.2 < batch.image.max() <= 1
    assert batch.identity.dtype == torch.int64
    assert batch.attribute.tolist() == [-1] * 4
    assert batch.parsing is None


def test_reading_from_disk_gives_what_memory_gives(persons):
    kept, read = make(persons, mirror=True), make(persons, mirror=True, memory_limit=0.0, workers=0)
    assert kept.faces["train"].cache is not None
    assert read.faces["train"].cache is None
    for left, right in zip(kept.train_dataloader(), read.train_dataloader(), strict=True):
        assert torch.equal(left.image, right.image)
        assert torch.equal(left.identity, right.identity)


class Recorder(L.LightningModule):
    """Notes what the trainer hands over."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch):
        self.seen.append((self.current_epoch, batch.identity.tolist(), float(batch.image.sum())))
        return self.layer(batch.image.mean().view(1, 1)).sum()

    def validation_step(self, batch):
        assert batch.image.shape[1:] == (3, 16, 16)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)


def run_epochs(persons, folder, epochs, resume=None):
    model = Recorder()
    trainer = L.Trainer(
        max_epochs=epochs, accelerator="cpu", default_root_dir=folder, enable_progress_bar=False, logger=False
    )
    trainer.fit(model, FolderFaces(str(persons), image_size=16, batch_size=4, mirror=True), ckpt_path=resume)
    trainer.save_checkpoint(folder / "end.ckpt")
    return model.seen


def test_a_resumed_run_sees_the_same_batches(persons, tmp_path):
    whole = run_epochs(persons, tmp_path / "whole", 3)
    first = run_epochs(persons, tmp_path / "part", 1)
    rest = run_epochs(persons, tmp_path / "part", 3, resume=tmp_path / "part" / "end.ckpt")
    assert first + rest == whole
    assert first != [(0, *batch[1:]) for batch in whole[len(first) : 2 * len(first)]]


def test_mirroring_exchanges_left_and_right_classes(tmp_path):
    for number in range(4):
        save(tmp_path / "set" / "images" / f"{number}.png", seed=number)
        halves = np.zeros((32, 32), np.uint8)
        halves[:, :16], halves[:, 16:] = 1, 2
        (tmp_path / "set" / "masks").mkdir(exist_ok=True)
        Image.fromarray(halves).save(tmp_path / "set" / "masks" / f"{number}.png")
    data = make(tmp_path / "set", masks="masks", mirror=True, mask_mirror=[0, 2, 1])
    assert sum(len(faces) for faces in data.faces.values()) == 4
    faces = data.faces["train"]
    plain, mirrored = faces[[(0, False)]], faces[[(0, True)]]
    assert torch.equal(mirrored.image, plain.image.flip(-1))
    assert not torch.equal(mirrored.image, plain.image)
    assert torch.equal(mirrored.parsing, plain.parsing)  # left stays left
    assert plain.parsing.shape == (1, 16, 16)
    assert plain.parsing.dtype == torch.int64
    with pytest.raises(UserError, match="mask_mirror"):
        FolderFaces(str(tmp_path), masks="masks", mirror=True)


# --- bad input


def test_damaged_files_are_named_and_skipped(persons, caplog):
    names = spoil(persons)
    with caplog.at_level(logging.WARNING):
        data = make(persons)
    assert sum(len(faces) for faces in data.faces.values()) == 30
    lines = [line for line in caplog.messages if line.startswith("skipped ")]
    assert len(lines) == 3
    for name in names:
        assert sum(name in line for line in lines) == 1


def test_damaged_files_are_named_and_refused(persons):
    names = spoil(persons)
    with pytest.raises(UserError, match="3 damaged files") as error:
        make(persons, on_bad="refuse")
    assert all(name in str(error.value) for name in names)
    assert "\n" not in str(error.value)


def test_each_root_says_whom_it_holds(persons, tmp_path, caplog):
    save(tmp_path / "unnamed" / "a.png")
    save(tmp_path / "unnamed" / "b.png")
    with caplog.at_level(logging.INFO, logger="lightning.pytorch"):
        make([str(persons), str(tmp_path / "unnamed")], val_identities=2, test_identities=1)
    lines = [line for line in caplog.messages if "known persons" in line]
    held = "(2 held out for validation, 1 for the test)"
    assert lines == [
        f"{persons}: 30 pictures of 10 known persons {held}, 0 pictures of unknown persons",
        f"{tmp_path / 'unnamed'}: 2 pictures of unknown persons",
    ]


def test_at_most_twenty_damaged_files_are_named(persons, caplog):
    for number in range(25):
        (persons / "p0" / f"bad{number}.jpg").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        make(persons)
    assert sum("bad" in line for line in caplog.messages) == 20
    assert any("and 5 more" in line for line in caplog.messages)


def test_missing_masks_are_bad_files(persons, caplog):
    (persons / "masks").mkdir()
    with pytest.raises(UserError, match="none of the 30 pictures"):
        make(persons, masks="masks")
    assert any("no such file" in line for line in caplog.messages)


def test_pictures_that_are_not_square_are_counted_once(persons, caplog):
    save(persons / "p0" / "wide.png", side=60, height=40)
    save(persons / "p0" / "tall.png", side=40, height=60)
    make(persons)
    assert [line for line in caplog.messages if "not square" in line] == [
        "2 of 32 pictures are not square and were cut at the centre: align faces first"
    ]


def test_persons_with_few_photos_are_left_out(persons, caplog):
    save(persons / "rare" / "0.png")
    data = make(persons, min_photos=2)
    assert not any(photo.identity == "0/rare" for faces in data.faces.values() for photo in faces.photos)
    assert any("left out 1 pictures" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": (0.5, 0.0, 0.2, 1.0)}, "is no box"),
        ({"min_photos": 9}, "nobody in .* has 9 pictures"),
        ({"val_identities": 5, "test_identities": 5}, "nothing is left to train on"),
        ({"masks": "labels"}, "no folder .*labels for the masks"),
        ({"same_identity_pairs": 1.5}, "share in"),
    ],
)
def test_wrong_options_are_user_errors(persons, options, message):
    with pytest.raises(UserError, match=message):
        make(persons, **options)


def test_missing_and_empty_folders_are_user_errors(tmp_path):
    with pytest.raises(UserError, match=r"no folder .*nowhere"):
        make(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no picture in"):
        make(tmp_path)
    (tmp_path / "a.jpg").write_text("x")
    with pytest.raises(UserError, match="none of the 1 pictures"):
        make(tmp_path)


def test_no_test_split_is_a_user_error(persons):
    data = make(persons, test_identities=0, val_identities=0)
    assert data.val_dataloader() == []
    with pytest.raises(UserError, match="held out for the test"):
        data.test_dataloader()
