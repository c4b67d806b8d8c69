import argparse
import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch
import yaml

from faceanon.errors import UserError
from faceanon.files import sha256
from faceanon.metrics.comparison import check_comparable, protocol_label
from faceanon.metrics.pictures import PictureCheck, SeenPictures, find_pictures, read_list
from faceanon.metrics.protocol import folder, known, load_protocol, protocol_facts
from faceanon.studies.tables.data import load_pictures
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle

SHIPPED = "photo128-v1"


@pytest.fixture
def written(tmp_path):
    """A protocol with some entries changed, as a file."""

    def write(change):
        data = yaml.safe_load((folder() / f"{SHIPPED}.yaml").read_text())
        change(data)
        path = tmp_path / "own-v1.yaml"
        path.write_text(yaml.safe_dump(data))
        return path

    return write


@pytest.mark.parametrize("label", known())
def test_a_shipped_protocol_is_whole_and_named_after_itself(label):
    protocol = load_protocol(label)
    assert protocol.label == label
    assert protocol.about
    for reading in protocol.matching.readings:
        assert -1 < reading.cosine < 1
    names = [(reading.recogniser, reading.name) for reading in protocol.matching.readings]
    assert len(set(names)) == len(names)
    if protocol.pictures.source == "folder" and protocol.pictures.files:
        listed = protocol.file_list()
        assert len(listed) == protocol.pictures.images
        assert len(set(listed.values())) == protocol.pictures.people


def test_the_papers_threshold_has_every_reading():
    found = {(r.recogniser, r.name): r.cosine for r in load_protocol("dbaf-v1").matching.readings}
    assert found[("facenet_casia", "l2_1.1")] == pytest.approx(0.395)
    assert found[("facenet_vggface2", "squared_l2_1.1")] == pytest.approx(0.45)
    assert found[("ir_se50", "one_minus_cosine_0.8")] == pytest.approx(0.2)


