"""glibc keeps large blocks, if nobody has said otherwise."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from faceanon.batch.memory import keep_memory
print(keep_memory())
torch.ones(2**25)  # 128 MiB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(2**25)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment):
    """Whether memory is kept, and the page faults of a second large block."""
    clean = {name: value for name, value in os.environ.items() if "MALLOC" not in name and "GLIBC" not in name}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=clean | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept, count = done.stdout.split()
    return kept == "True", int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_a_second_large_block_costs_no_page_faults():
    kept, few = faults()
    other, many = faults(MALLOC_MMAP_THRESHOLD_="33554432")
    if not kept:
        pytest.skip("another C library than glibc")
    assert not other, "the user's own choice stands"
    assert few * 10 < many
