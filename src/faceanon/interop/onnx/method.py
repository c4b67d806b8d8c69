"""A method that was exported to ONNX, on numpy and onnxruntime alone: no torch is imported here.

`faceanon export --onnx` writes the folder; `interop/onnx/export.py` is the other side.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.key import Secret

CARD = "onnx.json"
VERSION = 1
KeyKind = Literal["normal", "bytes", "upper"]
Direction = Literal["anonymize", "recover"]
Faces = NDArray[np.float32]
MOST_NUMBERS = 1 << 20  # in a key; a card comes from outside, and must not be able to exhaust the machine
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class KeyRecipe:
    """How a password's key is drawn from its stream, so that torch and ONNX open each other's files.

    Args:
        kind: `normal` numbers, `bytes` spread over [-1, 1], or `upper`: U[0.5, 1).
        label: Of the stream.
        shape: Of one key.
    """

    kind: KeyKind
    label: str
    shape: tuple[int, ...]

    def draw(self, secret: Secret) -> Faces:
        """The key, `(1, *shape)` float32."""
        if self.kind == "normal":
            key = secret.normal(self.label, self.shape)
        elif self.kind == "upper":
            key = (secret.uniform(self.label, self.shape) + np.float32(1)) / np.float32(2)
        else:
            data = np.frombuffer(secret.stream(self.label, int(np.prod(self.shape))), dtype=np.uint8)
            key = data.reshape(self.shape).astype(np.float32) / np.float32(127.5) - np.float32(1)
        return key[None]


@dataclass(frozen=True)
class OnnxCard:
    """What lies beside the graphs; nothing in it is secret.

    Args:
        method: Import path of the backbone's class.
        model: Name of the model that was exported.
        weights: SHA-256 of its weights: what manifests name and recovery demands.
        bundle: Name and fingerprint of what it stands on.
        image_size: Side S of its faces.
        framing: Where they lie, against FFHQ's square.
        key: How its key is drawn.
        graphs: File and SHA-256 by direction; no `recover` where the method cannot.
        precision: `float32` or `int8`.
        opset: Of the graphs.
        figures: Largest error against torch and, for int8, PSNR against float32, by name.
        faceanon: Version that wrote it.
        version: Of this card.
    """

    method: str
    model: str
    weights: str
    bundle: dict[str, str]
    image_size: int
    framing: dict[str, float]
    key: KeyRecipe
    graphs: dict[str, dict[str, str]]
    precision: str
    opset: int
    figures: dict[str, float] = field(default_factory=dict)
    faceanon: str = ""
    version: int = VERSION

    def to_json(self) -> str:
        """The card as indented JSON that ends in a line feed; `read` reads it back."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The card in `folder`.

        Raises:
            UserError: If it is missing, damaged, or of another version.
        """
        path = folder / CARD
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["version"] != VERSION:
                raise ValueError("another version")
            key = values.pop("key")
            recipe = KeyRecipe(key["kind"], str(key["label"]), tuple(map(int, key["shape"])))
            card = cls(**values, key=recipe)
            if not _sensible(card):
                raise ValueError("unknown contents")
            return card
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}; give a folder of faceanon export --onnx") from error
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise UserError(f"{path} is damaged or of another version; export the model again") from error


class OnnxMethod:
    """Encode, transform and decode as one call of onnxruntime a direction.

    Args:
        card: What the graphs are.
        graphs: Content by direction.
        threads: Of onnxruntime in one call; its own choice when None.
        device: Where it computes: `cpu`, `cuda`, `cuda:1`, ...

    Raises:
        UserError: If onnxruntime is missing, does not read a graph, or does not compute there.
    """

    def __init__(
        self, card: OnnxCard, graphs: Mapping[str, bytes], threads: int | None = None, device: str = "cpu"
    ) -> None:
        self.card = card
        self._sessions = {name: open_graph(graph, name, threads, device) for name, graph in graphs.items()}

    @classmethod
    def load(cls, folder: str | Path, threads: int | None = None, device: str = "cpu") -> Self:
        """What `faceanon export --onnx` wrote into `folder`.

        Raises:
            UserError: If something is missing, damaged, or not the file its card describes, or onnxruntime does not
                compute on the device.
        """
        folder = Path(folder)
        card = OnnxCard.read(folder)
        graphs: dict[str, bytes] = {}
        for name, entry in card.graphs.items():
            path = folder / entry["file"]
            try:
                graphs[name] = path.read_bytes()  # once: what is hashed is what runs
            except FileNotFoundError as error:
                raise UserError(f"{path} is missing; export the model again") from error
            except OSError as error:
                raise UserError(f"cannot read {path}: {error.strerror}") from error
            if hashlib.sha256(graphs[name]).hexdigest() != entry["sha256"]:
                raise UserError(f"{path} is not the file its card describes (sha256 differs); export it again")
        return cls(card, graphs, threads, device)

    @property
    def reversible(self) -> bool:
        """Whether the export has a graph that brings faces back."""
        return "recover" in self._sessions

    def key(self, secret: Secret, batch: int = 1) -> Faces:
        """The key of a password, `(batch, *shape)`: one key repeated."""
        return np.repeat(self.card.key.draw(secret), batch, 0)

    def anonymize(self, image: Faces, key: Faces) -> Faces:
        """Replace the person in `(B, 3, S, S)` in [-1, 1] under keys `(B, *shape)`; not clamped."""
        return self._run("anonymize", image, key)

    def recover(self, image: Faces, key: Faces) -> Faces:
        """Bring the person back; as `anonymize`.

        Raises:
            UserError: If the method cannot.
        """
        if not self.reversible:
            raise UserError(f"{self.card.method.rpartition('.')[2]} cannot recover faces; nothing brings them back")
        return self._run("recover", image, key)

    def _run(self, direction: Direction, image: Faces, key: Faces) -> Faces:
        session = self._sessions[direction]
        given = {"image": np.ascontiguousarray(image, np.float32), "key": np.ascontiguousarray(key, np.float32)}
        # A method without a key has no such input.
        wanted = {item.name for item in session.get_inputs()}
        inputs = {}
        for name, value in given.items():
            if name in wanted:
                inputs[name] = value
        result: Faces = session.run(None, inputs)[0]
        return result


def _sensible(card: OnnxCard) -> bool:
    """Whether a card from outside says what `faceanon export` could have written, and names no file elsewhere."""
    files = []
    for entry in card.graphs.values():
        files.append((entry["file"], entry["sha256"]))
    return (
        card.key.kind in get_args(KeyKind)
        and all(side >= 1 for side in card.key.shape)
        and math.prod(card.key.shape) <= MOST_NUMBERS
        and "anonymize" in card.graphs
        and card.graphs.keys() <= set(get_args(Direction))
        and all(file == Path(file).name and file.isprintable() and _HASH.fullmatch(digest) for file, digest in files)
        and all(len(text) <= 200 and text.isprintable() for text in (card.method, card.model, card.precision))
        and _HASH.fullmatch(card.weights) is not None
        and isinstance(card.image_size, int)
        and 8 <= card.image_size <= 4096
        and card.framing.keys() <= {"scale", "right", "down"}
        and all(map(math.isfinite, card.framing.values()))
    )


def open_graph(graph: bytes, name: str, threads: int | None = None, device: str = "cpu") -> Any:  # noqa: ANN401 - onnxruntime has no types
    """An `onnxruntime.InferenceSession`.

    Args:
        graph: Content of the file.
        name: What to call it in messages.
        threads: Of onnxruntime in one call; its own choice when None.
        device: Where it computes: `cpu`, `cuda`, `cuda:1`, ...

    Raises:
        UserError: If onnxruntime is missing, does not read it or compute on the device, or it wants tensors of other
            files.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError("ONNX models need the package onnxruntime; run: pip install onnxruntime") from error
    # Microsoft's builds for Windows would report their use.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    # Its errors are raised too, and become one line.
    options.log_severity_level = 4
    # A graph may name other files to take tensors from, and could so carry them into pictures: let it find none.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    if threads is not None:
        options.intra_op_num_threads = threads
    providers = _providers(device, onnxruntime.get_available_providers())
    try:
        session = onnxruntime.InferenceSession(graph, options, providers)
    except Exception as error:  # onnxruntime's own have no common base class
        reason = str(error).split("\n")[0]
        raise UserError(
            f"onnxruntime does not read the graph {name} ({reason:.200}); export the model again"
        ) from error
    # It falls back with a mere log line.
    if (first := providers[0][0]) not in (got := session.get_providers()):
        raise _no_device(device, f"{first} does not start, only {', '.join(got)}")
    return session


def _providers(device: str, available: Sequence[str]) -> list[tuple[str, dict[str, int]]]:
    """What onnxruntime is to compute with, and with what beside it where a step has no kernel there."""
    kind, _, number = device.partition(":")
    known = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
    if kind not in known or not (number or "0").isdecimal():
        raise UserError(f"an ONNX model computes on cpu, cuda or cuda:N, not on {device!r:.40}")
    if known[kind] not in available:
        raise _no_device(device, f"it has {', '.join(available)}")
    beside: list[tuple[str, dict[str, int]]] = [(known["cpu"], {})]
    if kind == "cpu":
        return beside
    return [(known[kind], {"device_id": int(number or "0")}), *beside]


def _no_device(device: str, reason: str) -> UserError:
    return UserError(
        f"onnxruntime does not compute on {device} here ({reason}); take --device cpu, or install onnxruntime-gpu and "
        "the CUDA libraries it names"
    )
