"""The manifest of a file, or of another file of the same run."""

from __future__ import annotations

from pathlib import Path

from faceanon.errors import UserError
from faceanon.manifest import Manifest
from faceanon.photo.decode import opened
from faceanon.photo.file import load_carried, read_vault
from faceanon.photo.metadata import SIDECAR_SUFFIX, WRITABLE, embedded, read_sidecar, read_text, vault_of


def manifest_of(path: Path) -> tuple[Manifest, str]:
    """The manifest of a picture or a sidecar; the picture is decoded only where it has lost its metadata.

    Returns:
        The manifest, and where it was: `in the file`, the sidecar's name, or `in the pixels`.

    Raises:
        UserError: If there is none, or it is damaged.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the pictures in it")
    if path.name.endswith(SIDECAR_SUFFIX):
        text: str | None = read_text(path)
        where = path.name
    else:
        with opened(path) as image:
            text = embedded(image)
            where = "in the file"
        if text is None:
            text = read_sidecar(path)
            where = path.name + SIDECAR_SUFFIX
        if text is None:
            text = _carried(path)
            where = "in the pixels"
    if text is None:
        raise UserError(
            f"{path} carries no faceanon data, in itself or beside it; it was not made by faceanon, or lost it"
        )
    try:
        return Manifest.from_json(text), where
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _carried(path: Path) -> str | None:
    """What `anonymize --carry pixels` wrote into the pixels; None where they carry nothing or cannot be read."""
    try:
        photo = load_carried(path)
    except UserError:
        return None
    if photo is None:
        return None
    return photo.manifest


def vault_bytes(path: Path) -> int | None:
    """Size of the vault of a picture, or of the picture that a sidecar describes; None where there is none.

    Raises:
        UserError: If the picture cannot be read.
    """
    if path.name.endswith(SIDECAR_SUFFIX):
        # `write_photo` puts the vault of such a picture beside it too, so the picture itself need not be there.
        path = path.with_name(path.name.removesuffix(SIDECAR_SUFFIX))
        beside = vault_of(path)
        if beside.is_file():
            return beside.stat().st_size
        return None
    vault = read_vault(path)
    if vault is None:
        return None
    return len(vault)


def manifest_like(path: Path) -> Manifest:
    """The manifest of `path`; of a folder, that of the first file in it that has one.

    Raises:
        UserError: If there is none.
    """
    if not path.is_dir():
        return manifest_of(path)[0]
    for file in sorted(path.rglob("*")):
        if file.suffix.lower() in WRITABLE or file.name.endswith(SIDECAR_SUFFIX):
            try:
                return manifest_of(file)[0]
            except UserError:  # stripped as well, or not ours
                continue
    raise UserError(f"no file in {path} carries faceanon data")
