"""The papers' tables, from the methods' names to the written files: what they print beside what we measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.errors import UserError
from faceanon.methods import device, presets, trained, untrained

if TYPE_CHECKING:
    from faceanon.backbones.base import Backbone
    from faceanon.results import Results
    from faceanon.studies.tables.filled import FilledTable
    from faceanon.studies.tables.measure import TableSetting
    from faceanon.studies.tables.spec import PaperTable
    from faceanon.weights.bundle import Bundle

OUT = Path("runs/tables")
FACES = 8
TSNE_FACES = 5


@dataclass(frozen=True)
class Given:
    """A method that was asked for.

    Args:
        name: In the table.
        model: Its folder or checkpoint; None for a preset that needs no training.
        training: Which of the trainings of this name, from 1.
    """

    name: str
    model: Path | None
    training: int = 1

    @property
    def label(self) -> str:
        """What tells it from the other trainings of its name; names the folder of its results."""
        return self.name if self.training == 1 else f"{self.name} ({self.training})"


def parse_methods(words: Sequence[str] | None) -> list[Given]:
    """`NAME=FOLDER`, or `NAME` of a preset; the shipped model where nothing is given.

    A name with several folders stands for several trainings of one method.

    Raises:
        UserError: A preset or a folder that is given twice, a name that makes no folder, or an empty path.
    """
    from faceanon.models import default_model

    if not words:
        return [Given("persona", default_model())]
    methods: list[Given] = []
    for word in words:
        name, equals, path = word.partition("=")
        # The name becomes a folder of results, which must not lie elsewhere or be hidden.
        if not name or Path(name).name != name or name.startswith("."):
            raise UserError(f"--methods {word}: give NAME=FOLDER, or NAME of a preset that needs no training")
        if equals and not path:
            raise UserError(f"--methods {word}: the folder or checkpoint is missing behind =")
        model = Path(path) if equals else None
        earlier = [one.model for one in methods if one.name == name]
        # A preset has one training, and the same model twice would be counted as two.
        if earlier and (model is None or None in earlier or model in earlier):
            raise UserError(f"--methods names {name} twice; give the second another name, or its own trained model")
        methods.append(Given(name, model, len(earlier) + 1))
    return methods


def build(given: Given, bundle: Bundle) -> Backbone:
    """The method in eval mode.

    Raises:
        UserError: No such model or preset, a preset that has to be trained, or one of another bundle.
    """
    from faceanon.studies.tables.measure import check_bundle

    if given.model is not None:
        backbone = trained(given.model)
    elif given.name in presets():
        backbone = untrained(given.name, bundle.folder)
    else:
        raise UserError(f"no preset {given.name!r}: give NAME=FOLDER, or one of {', '.join(presets())}")
    check_bundle(given.name, backbone, bundle)
    return backbone


def listing() -> list[str]:
    """A paragraph a table: what it is about, how many figures it has, and what fills its rows."""
    from faceanon.studies.tables.spec import known_tables, load_table

    lines = []
    for name in known_tables():
        table = load_table(name)
        extra = []
        if table.kffa_keys:
            extra = [f"{table.kffa_keys} keys a picture"]
        for one in table.pictures:
            extra.append({"tsne": "a t-SNE figure", "sheet": "a sheet of faces"}[one])
        lines.append(f"{name}: {table.title} ({table.paper}; {table.published} published figures)")
        lines.append(f"    methods: {', '.join(table.methods)}")
        if extra:
            lines += [f"    with {', '.join(extra)}"]
    return lines


@dataclass(frozen=True)
class TablesOptions:
    """Which tables, of which methods, measured how.

    Args:
        table: Names such as `dbaf-1`; `all` for all of them, `list` to print what each needs.
        out: Folder of the tables.
        methods: `NAME=MODEL` by the name of their row, several for several trainings, or NAME where no training is
            needed; None: the shipped model.
        bundle: Bundle that judges, by name or folder.
        protocol: Of the evaluation; None: photo128-v1, or the paper's own where its models are trained.
        data: Folders of photographs, for a protocol on photographs.
        train: Folder of aligned photographs on which the rows' models are trained by configs/paper; None: no model is.
        config: Config files behind each training's own.
        named: Folder of named people that sets the recognisers' thresholds, for a test whose pictures name nobody.
        limit: Test on about so many pictures only.
        detectors: Further face detectors.
        dlib: dlib's `shape_predictor_68` file, or None.
        kffa_keys: Keys a picture where a table has KFFA; None: the table's.
        tsne_keys: Keys a face in t-SNE.
        features: Folder that keeps features of the originals for the next run.
        pictures: Which are drawn; None: the table's own, photographs never.
        device: Where it computes.
    """

    table: Sequence[str]
    out: Path = OUT
    methods: Sequence[str] | None = None
    bundle: str = "photo128_prior"
    protocol: str | None = None
    data: Sequence[Path] = ()
    train: Path | None = None
    config: Sequence[str] = ()
    named: Path | None = None
    limit: int | None = None
    detectors: Sequence[str] = ()
    dlib: Path | None = None
    kffa_keys: int | None = None
    tsne_keys: int = 200
    features: Path | None = None
    pictures: Sequence[str] | None = None
    device: str = "cpu"


def run_tables(options: TablesOptions) -> int:
    """Run the evaluations that the tables need, print the tables and write them.

    Raises:
        UserError: No such table or method, or pictures, weights or folders that cannot be used.
    """
    from faceanon.studies.tables.joined import write_joined
    from faceanon.studies.tables.spec import known_tables, load_table
    from faceanon.weights.bundle import Bundle

    if list(options.table) == ["list"]:
        print(*listing(), sep="\n")
        return 0
    if "all" in options.table:
        names = known_tables()
    else:
        names = list(dict.fromkeys(options.table))
    tables = list(map(load_table, names))
    chosen_device = device(options.device)
    bundle = Bundle(options.bundle)
    if options.protocol is None:
        options = replace(options, protocol=_protocol(options, tables))
    if options.train is None:
        given = parse_methods(options.methods)
    else:
        given = parse_methods([*_trained(options, tables), *(options.methods or ())])
    # All are built before the first one is tested: a wrong name at the end must not cost what came before.
    methods = {}
    for one in given:
        methods[one.label] = build(one, bundle)
    setting = _setting(options, tables, bundle)
    for backbone in methods.values():
        # Frozen networks are outside of the module tree.
        backbone.bundle.to(chosen_device)
        backbone.to(chosen_device)
    results: dict[str, list[Results]] = {}
    for one in given:
        results.setdefault(one.name, []).append(_results(one, methods[one.label], setting))
    # A picture of each training would show the same thing again.
    pictured = {one.name: methods[one.label] for one in given if one.training == 1}
    for table in tables:
        _one(table, results, pictured, setting, options)
    write_joined(setting.folder.parent, results, *_recognisers(bundle))
    print(f"tables: {setting.folder.parent.resolve()}")
    return 0


def _protocol(options: TablesOptions, tables: Sequence[PaperTable]) -> str:
    """The one that all tables share where their models are trained, else that of the photographs that ship."""
    if options.train is None:
        return "photo128-v1"
    own = {table.protocol for table in tables}
    if len(own) > 1:
        raise UserError(f"these tables have {', '.join(sorted(own))}: fill one paper's at a time, or give --protocol")
    return own.pop()


def _trained(options: TablesOptions, tables: Sequence[PaperTable]) -> list[str]:
    """`NAME=MODEL` of the rows that `train` trains."""
    from faceanon.metrics.protocol import load_protocol
    from faceanon.studies.tables.full_scale import train

    assert options.train is not None
    # What cannot be tested is not trained for days.
    if load_protocol(options.protocol or "").pictures.source == "folder" and not options.data:
        raise UserError("--train trains for a test on other photographs: name their folder by --data FOLDER")
    if not options.train.is_dir():
        raise UserError(f"--train {options.train}: no such folder; name one of aligned photographs")
    methods: dict[str, None] = {}
    for table in tables:
        methods |= dict.fromkeys(train(table, options.train, options.bundle, options.config, options.out / "models"))
    return list(methods)


def _setting(options: TablesOptions, tables: Sequence[PaperTable], bundle: Bundle) -> TableSetting:
    """Protocol and pictures, with what the tables need beyond the protocol."""
    from faceanon.metrics.cache import FeatureCache
    from faceanon.metrics.detection import DlibDetector, make_detector
    from faceanon.metrics.protocol import load_protocol
    from faceanon.studies.tables.data import load_pictures, named_pictures
    from faceanon.studies.tables.measure import TableSetting, thresholds

    keys = _kffa_keys(options, tables)
    protocol = load_protocol(options.protocol or "")
    detectors = {}
    for name in options.detectors:
        detectors[name] = make_detector(name, bundle.image_size)
    detectors |= {} if options.dlib is None else {"dlib": DlibDetector(options.dlib)}
    pictures = load_pictures(protocol, bundle.image_size, options.data, options.limit)
    needs_readings = any(table.needs_readings for table in tables)
    folder = (options.out) / "methods"
    cache = FeatureCache(options.features)
    far = protocol.matching.far
    known: dict[str, float] = {}
    if options.named is not None:
        known = thresholds(bundle, named_pictures(protocol, bundle.image_size, options.named), far, options.device)
    return TableSetting(
        bundle, protocol, pictures, folder, keys, detectors, needs_readings, options.device, cache, known
    )


def _kffa_keys(options: TablesOptions, tables: Sequence[PaperTable]) -> int:
    """Keys a picture for KFFA; 0 where no table has it."""
    for option, keys in (("--tsne-keys", options.tsne_keys), ("--kffa-keys", options.kffa_keys)):
        if keys is not None and keys < 2:
            raise UserError(f"{option} {keys}: give at least 2")
    needed = max(table.kffa_keys for table in tables)
    if options.kffa_keys is not None and not needed:
        raise UserError(f"--kffa-keys {options.kffa_keys}: none of these tables has KFFA; leave it out")
    if options.kffa_keys is None:
        return needed
    return int(options.kffa_keys)


def _results(given: Given, backbone: Backbone, setting: TableSetting) -> Results:
    """Of this very test where they are at hand, else measured now, with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from faceanon.studies.tables.measure import cached, measure

    if given.model is not None and given.model.is_dir():
        stage, method = given.model.resolve().parents[:2]
        # A copy; `faceanon test`'s; `faceanon zoo`'s.
        for folder in (given.model, stage / "report", method / "report"):
            if (kept := cached(folder, backbone, setting)) is not None:
                return kept
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(given.label, total=None)
        return measure(given.label, backbone, setting, lambda done, of: bar.update(task, completed=done, total=of))


