"""Show what an anonymized file says of itself: model, faces, key derivation. No password is needed.

  faceanon inspect party_anon.png
  faceanon inspect party_anon.mp4
  faceanon inspect --json hidden/a.png hidden/b.jpg.faceanon.json

What lies beside a file (NAME.faceanon.json) is found by itself.

Everything shown is public: whoever has the file can read it. It tells nothing of who was in the photo, and of
recipients how many there are, not who they are.
Exit code: 0 shown, 2 a file carries no faceanon data or cannot be read (the others are shown all the same).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.commands._run import quiet_pictures
from faceanon.commands._typed import typed
from faceanon.errors import UserError
from faceanon.paths import is_video

if TYPE_CHECKING:
    from faceanon.key import KdfParameters
    from faceanon.manifest import Manifest


MARKED = "made in part by trained algorithms (IPTC, in XMP)"


@dataclass(frozen=True)
class InspectOptions:
    """What is shown.

    Args:
        files: Anonymized pictures and videos, or their .faceanon.json.
        json: Whether a line of JSON is printed for each.
    """

    files: list[str]
    json: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="anonymized picture or video, or its .faceanon.json")
    parser.add_argument(
        "--json", action="store_true", help="one line of JSON a file, as it is stored, and the size of a vault"
    )


def run(args: argparse.Namespace) -> int:
    """Print what every file named carries; the exit code."""
    options = typed(InspectOptions, args)
    quiet_pictures()
    code = 0
    for name in options.files:
        try:
            print(_shown(Path(name), options.json))
        except UserError as error:
            print(f"faceanon: {error}", file=sys.stderr)
            code = 2
    return code


def _shown(path: Path, as_json: bool) -> str:
    """What a file carries, as text or as JSON.

    Raises:
        UserError: If it carries nothing, or cannot be read.
    """
    from faceanon.photo.manifests import manifest_of, vault_bytes
    from faceanon.photo.metadata import SIDECAR_SUFFIX

    if is_video(str(path).removesuffix(SIDECAR_SUFFIX)):
        return _shown_video(path, as_json)
    manifest, where = manifest_of(path)
    vault = vault_bytes(path)
    if as_json:
        return _json(manifest, vault)
    return _text(path, manifest, where, vault)


def _shown_video(path: Path, as_json: bool) -> str:
    from faceanon.photo.c2pa import described
    from faceanon.pipeline.video.mark import is_marked
    from faceanon.pipeline.video.record import record_of

    record, where = record_of(path)
    if as_json:
        return record.to_json()
    manifest = record.shared
    rows = {
        **_common(manifest, where),
        "video": f"{manifest.width}x{manifest.height} px, {record.frames} frames, written as {manifest.encoding}",
        "faces": f"{record.tracks} followed, {record.faces} in all frames together",
    }
    if path.is_file() and is_marked(path):
        rows["mark"] = MARKED
    if path.is_file():
        rows |= described(path)
    if record.body is not None:
        rows["sealed codes"] = f"{record.body.size} bytes, encrypted: what recovery needs in addition to the key"
    return "\n".join(_lines(str(path), rows))


def _json(manifest: Manifest, vault: int | None) -> str:
    text = manifest.to_json()
    # Added to the text: the manifest is shown byte for byte as the file has it.
    return text if vault is None else f'{text[:-1]},"vault_bytes":{vault}}}'


def _text(path: Path, manifest: Manifest, where: str, vault: int | None) -> str:
    # A vault brings back hidden faces as well.
    how = "for good" if vault is None else "otherwise"
    rows = {
        **_common(manifest, where),
        "picture": f"{manifest.width}x{manifest.height} px, written as {manifest.encoding}",
        "faces": f"{manifest.faces} can be brought back, {len(manifest.hidden)} hidden {how}",
    }
    if manifest.codes:
        rows["sealed codes"] = f"{manifest.carried} bytes, encrypted: what recovery needs in addition to the key"
    if vault is not None:
        rows["vault"] = f"{vault} bytes, encrypted: the original faces, for recover --exact"
    if manifest.earlier is not None:
        rows["anonymized"] = f"{manifest.records} times; the data of the times before are inside these"
    lines = _lines(str(path), rows | _metadata(path))
    for number, layer in enumerate(manifest.layers, 1):
        for square in layer:
            lines.append(f"    layer {number}: {square.side:.0f} px at ({square.center_x:.0f}, {square.center_y:.0f})")
    for face in manifest.hidden:
        x1, y1, x2, y2 = face.box
        lines.append(f"    {face.by}: {x2 - x1:.0f}x{y2 - y1:.0f} px at ({(x1 + x2) / 2:.0f}, {(y1 + y2) / 2:.0f})")
    return "\n".join(lines)


def _metadata(path: Path) -> dict[str, str]:
    """What a picture says to everybody, beside the recovery data; nothing of a file of recovery data."""
    from faceanon.photo.c2pa import described
    from faceanon.photo.decode import opened
    from faceanon.photo.exif import kinds_in
    from faceanon.photo.mark import is_marked
    from faceanon.photo.metadata import SIDECAR_SUFFIX

    rows: dict[str, str] = {}
    if path.name.endswith(SIDECAR_SUFFIX):
        return rows
    with opened(path) as image:
        if is_marked(image):
            rows["mark"] = MARKED
        if kinds := kinds_in(image):
            rows["metadata"] = f"{', '.join(kinds)} of the original"
    return rows | described(path)


def _common(manifest: Manifest, where: str) -> dict[str, str]:
    """What pictures and videos have alike."""
    return {
        "recovery data": where,
        "method": manifest.method,
        "model": f"{manifest.model}, weights {manifest.weights[:16]}..., made for faces of {manifest.image_size} px",
        "key": _key(manifest),
    }


def _lines(name: str, rows: dict[str, str]) -> list[str]:
    lines = [name]
    for title, text in rows.items():
        lines.append(f"  {title + ':':<15}{text}")
    return lines


def _key(manifest: Manifest) -> str:
    for_whom = []
    if manifest.wrapped is not None:
        # How many there are shows in the file; who they are does not.
        for_whom.append(f"one of the file's own, sealed for {manifest.wrapped.count} recipient(s)")
    if manifest.salt is not None and manifest.kdf is not None:
        for_whom.append(_password(manifest.salt, manifest.kdf))
    return " and for ".join(for_whom) or "a secret of its own, not a password"


def _password(salt: bytes, kdf: KdfParameters) -> str:
    # Whole MiB read best, but a cost below one would show as 0.
    cost = f"{kdf.memory_kib // 1024 or kdf.memory_kib / 1024:g} MiB, {kdf.iterations} passes, {kdf.lanes} lanes"
    return f"a password with salt {salt.hex()}, by {kdf.name} ({cost})"
