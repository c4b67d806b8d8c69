"""A walk through the web page in headless Chromium.

With FACEANON_SCREENSHOTS=notebook it writes the documentation's pictures.
"""

import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.photo.boxes import read_decisions
from faceanon.photo.crop_paste import crops
from faceanon.photo.file import load_photo, read_manifest
from faceanon.photo.party import photo_party
from faceanon.pipeline.video.frames import read_frames
from faceanon.weights.bundle import Bundle

REPO = Path(__file__).resolve().parents[2]
RIGHT, WRONG = "tulips on the northern roof", "roses under the southern gate"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
missing = [
    name
    for name in ("gradio", "gradio_image_annotation", "zxcvbn", "playwright")
    if importlib.util.find_spec(name) is None
]
missing += [] if CHROMIUM else ["chromium"]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")]


def noise(path):
    """A picture without a face."""
    small = np.random.default_rng(0).integers(40, 216, (12, 16, 3), dtype=np.uint8)
    Image.fromarray(small).resize((320, 240), Image.Resampling.BICUBIC).save(path)
    return path


@torch.inference_mode()
def likeness(original, path, hidden):
    """Mean cosine of the faces, by the network that no loss has seen: who they are, whatever strangers a salt gives."""
    bundle = Bundle("photo128")
    squares = [square for layer in read_manifest(load_photo(hidden)).layers for square in layer]
    codes = []
    for photo in (original, path):
        pixels = load_photo(photo).pixels
        codes.append(bundle.judge(torch.from_numpy(crops(pixels, squares, bundle.image_size))))
    return float((codes[0] * codes[1]).sum(1).mean())


def start(tmp, *words):
    command = [sys.executable, "-m", "faceanon", "web", *words]
    paths = {"PYTHONPATH": str(REPO / "src"), "TMPDIR": str(tmp), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with (tmp.parent / "server.log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **paths}, stdout=subprocess.PIPE, stderr=log, text=True)
    line = process.stdout.readline()
    assert "the page is at http://127.0.0.1:" in line, (tmp.parent / "server.log").read_text()
    return process, line.split()[5]


@contextmanager
def served(tmp, *words):
    """A served page; at its end nothing of it may be left."""
    tmp.mkdir()
    process, url = start(tmp, *words)
    with process.stdout:
        try:
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            ended = process.wait(60)
        assert ended == 0
        assert list(tmp.glob("faceanon-demo-*")) == []
        said = (tmp.parent / "server.log").read_text() + process.stdout.read()
    assert "Traceback" not in said
    assert RIGHT not in said
    assert WRONG not in said


@contextmanager
def opened(address):
    """The page in Chromium; it may ask nobody but the server, and its storage may not know the password."""
    from playwright.sync_api import sync_playwright

    asked = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1180, "height": 900})
        tab.set_default_timeout(120_000)
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(address)
        tab.wait_for_selector("#anonymize-go")
        yield tab
        assert "tulips" not in tab.evaluate("JSON.stringify(localStorage) + JSON.stringify(sessionStorage)")
        browser.close()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with served(tmp_path_factory.mktemp("demo") / "tmp", "--max-upload", "1") as url:
        yield url


@pytest.fixture
def page(address):
    with opened(address) as tab:
        yield tab


def choose(page, name, path):
    page.locator(f"#{name}-photo input[type=file]").set_input_files(str(path))


def go(page, name, password, kind):
    """Type, click, and give back the line that appears."""
    page.locator(f"#{name}-password input").fill(password)
    page.locator(f"#{name}-go").click()
    page.wait_for_selector(f"#{name}-line .idle, #{name}-line .{kind}")
    page.wait_for_selector(f"#{name}-line .{kind}")
    return page.locator(f"#{name}-line").inner_text()


def save(page, name, path):
    with page.expect_download() as download:
        page.locator(f"#{name}-download").click()
    download.value.save_as(path)
    return path


def shoot(page, name):
    folder = os.environ.get("FACEANON_SCREENSHOTS")
    if folder:
        page.mouse.move(0, 0)
        page.wait_for_timeout(1500)
        with Image.open(io.BytesIO(page.screenshot(full_page=True))) as picture:
            picture.save(REPO / folder / name, quality=80)


def on_the_photo(page, width, name="anonymize-boxes"):
    """Places on the screen by pixels of the photo of this width."""
    page.wait_for_selector(f"#{name} canvas")
    page.wait_for_timeout(1500)  # until the photo is drawn and the page has its height
    frame = page.locator(f"#{name} canvas").bounding_box()
    # A photo narrower than the page stands in the middle of it.
    scale = min(1.0, frame["width"] / width)
    left = frame["x"] + (frame["width"] - scale * width) / 2
    return lambda x, y: (left + x * scale, frame["y"] + y * scale)


