"""The documentation builds as a site, strictly, and its pages fetch nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

from faceanon.cli import COMMANDS, TRAINING

REPO = Path(__file__).resolve().parents[1]
CONTRACTS = (
    "method.html#faceanon.backbones.base.Backbone",
    "method.html#faceanon.types.FaceBatch",
    "method.html#faceanon.testing.check_backbone",
    "stages.html#faceanon.stages.PriorStage",
    "stages.html#faceanon.stages.DisentangleStage",
    "stages.html#faceanon.stages.AnonymizeStage",
    "use.html#faceanon.key.Secret.from_password",
    "use.html#faceanon.key.Secret.stream",
    "use.html#faceanon.pipeline.Pipeline.load",
    "use.html#faceanon.pipeline.Pipeline.anonymize",
    "use.html#faceanon.pipeline.Pipeline.recover",
    "metrics.html#faceanon.metrics.evaluation.Evaluation",
)
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
OUTSIDE = re.compile(r"(?:[a-z]+:)?//", re.I)


class Assets(HTMLParser):
    """What a browser fetches for a page, and where its anchors are."""

    def __init__(self, text):
        super().__init__()
        self.found, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.add(values.get("id"))
        address = values.get(FETCHED.get(tag, ""))
        if address and values.get("rel") not in ("canonical", "next", "prev"):
            self.found.append(address)


def outside(text, style=False):
    """Addresses on other machines that a page or style sheet fetches."""
    found = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", text) if style else Assets(text).found
    return [address for address in found if OUTSIDE.match(address)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    for name in ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers.python"):
        try:
            missing = find_spec(name) is None
        except ModuleNotFoundError:
            missing = True
        if missing:
            pytest.skip(f"{name} is not installed: pip install 'faceanon[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO / "src"), "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def test_what_comes_from_elsewhere_is_seen():
    assert outside('<p><script src="https://cdn.example/x.js"></script><img src="//a/b.png"><a href="https://c">') == [
        "https://cdn.example/x.js",
        "//a/b.png",
    ]
    assert outside('<link rel="stylesheet" href="http://fonts.example/a.css"><img src="a/b.png">') != []
    assert outside('a{background:url("https://x/y.png")} b{background:url(data:image/png;base64,a//b)}', True) != []
    assert outside("b{background:url(data:image/png;base64,a//b)} @import 'own.css';", True) == []


@pytest.mark.slow
def test_no_page_fetches_anything_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    found = {page.name: outside(page.read_text(encoding="utf-8")) for page in pages}
    found |= {style.name: outside(style.read_text(encoding="utf-8"), style=True) for style in site.rglob("*.css")}
    assert {name: where for name, where in found.items() if where} == {}
    missing = [
        f"{page.name}: {address}"
        for page in pages
        if page.name != "404.html"  # served at any depth, so its addresses start at the root
        for address in Assets(page.read_text(encoding="utf-8")).found
        if not address.startswith("data:") and not (page.parent / re.split(r"[?#]", address)[0]).exists()
    ]
    assert missing == []


@pytest.mark.slow
def test_every_command_and_every_contract_has_its_place(site):
    options = (site / "reference/options.html").read_text(encoding="utf-8")
    for name in (*COMMANDS, *TRAINING):
        assert f"faceanon {name}</code>" in options, name
    for option in ("--insecure-password TEXT", "--trainer.max_epochs MAX_EPOCHS", "--encoder-type"):
        assert option in options
    for place in CONTRACTS:
        page, anchor = place.split("#")
        text = (site / "reference/api" / page).read_text(encoding="utf-8")
        assert anchor in Assets(text).anchors, place
