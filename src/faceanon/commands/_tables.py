"""`faceanon report --table`: the papers' tables, what they print beside what we measure."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.commands._methods import device, presets, trained, untrained
from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.backbones.base import Backbone
    from faceanon.report.results import Results
    from faceanon.report.tables import FilledTable
    from faceanon.report.tables_run import Setting
    from faceanon.report.tables_spec import PaperTable
    from faceanon.weights.bundle import Bundle

OUT = Path("runs/tables")
FACES, TSNE_FACES = 8, 5
OPTIONS = (
    "methods",
    "bundle",
    "protocol",
    "data",
    "limit",
    "detectors",
    "dlib",
    "kffa_keys",
    "tsne_keys",
    "pictures",
    "features",
    "device",
)  # of `faceanon report`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--table` and what belongs to it."""
    group = parser.add_argument_group(
        "tables",
        "What the papers print beside ours: a folder with .json, .md, page and pictures, and tables.md "
        "of all (--out: runs/tables)",
    )
    group.add_argument(
        "--table", nargs="+", metavar="NAME", help="such as dbaf-1 ifadit-3; all for all, list to see what each needs"
    )
    group.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME=MODEL",
        help="models by the name of their row (default: the shipped model); NAME alone where no training is needed",
    )
    group.add_argument("--bundle", default="synth64", help="bundle that judges, by name or folder (%(default)s)")
    group.add_argument("--protocol", default="synth64-v1", metavar="NAME", help="of the evaluation (%(default)s)")
    group.add_argument(
        "--data", nargs="+", type=Path, default=[], metavar="FOLDER", help="photographs, for a protocol on photographs"
    )
    group.add_argument("--limit", type=int, metavar="N", help="test on about N pictures only; the page says so")
    group.add_argument("--detectors", nargs="+", default=[], metavar="NAME", help="add face detectors: mtcnn")
    group.add_argument("--dlib", type=Path, metavar="FILE", help="add dlib's, with its shape_predictor_68 file")
    group.add_argument("--kffa-keys", type=int, metavar="N", help="keys a picture where a table has KFFA (default: 50)")
    group.add_argument("--tsne-keys", type=int, default=200, metavar="N", help="keys a face in t-SNE (%(default)s)")
    group.add_argument(
        "--features", type=Path, metavar="FOLDER", help="keep features of the originals there for the next run"
    )
    group.add_argument(
        "--pictures", nargs="*", choices=("sheet", "tsne"), help="draw these (default: the table's, photographs never)"
    )


@dataclass(frozen=True)
class Given:
    """A method that was asked for.

    Args:
        name: In the table.
        model: Its folder or checkpoint; None for a preset that needs no training.
    """

    name: str
    model: Path | None


def parse_methods(words: Sequence[str] | None) -> list[Given]:
    """`NAME=FOLDER`, or `NAME` of a preset; the shipped model where nothing is given.

    Raises:
        UserError: Two methods of one name, a name that makes no folder, or an empty path.
    """
    from faceanon.weights.store import drawn_model

    if not words:
        return [Given("dbaf_keyed", drawn_model())]
    found: dict[str, Given] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not name or Path(name).name != name or name.startswith("."):
            raise UserError(f"--methods {word}: give NAME=FOLDER, or NAME of a preset that needs no training")
        if equals and not path:
            raise UserError(f"--methods {word}: the folder or checkpoint is missing behind =")
        if name in found:
            raise UserError(f"--methods names {name} twice; give the second another name")
        found[name] = Given(name, Path(path) if equals else None)
    return list(found.values())


def build(given: Given, bundle: Bundle) -> Backbone:
    """The method in eval mode.

    Raises:
        UserError: No such model or preset, a preset that has to be trained, or one of another bundle.
    """
    from faceanon.report.tables_run import check_bundle

    if given.model is not None:
        backbone = trained(given.model)
    elif given.name in presets():
        backbone = untrained(given.name, bundle.folder)
    else:
        raise UserError(f"no preset {given.name!r}: give NAME=FOLDER, or one of {', '.join(presets())}")
    check_bundle(given.name, backbone, bundle)
    return backbone


