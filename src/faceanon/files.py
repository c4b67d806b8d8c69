"""Safetensors on disk: hashed, written atomically, loaded strictly."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import yaml
from numpy.typing import NDArray

from faceanon.errors import NO_ROOM, NoRoomError, UserError
from faceanon.packed import PACKED, packed, unpacked
from faceanon.quantised import (
    GROUP,
    INT4,
    INT8,
    INT8_LEAST,
    MOST_STEPS,
    PREFIXES,
    SCALE,
    SCALE4,
    plain_names,
    to_int4,
    to_int8,
    widened_array,
)

# What only reads and writes files needs no torch; those who handle tensors have it already.
if TYPE_CHECKING:
    from torch import Tensor, nn

CARD_BYTES = 4_000_000
CARD_ENTRIES = 100_000
NAME_BYTES = 255  # that a file system takes for a name
ADVICE = {  # what helps where a file cannot be written, by the error's number
    errno.ENOSPC: "free some space, or choose another disk",
    errno.EDQUOT: "free some space, or choose another disk",
    errno.EACCES: "you may not write there; choose another folder",
    errno.EPERM: "you may not write there; choose another folder",
    errno.EROFS: "nobody may write there; choose another folder",
    errno.EISDIR: "name a file in it",
    errno.ENOTDIR: "a file stands where its folder should be; choose another folder",
    # What making the folders says of the same.
    errno.EEXIST: "a file stands where its folder should be; choose another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def sha256(path: Path) -> str:
    """The sha256 of a file as 64 hexadecimal digits; the file is read in chunks.

    Examples:
        >>> from pathlib import Path
        >>> from faceanon.files import sha256
        >>> size = Path("abc.txt").write_bytes(b"abc")
        >>> sha256(Path("abc.txt"))[:16]
        'ba7816bf8f01cfea'
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state_sha256(module: nn.Module) -> str:
    """Hash over class, names, shapes and values of a network or method."""
    digest = hashlib.sha256(type(module).__qualname__.encode())
    for name, tensor in sorted(module.state_dict().items()):
        # With dtype and shape: the same bytes could otherwise stand for other numbers.
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def raw_bytes(tensor: Tensor) -> bytes:
    """A tensor as it lies in memory, row by row; of every dtype, bfloat16 included, which numpy does not know."""
    import torch

    # Flat before it is viewed as bytes: torch refuses that of a tensor without dimensions.
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def short_name(name: str) -> str:
    """Sixteen hexadecimal digits that stand for a name of any length.

    Examples:
        >>> from faceanon.files import short_name
        >>> short_name("party.png")
        '27b162b00dc1dbdf'
    """
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def check_name(path: Path) -> None:
    """Refuse a path with a name that no file system takes.

    Raises:
        UserError: If a file or folder in it has more than `NAME_BYTES`.
    """
    for name in path.parts:
        length = len(os.fsencode(name))
        if length > NAME_BYTES:
            raise UserError(f"{path}: the name has {length} bytes, more than {NAME_BYTES}; choose a shorter one")


def unfinished(path: Path) -> str:
    """How the names of the files begin that become `path` when they are complete."""
    # Short, so that a name of any length that the file system takes can be written.
    return f".faceanon-{short_name(path.name)}-"


