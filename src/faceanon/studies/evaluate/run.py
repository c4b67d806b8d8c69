"""From two or three folders of pictures to the figures, the page and the sheet."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

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
from faceanon.studies.evaluate.pairs import Pair, Pairing, pair_files
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


@dataclass
class Rows:
    """The faces of a test, as they are read.

    Args:
        pairing: Whose faces.
        labels: Number of each face's person; -1 where unknown.
        numbers: Number of a person by name.
        without_face: Originals in which no face was found.
        unusable: Pictures that could not be read or do not fit, one line each.
    """

    pairing: Pairing
    labels: list[int] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    without_face: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)

    def batches(self, reader: FaceReader, recovered: bool) -> Iterator[dict[str, Tensor]]:
        """All faces, so many at a time: `(B, 3, S, S)` in [-1, 1] by version."""
        waiting: list[dict[str, Tensor]] = []
        silent = not sys.stderr.isatty()
        for pair in tqdm(self.pairing.pairs, desc="judging", unit="picture", leave=False, disable=silent):
            for face in self._faces(reader, pair):
                if recovered:
                    # What did not come back stays as it was shown.
                    face.versions.setdefault("recovered", face.versions["anonymized"])
                waiting.append(face.versions)
                self.labels.append(self._label(face))
            while len(waiting) >= BATCH:
                yield _stacked(waiting[:BATCH])
                waiting = waiting[BATCH:]
        if waiting:
            yield _stacked(waiting)

    def _faces(self, reader: FaceReader, pair: Pair) -> list[GivenFace]:
        try:
            faces = reader.faces(pair)
        except UserError as error:
            self.unusable.append(str(error))
            return []
        if not faces:
            self.without_face.append(pair.original.name)
        return faces

    def _label(self, face: GivenFace) -> int:
        # Where nobody says who is who, each face counts as a person of its own.
        if not self.pairing.told_by:
            return len(self.labels)
        if face.person is None:
            return -1
        return self.numbers.setdefault(face.person, len(self.numbers))


def _stacked(faces: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {what: torch.stack([face[what] for face in faces]) for what in faces[0]}


def run_evaluate(options: EvaluateOptions) -> int:
    """Judge the pictures, print the table, write the report.

    Returns:
        0, or 3 where a file has no partner or cannot be used.

    Raises:
        UserError: A file or folder is missing, nothing fits together, no face is found, or a judge is unusable.
    """
    rows = Rows(pair_files(options.originals, options.anonymized, options.recovered, options.identities))
    bundle = Bundle(options.bundle).to(device(options.device))
    skipped = leave_out_missing_judge(bundle)
    evaluation = judging(bundle, options.judge)
    judge = None if options.attack is None else attackers_judge(evaluation)
    kept = KeptOfFaces(Bundle(BUNDLE).to(bundle.device).landmarks)
    pictures: list[dict[str, Tensor]] = []
    detector = None if options.aligned else shipped_detector("yunet", SMALLEST_FACE)
    for images in rows.batches(FaceReader(bundle, detector), options.recovered is not None):
        here = {what: image.to(bundle.device) for what, image in images.items()}
        _add(evaluation, here, torch.tensor(rows.labels[evaluation.seen :][: len(images["original"])]))
        kept.update(here)
        if judge is not None:
            pictures.append(images)
    if not rows.labels:
        advice = f"no face was found in {options.originals}; give --aligned if each picture is one aligned face"
        raise UserError(rows.unusable[0] if rows.unusable else advice)
    people = torch.tensor(rows.labels)
    if len(people) < FEWEST_FOR_SETS:
        skipped.append(f"fid, kid: {len(people)} faces are too few, give {FEWEST_FOR_SETS} or more")
        for name in ("fid", "kid"):
            evaluation.appearance.metrics.pop(name, None)
    figures = Figures(evaluation.compute(), evaluation.ci)
    add_retrieval(evaluation.suites, people, figures)
    kept.compute(people, figures)
    if judge is not None and options.attack is not None:
        original, anonymized = (torch.cat([part[what] for part in pictures]) for what in ("original", "anonymized"))
        add_attacks(bundle, judge, original, anonymized, people, options.attack, figures)
    _publish(options, rows, evaluation, figures, [*evaluation.skipped, *skipped])
    return 3 if rows.pairing.alone or rows.unusable else 0


def _add(evaluation: Evaluation, images: dict[str, Tensor], identity: Tensor) -> None:
    # Through 8 bits, as `faceanon test` does it, to the order of the numbers in memory: the last digit depends on it.
    filed = {what: from_bytes(to_bytes(image), image.device) for what, image in images.items()}
    versions = Versions([filed["anonymized"]])
    if "recovered" in filed:
        versions.recovered["file"] = filed["recovered"]
    evaluation.add(FaceBatch(images["original"], identity, torch.full_like(identity, -1)), versions)


def _publish(
    options: EvaluateOptions, rows: Rows, evaluation: Evaluation, figures: Figures, skipped: Sequence[str]
) -> None:
    """Write results.json, samples.png and report.html, print the table, and name what was left out."""
    folders = [options.originals, options.anonymized, options.recovered]
    told_by = rows.pairing.told_by or "nothing, so each face counts as a person of its own"
    meta = {
        **evaluation.meta,
        # Nobody knows what another tool was trained with.
        "white_box": [],
        # Names alone: results are for others too, and the same pictures give the same file wherever they lie.
        "command": shlex.join(["faceanon", "evaluate", *(folder.name for folder in folders if folder is not None)]),
        "aligned": options.aligned,
        "persons_told_by": told_by,
        "without_partner": rows.pairing.alone,
        "without_face": rows.without_face,
        "unusable": rows.unusable,
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
    print(f"faces: {len(rows.labels)}; pictures: {len(rows.pairing.pairs)}; persons are told by {told_by}")
    for warning in warnings:
        print(f"warning: {warning}")
    left_out = [*(f"{name}: no face found" for name in rows.without_face), *rows.unusable, *rows.pairing.alone]
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
