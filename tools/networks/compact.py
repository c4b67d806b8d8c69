"""Store shipped weights in fewer bytes: `python tools/networks/compact.py FOLDER PRECISION [ROLE ...]`.

The precision is int4, int6, int8 or half, and all of it is stored in Huffman code (`packed`). With `same` only that is
done, which changes no number. The card or bundle.yaml beside them gets the new sha256: it is another model or bundle
then, so that photos of the one before do not come back, and models trained on the bundle have to be trained again.

`flow` is for Persona, whose put-on faces are redrawn from mixtures of which 70 % and more are face. There the blocks of
8 x 8 cells have little left to do: their convolutions are stored in 13 steps a channel, all other large weights in
int4. On 119 versions of pictures that were kept, the error of directions at times of .7 and more was then 1.1486
instead of 1.1408, and 1.1480 with int4 throughout, which takes 1.3 MB more.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from faceanon.errors import UserError
from faceanon.files import load_tensors, read_yaml, save_tensors, sha256, write_atomic
from faceanon.packed import PACKED, packed
from faceanon.quantised import GROUP, INT8_LEAST

CARDS = ("model.yaml", "bundle.yaml")
PRECISIONS = ("int4", "int6", "int8", "half", "same", "flow")
COARSE_STEPS = 6  # of `flow`, on each side of zero
INT6_STEPS = 31  # on each side of zero; they lie in int8, and the Huffman code makes them short


def compact(folder: Path, precision: str, roles: list[str]) -> list[str]:
    """Store a model's weights, or a bundle's networks, anew; returns a line for each file.

    Args:
        folder: Of the model or bundle.
        precision: `int4` (large weights that do not fit it in int8), `int6`, `int8`, `half`, `same` or `flow`.
        roles: Networks of a bundle; none of a model.

    Raises:
        UserError: There is no card, no such role, or a file that is not the one that the card names.
    """
    card = None
    for name in CARDS:
        if (folder / name).is_file():
            card = folder / name
            break
    if card is None or precision not in PRECISIONS:
        raise UserError(
            f"{folder}, {precision}: give a folder with {' or '.join(CARDS)}, then one of {', '.join(PRECISIONS)}"
        )
    if card.name == "model.yaml":
        entries: dict[str, Any] = {"weights.safetensors": read_yaml(card)}
    else:
        networks = read_yaml(card)["networks"]
        unknown = []
        for role in roles:
            if role not in networks:
                unknown.append(role)
        if unknown or not roles:
            raise UserError(f"{card}: no role {unknown or 'given'}; choose from {', '.join(networks)}")
        entries = {}
        for role in roles:
            entries[networks[role]["file"]] = networks[role]
    lines = []
    for name, entry in entries.items():
        path = folder / name
        before = path.stat().st_size
        digest = str(entry["sha256"])
        tensors = load_tensors(path, digest)
        if precision == "same":
            fresh = pack_file(path)
        else:
            fresh = _save(path, tensors, precision)
        text = card.read_text(encoding="utf-8")
        write_atomic(card, text.replace(digest, fresh).encode())
        lines.append(f"{path}: {before} -> {path.stat().st_size} bytes, sha256 {fresh}")
    return lines


def pack_file(path: Path) -> str:
    """Store a safetensors file in Huffman code as it lies; returns its sha256. One in Huffman code stays as it is."""
    with safe_open(path, "np") as file:
        names = list(file.keys())
        metadata = file.metadata()
    if names != [PACKED]:
        write_atomic(path, packed(path.read_bytes(), metadata))
    return sha256(path)


def _save(path: Path, tensors: dict[str, Tensor], precision: str) -> str:
    int4 = []
    steps = {}
    for name, tensor in tensors.items():
        if precision == "flow" and fits_int4(tensor) and ".coarse." in name and ".conv" in name:
            steps[name] = COARSE_STEPS
        elif precision in ("int4", "flow") and fits_int4(tensor):
            int4.append(name)
        elif precision == "int6" and _large(tensor):
            steps[name] = INT6_STEPS
    return save_tensors(path, tensors, half=True, int8=precision != "half", int4=int4, steps=steps, huffman=True)


def fits_int4(tensor: Tensor) -> bool:
    """Whether a weight is large enough to pay in int4, and of a shape that it takes."""
    return _large(tensor) and len(tensor) % GROUP == 0


def _large(tensor: Tensor) -> bool:
    return tensor.ndim > 1 and tensor.is_floating_point() and tensor.numel() >= INT8_LEAST


if __name__ == "__main__":
    for line in compact(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]):
        print(line)
