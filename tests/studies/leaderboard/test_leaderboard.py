"""The leaderboard: what it reads, refuses and ranks, and how the page behaves in a browser without network."""

import io
import json
import math
import re
import struct

import numpy as np
import pytest
from board_cases import JUDGE, PROTOCOL, STAMP, faces, make_board, put, results
from PIL import Image

from faceanon.cli import main
from faceanon.errors import UserError
from faceanon.studies.leaderboard.entries import check_entries, find_entries
from faceanon.studies.leaderboard.page import leaderboard_rows, protocols, write_leaderboard
from faceanon.studies.leaderboard.scatter import RADIUS, Point, scatter


@pytest.fixture
def board(tmp_path):
    return make_board(tmp_path / "runs")


def run(*words):
    return main(["report", "leaderboard", *map(str, words)])


# Reading


def test_folders_become_methods_and_seeds_one_method(board):
    entries = {entry.name: entry for entry in find_entries([board])}
    assert {"keyed", "riddle", "blur", "falco"} < set(entries)
    assert len(entries) == 5
    assert len(entries["riddle"].runs) == 2
    assert entries["keyed"].sheet[8:12] == b"WEBP"
    assert entries["blur"].sheet is None


def test_a_folder_given_twice_or_inside_another_counts_once(board):
    names = [entry.name for entry in find_entries([board, board / "blur", board])]
    assert sorted(names) == sorted({entry.name for entry in find_entries([board])})


def test_equal_names_from_two_folders_are_told_apart(tmp_path):
    for place in ("one", "two"):
        put(tmp_path / place / "dbaf", results())
    entries = find_entries([tmp_path / "one", tmp_path / "two"])
    assert [entry.name for entry in entries] == ["one/dbaf", "two/dbaf"]
    assert [entry.name for entry in find_entries([tmp_path / "one/dbaf"])] == ["dbaf"]


def test_the_zoos_sheets_and_costs_are_found(board):
    (board / "sheets").mkdir()
    (board / "sheets/riddle.png").write_bytes(faces(1))
    seeds = {"0": {"cost/milliseconds_per_face": 10.0}, "1": {"cost/milliseconds_per_face": 30.0}}
    (board / "zoo.json").write_text(json.dumps({"methods": {"riddle": {"seeds": seeds}}}))
    entries = find_entries([board])
    riddle = next(entry for entry in entries if entry.name == "riddle")
    with Image.open(io.BytesIO(riddle.sheet)) as found, Image.open(io.BytesIO(faces(1))) as meant:
        assert (found.format, found.size) == ("WEBP", meant.size)
        difference = np.abs(np.asarray(found, int) - np.asarray(meant.convert("RGB"), int)).mean()
    assert difference < 8  # grey levels
    rows, heads = leaderboard_rows(entries)
    place = [head.title for head in heads].index("ms a face")
    cells = {row.entry.name: row.cells[place] for row in rows}
    assert cells["riddle"].value == 20
    assert cells["blur"].value is None


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("results.json", "{ not json", "is not valid JSON"),
        ("results.json", '{"figures": {}}', "has schema None"),
        ("results.json", '{"schema": 1, "a": 2}', "holds no figures"),
        ("results.json", '{"schema": 1, "figures": {"auc/x": 1}}', "is no test of a method"),
        ("results.json", '{"schema": 1, "figures": {"auc/x": [1]}}', "is damaged"),
        (
            "results.json",
            '{"schema": 1, "figures": {"deid_rate/j": 0}, "meta": {"judge": "j", "protocol": 3}}',
            "damaged",
        ),
        (
            "results.json",
            '{"schema": 1, "figures": {"deid_rate/j": 0}, "meta": {"judge": "j", "weights": 3}}',
            "damaged",
        ),
        ("results.json", "\udcff\udcfe", "is not valid JSON"),
        ("results.json", DEEP, "nested too deeply"),
        ("samples.png", "no picture", "is no PNG or is damaged"),
        ("zoo.json", "[]", "zoo.json is damaged"),
    ],
)
def test_damaged_and_foreign_files_are_one_line(board, capsys, name, content, told):
    folder = board if name == "zoo.json" else board / "keyed/report"
    (folder / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    out = board.parent / "page.html"
    assert run(board, "--out", out) == 2
    line = capsys.readouterr().err.strip()
    assert told in line
    assert "\n" not in line
    assert name in line
    assert not out.exists()


def test_missing_and_empty_folders_are_one_line(tmp_path, capsys):
    assert run(tmp_path / "nowhere") == 2
    assert "no folder" in capsys.readouterr().err
    assert run(tmp_path) == 2
    assert "no results.json in" in capsys.readouterr().err


def test_a_cut_off_sheet_is_refused(board, capsys):
    path = board / "keyed/report/samples.png"
    path.write_bytes(path.read_bytes()[:900])
    assert run(board) == 2
    assert "samples.png" in capsys.readouterr().err
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 90_000, 90_000, 8, 2, 0, 0, 0)
    path.write_bytes(bomb + b"\0" * 64)
    assert run(board) == 2


