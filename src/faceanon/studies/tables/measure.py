"""Test methods for the papers' tables: as `faceanon test` does, at the papers' thresholds as well, and each once."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faceanon.backbones.base import Backbone
from faceanon.errors import UserError
from faceanon.files import state_sha256
from faceanon.metrics.cache import FeatureCache
from faceanon.metrics.evaluation import Evaluation
from faceanon.metrics.fingerprints import bundle_hashes
from faceanon.metrics.interval import rate_interval
from faceanon.metrics.protocol import Protocol, load_protocol
from faceanon.metrics.readings import ThresholdReading
from faceanon.metrics.recognition import Verification, match_rate
from faceanon.report.evaluated import write_evaluation
from faceanon.results import FILE_NAME, Results, load_results
from faceanon.studies.tables.data import TestPictures
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle

READINGS_FROM = "dbaf-v1"  # the protocol whose thresholds are read in every way, and every recogniser is counted with
NETWORKS = ("judge", "recogniser", "parser", "landmarks", "perceptual")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class TableSetting:
    """What is the same for all methods of a table.

    Args:
        bundle: The judge and the other networks.
        protocol: Every choice of the test.
        pictures: Those of the protocol, or fewer.
        folder: Where results are kept, a folder a method.
        kffa_keys: Keys a picture that the tables need; those of the protocol if it has more.
        detectors: Further face detectors by name.
        needs_readings: Whether a table counts at thresholds that papers print.
        device: Where methods and networks run.
        cache: Keeps what the networks make of the originals from one method to the next.
        thresholds: Of recognisers by name, measured on other pictures, for a test whose pictures name nobody.
    """

    bundle: Bundle
    protocol: Protocol
    pictures: TestPictures
    folder: Path
    kffa_keys: int = 0
    detectors: Mapping[str, Any] | None = None
    needs_readings: bool = True
    device: str = "cpu"
    cache: FeatureCache | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @property
    def keys(self) -> int:
        """Keys a picture for KFFA."""
        return max(self.kffa_keys, self.protocol.kffa_keys)

    @property
    def further_judges(self) -> list[str]:
        """Names of the judges beside the first one."""
        return sorted(getattr(self.bundle, "further_judges", {}))


def readings(recogniser: str) -> list[ThresholdReading]:
    """Every reading of the papers' thresholds, for one recogniser; each name once."""
    by_name = {}
    # A reading stands there once for each recogniser of the papers; here all are counted with the one asked for.
    for r in load_protocol(READINGS_FROM).matching.readings:
        by_name[r.name] = r
    return [ThresholdReading(name, recogniser, r.distance, r.threshold) for name, r in by_name.items()]


def thresholds(bundle: Bundle, batches: Sequence[FaceBatch], far: float, device: str) -> dict[str, float]:
    """Threshold of every recogniser at a false accept rate, on pictures of named people.

    Raises:
        UserError: They show no two people.
    """
    found = {}
    for name, network in Evaluation(bundle.to(device)).recognisers.items():
        pairs = Verification(far)
        for batch in batches:
            pairs.update(network(batch.image.to(device)).cpu(), batch.identity)
        found[name] = float(pairs.compute()["threshold"])
        if math.isnan(found[name]):
            raise UserError("--named: the folder names no two people; give one with a folder a person, as LFW has")
    return found


def method_digest(backbone: Backbone) -> str:
    """Hash over class, arguments (but the bundle's name) and weights of a method."""
    # Of the bundle, `check_bundle` compares what the method learnt from.
    settings = json.dumps(backbone.settings, sort_keys=True, default=str)
    content = [type(backbone).__qualname__, settings, state_sha256(backbone)]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def check_bundle(name: str, backbone: Backbone, bundle: Bundle) -> None:
    """Refuse a method that the bundle cannot judge.

    The judges may be other ones than those of the method's bundle, since they train nothing. The recogniser may not:
    what it says stands in the table as the verdict of the network that the method was trained against.

    Raises:
        UserError: The recogniser or the pictures' side differs, or a judge is what the method was trained against.
    """
    theirs = backbone.bundle
    where = f"{name} stands on bundle {theirs.name!r}"
    if theirs.image_size != bundle.image_size:
        sides = f"pictures of {theirs.image_size} px, {bundle.name!r} of {bundle.image_size} px"
        raise UserError(f"{where} of {sides}; give --bundle one of its side")
    recogniser = bundle_hashes(theirs).get("recogniser")
    ours = bundle_hashes(bundle)
    if recogniser != ours.get("recogniser"):
        raise UserError(
            f"{where}, whose recogniser is not that of {bundle.name!r}; give --bundle the one that it was trained on"
        )
    for role, digest in ours.items():
        if role.startswith("judge") and digest == recogniser:
            raise UserError(
                f"{where}, whose recogniser judges in {bundle.name!r}; give --bundle one with another judge"
            )


def cached(path: Path, backbone: Backbone, setting: TableSetting) -> Results | None:
    """Results that lie at `path` (file or folder), where they are of this very method, protocol and pictures.

    Those that `faceanon test` wrote do as well, where no table needs more than it measures.
    """
    path = path / FILE_NAME if path.is_dir() else path
    if not path.is_file():
        return None
    kept = load_results(path)
    meta = kept.meta
    protocol = kept.meta.get("protocol") or {}
    ours = bundle_hashes(setting.bundle)
    theirs = meta.get("weights") or {}
    same = (
        protocol.get("sha256") == setting.protocol.digest
        and protocol.get("pictures_sha256") == setting.pictures.seen.sha256
        and meta.get("seed") == setting.protocol.seed
        and all(theirs.get(role) == ours.get(role) for role in NETWORKS)
    )
    if same and _fits(meta, backbone, setting):
        return kept
    return None


