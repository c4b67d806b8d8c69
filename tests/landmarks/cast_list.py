"""Who belongs to the cast that ships, as the list beside it says."""

import csv

from faceanon.paths import checkpoints


def listed():
    """The rows of the list, in the order of the donors' numbers."""
    with (checkpoints() / "photo_seers" / "cast.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
