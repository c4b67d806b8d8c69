"""Other people for the same picture or film: another key, under which what recovery needs is sealed anew.

    sealed codes, vault --old key--> opened --new key--> sealed

No pixel is decoded or written. The key is always a new one: who kept the old one opens the old file and no new one.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from faceanon.errors import UserError
from faceanon.files import unwritable, whole_file
from faceanon.manifest import Manifest
from faceanon.photo.decode import opened
from faceanon.photo.file import load_carried, read_vault, write_files
from faceanon.photo.manifests import manifest_of
from faceanon.photo.metadata import WRITABLE, embedded, embedded_vault, sidecar_of
from faceanon.photo.splice import spliced
from faceanon.photo.vault import belongs, reseal
from faceanon.pipeline.video.codes import new_codes, stored_codes
from faceanon.pipeline.video.record import record_of
from faceanon.sealed.manifests import opened_codes, with_codes
from faceanon.sealed.openers import Openers

UNSEALED = (
    "{name} carries no sealed codes: its key made the pixels themselves, so it cannot change; recover it and anonymize "
    "it again"
)


@dataclass(frozen=True)
class Rekeyed:
    """What became of a file.

    Args:
        manifest: The new one.
        vault: The new one, or None.
        changed: How many records were opened and sealed anew; a photo that was anonymized twice has two.
        left: Why each other record stays as it was.
    """

    manifest: Manifest
    vault: bytes | None
    changed: int = 0
    left: tuple[str, ...] = ()


def rekey_photo(source: Path, target: Path, old: Openers, new: Openers) -> tuple[str, ...]:
    """Write an anonymized photo that opens for others; its pixels stay, byte by byte.

    Args:
        source: As `anonymize` wrote it, with what lies beside it.
        target: The file to write, of the same format.
        old: Opens the source.
        new: Is to open the target.

    Returns:
        Why each record stays as it was that `old` does not open: of a photo that was anonymized more than once.

    Raises:
        WrongPasswordError: If the password opens nothing in the file.
        WrongIdentityError: If the identity does not.
        UserError: If the source carries no usable data, or its pixels carry them, or the target cannot be written.
    """
    check_same_format(source, target)
    manifest, where = manifest_of(source)
    with opened(source) as image:
        inside = embedded(image) is not None
        vault_inside = embedded_vault(image) is not None
        lossless = image.format != "JPEG"
    # A manifest in the pixels would still open for the old ones.
    if where == "in the pixels" or (lossless and load_carried(source) is not None):
        raise UserError(
            f"{source}: its pixels carry recovery data too (--carry pixels), and rekey changes no pixel; recover it "
            "and anonymize it again"
        )
    done = rekeyed(manifest, read_vault(source), old, new, str(source))
    text = done.manifest.to_json()
    data = spliced(
        _read(source),
        text if inside else None,
        done.vault if vault_inside else None,
        str(source),
    )
    write_files(
        target,
        data,
        None if inside else (text + "\n").encode(),
        None if vault_inside else done.vault,
    )
    return done.left


def rekeyed(manifest: Manifest, vault: bytes | None, old: Openers, new: Openers, name: str) -> Rekeyed:
    """Manifest and vault of a photo for others.

    Args:
        manifest: Of the photo, with the records inside it.
        vault: Of the photo, or None.
        old: Opens the photo.
        new: Is to open it.
        name: What to call it in messages.

    Raises:
        WrongPasswordError: If the password opens no record.
        WrongIdentityError: If the identity does not.
        UserError: If no record can be opened for another reason, or the vault is another picture's.
    """
    if vault is not None and not any(belongs(vault, record) for record in _records(manifest)):
        raise UserError(f"{name}: its vault is damaged or belongs to another picture; put its own beside it")
    done = _rekeyed(manifest, vault, old, new, name)
    if isinstance(done, UserError):
        raise done
    return done


def _records(manifest: Manifest) -> list[Manifest]:
    records = [manifest]
    while records[-1].earlier is not None:
        records.append(records[-1].earlier)
    return records


def _rekeyed(manifest: Manifest, vault: bytes | None, old: Openers, new: Openers, name: str) -> Rekeyed | UserError:
    """As `rekeyed`; the error where no record was opened."""
    before = Rekeyed(manifest, vault)
    inner: Rekeyed | UserError | None = None
    if manifest.earlier is not None:
        # The innermost first: it goes into the one around it.
        inner = _rekeyed(manifest.earlier, vault, old, new, name)
        if isinstance(inner, Rekeyed):
            before = replace(inner, manifest=replace(manifest, earlier=inner.manifest))
        else:
            before = replace(before, left=(str(inner),))
    try:
        return _rekeyed_record(before, old, new, name)
    except UserError as error:
        if before.changed == 0:
            return error
        return replace(before, left=(*before.left, str(error)))


def _rekeyed_record(before: Rekeyed, old: Openers, new: Openers, name: str) -> Rekeyed:
    """The outermost record for others.

    Raises:
        UserError: If it does not open.
    """
    manifest = before.manifest
    vault = before.vault
    if manifest.faces and not manifest.codes:
        raise UserError(UNSEALED.format(name=name))
    secret = old.open(manifest.lock, name)
    codes = opened_codes(manifest, secret, name)
    new_secret, lock = new.new_key()
    if vault is not None and belongs(vault, manifest):
        vault = reseal(vault, secret, new_secret, manifest, name)
    manifest = with_codes(manifest.locked(lock), codes, new_secret)
    return replace(before, manifest=manifest, vault=vault, changed=before.changed + 1)


def rekey_film(source: Path, target: Path, old: Openers, new: Openers) -> None:
    """Write an anonymized film that opens for others; the film is copied byte by byte, what lies beside it is new.

    Args:
        source: As `anonymize` wrote it, with its sidecar.
        target: The film to write, with the same ending.
        old: Opens the source.
        new: Is to open the target.

    Raises:
        WrongPasswordError: If the password does not open the source.
        WrongIdentityError: If the identity does not.
        UserError: If the source carries no sealed codes, or the target cannot be written.
    """
    check_same_format(source, target)
    record, where = record_of(source)
    if record.body is None:
        raise UserError(UNSEALED.format(name=source))
    if where == "in the file":
        raise UserError(f"{source}: its sealed codes do not lie beside it; give the file as it was written")
    secret = old.open(record.shared.lock, str(source))
    new_secret, lock = new.new_key()
    new_record = replace(record, shared=record.shared.locked(lock), body=None)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        stored_codes(source, record, secret) as codes,
        new_codes(target, new_record, new_secret) as writer,
    ):
        for (frame, track), code in codes.items():
            writer.add(frame, track, code)
        # Before the film, so that no film stands there without what recovers it.
        writer.save()
    try:
        _copy(source, target)
    except UserError:
        # It would belong to no film.
        sidecar_of(target).unlink(missing_ok=True)
        raise


def check_same_format(source: Path, target: Path) -> None:
    """Refuse a target whose name says another format.

    Raises:
        UserError: If it does.
    """
    kinds = []
    for path in (source, target):
        suffix = path.suffix.lower()
        kinds.append(WRITABLE.get(suffix, suffix))
    if kinds[0] != kinds[1]:
        raise UserError(f"{target}: rekey changes no pixel, so OUT must end in {source.suffix} as IN does")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _copy(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as film, whole_file(target) as copy:
            shutil.copyfileobj(film, copy, 1 << 20)
    except OSError as error:
        raise unwritable(target, error) from error
