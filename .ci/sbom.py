"""Write what is installed as a CycloneDX 1.6 bill of materials: python .ci/sbom.py [FILE]. Needs no network.

Names, versions, licences and dependencies are those of the installed packages' own metadata. `python:record:sha256` is
the hash of a package's RECORD, which lists the hash of each of its files. The same environment gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

PROJECT = "faceanon"


def installed() -> dict[str, Distribution]:
    """Installed packages by canonical name."""
    found = {canonicalize_name(item.metadata["Name"]): item for item in distributions() if item.metadata["Name"]}
    return dict(sorted(found.items()))


def licence(package: Distribution) -> str:
    """What a package says of its licence: an SPDX expression, else its classifiers, else its own words, or none."""
    about = package.metadata
    named = [
        text.split("::")[-1].strip() for text in about.get_all("Classifier") or [] if text.startswith("License ::")
    ]
    words = (about.get("License") or "").strip().split("\n")[0]
    return about.get("License-Expression") or " AND ".join(named) or words


def needs(package: Distribution) -> list[Requirement]:
    """What a package requires here, without its extras; this project with all of them, as `make install` does."""
    extras = [""]
    if canonicalize_name(package.metadata["Name"]) == PROJECT:
        extras += package.metadata.get_all("Provides-Extra") or []
    found = []
    for text in package.requires or []:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue  # of an age before the standard
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
            found.append(wanted)
    return found


def purl(name: str, version: str) -> str:
    """The package's URL, as CycloneDX refers to it."""
    return f"pkg:pypi/{name}@{version}"


def component(name: str, package: Distribution) -> dict[str, Any]:
    """A package as CycloneDX describes it."""
    reference = purl(name, package.version)
    kind = "application" if name == PROJECT else "library"
    found: dict[str, Any] = {"type": kind, "bom-ref": reference, "name": name, "version": package.version}
    expression, terms = package.metadata.get("License-Expression"), licence(package)
    if expression:
        found["licenses"] = [{"expression": expression}]
    elif terms:
        found["licenses"] = [{"license": {"name": terms[:200]}}]
    found["purl"] = reference
    if record := package.read_text("RECORD"):
        digest = hashlib.sha256(record.encode()).hexdigest()
        found["properties"] = [{"name": "python:record:sha256", "value": digest}]
    return found


def bill() -> dict[str, Any]:
    """The bill of materials of this environment."""
    packages = installed()
    refs = {name: purl(name, package.version) for name, package in packages.items()}
    components = {name: component(name, package) for name, package in packages.items()}
    wanted = {name: {canonicalize_name(need.name) for need in needs(item)} for name, item in packages.items()}
    graph = [
        {"ref": refs[name], "dependsOn": sorted(refs[n] for n in found & set(refs))} for name, found in wanted.items()
    ]
    own = components.pop(PROJECT, None)
    content: dict[str, Any] = {"metadata": {"component": own}} if own else {}
    content |= {"components": list(components.values()), "dependencies": graph}
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return head | content


def main(words: list[str]) -> int:
    """Write the bill into a file, or print it."""
    text = json.dumps(bill(), indent=1) + "\n"
    if not words:
        sys.stdout.write(text)
        return 0
    path = Path(words[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
