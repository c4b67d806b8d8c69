"""The judge of any tool's pictures: its figures on answers that are known, its pairs, its squares, its refusals."""

import json
import shutil

import numpy as np
import pytest
import torch
from given_pictures import blurred, changed, grey, same, write_originals
from PIL import Image

from faceanon.backbones.classical import Scramble
from faceanon.cli import main
from faceanon.data.files import read_photos
from faceanon.errors import UserError
from faceanon.metrics.detection import make_detector
from faceanon.metrics.evaluation import Evaluation
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.metrics.versions import VersionMaker
from faceanon.photo.detect import shipped_detector
from faceanon.photo.party import photo_party
from faceanon.results import load_results
from faceanon.studies.evaluate.faces import FaceReader, scale_to
from faceanon.studies.evaluate.figures import KeptOfFaces, colour_distances
from faceanon.studies.evaluate.pairs import pair_files
from faceanon.studies.photographs.figures import Figures
from faceanon.studies.security.base import BUDGETS, Budget
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle

BUNDLE = "photo128"  # without the perceptual network, which takes most of the time
JUDGE = "mobileface_v2"


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return write_originals(tmp_path_factory.mktemp("originals"))


def evaluate(*words, bundle=BUNDLE):
    return main(["evaluate", *map(str, words), "--bundle", bundle])


# --- figures whose answers are known


def test_originals_are_recognised_and_grey_squares_are_hidden(originals, tmp_path, capsys):
    hidden = changed(originals, tmp_path / "grey", grey, ".jpg")
    assert evaluate(originals, hidden, originals, "--aligned", "--out", tmp_path / "out") == 0
    found = load_results(tmp_path / "out").figures
    assert found[f"deid_rate/{JUDGE}"] == 0
    assert found[f"recovery_rate/{JUDGE}/file"] == 1
    assert found[f"retrieved/{JUDGE}/recovered"] == 1
    # One grey square is everybody's: the nearest original is the same for all.
    assert found[f"retrieved/{JUDGE}/anonymized"] == found["chance/retrieved"] == 0.25
    assert found["chance/rank1"] == pytest.approx(1 / 7)
    assert (found["detection_rate/yunet"], found["detection_rate/yunet/original"]) == (0, 1)
    assert (
        found["mesh_distance/recovered"] == found["skin_distance/recovered"] == found["light_distance/recovered"] == 0
    )
    assert found["correlation/yaw/recovered"] == pytest.approx(1)
    assert found["skin_distance/anonymized"] > 10
    assert "faces: 8; pictures: 8; persons are told by folders" in capsys.readouterr().out


def test_originals_given_as_anonymized_are_found_out(originals, tmp_path):
    assert evaluate(originals, originals, "--aligned", "--out", tmp_path) == 0
    results = load_results(tmp_path)
    assert results.figures[f"deid_rate/{JUDGE}"] == 1
    assert results.figures[f"rank1/{JUDGE}/anonymized"] == results.figures[f"rank1/{JUDGE}/original"]
    assert any(text.startswith("nothing is anonymized") for text in results.warnings)


@pytest.mark.slow
def test_the_figures_are_those_of_faceanon_test_to_the_digit(originals, tmp_path):
    method = Scramble(BUNDLE)
    files = sorted(originals.rglob("*.png"))
    image = from_bytes(torch.from_numpy(read_photos(files, 128))).contiguous()  # as a loader gives them
    people = torch.tensor([int(path.parent.name.split()[1]) for path in files])
    batch = FaceBatch(image, people, torch.arange(len(files)))
    detectors = {name: make_detector(name, 128) for name in ("yunet", "mtcnn")}
    tested = Evaluation(Bundle(BUNDLE), detectors=detectors, jpeg_qualities=())
    tested.update(batch, method)
    figures = tested.compute()
    made = VersionMaker(2, 0, ()).make(method, image, batch_numbers(batch))
    for folder, faces in (("hidden", made.anonymized[0]), ("back", made.recovered["file"])):
        for path, pixels in zip(files, to_bytes(faces).numpy(), strict=True):
            target = tmp_path / folder / path.relative_to(originals)
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(target)
    assert evaluate(originals, tmp_path / "hidden", tmp_path / "back", "--aligned", "--out", tmp_path / "out") == 0
    results = load_results(tmp_path / "out")
    # What needs the method itself no folder can tell: other keys, and recovery before the file.
    shared = set(figures) & set(results.figures)
    assert len(shared) > 50
    assert {name: results.figures[name] for name in shared} == {name: figures[name] for name in shared}
    assert all(results.ci[name] == tested.ci[name] for name in shared if name in tested.ci)


