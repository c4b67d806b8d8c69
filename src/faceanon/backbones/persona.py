"""Persona, faceanon's method for photographs, as a backbone: `persona.use` in use, and the painter that stages train.

In use it is `persona.use.PersonaUse`, which says what is done to a picture, on torch's networks. What stages train is
the painter of `cast: false`: latents around the mask, drawings, light and a new code give latents of the new face.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.backbones.base import Backbone
from faceanon.backbones.persona_cells import joined_in, maps_shown, numbers_of, points_of, uncovered, window_of
from faceanon.backbones.persona_networks import TorchNetworks
from faceanon.backbones.persona_terms import SEEN, PersonaTerms
from faceanon.errors import UserError
from faceanon.landmarks.album import Album
from faceanon.landmarks.cover_finder import CoverFinder
from faceanon.landmarks.covers import random_covers
from faceanon.landmarks.drawings import DRAWINGS, FINE, drawings, pose
from faceanon.landmarks.enlarger import Enlarger
from faceanon.landmarks.looks import Looks
from faceanon.landmarks.mesh import FaceMesh
from faceanon.landmarks.redrawer import Redrawer
from faceanon.losses.light import fit_light, light_surface
from faceanon.networks.codec import LatentCodec
from faceanon.networks.face_painter import FacePainter, PaintingDiscriminator
from faceanon.networks.frozen import Frozen
from faceanon.networks.identity_space import IdentitySpace
from faceanon.networks.layout import has_bfloat16
from faceanon.persona.cells import SIZE
from faceanon.persona.space import CodeSpace
from faceanon.persona.use import NOISE, VARIETY, PersonaOptions, PersonaUse
from faceanon.types import Branches, Codes, FaceBatch
from faceanon.weights.bundle import Bundle

LIGHT = 18  # coefficients of the surface of colours
POSE = 3
MAPS = 1 + DRAWINGS * FINE * FINE + 3  # mask, drawings folded to the cells, surface of colours


class Persona(Backbone):
    """Faces of invented people, put on from photographs (`cast`) or painted on the latents of a codec.

    Args:
        bundle: Folder or name of a bundle of faces of 128 px, with the roles `codec`, `recogniser` and
            `identity_space`.
        hidden: Length of the painter's condition.
        covers: Whether what covers a part of the face (medical masks, hands, hair, dark glasses) stays. More of
            this and the next ones is in `persona.use.PersonaOptions`.
        variety: How far strangers lie from the mean person, in (0, 1].
        cast: Whether faces of invented people's photographs are put on in use, instead of painted ones. Training trains
            the painter all the same.
        redraw: Whether faces that were put on are redrawn, so that they fit the photograph (`landmarks.redrawing`).

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
    # They say how a model is used, and nothing of its training.
    stage_arguments = frozenset({"covers", "variety", "cast", "redraw"})
    trains_on_pictures = False
    key_bits = 256
    paper = "faceanon's own"
    licence = "Apache-2.0"
    face_sizes = PersonaUse.face_sizes

    def __init__(
        self,
        bundle: str = "photo128",
        hidden: int = 320,
        covers: bool = True,
        variety: float = VARIETY,
        cast: bool = False,
        redraw: bool = False,
    ) -> None:
        super().__init__()
        self.options = PersonaOptions(covers, variety, cast, redraw)
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
        self.painter = FacePainter([self.cells], maps=MAPS, condition=space.size + LIGHT + POSE + NOISE, hidden=hidden)

    @cached_property
    def use(self) -> PersonaUse:
        """What is done to a picture in use."""
        space = {name: numbers_of(value) for name, value in self.identities.named_buffers()}
        return PersonaUse(TorchNetworks(self), CodeSpace(space), self.options)

    @property
    def with_cast(self) -> bool:
        """Whether faces are put on."""
        return self.use.with_cast

    @with_cast.setter
    def with_cast(self, with_cast: bool) -> None:
        self.use.with_cast = with_cast

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

    @cached_property
    def enlarger(self) -> Enlarger:
        """The network that fills in the details of large faces."""
        return Enlarger()

    @cached_property
    def redrawer(self) -> Redrawer:
        """The network that redraws faces which were put on."""
        return Redrawer(MAPS, self.identities.size + LIGHT + POSE)

    @property
    def identities(self) -> IdentitySpace:
        """The space of the identity codes."""
        found: IdentitySpace = self.space.net  # type: ignore[assignment]
        return found

    def points(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Points `(B, 468, 2)` in [-1, 1] of pictures `(B, 3, S, S)`, and confidences `(B,)` that they show a face."""
        points, confidence = points_of(self.mesh, image)
        return points[..., :2], confidence

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
        """As in the base: a donor, or a painted stranger, whom the recogniser does not take for the person."""
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
        """Identity code `(B, 64)`, latents, mask, drawings, light and pose of `(B, 3, 128, 128)`."""
        with torch.no_grad():
            latents = self.bundle.codec.encode(image)
            embedding = self.bundle.recogniser(image.float())
        mesh, _ = self.points(image)
        return self._codes(image, latents, mesh, self._identity(embedding.float(), latents))

    def encode_batch(self, batch: FaceBatch) -> Codes:
        """As `encode`, with what was prepared for a training batch."""
        if batch.latents is None or batch.mesh is None or batch.embedding is None:
            return self.encode(batch.image)
        latents = batch.latents.float()
        covered = None
        if self.training:
            covered = random_covers(len(latents), latents.shape[-1], latents.device)
        identity = self._identity(batch.embedding.float(), latents)
        return self._codes(batch.image, latents, batch.mesh, identity, covered)

    def _codes(
        self, image: Tensor, latents: Tensor, mesh: Tensor, identity: Tensor, covered: Tensor | None = None
    ) -> Codes:
        """Codes of pictures; `covered` `(B, 1, h, h)` is 1 in cells that are not to be painted, None finds them."""
        lines, mask = drawings(mesh, image, latents.shape[-1])
        if covered is None:
            covered = self._covered(latents, lines, mask, mesh)
        return self.codes_of_drawings(image, latents, mesh, identity, lines, uncovered(mask, covered))

    def codes_of_drawings(
        self, image: Tensor, latents: Tensor, mesh: Tensor, identity: Tensor, lines: Tensor, mask: Tensor
    ) -> Codes:
        """Codes of pictures whose drawings are known.

        Args:
            image: `(B, 3, S, S)` in [-1, 1].
            latents: Theirs, `(B, 32, h, h)`.
            mesh: `(B, 468, 2)` points in [-1, 1] of the picture.
            identity: `(B, 64)`.
            lines: `(B, 7, 4 h, 4 h)` in [0, 1], as `drawings` gives them.
            mask: `(B, 1, h, h)` of 0 and 1, the cells to change.
        """
        cells = latents.shape[-1]
        # The preview is a linear map: one colour a cell is enough for a smooth surface, and no decoder has to run.
        light = fit_light(self.bundle.codec.preview(latents), mask)
        surface = light_surface(light, cells) * mask
        maps = torch.cat([mask, F.pixel_unshuffle(lines, FINE), surface], 1)
        shown = maps_shown(mask, lines)
        # `(B, 21)`: 18 coefficients of light and 3 numbers of pose.
        condition = torch.cat([light.flatten(1), pose(mesh)], 1)
        # Features are keyed by their side. The discriminator's maps have the same side as the painter's, so they go
        # under 1, which is no map's side.
        return Codes(
            identity=identity,
            attributes=condition[:, None],
            features={cells: maps, 1: shown},
            image=image,
            latents=latents,
            mask=mask,
        )

    def _covered(self, latents: Tensor, lines: Tensor, mask: Tensor, mesh: Tensor) -> Tensor:
        """Cells `(B, 1, h, h)` that something covers; none in training, where covers are drawn at random."""
        if self.training or not self.options.covers:
            return torch.zeros_like(mask)
        return self.finder.covers(latents, maps_shown(mask, lines), mesh)

    def _identity(self, embedding: Tensor, latents: Tensor) -> Tensor:
        """Codes `(B, 64)` of embeddings, with sex, age and skin as the pictures show them.

        The recogniser was trained to tell persons apart: its embeddings tell sex and age of the invented people that
        the space was fitted to, and nothing of real ones.
        """
        looks = self.looks.read(latents.detach())
        return self.identities.with_kept(self.identities.code(embedding), looks)

    def edit(self, codes: Codes, key: Tensor, inverse: bool = False) -> Codes:
        """As in the base; in use a stranger's code moves towards the mean person, as `variety` says.

        In training it does not: the painter has to learn the whole range.
        """
        edited = super().edit(codes, key, inverse)
        if self.training or inverse:
            return edited
        return edited.with_identity(self.identities.nearer_to_mean(edited.identity, self.options.variety))

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Turn codes `(B, 64)` by 90 degrees where they do not tell sex, age or skin."""
        return self.identities.turned(identity, key, inverse)

    def mixed_identity(self, codes: Codes, source: Tensor) -> Tensor:
        """Codes of other rows' persons with a row's own sex, age and skin; a row's own code where it is its source."""
        return self.identities.mixed(codes.identity, codes.identity[source])

    def paint(self, codes: Codes) -> Tensor:
        """Latents `(B, 32, h, h)` with the face of the codes; in training with noise, of which there is none in use."""
        assert codes.latents is not None
        assert codes.mask is not None
        assert codes.attributes is not None
        assert codes.features is not None
        noise = codes.identity.new_zeros(len(codes.identity), NOISE)
        if self.training:
            noise = torch.randn_like(noise)
        condition = torch.cat([codes.identity, codes.attributes[:, 0], noise], 1)
        return self.painted(codes.latents, codes.mask, codes.features[self.cells], condition)

    def painted(self, latents: Tensor, mask: Tensor, maps: Tensor, condition: Tensor) -> Tensor:
        """Latents `(B, 32, 16, 16)` as the painter gives them, see `FacePainter`."""
        # As the codec does. In training Lightning's precision rules, in validation too.
        if not self.training and latents.device.type == "cpu" and has_bfloat16():
            with torch.autocast("cpu", torch.bfloat16):
                found: Tensor = self.painter(latents, mask, maps, condition)
        else:
            found = self.painter(latents, mask, maps, condition)
        return found.float()

    def drawn_view(self, codes: Codes) -> Tensor:
        """What the discriminator looks at: painted latents and what should be there, `(B, 40, h, h)`."""
        assert codes.features is not None
        return torch.cat([self.paint(codes), codes.features[1]], 1)

    def original_view(self, batch: FaceBatch, codes: Codes) -> Tensor:
        """The same of the photographs themselves."""
        assert codes.features is not None
        assert codes.latents is not None
        return torch.cat([codes.latents, codes.features[1]], 1)

    def decode(self, codes: Codes) -> Tensor:
        """The picture with the new face, softly joined; beyond the painted cells it is the old one."""
        assert codes.image is not None
        assert codes.mask is not None
        window = window_of(codes.mask)
        part = self.bundle.codec.decode_part(self.paint(codes), window)
        return joined_in(window, part, codes.mask, codes.image)

    def new_discriminator(self) -> nn.Module:
        """An untrained discriminator of painted latents."""
        return PaintingDiscriminator(self.cells, maps=SEEN)

    def build_readers(self) -> nn.ModuleDict:
        """Networks on latents that a stage trains along, see `PersonaTerms.new_readers`."""
        return self._terms(nn.ModuleDict()).new_readers()

    def reader_terms(self, batch: FaceBatch, codes: Codes, drawn: Tensor) -> dict[str, Tensor]:
        """What the readers learn from, see `PersonaTerms.reader_terms`."""
        return self._terms(self._readers()).reader_terms(batch, codes, drawn)

    def disentangle_terms(
        self, batch: FaceBatch, codes: Codes, drawn: Tensor, source: Tensor, wanted: Collection[str]
    ) -> dict[str, Tensor]:
        """Stage 1's own terms, see `PersonaTerms.disentangle_terms`."""
        return self._terms(self._readers()).disentangle_terms(batch, codes, drawn, source, wanted)

    def anonymize_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """Stage 2's own terms, see `PersonaTerms.anonymize_terms`."""
        return self._terms(self._readers()).anonymize_terms(batch, branches, wanted)

    def _terms(self, readers: nn.ModuleDict) -> PersonaTerms:
        return PersonaTerms(self.bundle, self.identities, self.mesh, self.looks, self.cells, readers)

    def _readers(self) -> nn.ModuleDict:
        """The readers of the stage that trains this method."""
        readers: nn.ModuleDict | None = self.__dict__.get("readers")
        if not readers:
            raise RuntimeError("Persona's terms need the readers that a stage builds: call use_readers first")
        return readers


def _as_tensor(rows: NDArray[np.float32], like: Tensor) -> Tensor:
    """Rows as a tensor beside another."""
    return torch.from_numpy(rows).to(like.device)
