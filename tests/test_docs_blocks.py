"""Every code block of the README, the tutorials and the explanations runs, in order, in a directory of its own.

A block is run unless it says otherwise: `<!-- test: skip REASON -->` on the line before its fence. Trainings are made
small by what `SHRINK` appends to their commands, and by a clone that ships few pictures; nothing else about a block is
changed.
"""

import argparse
import importlib
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from faceanon.cli import COMMANDS, TRAINING
from faceanon.photo.party import photo_party

REPO = Path(__file__).resolve().parents[1]
PAGES = [
    REPO / "README.md",
    *sorted((REPO / "docs/tutorials").glob("*.md")),
    *sorted((REPO / "docs/explanation").glob("*.md")),
]
EVERY_PAGE = [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?:<!-- test: (?P<note>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
SILENT = ("text", "yaml", "json", "csv", "html")  # shown, not run
PASSWORD = "correct horse battery staple"
SECONDS = 1800  # for one block: README trains and tests DBAF in one

SHRINK = {  # command: what is appended, so that it takes seconds
    r"faceanon fit\b(?!.*--print_config)": "--trainer.max_epochs 1 --trainer.limit_train_batches 1 "
    "--trainer.limit_val_batches 1 --data.init_args.versions 1",
    r"faceanon fit\b.*_s2\.yaml": "--model.init_args.reader_rows 8",
    r"faceanon test\b": "--data.init_args.versions 1 --trainer.limit_test_batches 1",
    r".*configs/trainer/gpu\.yaml": "--trainer.accelerator cpu --trainer.precision 32-true",  # most have no GPU
}
WRITTEN = {
    "README.md": [
        "out.png",
        "back.png",
        "out.mp4",
        "runs/dbaf_flips_s1/model",
        "runs/dbaf_flips_s2/report/report.html",
    ],
    "anonymize.md": ["party_anon.png", "party_back.png", "party_but_one.png", "hidden/trip/b.png", "restored/a.png"],
    "train.md": ["runs/dbaf_flips_s2/report/report.html", "hidden.png", "back.png"],
}
TAKE_THE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page.name}, line {self.line}:\n{self.text}"


def blocks(page):
    content = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(content):
        note, language, text = match.group("note", "language", "text")
        reason = note.removeprefix("skip").strip() if note else None
        line = content[: match.start("text")].count("\n")
        found.append(Block(page, line, language, text, reason))
    assert len(found) == len(re.findall(r"^```", content, re.M)) // 2, f"{page.name}: a fence that this test misreads"
    return found


def shrunk(command):
    """The command with what makes it small in front of its comment."""
    words, comment = re.fullmatch(r"(.*?)(\s+#.*)?", command).groups()
    extra = "".join(f" {more}" for start, more in SHRINK.items() if re.match(start, words))
    return f"{words}{extra}{comment or ''}"


def script(block):
    """What bash is given: continued lines joined, trainings small."""
    return "\n".join(shrunk(line) for line in block.text.replace("\\\n", " ").splitlines())


def commands(page):
    """Words of every `faceanon ...` line that a page shows in a block for the shell, run or not."""
    for block in blocks(page):
        for line in block.text.replace("\\\n", " ").splitlines() if block.language == "sh" else ():
            for part in re.split(r"&&|;|\|", line):
                words = shlex.split(part, comments=True)
                while words and "=" in words[0]:
                    words.pop(0)
                if words[:1] == ["faceanon"]:
                    yield words[1:]


def mistake(name, *words):
    """What is wrong with a command as shown, or None."""
    shown = " ".join(("faceanon", name, *words))
    configs = re.findall(r"configs/[\w/.-]+\.yaml", shown)
    if missing := [config for config in configs if not (REPO / config).exists() and "STAGE" not in config]:
        return f"{shown}: there is no {missing[0]}"
    if name not in COMMANDS:
        return None if name in TRAINING else f"{shown}: no such command"
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(f"faceanon.commands.{name}").add_arguments(parser)
    try:
        parser.parse_args(words)
    except (SystemExit, argparse.ArgumentError) as refused:
        return f"{shown}: {refused}"
    return None


def on_a_terminal(words, folder, environment):
    """Exit code and output of a command whose questions for a password are answered."""
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_THE_TERMINAL, *words],
        cwd=folder,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    said, answered, end = b"", 0, time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            if not select.select([master], [], [], 1)[0]:
                continue
            try:
                said += os.read(master, 65536)
            except OSError:  # how Linux says that the other side has closed
                break
            if re.search(rb"(Password|Again): $", said[answered:]):
                answered = len(said)
                os.write(master, f"{PASSWORD}\n".encode())
        else:
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait(), said.decode(errors="replace")
    finally:
        os.close(master)


