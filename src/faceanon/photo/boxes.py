"""Decisions on faces in a file: COCO's JSON, as `--write-boxes` and the desk write it and `--boxes` reads it.

    {"images": [{"id": 1, "file_name": "party.jpg", "width": 640, "height": 480}],
     "categories": [{"id": 1, "name": "face"}, {"id": 2, "name": "region"}],
     "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [x, y, width, height], "score": 0.98,
                      "keypoints": [x, y, 2, ...], "attributes": {"choice": "stranger", "stranger": 0}}]}

Of a film each frame that says something is an image with a `frame_index`, and the boxes of one followed face share a
`track_id`. Pixels are those of the upright photo. `keypoints` and `attributes` may be left out. A category that is not
`face` is a region: a plate, a screen, a tattoo.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.manifest import MAX_SIDE, CropGeometry
from faceanon.photo.agreement import overlaps
from faceanon.photo.crop_paste import crop
from faceanon.photo.detect import Detection, Detector
from faceanon.photo.policy import Face

Choice = Literal["stranger", "keep", "blur", "pixelate", "mask"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
CATEGORIES = ("face", "region")
MOST_STRANGERS = 1000
SAME = 0.3  # intersection over union, from which on a box and a detected face are the same face
AROUND = 2.0  # side of the part of a photo that is searched for the points of a face, over that of its box
SEARCHED = 320  # px; side of that part
POINTS = 15  # numbers of COCO's key points: x, y and visibility of five
USUAL = ((0.3, 0.4), (0.7, 0.4), (0.5, 0.6), (0.35, 0.78), (0.65, 0.78))  # x and y in the box, from 0 to 1
SEEN = 2  # COCO's word for a point that shows


@dataclass(frozen=True)
class DecidedBox:
    """A face or a region, and what is to be done with it.

    Args:
        box: x1, y1, x2, y2 in pixels of the upright photo.
        choice: `stranger`, `keep`, or what hides it for good; a region is never a stranger.
        stranger: How many strangers of the key are passed over for this face.
        region: No face: the box alone is hidden.
        score: Probability of being a face.
        points: `(5, 2)` as in `Detection`; where they are not given, or lie outside the box, they are looked for.
        track: Of a film: number of the followed face.
    """

    box: tuple[float, float, float, float]
    choice: Choice = "stranger"
    stranger: int = 0
    region: bool = False
    score: float = 1.0
    points: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    track: int | None = None


def said_of_people(frames: Iterable[Sequence[DecidedBox]]) -> dict[int | None, tuple[bool, int]]:
    """Of each track of a film: whether its boxes hide it, and how many strangers of the key are passed over.

    One box that does not say `keep` hides the person in all frames, and one is enough to say which stranger it is.
    """
    said: dict[int | None, tuple[bool, int]] = {}
    for boxes in frames:
        for box in boxes:
            hidden, stranger = said.get(box.track, (False, 0))
            said[box.track] = hidden or box.choice != "keep", max(stranger, box.stranger)
    return said


@dataclass(frozen=True)
class DecidedPhoto:
    """Everything that was decided about one photo, or one frame of a film.

    Args:
        name: Path of the photo, below the folder that was looked through.
        width: Of the upright photo, in pixels.
        height: Likewise.
        boxes: None is left out: what has no box stays as it is.
        frame: Number of the frame; None: it is a photo.
    """

    name: str
    width: int
    height: int
    boxes: tuple[DecidedBox, ...]
    frame: int | None = None


@dataclass(frozen=True)
class Decisions:
    """The content of a file of boxes.

    Args:
        photos: In any order.
        name: What to call the file in messages.

    Examples:
        >>> from faceanon.photo.boxes import DecidedBox, DecidedPhoto, Decisions
        >>> face = DecidedBox((10, 20, 50, 70), "keep")
        >>> decisions = Decisions((DecidedPhoto("party.jpg", 640, 480, (face,)),), "boxes.json")
        >>> decisions.of("photos/party.jpg", 640, 480)[0].choice
        'keep'
        >>> decisions.of("photos/beach.jpg", 640, 480)
        Traceback (most recent call last):
        faceanon.errors.UserError: boxes.json says nothing of photos/beach.jpg; ...
    """

    photos: tuple[DecidedPhoto, ...]
    name: str = "the boxes"

    def of(self, photo: str, width: int, height: int) -> tuple[DecidedBox, ...]:
        """What was decided about a photo of this size in pixels.

        Raises:
            UserError: If it is named nowhere, twice, or has another size.
        """
        matching = []
        for decided in self._about(photo, width, height):
            if decided.frame is None:
                matching.append(decided)
        if len(matching) != 1:
            often = "as a film" if not matching else "twice"
            raise UserError(f"{self.name} names {photo} {often}")
        return matching[0].boxes

    def of_film(self, film: str, width: int, height: int) -> dict[int, tuple[DecidedBox, ...]]:
        """What was decided about a film of this size in pixels, by the number of the frame.

        Raises:
            UserError: If it is named nowhere, has another size, or a box says what films do not have.
        """
        frames: dict[int, tuple[DecidedBox, ...]] = {}
        for decided in self._about(film, width, height):
            if decided.frame is None:
                raise UserError(f"{self.name} names {film} as a photo: an image of a film has a frame_index")
            for box in decided.boxes:
                if box.track is None:
                    raise UserError(f"{self.name}: a box in frame {decided.frame} of {film} has no track_id")
                if box.region or box.choice not in ("stranger", "keep"):
                    raise UserError(
                        f"{self.name}: in a film a box is a face that is a stranger or keep, not the box in frame "
                        f"{decided.frame} of {film}"
                    )
            frames[decided.frame] = frames.get(decided.frame, ()) + decided.boxes
        return frames

    @cached_property
    def _by_file(self) -> dict[str, list[DecidedPhoto]]:
        """The photos by the last part of their names: a folder may have thousands."""
        photos: dict[str, list[DecidedPhoto]] = {}
        for decided in self.photos:
            photos.setdefault(PurePath(decided.name).name, []).append(decided)
        return photos

    def _about(self, name: str, width: int, height: int) -> list[DecidedPhoto]:
        parts = PurePath(name).parts
        matching: list[DecidedPhoto] = []
        longest = 0
        for decided in self._by_file.get(PurePath(name).name, ()):
            own = PurePath(decided.name).parts
            # Names are relative to the folder that was looked through, which may lie elsewhere by now. Of `b.jpg` and
            # `a/b.jpg` the longer one is meant by `photos/a/b.jpg`.
            if parts[-len(own) :] == own and len(own) >= longest:
                if len(own) > longest:
                    matching = []
                longest = len(own)
                matching.append(decided)
        if not matching:
            raise UserError(f"{self.name} says nothing of {name}; write its boxes with --list-faces --write-boxes")
        for decided in matching:
            if (decided.width, decided.height) != (width, height):
                raise UserError(
                    f"{self.name} is for another {decided.name}: of {decided.width}x{decided.height} px, and {name} "
                    f"has {width}x{height}"
                )
        return matching

    def to_json(self) -> str:
        """The decisions as the text of a file in COCO's format."""
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for photo_id, photo in enumerate(self.photos, 1):
            image = {"id": photo_id, "file_name": photo.name, "width": photo.width, "height": photo.height}
            images.append(image if photo.frame is None else {**image, "frame_index": photo.frame})
            for box in photo.boxes:
                annotations.append(_annotation(box, len(annotations) + 1, photo_id))
        categories = [{"id": number, "name": name} for number, name in enumerate(CATEGORIES, 1)]
        values = {"images": images, "categories": categories, "annotations": annotations}
        return json.dumps(values, indent=1) + "\n"

    def write(self, path: Path) -> None:
        """Write the file.

        Raises:
            UserError: If it cannot be written.
        """
        write_atomic(path, self.to_json().encode())


