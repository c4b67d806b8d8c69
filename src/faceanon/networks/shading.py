"""A small network that sees a face which was put on, and says how bright and of what colour its parts should be."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.normed_block import GROUPS, NormedBlock

CHANNELS = 6  # of the sheet, see `landmarks.shading`
WIDTHS = (16, 32, 48, 72)  # channels at the sheet's side, then at a half, a quarter and an eighth of it


class ShadingNet(nn.Module):
    """A U-Net from a sheet to a field of changes with half its side; untrained it changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        first, fine, middle, coarse = WIDTHS
        self.enter = nn.Conv2d(CHANNELS, first, 3, padding=1)
        self.to_fine = nn.Conv2d(first, fine, 4, stride=2, padding=1)
        self.fine = NormedBlock(fine)
        self.to_middle = nn.Conv2d(fine, middle, 4, stride=2, padding=1)
        self.middle = NormedBlock(middle)
        self.to_coarse = nn.Conv2d(middle, coarse, 4, stride=2, padding=1)
        self.coarse = nn.Sequential(NormedBlock(coarse), NormedBlock(coarse))
        # What the whole picture looks like: its light, its colours.
        self.whole = nn.Linear(coarse, coarse)
        self.from_coarse = nn.Conv2d(coarse, middle, 1)
        self.middle_again = NormedBlock(middle)
        self.from_middle = nn.Conv2d(middle, fine, 1)
        self.fine_again = NormedBlock(fine)
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
