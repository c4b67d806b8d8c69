import argparse
import json
import math
import re
from html.parser import HTMLParser

import pytest
import torch

from faceanon.cli import main
from faceanon.commands.report import compare as command
from faceanon.errors import UserError
from faceanon.report.figures import EXPLANATIONS, better, explain, format_interval, format_value, grouped
from faceanon.report.page import write_report
from faceanon.report.plots import history_plot, similarity_plot
from faceanon.report.sheets import sheet
from faceanon.report.table import format_table
from faceanon.results import load_results, run_meta, shown_command

FIGURES = {
    "deid_rate/judge": 0.025,
    "recovery_rate/judge/file": 0.995,
    "recovery_rate/judge/latent": 1.0,
    "self_verification/judge": 0.98,
    "threshold/judge": 0.412,
    "psnr/recovered/file": 28.123,
    "psnr/anonymized/file": math.inf,
    "kid": math.nan,
    "my_own/figure": 1.5,
}
CI = {"deid_rate/judge": (0.01, 0.05), "recovery_rate/judge/file": (math.nan, math.nan)}
META = {"judge": "judge", "white_box": ["trainer"], "images": 40, "people": 20, "bundle": "photo128", "far": 0.01}


def samples():
    generator = torch.Generator().manual_seed(0)
    return {label: torch.rand(4, 3, 16, 16, generator=generator) * 2 - 1 for label in ("original", "wrong key")}


def scores():
    generator = torch.Generator().manual_seed(0)
    kinds = ("impostor", "genuine", "anonymized", "recovered/file", "wrong", "keys")
    return {kind: torch.rand(50, generator=generator) for kind in kinds}


class Page(HTMLParser):
    """Fails on tags that do not match; keeps the addresses that a browser would fetch."""

    VOID = ("meta", "img", "br", "link", "input", "hr")

    def __init__(self, text):
        super().__init__()
        self.open, self.addresses, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open += [] if tag in self.VOID else [tag]
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "new"
    path = write_report(
        folder,
        FIGURES,
        samples(),
        META,
        reference={"deid_rate/judge": 0.011},
        warnings=["key <b>ignored</b>"],
        ci=CI,
        history={"val_deid": [(0, 1.0), (10, 0.5), (20, math.nan)]},
        scores=scores(),
        skipped=["fid: needs a GPU"],
    )
    return path, path.read_text(encoding="utf-8")


def test_page_stands_alone(page):
    path, text = page
    assert sorted(p.name for p in path.parent.iterdir()) == ["report.html", "results.json", "samples.png"]
    parsed = Page(text)
    assert all(address.startswith(("data:", "#")) for address in parsed.addresses)
    assert any(address.startswith("data:image/png") for address in parsed.addresses)
    assert not re.search(r"url\((?!#)", text)
    assert text.count("<svg") == 2
    assert 'name="viewport"' in text


def test_page_says_everything(page):
    text = Page(page[1]).text
    for part in (
        "2.5 %",
        "99.5 %",
        "1.0 to 5.0",
        "1.1 %",
        "28.12 dB",
        "inf",
        "nan",
        "lower is better",
        "my_own/figure",
        "white-box",
        "fid: needs a GPU",
        "40 pictures of 20 people",
        explain("deid_rate/x").text,
    ):
        assert part in text, part


def test_warnings_are_on_top_and_escaped(page):
    text = page[1]
    assert "key &lt;b&gt;ignored&lt;/b&gt;" in text
    assert text.index("ignored") < text.index("data:image/png")


def test_ids_of_the_two_plots_do_not_collide(page):
    ids = re.findall(r' id="([^"]+)"', page[1])
    assert len(ids) == len(set(ids))


def test_json_is_strict_and_comes_back(page):
    path = page[0].parent / "results.json"
    content = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert content["meta"]["faceanon"]
    assert "command" in content["meta"]
    assert "commit" in content["meta"]
    results = load_results(page[0].parent)
    assert results.figures == pytest.approx(FIGURES, nan_ok=True)
    assert results.ci["deid_rate/judge"] == (0.01, 0.05)
    assert results.warnings == ["key <b>ignored</b>"]
    assert results.meta["bundle"] == "photo128"


def test_report_without_pictures_plots_or_meta(tmp_path):
    text = write_report(tmp_path, {"deid_rate/judge": 0.5}, {}, {}).read_text()
    Page(text)
    assert "<svg" not in text
    assert "<img" not in text
    assert not (tmp_path / "samples.png").exists()


