"""`light.memory`: large blocks that are free again do not stay with the process."""

import subprocess
import sys

import pytest

from faceanon.light.memory import give_back_large_blocks

# Eight arrays of 16 MB, freed one after another behind a first one: by then glibc has learned to keep such blocks.
KEPT = """
import sys
import numpy as np
from faceanon.light.memory import give_back_large_blocks

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024

if sys.argv[1] == "yes":
    assert give_back_large_blocks()
np.ones(2 * 2**20)
before = resident()
blocks = [np.ones(2 * 2**20) for _ in range(8)]
top = np.ones(2 * 2**18)
assert resident() > before + 100
del blocks
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_freed_arrays_go_back_to_the_system():
    kept = {}
    for answer in ("yes", "no"):
        done = subprocess.run([sys.executable, "-c", KEPT, answer], capture_output=True, text=True, check=True)
        kept[answer] = int(done.stdout)
    assert kept["yes"] < 30, kept
    # Without the setting they stay: else the setting is not needed any more.
    assert kept["no"] > 100, kept


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not give_back_large_blocks()
