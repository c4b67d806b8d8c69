"""Replace every face of a photo, or of each photo in a folder, by a stranger's.

The same password brings the faces back (`faceanon recover`); without it they stay hidden. Each output carries what
recovery needs besides the password: where the faces are, the salt, the model's name and hash. Keep the file as it is:
scaling it or saving it anew loses the way back. EXIF data such as the place are not copied.

  faceanon anonymize party.jpg party_anon.png
  faceanon anonymize party.jpg --list-faces                       # number the faces, change nothing
  faceanon anonymize party.jpg party_anon.png --exclude 2         # leave face 2 as it is
  faceanon anonymize photos/ hidden/ --exclude anna.jpg           # leave Anna as she is, wherever she is recognised
  FACEANON_PW=... faceanon anonymize photos/ hidden/ --password-env FACEANON_PW
  faceanon anonymize face.png out.png --aligned --password-file secret.txt
  faceanon anonymize party.mp4 party_anon.mp4 --strict            # one stranger for each face that is followed

All photos of one run share a salt, so a person becomes the same stranger in each. A face that is too small for the
model is hidden for good by --small-faces, and counted. A face that the detector does not find stays as it is: look at
the results before you publish them.
Exit code: 0 done, 1 failed, 2 wrong usage or input (a photo without a face counts as such; nothing is written).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.commands._files import add_file_arguments, load_pipeline, pictures, plan
from faceanon.commands._people import add_people_arguments, choices, people_of
from faceanon.commands._run import prepare_folder, quiet_pictures, run_jobs
from faceanon.commands._secret import add_password_arguments, check_password, password_of
from faceanon.commands._shares import check_shares, shared
from faceanon.commands._video import add_video_arguments, anonymize_one, check_video, is_video, settle
from faceanon.errors import UserError

if TYPE_CHECKING:
    import torch

    from faceanon.key import KdfParameters
    from faceanon.photo.detect import Detector
    from faceanon.photo.policy import Policy
    from faceanon.pipeline.photo import Pipeline
    from faceanon.pipeline.tasks import Task

DRAWN_ONLY = (
    "note: this model knows drawn faces of 64 px only: on photographs it may leave people recognisable and does not "
    "bring them back; leave --model away for the model of photographs that ships"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    add_file_arguments(parser, "photo", output_needed=False)
    parser.add_argument(
        "--sidecar",
        action="store_true",
        help="write the recovery data beside the file (NAME.faceanon.json) instead of into it",
    )
    parser.add_argument(
        "--vault",
        action="store_true",
        help="keep the original faces too, encrypted under the password, for recover --exact. A wrong password then "
        "shows itself, to you and to whoever guesses (docs/how-to/vault.md)",
    )
    parser.add_argument(
        "--carry",
        choices=("pixels",),
        help="write the recovery data also into the lowest bits of the faces' pixels, so that recovery works after the "
        "metadata were stripped; for .png, and .webp without --quality",
    )
    _add_face_arguments(parser)
    add_video_arguments(parser, follow=True)
    add_password_arguments(parser)


def _add_face_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("faces")
    group.add_argument(
        "--aligned",
        action="store_true",
        help="pictures are aligned square faces (synth64, FFHQ, CelebA-HQ): take each whole and detect nothing",
    )
    group.add_argument(
        "--min-face",
        type=float,
        default=20,
        metavar="PX",
        help="faces below this side are not for the model; they are looked for down to 0.6 of it (default: 20)",
    )
    group.add_argument(
        "--small-faces",
        choices=("blur", "pixelate", "mask", "refuse"),
        help="what hides, for good, faces that the model cannot be applied to; refuse: leave such photos undone "
        "(default: blur)",
    )
    group.add_argument("--list-faces", action="store_true", help="number the faces and say what would be done; no OUT")
    add_people_arguments(group)
    group.add_argument(
        "--detector",
        metavar="NAME",
        help="find faces by yunet, mtcnn, or the file of an SCRFD network, e.g. det_10g.onnx of InsightFace's "
        "buffalo_l (default: yunet for models of photographs, mtcnn for those of drawn faces)",
    )


def run(args: argparse.Namespace) -> int:
    """Anonymize IN into OUT.

    Raises:
        UserError: If an argument, the password, the model or (unless skipped) a photo is unusable.
    """
    settle(args)
    if args.output is None and not args.list_faces:
        raise UserError("name OUT, the file or folder to write; or give --list-faces to write nothing")
    if args.aligned and args.detector is not None:
        raise UserError("--aligned looks for no faces; leave --detector away")
    if not args.list_faces:
        check_password(args)
    from faceanon.photo.file import SUFFIXES
    from faceanon.pipeline.many.memory import keep_memory
    from faceanon.pipeline.tasks import AnonymizeTask, Output

    quiet_pictures()
    keep_memory()
    source = Path(args.input)
    policy = _policy(args)
    if is_video(source):
        check_shares(args, folder=False)
        paths, password = check_video(args), password_of(args, confirm=True)
        return anonymize_one(args, paths, _pipeline(args, policy), password)
    if args.list_faces:
        return _list_faces(args, source, policy)
    target = Path(args.output)
    output = Output(args.quality, args.sidecar, args.vault, args.carry == "pixels")
    jobs = plan(source, target, SUFFIXES, args.overwrite, f".{args.format}")
    for _, file in jobs:
        output.encoding(file)
    folder = prepare_folder(args, jobs, _settings(args))
    password = password_of(args, confirm=True)
    pipeline = _pipeline(args, policy)

    def make(photo: Path, file: Path, salt: bytes | None, kdf: KdfParameters | None) -> Task:
        return AnonymizeTask(pipeline, photo, file, password, salt, kdf, args.aligned, output)

    return run_jobs(args, jobs, folder, pipeline, password, make, "anonymized")


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What decides the results; None is as in journals of before there was such a setting."""
    settings = {name: getattr(args, name) for name in ("aligned", "min_face", "small_faces", "format", "sidecar")}
    settings |= {"command": "anonymize", "quality": args.quality, "detector": args.detector}
    select, exclude = choices(args)
    settings |= {"vault": args.vault or None, "likeness": args.likeness, "carry": args.carry}
    return settings | {"select": select.settings(), "exclude": exclude.settings()}


