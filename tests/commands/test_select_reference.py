"""`--select PHOTO` and `--exclude PHOTO`: the person in a reference photo, found by the bundle's recogniser."""

import argparse
import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from faceanon import cli
from faceanon.commands import anonymize
from faceanon.commands._run import Tally
from faceanon.data.files import read_photos
from faceanon.data.prepared import shipped_photos
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.paths import checkpoints
from faceanon.photo.detect import Detection
from faceanon.photo.file import load_photo
from faceanon.photo.people import Likeness, People, Reference, likeness_of, read_reference, threshold_of
from faceanon.photo.policy import Policy
from faceanon.photo.yunet import YunetDetector
from faceanon.pipeline import Pipeline
from faceanon.weights.bundle import Bundle
from fakes import KeyedTint

SIDE = 128


class Tint(KeyedTint):
    """With the shipped bundle beside it."""

    def __init__(self, bundle):
        super().__init__()
        self.bundle = bundle

    @property
    def framing(self):
        return self.bundle.framing


class KnownFaces:
    """Finds what was drawn, by the picture's pixels."""

    def __init__(self):
        self.known = {}

    def detect(self, image):
        return self.known.get(image.tobytes(), [])


def known_people():
    """Pictures of 256 px of four persons of whom several ship, by number."""
    people = {}
    for photo in [*shipped_photos("test"), *shipped_photos("train")]:
        people.setdefault(photo.identity, []).append(photo.path)
    several = [paths for paths in people.values() if len(paths) >= 4]
    return [read_photos(paths[:4], 256) for paths in several[:4]]


class World:
    """Puts persons side by side in photos, and knows where their faces are."""

    persons = known_people()
    finder = YunetDetector()

    def __init__(self, folder):
        self.folder, self.detector = folder, KnownFaces()

    def draw(self, name, *people, seed=0):
        """A photo with these persons in a row, by number; another seed takes other pictures of them."""
        photo = np.full((SIDE, SIDE * max(len(people), 1), 3), 120 + seed, dtype=np.uint8)
        found = []
        for place, person in enumerate(people):
            picture = self.persons[person][seed % 4]
            x = place * SIDE
            photo[:, x : x + SIDE] = np.asarray(Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
            (face,) = self.finder.detect(picture)[:1]
            points = face.points * SIDE / 256 + np.array([x, 0])
            found.append(Detection((x + 30, 30, x + 98, 106), 0.99, points))
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo).save(path)
        self.detector.known[photo.tobytes()] = found
        return path


@pytest.fixture(scope="module")
def bundle():
    return Bundle("photo128")


@pytest.fixture
def world(tmp_path, monkeypatch, bundle):
    world = World(tmp_path)
    monkeypatch.setattr(anonymize, "load_pipeline", lambda *asked, **more: Pipeline(Tint(bundle), world.detector))
    monkeypatch.setattr(
        Secret, "from_password", lambda text, salt, kdf: Secret.random(int.from_bytes(salt + text.encode(), "big"))
    )
    monkeypatch.setenv("PW", "hush")
    return world


def changed(source, target, faces):
    """Which of the faces in a row were changed."""
    one, other = load_photo(source).pixels, load_photo(target).pixels
    parts = [(one != other)[:, place * SIDE + 40 : place * SIDE + 88].any() for place in range(faces)]
    return [number for number, different in enumerate(parts, 1) if different]


def run(*words):
    return cli.main(["anonymize", *map(str, words), "--password-env", "PW"])


def test_a_person_is_left_or_chosen_by_another_photo_of_them(world, tmp_path, capsys):
    photo, anna = world.draw("party.png", 0, 1, 2), world.draw("anna.png", 1, seed=3)
    assert run(photo, tmp_path / "b.png", "--exclude", anna) == 0
    assert changed(photo, tmp_path / "b.png", 3) == [1, 3]
    assert "1 left readable, as asked" in capsys.readouterr().out
    assert run(photo, tmp_path / "c.png", "--select", anna) == 0
    assert changed(photo, tmp_path / "c.png", 3) == [2]
    assert run(photo, tmp_path / "d.png", "--select", anna, "--select", "3", "--exclude", "1") == 0
    assert changed(photo, tmp_path / "d.png", 3) == [2, 3]
    bob = world.draw("bob.png", 0, seed=5)
    assert run(photo, tmp_path / "e.png", "--exclude", anna, "--exclude", bob) == 0
    assert changed(photo, tmp_path / "e.png", 3) == [3]
    assert b"anna" not in (tmp_path / "e.png").read_bytes()


