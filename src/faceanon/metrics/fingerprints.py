"""What went into a test: hashes of networks and method, and a number for every picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faceanon.metrics.pictures import row_digests
from faceanon.metrics.saved import to_bytes
from faceanon.types import FaceBatch

if TYPE_CHECKING:
    from faceanon.weights.bundle import Bundle


def bundle_hashes(bundle: Bundle) -> dict[str, str]:
    """sha256 of the weights by role, as the bundle states them; FID and KID use the perceptual network's features.

    Weights that were stored anew in fewer bytes count by the first hash they had, which protocols and results name.
    """
    spec: dict[str, Any] = getattr(bundle, "spec", {})
    entries = spec.get("networks", {}).items()
    by_name: dict[str, str] = {}
    for role, entry in entries:
        if entry.get("sha256") is not None:
            # The first hash stays the name of a network whose file was stored anew with the same numbers.
            hashes = [*entry.get("formerly", []), entry["sha256"]]
            by_name[role] = str(hashes[0])
    if "perceptual" in by_name:
        by_name["features"] = by_name["perceptual"]
    return by_name


def row_numbers(batch: FaceBatch) -> list[int]:
    """A number for every picture, from which its keys are drawn; the same in any batch and on any process.

    It is the picture's content: equal pictures get equal keys.
    """
    numbers: list[int] = row_digests(to_bytes(batch.image)).tolist()
    return numbers
