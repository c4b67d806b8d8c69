"""How a case is to be run: device, threads, precision, compilation, memory layout."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import nn

from faceanon.errors import UserError

Precision = Literal["32", "bf16", "16"]
M = TypeVar("M", bound=nn.Module)
R = TypeVar("R")

PRECISIONS: dict[str, torch.dtype | None] = {"32": None, "bf16": torch.bfloat16, "16": torch.float16}
LIGHTNING = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
"""Name of each precision in `Trainer(precision=...)`."""


@dataclass(frozen=True)
class Settings:
    """What a measurement is made with; a case depends on the fields that its `Case.uses` names.

    Args:
        device: `cpu` or `cuda`, as torch names them.
        threads: Of one operation on the CPU.
        precision: `32`, or `bf16` or `16` under autocast; 16 on CUDA only.
        compile: Whether networks go through `torch.compile`.
        channels_last: Whether 4-D weights and pictures are laid out channels last; stages always do that.
        tf32: Whether float32 products on CUDA may use TF32; stated, never left to a default.
        seed: Of weights and inputs.

    Raises:
        UserError: No such precision, or not on this device; fewer than one thread.
    """

    device: str = "cpu"
    threads: int = 1
    precision: Precision = "32"
    compile: bool = False
    channels_last: bool = False
    tf32: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise UserError(f"--precision {self.precision}: give one of {', '.join(PRECISIONS)}")
        if self.threads < 1:
            raise UserError(f"--threads {self.threads}: give at least 1")
        if self.precision == "16" and not self.cuda:
            raise UserError("--precision 16 is for --device cuda; on the CPU give 32 or bf16")
        if self.tf32 and not self.cuda:
            raise UserError("--tf32 is for --device cuda; leave it out")

    @property
    def cuda(self) -> bool:
        """Whether it runs on a GPU."""
        return self.device.startswith("cuda")

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which networks compute."""
        dtype = PRECISIONS[self.precision]
        if dtype is None:
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=dtype)

    def place(self, net: M) -> M:
        """A network on the device and in the memory layout."""
        net = net.to(self.device)
        if self.channels_last:
            return net.to(memory_format=torch.channels_last)
        return net

    def compiled(self, function: Callable[..., R]) -> Callable[..., R]:
        """A network or function, compiled where that is wanted."""
        if self.compile:
            return torch.compile(function)
        return function

    def picture(self, *shape: int) -> torch.Tensor:
        """Random pictures of a shape in [-1, 1], in the memory layout."""
        # On the CPU, so that every device sees the same pictures.
        image = torch.rand(shape, generator=torch.Generator().manual_seed(self.seed)) * 2 - 1
        image = image.to(self.device)
        if self.channels_last:
            return image.contiguous(memory_format=torch.channels_last)
        return image

    def synchronise(self) -> None:
        """Wait until the device has done what it was told."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def start(self) -> None:
        """Set threads, seed and the precision of products for this process."""
        torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)
        # Both: torch's own defaults allow TF32 in convolutions and not in products.
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        torch.backends.cudnn.allow_tf32 = self.tf32
