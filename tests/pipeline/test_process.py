"""glibc keeps large blocks, or returns them, if nobody has said otherwise."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from faceanon.pipeline.process import keep_memory
print(keep_memory())
for turn in range(40):
    if turn == 20:  # by then the heap is as large as it gets
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)  # 64 MiB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment):
    """Whether memory is kept, and the page faults of further large blocks."""
    clean = {name: value for name, value in os.environ.items() if "MALLOC" not in name and "GLIBC" not in name}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=clean | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept, count = done.stdout.split()
    return kept == "True", int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_further_large_blocks_cost_few_page_faults():
    kept, few = faults()
    if not kept:
        pytest.skip("another C library than glibc")
    other, many = faults(MALLOC_MMAP_THRESHOLD_="33554432")
    assert not other, "the user's own choice stands"
    assert few * 4 < many


# Eight arrays of 16 MB are freed, with a smaller one above them; from a first one glibc learns to keep such.
FREED = """
import sys
import numpy as np
from faceanon.pipeline.process import return_memory

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024

done = sys.argv[1] == "yes" and return_memory()
np.ones(2 * 2**20)
before = resident()
blocks = [np.ones(2 * 2**20) for _ in range(8)]
above = np.ones(2**17)
assert resident() > before + 100
del blocks
print(done, resident() - before)
"""


def still_there(answer, **environment):
    """Whether memory is returned, and MB that stay of 128 that were freed."""
    clean = {name: value for name, value in os.environ.items() if "MALLOC" not in name and "GLIBC" not in name}
    command = [sys.executable, "-c", FREED, answer]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    returned, megabytes = done.stdout.split()
    return returned == "True", int(megabytes)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_freed_blocks_are_returned():
    returned, few = still_there("yes")
    if not returned:
        pytest.skip("another C library than glibc")
    assert few < 30
    # Else nobody would need it.
    _, many = still_there("no")
    assert many > 100
    other, _ = still_there("yes", MALLOC_TRIM_THRESHOLD_="134217728")
    assert not other, "the user's own choice stands"
