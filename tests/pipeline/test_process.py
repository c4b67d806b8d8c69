"""glibc keeps large blocks, if nobody has said otherwise."""

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
