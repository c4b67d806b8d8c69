"""A backbone as two ONNX graphs, picture and key to picture, checked against torch before anything is written."""

from __future__ import annotations

import hashlib
import io
import logging
import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from faceanon import __version__
from faceanon.backbones.base import Backbone
from faceanon.backbones.in_frame import InMeshFrame
from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.interop.onnx.backbone import OnnxBackbone
from faceanon.interop.onnx.method import CARD, Direction, Faces, KeyKind, KeyRecipe, OnnxCard, OnnxMethod
from faceanon.key import Secret
from faceanon.metrics.quality import psnr
from faceanon.metrics.reconstruction import sample_faces

OPSET = 18  # the lowest that torch's exporter writes without converting, so the one most runtimes read
# One face and several: a batch that the exporter took for a constant fails at one of them.
BATCHES = (1, 3)
TOLERANCE = 1 / 255  # half a step of an 8-bit picture, on the scale of [-1, 1]
MOST_FACES = 1024
QUANTIZED_OPS = ("MatMul", "Gemm")  # with Conv the files halve, and onnxruntime takes 3.6 times as long on a CPU


@dataclass(frozen=True)
class Exported:
    """Graphs that are not on the disk yet.

    Args:
        card: What goes beside them.
        graphs: Content by direction.
    """

    card: OnnxCard
    graphs: dict[str, bytes]


class _Way(nn.Module):
    """One direction of a backbone as a module of its own."""

    def __init__(self, backbone: Backbone, direction: Direction) -> None:
        super().__init__()
        self.backbone = backbone
        self.direction = direction

    def forward(self, image: Tensor, key: Tensor) -> Tensor:
        if self.direction == "anonymize":
            method = self.backbone.anonymize
        else:
            method = self.backbone.recover
        return method(image, key)


def export_onnx(backbone: Backbone, weights: str, name: str) -> Exported:
    """Export and check a backbone.

    Args:
        backbone: In eval mode, on the CPU.
        weights: SHA-256 of its weights.
        name: Of the model.

    Raises:
        UserError: If a package is missing, the method cannot be exported, or the graphs draw something else than torch.
    """
    if backbone.sealed:
        raise UserError(
            f"{name} ({type(backbone).__name__}) has no ONNX export: its way back is a sealed code, and neither that "
            "nor how donors are put on is a network; use it in Python "
            "(faceanon.Pipeline), or export a model without sealed codes"
        )
    if isinstance(backbone, InMeshFrame):
        raise UserError(
            f"{name} has no ONNX export: it lays faces into the frame of their mesh by a spline, which is no network; "
            "use it in Python (faceanon.Pipeline)"
        )
    if isinstance(backbone, OnnxBackbone):
        raise UserError(f"{name} is an ONNX export already; give the model that it was made from")
    ways: tuple[Direction, ...]
    if backbone.reversible:
        ways = ("anonymize", "recover")
    else:
        ways = ("anonymize",)
    recipe = key_recipe(backbone)
    size = backbone.image_size
    card = OnnxCard(
        method=backbone.method,
        model=name,
        weights=weights,
        bundle={"name": backbone.bundle.name, "fingerprint": backbone.bundle.fingerprint},
        image_size=size,
        framing=backbone.framing,
        key=recipe,
        graphs={},
        precision="float32",
        opset=OPSET,
        faceanon=__version__,
    )
    graphs: dict[str, bytes] = {}
    for way in ways:
        graphs[way] = _graph(backbone, way, size)
    errors = _errors(backbone, OnnxMethod(card, graphs))
    for name_of_way, error in errors.items():
        # A difference of NaN is as wrong as a large one, and no comparison with NaN holds.
        if not error <= TOLERANCE:
            raise UserError(
                f"onnxruntime and torch differ by {error:.2g} in {name_of_way}, more than {TOLERANCE:.2g}; "
                "nothing was written"
            )
    figures = {}
    for name_of_way, error in errors.items():
        figures[f"max_abs_error/{name_of_way}"] = error
    return Exported(replace(card, graphs=_entries(graphs), figures=figures), graphs)