def test_meta_may_hold_paths_tuples_and_nan(tmp_path):
    write_report(tmp_path, {}, {}, {"folder": tmp_path, "shape": (1, 2), "loss": math.nan})
    meta = load_results(tmp_path).meta
    assert meta["shape"] == [1, 2]
    assert meta["loss"] == "nan"
    assert meta["folder"] == str(tmp_path)


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_report(tmp_path / "file" / "report", FIGURES, {}, META)


def test_table_has_groups_intervals_and_reference():
    table = format_table(FIGURES, {"deid_rate/judge": 0.011}, CI)
    lines = table.splitlines()
    row = next(line for line in lines if "deid_rate/judge" in line)
    assert row.split() == ["deid_rate/judge", "2.5", "%", "1.0", "to", "5.0", "1.1", "%"]
    assert lines.index(row) == lines.index("Still recognised (lower is better)") + 1
    assert next(line for line in lines if "  kid" in line).split() == ["kid", "nan", "-"]
    assert "my_own" in lines
    assert "shipped" not in format_table(FIGURES)


def test_every_explanation_is_whole():
    for family, explanation in EXPLANATIONS.items():
        assert explanation.title, family
        assert explanation.text.endswith("."), family
    assert better("rank1/judge/anonymized") == "lower"
    assert better("rank1/judge/recovered") == "higher"
    assert better("deid_rate/judge") == "lower"
    assert better("nobody/knows") == ""
    for family in ("psnr", "ssim", "mse", "lpips", "psnr_face", "occluder_psnr"):
        assert better(f"{family}/wrong/file") == ""
        assert better(f"{family}/recovered/file") != ""


def test_ranks_are_one_family_where_its_explanation_stands():
    names = ["my_own/figure", "kid", "rank5/judge/original", "rank1/judge/original", "deid_rate/judge"]
    assert list(grouped(names)) == ["deid_rate", "rank1", "kid", "my_own"]
    assert grouped(names)["rank1"] == ["rank5/judge/original", "rank1/judge/original"]


OPPOSITE = {"eer/judge/original": 0.01, "eer/judge/anonymized": 0.48, "kid": 0.1}


def test_the_table_says_of_each_figure_what_is_good_where_a_family_has_two_directions():
    lines = format_table(OPPOSITE).splitlines()
    assert "Equal error rate (↓ lower is better, ↑ higher is better)" in lines
    assert next(line for line in lines if "original" in line).split()[:2] == ["eer/judge/original", "↓"]
    assert next(line for line in lines if "anonymized" in line).split()[:2] == ["eer/judge/anonymized", "↑"]
    assert next(line for line in lines if line.startswith("  kid")).split() == ["kid", "0.10000"]


def test_the_page_says_of_each_figure_what_is_good_where_a_family_has_two_directions(tmp_path):
    text = Page(write_report(tmp_path, OPPOSITE, {}, {}).read_text(encoding="utf-8")).text
    assert "eer/judge/original ↓" in text
    assert "eer/judge/anonymized ↑" in text
    assert "kid ↓" not in text


def test_formats():
    assert format_value("deid_rate/a", 0.12345) == "12.3 %"
    assert format_value("psnr/a", None) == "-"
    assert format_interval("psnr/a", None) == format_interval("psnr/a", (math.nan, 1)) == ""


def test_sheet_draws_rows_under_labels():
    rows = {"white": torch.ones(3, 3, 8, 8), "red": torch.tensor([1.0, -1, -1]).view(1, 3, 1, 1).expand(2, 3, 8, 8)}
    image = sheet(rows, scale=3)
    assert image.width == 3 * (24 + 2)
    assert image.height == 2 * (18 + 24 + 2)
    assert image.getpixel((5, 44 + 18 + 5)) == (255, 0, 0)
    assert image.getpixel((26 + 5, 44 + 18 + 5)) == (255, 0, 0)
    assert image.getpixel((2 * 26 + 5, 44 + 18 + 5)) == (255, 255, 255)
    label = image.crop((0, 44, 78, 62)).convert("L")
    assert label.getextrema()[0] < 100  # the label is there


def test_sheet_refuses_nothing_and_wrong_shapes():
    with pytest.raises(ValueError, match="at least one"):
        sheet({})
    with pytest.raises(ValueError, match="row 'a'"):
        sheet({"a": torch.zeros(3, 8, 8)})


