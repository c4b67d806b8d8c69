"""Cases that cost nothing, for tests of the measuring itself; not registered with the shipped ones."""

from contextlib import ExitStack

import torch

from bench.cases import CASES, Case, Work
from bench.settings import Settings

SIDE = 32
HELD = 8 * 2**20  # floats, 32 MB


def product(settings):
    """A small product, whose FLOPs are known."""
    one = torch.ones(SIDE, SIDE)
    return Work(lambda: one @ one, images=2)


def large(settings):
    """Holds 32 MB, and fills another 64 MB in each call."""
    held = torch.ones(HELD)
    return Work(lambda: torch.cat([held, held]).sum())


def broken(settings):
    """Cannot be built."""
    raise RuntimeError("no such thing\nand more")


def dying(settings):
    """Ends its process at the first call."""
    import os

    return Work(lambda: os._exit(7))


def threaded(settings):
    """Computes within whatever context it is given."""
    one = torch.ones(SIDE, SIDE)

    def under(context):
        with ExitStack() as stack:
            stack.enter_context(context)
            _ = one @ one

    return Work(lambda: None, under=under)


FAKES = {
    build.__name__: Case(f"fake-{build.__name__}", f"{build.__name__}, of the tests", build, usual=False)
    for build in (product, large, broken, dying, threaded)
}
CASES.update({case.name: case for case in FAKES.values()})
QUICK = Settings()
