"""Bring your own pretrained networks: list what is known, import what you have, verify, show, use and sample it.

    faceanon weights list
    faceanon weights import stylegan2-ffhq-256.pt e4e_ffhq_encode_256.pt model_ir_se50.pth --as ffhq256
    faceanon weights verify ffhq256 --faces photos/aligned
    faceanon weights show ffhq256
    faceanon weights method dbaf --bundle ffhq256 --out runs/published/dbaf
    faceanon weights sample ffhq256 --out drawn

Nothing is fetched: get the files from their authors (`list` says where, and on which terms). Files are recognised by
what is in them, never by name, and no code in them is run. docs/how-to/bring-your-own-networks.md tells the whole way.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.commands._typed import typed
from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.interop.public.reading import Found, PublicFile

IMPORT = """Convert public checkpoints to safetensors and write or extend a bundle, all of it or nothing.

    faceanon weights import stylegan2-ffhq-256.pt e4e_ffhq_encode_256.pt --as ffhq256
    faceanon weights import model_ir_se50.pth 79999_iter.pth --as ffhq256        (extends it)
    faceanon weights import ffhq.pkl --as models/nvidia1024                      (a path: elsewhere)

An e4e or pSp file brings its own generator; next to another generator it is refused. What a file lacks of noise maps,
blur kernels and latent_avg is filled in, and that is said.
"""
VERIFY = """Check a bundle: sha256 of every file, strict loading, pairing, and reconstructions of sample faces.

    faceanon weights verify ffhq256
    faceanon weights verify ffhq256 --faces photos/aligned

Exit code 0 if all is well or only to be judged by you (warning), 1 if something FAILED.
"""
SHOW = """Say what a file or a bundle is: networks, tensors, parameters, keys, options, fingerprint, sha256.

    faceanon weights show e4e_ffhq_encode.pt
    faceanon weights show ffhq256
"""
METHOD = """Make a model of the weights that a method's authors publish: DBAF's four files, or RiDDLE's mapper.

    faceanon weights import stylegan2-ffhq-256.pt e4e_ffhq_encode_256.pt iteration_90000.pt --as ffhq256
    faceanon weights method riddle --bundle ffhq256 --out runs/published/riddle