def _fits(meta: Mapping[str, Any], backbone: Backbone, setting: TableSetting) -> bool:
    """Whether results are of this method, and hold all that the tables need."""
    extra = meta.get("tables")
    detectors = sorted(setting.detectors or {})
    judges = setting.further_judges
    if extra is None:
        # Methods without weights all have one hash, which tells nothing of their arguments.
        of_method = bool(backbone.state_dict()) and meta.get("method_sha256") == state_sha256(backbone)
        # `faceanon test` reads no thresholds of papers, has no further detectors or judges that we could see, and takes
        # the protocol's keys alone.
        more = setting.needs_readings or setting.keys > setting.protocol.kffa_keys or detectors or judges
        return of_method and not more and not setting.thresholds
    enough = (
        extra.get("kffa_keys", 0) >= setting.keys
        and set(detectors) <= set(extra.get("detectors", []))
        and set(judges) <= set(extra.get("judges", []))
        and extra.get("thresholds", {}) == setting.thresholds
    )
    return enough and extra.get("method") == method_digest(backbone)


def measure(name: str, backbone: Backbone, setting: TableSetting, progress: Progress | None = None) -> Results:
    """Test one method and write its report into a folder of its name; what is there already is not repeated.

    Args:
        name: Of the method; names the folder.
        backbone: In eval mode, on the setting's device with its bundle.
        setting: What it is tested with.
        progress: Called with pictures done and in all.

    Raises:
        UserError: The folder cannot be written.
    """
    folder = setting.folder / name
    if (kept := cached(folder, backbone, setting)) is not None:
        return kept
    # One cache for all methods: the originals are the same for each.
    evaluation = Evaluation(
        setting.bundle,
        protocol=setting.protocol,
        detectors=setting.detectors,
        cache=setting.cache,
        fallback=setting.thresholds,
    )
    evaluation.kffa_keys = setting.keys
    total = sum(map(len, setting.pictures.batches))
    for batch in setting.pictures.batches:
        evaluation.update(batch.to(setting.device), backbone)
        if progress is not None:
            progress(evaluation.seen, total)
    return _write(folder, evaluation, backbone, setting)


def _write(folder: Path, evaluation: Evaluation, backbone: Backbone, setting: TableSetting) -> Results:
    """The report as `faceanon test` writes it; without a sheet of photographs, which are not ours to spread."""
    figures = evaluation.compute()
    rates, intervals = count_readings(evaluation)
    extra = {"method": method_digest(backbone), "kffa_keys": evaluation.kffa_keys}
    extra["detectors"] = sorted(setting.detectors or {})
    extra["judges"] = setting.further_judges
    extra["thresholds"] = dict(setting.thresholds)
    real = setting.pictures.real
    write_evaluation(evaluation, {**rates, **figures}, folder, pictures=not real, ci=intervals, meta={"tables": extra})
    return load_results(folder)


def count_readings(evaluation: Evaluation) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Rates and intervals at every reading of the papers' thresholds, by every recogniser, after `compute`."""
    figures: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    for recogniser, suite in evaluation.suites.items():
        people = suite.originals.compute()["identity"].reshape(-1).cpu().numpy()
        recovered = []
        for what in suite.pairs:
            if what.startswith("recovered/"):
                recovered.append(what)
        for what in ("anonymized", *recovered):
            cosine = suite.pairs[what].compute().reshape(-1).cpu()
            for reading in readings(recogniser):
                accepted = match_rate(cosine, reading.cosine)
                key = f"recognition_rate/{recogniser}/{what}/{reading.name}"
                figures[key] = float(accepted.mean())
                intervals[key] = rate_interval(accepted.numpy(), people, suite.draws, suite.seed)
    return figures, intervals


def facts(setting: TableSetting, results: Mapping[str, Sequence[Results]]) -> list[str]:
    """How the figures of ours came about, in sentences."""
    seen = asdict(setting.pictures.seen)
    metas = [one.meta for trainings in results.values() for one in trainings]
    judge = ""
    for meta in metas:
        # A recogniser that a method was trained with judges nothing.
        if meta.get("judge") not in meta.get("white_box", []):
            judge = str(meta.get("judge"))
            break
    lines = [
        f"Ours: protocol {setting.protocol.label} on bundle {setting.bundle.name}, {seen['images']} pictures of "
        f"{seen['people']} persons, all read back from saved files unless a line says otherwise"
        + (f"; the judge {judge} trained nothing." if judge else "; no judge, only the recogniser that trained.")
    ]
    deviations = setting.protocol.deviations(setting.pictures.seen, bundle_hashes(setting.bundle))
    if deviations:
        lines.append(f"The protocol was not followed: {'; '.join(deviations)}.")
    if setting.thresholds:
        listed = ", ".join(f"{name} {value:.3f}" for name, value in setting.thresholds.items())
        lines.append(f"Thresholds of other, named pictures, where the test's name nobody (cosine): {listed}.")
    if setting.keys:
        lines.append(f"Figures over keys (KFFA): {setting.keys} keys a picture.")
    if any(len(trainings) > 1 for trainings in results.values()):
        lines.append("Of several trainings a figure is the mean, and small print the lowest and the highest.")
    for name, trainings in results.items():
        hashes = [f"{str(one.meta.get('method_sha256'))[:16]}..." for one in trainings]
        lines.append(f"{name}: weights {', '.join(hashes)}")
    return lines
