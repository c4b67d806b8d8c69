"""Faces and their five points by MTCNN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from faceanon.errors import UserError
from faceanon.networks.boxes import nms, roi_align
from faceanon.networks.mtcnn import load_mtcnn
from faceanon.photo.detect import CELL, Detection

STRIDE = 2
CHUNK = 512  # crops in one call of R-Net or O-Net


@dataclass(frozen=True)
class MtcnnConfig:
    """What MTCNN looks for.

    Args:
        min_face: Side of the smallest face in pixels of the photo, at least 12.
        max_side: Photos with a longer side are shrunk to it before the search, so that a photo of any size takes
            bounded time and memory; the smallest face that is found grows with them.
        factor: Ratio of two neighbouring scales.
        thresholds: Least probabilities after the three networks.

    Raises:
        UserError: If `min_face` is below 12 pixels.
    """

    min_face: float = 20
    max_side: int = 2048
    factor: float = 0.709
    thresholds: tuple[float, float, float] = (0.6, 0.7, 0.8)

    def __post_init__(self) -> None:
        if not self.min_face >= CELL:
            raise UserError(f"the smallest face to look for must have {CELL} px or more, not {self.min_face}")


class MtcnnDetector:
    """The cascade of Zhang et al. 2016: proposals on a pyramid, refinement, output with points.

    Args:
        config: What to look for.
        device: Where the networks run.
    """

    def __init__(self, config: MtcnnConfig | None = None, device: torch.device | str = "cpu") -> None:
        self.config = config or MtcnnConfig()
        self.device = torch.device(device)
        self.pnet, self.rnet, self.onet = (net.to(self.device) for net in load_mtcnn())
        for net in (self.pnet, self.rnet, self.onet):
            net.to(memory_format=torch.channels_last)  # 1.5 times as fast

    @torch.inference_mode()
    def detect(self, image: NDArray[np.uint8]) -> list[Detection]:
        """Faces of an RGB photo `(H, W, 3)` uint8, the largest first."""
        photo, scale = self._prepare(image)
        boxes = self._propose(photo, self.config.min_face * scale)
        boxes, _ = self._refine(photo, boxes)
        boxes, scores, points = self._output(photo, boxes)
        faces = []
        for box, score, (xs, ys) in zip(
            (boxes / scale).tolist(), scores.tolist(), (points / scale).tolist(), strict=True
        ):
            faces.append(Detection(tuple(box), score, np.array([xs, ys]).T))
        return sorted(faces, key=lambda face: -face.size)

    def _prepare(self, image: NDArray[np.uint8]) -> tuple[Tensor, float]:
        """The photo as `(1, 3, H, W)` in [-1, 1], no longer than `max_side`, and the factor by which it shrank."""
        photo = torch.from_numpy(np.array(image)).to(self.device).permute(2, 0, 1)[None].float()
        # The published weights expect a division by 128, not by 127.5.
        photo = ((photo - 127.5) / 128).contiguous(memory_format=torch.channels_last)
        scale = min(1.0, self.config.max_side / max(image.shape[:2]))
        return (photo if scale == 1 else _shrink(photo, scale)), scale

    def _propose(self, photo: Tensor, min_face: float) -> Tensor:
        """Square boxes `(N, 4)` from P-Net on every scale of the pyramid."""
        proposals = []
        # In a photo that was shrunk, the smallest wanted face may be smaller than a cell.
        for scale in _pyramid(photo, max(min_face, CELL), self.config.factor):
            proposals.append(self._propose_at(photo, scale))
        if not proposals:
            return photo.new_zeros(0, 4)
        boxes = torch.cat([boxes for boxes, _ in proposals])
        scores = torch.cat([scores for _, scores in proposals])
        return _square(boxes[nms(boxes, scores, 0.7)])

    def _propose_at(self, photo: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        logits, offsets = self.pnet(_shrink(photo, scale))
        # `(h, w)`: channel 1 is that of faces, and the batch is one photo.
        scores = logits.softmax(1)[0, 1]
        row, column = torch.nonzero(scores > self.config.thresholds[0], as_tuple=True)
        # Every cell sees the CELL pixels that begin at STRIDE times its place; offsets are in sides of a cell.
        corner = torch.stack([column, row, column, row], 1) * STRIDE
        cells = corner + torch.tensor([0, 0, CELL, CELL], device=corner.device)
        boxes = (cells + offsets[0, :, row, column].T * CELL) / scale
        # Within a scale 0.5, between scales 0.7, as the authors' code has it.
        kept = nms(boxes, scores[row, column], 0.5)
        return boxes[kept], scores[row, column][kept]

    def _refine(self, photo: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Square boxes `(N, 4)` that R-Net keeps, moved, and their scores `(N,)`."""
        answers = []
        # Without boxes torch.split gives one empty part, so the lines below need no branch for it.
        for part in torch.split(boxes, CHUNK):
            answers.append(self.rnet(_cut(photo, part, 24)))
        logits, offsets = map(torch.cat, zip(*answers, strict=True))
        scores = logits.softmax(1)[:, 1]
        boxes = _move(boxes, offsets)
        keep = scores > self.config.thresholds[1]
        boxes = boxes[keep]
        scores = scores[keep]
        keep = nms(boxes, scores, 0.7)
        return _square(boxes[keep]), scores[keep]

    def _output(self, photo: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes `(N, 4)`, scores `(N,)` and points `(N, 2, 5)` that O-Net keeps."""
        answers = []
        for part in torch.split(boxes, CHUNK):
            answers.append(self.onet(_cut(photo, part, 48)))
        logits, offsets, points = map(torch.cat, zip(*answers, strict=True))
        scores = logits.softmax(1)[:, 1]
        # Before the boxes are moved: the network gives points in sides of the box that it was shown.
        sides = (boxes[:, 2:] - boxes[:, :2])[..., None]
        points = boxes[:, :2, None] + points.reshape(-1, 2, 5) * sides  # (N, 2, 5)
        boxes = _move(boxes, offsets)
        keep = scores > self.config.thresholds[2]
        boxes = boxes[keep]
        scores = scores[keep]
        points = points[keep]
        keep = _suppress_nested(boxes, scores)
        return boxes[keep], scores[keep], points[keep]


def _pyramid(photo: Tensor, min_face: float, factor: float) -> Iterator[float]:
    # At this scale the smallest wanted face fills one cell of P-Net; every further scale finds larger faces.
    scale = CELL / min_face
    while min(photo.shape[-2:]) * scale >= CELL:
        yield scale
        scale *= factor


def _shrink(photo: Tensor, scale: float) -> Tensor:
    size = []
    for side in photo.shape[-2:]:
        size.append(max(1, math.ceil(side * scale)))
    if size == list(photo.shape[-2:]):
        return photo
    return functional.interpolate(photo, size, mode="area")


def _cut(photo: Tensor, boxes: Tensor, size: int) -> Tensor:
    """`(N, 3, size, size)` of boxes `(N, 4)`; each pixel averages all that it covers, mid-grey outside the photo."""
    index = boxes.new_zeros(len(boxes), 1)
    crops: Tensor = roi_align(photo, torch.cat([index, boxes], 1), (size, size))
    return crops


def _move(boxes: Tensor, offsets: Tensor) -> Tensor:
    """Shift the edges by offsets `(N, 4)` in units of the box's own sides."""
    return boxes + offsets * (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)


def _square(boxes: Tensor) -> Tensor:
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    # The networks take squares. The longer side counts, so that nothing of the box is cut off.
    half = (boxes[:, 2:] - boxes[:, :2]).amax(1, keepdim=True) / 2
    return torch.cat([middle - half, middle + half], 1)


def _suppress_nested(boxes: Tensor, scores: Tensor, limit: float = 0.7) -> Tensor:
    """Indices that survive greedy suppression by the share of the *smaller* box, so a box inside a better one goes."""
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    nested = common > limit * torch.minimum(area[:, None], area[None, :])
    kept: list[int] = []
    for index in scores.argsort(descending=True).tolist():
        if not nested[index, kept].any():
            kept.append(index)
    return torch.tensor(kept, dtype=torch.long, device=boxes.device)
