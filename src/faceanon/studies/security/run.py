"""All attacks on one method, from its name to the written page: how method and pictures are found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.errors import UserError
from faceanon.methods import device, method

if TYPE_CHECKING:
    from faceanon.backbones.base import Backbone
    from faceanon.metrics.protocol import Protocol
    from faceanon.studies.security.base import Budget
    from faceanon.types import FaceBatch

PROTOCOL = "synth64-v1"
OUT = Path("security")
OUTSIDERS = 1_000_003  # seed of people whom no training saw


@dataclass(frozen=True)
class SecurityOptions:
    """What is attacked, and how.

    Args:
        model: Folder, shipped name or .ckpt of a model, or a preset that needs no training.
        out: Folder of the page.
        budget: What the attackers may spend: a key of `base.BUDGETS`.
        attacks: Names of the only attacks, separated by commas; None for all.
        core_hour_price: Price of a core for an hour, for guesses.
        trained_on: `GROUPS:SEED` of procedural training faces, for the membership test.
        photos: Aligned photographs, a folder a person; None for drawn faces.
        identities: List of picture and person, instead of folders.
        device: Where it computes.
        seed: Of keys and draws.
    """

    model: str
    out: Path = OUT
    budget: str = "small"
    attacks: str | None = None
    core_hour_price: float | None = None
    trained_on: str | None = None
    photos: Path | None = None
    identities: Path | None = None
    device: str = "cpu"
    seed: int = 0


def run_security(options: SecurityOptions) -> int:
    """Attack, print the table, write the page, print its path.

    Raises:
        UserError: No such model, attack or picture, or the folder cannot be written.
    """
    from faceanon.studies.security.base import BUDGETS
    from faceanon.studies.security.catalog import chosen
    from faceanon.studies.security.page import as_text, write_security
    from faceanon.studies.security.runner import fingerprint, run_attacks
    from faceanon.studies.security.target import Target

    # Before the model is loaded and faces are drawn: words that are wrong are refused at once.
    attacks = chosen(None if options.attacks is None else options.attacks.split(","))
    more = _options(options, [attack.name for attack in attacks])
    chosen_device = device(options.device)
    backbone = method(options.model)
    budget = BUDGETS[options.budget]
    faces = procedural if options.photos is None else photographs
    training = _training(options.trained_on, backbone, budget)
    test, attacker, about = faces(backbone, budget, options)
    target = Target(backbone, test, attacker, budget, options.seed, chosen_device, training)
    facts = fingerprint(target, f"{about['attacker']} {about.get('attacker_sha256', '')}".strip())
    done = run_attacks(target, attacks, options.out, facts, more, lambda line: print(line, file=sys.stderr))
    meta = {"model": options.model, "bundle": backbone.bundle.name, "judge": backbone.bundle.judge_name}
    warnings = target.warnings()
    page = write_security(options.out, done, {**meta, **facts, **about, "budget": asdict(budget)}, warnings)
    warning_lines = []
    for text in warnings:
        warning_lines.append(f"warning: {text}")
    print(as_text(done), *warning_lines, page, sep="\n")
    return 0


def _options(options: SecurityOptions, attacks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the command line asks of single attacks: keyword arguments by the attack's name."""
    price = options.core_hour_price
    source = options.trained_on
    if price is not None and not 0 < price < 1e6:
        raise UserError(f"--core-hour-price {price:g}: give a price above 0")
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "--core-hour-price": ("kdf_cost", {"price": price}),
        "--trained-on": ("membership", {"source": source}),
    }
    asked = {}
    for name, more in given.items():
        # What was not given is None.
        if None not in more[1].values():
            asked[name] = more
    for name, (attack, _) in asked.items():
        if attack not in attacks:
            raise UserError(f"{name} is for {attack}, which --attacks leaves out; name it there as well")
    return dict(asked.values())


def _training(
    named: str | None, backbone: Backbone, budget: Budget
) -> Callable[[], tuple[FaceBatch, FaceBatch]] | None:
    """Procedural training faces and outsiders, two pictures a person, drawn when they are asked for.

    Raises:
        UserError: `named` is not GROUPS:SEED.
    """
    if named is None:
        return None
    groups, _, seed = named.partition(":")
    if not (groups.isdecimal() and seed.isdecimal() and int(groups) >= 2):
        raise UserError(f"--trained-on {named}: give GROUPS:SEED as in the training's data, e.g. 1400:0")
    count = min(budget.members, int(groups))

    def drawn() -> tuple[FaceBatch, FaceBatch]:
        inside = _first_of_groups(int(groups), int(seed), backbone.image_size, count)
        # The same stream of faces under another seed: nothing but membership tells the two groups apart.
        return inside, _first_of_groups(count, OUTSIDERS, backbone.image_size, count)

    return drawn


