"""`faceanon report --security`: attacks on one's own anonymity, with verdicts."""

from __future__ import annotations

import argparse

OPTIONS = ("budget", "attacks", "core_hour_price", "trained_on", "photos", "identities", "device", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the security report takes."""
    about = "Attacks on one's own anonymity, with verdicts: a folder with page and .json (--out: security)"
    group = parser.add_argument_group("security", about)
    group.add_argument(
        "--security",
        metavar="MODEL",
        help="attack a model (folder, shipped name or .ckpt) or a preset that needs no training (blur)",
    )
    group.add_argument(
        "--budget", choices=("small", "full"), default="small", help="what the attackers may spend (%(default)s)"
    )
    group.add_argument("--attacks", metavar="A,B", help="only these attacks (default: all)")
    group.add_argument(
        "--core-hour-price", type=float, default=None, metavar="P", help="price of a core for an hour, for guesses"
    )
    group.add_argument(
        "--trained-on",
        metavar="GROUPS:SEED",
        help="procedural training faces, as data.train_groups and data.seed had them, for the membership test",
    )


def run(args: argparse.Namespace) -> int:
    """Attack, print the table, write the page, print its path.

    Raises:
        UserError: No such model, attack or picture, or the folder cannot be written.
    """
    from faceanon.studies.security.run import OUT, Options, run_security

    options = Options(
        model=args.security,
        out=args.out or OUT,
        budget=args.budget,
        attacks=args.attacks,
        core_hour_price=args.core_hour_price,
        trained_on=args.trained_on,
        photos=args.photos,
        identities=args.identities,
        device=args.device,
        seed=args.seed,
    )
    return run_security(options)