def key_recipe(backbone: Backbone) -> KeyRecipe:
    """How `Backbone.key_from_secret` draws, found by trying it out.

    Raises:
        UserError: If no recipe gives its keys: the graphs could not be paired with passwords.
    """
    secret = Secret.random(0)
    wanted = backbone.key_from_secret(secret, 1).numpy()
    for kind in get_args(KeyKind):
        recipe = KeyRecipe(kind, backbone.key_label, tuple(backbone.key_shape))
        if np.array_equal(recipe.draw(secret), wanted):
            return recipe
    raise UserError(f"{type(backbone).__name__} draws its keys in a way of its own, which an ONNX folder cannot hold")


def quantized(exported: Exported) -> Exported:
    """The same with weights of matrix products in int8; the card says what that costs in the pictures.

    Raises:
        UserError: If a package is missing.
    """
    graphs = {}
    for way, graph in exported.graphs.items():
        graphs[way] = _quantize(graph)
    exact = OnnxMethod(exported.card, exported.graphs)
    rough = OnnxMethod(exported.card, graphs)
    faces = _faces(exported.card.image_size, 8)
    key = exact.key(Secret.random(1), 8)
    hidden = _picture(exact.anonymize(faces, key))
    figures = exported.card.figures | {"psnr_int8/anonymize": _psnr(_picture(rough.anonymize(faces, key)), hidden)}
    if exact.reversible:
        # Both start from the same hidden picture, so that the figure is of recovery alone.
        figures["psnr_int8/recover"] = _psnr(_picture(rough.recover(hidden, key)), _picture(exact.recover(hidden, key)))
    return Exported(replace(exported.card, graphs=_entries(graphs), precision="int8", figures=figures), graphs)


def write_onnx(exported: Exported, folder: Path, overwrite: bool) -> list[Path]:
    """Write graphs, then the card that makes the folder usable; returns the files.

    Raises:
        UserError: If a file exists and `overwrite` is off, or the folder cannot be written.
    """
    check_free(folder, overwrite)
    names = []
    for entry in exported.card.graphs.values():
        names.append(entry["file"])
    try:
        # A kill must not leave old card and new graphs.
        (folder / CARD).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot replace {folder / CARD}: {error.strerror}; choose another folder") from error
    for way, entry in exported.card.graphs.items():
        write_atomic(folder / entry["file"], exported.graphs[way])
    write_atomic(folder / CARD, exported.card.to_json().encode())
    return [folder / name for name in [*names, CARD]]


