"""faceanon: reversible face anonymization. Importing this module imports neither torch nor lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Pipeline", "__version__"]

if TYPE_CHECKING:
    from faceanon.pipeline.photo import Pipeline


def __dir__() -> list[str]:
    """Names for help and completion, those that are loaded when they are asked for among them."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name == "Pipeline":
        from faceanon.pipeline.photo import Pipeline

        return Pipeline
    raise AttributeError(f"module 'faceanon' has no attribute {name!r}")