# What compares


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        ({"protocol": {**STAMP, "version": 2}}, "results of different protocols do not compare"),
        ({"protocol": {**STAMP, "sha256": "00"}}, "results of different protocols do not compare"),
        ({"protocol": None}, "results of different protocols do not compare"),
        ({"protocol": {**STAMP, "deviations": ["fewer images"]}}, "results of different protocols do not compare"),
        ({"weights": {"judge": "99" * 32, "parser": "34" * 32}}, "results of different judges do not compare"),
        ({"weights": None}, "results of different judges do not compare"),
    ],
)
def test_other_protocols_and_judges_are_refused_or_marked(board, capsys, meta, told):
    put(board / "stranger", results(meta={key: value for key, value in meta.items() if value is not None}))
    if None in meta.values():
        found = results()
        del found.meta[next(iter(meta))]
        put(board / "stranger", found)
    out = board.parent / "page.html"
    assert run(board, "--out", out) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "stranger" in error
    assert run(board, "--across-protocols", "--out", out) == 0
    text = out.read_text()
    assert text.index("Not all of this compares") < text.index("<table")
    assert 'class="best"' not in text


def test_another_parser_is_marked_but_not_refused(board):
    put(board / "stranger", results(meta={"weights": {"judge": "12" * 32, "parser": "77" * 32}}))
    (mark,) = check_entries(find_entries([board]))
    assert "parser" in mark


def test_another_judge_in_one_seed_is_seen(board):
    put(board / "riddle/seed1/report", results(meta={"weights": {"judge": "99" * 32}}))
    with pytest.raises(UserError, match="different judges"):
        check_entries(find_entries([board]))


# The table


def test_order_means_and_the_best(board):
    rows, heads = leaderboard_rows(find_entries([board]))
    names = [row.entry.name for row in rows]
    assert names[0] == "keyed"
    assert names[-1] == "blur"  # fewest recognised, but it cheats
    titles = [head.title for head in heads]
    place = titles.index("recognised, same picture")
    cells = {row.entry.name: row.cells[place] for row in rows}
    assert cells["riddle"].value == pytest.approx(0.05)
    assert cells["riddle"].small.startswith("± 1.4")
    assert cells["keyed"].small == "1.5 to 3.5"
    assert [name for name, cell in cells.items() if cell.best] == ["keyed"]
    recovered = {row.entry.name: row.cells[titles.index("recovered from the file")] for row in rows}
    assert recovered["falco"].value is None
    assert [name for name, cell in recovered.items() if cell.best] == ["keyed"]
    assert "ms a face" not in titles


