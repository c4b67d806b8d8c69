"""What the web page answers, without a browser; `test_web_page.py` walks through it."""

import asyncio
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from faceanon import cli
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.photo.boxes import read_decisions
from faceanon.photo.detect import Detection
from faceanon.photo.file import load_photo, read_manifest
from faceanon.pipeline import Pipeline
from faceanon.pipeline.video.frames import read_frames
from fakes import FixedDetector, KeyedTint, SealedPatch
from torchless import WITHOUT

missing = [name for name in ("gradio", "zxcvbn") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {' and '.join(missing)}")
if not missing:
    from faceanon.web.desk import OWN, Desk, Reply, methods
    from faceanon.web.limits import RateLimit, UploadGate
    from faceanon.web.strength import LAPTOP, duration, guess_rate, judge_password

RIGHT, WRONG = "tulips on the northern roof", "roses under the southern gate"


def faces():
    points = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]])
    places = [(80, 100, 25), (230, 110, 22)]
    return [Detection((x - e, y - e, x + e, y + 2 * e), 0.99, points * e + [x, y]) for x, y, e in places]


def noise(path, size=(320, 240), seed=0):
    small = np.random.default_rng(seed).integers(40, 216, (size[1] // 20, size[0] // 20, 3), dtype=np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(path)
    return str(path)


def cheap(text, salt, parameters=None):
    return Secret(hashlib.sha3_256(text.encode() + salt).digest())


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.setattr(Secret, "from_password", cheap)
    (tmp_path / "results").mkdir()
    tools = methods(Pipeline(KeyedTint(), FixedDetector(faces()), name="tint"))
    return Desk(tools, tmp_path / "results", RateLimit(20, 60))


def hide(desk, photo, password=RIGHT, method=OWN, client="me"):
    """Open a photo, say that its boxes are right, and anonymize it."""
    review = desk.open([str(photo)])
    if isinstance(review, Reply):
        return review
    desk.look(review)
    review.current.seen = True
    return desk.anonymize(review, password, method, client)


def error(one, other):
    return np.abs(load_photo(one).pixels.astype(float) - load_photo(other).pixels).mean()


def test_there_and_back_again(desk, tmp_path):
    photo = noise(tmp_path / "party.png")
    hidden = hide(desk, photo, RIGHT, OWN, "me")
    assert hidden.file.name == "party_anon.png"
    assert hidden.line.startswith("2 faces replaced by strangers in ")
    assert read_manifest(load_photo(hidden.file)).faces == 2
    right, wrong = (desk.recover(str(hidden.file), word, "me") for word in (RIGHT, WRONG))
    assert right.file.name == "party_back.png"
    assert error(photo, right.file) < 1 < error(photo, hidden.file)
    assert error(photo, wrong.file) > 3 * error(photo, right.file)
    assert "If these are strangers, the password is another one" in wrong.line
    assert not [reply for reply in (hidden, right, wrong) if RIGHT in reply.line or WRONG in reply.line]


def test_a_model_with_sealed_codes_refuses_a_wrong_password(desk, tmp_path, sealed_bundle):
    desk.pipelines[OWN] = Pipeline(SealedPatch(str(sealed_bundle)), FixedDetector(faces()))
    hidden = hide(desk, noise(tmp_path / "party.png"), RIGHT, OWN, "me")
    right, wrong = (desk.recover(str(hidden.file), word, "me") for word in (RIGHT, WRONG))
    assert right.line.startswith("2 faces brought back in ")
    assert "strangers" not in right.line
    assert wrong.file is None
    assert wrong.line.startswith("party_anon.png: wrong password")


def test_what_was_anonymized_already_is_refused_in_a_line(desk, tmp_path):
    hidden = hide(desk, noise(tmp_path / "party.png"), RIGHT, OWN, "me")
    twice = hide(desk, str(hidden.file), RIGHT, OWN, "me")
    assert twice.file is None
    assert twice.line.startswith("party_anon.png was anonymized by faceanon already: recover it first")


@pytest.mark.parametrize("method", ["blur", "pixelate", "mask"])
def test_classical_methods_hide_for_good(desk, tmp_path, method):
    hidden = hide(desk, noise(tmp_path / "party.png"), RIGHT, method, "me")
    assert f"2 faces hidden for good by {method}" in hidden.line
    again = desk.recover(str(hidden.file), RIGHT, "me")
    assert again.file is None
    assert "cannot recover faces; nothing brings party_anon.png back" in again.line


def test_every_mistake_is_one_clear_line(desk, tmp_path, monkeypatch):
    (tmp_path / "notes.png").write_text("no picture")
    plain = noise(tmp_path / "plain.png")
    notes = str(tmp_path / "notes.png")
    with monkeypatch.context() as patch:
        patch.setattr(desk.pipelines[OWN].detector, "detections", [])
        blind = hide(desk, plain)
    replies = {
        "Choose a picture first": desk.anonymize(None, RIGHT, OWN, "me"),
        "Type a password first": hide(desk, plain, "", OWN, "me"),
        "longer than 256 characters": hide(desk, plain, "x" * 257, OWN, "me"),
        "not valid Unicode": hide(desk, plain, "\ud800", OWN, "me"),
        "already forgotten": desk.recover(str(tmp_path / "gone.png"), RIGHT, "me"),
        "notes.png is not a picture": hide(desk, notes, RIGHT, OWN, "me"),
        "no box in plain.png, so there is nothing to hide": blind,
        "plain.png carries no faceanon data": desk.recover(plain, RIGHT, "me"),
    }
    for expected, reply in replies.items():
        assert expected in reply.line
        assert reply.file is None
        assert str(tmp_path) not in reply.line
        assert "\n" not in reply.line
        assert "--" not in reply.line


def test_another_model_is_named(desk, tmp_path):
    hidden = hide(desk, noise(tmp_path / "a.png"), RIGHT, OWN, "me")
    other = KeyedTint()
    other.strength.data += 0.1
    desk.pipelines = methods(Pipeline(other, FixedDetector([]), name="other"))
    line = desk.recover(str(hidden.file), RIGHT, "me").line
    assert "was anonymized with the model tint" in line
    assert "this page runs other" in line


def test_a_file_cannot_ask_for_an_absurd_derivation(desk, tmp_path, monkeypatch):
    with Image.open(hide(desk, noise(tmp_path / "a.png"), RIGHT, OWN, "me").file) as image:
        image.load()
    values = json.loads(image.info["faceanon"])
    values["kdf"] |= {"memory_kib": 1 << 20, "iterations": 16}  # a gigabyte, half a minute
    chunk = PngInfo()
    chunk.add_text("faceanon", json.dumps(values))
    image.save(tmp_path / "dear.png", pnginfo=chunk)
    monkeypatch.setattr(Secret, "from_password", lambda *words: pytest.fail("derived"))
    reply = desk.recover(str(tmp_path / "dear.png"), RIGHT, "me")
    assert reply.file is None
    assert "the file asks for 1024 MiB in 16 passes, and at most 256 MiB" in reply.line
    assert "\n" not in reply.line
    assert "--" not in reply.line


def test_what_the_visitor_made_of_the_boxes_is_done(desk, tmp_path):
    photo = noise(tmp_path / "large.png", (2400, 1800))
    points = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]])
    places = [(600, 700, 150), (1700, 800, 140)]
    desk.pipelines[OWN].detector = FixedDetector(
        [Detection((x - e, y - e, x + e, y + 2 * e), 0.99, points * e + [x, y]) for x, y, e in places]
    )
    review = desk.open([photo])
    line, screen = desk.look(review)
    assert line.startswith("Found: 2 faces, scores 0.99, 0.99.")
    assert screen.shape == (900, 1200, 3)
    first, second = review.current.boxes
    assert first == {"xmin": 225, "ymin": 275, "xmax": 375, "ymax": 500, "label": "stranger", "color": (13, 148, 136)}
    review.current.boxes = [
        {**second, "label": "stays as it is"},
        {**first, "ymin": 276},  # by rounding
        {"xmin": 0, "ymin": 0, "xmax": 100, "ymax": 50, "label": "grey for good", "color": (0, 0, 0)},
        {"xmin": 900, "ymin": 0, "xmax": 1000, "ymax": 100, "label": "", "color": (0, 0, 0)},
    ]
    (decided,) = review.current.decided()
    kept, found, region, drawn = decided.boxes
    assert (kept.choice, kept.score, kept.region) == ("keep", 0.99, False)
    assert np.array_equal(found.points, points * 150 + [600, 700])
    assert (region.choice, region.region, region.box) == ("mask", True, (0, 0, 200, 100))
    assert (drawn.choice, drawn.points, drawn.box) == ("stranger", None, (1800, 0, 2000, 200))
    unseen = desk.anonymize(review, RIGHT, OWN, "me")
    assert unseen.line == "Look at photo 1 of 1 first, and say that you have seen it."
    review.current.seen = True
    reply = desk.anonymize(review, RIGHT, OWN, "me")
    assert reply.line.startswith("1 face replaced by strangers in ")
    assert "2 hidden for good" in reply.line
    assert "1 face left as they are" in reply.line
    assert read_decisions(reply.boxes).photos == review.current.decided()


