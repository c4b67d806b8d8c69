"""What a leaderboard ranks: results found in folders, and whether they may stand in one table."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from faceanon.errors import UserError
from faceanon.metrics.comparison import check_comparable
from faceanon.metrics.guards import find_faults
from faceanon.results import FILE_NAME, Results, load_results

SEED = re.compile(r"seed-?\d+")
ADVICE = "give folders that `faceanon test` or `faceanon zoo` wrote"
OTHER_ROLES = ("parser", "landmarks", "perceptual")
SAMPLES = "samples.png"
ZOO = "zoo.json"
SHEET_QUALITY = 80


@dataclass(frozen=True)
class Entry:
    """A line of the leaderboard.

    Args:
        name: Of the method.
        runs: Its results, one a seed.
        sheet: WebP of what it makes of some faces, or None.
    """

    name: str
    runs: tuple[Results, ...]
    sheet: bytes | None = None

    @property
    def meta(self) -> dict[str, Any]:
        """What the results of the first run say of themselves."""
        return self.runs[0].meta

    @property
    def judge(self) -> tuple[str, str]:
        """Name of the recogniser that judged, and the hash of its weights."""
        return str(self.meta["judge"]), str((self.meta.get("weights") or {}).get("judge", "unknown"))

    @property
    def warnings(self) -> list[str]:
        """Of all runs, each once, with those that results of an earlier version do not know yet."""
        texts = []
        for run in self.runs:
            texts.extend(_warned(run))
        return list(dict.fromkeys(texts))


def _warned(run: Results) -> list[str]:
    # A warning begins with what is wrong; figures behind the colon may be printed otherwise today.
    known = {text.split(":")[0] for text in run.warnings}
    # Without a rate in the file NaN takes its place: no figure has that in its name, so its check is left out.
    now = find_faults(run.figures, str(run.meta.get("judge")), float(run.meta.get("far") or math.nan)).values()
    added = []
    for text in now:
        if text.split(":")[0] not in known:
            added.append(text)
    return [*run.warnings, *added]


@dataclass
class _Found:
    """Results of one method in one folder."""

    root: Path
    runs: list[Results] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def find_entries(folders: Sequence[Path]) -> list[Entry]:
    """Every `results.json` in these folders; folders `seed0`, `seed1`, ... of one method become one entry.

    Raises:
        UserError: A folder is missing or holds no results, or a file is damaged or is no test of a method.
    """
    groups: dict[tuple[Path, tuple[str, ...]], _Found] = {}
    seen: set[Path] = set()
    for folder in folders:
        for path in _files(folder):
            # A folder may lie in another one that was named as well.
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            group = groups.setdefault(_key(folder, path), _Found(folder))
            results = load_test(path)
            results.figures |= _costs(folder, path)
            group.runs.append(results)
            group.folders.append(path.parent)
    entries = []
    for name, group in zip(_names(list(groups)), groups.values(), strict=True):
        entries.append(Entry(name, tuple(group.runs), _sheet(group.root, name, group.folders[0])))
    return entries


def _files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; {ADVICE}")
    files = sorted(folder.rglob(FILE_NAME))
    if not files:
        raise UserError(f"no {FILE_NAME} in {folder}; {ADVICE}")
    return files


def _key(folder: Path, path: Path) -> tuple[Path, tuple[str, ...]]:
    """Root, and parts of the method's folder; runs that differ in their seed alone have the same."""
    if folder.is_dir():
        root = folder.resolve()
    else:
        root = path.resolve().parent
    inner = path.resolve().parent.relative_to(root).parts
    unseeded = []
    for part in inner:
        if not SEED.fullmatch(part):
            unseeded.append(part)
    return root, tuple(unseeded)


def _names(keys: Sequence[tuple[Path, tuple[str, ...]]]) -> list[str]:
    """Names that tell the methods apart: below their root, or with its name before, or the whole path."""
    short = []
    longer = []
    longest = []
    for root, parts in keys:
        # That is what `faceanon test` calls its folder, whatever the method.
        kept = parts[:-1] if parts[-1:] == ("report",) else parts
        if root.name == "report" and not kept:
            top = root.parent
        else:
            top = root
        short.append("/".join(kept) or top.name)
        longer.append("/".join((top.name, *kept)))
        longest.append(str(root.joinpath(*parts)))
    names = []
    for below, with_root, whole in zip(short, longer, longest, strict=True):
        if short.count(below) == 1:
            names.append(below)
        elif longer.count(with_root) == 1:
            names.append(with_root)
        else:
            names.append(whole)
    return names


