"""List the methods: those that ship with faceanon, and those that installed packages announce.

A package announces a backbone under the entry point group `faceanon.backbones`; see docs/how-to/own-backbone.md.
"""

from __future__ import annotations

import argparse
from importlib.metadata import entry_points

import yaml

from faceanon.paths import configs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(args: argparse.Namespace) -> int:
    """Print one line a preset: its YAML, its class, the first comment of the YAML."""
    for path in sorted((configs() / "backbone").glob("*.yaml")):
        text = path.read_text()
        comment = text.splitlines()[0].lstrip("# ") if text.startswith("#") else ""
        print(f"{path.stem:<16}{yaml.safe_load(text)['class_path']:<36}{comment}")
    for entry in sorted(entry_points(group="faceanon.backbones"), key=lambda item: item.name):
        print(
            f"{entry.name:<16}{entry.value.replace(':', '.'):<36}from package {entry.dist.name if entry.dist else '?'}"
        )
    return 0
