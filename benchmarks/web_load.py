"""Does the web page stand fifty users at once, some of whom send what they should not?

  python benchmarks/web_load.py --users 50
  python benchmarks/web_load.py --users 8 --seconds 600

It starts `faceanon web` as a process of its own and lets all users in at the same moment, each from an address of its
own (127.0.0.2, 127.0.0.3, ...: Linux) with a picture of its own: one invented person before a pattern that no other
user has. Of every ten users six send an ordinary photo; the others each one of these: a file over the limit of the
page, a file cut short, an upload that breaks off in the middle, and something hostile (a PNG that claims 900 million
pixels, a web page named .png, a file name that climbs out of its folder, the path of a file of the server, an address
to fetch). Then it is checked that the server lives and has thrown no error, that each ordinary user got exactly one
picture and it is the user's own (beyond the face it has the user's pattern), that nobody else got one, and that an
ordinary photo is served afterwards. Printed are seconds and the server's memory before, at its highest and afterwards.
The exit code is 1 if anything is wrong. A user who finds the queue full waits and tries again, as the page says.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from faceanon.paths import checkpoints

KINDS = ("ordinary",) * 6 + ("oversized", "cut", "broken off", "hostile")
HOSTILE = ("bomb", "page", "climbing name", "path of the server", "address")
LARGEST = 2  # MB of an upload, as the page is started here
SIDE = 160  # pixels of the person
BORDER = 24  # pixels of the pattern around, in which no face is painted
OWN = 3.0  # of 255: mean difference of the borders up to which a picture is the user's own
Pixels = NDArray[np.uint8]


@dataclass
class Visit:
    """What one user sent and got.

    Args:
        user: Number of the user, from 0.
        kind: One of `KINDS`, with what exactly where it is hostile.
        answer: The picture that came back, or None.
        line: What the page said, or how it refused.
        seconds: Until the answer.
        waits: How often the queue was full.
    """

    user: int
    kind: str
    answer: Pixels | None = None
    line: str = ""
    seconds: float = 0.0
    waits: int = 0


def photo_of(user: int) -> Image.Image:
    """A user's photo: a person before a pattern that nobody else has."""
    files = sorted((checkpoints() / "photo128" / "pictures").glob("*.jpg"))
    draw = np.random.default_rng(user)
    side = SIDE + 2 * BORDER
    cells = draw.integers(0, 256, (13, 13, 3), dtype=np.uint8)
    photo = Image.fromarray(cells).resize((side, side), Image.Resampling.NEAREST)
    with Image.open(files[user % len(files)]) as person:
        photo.paste(person.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC), (BORDER, BORDER))
    return photo


def border_of(pixels: Pixels) -> NDArray[np.float64]:
    """The outermost pixels of a photo, `(n, 3)`."""
    edge = BORDER // 2
    sides = (pixels[:edge], pixels[-edge:], pixels[:, :edge], pixels[:, -edge:])
    return np.concatenate([side.reshape(-1, 3) for side in sides]).astype(np.float64)


def png_of(photo: Image.Image) -> bytes:
    """The photo as a PNG file."""
    file = io.BytesIO()
    photo.save(file, "png")
    return file.getvalue()