def _one(
    table: PaperTable,
    results: Mapping[str, Sequence[Results]],
    methods: Mapping[str, Backbone],
    setting: TableSetting,
    options: TablesOptions,
) -> None:
    """Fill, print and write one table."""
    from faceanon.studies.tables.filled import fill
    from faceanon.studies.tables.measure import facts
    from faceanon.studies.tables.names import Names
    from faceanon.studies.tables.text import text

    bundle = setting.bundle
    judge, recogniser = _recognisers(bundle)
    features = ""
    if bundle.has("perceptual") and not bundle.has("features"):
        features = bundle.entry("perceptual")["name"]
    names = Names(bundle.name, judge, recogniser, tuple(bundle.further_judges), bundle.own_scale, features)
    filled = fill(table, results, names)
    print(text(filled, facts(setting, results)))
    _write(filled, results, setting, _pictures(table, methods, setting, options, judge))


def _recognisers(bundle: Bundle) -> tuple[str, str]:
    """Names of the one that judges, and of the one that methods train against."""
    judge = ""
    if bundle.has("judge"):
        judge = bundle.judge_name
    recogniser = ""
    if bundle.has("recogniser"):
        recogniser = bundle.recogniser_name
    return judge, recogniser


def _pictures(
    table: PaperTable, methods: Mapping[str, Backbone], setting: TableSetting, options: TablesOptions, judge: str
) -> dict[str, tuple[str, bytes]]:
    """PNG and title of each of the table's pictures, by file name; sheets of photographs only where asked for."""
    from faceanon.report.sheets import png_bytes, sheet
    from faceanon.studies.tables.measure import method_digest
    from faceanon.studies.tables.pictures import key_embeddings, sheet_rows, tsne_png

    pictures: dict[str, tuple[str, bytes]] = {}
    wanted = table.pictures if options.pictures is None else options.pictures
    if "sheet" in wanted and (not setting.pictures.real or options.pictures is not None):
        image = setting.pictures.one_each(FACES).to(setting.device)
        rows = {"original": image.cpu()}
        for name, backbone in methods.items():
            rows |= sheet_rows(name, backbone, image, setting.protocol.seed)
        pictures[f"{table.name}-faces.png"] = ("The same faces by method", png_bytes(sheet(rows)))
    keyed = {}
    for name, backbone in methods.items():
        if backbone.key_bits is not None:
            keyed[name] = backbone
    if "tsne" in wanted and keyed and judge:
        image = setting.pictures.one_each(TSNE_FACES).to(setting.device)
        embeddings = {}
        for name, backbone in keyed.items():
            # What the embeddings depend on stands in the name of their file, so that others are made anew.
            mark = f"{method_digest(backbone)[:12]}-{setting.pictures.seen.sha256[:12]}-{judge}-{options.tsne_keys}"
            mark += f"-seed{setting.protocol.seed}"
            path = setting.folder / name / f"keys-{mark}.safetensors"
            # The bundle that judges may be another object than the methods' own, which alone were moved to the device.
            network = setting.bundle.to(setting.device).judge
            embeddings[name] = key_embeddings(backbone, network, image, options.tsne_keys, setting.protocol.seed, path)
        pictures[f"{table.name}-tsne.png"] = ("Many keys on few faces (t-SNE)", tsne_png(embeddings, judge))
    return pictures