@pytest.fixture
def desk(tmp_path, few_clone):
    """A directory with what the pages take for granted: the clone's configs and models, and photographs."""
    for name in ("configs", "checkpoints"):
        (tmp_path / name).symlink_to(few_clone / name)
    party = photo_party()
    (tmp_path / "photos/trip").mkdir(parents=True)
    for name in ("party.jpg", "photo.jpg"):
        party.save(tmp_path / name, quality=95)
    party.crop((0, 0, 284, 284)).save(tmp_path / "anna.jpg", quality=95)
    with av.open(str(tmp_path / "film.mp4"), "w") as out:
        stream = out.add_stream("libx264", rate=24)
        stream.width, stream.height, stream.pix_fmt = *party.size, "yuv420p"
        for _ in range(6):
            out.mux(stream.encode(av.VideoFrame.from_image(party)))
        out.mux(stream.encode(None))
    party.crop((0, 0, 300, 280)).save(tmp_path / "photos/a.jpg", quality=95)
    party.crop((270, 0, 550, 280)).save(tmp_path / "photos/trip/b.jpg", quality=95)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_run_or_says_why_not(page):
    for block in blocks(page):
        assert block.language in ("sh", "python", *SILENT), f"say what language this is: {block}"
        assert block.reason is None or len(block.reason) > 10, f"give a reason: {block}"
        unknown = set(re.findall(r"\b[A-Z]{3,}\d?\b(?= |$|/)", script(block))) - {"FACEANON_PW"}
        assert block.language != "sh" or block.reason or not unknown, f"nothing stands for {unknown}: {block}"


def test_what_is_planned_for_a_block_fits_one():
    texts = [script(block) for page in PAGES for block in blocks(page)]
    for start in SHRINK:
        assert any(re.match(start, line) for text in texts for line in text.splitlines()), f"nothing to shrink: {start}"
    one_batch = "--data.init_args.versions 1 --trainer.limit_test_batches 1"
    assert shrunk("faceanon test --x 1   # why") == f"faceanon test --x 1 {one_batch}   # why"


def test_a_terminal_gives_the_password_and_the_exit_code(tmp_path):
    ask = "import getpass, sys; sys.exit(getpass.getpass() + getpass.getpass('Again: ') != sys.argv[1] * 2)"
    assert on_a_terminal([sys.executable, "-c", ask, PASSWORD], tmp_path, dict(os.environ))[0] == 0
    code, said = on_a_terminal([sys.executable, "-c", ask, "another"], tmp_path, dict(os.environ))
    assert code == 1
    assert PASSWORD not in said


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.stem)
def test_every_command_shown_has_its_options_and_configs(page):
    assert [found for words in commands(page) if (found := mistake(*words))] == []


def test_a_mistake_in_a_command_is_found():
    assert mistake("anonymize", "a.jpg", "b.png", "--aligned") is None
    assert mistake("fit", "--config", "configs/dbaf_s1.yaml") is None
    for words in (
        ["anonymise", "a.jpg"],
        ["anonymize", "--no-such-option"],
        ["fit", "--config", "configs/nothing.yaml"],
    ):
        assert words[0] in mistake(*words)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_order(page, desk, few_clone):
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(few_clone / "src"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
    ran = 0
    for block in blocks(page):
        if block.language in SILENT or block.reason:
            continue
        program = [sys.executable, "-c", block.text] if block.language == "python" else ["bash", "-euc", script(block)]
        code, said = on_a_terminal(program, desk, environment)
        assert code == 0, f"{block}\nended with {code}:\n{said[-3000:]}"
        ran += 1
    wanted = WRITTEN.get(page.name, [])
    assert ran or not wanted
    assert [name for name in wanted if not (desk / name).exists()] == []
    _check_that_the_way_back_leads_back(page, desk)


def _check_that_the_way_back_leads_back(page, desk):
    names = {
        "README.md": ("photo.jpg", "out.png", "back.png"),
        "anonymize.md": ("photos/a.jpg", "hidden/a.png", "restored/a.png"),
    }
    if page.name in names:
        was, hidden, back = (np.asarray(Image.open(desk / name).convert("RGB"), float) for name in names[page.name])
        assert np.abs(back - was).mean() < 0.7 * np.abs(hidden - was).mean() > 0.1
