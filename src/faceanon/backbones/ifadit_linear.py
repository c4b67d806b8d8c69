"""iFADIT with what is ours, on photographs: linear maps draw and read the person, and the flow starts from a turn.

It suits codes of principal components (`backbones.linear_person`). The identity is the leading principal components of
the embedding; M starts from a linear map of it, the flow from a turn along the principal axes, and a stranger is read
off the encoder's code. Its terms of phase II are ours too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.ifadit import IFADIT
from faceanon.backbones.linear_person import LinearPerson, check_above_zero, check_degrees, leading_components
from faceanon.errors import UserError
from faceanon.losses.diversity import inter_identity, inter_key
from faceanon.losses.identity import repel
from faceanon.losses.structure import structure_loss
from faceanon.networks.compensation import correction
from faceanon.networks.whitening import PairedAxes
from faceanon.types import Branches, Codes, FaceBatch

SECRETS = 4096  # secrets of random keys by which a flow that starts as a turn weighs them


class LinearIFADIT(LinearPerson, IFADIT):
    """iFADIT whose person is drawn and read by linear maps, on any bundle.

    Args:
        bundle: Bundle by name or folder.
        flow_hidden: As in `IFADIT`; a flow that starts as a turn takes one that is wide enough for its signs.
        components: Even number K of principal components that the identity has, whitened. The flow spreads the error of
            every number that is read over all of them, and the last numbers of an embedding are read badly.
        attributes_kept: Numbers of the attribute code, from its beginning, that are added to what M puts out, and that
            M sees. They hold light and skin. No more of a person can come from the attributes.
        identity_draft: How much of a linear map of the identity is added to what M puts out, which starts at nothing.
            Above 0: 1 the map that fits the encoder's codes best, more to make up for what a fit shrinks. It is
            measured before phase I.
        flow_turn: Degrees, above 0 and below 180, by which a new flow turns codes. A secret chooses K / 2 signs.
        flow_stretch: By how much a stranger lies farther from the mean identity than the flow puts it; 1 as the flow
            says. More draws strangers with clearer features, who are less like the person. Phase II may have another
            one than phase I.

    Raises:
        UserError: A number is out of range, or the flow cannot start as a turn.

    Examples:
        >>> from faceanon.backbones.ifadit_linear import LinearIFADIT
        >>> from faceanon.testing import smooth_faces
        >>> method = LinearIFADIT().eval()  # untrained
        >>> method.encode(smooth_faces(128)).identity.shape
        torch.Size([4, 64])
    """

    stage_arguments = frozenset({"flow_stretch"})

    def __init__(
        self,
        bundle: str = "photo128_prior",
        flow_hidden: int = 512,
        components: int = 64,
        attributes_kept: int = 8,
        identity_draft: float = 2.0,
        flow_turn: float = 120.0,
        flow_stretch: float = 1.0,
    ) -> None:
        check_degrees("flow_turn", flow_turn)
        check_above_zero("flow_stretch", flow_stretch)
        self.components = components  # before the flow is built, which is as long as they are many
        super().__init__(bundle, flow_hidden=flow_hidden, background="none")
        dim = self.generator.style_dim
        self.add_linear_maps(dim, attributes_kept, identity_draft)
        self.mapper = correction(self.code_dim + dim, dim, dim)
        self.axes = PairedAxes(self.code_dim)
        self._turn(flow_turn)
        self.flow_stretch = flow_stretch

    def _identity_length(self) -> int:
        """K; the map to components is built here, since it says whether there are so many."""
        self.principal = leading_components(super()._identity_length(), self.components)
        return self.components

    def _turn(self, degrees: float) -> None:
        """Let the flow start as a turn."""
        with torch.no_grad():
            secrets = self.key_mapping(self.sample_key(SECRETS, torch.Generator().manual_seed(0)))
        try:
            self.flow.start_turning(secrets, degrees)
        except ValueError as error:
            raise UserError(f"flow_turn is {degrees}, but {error}") from error

    def encode_anonymized(self, image: Tensor) -> Codes:
        """As `encode`, with the identity read by the reader, and corrected by ICL."""
        codes = self.encode(image)
        assert codes.attributes is not None
        identity = self.identity_reader(codes.attributes[:, 0])
        return codes.with_identity(self.compensation(identity))

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """T(z, s), or its inverse, of `(B, K)` under `(B, D)`."""
        # In half precision the way back would miss the code, as in the flow itself.
        with torch.autocast(identity.device.type, enabled=False):
            white = self.axes.white(identity.float())
            if inverse:
                moved = super().transform(white / self.flow_stretch, key, inverse=True)
            else:
                moved = super().transform(white, key) * self.flow_stretch
            return self.axes.coloured(moved)

    def w_plus(self, codes: Codes) -> Tensor:
        """M([R(z), kept of a]), the draft of z, and what is kept of a: `(B, L, D)`."""
        assert codes.attributes is not None
        kept = self.kept_numbers(codes.attributes)
        latent: Tensor = super().w_plus(replace(codes, attributes=kept))
        latent = latent + self.identity_draft(codes.identity)[:, None]
        return latent + kept

    def calibrate(self, batches: Iterable[FaceBatch]) -> None:
        """Measure principal components, draft, and the axes along which the flow turns."""
        # Principal components are white already, and any axes of theirs serve.
        self.axes.fit(self.fit_draft(batches))

    def disentangle_terms(
        self, batch: FaceBatch, codes: Codes, drawn: Tensor, source: Tensor, wanted: Collection[str]
    ) -> dict[str, Tensor]:
        """Phase I: iFADIT's terms, and `drawn_code` of `LinearPerson`."""
        own = IFADIT.disentangle_terms(self, batch, codes, drawn, source, wanted)
        return own | LinearPerson.disentangle_terms(self, batch, codes, drawn, source, set(wanted) - own.keys())

    def anonymize_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """Phase II: `GROUP_image`, `GROUP_identity` and `GROUP_landmarks`.

        The groups are `anonymized` (both keys, and both wrong keys) and `recovered`. `inter_identity` and `inter_key`
        keep codes apart. iFADIT's own terms are there too.
        """
        hidden = torch.cat([branches.anonymized, branches.pictures[branches.recovered_rows.stop :]])
        groups = {"anonymized": hidden, "recovered": branches.pictures[branches.recovered_rows]}
        terms = super().anonymize_terms(batch, branches, wanted)
        for group, pictures in groups.items():
            kinds = {name.removeprefix(f"{group}_") for name in wanted if name.startswith(f"{group}_")}
            for kind, term in self._against_original(pictures, batch.image, group == "recovered", kinds).items():
                terms[f"{group}_{kind}"] = term
        if "inter_identity" in wanted:
            # The rows of a batch have different keys, which alone would keep strangers apart. One key for all rows
            # compares persons.
            one_key = branches.keys[:1].expand(len(batch), -1)
            strangers = self.transform(branches.original.identity, one_key)
            terms["inter_identity"] = inter_identity(strangers, batch.identity)
        if "inter_key" in wanted:
            # The halves are the same persons under the first key and under the second one.
            terms["inter_key"] = inter_key(*branches.edited.identity.chunk(2))
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
            terms["landmarks"] = self.landmark_distance(drawn, image)
        return terms
