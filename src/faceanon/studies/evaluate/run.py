"""From two or three folders of pictures to the figures, the page and the sheet."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from faceanon.errors import UserError
from faceanon.methods import device
from faceanon.metrics.evaluation import Evaluation
from faceanon.metrics.guards import few_pairs
from faceanon.metrics.saved import from_bytes, to_bytes
from faceanon.metrics.versions import Versions
from faceanon.photo.detect import shipped_detector
from faceanon.report.page import write_report
from faceanon.report.table import format_table
from faceanon.studies.evaluate.attack import add_attacks
from faceanon.studies.evaluate.faces import FaceReader, GivenFace
from faceanon.studies.evaluate.figures import KeptOfFaces, add_retrieval
from faceanon.studies.evaluate.judges import attackers_judge, judging, leave_out_missing_judge
from faceanon.studies.evaluate.pairs import pair_files
from faceanon.studies.photographs.figures import Figures
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle

BUNDLE = "photo128_pictures"
SMALLEST_FACE = 20  # pixels; as `faceanon anonymize` finds them
BATCH = 16
FEWEST_FOR_SETS = 50  # faces; FID and KID of fewer mean nothing
NAMED = 20  # files on the terminal


@dataclass(frozen=True)
class EvaluateOptions:
    """What is judged, and by whom.

    Args:
        originals: Folder of pictures, or one picture.
        anonymized: What a tool made of them.
        recovered: What was brought back; None where nothing was.
        out: Folder of the report.
        identities: CSV of file and person; None for folders or names of files.
        aligned: Whether each picture is one aligned face.
        judge: Files of further recognisers: ONNX of InsightFace's packs, or MobileFaceNet's .ckpt.
        bundle: Folder or name of the bundle whose networks look.
        attack: What trained attackers may spend; None leaves them out.
        device: Where it computes.
    """

    originals: Path
    anonymized: Path
    recovered: Path | None
    out: Path
    identities: Path | None
    aligned: bool
    judge: list[Path]
    bundle: str
    attack: str | None
    device: str


def run_evaluate(options: EvaluateOptions) -> int:
    """Judge the pictures, print the table, write the report.

    Returns:
        0, or 3 where a file has no partner or cannot be used.

    Raises:
        UserError: A file or folder is missing, nothing fits together, no face is found, or a judge is unusable.
    """
    pairing = pair_files(options.originals, options.anonymized, options.recovered, options.identities)
    bundle = Bundle(options.bundle).to(device(options.device))
    skipped = leave_out_missing_judge(bundle)
    evaluation = judging(bundle, options.judge)
    judge = None if options.attack is None else attackers_judge(evaluation)
    kept = KeptOfFaces(Bundle(BUNDLE).to(bundle.device).landmarks)
    reader = FaceReader(pairing, bundle, None if options.aligned else shipped_detector("yunet", SMALLEST_FACE))
    pictures = []
    faces = reader.read()
    while batch := list(islice(faces, BATCH)):
        images = _stacked(batch, options.recovered is not None)
        here = {what: image.to(bundle.device) for what, image in images.items()}
        _add(evaluation, here, torch.tensor([face.label for face in batch], device=bundle.device))
        kept.update(here)
        if judge is not None:
            pictures.append(images)
    if not reader.labels:
        advice = f"no face was found in {options.originals}; give --aligned if each picture is one aligned face"
        raise UserError([*reader.unusable.values(), advice][0])
    people = torch.tensor(reader.labels)
    skipped += _leave_out_sets(evaluation)
    figures = Figures(evaluation.compute(), evaluation.ci)
    add_retrieval(evaluation.suites, people, figures)
    kept.compute(people, figures)
    if judge is not None and options.attack is not None:
        original, anonymized = (torch.cat([part[what] for part in pictures]) for what in ("original", "anonymized"))
        add_attacks(bundle, judge, original, anonymized, people, options.attack, figures)
    _publish(options, reader, evaluation, figures, [*evaluation.skipped, *skipped])
    return 3 if pairing.alone or reader.unusable else 0


def _stacked(faces: Sequence[GivenFace], recovered: bool) -> dict[str, Tensor]:
    """`(B, 3, S, S)` by version; what did not come back stays as it was shown."""
    images = {what: torch.stack([face.versions[what] for face in faces]) for what in ("original", "anonymized")}
    if recovered:
        images["recovered"] = torch.stack([f.versions.get("recovered", f.versions["anonymized"]) for f in faces])
    return images


def _add(evaluation: Evaluation, images: dict[str, Tensor], identity: Tensor) -> None:
    # Through 8 bits, as `faceanon test` does it, to the order of the numbers in memory: the last digit depends on it.
    filed = {what: from_bytes(to_bytes(image), image.device) for what, image in images.items()}
    versions = Versions([filed["anonymized"]])
    if "recovered" in filed:
        versions.recovered["file"] = filed["recovered"]
    evaluation.add(FaceBatch(images["original"], identity, torch.full_like(identity, -1)), versions)


def _leave_out_sets(evaluation: Evaluation) -> list[str]:
    """Leave out what compares sets of pictures where there are too few; a line that says so, or none."""
    if evaluation.seen >= FEWEST_FOR_SETS:
        return []
    for name in ("fid", "kid"):
        evaluation.appearance.metrics.pop(name, None)
    return [f"fid, kid: {evaluation.seen} faces are too few, give {FEWEST_FOR_SETS} or more"]


def _publish(
    options: EvaluateOptions, reader: FaceReader, evaluation: Evaluation, figures: Figures, skipped: Sequence[str]
) -> None:
    """Write results.json, samples.png and report.html, print the table, and name what was left out."""
    folders = [options.originals, options.anonymized, options.recovered]
    told_by = reader.pairing.told_by or "nothing, so each face counts as a person of its own"
    meta = {
        **evaluation.meta,
        # Nobody knows what another tool was trained with.
        "white_box": [],
        # Names alone: results are for others too, and the same pictures give the same file wherever they lie.
        "command": shlex.join(["faceanon", "evaluate", *(folder.name for folder in folders if folder is not None)]),
        "aligned": options.aligned,
        "judges": list(evaluation.recognisers),
        "detectors": list(evaluation.detectors),
        "attack": options.attack,
        "persons_told_by": told_by,
        "without_partner": reader.pairing.alone,
        "without_face": reader.without_face,
        "unusable": list(reader.unusable),
    }
    for name in ("keys", "method_sha256"):
        del meta[name]
    warnings = [*evaluation.warnings, *_doubts(evaluation)]
    page = write_report(
        options.out,
        figures.values,
        evaluation.samples,
        meta,
        warnings=warnings,
        ci=figures.intervals,
        scores=evaluation.scores,
        skipped=skipped,
    )
    print(format_table(figures.values, ci=figures.intervals))
    print(f"faces: {len(reader.labels)}; pictures: {len(reader.pairing.pairs)}; persons are told by {told_by}")
    for warning in warnings:
        print(f"warning: {warning}")
    left_out = [f"{name}: no face found" for name in reader.without_face]
    left_out += [*reader.unusable.values(), *reader.pairing.alone]
    if len(left_out) > NAMED:
        left_out[NAMED:] = [f"{len(left_out) - NAMED} more, which results.json names"]
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    print(f"report: {page.resolve()}")


def _doubts(evaluation: Evaluation) -> list[str]:
    """What makes the thresholds doubtful."""
    pairs = evaluation.scores["impostor"].numel()
    if not pairs:
        return ["one person alone sets no threshold: that of the shipped model's test stands in"]
    few = few_pairs(pairs, evaluation.far)
    return [] if few is None else [few]
