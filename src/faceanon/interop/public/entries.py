"""Entries of bundle.yaml for imported networks, their files, and the card that goes with them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from faceanon.errors import UserError
from faceanon.files import load_tensors, save_tensors, write_atomic
from faceanon.interop.public.conversion import Converted, average_rows, convert, estimated_average
from faceanon.interop.public.packs import RECOGNISERS
from faceanon.interop.public.reading import Found, PublicFile
from faceanon.networks.irse import CROP
from faceanon.networks.parsing_classes import BISENET, CELEBAMASK_HQ, PARTS, class_numbers
from faceanon.networks.stylegan2 import Generator
from faceanon.networks.stylegan2_tables import layer_count
from faceanon.weights.bundle import Bundle
from faceanon.weights.catalog import Published, bundle_entries, by_sha256, catalog, published
from faceanon.weights.pairing import generator_fingerprint

CARD = "README.md"
ONNX = "faceanon.networks.onnx_recogniser.OnnxRecogniser"
FRAMING = [edge / 256 for edge in CROP]
"""What recognisers see of an FFHQ picture: rows and columns (top, bottom, left, right) as fractions."""

MARK = "<!-- below: written by faceanon weights import -->"
TERMS = (
    "Every network stays\nunder its own terms; those below are of the files that are published under that description."
)
_ORDERS = {"bisenet": BISENET, "unet_parser": CELEBAMASK_HQ}
_FACE = ("skin", "l_brow", "r_brow", "l_eye", "r_eye", "nose", "mouth", "u_lip", "l_lip")
_HEAD = (*_FACE, "hair", "l_ear", "r_ear", "neck", "eye_g", "hat", "ear_r", "neck_l")


@dataclass(frozen=True)
class Part:
    """A network on its way into a bundle.

    Args:
        file: The file it is from.
        found: The network.
        role: Its role there.
        partner: Encoders: fingerprint of the generator they were trained with, None where the file does not hold it.
    """

    file: PublicFile
    found: Found
    role: str
    partner: str | None = None

    def __str__(self) -> str:
        return f"{self.file.path.name} ({self.found.layout.title})"


class Staging:
    """Files and entries of one import, written into a temporary folder.

    Args:
        folder: The temporary folder.
        target: The bundle's folder, read where a generator is there already.
        spec: Content of bundle.yaml; entries are added to it.
    """

    def __init__(self, folder: Path, target: Path, spec: dict[str, Any]) -> None:
        self.folder = folder
        self.target = target
        self.spec = spec
        self._fresh: Converted | None = None

    def add_network(self, part: Part) -> list[str]:
        """Convert and write one network; returns lines that say so.

        Raises:
            UserError: It does not load strictly, or an encoder has no generator.
        """
        network = part.found
        converted = convert(network, str(part.file.path))
        notes = [*network.notes, *converted.notes]
        entry: dict[str, Any] = {"name": network.name}
        if network.layout.network is not None:
            entry |= {"class": network.layout.network, "init": network.init, **_usage(part)}
        file, digest = self._write(part.role, converted.tensors)
        entry |= {"file": file, "sha256": digest}
        if part.role == "generator":
            self._fresh = converted
            # The cached property would otherwise keep the generator that this one replaces.
            self.__dict__.pop("_generator", None)
            entry["fingerprint"] = generator_fingerprint(converted.tensors)
        if part.role == "encoder":
            entry["generator"] = part.partner
            if part.partner is None:
                notes.append("the file does not hold its generator, so the pairing is unproven: run verify")
        if part.role in ("generator", "encoder"):
            entry |= self._average(part, notes)
        known = published(network.layout.kind, network.size, network.name)
        entry["source"] = _source(part.file, network.layout.title, known, notes)
        self._enter(part.role, entry)
        lines = []
        for note in notes:
            lines.append(f"  {note}")
        return [f"{part} -> {part.role}", *lines]

    def add_pack(self, file: PublicFile) -> list[str]:
        """Copy InsightFace's networks as they are; a recogniser among them judges, where there is no judge yet.

        Raises:
            UserError: One is damaged.
        """
        assert file.pack is not None
        files = {}
        # With a part of the hash: another pack of the same name then never writes over these files.
        folder = f"{pack_name(file)}-{file.sha256[:8]}"
        for name in file.pack.files:
            data = file.pack.read(name)
            files[name] = hashlib.sha256(data).hexdigest()
            write_atomic(self.folder / folder / name, data)
        source = _source(file, "InsightFace pack", published("insightface"), [])
        self.spec.setdefault("packs", {})[pack_name(file)] = {"folder": folder, "files": files, "source": source}
        lines = [f"{file.path.name} (InsightFace pack) -> packs: {', '.join(files)}"]
        judge = None
        for name in RECOGNISERS:
            if name in files:
                judge = name
                break
        if judge is not None and "judge" not in self.spec["networks"]:
            entry = {"name": f"insightface_{Path(judge).stem}", "class": ONNX, "input_size": 112, "crop": list(FRAMING)}
            entry |= {"file": f"{folder}/{judge}", "sha256": files[judge], "source": source}
            self.spec["networks"]["judge"] = entry
            lines.append(f"{judge} -> judge")
        return lines

    def _write(self, role: str, tensors: dict[str, Tensor]) -> tuple[str, str]:
        """Write tensors under a name that holds their hash, so that a file never changes under a bundle's feet."""
        path = self.folder / f"{role}.safetensors"
        digest = save_tensors(path, tensors)
        final = f"{role}-{digest[:8]}.safetensors"
        path.rename(self.folder / final)
        return final, digest

    def _enter(self, role: str, entry: dict[str, Any]) -> None:
        section = "networks" if "class" in entry else "parts"
        self.spec.setdefault(section, {})[role] = entry
        if role == "parser":
            self.spec.pop("parsing", None)  # of the parser that was there
            if "parsing" in entry:
                self.spec |= {"parsing": entry["parsing"]}

    @cached_property
    def _generator(self) -> Generator | None:
        if self._fresh is not None:
            assert isinstance(self._fresh.net, Generator)
            return self._fresh.net
        if "generator" in self.spec["networks"]:
            return Bundle(self.target).generator()
        return None

    def _average(self, part: Part, notes: list[str]) -> dict[str, str]:
        """Write the average code of a generator or encoder; says in `notes` where it is from."""
        network = part.found
        generator = self._generator
        rows = layer_count(network.size or 0)
        if network.latent_avg is None:
            average = None
        else:
            average = average_rows(network.latent_avg, rows, str(part.file.path))
        # The options first: with this one off, the public code adds no average even where the file carries one.
        if not network.start_from_latent_avg:
            # Only an encoder gets here, since of a generator `start_from_latent_avg` is always True.
            average = network.tensors["styles.0.linear.bias"].new_zeros(rows, network.init["style_dim"]).float()
            notes.append("codes are no offsets from an average (opts), so latent_avg is zero")
        elif network.latent_avg is not None and network.latent_avg.squeeze().ndim == 1:
            notes.append(f"latent_avg of one row repeated to {rows}")
        elif average is None and part.role == "encoder" and "latent_avg" in self.spec["networks"].get("generator", {}):
            average = self._generator_average()
            notes.append("latent_avg taken from the generator (the encoder's file has none)")
        elif average is None and generator is not None:
            average = estimated_average(generator)
            notes.append(
                "latent_avg estimated from 10,000 draws of the mapping network with a fixed seed (no file has one)"
            )
        if average is None:
            raise UserError(f"{part} needs its generator for latent_avg; name the generator's file in the same command")
        file, digest = self._write(f"{part.role}_latent_avg", {"latent_avg": average})
        return {"latent_avg": file, "latent_avg_sha256": digest}

    def _generator_average(self) -> Tensor:
        entry = self.spec["networks"]["generator"]
        # A generator of this import still lies in the temporary folder.
        if (self.folder / entry["latent_avg"]).is_file():
            folder = self.folder
        else:
            folder = self.target
        return load_tensors(folder / entry["latent_avg"], entry["latent_avg_sha256"])["latent_avg"]


