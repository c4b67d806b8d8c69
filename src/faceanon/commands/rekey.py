"""Change who opens anonymized photos and films: other recipients, another password. No pixel is touched.

  faceanon rekey hidden/ handed_over/ --to court.key.pub                 # was: a password
  faceanon rekey hidden/ kept/ --identity me.key --to me.key.pub --to ben.key.pub
  faceanon rekey a_anon.png b_anon.png --new-password-file new.txt

What opens IN is given as for `faceanon recover`: a password, or --identity. What is to open OUT is --to, a new
password, or both. IN stays as it is and opens as before, and so does every other copy of it: delete them.
A photo of --carry pixels is refused, since its pixels open as before; so are files of models without sealed codes.
In a folder every file is done, or named with the reason why not.
Exit code: 0 all done, 2 wrong usage or input (nothing is written), 3 a folder is done but for the files that are named.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.commands._folder import check_folders, check_output, look_into
from faceanon.commands._openers import (
    OpenOptions,
    add_identity_argument,
    add_recipient_argument,
    opening,
    recipients_of,
)
from faceanon.commands._run import LEFT_OUT, quiet_pictures
from faceanon.commands._secret import PasswordOptions, add_password_arguments, from_terminal, password_of
from faceanon.commands._typed import typed
from faceanon.errors import NoRoomError, UserError
from faceanon.paths import is_video

if TYPE_CHECKING:
    from collections.abc import Callable

    from faceanon.pipeline.many.folder import Job
    from faceanon.sealed.openers import Openers


@dataclass(frozen=True)
class RekeyOptions:
    """What is changed, and for whom.

    Args:
        input: Photo, film or folder.
        output: File or folder to write.
        overwrite: Whether outputs may exist.
        open: What opens the input.
        to: Recipients who are to open the output, or files of them.
        new_password: Whether the terminal asks for the password that is to open the output.
        new_password_env: Environment variable that holds it.
        new_password_file: File that holds it.
    """

    input: Path
    output: Path
    overwrite: bool
    open: OpenOptions
    to: list[str] | None
    new_password: bool
    new_password_env: str | None
    new_password_file: str | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> RekeyOptions:
        """From what argparse read."""
        password = typed(PasswordOptions, args)
        return typed(cls, args, open=typed(OpenOptions, args, password=password))


@dataclass
class Finished:
    """What was done so far."""

    photos: int = 0
    films: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.usage = "%(prog)s [options] IN OUT"
    parser.add_argument("input", metavar="IN", type=Path, help="anonymized photo or film, or a folder of them")
    parser.add_argument("output", metavar="OUT", type=Path, help="file to write, or the folder to mirror IN's tree in")
    parser.add_argument("--overwrite", action="store_true", help="replace outputs that exist")
    new = parser.add_argument_group("what is to open OUT")
    add_recipient_argument(new)
    new.add_argument("--new-password", action="store_true", help="a password, which the terminal asks for")
    new.add_argument("--new-password-env", metavar="NAME", help="a password, in this environment variable")
    new.add_argument("--new-password-file", metavar="FILE", help="a password, in this UTF-8 file")
    add_identity_argument(add_password_arguments(parser))


def run(args: argparse.Namespace) -> int:
    """Rekey IN into OUT.

    Raises:
        UserError: If an argument or the key is unusable, or the file, or every file of a folder, cannot be done.
    """
    options = RekeyOptions.of(args)
    quiet_pictures()
    _check_new(options)
    recipients = recipients_of(options.to or ())
    done = Finished()
    jobs = _jobs(options, done)
    old = opening(options.open)
    new = _new(options, recipients)
    _work(jobs, old, new, done, stop=not options.input.is_dir())
    return _report(options, new, done)


def _check_new(options: RekeyOptions) -> None:
    given = []
    for name in ("new_password", "new_password_env", "new_password_file"):
        if getattr(options, name):
            given.append(f"--{name.replace('_', '-')}")
    if len(given) > 1:
        raise UserError(f"give either {' or '.join(given)}, not both")
    if not given and not options.to:
        raise UserError("say what is to open OUT: --to, --new-password or --new-password-file")


def _new(options: RekeyOptions, recipients: list[str]) -> Openers:
    """Those who are to open the output."""
    from faceanon.key import Password
    from faceanon.sealed.openers import Openers

    password = None
    if options.new_password:
        if not sys.stdin.isatty():
            raise UserError("no terminal to ask for the new password on; give --new-password-file FILE")
        password = Password(from_terminal("New password", confirm=True))
    elif options.new_password_env is not None and options.new_password_env not in os.environ:
        # The name is not shown: somebody may have typed the password itself.
        raise UserError("the environment variable that --new-password-env names is not set; export it first")
    elif options.new_password_env is not None or options.new_password_file is not None:
        source = PasswordOptions(options.new_password_env, options.new_password_file, None, None)
        password = password_of(source, confirm=False)
    return Openers(password, recipients)


def _jobs(options: RekeyOptions, done: Finished) -> list[Job]:
    """Which file becomes which; files of a folder that cannot be done go into `done`.

    Raises:
        UserError: If there is nothing to do, or an output exists, is an input or has a name that is too long.
    """
    source = options.input
    target = options.output
    if not source.is_dir():
        if not source.is_file():
            raise UserError(f"no such file or folder: {source}")
        if target.is_dir():
            target = target / source.name
        check_output(source, target, options.overwrite)
        return [(source, target)]
    check_folders(source, target)
    contents = look_into(source)
    for path, why in contents.left.items():
        done.failures.append(f"{path}: {why}")
    sources = [*contents.photos, *contents.films]
    inputs = {path.resolve() for path in sources}
    jobs = []
    for path in sources:
        output = target / path.relative_to(source)
        # Where IN lies in OUT; even with --overwrite.
        if output.resolve() in inputs:
            raise UserError(f"{output}, which {path} would become, is itself an input; write to another folder")
        check_output(path, output, options.overwrite)
        jobs.append((path, output))
    if not jobs:
        raise UserError(f"no pictures in {source}, and no films; name a folder with some")
    return jobs


def _work(jobs: list[Job], old: Openers, new: Openers, done: Finished, stop: bool) -> None:
    """Do all files.

    Raises:
        NoRoomError: At the first file for which the disk has no room.
        UserError: At the first bad file, where `stop`.
    """
    from faceanon.pipeline.many.engine import usual_workers
    from faceanon.pipeline.threads import in_order

    workers = usual_workers()
    with (
        _progress(len(jobs)) as advance,
        # Decoding and waiting for the disk leave the processor to others.
        ThreadPoolExecutor(workers, "faceanon-rekey") as pool,
    ):
        results = in_order(pool, lambda job: _one(*job, old, new), jobs, 2 * workers)
        for (source, _), result in zip(jobs, results, strict=True):
            if isinstance(result, NoRoomError) or (stop and isinstance(result, UserError)):
                raise result
            if isinstance(result, UserError):
                done.failures.append(str(result))
            elif is_video(source):
                done.films += 1
            else:
                done.photos += 1
                done.notes += result
            advance()


def _one(source: Path, target: Path, old: Openers, new: Openers) -> tuple[str, ...] | UserError:
    """Do one file; what is to be told of it, or the error."""
    from faceanon.pipeline.rekey import rekey_film, rekey_photo

    try:
        if is_video(source):
            rekey_film(source, target, old, new)
            return ()
        return rekey_photo(source, target, old, new)
    except UserError as error:
        return error


@contextmanager
def _progress(files: int) -> Iterator[Callable[[], object]]:
    from rich.console import Console
    from rich.progress import Progress

    # On standard error, so that a pipe gets the summary alone.
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=files < 2 or not console.is_terminal) as bar:
        task = bar.add_task("files", total=files)
        yield lambda: bar.advance(task)


def _report(options: RekeyOptions, new: Openers, done: Finished) -> int:
    for note in done.notes:
        print(f"note: {note}")
    for failure in done.failures:
        print(f"skipped: {failure}")
    whom = []
    if new.recipients:
        whom.append(f"{len(new.recipients)} recipient(s)")
    if new.password is not None:
        whom.append("a password")
    films = f" and {done.films} film(s)" if done.films else ""
    parts = [f"rekeyed {done.photos} photo(s){films} for {' and '.join(whom)} -> {options.output}"]
    if done.failures:
        parts.append(f"{len(done.failures)} file(s) skipped, exit code 3")
    if done.photos or done.films:
        parts.append(f"{options.input} and its copies still open as before; delete them")
    print("; ".join(parts))
    if not (done.photos or done.films):
        return 2
    return LEFT_OUT if done.failures else 0
