"""When a network that only looks may take its samples one by one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def inference(x: Tensor) -> bool:
    """Whether nothing records what happens to `x`: no gradients, no compiler, no exporter."""
    traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling() or traced)


def one_by_one(x: Tensor) -> bool:
    """Whether a batch is better split: inference on a CPU.

    The maps of one sample fit the cache, and the C library's allocator reuses the memory of maps below 32 MiB. For
    larger ones it asks the kernel for cleared pages, which costs several times the arithmetic of a pointwise step.
    """
    # An exporter must not see the length looked at.
    return inference(x) and x.device.type == "cpu" and len(x) > 1


def in_turn(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`run(x)` for a `run` that treats the samples of `x` `(B, ...)` alike, one by one where that is faster."""
    if one_by_one(x):
        return torch.cat(list(map(run, x.chunk(len(x)))))
    return run(x)