def test_boxes_are_lines_of_text_too():
    from faceanon.web.review import LABELS, ReviewedPhoto, as_lines, from_lines

    colours = ReviewedPhoto(Path("photo.png")).colours
    assert list(colours) == list(LABELS)
    text = "10 20 110 140 another stranger\n\n0 0 5 5 grey for good"
    boxes = from_lines(text, colours)
    assert [box["label"] for box in boxes] == ["another stranger", "grey for good"]
    assert as_lines(boxes) == text.replace("\n\n", "\n")
    assert from_lines(as_lines(boxes), colours) == boxes
    for line, said in (
        ("10 20 110 stranger", "line 1: give left, top, right, bottom"),
        ("-1 20 110 140 stranger", "line 1: give left"),
        ("10 20 110 140", "line 1: give left"),
        ("110 20 10 140 stranger", "line 1: the right edge"),
        ("1 2 3 4 stranger\n10 20 110 140 a fourth stranger", "line 2: no 'a fourth stranger'; a box is one of: str"),
    ):
        with pytest.raises(UserError, match=said):
            from_lines(line, colours)


def test_several_photos_become_one_file_and_their_boxes_another(desk, tmp_path):
    (tmp_path / "b").mkdir()
    paths = [noise(tmp_path / "a.png"), noise(tmp_path / "b/a.png", seed=1), noise(tmp_path / "c.png", seed=2)]
    (tmp_path / "notes.png").write_text("no picture")
    review = desk.open([*paths, str(tmp_path / "notes.png")])
    for number in range(4):
        desk.look(review)
        assert review.index == number
        review.current.seen = number != 1
        if number == 2:
            review.current.boxes = []
        review.step(1)
    assert review.current.failed.startswith("notes.png is not a picture")
    assert desk.anonymize(review, RIGHT, OWN, "me").line.startswith("Look at photo 2 of 4 first")
    review.photos[1].seen = True
    reply = desk.anonymize(review, RIGHT, OWN, "me")
    assert reply.line.startswith("4 faces replaced by strangers in 2 files")
    with zipfile.ZipFile(reply.file) as archive:
        assert archive.namelist() == ["a_anon.png", "a_anon_2.png"]
    # The file of boxes brings the decisions back, and earlier ones stay.
    again = desk.open([paths[2], str(reply.boxes)])
    desk.look(again)
    assert again.current.boxes == []
    more = desk.open([paths[0], paths[2]], review)
    assert more.photos[0] is review.photos[0]
    assert desk.open([paths[0], str(tmp_path / "notes.png").replace("png", "json")]).line.startswith("cannot read")
    assert "takes 100 photos at once" in desk.open([paths[0]] * 101).line