def bomb() -> bytes:
    """A PNG of a few bytes that claims to hold 30,000 x 30,000 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(100_000))) + chunk(b"IEND", b"")


class User:
    """A visitor of the page, who speaks to it as its own script does.

    Args:
        address: Of the page.
        number: Of the user; decides its own address and its picture.
        functions: Numbers of the functions that open photos and that anonymize them.
        until: When it gives up, in seconds of `time.monotonic`.
    """

    def __init__(self, address: str, number: int, functions: tuple[int, int], until: float) -> None:
        self.address = address
        self.number = number
        self.functions = functions
        self.until = until
        self.source = f"127.0.{1 + number // 250}.{2 + number % 250}"
        self.client = httpx.Client(
            base_url=f"{address.rstrip('/')}/gradio_api",
            transport=httpx.HTTPTransport(local_address=self.source),
            timeout=None,  # `until` ends it
        )
        self.session = f"user{number}-{random.getrandbits(40):x}"

    def visit(self, kind: str) -> Visit:
        """Send what this kind of user sends; whatever the page does is in the result."""
        visit = Visit(self.number, kind)
        start = time.monotonic()
        with self.client, contextlib.suppress(httpx.HTTPError):
            self._send(kind, visit)
        visit.seconds = time.monotonic() - start
        return visit

    def _send(self, kind: str, visit: Visit) -> None:
        photo = png_of(photo_of(self.number))
        name = f"party{self.number}.png"
        if kind == "broken off":
            self._break_off(photo)
            visit.line = "broken off"
            return
        if kind == "hostile":
            trick = HOSTILE[self.number // len(KINDS) % len(HOSTILE)]
            visit.kind = f"hostile: {trick}"
            if trick in ("path of the server", "address"):
                wanted = "/etc/passwd" if trick == "path of the server" else "http://127.0.0.1:1/a.png"
                self._ask(wanted, visit)
                return
            if trick == "bomb":
                photo = bomb()
            elif trick == "page":
                photo = b"<html><script>alert(1)</script></html>"
            else:
                name = f"../../../party{self.number}.png"
                photo = photo[: len(photo) // 2]
        elif kind == "oversized":
            photo = os.urandom(LARGEST * 1_000_000 + 500_000)
        elif kind == "cut":
            photo = photo[: len(photo) // 2]
        reply = self.client.post("/upload", files={"files": (name, photo, "image/png")})
        if reply.status_code != 200:
            visit.line = f"{reply.status_code} {reply.text:.80}"
            return
        self._ask(reply.json()[0], visit)

    def _ask(self, path: str, visit: Visit) -> None:
        """Open an uploaded file, say that the boxes are right, press the button, and take what comes."""
        look, work = self.functions
        file = {"path": path, "meta": {"_type": "gradio.FileData"}}
        opened = self._done(look, [[file], None], visit)
        if opened is None:
            return
        boxes, line = opened[2], opened[10]
        visit.line = str(line)
        if boxes is None:
            return
        # As a browser sends them back.
        for box in boxes["boxes"]:
            box["color"] = f"rgb({', '.join(map(str, box['color']))})"
        word = f"the password of user {self.number}"
        answer = self._done(work, [word, "stranger", None, boxes, None, [], [], True], visit)
        if answer is None:
            return
        picture, line = answer[:2]
        visit.line = str(line)
        if picture is not None:
            reply = self.client.get(f"/file={picture['path']}")
            with Image.open(io.BytesIO(reply.content)) as image:
                visit.answer = np.asarray(image.convert("RGB"))

    def _done(self, function: int, data: list[Any], visit: Visit) -> list[Any] | None:
        """What a function of the page gives; None where it refuses, which the visit then says."""
        body = {"data": data, "fn_index": function, "session_hash": self.session}
        while time.monotonic() < self.until:
            reply = self.client.post("/queue/join", json=body)
            if reply.status_code == 200:
                break
            visit.line = f"{reply.status_code} {reply.text:.80}"
            if reply.status_code != 503:
                return None
            visit.waits += 1
            time.sleep(random.uniform(0.5, 2))
        for message in self._messages():
            if message["msg"] == "process_completed":
                if message["success"]:
                    given: list[Any] = message["output"]["data"]
                    return given
                visit.line = f"refused: {message['output'].get('error')}"
                return None
        return None

    def _messages(self) -> Iterator[dict[str, Any]]:
        with self.client.stream("GET", "/queue/data", params={"session_hash": self.session}) as stream:
            for line in stream.iter_lines():
                if time.monotonic() > self.until:
                    return
                if line.startswith("data:"):
                    yield json.loads(line[5:])

    def _break_off(self, photo: bytes) -> None:
        """Begin an upload, send half of it, and hang up."""
        host, port = self.address.split("//")[1].strip("/").split(":")
        head = (
            f"POST /gradio_api/upload HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(photo) + 300}\r\n"
            "Content-Type: multipart/form-data; boundary=edge\r\n\r\n"
            '--edge\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
        )
        with socket.create_connection((host, int(port)), source_address=(self.source, 0)) as connection:
            connection.sendall(head.encode() + photo[: len(photo) // 2])
            time.sleep(0.5)


class Memory(threading.Thread):
    """Resident memory of a process in MB (Linux), looked at five times a second."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process = process
        self.highest = 0.0
        self.over = threading.Event()

    def now(self) -> float:
        """Resident memory at this moment."""
        for line in Path(f"/proc/{self.process}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def run(self) -> None:
        """Look until it is over."""
        while not self.over.wait(0.2):
            self.highest = max(self.highest, self.now())


def check(visits: list[Visit]) -> list[str]:
    """What is wrong with the answers; one line a fault."""
    borders = [border_of(np.asarray(photo_of(visit.user))) for visit in visits]
    faults = []
    for visit, own in zip(visits, borders, strict=True):
        who = f"user {visit.user} ({visit.kind})"
        if visit.kind != "ordinary":
            if visit.answer is not None:
                faults.append(f"{who}: got a picture")
            if not visit.line:
                faults.append(f"{who}: got no answer at all")
            continue
        if visit.answer is None:
            faults.append(f"{who}: got no picture: {visit.line}")
            continue
        answer = border_of(visit.answer)
        if answer.shape != own.shape or np.abs(answer - own).mean() > OWN:
            whose = []
            for other, border in zip(visits, borders, strict=True):
                if answer.shape == border.shape and np.abs(answer - border).mean() <= OWN:
                    whose.append(other.user)
            faults.append(f"{who}: got another picture, of {whose or 'nobody'}")
    return faults


def errors_in(log: str) -> list[str]:
    """Errors that the server has thrown; the framework's refusal of a path that nobody uploaded is none."""
    faults = []
    for error in log.split("Traceback")[1:]:
        if "InvalidPathError" not in error:
            faults.append(f"the server's log holds an error: {error[-2000:]}")
    return faults


def serve(scratch: Path, words: list[str]) -> tuple[subprocess.Popen[str], str]:
    """The page, started, and its address."""
    line = [sys.executable, "-m", "faceanon", "web", "--max-upload", str(LARGEST), *words]
    with (scratch / "server.log").open("w", encoding="utf-8") as log:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch)}
        process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    said = process.stdout.readline()
    if "http://" not in said:
        sys.exit((scratch / "server.log").read_text(encoding="utf-8"))
    return process, said.split("is at ")[1].split()[0]


