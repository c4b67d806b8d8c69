"""Photographs whose latents, meshes and embeddings are prepared once."""

import csv
import hashlib
import shutil
from collections import Counter
from types import SimpleNamespace

import lightning as L
import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.data import prepared
from faceanon.data.files import Photo, read_photo
from faceanon.data.photo_jitter import PhotoJitter
from faceanon.data.prepared import PreparedFaces, Workshop
from faceanon.errors import UserError
from faceanon.landmarks.mesh import FaceMesh
from faceanon.paths import checkpoints
from faceanon.weights.bundle import Bundle

SHIPPED = checkpoints() / "photo128"
MOST_BYTES = 2_500_000


def table():
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def names(split, count):
    return [row["file"] for row in table() if row["split"] == split][:count]


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """Ten training pictures of the bundle in a folder of their own."""
    folder = tmp_path_factory.mktemp("faces")
    for name in names("train", 10):
        shutil.copy(SHIPPED / "pictures" / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One cache for all tests that want the same versions."""
    return tmp_path_factory.mktemp("prepared")


def make(root, cache, **options):
    settings = {"versions": 2, "batch_size": 4, "val_fraction": 0.1, "test_fraction": 0.1, **options}
    return PreparedFaces(str(root), cache=str(cache), **settings)


def ready(root, cache, **options):
    data = make(root, cache, **options)
    data.prepare_data()
    data.setup()
    return data


def test_every_file_is_hashed_once(faces, cache, monkeypatch):
    ready(faces, cache)
    hashed = []
    original = prepared._content
    monkeypatch.setattr(prepared, "_content", lambda path: hashed.append(path) or original(path))
    ready(faces, cache)
    assert sorted(hashed) == sorted(faces.iterdir())


@pytest.mark.parametrize(("given", "of_bundle", "told"), [(None, 100, 100), (0, 128, 0), (264, 128, 264)])
def test_a_size_that_does_not_fit_is_named(monkeypatch, given, of_bundle, told):
    monkeypatch.setattr(prepared, "Bundle", lambda name: PlainBundle(of_bundle))
    with pytest.raises(UserError, match=f"image_size is {told}: give a multiple of 8, at most 256"):
        PreparedFaces(image_size=given)


class PlainBundle:
    """As much of a bundle as the size of its faces is checked against."""

    codec = SimpleNamespace(shrink=8)

    def __init__(self, image_size):
        self.image_size = image_size

    def require(self, *roles):
        pass


@pytest.fixture
def counted(monkeypatch):
    """Number of pictures in every call of the workshop."""
    calls = []
    original = Workshop.prepare

    def prepare(self, photos, versions, framed=False):
        calls.append(len(photos))
        return original(self, photos, versions, framed)

    monkeypatch.setattr(Workshop, "prepare", prepare)
    return calls


def everything(data):
    return list(data.train_dataloader())


# --- what a batch brings


def test_a_batch_brings_what_the_networks_would_compute(faces, cache):
    data = ready(faces, cache)
    bundle = Bundle("photo128")
    train = data.splits["train"]
    assert len(train) == 16
    batch = train[[(row, False) for row in range(4)]]
    assert batch.image.shape == (4, 3, 128, 128)
    assert -1 <= batch.image.min() < batch.image.max() <= 1
    with torch.inference_mode():
        latents = bundle.codec.encode(batch.image)
        embedding = bundle.recogniser(batch.image)
    # Stored as float16, and the codec computes in bfloat16 where the processor has it.
    assert (batch.latents - latents).pow(2).mean().sqrt() < 0.02 * latents.std()
    # A row's embedding is that of the other version of its picture.
    swapped = torch.tensor([1, 0, 3, 2])
    assert torch.nn.functional.cosine_similarity(batch.embedding, embedding[swapped]).min() > 0.999
    assert torch.allclose(batch.embedding.norm(dim=1), torch.ones(4), atol=1e-4)


def test_a_mirrored_picture_has_the_mesh_of_the_mirrored_picture(faces, cache):
    train = ready(faces, cache).splits["train"]
    batch = train[[(row, False) for row in range(len(train))]]
    photograph, mirrored = batch.mesh[0::2], batch.mesh[1::2]
    # Points 33 and 263 are the outer corners of the eyes: 33 lies at the picture's left in either version.
    assert (mirrored[:, 33, 0] < mirrored[:, 263, 0]).all()
    assert (photograph[:, 33, 0] < photograph[:, 263, 0]).all()
    # The left corner of the mirrored picture is the mirrored right corner of the photograph.
    expected = photograph[:, 263] * torch.tensor([-1.0, 1.0])
    assert (mirrored[:, 33] - expected).norm(dim=1).median() < 0.03
    # In pixels of the batch's own picture the mesh lies where the network sees it there.
    pixels = ((batch.image.permute(0, 2, 3, 1) + 1) * 127.5).round().to(torch.uint8).numpy()
    points, _ = FaceMesh().points(pixels)
    seen = torch.from_numpy(points) / 128 * 2 - 1
    assert (batch.mesh - seen).norm(dim=2).mean() < 0.03


def test_versions_of_a_picture_are_one_person_and_pictures_of_nobody_known_are_several(faces, cache):
    train = ready(faces, cache).splits["train"]
    assert train.labels[0::2] == train.labels[1::2]
    assert len(set(train.labels)) == len(train) // 2


# --- prepared once


def test_prepared_once_and_read_again(faces, tmp_path, counted):
    first = ready(faces, tmp_path)
    assert sum(counted) == 10
    again = ready(faces, tmp_path)
    assert sum(counted) == 10
    for left, right in zip(everything(first), everything(again), strict=True):
        for name in ("image", "identity", "latents", "mesh", "embedding"):
            assert torch.equal(getattr(left, name), getattr(right, name))


def test_without_a_trainer_setup_prepares_by_itself(faces, tmp_path, counted):
    make(faces, tmp_path).setup()
    assert sum(counted) == 10


@pytest.mark.parametrize("changed", [{"versions": 3}, {"jitter": PhotoJitter(rotation=9.0)}, {"seed": 1}])
def test_other_settings_prepare_anew(faces, cache, changed):
    kept = make(faces, cache)
    kept.prepare_data()
    other = make(faces, cache, **changed)
    photos = other._photos()
    train = {other._file(split, part) for split, part in other._parts(photos) if split == "train"}
    assert not any(path.is_file() for path in train)


def test_another_picture_prepares_anew_though_its_name_is_the_same(faces, tmp_path, counted):
    folder = tmp_path / "faces"
    shutil.copytree(faces, folder)
    ready(folder, tmp_path / "cache")
    path = sorted(folder.iterdir())[0]
    Image.open(path).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(path)
    before = sum(counted)
    ready(folder, tmp_path / "cache")
    assert 0 < sum(counted) - before <= 10


def test_an_interrupted_preparation_goes_on(faces, tmp_path, monkeypatch, counted):
    monkeypatch.setattr(prepared, "PORTION", 3)
    whole = ready(faces, tmp_path / "whole")
    del counted[:]
    original = prepared.save_tensors
    saved = []

    def stop(path, tensors):
        if len(saved) == 2:
            raise KeyboardInterrupt
        saved.append(path)
        original(path, tensors)

    monkeypatch.setattr(prepared, "save_tensors", stop)
    with pytest.raises(KeyboardInterrupt):
        make(faces, tmp_path / "part").prepare_data()
    monkeypatch.setattr(prepared, "save_tensors", original)
    done = sum(counted[:2])
    del counted[:]
    rest = ready(faces, tmp_path / "part")
    assert sum(counted) == 10 - done
    assert torch.equal(rest.splits["train"].tensors["latents"], whole.splits["train"].tensors["latents"])


def test_versions_without_a_face_are_left_out(faces, tmp_path):
    folder = tmp_path / "faces"
    shutil.copytree(faces, folder)
    noise = np.random.default_rng(0).integers(0, 256, (160, 160, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "aaa.png")
    data = ready(folder, tmp_path / "cache", val_fraction=0.0, test_fraction=0.0)
    assert len(data.splits["train"]) == 20


# --- splits


def test_held_out_pictures_are_never_trained_on(faces, cache):
    data = ready(faces, cache)
    found = {split: {path.name for path in data.files(split)} for split in ("train", "val", "test")}
    assert [len(found[split]) for split in ("train", "val", "test")] == [8, 1, 1]
    assert not found["train"] & (found["val"] | found["test"])
    assert set(data.splits["train"].labels).isdisjoint(data.splits["test"].labels)


def test_files_with_faces_are_those_whose_versions_are_shown(faces, cache):
    data = ready(faces, cache)
    for split in ("train", "val"):
        found = data.files_with_faces(split)
        assert set(found) <= set(data.files(split))
        assert len(found) == len(torch.unique(data.split(split).tensors["picture"]))


def test_test_pictures_that_ship_are_left_out_of_any_other_training(faces, tmp_path):
    folder = tmp_path / "faces"
    shutil.copytree(faces, folder)
    for name in names("test", 3):
        # Another file with the same picture, as the folder has it that the bundle's pictures were chosen from.
        with Image.open(SHIPPED / "pictures" / name) as image:
            image.resize((256, 256), Image.Resampling.BICUBIC).save(folder / f"renamed_{name}", quality=80)
    data = ready(folder, tmp_path / "cache", val_fraction=0.0, test_fraction=0.0)
    assert len(data.files("train")) == 13
    assert len(data.splits["train"]) == 20


def test_test_persons_that_ship_are_left_out_of_any_other_training_in_every_picture():
    persons = Counter(row["person"] for row in table() if row["split"] == "test")
    several = [person for person, count in persons.items() if count > 1]
    embeddings, threshold = prepared.shipped_test(Bundle("photo128"))
    rows = [row for row in table() if row["split"] == "test"]
    assert several
    for position, row in enumerate(rows):
        # Were this picture one that does not ship, the person's other pictures would give it away.
        others = torch.tensor([other["person"] == row["person"] and other != row for other in rows])
        if row["person"] in several:
            assert (embeddings[others] @ embeddings[position] > threshold[others]).any(), row["file"]


@pytest.mark.parametrize("name", ["photo128", "photo128_mesh"])
def test_preparing_and_looking_for_test_persons_leave_networks_that_a_gpu_can_use(name):
    bundle = Bundle(name)
    prepared.shipped_test(bundle)
    fresh = Bundle(name)
    rows = table()[:1]
    photos = [Photo(SHIPPED / "pictures" / row["file"], row["file"], None) for row in rows]
    Workshop(fresh, PhotoJitter(), 0, 128).prepare(photos, [0], framed=fresh.frame is not None)
    used = [bundle.recogniser, fresh.recogniser, fresh.codec]
    if bundle.frame is not None:
        used += [bundle.landmarks, bundle.frame, fresh.frame]
    # Tensors made in inference mode are refused by a network that was moved to another device.
    for network in used:
        assert not any(tensor.is_inference() for tensor in (*network.parameters(), *network.buffers()))
        nets = [module.net for module in network.modules() if "net" in module.__dict__]
        assert not any(tensor.is_inference() for net in nets for tensor in net.parameters())


def test_no_training_picture_that_ships_is_taken_for_a_test_person():
    bundle = Bundle("photo128")
    embeddings, threshold = prepared.shipped_test(bundle)
    for row in table():
        if row["split"] == "train":
            pixels = read_photo(SHIPPED / "pictures" / row["file"], 128)[0]
            image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None] / 127.5 - 1
            assert not (bundle.recogniser(image) @ embeddings.T > threshold).any(), row["file"]


# --- what ships


def test_shipped_pictures_are_those_of_their_table():
    rows = table()
    files = {path.name: path for path in (SHIPPED / "pictures").glob("*.jpg")}
    assert {row["file"] for row in rows} == set(files)
    assert 250 <= len(rows) <= 350
    assert sum(path.stat().st_size for path in files.values()) <= MOST_BYTES
    for row in rows:
        assert hashlib.sha256(files[row["file"]].read_bytes()).hexdigest() == row["sha256"], row["file"]
        assert row["licence"] in ("CC0-1.0", "MIT")


def test_shipped_persons_stand_in_one_split_each():
    splits = {}
    for row in table():
        splits.setdefault(row["person"], set()).add(row["split"])
    assert {len(found) for found in splits.values()} == {1}
    assert set.union(*splits.values()) == {"train", "val", "test"}


def test_the_shipped_split_is_the_tables(tmp_path):
    data = PreparedFaces(cache=str(tmp_path))
    for split in ("train", "val", "test"):
        assert {path.name for path in data.files(split)} == {row["file"] for row in table() if row["split"] == split}


# --- batches in training


class Recorder(L.LightningModule):
    """Notes what the trainer hands over."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch):
        self.seen.append((self.current_epoch, batch.identity.tolist(), float(batch.latents.sum())))
        return self.layer(batch.image.mean().view(1, 1)).sum()

    def validation_step(self, batch):
        assert batch.latents.shape[1:] == (32, 16, 16)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)


