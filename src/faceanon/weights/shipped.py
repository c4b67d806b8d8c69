"""Networks that ship with the package, read and checked against the hashes of the files that were tested."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import onnxruntime

from faceanon.errors import UserError
from faceanon.files import widened
from faceanon.packed import unpacked
from faceanon.paths import checkpoints

# Light users of this module have no torch.
if TYPE_CHECKING:
    from torch import Tensor, nn

Network = TypeVar("Network", bound="nn.Module")

SHA256 = {
    "cast.safetensors": "b49e078199c2347209f41d62fe0fab48e837b47cb18d615cbce0e5bafac0bc44",
    "covers.safetensors": "2a9cbaa5706bdd4bdc05e27e709165b8489077747f3cd8432a8f5480a2f5f27d",
    "looks.safetensors": "670878c8bc65a35a0f58685c38571c660ecfb45fd23761cee065ec94548b0c4b",
    "mesh.safetensors": "10ad4dbf0b967097a8007fb0ad082c7c66d98d7eea90d5b82e946036d65b392a",
    "yunet.onnx": "104ee26c71d5c270ce79a6b3dced91c91013260d29a6bf18f9296c5b8c4c2b12",
}


def usual_threads() -> int:
    """Threads of a network where nobody says how many: torch's number, or what torch's would be were it imported."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    # The variable may list a number for each level of nested threads; the outermost one counts.
    told = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if told.isdigit() and int(told) > 0:
        return int(told)
    # The cores that this process may use, which in a container are fewer than there are.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shipped_sha256(name: str) -> str:
    """SHA-256 of a shipped network, 64 hex digits; `name` is a key of `SHA256`."""
    return SHA256[name]


def read_shipped(name: str, folder: Path | None = None) -> bytes:
    """Bytes of a shipped network.

    Args:
        name: A key of `SHA256`.
        folder: Where the file lies; the shipped `checkpoints/photo_seers` when None.

    Raises:
        UserError: If the file is missing or is not the one that was tested.
    """
    path = (folder or checkpoints() / "photo_seers") / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): install faceanon again") from error
    if hashlib.sha256(data).hexdigest() != SHA256[name]:
        raise UserError(f"{path} is damaged or another file (sha256 differs): install faceanon again")
    return data


def read_tensors(name: str, folder: Path | None = None) -> dict[str, Tensor]:
    """Float32 tensors of a shipped network by name, whatever they are stored in; errors as `read_shipped`."""
    from safetensors.torch import load

    stored = unpacked(load(read_shipped(name, folder)), load)
    return {key: value.float() for key, value in widened(stored, Path(name)).items()}


def shipped_network(build: Callable[[], Network], name: str, folder: Path | None = None) -> Network:
    """A network with the weights that ship, in eval mode and without gradients.

    Args:
        build: Makes the network; its own weights are replaced.
        name: A key of `SHA256`.
        folder: Where the file lies; the shipped `checkpoints/photo_seers` when None.

    Raises:
        UserError: If the file is missing or is not the one that was tested.
    """
    import torch

    # Without storage of its own, the network draws no random numbers for weights that are replaced at once: a training
    # that opens it after resuming must see the same random numbers as one that never stopped.
    with torch.device("meta"):
        net = build()
    net.load_state_dict(read_tensors(name, folder), assign=True)
    return net.eval().requires_grad_(False)


def open_shipped(name: str, threads: int, folder: Path | None = None) -> onnxruntime.InferenceSession:
    """An `onnxruntime.InferenceSession` on the CPU over a shipped network.

    Args:
        name: A key of `SHA256`.
        threads: Threads of one call.
        folder: Where the file lies; the shipped `checkpoints/photo_seers` when None.

    Raises:
        UserError: If the file is missing or is not the one that was tested.
    """
    data = read_shipped(name, folder)
    # Builds for Windows report their use otherwise.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Waiting threads would spin on cores that the backbone's threads want at the same time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
