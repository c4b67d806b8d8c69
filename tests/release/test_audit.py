"""The audit finds what is wrong with packages, and the bill of materials says what is installed, without a network."""

import importlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

CI = Path(__file__).resolve().parents[2] / ".ci"


@pytest.fixture(scope="module")
def audit():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CI)
        yield importlib.import_module("audit")


@pytest.fixture(scope="module")
def bad(audit):
    return audit.known_bad((CI / "known_bad.txt").read_text())


def test_the_list_of_bad_versions_is_whole(bad):
    named = {(entry.name, entry.identifier) for entry in bad}
    assert {("torch", "CVE-2025-32434"), ("lightning", "malware"), ("tqdm", "CVE-2024-34062")} <= named
    assert all(entry.reason and len(entry.versions) for entry in bad)


@pytest.mark.parametrize(
    ("need", "allowed"),
    [
        ("torch>=2.6", False),
        ("torch>=2.5.1", True),
        ("torch", True),
        ("torch>=2.6,<3", False),
        ("lightning>=2.6.6", False),
        ("lightning>=2.6.6,!=2.6.9", False),
        ("lightning==2.6.3", True),
        ("lightning==2.6.*", True),
        ("tqdm>=4.66.3", False),
        ("tqdm>=4.66", True),
        ("jinja2>=3.1.5", True),
        ("jinja2>=3.1.6", False),
        ("pillow>=11", True),
        ("pillow>=11.3", False),
        ("pillow>=10.3,<11.2", False),
        ("numpy>=1.26", False),
    ],
)
def test_bounds_that_allow_a_bad_version(audit, bad, need, allowed):
    wanted = Requirement(need)
    assert any(entry.name == wanted.name and audit.allows(wanted, entry) for entry in bad) is allowed


def test_bad_versions_are_found_where_they_are(audit, bad):
    found = list(audit.dangerous({"torch": "2.5.1"}, {"lightning": "2.6.3"}, [Requirement("tqdm>=4")], bad))
    assert [line.split(" (")[0] for line in found] == [
        "torch 2.5.1 is installed",
        "lightning 2.6.3 is pinned",
        "lightning 2.6.3 is pinned",
        "pyproject.toml has tqdm>=4, which allows some of <4.66.3",
    ]
    assert list(audit.dangerous({"torch": "2.6.0"}, {"torch": "2.15"}, [Requirement("torch>=2.6")], bad)) == []


def test_pins_and_packages_are_compared(audit):
    pinned = audit.pins("# a comment\nTorch==2.15.0\nabsl_py==2.5.1  # why\nidle==1\ncolorama==0.4.6\n")
    assert pinned == {"torch": "2.15.0", "absl-py": "2.5.1", "idle": "1", "colorama": "0.4.6"}
    found = list(audit.unpinned({"torch": "2.15", "absl-py": "2.5.2", "stray": "1", "pip": "26"}, pinned))
    assert found == [
        "absl-py 2.5.2 is installed, constraints.txt pins 2.5.1",
        "stray 1 is installed, but not pinned in constraints.txt",
        "idle 1 is pinned in constraints.txt, but not installed",
    ]


def package(requires):
    """A package whose metadata ask for this Python."""
    return SimpleNamespace(version="1", metadata={} if requires is None else {"Requires-Python": requires})


def test_a_pin_for_younger_pythons_only_is_named(audit):
    lowest = audit.oldest('[project]\nrequires-python = ">=3.11,<4"')
    asked = {"silent": None, "old": ">=3.9", "young": ">=3.11.5", "capped": "<3.11"}
    found = list(audit.too_young({name: package(text) for name, text in asked.items()}, lowest))
    assert found == [
        "young 1 asks for Python >=3.11.5, but pyproject.toml promises 3.11",
        "capped 1 asks for Python <3.11, but pyproject.toml promises 3.11",
    ]


@pytest.mark.parametrize(
    ("terms", "fine"),
    [
        ("MIT", True),
        ("MIT AND PSF-2.0", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("GPL-3.0-only OR MIT", True),
        ("Mozilla Public License 2.0 (MPL 2.0)", True),
        ("GPL-3.0-only", False),
        ("MIT AND AGPL-3.0-only", False),
        ("MIT AND (GPL-3.0-only OR AGPL-3.0-only)", False),
        ("", False),
    ],
)
def test_licences(audit, terms, fine):
    assert audit.permitted(terms) is fine


def test_the_bill_names_what_is_installed(tmp_path):
    bills = []
    for name in ("a.json", "b.json"):
        subprocess.run([sys.executable, CI / "sbom.py", tmp_path / name], check=True, capture_output=True)
        bills.append((tmp_path / name).read_text())
    assert bills[0] == bills[1]
    bill = json.loads(bills[0])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    found = {item["name"]: item for item in bill["components"]}
    torch = found["torch"]
    assert torch["purl"] == torch["bom-ref"] == f"pkg:pypi/torch@{version('torch')}"
    assert torch["licenses"]
    assert len(torch["properties"][0]["value"]) == 64
    refs = {item["bom-ref"] for item in (*bill["components"], bill["metadata"]["component"])}
    graph = {item["ref"]: item["dependsOn"] for item in bill["dependencies"]}
    assert set(graph) == refs
    assert torch["bom-ref"] in graph[bill["metadata"]["component"]["bom-ref"]]
    assert all(set(wanted) <= refs for wanted in graph.values())
    assert "://" not in bills[0]