def batch_numbers(batch):
    from faceanon.metrics.fingerprints import row_numbers

    return row_numbers(batch)


@pytest.mark.slow
def test_twice_gives_the_same_bytes(originals, tmp_path):
    hidden = changed(originals, tmp_path / "hidden", blurred)
    for out in ("a", "b"):
        assert evaluate(originals, hidden, "--aligned", "--out", tmp_path / out) == 0
    for name in ("results.json", "report.html", "samples.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert str(tmp_path) not in (tmp_path / "a" / "results.json").read_text()


@pytest.mark.slow
def test_everything_at_hand_looks_where_nothing_is_left_away(originals, tmp_path):
    hidden = changed(originals, tmp_path / "hidden", blurred)
    assert evaluate(originals, hidden, "--aligned", "--out", tmp_path / "out", bundle="photo128_pictures") == 0
    results = load_results(tmp_path / "out")
    assert {"lpips/anonymized/file", "landmark_distance/anonymized"} <= set(results.figures)
    assert "kid" not in results.figures
    assert any(text.startswith("fid, kid: 8 faces are too few") for text in results.skipped)


def test_light_and_skin_are_told_apart():
    face = torch.zeros(1, 3, 64, 64)
    mask = torch.ones(1, 1, 64, 64)
    brighter = face + 0.2
    skin, light = colour_distances(brighter, face, mask)
    assert float(skin) == pytest.approx(0.2 * 127.5, rel=0.01)
    assert float(light) < 0.1
    lit = face + torch.linspace(-0.2, 0.2, 64)  # from the right
    skin, light = colour_distances(lit, face, mask)
    assert float(skin) < 0.1
    assert float(light) == pytest.approx(0.1 * 127.5, rel=0.05)


def test_a_mesh_that_moves_is_seen_in_eye_distances():
    points = torch.rand(3, 468, 2, generator=torch.Generator().manual_seed(0)) - 0.5
    shift = iter((points, points + 0.25))
    kept = KeptOfFaces(lambda image: next(shift))
    kept.update({"original": torch.zeros(3, 3, 64, 64), "anonymized": torch.zeros(3, 3, 64, 64)})
    figures = Figures()
    kept.compute(torch.arange(3), figures)
    assert figures.values["mesh_distance/anonymized"] > 0
    assert figures.values["correlation/mouth/anonymized"] == pytest.approx(1)


# --- which files belong together


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


def test_files_are_paired_by_name_and_those_alone_are_named(tmp_path):
    touch(tmp_path / "o", "anna/1.jpg", "anna/2.jpg", "ben/1.png")
    touch(tmp_path / "h", "anna/1.png", "ben/1.jpg", "ben/9.jpg")
    touch(tmp_path / "r", "anna/1.webp")
    pairing = pair_files(tmp_path / "o", tmp_path / "h", tmp_path / "r", None)
    assert [pair.original.name for pair in pairing.pairs] == ["anna/1.jpg", "ben/1.png"]
    assert [pair.recovered and pair.recovered.name for pair in pairing.pairs] == ["1.webp", None]
    assert pairing.alone == [
        "ben/9.jpg of h has no partner in o",
        "anna/2.jpg of o has no partner in h",
        "anna/2.jpg of o has no partner in r",
        "ben/1.png of o has no partner in r",
    ]
    assert pairing.told_by == "folders"


def test_an_ending_that_a_tool_adds_is_no_other_name(tmp_path):
    touch(tmp_path / "o", "a.jpg", "b.jpg")
    touch(tmp_path / "h", "a_anonymized.jpg", "b_anonymized.jpg")
    pairing = pair_files(tmp_path / "o", tmp_path / "h", None, None)
    assert [pair.anonymized.name for pair in pairing.pairs] == ["a_anonymized.jpg", "b_anonymized.jpg"]
    assert pairing.alone == []


@pytest.mark.parametrize(
    ("names", "table", "people", "told_by"),
    [
        (("Anna_0001.jpg", "Anna_0002.jpg", "Ben_0001.jpg"), None, ["Anna", "Anna", "Ben"], "names as Anna_0001"),
        (("IMG_0001.jpg", "IMG_0002.jpg"), None, [None, None], ""),
        (("faker_00000.jpg", "faker_00001.jpg"), None, [None, None], ""),
        (("a.jpg", "b.jpg", "c.jpg"), "file,person\na.jpg,x\nb.jpg,y\n", ["x", "y", None], "the list who.csv"),
    ],
)
def test_persons_are_told_by_list_folders_or_names(tmp_path, names, table, people, told_by):
    touch(tmp_path / "o", *names)
    listed = None
    if table:
        listed = tmp_path / "who.csv"
        listed.write_text(table)
    pairing = pair_files(tmp_path / "o", tmp_path / "o", None, listed)
    assert [pair.original.identity for pair in pairing.pairs] == people
    assert pairing.told_by == told_by


def test_two_files_of_one_name_are_refused(tmp_path):
    touch(tmp_path / "o", "a.jpg", "a.png")
    with pytest.raises(UserError, match=r"a\.jpg and a\.png have one name"):
        pair_files(tmp_path / "o", tmp_path / "o", None, None)


# --- faces in photos of any size


def party(tmp_path, name, change=same):
    (tmp_path / name).mkdir()
    photo = change(photo_party())
    photo.save(tmp_path / name / "party.png")
    return tmp_path / name


def test_the_same_square_is_read_in_a_result_of_another_size(tmp_path):
    before = party(tmp_path, "before")
    half = party(tmp_path, "half", lambda image: image.resize((image.width // 2, image.height // 2)))
    reader = FaceReader(pair_files(before, half, None, None), Bundle(BUNDLE), shipped_detector("yunet", 20))
    faces = list(reader.read())
    assert len(faces) >= 2
    for face in faces:
        assert float((face.versions["original"] - face.versions["anonymized"]).abs().mean()) < 0.1


def test_a_result_of_another_shape_is_named(tmp_path):
    with pytest.raises(UserError, match=r"x\.png is 100x90 px, its original 100x50"):
        scale_to(np.zeros((90, 100, 3), np.uint8), np.zeros((50, 100, 3), np.uint8), tmp_path / "x.png")


def test_an_aligned_face_has_to_be_square(tmp_path):
    Image.new("RGB", (90, 60)).save(tmp_path / "x.png")
    reader = FaceReader(pair_files(tmp_path, tmp_path, None, None), Bundle(BUNDLE), None)
    assert list(reader.read()) == []
    assert "must be square" in reader.unusable["x.png"]


def test_photos_without_a_face_and_without_a_partner_are_left_out_and_named(tmp_path, capsys):
    before = party(tmp_path, "before")
    for name in ("empty", "lonely"):
        Image.new("RGB", (200, 200), "green").save(before / f"{name}.png")
    after = party(tmp_path, "after", lambda image: blurred(blurred(image)))
    Image.new("RGB", (200, 200), "green").save(after / "empty.png")
    (before / "broken.png").write_bytes(b"no picture")
    (after / "broken.png").write_bytes(b"no picture")
    assert evaluate(before, after, "--out", tmp_path / "out") == 3
    said = capsys.readouterr().err
    assert "left out: empty.png: no face found" in said
    assert "left out: lonely.png of before has no partner in after" in said
    assert "broken.png" in said
    meta = load_results(tmp_path / "out").meta
    assert meta["without_face"] == ["empty.png"]
    assert meta["without_partner"] == ["lonely.png of before has no partner in after"]
    assert meta["unusable"] == ["broken.png"]
    # Every face of the photo counts as a person of its own.
    assert meta["people"] == meta["images"] >= 2


def test_a_face_that_is_no_longer_found_counts_as_not_detected_and_is_judged_all_the_same(tmp_path):
    before = party(tmp_path, "before")
    after = party(tmp_path, "after", grey)
    assert evaluate(before, after, "--out", tmp_path / "out") == 0
    figures = load_results(tmp_path / "out").figures
    assert figures["detection_rate/yunet"] == 0
    assert figures[f"deid_rate/{JUDGE}"] == 0


def test_two_pictures_are_judged_at_the_shipped_threshold(originals, tmp_path):
    one = originals / "person 0" / "0.png"
    shutil.copy(one, tmp_path / "result.png")
    assert evaluate(one, tmp_path / "result.png", "--aligned", "--out", tmp_path / "out") == 0
    results = load_results(tmp_path / "out")
    assert results.figures[f"deid_rate/{JUDGE}"] == 1
    assert 0.2 < results.figures[f"threshold/{JUDGE}"] < 0.5
    assert any("one person alone sets no threshold" in text for text in results.warnings)


# --- judges, attackers, refusals


def test_a_judge_that_is_not_installed_is_left_out_and_said(originals, tmp_path, monkeypatch):
    def missing(self, role):
        raise UserError("dlib's recogniser is not installed")

    monkeypatch.setattr(Bundle, "_carried", missing)
    monkeypatch.setattr(Bundle, "build", lambda self, role, _build=Bundle.build: _without(self, role, _build))
    assert evaluate(originals, originals, "--aligned", "--out", tmp_path) == 0
    results = load_results(tmp_path)
    assert f"deid_rate/{JUDGE}" in results.figures
    assert not [name for name in results.figures if "dlib" in name]
    assert any(text.startswith("figures of dlib_resnet: ") for text in results.skipped)


def _without(bundle, role, build):
    if role == "judge":
        raise UserError("not installed")
    return build(bundle, role)


@pytest.mark.slow
def test_attackers_learn_from_half_of_the_people(tmp_path, monkeypatch):
    monkeypatch.setitem(BUDGETS, "small", Budget("small", people=2, known_people=2, steps=4, batch=4))
    folder = write_originals(tmp_path / "originals")
    hidden = changed(folder, tmp_path / "hidden", blurred)
    assert evaluate(folder, hidden, "--aligned", "--out", tmp_path / "out", "--attack") == 0
    results = load_results(tmp_path / "out")
    for name in ("attack/inversion", "attack/recogniser"):
        for before in ("", "/painted", "/blur"):
            assert 0 <= results.figures[f"{name}{before}"] <= 1
            assert f"{name}{before}" in results.ci
    assert results.figures["attack/chance"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["{o}", "nowhere"], "no folder nowhere"),
        (["{o}", "{x}"], "is named like one of"),
        (["{o}", "{o}", "--aligned", "--judge", "no.onnx"], "no file no.onnx"),
        (["{e}", "{e}"], "no face was found"),
        (["{o}", "{o}", "--identities", "who.csv"], "cannot read the identity list"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(originals, tmp_path, capsys, words, line):
    touch(tmp_path / "x", "another.png")
    (tmp_path / "e").mkdir()
    Image.new("RGB", (99, 99), "green").save(tmp_path / "e" / "empty.png")
    filled = [word.format(o=originals, x=tmp_path / "x", e=tmp_path / "e") for word in words]
    assert evaluate(*filled, "--out", tmp_path / "out") == 2
    said = capsys.readouterr().err.strip()
    assert line in said
    assert "\n" not in said
    assert not (tmp_path / "out").exists()


def test_names_of_persons_stay_out_of_the_figures(originals, tmp_path):
    assert evaluate(originals, originals, "--aligned", "--out", tmp_path) == 0
    assert "person 0" not in json.dumps(json.loads((tmp_path / "results.json").read_text())["figures"])
