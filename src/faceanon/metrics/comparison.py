"""Which results may stand side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faceanon.errors import UserError

NONE = "no protocol"


def protocol_label(meta: Mapping[str, Any]) -> str:
    """Protocol behind results, from their `meta`: `photo128-v1`, marked where it was not followed or was edited.

    Examples:
        >>> from faceanon.metrics.comparison import protocol_label
        >>> protocol_label({"protocol": {"name": "photo128", "version": 1}})
        'photo128-v1'
        >>> protocol_label({"protocol": {"name": "photo128", "version": 1, "deviations": ["40 pictures"]}})
        'photo128-v1 with changes (40 pictures)'
        >>> protocol_label({})
        'no protocol'
    """
    followed = meta.get("protocol")
    if not isinstance(followed, Mapping):
        return NONE
    label = f"{followed.get('name')}-v{followed.get('version')}"
    deviations = followed.get("deviations") or []
    if deviations:
        return f"{label} with changes ({'; '.join(map(str, deviations))})"
    return label


def check_comparable(metas: Mapping[str, Mapping[str, Any]], across: bool = False) -> list[str]:
    """Refuse, or with `across` mark, results of different protocols.

    Results compare if all followed one version of one protocol. Those that deviated from it compare with each other
    where they saw the same pictures and deviated alike; so do old results that name no protocol.

    Args:
        metas: `meta` by the label of its column.
        across: Allow it; the marks then belong on top of the page.

    Returns:
        Sentences for the reader; empty where everything compares.

    Raises:
        UserError: They do not compare, and `across` was not asked for.
    """
    kinds: dict[tuple[str, ...], list[str]] = {}
    for column, meta in metas.items():
        kinds.setdefault(_kind(meta), []).append(column)
    if len(kinds) < 2:
        return []
    lines = []
    for columns in kinds.values():
        lines.append(f"{', '.join(columns)}: {protocol_label(metas[columns[0]])}")
    listed = "; ".join(lines)
    if not across:
        raise UserError(
            f"results of different protocols do not compare ({listed}); test anew or add --across-protocols"
        )
    return [f"these columns do not compare, their protocols differ: {listed}"]


def _kind(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """What must be equal for results to compare."""
    followed = meta.get("protocol")
    if not isinstance(followed, Mapping):
        return (NONE,)
    # With the hash: a protocol that was edited under its old name and version is another one.
    kind = (protocol_label(meta), str(followed.get("sha256")))
    # Two tests that left the protocol compare only if they left it on the same pictures.
    if followed.get("deviations"):
        return (*kind, str(followed.get("pictures_sha256")))
    return kind
