"""A paper's table as data (papers/*.yaml beside this file): rows, columns, what it prints, and our figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from faceanon.errors import UserError
from faceanon.metrics.strict import typed

SCHEMA = 1
Direction = Literal["lower", "higher", "identity", ""]
Picture = Literal["sheet", "tsne"]


@dataclass(frozen=True)
class TableFigure:
    """One figure of ours in a column.

    Args:
        name: Metric name, with the placeholders that `tables.names.resolve` fills.
        title: What tells it from the column's others.
    """

    name: str
    title: str = ""


@dataclass(frozen=True)
class TableColumn:
    """A column of the table.

    Args:
        id: Referred to by cells.
        title: Heading, as the paper has it.
        figures: Ours, one or several readings of what the paper means; none where we measure nothing for it.
        better: Which direction is good; `identity`: low where a block hides persons, high where it brings them back.
        digits: Decimals.
        recogniser: Name of the paper's recogniser.
        stands_in: Role whose recogniser takes its place in a bundle that has no network of that name; None: nobody's.
        ours: The paper has no such column.
        of: Of which pictures the column is: `anonymized` or `recovered` ones, where the paper leaves the others' empty.
    """

    id: str
    title: str
    figures: tuple[TableFigure, ...]
    better: Direction
    digits: int = 3
    recogniser: str | None = None
    stands_in: Literal["judge", "recogniser", "further"] | None = None
    ours: bool = False
    of: Literal["anonymized", "recovered"] | None = None


@dataclass(frozen=True)
class TableCell:
    """What the paper prints in one place; in a place without one it prints nothing.

    Args:
        column: Id of the column.
        published: The number, as printed.
        corrected: What it should be, or be on the scale of ours; None where nothing is known to be wrong.
        why: The reason of a correction, or a remark on the number.
        digits: Decimals of `published` as printed; None: the column's.
    """

    column: str
    published: float
    corrected: float | None = None
    why: str = ""
    digits: int | None = None


def as_typed(settings: Mapping[str, Any]) -> list[str]:
    """Settings as `faceanon fit` is told them: text as it is, anything else as JSON."""
    return [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in settings.items()]


@dataclass(frozen=True)
class AblationTraining:
    """One training of an ablation, as `faceanon fit` is told it.

    Args:
        config: Name of a config, such as `dbaf_s1`.
        set: What differs from the config, by the names of `faceanon fit`'s options.
        from_scratch: A stage 2 that starts from no model of a stage 1.
    """

    config: str
    set: dict[str, Any] = field(default_factory=dict)
    from_scratch: bool = False

    def __str__(self) -> str:
        text = self.config
        for name, value in self.set.items():
            text += f" {name.rsplit('.', 1)[1]}={json.dumps(value)}"
        return f"{text}, with no init_from" if self.from_scratch else text


@dataclass(frozen=True)
class TableRow:
    """A row of the table.

    Args:
        id: Unique in its block.
        title: As the paper has it.
        ours: Names that fill it, those of presets or of ablations.
        cells: What the paper prints.
        note: A remark on the row.
        train: How the weights of an ablation come about on the photographs that ship: trainings, each from the model
            of the one before.
        full: The same at full scale, by configs/paper.
        paper: Whether the paper has the row.
    """

    id: str
    title: str
    ours: tuple[str, ...]
    cells: tuple[TableCell, ...] = ()
    note: str = ""
    train: tuple[AblationTraining, ...] = ()
    full: tuple[AblationTraining, ...] = ()
    paper: bool = True

    @property
    def trained_by(self) -> str:
        """The trainings in words; empty where there are none."""
        if not self.train:
            return ""
        at_full_scale = ""
        if self.full:
            at_full_scale = f"; at full scale by {', then '.join(map(str, self.full))}"
        return f"trained by {', then '.join(map(str, self.train))}{at_full_scale}"


@dataclass(frozen=True)
class TableBlock:
    """Rows under one heading.

    Args:
        title: The heading.
        versions: Which pictures are measured, a line of ours each: `anonymized`, `recovered/image`, `recovered/file`;
            `recovered/jpeg*` stands for every JPEG quality of the protocol.
        rows: The rows.
    """

    title: str
    versions: tuple[str, ...]
    rows: tuple[TableRow, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        schema: Of the file.
        name: As the command line calls it.
        paper: Short name of the paper.
        title: What the table is about.
        source: The paper.
        layout: Its number in the paper, and where our rows and columns are not as printed.
        columns: Left to right.
        blocks: Top to bottom.
        notes: Errors, contradictions and open questions that a reader has to know.
        kffa_keys: Keys a picture that its figures need.
        pictures: Drawn beside it.
    """

    schema: int
    name: str
    paper: str
    title: str
    source: str
    layout: str
    columns: tuple[TableColumn, ...]
    blocks: tuple[TableBlock, ...]
    notes: tuple[str, ...] = ()
    kffa_keys: int = 0
    pictures: tuple[Picture, ...] = ()

    @property
    def rows(self) -> Iterator[TableRow]:
        """All rows, top to bottom."""
        return (row for block in self.blocks for row in block.rows)

    @property
    def methods(self) -> list[str]:
        """Names that fill rows, each once, in order."""
        names: list[str] = []
        for row in self.rows:
            names.extend(row.ours)
        return list(dict.fromkeys(names))

    @property
    def protocol(self) -> str:
        """The paper's own protocol."""
        return f"{self.paper.lower()}-v1"

    @property
    def published(self) -> int:
        """Number of figures that the paper prints."""
        return sum(len(row.cells) for row in self.rows)

    @property
    def needs_readings(self) -> bool:
        """Whether a column counts at thresholds that papers print."""
        for column in self.columns:
            for figure in column.figures:
                if figure.name.startswith("recognition_rate/"):
                    return True
        return False