def test_list_faces_shows_who_is_like_whom(world, capsys):
    photo, anna = world.draw("party.png", 0, 1), world.draw("anna.png", 1, seed=3)
    assert cli.main(["anonymize", str(photo), "--list-faces", "--exclude", str(anna)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith(": model")
    assert "left (like anna.png, 0." in lines[2]


def test_a_person_who_is_not_there_is_said_to_be_missing(world, tmp_path, capsys):
    photo, other = world.draw("party.png", 0, 1), world.draw("carl.png", 3, seed=4)
    assert run(photo, tmp_path / "b.png", "--exclude", other) == 0
    assert changed(photo, tmp_path / "b.png", 2) == [1, 2]
    assert "note: nobody in the photos of this run is like carl.png" in capsys.readouterr().out
    assert run(photo, tmp_path / "c.png", "--select", other) == 2
    assert "every face is to be left (not like carl.png, " in capsys.readouterr().err
    assert not (tmp_path / "c.png").exists()


def test_a_folder_leaves_the_person_wherever_she_is(world, tmp_path, capsys):
    anna = world.draw("anna.png", 1, seed=3)
    for index, people in enumerate([(0, 1), (2, 0), (1, 2)]):
        world.draw(f"in/{index}.png", *people, seed=6 + index)
    words = tmp_path / "in", tmp_path / "out", "--exclude", anna
    assert run(*words) == 0
    got = [changed(tmp_path / f"in/{index}.png", tmp_path / f"out/{index}.png", 2) for index in range(3)]
    assert got == [[1], [1, 2], [2]]
    rows = list(csv.DictReader((tmp_path / "out/faceanon.csv").read_text().splitlines()))
    left = [(row["source"], row["face"]) for row in rows if row["done_by"] == "left"]
    assert left == [("0.png", "2"), ("2.png", "1")]
    assert all(row["note"].startswith("like anna.png, ") for row in rows if row["done_by"] == "left")
    (tmp_path / "out/1.png").unlink()
    capsys.readouterr()
    assert run(*words[:2]) == 2  # another choice does not go on
    assert "holds a run with exclude" in capsys.readouterr().err
    assert run(*words) == 0


@pytest.mark.parametrize(
    ("people", "message"), [((), "shows no face that the detector finds"), ((0, 1), "shows 2 faces")]
)
def test_a_reference_must_show_one_face(world, tmp_path, capsys, people, message):
    photo, reference = world.draw("party.png", 0, 1, 2), world.draw("reference.png", *people, seed=9)
    assert run(photo, tmp_path / "b.png", "--exclude", reference) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "reference.png" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "b.png").exists()


def test_values_that_do_not_fit(world, tmp_path, capsys):
    photo, anna = world.draw("in/party.png", 0, 1), world.draw("anna.png", 1)
    (tmp_path / "text.jpg").write_text("no picture")
    for words, message in (
        ([photo, "--select", "annna.png"], "takes numbers of faces such as 1,3 (see --list-faces), or a photo"),
        ([photo, "--exclude", tmp_path / "text.jpg"], "is not a picture"),
        ([photo, "--exclude", anna, "--aligned"], "do not fit --aligned"),
        ([photo, "--exclude", "1", "--likeness", "0.5"], "chosen by a photo"),
        ([photo, "--exclude", anna, "--likeness", "1.5"], "between -1 and 1"),
        ([photo, "--exclude", anna, "--likeness", "nan"], "between -1 and 1"),
        ([tmp_path / "in", "--exclude", "1", "--exclude", anna], "numbers in --select and --exclude are those of one"),
        ([tmp_path / "a.mp4", "--exclude", "1"], "for a film give a photo of the person"),
        ([photo, "--exclude", anna, "--select", anna], "is named by --select and by --exclude"),
    ):
        assert run(words[0], tmp_path / "b.png", *words[1:]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "b.png").exists()


def test_the_threshold_is_the_models_own(tmp_path):
    model = tmp_path / "model"
    with pytest.raises(UserError, match=r"results\.json says of no threshold at which mobileface_v2 .* --likeness"):
        threshold_of("mobileface_v2", model)
    model.mkdir()
    for text in ("no json", "[]", '{"figures": {}}', '{"figures": {"threshold/mobileface_v2": null}}'):
        (model / "results.json").write_text(text)
        with pytest.raises(UserError, match="--likeness"):
            threshold_of("mobileface_v2", model)
    shutil.copy(checkpoints() / "persona_photo128/results.json", model)
    figures = json.loads((model / "results.json").read_text())["figures"]
    assert threshold_of("mobileface_v2", model) == figures["threshold/mobileface_v2"]


def test_likeness_moves_the_threshold(world, tmp_path):
    photo, anna = world.draw("party.png", 0, 1, 2), world.draw("anna.png", 1, seed=3)
    assert run(photo, tmp_path / "b.png", "--exclude", anna, "--likeness", "0.9999") == 0
    assert changed(photo, tmp_path / "b.png", 3) == [1, 2, 3]
    assert run(photo, tmp_path / "c.png", "--select", anna, "--likeness", "-0.9999") == 0
    assert changed(photo, tmp_path / "c.png", 3) == [1, 2, 3]


def test_all_who_are_alike_are_changed_but_only_the_nearest_is_left():
    """An error must not show somebody."""
    codes = np.array([[1.0, 0.1], [1.0, 0.3], [0.0, 1.0]], np.float32)
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    likeness = Likeness(lambda faces: codes[: len(faces)], 16, {"scale": 1.0, "right": 0.0, "down": 0.0}, 0.8)
    anna = Reference("anna", np.array([1.0, 0.0], np.float32))
    shape = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]])
    found = [Detection((x - 15, 20, x + 15, 60), 0.9, shape * 15 + np.array([x, 35])) for x in (40, 90, 140)]
    pixels = np.zeros((80, 180, 3), dtype=np.uint8)
    from faceanon.photo.policy import decide

    faces = decide(found, 180, 80, likeness.framing, Policy(), "x")
    assert People(likeness, select=(anna,)).numbered(pixels, faces, Policy()).select == {1, 2}
    assert People(likeness, exclude=(anna,)).numbered(pixels, faces, Policy()).exclude == {1}
    both = People(likeness, exclude=(anna,)).numbered(pixels, faces, Policy(exclude=frozenset({3})))
    assert both.exclude == {1, 3}
    assert both.why == {1: "like anna, 1.00"}
    nobody = People(likeness, (anna,), (anna,)).numbered(pixels, [], Policy())
    assert (nobody.select, nobody.exclude) == (frozenset(), frozenset())


