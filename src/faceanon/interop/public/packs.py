"""InsightFace's model packs (a folder, a .zip or single .onnx files), recognised by name and format; never run."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from faceanon.errors import UserError
from faceanon.files import sha256

KNOWN = {
    "det_10g.onnx": "detector (SCRFD-10GF)",
    "det_2.5g.onnx": "detector (SCRFD-2.5GF)",
    "det_500m.onnx": "detector (SCRFD-500MF)",
    "scrfd_10g_bnkps.onnx": "detector (SCRFD-10GF)",
    "w600k_r50.onnx": "recogniser (ResNet-50, WebFace600K)",
    "w600k_mbf.onnx": "recogniser (MobileFaceNet, WebFace600K)",
    "glintr100.onnx": "recogniser (ResNet-100, Glint360K)",
    "2d106det.onnx": "106 landmarks",
    "1k3d68.onnx": "68 landmarks in 3D",
    "genderage.onnx": "gender and age",
}
"""What each file of the packs is."""

RECOGNISERS = ("w600k_r50.onnx", "glintr100.onnx", "w600k_mbf.onnx")
"""Those of them that can judge, first choice first."""

_LARGEST = 1 << 30


@dataclass(frozen=True)
class Pack:
    """Networks of a pack.

    Args:
        files: What each is, by file name.
        source: The folder, .zip or .onnx.
        sha256: Of the source; of names and hashes for a folder.
    """

    files: dict[str, str]
    source: Path
    sha256: str

    def read(self, name: str) -> bytes:
        """The content of one file, checked to be a whole ONNX model.

        Raises:
            UserError: Unreadable, truncated, or no ONNX model.
        """
        try:
            data = _read(self.source, name)
        except Exception as error:  # also RuntimeError (encrypted), NotImplementedError (compression), zlib.error
            raise UserError(f"{name} of {self.source} is damaged ({error}); get the pack again") from error
        if not is_onnx(data):
            raise UserError(f"{name} of {self.source} is not a whole ONNX model; get the pack again")
        return data


def is_pack(path: Path) -> bool:
    """Whether a path is read as a pack: folders, .zip and .onnx are."""
    return path.is_dir() or path.suffix in (".zip", ".onnx")


def read_pack(path: Path) -> Pack:
    """Name the networks of a pack.

    Raises:
        UserError: Nothing in it has a name of InsightFace's packs.
    """
    try:
        names = _names(path)
    except Exception as error:  # rubbish makes zipfile raise whatever it stumbles over
        raise UserError(f"{path} is no readable .zip ({error}); get the pack again") from error
    files = {}
    for name in sorted(names):
        if name in KNOWN:
            files[name] = KNOWN[name]
    if not files:
        seen = ", ".join(sorted(names)[:4]) or "nothing"
        raise UserError(
            f"{path} is neither a bundle (it has no bundle.yaml) nor a pack of InsightFace's (files such as "
            f"w600k_r50.onnx); it holds {seen}"
        )
    return Pack(files, path, _digest(path, files))


def _names(path: Path) -> set[str]:
    if path.is_dir():
        names = set()
        for item in path.iterdir():
            if item.is_file():
                names.add(item.name)
        return names
    if path.suffix == ".onnx":
        return {path.name}
    with zipfile.ZipFile(path) as archive:
        names_inside = set()
        for name in archive.namelist():
            if not name.endswith("/"):
                # Packs are zipped with a folder around the files and without one.
                names_inside.add(PurePosixPath(name).name)
        return names_inside


def _read(source: Path, name: str) -> bytes:
    if source.is_dir():
        return (source / name).read_bytes()
    if source.suffix == ".onnx":
        return source.read_bytes()
    with zipfile.ZipFile(source) as archive:
        info = next(item for item in archive.infolist() if PurePosixPath(item.filename).name == name)
        # The directory of a .zip says how large a file becomes; a few kilobytes can unpack to more than the memory.
        if info.file_size > _LARGEST:
            raise ValueError(f"it would be {info.file_size} bytes")
        return archive.read(info)


def _digest(path: Path, files: dict[str, str]) -> str:
    if path.is_file():
        return sha256(path)
    lines = []
    for name in files:
        lines.append(f"{name} {sha256(path / name)}")
    listing = "\n".join(lines)
    return hashlib.sha256(listing.encode()).hexdigest()


def is_onnx(data: bytes) -> bool:
    """Whether bytes are one whole ONNX model: a ModelProto's fields up to exactly the end, a graph among them."""
    # Read by hand: a truncated file shows in the lengths of its fields, and the package onnx is not needed to run it.
    at = 0
    fields = set()
    try:
        while at < len(data):
            # Every field of protobuf starts with a tag: its number, and in the last three bits how its value is stored.
            tag, at = _varint(data, at)
            number = tag >> 3
            wire = tag & 7
            fields.add(number)
            if wire == 0:
                _, at = _varint(data, at)
            elif wire == 2:
                length, at = _varint(data, at)
                at += length
            else:
                # A ModelProto has only whole numbers and values with a length.
                return False
    except IndexError:
        return False
    return at == len(data) and {1, 7} <= fields  # ir_version and graph


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    shift = 0
    # Ten bytes at most: longer ones would grow a number without end.
    while shift < 70:
        byte = data[at]
        value = value | (byte & 0x7F) << shift
        at = at + 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise IndexError("a number of more than ten bytes")
