"""What the page does for a visitor: a picture in, a picture and one line out, with nothing kept and nothing raised."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.photo.manifests import manifest_of
from faceanon.pipeline.file import anonymize_file, recover_file
from faceanon.pipeline.obscuring import ObscuringMethod
from faceanon.pipeline.photo import NoFaceError, Pipeline
from faceanon.pipeline.steps import Outcome
from faceanon.web.limits import RateLimit

OWN = "stranger"
MOST_CHARACTERS = 256  # of a password
DEAREST = KdfParameters(memory_kib=1 << 18, iterations=4)  # 256 MiB, and 1 GiB in all passes: a second or two
HANDOVER = 60.0  # s; the page copies a result at once, and ages its copy itself


@dataclass(frozen=True)
class Reply:
    """What a visitor gets.

    Args:
        line: One line for people; never anything of the password.
        file: The picture, or None where there is none.
    """

    line: str
    file: Path | None = None


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

    def anonymize(self, source: str | None, password: str, method: str, client: str) -> Reply:
        """Hide the faces of the uploaded picture `source`."""

        def work(path: Path, place: Path) -> Reply:
            pipeline = self.pipelines[method]
            start = time.perf_counter()
            target = place / f"{_plain(path.stem)}_anon.png"
            outcome = anonymize_file(pipeline, path, target, Password(password))
            return Reply(_hidden(outcome, pipeline, time.perf_counter() - start), target)

        return self._answer(source, password, client, work)

    def recover(self, source: str | None, password: str, client: str) -> Reply:
        """Bring the faces of the uploaded picture `source` back with `password`."""

        def work(path: Path, place: Path) -> Reply:
            pipeline = self._made_by(path)
            start = time.perf_counter()
            target = place / f"{_plain(path.stem).removesuffix('_anon')}_back.png"
            # The file of a visitor says what a guess costs: without a limit it could ask for all the memory there is.
            outcome = recover_file(pipeline, path, target, Password(password, most=DEAREST))
            return Reply(_shown(outcome, pipeline, time.perf_counter() - start), target)

        return self._answer(source, password, client, work)

    def _answer(self, source: str | None, password: str, client: str, work: Callable[[Path, Path], Reply]) -> Reply:
        if not source:
            return Reply("Choose a picture first.")
        if not password:
            return Reply("Type a password first.")
        if len(password) > MOST_CHARACTERS:
            return Reply(f"The password is longer than {MOST_CHARACTERS} characters; take a shorter one.")
        # After the checks that cost nothing: an empty form uses up none of a visitor's pictures.
        if seconds := self.limit.wait(client):
            many = f"{self.limit.count} pictures in {self.limit.seconds:g} s"
            return Reply(f"Too many requests, at most {many}: try again in {seconds} s.")
        path = Path(source)
        if not path.is_file():
            return Reply("The page has already forgotten this picture; choose it again.")
        # A folder for each answer: files of two visitors may have one name.
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            return work(path, folder)
        except NoFaceError:
            return Reply(f"No face found in {path.name}; choose a picture in which a face is clearly to be seen.")
        except UserError as error:
            # Where the folders of this machine lie is nothing for a visitor.
            return Reply(str(error).replace(f"{path.parent}/", "").replace(f"{folder}/", ""))
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


def _plain(stem: str) -> str:
    letters = []
    # A visitor chose the name, and it becomes a part of a path.
    for letter in stem:
        if letter.isalnum() or letter in "-_ ":
            letters.append(letter)
    kept = "".join(letters).strip()
    return kept[:60] or "picture"


def _faces(count: int) -> str:
    return f"{count} face{'s' if count != 1 else ''}"


def _hidden(outcome: Outcome, pipeline: Pipeline, seconds: float) -> str:
    drawn = outcome.faces - outcome.hidden
    what = "replaced by strangers" if pipeline.method.reversible else f"hidden for good by {pipeline.name}"
    parts = [f"{_faces(drawn)} {what} in {seconds:.1f} s"]
    if outcome.hidden:
        parts.append(f"{_faces(outcome.hidden)} hidden for good, too small or unfit for the model")
    if outcome.coarse and pipeline.method.reversible:
        parts.append(f"{outcome.coarse} smaller than the model's faces, so recovered less exactly")
    return "; ".join(parts) + ". Look at it before you pass it on: a face that was not found stays as it was."


def _shown(outcome: Outcome, pipeline: Pipeline, seconds: float) -> str:
    what = "brought back" if pipeline.method.sealed else "drawn as this password says"
    line = f"{_faces(outcome.faces)} {what} in {seconds:.1f} s"
    if outcome.hidden:
        line += f"; {_faces(outcome.hidden)} had been hidden for good"
    # Only a model without sealed codes draws strangers under a wrong password; the others refuse it.
    if pipeline.method.sealed:
        return line + "."
    return line + ". If these are strangers, the password is another one."
