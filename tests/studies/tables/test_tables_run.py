import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from table_cases import plain_photographs, shift

from faceanon.errors import UserError
from faceanon.metrics.pictures import PictureCheck
from faceanon.metrics.protocol import load_protocol
from faceanon.studies.tables import measure as tables_run
from faceanon.studies.tables import pictures as tables_pictures
from faceanon.studies.tables import run as command
from faceanon.studies.tables.data import TestPictures, load_pictures, spread
from faceanon.studies.tables.measure import TableSetting, cached, count_readings, measure, method_digest
from faceanon.studies.tables.pictures import key_embeddings, project, sheet_rows, tsne_png
from faceanon.studies.tables.run import TablesOptions
from metrics.metric_fakes import SIZE, FakeBundle, Irreversible, PassThrough, Shift, faces


@pytest.fixture(scope="module")
def pictures():
    batch = faces()
    batches = tuple(batch.map(lambda t, s=start: t[s : s + 12]) for start in range(0, len(batch), 12))
    check = PictureCheck()
    for part in batches:
        check.update(part)
    return TestPictures(batches, check.seen(), real=False)


PROTOCOL = replace(load_protocol("photo128-v1"), draws=20, kid_subsets=2, kid_subset_size=8, jpeg_qualities=())


class TwoJudges(FakeBundle):
    """`FakeBundle` with a second judge."""

    def __init__(self):
        super().__init__()
        self.further_judges = {"second": self.recogniser}


def count_calls(backbone, setting):
    """Results, and how often progress was told: never where nothing was evaluated."""
    calls = []
    return measure("shift", backbone, setting, lambda *progress: calls.append(progress)), calls


@pytest.fixture(scope="module")
def measured(pictures, tmp_path_factory):
    """The setting of one measurement, its results, and what it told of its progress."""
    setting = TableSetting(FakeBundle(), PROTOCOL, pictures, tmp_path_factory.mktemp("methods"))
    return setting, *count_calls(shift(), setting)


def test_a_method_is_measured_once_and_its_report_is_written(measured):
    setting, results, calls = measured
    assert calls == [(12, 36), (24, 36), (36, 36)]
    assert (setting.folder / "shift" / "report.html").is_file()
    assert results.meta["protocol"]["name"] == "photo128"
    assert "36 images instead of 48" in results.meta["protocol"]["deviations"]
    assert "recognition_rate/trainer/recovered/file/l2_0.8" in results.figures
    again, calls = count_calls(shift(), setting)
    assert calls == []
    assert again.figures == results.figures


def test_readings_agree_with_cosines_counted_by_hand(pictures):
    evaluation = tables_run.Evaluation(FakeBundle(), protocol=PROTOCOL)
    evaluation.update(pictures.batches[0], shift())
    evaluation.compute()
    figures, intervals = count_readings(evaluation)
    cosine = np.asarray(evaluation.scores["anonymized"])
    recovered = np.asarray(evaluation.scores["recovered/file"])
    distance = np.sqrt(np.maximum(2 - 2 * recovered, 0))
    name = "recognition_rate/judge/{}/{}"
    assert figures[name.format("recovered/file", "l2_1.1")] == pytest.approx((distance < 1.1).mean())
    assert figures[name.format("recovered/file", "squared_l2_0.8")] == pytest.approx((distance**2 < 0.8).mean())
    assert figures[name.format("anonymized", "one_minus_cosine_0.8")] == pytest.approx((1 - cosine < 0.8).mean())
    assert figures[name.format("recovered/file", "l2_1.1")] > figures[name.format("anonymized", "l2_1.1")]
    low, high = intervals[name.format("recovered/file", "l2_1.1")]
    assert low <= figures[name.format("recovered/file", "l2_1.1")] <= high
    assert {key.split("/")[1] for key in figures} == {"judge", "trainer"}


@pytest.mark.parametrize("what", ["method", "pictures", "protocol", "keys", "detectors", "judges"])
def test_results_of_something_else_are_not_reused(measured, what):
    setting = measured[0]
    assert cached(setting.folder / "shift", shift(), setting) is not None
    if what == "method":
        other = PassThrough()
        other.init_args = {}
        assert cached(setting.folder / "shift", other, setting) is None
        return
    changes = {
        "pictures": {"pictures": replace(setting.pictures, seen=replace(setting.pictures.seen, sha256="0" * 64))},
        "protocol": {"protocol": replace(setting.protocol, draws=51)},
        "keys": {"kffa_keys": 2},
        "detectors": {"detectors": {"mtcnn": None}},
        "judges": {"bundle": TwoJudges()},
    }
    assert cached(setting.folder / "shift", shift(), replace(setting, **changes[what])) is None


def test_results_of_faceanon_test_serve_where_they_hold_enough(measured, tmp_path):
    setting, results, _ = measured
    content = json.loads((setting.folder / "shift" / "results.json").read_text())
    del content["meta"]["tables"]
    (tmp_path / "results.json").write_text(json.dumps(content))
    assert cached(tmp_path, shift(), setting) is None  # its thresholds are missing
    enough = replace(setting, needs_readings=False)
    assert cached(tmp_path, shift(), enough).figures == results.figures
    assert cached(tmp_path, shift(), replace(enough, bundle=TwoJudges())) is None
    other = shift()
    other.weight.data += 1
    assert cached(tmp_path, other, enough) is None


def test_kffa_is_measured_where_a_table_needs_it(pictures, tmp_path):
    one = replace(pictures, batches=pictures.batches[:1])
    setting = TableSetting(FakeBundle(), PROTOCOL, one, tmp_path, kffa_keys=2)
    results, _ = count_calls(shift(), setting)
    assert 0 < results.figures["kffa/judge"] <= 180


