"""What can be measured: cases by name.

    from bench.cases import Case, Work, register

    def _build(settings):
        net, image = settings.place(Mine()), settings.picture(4, 3, 256, 256)
        return Work(lambda: net(image), images=4)

    register(Case("mine", "my network, 4 pictures", _build))

Every case is built in a process of its own, which imports the module of its `build`; so a case may live in any package.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial

from bench.settings import Settings
from faceanon.errors import UserError

MODULES = ("peak", "networks", "steps", "use")
"""Files of this room whose import registers the shipped cases, in the order of the listing."""
NETWORK = frozenset({"device", "precision", "compile", "channels_last"})
"""Settings that a case uses which calls networks itself; see `Case.uses`."""


def nothing() -> None:
    """What closes a case that holds nothing."""


@dataclass(frozen=True)
class Work:
    """A built case.

    Args:
        call: Does it once.
        images: Pictures, or whatever `Case.unit` names, that one call handles.
        under: Runs the next call inside of a context manager (a FLOP counter); None where `call` itself computes in the
            calling thread.
        close: Frees what the case holds.
        in_children: Whether the work is done by processes that `call` starts: the memory of this one says nothing.
    """

    call: Callable[[], object]
    images: int = 1
    under: Callable[[AbstractContextManager[object]], object] | None = None
    close: Callable[[], None] = nothing
    in_children: bool = False

    def call_under(self, context: AbstractContextManager[object] | None = None) -> None:
        """Run `call` once inside the context that `context` makes."""
        context = nullcontext() if context is None else context
        if self.under is not None:
            self.under(context)
            return
        with context:
            self.call()


@dataclass(frozen=True)
class Case:
    """Something to measure.

    Args:
        name: As it is typed.
        about: One line for the listing.
        build: Makes it for settings; what it holds counts as the case's memory.
        unit: What `Work.images` counts.
        uses: Fields of `Settings` that change it, beside `threads` and `seed`. Where a run asks for something that a
            case does not use, it is measured as it is, and the record says so.
        usual: Whether it is measured when no case is named.
        heavy: Whether it needs gigabytes; heavy cases are measured alone.
    """

    name: str
    about: str
    build: Callable[[Settings], Work]
    unit: str = "image"
    uses: frozenset[str] = NETWORK
    usual: bool = True
    heavy: bool = False

    @property
    def module(self) -> str:
        """The module whose import registers it."""
        function: object = self.build
        # The module of a partial itself would be functools.
        while isinstance(function, partial):
            function = function.func
        return str(function.__module__)


CASES: dict[str, Case] = {}
"""All that have been registered, by name."""


def register(*cases: Case) -> None:
    """Add cases.

    Raises:
        ValueError: There is one of this name.
    """
    for case in cases:
        if case.name in CASES:
            raise ValueError(f"there is a case {case.name!r} already")
        CASES[case.name] = case


def shipped() -> list[Case]:
    """All registered cases, the shipped ones among them."""
    # A module that was imported before is not run again, so no case is registered twice.
    for module in MODULES:
        importlib.import_module(f"bench.{module}")
    return list(CASES.values())


def choose(words: Sequence[str], cases: Iterable[Case]) -> list[Case]:
    """The cases that names or patterns (`stage*`) ask for, in the order of the listing; without any the usual ones.

    Raises:
        UserError: A word fits no case.
    """
    cases = list(cases)
    for word in words:
        if not any(fnmatch(case.name, word) for case in cases):
            raise UserError(f"no case {word!r}; see python benchmarks/measure.py --list")
    if not words:
        usual = []
        for case in cases:
            if case.usual:
                usual.append(case)
        return usual
    chosen = []
    for case in cases:
        if any(fnmatch(case.name, word) for word in words):
            chosen.append(case)
    return chosen
