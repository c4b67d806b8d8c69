"""Standard streams that are closed, full or no longer read: the work is done, nothing is a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faceanon import cli

REPO = Path(__file__).resolve().parents[2]
PICTURE = REPO / "checkpoints/photo128/pictures/faker_00000.jpg"
LISTS = ("--help", "--version", "backbones", "anonymize --help", "weights list", "report tables list")


def shell(line, folder):
    """What bash makes of a line in which `faceanon` is our command."""
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src"), "OMP_NUM_THREADS": "1", "FACEANON_PASSWORD": "hush"}
    whole = f'faceanon() {{ "{sys.executable}" -m faceanon "$@"; }}\n{line}'
    return subprocess.run(
        ["bash", "-c", whole], cwd=folder, env=environment, capture_output=True, text=True, timeout=250
    )


@pytest.mark.parametrize("words", LISTS)
def test_a_reader_that_goes_away_ends_a_list_quietly(words, tmp_path):
    done = shell(f"faceanon {words} | head -0; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_output_that_finds_no_room_is_one_line(tmp_path):
    done = shell("faceanon --help > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "faceanon: cannot write to standard output: No space left on device\n"


def test_a_closed_standard_input_is_no_terminal(tmp_path):
    done = shell("unset FACEANON_PASSWORD; touch a.png; faceanon anonymize a.png b.png <&-", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("faceanon: no password and no terminal to ask on")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", ["--version", "backbones", "no-such-command"])
def test_any_stream_may_be_closed(words, tmp_path):
    expected = 2 if words == "no-such-command" else 0
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = shell(f"faceanon {words} {closed}", tmp_path)
        assert done.returncode == expected, (closed, done.stderr)
        assert "Traceback" not in done.stderr


def test_a_message_never_lands_in_another_stream_or_file(tmp_path):
    done = shell("faceanon no-such-command 2>&-", tmp_path)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["| head -0", "2>&1 | head -0", "<&- >&- 2>&-"])
def test_the_photos_are_done_all_the_same(streams, tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "in" / name).write_bytes(PICTURE.read_bytes())
    done = shell(f"faceanon anonymize in out {streams}", tmp_path)
    assert done.stderr == ""
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {"a.png", "b.png"}
    # The same password opens them, so the files are whole.
    assert shell("faceanon recover out back", tmp_path).returncode == 0


@pytest.mark.parametrize("words", [["inspect", "--", "-dash.png"], ["anonymize", "--list-faces", "--", "-dash.png"]])
def test_behind_two_dashes_everything_is_a_name(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    # It was taken for the name of a file, which is not there.
    error = capsys.readouterr().err
    assert "no such" in error
    assert "-dash.png" in error


def test_options_in_front_of_two_dashes_stay_options(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PW", "hush")
    Path("-a.png").write_bytes(b"no picture")
    assert cli.main(["anonymize", "--password-env", "PW", "--", "-a.png", "--b.png"]) == 2
    assert "-a.png is not a picture" in capsys.readouterr().err
    assert cli.main(["anonymize", "--quality", "0", "--", "-a.png", "-b.jpg"]) == 2
    assert "quality" in capsys.readouterr().err
