"""A small network that sees a face which was put on, and says how bright and of what colour its parts should be."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

GROUPS = 8
CHANNELS = 6  # of the sheet, see `landmarks.shading`
WIDTHS = (16, 32, 48, 72)  # channels at the sheet's side, then at a half, a quarter and an eighth of it


class ShadingBlock(nn.Module):
    """Two convolutions with a residual.

    Args:
        channels: Channels of the map, a multiple of 8.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(GROUPS, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, channels, h, w)` -> the same shape."""
        middle = self.conv1(F.silu(self.norm1(x)))
        out: Tensor = self.conv2(F.silu(self.norm2(middle)))
        return x + out


class ShadingNet(nn.Module):
    """A U-Net from a sheet to a field of changes with half its side; untrained it changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        first, fine, middle, coarse = WIDTHS
        self.enter = nn.Conv2d(CHANNELS, first, 3, padding=1)
        self.to_fine = nn.Conv2d(first, fine, 4, stride=2, padding=1)
        self.fine = ShadingBlock(fine)
        self.to_middle = nn.Conv2d(fine, middle, 4, stride=2, padding=1)
        self.middle = ShadingBlock(middle)
        self.to_coarse = nn.Conv2d(middle, coarse, 4, stride=2, padding=1)
        self.coarse = nn.Sequential(ShadingBlock(coarse), ShadingBlock(coarse))
        # What the whole picture looks like: its light, its colours.
        self.whole = nn.Linear(coarse, coarse)
        self.from_coarse = nn.Conv2d(coarse, middle, 1)
        self.middle_again = ShadingBlock(middle)
        self.from_middle = nn.Conv2d(middle, fine, 1)
        self.fine_again = ShadingBlock(fine)
        self.norm = nn.GroupNorm(GROUPS, fine)
        self.leave = nn.Conv2d(fine, 3, 3, padding=1)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)  # type: ignore[arg-type]

    def forward(self, sheet: Tensor) -> Tensor:
        """What to add to the logarithms of a face's colours.

        Args:
            sheet: `(B, 6, s, s)` as `landmarks.shading.sheet` makes it; s is a multiple of 8.

        Returns:
            `(B, 3, s / 2, s / 2)`, natural logarithms of red, green and blue.
        """
        fine = self.fine(self.to_fine(F.silu(self.enter(sheet))))
        middle = self.middle(self.to_middle(F.silu(fine)))
        coarse = self.coarse(self.to_coarse(F.silu(middle)))
        coarse = coarse + self.whole(coarse.mean((2, 3)))[:, :, None, None]
        middle = self.middle_again(middle + F.interpolate(self.from_coarse(coarse), scale_factor=2.0))
        fine = self.fine_again(fine + F.interpolate(self.from_middle(middle), scale_factor=2.0))
        field: Tensor = self.leave(F.silu(self.norm(fine)))
        return field
