"""What one answer of the page has made: pictures and films, counted, named, and packed into one file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from faceanon.errors import UserError
from faceanon.key import Password
from faceanon.paths import is_video
from faceanon.pipeline.file import anonymize_file, recover_file
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.steps import Outcome
from faceanon.pipeline.video.anonymize import VideoOptions, anonymize_video
from faceanon.pipeline.video.frames import read_frames
from faceanon.pipeline.video.recover import recover_video

MOST_PHOTOS = 100  # and films of one review
MOST_UNPACKED = 2_000_000_000  # bytes of the files in a ZIP


@dataclass
class PageResults:
    """What an answer has made so far.

    Args:
        place: Where it is written.
        password: Of the visitor.
    """

    place: Path
    password: Password
    files: list[Path] = field(default_factory=list)
    picture: Path | None = None
    count: int = 0
    faces: int = 0
    hidden: int = 0
    left: int = 0
    coarse: int = 0

    def hide(self, pipeline: Pipeline, path: Path) -> None:
        """Anonymize a photo or a film."""
        target = self._free(f"{_plain(path.stem)}_anon", ".mp4" if is_video(path.name) else ".png")
        if is_video(path.name):
            film = anonymize_video(pipeline, path, target, self.password, VideoOptions(probe=False))
            self.faces += sum(bool(report.track.segments) for report in film.tracks)
            self.left += len(film.stays)
            self._add_film(target, film.frames // 2, [] if film.sidecar is None else [film.sidecar])
            return
        self._add(target, anonymize_file(pipeline, path, target, self.password))

    def bring_back(self, pipeline: Pipeline, path: Path) -> None:
        """Recover a photo or a film."""
        stem = f"{_plain(path.stem).removesuffix('_anon')}_back"
        if is_video(path.name):
            target = self._free(stem, ".mp4")
            recovered = recover_video(pipeline, path, target, self.password)
            self.faces += recovered.tracks
            self._add_film(target, recovered.frames // 2, [])
            return
        target = self._free(stem, ".png")
        self._add(target, recover_file(pipeline, path, target, self.password))

    def packed(self) -> Path:
        """The one file, or all of them in a ZIP."""
        if len(self.files) == 1:
            return self.files[0]
        target = self.place / "faceanon.zip"
        # Stored: pictures are compressed already.
        with zipfile.ZipFile(target, "w") as archive:
            for path in self.files:
                archive.write(path, path.name)
        return target

    def _add(self, target: Path, outcome: Outcome) -> None:
        self.count += 1
        self.files.append(target)
        self.picture = self.picture or target
        self.faces += outcome.faces
        self.hidden += outcome.hidden
        self.left += outcome.left
        self.coarse += outcome.coarse

    def _add_film(self, target: Path, middle: int, beside: Sequence[Path]) -> None:
        self.count += 1
        self.files += [target, *beside]
        if self.picture is None:
            for frame in read_frames(target, {middle}):
                self.picture = target.with_suffix(".preview.png")
                Image.fromarray(frame.pixels).save(self.picture)

    def _free(self, stem: str, ending: str) -> Path:
        """A name that no other file of the same answer has."""
        path = self.place / f"{stem}{ending}"
        number = 1
        while path in self.files:
            number += 1
            path = self.place / f"{stem}_{number}{ending}"
        return path


def unpacked(archive: Path, folder: Path) -> list[Path]:
    """The pictures and films of a ZIP of this page, opened in a folder.

    Raises:
        UserError: If it is damaged, or none of this page.
    """
    folder.mkdir()
    found = []
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            if len(entries) > 3 * MOST_PHOTOS or sum(entry.file_size for entry in entries) > MOST_UNPACKED:
                raise UserError(f"{archive} holds more than this page writes into one ZIP")
            for entry in entries:
                # A name of a visitor must not climb out of the folder.
                path = folder / Path(entry.filename).name
                path.write_bytes(opened.read(entry))
                if path.suffix.lower() not in (".json", ".faceanon"):
                    found.append(path)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, zlib.error) as error:
        raise UserError(f"{archive} is no ZIP that can be opened; give it as this page wrote it") from error
    if not found:
        raise UserError(f"{archive} holds no picture and no film; give it as this page wrote it")
    return sorted(found)


def _plain(stem: str) -> str:
    letters = []
    # A visitor chose the name, and it becomes a part of a path.
    for letter in stem:
        if letter.isalnum() or letter in "-_ ":
            letters.append(letter)
    kept = "".join(letters).strip()
    return kept[:60] or "picture"
