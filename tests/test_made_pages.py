"""What docs/_build/method_pages.py makes is what the pages show."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from faceanon.methods import presets

REPO = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def maker():
    """The script as a module; docs/ is no package."""
    spec = importlib.util.spec_from_file_location("method_pages", REPO / "docs/_build/method_pages.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_preset_has_a_page_and_every_page_a_preset(maker):
    shipped = {method.name for method in maker.methods()}
    assert shipped <= set(presets())
    assert {page.stem for page in maker.METHODS.glob("*.md")} == {maker.page_of(name) for name in shipped} | {"index"}


def test_the_made_parts_are_up_to_date(maker):
    for page, text in maker.pages().items():
        assert page.read_text(encoding="utf-8") == text, f"{page.name}: run python docs/_build/method_pages.py"


def test_shares_of_two_judges_become_percent(maker):
    assert maker._both_judges(".069 (.021 to .118), .076") == "6.9, 7.6 %"
    assert maker._both_judges("1.000 (.904 to 1.000), .000") == "100.0, 0.0 %"
    assert maker._both_judges("-") == "-"


def test_only_the_first_table_of_a_page_counts(maker, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("| method | a |\n|---|---|\n| dbaf ¹ | 1 |\n\ntext\n\n| method | b |\n|---|---|\n| hford | 2 |\n")
    assert maker._first_table(page) == {"dbaf": {"a": "1"}}


def test_what_is_written_by_hand_stays(maker):
    text = "by hand\n<!-- made: facts -->\nold\n<!-- end -->\nby hand too\n"
    made = maker.with_parts(text, {"facts": "new\n"})
    assert made == text.replace("old", "new")
    with pytest.raises(ValueError, match="figures"):
        maker.with_parts(text, {"facts": "", "figures": ""})


def test_every_page_says_the_idea_and_what_differs(maker):
    for name in maker.families():
        text = (maker.METHODS / f"{name}.md").read_text(encoding="utf-8")
        for heading in ("## Idea\n", "## Where ours differs\n", "## Figures\n"):
            _, _, rest = text.partition(heading)
            assert len(rest.split("## ")[0].strip()) > 40, f"{name}: {heading.strip()} says nothing"


def test_every_page_but_those_without_a_paper_says_what_holds(maker):
    for name in maker.families():
        if name == "persona":
            continue
        _, _, rest = (maker.METHODS / f"{name}.md").read_text(encoding="utf-8").partition("## What holds here\n")
        claims = [line for line in rest.split("\n## ")[0].splitlines() if line.startswith("- *")]
        assert len(claims) >= 2, f"{name}.md: no claims under What holds here"


def test_figures_are_those_of_the_page_of_figures(maker):
    row = maker.photographs()["hford_flips"]
    made = "\n".join(maker.figures(maker.families()["dbaf"]))
    assert maker._both_judges(row["recovered ↑"]) in made
    assert made.count("| figure |") == 1


def test_what_presets_share_stands_once(maker):
    assert maker._shared({"a": "x", "b": "x"}) == "x"
    assert maker._shared({"a": "x", "b": "y", "c": "x"}) == "a, c: x; b: y"


def test_the_pipeline_is_named_by_the_package_and_loads_when_it_is_asked_for():
    code = (
        "import sys, faceanon; assert 'torch' not in sys.modules and 'Pipeline' in dir(faceanon); "
        "from faceanon import Pipeline; from faceanon.pipeline import Pipeline as same; assert Pipeline is same"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
