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

OUT = Path("occlusion")
PHOTOS = 2  # pictures of a person: two, so that one can be looked for among the others


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--occlusion` and what belongs to it."""
    group = parser.add_argument_group(
        "occlusion", "A folder with occlusion.html, .json, .md and .png (default: occlusion)"
    )
    group.add_argument(
        "--occlusion", metavar="CHECKPOINT", help="test a model (folder, shipped name or .ckpt) with occluded faces"
    )
    group.add_argument(
        "--photos", type=Path, metavar="FOLDER", help="aligned photographs, a folder a person (default: drawn faces)"
    )
    group.add_argument("--identities", type=Path, metavar="FILE", help="list of picture and person, instead of folders")
    group.add_argument("--faces", type=int, default=100, metavar="N", help="faces at most, two a person (%(default)s)")
    group.add_argument("--batch-size", type=int, default=16, metavar="N", help="faces at a time (%(default)s)")
    group.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, ... (%(default)s)")
    group.add_argument("--seed", type=int, default=0, help="of keys and intervals (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Test the model, write the report, print the table.

    Raises:
        UserError: No such model, device or folder, numbers out of range, or nobody who could be told apart.
    """
    from tqdm import tqdm  # type: ignore[import-untyped]

    from faceanon.metrics.detection import make_detector
    from faceanon.metrics.occlusion import OcclusionTest
    from faceanon.report.occlusion import write_occlusion
    from faceanon.report.results import Results, run_meta

    if args.faces < 2 * PHOTOS or args.batch_size < 1:
        raise UserError(
            f"--faces {args.faces} --batch-size {args.batch_size}: give {2 * PHOTOS} or more, and 1 or more"
        )
    backbone, device = _model(args)
    size, left_out = backbone.image_size, list[str]()
    test = OcclusionTest(backbone.bundle, seed=args.seed, detectors={"mtcnn": make_detector("mtcnn", size)})
    count, batches = _batches(args, size, left_out)
    with tqdm(total=count, desc="occluded faces", unit="face", leave=False, disable=not sys.stderr.isatty()) as bar:
        for batch in batches:
            test.update(batch.to(device), backbone)
            bar.update(len(batch.numbers))
    if not test.seen:
        raise UserError(f"none of the {count} pictures in {args.photos} can be used: {left_out[0]}")
    try:
        figures = test.compute()
    except ValueError as error:
        raise UserError(f"{args.photos}: {error}") from error
    source = "procedural" if args.photos is None else "photographed"
    meta = {**run_meta(), "method": type(backbone).__name__, "model": args.occlusion, "source": source, **test.meta}
    results = Results(figures, test.ci, meta, list(test.faults.values()), [*test.skipped, *left_out])
    page, table = write_occlusion(args.out or OUT, results, {} if args.photos else test.samples)
    print(table, *(f"warning: {text}" for text in results.warnings), page, sep="\n")
    return 0


def _model(args: argparse.Namespace) -> tuple[Backbone, torch.device]:
    import torch

    from faceanon.weights.store import load_backbone

    try:
        device = torch.device(args.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"cannot compute on {args.device!r}: {str(error).splitlines()[0]}") from error
    backbone, _ = load_backbone(args.occlusion)
    backbone.bundle.to(device)
    return backbone.to(device).eval(), device


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
            f"--photos: {len(people)} person is known in {len(photos)} pictures, two are needed; "
            "put each person's pictures into a folder, or give --identities"
        )
    return [photo for _, own in sorted(people.items()) for photo in own[:PHOTOS]][:most]
