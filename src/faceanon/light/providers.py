"""What onnxruntime computes with: its providers, by the names that people type."""

from __future__ import annotations

from faceanon.errors import UserError

CPU = "CPUExecutionProvider"
PROVIDERS = {
    "cpu": CPU,
    "cuda": "CUDAExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
}
# Builds of onnxruntime: each is installed in place of the package `onnxruntime`, and imported by its name.
BUILDS = {
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
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
