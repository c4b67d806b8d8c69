"""What the machine can do at this moment: a large matrix product and a plain 3 x 3 convolution."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from bench.cases import Case, Work, register
from bench.settings import Settings

# Large enough to keep the whole machine busy; of smaller ones one would measure the calls around them.
SIDE = 2048
CHANNELS = 256
MAP = 128
# A GPU has done a smaller one almost before it has started.
SIDE_BF16 = 8192


def matmul(settings: Settings) -> Work:
    """A square float32 product, 17 GFLOP."""
    one, other = (torch.randn(SIDE, SIDE, device=settings.device) for _ in range(2))
    return Work(lambda: one @ other)


def convolution(settings: Settings) -> Work:
    """A float32 convolution as StyleGAN2 has them at 128 px, 19 GFLOP."""
    image = torch.randn(1, CHANNELS, MAP, MAP, device=settings.device)
    kernel = torch.randn(CHANNELS, CHANNELS, 3, 3, device=settings.device)
    return Work(lambda: F.conv2d(image, kernel, padding=1))


def matmul_bf16(settings: Settings) -> Work:
    """A square bfloat16 product on a GPU, 1.1 TFLOP: smaller ones do not fill it."""
    one, other = (torch.randn(SIDE_BF16, SIDE_BF16, device=settings.device).bfloat16() for _ in range(2))
    return Work(lambda: one @ other)


# The peak is the machine's: precision and layout of a run must not change it.
OWN = frozenset({"device"})
MATMUL = Case(
    "peak-matmul", f"float32 product of two {SIDE} x {SIDE} matrices", matmul, "product", uses=OWN, usual=False
)
CONVOLUTION = Case(
    "peak-conv3x3",
    f"float32 3 x 3 convolution, {CHANNELS} channels of {MAP} px",
    convolution,
    uses=OWN,
    usual=False,
)
MATMUL_BF16 = Case(
    "peak-matmul-bf16",
    f"bfloat16 product of two {SIDE_BF16} x {SIDE_BF16} matrices",
    matmul_bf16,
    "product",
    uses=OWN,
    usual=False,
)
register(MATMUL, CONVOLUTION, MATMUL_BF16)


def peaks(settings: Settings) -> list[Case]:
    """The peaks of a device; the largest of the float32 ones is what fractions are taken of."""
    if settings.cuda:
        return [MATMUL, CONVOLUTION, MATMUL_BF16]
    return [MATMUL, CONVOLUTION]