def _first_of_groups(groups: int, seed: int, side: int, count: int) -> FaceBatch:
    """The first person of `count` of the crossed groups of a training set: people who share nothing with each other."""
    import torch

    from faceanon.data.synthetic.crossed import GROUP, Roll, SyntheticSet, crossed_roll

    # With the occlusion that `SyntheticFaces` has by default: the training's own faces come out.
    roll = crossed_roll(groups, seed, 0.3)
    # A group's first two rows are one person; the second person has the same attributes, so it is left out.
    rows = (torch.arange(count)[:, None] * GROUP + torch.arange(2)).flatten()
    parts = (roll.identity, roll.attributes, roll.identity_label, roll.attribute_label)
    kept_parts = []
    for part in parts:
        kept_parts.append(part[rows])
    drawn = SyntheticSet(Roll(*kept_parts), side, "drawing training faces and others", parsing=False)
    return drawn[list(range(len(drawn)))]


Faces = tuple["FaceBatch", Callable[[], "FaceBatch"], dict[str, Any]]


def procedural(backbone: Backbone, budget: Budget, options: SecurityOptions) -> Faces:
    """The protocol's held-out faces, and faces of the attacker's own people."""
    from faceanon.data.synthetic.crossed import SyntheticSet, held_out_roll
    from faceanon.metrics.protocol import load_protocol

    protocol: Protocol = load_protocol(PROTOCOL)
    pictures = protocol.pictures
    side = backbone.image_size
    photos = pictures.photos or 2
    occlusion = pictures.occlusion or 0.0

    def drawn(split: str, people: int, first_label: int) -> FaceBatch:
        roll = held_out_roll(split, people, photos, occlusion, first_label)
        rows = SyntheticSet(roll, side, f"drawing {split} faces")
        return rows[list(range(len(rows)))]

    # Far from the attacker's labels, so that no person of the test can be one of his.
    test = drawn(pictures.split, pictures.people, 2_000_000_000)
    if side == pictures.image_size:
        label = protocol.label
    else:
        label = f"{protocol.label}, drawn at {side} pixels"
    about = {"protocol": label, "attacker": "procedural people of a split of their own", "held_out": True}
    about["attacker_people"] = budget.known_people
    return test, lambda: drawn("attacker", budget.known_people, 0), about


def photographs(backbone: Backbone, budget: Budget, options: SecurityOptions) -> Faces:
    """Half of the people in a folder, and the other half for the attacker.

    Raises:
        UserError: The folder is missing or offers too few people.
    """
    from faceanon.data.folder import FolderFaces
    from faceanon.studies.security.runner import looked_at

    if options.photos is None:
        raise UserError("give the folder of the photographs")
    if options.identities is None:
        listed = None
    else:
        listed = str(options.identities)
    data = FolderFaces(
        str(options.photos),
        "identity" if listed is None else "flat",
        backbone.image_size,
        batch_size=1,  # its training batches are whole: larger ones would leave pictures out
        val_fraction=0.0,
        test_fraction=0.5,
        min_photos=2,
        identities=listed,
    )
    data.setup("test")
    for half in ("test", "train"):
        faces = data.faces.get(half)
        known_people: set[int] = set()
        if faces is not None:
            known_people.update(label for label in faces.labels if label >= 0)
        if len(known_people) < 2:
            raise UserError(
                f"{options.photos} shows too few people: the attacks need four or more with two pictures each"
            )
    known = _some(_all(data.train_dataloader()), budget.known_people)
    about: dict[str, Any] = {"protocol": "photographs of one's own"}
    about["attacker"] = f"other photographs in {options.photos.name}"
    about |= {"attacker_people": len(set(known.identity.tolist())), "attacker_sha256": looked_at(known).sha256}
    return _all(data.test_dataloader()), lambda: known, about


def _all(batches: Any) -> FaceBatch:  # noqa: ANN401 - a loader
    """All batches as one, without ground truth."""
    import torch

    from faceanon.types import FaceBatch

    loaded = list(batches)
    parts = []
    for name in ("image", "identity", "attribute"):
        values = []
        for batch in loaded:
            values.append(getattr(batch, name))
        parts.append(torch.cat(values))
    return FaceBatch(*parts)


def _some(batch: FaceBatch, people: int) -> FaceBatch:
    """The pictures of the first so many people."""
    import torch

    first = torch.unique(batch.identity[batch.identity >= 0])[:people]
    rows = torch.isin(batch.identity, first)
    return batch.map(lambda tensor: tensor[rows])
