"""Large blocks of memory, kept from one call of a network to the next."""

from __future__ import annotations

import ctypes
import os

# Of glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
MOST_KEPT = 2**31 - 1  # bytes, what an int holds
OWN_CHOICE = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> bool:
    """Have glibc reuse blocks over 32 MiB instead of returning them to the kernel, which clears their pages each time.

    A network at 256 px has maps of that size in every layer; without gradients it is a tenth faster so, and takes no
    more memory. It holds for the whole process, so it is for commands, not for libraries.

    Returns:
        Whether it was done: not with another C library, nor where the environment already says how malloc is to work.
    """
    if any(name in os.environ for name in OWN_CHOICE):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # Windows, macOS, musl
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, MOST_KEPT))
