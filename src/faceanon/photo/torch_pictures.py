"""Take faces out of a photo and put them back, on torch's tensors.

A face is put back so that cropping the saved photo gives the same face again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from faceanon.backbones.classical import Blur, Irreversible, Mask, Pixelate
from faceanon.manifest import CropGeometry
from faceanon.photo.align import (
    Box,
    box_around,
    crop,
    crop_steps,
    crop_window,
    places_in_window,
    samples,
    window_tensor,
)
from faceanon.photo.pictures import BLUR, CELLS, FEATHER, PASSES, SEEN, Faces


def paste(
    photo: NDArray[np.uint8],
    face: Tensor,
    geometry: CropGeometry,
    feather: float = FEATHER,
    passes: int = PASSES,
    region: Tensor | None = None,
) -> None:
    """Replace the square of `geometry` by `face`, in place.

    Recovery starts from the pasted pixels, and enlarging a face and shrinking it again blurs it. So the face is first
    corrected until shrinking the result gives what was meant (iterative back-projection, Irani and Peleg 1991).
    Nothing of the original's fine detail is kept inside the square, or inside the region of it that is replaced: that
    detail would identify the person.

    Args:
        photo: RGB `(H, W, 3)` uint8; changed in place.
        face: `(3, S, S)` in [-1, 1], clamped.
        geometry: Where it lies.
        feather: Width of the soft edge as a share of the side; 0 for a hard edge.
        passes: Corrections; 0 pastes the plain enlargement.
        region: `(S, S)`, 1 where the face is replaced and 0 where the photo stays; the whole square when None.

    Raises:
        UserError: If the square lies outside the photo.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from faceanon.manifest import CropGeometry
        >>> from faceanon.photo.torch_pictures import paste
        >>> photo = np.zeros((200, 300, 3), dtype=np.uint8)
        >>> paste(photo, torch.ones(3, 64, 64), CropGeometry(150.0, 100.0, 50.0, 0.0))
        >>> photo[100, 150].tolist(), photo[10, 10].tolist()
        ([255, 255, 255], [0, 0, 0])
    """
    box = crop_window(geometry, photo.shape[1], photo.shape[0])
    window = window_tensor(photo, box)
    # Float32 on the CPU whatever the model ran in, so that the same face gives the same pixels everywhere.
    face = face.detach().cpu().float().clamp(-1, 1).contiguous()
    size = face.shape[-1]
    times = _repeats(geometry, size)
    wide = None if region is None else _widened(region)
    # `inner` is the part of the window that is drawn; the corrections below read from all of `box`.
    inner = box if wide is None else _around(wide, geometry, box)
    left, top, right, bottom = inner
    if right <= left or bottom <= top:
        return
    grid = _face_grid(geometry, inner, size)
    alpha = _opacity(grid, feather, times)
    firm = _firm(size, feather)
    if wide is not None:
        # Outside of the region the photo stays, and there is nothing to correct.
        alpha = alpha * _share(wide, grid, times)
        firm = firm * wide
    # Only the pixels that the face reaches are drawn, and only what is corrected is looked at again: of a method that
    # leaves the surroundings alone, a third of the window.
    drawn = alpha[0].flatten().nonzero()[:, 0]
    # From numbers of pixels in `inner` to numbers of pixels in the window.
    rows = torch.div(drawn, right - left, rounding_mode="floor") + (top - box[1])
    places = rows * window.shape[2] + drawn % (right - left) + (left - box[0])
    opacity = alpha[0].flatten()[drawn]
    # Each pass draws over the photo's own pixels, not over what the pass before has drawn.
    below = window.flatten(1).index_select(1, places)
    grid = _cells_of(grid, drawn, times)
    shown = window.flatten(1).clone()
    # Contiguous like `face`: the passes add to it through a flat view.
    corrected = face.clone()
    _draw(shown, corrected, places, below, opacity, grid)
    held = firm.flatten().nonzero()[:, 0]
    wanted = face.flatten(1).index_select(1, held)
    back = _crop_cells(geometry, box, size, held)
    for _ in range(passes):
        seen = _sampled(shown.view_as(window), back, "reflection").clamp(-1, 1)
        # Irani and Peleg: what the pasted face lacks when it is read back is added to the face.
        corrected.view(3, -1).index_add_(1, held, wanted - seen)
        _draw(shown, corrected, places, below, opacity, grid)
    left, top, right, bottom = box
    pixels = ((shown.view_as(window) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    photo[top:bottom, left:right] = pixels.permute(1, 2, 0).numpy()


def changed_region(before: Tensor, after: Tensor) -> Tensor:
    """Where a method that leaves the surroundings of a face alone has changed `(3, S, S)`: `(S, S)` of 0 and 1."""
    return ((after.clamp(-1, 1) - before).abs().amax(0) > SEEN).float()


def _widened(region: Tensor) -> Tensor:
    """The region and one pixel around it, so that no changed pixel lies on its soft edge."""
    return functional.max_pool2d(region[None, None].float(), 3, stride=1, padding=1)[0, 0]


def _share(region: Tensor, grid: Tensor, times: int) -> Tensor:
    """`(1, h, w)`: how much of each pixel of the window lies in the region `(S, S)`."""
    fine = functional.grid_sample(region[None, None], grid, mode="bilinear", padding_mode="border", align_corners=False)
    return _averaged(fine[0], times)


def _repeats(geometry: CropGeometry, size: int) -> int:
    """Samples across one pixel of the photo: more than one only where the photo's face is smaller than the model's."""
    return samples(size / geometry.side)


def _face_grid(geometry: CropGeometry, box: Box, size: int) -> Tensor:
    """For every (sub)pixel of the window, its place in the face, `(1, h, w, 2)` with the square at [-1, 1]."""
    left, top, right, bottom = box
    times = _repeats(geometry, size)
    x = left + (torch.arange((right - left) * times, dtype=torch.float64) + 0.5) / times - geometry.center_x
    y = top + (torch.arange((bottom - top) * times, dtype=torch.float64) + 0.5) / times - geometry.center_y
    x = x[None, :]
    y = y[:, None]
    # Projections onto the face's two axes, which are half a side long: divided by that length squared, the edges lie at
    # -1 and 1.
    half_squared = (geometry.side / 2) ** 2
    across = (x * geometry.axis_x + y * geometry.axis_y) / half_squared
    down = (y * geometry.axis_x - x * geometry.axis_y) / half_squared
    return torch.stack([across, down], -1)[None].float()


def _opacity(grid: Tensor, feather: float, times: int) -> Tensor:
    """`(1, h, w)`: 1 inside the square, falling smoothly to 0 at its edge, 0 outside."""
    # Share of the side between a pixel and the nearest edge.
    depth = (1 - grid.abs().amax(-1)) / 2
    if feather == 0:
        inside = (depth > 0).float()
    else:
        ramp = (depth / feather).clamp(0, 1)
        # The smoothstep polynomial: its slope is 0 at both ends of the ramp.
        inside = ramp * ramp * (3 - 2 * ramp)
    return _averaged(inside, times)


def _averaged(samples_of: Tensor, times: int) -> Tensor:
    """`(C, n h, n w)` with n x n samples a pixel -> `(C, h, w)`."""
    return samples_of if times == 1 else functional.avg_pool2d(samples_of, times)


def _firm(size: int, feather: float) -> Tensor:
    """`(S, S)`: 1 where the face is opaque. Correcting the soft edge as well would undo its softness."""
    steps = (torch.arange(size) * 2 + 1) / size - 1
    depth = (1 - torch.maximum(steps.abs()[:, None], steps.abs()[None, :])) / 2
    return (depth >= feather).float()


def _around(region: Tensor, geometry: CropGeometry, box: Box) -> Box:
    """The upright box around a region `(S, S)` of the face, within `box`; an empty one where the region is empty."""
    size = region.shape[-1]
    rows = region.amax(1).nonzero().flatten()
    columns = region.amax(0).nonzero().flatten()
    if len(rows) == 0:
        return box[0], box[1], box[0], box[1]
    return box_around((int(rows[0]), int(rows[-1])), (int(columns[0]), int(columns[-1])), size, geometry, box)


def _cells_of(grid: Tensor, chosen: Tensor, times: int) -> Tensor:
    """Of a grid `(1, n h, n w, 2)` with n x n samples a pixel, those of N chosen pixels: `(1, n * n, N, 2)`."""
    _, height, width, _ = grid.shape
    # (1, h n, w n, 2) -> (1, n, n, h, w, 2): then the samples of a pixel become rows, and the pixels columns.
    samples_of = grid.view(height // times, times, width // times, times, 2).permute(1, 3, 0, 2, 4)
    return samples_of.reshape(1, times * times, -1, 2).index_select(2, chosen)


def _crop_cells(geometry: CropGeometry, box: Box, size: int, chosen: Tensor) -> Tensor:
    """As `_cells_of` of `crop_grid`, computed for the chosen pixels of the crop alone."""
    # `(n, S)`: row i holds the i-th sample of each pixel along one side.
    steps = crop_steps(geometry, size).view(size, -1).T
    times = len(steps)
    rows = torch.div(chosen, size, rounding_mode="floor")
    # Sample k of a pixel is the (k % n)-th across and the (k // n)-th down, in the order of `_cells_of`.
    right = steps[:, chosen % size].repeat(times, 1)
    down = steps[:, rows].repeat_interleave(times, 0)
    return places_in_window(geometry, box, right, down)[None]


def _sampled(picture: Tensor, grid: Tensor, beyond: str) -> Tensor:
    """A picture `(3, h, w)` at the places of `_cells_of`, the samples of each pixel averaged: `(3, N)`."""
    fine = functional.grid_sample(picture[None], grid, mode="bicubic", padding_mode=beyond, align_corners=False)
    total = fine[0, :, 0]
    for number in range(1, fine.shape[2]):
        total = total + fine[0, :, number]
    return total / fine.shape[2]


def _draw(shown: Tensor, face: Tensor, places: Tensor, below: Tensor, opacity: Tensor, grid: Tensor) -> None:
    """Draw the face over what lies below, in place, clamped.

    Args:
        shown: `(3, pixels of the window)`.
        face: `(3, S, S)`.
        places: `(N,)`, which pixels are drawn.
        below: `(3, N)`, what they show without the face.
        opacity: `(N,)`.
        grid: Of these pixels, see `_cells_of`.
    """
    drawn = _sampled(face, grid, "border")
    shown.index_copy_(1, places, (below + opacity * (drawn - below)).clamp_(-1, 1))


@cache
def _obscuring(how: str) -> Irreversible:
    """The classical method of this name, with the settings for small faces."""
    if how == "blur":
        return Blur(region="picture", sigma=BLUR)
    if how == "pixelate":
        return Pixelate(region="picture", cells=CELLS)
    return Mask(region="picture")


class TorchPictures:
    """`photo.pictures.Pictures` on torch's tensors, on the CPU."""

    def crops(self, photo: NDArray[np.uint8], squares: Sequence[CropGeometry], size: int) -> Faces:
        """The faces in some squares, a tensor `(B, 3, S, S)` in [-1, 1]."""
        return self.stacked([crop(photo, square, size) for square in squares])

    paste = staticmethod(paste)
    changed_region = staticmethod(changed_region)

    def is_finite(self, face: Faces) -> bool:
        """Whether all numbers of a face are finite."""
        return bool(face.isfinite().all())

    def obscured(self, face: Faces, how: str) -> Faces:
        """A face `(3, S, S)` under a classical method: `blur`, `pixelate` or `mask`."""
        # Not `anonymize`: all of the square is to go, and no key plays a part.
        return _obscuring(how).obscured(face[None])[0]

    def stacked(self, faces: Sequence[Faces]) -> Faces:
        """Faces `(3, S, S)` as one tensor `(B, 3, S, S)`."""
        return torch.stack(list(faces))