def run_epochs(faces, cache, folder, epochs, resume=None):
    model = Recorder()
    quiet = {"enable_progress_bar": False, "logger": False, "enable_model_summary": False}
    trainer = L.Trainer(max_epochs=epochs, accelerator="cpu", default_root_dir=folder, **quiet)
    trainer.fit(model, make(faces, cache), ckpt_path=resume)
    trainer.save_checkpoint(folder / "end.ckpt")
    return model.seen


def test_a_resumed_run_sees_the_same_batches(faces, cache, tmp_path):
    whole = run_epochs(faces, cache, tmp_path / "whole", 3)
    first = run_epochs(faces, cache, tmp_path / "part", 1)
    rest = run_epochs(faces, cache, tmp_path / "part", 3, resume=tmp_path / "part" / "end.ckpt")
    assert first + rest == whole
    assert len(whole) == 12


# --- bad input


def test_bad_pictures_are_all_named_in_one_line(faces, tmp_path):
    folder = tmp_path / "faces"
    shutil.copytree(faces, folder)
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.png").write_text("no picture")
    Image.new("RGB", (80, 120)).save(folder / "tall.png")
    with pytest.raises(UserError, match="3 pictures cannot be trained on") as error:
        ready(folder, tmp_path / "cache")
    for name in ("empty.jpg", "text.png", "tall.png: not square"):
        assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_without_pictures_and_one_without_faces(tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="no picture in"):
        ready(tmp_path / "none", tmp_path / "cache")
    (tmp_path / "grey").mkdir()
    for number in range(3):
        Image.new("RGB", (64, 64), (number, 9, 9)).save(tmp_path / "grey" / f"{number}.png")
    with pytest.raises(UserError, match="no face was made out"):
        ready(tmp_path / "grey", tmp_path / "cache", val_fraction=0.0, test_fraction=0.0)


def test_a_damaged_cache_is_named_and_prepared_again_once_deleted(faces, tmp_path):
    data = ready(faces, tmp_path)
    photos = data._photos()
    path = next(data._file(split, part) for split, part in data._parts(photos))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match="is damaged: delete it"):
        ready(faces, tmp_path)
    path.unlink()
    assert len(ready(faces, tmp_path).splits["train"]) == 16


@pytest.mark.parametrize("options", [{"versions": 0}, {"batch_size": 0}, {"same_identity_pairs": 1.5}])
def test_numbers_out_of_range(tmp_path, options):
    with pytest.raises(UserError, match="at least 1"):
        make(tmp_path, tmp_path, **options)


def test_a_bundle_without_codec_is_named(tmp_path, tiny_bundle):
    with pytest.raises(UserError, match="no codec"):
        PreparedFaces(str(tmp_path), bundle=str(tiny_bundle))
