"""What the page does for a visitor: pictures in, pictures and one line out, with nothing kept and nothing raised."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.paths import is_video
from faceanon.photo.boxes import DecidedPhoto, Decisions, decided_photo, read_decisions
from faceanon.photo.file import LoadedPhoto, load_photo
from faceanon.photo.manifests import manifest_of
from faceanon.pipeline.earlier import admitted
from faceanon.pipeline.obscuring import ObscuringMethod
from faceanon.pipeline.photo import NoFaceError, Pipeline
from faceanon.pipeline.video.anonymize import VideoOptions, follow
from faceanon.pipeline.video.decided import decided_film
from faceanon.pipeline.video.frames import read_info
from faceanon.pipeline.video.record import holds_record, read_record
from faceanon.web.film import ReviewedFilm
from faceanon.web.limits import RateLimit
from faceanon.web.results import MOST_PHOTOS, PageResults, unpacked
from faceanon.web.review import Review, ReviewedPhoto

OWN = "stranger"
MOST_CHARACTERS = 256  # of a password
DEAREST = KdfParameters(memory_kib=1 << 18, iterations=4)  # 256 MiB, and 1 GiB in all passes: a second or two
HANDOVER = 60.0  # s; the page copies a result at once, and ages its copy itself


@dataclass(frozen=True)
class Reply:
    """What a visitor gets.

    Args:
        line: One line for people; never anything of the password.
        file: What to download: the picture, or several in one ZIP; None where there is none.
        picture: What to show.
        boxes: The decisions, as `anonymize --boxes` takes them.
    """

    line: str
    file: Path | None = None
    picture: Path | None = None
    boxes: Path | None = None


def methods(pipeline: Pipeline) -> dict[str, Pipeline]:
    """The model and three classical methods, which are cheap and give nothing back; all share the detector."""
    others = {}
    for name in ("blur", "pixelate", "mask"):
        method = ObscuringMethod(name, pipeline.method)
        others[name] = Pipeline(method, pipeline.detector, policy=pipeline.policy)
    return {OWN: pipeline, **others}


class Desk:
    """Serves the visitors of one page.

    Args:
        pipelines: Methods by name; `OWN` is the model.
        folder: Where results lie until the page has copied them; the caller removes it.
        limit: Of pictures, for each client.
        handover: After how many seconds a result is removed.
    """

    def __init__(
        self, pipelines: Mapping[str, Pipeline], folder: Path, limit: RateLimit, handover: float = HANDOVER
    ) -> None:
        self.pipelines = dict(pipelines)
        self.folder = folder
        self.limit = limit
        self.handover = handover

    def open(self, sources: Sequence[str], earlier: Review | None = None) -> Review | Reply:
        """Begin to review some uploaded photos, among them perhaps a file of boxes.

        Args:
            sources: Paths.
            earlier: What was decided about some of them already.
        """
        known = {photo.path: photo for photo in earlier.photos} if earlier is not None else {}
        given = None
        photos: list[ReviewedPhoto | ReviewedFilm] = []
        for path in map(Path, sources):
            if path.suffix.lower() == ".json":
                try:
                    given = read_decisions(path)
                except UserError as error:
                    return Reply(_without(str(error), path.parent))
            else:
                photos.append(known.get(path) or (ReviewedFilm(path) if is_video(path.name) else ReviewedPhoto(path)))
        if not photos:
            return Reply("Choose a picture first.")
        if len(photos) > MOST_PHOTOS:
            return Reply(
                f"The page takes {MOST_PHOTOS} photos at once; for more take `faceanon anonymize` on a folder."
            )
        return Review(photos, given)

    def look(self, review: Review) -> tuple[str, NDArray[np.uint8] | None]:
        """What is under review: a line about it, and `(h, w, 3)` uint8 for the screen, None where it cannot be used.

        Its faces are found if nobody has looked yet.
        """
        item = review.current
        screen = None

        def work(path: Path, place: Path) -> Reply:
            nonlocal screen
            if isinstance(item, ReviewedFilm):
                if item.info is None:
                    self._follow(item, review.given)
                screen = item.screen()
                return Reply("")
            loaded = admitted(load_photo(path), again=False)
            if item.found is None:
                item.show(self._found(loaded, path.name, review.given))
            screen = item.screen(loaded.pixels)
            return Reply("")

        item.failed = self._answer(str(item.path), work).line
        if item.failed:
            return item.failed, None
        return item.line(), screen

    def anonymize(self, review: Review | None, password: str, method: str, client: str) -> Reply:
        """Hide what the boxes of all reviewed photos say."""
        if review is None:
            return Reply("Choose a picture first.")
        if mistake := _mistaken(password):
            return Reply(mistake)
        if number := review.unseen():
            return Reply(f"Look at photo {number} of {len(review.photos)} first, and say that you have seen it.")
        items = [item for item in review.photos if not item.failed]
        boxes = {item.path: item.decided() for item in items}

        def work(_: Path, place: Path) -> Reply:
            start = time.perf_counter()
            done = PageResults(place, Password(password))
            # One for all files: it keeps what finds the eyes in boxes.
            pipeline = copy(self.pipelines[method])
            for path, decided in boxes.items():
                # A photo without a box stays as it is; of a single one the visitor is told so.
                if any(part.boxes for part in decided) or len(items) == 1:
                    pipeline.boxes = Decisions(decided, "the page")
                    done.hide(pipeline, path)
            line = _hidden(done, self.pipelines[method], time.perf_counter() - start)
            Decisions(tuple(chain.from_iterable(boxes.values()))).write(place / "boxes.json")
            return Reply(line, done.packed(), done.picture, place / "boxes.json")

        if not items:
            return Reply(review.current.failed)
        if len(items) > 1 and not any(part.boxes for decided in boxes.values() for part in decided):
            return Reply("There is no box in any of them, so there is nothing to hide.")
        return Reply(late) if (late := self._too_many(client)) else self._answer(str(items[0].path), work)

    def recover(self, source: str | None, password: str, client: str) -> Reply:
        """Bring the faces of the uploaded picture, or of all in a ZIP of this page, back with `password`."""

        def work(path: Path, place: Path) -> Reply:
            start = time.perf_counter()
            # The file of a visitor says what a guess costs: without a limit it could ask for all the memory there is.
            done = PageResults(place, Password(password, most=DEAREST))
            paths = [path]
            if path.suffix.lower() == ".zip":
                paths = unpacked(path, place / "opened")
            for one in paths:
                done.bring_back(self._made_by(one), one)
            line = _shown(done, self.pipelines[OWN], time.perf_counter() - start)
            return Reply(line, done.packed(), done.picture)

        if not source:
            return Reply("Choose a picture first.")
        if mistake := _mistaken(password):
            return Reply(mistake)
        return Reply(late) if (late := self._too_many(client)) else self._answer(source, work)

    def _follow(self, film: ReviewedFilm, given: Decisions | None) -> None:
        """Find everybody in a film, or read what a file of boxes says of it."""
        info = read_info(film.path)
        if holds_record(film.path, info.comment):
            raise UserError(f"{film.path} was anonymized by faceanon already; recover it first")
        if given is not None:
            frames = given.of_film(film.path.name, info.width, info.height)
            size = info.width, info.height
            found = tuple(DecidedPhoto(film.path.name, *size, boxes, frame) for frame, boxes in frames.items())
            film.show(info, max(info.frames, *frames, 1), found)
            return
        try:
            followed = follow(self.pipelines[OWN], film.path, info, VideoOptions())
            film.show(info, followed.frames, decided_film(film.path.name, info, followed.tracks))
        except NoFaceError:
            film.show(info, max(1, info.frames), ())

    def _found(self, photo: LoadedPhoto, name: str, given: Decisions | None) -> DecidedPhoto:
        """The faces of a photo, or what a file of boxes says of it."""
        height, width = photo.pixels.shape[:2]
        if given is not None:
            return DecidedPhoto(name, width, height, given.of(name, width, height))
        try:
            faces = self.pipelines[OWN].faces(photo)
        except NoFaceError:
            faces = []
        return decided_photo(name, width, height, faces)

    def _too_many(self, client: str) -> str:
        """What to say to a client who asks too often; empty otherwise, and then this counts."""
        # After the checks that cost nothing: an empty form uses up none of a visitor's pictures.
        if seconds := self.limit.wait(client):
            return (
                f"Too many requests, at most {self.limit.count} pictures in {self.limit.seconds:g} s: "
                f"try again in {seconds} s."
            )
        return ""

    def _answer(self, source: str, work: Callable[[Path, Path], Reply]) -> Reply:
        path = Path(source)
        if not path.is_file():
            return Reply("The page has already forgotten this picture; choose it again.")
        # A folder for each answer: files of two visitors may have one name.
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            return work(path, folder)
        except NoFaceError:
            return Reply(f"There is no box in {path.name}, so there is nothing to hide.")
        except UserError as error:
            return Reply(_without(str(error), path.parent, folder))
        except Exception:  # a bug, or too little memory: the visitor gets a line, and who runs the page the rest
            traceback.print_exc(file=sys.stderr)
            return Reply("faceanon failed on this picture; the terminal that runs this page says why.")
        finally:
            self._forget(folder)

    def _made_by(self, path: Path) -> Pipeline:
        """The method that made `path`.

        Raises:
            UserError: It carries no manifest, or none of this page's methods made it.
        """
        if is_video(path.name):
            manifest = read_record(path, read_info(path).comment).shared
        else:
            manifest = manifest_of(path)[0]
        # The classical methods too: for their files recovery says that nothing brings the faces back.
        for pipeline in self.pipelines.values():
            if pipeline.made(manifest.weights):
                return pipeline
        own = self.pipelines[OWN]
        raise UserError(
            f"{path.name} was anonymized with the model {manifest.model} ({manifest.weights[:12]}), this page runs "
            f"{own.name} ({own.weights[:12]}); start `faceanon web --model` with the former"
        )

    def _forget(self, place: Path) -> None:
        """Remove a result once the page has had the time to copy it."""
        timer = threading.Timer(self.handover, shutil.rmtree, (place,), {"ignore_errors": True})
        # A daemon, or the program would wait for it at its end, when the whole folder goes anyway.
        timer.daemon = True
        timer.start()


def _faces(count: int) -> str:
    return f"{count} face{'s' if count != 1 else ''}"


def _mistaken(password: str) -> str:
    """What is wrong with a password, at a glance; empty if nothing."""
    if not password:
        return "Type a password first."
    if len(password) > MOST_CHARACTERS:
        return f"The password is longer than {MOST_CHARACTERS} characters; take a shorter one."
    return ""


def _without(line: str, *folders: Path) -> str:
    """Where the folders of this machine lie is nothing for a visitor."""
    for folder in folders:
        line = line.replace(f"{folder}/", "")
    return line


def _hidden(done: PageResults, pipeline: Pipeline, seconds: float) -> str:
    what = "replaced by strangers" if pipeline.method.reversible else f"hidden for good by {pipeline.name}"
    where = f" in {done.count} files" if done.count > 1 else ""
    parts = [f"{_faces(done.faces - done.hidden)} {what}{where} in {seconds:.1f} s"]
    if done.hidden:
        parts.append(f"{done.hidden} hidden for good, as you chose or unfit for the model")
    if done.left:
        parts.append(f"{_faces(done.left)} left as they are")
    if done.coarse and pipeline.method.reversible:
        parts.append(f"{done.coarse} smaller than the model's faces, so recovered less exactly")
    return "; ".join(parts) + "."


def _shown(done: PageResults, pipeline: Pipeline, seconds: float) -> str:
    what = "brought back" if pipeline.method.sealed else "drawn as this password says"
    line = f"{_faces(done.faces)} {what} in {seconds:.1f} s"
    if done.hidden:
        line += f"; {_faces(done.hidden)} had been hidden for good"
    # Only a model without sealed codes draws strangers under a wrong password; the others refuse it.
    if pipeline.method.sealed:
        return line + "."
    return line + ". If these are strangers, the password is another one."
