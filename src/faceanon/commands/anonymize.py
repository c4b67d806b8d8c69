"""Replace every face of a photo, a video or a folder of them by a stranger's.

The same password, or a recipient, brings them back (`faceanon recover`). Keep
the output as it is: it carries what recovery needs, and a mark: made in part by
AI. EXIF data are not copied unless --keep-metadata names them.

  faceanon anonymize party.jpg party_anon.png
  faceanon anonymize party.jpg party_anon.png --exclude 2   # face 2 stays
  faceanon anonymize photos/ hidden/ --same-stranger      # one for each person
  faceanon anonymize photos/ hidden/ --to anna.key.pub     # no password
  faceanon anonymize party.mp4 party_anon.mp4 --strict       # or fails

A face that is not found stays as it is: look at the results before you publish.
A file that faceanon anonymized before is refused; --again does it all the same.
A folder that was interrupted resumes when the same command is given again.
Exit code: 0 done, 1 failed, 2 wrong usage or input (or no face in the photo), 3
a folder is done but for the files that are named with the reason.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from faceanon.commands._files import MANY, FileOptions, add_file_arguments, add_rare_file_arguments, load_pipeline
from faceanon.commands._folder import look_into, plan
from faceanon.commands._metadata import MetadataOptions
from faceanon.commands._openers import SealOptions, add_recipient_argument, recipients_of, sealing
from faceanon.commands._people import (
    PeopleChoice,
    PeopleOptions,
    add_people_arguments,
    add_rare_people_arguments,
    choices,
    people_of,
)
from faceanon.commands._run import LEFT_OUT, check_shares, prepare_folder, quiet_pictures, run_jobs
from faceanon.commands._secret import PasswordOptions, add_password_arguments, check_password
from faceanon.commands._typed import typed
from faceanon.commands._video import (
    FollowOptions,
    QualityOptions,
    add_rare_video_arguments,
    add_video_arguments,
    anonymize_one,
    check_video,
    film_anonymizer,
    list_followed,
    settled,
)
from faceanon.errors import UserError
from faceanon.paths import is_video

if TYPE_CHECKING:
    from faceanon.commands._folder import Plan
    from faceanon.key import KdfParameters
    from faceanon.photo.boxes import DecidedPhoto
    from faceanon.photo.detect import Detector
    from faceanon.photo.policy import Policy
    from faceanon.pipeline.photo import Pipeline
    from faceanon.pipeline.tasks import Task


@dataclass(frozen=True)
class AnonymizeOptions:
    """What is anonymized, and how.

    Args:
        files: What goes in and out, and by which model.
        people: Which faces are changed.
        video: How a video is written.
        follow: How faces are followed through a video.
        metadata: What a result carries beside its pixels.
        seal: Who opens the result.
        vault: Whether the original faces are kept, encrypted.
        carry: `pixels`: the recovery data go into the pixels too; None: they do not.
        again: Whether photos that carry recovery data already are anonymized once more.
        aligned: Whether each picture is one face.
        same_stranger: Whether a person becomes one stranger in all photos of a folder.
        redraw: Whether faces that were put on are redrawn, where the model does so.
        min_face: Smallest side of a face for the model, in pixels.
        small_faces: What hides faces that the model cannot be applied to.
        list_faces: Whether faces are numbered and nothing is written.
        detector: Name or file of the detector; None for the model's own.
        threshold: Least score of a face; None for the detector's own rule.
        boxes: File that says which faces there are and what is done to each; None: they are looked for.
        write_boxes: Such a file, to be written.
        face_size: Largest side at which faces are cropped for the model, in pixels; None for what the model has.
    """

    files: FileOptions
    people: PeopleOptions
    video: QualityOptions
    follow: FollowOptions
    metadata: MetadataOptions
    seal: SealOptions
    vault: bool
    carry: str | None
    again: bool
    aligned: bool
    same_stranger: bool
    redraw: bool
    min_face: float
    small_faces: Literal["blur", "pixelate", "mask", "refuse"]
    list_faces: bool
    detector: str | None
    threshold: float | None
    boxes: Path | None
    write_boxes: Path | None
    face_size: int | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> AnonymizeOptions:
        """From what argparse read.

        Raises:
            UserError: An option was typed that fits photos or videos only, and IN is of the other kind.
        """
        args = settled(args)
        seal = typed(SealOptions, args, password=typed(PasswordOptions, args))
        return typed(
            cls,
            args,
            files=typed(FileOptions, args),
            people=typed(PeopleOptions, args),
            video=typed(QualityOptions, args),
            follow=typed(FollowOptions, args),
            metadata=typed(MetadataOptions, args),
            seal=seal,
        )

    def choices(self) -> tuple[PeopleChoice, PeopleChoice]:
        """Whom `--select` and `--exclude` name.

        Raises:
            UserError: As `_people.choices`.
        """
        return choices(self.people, self.files.source, self.aligned)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    add_file_arguments(parser, "photo, video", output_needed=False)
    parser.add_argument("--sidecar", action="store_true", help="write the recovery data beside the file, not into it")
    parser.add_argument(
        "--keep-metadata",
        metavar="KIND",
        help="keep time,camera,place or all of the original's data",
    )
    parser.add_argument("--no-mark", dest="mark", action="store_false", help="leave the mark out")
    parser.add_argument(
        "--c2pa", nargs=2, type=Path, metavar=("CERTS", "KEY"), help="sign the result; both are PEM files"
    )
    parser.add_argument(
        "--vault",
        action="store_true",
        help="keep the original faces, encrypted, for recover --exact; a wrong password then shows itself",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="anonymize anonymized files too; both ways back stay",
    )
    _add_face_arguments(parser)
    add_video_arguments(parser, follow=True)
    add_recipient_argument(add_password_arguments(parser))
    _add_rare_arguments(parser)


def _add_face_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("faces")
    group.add_argument(
        "--same-stranger",
        action="store_true",
        help="one stranger for each person of a folder",
    )
    group.add_argument("--list-faces", action="store_true", help="number the faces and say what would be done; no OUT")
    group.add_argument(
        "--write-boxes", type=Path, metavar="FILE", help="with --list-faces: write them, to be corrected"
    )
    group.add_argument("--boxes", type=Path, metavar="FILE", help="hide what this file says; look for no faces")
    add_people_arguments(group)
    group.add_argument(
        "--min-face",
        type=float,
        default=20,
        metavar="PX",
        help="smaller faces are not for the model; they are looked for down to 0.6 of it (default: 20)",
    )
    group.add_argument(
        "--small-faces",
        choices=("blur", "pixelate", "mask", "refuse"),
        metavar="HOW",
        help="of faces unfit for the model: blur, pixelate, mask, refuse",
    )
    group.add_argument(
        "--no-redraw",
        dest="redraw",
        action="store_false",
        help="do not redraw faces: 60 %% of the time, less natural",
    )
    group.add_argument("--aligned", action="store_true", help="pictures are aligned faces (FFHQ): detect nothing")


def _add_rare_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rarely needed")
    add_rare_file_arguments(group)
    group.add_argument(
        "--carry",
        choices=("pixels",),
        metavar="pixels",
        help="write the recovery data into the faces' pixels too: metadata may be lost then; for .png and exact .webp",
    )
    group.add_argument(
        "--face-size",
        type=int,
        metavar="PX",
        help="size of the faces for the model at most: sooner done",
    )
    add_rare_people_arguments(group)
    group.add_argument(
        "--detector",
        metavar="NAME",
        help="yunet, mtcnn, or an SCRFD file (default: yunet)",
    )
    group.add_argument("--threshold", type=float, metavar="SCORE", help="least score of a face, above 0 to 1")
    add_rare_video_arguments(group, follow=True)


def run(args: argparse.Namespace) -> int:
    """Anonymize IN into OUT.

    Raises:
        UserError: If an argument, the password, the model or (unless skipped) a photo is unusable.
    """
    options = AnonymizeOptions.of(args)
    files = options.files
    if files.output is None and not options.list_faces:
        raise UserError("name OUT, the file or folder to write; or give --list-faces to write nothing")
    if options.aligned and options.detector is not None:
        raise UserError("--aligned looks for no faces; leave --detector away")
    _check_boxes(options)
    if options.same_stranger and (options.list_faces or not files.source.is_dir()):
        raise UserError("--same-stranger is for a folder of photos that is to be anonymized; leave it away")
    options.metadata.check(film=is_video(files.input))
    if options.same_stranger and options.seal.source is None:
        raise UserError(
            "--same-stranger with --to needs a secret that you keep, since it chooses the strangers; give also "
            "--password-file FILE, which opens the photos too"
        )
    if options.seal.to:
        recipients_of(options.seal.to)
    if not options.list_faces and options.seal.source is not None:
        check_password(files, options.seal.source)
    from faceanon.pipeline.process import one_core_for_numpy

    quiet_pictures()
    one_core_for_numpy()
    policy = _policy(options)
    if options.list_faces:
        return _list_faces(options, policy)
    if is_video(files.input):
        return _video(options, policy)
    return _photos(options, policy)


def _check_boxes(options: AnonymizeOptions) -> None:
    given = {"--boxes": options.boxes, "--threshold": options.threshold, "--write-boxes": options.write_boxes}
    for option, value in given.items():
        if value is not None and options.aligned:
            raise UserError(f"--aligned looks for no faces; leave {option} away")
    if options.boxes is not None:
        from faceanon.photo.boxes import read_decisions

        read_decisions(options.boxes)  # says at once if it is no such file
    if options.boxes is not None and (options.threshold, options.detector, options.write_boxes) != (None, None, None):
        raise UserError("--boxes looks for no faces; leave --detector, --threshold and --write-boxes away")
    if options.write_boxes is not None and not options.list_faces:
        raise UserError("--write-boxes writes what --list-faces finds; give it too, and then the file by --boxes")
    if options.write_boxes is not None and options.write_boxes.exists() and not options.files.overwrite:
        raise UserError(f"{options.write_boxes} exists already; add --overwrite to replace it")
    if options.threshold is not None and not 0 < options.threshold <= 1:
        raise UserError(f"--threshold is a number above 0, up to 1, not {options.threshold:g}")


def _video(options: AnonymizeOptions, policy: Policy) -> int:
    from faceanon.pipeline.video.mark import holds_mark

    check_shares(options.files, options.seal.source, folder=False)
    paths = check_video(options.files)
    if options.metadata.credentials is not None and not holds_mark(paths[1]):
        raise UserError(f"{paths[1]}: C2PA does not sign this kind of film; write .mp4 or .mov, or leave --c2pa away")
    openers = sealing(options.seal)
    pipeline = _pipeline(options, policy)
    return anonymize_one(options.video, options.follow, options.metadata, paths, pipeline, openers)


def _photos(options: AnonymizeOptions, policy: Policy) -> int:
    from faceanon.pipeline.many.meeting import casting
    from faceanon.pipeline.tasks import AnonymizeTask, Output

    files = options.files
    metadata = options.metadata
    carry = options.carry == "pixels"
    output = Output(
        files.quality, metadata.sidecar, options.vault, carry, metadata.mark, metadata.kinds, metadata.credentials
    )
    whole = plan(files.source, files.target, files.overwrite, f".{files.format}")
    # A format that cannot hold what was asked for is refused before a password is asked for.
    for _, target in whole.jobs:
        output.encoding(target)
    _leave_films(options, whole)
    folder = prepare_folder(files, options.seal.source, whole, _settings(options))
    # Once all arguments are known to be right, and before the model, which takes longer than a typing error should.
    openers = sealing(options.seal)
    pipeline = _pipeline(options, policy, MANY if whole.films else len(whole.jobs))
    if options.same_stranger:
        casting(pipeline)  # says at once if the model has no cast

    def make(photo: Path, file: Path, salt: bytes | None, kdf: KdfParameters | None) -> Task:
        return AnonymizeTask(pipeline, photo, file, openers, salt, kdf, options.aligned, output, options.again)

    film = film_anonymizer(options.video, options.follow, metadata, pipeline)
    return run_jobs(files, whole, folder, pipeline, openers, make, film, "anonymized")


def _leave_films(options: AnonymizeOptions, whole: Plan) -> None:
    """Do no films where something is asked for that films do not have, and name how films are done."""
    asked = {
        "--aligned": options.aligned,
        "--vault": options.vault,
        "--carry": options.carry,
    }
    for option, value in asked.items():
        if value and whole.films:
            whole.leave_films(f"{option} is for photos only; anonymize the film by itself, without it")
            whole.check_work(options.files.source)
    if options.metadata.of_photos_only and whole.films:
        whole.notes.append("--keep-metadata camera is for photos; films keep no camera")
    if options.same_stranger and whole.films:
        whole.notes.append("--same-stranger is for photos; in each film a person becomes a stranger of its own")


def _settings(options: AnonymizeOptions) -> dict[str, Any]:
    """What decides the results."""
    from faceanon.files import sha256, short_name

    select, exclude = options.choices()
    credentials = options.metadata.credentials
    return {
        "aligned": options.aligned,
        "min_face": options.min_face,
        "small_faces": options.small_faces,
        "format": options.files.format,
        "sidecar": options.metadata.sidecar,
        "mark": options.metadata.mark,
        "keep_metadata": sorted(options.metadata.kinds),
        "c2pa": None if credentials is None else short_name(credentials.chain.decode()),
        "command": "anonymize",
        "quality": options.files.quality,
        "detector": options.detector,
        "threshold": options.threshold,
        "boxes": None if options.boxes is None else sha256(options.boxes),
        "vault": options.vault,
        "same_stranger": options.same_stranger,
        "likeness": options.people.likeness,
        "carry": options.carry,
        "again": options.again,
        "face_size": options.face_size,
        "redraw": options.redraw,
        "to": options.seal.settings(),
        "select": select.settings(),
        "exclude": exclude.settings(),
    } | {f"films_{name}": value for name, value in {**asdict(options.video), **asdict(options.follow)}.items()}


def _policy(options: AnonymizeOptions) -> Policy:
    from faceanon.photo.policy import Policy

    select, exclude = options.choices()
    return Policy(options.min_face, options.small_faces, select.numbers, exclude.numbers or frozenset())


def _detector(name: str, min_face: float, device: str, threshold: float | None = None) -> Detector:
    """The detector that `--detector` names, for faces of `min_face` px and more."""
    from faceanon.photo.detect import shipped_detector

    if name in ("mtcnn", "yunet"):
        return shipped_detector(name, min_face, device, threshold)
    if not Path(name).exists():
        raise UserError(f"no detector {name!r}: give yunet, mtcnn, or the file of an SCRFD network")
    from faceanon.photo.scrfd import ScrfdDetector

    return ScrfdDetector(name, min_face, device, 0.5 if threshold is None else threshold)


def _pipeline(options: AnonymizeOptions, policy: Policy, photos: int = 1) -> Pipeline:
    from faceanon.photo.boxes import read_decisions

    files = options.files
    select, exclude = options.choices()
    torch_for = None if options.detector in (None, "yunet") else f"--detector {options.detector}"
    # A film has many faces, however short it is.
    pipeline = load_pipeline(files, torch_for, MANY if is_video(files.input) else photos)
    pipeline.policy = policy
    if not options.redraw:
        pipeline.leave_as_put_on()
    if options.face_size is not None:
        pipeline.largest = options.face_size
        _ = pipeline.sizes  # says at once if there is no such size
    if options.detector is not None or options.threshold is not None:
        name = options.detector or "yunet"
        pipeline.detector = _detector(name, policy.searched, files.device, options.threshold)
    if options.boxes is not None:
        pipeline.boxes = read_decisions(options.boxes)
    # After the detector was chosen: it looks for the face in the reference photos too.
    pipeline.people = people_of(select, exclude, options.people.likeness, files.model, pipeline)
    return pipeline


def _list_faces(options: AnonymizeOptions, policy: Policy) -> int:
    from faceanon.photo.boxes import Decisions, decided_photo
    from faceanon.photo.file import load_photo

    files = options.files
    source = files.source
    if files.output is not None:
        raise UserError("--list-faces writes nothing; leave OUT away")
    if files.csv is not None or files.shared:
        raise UserError("--list-faces writes nothing, in one process; leave --csv, --devices and --nodes away")
    if not source.exists():
        raise UserError(f"no such file or folder: {source}")
    paths = [source]
    left: dict[Path, str] = {}
    if source.is_dir():
        contents = look_into(source)
        paths = [*contents.photos, *contents.films]
        left = contents.left
        if not paths:
            raise UserError(f"no pictures in {source}; name a folder with some")
    pipeline = _pipeline(options, policy, MANY if source.is_dir() else 1)
    shown = 0
    decided: list[DecidedPhoto] = []
    for path in paths:
        name = path.relative_to(source).as_posix() if source.is_dir() else path.name
        try:
            if is_video(str(path)):
                if options.aligned:
                    raise UserError("--aligned is for photos only")
                print(path)
                decided += list_followed(path, name, options.follow, pipeline)
                shown += 1
                continue
            photo = load_photo(path)
            faces = pipeline.faces(photo, options.aligned)
        except UserError as error:
            if not source.is_dir() or files.on_error == "stop":
                raise
            left[path] = str(error)
            continue
        shown += 1
        print(path)
        for face in faces:
            print(f"  {face.describe()}")
        height, width = photo.pixels.shape[:2]
        decided.append(decided_photo(name, width, height, faces))
    if options.write_boxes is not None and decided:
        Decisions(tuple(decided)).write(options.write_boxes)
        print(f"written: {options.write_boxes}")
    if shown and not options.aligned and options.boxes is None:
        print(f"Faces below {policy.searched:g} px of the photo were not looked for.")
    for path, why in left.items():
        print(f"skipped: {path}: {why}")
    if not shown:
        return 2
    return LEFT_OUT if left else 0
