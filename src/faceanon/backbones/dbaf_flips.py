"""DBAF with what is ours: the key changes signs of the identity code by itself, and strangers are read better.

In the paper KRIA is all of the edit, and nothing undoes it but what training teaches. Here a change of signs comes
first, which the same key undoes and another one does not, before any training; KRIA learns what to add to it. Codes of
principal components suit it, of which the first ones hold light, skin and pose.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from faceanon.backbones.dbaf import DBAF, KRIA, MLP_RATIO, CidForm
from faceanon.networks.attention import AttentionAxis, LayerTransformer
from faceanon.networks.code_reader import STRANGERS, CodeReader, read_codes
from faceanon.networks.keyed import stretched
from faceanon.networks.level_edits import check_flips, flipped
from faceanon.types import Codes


class DBAFWithFlips(DBAF):
    """DBAF or HFORD whose key changes signs of the identity code; CID sees all layers at once, and there is no MAAR.

    Args:
        bundle: Bundle by name or folder.
        flips: So many first numbers of the identity code keep their sign, and the key says which others change it.
        flip_share: The share s of signs that a key changes. Above 0.5 a stranger's code is on average 1 - 2 s times the
            person's, so the opposite of the person; codes under two keys, and what a wrong key brings back, are alike
            by (1 - 2 s)^2, which is less. Stage 2 may have another one than stage 1.
        flip_stretch: By how much farther from the mean code a stranger lies; 1 not at all. The way back divides again.
            The numbers that keep their sign stay. More draws strangers with clearer features, who are less like the
            person and less like each other. Stage 2 may have another one than stage 1.
        code_reader: Whether a map corrects codes of anonymized pictures. It is measured before stage 2, on strangers
            whose codes are known. Originals are read as before.
        cid_start: Size of CID's first attributes as a share of the usual. Small, a training begins with the whole face
            of the identity source, not with a mixture that no person has.
        cid_depth: As in `DBAF`.
        cid_heads: As in `DBAF`.
        cid_head_dim: As in `DBAF`.
        cid_dropout: As in `DBAF`.

    Raises:
        UserError: `flip_share` is not between 0 and 1; `flip_stretch` is not above 0.

    Examples:
        >>> import torch
        >>> from faceanon.backbones.dbaf_flips import DBAFWithFlips
        >>> from faceanon.testing import smooth_faces
        >>> method = DBAFWithFlips(cid_depth=2).eval()  # untrained
        >>> code = method.encode(smooth_faces(128)).identity
        >>> key = method.sample_key(4)
        >>> stranger = method.transform(code, key)
        >>> torch.allclose(method.transform(stranger, key, inverse=True), code, atol=1e-3)
        True
    """

    stage_arguments = frozenset({"flip_share", "flip_stretch"})

    def __init__(
        self,
        bundle: str = "photo128_prior",
        flips: int = 8,
        flip_share: float = 0.5,
        flip_stretch: float = 1.0,
        code_reader: bool = False,
        cid_start: float = 1.0,
        cid_depth: int = 6,
        cid_heads: int = 14,
        cid_head_dim: int = 64,
        cid_dropout: float = 0.1,
    ) -> None:
        check_flips(flip_share, flip_stretch)
        super().__init__(bundle, cid_depth, cid_heads, cid_head_dim, cid_dropout, maar=False)
        if self.cid is not None and cid_start != 1:
            assert isinstance(self.cid, LayerTransformer)
            self.cid.soften(cid_start)
        for level in self.kria:
            assert isinstance(level, KRIA)
            begin_with_nothing(level)
        self.flips = flips
        self.flip_share = flip_share
        self.flip_stretch = flip_stretch
        self.code_reader = None
        if code_reader:
            self.code_reader = CodeReader.of(self.encoder, self.generator.style_dim)
            self.reader_rows = STRANGERS

    def _disentangler(
        self, form: CidForm, depth: int, heads: int, head_dim: int, dropout: float, axis: AttentionAxis
    ) -> LayerTransformer:
        """One transformer over the layers of all levels."""
        dim = self.generator.style_dim
        return LayerTransformer(self.generator.n_latent, dim, depth, heads, head_dim, MLP_RATIO * dim, dropout, axis)

    def encode_anonymized(self, image: Tensor) -> Codes:
        """As `encode`, of pictures that this method drew; with `code_reader` their codes are corrected."""
        return self.codes_of(*read_codes(self.encoder, image, self.code_reader))

    @torch.no_grad()
    def calibrate_reader(self, pairs: Iterable[tuple[Codes, Tensor]]) -> None:
        """Measure the correction of codes that are read off saved pictures."""
        if self.code_reader is not None:
            drawn = (((self.w_plus(codes) - self.latent_avg)[:, 0], saved) for codes, saved in pairs)
            self.code_reader.measure(self.encoder, drawn)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Change signs of the identity under `key` `(B, 3, D)`, and add what KRIA says.

        `inverse` changes nothing but the place of `flip_stretch`.
        """
        if inverse:
            identity = stretched(identity, 1 / self.flip_stretch, self.flips)
        edited = super().transform(identity, key) + flipped(identity, key, self.flips, self.flip_share)
        if inverse:
            return edited
        return stretched(edited, self.flip_stretch, self.flips)


def begin_with_nothing(level: KRIA) -> None:
    """Let the MLP of a level give 0 for everything until it is trained."""
    last = level.net[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
