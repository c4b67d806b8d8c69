"""Files of boxes: what a person or another detector decided, from JSON to pixels and back."""

import json

import numpy as np
import pytest

from faceanon import cli
from faceanon.commands import anonymize
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Secret
from faceanon.photo.boxes import DecidedBox, DecidedPhoto, Decisions, detections, read_decisions
from faceanon.photo.detect import shipped_detector
from faceanon.photo.file import load_photo, read_manifest
from faceanon.photo.party import photo_party
from faceanon.photo.policy import Policy, hide
from faceanon.pipeline import Pipeline
from faceanon.pipeline.photo import NoFaceError
from fakes import FixedDetector, KeyedTint, SealedPatch
from test_pipeline import ALONE


@pytest.fixture(scope="module")
def party(tmp_path_factory):
    path = tmp_path_factory.mktemp("party") / "party.png"
    photo_party().save(path)
    return path


@pytest.fixture(scope="module")
def pipeline(sealed_bundle):
    return Pipeline(SealedPatch(str(sealed_bundle)), shipped_detector("yunet", 12))


def with_boxes(pipeline, *boxes, name="party.png", size=(824, 284)):
    other = Pipeline(pipeline.backbone, FixedDetector([]), weights=pipeline.weights)
    other.boxes = Decisions((DecidedPhoto(name, *size, boxes),), "boxes.json")
    return other


def coco(**changes):
    values = {
        "images": [{"id": 7, "file_name": "a.png", "width": 60, "height": 40}],
        "categories": [{"id": 3, "name": "face"}, {"id": 4, "name": "license plate"}],
        "annotations": [{"image_id": 7, "category_id": 3, "bbox": [1, 2, 10, 20]}],
    }
    return values | changes


def annotation(**changes):
    return coco(annotations=[{"image_id": 7, "category_id": 3, "bbox": [1, 2, 10, 20]} | changes])


def test_what_is_written_is_read_again_the_same(tmp_path):
    points = np.arange(10.0).reshape(5, 2)
    boxes = (
        DecidedBox((1.25, 2.5, 30, 40), "stranger", 3, score=0.5, points=points),
        DecidedBox((0, 0, 5, 4), "keep"),
        DecidedBox((5, 5, 9, 9), "mask", region=True),
    )
    decisions = Decisions((DecidedPhoto("a/b.jpg", 60, 40, boxes), DecidedPhoto("c.jpg", 9, 9, ())), "x")
    decisions.write(tmp_path / "x.json")
    again = read_decisions(tmp_path / "x.json")
    assert again.photos == decisions.photos
    assert np.array_equal(again.photos[0].boxes[0].points, points)


def test_another_detectors_file_needs_no_points_and_no_choices(tmp_path):
    plate = {"image_id": 7, "category_id": 4, "bbox": [1, 2, 10, 20]}
    (tmp_path / "x.json").write_text(json.dumps(coco(annotations=[*coco()["annotations"], plate])))
    face, region = read_decisions(tmp_path / "x.json").of("photos/a.png", 60, 40)
    assert (face.choice, face.region, face.box) == ("stranger", False, (1, 2, 11, 22))
    assert (region.choice, region.region) == ("blur", True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no JSON", "it is not JSON"),
        ("[" * 20_000, "it is not JSON"),
        ("[1]", "COCO's format"),
        (json.dumps({"images": []}), "'categories' is missing"),
        (json.dumps(annotation(image_id=8)), "8 is missing or names nothing"),
        (json.dumps(annotation(category_id=8)), "8 is missing or names nothing"),
        (json.dumps(annotation(bbox=[1, 2, 3])), "4 numbers were expected"),
        (json.dumps(annotation(bbox=[1, 2, float("nan"), 1])), "4 numbers were expected"),
        (json.dumps(annotation(bbox=[1, 2, 0, 1])), "a box 0 px wide"),
        (json.dumps(annotation(bbox=[1e300, 2, 1, 1])), "4 numbers were expected"),
        (json.dumps(annotation(attributes={"choice": "sticker"})), "a face cannot be 'sticker'"),
        (json.dumps(annotation(attributes={"stranger": -1})), "stranger -1"),
        (json.dumps(annotation(category_id=4, attributes={"choice": "stranger"})), "a region cannot be 'stranger'"),
    ],
    ids=range(13),
)
def test_what_is_no_file_of_boxes_is_refused_in_a_line(tmp_path, text, reason):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match=r"x.json is no file of boxes") as caught:
        read_decisions(tmp_path / "x.json")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_photos_are_known_by_name_and_size():
    decisions = Decisions((DecidedPhoto("a/b.jpg", 60, 40, ()), DecidedPhoto("b.jpg", 60, 40, ())), "x.json")
    assert decisions.of("c/b.jpg", 60, 40) == ()
    for name, size, reason in (
        ("b.png", (60, 40), "says nothing of b.png"),
        ("c/b.jpg", (40, 60), "is for another b.jpg: of 60x40 px, and c/b.jpg has 40x60"),
        ("a/b.jpg", (60, 40), "names a/b.jpg twice"),
    ):
        with pytest.raises(UserError, match=reason):
            decisions.of(name, *size)


