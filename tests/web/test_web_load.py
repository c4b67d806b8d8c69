"""Many visitors at once, some of them hostile: everybody gets the own picture or one line, and the page goes on."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from script_files import script as imported

REPO = Path(__file__).resolve().parents[2]
SCRIPT = REPO / "benchmarks/web_load.py"
missing = [name for name in ("gradio", "zxcvbn", "httpx") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def script():
    with imported("benchmarks/web_load.py") as module:
        yield module


def test_the_check_sees_a_picture_that_is_anothers(script):
    pictures = [np.asarray(script.photo_of(user)) for user in range(3)]
    right = [script.Visit(user, "ordinary", pictures[user], "done") for user in range(3)]
    assert script.check(right) == []
    swapped = [script.Visit(0, "ordinary", pictures[2], "done"), *right[1:]]
    assert script.check(swapped) == ["user 0 (ordinary): got another picture, of [2]"]
    odd = [script.Visit(0, "cut", pictures[0], "done"), script.Visit(1, "oversized"), script.Visit(2, "ordinary")]
    assert len(script.check(odd)) == 3


def test_an_error_in_the_log_is_a_fault_and_a_refusal_none(script):
    refused = "Traceback (most recent call last):\n  ...\ngradio.exceptions.InvalidPathError: no\n"
    assert script.errors_in(f"started\n{refused}") == []
    assert len(script.errors_in(f"{refused}Traceback (most recent call last):\n  ...\nKeyError: 1\n")) == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="every visitor has an address of its own")
def test_ten_visitors_at_once():
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src"), "OMP_NUM_THREADS": "1"}
    run = [sys.executable, str(SCRIPT), "--users", "10", "--seconds", "300"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n0 fault(s)" in done.stdout
