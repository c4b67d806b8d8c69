"""What onnxruntime computes with: its providers, by the names that people type."""

from __future__ import annotations

import json

from faceanon.errors import UserError
from faceanon.light.processor import has_bfloat16

CPU = "CPUExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
PROVIDERS = {
    "cpu": CPU,
    "cuda": "CUDAExecutionProvider",
    "openvino": OPENVINO,
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
}
# Builds of onnxruntime: each is installed in place of the package `onnxruntime`, and imported by its name.
BUILDS = {
    "CUDAExecutionProvider": "onnxruntime-gpu",
    OPENVINO: "onnxruntime-openvino",
    "DmlExecutionProvider": "onnxruntime-directml",
}


def provider_named(name: str) -> str:
    """A provider's name in onnxruntime.

    Args:
        name: A key of `PROVIDERS`, or the name that onnxruntime has for it.

    Raises:
        UserError: If the installed onnxruntime does not have it.
    """
    import onnxruntime

    wanted = PROVIDERS.get(name, name)
    available = onnxruntime.get_available_providers()
    if wanted in available:
        return wanted
    advice = "; onnxruntime on macOS has it" if wanted == PROVIDERS["coreml"] else ""
    if wanted in BUILDS:
        advice = f"; pip uninstall onnxruntime, then pip install {BUILDS[wanted]}"
    raise UserError(f"the installed onnxruntime has no provider {name!r:.40}, only {', '.join(available)}{advice}")


def quick_provider() -> str | None:
    """What computes many photos soonest: OpenVINO, where it is installed and may compute in bfloat16; None: the CPU."""
    import onnxruntime

    return OPENVINO if OPENVINO in onnxruntime.get_available_providers() and has_bfloat16() else None


def provider_settings(provider: str, rounded: bool, threads: int) -> dict[str, str]:
    """What a provider is told when a graph is opened.

    Args:
        provider: By onnxruntime's name.
        rounded: Whether the graph may compute in bfloat16. OpenVINO then does, where the processor has instructions for
            it: matrix units take a sixth of the time that float32 takes. onnxruntime's own kernels have float32 alone.
        threads: Of one call.
    """
    if provider != OPENVINO:
        return {}
    hints = {
        "INFERENCE_PRECISION_HINT": "bf16" if rounded and has_bfloat16() else "f32",
        "INFERENCE_NUM_THREADS": str(threads),
    }
    return {"load_config": json.dumps({"CPU": hints})}
