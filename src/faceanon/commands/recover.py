"""Bring the faces of anonymized pictures back with the password they were hidden with, or as one of their recipients.

Needs the file as `faceanon anonymize` wrote it, the same model, and the same password or the identity of a recipient;
nothing else is stored anywhere.
What a wrong password does depends on the model. One for photographs has sealed codes of the faces in the file: a wrong
password opens none, says so and writes nothing, or with --deniable draws yet another stranger and says what it says of
a right one. Other models always draw another stranger. With --exact the original pixels come back from the vault that
`anonymize --vault` made; the model plays no part, and a wrong password is refused.

  faceanon recover party_anon.png party.png
  FACEANON_PW=... faceanon recover hidden/ photos/ --password-env FACEANON_PW
  faceanon recover party_anon.png party.png --identity anna.key
  faceanon recover party_anon.png party.png --exact
  faceanon recover sent_by_chat.jpg party.png --like hidden/other.png
  faceanon recover party_anon.png party.png --deniable

The original has no mark. What anonymize --keep-metadata kept stays.

A picture that was turned or mirrored is turned back first. One that was scaled, cropped, filtered, edited or exchanged
is refused with a line that says so; --force recovers it all the same where it still has its size.

A file whose metadata were stripped has lost the salt and the places of its faces. --like takes the salt from any other
file of the same run (a picture, its .faceanon.json, or the folder of the run), and the faces are detected again, less
exactly. It has lost sealed codes as well, unless `anonymize --carry pixels` wrote all that recovery needs into the
faces' pixels too, where it is found by itself.
In a folder every file is done, or named with the reason why not.
Exit code: 0 all done, 1 failed, 2 wrong usage or input (no faceanon data in the picture, another model; nothing is
written), 3 a folder is done but for the files that are named.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.commands._files import MANY, FileOptions, add_file_arguments, add_rare_file_arguments, load_pipeline
from faceanon.commands._folder import plan
from faceanon.commands._metadata import UNMARKED
from faceanon.commands._openers import OpenOptions, add_identity_argument, opening
from faceanon.commands._run import check_shares, prepare_folder, quiet_pictures, run_jobs
from faceanon.commands._secret import PasswordOptions, add_password_arguments, check_password
from faceanon.commands._typed import typed
from faceanon.commands._video import (
    QualityOptions,
    add_rare_video_arguments,
    add_video_arguments,
    check_video,
    film_recoverer,
    recover_one,
    settled,
)
from faceanon.errors import UserError
from faceanon.paths import is_video

if TYPE_CHECKING:
    from faceanon.key import KdfParameters
    from faceanon.pipeline.many.folder import Job
    from faceanon.pipeline.tasks import Output, Task


@dataclass(frozen=True)
class RecoverOptions:
    """What is recovered, and how.

    Args:
        files: What goes in and out, and by which model.
        video: How a video is written.
        open: What opens the files.
        like: Another file of the same run, for pictures that have lost their recovery data; None: there is none.
        exact: Whether the original pixels come from the vault.
        deniable: Whether a wrong password draws another stranger instead of being refused.
        force: Whether a picture is recovered also where it was changed since.
    """

    files: FileOptions
    video: QualityOptions
    open: OpenOptions
    like: str | None
    exact: bool
    deniable: bool
    force: bool

    @classmethod
    def of(cls, args: argparse.Namespace) -> RecoverOptions:
        """From what argparse read.

        Raises:
            UserError: An option was typed that fits photos or videos only, and IN is of the other kind.
        """
        args = settled(args)
        return typed(
            cls,
            args,
            files=typed(FileOptions, args),
            video=typed(QualityOptions, args),
            open=typed(OpenOptions, args, password=typed(PasswordOptions, args)),
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    add_file_arguments(parser, "anonymized picture")
    parser.add_argument(
        "--like",
        metavar="FILE",
        help="another file of the same run, for pictures that have lost their recovery data",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="the original faces, pixel by pixel, from the vault of anonymize --vault; a wrong password is refused, "
        "and --model is not read",
    )
    parser.add_argument(
        "--deniable",
        action="store_true",
        help="draw another stranger under a wrong password, with the same messages and exit code as under the right "
        "one, so that nobody can tell from the outcome; some models always do",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="recover also a picture that no longer looks as it was written (filtered, edited, exchanged)",
    )
    add_video_arguments(parser, follow=False)
    add_identity_argument(add_password_arguments(parser))
    group = parser.add_argument_group("rarely needed")
    add_rare_file_arguments(group)
    add_rare_video_arguments(group, follow=False)


def run(args: argparse.Namespace) -> int:
    """Recover IN into OUT.

    Raises:
        UserError: If an argument, the password, the model or (unless skipped) a picture is unusable.
    """
    options = RecoverOptions.of(args)
    files = options.files
    if options.deniable and options.open.identity is not None:
        raise UserError("--deniable is for passwords: an identity opens a file or does not; leave one of them away")
    source = options.open.source
    # The arguments of --exact are checked first, which needs imports.
    if not options.exact and source is not None:
        check_password(files, source)
    from faceanon.pipeline.process import one_core_for_numpy

    quiet_pictures()
    one_core_for_numpy()
    if is_video(files.input):
        return _video(options)
    return _photos(options)


def _video(options: RecoverOptions) -> int:
    files = options.files
    check_shares(files, options.open.source, folder=False)
    paths = check_video(files)
    openers = opening(options.open)
    pipeline = load_pipeline(files, photos=MANY)
    return recover_one(options.video, options.deniable, paths, pipeline, openers)


def _photos(options: RecoverOptions) -> int:
    from faceanon.photo.manifests import manifest_like
    from faceanon.pipeline.exact import ExactTask, no_model
    from faceanon.pipeline.tasks import Output, RecoverTask

    files = options.files
    output = Output(files.quality)
    whole = plan(files.source, files.target, files.overwrite, f".{files.format}")
    if options.exact:
        _check_exact(options, whole.jobs, output)
        if whole.films:
            whole.leave_films("--exact is for photos only; recover the film by itself, without it")
            whole.check_work(files.source)
    if options.deniable:
        whole.notes.append(UNMARKED)
    folder = prepare_folder(files, options.open.source, whole, _settings(options))
    # A wrong --like is named before the password is asked for.
    like = None if options.like is None else manifest_like(Path(options.like))
    openers = opening(options.open)
    if options.exact:
        pipeline = no_model()
    else:
        pipeline = load_pipeline(files, photos=MANY if whole.films else len(whole.jobs))

    def make(picture: Path, file: Path, salt: bytes | None, kdf: KdfParameters | None) -> Task:
        if options.exact:
            return ExactTask(pipeline, picture, file, openers, output, options.force)
        return RecoverTask(pipeline, picture, file, openers, output, like, options.deniable, options.force)

    film = film_recoverer(options.video, options.deniable, pipeline)
    return run_jobs(files, whole, folder, pipeline, openers, make, film, "recovered")


def _settings(options: RecoverOptions) -> dict[str, Any]:
    """What decides the results."""
    return {
        "command": "recover",
        "format": options.files.format,
        "quality": options.files.quality,
        "like": options.like,
        "exact": options.exact,
        "deniable": options.deniable,
        "force": options.force,
        "films": asdict(options.video),
    }


def _check_exact(options: RecoverOptions, jobs: Sequence[Job], output: Output) -> None:
    from faceanon.pipeline.exact import check_exact

    if options.deniable:
        raise UserError("--exact opens a vault, which tells whether the password is right; leave --deniable away")
    if options.like is not None:
        raise UserError("--exact needs each file's own recovery data, so --like cannot help; leave one of them away")
    for _, target in jobs:
        check_exact(target, output)
