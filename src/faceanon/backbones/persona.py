"""Persona, faceanon's method for photographs: an invented person's face, put on or painted, where the old one was.

    picture --codec--> latents          mesh of 468 points --> drawings of eyes, brows, lips, nose; mask of the face
    embedding --whitened--> identity code --key: turned by 90 degrees--> the new person's code
    with `cast`, as the model that ships is set:
        new code --nearest of those who fit--> a donor's photograph --warped, lit--> picture --redrawn--> picture
    without:
        latents around the mask + drawings + light + new code --painter--> latents of the new face --codec--> picture

What lies in front of the face (hands, medical masks, hair) is taken out of the mask and stays. With `cast` the face of
a person who does not exist is put on (`landmarks.cast`, `landmarks.swap`): in the old one's pose and light, and mostly
in its shape. The painter never sees the old face, apart from drawings, pose and a surface of its colours (light and
skin).

What brings the person back is the sealed code of the face's latents that the file carries (`faceanon.sealed`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.backbones.base import Backbone
from faceanon.backbones.persona_cells import (
    CLEAR,
    bytes_of,
    clear,
    halved,
    joined_in,
    maps_shown,
    numbers_of,
    points_of,
    rows_of,
    uncovered,
    window_of,
)
from faceanon.backbones.persona_terms import SEEN, PersonaTerms
from faceanon.errors import UserError
from faceanon.landmarks.album import Album
from faceanon.landmarks.cast import Alike, Cast, Choice
from faceanon.landmarks.cover_finder import CoverFinder
from faceanon.landmarks.covers import random_covers
from faceanon.landmarks.drawings import DRAWINGS, FINE, drawings, pose
from faceanon.landmarks.enlarger import Enlarger
from faceanon.landmarks.looks import Looks
from faceanon.landmarks.mesh import FaceMesh
from faceanon.landmarks.redrawer import Redrawer
from faceanon.landmarks.redrawing import (
    GUESS,
    Again,
    Look,
    Redrawing,
    carried_over,
    feature_pixels,
    noise,
    own_pixels,
    redraw,
    redraw_frames,
    times,
)
from faceanon.landmarks.swap import SwapTarget, target_of
from faceanon.landmarks.typical import TypicalFaces
from faceanon.losses.light import fit_light, light_surface
from faceanon.networks.codec import LatentCodec
from faceanon.networks.face_painter import FacePainter, PaintingDiscriminator
from faceanon.networks.frozen import Frozen
from faceanon.networks.identity_space import IdentitySpace
from faceanon.networks.layout import has_bfloat16
from faceanon.sealed.faces import codes_of_latents
from faceanon.types import Branches, Codes, FaceBatch
from faceanon.weights.bundle import Bundle

NOISE = 8  # random numbers of a drawing in training, so that the painter need not average; 0 in use
LIGHT = 18  # coefficients of the surface of colours
POSE = 3
MAPS = 1 + DRAWINGS * FINE * FINE + 3  # mask, drawings folded to the cells, surface of colours
SIZES = (128, 256)  # sides of faces for which there is a painter
# Of the first strangers 25 % looked odd, of the most natural ones of four 4 %.
STRANGERS = 4  # that are painted for each face, of whom one is taken
# Below it dlib took 1.7 % of the results for the person, of all results 4.9 %.
ALIKE = 0.2  # cosine of embeddings from which a stranger is too much like the original, and the next one is looked at
MARGIN = 0.06  # of oddness, for the first stranger: photos of one person keep one stranger where all look as natural


class Persona(Backbone):
    """Faces of invented people, put on from photographs (`cast`) or painted on the latents of a codec.

    Args:
        bundle: Folder or name of a bundle with the roles `codec`, `recogniser` and `identity_space`.
        hidden: Length of the painter's condition.
        sizes: Sides in pixels of the faces that it paints, 128 and 256; None takes the bundle's. The largest is the
            method's `image_size`; for the smaller ones pictures of their size are given.
        covers: Whether what covers a part of the face (medical masks, hands, microphones, hair, dark glasses) stays;
            else the new face goes over it.
        enlarge: Whether it takes pictures of 256 px too, where its painter has no layers for them: it paints the face
            at 128 px then, and a network that ships fills in what is missing to 256 px. With `cast`
            it takes them anyway.
        variety: How far strangers lie from the mean person, in (0, 1]: the share of what a key makes of an identity
            code that the painter gets in use. Less gives strangers who look more natural, and more like each other.
        cast: Whether faces of invented people's photographs are put on in use, instead of painted ones. Training trains
            the painter all the same.
        redraw: Whether faces that were put on are redrawn, so that they fit the photograph (`landmarks.redrawing`).

    Attributes:
        album: With `cast`, persons who have a donor already: each gets this one in every picture. None: nobody has.

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
    stage_arguments = frozenset({"covers", "enlarge", "variety", "cast", "redraw"})
    trains_on_pictures = False
    key_bits = 256
    paper = "faceanon's own"
    licence = "Apache-2.0"

    def __init__(
        self,
        bundle: str = "photo128",
        hidden: int = 320,
        sizes: list[int] | None = None,
        covers: bool = True,
        enlarge: bool = True,
        # With .7 strangers look more natural, but 56 % of the pairs of two passwords were alike.
        variety: float = 0.85,
        cast: bool = False,
        redraw: bool = False,
    ) -> None:
        super().__init__()
        if not 0 < variety <= 1:
            raise UserError(f"Persona's variety is above 0 and at most 1, not {variety}: set it in init_args")
        self.variety = variety
        self.covers = covers
        self.enlarge = enlarge
        self.with_cast = cast
        self.redraws = redraw
        self.album: Album | None = None
        self.bundle = Bundle(bundle)
        self.bundle.require("codec", "recogniser", "identity_space")
        space = self.bundle.build("identity_space")
        assert isinstance(space, IdentitySpace)
        self.space = Frozen(space)
        self.given_sizes = sizes
        self.sizes = sorted(sizes or [self.bundle.image_size])
        unknown = set(self.sizes) - set(SIZES)
        if unknown:
            raise UserError(f"Persona paints faces of {SIZES} px, not of {sorted(unknown)}: set sizes to some of these")
        self.cells = self.image_size // LatentCodec.shrink
        self.key_shape = (space.free, space.free)
        cells = [size // LatentCodec.shrink for size in self.sizes]
        self.painter = FacePainter(cells, maps=MAPS, condition=space.size + LIGHT + POSE + NOISE, hidden=hidden)

    @property
    def image_size(self) -> int:
        """Side of the largest faces that it paints, in pixels."""
        return self.sizes[-1]

    @property
    def face_sizes(self) -> tuple[int, ...]:
        """Sides of all the faces that it takes, rising."""
        if self.sizes == [SIZES[0]] and (self.enlarge or self.with_cast):
            return SIZES
        return tuple(self.sizes)

    def grown_from(self, init_args: dict[str, Any]) -> dict[str, Any]:
        """A model that paints fewer sizes starts this one; see `models.Growing`."""
        smaller = set(init_args.get("sizes") or [self.bundle.image_size])
        if smaller < set(self.sizes):
            return init_args | {"sizes": self.given_sizes}
        return init_args

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
    def typical(self) -> TypicalFaces:
        """What latents of photographs are like."""
        return TypicalFaces()

    @cached_property
    def cast(self) -> Cast:
        """The invented people whose faces are put on."""
        return Cast()

    @cached_property
    def redrawer(self) -> Redrawer:
        """The network that redraws faces which were put on."""
        return Redrawer(MAPS, 2 * self.identities.size + LIGHT + POSE)

    @property
    def identities(self) -> IdentitySpace:
        """The space of the identity codes."""
        found: IdentitySpace = self.space.net  # type: ignore[assignment]
        return found

    def points(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Points `(B, 468, 2)` in [-1, 1] of pictures `(B, 3, S, S)`, and confidences `(B,)` that they show a face."""
        points, confidence = points_of(self.mesh, image)
        return points[..., :2], confidence

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """Replace the person in `(B, 3, S, S)`; not clamped. Where no face can be made out, the picture is NaN.

        Whoever calls hides such a face in another way: what the mesh cannot find, nothing would be put over. With
        `cast` the first of eight donors is taken who is unlike the person; without, of four painted strangers the most
        natural one whom the recogniser does not take for the person.
        """
        if self.with_cast:
            return self._anonymize_with_cast(image, key)[0]
        if self._is_large(image):
            return self._anonymize_large(image, key)[0]
        return self._drawn(*self._look(image), key)

    def anonymize_with_codes(self, image: Tensor, key: Tensor) -> tuple[Tensor, list[bytes]]:
        """As `anonymize`, with the codes of the originals; codec and mesh look at each face once."""
        if self.with_cast:
            drawn, latents, mask = self._anonymize_with_cast(image, key)
            return drawn, codes_of_latents(latents, mask)
        if self._is_large(image):
            drawn, latents, mask = self._anonymize_large(image, key)
            return drawn, codes_of_latents(latents, mask)
        codes, embedding, confidence = self._look(image)
        drawn = self._drawn(codes, embedding, confidence, key)
        assert codes.latents is not None
        assert codes.mask is not None
        return drawn, codes_of_latents(codes.latents, codes.mask)

    def deny(self, image: Tensor, key: Tensor) -> Tensor:
        """As in the base: a stranger unlike the first one, and unlike the person as far as the surroundings tell."""
        if not self.with_cast:
            return self.anonymize(image, key)
        return self._anonymize_with_cast(image, key, guess=True)[0]

    def encode(self, image: Tensor) -> Codes:
        """Identity code `(B, 64)`, latents, mask, drawings, light and pose of `(B, 3, S, S)`."""
        return self._look(image)[0]

    def _is_large(self, image: Tensor) -> bool:
        """Whether the painter has no layers for pictures so large, and their faces are enlarged."""
        return image.shape[-1] > self.image_size

    def _anonymize_large(self, image: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A large picture `(B, 3, 256, 256)` with a new face, its own latents, and the mask of the painted cells.

        The face is painted into the picture of half the size. Its mask, too, is found there: one cell becomes four.
        """
        codes, embedding, confidence = self._look(halved(image))
        small = self._drawn(codes, embedding, confidence, key)
        assert codes.mask is not None
        mask = F.interpolate(codes.mask, scale_factor=2.0)
        with torch.no_grad():
            latents = self.bundle.codec.encode(image)
            # Where no face was made out there is no picture to enlarge; it is NaN again below.
            painted = self.bundle.codec.encode(small.nan_to_num().clamp(-1, 1))
        # Enlarged, not painted: layers of 256 px had to learn faces anew, and drew blurs after 330 batches.
        filled = self.enlarger.enlarge(painted, latents, mask)
        return clear(self._joined(filled, mask, image), confidence), latents, mask

    def _anonymize_with_cast(self, image: Tensor, key: Tensor, guess: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Pictures `(B, 3, S, S)` with donors' faces, their own latents, and the masks of the changed cells.

        Args:
            image: `(B, 3, S, S)`.
            key: `(B, K, K)`.
            guess: Whether these pictures are anonymized already, so that who is to be hidden is guessed.
        """
        small = halved(image) if self._is_large(image) else image
        codes, embedding, confidence = self._look(small)
        # Faces are judged on the small picture, so donors are chosen there. A large picture then gets the faces of the
        # same donors.
        targets = self._targets(small, codes)
        unlike = [embedding]
        away = codes
        if guess and self.redraws:
            guessed = self._guessed(codes)
            unlike.append(guessed)
            space = self.identities
            away = codes.with_identity(space.with_kept(space.code(guessed.float()), space.kept(codes.identity)))
        put_on, choices = self._with_donors(targets, codes, unlike, key)
        redrawn = self._fitted(put_on, targets, away, unlike, choices, redraw)
        drawn, latents, mask = self._in_full(image, codes, targets, choices, put_on, redrawn)
        return clear(drawn, confidence), latents, mask

    def _fitted(
        self,
        put_on: NDArray[np.float32],
        targets: list[SwapTarget],
        codes: Codes,
        unlike: Sequence[Tensor],
        choices: list[Choice],
        way: Redrawing,
    ) -> NDArray[np.float32]:
        """Pictures with put-on faces, redrawn in a way of `landmarks.redrawing` where the model redraws.

        Args:
            put_on: `(B, 3, 128, 128)`.
            targets: The faces below them.
            codes: Theirs, with the identity codes of whom nobody is to be drawn like.
            unlike: Embeddings `(B, E)` that new faces have to be unlike.
            choices: Whose faces were put on.
            way: For photographs or for clips.
        """
        if not self.redraws:
            return put_on
        donors = [choice.donor for choice in choices]
        return way(put_on, self._redrawn_in_rows(codes), self._alike_in_rows(*unlike), own_pixels(targets), donors)

    def _guessed(self, codes: Codes) -> Tensor:
        """Embeddings `(B, E)` of the persons as they might be, for all that a picture with other faces on them tells.

        A face is painted from noise for the surroundings, the light and the lines, as whose it is nobody says.
        """
        assert codes.features is not None
        assert codes.attributes is not None
        assert codes.latents is not None
        assert codes.mask is not None
        anybody = self.identities.nearer_to_mean(codes.identity, 0.0)
        told = torch.cat([anybody, torch.zeros_like(anybody), codes.attributes[:, 0]], 1)
        start = torch.from_numpy(noise()).to(told.device).expand_as(codes.latents)
        maps = codes.features[self.cells]
        painted = self.redrawer.follow(start, times(*GUESS), codes.latents, codes.mask, maps, told)
        with torch.no_grad():
            return self.bundle.recogniser(self._join(painted, codes).float().clamp(-1, 1))

    def _in_full(
        self,
        image: Tensor,
        codes: Codes,
        targets: list[SwapTarget],
        choices: list[Choice],
        put_on: NDArray[np.float32],
        redrawn: NDArray[np.float32],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Pictures `(B, 3, S, S)` in their own size, the originals' latents, and the masks of the changed cells.

        Args:
            image: The originals.
            codes: Theirs, of the same at half the size where they are large.
            targets: Their faces, at half the size likewise.
            choices: Whose faces they get.
            put_on: `(B, 3, 128, 128)`, the small pictures with these faces.
            redrawn: The same redrawn.
        """
        assert codes.latents is not None
        assert codes.mask is not None
        if not self._is_large(image):
            return torch.from_numpy(redrawn).to(image.device), codes.latents, codes.mask
        with torch.no_grad():
            latents = self.bundle.codec.encode(image)
        wide = self._put_on(self._targets(image, codes), choices)
        wide = carried_over(wide, put_on, redrawn, numbers_of(codes.mask), feature_pixels(targets))
        return torch.from_numpy(wide).to(image.device), latents, F.interpolate(codes.mask, scale_factor=2.0)

    def _with_donors(
        self, targets: list[SwapTarget], codes: Codes, unlike: Sequence[Tensor], key: Tensor
    ) -> tuple[NDArray[np.float32], list[Choice]]:
        """Pictures with the faces of donors unlike the persons, `(B, 3, S, S)`, and how they were put on.

        Args:
            targets: The B faces.
            codes: Theirs.
            unlike: Embeddings `(B, E)` that new faces have to be unlike, the faces' own first.
            key: `(B, K, K)`.
        """
        embedding = unlike[0]
        orders = self._donors(targets, self.edit(codes, key).identity, embedding)
        known = None if self.album is None else self.album.knows(numbers_of(embedding))
        alike = self._alike_in_rows(*unlike)
        return self.cast.put_on_unlike(targets, orders, alike, known, self._read_points)

    def _redrawn_in_rows(self, codes: Codes) -> Look:
        """How faces that were put on are redrawn, as `landmarks.redrawing` asks for it."""
        device = codes.identity.device

        def look(drawn: NDArray[np.float32], rows: list[int]) -> Again:
            put_on = torch.from_numpy(drawn).to(device)
            person = rows_of(codes, torch.tensor(rows, device=device))
            latents, stranger, confidence = self._read_put_on(put_on, person)
            sure = (confidence >= CLEAR)[:, None, None, None]

            def again(some: list[int], times: list[float], noise: NDArray[np.float32]) -> NDArray[np.float32]:
                few = torch.tensor(some, device=device)
                of_person = rows_of(person, few)
                mixed = (1 - times[0]) * torch.from_numpy(noise).to(device) + times[0] * latents[few]
                face = self._redrawn(mixed, rows_of(stranger, few), of_person, times)
                return numbers_of(torch.where(sure[few], self._join(face, of_person), put_on[few]))

            return again

        return look

    def _read_put_on(self, drawn: Tensor, person: Codes) -> tuple[Tensor, Codes, Tensor]:
        """Latents `(B, 32, h, h)` and codes of put-on faces, and the confidence `(B,)` that faces are made out in them.

        Args:
            drawn: `(B, 3, S, S)` with the faces.
            person: Codes of the originals. What the photograph decides, and sex, age and skin, are taken from them.
        """
        assert person.features is not None
        with torch.no_grad():
            latents = self.bundle.codec.encode(drawn)
            embedding = self.bundle.recogniser(drawn.float())
        mesh, confidence = self.points(drawn)
        lines, _ = drawings(mesh, drawn, self.cells)
        maps = person.features[self.cells]
        # The lines of the face that was put on; mask, and surface of the colours, as the photograph has them.
        maps = torch.cat([maps[:, :1], F.pixel_unshuffle(lines, FINE), maps[:, -3:]], 1)
        space = self.identities
        identity = space.with_kept(space.code(embedding.float()), space.kept(person.identity))
        return latents, replace(person, identity=identity, features={self.cells: maps}), confidence

    def _redrawn(self, mixed: Tensor, stranger: Codes, person: Codes, times: list[float]) -> Tensor:
        """Latents `(B, 32, h, h)` of put-on faces, led back from noise.

        Args:
            mixed: `(B, 32, h, h)`, mixtures of their latents with noise.
            stranger: Of `_read_put_on`.
            person: Codes of the originals.
            times: Of the flow.
        """
        assert stranger.features is not None
        assert person.attributes is not None
        assert person.latents is not None
        assert person.mask is not None
        told = torch.cat([stranger.identity, person.identity, person.attributes[:, 0]], 1)
        maps = stranger.features[self.cells]
        return self.redrawer.follow(mixed, times, person.latents, person.mask, maps, told)

    def _targets(self, image: Tensor, codes: Codes) -> list[SwapTarget]:
        """What is to be known of faces `(B, 3, S, S)` before others are put on them.

        Args:
            image: The originals.
            codes: Theirs, or those of the same at half the size.
        """
        assert codes.mesh is not None
        assert codes.mask is not None
        side = image.shape[-1]
        points = codes.mesh.detach().float().cpu().numpy() * np.float32(side / 2)
        # Depth is counted from the middle of the head, not from the picture's edge: it is scaled and not moved.
        points[..., :2] += np.float32(side / 2)
        masks = (codes.mask[:, 0] > 0).cpu().numpy()
        return [target_of(*face) for face in zip(bytes_of(image), points, masks, strict=True)]

    def _donors(
        self, targets: list[SwapTarget], turned: Tensor, embedding: Tensor, steady: bool = False
    ) -> list[list[int]]:
        """Numbers of donors for each of B faces, as `Cast.orders`.

        Args:
            targets: The faces.
            turned: `(B, 64)` their codes, turned by keys.
            embedding: `(B, E)` of the persons.
            steady: Whether the donors are for other pictures of the persons too.
        """
        space = self.identities
        return self.cast.orders(
            targets,
            numbers_of(turned),
            numbers_of(embedding),
            numbers_of(space.kept_basis),
            numbers_of(space.free_basis),
            self.album,
            steady,
        )

    def _read_points(self, drawn: NDArray[np.float32]) -> NDArray[np.float32]:
        """Points `(R, 468, 2)` that the mesh finds in pictures `(R, 3, S, S)`, in sides of the picture."""
        places, _ = self.points(torch.from_numpy(drawn))
        return numbers_of((places + 1) / 2)

    def _put_on(self, targets: list[SwapTarget], choices: list[Choice]) -> NDArray[np.float32]:
        """Pictures `(B, 3, S, S)` with the faces of donors, NaN where too little of a face would change to hide it."""
        return self.cast.put_on(targets, choices)

    def anonymize_as(self, image: Tensor, identity: Tensor, key: Tensor) -> Tensor:
        """As in the base; where no face can be made out, the picture is NaN."""
        return self.anonymize_as_with_codes(image, identity, key)[0]

    def anonymize_as_with_codes(self, image: Tensor, identity: Tensor, key: Tensor) -> tuple[Tensor, list[bytes]]:
        """As in the base; codec and mesh look at each face once."""
        if self.with_cast:
            return self._put_on_as(image, identity, key)
        with torch.no_grad():
            latents = self.bundle.codec.encode(image)
        mesh, confidence = self.points(image)
        # Not `_look`: the recogniser's code of each frame would be thrown away.
        codes = self._codes(image, latents, mesh, identity)
        drawn = self.decode(self.edit(codes, key))
        assert codes.mask is not None
        return clear(drawn, confidence), codes_of_latents(latents, codes.mask)

    def _put_on_as(self, image: Tensor, identity: Tensor, key: Tensor) -> tuple[Tensor, list[bytes]]:
        """As `anonymize_as_with_codes`, with the faces of donors."""
        small = halved(image) if self._is_large(image) else image
        codes, embedding, confidence = self._look(small)
        targets = self._targets(small, codes)
        orders = self._donors(targets, self.edit(codes.with_identity(identity), key).identity, embedding)
        # Nobody compares the first donor with the person here: `unlike` has done so for the whole clip, and a change of
        # donor from frame to frame would show.
        choices = [Choice(order[0]) for order in orders]
        put_on = self._put_on(targets, choices)
        redrawn = self._fitted(put_on, targets, codes, [embedding], choices, redraw_frames)
        drawn, latents, mask = self._in_full(image, codes, targets, choices, put_on, redrawn)
        return clear(drawn, confidence), codes_of_latents(latents, mask)

    def unlike(self, image: Tensor, identity: Tensor, key: Tensor) -> Tensor:
        """As in the base: a donor, or a painted stranger, whom the recogniser does not take for the person.

        With `cast` the first of eight donors who is unlike in all pictures; without, the most natural one of four.
        """
        codes, embedding, _ = self._look(image)
        rows = len(image)
        if self.with_cast:
            return self._unlike_donor(image, codes.with_identity(identity.expand(rows, -1)), embedding, key)
        painted, odd = self._strangers(codes.with_identity(identity.expand(rows, -1)), key.expand(rows, -1, -1))
        best = identity
        least = None
        # Wanted: the most natural stranger who is unlike in every picture. So the strangers are tried in the order of
        # their mean oddness, and the picture with the highest cosine decides.
        for turn in odd.mean(1).argsort(stable=True).tolist():
            alike = float(self._alike(self._join(painted[turn], codes), embedding).max())
            if least is None or alike < least:
                best = self._another(identity[None], key, turn)[0]
                least = alike
            if alike < ALIKE:
                break
        return best

    def _unlike_donor(self, image: Tensor, codes: Codes, embedding: Tensor, key: Tensor) -> Tensor:
        """A code `(64,)` from which a key gets the donor whose face is unlike the person in all of some frames.

        The free part of the code is the donor's own, turned back; that donor is then chosen whatever a frame's light.
        """
        rows = len(image)
        targets = self._targets(image, codes)
        turned = self.edit(codes, key.expand(rows, -1, -1)).identity
        order = self._donors(targets, turned, embedding, steady=True)[0]
        best = self.cast.unlike_in_all(targets, order, self._alike_in_rows(embedding))
        space = self.identities
        donor = torch.from_numpy(self.cast.codes[best]).to(image.device)[None]
        # `edit` will shorten the free part (`variety`). The cast compares directions alone, so it still finds this
        # donor.
        return self.transform(space.mixed(turned[:1], donor), key, inverse=True)[0]

    def embeddings(self, faces: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the recogniser sees in faces `(B, 3, 128, 128)`, `(B, E)` of unit length, to tell people apart."""
        with torch.no_grad():
            return numbers_of(self.bundle.recogniser(self._here(faces)))

    def donor_of_person(self, faces: NDArray[np.float32], key: Tensor, used: Mapping[int, int]) -> int:
        """Number of the donor whom one person gets in several photos, see `Cast.for_person`.

        Args:
            faces: `(B, 3, 128, 128)` in [-1, 1], of the person.
            key: `(1, K, K)`.
            used: How many other persons have a donor already.
        """
        image = self._here(faces)
        with torch.no_grad():
            codes, embedding, _ = self._look(image)
            turned = self.edit(codes, key.to(image.device).expand(len(image), -1, -1)).identity
        space = self.identities
        return self.cast.for_person(
            self._targets(image, codes),
            numbers_of(turned),
            numbers_of(embedding),
            numbers_of(space.kept_basis),
            numbers_of(space.free_basis),
            self._alike_in_rows(embedding),
            used,
        )

    def _here(self, faces: NDArray[np.float32]) -> Tensor:
        """Faces as a tensor where the model is."""
        return torch.from_numpy(faces).to(next(self.parameters()).device)

    def _alike_in_rows(self, *embeddings: Tensor) -> Alike:
        """How alike drawn faces are to the persons of embeddings `(B, E)`; of several counts the likest."""

        def alike(drawn: NDArray[np.float32], rows: list[int]) -> NDArray[np.float32]:
            pictures = torch.from_numpy(drawn).to(embeddings[0].device)
            return numbers_of(self._alike(pictures, *[embedding[rows] for embedding in embeddings]))

        return alike

    def _drawn(self, codes: Codes, embedding: Tensor, confidence: Tensor, key: Tensor) -> Tensor:
        """Pictures of others under keys; NaN where no face was made out.

        Args:
            codes: Of the originals.
            embedding: Of the originals, `(B, E)`.
            confidence: That they show faces, `(B,)`.
            key: `(B, K, K)`.
        """
        painted, odd = self._strangers(codes, key)
        # Wanted: for each face the most natural stranger who is unlike the person. The decoder runs for every stranger
        # that is looked at, so only faces that are still too alike get their next one.
        order = odd.argsort(dim=0, stable=True)
        faces = torch.arange(len(key), device=odd.device)
        drawn = self._join(painted[order[0], faces], codes)
        alike = self._alike(drawn, embedding)
        for turns in order[1:]:
            again = (alike >= ALIKE).nonzero().flatten()
            if len(again) == 0:
                break
            redrawn = self._join(painted[turns[again], again], rows_of(codes, again))
            alike_now = self._alike(redrawn, embedding[again])
            # A stranger is exchanged only for a less alike one, so the least alike of all stays if none is unlike
            # enough.
            better = alike_now < alike[again]
            drawn[again[better]] = redrawn[better]
            alike[again[better]] = alike_now[better]
        return clear(drawn, confidence)

    def _strangers(self, codes: Codes, key: Tensor) -> tuple[Tensor, Tensor]:
        """Latents `(T, B, 32, h, h)` of T strangers for each of B faces, and how odd they are, `(T, B)`.

        The key with its rows moved on gives another stranger, at 90 degrees to the person as well. The first one is
        taken for less odd than it is, by `MARGIN`.

        Args:
            codes: Of the originals.
            key: `(B, K, K)`.
        """
        assert codes.mask is not None
        painted = []
        odd = []
        for turn in range(STRANGERS):
            latents = self.paint(self.edit(codes, key.roll(turn, -2)))
            painted.append(latents)
            odd.append(self._oddness(latents, codes.mask))
        odd[0] = odd[0] - MARGIN
        return torch.stack(painted), torch.stack(odd)

    def _oddness(self, painted: Tensor, mask: Tensor) -> Tensor:
        """How odd painted latents `(B, 32, h, h)` are, `(B,)`; 0 for faces of a size for which nothing is known."""
        if painted.shape[-1] != self.typical.cells:
            return painted.new_zeros(len(painted))
        return self.typical.oddness(painted, mask)

    def _another(self, identity: Tensor, key: Tensor, turn: int) -> Tensor:
        """Codes `(B, 64)` from which a key draws another stranger than from `identity`; the same for `turn` 0.

        What the key makes of them is what its rows, moved on by `turn`, make of `identity`. So this stranger, too, has
        nothing of the person in what a key turns.
        """
        if turn == 0:
            return identity
        other = self.transform(identity, key.roll(turn, -2))
        return self.transform(other, key, inverse=True)

    def _alike(self, drawn: Tensor, *embeddings: Tensor) -> Tensor:
        """Cosines `(B,)` between what the recogniser sees in drawn faces as they would be saved, and embeddings.

        Args:
            drawn: `(B, 3, S, S)`.
            embeddings: `(B, E)`; of several the one counts that is most alike.
        """
        with torch.no_grad():
            seen = self.bundle.recogniser(drawn.detach().float().clamp(-1, 1))
            return torch.stack([(seen * one).sum(1) for one in embeddings]).amax(0)

    def _look(self, image: Tensor) -> tuple[Codes, Tensor, Tensor]:
        """Codes of `(B, 3, S, S)`, embeddings `(B, E)`, and confidences `(B,)` that the pictures show a face."""
        with torch.no_grad():
            latents = self.bundle.codec.encode(image)
            embedding = self.bundle.recogniser(image.float())
        solid, confidence = points_of(self.mesh, image)
        identity = self._identity(embedding.float(), latents, image)
        codes = replace(self._codes(image, latents, solid[..., :2], identity), mesh=solid)
        return codes, embedding, confidence

    def encode_batch(self, batch: FaceBatch) -> Codes:
        """As `encode`, with what was prepared for a training batch."""
        if batch.latents is None or batch.mesh is None or batch.embedding is None:
            return self.encode(batch.image)
        latents = batch.latents.float()
        covered = None
        if self.training:
            covered = random_covers(len(latents), latents.shape[-1], latents.device)
        identity = self._identity(batch.embedding.float(), latents, batch.image)
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
        if self.training or not self.covers:
            return torch.zeros_like(mask)
        return self.finder.covers(latents, maps_shown(mask, lines), mesh)

    def _identity(self, embedding: Tensor, latents: Tensor, image: Tensor) -> Tensor:
        """Codes `(B, 64)` of embeddings, with sex, age and skin as the pictures show them.

        The recogniser was trained to tell persons apart: its embeddings tell sex and age of the invented people that
        the space was fitted to, and nothing of real ones.
        """
        # The network for looks knows the latents of one size of faces; pictures of other sizes are encoded at that
        # size.
        if latents.shape[-1] != self.looks.cells:
            side = LatentCodec.shrink * self.looks.cells
            with torch.no_grad():
                latents = self.bundle.codec.encode(F.interpolate(image, size=(side, side), mode="area"))
        looks = self.looks.read(latents.detach())
        return self.identities.with_kept(self.identities.code(embedding), looks)

    def edit(self, codes: Codes, key: Tensor, inverse: bool = False) -> Codes:
        """As in the base; in use a stranger's code moves towards the mean person, as `variety` says.

        In training it does not: the painter has to learn the whole range.
        """
        edited = super().edit(codes, key, inverse)
        if self.training or inverse:
            return edited
        return edited.with_identity(self.identities.nearer_to_mean(edited.identity, self.variety))

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Turn codes `(B, 64)` by 90 degrees where they do not tell sex, age or skin."""
        return self.identities.turned(identity, key, inverse)

    def mixed_identity(self, codes: Codes, source: Tensor) -> Tensor:
        """Codes of other rows' persons with a row's own sex, age and skin; a row's own code where it is its source."""
        return self.identities.mixed(codes.identity, codes.identity[source])

    def paint(self, codes: Codes) -> Tensor:
        """Latents `(B, 32, h, h)` with the face of the codes; in training with noise, of which there is none in use."""
        latents = codes.latents
        mask = codes.mask
        assert latents is not None
        assert mask is not None
        assert codes.attributes is not None
        assert codes.features is not None
        noise = codes.identity.new_zeros(len(codes.identity), NOISE)
        if self.training:
            noise = torch.randn_like(noise)
        condition = torch.cat([codes.identity, codes.attributes[:, 0], noise], 1)
        maps = codes.features[latents.shape[-1]]
        # As the codec does. In training Lightning's precision rules, in validation too.
        if not self.training and latents.device.type == "cpu" and has_bfloat16():
            with torch.autocast("cpu", torch.bfloat16):
                painted: Tensor = self.painter(latents, mask, maps, condition)
        else:
            painted = self.painter(latents, mask, maps, condition)
        return painted.float()

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
        return self._join(self.paint(codes), codes)

    def _join(self, painted: Tensor, codes: Codes) -> Tensor:
        """Pictures `(B, 3, S, S)` of painted latents `(B, 32, h, h)` within the pictures of the codes."""
        assert codes.image is not None
        assert codes.mask is not None
        return self._joined(painted, codes.mask, codes.image)

    def _joined(self, painted: Tensor, mask: Tensor, image: Tensor) -> Tensor:
        """Pictures `(B, 3, S, S)` with painted latents `(B, 32, h, h)` in the cells of a mask `(B, 1, h, h)`."""
        # Without cells around it: `decode_part` itself looks beyond the window.
        window = window_of(mask, 0)
        part = self.bundle.codec.decode_part(painted, window)
        return joined_in(window, part, mask, image)

    def face_mask(self, image: Tensor) -> Tensor:
        """The cells that `anonymize` may change, `(B, 1, h, h)` bool."""
        return self._mask(image) > 0.5

    def code_of(self, image: Tensor) -> list[bytes]:
        """As in the base; the codec looks at each picture once."""
        with torch.no_grad():
            latents = self.bundle.codec.encode(image.detach())
        return codes_of_latents(latents, self._mask(image, latents))

    def _mask(self, image: Tensor, latents: Tensor | None = None) -> Tensor:
        """The cells of `(B, 3, S, S)` that may change, `(B, 1, h, h)` of 0 and 1; `latents` where known."""
        if self._is_large(image):
            return F.interpolate(self._mask(halved(image)), scale_factor=2.0)
        if latents is None:
            with torch.no_grad():
                latents = self.bundle.codec.encode(image)
        mesh = self.points(image)[0]
        lines, mask = drawings(mesh, image, latents.shape[-1])
        return uncovered(mask, self._covered(latents, lines, mask, mesh))

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
