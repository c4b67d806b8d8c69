"""torchvision's operations on boxes without its Python part, whose import alone takes a second or two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec

import torch
from torch import Tensor

LIBRARIES = ("_C_stable", "_C")  # what releases of torchvision call the file with the operations


def nms(boxes: Tensor, scores: Tensor, overlap: float) -> Tensor:
    """Boxes that no better one covers, the best first.

    Args:
        boxes: `(N, 4)`: x1, y1, x2, y2.
        scores: `(N,)`.
        overlap: Intersection over union above which the worse one of two boxes goes.

    Returns:
        The numbers of those that stay.

    Examples:
        >>> import torch
        >>> from faceanon.networks.boxes import nms
        >>> boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 11.0, 11.0], [50.0, 50.0, 60.0, 60.0]])
        >>> nms(boxes, torch.tensor([0.8, 0.9, 0.7]), overlap=0.5)
        tensor([1, 2])
    """
    _load()
    kept: Tensor = torch.ops.torchvision.nms(boxes, scores, overlap)
    return kept


def roi_align(pictures: Tensor, boxes: Tensor, size: tuple[int, int], samples: int = -1) -> Tensor:
    """Boxes cut out of pictures, scaled bilinearly ("aligned" in torchvision's sense).

    Args:
        pictures: `(B, C, H, W)`.
        boxes: `(N, 5)`: number of the picture, then x1, y1, x2, y2 in its pixels.
        size: Height and width of what is cut out.
        samples: Samples along one pixel of it; as many as the box needs when -1.

    Returns:
        `(N, C, height, width)`.
    """
    if pictures.is_cuda or (pictures.requires_grad and torch.is_grad_enabled()):
        # Gradients, and what makes a run on a GPU repeatable, are in torchvision's Python part.
        from torchvision.ops import roi_align as by_torchvision

        whole: Tensor = by_torchvision(pictures, boxes, size, sampling_ratio=samples, aligned=True)
        return whole
    _load()
    # Scale 1: boxes are in pixels of the pictures. The last argument is torchvision's `aligned`.
    cut: Tensor = torch.ops.torchvision.roi_align(pictures, boxes, 1.0, *size, samples, True)
    return cut


def cut_out(pictures: Tensor, box: Sequence[float], side: int) -> Tensor:
    """The same box of every picture, scaled as `roi_align` does.

    Args:
        pictures: `(B, C, S, S)`.
        box: Left, top, right and bottom in sides of a picture.
        side: Of what is cut out, in pixels.

    Returns:
        `(B, C, side, side)`.
    """
    place = torch.tensor([box], dtype=torch.float32, device=pictures.device) * pictures.shape[-1]
    numbers = torch.arange(len(pictures), dtype=torch.float32, device=pictures.device)[:, None]
    boxes = torch.cat([numbers, place.expand(len(pictures), -1)], 1)
    return roi_align(pictures, boxes, (side, side))


@cache
def _load() -> None:
    """Have torch know torchvision's compiled operations."""
    package = find_spec("torchvision")
    if package is None:
        folders = []
    else:
        folders = list(package.submodule_search_locations or [])
    for name in LIBRARIES:
        # It looks into these folders alone. `find_spec` of a name with a dot would first import the package.
        library = PathFinder.find_spec(name, folders)
        if library is not None and library.origin is not None:
            torch.ops.load_library(library.origin)  # type: ignore[no-untyped-call]
            return
    # Its own import knows where the parts of another release lie.
    import_module("torchvision")