def film(path, frames=12):
    """Noise that stands still, in which a detector is told of faces."""
    shot = np.asarray(Image.open(noise(path.with_suffix(".png"))))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", 12, options={"crf": "8"})
        stream.width, stream.height = 320, 240
        for _ in range(frames):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shot)))
        container.mux(stream.encode(None))
    return str(path)


def test_a_film_under_review(desk, tmp_path):
    path = film(tmp_path / "in.mp4")
    review = desk.open([path])
    line, screen = desk.look(review)
    item = review.current
    assert line.startswith("Found: 2 people.")
    assert screen.shape == (240, 320, 3)
    assert [box["label"] for box in item.boxes()] == ["person 1", "person 2"]
    assert "<b>person 1</b>" in item.timeline()
    assert "0:00.0 to 0:00.8" in item.timeline()
    # Nothing was touched, so nothing changes.
    before = item.decided()
    item.keep(item.boxes(), ["person 1", "person 2"], [])
    assert item.decided() == before
    item.keep(item.boxes(), ["person 1", "person 2"], ["person 2"])
    assert {(box.track, box.stranger) for part in item.decided() for box in part.boxes} == {(0, 0), (1, 1)}
    # One stays, one is drawn in the first and in the last frame, and a box is moved in the middle.
    drawn = {"xmin": 10, "ymin": 150, "xmax": 60, "ymax": 220, "label": "new A", "color": (0, 0, 0)}
    item.keep([*item.boxes(), drawn], ["person 1"], [])
    item.frame = 11
    item.keep([*item.boxes(), {**drawn, "xmin": 30, "xmax": 80}], ["person 1", "new A"], [])
    item.frame = 6
    shown = {box["label"]: box for box in item.boxes()}
    assert shown["new A"]["xmin"] == 21
    assert shown["person 2"]["color"] == (100, 116, 139)
    shown["person 1"]["xmin"] -= 5
    item.keep(list(shown.values()), ["person 1", "new A"], [])
    assert item.people[0].boxes[6].points is None
    item.seen = True
    reply = desk.anonymize(review, RIGHT, OWN, "me")
    assert reply.line.startswith("2 faces replaced by strangers in ")
    assert "1 face left as they are" in reply.line
    assert reply.picture.name == "in_anon.preview.png"
    boxes = read_decisions(reply.boxes)
    assert boxes.of_film("in.mp4", 320, 240).keys() == {part.frame for part in item.decided()}
    back = desk.recover(str(reply.file), RIGHT, "me")
    assert back.line.startswith("2 faces drawn as this password says in "), back.line
    originals, hidden, returned = (list(read_frames(file)) for file in (Path(path), reply.file, back.file))
    for one, other, third in zip(originals, hidden, returned, strict=True):
        change = np.abs(one.pixels.astype(int) - other.pixels).mean(2)
        assert change[160:210, 25:65].mean() > 5
        assert change[95:140, 215:245].mean() < 5  # who stays
        assert np.abs(one.pixels.astype(int) - third.pixels).mean() < 5
    # Beyond the end, which files name wrongly, the film begins anew.
    item.frame = 12
    assert item.screen().shape == (240, 320, 3)
    assert (item.frame, item.frames) == (0, 12)
    # The boxes bring everybody back.
    again = desk.open([path, str(reply.boxes)])
    desk.look(again)
    assert [person.hidden for person in again.current.people] == [True, False, True]
    # A person without a box is nobody, and a film without people is told so.
    item.frame = 0
    for person in item.people[1:]:
        person.boxes = {0: person.boxes[0]}
    item.keep([box for box in item.boxes() if box["label"] == "person 1"], ["person 1"], [])
    assert [person.name for person in item.people] == ["person 1"]
    desk.pipelines[OWN].detector = FixedDetector([])
    empty = desk.open([path])
    assert desk.look(empty)[0].startswith("No face found. Draw a box in the first and in the last frame")
    empty.current.seen = True
    assert desk.anonymize(empty, RIGHT, OWN, "me").file is None