def test_results_of_an_earlier_version_get_the_warnings_that_came_since(tmp_path):
    """A method that brings nobody back stands behind the others, whether or not its test could say so."""
    said = "recovery brings nobody back: as it was worded then"
    put(tmp_path / "old", results(0.0, 0.01))
    put(tmp_path / "new", results(0.0, 0.01, warnings=[said]))
    put(tmp_path / "good", results(0.1, 0.9))
    entries = {entry.name: entry for entry in find_entries([tmp_path])}
    assert entries["good"].warnings == []
    assert entries["new"].warnings == [said]
    assert [text.split(":")[0] for text in entries["old"].warnings] == ["recovery brings nobody back"]
    assert leaderboard_rows(list(entries.values()))[0][0].entry.name == "good"


def test_the_protocol_stands_beside(board):
    (found,) = protocols(find_entries([board]))
    assert found["about"] == PROTOCOL.about
    assert found["choices"]["matching.far"] == "0.01"
    assert found["choices"]["networks.judge.name"] == JUDGE
    assert "pictures.signature" not in found["choices"]
    put(board / "edited", results(meta={"protocol": {**STAMP, "sha256": "00"}}))
    other = protocols(find_entries([board]))[-1 if "edited" > "blur" else 0]
    assert {len(item["choices"]) > 0 for item in protocols(find_entries([board]))} == {True, False}
    assert other["facts"]["judge"] == JUDGE


def test_a_protocols_name_opens_no_file(board, tmp_path):
    put(tmp_path / "x", results(meta={"protocol": {**STAMP, "name": str(board / "secret")}}))
    (found,) = protocols(find_entries([tmp_path / "x"]))
    assert found["choices"] == {}


def test_the_page_stands_alone_and_is_escaped(board):
    put(board / "<img src=x onerror=alert(1)>", results(0.3))
    page = write_leaderboard(board.parent / "page.html", find_entries([board]))
    text = page.read_text()
    assert "<img src=x" not in text
    assert "blur &lt;b&gt;passes" in text
    addresses = re.findall(r"""\b(?:src|href)=["']([^"']+)""", text)
    assert addresses
    assert all(address.startswith(("data:image/webp", "#")) for address in addresses)
    assert not re.search(r"url\(|@import|https?://", text)
    assert text.count("<svg") == 2
    with pytest.raises(UserError, match="at least one"):
        write_leaderboard(page, [])


# The plot


def point(number, x, y, recovered=1.0):
    return Point(number, f"m{number}", x, y, recovered, "")


def test_equal_methods_do_not_hide_each_other_and_stay_inside():
    plot = scatter("KID", [point(i, 1.0, 0.001) for i in range(6)] + [point(6, 0.5, 0.3)], lower=True)
    left, top, right, bottom = plot.box
    for one in plot.points:
        assert left <= one.at[0] <= right
        assert top <= one.at[1] <= bottom
        for other in plot.points:
            assert one is other or math.dist(one.at, other.at) > 1.5 * RADIUS
    assert plot.title.endswith("logarithmic")
    assert plot.points[6].at[1] > plot.points[0].at[1]  # worse, so lower down


def test_the_plot_needs_two_finite_methods_and_shows_recovery():
    assert scatter("KID", [point(1, 0.5, 0.1), point(2, 0.5, math.nan)], lower=True) is None
    assert point(1, 0, 0, 0.0).colour == "rgb(179 92 0)"
    assert point(1, 0, 0, 1.0).colour == "rgb(31 95 191)"
    plot = scatter("PSNR", [point(1, 0.2, 10.0), point(2, 0.9, 30.0)], lower=False)
    assert plot.points[0].true[0] < plot.points[1].true[0]
    assert plot.points[0].true[1] > plot.points[1].true[1]
    assert 2 <= len(plot.ticks_x) <= 12
    assert 2 <= len(plot.ticks_y) <= 12
    same = scatter("KID", [point(1, 0.5, 0.1), point(2, 0.5, 0.1)], lower=True)
    assert all(math.isfinite(value) for one in same.points for value in one.at)


def test_the_command_writes_the_page(board, capsys):
    out = board.parent / "deep/page.html"
    assert run(board, "--out", out) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert io.BytesIO(out.read_bytes()).read(15) == b"<!DOCTYPE html>"