def folder() -> Path:
    """Where the shipped tables lie."""
    return Path(__file__).with_name("papers")


def known_tables() -> list[str]:
    """Names of the shipped tables, by paper and number."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def load_table(name: str) -> PaperTable:
    """Read a shipped table.

    Raises:
        UserError: There is none, or its file is damaged or contradicts itself; the message names file and entry.
    """
    if name not in known_tables():
        known = ", ".join(known_tables())
        raise UserError(f"no table {name!r}: there are {known}; faceanon report tables list says what each needs")
    path = folder() / f"{name}.yaml"
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    return check_table(typed(PaperTable, data, path.name), path)


def check_table(table: PaperTable, path: Path) -> PaperTable:
    """Return a table whose parts fit together.

    Raises:
        UserError: They do not; the message names the part.
    """
    columns = set()
    for column in table.columns:
        # A column of ours has nothing that a paper could have published.
        if not column.ours:
            columns.add(column.id)
    checks = [
        (table.schema == SCHEMA, f"schema must be {SCHEMA}, got {table.schema}"),
        (table.name == path.stem, f"it calls itself {table.name!r}"),
        (len({column.id for column in table.columns}) == len(table.columns), "two columns have one id"),
    ]
    for block in table.blocks:
        checks.append((len({row.id for row in block.rows}) == len(block.rows), f"{block.title}: two rows have one id"))
        for row in block.rows:
            checks += [(row.paper or not row.cells, f"row {row.id} is ours, so nothing of it was published")]
            checks += [
                (bool(row.cells) or not row.paper, f"row {row.id} has none of the numbers that the paper prints")
            ]
            for training in (*row.train[1:], *row.full[1:]):
                message = f"row {row.id}: only the first training is from_scratch, {training.config} is not"
                checks += [(not training.from_scratch, message)]
            for cell in row.cells:
                checks += [(cell.column in columns, f"row {row.id}: no published column {cell.column!r}")]
                checks += [(cell.corrected is None or bool(cell.why), f"row {row.id}: a correction without a reason")]
    for fine, message in checks:
        if not fine:
            raise UserError(f"{path.name}: {message}")
    return table
