"""How `faceanon report --security` finds method and pictures, attacks, and writes the page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.errors import UserError

if TYPE_CHECKING:
    import torch

    from faceanon.attacks.base import Budget
    from faceanon.backbones.base import Backbone
    from faceanon.metrics.protocol import Protocol
    from faceanon.types import FaceBatch

PROTOCOL = "synth64-v1"
OUT = Path("security")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the security report takes."""
    about = "A folder with security.html and .json (default: security); takes --photos, --seed, --device as well"
    group = parser.add_argument_group("security", about)
    group.add_argument(
        "--security",
        metavar="MODEL",
        help="attack a model (a folder that training exported, or a .ckpt) or a preset that needs no training (blur)",
    )
    group.add_argument(
        "--budget", choices=("small", "full"), default="small", help="what the attackers may spend (%(default)s)"
    )
    group.add_argument("--attacks", metavar="A,B", help="only these attacks (default: all)")
    group.add_argument(
        "--core-hour-price", type=float, default=None, metavar="P", help="price of a core for an hour, for guesses"
    )


def run(args: argparse.Namespace) -> int:
    """Attack, print the table, write the page, print its path.

    Raises:
        UserError: No such model, attack or picture, or the folder cannot be written.
    """
    from faceanon.attacks.base import BUDGETS
    from faceanon.attacks.catalog import chosen
    from faceanon.attacks.runner import run_attacks, stamp
    from faceanon.attacks.target import Target
    from faceanon.report.security import as_text, write_security

    attacks = chosen(None if args.attacks is None else args.attacks.split(","))
    options = _options(args.core_hour_price)
    backbone = method(args.security)
    budget = BUDGETS[args.budget]
    folder = args.out or OUT
    faces = procedural if args.photos is None else photographs
    device = _device(args.device)
    test, attacker, about = faces(backbone, budget, args)
    target = Target(backbone, test, attacker, budget, args.seed, device)
    stamped = stamp(target, about["attacker"])
    done = run_attacks(target, attacks, folder, stamped, options, lambda line: print(line, file=sys.stderr))
    meta = {"model": args.security, "bundle": backbone.bundle.name, "judge": backbone.bundle.judge_name}
    page = write_security(folder, done, {**meta, **stamped, **about, "budget": asdict(budget)})
    print(as_text(done))
    print(page)
    return 0


def _options(price: float | None) -> dict[str, dict[str, Any]]:
    if price is None:
        return {}
    if not 0 < price < 1e6:
        raise UserError(f"--core-hour-price {price:g}: give a price above 0")
    return {"kdf_cost": {"price": price}}


def _device(name: str) -> torch.device:
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"cannot compute on {name!r}: {str(error).splitlines()[0]}") from error
    return device


def method(name: str) -> Backbone:
    """A trained model, or an untrained preset that needs no training.

    Raises:
        UserError: There is none of this name, or it has to be trained.
    """
    from faceanon.commands.backbones import shipped
    from faceanon.paths import checkpoints
    from faceanon.weights.store import backbone_class, load_backbone

    presets = {listed.name: listed for listed in shipped()}
    here = any(place.exists() for place in (Path(name), checkpoints() / name))
    if here or name not in presets:
        return load_backbone(name)[0]
    kind = backbone_class(presets[name].class_path)
    if kind.trained_by:
        raise UserError(f"{name} has to be trained first, by {', '.join(kind.trained_by)}; give a trained model")
    return kind(**presets[name].init_args).eval().requires_grad_(False)


Faces = tuple["FaceBatch", Callable[[], "FaceBatch"], dict[str, Any]]


def procedural(backbone: Backbone, budget: Budget, args: argparse.Namespace) -> Faces:
    """The protocol's held-out faces, and faces of the attacker's own people."""
    from faceanon.data.synthetic.crossed import SyntheticSet, held_out_roll
    from faceanon.metrics.protocol import load_protocol

    protocol: Protocol = load_protocol(PROTOCOL)
    pictures, side = protocol.pictures, backbone.image_size
    photos, occlusion = pictures.photos or 2, pictures.occlusion or 0.0

    def drawn(split: str, people: int, first_label: int) -> FaceBatch:
        roll = held_out_roll(split, people, photos, occlusion, first_label)
        rows = SyntheticSet(roll, side, f"drawing {split} faces")
        return rows[list(range(len(rows)))]

    test = drawn(pictures.split, pictures.people, 2_000_000_000)
    about = {"protocol": protocol.label, "attacker": "procedural people of a split of their own"}
    return test, lambda: drawn("attacker", budget.known_people, 0), about


def photographs(backbone: Backbone, budget: Budget, args: argparse.Namespace) -> Faces:
    """Half of the people in a folder, and the other half for the attacker.

    Raises:
        UserError: The folder is missing or offers too few people.
    """
    from faceanon.data.folder import FolderFaces

    listed = None if args.identities is None else str(args.identities)
    data = FolderFaces(
        str(args.photos),
        "identity" if listed is None else "flat",
        backbone.image_size,
        batch_size=1,  # its training batches are whole: larger ones would leave pictures out
        val_fraction=0.0,
        test_fraction=0.5,
        min_photos=2,
        identities=listed,
    )
    data.setup("test")
    about = {"protocol": "photographs of one's own", "attacker": f"other photographs in {args.photos.name}"}
    return _all(data.test_dataloader()), lambda: _some(_all(data.train_dataloader()), budget.known_people), about


def _all(batches: Any) -> FaceBatch:  # noqa: ANN401 - a loader
    """All batches as one, without ground truth."""
    import torch

    from faceanon.types import FaceBatch

    found = list(batches)
    parts = [torch.cat([getattr(batch, name) for batch in found]) for name in ("image", "identity", "attribute")]
    return FaceBatch(*parts)


def _some(batch: FaceBatch, people: int) -> FaceBatch:
    """The pictures of the first so many people."""
    import torch

    first = torch.unique(batch.identity[batch.identity >= 0])[:people]
    rows = torch.isin(batch.identity, first)
    return batch.map(lambda tensor: tensor[rows])
