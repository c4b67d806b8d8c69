"""What a run found, as one small JSON file: the history in notebook/bench/ is made of these."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import faceanon
from bench.probe import Sample
from bench.settings import Settings
from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.results import git_commit, to_json

SCHEMA = 1
FLOAT32_PEAKS = ("peak-matmul", "peak-conv3x3")
BF16_PEAK = "peak-matmul-bf16"
DIGITS = 4


@dataclass
class BenchFigure:
    """One case as it was measured.

    Args:
        name: Of the case.
        about: Of the case.
        unit: What `images` counts.
        images: Handled by one call.
        gflop: Of one call, convolutions and products alone; None where torch does none of the work, or unknown.
        repeats: Calls of one sample.
        samples: The case's, one a round.
        peaks: GFLOP/s by name of the peak, one a round, measured right before the case's: `wall` and `cpu` by name.
        ignored: Settings of the run that the case does not use.
        failed: Why there are no figures; None where there are.
    """

    name: str
    about: str = ""
    unit: str = "image"
    images: int = 1
    gflop: float | None = None
    repeats: int = 1
    samples: list[Sample] = field(default_factory=list)
    peaks: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    failed: str | None = None

    def median(self, of: str) -> float | None:
        """Median of a field of the samples; None where it was not known."""
        values = []
        for one in self.samples:
            if (value := getattr(one, of)) is not None:
                values.append(value)
        return statistics.median(values) if values else None

    def spread(self, of: str = "cpu") -> float | None:
        """Distance of the quartiles by the median; None below two samples, or where it was not known."""
        values = []
        for one in self.samples:
            if (value := getattr(one, of)) is not None:
                values.append(value)
        middle = statistics.median(values) if values else 0.0
        if len(values) < 2 or not middle:
            return None
        # Inclusive: of two samples the usual way puts the quartiles beyond both.
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return float((high - low) / middle)

    def largest(self, of: str) -> float | None:
        """Largest of a field of the samples, for memory."""
        values = []
        for one in self.samples:
            if (value := getattr(one, of)) is not None:
                values.append(value)
        return max(values, default=None)

    def peak(self, clock: str, names: Sequence[str] = FLOAT32_PEAKS) -> float | None:
        """GFLOP/s of the machine beside this case: the largest of the peaks' medians; `clock` is `cpu` or `wall`."""
        medians = []
        for name in names:
            if self.peaks.get(name, {}).get(clock):
                medians.append(statistics.median(self.peaks[name][clock]))
        return max(medians, default=None)

    def rate(self, clock: str) -> float | None:
        """GFLOP that the case computed in a second of this clock, in the median; None where either is unknown."""
        seconds = self.median(clock)
        if self.gflop and seconds:
            return self.gflop / seconds
        return None

    def fraction(self, clock: str, names: Sequence[str] = FLOAT32_PEAKS) -> float | None:
        """Share of the machine's peak that the case reaches."""
        rate = self.rate(clock)
        peak = self.peak(clock, names)
        if rate and peak:
            return rate / peak
        return None

    def cost(self, clock: str) -> float | None:
        """GFLOP that the machine's peak does in the time of one image: comparable across machines and days."""
        seconds = self.median(clock)
        peak = self.peak(clock)
        if seconds and peak:
            return seconds * peak / self.images
        return None

    def summary(self) -> dict[str, float | None]:
        """The derived figures, for readers of the JSON."""
        wall = self.median("wall")
        cpu = self.median("cpu")
        return {
            "wall_s": wall,
            "cpu_s": cpu,
            "spread_wall": self.spread("wall"),
            "spread_cpu": self.spread("cpu"),
            "cpu_per_wall": cpu / wall if cpu and wall else None,
            "per_second": self.images / wall if wall else None,
            "per_cpu_second": self.images / cpu if cpu else None,
            "gflop_per_image": self.gflop / self.images if self.gflop else None,
            "gflop_per_cpu_s": self.rate("cpu"),
            "gflop_per_wall_s": self.rate("wall"),
            "fraction_cpu": self.fraction("cpu"),
            "fraction_wall": self.fraction("wall"),
            "fraction_bf16_wall": self.fraction("wall", [BF16_PEAK]),
            "peak_gflop_per_image_cpu": self.cost("cpu"),
            "peak_gflop_per_image_wall": self.cost("wall"),
            "memory_mb": self.largest("memory"),
            "working_mb": self.largest("working"),
        }