@pytest.mark.parametrize("method", ["blur", "mask"])
def test_a_film_is_hidden_for_good(desk, tmp_path, method):
    review = desk.open([film(tmp_path / "in.mp4")])
    desk.look(review)
    review.current.seen = True
    reply = desk.anonymize(review, RIGHT, method, "me")
    assert reply.line.startswith(f"2 faces hidden for good by {method}")
    again = desk.recover(str(reply.file), RIGHT, "me")
    assert again.file is None
    assert "cannot recover faces" in again.line


def test_a_film_and_a_photo_go_into_one_zip_and_come_back(desk, tmp_path):
    review = desk.open([film(tmp_path / "in.mp4"), noise(tmp_path / "photo.png")])
    for item in review.photos:
        desk.look(review)
        item.seen = True
        review.step(1)
    reply = desk.anonymize(review, RIGHT, OWN, "me")
    assert reply.line.startswith("4 faces replaced by strangers in 2 files")
    with zipfile.ZipFile(reply.file) as archive:
        assert archive.namelist() == ["in_anon.mp4", "photo_anon.png"]
    back = desk.recover(str(reply.file), RIGHT, "me")
    assert back.line.startswith("4 faces ")
    with zipfile.ZipFile(back.file) as archive:
        assert archive.namelist() == ["in_back.mp4", "photo_back.png"]


