"""Put a face back into its photo so that cropping the saved photo gives the same face again."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from faceanon.manifest import CropGeometry
from faceanon.photo.align import Box, crop_grid, crop_on_grid, crop_window, samples, window_tensor

FEATHER = 0.05
PASSES = 4
SEEN = 1 / 255  # of a change on [-1, 1]: half a step of 8 bits, below which a pixel stays what it was


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
    """
    box = crop_window(geometry, photo.shape[1], photo.shape[0])
    window = window_tensor(photo, box)
    face = face.detach().cpu().float().clamp(-1, 1)
    size = face.shape[-1]
    grid = _face_grid(geometry, box, size)
    alpha = _opacity(grid, feather, _repeats(geometry, size))
    firm = _firm(size, feather)
    if region is not None:
        wide = _widened(region)
        alpha = alpha * _share(wide, grid, _repeats(geometry, size))
        firm = firm * wide
    corrected = face
    blended = _blend(window, corrected, alpha, grid, geometry)
    back = crop_grid(geometry, box, size)
    for _ in range(passes):
        corrected = corrected + firm * (face - crop_on_grid(blended, back, size))
        blended = _blend(window, corrected, alpha, grid, geometry)
    left, top, right, bottom = box
    pixels = ((blended + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
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
    return functional.avg_pool2d(fine, times)[0]


def _repeats(geometry: CropGeometry, size: int) -> int:
    """Samples across one pixel of the photo: more than one only where the photo's face is smaller than the model's."""
    return samples(size / geometry.side)


def _face_grid(geometry: CropGeometry, box: Box, size: int) -> Tensor:
    """For every (sub)pixel of the window, its place in the face, `(1, h, w, 2)` with the square at [-1, 1]."""
    left, top, right, bottom = box
    times = _repeats(geometry, size)
    x = left + (torch.arange((right - left) * times, dtype=torch.float64) + 0.5) / times - geometry.center_x
    y = top + (torch.arange((bottom - top) * times, dtype=torch.float64) + 0.5) / times - geometry.center_y
    y, x = torch.meshgrid(y, x, indexing="ij")
    half_squared = (geometry.side / 2) ** 2
    across = (x * geometry.axis_x + y * geometry.axis_y) / half_squared
    down = (y * geometry.axis_x - x * geometry.axis_y) / half_squared
    return torch.stack([across, down], -1)[None].float()


def _opacity(grid: Tensor, feather: float, times: int) -> Tensor:
    """`(1, h, w)`: 1 inside the square, falling smoothly to 0 at its edge, 0 outside."""
    depth = (1 - grid.abs().amax(-1)) / 2  # share of the side between a pixel and the nearest edge
    if feather == 0:
        inside = (depth > 0).float()
    else:
        ramp = (depth / feather).clamp(0, 1)
        inside = ramp * ramp * (3 - 2 * ramp)
    return functional.avg_pool2d(inside, times)


def _firm(size: int, feather: float) -> Tensor:
    """`(S, S)`: 1 where the face is opaque. Correcting the soft edge as well would undo its softness."""
    steps = (torch.arange(size) * 2 + 1) / size - 1
    depth = (1 - torch.maximum(steps.abs()[:, None], steps.abs()[None, :])) / 2
    return (depth >= feather).float()


def _blend(window: Tensor, face: Tensor, alpha: Tensor, grid: Tensor, geometry: CropGeometry) -> Tensor:
    """The window `(3, h, w)` with the face drawn over it, clamped."""
    drawn = functional.grid_sample(face[None], grid, mode="bicubic", padding_mode="border", align_corners=False)
    drawn = functional.avg_pool2d(drawn, _repeats(geometry, face.shape[-1]))[0]
    return (window + alpha * (drawn - window)).clamp(-1, 1)
