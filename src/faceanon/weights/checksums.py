"""Write the sha256 of every file of a bundle into its bundle.yaml: `python -m faceanon.weights.checksums FOLDER`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from faceanon.files import sha256, write_atomic

_FILE = re.compile(r"^(?P<indent> +)(?P<key>file|latent_avg): (?P<name>\S+)$")


def write_checksums(folder: Path) -> list[str]:
    """Put a `sha256` (or `latent_avg_sha256`) line after each file's line; returns the names of missing files."""
    path = folder / "bundle.yaml"
    missing = []
    lines = []
    # Line by line, since a YAML writer would lose the file's comments.
    for line in path.read_text().splitlines():
        # Hashes of an earlier call; fresh ones follow below.
        if re.match(r"^ +(latent_avg_)?sha256: ", line):
            continue
        lines.append(line)
        match = _FILE.match(line)
        if match is None:
            continue
        if (folder / match["name"]).is_file():
            key = "latent_avg_sha256"
            if match["key"] == "file":
                key = "sha256"
            lines.append(f"{match['indent']}{key}: {sha256(folder / match['name'])}")
        else:
            missing.append(match["name"])
    write_atomic(path, ("\n".join(lines) + "\n").encode())
    return missing


if __name__ == "__main__":
    for name in write_checksums(Path(sys.argv[1])):
        print(f"not there yet: {name}")
