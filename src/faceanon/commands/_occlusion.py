"""`faceanon report --occlusion`: what glasses, masks and hands do to a method, and it to them."""

from __future__ import annotations

import argparse

OPTIONS = ("faces", "batch_size", "photos", "identities", "device", "seed")  # of `faceanon report`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--occlusion` and what belongs to it."""
    group = parser.add_argument_group(
        "occlusion", "Faces with glasses, masks, hands: a folder with page, .json, .md and .png (--out: occlusion)"
    )
    group.add_argument(
        "--occlusion",
        metavar="MODEL",
        help="test a model (folder, shipped name or .ckpt) or a preset that needs no training with occluded faces",
    )
    group.add_argument("--faces", type=int, default=100, metavar="N", help="faces at most, two a person (%(default)s)")
    group.add_argument("--batch-size", type=int, default=16, metavar="N", help="faces at a time (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Test the model, write the report, print the table.

    Raises:
        UserError: No such model, device or folder, numbers out of range, or nobody who could be told apart.
    """
    from faceanon.studies.occlusion.run import OUT, Options, run_occlusion

    options = Options(
        model=args.occlusion,
        out=args.out or OUT,
        faces=args.faces,
        batch_size=args.batch_size,
        photos=args.photos,
        identities=args.identities,
        device=args.device,
        seed=args.seed,
    )
    return run_occlusion(options)