def _write(
    filled: FilledTable,
    results: Mapping[str, Sequence[Results]],
    setting: TableSetting,
    pictures: Mapping[str, tuple[str, bytes]],
) -> None:
    """JSON, Markdown, page and pictures, each atomically."""
    from faceanon.files import write_atomic
    from faceanon.report.page import data_uri, render
    from faceanon.results import run_meta, to_json
    from faceanon.studies.tables.filled import as_json
    from faceanon.studies.tables.measure import facts
    from faceanon.studies.tables.text import markdown

    name = filled.spec.name
    folder = setting.folder.parent
    told = facts(setting, results)
    content = {"schema": 1, **as_json(filled), "facts": told, "meta": run_meta()}
    by_method: dict[str, Any] = {}
    for method, trainings in results.items():
        first = trainings[0]
        by_method[method] = {"meta": first.meta, "ci": first.ci}
        if len(trainings) > 1:
            by_method[method]["trainings"] = [{"meta": one.meta, "ci": one.ci} for one in trainings]
    content["methods"] = by_method
    write_atomic(folder / f"{name}.json", to_json(content))
    write_atomic(folder / f"{name}.md", markdown(filled, told).encode())
    for file, (_, png) in pictures.items():
        write_atomic(folder / file, png)
    # A page of photographs is to be shown around without the persons in them: they stay in files of their own.
    real = setting.pictures.real
    inside = {}
    for file, (title, png) in pictures.items():
        if not (real and "faces" in file):
            inside[title] = data_uri(png)
    warnings = []
    for method, trainings in results.items():
        for warning in dict.fromkeys(warning for one in trainings for warning in one.warnings):
            warnings.append(f"{method}: {warning}")
    page = render(
        "tables.html", "faceanon.studies.tables", table=filled, facts=told, warnings=warnings, pictures=inside
    )
    write_atomic(folder / f"{name}.html", page)
