"""The commands that work on pictures beside the network set how OpenMP waits, before torch could read it."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
seen = []
def hook(event, arguments):
    if event == "import" and arguments[0] == "torch":
        seen.append(os.environ.get("OMP_WAIT_POLICY"))
sys.addaudithook(hook)
from faceanon.cli import main
code = main([sys.argv[1], "no-such-photo.jpg", "out.png"])
import torch
print(code, seen[0])
"""


@pytest.mark.parametrize("command", ["anonymize", "recover"])
@pytest.mark.parametrize(("given", "wanted"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_torch_finds_how_to_wait(command, given, wanted, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"FACEANON_PASSWORD": "word"} | ({} if given is None else {"OMP_WAIT_POLICY": given})
    words = [sys.executable, "-c", PROGRAM, command]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", wanted], done.stderr
