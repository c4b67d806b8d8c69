"""No face stays readable in silence: what the model cannot have is hidden, and said."""

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.photo.detect import Detection
from faceanon.photo.file import load_photo, read_manifest
from faceanon.photo.policy import Policy, decide, hide
from faceanon.pipeline import Pipeline
from fakes import FixedDetector, KeyedTint

FRAMING = {"scale": 1.0, "right": 0.0, "down": 0.0}
SHAPE = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]])


def face_at(x, y, eyes, **changes):
    points = changes.get("points", SHAPE * eyes + [x, y])
    return Detection((x - eyes, y - eyes, x + eyes, y + 2 * eyes), 0.99, points)


def make_photo():
    noise = np.random.default_rng(0).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise)).copy()


BIG, TINY = face_at(80, 100, 25), face_at(230, 110, 6)
FLAT = face_at(230, 110, 20, points=np.full((5, 2), 7.0))
NOWHERE = face_at(230, 110, 20, points=np.full((5, 2), np.nan))
OUTSIDE = face_at(-30, 100, 20)


def treatments(found, **policy):
    return [face.treatment for face in decide(found, 320, 240, FRAMING, Policy(**policy), "a.png")]


def test_what_the_model_cannot_have_is_hidden():
    found = [BIG, TINY, FLAT, NOWHERE, OUTSIDE]
    assert treatments(found) == ["model", "blur", "blur", "blur", "blur"]
    assert treatments(found, small="mask", min_face=0) == ["model", "model", "mask", "mask", "mask"]
    reasons = [face.reason for face in decide(found, 320, 240, FRAMING, Policy(), "a.png")]
    assert reasons[0] == ""
    assert "smaller than 20 px" in reasons[1]
    assert "outside" in reasons[4]


def test_selection_is_by_number():
    assert treatments([BIG, BIG, BIG], exclude=frozenset({2})) == ["model", "left", "model"]
    assert treatments([BIG, TINY, BIG], select=frozenset({3})) == ["left", "left", "model"]
    for number in (0, 4):
        with pytest.raises(UserError, match=f"a.png has no face {number}; its faces are 1 to 3"):
            treatments([BIG] * 3, exclude=frozenset({number}))


@pytest.mark.parametrize("method", ["blur", "pixelate", "mask"])
def test_each_method_takes_the_detail_away(method):
    pixels = make_photo()
    before = pixels.copy()
    hide(pixels, decide([TINY], 320, 240, FRAMING, Policy(small=method), "a.png")[0])
    inside = pixels[104:122, 224:236].astype(float)
    assert inside.std() < before[104:122, 224:236].std() / 3
    np.testing.assert_array_equal(pixels[:, :200], before[:, :200])
    hide(pixels, decide([face_at(-500, -500, 6)], 320, 240, FRAMING, Policy(small=method), "a.png")[0])


def test_refuse_leaves_the_photo_undone():
    pipe = Pipeline(KeyedTint(), FixedDetector([BIG, TINY]), policy=Policy(small="refuse"))
    with pytest.raises(UserError, match=r"face 2 cannot be given to the model \(smaller than 20 px\)"):
        pipe.anonymize(make_photo(), Secret.random(1))


def test_hidden_and_left_faces_are_counted_and_told():
    policy = Policy(exclude=frozenset({3}))
    pipe = Pipeline(KeyedTint(), FixedDetector([BIG, TINY, face_at(230, 200, 20)]), policy=policy)
    photo = make_photo()
    outcome = pipe.anonymize_photo(load_photo(photo), Secret.random(1))
    assert (outcome.faces, outcome.hidden, outcome.left) == (2, 1, 1)
    manifest = read_manifest(outcome.photo)
    assert manifest.faces == 1
    assert [face.by for face in manifest.hidden] == ["blur"]
    assert [face.treatment for face in outcome.records] == ["model", "blur", "left"]
    np.testing.assert_array_equal(outcome.photo.pixels[185:235, 215:245], photo[185:235, 215:245])


def test_a_face_the_model_fails_on_is_hidden():
    class FailsOnBright(KeyedTint):
        def anonymize(self, image, key):
            bright = image.mean((1, 2, 3), keepdim=True) > 0.3
            return torch.where(bright, torch.nan, super().anonymize(image, key))

    photo = make_photo() // 2
    photo[:, 160:] += 127
    pipe = Pipeline(FailsOnBright(), FixedDetector([BIG, face_at(240, 110, 18)]), policy=Policy(small="mask"))
    outcome = pipe.anonymize_photo(load_photo(photo), Secret.random(1))
    assert [face.treatment for face in outcome.records] == ["model", "mask"]
    assert outcome.records[1].reason == "the model failed on it"
    assert read_manifest(outcome.photo).faces == 1
    assert outcome.photo.pixels[105:120, 232:248].std() < 3


def test_all_faces_excluded_is_a_mistake():
    pipe = Pipeline(KeyedTint(), FixedDetector([BIG]), policy=Policy(exclude=frozenset({1})))
    with pytest.raises(UserError, match="nothing to do"):
        pipe.anonymize(make_photo(), Secret.random(1))


@pytest.mark.parametrize("count", [1, 2, 30, 100])
def test_up_to_a_hundred_faces(count):
    found = [face_at(20 + 31 * (index % 10), 14 + 22 * (index // 10), 7) for index in range(count)]
    pipe = Pipeline(KeyedTint(16), FixedDetector(found), policy=Policy(min_face=10))
    outcome = pipe.anonymize_photo(load_photo(make_photo()), Secret.random(1))
    assert (outcome.faces, outcome.hidden) == (count, 0)
    assert read_manifest(outcome.photo).faces == count


@pytest.mark.parametrize("options", [{"min_face": -1}, {"min_face": float("nan")}, {"small": "smile"}])
def test_impossible_policies_are_refused(options):
    with pytest.raises(UserError, match="small"):
        Policy(**options)
