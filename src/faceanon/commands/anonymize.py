"""Replace every face of a photo, or of each photo in a folder, by a stranger's.

The same password brings the faces back (`faceanon recover`); without it they stay hidden. Each output is a PNG that
carries what recovery needs besides the password: where the faces are, the salt, the model's name and hash. Keep the
PNG as it is: scaling it or saving it as JPEG loses the way back. EXIF data such as the place are not copied.

  faceanon anonymize party.jpg party_anon.png
  FACEANON_PW=... faceanon anonymize photos/ hidden/ --password-env FACEANON_PW
  faceanon anonymize face.png out.png --aligned --password-file secret.txt

All photos of one run share a salt, so a person becomes the same stranger in each. A face that the detector does not
find stays as it is: look at the results before you publish them.
Exit code: 0 done, 1 failed, 2 wrong usage or input (a photo without a face counts as such; nothing is written).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.commands._files import add_file_arguments, finish, load_pipeline, plan, run_jobs
from faceanon.commands._secret import add_password_arguments, read_password


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    add_file_arguments(parser, "photo")
    parser.add_argument(
        "--aligned",
        action="store_true",
        help="pictures are aligned square faces (synth64, FFHQ, CelebA-HQ): take each whole and detect nothing",
    )
    parser.add_argument(
        "--min-face", type=float, default=20, metavar="PX", help="side of the smallest face to look for (default: 20)"
    )
    parser.add_argument(
        "--detector",
        metavar="FILE",
        help="find faces by this SCRFD network, e.g. det_10g.onnx of InsightFace's buffalo_l (default: MTCNN)",
    )
    add_password_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Anonymize IN into OUT.

    Raises:
        UserError: If an argument, the password, the model or (unless skipped) a photo is unusable.
    """
    from faceanon.data.detect import MtcnnConfig, MtcnnDetector, ScrfdDetector
    from faceanon.data.photo import SUFFIXES
    from faceanon.pipeline import anonymize_file

    source, target = Path(args.input), Path(args.output)
    config = MtcnnConfig(min_face=args.min_face)
    jobs = plan(source, target, SUFFIXES, args.overwrite)
    password = read_password(args.password_env, args.password_file, confirm=True)
    pipeline = load_pipeline(args.model, args.device)
    if not args.aligned:
        own = args.detector
        pipeline.detector = ScrfdDetector(own, args.min_face) if own else MtcnnDetector(config, pipeline.device)
    tally = run_jobs(
        jobs,
        lambda photo, png: anonymize_file(pipeline, photo, png, password, args.aligned),
        skip=source.is_dir() and args.on_error == "skip",
    )
    return finish(tally, "anonymized", target)
