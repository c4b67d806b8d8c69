"""What the stages train Persona's flow with. Nothing here runs when a photo is anonymized."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.persona_cells import joined_in, wider, window_of
from faceanon.landmarks.drawings import EXPRESSION
from faceanon.landmarks.mesh import FaceMesh
from faceanon.networks.flow_painter import flow_error
from faceanon.networks.identity_space import IdentitySpace
from faceanon.types import Branches, Codes, FaceBatch
from faceanon.weights.bundle import Bundle

UNLIKE = 0.2  # cosine of two keys' faces from which they are pulled apart
TURNED = 0.08  # radians, as far as pictures are turned before the recogniser looks at them, to each side
RESIZED = 0.06  # ... resized
MOVED = 0.05  # ... moved, in half sides of the picture
BLURRED = 0.5  # most of a blurred picture that is mixed in
LIT = 0.15  # ... and made brighter or darker


@dataclass(frozen=True)
class PersonaTerms:
    """The terms of both stages.

    Args:
        bundle: With codec and recogniser.
        identities: The space of the identity codes.
        mesh: Finds the 468 points.
    """

    bundle: Bundle
    identities: IdentitySpace
    mesh: FaceMesh

    def flow(self, latents: Tensor, codes: Codes, drawn: Tensor) -> Tensor:
        """How wrong the flow's directions to photographs are (`flow_error`), a scalar.

        Args:
            latents: `(B, 32, h, h)` of the photographs.
            codes: Theirs, with places x(t) on the way to them.
            drawn: `(B, 32, h, h)`, x(1) as the flow expects it there.
        """
        assert codes.mask is not None
        assert codes.time is not None
        return flow_error(drawn, latents, codes.mask, codes.time).mean()

    def hiding(self, batch: FaceBatch, branches: Branches, drawn: Tensor, wanted: Collection[str]) -> dict[str, Tensor]:
        """Stage 2: put-on faces as the flow redraws them, through the decoder.

        `hide`        Cosine above 0 to the person, or to her mirror image, by the recogniser.
        `apart`       Cosine above .2 between one face under two keys.
        `donor`       1 - cos of the free part of the identity code to that of the donor whose face was put on.
        `expression`  L1 between where the mesh sees eyes and mouth, and where the put-on face has them.

        Args:
            batch: B photographs.
            branches: Whose edited codes are of the put-on faces.
            drawn: `(N, 32, h, h)` redrawn, N a multiple of B.
            wanted: Names of terms.
        """
        edited = branches.edited
        assert edited.image is not None
        assert edited.mask is not None
        assert edited.mesh is not None
        shown = self._shown(drawn, edited.mask, edited.image)
        # In float32: bfloat16 has two digits for a cosine.
        seen = self.bundle.recogniser(seen_otherwise(shown)).float()
        with torch.no_grad():
            known = self.bundle.recogniser(torch.cat([batch.image, batch.image.flip(-1)])).float().chunk(2)
        alike = torch.stack([(seen * own.repeat(branches.versions, 1)).sum(1) for own in known]).amax(0)
        free = self.identities.free_basis
        donor = F.cosine_similarity(self.identities.code(seen) @ free, edited.identity @ free)
        terms = {"hide": (F.relu(alike) + 2 * F.relu(alike).square()).mean(), "donor": (1 - donor).mean()}
        if branches.versions == 2:
            first, second = seen.chunk(2)
            terms["apart"] = F.relu((first * second).sum(1) - UNLIKE).mean()
        if "expression" in wanted:
            places = list(EXPRESSION)
            terms["expression"] = (self.mesh.seen(shown)[:, places] - edited.mesh[:, places, :2]).abs().mean()
        return terms

    def _shown(self, drawn: Tensor, mask: Tensor, image: Tensor) -> Tensor:
        """Pictures `(N, 3, S, S)` of latents within `image`; only what a batch draws anew is decoded.

        The codec looks at the whole picture, though weakly: a window's pixels differ by 0.02 on average, which moves
        embeddings by a hundredth.
        """
        window = wider(window_of(mask), mask.shape[-1])
        top, bottom, left, right = window
        part = self.bundle.codec.decode(drawn[:, :, top:bottom, left:right])
        return joined_in(window, part, mask, image)


def seen_otherwise(picture: Tensor) -> Tensor:
    """Pictures `(N, 3, S, S)` as a recogniser may meet them: turned, moved, resized, blurred, in other light.

    Where a recogniser always sees the same picture, what is drawn fools this one at this place, and no other.
    """
    rows = len(picture)
    angle = TURNED * _spread(picture, rows)
    size = 1 + RESIZED * _spread(picture, rows)
    right, down = MOVED * _spread(picture, 2, rows)
    first = torch.stack([size * angle.cos(), -size * angle.sin(), right], 1)
    second = torch.stack([size * angle.sin(), size * angle.cos(), down], 1)
    grid = F.affine_grid(torch.stack([first, second], 1), list(picture.shape), align_corners=False)
    seen = F.grid_sample(picture, grid, padding_mode="reflection", align_corners=False)
    seen = torch.where(_spread(picture, rows, 1, 1, 1) < 0, seen.flip(-1), seen)
    blurred = F.avg_pool2d(seen, 3, 1, 1, count_include_pad=False)
    seen = torch.lerp(seen, blurred, BLURRED * _spread(picture, rows, 1, 1, 1).abs())
    brighter: Tensor = seen * (1 + LIT * _spread(picture, rows, 1, 1, 1))
    return brighter.clamp(-1.2, 1.2)


def _spread(like: Tensor, *shape: int) -> Tensor:
    """Random numbers in [-1, 1], of `like`'s type and where it is."""
    return 2 * torch.rand(shape, dtype=like.dtype, device=like.device) - 1
