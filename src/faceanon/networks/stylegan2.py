"""StyleGAN2 generator in the layout of the public PyTorch checkpoints (Karras et al. 2020, arXiv:1912.04958)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from faceanon.networks.discriminator import Discriminator
from faceanon.networks.eager import one_by_one
from faceanon.networks.latents import CodecUser
from faceanon.networks.mixture_mapping import MixtureMapping
from faceanon.networks.stylegan2_layers import ConstantInput, EqualLinear, PixelNorm, StyledConv, ToRGB
from faceanon.networks.stylegan2_tables import channel_table, layer_count

__all__ = ["Discriminator", "Generator", "Noise"]

SMALL_START = 0.1  # of the weights that draw latents: at full strength an untrained generator drives its codec wild
BATCHED = 32  # px up to which weights outweigh maps, so that a batch shares them
Noise = Sequence[Tensor] | Literal["random"] | None


class Generator(CodecUser):
    """Draw faces from w+ codes: pictures, or the latents of a codec that decodes them.

    A generator of latents projects its last resolution alone, since enlarged latents are not the latents of an enlarged
    picture.

    Args:
        size: Side S of what is drawn, in px of the picture or in cells of the latents; a power of two from 8.
        style_dim: Width D of z and w.
        n_mlp: Layers of the mapping network.
        channel_multiplier: Widens the layers from 64 px up, 2 in the public checkpoints.
        channels: Channels per resolution, by its side, instead of the public table.
        latents: Channels of the latents to draw; None draws pictures, as the public networks do.
        depth: Layers of each resolution from 8 up, 2 in the public networks. Small latents want more, or a code has few
            rows.
        draft: Rows of w+ that a generator of latents starts a linear draft from, the first row among them; its layers
            see the draft at the last resolution and correct it. Of the other rows it takes what they add to the first,
            so that a single w draws from the first alone. A principal component of latents is one column of it.
        yielding: Share of its draft that a generator starts to keep, for each channel of the latents, where encoder
            features are given at its last resolution; it learns the shares. The rest is the features' to draw. None
            keeps the whole draft: its layers then have to take away what the features know better.
        mixture: Clusters and factors of a `MixtureMapping` in place of the mapping network; then `n_mlp` is not used.

    Attributes:
        n_latent: Rows L of a w+ code.
        channels: Channels per resolution, by its side.
        init_args: Arguments that build it again, plain values.

    Examples:
        >>> import torch
        >>> from faceanon.networks.stylegan2 import Generator
        >>> generator = Generator(size=16, style_dim=32, n_mlp=2, channels={4: 16, 8: 16, 16: 8}).eval()
        >>> z = torch.randn(2, 32)
        >>> generator(z).shape, generator.n_latent
        (torch.Size([2, 3, 16, 16]), 6)
        >>> on_latents = Generator(size=16, style_dim=32, n_mlp=2, channels={4: 16, 8: 16, 16: 8}, latents=32, depth=6)
        >>> on_latents.draw(on_latents.mapping(z)).shape, on_latents.n_latent
        (torch.Size([2, 32, 16, 16]), 14)
    """

    def __init__(
        self,
        size: int,
        style_dim: int = 512,
        n_mlp: int = 8,
        channel_multiplier: int = 2,
        channels: Mapping[int, int] | None = None,
        latents: int | None = None,
        depth: int = 2,
        draft: Sequence[int] = (),
        mixture: Sequence[int] = (),
        yielding: float | None = None,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth is {depth}; a resolution has at least one layer")
        if draft and (latents is None or list(draft) != sorted(set(draft)) or draft[0] != 0):
            raise ValueError("draft is for a generator of latents: rows in order, the first of them 0")
        table = channel_table(size, channel_multiplier, channels)
        self.init_args: dict[str, Any] = {"size": size, "style_dim": style_dim, "n_mlp": n_mlp, "channels": table}
        self.init_args |= {"latents": latents, "depth": depth}
        # Only where there is one, so that generators from before there was a draft have the same arguments as now.
        if draft:
            self.init_args["draft"] = list(draft)
        if mixture:
            self.init_args["mixture"] = list(mixture)
        if yielding is not None:
            if not draft:
                raise ValueError("yielding is for a generator with a draft")
            assert latents is not None
            self.init_args["yielding"] = yielding
            # With its whole draft kept, the features of an encoder could only be added to it.
            self.kept = nn.Parameter(torch.full((latents, 1, 1), yielding))
        self.size = size
        self.style_dim = style_dim
        self.channels = dict(table)
        self.latents = latents
        self.depth = depth
        self.n_latent = layer_count(size, depth)
        sides = list(self.channels)
        self.style: nn.Module
        if mixture:
            # One Gaussian drew double faces: every person was a sum of photographs with little in common.
            self.style = MixtureMapping(style_dim, *mixture)
        else:
            layers = []
            for _ in range(n_mlp):
                layers.append(EqualLinear(style_dim, style_dim, lr_mul=0.01, activate=True))
            self.style = nn.Sequential(PixelNorm(), *layers)
        self.input = ConstantInput(self.channels[4])
        self.conv1 = StyledConv(self.channels[4], self.channels[4], style_dim)
        if latents is None:
            self.to_rgb1 = ToRGB(self.channels[4], style_dim, upsample=False)
        self.convs = nn.ModuleList()
        self.to_rgbs = nn.ModuleList()
        for before, side in pairwise(sides):
            width = self.channels[side]
            self.convs.append(StyledConv(self.channels[before], width, style_dim, upsample=True))
            for _ in range(depth - 1):
                self.convs.append(StyledConv(width, width, style_dim))
            if latents is None:
                self.to_rgbs.append(ToRGB(width, style_dim))
        if latents is not None:
            self.to_latents = ToRGB(self.channels[size], style_dim, upsample=False, channels=latents)
            nn.init.normal_(self.to_latents.conv.weight, std=SMALL_START)
        if draft:
            assert latents is not None
            self.draft = nn.Linear(len(draft) * style_dim, latents * size**2)
            self.see_draft = nn.Conv2d(latents, self.channels[size], 3, 1, 1)
        # A module of its own gives the buffers the names that public checkpoints have.
        self.noises = nn.Module()
        for index, side in enumerate(self.noise_sides):
            self.noises.register_buffer(f"noise_{index}", torch.randn(1, 1, side, side))

    @property
    def drafts(self) -> list[int]:
        """Rows that its linear draft is made of; none where it has no draft."""
        rows: list[int] = self.init_args.get("draft", [])
        return rows

    def drafted(self, w_plus: Tensor) -> Tensor:
        """The linear draft of w+ codes `(B, L, D)` alone: latents `(B, latents, S, S)`."""
        return self._drafted(w_plus.unbind(1))

    def _drafted(self, styles: Sequence[Tensor]) -> Tensor:
        """Latents `(B, latents, S, S)` as a linear function of the code."""
        parts = [styles[0]]
        for row in self.drafts[1:]:
            parts.append(styles[row] - styles[0])
        drafted: Tensor = self.draft(torch.cat(parts, 1))
        return drafted.view(len(drafted), -1, self.size, self.size)

    def _kept_draft(self, draft: Tensor, last: Tensor) -> Tensor:
        """The part of the draft that stays beside the last layer's noise or features `(B or 1, C or 1, S, S)`."""
        # Noise has one channel.
        if "yielding" in self.init_args and last.shape[1] > 1:
            return draft * self.kept
        return draft

    @property
    def noise_sides(self) -> list[int]:
        """Side of every layer's noise map."""
        sides = [4]
        for side in list(self.channels)[1:]:
            sides += [side] * self.depth
        return sides

    def mapping(self, z: Tensor) -> Tensor:
        """Map z `(B, D)` to w `(B, D)`."""
        w: Tensor = self.style(z)
        return w

    @torch.no_grad()
    def mean_latent(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Mean w `(1, D)` of `n` random z, drawn on the CPU."""
        # Drawn on the CPU, so that a seed gives the same codes whatever the device.
        z = torch.randn(n, self.style_dim, generator=generator).to(self.input.input)
        return self.mapping(z).mean(0, keepdim=True)

    def synthesis(self, w_plus: Tensor, noise: Noise = None, features: Mapping[int, Tensor] | None = None) -> Tensor:
        """Draw the faces of w+ codes.

        Args:
            w_plus: `(B, L, D)`, or w `(B, D)` used in every layer.
            noise: None for the stored maps, "random" for fresh ones, or one `(B or 1, 1, r, r)` map per layer
                (r from `noise_sides`).
            features: Maps `(B, C or 1, r, r)` keyed by their side r, which take the place of the noise in all layers
                of that resolution; C is `channels[r]`.

        Returns:
            Pictures `(B, 3, S, S)`, nominally in [-1, 1] and not clamped; of a generator of latents what the codec
            makes of them.

        Raises:
            ValueError: If codes, noise or features do not fit this generator, or it draws latents and has no codec.
        """
        return self.decode(self.draw(w_plus, noise, features))

    def draw(self, w_plus: Tensor, noise: Noise = None, features: Mapping[int, Tensor] | None = None) -> Tensor:
        """As `synthesis`, before the codec: latents `(B, latents, S, S)`, or the pictures where there is no codec."""
        styles = self._styles(w_plus)
        maps = self._noise_maps(w_plus.shape[0], noise, features or {})
        x = self.conv1(self.input(w_plus.shape[0]), styles[0], maps[0])
        if self.latents is None:
            image = self.to_rgb1(x, styles[1])
        else:
            # Nothing is drawn before the last resolution.
            image = x[:, :0]
        blocks = len(self.channels) - 1
        if one_by_one(x):
            # The side of 4 px has no block, hence the - 1.
            shared = sum(side <= BATCHED for side in self.channels) - 1
        else:
            shared = blocks
        image, x = self._blocks(range(shared), image, x, styles, maps)
        if shared >= blocks:
            return image
        parts = []
        for index in range(len(x)):
            one = slice(index, index + 1)
            rows = [style[one] for style in styles]
            own = []
            for item in maps:
                own.append(item if len(item) == 1 else item[one])
            parts.append(self._blocks(range(shared, blocks), image[one], x[one], rows, own)[0])
        return torch.cat(parts)

    def decode(self, drawn: Tensor) -> Tensor:
        """The pictures of what `draw` gives."""
        if self.latents is None:
            return drawn
        return self.codec.decode(drawn)

    def _blocks(
        self, blocks: Iterable[int], image: Tensor, x: Tensor, styles: Sequence[Tensor], maps: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Run some resolutions, each of `depth` layers and, where it draws, a projection."""
        for block in blocks:
            # ToRGB shares its row of w+ with the first layer of the next resolution.
            first = self.depth * block + 1
            for row in range(first, first + self.depth):
                x = self.convs[row - 1](x, styles[row], maps[row])
                # After the first layer of the last resolution, so that the layers behind it can correct the draft.
                if row == first and self.drafts and first + self.depth == self.n_latent - 1:
                    draft = self._drafted(styles)
                    x = x + self.see_draft(draft)
            if self.latents is None:
                image = self.to_rgbs[block](x, styles[first + self.depth], image)
            elif first + self.depth == self.n_latent - 1:
                image = self.to_latents(x, styles[-1])
                if self.drafts:
                    image = image + self._kept_draft(draft, maps[-1])
        return image, x

    def forward(self, z: Tensor) -> Tensor:
        """Draw the faces of z `(B, D)` with the stored noise: pictures, as `synthesis`."""
        return self.synthesis(self.mapping(z))

    def _styles(self, w_plus: Tensor) -> tuple[Tensor, ...]:
        if w_plus.ndim == 2:
            w_plus = w_plus[:, None].expand(-1, self.n_latent, -1)
        if w_plus.shape[1:] != (self.n_latent, self.style_dim):
            raise ValueError(
                f"w_plus is {tuple(w_plus.shape)}; this generator takes (B, {self.n_latent}, {self.style_dim})"
            )
        return w_plus.unbind(1)

    def _noise_maps(self, batch: int, noise: Noise, features: Mapping[int, Tensor]) -> list[Tensor]:
        sides = self.noise_sides
        for side, feature in features.items():
            wanted = (side, side)
            if side not in sides or feature.shape[1] not in (1, self.channels[side]) or feature.shape[2:] != wanted:
                raise ValueError(
                    f"features[{side}] is {tuple(feature.shape)}; resolutions and channels are {self.channels}"
                )
        if noise is None:
            maps = list(self.noises.buffers())
        elif isinstance(noise, str):
            like = self.input.input
            maps = []
            for side in sides:
                maps.append(torch.randn(batch, 1, side, side, device=like.device, dtype=like.dtype))
        else:
            maps = list(noise)
        if len(maps) != len(sides):
            raise ValueError(f"noise has {len(maps)} maps; this generator takes {len(sides)} of sides {sides}")
        return [features.get(side, item) for side, item in zip(sides, maps, strict=True)]
