"""Scripts outside the package as modules."""

import contextlib
import importlib.util
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def script(path):
    """The script `path`, from the repository's root, imported for as long as the context lasts."""
    file = REPO / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[file.stem]
