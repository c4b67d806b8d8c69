"""The test of a method with covered faces, from its name to the written report."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.errors import UserError

if TYPE_CHECKING:
    import torch

    from faceanon.backbones.base import Backbone
    from faceanon.data.files import Photo
    from faceanon.studies.occlusion.figures import OcclusionTest
    from faceanon.studies.occlusion.pictures import OccludedBatch

OUT = Path("occlusion")
PHOTOS = 2  # pictures of a person: two, so that one can be looked for among the others


@dataclass(frozen=True)
class OcclusionOptions:
    """What the test is made with.

    Args:
        model: Folder, shipped name or .ckpt of a model, or a preset that needs no training.
        out: Folder of the report.
        faces: Faces at most, two a person.
        batch_size: Faces at a time.
        photos: Aligned photographs, a folder a person; None for the synthetic ones that ship.
        identities: List of picture and person, instead of folders.
        device: Where it computes.
        seed: Of keys and draws.
    """

    model: str
    out: Path = OUT
    faces: int = 100
    batch_size: int = 16
    photos: Path | None = None
    identities: Path | None = None
    device: str = "cpu"
    seed: int = 0


def run_occlusion(options: OcclusionOptions) -> int:
    """Test the model, write the report, print the table.

    Raises:
        UserError: No such model, device or folder, numbers out of range, or nobody who could be told apart.
    """
    from tqdm import tqdm  # type: ignore[import-untyped]

    from faceanon.results import Results, run_meta
    from faceanon.studies.occlusion.page import write_occlusion

    backbone, test, device = _test(options)
    # Filled while the faces are read, so it is complete only after the loop.
    left_out: list[str] = []
    count, batches = _batches(options, backbone.image_size, left_out)
    with tqdm(total=count, desc="occluded faces", unit="face", leave=False, disable=not sys.stderr.isatty()) as bar:
        for batch in batches:
            test.update(batch.to(device), backbone)
            bar.update(len(batch.numbers))
    if not test.seen:
        raise UserError(f"none of the {count} pictures can be used: {left_out[0]}")
    try:
        figures = test.compute()
    except ValueError as error:
        raise UserError(f"{options.photos or 'the photographs that ship'}: {error}") from error
    source = "photographed"
    if options.photos is None:
        source = "photographs that ship"
    method = backbone.method.rpartition(".")[2]
    meta = {**run_meta(), "method": method, "model": options.model, "source": source, **test.meta}
    results = Results(figures, test.ci, meta, list(test.faults.values()), [*test.skipped, *left_out])
    # Sheets of real persons are not ours to spread.
    page, table = write_occlusion(options.out, results, {} if options.photos else test.samples)
    warnings = []
    for text in results.warnings:
        warnings.append(f"warning: {text}")
    print(table, *warnings, page, sep="\n")
    return 0


def _test(options: OcclusionOptions) -> tuple[Backbone, OcclusionTest, torch.device]:
    """The method on its device, and an empty test of it."""
    from faceanon import methods as _methods
    from faceanon.metrics.detection import make_detector
    from faceanon.studies.occlusion.figures import OcclusionTest

    if options.faces < 2 * PHOTOS or options.batch_size < 1:
        raise UserError(
            f"--faces {options.faces} --batch-size {options.batch_size}: give {2 * PHOTOS} or more, and 1 or more"
        )
    device = _methods.device(options.device)
    backbone = _methods.method(options.model)
    bundle = backbone.bundle
    bundle.to(device)
    if not (bundle.has("judge") or bundle.has("recogniser")):
        raise UserError(f"bundle {bundle.name!r} has neither judge nor recogniser, so nobody can say who is who")
    test = OcclusionTest(bundle, seed=options.seed, detectors={"mtcnn": make_detector("mtcnn", backbone.image_size)})
    return backbone.to(device).eval(), test, device


def _batches(options: OcclusionOptions, size: int, left_out: list[str]) -> tuple[int, Iterator[OccludedBatch]]:
    """How many faces, and the faces."""
    from faceanon.data.files import list_photos, name_identities
    from faceanon.data.prepared import shipped_photos
    from faceanon.metrics.detection import make_detector
    from faceanon.studies.occlusion.pictures import photo_batches

    photos = shipped_photos("test") if options.photos is None else list_photos(options.photos)
    if options.identities is not None:
        photos = name_identities(photos, options.identities)
    chosen = choose(photos, options.faces)
    return len(chosen), photo_batches(chosen, size, make_detector("mtcnn", size), options.batch_size, left_out)


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
    chosen = []
    # By name, so that a limit takes the same people on every machine.
    for _, own in sorted(people.items()):
        chosen.extend(own[:PHOTOS])
    return chosen[:most]
