"""Encoder4Editing: a face to a w+ code, in the layout of the public checkpoints (arXiv:2102.02766)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.irse import UNITS, WIDTHS, make_body, make_input_layer, run_trunk, stage_ends
from faceanon.networks.latents import CodecUser
from faceanon.networks.stylegan2_layers import EqualLinear
from faceanon.networks.stylegan2_tables import layer_count


class StyleBlock(nn.Module):
    """Stride-2 convolutions down to one pixel, then a linear layer: one row of the code.

    Args:
        channels: Channels of the map.
        style_dim: Width D of the row.
        side: Side of the map in px; log2(side) convolutions.
    """

    def __init__(self, channels: int, style_dim: int, side: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        # Each convolution halves the map, so log2(side) of them end at one pixel.
        for _ in range(side.bit_length() - 1):
            layers += [nn.Conv2d(channels, channels, 3, 2, 1), nn.LeakyReLU(inplace=True)]
        self.convs = nn.Sequential(*layers)
        self.linear = EqualLinear(channels, style_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, channels, side, side)` to `(B, D)`.

        Raises:
            ValueError: If the map is too large to end in one pixel.
        """
        y = self.convs(x)
        if y.shape[2:] != (1, 1):
            raise ValueError(f"a map of {tuple(x.shape[2:])} px is too large for this style block; resize the image")
        row: Tensor = self.linear(y.flatten(1))
        return row


def upsample_add(x: Tensor, lateral: Tensor) -> Tensor:
    """Enlarge `x` to `lateral`'s size (bilinear, corners aligned) and add."""
    return F.interpolate(x, size=lateral.shape[-2:], mode="bilinear", align_corners=True) + lateral