def clear_unfinished(path: Path) -> None:
    """Remove what a kill left of `path` while it was being written."""
    for file in path.parent.glob(f"{unfinished(path)}*"):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write and read that takes the place of `path` when all is written; until then `path` is as it was.

    Args:
        path: The file; its folder is made.
        mode: Who may read it, from its first byte on; the umask takes away from that, as a recovered face may be for
            nobody else.

    Raises:
        OSError: The folder cannot be written, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, since a rename is atomic within one file system only.
    temporary = path.with_name(unfinished(path) + secrets.token_hex(4))
    try:
        # With its rights from the first byte on: a chmod would come too late for what is private.
        with open(temporary, "xb+", opener=partial(os.open, mode=mode)) as file:
            yield file
            file.flush()
            # The data have to be on the disk before the name points to them.
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        # After a success the name is gone; after an error what was written is of no use to anybody.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomic(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write `data` as `whole_file` does.

    Raises:
        NoRoomError: The disk is full.
        UserError: The folder cannot be written.

    Examples:
        >>> from faceanon.files import write_atomic
        >>> from pathlib import Path
        >>> write_atomic(Path("note.txt"), b"complete, or not there")
        >>> Path("note.txt").read_bytes()
        b'complete, or not there'
    """
    write_parts(path, [data], mode)


def read_small(path: Path, most: int, what: str) -> bytes:
    """The bytes of a file that cannot be long.

    Args:
        path: The file.
        most: Bytes that it may have.
        what: What to call it in messages.

    Raises:
        UserError: It cannot be read, or is longer.
    """
    try:
        with path.open("rb") as file:
            # One byte more than may be shows that the file is too long; the rest of it may be a whole disk.
            data = file.read(most + 1)
    except OSError as error:
        raise UserError(f"cannot read {what}: {error.strerror}") from None
    if len(data) > most:
        raise UserError(f"{what} is longer than {most} bytes; is it the right file?")
    return data


def write_new(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write `data` as `write_atomic` does, where no file is yet.

    Raises:
        UserError: There is one, also if it came in the meantime; or the folder cannot be written.
    """
    draft = path.with_name(f"{unfinished(path)}{secrets.token_hex(4)}")
    write_atomic(draft, data, mode)
    try:
        # Unlike a rename, this never replaces.
        os.link(draft, path)
    except FileExistsError:
        raise UserError(f"{path} exists; choose another name, or move it") from None
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


def write_parts(path: Path, parts: Iterable[bytes], mode: int = 0o666) -> None:
    """Write parts one after the other as `whole_file` does; one of them is in memory at a time.

    Args:
        path: The file.
        parts: What it shall hold.
        mode: Who may read it.

    Raises:
        NoRoomError: The disk is full.
        UserError: The folder cannot be written.

    Examples:
        >>> from faceanon.files import write_parts
        >>> from pathlib import Path
        >>> write_parts(Path("note.txt"), (word.encode() for word in ("complete, ", "or ", "not there")))
        >>> Path("note.txt").read_bytes()
        b'complete, or not there'
    """
    try:
        with whole_file(path, mode) as file:
            for part in parts:
                file.write(part)
    except OSError as error:
        raise unwritable(path, error) from error


def write_together(contents: Iterable[tuple[Path, bytes]]) -> None:
    """Write several files; where one cannot be written, all of them are as they were.

    Args:
        contents: The files and what they shall hold.

    Raises:
        NoRoomError: The disk is full.
        UserError: A folder cannot be written, or a folder stands where a file shall.

    Examples:
        >>> from faceanon.files import write_together
        >>> from pathlib import Path
        >>> write_together([(Path("one.txt"), b"both"), (Path("two.txt"), b"or none")])
        >>> Path("one.txt").read_bytes() + b" " + Path("two.txt").read_bytes()
        b'both or none'
    """
    path = Path()
    try:
        # The files take their places when the stack ends, so none does before all are written.
        with contextlib.ExitStack() as stack:
            for path, data in contents:
                file = stack.enter_context(whole_file(path))
                # A rename onto it would fail, when another file may have its place already.
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                file.write(data)
                # A full disk has to show by now.
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> UserError:
    """A failed write as one line.

    Args:
        path: The file.
        error: What the system said.

    Returns:
        A `NoRoomError` where the disk is full.
    """
    reason = NO_ROOM.get(error.errno or 0) or error.strerror or str(error)
    advice = ADVICE.get(error.errno or 0, "choose another folder")
    line = f"cannot write {path}: {reason}; {advice}"
    # A file that is too large says nothing of the next one.
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoomError(line)
    return UserError(line)


def read_yaml(path: Path) -> dict[str, Any]:
    """The entries of a small YAML file from outside; tags that would run code are refused, as are bombs of aliases.

    Raises:
        UserError: Missing, too large, no YAML, or not a mapping by names.
    """
    try:
        if path.stat().st_size > CARD_BYTES:
            raise UserError(f"{path} is larger than {CARD_BYTES // 1_000_000} MB, too large for a card; restore it")
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} cannot be read as YAML ({reason}); restore the file") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise UserError(f"{path} does not hold entries by name; restore the file")
    if not is_bounded(content):
        raise UserError(f"{path} unfolds to more than {CARD_ENTRIES} entries; restore the file")
    return content


