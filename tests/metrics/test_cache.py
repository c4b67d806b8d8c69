"""Features of originals: computed once, the same figures, and no harm from a damaged or crowded folder."""

import logging
import stat
import threading
import time

import numpy as np
import pytest
import torch
from metric_fakes import Blur, FakeBundle, Shift, faces
from torch import nn

from faceanon.errors import UserError
from faceanon.metrics import store
from faceanon.metrics.cache import (
    CachedOriginals,
    FeatureCache,
    circumstances,
    network_digest,
    picture_digest,
    shared_cache,
)
from faceanon.metrics.detection import DetectionSuite, pack, unpack
from faceanon.metrics.evaluation import Evaluation
from faceanon.networks.adapters import Normalised, PerceptualDistance
from faceanon.networks.frozen import Frozen
from faceanon.photo.detect import Detection

BATCH = faces()


class Watched(nn.Module):
    """A network that counts how often it is asked about the originals."""

    def __init__(self, function, seed):
        super().__init__()
        self.register_buffer("weight", torch.randn(3, generator=torch.Generator().manual_seed(seed)))
        self.asked, self.__dict__["function"] = 0, function
        self.originals = picture_digest(BATCH.image)

    def forward(self, image):
        self.asked += picture_digest(image) == self.originals
        return self.function(image)


class Maps(nn.Module):
    """What a perceptual distance looks at."""

    def __init__(self):
        super().__init__()
        self.watched = Watched(lambda image: image[..., ::2, ::2] * 2, 5)
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, image):
        return [image, self.layer(self.watched(image))]


class WatchedBundle(FakeBundle):
    """The fake bundle, of networks with weights."""

    def __init__(self):
        super().__init__()
        self.judge, self.recogniser = Watched(self.judge, 1), Watched(self.recogniser, 2)
        self.parser, self.landmarks = Watched(self.parser, 3), Watched(self.landmarks, 4)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.perceptual = PerceptualDistance(Frozen(Maps()))

    @property
    def asked(self):
        nets = self.judge, self.recogniser, self.parser, self.landmarks, self.perceptual.net.net.watched
        return [net.asked for net in nets]


def evaluate(backbone, cache, detectors=None, batch=BATCH):
    bundle = WatchedBundle()
    evaluation = Evaluation(bundle, cache=cache, detectors=detectors)
    evaluation.update(batch, backbone)
    return evaluation.compute() | {
        f"ci/{k}/{i}": v for k, ci in evaluation.ci.items() for i, v in enumerate(ci)
    }, bundle


def same(figures, others):
    """Equal in every bit; NaN is NaN."""
    assert figures.keys() == others.keys()
    different = [name for name in figures if not np.array_equal(figures[name], others[name], equal_nan=True)]
    assert different == []


@pytest.fixture(scope="module")
def plain():
    return evaluate(Blur(), None)


def test_without_a_cache_each_network_sees_the_originals_as_rarely_as_can_be(plain):
    assert plain[1].asked == [1, 1, 1, 1, 2]  # maps, and features for KID


def test_the_second_method_asks_nothing_about_the_originals_and_gets_the_same_figures(plain):
    cache = FeatureCache()
    first, _ = evaluate(Shift(), cache)
    assert cache.hits == 0
    assert cache.misses == 6
    second, bundle = evaluate(Blur(), cache)
    assert bundle.asked == [0, 0, 0, 0, 0]
    assert (cache.hits, cache.misses) == (6, 6)
    same(second, plain[0])
    same(first, evaluate(Shift(), None)[0])