def pack_name(file: PublicFile) -> str:
    """What a bundle calls a pack: `buffalo_l`."""
    return re.sub(r"[^\w.-]", "_", file.path.stem)


def _usage(part: Part) -> dict[str, Any]:
    """How a bundle feeds the network: framing of recognisers, class numbers of parsers."""
    kind = part.found.layout.kind
    init = part.found.init
    if kind in ("ir_se_recogniser", "adaface"):
        return {"input_size": init["input_size"], "crop": list(FRAMING)}
    if kind == "facenet":
        return {"input_size": 160, "crop": list(FRAMING)}
    order = _ORDERS.get(kind)
    # Another number of classes is another order of them, which nothing here knows.
    if order is None or init["n_classes"] != len(order):
        return {}
    numbers = {"face": _FACE, "edited": (*_FACE, "neck"), "head": _HEAD, "parts": PARTS}
    chosen = {}
    for key, names in numbers.items():
        chosen[key] = sorted(class_numbers(names, order))
    return {"parsing": {"classes": list(order), **chosen}}


def _source(file: PublicFile, title: str, known: Published | None, notes: list[str]) -> dict[str, Any]:
    """Where an entry is from and on which terms."""
    exact = by_sha256(file.sha256)
    # Nothing is recognised by its name, but a known name with another hash is worth a note.
    named = None
    for item in catalog():
        if item.sha256 and item.files[0] == file.path.name:
            named = item
            break
    if exact is None and named is not None:
        notes.append(f"not the published {file.path.name}: its sha256 differs")
    return {
        "file": file.path.name,
        "sha256": file.sha256,
        "recognised": title,
        "catalog": known.id if known else None,
        "published": exact is not None,
        "licence": known.licence if known else "unknown: ask whoever gave you the file",
        "commercial": known.commercial if known else "unclear",
        "notes": list(notes),
    }


def card(spec: dict[str, Any], present: str) -> str:
    """The card: what was there before, then a table of what was imported.

    Args:
        spec: Content of bundle.yaml.
        present: The card so far, empty if there is none.
    """
    side = spec["image_size"]
    title = f"# {spec['name']}\n\nPretrained networks for {side} x {side} px, imported from public files. {TERMS}"
    # What people wrote above the mark stays; what is below it is written anew.
    before = present.split(MARK)[0].rstrip() or title
    head = "| recognised as | file | sha256 of the file | licence | commercial use | notes |"
    lines = [head, "|" + "---|" * 6]
    for entry in bundle_entries(spec):
        if (source := entry.get("source")) is None:
            continue
        proof = " (the published file)" if source["published"] else ""
        cells = (source["recognised"], f"`{source['file']}`{proof}", f"`{source['sha256']}`", source["licence"])
        lines.append("| " + " | ".join((*cells, source["commercial"], "; ".join(source["notes"]))) + " |")
    return f"{before}\n\n{MARK}\n\n" + "\n".join(lines) + "\n"