def _policy(args: argparse.Namespace) -> Policy:
    from faceanon.photo.policy import Policy

    select, exclude = choices(args)
    return Policy(args.min_face, args.small_faces, select.numbers, exclude.numbers or frozenset())


def _detector(name: str, min_face: float, device: torch.device) -> Detector:
    """The detector that `--detector` names, for faces of `min_face` px and more."""
    from faceanon.photo.detect import MtcnnConfig, MtcnnDetector, ScrfdDetector
    from faceanon.photo.yunet import YunetConfig, YunetDetector

    if name == "yunet":
        return YunetDetector(YunetConfig(min_face=min_face))
    if name == "mtcnn":
        return MtcnnDetector(MtcnnConfig(min_face=min_face), device)
    return ScrfdDetector(name, min_face, device)


def _pipeline(args: argparse.Namespace, policy: Policy) -> Pipeline:
    pipeline = load_pipeline(args.model, args.device)
    pipeline.policy = policy
    if args.detector is not None:
        pipeline.detector = _detector(args.detector, policy.searched, pipeline.device)
    pipeline.people = people_of(args, pipeline)
    if pipeline.drawn_only and not args.list_faces and os.environ.get("LOCAL_RANK", "0") == "0":  # of --devices, one
        print(DRAWN_ONLY, file=sys.stderr)
    return pipeline


def _list_faces(args: argparse.Namespace, source: Path, policy: Policy) -> int:
    from faceanon.photo.file import SUFFIXES, load_photo

    if args.output is not None:
        raise UserError("--list-faces writes nothing; leave OUT away")
    if args.csv is not None or shared(args):
        raise UserError("--list-faces writes nothing, in one process; leave --csv, --devices and --nodes away")
    if not source.exists():
        raise UserError(f"no such file or folder: {source}")
    files = pictures(source, SUFFIXES) if source.is_dir() else [source]
    pipeline = _pipeline(args, policy)
    shown = 0
    for file in files:
        try:
            faces = pipeline.faces(load_photo(file), args.aligned)
        except UserError as error:
            if not source.is_dir() or args.on_error == "stop":
                raise
            print(f"skipped: {error}")
            continue
        shown += 1
        print(file)
        for face in faces:
            print(f"  {face.describe()}")
    return 0 if shown else 2
