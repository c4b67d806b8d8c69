"""Public checkpoints into a bundle: safetensors, bundle.yaml and a card, all of it or nothing."""

from __future__ import annotations

import copy
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from faceanon.errors import UserError
from faceanon.files import load_tensors, write_atomic
from faceanon.interop.public.entries import CARD, Part, Staging, card, pack_name
from faceanon.interop.public.reading import GENERATOR, PublicFile
from faceanon.paths import checkpoints
from faceanon.weights.bundle import network_class
from faceanon.weights.catalog import bundle_entries
from faceanon.weights.layouts import Layout
from faceanon.weights.pairing import check_pair, generator_fingerprint, origin, short
from faceanon.weights.spec import read_spec

SPEC = "bundle.yaml"
DEFAULT_SIZE = 256
SEVERAL = ("recogniser", "judge", "parser", "landmarks")
"""Roles of which a bundle may hold more than one; further ones are called `role_name`."""

DBAF_DECODER = Layout(
    "dbaf_decoder", "DBAF's fine-tuned generator", "dbaf_decoder", GENERATOR.network, GENERATOR.marks, GENERATOR.sizes
)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def bundle_folder(bundle: str) -> Path:
    """Where a bundle lies or will lie: a path, or a name in `checkpoints/`.

    Raises:
        UserError: The folder around it is missing, or something else lies there.
    """
    if "/" in bundle or "\\" in bundle or Path(bundle).is_dir():
        folder = Path(bundle)
    else:
        folder = checkpoints() / bundle
    if _NAME.fullmatch(folder.name) is None:
        raise UserError(f"{bundle!r} is no name for a bundle; use letters, digits, dots, dashes and underscores")
    if not folder.parent.is_dir():
        raise UserError(f"no folder {folder.parent} to put the bundle {folder.name} in; make it, or choose another")
    # An empty folder may become a bundle.
    if folder.exists() and not (folder / SPEC).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already and is no bundle; choose another name")
    return folder


def import_files(files: Sequence[PublicFile], bundle: str, overwrite: bool = False) -> tuple[Path, list[str]]:
    """Convert files and write them into a new or an existing bundle.

    The work is done in a hidden folder beside the bundle, and `bundle.yaml` is replaced last: an interrupt leaves what
    was there before.

    Args:
        files: What `read_public` made of the files.
        bundle: Name in `checkpoints/`, or path.
        overwrite: Let a network take the place of another of the same role.

    Returns:
        The bundle's folder, and lines that say what was done.

    Raises:
        UserError: The files do not belong together or to the bundle, or the disk is full.
    """
    folder = bundle_folder(bundle)
    terms = f"every network under its own terms, see {CARD}"
    old: dict[str, Any] = {"name": folder.name, "image_size": None, "licence": terms, "networks": {}}
    if (folder / SPEC).is_file():
        old = read_spec(folder)
    # All of this before anything is written: a refusal leaves no trace.
    parts = _one_generator(_parts(files), folder, old, overwrite)
    parts, lines = _with_roles(parts, old, overwrite)
    # A copy: at the end both are compared, to see which files no longer belong to the bundle.
    spec = copy.deepcopy(old)
    _settle_size(spec, parts)
    packs, more = _new_packs(files, old, overwrite)
    lines += more
    if not parts and not packs:
        return folder, lines
    with _staged(folder) as temporary:
        staging = Staging(temporary, folder, spec)
        # The generator first: an encoder's average code may have to come from it.
        for part in sorted(parts, key=lambda part: part.role != "generator"):
            lines += staging.add_network(part)
        for file in packs:
            lines += staging.add_pack(file)
        _check(spec)
        _commit(temporary, folder, old, spec)
    return folder, lines


def _parts(files: Sequence[PublicFile]) -> list[Part]:
    """Every network; a bare generator beside DBAF's other files is its fine-tuned decoder."""
    parts = []
    for file in files:
        decoder = None
        for network in file.found:
            if network.layout is GENERATOR:
                decoder = network
                break
        # An encoder was trained with the generator that lies in its own file.
        if decoder is None:
            partner = None
        else:
            partner = generator_fingerprint(decoder.tensors)
        for network in file.found:
            is_encoder = network.layout.role == "encoder"
            parts.append(Part(file, network, network.layout.role, partner if is_encoder else None))
    if any(part.role.startswith("dbaf_") for part in parts):
        settled = []
        for part in parts:
            settled.append(_as_dbaf_decoder(part) if part.found.bare and part.role == "generator" else part)
        parts = settled
    return parts