def load_test(path: Path) -> Results:
    """Read a results.json that tells of a method's test.

    Raises:
        UserError: Missing, damaged, or about something else.
    """
    results = load_results(path)
    meta = results.meta
    if not isinstance(meta.get("judge"), str) or f"deid_rate/{meta['judge']}" not in results.figures:
        raise UserError(f"{path} is no test of a method: it has no deid_rate by its judge; {ADVICE}")
    protocol = meta.get("protocol")
    sound = protocol is None or (
        isinstance(protocol, Mapping)
        and isinstance(protocol.get("name"), str)
        and isinstance(protocol.get("deviations", []), list)
    )
    if not (sound and isinstance(meta.get("weights", {}), Mapping) and isinstance(meta.get("white_box", []), list)):
        raise UserError(f"{path} is damaged (meta: protocol, weights or white_box); run `faceanon test` again")
    return results


def _costs(root: Path, path: Path) -> dict[str, float]:
    """What the zoo measured of a method beside its test: time and size."""
    table = root / ZOO
    inner: tuple[str, ...] = ()
    if root.is_dir():
        inner = path.resolve().relative_to(root.resolve()).parts
    # The zoo puts results into NAME/seedN/report.
    if len(inner) < 3 or not table.is_file():
        return {}
    try:
        seeds = json.loads(table.read_text(encoding="utf-8"))["methods"].get(inner[0], {}).get("seeds", {})
        figures = seeds.get(inner[1].removeprefix("seed"), {})
        costs = {}
        for name, value in figures.items():
            if name.startswith("cost/"):
                costs[name] = float(value)
        return costs
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"{table} is damaged ({error!r}); run `faceanon zoo` again, it repeats no training") from error


def _sheet(root: Path, name: str, folder: Path) -> bytes | None:
    """The zoo's sheet of the method, else the one beside its first results."""
    for path in (root / "sheets" / f"{name}.png", folder / SAMPLES):
        if path.is_file():
            return read_sheet(path)
    return None


def read_sheet(path: Path) -> bytes:
    """A PNG as WebP, a quarter of its size: a page of many methods is sent by mail and opened on phones.

    Raises:
        UserError: It is something else, or damaged.
    """
    content = io.BytesIO()
    try:
        # One decoder only, since the file may come from anywhere.
        with Image.open(path, formats=("PNG",)) as image:
            image.convert("RGB").save(content, "WEBP", quality=SHEET_QUALITY, method=6)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} is no PNG or is damaged; run the test again, or delete it") from error
    return content.getvalue()


def check_entries(entries: Sequence[Entry], across: bool = False) -> list[str]:
    """Refuse, or with `across` mark, results of different protocols or judges.

    Returns:
        Sentences for the top of the page; also on other networks that differ, whose figures alone do not compare.

    Raises:
        UserError: They do not compare, and `across` was not asked for.
    """
    marks = []
    runs = {}
    for entry in entries:
        for number, run in enumerate(entry.runs):
            runs[f"{entry.name} {number + 1}"] = run
    # With one run a method, a number in its label would say nothing.
    if len(runs) == len(entries):
        single = {}
        for entry in entries:
            single[entry.name] = entry.runs[0]
    else:
        single = runs
    if check_comparable({label: run.meta for label, run in single.items()}, across):
        marks.append("The protocols differ: compare only methods with the same one, it stands beside their names.")
    judges = _by_hash(single, "judge")
    if len(judges) > 1:
        lines = []
        for judge, names in judges.items():
            lines.append(f"{', '.join(names)}: {judge}")
        listed = "; ".join(lines)
        if not across:
            raise UserError(
                f"results of different judges do not compare ({listed}); test anew or add --across-protocols"
            )
        marks.append(f"The judges differ, so rates of recognition do not compare: {listed}.")
    differing = []
    for role in OTHER_ROLES:
        if len(_by_hash(single, role)) > 1:
            differing.append(role)
    if differing:
        marks.append(f"Other networks differ ({', '.join(differing)}): the figures on quality do not compare.")
    return marks


def _by_hash(runs: Mapping[str, Results], role: str) -> dict[str, list[str]]:
    """Labels by the network in that role, with the start of its hash."""
    names: dict[str, list[str]] = {}
    for label, run in runs.items():
        digest = str((run.meta.get("weights") or {}).get(role, "unknown"))[:12]
        if role == "judge":
            name = f"{run.meta['judge']} {digest}"
        else:
            name = digest
        names.setdefault(name, []).append(label)
    return names
