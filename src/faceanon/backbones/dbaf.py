"""DBAF, and HFORD, which is the same network under other names (IDM = CID, ARM = MAAR, cMLP = KRIA).

- CID, contrastive identity disentanglement (DBAF eqs. 1-5): attention over the layers of each level of the W+ code
  finds the attributes A; the identity is what is left, I = C - A, and A + I' is drawn.
- KRIA, key-driven identity edit (eqs. 19-23): per level of layers, an MLP on [I, w_key]. The papers print random keys
  of the size of I. That a key is three z, mapped by a frozen copy of the generator's mapping network and repeated over
  the coarse, middle and fine layers, is our reading, and the released code's.
- MAAR, attention over encoder features (eqs. 6-8; ARM, HFORD 3-5) at 16, 32 and 64 px, which take the place of the
  generator's noise.

The defaults are DBAF's, as it is printed; configs/paper has the choices of all three. `backbones.dbaf_flips` adds what
is ours.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from faceanon.backbones.on_codes import OnCodes
from faceanon.networks.attention import (
    MAAR,
    AttentionAxis,
    LevelTransformers,
    PlainDisentangler,
    RetentionForm,
    SharedAttention,
)
from faceanon.networks.frozen import Frozen
from faceanon.networks.level_edits import by_level, level_sizes
from faceanon.networks.stylegan2_layers import EqualLinear
from faceanon.types import Codes

MLP_RATIO = 4  # hidden width of CID's feed-forward part, in code widths (released code)
CidForm = Literal["shared", "levels", "mlp"]


class KRIA(nn.Module):
    """The MLP of one level: seven equalised linear layers and a plain one (released code; the paper says seven).

    Args:
        dim: Width D of a layer's code.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        widths = (2 * dim, 4 * dim, 2 * dim, dim, dim, dim, dim, dim)
        layers = []
        for i, o in pairwise(widths):
            layers.append(EqualLinear(i, o, lr_mul=0.01, activate=True))
        self.net = nn.Sequential(*layers, nn.Linear(dim, dim))

    def forward(self, identity: Tensor, key: Tensor) -> Tensor:
        """Edit `(B, l, D)` under the mapped key `(B, D)`."""
        edited: Tensor = self.net(torch.cat([identity, key[:, None].expand_as(identity)], -1))
        return edited


class DBAF(OnCodes):
    """DBAF / HFORD on any bundle.

    Args:
        bundle: Bundle by name or folder.
        cid_depth: Blocks of CID's transformers, with `levels`. 0 leaves CID out: the whole code is the identity.
        cid_heads: Its attention heads.
        cid_head_dim: Width of a head; with `shared` a head is as wide as the code.
        cid_dropout: Its dropout.
        cid_axis: What it attends across: the `layers` of a picture (papers), or the `batch` (released code).
        maar: Whether encoder features reach the generator; off is an ablation.
        cid_form: What CID is. `shared` is one attention that sees each level by itself (DBAF eqs. 1-3), `levels` a
            transformer of its own for each level (HFORD, released code), `mlp` four layers in its place, the papers'
            ablation.
        maar_form: The attention of MAAR, `printed` or `cbam`. The first is DBAF eqs. (6)-(8), the other HFORD
            eqs. (3)-(5) and the released code. A bundle whose generator has learnt to draw from encoder features brings
            its own.

    Examples:
        >>> from faceanon.backbones.dbaf import DBAF
        >>> from faceanon.testing import smooth_faces
        >>> method = DBAF(cid_depth=2).eval()  # untrained
        >>> codes = method.encode(smooth_faces(128))
        >>> codes.identity.shape, codes.attributes.shape
        (torch.Size([4, 14, 512]), torch.Size([4, 14, 512]))
        >>> key = method.sample_key(4)
        >>> method.decode(method.edit(codes, key)).shape  # what `anonymize` does
        torch.Size([4, 3, 128, 128])
    """

    paper = "Zhu et al., Disentangle Before Anonymize (DBAF), arXiv:2311.08786, and HFORD by the same authors"
    licence = "the authors' code of DBAF is MIT; nothing of it is used"

    def __init__(
        self,
        bundle: str = "photo128_prior",
        cid_depth: int = 6,
        cid_heads: int = 14,
        cid_head_dim: int = 64,
        cid_dropout: float = 0.1,
        cid_axis: AttentionAxis = "layers",
        maar: bool = True,
        cid_form: CidForm = "shared",
        maar_form: RetentionForm = "printed",
    ) -> None:
        super().__init__(bundle)
        dim = self.generator.style_dim
        self.key_shape = (3, dim)
        self.cid: nn.Module | None = None
        if cid_depth:
            self.cid = self._disentangler(cid_form, cid_depth, cid_heads, cid_head_dim, cid_dropout, cid_axis)
        self.maar = MAAR(self.encoder.feature_channels, self.generator.channels, maar_form) if maar else None
        # A copy: a bundle would read the whole generator from its file once more.
        self.key_mapping = Frozen(deepcopy(self.generator.style))
        self.kria = nn.ModuleList(KRIA(dim) for _ in range(3))

    def _disentangler(
        self, form: CidForm, depth: int, heads: int, head_dim: int, dropout: float, axis: AttentionAxis
    ) -> nn.Module:
        """CID; a method that is built on this one may have another."""
        dim = self.generator.style_dim
        levels = level_sizes(self.generator.n_latent)
        if form == "shared":
            return SharedAttention(dim, heads, levels)
        if form == "levels":
            return LevelTransformers(levels, dim, depth, heads, head_dim, MLP_RATIO * dim, dropout, axis)
        return PlainDisentangler(dim)

    def encode(self, image: Tensor) -> Codes:
        """Codes of `(B, 3, S, S)`: identity `(B, L, D)`, eq. (4), attributes and feature maps."""
        codes, maps = self.encoder.with_features(image)
        return self.codes_of(codes, maps)

    def codes_of(self, codes: Tensor, maps: dict[int, Tensor]) -> Codes:
        """What is told apart of an encoder's code `(B, L, D)` and of its maps by side in px."""
        latent = codes + self.latent_avg
        if self.cid is None:
            attributes = torch.zeros_like(latent)
        else:
            attributes = self.cid(latent)
        features = self.maar(maps) if self.maar is not None else None
        return Codes(latent - attributes, attributes, features, latent=latent)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Edit the identity under `key` `(B, 3, D)`; KRIA is one network for both directions (eqs. 19-23)."""
        with torch.no_grad():
            keys = self.key_mapping(key.flatten(0, 1)).unflatten(0, key.shape[:2])
        edits = []
        for number, (kria, level) in enumerate(zip(self.kria, by_level(identity), strict=True)):
            edits.append(kria(level, keys[:, number]))
        return torch.cat(edits, 1)

    def w_plus(self, codes: Codes) -> Tensor:
        """Identity plus attributes, DBAF eq. (5): `(B, L, D)`."""
        assert codes.attributes is not None
        return codes.identity + codes.attributes

    def decode(self, codes: Codes) -> Tensor:
        """Draw `(B, 3, S, S)`."""
        return self.generator.decode(self._draw(codes))

    def drawn_latents(self, codes: Codes) -> Tensor | None:
        """The latents of its pictures, of a generator that draws latents."""
        if self.generator.latents is None:
            return None
        return self._draw(codes)

    def _draw(self, codes: Codes) -> Tensor:
        """Pictures `(B, 3, S, S)` of codes, or the codec's latents."""
        return self.generator.draw(self.w_plus(codes), features=codes.features)
