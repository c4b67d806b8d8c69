"""Compile parts of networks in place: names in the state dict stay, and copies are plain networks again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import nn

from faceanon.compat import COMPILED_CALL, compiled_call, is_compiler_error
from faceanon.errors import UserError
from faceanon.networks.e4e import PyramidEncoder
from faceanon.networks.frozen import Frozen
from faceanon.networks.stylegan2 import Generator

METHODS: dict[type[nn.Module], str] = {Generator: "synthesis", PyramidEncoder: "with_features"}
"""What these networks are called by; all others are called as they are."""
CALL = "__call__"


@dataclass(frozen=True)
class Region:
    """Something that is compiled as one.

    Args:
        name: For people: the path of the module, and the method where it is not the module's own call.
        owner: The module.
        method: Its method, `__call__` for the module's own call.
    """

    name: str
    owner: nn.Module
    method: str = CALL


class CompiledCall:
    """A compiled call; takes the place of the plain one in its owner, and says so when compiling it fails.

    Args:
        region: What is compiled.
        options: For `torch.compile`.

    Attributes:
        calls: How often it was called.
    """

    def __init__(self, region: Region, **options: Any) -> None:  # noqa: ANN401 - torch.compile's own
        self.region = region
        self.calls = 0
        if region.method == CALL:
            self.call: Callable[..., Any] = compiled_call(region.owner, **options)
        else:
            self.call = torch.compile(getattr(region.owner, region.method), **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the network takes and gives
        """Call it.

        Raises:
            UserError: It cannot be compiled, or was compiled too often; nothing is run uncompiled in its stead.
        """
        self.calls += 1
        try:
            return self.call(*args, **kwargs)
        except Exception as error:
            # What the network itself raises passes unchanged.
            if not is_compiler_error(error):
                raise
            reason = type(error).__name__
            for line in str(error).splitlines():
                if line.strip():
                    reason = line.strip()
                    break
            raise UserError(
                f"cannot compile {self.region.name}: {type(error).__name__}: {reason}; name it in acceleration.skip, "
                "choose another acceleration.backend, or compile nothing"
            ) from error

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:  # noqa: ANN401 - a plain method
        """What a copy of the owner gets: its own method, not compiled."""
        # deepcopy notes the owner's copy in `memo` before it copies what the owner holds, so the copy is known here.
        owner = memo.get(id(self.region.owner), self.region.owner)
        return MethodType(getattr(type(owner), self.region.method), owner)


def compile_region(region: Region, **options: Any) -> CompiledCall:  # noqa: ANN401 - torch.compile's own
    """Compile a region in place; `restore` undoes it."""
    call = CompiledCall(region, **options)
    # An entry of the instance comes before the class's own attribute and leaves other instances alone.
    region.owner.__dict__[_slot(region)] = call
    return call


def is_compiled(region: Region) -> bool:
    """Whether it is: a frozen network can be part of several others."""
    return isinstance(region.owner.__dict__.get(_slot(region)), CompiledCall)


def _slot(region: Region) -> str:
    """Where the call lies in the owner: torch keeps a module's own there too, and leaves it out of copies."""
    if region.method == CALL:
        return COMPILED_CALL
    return region.method


def restore(region: Region) -> None:
    """Make a region what it was."""
    if region.method == CALL:
        region.owner.__dict__[COMPILED_CALL] = None
    else:
        region.owner.__dict__.pop(region.method, None)


def regions(module: nn.Module, name: str) -> Iterator[Region]:
    """The largest parts of a network that are called as one: generators and encoders by a method, others as they are.

    Networks that keep generators, encoders or frozen networks inside are searched: such a frozen network is shared with
    other copies, and becomes a region of its own.

    Args:
        module: A network.
        name: For people; the parts' names begin with it.
    """
    if isinstance(module, Frozen):
        yield from regions(module.net, name)
        return
    method = next((method for kind, method in METHODS.items() if isinstance(module, kind)), None)
    if method is not None:
        yield Region(f"{name}.{method}", module, method)
    elif _is_one(module):
        yield Region(name, module)
    else:
        for child_name, child in module.named_children():
            yield from regions(child, f"{name}.{child_name}")


def _is_one(module: nn.Module) -> bool:
    """Whether a module can be called, holds something to compute, and has no part that must be compiled by itself."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)) or not any(True for _ in module.parameters()):
        return False
    return not any(isinstance(part, (Frozen, *METHODS)) for part in module.modules())
