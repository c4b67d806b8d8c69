"""The leaderboard in headless Chromium, without network: it sorts, and fits a phone."""

import re
import shutil

import pytest
from board_cases import make_board

from faceanon.studies.leaderboard.entries import find_entries
from faceanon.studies.leaderboard.page import write_leaderboard


@pytest.fixture
def board(tmp_path):
    return make_board(tmp_path / "runs")


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium on this machine")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page_of(browser, board):
    path = write_leaderboard(board.parent / "page.html", find_entries([board]))
    contexts = []

    def opened(width, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 740}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.asked, page.wrong = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("console", lambda line: page.wrong.append(line.text) if line.type == "error" else None)
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


def column(page, number):
    return page.eval_on_selector_all(".board tbody tr", f"rows => rows.map(row => row.cells[{number}].dataset.value)")


def test_a_click_on_a_heading_sorts_and_another_turns_it_round(page_of):
    page = page_of(1280)
    titles = page.eval_on_selector_all(".board thead tr:last-child th", "all => all.map(th => th.innerText)")
    place = next(i for i, title in enumerate(titles) if "recovered" in title)
    head = page.locator(".board thead tr:last-child th").nth(place)
    for direction, sign in (("descending", -1), ("ascending", 1)):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        values = column(page, place)
        known = [float(value) for value in values if value]
        assert known == sorted(known, key=lambda value: sign * value)
        assert values[len(known) :] == [""] * 2  # without a way back: last, whichever way
    page.locator(".board thead tr:last-child button").first.press("Enter")
    assert column(page, 0) == sorted(column(page, 0))
    assert head.get_attribute("aria-sort") == "none"
    assert page.wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_the_table_and_not_the_page_and_asks_for_nothing(page_of, scheme):
    page = page_of(360, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    box = page.evaluate("(b => [b.scrollWidth, b.clientWidth])(document.querySelector('.scroll'))")
    assert box[0] > box[1]
    page.evaluate("document.querySelector('.scroll').scrollLeft = 200")
    first = page.locator(".board tbody th").first.bounding_box()
    assert 0 <= first["x"] < 40  # the name stays in sight
    assert first["width"] < 180
    page.mouse.wheel(0, 10_000)  # pictures load late
    page.wait_for_function("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    others = [url for url in page.asked if not url.startswith("data:")]
    assert len(others) == 1
    assert others[0].startswith("file:")
    assert page.wrong == []
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
    assert (bright[0] < bright[1]) == (scheme == "light")
