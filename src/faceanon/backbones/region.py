"""Where in a picture the person is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.networks.hull import convex_hull
from faceanon.networks.mesh_landmarks import MeshLandmarks
from faceanon.weights.bundle import Bundle, network_class


@torch.no_grad()
def labelled(bundle: Bundle, image: Tensor, classes: Sequence[int]) -> Tensor:
    """`(B, 1, S, S)`, of the picture's dtype: 1 where the parser sees one of `classes`, else 0."""
    wanted = torch.tensor(classes, device=image.device)
    labels = bundle.parser(image).argmax(1, keepdim=True)
    # Torch.isin has no counterpart in ONNX.
    return (labels[..., None] == wanted).any(-1).to(image.dtype)


def has_mesh(bundle: Bundle) -> bool:
    """Whether the bundle's landmarks are the mesh, whose points cover a face from the chin to the forehead."""
    if not bundle.has("landmarks"):
        return False
    return issubclass(network_class(bundle.entry("landmarks").get("class", "")), MeshLandmarks)


def require_face(bundle: Bundle) -> None:
    """Check that `face_region` can tell where a face is.

    Raises:
        UserError: The bundle has neither a parser nor the mesh.
    """
    if not has_mesh(bundle):
        bundle.require("parser")


@torch.no_grad()
def face_region(bundle: Bundle, image: Tensor) -> Tensor:
    """Where the face lies that a method may draw anew.

    Args:
        bundle: Its parser is asked; where it has none, its mesh, which knows no neck.
        image: `(B, 3, S, S)` in [-1, 1].

    Returns:
        `(B, 1, S, S)`, of the picture's dtype: 1 in the face, else 0.

    Raises:
        UserError: The bundle has neither a parser nor the mesh.
    """
    # A bundle with neither goes the parser's way too, whose error says which network is lacking.
    if bundle.has("parser") or not has_mesh(bundle):
        return labelled(bundle, image, bundle.edited_classes)
    return convex_hull(bundle.landmarks(image), image.shape[-1]).to(image.dtype)


@torch.no_grad()
def face_hole(bundle: Bundle, image: Tensor) -> Tensor:
    """`(B, 1, S, S)`: 1 in `face_region` and up to a sixteenth of S around it, else 0."""
    face = face_region(bundle, image).float()
    reach = bundle.image_size // 16
    wide: Tensor = F.max_pool2d(face, 2 * reach + 1, 1, reach)
    return wide


def softened(hole: Tensor) -> Tensor:
    """`(B, 1, S, S)` with edges a sixteenth of S wide."""
    reach = hole.shape[-1] // 16
    # Padding does not count, or the hole would fade at the picture's border.
    return F.avg_pool2d(hole, reach + 1, 1, reach // 2, count_include_pad=False)