def _as_dbaf_decoder(part: Part) -> Part:
    network = replace(part.found, layout=DBAF_DECODER, name=DBAF_DECODER.kind)
    return replace(part, found=network, role=DBAF_DECODER.role)


def _one_generator(parts: list[Part], folder: Path, spec: dict[str, Any], overwrite: bool) -> list[Part]:
    """Keep one generator: the one that came by itself, or the decoder in an encoder's file. All must be the same.

    Raises:
        UserError: They are not; the message names two.
    """
    encoders = {}
    for part in parts:
        if part.role == "encoder":
            encoders[id(part.file)] = part
    generators = []
    for part in parts:
        if part.role == "generator":
            generators.append(part)
    # False comes before True: a generator that came by itself stands first.
    generators.sort(key=lambda part: id(part.file) in encoders)
    if not generators:
        return parts
    chosen = generators[0]
    first = generator_fingerprint(generators[0].found.tensors)
    for other in generators[1:]:
        if chosen.found.latent_avg is None and other.found.latent_avg is not None:
            note = f"latent_avg taken from {other.file.path.name}, which holds the same generator"
            found_too = replace(chosen.found, latent_avg=other.found.latent_avg, notes=(*chosen.found.notes, note))
            chosen = replace(chosen, found=found_too)
        fingerprint = generator_fingerprint(other.found.tensors)
        if fingerprint != first:
            raise _apart(str(encoders.get(id(other.file), other)), fingerprint, str(chosen), first)
    rest = []
    for part in parts:
        if part.role != "generator":
            rest.append(part)
    present = spec["networks"].get("generator")
    if present is None:
        return [chosen, *rest]
    there = fingerprint_of(folder, present)
    if there == first:
        return rest
    if overwrite:
        return [chosen, *rest]
    raise _apart(str(encoders.get(id(chosen.file), chosen)), first, f"{origin(present)} in {spec['name']}", there)


def _apart(one: str, first: str, other: str, second: str) -> UserError:
    return UserError(
        f"{one} goes with generator {short(first)}, but {other} is generator {short(second)}: codes of the one mean "
        "nothing to the other; import them into separate bundles"
    )


def fingerprint_of(folder: Path, entry: dict[str, Any]) -> str:
    """The recorded fingerprint of a generator, or that of its file."""
    recorded: str | None = entry.get("fingerprint")
    return recorded or generator_fingerprint(load_tensors(folder / entry["file"], entry.get("sha256")))


def _with_roles(parts: list[Part], spec: dict[str, Any], overwrite: bool) -> tuple[list[Part], list[str]]:
    """Roles that are free, without what the bundle has already; and lines on the latter.

    Raises:
        UserError: Another network has the role, and `overwrite` is off.
    """
    taken: dict[str, dict[str, Any]] = {**spec["networks"], **spec.get("parts", {})}
    kept = []
    lines = []
    for part in parts:
        role = part.role
        name = part.found.name
        # A second network of such a role gets a role of its own; one of the same name would replace the first.
        if role in SEVERAL and role in taken and taken[role].get("name") != name:
            role = f"{role}_{name}"
        present = taken.get(role)
        # The file's hash tells that this import was done before, so that doing it again changes nothing.
        if present is not None and present.get("source", {}).get("sha256") == part.file.sha256:
            lines.append(f"{part}: already in {spec['name']} as {role}")
            continue
        if present is not None and not overwrite:
            raise UserError(
                f"{spec['name']} has a {role} already, {origin(present)}; give --replace to put {part} in its place"
            )
        # Two files of one import may want the same role.
        taken[role] = {"name": name, "file": part.file.path.name}
        kept.append(replace(part, role=role))
    return kept, lines


