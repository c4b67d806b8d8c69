"""What lies in a folder, and which file becomes which: every file is done, or named with the reason why not."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.commands._files import check_target
from faceanon.errors import UserError
from faceanon.paths import FILMS

if TYPE_CHECKING:
    from faceanon.pipeline.many.folder import Job

TABLE_NAME = "faceanon.csv"
FILM_SUFFIX = ".mp4"
# What file managers leave in folders of photos without being asked.
SYSTEM_FILES = frozenset({"desktop.ini", "ehthumbs.db", "thumbs.db"})


@dataclass
class Contents:
    """The files of a folder and all folders in it, in order.

    Args:
        photos: Those with the ending of a picture that is read.
        films: Those with the ending of a video.
        left: Why each other file is not done.
        hidden: How many hidden files and files of the system were passed over.
    """

    photos: list[Path] = field(default_factory=list)
    films: list[Path] = field(default_factory=list)
    left: dict[Path, str] = field(default_factory=dict)
    hidden: int = 0


@dataclass
class Plan:
    """Which file becomes which.

    Args:
        jobs: Photos.
        films: Films; none where IN is one photo.
        left: Files of the folder that are not done, and why.
        hidden: How many hidden files and files of the system were passed over.
        notes: What is odd about the names of results.
    """

    jobs: list[Job]
    films: list[Job] = field(default_factory=list)
    left: dict[Path, str] = field(default_factory=dict)
    hidden: int = 0
    notes: list[str] = field(default_factory=list)

    def leave_films(self, why: str) -> None:
        """Take the films out of the plan, each named with the reason."""
        for film, _ in self.films:
            self.left[film] = why
        self.films = []

    def check_work(self, source: Path) -> None:
        """Refuse a plan without anything to be done.

        Raises:
            UserError: If there is nothing.
        """
        if self.jobs or self.films:
            return
        why = ""
        if self.left:
            first = next(iter(self.left))
            why = f" that could be done, of {len(self.left)} file(s) ({first.name}: {self.left[first]})"
        raise UserError(f"no pictures in {source}, and no films{why}; name a folder with some")


def look_into(source: Path) -> Contents:
    """What lies in a folder.

    Links to folders are not followed. Files of our own, such as recovery data and tables, are no originals and are not
    told of.
    """
    from faceanon.photo.decode import picture_endings

    contents = Contents()
    for path in _files(source, contents):
        ending = path.suffix.lower()
        if _is_hidden(path.relative_to(source)):
            contents.hidden += 1
        elif _is_own(path):
            continue
        elif not path.is_file():
            contents.left[path] = "a link to nothing, or no regular file"
        elif ending in picture_endings():
            contents.photos.append(path)
        elif ending in FILMS:
            contents.films.append(path)
        else:
            contents.left[path] = f"no kind of picture or film that is read ({ending or 'no ending'})"
    return contents


def _files(source: Path, contents: Contents) -> Iterator[Path]:
    """All that lies in a folder but folders, in order; folders that cannot be entered go into `contents`."""
    found = []

    def closed(error: OSError) -> None:
        contents.left[Path(error.filename)] = f"a folder that cannot be read: {error.strerror}"

    for folder, inner, names in os.walk(source, onerror=closed):
        here = Path(folder)
        for name in inner:
            if (here / name).is_symlink():
                contents.left[here / name] = "a link to a folder, which is not followed"
        for name in names:
            found.append(here / name)
    yield from sorted(found)


def _is_hidden(path: Path) -> bool:
    # macOS writes ._a.jpg beside a.jpg on foreign disks, so hidden files can look like pictures by their ending.
    return path.name.lower() in SYSTEM_FILES or any(part.startswith(".") for part in path.parts)


def _is_own(path: Path) -> bool:
    from faceanon.photo.metadata import SIDECAR_SUFFIX, VAULT_SUFFIX

    return path.name == TABLE_NAME or path.name.endswith((SIDECAR_SUFFIX, VAULT_SUFFIX))


def plan(source: Path, target: Path, overwrite: bool, suffix: str = ".png") -> Plan:
    """Which file becomes which; for folders, whether an output exists is left to `pipeline.many.folder.plan_folder`.

    Args:
        source: File or folder.
        target: File or folder.
        overwrite: Whether a file's output may exist.
        suffix: Ending of the pictures where `target` does not say it.

    Raises:
        UserError: If there is nothing to do, or an output exists, is of another format or has a name that is too long.
    """
    from faceanon.photo.metadata import check_suffix

    if source.is_dir():
        return _plan_folder(source, target, suffix)
    if not source.is_file():
        raise UserError(f"no such file or folder: {source}")
    output = target / f"{source.stem}{suffix}" if target.is_dir() else target
    check_output(source, output, overwrite)
    check_suffix(output)
    return Plan([(source, output)])


def check_output(source: Path, output: Path, overwrite: bool) -> None:
    """Refuse a result that cannot be written, or would replace something.

    Raises:
        UserError: If it has a name that is too long, is the source, or it or what lies beside it exists.
    """
    from faceanon.files import check_name
    from faceanon.photo.metadata import check_beside

    # First: the system refuses to look for a name that is too long.
    check_name(output)
    check_target(source, output, overwrite)
    if not overwrite:
        check_beside(output)


def check_folders(source: Path, target: Path) -> None:
    """Refuse a folder that the results of another one cannot be written to.

    Raises:
        UserError: If it is a file, or lies in the other one.
    """
    if target.is_file():
        raise UserError(f"{source} is a folder but {target} is a file; name a folder to write to")
    if target.resolve().is_relative_to(source.resolve()):
        raise UserError(f"{target} lies in {source}; write to a folder outside, or outputs would be taken for inputs")


def _plan_folder(source: Path, target: Path, suffix: str) -> Plan:
    check_folders(source, target)
    contents = look_into(source)
    whole = Plan([], left=contents.left, hidden=contents.hidden)
    whole.jobs = _named(source, target, contents.photos, suffix, whole)
    whole.films = _named(source, target, contents.films, FILM_SUFFIX, whole)
    whole.check_work(source)
    return whole


def _named(source: Path, target: Path, paths: Sequence[Path], suffix: str, whole: Plan) -> list[Job]:
    """A result for each path; those that have no possible name go into what is left out of the plan."""
    from faceanon.files import check_name

    jobs = []
    for path, output in zip(paths, outputs([path.relative_to(source) for path in paths], suffix), strict=True):
        try:
            check_name(output)
        except UserError as error:
            whole.left[path] = f"the result cannot be named so: {error}"
            continue
        if output != path.relative_to(source).with_suffix(suffix):
            whole.notes.append(f"{path} becomes {target / output}, since another file has its name but for the ending")
        jobs.append((path, target / output))
    return jobs


def outputs(paths: Sequence[Path], suffix: str) -> list[Path]:
    """A name with the ending `suffix` for each path, no two alike, also where upper and lower case are one.

    Where several paths differ in their endings alone, each keeps its own and gets `suffix` behind it, but the one that
    has `suffix` already. So a path's name depends on the paths alone, not on what is done already.

    Examples:
        >>> from pathlib import Path
        >>> from faceanon.commands._folder import outputs
        >>> [path.name for path in outputs([Path("a.jpg"), Path("a.png"), Path("b.jpg")], ".png")]
        ['a.jpg.png', 'a.png', 'b.png']
    """
    wanted = Counter(_folded(path.with_suffix(suffix)) for path in paths)
    names: dict[Path, Path] = {}
    taken = set()
    # First those that nobody else may have the name of.
    for path in paths:
        plain = path.with_suffix(suffix)
        free = wanted[_folded(plain)] == 1 or _folded(plain) == _folded(path)
        if free and _folded(plain) not in taken:
            names[path] = plain
            taken.add(_folded(plain))
    for path in paths:
        if path not in names:
            names[path] = _longer(path, suffix, taken)
            taken.add(_folded(names[path]))
    return [names[path] for path in paths]


def _longer(path: Path, suffix: str, taken: set[str]) -> Path:
    """The path with `suffix` behind it, as often as it takes to be another than those that are taken."""
    longer = path
    while longer == path or _folded(longer) in taken:
        longer = longer.with_name(longer.name + suffix)
    return longer


def _folded(path: Path) -> str:
    return str(path).casefold()
