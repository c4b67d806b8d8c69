"""A folder of photos goes nearly as fast as its network alone."""

import re
import subprocess
import sys

import pytest


@pytest.mark.timing
def test_a_folder_keeps_up_with_its_network(repo):
    command = [sys.executable, "benchmarks/throughput.py", "--random", "public", "--photos", "16", "--rounds", "1"]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    ratio = float(re.search(r"folder / network = ([\d.]+)", done.stdout)[1])
    assert ratio > 0.65, done.stdout  # .95 on a quiet machine, whose speed moves by a quarter; .6 with calls half full
