"""Terms whose networks see few pictures at a time, so that a step's memory does not grow with all that it draws."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from faceanon.losses.adversarial import generator_losses
from faceanon.losses.early import rowwise
from faceanon.losses.parsing import parse_losses
from faceanon.networks.adapters import PerceptualDistance
from faceanon.networks.discriminator import Discriminator
from faceanon.networks.upfirdn import fast_layout

# As many as `minibatch_stddev` compares at most, so that one of its groups fits into one chunk.
CPU_PICTURES = 4


def at_once(device: torch.device, pictures: int) -> int:
    """How many pictures to show a term's network at a time: few on a CPU, which is no slower so; else all."""
    if device.type == "cpu":
        return min(pictures, CPU_PICTURES)
    return pictures


def plain_chunks(pictures: Tensor) -> list[Tensor]:
    """Row numbers of `(N, ...)` in order, for networks that look at every picture alone."""
    count = len(pictures)
    return list(torch.arange(count, device=pictures.device).split(at_once(pictures.device, count)))  # type: ignore[no-untyped-call]


def discriminator_chunks(discriminator: nn.Module, pictures: Tensor) -> list[Tensor]:
    """Row numbers of `(N, ...)` that a discriminator may see apart from the rest, with the same logits.

    StyleGAN2's compares the pictures of a group, of which `minibatch_stddev` makes N / size: row i is in group
    i mod N / size. On a CPU it sees one group at a time (two together could fall into other groups). Of any other
    network nothing is known, so it sees all at once.
    """
    count = len(pictures)
    device = pictures.device
    rows = torch.arange(count, device=device)
    if not isinstance(discriminator, Discriminator) or at_once(device, count) == count:
        return [rows]
    # The size of a group, by the rule of `minibatch_stddev`.
    divisors = []
    for chunk in range(1, CPU_PICTURES + 1):
        if count % chunk == 0:
            divisors.append(chunk)
    size = max(divisors)
    # Rows of a group lie N / size apart, so a group is a column of this view.
    return list(rows.view(size, -1).unbind(1))


def fooling_rows(discriminator: nn.Module, drawn: Tensor) -> Tensor:
    """The generator's loss `(N,)` on drawn pictures `(N, 3, S, S)`; weigh all alike."""
    chunks = discriminator_chunks(discriminator, drawn)
    return rowwise(lambda part, _: generator_losses(discriminator(part)), drawn, chunks)


def perceptual_rows(distance: PerceptualDistance, drawn: Tensor, originals: Tensor) -> Tensor:
    """Perceptual distance `(N,)` of `(N, 3, S, S)` to the originals `(B, 3, S, S)`, N / B times in a row."""
    drawn = fast_layout(drawn)
    with torch.no_grad():
        maps = distance.maps(fast_layout(originals))

    def differ(part: Tensor, rows: Tensor) -> Tensor:
        references = []
        for item in maps:
            # Drawn pictures are whole batches one after the other: row i is of original i mod B.
            references.append(item[rows % len(originals)])
        return distance(part, references)  # type: ignore[no-any-return]

    return rowwise(differ, drawn, plain_chunks(drawn))


def parsing_rows(
    parser: Callable[[Tensor], Tensor], drawn: Tensor, originals: Tensor, classes: tuple[int, ...]
) -> Tensor:
    """Parse loss of every row, `(N,)`, computed in the same chunks."""
    drawn = fast_layout(drawn)
    with torch.no_grad():
        wanted = parser(fast_layout(originals))[:, list(classes)]

    def differ(part: Tensor, rows: Tensor) -> Tensor:
        return parse_losses(parser(part), wanted[rows % len(originals)], classes)

    return rowwise(differ, drawn, plain_chunks(drawn))


def landmark_rows(landmarks: Callable[[Tensor], Tensor], drawn: Tensor, originals: Tensor) -> Tensor:
    """How far the landmarks of every row are from its original's, `(N,)` in sides of the picture, in chunks too."""
    drawn = fast_layout(drawn)
    with torch.no_grad():
        wanted = landmarks(fast_layout(originals))

    def differ(part: Tensor, rows: Tensor) -> Tensor:
        away = landmarks(part) - wanted[rows % len(originals)]
        # Points lie in [-1, 1], so half of a distance is one in sides.
        distance: Tensor = away.norm(dim=-1).mean(1) / 2
        return distance

    return rowwise(differ, drawn, plain_chunks(drawn))