def test_a_walk_through_the_page(page, tmp_path):
    page.locator("#anonymize-example").click()
    page.get_by_text("Found: 3 faces, scores").wait_for()
    page.locator("#anonymize-password input").press_sequentially("tulip", delay=10)
    page.wait_for_selector("#anonymize-strength .very-weak")
    assert "Look at photo 1 of 1 first" in go(page, "anonymize", RIGHT, "failed")
    page.locator("#anonymize-seen input").check()
    assert "3 faces replaced by strangers" in go(page, "anonymize", RIGHT, "done")
    page.wait_for_selector("#anonymize-result img")
    page.wait_for_selector("#anonymize-strength .strong")
    hidden = save(page, "anonymize", tmp_path / "hidden.png")
    assert read_manifest(load_photo(hidden)).faces == 3
    page.locator("#anonymize-onward").click()
    page.locator("#recover-photo").get_by_text("_anon").first.wait_for()
    assert "wrong password" in go(page, "recover", WRONG, "failed")
    assert "3 faces brought back" in go(page, "recover", RIGHT, "done")
    page.wait_for_selector("#recover-result img")
    right = save(page, "recover", tmp_path / "right.png")
    photo_party().save(tmp_path / "original.png")
    likenesses = [likeness(tmp_path / "original.png", path, hidden) for path in (right, hidden)]
    assert likenesses[0] > likenesses[1] + 0.05, likenesses


def test_boxes_are_removed_changed_and_drawn(page, tmp_path):
    """One face is removed and drawn again by hand, one stays, and a corner is hidden for good."""
    photo_party().save(tmp_path / "party.png")
    choose(page, "anonymize", tmp_path / "party.png")
    at = on_the_photo(page, 824)
    page.mouse.click(*at(671, 151))
    page.keyboard.press("Delete")
    page.mouse.dblclick(*at(406, 152))
    label(page, "stays as it is")
    page.keyboard.press("c")
    draw(page, at(610, 60), at(735, 245))
    draw(page, at(4, 4), at(60, 40))
    page.keyboard.press("e")
    label(page, "grey for good")
    page.locator("#anonymize-seen input").check()
    line = go(page, "anonymize", RIGHT, "done")
    assert line.startswith("2 faces replaced by strangers")
    assert "1 hidden for good" in line
    assert "1 face left as they are" in line
    page.wait_for_selector("#anonymize-result img")
    shoot(page, "desk.webp")
    with page.expect_download() as download:
        page.locator("#anonymize-boxes-file").click()
    download.value.save_as(tmp_path / "boxes.json")
    boxes = read_decisions(tmp_path / "boxes.json").of("party.png", 824, 284)
    assert sorted(box.choice for box in boxes) == ["keep", "mask", "stranger", "stranger"]
    result = load_photo(save(page, "anonymize", tmp_path / "hidden.png"))
    original = load_photo(tmp_path / "party.png").pixels
    changed = np.abs(result.pixels.astype(int) - original).max(2) > 8
    assert changed[100:200, 90:180].mean() > 0.5
    assert not changed[60:240, 350:460].any()
    assert changed[100:200, 640:700].mean() > 0.5
    assert changed[10:35, 10:55].any()
    # The file of boxes, dropped beside the photo, brings the decisions back.
    page.reload()
    page.locator("#anonymize-photo input[type=file]").set_input_files(
        [str(tmp_path / "party.png"), str(tmp_path / "boxes.json")]
    )
    page.get_by_text("Found: 4 faces").wait_for()


def test_boxes_are_moved_removed_and_added_by_keys_alone(page, tmp_path):
    photo_party().save(tmp_path / "party.png")
    choose(page, "anonymize", tmp_path / "party.png")
    page.get_by_text("Found: 3 faces").wait_for()
    page.locator("#anonymize-by-keys button").first.focus()
    page.keyboard.press("Enter")
    written = page.locator("#anonymize-written textarea")
    page.wait_for_function("() => document.querySelector('#anonymize-written textarea').value.includes('stranger')")
    lines = written.input_value().splitlines()
    assert len(lines) == 3
    written.focus()
    written.fill("\n".join([lines[0].replace("stranger", "stays as it is"), lines[1], "9 4 60 4O grey for good"]))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("line 3: give left, top, right, bottom").wait_for()
    written.fill(written.input_value().replace("4O", "40"))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_timeout(1500)
    page.locator("#anonymize-seen input").focus()
    page.keyboard.press("Space")
    line = go(page, "anonymize", RIGHT, "done")
    assert line.startswith("1 face replaced by strangers")
    assert "1 hidden for good" in line
    assert "1 face left as they are" in line


def draw(page, start, end):
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    page.mouse.move(*end)
    page.mouse.up()
    page.wait_for_timeout(300)


def label(page, name):
    page.locator("input[role=listbox]").last.click()
    page.get_by_role("option", name=name).click()
    page.get_by_role("button", name="OK").click()
    page.wait_for_timeout(300)


