"""The codec stays near what convolutions reach on the machine that it runs on."""

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_codec_reaches_half_of_the_measured_convolutions(repo):
    command = [sys.executable, "examples/codec_speed.py", "--rounds", "8"]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    # .85 and .81 on a quiet machine; another program on the same caches takes some of it.
    shares = [int(share) for share in re.findall(r"(\d+)% of the peak", done.stdout)]
    assert len(shares) == 2
    assert min(shares) > 55, done.stdout
