"""Small random shifts, scales and turns of training pictures, such as a detector's crops have."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.data.streams import stream
from faceanon.errors import UserError
from faceanon.types import FaceBatch


@dataclass(frozen=True)
class CropJitter:
    """How far crops of training pictures may be off; the default leaves them as they are.

    Args:
        scale: Largest change of the crop's side, as a share of it: 0.1 for 10 %.
        shift: Largest move along each axis, as a share of the side.
        rotation: Largest rotation, in degrees.
        share: Share of the crops that move at all; the others stay sharp, as resampling blurs a little.

    Raises:
        UserError: A number is negative, or so large that the face would leave the picture.

    Examples:
        >>> import torch
        >>> from faceanon.data.jitter import CropJitter
        >>> from faceanon.types import FaceBatch
        >>> unknown = torch.full((2,), -1)
        >>> batch = FaceBatch(torch.rand(2, 3, 64, 64), unknown, unknown)
        >>> moved = CropJitter(shift=0.05, rotation=3)(batch, torch.Generator().manual_seed(0))
        >>> torch.equal(moved.image, batch.image)
        False
    """

    scale: float = 0.0
    shift: float = 0.0
    rotation: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        # The limits stand in the order of the fields: scale, shift, rotation, share.
        for field, most in zip(fields(self), (0.5, 0.5, 180.0, 1.0), strict=True):
            value = getattr(self, field.name)
            if not 0 <= value <= most:
                raise UserError(f"jitter: {field.name} is {value}; give a number between 0 and {most:g}")

    def __bool__(self) -> bool:
        return self.share > 0 and any((self.scale, self.shift, self.rotation))

    def __call__(self, batch: FaceBatch, generator: torch.Generator, place: int = 0, places: int = 1) -> FaceBatch:
        """The batch as other crops of the same pictures would show it.

        Image (bilinear, the border repeated) and parsing (nearest) move together.

        Args:
            batch: B pictures.
            generator: Source of the draws, on the CPU, so that every device draws alike.
            place: Which part of a larger batch this is: it gets that part's draws.
            places: Number of parts, all as large as this one.
        """
        if not self:
            return batch
        # Drawn for all processes, each of which takes its own: one process trains the same.
        drawn = self.draw(places * len(batch), generator).tensor_split(places)[place]
        crops = drawn.to(batch.image.device)
        grid = F.affine_grid(crops, [len(batch), 1, *batch.image.shape[2:]], align_corners=False)
        image = F.grid_sample(batch.image, grid, "bilinear", "border", align_corners=False)
        parsing = batch.parsing
        if parsing is not None:
            # Sampling takes floating point only; the nearest class stays a whole number.
            labels = parsing[:, None].to(grid.dtype)
            parsing = F.grid_sample(labels, grid, "nearest", "border", align_corners=False)[:, 0].to(parsing.dtype)
        return replace(batch, image=image, parsing=parsing)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Random crops `(count, 2, 3)`; applied to (x, y, 1) in the new picture, its place in the exact one."""
        uniform = torch.rand(count, 5, generator=generator)
        # A crop that stays has drawn its numbers too, so another `share` changes no other crop.
        drawn = (2 * uniform[:, :4] - 1) * (uniform[:, 4:] < self.share)
        side = 1 + self.scale * drawn[:, 0]
        angle = math.radians(self.rotation) * drawn[:, 1]
        across = side * angle.cos()
        down = side * angle.sin()
        turned = torch.stack([across, -down, down, across], 1).reshape(-1, 2, 2)
        # Coordinates run from -1 to 1, so a side of the picture is 2.
        return torch.cat([turned, 2 * self.shift * drawn[:, 2:, None]], 2)


EXACT = CropJitter()


class JitteredTraining:
    """Mixin, before `LightningDataModule` among the bases: jitters training batches on the device they train on.

    It stands with the data, not with the stages: what a crop looks like is theirs, and all stages get it at once.
    """

    jitter: CropJitter = EXACT
    seed: int
    trainer: Any

    def on_after_batch_transfer(self, batch: FaceBatch, dataloader_idx: int) -> FaceBatch:
        """The draws depend on seed, batch number and place in the global batch alone: a resumed run repeats them."""
        if not self.jitter or self.trainer is None or not self.trainer.training:
            return batch
        # Lightning counts a batch after its transfer.
        number = self.trainer.fit_loop.total_batch_idx + 1
        draws = stream("jitter", self.seed, 0, number)
        rank_and_size = (self.trainer.global_rank, self.trainer.world_size)
        return self.jitter(batch, draws, *rank_and_size)