def is_bounded(value: object, limit: int = CARD_ENTRIES) -> bool:
    """Whether plain nested values unfold to at most `limit` entries: aliases of YAML may make a few lines endless.

    Examples:
        >>> from faceanon.files import is_bounded
        >>> row = [0] * 4
        >>> table = [row] * 4  # one row under four names, as an alias of YAML gives it
        >>> is_bounded(table, limit=21), is_bounded(table, limit=20)
        (True, False)
    """
    queue: list[object] = [value]
    while queue and limit >= 0:
        limit = limit - 1
        item = queue.pop()
        if isinstance(item, dict):
            queue += item.values()
        elif isinstance(item, list):
            queue += item
    return limit >= 0


def save_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: dict[str, str] | None = None,
    half: bool = False,
    int8: bool = False,
    int4: Collection[str] = (),
    steps: Mapping[str, int] | None = None,
    huffman: bool = False,
) -> str:
    """Write tensors as safetensors; returns the file's sha256.

    Args:
        path: The file; its folder is made.
        tensors: By name.
        metadata: Text that travels in the file's head.
        half: Store weights (two dimensions or more) as float16, half the size; loading widens them again.
        int8: Store large weights (two dimensions or more, at least 4096 numbers) as int8 with one scale per output
            channel, a quarter of the size; loading gives float32 again. Smaller ones are stored as `half` says.
        int4: Names of weights, of a first dimension that is a multiple of 64, that are stored in int4
            (`quantised.to_int4`).
        steps: Names of weights that are stored in int8 in fewer steps, and how many on each side of zero.
        huffman: Store all of it in Huffman code (`packed`), which changes no number.

    Raises:
        UserError: The folder cannot be written, a tensor has a reserved name, or few bits are asked for numbers that
            are not finite or for a tensor that is no such weight.
    """
    import torch
    from safetensors.torch import save

    steps = steps or {}
    reserved = []
    for name in tensors:
        if name.startswith(PREFIXES) or name == PACKED:
            reserved.append(name)
    if reserved:
        raise UserError(
            f"cannot write {path}: the name {reserved[0]!r:.60} is reserved for few bits; rename the tensor"
        )
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        value = tensor.detach().cpu()
        weight = value.ndim > 1 and value.is_floating_point()
        few = weight and (name in int4 or name in steps or (int8 and value.numel() >= INT8_LEAST))
        # One such number would spoil the scale, and with it all weights that share the scale.
        if few and not value.isfinite().all():
            raise UserError(f"cannot write {path}: {name} holds numbers that are not finite; train again")
        if name in int4:
            if not weight or len(value) % GROUP:
                raise UserError(f"cannot write {path}: {name} of shape {tuple(value.shape)} does not fit int4")
            stored[INT4 + name], stored[SCALE4 + name] = to_int4(value)
        elif few:
            stored[INT8 + name], stored[SCALE + name] = to_int8(value, steps.get(name, MOST_STEPS))
        else:
            # A clone, since safetensors refuses tensors that share memory.
            stored[name] = value.to(torch.float16 if half and weight else value.dtype).contiguous().clone()
    data = save(stored, metadata)
    if huffman:
        data = packed(data, metadata)
    write_atomic(path, data)
    return hashlib.sha256(data).hexdigest()