The folder is a model like any other: for faceanon test, and for --methods of faceanon report tables.
"""
SAMPLE = """Draw a folder of faces that nobody has with a bundle's generator, to train on.

    faceanon weights sample ffhq256 --out drawn                       (70,000, as iFADIT's FFHQ*)
    faceanon weights sample ffhq256 --out drawn --batch 64 --device cuda

The same command goes on after an interrupt. A set does not depend on the batch.
"""
LIST = """Print the public checkpoints that faceanon reads: role, licence, size, where to get them, what is here.

    faceanon weights list
    faceanon weights list --role parser
"""


@dataclass(frozen=True)
class ListOptions:
    """What is listed.

    Args:
        role: Only this role; None for all.
    """

    role: str | None


@dataclass(frozen=True)
class ImportOptions:
    """What is imported.

    Args:
        files: Checkpoints, .pkl, or InsightFace's pack.
        bundle: Name of the bundle, or a path.
        replace: Whether networks may take the place of those that are there.
        encoder_type: e4e or pSp, for an encoder whose file does not say; None: the file says.
    """

    files: list[Path]
    bundle: str
    replace: bool
    encoder_type: str | None


@dataclass(frozen=True)
class VerifyOptions:
    """What is verified.

    Args:
        bundle: Name of a bundle, or its folder.
        faces: Folder of aligned faces to reconstruct; None for those that ship.
    """

    bundle: str
    faces: Path | None


@dataclass(frozen=True)
class ShowOptions:
    """What is shown.

    Args:
        what: A file, a folder, or the name of a bundle.
    """

    what: str


@dataclass(frozen=True)
class MethodOptions:
    """Which method becomes a model.

    Args:
        method: dbaf or riddle.
        bundle: Name of a bundle, or its folder.
        out: The model's folder.
    """

    method: str
    bundle: str
    out: Path


@dataclass(frozen=True)
class SampleOptions:
    """What is drawn.

    Args:
        bundle: Name of a bundle, or its folder.
        out: Folder of the pictures.
        count: How many.
        seed: Of their random codes.
        batch: Pictures at once.
        device: Where they are drawn.
    """

    bundle: str
    out: Path
    count: int
    seed: int
    batch: int
    device: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare list, import, verify, show, method and sample."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="{list,import,verify,show,method,sample}")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        # Up to the first full stop or colon: so much fits into the list of actions.
        summary = text.split(".", 1)[0].split(":", 1)[0].lower()
        formatter = argparse.RawDescriptionHelpFormatter
        return actions.add_parser(name, help=summary, description=text, formatter_class=formatter)

    listing = action("list", LIST)
    listing.add_argument("--role", help="only this role, e.g. generator, encoder, recogniser, judge, parser")
    importing = action("import", IMPORT)
    importing.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="checkpoints, .pkl, or InsightFace's pack"
    )
    importing.add_argument("--as", dest="bundle", required=True, metavar="BUNDLE", help="name of the bundle, or a path")
    importing.add_argument("--replace", action="store_true", help="take the place of networks that are there already")
    importing.add_argument(
        "--encoder-type",
        choices=("Encoder4Editing", "GradualStyleEncoder"),
        help="e4e or pSp, for an encoder whose file does not say (their keys are the same)",
    )
    verifying = action("verify", VERIFY)
    verifying.add_argument("bundle", metavar="BUNDLE", help="name of a bundle, or its folder")
    verifying.add_argument(
        "--faces", type=Path, metavar="FOLDER", help="aligned faces to reconstruct (default: synthetic ones that ship)"
    )
    showing = action("show", SHOW)
    showing.add_argument("what", metavar="FILE_OR_BUNDLE", help="a file, a folder, or the name of a bundle")
    making = action("method", METHOD)
    making.add_argument("method", choices=("dbaf", "riddle"), help="whose published weights")
    making.add_argument(
        "--bundle", required=True, help="name of the bundle that they were imported into, or its folder"
    )
    making.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder of the model")
    sampling = action("sample", SAMPLE)
    sampling.add_argument("bundle", metavar="BUNDLE", help="name of a bundle, or its folder")
    sampling.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder of the pictures")
    sampling.add_argument("--count", type=int, default=70_000, metavar="N", help="pictures (%(default)s)")
    sampling.add_argument("--seed", type=int, default=0, metavar="N", help="of their random codes (%(default)s)")
    sampling.add_argument("--batch", type=int, default=16, metavar="N", help="pictures at once (%(default)s)")
    sampling.add_argument("--device", default="cpu", help="cpu, cuda, ... (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Do one of the six.

    Raises:
        UserError: Something is missing, damaged, unknown, or does not belong together.
    """
    if args.action == "list":
        return _list(typed(ListOptions, args))
    if args.action == "import":
        return _import(typed(ImportOptions, args))
    if args.action == "verify":
        return _verify(typed(VerifyOptions, args))
    if args.action == "method":
        return _method(typed(MethodOptions, args))
    if args.action == "sample":
        return _sample(typed(SampleOptions, args))
    return _show(typed(ShowOptions, args))


def _print(text: str) -> None:
    from rich.console import Console

    # As it is: brackets in a name are no markup, and a path that is folded cannot be copied.
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def _list(options: ListOptions) -> int:
    from rich.console import Console
    from rich.table import Table

    from faceanon.weights.catalog import catalog, on_disk

    here = on_disk()
    shown = []
    for entry in catalog():
        # InsightFace's packs have two roles, in one text.
        if options.role is None or options.role in entry.role.split(", "):
            shown.append(entry)
    if not shown:
        roles_of_entries = set()
        for entry in catalog():
            for role in entry.role.split(", "):
                roles_of_entries.add(role)
        roles = sorted(roles_of_entries)
        raise UserError(f"nothing known for role {options.role!r}; roles are {', '.join(roles)}")
    table = Table("role", "network", "px", "file", "licence", "commercial", "size", "sha256", "where", "here in")
    for entry in shown:
        sizes = str(entry.resolution or "any")
        digest = entry.sha256[:12] if entry.sha256 else "unknown"
        files = "\n".join(entry.files)
        where = entry.published.removeprefix("https://")
        bundles = ", ".join(here.get(entry.id, [])) or "-"
        cells = (entry.role, entry.title, sizes, files, entry.licence, entry.commercial, entry.size, digest, where)
        table.add_row(*cells, bundles)
    console = Console()
    if not console.is_terminal:
        console.width = 1000  # a pipe has no width of its own: do not fold what somebody searches
    console.print(table)
    return 0


def _import(options: ImportOptions) -> int:
    from faceanon.interop.public.importing import bundle_folder, import_files
    from faceanon.interop.public.reading import read_public

    bundle_folder(options.bundle)  # a bad name shows before gigabytes are read
    files = []
    for path in options.files:
        files.append(read_public(path, options.encoder_type))
    folder, lines = import_files(files, options.bundle, options.replace)
    for line in lines:
        _print(line)
    _print(f"bundle {folder.name}: {folder}; next: faceanon weights verify {options.bundle}")
    return 0


def _verify(options: VerifyOptions) -> int:
    from faceanon.interop.verify import verify

    failed = 0
    for check in verify(options.bundle, options.faces):
        failed += check.verdict == "FAILED"
        _print(f"{check.verdict:<8} {check.text}")
    return 1 if failed else 0


def _method(options: MethodOptions) -> int:
    from faceanon.interop.public.methods import published_method
    from faceanon.models import save_backbone
    from faceanon.weights.bundle import Bundle

    save_backbone(published_method(options.method, Bundle(options.bundle)), options.out)
    _print(f"{options.method} with its published weights: {options.out}")
    return 0


def _sample(options: SampleOptions) -> int:
    from tqdm import tqdm  # type: ignore[import-untyped]

    from faceanon.interop.sampling import sample
    from faceanon.methods import device
    from faceanon.weights.bundle import Bundle

    bundle = Bundle(options.bundle)
    steps = sample(bundle, options.out, options.count, options.seed, options.batch, device(options.device))
    with tqdm(total=options.count, desc="drawing", unit="face") as progress:
        for there in steps:
            progress.update(there - progress.n)
    _print(f"{options.count} pictures: {options.out}")
    return 0


def _show(options: ShowOptions) -> int:
    from faceanon.interop.public.reading import read_public
    from faceanon.weights.spec import bundle_path

    path = Path(options.what)
    # A folder without bundle.yaml can only be a pack of InsightFace's.
    if path.is_file() or (path.is_dir() and not (path / "bundle.yaml").is_file()):
        _show_file(read_public(path))
    else:
        _show_bundle(bundle_path(options.what))
    return 0


def _show_file(file: PublicFile) -> None:
    _print(f"{file.path}\nsha256 {file.sha256}\ntop-level keys: {_some(list(file.keys))}")
    for network in file.found:
        _print(_described(network))
    if file.pack is not None:
        parts = []
        for name, what in file.pack.files.items():
            parts.append(f"\n  {name}: {what}")
        _print("InsightFace pack:" + "".join(parts))
    if file.opts:
        options = []
        for name, value in sorted(file.opts.items()):
            options.append(f"{name}={value}")
        _print("opts: " + ", ".join(options))


def _described(found: Found) -> str:
    from faceanon.weights.catalog import published
    from faceanon.weights.pairing import generator_fingerprint

    count = sum(tensor.numel() for tensor in found.tensors.values())
    lines = [f"{found.layout.title} ({found.name}): {len(found.tensors)} tensors, {count / 1e6:.2f} M numbers"]
    for name, value in found.init.items():
        lines.append(f"  {name}: {value}")
    if found.latent_avg is not None:
        lines.append(f"  latent_avg: {tuple(found.latent_avg.shape)}")
    if found.layout.role == "generator":
        lines.append(f"  fingerprint: {generator_fingerprint(found.tensors)}")
    known = published(found.layout.kind, found.size, found.name)
    lines.append(f"  licence: {known.licence} (commercial use: {known.commercial})" if known else "  licence: unknown")
    return "\n".join(lines + [f"  {note}" for note in found.notes])


def _show_bundle(folder: Path) -> None:
    from faceanon.files import load_tensors
    from faceanon.weights.bundle import Bundle

    bundle = Bundle(folder)
    _print(f"bundle {bundle.name}, {bundle.image_size} px: {folder}")
    for role, entry in {**bundle.spec["networks"], **bundle.spec.get("parts", {})}.items():
        tensors = load_tensors(folder / entry["file"]) if "file" in entry else {}
        count = sum(tensor.numel() for tensor in tensors.values())
        network = entry.get("class", "no network").rsplit(".", 1)[-1]
        _print(f"{role}: {entry.get('name', '')} {network}, {len(tensors)} tensors, {count / 1e6:.2f} M numbers")
        facts = []
        for name, value in _lines(entry).items():
            facts.append(f"  {name}: {value}\n")
        _print("".join(facts).rstrip("\n"))
    for role, entry in bundle.spec.get("packs", {}).items():
        _print(f"{role}: {', '.join(entry['files'])}")


def _lines(entry: dict[str, Any]) -> dict[str, Any]:
    """What to tell of an entry, short names first."""
    source = entry.get("source", {})
    shown = {}
    for name in ("init", "file", "sha256", "fingerprint", "generator"):
        if name in entry:
            shown[name] = entry[name]
    origin = {}
    for name in ("file", "sha256", "licence", "commercial"):
        if name in source:
            origin[f"source {name}"] = source[name]
    return shown | origin


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:8]) + (f", ... ({len(keys)} keys)" if len(keys) > 8 else "")
