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
- the terms by group and kind of `anonymize_terms` are ours, for photographs (configs/ifadit_s2.yaml); the paper's are
  `losses.ifadit` (configs/paper/ifadit_s2.yaml);
- for codes of principal components: M starts from a linear map (`identity_draft`), the flow from a turn
  (`flow_turn`), a stranger's identity is read off the encoder's code (`identity_reader`), and the identity is the
  leading principal components of the embedding alone (`components`). All are off by default.

Nothing of the released code is copied; `ifadit_released` turns on what differs (docs/methods/ifadit.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.base import Backbone
from faceanon.backbones.linear_person import COMPONENT_ROWS, READER_ROWS, LinearPerson, leading_components
from faceanon.backbones.region import face_region
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.losses.diversity import inter_identity, inter_key
from faceanon.losses.identity import repel
from faceanon.losses.ifadit import PhaseTwo, PhaseTwoTerms
from faceanon.losses.structure import structure_loss
from faceanon.networks.blur import blurred
from faceanon.networks.compensation import IdentityCompensation, correction, mlp
from faceanon.networks.flow import FlowKind, SecureIdentityFlow
from faceanon.networks.frozen import Frozen
from faceanon.networks.keyed import check_stretch
from faceanon.networks.whitening import PairedAxes
from faceanon.types import Branches, Codes, FaceBatch
from faceanon.weights.bundle import Bundle

Background = Literal["input", "original", "none"]
PRINTED = ("anonymity", "diversity", "recovery", "image")  # the terms of eq. (22)
FLOW_BLOCKS = 4
MASK_BLUR = 0.0586  # 15 / 256 of the released code: side of the Gaussian that softens the mask, as a fraction of S
SECRETS = 4096  # secrets of random keys by which a flow that starts as a turn weighs them


class IFADIT(LinearPerson, Backbone):
    """iFADIT on any bundle; the encoder is the bundle's own, e4e or pSp. The defaults are the paper's side.

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
        attributes_kept: Numbers of the attribute code, from its beginning, that are added to what M puts out. It suits
            codes of principal components, whose first numbers hold light and skin: M need not learn to copy them.
        identity_draft: How much of a linear map of the identity is added to what M puts out, which then starts at
            nothing: 0 none (paper), 1 the map that fits the encoder's codes best, more to make up for what a fit
            shrinks. It is measured before phase I. It suits codes of principal components. Of the attributes M then
            sees the kept numbers alone, so that no more of a person can come from there.
        identity_reader: The identity of an anonymized picture is read off the encoder's code by a linear map, and not
            by the recogniser; ICL corrects it. The map is measured before phase II. It suits codes of principal
            components, of which a saved picture tells more than a recogniser does.
        flow_turn: Degrees by which a new flow turns codes, along the principal axes of the training faces' identities;
            0 starts it near the identity map. The paper says nothing of the start.
        flow_stretch: By how much a stranger lies farther from the mean identity than the flow puts it; 1 as the flow
            says (paper). More draws strangers with clearer features, who are less like the person. It takes
            `flow_turn`, whose axes know the mean. Phase II may have another one than phase I.
        components: Even number K of principal components that the identity has, whitened, in place of the whole
            embedding (0, paper). The flow spreads the error of every number that is read over all of them, and the
            last numbers of an embedding are read badly. A turn (`flow_turn`) has K / 2 signs that a secret chooses.

    Raises:
        UserError: A number is out of range, or the flow cannot start as a turn.

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
    stage_arguments = frozenset({"flow_stretch"})
    paper = "Yuan et al., iFADIT: Invertible Face Anonymization via Disentangled Identity Transform, arXiv:2501.04390"
    licence = "the authors' code is for evaluation only, without a licence; nothing of it is used"

    latent_avg: Tensor

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
        attributes_kept: int = 0,
        identity_draft: float = 0.0,
        identity_reader: bool = False,
        flow_turn: float = 0.0,
        flow_stretch: float = 1.0,
        components: int = 0,
    ) -> None:
        super().__init__()
        self.bundle = Bundle(bundle)
        self.generator = self.bundle.generator()
        self.encoder = self.bundle.encoder().eval()
        dim = self.generator.style_dim
        self.layers = self.generator.n_latent
        self.principal = leading_components(self.bundle.embedding_length, components)
        self.code_dim = components or self.bundle.embedding_length
        self.key_shape = (dim,)
        # A byte an entry; a secret has 32 bytes, and longer keys are expanded from it.
        self.key_bits = min(8 * dim, 256)
        # Of a generator of its own: `Frozen` ends the training of what it holds, and stages may train `self.generator`.
        self.key_mapping = Frozen(self.bundle.generator().style)
        self.register_buffer("latent_avg", self.bundle.latent_avg.clone())
        self.mapper = mlp(self.code_dim + dim, dim, dim)
        self.flow = SecureIdentityFlow(self.code_dim, dim, FLOW_BLOCKS, flow, flow_hidden, flow_bound)
        self.compensation = IdentityCompensation(self.code_dim, compensation_residual)
        self.key_range = key_range
        self.encoder_range = encoder_range
        self.background = background
        self.mask_growth = mask_growth
        rows = COMPONENT_ROWS if components else READER_ROWS
        self.add_linear_maps(self.code_dim, dim, attributes_kept, identity_draft, identity_reader, rows)
        if identity_draft:
            self.mapper = correction(self.code_dim + dim, dim, dim)
        self.axes: PairedAxes | None = None
        if flow_turn:
            self._turn(flow_turn)
        check_stretch("flow_stretch", flow_stretch, "flow_turn", bool(flow_turn))
        self.flow_stretch = flow_stretch

    def _turn(self, degrees: float) -> None:
        """Let the flow start as a turn along axes that `calibrate` measures."""
        if not 0 < degrees < 180:
            raise UserError(f"flow_turn is {degrees}; give degrees between 0 and 180, or 0 for no turn")
        self.axes = PairedAxes(self.code_dim)
        with torch.no_grad():
            secrets = self.key_mapping(self.sample_key(SECRETS, torch.Generator().manual_seed(0)))
        try:
            self.flow.start_turning(secrets, degrees)
        except ValueError as error:
            raise UserError(f"flow_turn is {degrees}, but {error}") from error

    def train(self, mode: bool = True) -> IFADIT:
        """Train mode, save for the encoder, whose batch statistics stay as they came."""
        super().train(mode)
        self.encoder.eval()
        return self

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
        """Identity codes of embeddings `(B, E)` of unit length: sqrt(E) times these, or their principal components.

        Either way entries have a mean square of 1 over many faces.
        """
        if self.principal is not None:
            components: Tensor = self.principal(embedding)
            return components
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
        """As `encode`, with the identity read by the reader where there is one, and corrected by ICL."""
        codes = self.encode(image)
        identity = codes.identity
        if self.identity_reader is not None:
            assert codes.attributes is not None
            identity = self.identity_reader(codes.attributes[:, 0])
        return codes.with_identity(self.compensation(identity))

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """T(z, s), or its inverse, of `(B, E)` under `(B, D)`."""
        with torch.no_grad():
            secret = self.key_mapping(key)
        if self.axes is None:
            moved: Tensor = self.flow(identity, secret, inverse)
            return moved
        # In half precision the way back would miss the code, as in the flow itself.
        with torch.autocast(identity.device.type, enabled=False):
            white = self.axes.white(identity.float())
            if inverse:
                moved = self.flow(white / self.flow_stretch, secret, inverse=True)
            else:
                moved = self.flow(white, secret) * self.flow_stretch
            return self.axes.coloured(moved)

    def w_plus(self, codes: Codes) -> Tensor:
        """M([R(z), a]), and what is kept of a: `(B, L, D)`."""
        assert codes.attributes is not None
        repeated = codes.identity[:, None].expand(-1, self.layers, -1)
        attributes = codes.attributes
        kept = self.kept_numbers(attributes)
        if self.identity_draft is not None:
            attributes = kept
        latent: Tensor = self.mapper(torch.cat([repeated, attributes], -1))
        latent = latent + self.latent_avg
        if self.identity_draft is not None:
            latent = latent + self.identity_draft(codes.identity)[:, None]
        return latent + kept

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

    @torch.no_grad()
    def calibrate(self, batches: Iterable[FaceBatch]) -> None:
        """Measure principal components, the axes of identity codes, and the linear map to the encoder's codes."""
        if self.principal is None and self.axes is None and self.identity_draft is None:
            return
        embedding, codes, _ = self.embeddings_and_codes(batches)
        if self.principal is not None:
            self.principal.fit(embedding)
        identity = self.identity_of(embedding)
        if self.axes is not None:
            # Principal components are white already, and any axes of theirs serve.
            self.axes.fit(identity)
        if self.identity_draft is not None:
            self.identity_draft.fit(identity, codes)

    def disentangle_terms(
        self, batch: FaceBatch, codes: Codes, drawn: Tensor, source: Tensor, wanted: Collection[str]
    ) -> dict[str, Tensor]:
        """Phase I: `image` and `drawn_code` of `LinearPerson`, `identity_l1` and `landmarks` (both L1).

        `identity_l1` compares the directions of the code that the drawing shows and of the one that was drawn, which
        without `components` are embeddings.

        The paper reconstructs (`pairing: self`). Where a pairing mixes persons, as in the method that iFADIT builds on
        (Nitzan et al., "Face identity disentanglement via latent space mapping"), `image` leaves those rows out.
        """
        terms = super().disentangle_terms(batch, codes, drawn, source, wanted)
        if "identity_l1" in wanted:
            # The code that was drawn is the source's own, or what a key made of it.
            target = F.normalize(codes.identity.detach())
            shown = F.normalize(self.identity_of(self.bundle.recogniser(drawn)))
            terms["identity_l1"] = F.l1_loss(shown, target)
        if "landmarks" in wanted:
            terms["landmarks"] = self._landmark_distance(drawn, batch.image)
        return terms

    def anonymize_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """Phase II: `anonymity`, `diversity`, `recovery` and `image`, which are eq. (22), and ours by group and kind.

        Ours are `GROUP_image`, `GROUP_identity` and `GROUP_landmarks`. The groups are `anonymized` (both keys, and both
        wrong keys), `recovered`, and `plain`: what the codes of the original draw, which is phase I's objective, for
        training in a single phase. `inter_identity` and `inter_key` keep codes apart.
        """
        hidden = torch.cat([branches.anonymized, branches.pictures[branches.recovered_rows.stop :]])
        groups = {"anonymized": hidden, "recovered": branches.pictures[branches.recovered_rows]}
        if any(name.startswith("plain_") for name in wanted):
            groups["plain"] = self.decode(branches.original)
        terms: dict[str, Tensor] = {}
        for group, pictures in groups.items():
            kinds = set()
            for name in wanted:
                if name.startswith(f"{group}_"):
                    kinds.add(name.removeprefix(f"{group}_"))
            group_terms = self._against_original(pictures, batch.image, group != "anonymized", kinds)
            for kind, term in group_terms.items():
                terms[f"{group}_{kind}"] = term
        if "inter_identity" in wanted:
            # The rows of a batch have different keys, which alone would keep strangers apart. One key for all rows
            # compares persons.
            one_key = branches.keys[:1].expand(len(batch), -1)
            terms["inter_identity"] = inter_identity(
                self.transform(branches.original.identity, one_key), batch.identity
            )
        if "inter_key" in wanted:
            # The halves are the same persons under the first key and under the second one.
            terms["inter_key"] = inter_key(*branches.edited.identity.chunk(2))
        return terms | self._printed_terms(batch, branches, wanted)

    def _printed_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """The terms of eq. (22) that are wanted."""
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
        return terms

    def _against_original(self, drawn: Tensor, image: Tensor, same: bool, kinds: set[str]) -> dict[str, Tensor]:
        """Terms of `(n B, 3, S, S)` drawn for `(B, 3, S, S)`, which show the same person or must not."""
        terms: dict[str, Tensor] = {}
        image = image.repeat(len(drawn) // len(image), 1, 1, 1)
        if "image" in kinds:
            terms["image"] = structure_loss(drawn, image)
        if "identity" in kinds:
            with torch.no_grad():
                target = self.bundle.recogniser(image)
            embedding = self.bundle.recogniser(drawn)
            if same:
                terms["identity"] = F.l1_loss(embedding, target)
            else:
                terms["identity"] = repel(embedding, target)
        if "landmarks" in kinds:
            terms["landmarks"] = self._landmark_distance(drawn, image)
        return terms

    def _landmark_distance(self, drawn: Tensor, image: Tensor) -> Tensor:
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
