"""Photos, folders and videos in and out. Read `pipeline.photo` first: it is what a photo goes through, in order.

`from faceanon.pipeline import Pipeline` works; what is named here is imported when it is asked for, so that a light
module of this package does not bring torch with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["NoFaceError", "Pipeline", "anonymize_file", "recover_file"]

if TYPE_CHECKING:
    from faceanon.pipeline.file import anonymize_file, recover_file
    from faceanon.pipeline.photo import NoFaceError, Pipeline


def __getattr__(name: str) -> object:
    if name in ("anonymize_file", "recover_file"):
        from faceanon.pipeline import file

        return getattr(file, name)
    if name in ("NoFaceError", "Pipeline"):
        from faceanon.pipeline import photo

        return getattr(photo, name)
    raise AttributeError(f"module 'faceanon.pipeline' has no attribute {name!r}")
