"""A film under review: the people who were followed through it, on a time line and on each frame."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from faceanon.errors import UserError
from faceanon.photo.boxes import Choice, DecidedBox, DecidedPhoto, said_of_people
from faceanon.pipeline.video.frames import VideoInfo, read_frames
from faceanon.web.review import COLOURS, CORNERS, NEAR, ScreenBox, coloured, on_screen, screen_scale, screen_size

NEW = ("new A", "new B", "new C")  # names of people whom the visitor draws
THUMBNAIL = 40  # px
Corners = tuple[float, float, float, float]


@dataclass
class FilmPerson:
    """One followed person.

    Args:
        name: On the screen.
        boxes: By frame; between two of them the person is on the straight line.
        hidden: Whether a stranger takes the place; else the person stays.
        stranger: How many strangers of the key are passed over.
        picture: `(T, T, 3)` uint8 of the face, or None.
    """

    name: str
    boxes: dict[int, DecidedBox]
    hidden: bool = True
    stranger: int = 0
    picture: NDArray[np.uint8] | None = None

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last frame with a box."""
        return min(self.boxes), max(self.boxes)

    @property
    def choice(self) -> Choice:
        """What is done with the person, as boxes say it."""
        return "stranger" if self.hidden else "keep"

    def at(self, frame: int) -> Corners | None:
        """Where the person is in a frame; None before the first box and after the last one."""
        first, last = self.span
        if not first <= frame <= last:
            return None
        frames = sorted(self.boxes)
        corners = np.array([self.boxes[number].box for number in frames])
        x1, y1, x2, y2 = (float(np.interp(frame, frames, side)) for side in corners.T)
        return x1, y1, x2, y2