class PyramidEncoder(CodecUser, ABC):
    """What e4e and pSp share: IR-SE trunk, feature pyramid of three levels, one style block per row of the code.

    Subclasses say how rows become a code. Both have the same keys and shapes, so a file of one loads into the other and
    gives nonsense: the checkpoint's `opts["encoder_type"]` tells them apart. `with_features` is their common call. The
    defaults are the public 256 px networks; `latent_avg` is not added here.

    An encoder on latents has their channels as `input_nc`, their cells as `input_size`, and `strides` that leave maps
    of several cells. It is lent a codec by its bundle, and then takes pictures too.

    Args:
        stylegan_size: Side of what the generator draws, in px or cells; sets the number of rows L.
        style_dim: Width D of a row.
        input_size: Side of the encoder's images in px, or of latents in cells. With the usual strides a side of 16
            times a power of two.
        widths: Channels of the input layer, then of the four stages; the last is also the feature pyramid's width.
        units: Residual units per stage.
        coarse_ind: First row that is read from the middle level of the pyramid.
        middle_ind: First row that is read from the finest level.
        feature_taps: Body indices after which maps are returned (-1: the input layer), at most one per resolution;
            by default the ends of stages 2, 3 and 4, called c1, c2, c3 in the public code.
        input_nc: Channels I of the input: 3, or what a public pSp file says in `opts` (labels or sketches to faces), or
            those of latents.
        strides: Stride of each stage, 2 in the public networks.
        depth: Layers of each resolution of the generator from 8 up.
        flat: Rows of a code to which a linear function of the whole input is added, the first among them; what the
            first gets, all rows get. For latents: it is what a generator with a `draft` of these rows is read by.

    Attributes:
        n_latent: Rows L of a code.
        feature_channels: Channels of the returned maps by side in px, for images of `input_size`.
        init_args: Arguments that build it again, plain values.
    """

    def __init__(
        self,
        stylegan_size: int = 256,
        style_dim: int = 512,
        input_size: int = 256,
        widths: Sequence[int] = WIDTHS,
        units: Sequence[int] = UNITS,
        coarse_ind: int = 3,
        middle_ind: int = 7,
        feature_taps: Sequence[int] | None = None,
        input_nc: int = 3,
        strides: Sequence[int] = (2, 2, 2, 2),
        depth: int = 2,
        flat: Sequence[int] = (),
    ) -> None:
        super().__init__()
        taps = feature_taps if feature_taps is None else list(feature_taps)
        self.init_args: dict[str, Any] = {
            "stylegan_size": stylegan_size,
            "style_dim": style_dim,
            "input_size": input_size,
            "widths": list(widths),
            "units": list(units),
            "coarse_ind": coarse_ind,
            "middle_ind": middle_ind,
            "feature_taps": taps,
            "input_nc": input_nc,
            "strides": list(strides),
            "depth": depth,
        }
        # Only where there is one, so that models from before there was `flat` have the same arguments as now.
        if flat:
            self.init_args["flat"] = list(flat)
            self.flat = nn.Linear(input_nc * input_size**2, len(flat) * style_dim)
        self.stylegan_size = stylegan_size
        self.style_dim = style_dim
        self.input_size = input_size
        self.coarse_ind = coarse_ind
        self.middle_ind = middle_ind
        self.input_nc = input_nc
        self.n_latent = layer_count(stylegan_size, depth)
        body = make_body(widths, units, strides)
        ends = stage_ends(units)
        sides = _stage_sides(input_size, strides)
        self.pyramid_taps = ends[1:]
        self.feature_taps = tuple(ends[1:] if feature_taps is None else feature_taps)
        self.feature_channels = _feature_channels(sides, widths, ends, self.feature_taps)
        self.input_layer = make_input_layer(widths[0])
        if input_nc != 3:
            self.input_layer[0] = nn.Conv2d(input_nc, widths[0], 3, 1, 1, bias=False)
        self.body = body
        top = widths[-1]
        self.styles = nn.ModuleList()
        for row in range(self.n_latent):
            # Each level reads the map of its stage, the coarsest for the first rows.
            self.styles.append(StyleBlock(top, style_dim, sides[-1 - self._level(row)]))
        self.latlayer1 = nn.Conv2d(widths[-2], top, 1)
        self.latlayer2 = nn.Conv2d(widths[-3], top, 1)

    def seen(self, image: Tensor) -> Tensor:
        """What codes are read off, `(B, I, input_size, input_size)`; given again, it stays as it is.

        Args:
            image: As of `with_features`.
        """
        # Pictures; whoever has latents already gives those.
        if self.has_codec and image.shape[1] != self.input_nc:
            latents: Tensor = self.codec.encode(image)
            return latents
        # As the public code shrinks pictures of a larger generator.
        if image.shape[-1] > self.input_size and image.shape[1] == 3:
            return F.adaptive_avg_pool2d(image, self.input_size)
        return image

    def with_features(self, image: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Encode aligned faces; the call that works for either encoder.

        Args:
            image: `(B, I, input_size, input_size)`, faces in [-1, 1], or larger ones, which are shrunk; or latents, and
                where there is a codec also pictures of them `(B, 3, S, S)`.

        Returns:
            Codes `(B, L, D)`, before the average code is added, and the maps of `feature_taps` keyed by side in px.

        Raises:
            ValueError: If latents are larger than `input_size`.
        """
        image = self.seen(image)
        maps = run_trunk(self.input_layer, self.body, image, (*self.pyramid_taps, *self.feature_taps))
        c1, c2, c3 = (maps[tap] for tap in self.pyramid_taps)
        codes = self._codes(c1, c2, c3)
        if "flat" in self.init_args:
            codes = codes + self._flat_rows(image)
        features = [maps[tap] for tap in self.feature_taps]
        by_side = {}
        for feature in features:
            by_side[feature.shape[-1]] = feature
        return codes, by_side

    def _flat_rows(self, image: Tensor) -> Tensor:
        """What the linear function adds to every row, `(B, L, D)`."""
        base, *others = self.flat(image.flatten(1)).split(self.style_dim, 1)
        rows = [base] * self.n_latent
        for row, other in zip(self.init_args["flat"][1:], others, strict=True):
            rows[row] = base + other
        return torch.stack(rows, 1)

    def pyramid(self, c1: Tensor, c2: Tensor, c3: Tensor, levels: int = 3) -> list[Tensor]:
        """The first `levels` maps of the feature pyramid, coarse to fine: c3, p2, p1."""
        maps = [c3]
        for layer, lateral in ((self.latlayer1, c2), (self.latlayer2, c1)):
            if len(maps) < levels:
                maps.append(upsample_add(maps[-1], layer(lateral)))
        return maps

    @abstractmethod
    def _codes(self, c1: Tensor, c2: Tensor, c3: Tensor) -> Tensor:
        """Codes `(B, L, D)` from the trunk's maps, fine to coarse."""

    def _level(self, row: int) -> int:
        """Pyramid level that a row is read from: 0 coarse, 1 middle, 2 fine."""
        return int(row >= self.coarse_ind) + int(row >= self.middle_ind)


class Encoder4Editing(PyramidEncoder):
    """Encode a face as w+: one base row for all layers plus a correction per layer. Arguments as `PyramidEncoder`.

    Attributes:
        progressive_stage: Number of corrections that are added to the base row, None for all; the rest stay untrained.
            Not in the state dict.

    Examples:
        >>> import torch
        >>> from faceanon.weights.bundle import Bundle
        >>> encoder = Bundle("photo128_prior").encoder().eval()
        >>> codes, maps = encoder(torch.zeros(2, 3, 128, 128))
        >>> codes.shape, sorted(maps)
        (torch.Size([2, 14, 512]), [4, 8, 16])
    """

    progressive_stage: int | None = None

    def forward(self, image: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Codes and feature maps of `(B, I, input_size, input_size)`, as `with_features`."""
        return self.with_features(image)

    def _codes(self, c1: Tensor, c2: Tensor, c3: Tensor) -> Tensor:
        last = self.n_latent - 1
        if self.progressive_stage is not None:
            last = min(self.progressive_stage, last)
        # Levels that only untrained rows would read are not computed.
        maps = self.pyramid(c1, c2, c3, self._level(last) + 1)
        base: Tensor = self.styles[0](c3)
        rows = [base] * self.n_latent
        for row in range(1, last + 1):
            rows[row] = base + self.styles[row](maps[self._level(row)])
        return torch.stack(rows, 1)  # (B, L, D)


def _stage_sides(input_size: int, strides: Sequence[int]) -> list[int]:
    """Sides of the maps of the input layer and after each stage."""
    sides = [input_size]
    for stride in strides:
        sides.append(sides[-1] // stride)
    return sides


def _feature_channels(
    sides: Sequence[int], widths: Sequence[int], ends: Sequence[int], taps: Sequence[int]
) -> dict[int, int]:
    """Channels by side of the maps after `taps`."""
    table: dict[int, int] = {}
    for tap in taps:
        if not -1 <= tap <= ends[-1]:
            raise ValueError(f"feature_taps has {tap}; body indices go from -1 (input layer) to {ends[-1]}")
        if tap < 0:
            stage = 0
        else:
            # All units of a stage give maps of one side and one width, so any of them may be tapped.
            stage = 1 + next(i for i, end in enumerate(ends) if tap <= end)
        side = sides[stage]
        if side in table:
            raise ValueError(f"feature_taps {tuple(taps)} has two maps of {side} px")
        table[side] = widths[stage]
    return table
