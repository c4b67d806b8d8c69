"""Foreign weights from a file on this disk: read without running code from it, and loaded strictly."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from faceanon.errors import UserError


def refuse_bomb(path: Path) -> None:
    """Refuse a zip archive that unpacks to more than its own size: torch writes none, but reads what others compress.

    Raises:
        UserError: It is one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except Exception:  # no zip archive, or a damaged one: its reader says so
        return
    if unpacked > path.stat().st_size:
        raise UserError(
            f"{path} would unpack to {unpacked} bytes, more than it has; no program that trains writes that"
        )


def read_state(path: str | Path, what: str) -> dict[str, Tensor]:
    """Tensors by name from a safetensors or torch file.

    Args:
        path: The file; `~` is the home folder.
        what: What the file is and where it is published, for the message when it is missing.

    Raises:
        UserError: Missing, unreadable, or more than tensors by name.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f"no file {path}: give {what}; nothing is downloaded")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        refuse_bomb(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    # A refusal from above has its own message, which the next clause would hide.
    except UserError:
        raise
    except Exception as error:  # rubbish makes the readers raise whatever they stumble over
        reason = (str(error).strip() or type(error).__name__).split("\n")[0]
        raise UserError(f"{path} is not a readable weights file ({reason}); fetch it again") from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"{path} holds more than tensors by name; give {what}")
    return dict(state)


def load_exactly(module: nn.Module, state: Mapping[str, Tensor], source: str | Path, assign: bool = False) -> None:
    """Load every key, and no other, with equal shapes; `assign` replaces the tensors, e.g. those on the meta device.

    Raises:
        UserError: Keys or shapes differ; the message names the first ones.
    """
    try:
        module.load_state_dict(dict(state), strict=True, assign=assign)
    except RuntimeError as error:
        # torch gives each mismatch a line of its own; the first is enough.
        reason = " ".join(str(error).split("\n\t")[1].split())[:200]
        raise UserError(
            f"{source} does not fit {type(module).__name__} ({reason}); give the file of that very network"
        ) from error
