"""SqueezeNet 1.1's feature maps, for perceptual distances (Iandola et al., arXiv:1602.07360)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# By the module's number: channels in, squeezed channels, and channels of each of the two expansions.
FIRES = {2: (64, 16, 64), 3: (128, 16, 64), 4: (128, 32, 128), 5: (256, 32, 128)}
FIRES |= {6: (256, 48, 192), 7: (384, 48, 192), 8: (384, 64, 256), 9: (512, 64, 256)}
POOL_BEFORE = (2, 4, 6)
TAPS = (3, 5, 6, 7, 8, 9)  # and the first convolution: LPIPS' seven maps
BGR_MEAN = (103.939, 116.779, 123.68)


class Fire(nn.Module):
    """Squeeze to few channels, then expand by 1x1 and 3x3 convolutions side by side."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze1x1 = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, I, H, W)` -> `(B, 2 E, H, W)`."""
        x = F.relu(self.squeeze1x1(x))
        return F.relu(torch.cat([self.expand1x1(x), self.expand3x3(x)], 1))


class SqueezeNetFeatures(nn.Module):
    """SqueezeNet 1.1 up to its last fire module, for weights that were trained with Caffe's preprocessing."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 2)
        for number, (inputs, squeezed, expanded) in FIRES.items():
            setattr(self, f"fire{number}", Fire(inputs, squeezed, expanded))
        self.register_buffer("mean", torch.tensor(BGR_MEAN).reshape(3, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> list[Tensor]:
        """`(B, 3, S, S)` RGB in [-1, 1] -> seven maps of 64, 128, 256, 384, 384, 512 and 512 channels, after ReLU."""
        # Caffe's preprocessing: BGR in [0, 255] less the mean colour.
        x = F.relu(self.conv1((image.flip(1) + 1) * 127.5 - self.mean))
        maps = [x]
        for number in FIRES:
            if number in POOL_BEFORE:
                x = F.max_pool2d(x, 3, 2, ceil_mode=True)
            x = getattr(self, f"fire{number}")(x)
            if number in TAPS:
                maps.append(x)
        return maps