def test_arguments_are_part_of_a_method():
    one, other = Shift(), Shift()
    one.init_args, other.init_args = {"sigma": 1, "bundle": "a"}, {"sigma": 2, "bundle": "a"}
    assert method_digest(one) != method_digest(other)
    other.init_args = {"sigma": 1, "bundle": "b"}
    assert method_digest(one) == method_digest(other)


def test_the_pictures_that_ship_or_some_of_them():
    found = load_pictures(load_protocol("photo128-v1"), 128, limit=6)
    assert found.seen.images == 6
    assert not found.real
    assert found.one_each(2).shape == (2, 3, 128, 128)


@pytest.fixture
def photographs(tmp_path):
    return plain_photographs(tmp_path / "photos")


def test_photographs_without_a_list_are_the_first_of_the_folders(photographs):
    protocol = load_protocol("hford-v1")
    small = replace(protocol, pictures=replace(protocol.pictures, image_size=16))
    found = load_pictures(small, 16, [photographs], limit=4)
    assert found.real
    assert (found.seen.images, found.seen.people) == (4, 2)


def test_listed_photographs_are_found_by_content(photographs, monkeypatch):
    from faceanon.files import sha256

    listed = {sha256(path): path.parent.name for path in sorted(photographs.rglob("*.png"))[1:]}
    protocol = load_protocol("testbed128-v1")
    protocol = replace(protocol, pictures=replace(protocol.pictures, image_size=16))
    monkeypatch.setattr(type(protocol), "file_list", lambda self: listed)
    assert load_pictures(protocol, 16, [photographs]).seen.images == 5
    listed["0" * 64] = "carla"
    with pytest.raises(UserError, match="1 of the protocol's 6 pictures"):
        load_pictures(protocol, 16, [photographs])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 64}, "is for pictures of 128 px"),
        ({"image_size": 128, "limit": 3}, "at least 4"),
        ({"image_size": 128, "name": "testbed128-v1"}, "--data FOLDER"),
    ],
)
def test_pictures_that_cannot_be_had(options, message):
    protocol = load_protocol(options.pop("name", "photo128-v1"))
    with pytest.raises(UserError, match=message):
        load_pictures(protocol, **options)


def test_a_few_photographs_show_as_many_persons_as_possible():
    from faceanon.data.files import Photo

    photos = [Photo(Path(f"{person}{n}"), f"{person}{n}", person) for person in "abc" for n in range(4)]
    assert [photo.name for photo in spread(photos, 6)] == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert spread(photos, 99) == photos


def test_tsne_embeddings_are_the_judge_s_and_are_kept(pictures, tmp_path):
    method = shift()
    image = pictures.one_each(3)
    judge = FakeBundle().judge
    path = tmp_path / "keys.safetensors"
    found = key_embeddings(method, judge, image, keys=4, path=path)
    assert found.shape == (3, 5, 32)
    torch.testing.assert_close(found[:, 0], judge(image))
    assert (found[:, 1:] - found[:, :1]).abs().amax(-1).min() > 0  # no key leaves a face as it is
    assert torch.equal(key_embeddings(method, judge, image[:0], keys=4, path=path), found)
    png = tsne_png({"shift": found, "twice": found}, "judge")
    assert Image.open(io.BytesIO(png)).format == "PNG"
    assert png == tsne_png({"shift": found, "twice": found}, "judge")


def test_embeddings_of_other_keys_are_kept_in_another_file(measured, monkeypatch):
    paths = []

    def noted(backbone, judge, image, keys, seed, path):
        paths.append(path)
        return torch.zeros(1, 1, 1)

    monkeypatch.setattr(tables_pictures, "key_embeddings", noted)
    monkeypatch.setattr(tables_pictures, "tsne_png", lambda embeddings, judge: b"")
    bundle = FakeBundle()
    bundle.to = lambda device: bundle
    setting = replace(measured[0], bundle=bundle)
    table = SimpleNamespace(name="ifadit-4", pictures=("tsne",))
    for seed in (0, 1, 1):
        setting = replace(setting, protocol=replace(PROTOCOL, seed=seed))
        command._pictures(table, {"shift": shift()}, setting, TablesOptions(["ifadit-4"]), "judge")
    assert paths[0] != paths[1] == paths[2]


def test_the_plane_keeps_apart_what_is_apart():
    centres = torch.eye(8)[:2]
    noise = 0.05 * torch.randn(2, 20, 8, generator=torch.Generator().manual_seed(0))
    points = project(centres[:, None] + noise)
    assert points.shape == (2, 20, 2)
    within = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1).mean()
    between = np.linalg.norm(points[0].mean(0) - points[1].mean(0))
    assert between > within
    with pytest.raises(ValueError, match="at least 5 points"):
        project(torch.eye(4)[None])
    with pytest.raises(ValueError, match="at least one method"):
        tsne_png({}, "judge")


def test_sheets_have_a_way_back_only_where_there_is_one(pictures):
    method = shift()
    image = pictures.one_each(2)
    rows = sheet_rows("shift", method, image)
    assert list(rows) == ["shift, anonymized", "shift, recovered"]
    torch.testing.assert_close(rows["shift, recovered"], image, atol=1.01 / 127.5, rtol=0)
    assert list(sheet_rows("noise", Irreversible(), image)) == ["noise, anonymized"]
    assert image.shape[-1] == SIZE
