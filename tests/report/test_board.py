"""One table as text, Markdown and HTML."""

import math

import pytest

from faceanon.report.board import Board, Cell, Column, Line, shown, shown_interval

RATE = Column("anonymity", "recognised", better="lower", unit="%", digits=1)
NOTE = Column(title="whose", left=True)


@pytest.fixture
def board():
    lines = [
        Line("methods that need no training at all"),
        Line("blur", (RATE.cell(0.25, (0.2, 0.305)), Cell("<ours>"))),
        Line("a|b", (Cell("3.0 %", "± 0.5", best=True), Cell("theirs")), "quiet"),
    ]
    return Board([RATE, NOTE], lines, "method")


def test_text_has_columns_of_equal_width_and_headings_run_across(board):
    assert board.text().splitlines() == [
        "method  anonymity: recognised ↓  whose",
        "methods that need no training at all",
        "blur      25.0 % (20.0 to 30.5)  <ours>",
        "a|b                 3.0 % ± 0.5  theirs",
    ]


def test_a_board_without_heads_begins_with_its_first_line():
    assert Board([Column()], [Line("a", (Cell("1"),)), Line("long", (Cell("22"),))]).text() == "a      1\nlong  22"


def test_markdown_shows_what_stands_out_and_ends_no_cell_early(board):
    lines = Board(board.columns, board.lines[1:], "method").markdown().splitlines()
    assert lines[1] == "| --- | ---: | --- |"
    assert lines[2] == "| blur | 25.0 % (20.0 to 30.5) | <ours> |"
    assert lines[3] == "| a\\|b | **3.0 %** ± 0.5 | theirs |"


def test_html_escapes_and_marks(board):
    text = board.html()
    assert "&lt;ours&gt;" in text
    assert '<td class="best">3.0 %<br><small>± 0.5</small></td>' in text
    assert '<tr class="quiet">' in text
    assert '<td colspan="3">methods that need' in text
    assert '<th class="group" colspan="1">anonymity</th>' in text


def test_a_turned_board_has_lines_for_columns(board):
    turned = Board(board.columns, board.lines[1:], "method").turned()
    assert [column.title for column in turned.columns] == ["blur", "a|b"]
    assert turned.lines[0].label == "anonymity: recognised ↓"
    assert [cell.text for cell in turned.lines[1].cells] == ["<ours>", "theirs"]


def test_figures_say_their_unit_and_what_they_are_not():
    assert [shown(0.5, "%", 0), shown(None), shown(math.nan), shown(1.26, " px", 1)] == ["50 %", "-", "nan", "1.3 px"]
    assert shown_interval((0.1, 0.25), "%", 1) == "10.0 to 25.0"
    assert shown_interval((math.nan, 1)) == shown_interval(None) == ""
