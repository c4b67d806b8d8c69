"""iFADIT: Invertible Face Anonymization via Disentangled Identity Transform (Yuan et al., arXiv:2501.04390).

- Identity z is a frozen recogniser's embedding, attributes a are a pSp code of L rows, and M([R(z), a]), with z
  repeated for every row, is the W+ code that a frozen StyleGAN2 draws.
- SIF (eqs. 5-8, `networks/flow.py`): z' = T(z, s), a flow under the secret s; its inverse is exact.
- KeyGen: password -> KDF -> bytes -> [-1, 1] -> the generator's mapping network, frozen -> s.
- ICL (`networks/compensation.py`) corrects the code read from an anonymized picture before T is inverted.
- Refinement, at inference alone: outside a soft mask of the face the pixels of the input stay. The face is the
  parser's, or without a parser the hull of the face mesh.
- Phase I trains encoder and M on reconstruction, phase II SIF and ICL alone (`disentangle_terms`, `anonymize_terms`).

Our readings, where the paper says nothing, and our deviations:

- the code is sqrt(E) times the unit embedding, so that its entries are as large as the secret's; cosines do not see it;
- the generator's mean code is added to what M puts out, as a bias that is known from the start;
- ICL is added to the code and starts at nothing; the released one replaces it (`compensation_residual`);
- widths of SIF's sub-networks, number of blocks, the clamp's constant, and the size at which they see a code;
- in training every picture has its own first key, and all have one second key, by which L_Div compares people; the
  released code draws one key a batch;
- the training on photographs at hand is `backbones.ifadit_linear`'s.

Nothing of the released code is copied; `ifadit_released` turns on what differs (docs/methods/ifadit.md).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.on_codes import OnCodes
from faceanon.backbones.region import face_region
from faceanon.key import Secret
from faceanon.losses.ifadit import PhaseTwo, PhaseTwoTerms
from faceanon.losses.structure import own_rows
from faceanon.networks.blur import blurred
from faceanon.networks.compensation import IdentityCompensation, mlp
from faceanon.networks.flow import FlowKind, SecureIdentityFlow
from faceanon.networks.frozen import Frozen
from faceanon.types import Branches, Codes, FaceBatch

Background = Literal["input", "original", "none"]
PRINTED = ("anonymity", "diversity", "recovery", "image")  # the terms of eq. (22)
FLOW_BLOCKS = 4
MASK_BLUR = 0.0586  # 15 / 256 of the released code: side of the Gaussian that softens the mask, as a fraction of S


class IFADIT(OnCodes):
    """iFADIT on any bundle; the encoder is the bundle's own, e4e or pSp (paper). The defaults are the paper's side.

    The paper gives no widths: M's hidden layer is as wide as a code, the flow's is `flow_hidden`. That the encoder's
    batch statistics stay as they came, in phase I too, is our reading.

    Args:
        bundle: Bundle by name or folder.
        flow: `realnvp` (paper) or `all_in_one` (released code).
        flow_hidden: Width of the sub-networks of `realnvp`.
        flow_bound: Largest log scale of a coupling; the released code has 2.
        compensation_residual: Whether ICL is added to the code that it reads, or replaces it (released code).
        key_range: Entries of a key: bytes spread over [-1, 1] (`signed`, paper), or U[0.5, 1] (`upper`, released code).
        encoder_range: Values that the attribute encoder sees: [-1, 1] (`signed`), or [0, 1] (`unit`, released code).
        background: Whose pixels stay outside the mask at inference. `input`: the picture at hand; on recovery that is
            the anonymized file, all that the recovering side has. `original`: the original's, on recovery too
            (released code), for whoever passes it to `recover`. `none`: nothing stays.
        mask_growth: Side of the kernel that widens the mask, as a fraction of S; half of it reaches beyond the face
            (released code: 5 / 256).

    Examples:
        >>> import torch
        >>> from faceanon.backbones.ifadit import IFADIT
        >>> from faceanon.testing import smooth_faces
        >>> method = IFADIT(background="none").eval()  # untrained
        >>> code = method.encode(smooth_faces(128)).identity
        >>> key = method.sample_key(4)
        >>> stranger = method.transform(code, key)
        >>> torch.allclose(method.transform(stranger, key, inverse=True), code, atol=1e-3)
        True
    """

    exact = True
    terms_of_one_key = frozenset({"diversity"})
    paper = "Yuan et al., iFADIT: Invertible Face Anonymization via Disentangled Identity Transform, arXiv:2501.04390"
    licence = "the authors' code is for evaluation only, without a licence; nothing of it is used"

    def __init__(
        self,
        bundle: str = "photo128_prior",
        flow: FlowKind = "realnvp",
        flow_hidden: int = 512,
        flow_bound: float = 1.0,
        compensation_residual: bool = True,
        key_range: Literal["signed", "upper"] = "signed",
        encoder_range: Literal["signed", "unit"] = "signed",
        background: Background = "input",
        mask_growth: float = 0.0,
    ) -> None:
        super().__init__(bundle)
        dim = self.generator.style_dim
        self.layers = self.generator.n_latent
        self.code_dim = self._identity_length()
        self.key_shape = (dim,)
        # A byte an entry; a secret has 32 bytes, and longer keys are expanded from it.
        self.key_bits = min(8 * dim, 256)
        # Of a generator of its own: `Frozen` ends the training of what it holds, and stages may train `self.generator`.
        self.key_mapping = Frozen(self.bundle.generator().style)
        self.mapper = mlp(self.code_dim + dim, dim, dim)
        self.flow = SecureIdentityFlow(self.code_dim, dim, FLOW_BLOCKS, flow, flow_hidden, flow_bound)
        self.compensation = IdentityCompensation(self.code_dim, compensation_residual)
        self.key_range = key_range
        self.encoder_range = encoder_range
        self.background = background
        self.mask_growth = mask_growth

    def _identity_length(self) -> int:
        """Length E of an identity code; a method that is built on this one may have a shorter one."""
        return self.bundle.embedding_length

    def encode(self, image: Tensor) -> Codes:
        """Codes of `(B, 3, S, S)`: identity `(B, E)`, attributes `(B, L, D)`; in eval mode the mask too."""
        codes = self._codes(image, None)
        if self.training or self.background == "none":
            return codes
        return replace(codes, image=image, mask=self._soft_mask(image))

    def encode_batch(self, batch: FaceBatch) -> Codes:
        """As `encode` in training, without a mask; latents that were prepared need not be computed."""
        return self._codes(batch.image, batch.latents)

    def _codes(self, image: Tensor, latents: Tensor | None) -> Codes:
        identity = self.identity_of(self.bundle.recogniser(image))
        return Codes(identity, self.encoder_code(image, latents))

    def identity_of(self, embedding: Tensor) -> Tensor:
        """Identity codes of embeddings `(B, E)` of unit length: sqrt(E) times these, so that a mean square is 1."""
        entries: Tensor = self.code_dim**0.5 * embedding
        return entries

    def encoder_code(self, image: Tensor, latents: Tensor | None) -> Tensor:
        """The encoder's code `(B, L, D)`; of the latents, where there are any and the encoder takes them."""
        if self.encoder_range == "unit":
            image = (image + 1) / 2
        elif latents is not None and self.encoder.has_codec:
            image = latents
        attributes: Tensor = self.encoder.with_features(image)[0]
        return attributes

    def encode_anonymized(self, image: Tensor) -> Codes:
        """As `encode`, with the identity corrected by ICL."""
        codes = self.encode(image)
        return codes.with_identity(self.compensation(codes.identity))

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """T(z, s), eqs. (5)-(8), or its inverse, of `(B, E)` under `(B, D)`."""
        with torch.no_grad():
            secret = self.key_mapping(key)
        moved: Tensor = self.flow(identity, secret, inverse)
        return moved

    def w_plus(self, codes: Codes) -> Tensor:
        """M([R(z), a]), eq. (2): `(B, L, D)`."""
        assert codes.attributes is not None
        repeated = codes.identity[:, None].expand(-1, self.layers, -1)
        latent: Tensor = self.mapper(torch.cat([repeated, codes.attributes], -1))
        return latent + self.latent_avg

    def decode(self, codes: Codes) -> Tensor:
        """Draw `(B, 3, S, S)`; where the codes carry a mask, only inside it."""
        drawn = self.generator.synthesis(self.w_plus(codes))
        if codes.mask is None or codes.image is None:
            return drawn
        return codes.image + codes.mask * (drawn - codes.image)

    def recover(self, image: Tensor, key: Tensor, original: Tensor | None = None) -> Tensor:
        """Bring the person back from `(B, 3, S, S)`.

        Args:
            image: The anonymized picture.
            key: Its key `(B, D)`.
            original: `(B, 3, S, S)` whose background and mask a backbone with `background: original` uses, as the
                released evaluation does, which has it at hand. A file's recipient has not: without it the anonymized
                picture stands in, which outside its mask holds the original's own pixels.

        Raises:
            ValueError: `original` is given to a backbone that must not look at it.
        """
        codes = self.edit(self.encode_anonymized(image), key, inverse=True)
        if original is None:
            return self.decode(codes)
        if self.background != "original":
            raise ValueError(f"recover got the original, but background is {self.background!r}; leave it out")
        drawn = self.generator.synthesis(self.w_plus(codes))
        return original + self._soft_mask(original) * (drawn - original)

    def sample_key(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Random keys `(batch, D)`: bytes spread over [-1, 1], or U[0.5, 1]."""
        shape = (batch, *self.key_shape)
        if self.key_range == "upper":
            return (torch.rand(shape, generator=generator) + 1) / 2
        return torch.randint(0, 256, shape, generator=generator) / 127.5 - 1

    def key_of(self, secret: Secret) -> Tensor:
        """KeyGen's first half: a byte of the secret's stream for every entry (or 24 bits of it, for U[0.5, 1])."""
        if self.key_range == "upper":
            return (torch.from_numpy(secret.uniform(self.key_label, self.key_shape)) + 1) / 2
        return torch.tensor(list(secret.stream(self.key_label, self.key_shape[0]))) / 127.5 - 1

    def disentangle_terms(
        self, batch: FaceBatch, codes: Codes, drawn: Tensor, source: Tensor, wanted: Collection[str]
    ) -> dict[str, Tensor]:
        """Phase I, eqs. (12)-(14): `image`, `identity_l1` and `landmarks` (both L1).

        `identity_l1` compares the directions of the code that the drawing shows and of the one that was drawn.

        The paper reconstructs (`pairing: self`). Where a pairing mixes persons, as in the method that iFADIT builds on
        (Nitzan et al., "Face identity disentanglement via latent space mapping"), `image` leaves those rows out.
        """
        terms: dict[str, Tensor] = {}
        if "image" in wanted:
            terms["image"] = own_rows(batch.image, drawn, source)
        if "identity_l1" in wanted:
            # The code that was drawn is the source's own, or what a key made of it.
            target = F.normalize(codes.identity.detach())
            shown = F.normalize(self.identity_of(self.bundle.recogniser(drawn)))
            terms["identity_l1"] = F.l1_loss(shown, target)
        if "landmarks" in wanted:
            terms["landmarks"] = self.landmark_distance(drawn, batch.image)
        return terms

    def anonymize_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """Phase II: `anonymity`, `diversity`, `recovery` and `image`, which eq. (22) adds up.

        With `plain_` before their names, phase I's terms of what the codes of the original draw, for a training in a
        single phase.
        """
        printed = PhaseTwoTerms(self.bundle)
        recovered = branches.recovered_rows
        drawn = PhaseTwo(
            batch.image,
            branches.anonymized,
            branches.pictures[recovered],
            branches.pictures[recovered.stop :],
            batch.identity,
        )
        terms = {}
        for name in PRINTED:
            if name in wanted:
                terms[name] = getattr(printed, name)(drawn)
        plain = {name.removeprefix("plain_") for name in wanted if name.startswith("plain_")}
        if plain:
            own = torch.arange(len(batch), device=batch.image.device)
            pictures = self.decode(branches.original)
            for name, term in self.disentangle_terms(batch, branches.original, pictures, own, plain).items():
                terms[f"plain_{name}"] = term
        return terms

    def landmark_distance(self, drawn: Tensor, image: Tensor) -> Tensor:
        """L1 between the landmarks of `(B, 3, S, S)` and those of the originals."""
        with torch.no_grad():
            target = self.bundle.landmarks(image)
        return F.l1_loss(self.bundle.landmarks(drawn), target)

    @torch.no_grad()
    def _soft_mask(self, image: Tensor) -> Tensor:
        """Soft mask `(B, 1, S, S)` of the face."""
        mask = face_region(self.bundle, image)
        # As in the released code the growth is the side of a kernel, of which one half lies on each side of a pixel.
        reach = round(self.mask_growth * self.image_size / 2)
        return gaussian_blur(F.max_pool2d(mask, 2 * reach + 1, 1, reach), MASK_BLUR * self.image_size)


def gaussian_blur(mask: Tensor, side: float) -> Tensor:
    """Blur `(B, 1, S, S)` with a Gaussian of about `side` pixels; sigma follows from the side as OpenCV has it."""
    sigma = 0.3 * ((side - 1) * 0.5 - 1) + 0.8
    # 2.7 sigma is about half the side: for a side of 15 px sigma is 2.6, and the reach 7 px.
    return blurred(mask, sigma, max(1, round(2.7 * sigma)))