def test_eyes_are_found_in_boxes_that_are_roughly_right():
    pixels = np.asarray(photo_party())
    finder = shipped_detector("yunet", 40, threshold=0.2)
    for face in shipped_detector("yunet", 12).detect(pixels):
        moved = tuple(np.add(face.box, (-8, 6, 9, 10)))
        (found,) = detections([DecidedBox(moved)], pixels, finder)
        assert found.box == moved
        assert np.abs(found.points - face.points).max() < face.size / 15
        # Points of another face do not count.
        (again,) = detections([DecidedBox(moved, points=face.points + 300)], pixels, finder)
        assert np.array_equal(again.points, found.points)
        (kept,) = detections([DecidedBox(moved, points=face.points + 1)], pixels, finder)
        assert np.array_equal(kept.points, face.points + 1)


def test_a_region_is_hidden_within_its_box_alone():
    noise = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    for by in ("blur", "pixelate", "mask"):
        (face,) = as_faces(DecidedBox((10.2, 5, 70, 20), by, region=True))
        pixels = noise.copy()
        hide(pixels, face)
        changed = (pixels != noise).any(2)
        assert changed[5:20, 10:70].mean() > 0.9
        assert not changed[:5].any()
        assert not changed[20:].any()
        assert not changed[:, 70:].any()
        assert pixels[5:20, 10:70].std() < noise.std() / 3


def as_faces(*boxes):
    pipe = Pipeline(KeyedTint(), FixedDetector([]))
    pipe.boxes = Decisions((DecidedPhoto("the photo", 90, 60, boxes),), "boxes.json")
    return pipe.faces(load_photo(np.zeros((60, 90, 3), np.uint8)))


def test_each_box_is_treated_as_it_says(pipeline, party):
    found = pipeline.faces(load_photo(party))
    boxes = [DecidedBox(face.box, points=face.points) for face in found]
    nobody = DecidedBox((300, 10, 340, 50))
    plate = DecidedBox((5, 5, 60, 20), "mask", region=True)
    keep = DecidedBox(boxes[1].box, "keep", points=boxes[1].points)
    blurred = DecidedBox(boxes[2].box, "blur", points=boxes[2].points)
    pipe = with_boxes(pipeline, boxes[0], keep, blurred, nobody, plate)
    faces = pipe.faces(load_photo(party))
    assert [face.treatment for face in faces] == ["model", "left", "blur", "blur", "mask"]
    assert faces[3].reason == "its points were not found"
    assert faces[4].describe().startswith("region 5: ")
    # What the options leave, stays; a region is hidden whoever is chosen.
    pipe.policy = Policy(select=frozenset({3}))
    assert [face.treatment for face in pipe.faces(load_photo(party))] == ["left", "left", "blur", "left", "mask"]


def test_boxes_as_found_give_the_same_photo_and_the_next_stranger_another(pipeline, party):
    photo = load_photo(party)
    boxes = [DecidedBox(face.box, score=face.score, points=face.points) for face in pipeline.faces(photo)]
    plain = pipeline.anonymize_photo(photo, Secret.random(0)).photo.pixels
    pipe = with_boxes(pipeline, *boxes)
    assert np.array_equal(pipe.anonymize_photo(photo, Secret.random(0)).photo.pixels, plain)
    other = DecidedBox(boxes[0].box, stranger=1, points=boxes[0].points)
    hidden = with_boxes(pipeline, other, *boxes[1:]).anonymize_photo(photo, Secret.random(0)).photo
    x1, y1, x2, y2 = map(int, other.box)
    changed = (hidden.pixels != plain).any(2)
    assert changed[y1:y2, x1:x2].any()
    assert not changed[:, : x1 - 60].any()
    assert not changed[:, x2 + 60 :].any()
    back = pipeline.recover_photo(hidden, Secret.random(0), read_manifest(hidden)).photo.pixels
    assert np.abs(back.astype(int) - photo.pixels).mean() < np.abs(hidden.pixels.astype(int) - photo.pixels).mean() / 2