def test_another_process_finds_them_in_the_folder(plain, tmp_path):
    folder = tmp_path / "features"
    evaluate(Shift(), FeatureCache(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    cache = FeatureCache(folder)
    figures, bundle = evaluate(Blur(), cache)
    assert bundle.asked == [0, 0, 0, 0, 0]
    same(figures, plain[0])
    assert shared_cache(folder) is shared_cache(folder)


def flip(data):
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


@pytest.mark.parametrize("damage", [flip, lambda data: data[:40], lambda data: b"", lambda data: b"\xff" * len(data)])
def test_a_damaged_entry_is_computed_anew_and_said_so(plain, tmp_path, caplog, damage):
    evaluate(Shift(), FeatureCache(tmp_path))
    files = sorted(tmp_path.glob("*/*.safetensors"))
    assert len(files) == 6
    for path in files:
        path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        figures, bundle = evaluate(Blur(), FeatureCache(tmp_path))
    assert bundle.asked == [1, 1, 1, 1, 2]
    assert caplog.text.count("are damaged and computed anew") == 6
    same(figures, plain[0])
    assert evaluate(Blur(), FeatureCache(tmp_path))[1].asked == [0, 0, 0, 0, 0]  # mended


def test_an_entry_under_another_name_is_not_believed(tmp_path):
    folder = store.FeatureFolder(tmp_path, 10**6)
    folder.write("aa" * 32, [torch.ones(2)])
    target = folder.path("bb" * 32)
    target.parent.mkdir()
    folder.path("aa" * 32).rename(target)
    assert folder.read("bb" * 32) is None


def test_other_pictures_order_or_weights_are_computed_anew():
    cache, calls = FeatureCache(), []
    asked = CachedOriginals(BATCH.image, {"net": "weights"}, cache)

    def net(image):
        calls.append(len(image))
        return image.mean((1, 2, 3))

    expected = asked.tensor("net", net)
    assert torch.equal(CachedOriginals(BATCH.image.clone(), {"net": "weights"}, cache).tensor("net", net), expected)
    assert len(calls) == 1
    changed = BATCH.image.clone()
    changed[3, 1, 2, 5] += 1 / 127.5
    for image, digest in ((changed, "weights"), (BATCH.image.flip(0), "weights"), (BATCH.image, "others")):
        CachedOriginals(image, {"net": digest}, cache).tensor("net", net)
    CachedOriginals(BATCH.image, {"net": "weights"}, cache).tensor("net", net, "something else")
    CachedOriginals(BATCH.image, {"net": None}, cache).tensor("net", net)
    assert len(calls) == 6


def test_the_digest_of_a_network_sees_frozen_weights_and_settings():
    def build(seed=0, crop=None):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return Frozen(Normalised(nn.Conv2d(3, 4, 1), 8, crop))

    known = network_digest(build())
    assert known == network_digest(build())
    assert known != network_digest(build(1))
    assert known != network_digest(build(crop=(0.0, 1.0, 0.1, 0.9)))
    distance = PerceptualDistance(build())
    assert network_digest(distance) not in (known, network_digest(PerceptualDistance(build(1))))
    assert network_digest(nn.Identity()) is None
    assert network_digest(lambda image: image) is None


def test_memory_is_bounded_and_large_maps_leave_room():
    cache = FeatureCache(memory=1e-3)  # a megabyte
    for number in range(20):
        cache.fetch(f"map{number}", 1, lambda: [torch.zeros(50_000)])
        cache.fetch(f"code{number}", 1, lambda: [torch.zeros(512)])
    assert cache.used <= 1e6
    hits = cache.hits
    for number in range(20):
        cache.fetch(f"code{number}", 1, lambda: [torch.ones(512)])
    assert cache.hits - hits == 20
    cache.clear()
    assert cache.used == 0


def test_the_folder_is_bounded_and_what_is_old_makes_room(tmp_path, caplog):
    earlier = store.FeatureFolder(tmp_path, 10**6)
    for number in range(10):
        earlier.write(f"{number:064}", [torch.zeros(1000)])
    time.sleep(0.05)
    folder = store.FeatureFolder(tmp_path, 45_000)
    for number in range(3):
        assert folder.read(f"{number:064}") is not None  # in use now
    with caplog.at_level(logging.WARNING):
        for number in range(100, 120):
            folder.write(f"{number:064}", [torch.zeros(1000)])
    files = list(tmp_path.glob("*/*.safetensors"))
    assert sum(path.stat().st_size for path in files) <= 45_000
    assert {f"{number:064}.safetensors" for number in range(3)} <= {path.name for path in files}
    assert caplog.text.count("further features are not kept") == 1


def test_a_disk_that_takes_no_more_ends_no_test(plain, tmp_path, monkeypatch, caplog):
    def full(path, data):
        raise UserError(f"cannot write {path}: no space left on the disk")

    monkeypatch.setattr(store, "write_atomic", full)
    figures, _ = evaluate(Blur(), FeatureCache(tmp_path))
    same(figures, plain[0])
    assert caplog.text.count("no space left on the disk") == 1


def test_no_folder_can_be_made_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the folder of features"):
        FeatureCache(tmp_path / "file" / "features")


def test_several_writers_and_readers_get_whole_entries(tmp_path):
    wrong = []

    def work(seed):
        folder = store.FeatureFolder(tmp_path, 200_000)  # too little for all: some take away what others read
        for turn in range(60):
            number = (seed * 7 + turn) % 40
            found = folder.read(f"{number:064}")
            if found is not None and not torch.equal(found[0], torch.full((2000,), float(number))):
                wrong.append(number)
            folder.write(f"{number:064}", [torch.full((2000,), float(number))])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(list(tmp_path.glob("*/*.safetensors"))) > 5


def test_detections_come_back_as_they_were_and_originals_are_searched_once():
    found = Detection((0.1, -2.3, 1 / 3, 7.0), 0.98, np.array([[1 / 7, 2.0], [3.0, 4.1]]))
    again = unpack(pack([None, found]))
    assert again[0] is None
    assert again[1].box == found.box
    assert again[1].score == found.score
    assert np.array_equal(again[1].points, found.points)
    assert unpack(pack([None, None])) == [None, None]
    searched = []

    class Detector:
        def detect(self, image):
            searched.append(image)
            return [found]

    cache = FeatureCache()
    for _ in range(2):
        known = CachedOriginals(BATCH.image, {"detector/d": "its weights"}, cache)
        suite = DetectionSuite({"d": Detector()})
        suite.update(BATCH.image, {"anonymized": BATCH.image}, known)
    assert len(searched) == 3 * len(BATCH)


def test_features_of_every_dtype_come_back(tmp_path):
    made = [torch.randn(2, 3).bfloat16(), torch.tensor([[True], [False]]), torch.arange(2).short()]
    FeatureCache(tmp_path).fetch("ab" * 32, 2, lambda: made)
    again = FeatureCache(tmp_path)
    found = again.fetch("ab" * 32, 2, lambda: pytest.fail("computed anew"))
    assert again.hits == 1
    assert all(torch.equal(one, other) and one.dtype == other.dtype for one, other in zip(found, made, strict=True))


def test_what_changes_a_networks_output_changes_the_key(monkeypatch):
    image = torch.zeros(1, 3, 4, 4)
    found = [circumstances(image)]
    with torch.no_grad():  # networks that only look take another path
        found.append(circumstances(image))
    with torch.autocast("cpu", torch.bfloat16):
        found.append(circumstances(image))
    found.append(circumstances(image.contiguous(memory_format=torch.channels_last)))
    monkeypatch.setattr("faceanon.metrics.cache.code_digest", lambda: "changed code")
    found.append(circumstances(image))
    assert len(set(found)) == len(found)