@dataclass
class ReviewedFilm:
    """One film; it stands in a review beside photos.

    Args:
        path: As uploaded.
        info: Of the film; None until it is looked at.
        frames: Number of its frames.
        frame: The one on the screen.
        people: Everybody.
        seen: Whether the visitor said so.
        failed: Why it cannot be used; empty where it can.
    """

    path: Path
    info: VideoInfo | None = None
    frames: int = 0
    frame: int = 0
    people: list[FilmPerson] = field(default_factory=list)
    seen: bool = False
    failed: str = ""

    def show(self, info: VideoInfo, frames: int, found: Sequence[DecidedPhoto]) -> None:
        """Put everybody on the time line.

        Args:
            info: Of the film.
            frames: Number of its frames.
            found: The boxes of everybody, frame by frame.
        """
        self.info = info
        self.frames = frames
        people: dict[int | None, FilmPerson] = {}
        for decided in found:
            for box in decided.boxes:
                assert decided.frame is not None
                assert box.track is not None
                person = people.setdefault(box.track, FilmPerson(f"person {len(people) + 1}", {}))
                person.boxes[decided.frame] = box
        self.people = list(people.values())
        # As where it is anonymized.
        for track, said in said_of_people(decided.boxes for decided in found).items():
            people[track].hidden, people[track].stranger = said
        self._take_pictures()

    def line(self) -> str:
        """What was found, for people."""
        if not self.people:
            return "No face found. Draw a box in the first and in the last frame in which you see one."
        count = len(self.people)
        found = f"Found: {count} {'people' if count != 1 else 'person'}."
        return f"{found} For who is missing draw a box in the first and in the last frame; take the tick off who stays."

    def screen(self) -> NDArray[np.uint8]:
        """The frame on the screen, `(h, w, 3)` uint8."""
        assert self.info is not None
        size = screen_size(self.info.width, self.info.height)
        for frame in read_frames(self.path, {self.frame}):
            return np.asarray(Image.fromarray(frame.pixels).resize(size, Image.Resampling.BOX))
        if self.frame == 0:
            raise UserError(f"{self.path} has no frame that can be shown; the file is damaged or cut short")
        # The file has promised more frames than it has.
        self.frames = self.frame
        self.frame = 0
        return self.screen()

    def boxes(self) -> list[ScreenBox]:
        """Where everybody is in that frame."""
        shown = []
        for person in self.people:
            corners = person.at(self.frame)
            if corners is not None:
                shown.append(coloured(on_screen(corners, self._scale), person.name, COLOURS[person.choice]))
        return shown

    def keep(self, drawn: Sequence[ScreenBox], hidden: Sequence[str], others: Sequence[str]) -> None:
        """What the visitor made of the frame on the screen.

        Args:
            drawn: Its boxes. One that is gone is no longer a box of that person in this frame.
            hidden: Names of the people who are to be hidden.
            others: Names of those who are to become another stranger of the password.
        """
        before = {box["label"]: box for box in self.boxes()}
        for person in self.people:
            person.hidden = person.name in hidden
            person.stranger = max(person.stranger, 1) if person.name in others else 0
        people = {person.name: person for person in self.people}
        names = set()
        for box in drawn:
            name = str(box.get("label")) or NEW[0]
            names.add(name)
            if name in before and max(abs(box[side] - before[name][side]) for side in CORNERS) <= NEAR:
                continue
            if name not in people:
                people[name] = FilmPerson(name, {})
                self.people.append(people[name])
            x1, y1, x2, y2 = (box[side] / scale for side, scale in zip(CORNERS, self._scale * 2, strict=True))
            people[name].boxes[self.frame] = DecidedBox((x1, y1, x2, y2))
        for name in set(before) - names:
            people[name].boxes.pop(self.frame, None)
        # Somebody without a box is nobody.
        self.people = [person for person in self.people if person.boxes]

    def decided(self) -> tuple[DecidedPhoto, ...]:
        """What the time line says, frame by frame."""
        assert self.info is not None
        frames: dict[int, list[DecidedBox]] = {}
        for number, person in enumerate(self.people):
            for frame, box in person.boxes.items():
                said = replace(box, choice=person.choice, stranger=person.stranger, track=number)
                frames.setdefault(frame, []).append(said)
        photos = []
        for frame, boxes in sorted(frames.items()):
            photos.append(DecidedPhoto(self.path.name, self.info.width, self.info.height, tuple(boxes), frame))
        return tuple(photos)

    def timeline(self) -> str:
        """Who is in the film when, as HTML."""
        rows = []
        for person in self.people:
            first, last = person.span
            left = 100 * first / max(1, self.frames)
            wide = max(1.0, 100 * (last + 1 - first) / max(1, self.frames))
            bar = f'<i style="left:{left:.1f}%;width:{wide:.1f}%;background:{COLOURS[person.choice]}"></i>'
            span = f"{self._time(first)} to {self._time(last)}"
            rows.append(
                f"<li>{_picture(person.picture)}<b>{html.escape(person.name)}</b><span>{bar}</span><small>{span}</small></li>"
            )
        return f'<ul class="fa-timeline">{"".join(rows)}</ul>'

    @property
    def colours(self) -> dict[str, str]:
        """By the name that a box may have."""
        people = {person.name: COLOURS[person.choice] for person in self.people}
        return dict.fromkeys(NEW, COLOURS["stranger"]) | people

    @property
    def _scale(self) -> tuple[float, float]:
        assert self.info is not None
        return screen_scale(self.info.width, self.info.height)

    def _time(self, frame: int) -> str:
        assert self.info is not None
        seconds = frame / self.info.rate
        return f"{int(seconds // 60)}:{seconds % 60:04.1f}"

    def _take_pictures(self) -> None:
        """Of each person's face, in the middle of the boxes."""
        wanted: dict[int, list[FilmPerson]] = {}
        for person in self.people:
            frames = sorted(person.boxes)
            wanted.setdefault(frames[len(frames) // 2], []).append(person)
        if not wanted:
            return
        for frame in read_frames(self.path, wanted):
            for person in wanted[frame.index]:
                face = Image.fromarray(frame.pixels).crop(person.boxes[frame.index].box)
                person.picture = np.asarray(face.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX))
            if frame.index == max(wanted):
                return


def _picture(pixels: NDArray[np.uint8] | None) -> str:
    if pixels is None:
        return "<em></em>"
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=85)
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}">'
