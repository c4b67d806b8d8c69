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
from faceanon.photo.c2pa import is_signed
from faceanon.photo.decode import opened
from faceanon.photo.file import load_photo, read_vault, write_files
from faceanon.photo.manifests import manifest_of
from faceanon.photo.metadata import WRITABLE, embedded, embedded_vault, sidecar_of
from faceanon.photo.signature import TURNS
from faceanon.photo.splice import spliced
from faceanon.photo.vault import belongs, reseal
from faceanon.pipeline.video.codes import new_codes, stored_codes
from faceanon.pipeline.video.record import record_of
from faceanon.sealed.manifests import opened_codes, with_codes
from faceanon.sealed.openers import Openers
from faceanon.sealed.pixels import has_part

UNSEALED = (
    "{name} carries no sealed codes: its key made the pixels themselves, so it cannot change; recover it and anonymize "
    "it again"
)
NOTHING = "{name} holds nothing that a key opens; rekey has nothing to change"


@dataclass(frozen=True)
class Rekeyed:
    """What became of a file.

    Args:
        manifest: The new one.
        vault: The new one, or None.
        changed: In how many records something was opened and sealed anew; a photo that was anonymized twice has two.
        left: Why each record stays as it was that does not open, and the vault where none opens it.
        sealed: Whether the vault was sealed anew.
        closed: Why the vault did not open with a record that it may belong to; None where none was tried.
    """

    manifest: Manifest
    vault: bytes | None
    changed: int = 0
    left: tuple[UserError, ...] = ()
    sealed: bool = False
    closed: UserError | None = None


def rekey_photo(source: Path, target: Path, old: Openers, new: Openers) -> tuple[str, ...]:
    """Write an anonymized photo that opens for others; its pixels stay, byte by byte.

    Args:
        source: As `anonymize` wrote it, with what lies beside it.
        target: The file to write, of the same format.
        old: Opens the source.
        new: Is to open the target.

    Returns:
        What is to be told: why each inner record stays as it was that `old` does not open, of a photo that was
        anonymized more than once; and that C2PA's manifest is gone.

    Raises:
        WrongPasswordError: If the password opens nothing in the file.
        WrongIdentityError: If the identity does not.
        UserError: If the source carries no usable data, or its pixels carry a part of them, or the target cannot be
            written.
    """
    check_same_format(source, target)
    manifest, where = manifest_of(source)
    with opened(source) as image:
        inside = embedded(image) is not None
        vault_inside = embedded_vault(image) is not None
        lossless = image.format != "JPEG"
    # What stands in the pixels would still open for the old ones, a part of it too.
    if where == "in the pixels" or (lossless and _carries(source)):
        raise UserError(
            f"{source}: its pixels carry recovery data too (--carry pixels), and rekey changes no pixel; recover it "
            "and anonymize it again"
        )
    done = rekeyed(manifest, read_vault(source), old, new, str(source))
    text = done.manifest.to_json()
    before = _read(source)
    data = spliced(
        before,
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
    notes = [f"{why} (what an earlier anonymize sealed; it stays as it was)" for why in done.left]
    if is_signed(before) and not is_signed(data):
        notes.append(f"{target}: its C2PA manifest is gone, since it signed the old recovery data")
    return tuple(notes)


def _carries(source: Path) -> bool:
    """Whether the pixels carry recovery data, or a part of them; also those of a photo that was turned since."""
    pixels = load_photo(source).pixels
    return any(has_part(turn.undo(pixels)) for turn in TURNS)


def rekeyed(manifest: Manifest, vault: bytes | None, old: Openers, new: Openers, name: str) -> Rekeyed:
    """Manifest and vault of a photo for others.

    Args:
        manifest: Of the photo, with the records inside it.
        vault: Of the photo, or None.
        old: Opens the photo.
        new: Is to open it.
        name: What to call it in messages.

    Raises:
        WrongPasswordError: If the password does not open the outermost record, which is what opens first.
        WrongIdentityError: If the identity does not.
        UserError: If that record cannot be opened for another reason, or the vault is another picture's or opens with
            no record, or there is nothing that a key opens.
    """
    records = _records(manifest)
    if vault is not None and not any(belongs(vault, record) for record in records):
        raise UserError(f"{name}: its vault is damaged or belongs to another picture; put its own beside it")
    done = Rekeyed(manifest, vault)
    earlier: Manifest | None = None
    kept = []
    # The innermost first: it goes into the one around it.
    for record in reversed(records):
        done = replace(done, manifest=replace(record, earlier=earlier))
        try:
            done = _rekeyed_record(done, old, new, name)
        except UserError as error:
            if record is manifest:
                raise
            kept.append(record)
            done = replace(done, left=(*done.left, error))
        earlier = done.manifest
    if vault is not None and not done.sealed:
        if done.closed is not None and not any(belongs(vault, record) for record in kept):
            raise done.closed
        why = done.closed or UserError(f"{name}: its vault belongs to what does not open")
        done = replace(done, left=(*done.left, why))
    if done.changed == 0:
        raise done.left[0] if done.left else UserError(NOTHING.format(name=name))
    return done


def _records(manifest: Manifest) -> list[Manifest]:
    """The outermost first."""
    records = [manifest]
    while records[-1].earlier is not None:
        records.append(records[-1].earlier)
    return records


def _rekeyed_record(before: Rekeyed, old: Openers, new: Openers, name: str) -> Rekeyed:
    """The outermost record for others, and the vault where the record's key opens it.

    Raises:
        UserError: If the record does not open.
    """
    manifest = before.manifest
    if manifest.faces and not manifest.codes:
        raise UserError(UNSEALED.format(name=name))
    vault = before.vault
    if before.sealed or (vault is not None and not belongs(vault, manifest)):
        vault = None
    if vault is None and not manifest.codes and manifest.wrapped is None:
        # Nothing shows whether the key is right, so it does not count.
        return replace(before, manifest=manifest.locked(new.new_key()[1]))
    secret = old.open(manifest.lock, name)
    codes = opened_codes(manifest, secret, name)
    new_secret, lock = new.new_key()
    done = before
    if vault is not None:
        try:
            done = replace(before, vault=reseal(vault, secret, new_secret, manifest, name), sealed=True, closed=None)
        except UserError as error:
            # It may be that of another record with the same faces.
            done = replace(before, closed=error)
    opened = bool(codes) or manifest.wrapped is not None or done.sealed
    manifest = with_codes(manifest.locked(lock), codes, new_secret)
    return replace(done, manifest=manifest, changed=before.changed + opened)


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
    with stored_codes(source, record, secret) as codes:
        # A wrong password shows at the first code, and is to leave no folder behind.
        next(iter(codes.values()))
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_codes(target, new_record, new_secret) as writer:
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
