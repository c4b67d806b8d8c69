"""results.json: what a test found, in a form that strict JSON readers accept."""

from __future__ import annotations

import json
import math
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faceanon
from faceanon.errors import UserError

SCHEMA = 1
FILE_NAME = "results.json"


@dataclass
class Results:
    """Outcome of one test.

    Args:
        figures: Value by metric name; may hold NaN and infinities.
        ci: 95% interval by metric name.
        meta: Versions, command, bundle, seed, counts.
        warnings: Ways in which the figures deceive.
        skipped: What could not be computed, and why.

    Examples:
        >>> from faceanon.results import Results, dumps, load_results
        >>> from pathlib import Path
        >>> found = Results({"deid_rate/judge": 0.02, "fid": float("nan")}, meta={"images": 400})
        >>> _ = Path("results.json").write_bytes(dumps(found))
        >>> load_results(Path("results.json")).figures
        {'deid_rate/judge': 0.02, 'fid': nan}
    """

    figures: dict[str, float]
    ci: dict[str, tuple[float, float]] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def git_commit() -> str | None:
    """Commit of the checkout that this package runs from; None when it is installed, or git is missing."""
    package = Path(faceanon.__file__).resolve().parent
    top = package.parents[1]
    # A package that is installed inside another project's checkout must not take that one's commit for its own.
    if package != top / "src" / "faceanon" or not (top / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(top), "rev-parse", "HEAD"]
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def run_meta() -> dict[str, Any]:
    """Versions, command and precision of float32 products of this process."""
    # Here: whoever only reads results needs no torch.
    import torch

    here = str(Path.cwd()) + "/"
    # Results are for others, too.
    words = (re.sub(rf"(^|=){re.escape(here)}", r"\1", word) for word in sys.argv[1:])
    program = Path(sys.argv[0])
    # `python -m faceanon` runs a file of this name in the folder of the package.
    name = program.parent.name if program.name == "__main__.py" else program.name
    command = shlex.join([name, *words])
    versions = {"faceanon": faceanon.__version__, "torch": torch.__version__, "python": platform.python_version()}
    precision = torch.get_float32_matmul_precision()  # `high` is TF32 on GPUs
    return {**versions, "commit": git_commit(), "command": command, "float32_matmul": precision}


def shown_command(command: str) -> str:
    """A command as a page shows it: of paths from the top of a machine the last two parts, which tell nothing of it.

    Examples:
        >>> from faceanon.results import shown_command
        >>> shown_command("faceanon test --root /srv/data/faces/lfw")
        'faceanon test --root …/faces/lfw'
    """
    # A path from the top begins a word, or follows `=` or a quote; the lookahead leaves its last two parts.
    return re.sub(r"(?<![^\s='\"])/(?:[^\s/'\"=]+/)+(?=[^\s/'\"=]+/[^\s/'\"=]+)", "…/", command)


def number_out(value: float) -> float | str:
    """JSON has no NaN and no infinity; they travel as words."""
    if math.isfinite(value):
        return float(value)
    return str(float(value))


def plain(value: object) -> object:
    """A value that strict JSON can hold: tuples become lists, paths and other objects become text."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(map(plain, value))
    if isinstance(value, float):
        return number_out(value)
    if value is None or isinstance(value, (str, int)):
        return value
    return str(value)


def to_json(content: object) -> bytes:
    """A file of strict JSON."""
    return (json.dumps(plain(content), indent=2, allow_nan=False) + "\n").encode()


def dumps(results: Results) -> bytes:
    """What `results.json` holds, as UTF-8 JSON without NaN."""
    intervals = {}
    for name, interval in results.ci.items():
        intervals[name] = list(map(float, interval))
    figures = {}
    for name, value in results.figures.items():
        figures[name] = float(value)
    content = {
        "schema": SCHEMA,
        "figures": figures,
        "ci": intervals,
        "meta": results.meta,
        "warnings": results.warnings,
        "skipped": results.skipped,
    }
    return to_json(content)


def load_results(path: Path) -> Results:
    """Read a results.json, or the one in a folder.

    Raises:
        UserError: Missing, or not such a file.

    Examples:
        >>> from faceanon.paths import checkpoints
        >>> from faceanon.results import load_results
        >>> found = load_results(checkpoints() / "persona_photo128" / "results.json")
        >>> found.meta["judge"], round(found.figures["recovery_rate/dlib_resnet/file"], 2)
        ('dlib_resnet', 0.99)
    """
    path = path / FILE_NAME if path.is_dir() else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give a results.json or the folder it is in") from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply to be results; run `faceanon test` again") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); run `faceanon test` again to write it anew") from error
    if not isinstance(content, dict) or not isinstance(content.get("figures"), dict):
        raise UserError(f"{path} holds no figures; give a results.json that `faceanon test` wrote")
    return _checked(content, path)


def _checked(content: Mapping[str, Any], path: Path) -> Results:
    if content.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {content.get('schema')!r}, this version reads {SCHEMA}; run the test again")
    try:
        figures = {}
        for name, value in content["figures"].items():
            figures[name] = float(value)
        ci = {}
        for name, interval in content.get("ci", {}).items():
            ci[name] = _pair(interval)
        texts = []
        for name in ("warnings", "skipped"):
            texts.append(list(map(str, content.get(name, []))))
        return Results(figures, ci, dict(content.get("meta", {})), *texts)
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}); run `faceanon test` again to write it anew") from error


def _pair(interval: Sequence[float | str]) -> tuple[float, float]:
    low, high = interval
    return float(low), float(high)
