"""Persona in use: a picture and a key to a stranger's picture, and a picture and its code back to the original.

    picture --codec--> latents          mesh of 468 points --> drawings of eyes, brows, lips, nose; mask of the face
    embedding --whitened--> identity code --key: turned by 90 degrees--> the new person's code
    new code --nearest of those who fit--> a donor's photograph --warped, lit--> picture --flow: redrawn--> picture

What lies in front of the face (hands, medical masks, hair) is taken out of the mask and stays. The face of a person who
does not exist is put on (`landmarks.cast`, `landmarks.swap`): in the old one's pose and light, and mostly in its shape.
The flow that redraws it, which is what the stages train, never sees the old face, apart from pose and a surface of its
colours (light and skin). What brings the person back is the code of the face's latents (`faceanon.sealed`).

Numpy alone: the networks are asked for by `persona.networks`, and onnxruntime or torch runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from faceanon.key import Secret
from faceanon.landmarks.album import Album
from faceanon.landmarks.cast import Alike, Cast, Choice
from faceanon.landmarks.cover_cells import covered_in
from faceanon.landmarks.grain import with_grain
from faceanon.landmarks.redrawing import (
    GUESS,
    Again,
    Look,
    Redrawing,
    carried_over,
    feature_pixels,
    led_back,
    noise,
    own_pixels,
    redraw,
    redraw_frames,
    times,
)
from faceanon.landmarks.swap import SwapTarget, target_of
from faceanon.persona.cells import (
    LARGE,
    SIZE,
    Array,
    bytes_of,
    cell_means,
    doubled,
    drawn_lines,
    fit_light,
    folded,
    halved,
    light_surface,
    pixels_of,
    pose,
    soft_edge,
    uncovered,
    window_of,
)
from faceanon.persona.method import ArrayMethod
from faceanon.persona.networks import FINDING, LOOKING, RECOVERING, REDRAWING, PersonaNetworks
from faceanon.persona.space import CodeSpace
from faceanon.sealed.cells import PASSES, decode_faces, encode_faces
from faceanon.sealed.coder import CELL

# Of the class in `backbones.persona`, which trains the flow: cards and files say it.
METHOD = "faceanon.backbones.persona.Persona"
CLEAR = 0.5  # confidence of the mesh below which a picture shows no face that can be changed


@dataclass(frozen=True)
class Place:
    """Where B faces are.

    Args:
        latents: `(B, 32, 16, 16)` normalised.
        mesh: `(B, 468, 3)`: x and y with the picture's edges at -1 and 1, and depth in the same unit; in training
            `(B, 468, 2)`, without depth.
        lines: `(B, 7, 64, 64)` in [0, 1], drawings of eyes, brows, lips, nose and outline.
        mask: `(B, 1, 16, 16)` of 0 and 1, the cells to change.
        confidence: `(B,)` that there is a face.
    """

    latents: Array
    mesh: Array
    lines: Array
    mask: Array
    confidence: Array


@dataclass(frozen=True)
class SeenFaces:
    """What is known of B faces before anybody is changed.

    Args:
        image: `(B, 3, 128, 128)` in [-1, 1].
        latents: `(B, 32, 16, 16)` normalised.
        mask: `(B, 1, 16, 16)` of 0 and 1, the cells to change.
        maps: `(B, 116, 16, 16)`: mask, drawings, surface of colours.
        attributes: `(B, 21)`: light and pose.
        code: `(B, 64)` of the persons.
        embedding: `(B, E)` of the persons, of unit length.
        confidence: `(B,)` that there is a face.
        mesh: `(B, 468, 3)`: x and y with the picture's edges at -1 and 1, and depth in the same unit.
    """

    image: Array
    latents: Array
    mask: Array
    maps: Array
    attributes: Array
    code: Array
    embedding: Array
    confidence: Array
    mesh: Array

    @property
    def told(self) -> Array:
        """`(B, 85)`, what the flow is told of the persons: code, light, pose."""
        return np.concatenate([self.code, self.attributes], 1)

    def rows(self, rows: list[int]) -> SeenFaces:
        """Some of these faces."""
        return _rows(self, rows)


@dataclass(frozen=True)
class PutOnFaces:
    """What is known of B donors' faces that were put on, before they are redrawn.

    Args:
        latents: `(B, 32, 16, 16)` normalised, of the pictures with them.
        maps: `(B, 116, 16, 16)`: mask, drawings, surface of colours.
        code: `(B, 64)` of the donors, with sex, age and skin of the persons.
        confidence: `(B,)` that there is a face.
        mesh: `(B, 468, 3)`: x and y with the picture's edges at -1 and 1, and depth in the same unit.
    """

    latents: Array
    maps: Array
    code: Array
    confidence: Array
    mesh: Array

    def rows(self, rows: list[int]) -> PutOnFaces:
        """Some of these faces."""
        return _rows(self, rows)


Faces = TypeVar("Faces", SeenFaces, PutOnFaces)


def _rows(faces: Faces, rows: list[int]) -> Faces:
    return type(faces)(*(getattr(faces, item.name)[rows] for item in fields(faces)))


class PersonaUse(ArrayMethod):
    """The method for photographs on some networks.

    Pictures are `(B, 3, S, S)` float32 in [-1, 1], of 128 or 256 px. Faces are looked at, put on and redrawn at 128 px;
    a large picture then gets the same donor's face in its own size.

    Args:
        networks: What runs codec, mesh, recogniser and the others.
        space: The identity codes.

    Attributes:
        redraws: Whether faces that were put on are redrawn, so that they fit the photograph (`landmarks.redrawing`).
        album: Persons who have a donor already: each gets this one in every picture. None: nobody has.
    """

    method = METHOD
    sealed = True
    reversible = True
    on_processor = True
    works_through_codes = True
    image_size = SIZE
    face_sizes = (SIZE, LARGE)

    def __init__(self, networks: PersonaNetworks, space: CodeSpace) -> None:
        self.networks = networks
        self.space = space
        self.redraws = True
        self.album: Album | None = None

    @cached_property
    def cast(self) -> Cast:
        """The invented people; read at first use: recovery never needs their file."""
        return Cast()

    # What a photo needs

    def key(self, secret: Secret) -> Array:
        """The key of a password, `(F, F)`, F the free directions of an identity code."""
        free = self.space.free_basis.shape[1]
        return secret.normal("faceanon/Persona/key", (free, free))

    def prepare(self, inverse: bool) -> None:
        """Begin to open what anonymizing or, with `inverse`, recovering will need."""
        self.networks.open(RECOVERING if inverse else self.needed)

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the networks that anonymize."""
        return REDRAWING if self.redraws else LOOKING

    def anonymize(self, image: Array, keys: Array) -> Array:
        """Other people in the place of these; NaN where no face can be made out, and nothing would be put over.

        Whoever calls hides such a face in another way. The first of eight donors is taken who is unlike the person.

        Args:
            image: `(B, 3, S, S)`.
            keys: `(B, F, F)`.
        """
        return self._strangers(image, keys)[0]

    def anonymize_with_codes(self, image: Array, keys: Array) -> tuple[Array, list[bytes]]:
        """As `anonymize`, with the codes of the originals; codec and mesh look at each face once."""
        picture, latents, mask = self._strangers(image, keys)
        return picture, encode_faces(latents, mask[:, 0] > 0.5)

    def deny(self, image: Array, keys: Array) -> Array:
        """Other strangers for anonymized pictures: unlike the first, and the persons as far as the pictures tell."""
        return self._strangers(image, keys, guess=True)[0]

    def code_of(self, image: Array) -> list[bytes]:
        """The codes of faces, which are not changed."""
        latents, mask = self._cells_to_keep(image)
        return encode_faces(latents, mask[:, 0] > 0.5)

    def face_mask(self, image: Array) -> Array:
        """The cells that `anonymize` may change, `(B, 1, S / 8, S / 8)` bool."""
        return self._cells_to_keep(image)[1] > 0.5

    def recover_from(self, image: Array, codes: Sequence[bytes]) -> Array:
        """Faces brought back from their codes; not clamped.

        Raises:
            UserError: If a code is damaged, or of faces of another size.
            ValueError: If there are not as many codes as pictures.
        """
        latents, cells = decode_faces(codes, image.shape)
        self.networks.open(RECOVERING)
        pixels = cells.repeat(CELL, -2).repeat(CELL, -1)
        window = window_of(cells)
        rows, columns = pixels_of(window)
        shown = image.copy()
        for _ in range(PASSES):
            around = self.networks.encode(shown.clip(-1, 1))
            # Only what lies in the window is looked at, so nothing else is drawn.
            drawn = self.networks.decode(np.where(cells, latents, around), window)
            shown = image.copy()
            shown[:, :, rows, columns] = np.where(pixels[:, :, rows, columns], drawn, image[:, :, rows, columns])
        return shown

    # What a clip needs: one identity code, and so one stranger, for all frames

    def identities(self, image: Array, inverse: bool = False) -> Array:
        """Identity codes `(B, 64)` of faces `(B, 3, 128, 128)`."""
        del inverse  # an anonymized face is read in the same way
        self.networks.open(self.needed)
        return self._code(self.networks.encode(image), self.networks.embed(image))

    def unlike(self, image: Array, identity: Array, key: Array) -> Array:
        """A code `(64,)` from which a key gets a stranger who is unlike the person in all of some frames.

        That is the first of eight donors who is. The free part of the code is this donor's own, turned back: he is then
        chosen whatever a frame's light.

        Args:
            image: `(B, 3, 128, 128)`, frames of one person.
            identity: `(64,)`, the mean code of her frames.
            key: `(F, F)`.
        """
        rows = len(image)
        seen = replace(self.look(image), code=np.repeat(identity[None], rows, 0))
        targets = targets_of(seen.image, seen)
        turned = self.space.turned(seen.code, np.repeat(key[None], rows, 0))
        order = self._donors(targets, turned, seen.embedding, steady=True)[0]
        best = self.cast.unlike_in_all(targets, order, self._alike_in_rows(seen.embedding))
        donor = self.cast.codes[best][None]
        found: Array = self.space.turned(self.space.mixed(turned[:1], donor), key[None], inverse=True)[0]
        return found

    def anonymize_as(self, image: Array, identity: Array, keys: Array) -> tuple[Array, list[bytes]]:
        """Frames of a clip with the strangers of codes `(B, 64)` under keys, and the codes of the originals."""
        seen = self.look(halved(image) if image.shape[-1] == LARGE else image)
        targets = targets_of(seen.image, seen)
        orders = self._donors(targets, self.space.turned(identity, keys), seen.embedding)
        # Nobody compares the first donor with the person here: `unlike` has done so for the whole clip, and a change of
        # donor from frame to frame would show.
        choices = [Choice(order[0]) for order in orders]
        put_on = self.cast.put_on(targets, choices)
        fitted = self._fitted(put_on, targets, seen, [seen.embedding], redraw_frames)
        picture, latents, mask = self._in_full(image, seen, targets, choices, put_on, fitted, keys)
        picture[seen.confidence < CLEAR] = np.nan
        return picture, encode_faces(latents, mask[:, 0] > 0.5)

    # What a folder needs: one donor for each person

    def embeddings(self, faces: Array) -> Array:
        """What the recogniser sees in faces `(B, 3, 128, 128)`, `(B, E)` of unit length, to tell people apart."""
        self.networks.open(LOOKING)
        return self.networks.embed(faces)

    def donor_of_person(self, faces: Array, key: Array, used: Mapping[int, int]) -> int:
        """Number of the donor whom one person gets in several photos, see `Cast.for_person`.

        Args:
            faces: `(B, 3, 128, 128)`, of the person.
            key: `(1, F, F)`.
            used: How many other persons have a donor already.
        """
        seen = self.look(faces)
        return self.cast.for_person(
            targets_of(faces, seen),
            self.space.turned(seen.code, key.repeat(len(faces), 0)),
            seen.embedding,
            self.space.kept_basis,
            self.space.free_basis,
            self._alike_in_rows(seen.embedding),
            used,
        )

    # The steps

    def _strangers(self, image: Array, keys: Array, guess: bool = False) -> tuple[Array, Array, Array]:
        """Pictures with strangers, the originals' latents, and the masks of the changed cells.

        Args:
            image: `(B, 3, S, S)`.
            keys: `(B, F, F)`.
            guess: Whether these pictures are anonymized already, so that who is to be hidden is guessed.
        """
        # Faces are judged on the small picture, so donors are chosen there.
        seen = self.look(halved(image) if image.shape[-1] == LARGE else image)
        targets = targets_of(seen.image, seen)
        unlike = [seen.embedding]
        away = seen
        if guess and self.redraws:
            guessed = self._guessed(seen)
            unlike.append(guessed)
            away = replace(seen, code=self.space.like(self.space.code(guessed), seen.code))
        put_on, choices = self._with_donors(targets, seen, unlike, keys)
        fitted = self._fitted(put_on, targets, away, unlike, redraw)
        picture, latents, mask = self._in_full(image, seen, targets, choices, put_on, fitted, keys)
        picture[seen.confidence < CLEAR] = np.nan
        return picture, latents, mask

    def _place(self, image: Array) -> Place:
        """Which cells of `(B, 3, 128, 128)` are to be changed."""
        latents = self.networks.encode(image)
        solid, confidence = self.networks.points(image)
        meshes = np.ascontiguousarray(solid[..., :2])
        lines, mask = drawn_lines(meshes, image)
        shown = np.concatenate([mask, cell_means(lines)], 1)
        chances = self.networks.cover_chances(latents, shown)
        covered = covered_in(chances, shown[:, :1] > 0.5, meshes)
        mask = uncovered(mask, covered)
        return Place(latents, solid, lines, mask, confidence)

    def look(self, image: Array) -> SeenFaces:
        """What is to be known of `(B, 3, 128, 128)` before anybody is changed."""
        self.networks.open(self.needed)
        return self.known(image, self._place(image), self.networks.embed(image))

    def known(self, image: Array, place: Place, embedding: Array) -> SeenFaces:
        """As `look`, of faces whose places are known already.

        Args:
            image: `(B, 3, 128, 128)`.
            place: Where they are.
            embedding: `(B, E)` of the persons, of unit length.
        """
        latents = place.latents
        mask = place.mask
        # The preview is a linear map: one colour a cell is enough for a smooth surface, and no decoder has to run.
        light = fit_light(self.networks.preview(latents), mask)
        maps = np.concatenate([mask, folded(place.lines), light_surface(light) * mask], 1)
        attributes = np.concatenate([light.reshape(len(image), -1), pose(place.mesh[..., :2])], 1)
        code = self._code(latents, embedding)
        return SeenFaces(image, latents, mask, maps, attributes, code, embedding, place.confidence, place.mesh)

    def _code(self, latents: Array, embedding: Array) -> Array:
        """Identity codes `(B, 64)` of faces by their latents `(B, 32, 16, 16)` and embeddings `(B, E)`."""
        # The recogniser was trained to tell persons apart: its embeddings tell sex and age of the invented people that
        # the space was fitted to, and nothing of real ones. So the picture's looks take their place.
        return self.space.with_kept(self.space.code(embedding), self.networks.looks(latents))

    def _cells_to_keep(self, image: Array) -> tuple[Array, Array]:
        """Latents of pictures, and the mask of the cells that are to change; found at half the size of large ones."""
        self.networks.open(FINDING)
        if image.shape[-1] == SIZE:
            place = self._place(image)
            return place.latents, place.mask
        return self.networks.encode(image), doubled(self._place(halved(image)).mask)

    # Faces that are put on

    def _donors(
        self, targets: list[SwapTarget], turned: Array, embedding: Array, steady: bool = False
    ) -> list[list[int]]:
        """Numbers of donors for each of B faces, as `Cast.orders`; `steady` for other pictures of the persons too."""
        kept, free = self.space.kept_basis, self.space.free_basis
        return self.cast.orders(targets, turned, embedding, kept, free, self.album, steady)

    def _with_donors(
        self, targets: list[SwapTarget], seen: SeenFaces, unlike: Sequence[Array], keys: Array
    ) -> tuple[Array, list[Choice]]:
        """Pictures with the faces of donors unlike the persons, and how they were put on.

        Args:
            targets: The B faces.
            seen: The same.
            unlike: Embeddings `(B, E)` that new faces have to be unlike, the faces' own first.
            keys: `(B, F, F)`.
        """
        orders = self._donors(targets, self.space.turned(seen.code, keys), seen.embedding)
        known = None if self.album is None else self.album.knows(seen.embedding)
        return self.cast.put_on_unlike(targets, orders, self._alike_in_rows(*unlike), known, self._read_points)

    def _fitted(
        self, put_on: Array, targets: list[SwapTarget], seen: SeenFaces, unlike: Sequence[Array], way: Redrawing
    ) -> Array:
        """Pictures with put-on faces, redrawn in a way of `landmarks.redrawing` where the model redraws.

        Args:
            put_on: `(B, 3, 128, 128)`.
            targets: The faces below them.
            seen: The same, with the identity codes of whom redrawing leads away from.
            unlike: Embeddings `(B, E)` that new faces have to be unlike.
            way: For photographs or for clips.
        """
        if not self.redraws:
            return put_on
        return way(put_on, self._redrawn_in_rows(seen), self._alike_in_rows(*unlike), own_pixels(targets))

    def _in_full(
        self,
        image: Array,
        seen: SeenFaces,
        targets: list[SwapTarget],
        choices: list[Choice],
        put_on: Array,
        fitted: Array,
        keys: Array,
    ) -> tuple[Array, Array, Array]:
        """Pictures in their own size, the originals' latents, and the masks of the changed cells.

        Args:
            image: The originals.
            seen: The same, or the same at half the size.
            targets: Their faces, at that size.
            choices: Whose faces they get.
            put_on: `(B, 3, 128, 128)`, the small pictures with these faces.
            fitted: The same redrawn.
            keys: `(B, F, F)`.
        """
        if image.shape[-1] == SIZE:
            return fitted, seen.latents, seen.mask
        wide = self.cast.put_on(targets_of(image, seen), choices)
        picture = carried_over(wide, put_on, fitted, seen.mask, feature_pixels(targets))
        mask = doubled(seen.mask)
        # Not on small faces: grain of a size with lids and nostrils looks like spots.
        return with_grain(picture, image, mask, keys), self.networks.encode(image), mask

    def _redrawn_in_rows(self, seen: SeenFaces) -> Look:
        """How faces that were put on are redrawn, as `landmarks.redrawing` asks for it."""

        def look(drawn: Array, rows: list[int]) -> Again:
            person = seen.rows(rows)
            put_on = self._read_put_on(drawn, person)
            sure = (put_on.confidence >= CLEAR)[:, None, None, None]

            def again(some: list[int], times: list[float]) -> Array:
                few, faces = person.rows(some), put_on.rows(some)
                mixed = (1 - times[0]) * noise() + times[0] * faces.latents
                wanted = replace(few, code=faces.code, maps=faces.maps)
                face = self._followed(mixed, times, wanted, few.told)
                return np.where(sure[some], self._joined(few.image, face, few.mask), drawn[some])

            return again

        return look

    def put_on(self, image: Array, keys: Array) -> tuple[SeenFaces, PutOnFaces]:
        """Faces `(B, 3, 128, 128)`, and donors' faces on them: what a flow is trained on that is to redraw these.

        Args:
            image: `(B, 3, 128, 128)`.
            keys: `(B, F, F)`.

        Returns:
            What is known of the persons, and of the put-on faces; where nobody could be put on, of the persons.
        """
        seen = self.look(image)
        drawn, _ = self._with_donors(targets_of(image, seen), seen, [seen.embedding], keys)
        shown = np.isfinite(drawn).all((1, 2, 3), keepdims=True)
        return seen, self._read_put_on(np.where(shown, drawn, image), seen)

    def _read_put_on(self, drawn: Array, person: SeenFaces) -> PutOnFaces:
        """What is known of donors' faces on pictures `(B, 3, 128, 128)`, before they are redrawn."""
        latents = self.networks.encode(drawn)
        mesh, confidence = self.networks.points(drawn)
        lines, _ = drawn_lines(np.ascontiguousarray(mesh[..., :2]), drawn)
        # The lines of the face that was put on; mask, and surface of the colours, as the photograph has them.
        maps = np.concatenate([person.maps[:, :1], folded(lines), person.maps[:, -3:]], 1)
        code = self.space.like(self.space.code(self.networks.embed(drawn)), person.code)
        return PutOnFaces(latents, maps, code, confidence, mesh)

    def _guessed(self, seen: SeenFaces) -> Array:
        """Embeddings `(B, E)` of the persons as they might be, for all that a picture with other faces on them tells.

        A face is painted from noise for the surroundings, the light and the lines, as whose it is nobody says.
        """
        anybody = replace(seen, code=self.space.anybody(seen.code))
        start = np.repeat(noise()[None], len(seen.image), 0)
        painted = self._followed(start, times(*GUESS), anybody)
        return self.networks.embed(self._joined(seen.image, painted, seen.mask).clip(-1, 1))

    def _followed(self, mixed: Array, way: list[float], wanted: SeenFaces, person: Array | None = None) -> Array:
        """Mixtures of faces and noise led back to faces, `(B, 32, 16, 16)`; outside the mask as `wanted.latents`.

        Args:
            mixed: `(B, 32, 16, 16)`, where the flow begins.
            way: Its times, rising to 1.
            wanted: What is known of the pictures and of the faces that are to stand there.
            person: `(B, 85)`, what the flow would be told of the persons, whom it is led away from; None: of nobody.
        """
        rows = len(mixed)
        # Wanted and unwanted face in one batch. Without a person the first direction is the last one too.
        conditions = [wanted.told] if person is None else [wanted.told, person]
        known = (wanted.latents, wanted.mask, wanted.maps)
        around, cells, drawn = (np.concatenate([value] * len(conditions)).astype(np.float32) for value in known)
        condition = np.concatenate(conditions).astype(np.float32)

        def directions(here: Array, time: float) -> tuple[Array, Array]:
            at = np.full(len(condition), time, np.float32)
            noisy = np.concatenate([here] * len(conditions))
            found = self.networks.directions(noisy, at, around, cells, drawn, condition)
            return found[:rows], found[-rows:]

        face = led_back(mixed.astype(np.float32), way, directions)
        followed: Array = wanted.latents * (1 - wanted.mask) + face * wanted.mask
        return followed

    def _read_points(self, drawn: Array) -> Array:
        """Points `(R, 468, 2)` that the mesh finds in pictures `(R, 3, 128, 128)`, in sides of the picture."""
        places, _ = self.networks.points(drawn)
        read: Array = (places[..., :2] + 1) / 2
        return read

    def _alike_in_rows(self, *embeddings: Array) -> Alike:
        """How alike drawn faces are to the persons of embeddings `(B, E)`; of several counts the likest."""

        def alike(drawn: Array, rows: list[int]) -> Array:
            return self._alike(drawn, *[embedding[rows] for embedding in embeddings])

        return alike

    def _alike(self, drawn: Array, *embeddings: Array) -> Array:
        """Cosines `(B,)` between what the recogniser sees in drawn faces as they would be saved, and embeddings."""
        seen = self.networks.embed(drawn.clip(-1, 1))
        alike: Array = np.stack([(seen * one).sum(1) for one in embeddings]).max(0)
        return alike

    def _joined(self, image: Array, painted: Array, mask: Array) -> Array:
        """The picture with the new face of latents, softly joined; beyond the mask's cells it is the old one."""
        window = window_of(mask)
        part = self.networks.decode(painted, window)
        rows, columns = pixels_of(window)
        edge = soft_edge(mask)[:, :, rows, columns]
        picture = image.astype(np.float32, copy=True)
        picture[:, :, rows, columns] = picture[:, :, rows, columns] * (1 - edge) + part * edge
        return picture


def targets_of(image: Array, seen: SeenFaces) -> list[SwapTarget]:
    """What is to be known of faces before others are put on them.

    Args:
        image: The originals, `(B, 3, S, S)`.
        seen: What is known of them, or of the same at half the size.
    """
    side = image.shape[-1]
    points = seen.mesh * np.float32(side / 2)
    # Depth is counted from the middle of the head, not from the picture's edge: it is scaled and not moved.
    points[..., :2] += np.float32(side / 2)
    return [target_of(*face) for face in zip(bytes_of(image), points, seen.mask[:, 0] > 0, strict=True)]
