"""Where the shipped configs and weights lie, in a checkout and in an installed wheel; and which files are films."""

from __future__ import annotations

from pathlib import Path

from faceanon.errors import UserError

FILMS = frozenset({".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ts", ".webm", ".wmv"})


def data_root() -> Path:
    """Folder that holds `configs/` and `checkpoints/`.

    It is the repository in a checkout or an editable install, and `faceanon/_data` in an installed wheel.

    Raises:
        UserError: Neither is there.
    """
    package = Path(__file__).resolve().parent
    checkout = package.parents[1]
    if (checkout / "pyproject.toml").is_file() and (checkout / "configs").is_dir():
        return checkout
    installed = package / "_data"
    if installed.is_dir():
        return installed
    raise UserError(f"the shipped configs and weights are missing beside {package}: install faceanon again")


def configs() -> Path:
    """Folder of the shipped YAML files."""
    return data_root() / "configs"


def checkpoints() -> Path:
    """Folder of the shipped weights."""
    return data_root() / "checkpoints"


def is_video(path: str | Path) -> bool:
    """Whether the file is a video, by its ending."""
    # A folder may have such a name too.
    return Path(path).suffix.lower() in FILMS and not Path(path).is_dir()