def test_another_stranger_needs_a_way_back_that_does_not_depend_on_it():
    box = DecidedBox(ALONE[0].box, stranger=1, points=ALONE[0].points)
    pipe = with_boxes(Pipeline(KeyedTint(), FixedDetector([])), box, name="the photo", size=(320, 240))
    with pytest.raises(UserError, match="gives each key one stranger"):
        pipe.anonymize(np.zeros((240, 320, 3), np.uint8), Secret.random(0))
    empty = with_boxes(pipe, name="the photo", size=(320, 240))
    with pytest.raises(NoFaceError, match=r"no face in boxes.json"):
        empty.anonymize(np.zeros((240, 320, 3), np.uint8), Secret.random(0))


def test_a_threshold_is_the_least_score_of_a_face():
    pixels = np.asarray(photo_party())
    scores = [face.score for face in shipped_detector("yunet", 12).detect(pixels)]
    middle = sorted(scores)[1]
    found = [face.score for face in shipped_detector("yunet", 12, threshold=middle).detect(pixels)]
    assert sorted(found) == sorted(score for score in scores if score >= middle)
    assert len(shipped_detector("yunet", 12, threshold=0.05).detect(pixels)) >= len(scores)


@pytest.fixture
def faceanon(pipeline, monkeypatch, capsys):
    """Run `anonymize` with the tiny model; gives exit code, output and error output."""

    def load(files, torch_for, photos):
        return Pipeline(pipeline.backbone, None, weights=pipeline.weights)

    monkeypatch.setattr(anonymize, "load_pipeline", load)
    monkeypatch.setattr(KdfParameters.__init__, "__defaults__", ("argon2id", 64, 1, 1, 19))
    monkeypatch.setenv("PW", "hush")

    def run(*words):
        code = cli.main(["anonymize", *map(str, words), "--password-env", "PW"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_folder_is_looked_through_corrected_and_hidden(faceanon, tmp_path):
    folder, boxes = tmp_path / "in", tmp_path / "boxes.json"
    (folder / "sub").mkdir(parents=True)
    photo_party().save(folder / "sub/party.png")
    code, out, _ = faceanon(folder, "--list-faces", "--write-boxes", boxes)
    assert code == 0
    assert f"written: {boxes}" in out
    values = json.loads(boxes.read_text())
    assert values["images"][0]["file_name"] == "sub/party.png"
    values["annotations"][0]["attributes"]["choice"] = "keep"
    values["annotations"].append({"image_id": 1, "category_id": 2, "bbox": [2, 2, 40, 20]})
    boxes.write_text(json.dumps(values))
    # A photo of which the file says nothing is left out, and named.
    photo_party().save(folder / "late.png")
    code, out, err = faceanon(folder, tmp_path / "out", "--boxes", boxes)
    assert code == 3, err
    assert "says nothing of" in out + err
    assert not (tmp_path / "out/late.png").exists()
    manifest = read_manifest(load_photo(tmp_path / "out/sub/party.png"))
    assert (manifest.faces, len(manifest.hidden)) == (2, 1)
    # Other boxes are another run.
    boxes.write_text(json.dumps(values | {"annotations": values["annotations"][1:]}))
    code, _, err = faceanon(folder, tmp_path / "out", "--boxes", boxes)
    assert code == 2
    assert "other options" in err or "--overwrite" in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--write-boxes", "b.json"), "give it too"),
        (("--boxes", "gone.json"), "cannot read the boxes gone.json"),
        (("--boxes", "b.json", "--threshold", "0.5"), "--boxes looks for no faces"),
        (("--threshold", "1.5"), "--threshold is a number above 0, up to 1"),
        (("--threshold", "nan"), "--threshold is a number above 0, up to 1"),
        (("--aligned", "--boxes", "b.json"), "--aligned looks for no faces"),
        (("--list-faces", "--write-boxes", "b.json"), "b.json exists already"),
    ],
    ids=range(7),
)
def test_options_that_do_not_fit_are_refused(faceanon, tmp_path, party, monkeypatch, words, reason):
    monkeypatch.chdir(tmp_path)
    Decisions(()).write(tmp_path / "b.json")
    output = () if "--list-faces" in words else (tmp_path / "out.png",)
    code, _, err = faceanon(party, *output, *words)
    assert code == 2
    assert reason in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out.png").exists()
