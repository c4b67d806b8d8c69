"""DBAF, and HFORD, which is the same network under other names (IDM = CID, ARM = MAAR, cMLP = KRIA).

- CID, contrastive identity disentanglement (DBAF eqs. 1-5): attention over the layers of each level of the W+ code
  finds the attributes A; the identity is what is left, I = C - A, and A + I' is drawn.
- KRIA, key-driven identity edit (eqs. 19-23): per level of layers, an MLP on [I, w_key]. The key is three z, mapped by
  a frozen copy of the generator's mapping network and repeated over the coarse, middle and fine layers.
- MAAR, attention over encoder features (eqs. 6-8; ARM, HFORD 3-5) at 16, 32 and 64 px, which take the place of the
  generator's noise.

configs/paper has the papers' own choices.

Deviations can be switched on: `blend`, `flips` with or without `turn_angle`, `code_reader`, and a trained encoder (in
the stages' `trainable` lists).
`backbones.keyed` goes further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from faceanon.backbones.base import Backbone
from faceanon.backbones.region import face_hole, softened
from faceanon.errors import UserError
from faceanon.networks.attention import (
    MAAR,
    AttentionAxis,
    LayerTransformer,
    LevelTransformers,
    PlainDisentangler,
    RetentionForm,
    SharedAttention,
)
from faceanon.networks.code_reader import STRANGERS, CodeReader, read_codes
from faceanon.networks.frozen import Frozen
from faceanon.networks.keyed import check_stretch, stretched
from faceanon.networks.level_edits import LEVELS, by_level, flipped, turned
from faceanon.networks.stylegan2_layers import EqualLinear
from faceanon.types import Codes
from faceanon.weights.bundle import Bundle

CidForm = Literal["shared", "levels", "joint", "mlp"]
Disentangler = SharedAttention | LevelTransformers | LayerTransformer | PlainDisentangler


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

    def begin_with_nothing(self) -> None:
        """Give 0 for everything until it is trained."""
        last = self.net[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)


class DBAF(Backbone):
    """DBAF / HFORD on any bundle.

    Args:
        bundle: Bundle by name or folder.
        cid_depth: Blocks of CID's transformer, in `levels` and `joint`. 0 leaves CID out: the whole code is the
            identity.
        cid_heads: Its attention heads.
        cid_head_dim: Width of a head; with `shared` a head is as wide as the code.
        cid_mlp_ratio: Hidden width of its feed-forward part, in code widths.
        cid_dropout: Its dropout.
        cid_axis: What it attends across: the `layers` of a picture (papers), or the `batch` (released code).
        cid_start: Size of its first attributes as a share of the usual. Small, a training begins with the whole face of
            the identity source, not with a mixture that no person has.
        maar: Whether encoder features reach the generator; off is an ablation.
        cid_form: What CID is. `shared` is one attention that sees each level by itself (DBAF eqs. 1-3), `levels` a
            transformer of its own for each level (HFORD, released code), `joint` one transformer over all layers, which
            is ours, `mlp` four layers in its place, the papers' ablation.
        maar_form: The attention of MAAR, `printed` or `cbam`. The first is DBAF eqs. (6)-(8), the other HFORD
            eqs. (3)-(5) and the released code. A bundle whose generator has learnt to draw from encoder features brings
            its own.
        blend: Draw only inside face and neck. Elsewhere the input's own pixels stay. A bundle without a parser has the
            hull of the face mesh in their place; either is softly widened.
        flips: So many first numbers of the identity code keep their sign, and the key says which others change it. KRIA
            learns what to add to that. The same key undoes such a change, and another key does not, before any
            training. It suits codes of principal components, of which the first ones hold light, skin and pose. With
            None KRIA is all of the edit (paper).
        flip_share: The share s of signs that a key changes. Above 0.5 a stranger's code is on average 1 - 2 s times the
            person's, so the opposite of the person; codes under two keys, and what a wrong key brings back, are alike
            by (1 - 2 s)^2, which is less. Stage 2 may have another one than stage 1.
        turn_angle: Degrees by which the key turns pairs of numbers to one side or the other, in place of changes of
            signs. `flips`, which is even, says how many first ones stay. Strangers are then all as unlike the person.
            Stage 2 may have another one than stage 1.
        flip_stretch: By how much farther from the mean code a stranger lies; 1 not at all. The way back divides again.
            The numbers that keep their sign stay. More draws strangers with clearer features, who are less like the
            person and less like each other. Stage 2 may have another one than stage 1.
        code_reader: Whether a map corrects codes of anonymized pictures. It is measured before stage 2, on strangers
            whose codes are known. Originals are read as before.

    Raises:
        UserError: `flip_share` is not between 0 and 1; `flip_stretch` is not above 0, or given without `flips`;
            `turn_angle` is not between 0 and 180, or given without an even number of `flips`.

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

    stage_arguments = frozenset({"flip_share", "flip_stretch", "turn_angle"})
    latent_avg: Tensor

    def __init__(
        self,
        bundle: str = "photo128_prior",
        cid_depth: int = 6,
        cid_heads: int = 14,
        cid_head_dim: int = 64,
        cid_mlp_ratio: int = 4,
        cid_dropout: float = 0.1,
        cid_axis: AttentionAxis = "layers",
        maar: bool = True,
        blend: bool = False,
        cid_start: float = 1.0,
        flips: int | None = None,
        flip_share: float = 0.5,
        flip_stretch: float = 1.0,
        code_reader: bool = False,
        turn_angle: float | None = None,
        cid_form: CidForm = "joint",
        maar_form: RetentionForm = "cbam",
    ) -> None:
        if not 0 < flip_share < 1:
            raise UserError(f"flip_share is {flip_share}; give a number between 0 and 1")
        check_stretch("flip_stretch", flip_stretch, "flips", flips is not None)
        if turn_angle is not None and (flips is None or flips % 2 or not 0 < turn_angle < 180):
            raise UserError(f"turn_angle is {turn_angle} with flips {flips}; give 0 to 180 degrees, and even flips")
        super().__init__()
        self.bundle = Bundle(bundle)
        self.generator = self.bundle.generator()
        self.encoder = self.bundle.encoder()
        dim = self.generator.style_dim
        layers = self.generator.n_latent
        self.key_shape = (3, dim)
        # A clone: loading saved weights writes into the buffer, and all users of a bundle share its tensor.
        self.register_buffer("latent_avg", self.bundle.latent_avg.clone())
        widths = (cid_heads, cid_head_dim, cid_mlp_ratio * dim)
        levels = (*LEVELS, layers - sum(LEVELS))
        self.cid: Disentangler | None
        if not cid_depth:
            self.cid = None
        elif cid_form == "shared":
            self.cid = SharedAttention(dim, cid_heads, levels)
        elif cid_form == "levels":
            self.cid = LevelTransformers(levels, dim, cid_depth, *widths, cid_dropout, cid_axis)
        elif cid_form == "mlp":
            self.cid = PlainDisentangler(dim)
        else:
            self.cid = LayerTransformer(layers, dim, cid_depth, *widths, cid_dropout, cid_axis)
        if self.cid is not None and cid_start != 1:
            self.cid.soften(cid_start)
        self.maar = self._feature_maps(maar_form) if maar else None
        self.blend = blend
        self.flips = flips
        self.flip_share = flip_share
        self.flip_stretch = flip_stretch
        self.turn_angle = turn_angle
        self.code_reader = None
        if code_reader:
            self.code_reader = CodeReader.of(self.encoder, dim)
            self.reader_rows = STRANGERS
        # Lightning does not call `train` when a fit starts.
        self.encoder.eval()
        self._add_key_edit(dim)

    def _feature_maps(self, form: RetentionForm) -> MAAR:
        """The bundle's, where its generator has learnt to draw from encoder features, else an untrained one."""
        if self.bundle.has("maar"):
            trained = self.bundle.build("maar")
            assert isinstance(trained, MAAR)
            return trained
        return MAAR(self.encoder.feature_channels, self.generator.channels, form)

    def _add_key_edit(self, dim: int) -> None:
        """The parts by which a key edits the identity; a method that is built on this one may have others."""
        # A copy: a bundle would read the whole generator from its file once more.
        self.key_mapping = Frozen(deepcopy(self.generator.style))
        self.kria = nn.ModuleList(KRIA(dim) for _ in range(3))
        if self.flips is not None:
            for level in self.kria:
                assert isinstance(level, KRIA)
                level.begin_with_nothing()

    def train(self, mode: bool = True) -> DBAF:
        """Train mode, save for the encoder, whose batch statistics stay as they came."""
        super().train(mode)
        self.encoder.eval()
        return self

    def encode(self, image: Tensor) -> Codes:
        """Codes of `(B, 3, S, S)`: identity `(B, L, D)`."""
        return self._encode(image)

    def encode_anonymized(self, image: Tensor) -> Codes:
        """As `encode`, of pictures that this method drew; with `code_reader` their codes are corrected."""
        if self.code_reader is None:
            return self.encode(image)
        return self._encode(image, reader=self.code_reader)

    @torch.no_grad()
    def calibrate_reader(self, pairs: Iterable[tuple[Codes, Tensor]]) -> None:
        """Measure the correction of codes that are read off saved pictures."""
        if self.code_reader is not None:
            drawn = (((self.w_plus(codes) - self.latent_avg)[:, 0], saved) for codes, saved in pairs)
            self.code_reader.measure(self.encoder, drawn)

    def _encode(
        self,
        image: Tensor,
        identify: Callable[[Tensor, Tensor], Tensor] | None = None,
        reader: CodeReader | None = None,
    ) -> Codes:
        """Codes of `(B, 3, S, S)`.

        Args:
            image: Pictures.
            identify: Reads the identity off picture and W+ code; None takes what attributes leave.
            reader: Corrects the codes that the encoder reads; None leaves them.
        """
        codes, maps = read_codes(self.encoder, image, reader)
        latent = codes + self.latent_avg
        if self.cid is None:
            attributes = torch.zeros_like(latent)
        else:
            attributes = self.cid(latent)
        # DBAF eq. (4).
        if identify is None:
            identity = latent - attributes
        else:
            identity = identify(image, latent)
        features = self.maar(maps) if self.maar is not None else None
        mask = None
        if self.blend:
            mask = softened(face_hole(self.bundle, image))
        return Codes(identity, attributes, features, image if self.blend else None, latent, mask)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Edit the identity under `key` `(B, 3, D)`; KRIA is one network for both directions (eqs. 19-23).

        `inverse` changes nothing but the place of `flip_stretch` and the direction of `turn_angle`.
        """
        if self.flips is None:
            return self._added(identity, key)
        if inverse:
            identity = stretched(identity, 1 / self.flip_stretch, self.flips)
        if self.turn_angle is None:
            moved = flipped(identity, key, self.flips, self.flip_share)
        else:
            moved = turned(identity, key, -self.turn_angle if inverse else self.turn_angle, self.flips)
        edited = self._added(identity, key) + moved
        if inverse:
            return edited
        return stretched(edited, self.flip_stretch, self.flips)

    def _added(self, identity: Tensor, key: Tensor) -> Tensor:
        """What KRIA makes of identity and key: all of the edit, or with `flips` what it adds to that."""
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
        """Draw `(B, 3, S, S)`; with `blend`, only where the mask says."""
        drawn = self.generator.decode(self._draw(codes))
        if codes.mask is None or codes.image is None:
            return drawn
        return codes.image + codes.mask * (drawn - codes.image)

    def drawn_latents(self, codes: Codes) -> Tensor | None:
        """The latents of its pictures, of a generator that draws latents; with `blend` pictures have others."""
        if self.generator.latents is None or self.blend:
            return None
        return self._draw(codes)

    def _draw(self, codes: Codes) -> Tensor:
        """Pictures `(B, 3, S, S)` of codes, or the codec's latents."""
        return self.generator.draw(self.w_plus(codes), features=codes.features)
