"""Audit the installed packages without a network: python .ci/audit.py. One line for each fault, exit code 1 if any.

- every installed package is pinned in constraints.txt, at the installed version, and every pin is installed;
- what packages require of each other is there (`pip check`);
- every one of them installs on the oldest Python that pyproject.toml names, not only on this one;
- no version of known_bad.txt is installed, pinned, or allowed by pyproject.toml;
- every licence is on the list below.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from sbom import PROJECT, installed, licence

ROOT = Path(__file__).resolve().parents[1]
INSTALLERS = {"pip", "setuptools", "wheel", PROJECT}
ELSEWHERE = {"colorama", "tzdata"}  # of other systems or Pythons, where pip asks for them

LICENCES = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC",
    "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib",
    "3-Clause BSD License", "Apache License 2.0", "Apache Software License", "BSD", "BSD License",
    "Boost Software License", "DFSG approved", "ISC License (ISCL)", "MIT License",
    "Mozilla Public License 2.0 (MPL 2.0)", "Python Software Foundation License",
}  # fmt: skip
PROPRIETARY = {"LicenseRef-NVIDIA-Proprietary", "NVIDIA Proprietary Software"}  # CUDA's libraries, which torch brings
# Packages whose metadata name no licence, and what stands in their archive or on their page.
SILENT = {"insightface": "MIT", "pyrage": "MIT", "cuda-toolkit": "NVIDIA Proprietary Software"}


@dataclass(frozen=True)
class Bad:
    """Versions that must not be used.

    Args:
        name: Canonical name of the package.
        versions: The bad ones.
        identifier: Of the advisory.
        reason: What is wrong with them.
    """

    name: str
    versions: SpecifierSet
    identifier: str
    reason: str

    def holds(self, version: str | Version) -> bool:
        """Whether a version is bad."""
        return self.versions.contains(version, prereleases=True)


def known_bad(text: str) -> list[Bad]:
    """The entries of known_bad.txt."""
    rows = [line.split(" | ") for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Bad(canonicalize_name(name), SpecifierSet(which), mark, why) for name, which, mark, why in rows]


def pins(text: str) -> dict[str, str]:
    """Versions by canonical name, of constraints.txt."""
    rows = [line.split("#")[0].strip().split("==") for line in text.splitlines()]
    return {canonicalize_name(row[0]): row[1] for row in rows if len(row) == 2}


def requirements(pyproject: str) -> list[Requirement]:
    """All requirements of pyproject.toml: of building, using, and every extra."""
    content = tomllib.loads(pyproject)
    project = content["project"]
    extras = project.get("optional-dependencies", {}).values()
    texts = [
        *content["build-system"]["requires"],
        *project["dependencies"],
        *(text for extra in extras for text in extra),
    ]
    return [Requirement(text) for text in texts]


def unpinned(versions: Mapping[str, str], pinned: Mapping[str, str]) -> Iterator[str]:
    """Where constraints.txt and what is installed differ."""
    for name, version in versions.items():
        if name in INSTALLERS:
            continue
        if name not in pinned:
            yield f"{name} {version} is installed, but not pinned in constraints.txt"
        elif Version(pinned[name]) != Version(version):
            yield f"{name} {version} is installed, constraints.txt pins {pinned[name]}"
    for name in sorted(set(pinned) - set(versions) - ELSEWHERE):
        yield f"{name} {pinned[name]} is pinned in constraints.txt, but not installed"


def around(versions: Iterable[Version]) -> set[Version]:
    """Versions at, just below and just above some; enough to see whether two ranges between them meet."""
    found = {Version("0")}
    for version in versions:
        release = list(version.release)
        found |= {version, Version(".".join(map(str, [*release, 0, 1])))}
        while release and release[-1] == 0:
            release.pop()
        if release:
            found.add(Version(".".join(map(str, [*release[:-1], release[-1] - 1, 9999]))))
    return found


def allows(wanted: Requirement, bad: Bad) -> bool:
    """Whether a requirement allows a bad version."""
    named = [Version(part.version.removesuffix(".*")) for specs in (wanted.specifier, bad.versions) for part in specs]
    return any(bad.holds(v) and wanted.specifier.contains(v, prereleases=True) for v in around(named))


def dangerous(
    versions: Mapping[str, str], pinned: Mapping[str, str], wanted: Iterable[Requirement], listed: Iterable[Bad]
) -> Iterator[str]:
    """Known bad versions: installed, pinned, or allowed."""
    asked = [(canonicalize_name(need.name), need) for need in wanted]
    for bad in listed:
        about = f"({bad.identifier}: {bad.reason})"
        for where, found in (("installed", versions), ("pinned", pinned)):
            if bad.name in found and bad.holds(found[bad.name]):
                yield f"{bad.name} {found[bad.name]} is {where} {about}"
        for name, need in asked:
            if name == bad.name and allows(need, bad):
                yield f"pyproject.toml has {need}, which allows some of {bad.versions} {about}"


def permitted(terms: str) -> bool:
    """Whether an SPDX expression, or words joined as one, asks for nothing but listed licences."""
    text = terms.replace("(MPL 2.0)", "[MPL 2.0]").replace("(ISCL)", "[ISCL]")
    while inner := re.search(r"\(([^()]*)\)", text):
        text = text.replace(inner[0], "MIT" if permitted(inner[1]) else "unlisted")
    known = {name.replace("(", "[").replace(")", "]") for name in LICENCES | PROPRIETARY}
    return any(all(part.strip() in known for part in choice.split(" AND ")) for choice in text.split(" OR "))


def unlicensed(packages: Mapping[str, Distribution]) -> Iterator[str]:
    """Packages whose licence is not on the list."""
    for name, package in packages.items():
        terms = licence(package) or SILENT.get(name, "")
        ours = not any(text in terms for text in PROPRIETARY) or name.startswith(("nvidia-", "cuda-"))
        if not permitted(terms) or not ours:
            yield f"{name} {package.version} has licence {terms[:80]!r}, which is not on the list of .ci/audit.py"


def oldest(pyproject: str) -> Version:
    """The lowest Python of `requires-python`."""
    asked = SpecifierSet(tomllib.loads(pyproject)["project"]["requires-python"])
    return min(Version(part.version) for part in asked if part.operator == ">=")


def too_young(packages: Mapping[str, Distribution], lowest: Version) -> Iterator[str]:
    """Packages that ask for a younger Python than we do: pip finds no such pin there, and installs nothing."""
    for name, package in packages.items():
        asked = package.metadata.get("Requires-Python") or ""
        if not SpecifierSet(asked).contains(lowest):
            yield f"{name} {package.version} asks for Python {asked}, but pyproject.toml promises {lowest}"


def incomplete() -> Iterator[str]:
    """What `pip check` has to say."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        yield from (done.stdout + done.stderr).strip().splitlines()


def audit() -> list[str]:
    """Every fault of this environment, one line each."""
    packages = installed()
    versions = {name: package.version for name, package in packages.items()}
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = requirements(project)
    listed = known_bad((ROOT / ".ci" / "known_bad.txt").read_text(encoding="utf-8"))
    found = [*unpinned(versions, pinned), *incomplete(), *too_young(packages, oldest(project))]
    return [*found, *dangerous(versions, pinned, wanted, listed), *unlicensed(packages)]


def main() -> int:
    """Print the faults."""
    faults = audit()
    print(*(f"[audit] {fault}" for fault in faults), f"[audit] {len(faults)} faults", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
