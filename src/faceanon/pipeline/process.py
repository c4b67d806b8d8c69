"""What a command sets for its whole process: which memory it keeps, and how many cores numpy uses."""

from __future__ import annotations

import ctypes
import os

import numpy as np  # noqa: F401 - its linear algebra is loaded with it, and only what is loaded can be told
from threadpoolctl import ThreadpoolController

# Of glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_MMAP_MAX = -4
LARGE = 2 * 2**20  # bytes; layers of a large network take up to 5 MB
MOST_KEPT = 2**31 - 1  # bytes, what an int holds
OWN_CHOICE = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> bool:
    """Have glibc reuse blocks over 32 MiB instead of returning them to the kernel, which clears their pages each time.

    A network at 256 px has maps of that size in every layer; without gradients it is a tenth faster so, and takes no
    more memory. It holds for the whole process, so it is for commands, not for libraries.

    Returns:
        Whether it was done: not with another C library, nor where the environment already says how malloc is to work.
    """
    return _set(M_MMAP_MAX, 0) and _set(M_TRIM_THRESHOLD, MOST_KEPT)


def return_memory() -> bool:
    """Have glibc return blocks over 2 MiB to the kernel as soon as they are free.

    Without torch it is the other way round: networks are small, and most memory is for weights, which are read and then
    copied by onnxruntime into an order of its own. Once a process has freed a large block, glibc keeps such blocks,
    each for the thread that freed it: a command with one face took 579 MB, and takes 457. It holds for the whole
    process, as `keep_memory`.

    Returns:
        As `keep_memory`.
    """
    return _set(M_MMAP_THRESHOLD, LARGE)


def _set(parameter: int, value: int) -> bool:
    """Whether malloc took a value: not with another C library, nor where the environment says how malloc is to work."""
    if any(name in os.environ for name in OWN_CHOICE):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # Windows, macOS, musl
        return False
    return bool(mallopt(parameter, value))


def one_core_for_numpy() -> None:
    """Have numpy's linear algebra use one core from now on.

    Its matrices are small here. OpenBLAS splits them over all cores even so, and its threads then spin for a while: in
    a video they took a sixth of the processor's time, from threads that had work to do. It holds for the whole
    process, so it is for commands; `pipeline.threads` does the same for as long as its threads live.
    """
    openblas().limit(limits=1)


def openblas() -> ThreadpoolController:
    """The libraries of numpy's linear algebra that are loaded, to limit their cores.

    Looked up anew in each call, since libraries are loaded when they are first imported. Torch's own is not among them:
    it is told by `set_num_threads`.
    """
    return ThreadpoolController().select(internal_api="openblas")
