"""Files in public layouts, imported into a bundle."""

import pytest
import torch

from faceanon.weights.importing import import_files
from faceanon.weights.public import read_public


@pytest.fixture
def bring(tmp_path):
    """Save contents as files and import them into one bundle."""
    numbers = iter(range(100))

    def run(*contents, bundle="b", **options):
        paths = []
        for content in contents:
            name, content = content if isinstance(content, tuple) else (f"file{next(numbers)}.pt", content)
            torch.save(content, tmp_path / name)
            paths.append(tmp_path / name)
        return import_files([read_public(path) for path in paths], str(tmp_path / bundle), **options)

    return run