def listing() -> list[str]:
    """A paragraph a table: what it is about, how much of it is known, and what fills its rows."""
    from faceanon.report.tables_spec import known_tables, load_table

    lines = []
    for name in known_tables():
        table = load_table(name)
        extra = [f"{table.kffa_keys} keys a picture"] if table.kffa_keys else []
        extra += [{"tsne": "a t-SNE figure", "sheet": "a sheet of faces"}[one] for one in table.pictures]
        lines.append(f"{name}: {table.title} ({table.paper}; {table.published} published figures known)")
        lines.append(f"    methods: {', '.join(table.methods)}")
        lines += [f"    with {', '.join(extra)}"] if extra else []
    return lines


def run(args: argparse.Namespace) -> int:
    """Run the evaluations that the tables need, print the tables and write them.

    Raises:
        UserError: No such table or method, or pictures, weights or folders that cannot be used.
    """
    from faceanon.report.tables_joined import write_joined
    from faceanon.report.tables_spec import known_tables, load_table
    from faceanon.weights.bundle import Bundle

    if args.table == ["list"]:
        print(*listing(), sep="\n")
        return 0
    names = known_tables() if "all" in args.table else list(dict.fromkeys(args.table))
    tables = [load_table(name) for name in names]
    place, given, bundle = device(args.device), parse_methods(args.methods), Bundle(args.bundle)
    methods = {one.name: build(one, bundle) for one in given}
    setting = _setting(args, tables, bundle)
    for backbone in methods.values():
        backbone.bundle.to(place)  # frozen networks are outside of the module tree
        backbone.to(place)
    results = {one.name: _results(one, methods[one.name], setting) for one in given}
    for table in tables:
        _one(table, results, methods, setting, args)
    write_joined(setting.folder.parent, results, *_recognisers(bundle))
    print(f"tables: {setting.folder.parent.resolve()}")
    return 0


def _setting(args: argparse.Namespace, tables: Sequence[PaperTable], bundle: Bundle) -> Setting:
    """Protocol and pictures, with what the tables need beyond the protocol."""
    from faceanon.metrics.cache import FeatureCache
    from faceanon.metrics.detection import DlibDetector, make_detector
    from faceanon.metrics.protocol import load_protocol
    from faceanon.report.tables_data import load_pictures
    from faceanon.report.tables_run import Setting

    keys = _kffa_keys(args, tables)
    protocol = load_protocol(args.protocol)
    detectors = {name: make_detector(name, bundle.image_size) for name in args.detectors}
    detectors |= {} if args.dlib is None else {"dlib": DlibDetector(args.dlib)}
    pictures = load_pictures(protocol, bundle.image_size, args.data, args.limit)
    needs_readings = any(table.needs_readings for table in tables)
    folder = (args.out or OUT) / "methods"
    cache = FeatureCache(args.features)
    return Setting(bundle, protocol, pictures, folder, keys, detectors, needs_readings, args.device, cache)


def _kffa_keys(args: argparse.Namespace, tables: Sequence[PaperTable]) -> int:
    """Keys a picture for KFFA; 0 where no table has it."""
    for option, keys in (("--tsne-keys", args.tsne_keys), ("--kffa-keys", args.kffa_keys)):
        if keys is not None and keys < 2:
            raise UserError(f"{option} {keys}: give at least 2")
    needed = max(table.kffa_keys for table in tables)
    if args.kffa_keys is not None and not needed:
        raise UserError(f"--kffa-keys {args.kffa_keys}: none of these tables has KFFA; leave it out")
    return needed if args.kffa_keys is None else int(args.kffa_keys)


