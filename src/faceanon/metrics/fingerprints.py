"""What went into a test: hashes of networks and method, and a number for every picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faceanon.metrics.pictures import row_digests
from faceanon.metrics.saved import to_bytes
from faceanon.types import FaceBatch

if TYPE_CHECKING:
    from faceanon.weights.bundle import Bundle


def bundle_hashes(bundle: Bundle) -> dict[str, str]:
    """sha256 of the weights by role, as the bundle states them; `features` is what FID and KID are measured on."""
    spec: dict[str, Any] = getattr(bundle, "spec", {})
    entries = spec.get("networks", {}).items()
    by_name: dict[str, str] = {}
    for role, entry in entries:
        if entry.get("sha256") is not None:
            by_name[role] = str(entry["sha256"])
    if "perceptual" in by_name:
        by_name.setdefault("features", by_name["perceptual"])
    return by_name


def row_numbers(batch: FaceBatch) -> list[int]:
    """A number for every picture, from which its keys are drawn; the same in any batch and on any process.

    It is the picture's content: equal pictures get equal keys.
    """
    numbers: list[int] = row_digests(to_bytes(batch.image)).tolist()
    return numbers
