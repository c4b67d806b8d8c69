"""Light and skin of a face in a few numbers: a smooth surface of colour fitted to it."""

from __future__ import annotations

import torch
from torch import Tensor

TERMS = 6  # 1, x, y, x^2, x y, y^2
# Adding this to the normal equations keeps faces of few cells solvable, and slopes and curvatures small.
STIFFNESS = (1e-4, 0.01, 0.01, 0.01, 0.01, 0.01)


def polynomials(cells: int, device: torch.device) -> Tensor:
    """The six terms at the middles of the cells of a square from -1 to 1: `(cells * cells, 6)`, row by row."""
    steps = (torch.arange(cells, device=device) + 0.5) / cells * 2 - 1
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    terms = torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], -1)
    return terms.view(-1, TERMS)


def fit_light(colours: Tensor, mask: Tensor) -> Tensor:
    """Fit a surface of second order to the colours under a mask, by least squares.

    Args:
        colours: `(B, 3, h, h)`.
        mask: `(B, 1, h, h)` of 0 and 1; at least one cell of every row is 1.

    Returns:
        Coefficients `(B, 6, 3)`, float32; differentiable in the colours.

    Examples:
        >>> import torch
        >>> from faceanon.losses.light import fit_light, light_surface
        >>> grey = torch.full((1, 3, 16, 16), 0.25)
        >>> light = fit_light(grey, mask=torch.ones(1, 1, 16, 16))
        >>> light.shape
        torch.Size([1, 6, 3])
        >>> bool((light_surface(light, 16) - grey).abs().max() < 1e-3)
        True
    """
    with torch.autocast(colours.device.type, enabled=False):
        terms = polynomials(colours.shape[-1], colours.device)
        area = mask.float().sum((1, 2, 3))[:, None, None]
        masked = terms * mask.float().flatten(2).transpose(1, 2)
        stiffness = torch.diag(torch.tensor(STIFFNESS, device=colours.device))
        # Over the area, so that the stiffness weighs alike for small and large faces.
        system = masked.transpose(1, 2) @ terms / area + stiffness
        target = masked.transpose(1, 2) @ colours.float().flatten(2).transpose(1, 2) / area
        solution: Tensor = torch.linalg.solve(system, target)
    return solution


def light_surface(coefficients: Tensor, cells: int) -> Tensor:
    """The surface of coefficients `(B, 6, 3)` at the cells: `(B, 3, cells, cells)`.

    Examples:
        >>> import torch
        >>> from faceanon.losses.light import light_surface
        >>> coefficients = torch.zeros(1, 6, 3)
        >>> coefficients[:, 1] = 1  # brighter to the right
        >>> light_surface(coefficients, cells=4)[0, 0]
        tensor([[-0.7500, -0.2500,  0.2500,  0.7500],
                [-0.7500, -0.2500,  0.2500,  0.7500],
                [-0.7500, -0.2500,  0.2500,  0.7500],
                [-0.7500, -0.2500,  0.2500,  0.7500]])
    """
    colours = polynomials(cells, coefficients.device) @ coefficients
    return colours.transpose(1, 2).view(len(coefficients), 3, cells, cells)