def test_zips_of_strangers(desk, tmp_path):
    hidden = hide(desk, noise(tmp_path / "a.png")).file
    for name, entries, expected in (
        ("climbing.zip", {"../../a_anon.png": hidden.read_bytes()}, "2 faces"),
        ("empty.zip", {}, "empty.zip holds no picture and no film"),
        ("other.zip", {"notes.txt": b"text"}, "notes.txt"),
        ("many.zip", {f"{number}.png": b"" for number in range(400)}, "more than this page writes"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for inside, data in entries.items():
                archive.writestr(inside, data)
        reply = desk.recover(str(tmp_path / name), RIGHT, "me")
        assert expected in reply.line
        assert str(tmp_path) not in reply.line
    assert not (tmp_path / "a_anon.png").exists()
    (tmp_path / "cut.zip").write_bytes((tmp_path / "climbing.zip").read_bytes()[:-30])
    assert "is no ZIP that can be opened" in desk.recover(str(tmp_path / "cut.zip"), RIGHT, "me").line


def test_a_bug_shows_in_the_terminal_and_not_on_the_page(desk, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("faceanon.web.results.anonymize_file", lambda *words: 1 / 0)
    reply = hide(desk, noise(tmp_path / "a.png"), RIGHT, OWN, "me")
    assert reply.line == "faceanon failed on this picture; the terminal that runs this page says why."
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    assert RIGHT not in shown


def test_results_are_removed_after_the_handover(desk, tmp_path):
    desk.handover = 0.01
    hide(desk, noise(tmp_path / "a.png"), RIGHT, OWN, "me")
    for timer in [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]:
        if timer.interval < 1:
            timer.join(10)
    assert list(desk.folder.iterdir()) == []


def test_each_client_has_a_rate_of_its_own(desk, tmp_path):
    now = [0.0]
    desk.limit = RateLimit(2, 60, lambda: now[0])
    photo = noise(tmp_path / "a.png")
    lines = [hide(desk, photo, RIGHT, OWN, client).line for client in ("me", "me", "me", "you")]
    assert [line.startswith("Too many requests") for line in lines] == [False, False, True, False]
    assert "at most 2 pictures in 60 s: try again in 60 s" in lines[2]
    now[0] = 61.0
    assert desk.limit.wait("me") == 0
    assert set(desk.limit._seen) == {"me"}


def ask(app, path, method="POST"):
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "client": ("1.2.3.4", 5), "headers": []}
    asyncio.run(app(scope, None, send))
    return sent[0]["status"], dict(sent[0]["headers"])


def test_the_gate_counts_uploads_and_forbids_other_places():
    async def inner(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Cache-Control", b"public")]})
        await send({"type": "http.response.body", "body": b""})

    gate = UploadGate(inner, RateLimit(1, 60))
    assert [ask(gate, "/gradio_api/upload")[0] for _ in range(2)] == [200, 429]
    status, headers = ask(gate, "/gradio_api/upload", "GET")
    assert status == 200
    assert headers[b"cache-control"] == b"no-store"
    assert b"Cache-Control" not in headers
    assert headers[b"content-security-policy"].startswith(b"default-src 'self';")


def taken_by_the_gate(messages):
    """What the page gets of an upload, message by message."""
    taken = []

    async def inner(scope, receive, send):
        for _ in messages:
            taken.append((await receive())["type"])

    async def receive():
        return left.pop(0)

    left = list(messages)
    scope = {"type": "http", "method": "POST", "path": "/gradio_api/upload", "client": ("1.2.3.4", 5), "headers": []}
    asyncio.run(UploadGate(inner, RateLimit(1, 60))(scope, receive, None))
    return taken


def test_an_upload_that_breaks_off_is_a_malformed_form():
    from starlette.formparsers import MultiPartException

    half = {"type": "http.request", "body": b"half", "more_body": True}
    rest = {"type": "http.request", "body": b"rest", "more_body": False}
    gone = {"type": "http.disconnect"}
    # Whoever has sent everything may go before the answer.
    assert taken_by_the_gate([half, rest, gone]) == ["http.request", "http.request", "http.disconnect"]
    for messages in ([half, gone], [gone]):
        with pytest.raises(MultiPartException, match="broke off"):
            taken_by_the_gate(messages)


def test_strength_follows_the_guesses_and_echoes_nothing():
    found = [judge_password(word, 8.0) for word in ("password", "rover1987", "Kf8#pq2!", RIGHT)]
    assert [one.level for one in found][:1] == ["very weak"]
    assert found[-1].level == "strong"
    assert [one.guesses for one in found] == sorted(one.guesses for one in found)
    assert judge_password("Kf8#pq2!", 0.008).seconds == pytest.approx(1000 * found[2].seconds)
    for word in ("zyxwvutq", "\ud800abc", "<b>x</b>", "x" * 1000):
        assert word not in judge_password(word, 8.0).describe()


def test_a_busy_machine_makes_no_password_look_better(monkeypatch):
    monkeypatch.setattr(Secret, "from_password", lambda *words: time.sleep(0.2))
    assert guess_rate() == LAPTOP
    monkeypatch.setattr(Secret, "from_password", lambda *words: time.sleep(0.001))
    assert LAPTOP < guess_rate() <= 1000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "less than a second"), (1, "1 second"), (7300, "2 hours"), (9e7, "3 years"), (1e20, "over a million years")],
)
def test_durations_are_for_people(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--port", "70000"], "--port is 70000"),
        (["--rate", "0"], "--rate is 0; give 1 or more"),
        (["--model", "nowhere"], "no model at nowhere"),
    ],
)
def test_mistakes_on_the_command_line(capsys, words, expected):
    assert cli.main(["web", *words]) == 2
    assert expected in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_other_hosts_get_a_warning(capsys, monkeypatch, host, warned):
    def refuse(pipeline, settings):
        raise UserError(f"asked for {settings.host}")

    monkeypatch.setattr("faceanon.commands.web.load_pipeline", lambda options, photos: None)
    monkeypatch.setattr("faceanon.web.server.serving", refuse)
    assert cli.main(["web", "--host", host]) == 2
    said = capsys.readouterr().err
    assert f"asked for {host}" in said
    assert ("passwords travel unencrypted" in said) == warned