def _results(given: Given, backbone: Backbone, setting: Setting) -> Results:
    """Of this very test where they are at hand, else measured now, with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from faceanon.report.tables_run import cached, measure

    if given.model is not None and given.model.is_dir():
        stage, method = given.model.resolve().parents[:2]
        for place in (given.model, stage / "report", method / "report"):  # a copy; `faceanon test`'s; `faceanon zoo`'s
            if (found := cached(place, backbone, setting)) is not None:
                return found
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(given.name, total=None)
        return measure(given.name, backbone, setting, lambda done, of: bar.update(task, completed=done, total=of))


def _one(
    table: PaperTable,
    results: Mapping[str, Results],
    methods: Mapping[str, Backbone],
    setting: Setting,
    args: argparse.Namespace,
) -> None:
    """Fill, print and write one table."""
    from faceanon.report.tables import fill
    from faceanon.report.tables_names import Names
    from faceanon.report.tables_run import facts
    from faceanon.report.tables_text import print_table

    bundle = setting.bundle
    judge, recogniser = _recognisers(bundle)
    names = Names(bundle.name, judge, recogniser, tuple(bundle.further_judges))
    filled = fill(table, results, names)
    print_table(filled, facts(setting, results))
    _write(filled, results, setting, _pictures(table, methods, setting, args, judge))


def _recognisers(bundle: Bundle) -> tuple[str, str]:
    """Names of the one that judges, and of the one that methods train against."""
    judge, recogniser = (
        getattr(bundle, f"{role}_name") if bundle.has(role) else "" for role in ("judge", "recogniser")
    )
    return judge, recogniser


def _pictures(
    table: PaperTable, methods: Mapping[str, Backbone], setting: Setting, args: argparse.Namespace, judge: str
) -> dict[str, tuple[str, bytes]]:
    """PNG and title of each of the table's pictures, by file name; sheets of photographs only where asked for."""
    from faceanon.report.sheets import png_bytes, sheet
    from faceanon.report.tables_pictures import key_embeddings, sheet_rows, tsne_png
    from faceanon.report.tables_run import method_digest

    found: dict[str, tuple[str, bytes]] = {}
    wanted = table.pictures if args.pictures is None else args.pictures
    if "sheet" in wanted and (not setting.pictures.real or args.pictures is not None):
        image = setting.pictures.one_each(FACES).to(setting.device)
        rows = {"original": image.cpu()}
        for name, backbone in methods.items():
            rows |= sheet_rows(name, backbone, image, setting.protocol.seed)
        found[f"{table.name}-faces.png"] = ("The same faces by method", png_bytes(sheet(rows)))
    keyed = {name: backbone for name, backbone in methods.items() if backbone.key_bits is not None}
    if "tsne" in wanted and keyed and judge:
        image = setting.pictures.one_each(TSNE_FACES).to(setting.device)
        embeddings = {}
        for name, backbone in keyed.items():
            stamp = f"{method_digest(backbone)[:12]}-{setting.pictures.seen.sha256[:12]}-{judge}-{args.tsne_keys}"
            path = setting.folder / name / f"keys-{stamp}.safetensors"
            network = setting.bundle.to(setting.device).judge
            embeddings[name] = key_embeddings(backbone, network, image, args.tsne_keys, setting.protocol.seed, path)
        found[f"{table.name}-tsne.png"] = ("Many keys on few faces (t-SNE)", tsne_png(embeddings, judge))
    return found


def _write(
    filled: FilledTable,
    results: Mapping[str, Results],
    setting: Setting,
    pictures: Mapping[str, tuple[str, bytes]],
) -> None:
    """JSON, Markdown, page and pictures, each whole or not at all."""
    from faceanon.report.page import data_uri, render
    from faceanon.report.results import run_meta, to_json
    from faceanon.report.tables import as_json
    from faceanon.report.tables_run import facts
    from faceanon.report.tables_text import markdown
    from faceanon.weights.files import write_atomic

    name, folder, told = filled.spec.name, setting.folder.parent, facts(setting, results)
    content = {"schema": 1, **as_json(filled), "facts": told, "meta": run_meta()}
    content["methods"] = {method: {"meta": found.meta, "ci": found.ci} for method, found in results.items()}
    write_atomic(folder / f"{name}.json", to_json(content))
    write_atomic(folder / f"{name}.md", markdown(filled, told).encode())
    for file, (_, png) in pictures.items():
        write_atomic(folder / file, png)
    # A page of photographs is to be shown around without the persons in them: they stay in files of their own.
    real = setting.pictures.real
    inside = {title: data_uri(png) for file, (title, png) in pictures.items() if not (real and "faces" in file)}
    warnings = [f"{method}: {warning}" for method, found in results.items() for warning in found.warnings]
    page = render("tables.html", table=filled, facts=told, warnings=warnings, pictures=inside)
    write_atomic(folder / f"{name}.html", page)
