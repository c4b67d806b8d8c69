"""Up-sample, filter, down-sample: the resampling of StyleGAN2."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BINOMIAL = (1.0, 3.0, 3.0, 1.0)


def upfirdn2d(
    x: Tensor,
    kernel: Tensor,
    up: int | tuple[int, int] = 1,
    down: int | tuple[int, int] = 1,
    pad: tuple[int, ...] = (0, 0),
) -> Tensor:
    """Insert zeros, pad, convolve every channel with the flipped kernel, keep every `down`-th sample.

    Args:
        x: `(B, C, H, W)`.
        kernel: `(kH, kW)`.
        up: Factor, or one for (x, y).
        down: Factor, or one for (x, y).
        pad: (before, after) for both axes, or (x0, x1, y0, y1); negative pads crop.

    Returns:
        `(B, C, H', W')` with H' = (H * up + y0 + y1 - kH) // down + 1.

    Examples:
        >>> import torch
        >>> from faceanon.networks.upfirdn import upfirdn2d
        >>> row = torch.tensor([[[[1.0, 2.0, 3.0]]]])
        >>> upfirdn2d(row, kernel=torch.ones(1, 2), up=(2, 1), pad=(1, 0, 0, 0))  # every sample twice
        tensor([[[[1., 1., 2., 2., 3., 3.]]]])
    """
    up_x, up_y = (up, up) if isinstance(up, int) else up
    if isinstance(down, int):
        down_x = down
        down_y = down
    else:
        down_x, down_y = down
    x0, x1, y0, y1 = pad if len(pad) == 4 else (*pad, *pad)
    if (up_x, up_y) != (1, 1):
        x = _insert_zeros(x, up_x, up_y)
    padding = (y0, x0)
    # conv2d pads both sides alike and cannot crop, so other pads are made beforehand.
    if x0 != x1 or y0 != y1 or min(padding) < 0:
        x = F.pad(x, (x0, x1, y0, y1))
        padding = (0, 0)
    weight = _per_channel(kernel.flip((0, 1)), x)
    return F.conv2d(x, weight, stride=(down_y, down_x), padding=padding, groups=x.shape[1])


def _insert_zeros(x: Tensor, up_x: int, up_y: int) -> Tensor:
    batch, channels, height, width = x.shape
    # Padding the new axes of length 1 puts the zeros behind every sample.
    x = F.pad(x.reshape(batch, channels, height, 1, width, 1), (0, up_x - 1, 0, 0, 0, up_y - 1))
    return x.reshape(batch, channels, height * up_y, width * up_x)


def _per_channel(kernel: Tensor, x: Tensor) -> Tensor:
    """The kernel as the weight of a depthwise convolution of `x`: by far the fastest form in channels_last memory."""
    return kernel.to(x.dtype).expand(x.shape[1], 1, *kernel.shape)


def fast_layout(x: Tensor) -> Tensor:
    """`x` in channels_last memory on a CPU, where depthwise filters run many times faster so; unchanged elsewhere."""
    if x.device.type == "cpu":
        return x.contiguous(memory_format=torch.channels_last)
    return x


class Resample(nn.Module):
    """`upfirdn2d` with its filter in the buffer `kernel`, as public checkpoints keep it.

    Args:
        pad: (before, after) on both axes.
        up: Up-sampling factor.
        down: Down-sampling factor.
        gain: Sum of the kernel at construction (checkpoints store it multiplied in).
        taps: One axis of the kernel.
    """

    kernel: Tensor

    def __init__(
        self,
        pad: tuple[int, int],
        up: int = 1,
        down: int = 1,
        gain: float = 1.0,
        taps: tuple[float, ...] = BINOMIAL,
    ) -> None:
        super().__init__()
        axis = torch.tensor(taps)
        self.register_buffer("kernel", gain * torch.outer(axis, axis) / axis.sum() ** 2)
        self.up = up
        self.down = down
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        """Filter `(B, C, H, W)`."""
        if (self.up, self.down, self.pad, self.kernel.shape) == (2, 1, (2, 1), (4, 4)):
            # skips the multiplications by inserted zeros
            return F.conv_transpose2d(x, _per_channel(self.kernel, x), stride=2, padding=1, groups=x.shape[1])
        return upfirdn2d(x, self.kernel, self.up, self.down, self.pad)