def test_photos_are_looked_through_one_after_another(page, tmp_path):
    photo_party().save(tmp_path / "party.png")
    (tmp_path / "notes.png").write_text("no picture")
    names = ["party.png", "field.png", "notes.png"]
    noise(tmp_path / "field.png")
    page.locator("#anonymize-photo input[type=file]").set_input_files([str(tmp_path / name) for name in names])
    page.get_by_text("1 of 3: party.png").wait_for()
    page.locator("#anonymize-seen input").check()
    page.locator("#anonymize-next").click()
    page.get_by_text("2 of 3: field.png").wait_for()
    page.get_by_text("No face found. Draw a box").wait_for()
    assert not page.locator("#anonymize-seen input").is_checked()
    assert "Look at photo 2 of 3 first" in go(page, "anonymize", RIGHT, "failed")
    page.locator("#anonymize-seen input").check()
    page.locator("#anonymize-next").click()
    page.get_by_text("notes.png is not a picture").wait_for()
    page.locator("#anonymize-back").click()
    page.get_by_text("2 of 3: field.png").wait_for()
    assert page.locator("#anonymize-seen input").is_checked()
    assert go(page, "anonymize", RIGHT, "done").startswith("3 faces replaced by strangers in")
    assert "Traceback" not in page.content()


def film(path):
    """Two people before grey, one of them so pale that no detector sees her; 24 frames, 12 a second."""
    party = np.asarray(photo_party())
    shots = np.full((24, 200, 400, 3), 128, np.uint8)
    clear = np.asarray(Image.fromarray(party[14:270, 14:270]).resize((128, 128)))
    pale = np.asarray(Image.fromarray(party[14:270, 554:810]).resize((128, 128)))
    for frame, shot in enumerate(shots):
        shot[30:158, 20 + frame : 148 + frame] = clear
        shot[30:158, 240:368] = 120 + pale * 0.06
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", 12, options={"crf": "8"})
        stream.width, stream.height = 400, 200
        for shot in shots:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shot)))
        container.mux(stream.encode(None))
    return path


def test_a_film_gets_a_face_that_was_missed_and_loses_a_false_one(page, tmp_path):
    choose(page, "anonymize", film(tmp_path / "in.mp4"))
    page.get_by_text("Found: 1 person.").wait_for()
    at = on_the_photo(page, 400, "anonymize-frame-boxes")
    page.locator("#anonymize-frame-boxes .annotator-container").focus()
    page.keyboard.press("c")
    draw(page, at(265, 45), at(345, 150))
    page.locator("#anonymize-time input[type=number]").fill("23")
    page.locator("#anonymize-time input[type=number]").press("Enter")
    page.locator("#anonymize-timeline").get_by_text("new A").wait_for()
    page.wait_for_timeout(1500)
    page.locator("#anonymize-frame-boxes .annotator-container").focus()
    page.keyboard.press("c")
    draw(page, at(265, 45), at(345, 150))
    page.locator("#anonymize-people").get_by_label("person 1").uncheck()
    page.locator("#anonymize-seen input").check()
    line = go(page, "anonymize", RIGHT, "done")
    assert line.startswith("1 face replaced by strangers")
    assert "1 face left as they are" in line
    page.wait_for_selector("#anonymize-result img")
    shoot(page, "desk_film.webp")
    packed = save(page, "anonymize", tmp_path / "hidden.zip")
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path)
        assert archive.namelist() == ["in_anon.mp4", "in_anon.mp4.faceanon.json"]
    before, after = (list(read_frames(tmp_path / name)) for name in ("in.mp4", "in_anon.mp4"))
    for one, other in zip(before, after, strict=True):
        changed = np.abs(one.pixels.astype(int) - other.pixels).max(2) > 12
        # The middle of the face: how far a stranger reaches beyond it follows from the salt.
        assert changed[75:125, 290:320].mean() > 0.5
        assert changed[60:140, 40:180].mean() < 0.05
    page.locator("#anonymize-onward").click()
    page.locator("#recover-photo").get_by_text("faceanon").first.wait_for()
    assert "1 face brought back" in go(page, "recover", RIGHT, "done")
    back = save(page, "recover", tmp_path / "back.mp4")
    for one, other in zip(before, read_frames(back), strict=True):
        assert np.abs(one.pixels.astype(int) - other.pixels).mean() < 6


def test_mistakes_on_the_page(page, tmp_path):
    choose(page, "anonymize", noise(tmp_path / "field.png"))
    page.get_by_text("No face found. Draw a box").wait_for()
    page.locator("#anonymize-seen input").check()
    assert go(page, "anonymize", RIGHT, "failed").startswith("There is no box in field.png")
    page.get_by_role("tab", name="2. Recover").click()
    choose(page, "recover", tmp_path / "field.png")
    page.locator("#recover-photo").get_by_text("field").first.wait_for()
    assert "field.png carries no faceanon data" in go(page, "recover", RIGHT, "failed")
    assert "Traceback" not in page.content()


def test_what_is_no_picture_or_too_large_is_refused_at_the_door(page, tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    choose(page, "anonymize", tmp_path / "notes.txt")
    page.get_by_text("Invalid file type").first.wait_for()
    pixels = np.random.default_rng(0).integers(0, 256, (800, 800, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "large.png")
    page.reload()
    choose(page, "anonymize", tmp_path / "large.png")
    page.get_by_text("maximum allowed size").first.wait_for()
    assert page.locator("#anonymize-boxes canvas").count() == 0


def test_it_fits_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("#anonymize-photo", "#anonymize-password", "#anonymize-go", "#anonymize-result"):
        box = page.locator(name).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