def test_plots_survive_nothing_and_non_finite_values():
    assert similarity_plot({}) == similarity_plot({"genuine": [math.nan]}) == history_plot({"a": [(0, math.nan)]}) == ""
    assert similarity_plot({"genuine": [0.5, math.inf, 0.7]}, math.nan).startswith("<svg")


def test_the_same_figures_give_the_same_plots():
    assert similarity_plot(scores(), 0.4) == similarity_plot(scores(), 0.4)
    assert history_plot({"a": [(0, 1.0), (1, 0.5)]}) == history_plot({"a": [(0, 1.0), (1, 0.5)]})


def run_command(*arguments):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(a) for a in arguments]))


def test_command_compares(tmp_path, capsys):
    for name, rate in (("a", 0.1), ("b", 0.9)):
        write_report(tmp_path / name, {"deid_rate/judge": rate}, {}, META, warnings=[f"from {name}"])
    out = tmp_path / "out" / "page.html"
    assert run_command(tmp_path / "a", tmp_path / "b" / "results.json", "--out", out) == 0
    assert capsys.readouterr().out.strip() == str(out)
    text = Page(out.read_text()).text
    for part in ("10.0 %", "90.0 %", "Warning, b:", "from a"):
        assert part in text


def test_a_comparison_shows_no_paths_of_the_machine(tmp_path):
    for name in ("a", "b"):
        write_report(tmp_path / name, {"kid": 0.1}, {}, {"command": "faceanon test --config /data/anna/configs/a.yaml"})
    assert run_command(tmp_path / "a", tmp_path / "b", "--out", tmp_path / "page.html") == 0
    text = Page((tmp_path / "page.html").read_text()).text
    assert "…/configs/a.yaml" in text
    assert "anna" not in text


def test_command_labels_tell_results_apart(tmp_path):
    for name in ("x/run", "y/run"):
        write_report(tmp_path / name, {"kid": 0.1}, {}, {})
    run_command(tmp_path / "x/run", tmp_path / "y/run", "--out", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<th>x/run</th>" in text
    assert "<th>y/run</th>" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        ("{", "not valid JSON"),
        ("[]", "no figures"),
        ('{"figures": {}, "schema": 99}', "schema 99"),
        ('{"figures": {"a": "b"}, "schema": 1}', "damaged"),
        ('{"figures": {"a": null}, "schema": 1}', "damaged"),
        ('{"figures": {}, "ci": {"a": [1]}, "schema": 1}', "damaged"),
    ],
)
def test_bad_results_are_one_clear_line(tmp_path, content, message):
    path = tmp_path / "results.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        run_command(path, "--out", tmp_path / "page.html")
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "page.html").exists()


def test_same_results_twice(tmp_path):
    write_report(tmp_path, {}, {}, {})
    with pytest.raises(UserError, match="twice"):
        run_command(tmp_path, tmp_path / "results.json")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["occlusion", "--model", "x", "--identities", "y"], "give --photos FOLDER as well"),
        (["security", "--model", "x", "--identities", "y"], "give --photos FOLDER as well"),
        (["tables", "dbaf-2", "--kffa-keys", "3"], "none of these tables has KFFA"),
        (["tables", "dbaf-7"], "faceanon report tables list says what each needs"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, told, capsys):
    assert main(["report", *words]) == 2
    line = capsys.readouterr().err.strip()
    assert told in line
    assert "\n" not in line


def test_results_nested_too_deeply_are_one_line(tmp_path):
    path = tmp_path / "results.json"
    path.write_text("[" * 100_000)
    with pytest.raises(UserError, match="nested too deeply"):
        load_results(path)


def test_a_command_tells_nothing_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/opt/bin/faceanon", "test", f"--a={tmp_path}/x/y.yaml", f"{tmp_path}/z", "/a/b"])
    assert run_meta()["command"] == "faceanon test --a=x/y.yaml z /a/b"
    monkeypatch.setattr("sys.argv", ["/somewhere/faceanon/__main__.py", "test"])
    assert run_meta()["command"] == "faceanon test"
    told = shown_command("faceanon test --config /data/anna/faceanon/configs/a.yaml --b=/data/c --d=e/f/g '/srv/h/i j'")
    assert told == "faceanon test --config …/configs/a.yaml --b=/data/c --d=e/f/g '…/h/i j'"