def check_free(folder: Path, overwrite: bool) -> None:
    """Refuse to replace files.

    Raises:
        UserError: If one exists and `overwrite` is off, or the folder is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder to write to")
    for name in (CARD, *map(_file, get_args(Direction))):
        if not overwrite and (folder / name).exists():
            raise UserError(f"{folder / name} exists; give --overwrite to replace it")


def _graph(backbone: Backbone, way: Direction, size: int) -> bytes:
    """One direction, with a batch of any size."""
    module = _Way(backbone, way).eval()
    # Two rows: torch.export takes a batch of one for a constant.
    image = torch.zeros(2, 3, size, size)
    key = backbone.key_from_secret(Secret.random(0), 2)
    batch = torch.export.Dim("batch", min=1, max=MOST_FACES)
    # What the exporter says of its own steps is nothing that a user could change.
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    quiet = io.StringIO()
    try:
        with torch.no_grad(), warnings.catch_warnings(), redirect_stdout(quiet), redirect_stderr(quiet):
            warnings.simplefilter("ignore")
            # Bundles load their networks at first use, which must not be traced.
            module(image, key)
            program = torch.export.export(module, (image, key), dynamic_shapes=({0: batch}, {0: batch}), strict=False)
            made = torch.onnx.export(
                program, dynamo=True, opset_version=OPSET, input_names=["image", "key"], output_names=["face"]
            )
    except ImportError as error:
        raise UserError(f"the export needs the package {error.name}; run: pip install onnx onnxscript") from error
    except UserError:
        raise
    except Exception as error:  # tracing raises whatever the method stumbles over
        kind = type(backbone).__name__
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"{kind} cannot be exported to ONNX: torch cannot trace its {way} ({reason:.200})") from error
    assert made is not None
    model = made.model_proto
    random_nodes = set()
    for node in model.graph.node:
        if node.op_type.startswith(("Random", "Bernoulli")):
            random_nodes.add(node.op_type)
    # Such a graph could neither be compared with torch nor bring anybody back.
    if drawn := sorted(random_nodes):
        raise UserError(f"{type(backbone).__name__} draws random numbers in {way} ({', '.join(drawn)}): not exported")
    data: bytes = model.SerializeToString()
    return data


@torch.no_grad()
def _errors(backbone: Backbone, method: OnnxMethod) -> dict[str, float]:
    """Largest difference between onnxruntime and torch by direction, over the batches that are tried."""
    errors: dict[str, float] = {}
    for batch in BATCHES:
        faces = _faces(backbone.image_size, batch)
        secret = Secret.random(batch)
        keys = backbone.key_from_secret(secret, batch)
        drawn = backbone.anonymize(torch.from_numpy(faces), keys).numpy()
        pairs = [("anonymize", drawn, method.anonymize(faces, method.key(secret, batch)))]
        if method.reversible:
            shown = _picture(drawn)
            recovered = backbone.recover(torch.from_numpy(shown), keys).numpy()
            pairs.append(("recover", recovered, method.recover(shown, method.key(secret, batch))))
        for way, ours, theirs in pairs:
            error = float(np.abs(ours - theirs).max())
            # `max` would let a NaN pass: it compares as not larger.
            if np.isfinite(error):
                errors[way] = max(errors.get(way, 0.0), error)
            else:
                errors[way] = float("inf")
    return errors


def _faces(size: int, count: int) -> Faces:
    faces: Faces = sample_faces(None, size)[:count].numpy()
    # numpy's function repeats the faces where too few ship; the method of arrays would fill up with zeros.
    return np.resize(faces, (count, *faces.shape[1:]))


def _picture(faces: Faces) -> Faces:
    """As an 8-bit file would hold them."""
    return (np.round((faces.clip(-1, 1) + 1) * 127.5) / 127.5 - 1).astype(np.float32)


def _psnr(one: Faces, other: Faces) -> float:
    error = float(np.square((one - other) / 2, dtype=np.float64).mean())
    return float(psnr(torch.tensor(error, dtype=torch.float64)))


def _quantize(graph: bytes) -> bytes:
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise UserError(f"--quantize needs the package {error.name}; run: pip install onnx onnxruntime") from error
    root = logging.getLogger()
    level = root.level
    model = onnx.load_model_from_string(graph)
    # Shapes of what is about to change.
    del model.graph.value_info[:]
    _unshare(model.graph)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        # It advises by warnings on the root logger.
        root.setLevel(logging.ERROR)
        try:
            quantize_dynamic(
                model,
                path,
                op_types_to_quantize=list(QUANTIZED_OPS),
                per_channel=True,
                weight_type=QuantType.QInt8,
                # `value_info` was deleted above, so the quantizer may not find a type; all of them are float.
                extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
            )
        finally:
            root.setLevel(level)
        return path.read_bytes()


def _unshare(graph: Any) -> None:  # noqa: ANN401 - onnx's protobuf classes have no types
    """Give every Gemm its own weight: onnxruntime transposes a shared one once for each of its users."""
    stored = {}
    for item in graph.initializer:
        stored[item.name] = item
    seen = set[str]()
    for node in graph.node:
        if node.op_type != "Gemm" or node.input[1] not in stored:
            continue
        name = node.input[1]
        if name in seen:
            own = graph.initializer.add()
            own.CopyFrom(stored[name])
            own.name = node.input[1] = f"{name}/{node.name}"
        seen.add(name)


def _entries(graphs: dict[str, bytes]) -> dict[str, dict[str, str]]:
    entries = {}
    for way, data in graphs.items():
        entries[way] = {"file": _file(way), "sha256": hashlib.sha256(data).hexdigest()}
    return entries


def _file(way: str) -> str:
    return f"{way}.onnx"