def functions_of(address: str) -> tuple[int, int]:
    """Numbers of the functions that open photos and that anonymize them, by what they take."""
    config = httpx.get(f"{address.rstrip('/')}/config", timeout=60).json()
    kinds = {part["id"]: part["type"] for part in config["components"]}
    numbers = {}
    for number, function in enumerate(config["dependencies"]):
        taken = tuple(kinds[part] for part in function["inputs"])
        numbers[taken] = int(function.get("id", number))
    try:
        left = ("image_annotator", "image_annotator", "checkboxgroup", "checkboxgroup", "checkbox")
        return numbers["file", "state"], numbers[("textbox", "radio", "state", *left)]
    except KeyError:
        sys.exit("the page has no function that anonymizes")


def main() -> int:
    """Let the users in, check, and print; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=900.0, help="after which users give up")
    parser.add_argument("words", nargs="*", help="further words for `faceanon web`, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        process, address = serve(scratch, options.words)
        memory = Memory(process.pid)
        try:
            before = memory.now()
            memory.start()
            functions = functions_of(address)
            until = time.monotonic() + options.seconds
            start = time.monotonic()
            users = [User(address, number, functions, until) for number in range(options.users)]
            with ThreadPoolExecutor(options.users) as pool:
                jobs = [pool.submit(user.visit, KINDS[user.number % len(KINDS)]) for user in users]
                visits = [job.result() for job in jobs]
            seconds = time.monotonic() - start
            last = User(address, options.users, functions, time.monotonic() + 120).visit("ordinary")
            faults = check([*visits, last])
            after = memory.now()
            # A finished upload has a folder of its own; a file beside these folders is what is left of another. Gradio
            # itself leaves an empty one for each file that a function is given.
            for path in scratch.glob("faceanon-demo-*/uploads/*"):
                if path.is_file() and path.stat().st_size:
                    faults.append(f"{path.name}: left of an upload that broke off")
            if process.poll() is not None:
                faults.append(f"the server ended with {process.returncode}")
        finally:
            memory.over.set()
            process.terminate()
            process.wait(60)
        faults += errors_in((scratch / "server.log").read_text(encoding="utf-8"))
    served = [visit.seconds for visit in visits if visit.kind == "ordinary"]
    waits = sum(visit.waits for visit in visits)
    print(f"{options.users} users in {seconds:.0f} s; {dict(collections.Counter(visit.kind for visit in visits))}")
    print(f"an ordinary photo took {statistics.median(served):.1f} s ({min(served):.1f} to {max(served):.1f})")
    print(f"the queue was full {waits} times")
    print(f"memory of the server: {before:.0f} MB before, {memory.highest:.0f} at its highest, {after:.0f} afterwards")
    for visit in visits:
        if visit.kind != "ordinary":
            print(f"user {visit.user}, {visit.kind}: {visit.line[:160]}")
    for fault in faults:
        print(f"wrong: {fault}")
    print(f"{len(faults)} fault(s)")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