def test_without_the_extra(capsys, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gradio" else real(name))
    assert cli.main(["web"]) == 2
    assert capsys.readouterr().err == "faceanon: the web page needs gradio: pip install 'faceanon[web]'\n"


FETCHING = """
import asyncio, sys
import gradio
from gradio import processing_utils
from faceanon.web.page import _fetching_nothing, _results

async def never(*words, **options):
    raise AssertionError("the page fetched something")

async def moved(picture, path):
    try:
        return await picture.async_move_resource_to_block_cache(path)
    except gradio.Error as error:
        return error.message

async def main():
    for picture in pictures:
        print(await moved(picture, "https://example.org/a.png"), await moved(picture, sys.argv[1]))

processing_utils.async_ssrf_protected_download = never
with gradio.Blocks():
    pictures = _fetching_nothing(gradio.File()), _results("a", "d")[0]
asyncio.run(main())
"""


def test_no_visitor_makes_the_page_fetch_an_address(tmp_path):
    """In a process of its own: Gradio reads its settings when it is imported."""
    settings = {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_TEMP_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", FETCHING, noise(tmp_path / "photo.png")]
    paths = {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    done = subprocess.run(command, env={**os.environ, **settings, **paths}, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    for line in lines:
        assert line.startswith("this page fetches nothing; choose a file ")
        assert line.endswith("photo.png")


def test_the_page_s_methods_need_no_torch(tmp_path):
    program = """
from pathlib import Path
from faceanon.commands._files import MANY, load_pipeline
from faceanon.commands.web import WebOptions
from faceanon.photo.party import photo_party
from faceanon.web.desk import OWN, Desk, Reply, methods
from faceanon.web.limits import RateLimit
import sys
photo_party().save("in.png")
options = WebOptions(None, "cpu", "127.0.0.1", 0, 20, 20)
desk = Desk(methods(load_pipeline(options, photos=MANY)), Path.cwd(), RateLimit(20, 60))
for name in (OWN, "blur"):
    review = desk.open(["in.png"])
    desk.look(review)
    review.current.seen = True
    reply = desk.anonymize(review, "a password that is long enough", name, "me")
    assert reply.line.startswith("3 faces "), reply.line
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