def decided_photo(name: str, width: int, height: int, faces: Sequence[Face]) -> DecidedPhoto:
    """What the program would do with the faces of a photo, for a person to change.

    Args:
        name: Of the photo.
        width: Of the upright photo, in pixels.
        height: Likewise.
        faces: As found; one that is too small for the model is a stranger here, for the policy to judge again.
    """
    boxes = []
    for face in faces:
        choice: Choice = "keep" if face.treatment == "left" else "stranger"
        boxes.append(DecidedBox(face.box, choice, score=face.score, points=face.points))
    return DecidedPhoto(name, width, height, tuple(boxes))


def read_decisions(path: Path) -> Decisions:
    """Decisions from a file of this project or of another detector.

    Raises:
        UserError: If there is none, or it is no file of boxes.
    """
    try:
        values = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the boxes {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no file of boxes: it is not JSON") from error
    try:
        return Decisions(_photos(values), str(path))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{path} is no file of boxes in COCO's format: {_said(error)}") from error


def detections(boxes: Sequence[DecidedBox], pixels: NDArray[np.uint8], finder: Detector) -> list[Detection]:
    """The boxes as a detector would give them; points that nobody gave are looked for.

    Args:
        boxes: Of one photo.
        pixels: RGB `(H, W, 3)` uint8.
        finder: Looks for the points, in enlarged parts of the photo.

    Returns:
        As many; of a region, and of a box in which no face is found, the points are not finite.
    """
    given = []
    for box in boxes:
        points = None
        if not box.region:
            points = box.points if _holds(box) else _points_in(box.box, pixels, finder)
        given.append(Detection(box.box, box.score, np.full((5, 2), np.nan) if points is None else points))
    return given


def points_of_a_box(box: tuple[float, float, float, float]) -> NDArray[np.float64]:
    """Where the five points of an upright face lie that fills a box, for one in which no face is found."""
    x1, y1, x2, y2 = box
    points: NDArray[np.float64] = np.array(USUAL) * (x2 - x1, y2 - y1) + (x1, y1)
    return points


def as_decided(faces: Sequence[Face], boxes: Sequence[DecidedBox], name: str) -> list[Face]:
    """What is to be done with faces by the policy, and by the boxes that they were made from.

    Args:
        faces: One for each box; whom the policy leaves is left.
        boxes: In the same order.
        name: What to call the file of the boxes.
    """
    decided = []
    for face, box in zip(faces, boxes, strict=True):
        asked = f"as {name} says"
        if box.region:
            face = replace(face, geometry=None, region=True, treatment="model")
        if face.treatment == "left":
            decided.append(face)
        elif box.choice == "keep":
            decided.append(replace(face, treatment="left", reason=asked))
        elif box.choice == "stranger":
            decided.append(replace(face, stranger=box.stranger))
        else:
            decided.append(face.hidden_by(box.choice, asked))
    return decided


def _points_in(
    box: tuple[float, float, float, float], pixels: NDArray[np.uint8], finder: Detector
) -> NDArray[np.float64] | None:
    """The five points of the face that fills a box best, or None."""
    x1, y1, x2, y2 = box
    center = np.array([(x1 + x2) / 2, (y1 + y2) / 2])
    half = AROUND / 2 * max(x2 - x1, y2 - y1)
    try:
        part = crop(pixels, CropGeometry(center[0], center[1], half, 0.0), SEARCHED)
    # The box lies outside the photo.
    except UserError:
        return None
    shown = ((part.transpose(1, 2, 0) + 1) * 127.5).round().astype(np.uint8)

    def placed(points: NDArray[np.float64]) -> NDArray[np.float64]:
        placed: NDArray[np.float64] = (points * 2 / SEARCHED - 1) * half + center
        return placed

    best = None
    most = SAME
    for face in finder.detect(np.ascontiguousarray(shown)):
        corners = placed(np.array(face.box).reshape(2, 2)).ravel()
        share = float(overlaps(corners, np.array([box]))[0])
        if share >= most:
            most = share
            best = placed(face.points)
    return best


def _holds(box: DecidedBox) -> bool:
    """Whether the middle of the points lies in the box, which may have been moved to another face since."""
    if box.points is None:
        return False
    x, y = box.points.mean(0).tolist()
    x1, y1, x2, y2 = box.box
    return bool(x1 <= x <= x2 and y1 <= y <= y2)


def _annotation(box: DecidedBox, number: int, photo: int) -> dict[str, Any]:
    x1, y1, x2, y2 = (round(float(value), 2) for value in box.box)
    wide, high = round(x2 - x1, 2), round(y2 - y1, 2)
    points = [] if box.points is None else np.column_stack([box.points, np.full(5, SEEN)]).round(2).ravel().tolist()
    values = {
        "id": number,
        "image_id": photo,
        "category_id": 1 + CATEGORIES.index("region" if box.region else "face"),
        "bbox": [x1, y1, wide, high],
        "area": round(wide * high, 2),
        "iscrowd": 0,
        "score": round(box.score, 4),
        "keypoints": points,
        "num_keypoints": len(points) // 3,
        "attributes": {"choice": box.choice, "stranger": box.stranger},
    }
    return values if box.track is None else {**values, "track_id": box.track}


def _photos(values: Mapping[str, Any]) -> tuple[DecidedPhoto, ...]:
    names = {entry["id"]: str(entry["name"]) for entry in values["categories"]}
    boxes: dict[Any, list[DecidedBox]] = {entry["id"]: [] for entry in values["images"]}
    for entry in values["annotations"]:
        boxes[entry["image_id"]].append(_box(entry, names[entry["category_id"]]))
    photos = []
    for entry in values["images"]:
        own = tuple(boxes[entry["id"]])
        frame = entry.get("frame_index")
        photos.append(
            DecidedPhoto(
                str(entry["file_name"]),
                int(entry["width"]),
                int(entry["height"]),
                own,
                None if frame is None else int(frame),
            )
        )
    return tuple(photos)


def _box(entry: Mapping[str, Any], category: str) -> DecidedBox:
    x, y, wide, high = _finite(entry["bbox"], 4)
    if wide <= 0 or high <= 0:
        raise ValueError(f"a box {wide:g} px wide and {high:g} px high")
    region = category.lower() != "face"
    attributes = entry.get("attributes", {})
    choice = attributes.get("choice", "blur" if region else "stranger")
    if choice not in CHOICES or (region and choice == "stranger"):
        raise ValueError(f"a {'region' if region else 'face'} cannot be {choice!r}; there are {', '.join(CHOICES)}")
    stranger = attributes.get("stranger", 0)
    if not isinstance(stranger, int) or not 0 <= stranger <= MOST_STRANGERS:
        raise ValueError(f"stranger {stranger!r}, and it is a number from 0 to {MOST_STRANGERS}")
    points = None
    if len(entry.get("keypoints", ())) == POINTS:
        points = np.array(_finite(entry["keypoints"], POINTS)).reshape(5, 3)[:, :2]
    (score,) = _finite([entry.get("score", 1.0)], 1)
    track = entry.get("track_id")
    return DecidedBox(
        (x, y, x + wide, y + high), choice, stranger, region, score, points, None if track is None else int(track)
    )


def _finite(values: Iterable[Any], count: int) -> list[float]:
    numbers = [float(value) for value in values]
    if len(numbers) != count or not all(math.isfinite(number) and abs(number) <= MAX_SIDE for number in numbers):
        raise ValueError(f"{count} numbers were expected, not {numbers}")
    return numbers


def _said(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing or names nothing"
    return str(error)