def _new_packs(
    files: Sequence[PublicFile], spec: dict[str, Any], overwrite: bool
) -> tuple[list[PublicFile], list[str]]:
    """Packs that the bundle does not have; and lines on the others.

    Raises:
        UserError: It has another of that name, and `overwrite` is off.
    """
    kept = []
    lines = []
    with_packs = []
    for file in files:
        if file.pack is not None:
            with_packs.append(file)
    for file in with_packs:
        present = spec.get("packs", {}).get(pack_name(file))
        if present is not None and present["source"]["sha256"] == file.sha256:
            lines.append(f"{file.path.name}: already in {spec['name']}")
        elif present is not None and not overwrite:
            raise UserError(
                f"{spec['name']} has another pack {pack_name(file)}; give --replace to put this in its place"
            )
        else:
            kept.append(file)
    return kept, lines


def _settle_size(spec: dict[str, Any], parts: Sequence[Part]) -> None:
    """Image size of the bundle: that of its generator and encoder; 256 px is assumed until there is one.

    Raises:
        UserError: A network draws or encodes another size; the message names both.
    """
    sized = []
    for part in parts:
        if part.found.size is not None and part.role != DBAF_DECODER.role:
            sized.append(part)
    if spec["image_size"] is None:
        if sized:
            spec["image_size"] = sized[0].found.size
        else:
            spec["image_size"] = DEFAULT_SIZE
    # Recognisers and parsers have no size: a bundle of them alone had the assumed one.
    elif sized and not {"generator", "encoder", "discriminator"} & set(spec["networks"]):
        spec["image_size"] = sized[0].found.size
    for part in sized:
        if part.found.size != spec["image_size"]:
            raise UserError(
                f"{part} is for {part.found.size} px, but {spec['name']} is for {spec['image_size']} px; "
                "import it into a bundle of its own"
            )


def _check(spec: dict[str, Any]) -> None:
    """What only the finished bundle shows: the pairing, and that every class exists."""
    networks = spec["networks"]
    for entry in networks.values():
        network_class(entry["class"])
    if "encoder" in networks and "generator" in networks:
        check_pair(networks["encoder"], networks["generator"])


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A hidden folder beside the bundle that is gone afterwards, whatever happens."""
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.import-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"cannot write to {folder.parent}: {error.strerror}; choose another folder") from error
    try:
        yield temporary
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}; choose another folder") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _commit(temporary: Path, folder: Path, old: dict[str, Any], spec: dict[str, Any]) -> None:
    """Put the staged files in place; bundle.yaml last, so that it never names what is not there."""
    text = yaml.safe_dump(spec, sort_keys=False, default_flow_style=None, width=110)
    if not (folder / SPEC).is_file():
        write_atomic(temporary / CARD, card(spec, "").encode())
        write_atomic(temporary / SPEC, text.encode())
        # mkdtemp makes folders that only their owner may read.
        temporary.chmod(0o755)
        # One rename, so that there is a whole bundle or none. An empty folder of this name gives way.
        temporary.replace(folder)
        return
    present = ""
    if (folder / CARD).is_file():
        present = (folder / CARD).read_text(encoding="utf-8")
    moved: list[Path] = []
    try:
        written = []
        for item in temporary.rglob("*"):
            if item.is_file():
                written.append(item)
        for path in sorted(written):
            target = folder / path.relative_to(temporary)
            # The name holds the hash of the content, so a file that is there already is the same.
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                # Noted before the move: an interrupt between the two would otherwise leave the file behind.
                moved.append(target)
                path.replace(target)
        write_atomic(folder / SPEC, text.encode())
    # Ctrl+C too must leave nothing of an unfinished import.
    except BaseException:
        for path in moved:
            path.unlink(missing_ok=True)
        raise
    write_atomic(folder / CARD, card(spec, present).encode())
    # Old files go last, when no bundle.yaml names them any more.
    for name in _file_names(old) - _file_names(spec):
        path = folder / name
        if name in (SPEC, CARD) or not path.parent.resolve().is_relative_to(folder.resolve()):
            # A bundle.yaml from elsewhere may name anybody's files; only its own go.
            continue
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _file_names(spec: dict[str, Any]) -> set[str]:
    """Files that a bundle.yaml names."""
    names = set()
    for entry in bundle_entries(spec):
        for key in ("file", "latent_avg"):
            if key in entry:
                names.add(entry[key])
        for name in entry.get("files", {}):
            names.add(f"{entry['folder']}/{name}")
    return names