def test_the_shipped_photographs_are_those_of_their_protocol():
    protocol = load_protocol(SHIPPED)
    found = load_pictures(protocol, protocol.pictures.image_size)
    assert protocol.deviations(found.seen, {}) == []
    bundle = Bundle("photo128_prior")
    assert (protocol.networks.judge.name, protocol.networks.recogniser.name) == (
        bundle.judge_name,
        bundle.recogniser_name,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("keys"), "entry 'keys' is missing"),
        (lambda d: d.update(kyes=2), "unknown entry 'kyes'"),
        (lambda d: d.update(keys="two"), "keys must be a whole number, got 'two'"),
        (lambda d: d.update(keys=True), "keys must be a whole number, got True"),
        (lambda d: d.update(keys=1), "keys must be at least 2"),
        (lambda d: d.update(schema=7), "schema must be 1, got 7"),
        (lambda d: d.update(version=0), "version must be at least 1"),
        (lambda d: d.update(jpeg_qualities=[101]), "jpeg_qualities lie from 1 to 100"),
        (lambda d: d.update(jpeg_qualities=75), "jpeg_qualities must be a list, got 75"),
        (lambda d: d.update(detectors=["mtcnn", 3]), r"detectors\[1\] must be text, got 3"),
        (lambda d: d.update(kid_subset_size=49), "kid_subset_size"),
        (lambda d: d["pictures"].update(source="web"), "pictures: source must be one of shipped, folder, got 'web'"),
        (lambda d: d["pictures"].update(people=500), "people must be from 2 to the number of images"),
        (lambda d: d["pictures"].update(low=float("nan")), "low must be a number, got nan"),
        (lambda d: d["pictures"].update(signature=[0.5]), "signature must have 48 numbers"),
        (lambda d: d["pictures"].update(source="folder"), "a folder needs files"),
        (lambda d: d["matching"].update(far=0), "false accept rates"),
        (lambda d: d["matching"].update(ranks=[0]), "ranks start at 1"),
        (lambda d: d["networks"]["judge"].update(crop=[0, 1]), "crop must have 4 entries, got 2"),
        (lambda d: d.update(networks=None), "networks: expected entries"),
        (
            lambda d: d["matching"].update(
                readings=[{"name": "x", "recogniser": "r", "distance": "l2", "threshold": 9.0}]
            ),
            "reading 'x': a threshold of 9.0 on l2 accepts every pair or none",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_entry(written, change, message):
    with pytest.raises(UserError, match=message) as caught:
        load_protocol(written(change))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("own-v1.yaml")


def test_no_such_protocol_and_no_yaml(tmp_path):
    with pytest.raises(UserError, match=r"no protocol 'lfw-v3'.*photo128-v1"):
        load_protocol("lfw-v3")
    (tmp_path / "bad.yaml").write_text("a: [1\nb: 2")
    with pytest.raises(UserError, match="is no YAML") as caught:
        load_protocol(tmp_path / "bad.yaml")
    assert "\n" not in str(caught.value)


def test_every_choice_changes_the_digest():
    protocol = load_protocol(SHIPPED)
    assert dataclasses.replace(protocol, about="other words").digest == protocol.digest
    pictures = dataclasses.replace(protocol.pictures, photos=3)
    for changed in ({"keys": 3}, {"seed": 1}, {"pictures": pictures}, {"version": 2}):
        assert dataclasses.replace(protocol, **changed).digest != protocol.digest


def seen_by(protocol, **changes):
    pictures = protocol.pictures
    return dataclasses.replace(SeenPictures(pictures.images, pictures.people, pictures.signature, "0" * 64), **changes)


def test_deviations_are_named():
    protocol = load_protocol(SHIPPED)
    judge = dataclasses.replace(protocol.networks.judge, sha256="a" * 64)
    protocol = dataclasses.replace(protocol, networks=dataclasses.replace(protocol.networks, judge=judge))
    assert protocol.deviations(seen_by(protocol), {"judge": protocol.networks.judge.sha256}) == []
    assert protocol.deviations(seen_by(protocol), {}) == []
    moved = (protocol.pictures.signature[0] + 0.001, *protocol.pictures.signature[1:])
    found = protocol.deviations(seen_by(protocol, images=8, people=4, signature=moved), {"judge": "f" * 64})
    assert found == [
        "8 images instead of 48",
        "4 people instead of 34",
        "other pictures (their signature differs)",
        "another judge (its weights are not dlib_resnet's)",
    ]


def test_nobody_has_to_be_named_where_every_picture_is_somebody_else():
    unnamed = load_protocol("dbaf-v1")
    assert unnamed.deviations(seen_by(unnamed, people=0), {}) == []
    assert unnamed.deviations(seen_by(unnamed, people=9), {}) == ["9 people instead of 200"]
    pairs = load_protocol(SHIPPED)
    assert pairs.deviations(seen_by(pairs, people=0), {}) == ["0 people instead of 34"]


def batch(count=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(count, 3, 16, 16, generator=generator) * 2 - 1
    return FaceBatch(image, torch.arange(count) // 2, torch.arange(count))


def fingerprint(*batches):
    check = PictureCheck()
    for item in batches:
        check.update(item)
    return check.seen()


def test_fingerprint_knows_pictures_in_any_order():
    whole = batch()
    turned = whole.map(lambda t: t.flip(0))
    assert fingerprint(whole) == fingerprint(turned.map(lambda t: t[:2]), turned.map(lambda t: t[2:]))
    assert (fingerprint(whole).images, fingerprint(whole).people) == (6, 3)
    other = fingerprint(batch(seed=1))
    assert other.sha256 != fingerprint(whole).sha256


def test_signature_forgives_rounding_and_sees_a_moved_part():
    whole = batch()
    rounded = dataclasses.replace(whole, image=(whole.image + 1e-5).clamp(-1, 1))
    moved = dataclasses.replace(whole, image=whole.image.roll(1, -1))

    def gap(other):
        pairs = zip(fingerprint(whole).signature, fingerprint(other).signature, strict=True)
        return max(abs(a - b) for a, b in pairs)

    assert gap(rounded) < 2e-4 < gap(moved)


def test_pictures_are_found_by_content(tmp_path):
    paths = [tmp_path / name for name in ("a.jpg", "b.jpg", "c.jpg")]
    for path in paths:
        path.write_bytes(path.name.encode())
    listed = tmp_path / "list.sha256"
    listed.write_text(f"# who\n{sha256(paths[2])} p00\n{sha256(paths[0])} p01  # a note\n")
    assert find_pictures(read_list(listed), paths) == [(paths[2], "p00"), (paths[0], "p01")]
    with pytest.raises(UserError, match="1 of the protocol's 2 pictures are not among the 2 files"):
        find_pictures(read_list(listed), paths[:2])
    listed.write_text("abc p00\n")
    with pytest.raises(UserError, match=r"list.sha256:1: expected a new sha256 and a person"):
        read_list(listed)
    with pytest.raises(UserError, match="no picture list"):
        read_list(tmp_path / "none")
    with pytest.raises(UserError, match="lists no picture files"):
        load_protocol("dbaf-v1").file_list()


def meta(protocol, **changes):
    return {"protocol": protocol_facts(protocol, seen_by(protocol, **changes), {})}


def test_results_of_one_protocol_compare_and_others_are_refused():
    one = load_protocol(SHIPPED)
    two = dataclasses.replace(one, version=2)
    assert check_comparable({"a": meta(one), "b": meta(one)}) == []
    assert check_comparable({"a": {}, "b": {}}) == []
    for other in (meta(two), {}, meta(one, images=8), meta(dataclasses.replace(one, keys=3))):
        with pytest.raises(UserError, match="--across-protocols") as caught:
            check_comparable({"a": meta(one), "b": other})
        assert "\n" not in str(caught.value)
        (mark,) = check_comparable({"a": meta(one), "b": other}, across=True)
        assert "do not compare" in mark
        assert "a: photo128-v1" in mark
    alike = meta(one, images=8), meta(one, images=8)
    assert check_comparable(dict(zip("ab", alike, strict=True))) == []
    elsewhere = meta(one, images=8, sha256="1" * 64)
    with pytest.raises(UserError, match="8 images instead of 48"):
        check_comparable({"a": alike[0], "b": elsewhere})


def test_label_survives_results_json():
    text = json.loads(json.dumps(meta(load_protocol(SHIPPED), images=8)))
    assert protocol_label(text) == "photo128-v1 with changes (8 images instead of 48)"
    assert protocol_label({}) == "no protocol"


def test_every_entry_is_in_the_reference(repo):
    page = (repo / "docs/reference/protocol.md").read_text(encoding="utf-8")
    written = set(re.findall(r"`([\w.]+)`", page))

    def names(kind, prefix=""):
        for field in dataclasses.fields(kind):
            yield prefix + field.name

    from faceanon.metrics import protocol as module
    from faceanon.metrics.readings import ThresholdReading

    kinds = {
        "": module.Protocol,
        "pictures.": module.ProtocolPictures,
        "matching.": module.Matching,
        "networks.": module.ProtocolNetworks,
    }
    wanted = {name for prefix, kind in kinds.items() for name in names(kind, prefix)}
    wanted |= set(names(ThresholdReading)) | set(names(module.Network))
    assert wanted - {"pictures", "networks", "matching"} <= written
    assert Path(folder()).is_dir()


def test_the_report_refuses_or_marks_other_protocols(tmp_path, capsys):
    from faceanon.commands.report import compare
    from faceanon.results import Results, dumps

    one = load_protocol(SHIPPED)
    paths = []
    for name, stamped in (("a", meta(one)), ("b", meta(dataclasses.replace(one, version=2))), ("c", meta(one))):
        paths.append(tmp_path / name)
        paths[-1].mkdir()
        (paths[-1] / "results.json").write_bytes(dumps(Results({"kid": 0.5}, meta=stamped)))

    def run(*words):
        parser = argparse.ArgumentParser()
        compare.add_arguments(parser)
        out = tmp_path / "page.html"
        compare.run(parser.parse_args([*map(str, words), "--out", str(out)]))
        return out.read_text()

    assert "photo128" not in run(paths[0], paths[2])
    with pytest.raises(UserError, match=r"b: photo128-v2.*--across-protocols"):
        run(paths[0], paths[1])
    page = run(paths[0], paths[1], "--across-protocols")
    assert "a [photo128-v1]" in page
    assert "b [photo128-v2]" in page
    assert "do not compare" in capsys.readouterr().err