@dataclass
class Run:
    """Cases measured in one go.

    Args:
        settings: Of all of them.
        figures: By case, in the order in which they were measured.
        rounds: Asked for.
        machine: `describe_machine`.
        when: UTC, ISO 8601 to the second: two runs of one history never have the same name.
        commit: Of the checkout; None when installed.
        changed: Whether the sources differed from that commit.
        schema: Version of the file.
    """

    settings: Settings
    figures: list[BenchFigure]
    rounds: int
    machine: dict[str, Any] = field(default_factory=dict)
    when: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    commit: str | None = field(default_factory=git_commit)
    changed: bool | None = None
    schema: int = SCHEMA

    @property
    def clock(self) -> str:
        """What to judge by: CPU time, which other programs on the machine blur little; on a GPU wall time."""
        if self.settings.cuda:
            return "wall"
        return "cpu"

    @property
    def file_name(self) -> str:
        """Of its JSON: when, on what, of which commit."""
        # `cuda:0`; neither this colon nor those of the time may be in a file's name everywhere.
        device = self.settings.device.partition(":")[0]
        return (
            f"{self.when.replace(':', '')}-{device}-{self.settings.precision}-{(self.commit or 'installed')[:7]}.json"
        )


def describe_machine(settings: Settings) -> dict[str, Any]:
    """What the figures depend on; nothing that names the machine or its owner."""
    described: dict[str, Any] = {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "isa": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "faceanon": faceanon.__version__,
        # Windows has no `getloadavg`.
        "load": [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }
    if settings.cuda:
        described |= {"gpu": torch.cuda.get_device_name(settings.device), "cuda": torch.version.cuda}
    return described


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    # Not every system has such a line. Where `processor` is empty as well, the architecture is what is known.
    return platform.processor() or platform.machine()


def sources_changed() -> bool | None:
    """Whether the package differs from its commit; None when it is installed."""
    package = Path(faceanon.__file__).resolve().parent
    if git_commit() is None:
        return None
    command = ["git", "-C", str(package), "status", "--porcelain", "--", "."]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return bool(told.stdout.strip())


def _rounded(value: object) -> object:
    """Floats with few digits, so that the history stays small."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        rounded = {}
        for name, item in value.items():
            rounded[name] = _rounded(item)
        return rounded
    if isinstance(value, (list, tuple)):
        return list(map(_rounded, value))
    return value


def dumps(run: Run) -> bytes:
    """The file's content; `summary` repeats for readers what `samples` and `peaks` imply."""
    content = asdict(run)
    head = {"schema": content.pop("schema"), **content}
    figures = []
    for one in run.figures:
        figures.append({**asdict(one), "summary": one.summary()})
    head["figures"] = figures
    return to_json(_rounded(head))


def write(run: Run, folder: Path) -> Path:
    """Add a run to a history; returns its file.

    Raises:
        UserError: The folder cannot be written.
    """
    path = folder / run.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, dumps(run))
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror}); give another --out") from error
    return path


def load(path: Path) -> Run:
    """Read a run, or the newest one of a folder.

    Raises:
        UserError: Missing, damaged, or of another schema.
    """
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise UserError(f"{path} holds no .json of measure.py; run it with --out {path} first")
        # Names begin with the time.
        path = files[-1]
    content = _content(path)
    if content.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {content.get('schema')!r}, this version reads {SCHEMA}; measure again")
    try:
        figures = list(map(_figure, content["figures"]))
        return Run(**{**content, "settings": Settings(**content["settings"]), "figures": figures})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}); measure again") from error


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give one of measure.py") from error
    # Very deep nesting, as in a file of brackets, makes json raise RecursionError.
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a JSON of measure.py ({error}); give another file") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a JSON of measure.py; give another file")
    return content


def _figure(content: Mapping[str, Any]) -> BenchFigure:
    make: Callable[..., BenchFigure] = BenchFigure
    own = {}
    for name, value in content.items():
        # Derived figures are for readers; they follow anew from the samples.
        if name != "summary":
            own[name] = value
    samples = []
    for one in content["samples"]:
        samples.append(Sample(**one))
    return make(**{**own, "samples": samples})
