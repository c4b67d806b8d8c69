"""The five pictures that stage 2 draws of a face."""

import torch

from faceanon.types import Branches


def branches_of(backbone, image):
    """Five pictures a face, drawn as stage 2 does without a file between."""
    size = len(image)
    codes = backbone.encode(image)
    keys = backbone.sample_key(4 * size)
    edited = backbone.edit(codes.map(lambda item: torch.cat([item, item])), keys[: 2 * size])
    drawn = backbone.decode(edited)
    found = backbone.encode_anonymized(drawn[:size])
    opened = backbone.edit(
        found.map(lambda item: item.repeat(3, *[1] * (item.ndim - 1))),
        torch.cat([keys[:size], keys[2 * size :]]),
        inverse=True,
    )
    pictures = torch.cat([drawn, backbone.decode(opened)])
    return Branches(pictures, codes, edited, found, opened.map(lambda item: item[:size]), keys)