def test_small_faces_are_not_mistaken_for_somebody(world, tmp_path):
    """Below --min-face nobody is recognised, so nobody is left readable."""
    photo, anna = world.draw("party.png", 0, 1), world.draw("anna.png", 1, seed=3)
    assert run(photo, tmp_path / "b.png", "--exclude", anna, "--min-face", "90") == 0
    assert changed(photo, tmp_path / "b.png", 2) == [1, 2]


def test_the_judge_stands_in_and_a_bundle_without_either_is_named(bundle, world):
    class Without:
        folder, name, image_size, framing, judge, device = bundle.folder, "x", 128, bundle.framing, bundle.judge, "cpu"

        def __init__(self, *roles):
            self.roles = roles

        def has(self, role):
            return role in self.roles

        def require(self, *roles):
            raise UserError(f"bundle 'x' has no {roles[0]}")

    anna = world.draw("anna.png", 1)
    likeness = likeness_of(Without("judge"), 0.5)
    assert np.linalg.norm(read_reference(anna, world.detector, likeness).code) == pytest.approx(1, abs=1e-5)
    with pytest.raises(UserError, match="has no recogniser"):
        likeness_of(Without(), 0.5)


def test_the_help_says_what_a_value_may_be():
    parser = argparse.ArgumentParser()
    anonymize.add_arguments(parser)
    text = " ".join(parser.format_help().split())
    assert "--select N,N|PHOTO" in text
    assert "--likeness COSINE" in text


def test_a_person_whom_one_process_has_met_is_not_missing():
    one, other = Tally(photos=2, unmet=["anna.png", "bob.png"]), Tally(photos=1, unmet=["bob.png"])
    assert (one + other).unmet == ["bob.png"]
    assert (one + other).photos == 3


def test_a_run_that_goes_on_speaks_of_its_own_photos_only(world, tmp_path, capsys):
    anna = world.draw("anna.png", 1, seed=3)
    for index, people in enumerate([(2, 0), (0, 1), (0, 2)]):  # the first is done again to check the password
        world.draw(f"in/{index}.png", *people, seed=6 + index)
    words = tmp_path / "in", tmp_path / "out", "--exclude", anna
    assert run(*words) == 0
    assert "nobody" not in capsys.readouterr().out
    (tmp_path / "out/2.png").unlink()
    assert run(*words) == 0
    assert "nobody in the photos done this time is like anna.png" in capsys.readouterr().out.replace("\n", " ")