def widened(stored: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Tensors of a file by their own names, those in few bits as float32.

    Raises:
        UserError: A tensor in int8 or int4 lacks its scale, a scale its tensor, or the two do not fit.
    """
    import torch

    # No others belong to weights in few bits, and numpy does not know all that a file may hold.
    typed = (torch.int8, torch.uint8, torch.float16, torch.float32)
    tensors = {}
    quantised = {}
    for name, value in stored.items():
        if not name.startswith(PREFIXES):
            tensors[name] = value
        elif value.dtype in typed:
            quantised[name] = value.numpy()
        else:
            raise _damaged(path, plain_names([name])[0])
    for name in plain_names(quantised):
        # A name that lies there twice, plain and in few bits, is damage: nothing says which one counts.
        array = None if name in tensors else widened_array(quantised, name)
        if array is None:
            raise _damaged(path, name)
        tensors[name] = torch.from_numpy(array)
    return tensors


def _damaged(path: Path, name: str) -> UserError:
    return UserError(f"{path}: the scale of {name!r:.60} is missing or damaged; fetch or train it again")


def _missing(path: Path) -> UserError:
    return UserError(f"weights not found: {path}; check the path, or train them (docs/tutorials/train.md)")


def _another(path: Path) -> UserError:
    return UserError(f"{path} is not the file its card describes (sha256 differs); restore it, e.g. with git checkout")


def load_tensors(path: Path, expected: str | None = None) -> dict[str, Tensor]:
    """Read a safetensors file; weights that lie there in int8 come back as float32.

    Args:
        path: The file.
        expected: Its sha256, checked when given.

    Raises:
        UserError: Missing, corrupt, or another file than expected.

    Examples:
        >>> from pathlib import Path
        >>> import torch
        >>> from faceanon.files import load_tensors, save_tensors
        >>> digest = save_tensors(Path("weights.safetensors"), {"bias": torch.tensor([0.5, 2.0])})
        >>> load_tensors(Path("weights.safetensors"), digest)
        {'bias': tensor([0.5000, 2.0000])}
        >>> load_tensors(Path("weights.safetensors"), "0" * 64)
        Traceback (most recent call last):
        faceanon.errors.UserError: weights.safetensors is not the file its card describes (sha256 differs); ...
    """
    from safetensors.torch import load, load_file

    if not path.is_file():
        raise _missing(path)
    if expected is not None and sha256(path) != expected:
        raise _another(path)
    try:
        stored = unpacked(load_file(path), load)
    except Exception as error:  # also KeyError and RuntimeError, of types and shapes that torch does not have
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is not a readable safetensors file ({reason}); fetch or train it again") from error
    return widened(stored, path)


def checked_bytes(path: Path, expected: str | None = None, data: bytes | None = None) -> bytes:
    """A file's bytes.

    Args:
        path: The file; also where `data` was read, for messages.
        expected: Its sha256, checked when given.
        data: The bytes, where they are at hand.

    Raises:
        UserError: Missing, or another file than expected.
    """
    if data is None:
        if not path.is_file():
            raise _missing(path)
        data = path.read_bytes()
    if expected is not None and hashlib.sha256(data).hexdigest() != expected:
        raise _another(path)
    return data


def load_arrays(path: Path, data: bytes | None = None, expected: str | None = None) -> dict[str, NDArray[np.float32]]:
    """As `load_tensors`, all numbers as float32 arrays of numpy; needs no torch.

    Args:
        path: The file; also where `data` was read, for messages.
        data: Its bytes, where they are at hand and checked.
        expected: Its sha256, checked when given.

    Raises:
        UserError: Missing, corrupt, or another file than expected; also if it holds bfloat16, which numpy has not.
    """
    from safetensors.numpy import load

    data = checked_bytes(path, expected, data)
    try:
        stored = unpacked(load(data), load)
    except Exception as error:  # safetensors' own errors, and KeyError of types that numpy does not have
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is not a readable safetensors file ({reason}); fetch or train it again") from error
    arrays = {}
    for name, value in stored.items():
        if not name.startswith(PREFIXES):
            arrays[name] = value.astype(np.float32)
    for name in plain_names(stored):
        array = widened_array(stored, name)
        if array is None:
            raise _damaged(path, name)
        arrays[name] = array
    return arrays


def load_strictly(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Load every key, and no other, with equal shapes.

    Raises:
        UserError: Keys or shapes differ; the message names the first few and their source.
    """
    # Compared here and not by torch, whose error gives every key a line of its own.
    own = module.state_dict()
    missing = sorted(own.keys() - tensors.keys())
    unexpected = sorted(tensors.keys() - own.keys())
    reshaped = []
    for key in sorted(own.keys() & tensors.keys()):
        if own[key].shape != tensors[key].shape:
            reshaped.append(f"{key} {tuple(tensors[key].shape)} instead of {tuple(own[key].shape)}")
    if missing or unexpected or reshaped:
        parts = []
        for label, f in (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped)):
            if f:
                parts.append(f"{len(f)} {label} (e.g. {f[0]})")
        name = type(module).__name__
        raise UserError(f"{source} does not fit {name}: {', '.join(parts)}; use the configuration it was trained with")
    module.load_state_dict(dict(tensors))
