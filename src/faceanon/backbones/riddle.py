"""RiDDLE: encrypt the W+ code of a face with a transformer, and decrypt it with the same network.

Li, Wang, Zhao, Dong and Tan, "RiDDLE: Reversible and Diversified De-identification with Latent Encryptor", CVPR 2023
(arXiv:2303.05171).

- The code of a picture is its inverted W+ code, all of it: identity and attributes are not told apart.
- The password is a z, mapped to W by a frozen copy of the generator's mapping network and given to every layer.
- The encryptor has one decoder layer for each group of layers (coarse, middle, fine); the code attends to itself and to
  the password, and what comes out is the new code. Encryption and decryption are the same call: which of the two it is,
  the network has to see from the code.

What differs: the groups are 4, 4 and the rest on generators of any size (the published split is 4, 4, 6 at 256 px); the
picture is read by the bundle's own W+ encoder; the training closes the loop through the saved picture (`loop: file`),
where the published code hands the codes on. Training terms are in configs/riddle_s2.yaml. With `flips` the key itself
changes signs of the code, and the encryptor learns what to add; with `code_reader` strangers are read off saved
pictures better. All of it is off by default.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from faceanon.backbones.on_codes import OnCodes
from faceanon.networks.code_reader import STRANGERS, CodeReader, read_codes
from faceanon.networks.frozen import Frozen
from faceanon.networks.keyed import stretched
from faceanon.networks.level_edits import check_flips, flipped, level_sizes
from faceanon.networks.riddle_mapper import TransformerMapperSplit
from faceanon.types import Codes


class Riddle(OnCodes):
    """RiDDLE on any bundle. The defaults are the published training script's.

    Args:
        bundle: Bundle by name or folder; the width of its codes is a multiple of 4.
        add_linear: Pass code and password through a linear layer each first (in the published checkpoint).
        add_pos_embedding: Add a learnt vector per layer to the code (likewise).
        norm: Whether the encryptor has layer norms.
        flips: With a number, the key also says of each number of the code if it changes its sign, which the same key
            undoes, and the encryptor sees the changed code and learns from nothing what to add to it. It suits codes of
            principal components, of which so many first ones keep their sign: they hold light and skin. With None
            (paper) the encryptor is all of the change.
        flip_share: The share of signs that a key changes, between 0 and 1; above 0.5 a stranger is rather the opposite
            of the person.
        flip_stretch: By how much a stranger lies farther from the mean code than the change of signs puts it; 1 not at
            all. The way back divides again. The numbers that keep their sign stay.
        code_reader: Codes of encrypted pictures are corrected by a map that is measured before the training, on
            strangers whose codes are known. Originals are read as before.

    Raises:
        UserError: `flip_share` is not between 0 and 1; `flip_stretch` is not above 0, or given without `flips`.

    Examples:
        >>> from faceanon.backbones.riddle import Riddle
        >>> from faceanon.testing import smooth_faces
        >>> method = Riddle().eval()  # untrained
        >>> codes = method.encode(smooth_faces(128))
        >>> codes.identity.shape, codes.attributes is None  # the whole W+ code is encrypted
        (torch.Size([4, 14, 512]), True)
    """

    trained_by = ("AnonymizeStage",)
    paper = "Li et al., RiDDLE: Reversible and Diversified De-identification with Latent Encryptor, CVPR 2023"
    licence = "the authors' code and weights carry no licence; nothing of them is used"

    stage_arguments = frozenset({"flip_stretch"})

    def __init__(
        self,
        bundle: str = "photo128_prior",
        add_linear: bool = False,
        add_pos_embedding: bool = False,
        norm: bool = True,
        flips: int | None = None,
        flip_share: float = 0.5,
        flip_stretch: float = 1.0,
        code_reader: bool = False,
    ) -> None:
        check_flips(flip_share, flip_stretch, flips is not None)
        super().__init__(bundle)
        dim = self.generator.style_dim
        layers = self.generator.n_latent
        self.key_shape = (dim,)
        self.key_mapping = Frozen(self.bundle.generator().style)
        # Each group of rows has a network of its own.
        self.mapper = TransformerMapperSplit(level_sizes(layers), add_linear, add_pos_embedding, norm, dim)
        self.flips = flips
        self.flip_share = flip_share
        self.flip_stretch = flip_stretch
        self.addition: nn.Linear | None = None
        if flips is not None:
            # What ends in a layer norm cannot give 0, so a layer follows that can.
            self.addition = nn.Linear(dim, dim)
            nn.init.zeros_(self.addition.weight)
            nn.init.zeros_(self.addition.bias)
        self.code_reader = None
        if code_reader:
            self.code_reader = CodeReader.of(self.encoder, dim)
            self.reader_rows = STRANGERS

    def encode(self, image: Tensor) -> Codes:
        """The W+ code of `(B, 3, S, S)` as identity `(B, L, D)`; there are no attributes beside it."""
        return self._read(image)

    def encode_anonymized(self, image: Tensor) -> Codes:
        """As `encode`, of pictures that this method drew; with `code_reader` their codes are corrected."""
        return self._read(image, self.code_reader)

    def _read(self, image: Tensor, reader: CodeReader | None = None) -> Codes:
        codes, _ = read_codes(self.encoder, image, reader)
        return Codes(codes + self.latent_avg)

    @torch.no_grad()
    def calibrate_reader(self, pairs: Iterable[tuple[Codes, Tensor]]) -> None:
        """Measure the correction of codes that are read off saved pictures."""
        if self.code_reader is not None:
            drawn = (((codes.identity - self.latent_avg)[:, 0], saved) for codes, saved in pairs)
            self.code_reader.measure(self.encoder, drawn)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Encrypt or decrypt `(B, L, D)` under `key` `(B, D)`.

        `inverse` changes nothing but the place of `flip_stretch`.
        """
        with torch.no_grad():
            password = self.key_mapping(key)
        if self.flips is None or self.addition is None:
            changed: Tensor = self.mapper(identity, password)
            return changed
        # RiDDLE has one password for all rows, and `flipped` takes one for each group of rows.
        signs = key[:, None].expand(-1, len(level_sizes(identity.shape[1])), -1)
        code = identity - self.latent_avg
        if inverse:
            code = stretched(code, 1 / self.flip_stretch, self.flips)
        turned = flipped(code, signs, self.flips, self.flip_share)
        edited: Tensor = turned + self.addition(self.mapper(self.latent_avg + turned, password))
        if not inverse:
            edited = stretched(edited, self.flip_stretch, self.flips)
        return self.latent_avg + edited

    def w_plus(self, codes: Codes) -> Tensor:
        """The code itself, `(B, L, D)`."""
        return codes.identity

    def decode(self, codes: Codes) -> Tensor:
        """Draw `(B, 3, S, S)`."""
        return self.generator.synthesis(codes.identity)
