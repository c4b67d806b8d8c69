"""ONNX files of InsightFace's packs: opened from this disk, never downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from faceanon.errors import UserError

PACKS = (
    "InsightFace's packs (buffalo_l, buffalo_m, buffalo_s) are for non-commercial research only; the authors publish "
    "them at https://github.com/deepinsight/insightface/releases/tag/v0.7"
)


def open_session(path: str | Path, role: str, examples: str, device: torch.device | str = "cuda") -> tuple[Path, Any]:
    """The file's path and an `onnxruntime.InferenceSession` on it.

    Args:
        path: The file; `~` is the home folder.
        role: What it is wanted as, e.g. "detector".
        examples: Files that fit.
        device: `cuda` is a GPU where onnxruntime can use one, else the CPU.

    Raises:
        UserError: The file is missing or no ONNX file, or a package is.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f"no file {path} for the {role}: unpack {examples} there; {PACKS}")
    try:
        import insightface  # noqa: F401 - it turns onnxruntime's telemetry off, so it comes first
        import onnxruntime
    except ImportError as error:
        raise UserError(f"ONNX networks need the package {error.name}; run: pip install 'insightface>=2.1'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # The packs' files declare fixed shapes and then give others: warnings at each call.
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, _providers(torch.device(device), onnxruntime.get_available_providers())
        )
    except Exception as error:  # onnxruntime's own have no common base class
        reason = str(error).split("\n")[0]
        raise UserError(f"{path} is not a readable ONNX file ({reason}); unpack {examples} again") from error
    return path, session


def _providers(device: torch.device, available: Sequence[str]) -> list[str | tuple[str, dict[str, int]]]:
    """The GPU that is asked for, where onnxruntime has one, and the CPU."""
    gpu: tuple[str, dict[str, int]] = ("CUDAExecutionProvider", {"device_id": device.index or 0})
    if device.type == "cuda" and gpu[0] in available:
        return [gpu, "CPUExecutionProvider"]
    return ["CPUExecutionProvider"]
