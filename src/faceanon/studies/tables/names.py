"""From the placeholders of a table's columns to metric names of the bundle at hand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from faceanon.metrics.suite import rate_name
from faceanon.studies.tables.spec import TableColumn

SUBSTITUTES = {"judge": "its judge", "recogniser": "its training recogniser", "further": "its second judge"}


@dataclass(frozen=True)
class Names:
    """The recognisers of a bundle by what they are for.

    Args:
        bundle: Name of the bundle.
        judge: Trained nothing; empty where there is none.
        recogniser: Trained the methods; empty where there is none.
        further: Further judges.
        features: The network whose features take the place of Inception-v3's in FID; empty where none has to.
        own_scale: Those whose embeddings have a scale of their own, so that thresholds of papers mean nothing to them.
    """

    bundle: str
    judge: str = ""
    recogniser: str = ""
    further: tuple[str, ...] = ()
    own_scale: frozenset[str] = frozenset()
    features: str = ""

    @property
    def judges(self) -> tuple[str, ...]:
        """All that judge, the first one first; one empty name where there is none."""
        return (self.judge, *self.further)

    def for_column(self, column: TableColumn) -> str:
        """The recogniser that a column is counted with; empty where the bundle has none for it."""
        own = (self.judge, self.recogniser, *self.further)
        # The paper's own recogniser goes before a stand-in, whatever its role in the bundle.
        if column.recogniser in own:
            return column.recogniser or ""
        roles = {"judge": self.judge, "recogniser": self.recogniser, "further": next(iter(self.further), "")}
        stand_in = roles.get(column.stands_in or "", "")
        if stand_in in self.own_scale:
            return ""
        return stand_in

    def remark(self, column: TableColumn) -> str:
        """Which network took the place of the paper's; empty where none had to."""
        if self.features and any(figure.name.startswith("fid") for figure in column.figures):
            return f"{column.title}: bundle {self.bundle} has no Inception-v3; {self.features} stands in for it."
        recogniser = self.for_column(column)
        if column.recogniser is None or recogniser == column.recogniser:
            return ""
        if not recogniser:
            return f"{column.title}: bundle {self.bundle} has no network for {column.recogniser}, so ours is empty."
        role = SUBSTITUTES[column.stands_in or "judge"]
        return f"{column.title}: bundle {self.bundle} has no {column.recogniser}; {role} {recogniser} stands in for it."


def figures_of(column: TableColumn, version: str, names: Names) -> list[str]:
    """Metric names of a column's figures in one row, judge by judge; empty ones where we have none.

    Args:
        column: The column.
        version: Which pictures.
        names: Recognisers of the bundle.
    """
    found: list[str] = []
    if column.of is not None and not version.startswith(column.of):
        return found
    for judge in _judges_of(column, names):
        for figure in column.figures:
            found.append(resolve(figure.name, column, version, replace(names, judge=judge)))
    return found


def titles_of(column: TableColumn, names: Names) -> list[str]:
    """What tells a column's figures apart, in the order of `figures_of`; none where there is one figure alone."""
    judges = _judges_of(column, names)
    titles = []
    for judge in judges:
        for figure in column.figures:
            title = figure.title
            if len(judges) > 1:
                title = f"{judge} {title}".strip()
            if title:
                titles.append(title)
    return titles


def _judges_of(column: TableColumn, names: Names) -> tuple[str, ...]:
    """The judges that a column shows: every one where its figures are by judge, else the first one."""
    by_judge = any("{judge}" in figure.name for figure in column.figures)
    if by_judge:
        return names.judges
    return (names.judge,)


def resolve(template: str, column: TableColumn, version: str, names: Names) -> str:
    """The metric name of one figure in one row.

    Args:
        template: `{r}` is the column's recogniser, `{judge}` and `{recogniser}` the bundle's; `{version}` is
            `anonymized` or `recovered/<level>`, `{picture}` the same with the level `file` where it has none, `{what}`
            its first half, `{of}` nothing or `/recovered`. `match/<recogniser>/<version>` is the rate at the
            recogniser's own threshold, whatever its name.
        column: The column.
        version: Which pictures.
        names: Recognisers of the bundle.

    Returns:
        The name; empty where the bundle lacks the recogniser.
    """
    recogniser = names.for_column(column)
    known = {"{r}": recogniser, "{judge}": names.judge, "{recogniser}": names.recogniser}
    # The bundle has no such network, so there is no figure.
    if any(mark in template and not name for mark, name in known.items()):
        return ""
    what = version.split("/")[0]
    # The saved file is meant where no level is named.
    picture = version if "/" in version else f"{version}/file"
    known |= {"{version}": version, "{picture}": picture, "{what}": what}
    known["{of}"] = "" if what == "anonymized" else f"/{what}"
    for mark, name in known.items():
        template = template.replace(mark, name)
    # The rate's name depends on the version: `deid_rate` of anonymized pictures, `recovery_rate` of recovered ones.
    if template.startswith("match/"):
        _, recogniser, version = template.split("/", 2)
        return rate_name(version, recogniser)
    return template


def expand(versions: Iterable[str], figures: Iterable[str]) -> list[str]:
    """Versions with `recovered/jpeg*` replaced by the JPEG qualities that `figures` (metric names) have, best first."""
    qualities = set()
    for name in figures:
        if match := re.search(r"/recovered/jpeg(\d+)$", name):
            qualities.add(int(match[1]))
    expanded = []
    for version in versions:
        if version == "recovered/jpeg*":
            for quality in sorted(qualities, reverse=True):
                expanded.append(f"recovered/jpeg{quality}")
        else:
            expanded.append(version)
    return expanded
