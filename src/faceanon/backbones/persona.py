"""Persona, faceanon's method for photographs, as a backbone: `persona.use` in use, and the flow that the stages train.

A donor's face is put on (`landmarks.cast`), and the flow redraws it so that it fits the photograph
(`landmarks.redrawing`). Stage 1 trains the flow to draw the face of an identity code into its surroundings, along given
lines and in given light. Stage 2 lets it redraw donors' faces, as in use, and teaches it whom not to draw.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.backbones.base import Backbone
from faceanon.backbones.persona_cells import joined_in, numbers_of, window_of
from faceanon.backbones.persona_networks import TorchNetworks
from faceanon.backbones.persona_terms import PersonaTerms
from faceanon.errors import UserError
from faceanon.landmarks.album import Album
from faceanon.landmarks.cover_finder import CoverFinder
from faceanon.landmarks.covers import random_covers
from faceanon.landmarks.drawings import DRAWINGS, FINE
from faceanon.landmarks.looks import Looks
from faceanon.landmarks.mesh import FaceMesh
from faceanon.landmarks.redrawing import GUESS, noise
from faceanon.losses.light import TERMS
from faceanon.networks.codec import LatentCodec
from faceanon.networks.face_painter import PaintingDiscriminator
from faceanon.networks.flow_painter import FlowPainter
from faceanon.networks.frozen import Frozen
from faceanon.networks.identity_space import IdentitySpace
from faceanon.networks.layout import has_bfloat16
from faceanon.persona.cells import SIZE, drawn_lines, uncovered
from faceanon.persona.space import CodeSpace
from faceanon.persona.use import PersonaUse, Place, SeenFaces
from faceanon.types import Branches, Codes, FaceBatch
from faceanon.weights.bundle import Bundle

LIGHT = 3 * TERMS  # coefficients of the surface of colours
POSE = 3
MAPS = 1 + DRAWINGS * FINE * FINE + 3  # mask, drawings folded to the cells, surface of colours
SEEN = DRAWINGS  # what the discriminator is told; masks tell drawn faces, whose covers are found, from others
UNTOLD = 0.2  # share of training faces whose code says sex, age and skin alone
CODE_NOISE = 0.4  # deviation of the noise on codes: 2,000 people are few, and a flow could know each by its code
NEAR = 0.4  # share of training faces of whose surroundings only the nearest cells are shown
STARTS = (0.45, 0.85)  # in stage 2, the least and largest share of the put-on face in its mixture with noise
STEPS = 3  # of the flow from there
AWAY = 1.0  # differences by which the flow of before is led away from the person, where it is stage 2's anchor


class Persona(Backbone):
    """Faces of invented people, put on from photographs and redrawn by a flow on the latents of a codec.

    Args:
        bundle: Folder or name of a bundle of faces of 128 px, with the roles `codec`, `recogniser` and
            `identity_space`.
        dropout: Share of the numbers in the flow's blocks that are dropped in training.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from faceanon.models import load_backbone
        >>> from faceanon.photo.party import photo_party
        >>> method, weights = load_backbone("persona_photo128")
        >>> photo = np.array(photo_party().crop((14, 14, 270, 270)).resize((128, 128)))
        >>> face = torch.from_numpy(photo).permute(2, 0, 1)[None] / 127.5 - 1
        >>> with torch.no_grad():
        ...     hidden, codes = method.anonymize_with_codes(face, method.sample_key(1))
        ...     back = method.recover_from(hidden, codes)
        >>> bool((back - face).abs().mean() < (hidden - face).abs().mean() / 2)
        True
    """

    sealed = True
    # It says how a stage trains, and no weight depends on it.
    stage_arguments = frozenset({"dropout"})
    trains_on_pictures = False
    key_bits = 256
    paper = "faceanon's own"
    licence = "Apache-2.0"
    face_sizes = PersonaUse.face_sizes

    def __init__(self, bundle: str = "photo128", dropout: float = 0.1) -> None:
        super().__init__()
        self.bundle = Bundle(bundle)
        self.bundle.require("codec", "recogniser", "identity_space")
        if self.bundle.image_size != SIZE:
            raise UserError(
                f"Persona is for faces of {SIZE} px, and bundle {bundle} is of {self.bundle.image_size} px: "
                "give one of those"
            )
        space = self.bundle.build("identity_space")
        assert isinstance(space, IdentitySpace)
        self.space = Frozen(space)
        self.cells = SIZE // LatentCodec.shrink
        self.key_shape = (space.free, space.free)
        self.flow = FlowPainter(self.cells, maps=MAPS, condition=space.size + LIGHT + POSE, dropout=dropout)

    @cached_property
    def use(self) -> PersonaUse:
        """What is done to a picture in use."""
        space = {name: numbers_of(value) for name, value in self.identities.named_buffers()}
        return PersonaUse(TorchNetworks(self), CodeSpace(space))

    @property
    def redraws(self) -> bool:
        """Whether faces that were put on are redrawn; may be switched off."""
        return self.use.redraws

    @redraws.setter
    def redraws(self, redraws: bool) -> None:
        self.use.redraws = redraws

    @property
    def album(self) -> Album | None:
        """Persons who have a donor already, see `PersonaUse`."""
        return self.use.album

    @album.setter
    def album(self, album: Album | None) -> None:
        self.use.album = album

    @cached_property
    def mesh(self) -> FaceMesh:
        """The network that finds the 468 points."""
        return FaceMesh()

    @cached_property
    def finder(self) -> CoverFinder:
        """The network that finds what covers a face."""
        return CoverFinder()

    @cached_property
    def looks(self) -> Looks:
        """The network that reads sex, age and skin."""
        return Looks()

    @property
    def identities(self) -> IdentitySpace:
        """The space of the identity codes."""
        found: IdentitySpace = self.space.net  # type: ignore[assignment]
        return found

    # In use

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """As `PersonaUse.anonymize`, on tensors like all of these: NaN where no face can be made out."""
        return _as_tensor(self.use.anonymize(numbers_of(image), numbers_of(key)), image)

    def anonymize_with_codes(self, image: Tensor, key: Tensor) -> tuple[Tensor, list[bytes]]:
        """As `anonymize`, with the codes of the originals; codec and mesh look at each face once."""
        drawn, codes = self.use.anonymize_with_codes(numbers_of(image), numbers_of(key))
        return _as_tensor(drawn, image), codes

    def deny(self, image: Tensor, key: Tensor) -> Tensor:
        """As in the base: a stranger unlike the first one, and unlike the person as far as the surroundings tell."""
        return _as_tensor(self.use.deny(numbers_of(image), numbers_of(key)), image)

    def anonymize_as(self, image: Tensor, identity: Tensor, key: Tensor) -> Tensor:
        """As in the base; where no face can be made out, the picture is NaN."""
        return self.anonymize_as_with_codes(image, identity, key)[0]

    def anonymize_as_with_codes(self, image: Tensor, identity: Tensor, key: Tensor) -> tuple[Tensor, list[bytes]]:
        """As in the base; codec and mesh look at each face once."""
        drawn, codes = self.use.anonymize_as(numbers_of(image), numbers_of(identity), numbers_of(key))
        return _as_tensor(drawn, image), codes

    def unlike(self, image: Tensor, identity: Tensor, key: Tensor) -> Tensor:
        """As in the base: a code that chooses a donor whom the recogniser does not take for the person."""
        return _as_tensor(self.use.unlike(numbers_of(image), numbers_of(identity), numbers_of(key)[0]), image)

    def face_mask(self, image: Tensor) -> Tensor:
        """The cells that `anonymize` may change, `(B, 1, h, h)` bool."""
        return torch.from_numpy(self.use.face_mask(numbers_of(image))).to(image.device)

    def code_of(self, image: Tensor) -> list[bytes]:
        """As in the base; the codec looks at each picture once."""
        return self.use.code_of(numbers_of(image))

    def recover_from(self, image: Tensor, codes: list[bytes]) -> Tensor:
        """As in the base; only the cells of the codes are drawn."""
        return _as_tensor(self.use.recover_from(numbers_of(image), codes), image)

    def embeddings(self, faces: NDArray[np.float32]) -> NDArray[np.float32]:
        """As `PersonaUse.embeddings`."""
        return self.use.embeddings(faces)

    def donor_of_person(self, faces: NDArray[np.float32], key: NDArray[np.float32], used: Mapping[int, int]) -> int:
        """As `PersonaUse.donor_of_person`."""
        return self.use.donor_of_person(faces, key, used)

    # In training

    def encode(self, image: Tensor) -> Codes:
        """Identity code `(B, 64)`, latents, mask, drawings, light and pose of `(B, 3, 128, 128)`; no gradient."""
        return self._codes(image, self.use.look(numbers_of(image)))

    def encode_batch(self, batch: FaceBatch) -> Codes:
        """As `encode`, with what was prepared for a training batch, random covers, and places on the flow's way.

        In some rows only what lies within two cells of the mask is shown: a flow that always sees all surroundings
        knows the training pictures by them.
        """
        if not self.training:
            return self.encode(batch.image)
        latents = self._latents(batch)
        image = numbers_of(batch.image)
        networks = self.use.networks
        mesh = networks.points(image)[0] if batch.mesh is None else numbers_of(batch.mesh)
        embedding = networks.embed(image) if batch.embedding is None else numbers_of(batch.embedding)
        lines, mask = drawn_lines(mesh[..., :2], image)
        left = uncovered(mask, numbers_of(random_covers(len(latents), self.cells)))
        place = Place(numbers_of(latents), mesh, lines, left, np.ones(len(image), np.float32))
        codes = self._codes(batch.image, self.use.known(image, place, embedding))
        time = torch.sigmoid(torch.randn(len(latents), device=latents.device))
        noisy = torch.lerp(torch.randn_like(latents), latents, time[:, None, None, None])
        assert codes.mask is not None
        near = F.max_pool2d(codes.mask, 5, stride=1, padding=2)
        hidden = torch.rand(len(latents), 1, 1, 1, device=latents.device) < NEAR
        return replace(codes, latents=torch.where(hidden, latents * near, latents), noisy=noisy, time=time)

    def _latents(self, batch: FaceBatch) -> Tensor:
        """The latents of a batch, `(B, 32, h, h)` float32."""
        if batch.latents is not None:
            return batch.latents.float()
        with torch.no_grad():
            return self.bundle.codec.encode(batch.image)

    def _codes(self, image: Tensor, seen: SeenFaces) -> Codes:
        """What `persona.use` knows of faces, as codes; `image` are the same pictures."""
        return Codes(
            identity=_as_tensor(seen.code, image),
            attributes=_as_tensor(seen.attributes, image)[:, None],
            features={self.cells: _as_tensor(seen.maps, image)},
            image=image,
            latents=_as_tensor(seen.latents, image),
            mask=_as_tensor(seen.mask, image),
            mesh=_as_tensor(seen.mesh, image),
        )

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Turn codes `(B, 64)` by 90 degrees where they do not tell sex, age or skin; no gradient."""
        return _as_tensor(self.use.space.turned(numbers_of(identity), numbers_of(key), inverse), identity)

    def mixed_identity(self, codes: Codes, source: Tensor) -> Tensor:
        """As in the base, codes `(B, 64)`: sex, age and skin are a row's own, all else is its source's.

        In training with noise, and in some rows of nobody in particular.
        """
        identity = self.identities.mixed(codes.identity, codes.identity[source])
        if not self.training:
            return identity
        untold = torch.rand(len(identity), 1, device=identity.device) < UNTOLD
        noisy = identity + CODE_NOISE * torch.randn_like(identity)
        return torch.where(untold, self.identities.anybody(identity), noisy)

    def edit(self, codes: Codes, key: Tensor, inverse: bool = False) -> Codes:
        """As in the base; in training of donors who are put on under the keys, some way before their redrawing's end.

        They are mixed with noise, and the flow, as it is, has led them one or two of three steps back.
        """
        if not self.training or inverse:
            return super().edit(codes, key, inverse)
        assert codes.image is not None
        person, put_on = self.use.put_on(numbers_of(codes.image), numbers_of(key))
        latents = _as_tensor(put_on.latents, codes.image)
        start = STARTS[0] + (STARTS[1] - STARTS[0]) * torch.rand(len(key), device=key.device)
        begun = replace(
            self._codes(codes.image, replace(person, code=put_on.code, maps=put_on.maps, mesh=put_on.mesh)),
            noisy=torch.lerp(torch.randn_like(latents), latents, start[:, None, None, None]),
            time=start,
        )
        return self._led_back(begun, (1 - start) / STEPS, torch.randint(1, STEPS, (len(key),), device=key.device))

    @torch.no_grad()
    def _led_back(self, codes: Codes, step: Tensor, steps: Tensor) -> Codes:
        """Codes whose places on the flow's way are `steps` `(B,)` steps of length `step` `(B,)` further."""
        assert codes.noisy is not None
        assert codes.time is not None
        noisy, time = codes.noisy, codes.time
        for number in range(STEPS - 1):
            moved = torch.where(steps > number, step, 0.0)
            noisy = noisy + moved[:, None, None, None] * self.direction(codes, noisy, time)
            time = time + moved
        return replace(codes, noisy=noisy, time=time)

    def direction(self, codes: Codes, noisy: Tensor, time: Tensor) -> Tensor:
        """Where the flow leads, `(B, 32, h, h)` float32.

        Args:
            codes: What is known of the faces.
            noisy: `(B, 32, h, h)`, x(t).
            time: `(B,)`, t.
        """
        assert codes.attributes is not None
        assert codes.features is not None
        condition = torch.cat([codes.identity, codes.attributes[:, 0]], 1)
        known = (codes.latents, codes.mask, codes.features[self.cells], condition)
        # As the codec does; in training Lightning's precision decides.
        if not self.training and noisy.device.type == "cpu" and has_bfloat16():
            with torch.autocast("cpu", torch.bfloat16):
                found: Tensor = self.flow(noisy, time, *known)
        else:
            found = self.flow(noisy, time, *known)
        return found.float()

    def paint(self, codes: Codes) -> Tensor:
        """Latents `(B, 32, h, h)` with the faces x(1) that the flow expects from the codes' places on its way.

        Codes without a place begin at noise, and are led to faces in some steps.
        """
        assert codes.latents is not None
        assert codes.mask is not None
        if codes.noisy is None or codes.time is None:
            here = torch.from_numpy(noise()).to(codes.latents).expand_as(codes.latents)
            time = codes.identity.new_zeros(len(here))
            steps = GUESS[1]
        else:
            here, time = codes.noisy, codes.time
            steps = 1
        for left in range(steps, 0, -1):
            step = (1 - time) / left
            here = here + step[:, None, None, None] * self.direction(codes, here, time)
            time = time + step
        return torch.where(codes.mask > 0.5, here, codes.latents)

    def drawn_view(self, codes: Codes) -> Tensor:
        """What the discriminator looks at: drawn latents and the lines that should be there, `(B, 39, h, h)`."""
        return torch.cat([self.paint(codes), self._lines(codes)], 1)

    def original_view(self, batch: FaceBatch, codes: Codes) -> Tensor:
        """The same of the photographs themselves."""
        return torch.cat([self._latents(batch), self._lines(codes)], 1)

    def _lines(self, codes: Codes) -> Tensor:
        """Drawings by cells, `(B, 7, h, h)`."""
        assert codes.features is not None
        # Behind the mask, and before the surface of colours.
        return F.avg_pool2d(F.pixel_shuffle(codes.features[self.cells][:, 1:-3], FINE), FINE)

    def drawn_before(self, image: Tensor, edited: Sequence[Codes]) -> Tensor:
        """As in the base: what this flow expects from the same places, led away from the persons."""
        person = _as_tensor(self.use.identities(numbers_of(image)), image)
        drawn = []
        for codes in edited:
            both = torch.cat([codes.identity, person.repeat(len(codes.identity) // len(person), 1)])
            twice = codes.map(lambda item: torch.cat([item, item])).with_identity(both)
            wanted, own = self.drawn_view(twice).chunk(2)
            drawn.append(wanted + AWAY * (wanted - own))
        return torch.cat(drawn)

    def decode(self, codes: Codes) -> Tensor:
        """The picture with the new face, softly joined; beyond the drawn cells it is the old one."""
        assert codes.image is not None
        assert codes.mask is not None
        window = window_of(codes.mask)
        part = self.bundle.codec.decode_part(self.paint(codes), window)
        return joined_in(window, part, codes.mask, codes.image)

    def new_discriminator(self) -> nn.Module:
        """An untrained discriminator of drawn latents."""
        return PaintingDiscriminator(self.cells, maps=SEEN)

    def disentangle_terms(
        self, batch: FaceBatch, codes: Codes, drawn: Tensor, source: Tensor, wanted: Collection[str]
    ) -> dict[str, Tensor]:
        """Stage 1's own term: `flow`, how wrong the flow's directions to photographs are."""
        return {"flow": self._terms.flow(self._latents(batch), codes, drawn[:, :-SEEN])}

    def anonymize_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """Stage 2's own terms: those of `PersonaTerms.hiding`, and stage 1's `flow` on the batch's photographs."""
        terms = self._terms.hiding(batch, branches, branches.pictures[:, :-SEEN], wanted)
        if "flow" in wanted:
            codes = branches.original
            codes = codes.with_identity(self.mixed_identity(codes, torch.arange(len(batch), device=batch.image.device)))
            terms["flow"] = self._terms.flow(self._latents(batch), codes, self.paint(codes))
        return {name: value for name, value in terms.items() if name in wanted}

    @property
    def _terms(self) -> PersonaTerms:
        return PersonaTerms(self.bundle, self.identities, self.mesh)


def _as_tensor(rows: NDArray[np.float32], like: Tensor) -> Tensor:
    """Rows as a tensor beside another."""
    return torch.from_numpy(rows).to(like.device)
