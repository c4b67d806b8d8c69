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
    from faceanon.studies.security.base import Budget
    from faceanon.types import FaceBatch

OUT = Path("security")


@dataclass(frozen=True)
class SecurityOptions:
    """What is attacked, and how.

    Args:
        model: Folder, shipped name or .ckpt of a model, or a preset that needs no training.
        out: Folder of the page.
        budget: What the attackers may spend: a key of `base.BUDGETS`.
        attacks: Names of the only attacks, separated by commas; None for all.
        core_hour_price: Price of a core for an hour, for guesses.
        trained_on: Folder of the photographs that the model was trained on, for the membership test.
        photos: Aligned photographs, a folder a person, of people whom the model was not trained on.
        identities: List of picture and person, instead of folders.
        device: Where it computes.
        seed: Of keys and draws.
    """

    model: str
    out: Path = OUT
    budget: str = "small"
    attacks: str | None = None
    core_hour_price: float | None = None
    trained_on: Path | None = None
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

    # Before the model is loaded: words that are wrong are refused at once.
    attacks = chosen(None if options.attacks is None else options.attacks.split(","))
    more = _options(options, [attack.name for attack in attacks])
    chosen_device = device(options.device)
    backbone = method(options.model)
    budget = BUDGETS[options.budget]
    test, attacker, about = photographs(backbone, budget, options)
    training = _training(options.trained_on, test, backbone, budget)
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
    source = None if options.trained_on is None else str(options.trained_on)
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
    folder: Path | None, test: FaceBatch, backbone: Backbone, budget: Budget
) -> Callable[[], tuple[FaceBatch, FaceBatch]] | None:
    """Photographs that the model was trained on, and of outsiders, read when they are asked for.

    Args:
        folder: Of the training; None where nobody said it.
        test: Photographs of people whom no training saw.
        backbone: The method.
        budget: How many persons are taken of either.
    """
    if folder is None:
        return None

    def read() -> tuple[FaceBatch, FaceBatch]:
        from faceanon.data.folder import FolderFaces

        data = FolderFaces(
            str(folder), "identity", backbone.image_size, batch_size=1, val_fraction=0.0, test_fraction=0.0
        )
        data.setup("fit")
        return _some(_all(data.train_dataloader()), budget.members), _some(test, budget.members)

    return read


Faces = tuple["FaceBatch", Callable[[], "FaceBatch"], dict[str, Any]]


def photographs(backbone: Backbone, budget: Budget, options: SecurityOptions) -> Faces:
    """Half of the people in a folder, and the other half for the attacker.

    Raises:
        UserError: The folder is missing or offers too few people.
    """
    from faceanon.data.folder import FolderFaces
    from faceanon.studies.security.runner import looked_at

    if options.photos is None:
        raise UserError("give the photographs of people by --photos FOLDER, a folder a person")
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
