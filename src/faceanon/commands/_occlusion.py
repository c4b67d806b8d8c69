"""`faceanon report --occlusion`: what glasses, masks and hands do to a method, and it to them."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.errors import UserError

if TYPE_CHECKING:
    import torch

    from faceanon.backbones.base import Backbone
    from faceanon.data.files import Photo
    from faceanon.data.occlusions import OccludedBatch
    from faceanon.metrics.occlusion import OcclusionTest

OUT = Path("occlusion")
OPTIONS = ("faces", "batch_size", "photos", "identities", "device", "seed")  # of `faceanon report`
PHOTOS = 2  # pictures of a person: two, so that one can be looked for among the others


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
    from tqdm import tqdm  # type: ignore[import-untyped]

    from faceanon.report.occlusion import write_occlusion
    from faceanon.report.results import Results, run_meta

    backbone, test, device = _test(args)
    left_out: list[str] = []
    count, batches = _batches(args, backbone.image_size, left_out)
    with tqdm(total=count, desc="occluded faces", unit="face", leave=False, disable=not sys.stderr.isatty()) as bar:
        for batch in batches:
            test.update(batch.to(device), backbone)
            bar.update(len(batch.numbers))
    if not test.seen:
        raise UserError(f"none of the {count} pictures in {args.photos} can be used: {left_out[0]}")
    try:
        figures = test.compute()
    except ValueError as error:
        raise UserError(f"{args.photos or 'drawn faces'}: {error}") from error
    source = "procedural" if args.photos is None else "photographed"
    meta = {**run_meta(), "method": type(backbone).__name__, "model": args.occlusion, "source": source, **test.meta}
    results = Results(figures, test.ci, meta, list(test.faults.values()), [*test.skipped, *left_out])
    page, table = write_occlusion(args.out or OUT, results, {} if args.photos else test.samples)
    print(table, *(f"warning: {text}" for text in results.warnings), page, sep="\n")
    return 0


def _test(args: argparse.Namespace) -> tuple[Backbone, OcclusionTest, torch.device]:
    """The method on its device, and an empty test of it."""
    from faceanon.commands import _methods
    from faceanon.metrics.detection import make_detector
    from faceanon.metrics.occlusion import OcclusionTest

    if args.faces < 2 * PHOTOS or args.batch_size < 1:
        raise UserError(
            f"--faces {args.faces} --batch-size {args.batch_size}: give {2 * PHOTOS} or more, and 1 or more"
        )
    device = _methods.device(args.device)
    backbone = _methods.method(args.occlusion)
    bundle = backbone.bundle
    bundle.to(device)
    if not (bundle.has("judge") or bundle.has("recogniser")):
        raise UserError(f"bundle {bundle.name!r} has neither judge nor recogniser, so nobody can say who is who")
    test = OcclusionTest(bundle, seed=args.seed, detectors={"mtcnn": make_detector("mtcnn", backbone.image_size)})
    return backbone.to(device).eval(), test, device


def _batches(args: argparse.Namespace, size: int, left_out: list[str]) -> tuple[int, Iterator[OccludedBatch]]:
    """How many faces, and the faces."""
    from faceanon.data.files import list_photos, name_identities
    from faceanon.data.occlusions import photo_batches, rendered_batches
    from faceanon.metrics.detection import make_detector

    if args.photos is None:
        people = args.faces // PHOTOS
        return people * PHOTOS, rendered_batches(people, PHOTOS, size, args.batch_size)
    photos = list_photos(args.photos)
    if args.identities is not None:
        photos = name_identities(photos, args.identities)
    chosen = choose(photos, args.faces)
    return len(chosen), photo_batches(chosen, size, make_detector("mtcnn", size), args.batch_size, left_out)


def choose(photos: list[Photo], most: int) -> list[Photo]:
    """The first two pictures of each person, persons by name, at most so many.

    Raises:
        UserError: Fewer than two persons are known.
    """
    people: dict[str, list[Photo]] = defaultdict(list)
    for photo in photos:
        if photo.identity is not None:
            people[photo.identity].append(photo)
    if len(people) < 2:
        raise UserError(
            f"--photos: two known people are needed, there are {len(people)} in {len(photos)} pictures; "
            "put each person's pictures into a folder, or give --identities"
        )
    return [photo for _, own in sorted(people.items()) for photo in own[:PHOTOS]][:most]
