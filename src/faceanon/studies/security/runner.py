"""Run attacks one after the other; what is finished, on the same method and pictures, is not repeated."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from faceanon.errors import UserError
from faceanon.files import state_sha256, write_atomic
from faceanon.metrics.fingerprints import bundle_hashes
from faceanon.metrics.pictures import PictureCheck, SeenPictures
from faceanon.metrics.strict import typed
from faceanon.results import plain, to_json
from faceanon.studies.security.base import DoesNotApplyError, Finding, Verdict, cautious
from faceanon.studies.security.catalog import Attack
from faceanon.studies.security.target import Target
from faceanon.types import FaceBatch

SCHEMA = 1
FOLDER = "attacks"


@dataclass(frozen=True)
class Done:
    """An attack that was run.

    Args:
        attack: Which.
        finding: What it found; None where it does not apply.
        reason: Why it does not apply; else empty.
        seconds: What it took.
        people: How many were attacked.
    """

    attack: Attack
    finding: Finding | None
    reason: str
    seconds: float
    people: int

    @property
    def verdicts(self) -> list[Verdict]:
        """What the finding means; nothing is called safe from too few people."""
        verdicts = [] if self.finding is None else self.finding.verdicts()
        return [cautious(verdict, self.people) for verdict in verdicts]


def looked_at(batch: FaceBatch) -> SeenPictures:
    """Number, people, brightness and hashes of the pictures of a batch."""
    pictures = PictureCheck()
    pictures.update(batch)
    return pictures.seen()


def fingerprint(target: Target, attacker: str) -> dict[str, Any]:
    """What results depend on, as JSON holds it: method, pictures, networks, budget, seed.

    Args:
        target: What is attacked.
        attacker: Where the attacker's pictures come from.
    """
    seen = looked_at(target.test)
    method = target.backbone
    return {
        "method": f"{type(method).__module__}.{type(method).__qualname__}",
        "arguments": plain(method.settings),
        "method_sha256": state_sha256(method),
        "weights": bundle_hashes(method.bundle),
        "pictures_sha256": seen.sha256,
        "images": seen.images,
        "people": seen.people,
        "attacker": attacker,
        "budget": dataclasses.asdict(target.budget),
        "seed": target.seed,
    }


def run_attacks(
    target: Target,
    attacks: Iterable[Attack],
    folder: Path,
    facts: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Done]:
    """Run each attack, or take its results from `folder`.

    Args:
        target: What is attacked.
        attacks: Which attacks.
        folder: Results lie in `attacks/NAME.json` in it.
        facts: `fingerprint` of the target; results with another one are made anew.
        options: Further arguments of `Attack.run` by name of the attack; part of what results depend on.
        say: Told before and after each attack.

    Raises:
        UserError: A file cannot be written.
    """
    listed = list(attacks)
    finished = []
    for number, attack in enumerate(listed, 1):
        given = dict((options or {}).get(attack.name, {}))
        mark = {**facts, "version": attack.version, "options": given}
        path = folder / FOLDER / f"{attack.name}.json"
        done = load(path, attack, mark)
        say(f"{number}/{len(listed)} {attack.title}" + (": done before" if done else ""))
        if done is None:
            done = _run(attack, target, given)
            write_atomic(path, to_json({"schema": SCHEMA, "attack": attack.name, "stamp": mark, **content(done)}))
            say(f"{number}/{len(listed)} {attack.title}: {done.seconds:.0f} s")
        finished.append(done)
    return finished


def _run(attack: Attack, target: Target, given: Mapping[str, Any]) -> Done:
    """Run one attack, under random numbers of its own."""
    start = time.monotonic()
    # From the name: leaving an attack out must not change what the others find.
    digest = hashlib.sha256(f"faceanon/attack/{target.seed}/{attack.name}".encode()).digest()
    finding: Finding | None = None
    reason = ""
    with torch.random.fork_rng(devices=[]):
        # Seven bytes always fit into a signed integer of 64 bits.
        torch.manual_seed(int.from_bytes(digest[:7], "big"))
        try:
            finding = attack.run(target, **given)
        except DoesNotApplyError as error:
            reason = str(error)
    people = torch.unique(target.probes.identity)
    return Done(attack, finding, reason, time.monotonic() - start, len(people))


def content(done: Done) -> dict[str, Any]:
    """An attack's results as plain values, verdicts left out."""
    finding = None if done.finding is None else dataclasses.asdict(done.finding)  # type: ignore[call-overload]
    return {"finding": finding, "reason": done.reason, "seconds": round(done.seconds, 1), "people": done.people}


def load(path: Path, attack: Attack, mark: Mapping[str, Any]) -> Done | None:
    """Results of an earlier run; None where there are none, or they belong to something else."""
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
        fits = text["schema"] == SCHEMA and text["attack"] == attack.name
        # Both as JSON, which knows no tuples.
        if not fits or text["stamp"] != json.loads(to_json(mark)):
            return None
        if text["finding"] is None:
            finding = None
        else:
            finding = typed(attack.finding, text["finding"], path.name)
        return Done(attack, finding, str(text["reason"]), float(text["seconds"]), int(text["people"]))
    # Whatever is wrong with the file: the attack is run again.
    except (OSError, ValueError, TypeError, KeyError, RecursionError, UserError):
        return None
