"""A linear draft and the linear layer that reads it, stored once.

A prior's generator may begin with principal components (`draft`), and its encoder with the linear layer that reads a
picture's components (`flat`). The second follows from the first, so that a file of the encoder holds in its place only
how much each cell counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

CELLS = "flat.cells"
WEIGHT = "flat.weight"
BIAS = "flat.bias"
QUIET = 1e-6  # length of a component below which nothing was found for it; it reads 0
SAME = 1e-4  # relative difference up to which a reading counts as the one that follows


def reading(draft: Tensor, mean: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    """The linear layer that finds the numbers from which a draft comes nearest to given latents.

    It solves the weighted least squares min over c of |s (D c + m - x)|^2, which gives c = A x - A m with
    A = (D' S D)^-1 D' S, where S holds the squares of s.

    Args:
        draft: D `(C h h, K)`; a column is a component.
        mean: m `(C h h,)`.
        cells: s `(h, h)`, above 0: how much each cell counts; or `(C, h, h)`, in each channel.

    Returns:
        Weight `(K, C h h)` and bias `(K,)`, float32.

    Examples:
        >>> import torch
        >>> from faceanon.weights.components import reading
        >>> draft = torch.randn(8, 3)
        >>> weight, bias = reading(draft, torch.ones(8), torch.ones(2, 2))
        >>> numbers = torch.tensor([0.5, -1.0, 2.0])
        >>> torch.allclose(weight @ (draft @ numbers + 1) + bias, numbers, atol=1e-4)
        True
    """
    counts = cells.float().flatten()
    # Cells that count alike in all channels.
    counts = counts.repeat(len(draft) // len(counts))
    columns = draft.float() * counts[:, None]
    # Lengths differ by a factor of a hundred. Columns of one length, nearly at right angles, want no double precision.
    lengths = columns.norm(dim=0).clamp(min=QUIET)
    columns = columns / lengths
    products = columns.T @ columns
    # Where nothing was found a column is 0, and its own product would be too.
    products.diagonal().clamp_(min=1)
    solved = torch.cholesky_solve(columns.T, torch.linalg.cholesky(products))
    # `columns` holds s once, so `solved` has one of the two factors s of S; `counts` is the other. The division undoes
    # that the columns were brought to one length.
    weight = solved * counts / lengths[:, None]
    return weight, -(weight @ mean.float())


def without_reading(encoder: Mapping[str, Tensor], generator: Mapping[str, Tensor], cells: Tensor) -> dict[str, Tensor]:
    """An encoder's tensors for a file, without its reading of the generator's draft where that can be computed anew.

    Args:
        encoder: Its state dict.
        generator: The generator's, with the draft as its file gives it back.
        cells: As in `reading`.
    """
    weight, _ = reading(generator["draft.weight"], generator["draft.bias"], cells)
    own = encoder[WEIGHT].detach().cpu()
    # A layer that was trained on does not follow from the draft any more: it is stored as it is.
    if (weight - own).norm() > SAME * own.norm():
        return dict(encoder)
    stored = {}
    for name, tensor in encoder.items():
        if name not in (WEIGHT, BIAS):
            stored[name] = tensor
    stored[CELLS] = cells
    return stored


def with_reading(encoder: Mapping[str, Tensor], generator: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An encoder's tensors as it loads them: what `without_reading` left out is computed from the generator's draft."""
    tensors = dict(encoder)
    cells = tensors.pop(CELLS, None)
    if cells is not None:
        tensors[WEIGHT], tensors[BIAS] = reading(generator["draft.weight"], generator["draft.bias"], cells.float())
    return tensors
