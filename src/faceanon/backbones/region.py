"""Where in a picture the person is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.weights.bundle import Bundle


@torch.no_grad()
def labelled(bundle: Bundle, image: Tensor, classes: Sequence[int]) -> Tensor:
    """`(B, 1, S, S)`, of the picture's dtype: 1 where the parser sees one of `classes`, else 0."""
    wanted = torch.tensor(classes, device=image.device)
    labels = bundle.parser(image).argmax(1, keepdim=True)
    # Torch.isin has no counterpart in ONNX.
    return (labels[..., None] == wanted).any(-1).to(image.dtype)


@torch.no_grad()
def face_hole(bundle: Bundle, image: Tensor) -> Tensor:
    """`(B, 1, S, S)`: 1 where the parser sees face or neck, wider by a sixteenth of S, else 0."""
    face = labelled(bundle, image, bundle.edited_classes).float()
    reach = bundle.image_size // 16
    wide: Tensor = F.max_pool2d(face, 2 * reach + 1, 1, reach)
    return wide


def softened(hole: Tensor) -> Tensor:
    """`(B, 1, S, S)` with edges a sixteenth of S wide."""
    reach = hole.shape[-1] // 16
    # Padding does not count, or the hole would fade at the picture's border.
    return F.avg_pool2d(hole, reach + 1, 1, reach // 2, count_include_pad=False)
