"""Persona without torch: what `backbones.persona` does when it is used, on arrays of numpy and onnxruntime's networks.

The order of the steps and all numbers are those of `backbones.persona` and `backbones.persona_cells`, which explain
them. The two write and read the same codes, draw the same stranger under the same password, and bring each other's
photos back (`tests/light`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.files import checked_bytes, load_arrays, read_yaml
from faceanon.key import Secret
from faceanon.landmarks.album import Album
from faceanon.landmarks.cast import Alike, Cast, Choice
from faceanon.landmarks.cover_cells import covered_cells
from faceanon.landmarks.drawings import (
    COVERED,
    DRAWINGS,
    FINE,
    LEFT_CHEEK,
    LEFT_EYE,
    MOUTH_CORNERS,
    NOSE_TIP,
    RIGHT_CHEEK,
    RIGHT_EYE,
    draw_face,
    pupils,
)
from faceanon.landmarks.redrawing import (
    GUESS,
    Again,
    Look,
    carried_over,
    feature_pixels,
    led_back,
    noise,
    own_pixels,
    redraw,
    times,
)
from faceanon.landmarks.swap import SwapTarget, target_of
from faceanon.light.networks import Array, LightNetworks, UnfitError, check_layout, open_graph
from faceanon.paths import checkpoints
from faceanon.sealed.coder import CELL as SHRINK
from faceanon.sealed.coder import decode_cells, encode_cells
from faceanon.weights.shipped import read_shipped
from faceanon.weights.spec import bundle_path, fingerprint, read_spec

CARD = "model.yaml"
METHOD = "faceanon.backbones.persona.Persona"
CLASSES = {
    "codec": "faceanon.networks.codec.LatentCodec",
    "recogniser": "faceanon.networks.mobileface_v2.MobileFaceV2",
    "identity_space": "faceanon.networks.identity_space.IdentitySpace",
}
SIZE = 128  # side of the faces that the graphs look at and paint, in pixels
LARGE = 256  # ... and of those that they enlarge
CELLS = SIZE // SHRINK
REACH = 5  # pixels that the decoder's last layers look to each side, see `networks.taef2`
NOISE = 8  # see `backbones.persona`, like the next three
STRANGERS = 4
ALIKE = 0.2
MARGIN = 0.06
LEAST = 0.4  # see `backbones.persona_cells`, like the next one
CLEAR = 0.5
VARIETY = 0.85  # where the card says nothing
BLOCK = 2  # see `landmarks.typical`
MOST_LOOKS = 2.0  # see `landmarks.looks`
STIFFNESS = (1e-4, 0.01, 0.01, 0.01, 0.01, 0.01)  # see `losses.light`
MESH_BOX = (28 / 256, 44 / 256, 228 / 256, 244 / 256)  # see `landmarks.mesh`
MESH_SIDE = 192
RECOGNISER_SIDE = 112
PASSES = 2  # see `sealed.faces`

CODEC = ("encoder", "draw", "finish")
RECOVERING = CODEC
FINDING = ("encoder", "mesh", "covers")
LOOKING = ("encoder", "mesh", "recogniser", "looks", "covers")
PAINTING = (*LOOKING, "painter", "draw", "finish")
REDRAWING = (*LOOKING, "redrawer", "draw", "finish")

TYPICAL = "typical.safetensors"

# Of pictures that are encoded at once.
MOST_PIXELS = 2 * SIZE * SIZE

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Place:
    """Where B faces are.

    Args:
        latents: `(B, 32, 16, 16)` normalised.
        mesh: `(B, 468, 3)`: x and y with the picture's edges at -1 and 1, and depth in the same unit.
        lines: `(B, 7, 64, 64)` in [0, 1], drawings of eyes, brows, lips, nose and outline.
        mask: `(B, 1, 16, 16)` of 0 and 1, the cells to paint.
        confidence: `(B,)` that there is a face.
    """

    latents: Array
    mesh: Array
    lines: Array
    mask: Array
    confidence: Array


@dataclass(frozen=True)
class SeenFaces:
    """What is known of B faces before anybody is painted.

    Args:
        image: `(B, 3, 128, 128)` in [-1, 1].
        latents: `(B, 32, 16, 16)` normalised.
        mask: `(B, 1, 16, 16)` of 0 and 1, the cells to paint.
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


class LightPersona:
    """The method for photographs, as `pipeline` uses it.

    Args:
        folder: Of the model: `model.yaml` and `weights.safetensors`.

    Attributes:
        name: Of the model.
        weights: SHA-256 of its weights.
        framing: Where the faces it knows lie; arguments of `photo.align.reframed`.
        face_sizes: Sides of all the faces that it takes, rising.
        album: Persons who have a donor already, or None.

    Raises:
        UnfitError: If the graphs that ship do not describe this model.
        UserError: If a file is missing or damaged, or the bundle is not the one that the model was trained on.
    """

    method = METHOD
    sealed = True
    reversible = True
    image_size = SIZE

    def __init__(self, folder: Path) -> None:
        card = read_card(folder)
        check_card(card, folder)
        self.folder = folder
        self.name = folder.name
        self.weights = str(card["sha256"])
        self.covers = bool(card["init_args"].get("covers", True))
        self.variety = float(card["init_args"].get("variety", VARIETY))
        self.with_cast = bool(card["init_args"].get("cast", False))
        self.redraws = bool(card["init_args"].get("redraw", False))
        # Read at first use: recovery, and a model without a cast, never need its file.
        self.cast = cache(Cast)
        self.album: Album | None = None
        enlarged = self.with_cast or bool(card["init_args"].get("enlarge", True))
        self.face_sizes: tuple[int, ...] = (SIZE, LARGE) if enlarged else (SIZE,)
        self.bundle = bundle_path(card["init_args"].get("bundle", "photo128"))
        self.spec = read_spec(self.bundle)
        self.framing: dict[str, float] = {"scale": 1.0, "right": 0.0, "down": 0.0} | self.spec.get("framing", {})
        self._check_bundle(card)
        # Weights are read with the graphs that need them; the codec's serve three of them.
        self._codec = cache(self._read_codec)
        self._space = cache(lambda: self._read("identity_space"))
        self._typical = cache(lambda: load_arrays(Path(TYPICAL), read_shipped(TYPICAL)))
        self.run = LightNetworks(
            {
                "encoder": partial(self._open_codec, "encoder"),
                "draw": partial(self._open_codec, "draw"),
                "finish": partial(self._open_codec, "finish"),
                "painter": self._open_painter,
                "recogniser": self._open_recogniser,
                "mesh": partial(_open_shipped, "mesh"),
                "looks": partial(_open_shipped, "looks"),
                "covers": partial(_open_shipped, "covers"),
                "enlarger": partial(_open_shipped, "enlarger"),
                "redrawer": partial(_open_shipped, "redrawer"),
            }
        )
        # A model of another layout is to be found out before a photo is touched.
        self._painter: dict[str, Array] | None = None
        if self.with_cast:
            # Nothing is painted, but the file has to be the one that the card describes.
            checked_bytes(self._painter_file, self.weights)
        else:
            self._painter = self._read_painter()
        check_layout("encoder", _below(self._codec(), "encoder."), str(self.bundle / "bundle.yaml"))
        check_layout("draw", _below(self._codec(), "decoder."), str(self.bundle / "bundle.yaml"))

    # Files

    def _check_bundle(self, card: Mapping[str, Any]) -> None:
        ours = fingerprint(self.spec, self.bundle)
        theirs = card["bundle"].get("fingerprint")
        if ours != theirs:
            raise UserError(
                f"{self.folder} was trained on another bundle ({str(theirs)[:12]}) than {self.bundle} ({ours[:12]}); "
                "install that bundle"
            )
        networks = self.spec["networks"]
        for role, kind in CLASSES.items():
            entry = networks.get(role, {})
            # Any setting would make another network of the class: the graphs are of its defaults.
            if entry.get("class") != kind or entry.get("init"):
                raise UnfitError(f"{self.bundle / 'bundle.yaml'} has another {role} than the graphs that ship")
        if networks["recogniser"].get("input_size") != RECOGNISER_SIDE or "crop" not in networks["recogniser"]:
            raise UnfitError(f"{self.bundle / 'bundle.yaml'} crops faces for its recogniser in another way")

    def _read(self, role: str) -> dict[str, Array]:
        entry = self.spec["networks"][role]
        return load_arrays(self.bundle / entry.get("file", ""), expected=entry.get("sha256"))

    def _read_codec(self) -> dict[str, Array]:
        return self._read("codec")

    def _open_codec(self, graph: str) -> Callable[..., list[Array]]:
        prefix = "encoder." if graph == "encoder" else "decoder."
        weights = _below(self._codec(), prefix)
        check_layout(graph, weights, str(self.bundle))
        return open_graph(graph, weights)

    @property
    def _painter_file(self) -> Path:
        return self.folder / "weights.safetensors"

    def _read_painter(self) -> dict[str, Array]:
        path = self._painter_file
        weights = load_arrays(path, expected=self.weights)
        painter = _below(weights, "painter.")
        if len(painter) != len(weights):
            raise UnfitError(f"{path} holds more than a painter")
        check_layout("painter", painter, str(path))
        return painter

    def _open_painter(self) -> Callable[..., list[Array]]:
        weights = self._painter or self._read_painter()
        # 36 MB, which the session has from now on.
        self._painter = None
        return open_graph("painter", weights)

    def _open_recogniser(self) -> Callable[..., list[Array]]:
        weights = self._read("recogniser")
        check_layout("recogniser", weights, str(self.bundle))
        return open_graph("recogniser", weights)

    # What the pipeline asks for

    def key(self, secret: Secret) -> Array:
        """The key of a password, `(F, F)`, F the free directions of an identity code."""
        free = self._space()["free_basis"].shape[1]
        # Persona's `key_label`, which follows from its class: both engines have to draw the same key.
        return secret.normal("faceanon/Persona/key", (free, free))

    def deny(self, image: Array, keys: Array) -> Array:
        """As `Persona.deny`: other strangers in the place of anonymized `(B, 3, S, S)`."""
        return self._strangers(image, keys, guess=True)[0]

    def anonymize_with_codes(self, image: Array, keys: Array) -> tuple[Array, list[bytes]]:
        """As `Persona.anonymize_with_codes`: pictures `(B, 3, S, S)`, NaN where no face was made out, and codes."""
        picture, latents, mask = self._strangers(image, keys)
        return picture, _codes(latents, mask)

    def _strangers(self, image: Array, keys: Array, guess: bool = False) -> tuple[Array, Array, Array]:
        """Pictures with strangers, their own latents and the masks of the changed cells; `guess` as for `Persona`."""
        self.run.open(self.networks)
        if self.with_cast:
            large = image.shape[-1] == LARGE
            seen = self._look(_halved(image) if large else image)
            targets = _targets(seen.image, seen)
            unlike = [seen.embedding]
            away = seen
            if guess and self.redraws:
                guessed = self._guessed(seen)
                unlike.append(guessed)
                away = replace(seen, code=self._with_kept(self._code(guessed), seen.code))
            put_on, choices = self._with_donors(targets, seen, unlike, keys)
            picture = put_on
            if self.redraws:
                look = self._redrawn_in_rows(away)
                donors = [choice.donor for choice in choices]
                picture = redraw(put_on, look, self._alike_in_rows(*unlike), own_pixels(targets), donors)
            latents = seen.latents
            mask = seen.mask
            if large:
                wide = self.cast().put_on(_targets(image, seen), choices)
                picture = carried_over(wide, put_on, picture, seen.mask, feature_pixels(targets))
                latents = self._encoded(image)
                mask = _doubled(mask)
        elif image.shape[-1] == SIZE:
            seen = self._look(image)
            picture = self._drawn(seen, keys)
            latents = seen.latents
            mask = seen.mask
        else:
            # The face is painted into the picture of half the size. Its mask, too, is found there.
            seen = self._look(_halved(image))
            small = self._drawn(seen, keys)
            mask = _doubled(seen.mask)
            latents = self._encoded(image)
            painted = self._encoded(np.nan_to_num(small).clip(-1, 1))
            filled = self.run("enlarger", small=painted, large=latents, mask=mask)[0]
            picture = self._joined(image, filled, mask)
        # NaN has the pipeline hide this face in another way: what the mesh cannot find, nothing is put over.
        picture[seen.confidence < CLEAR] = np.nan
        return picture, latents, mask

    def embeddings(self, faces: Array) -> Array:
        """As `Persona.embeddings`: what the recogniser sees in faces `(B, 3, 128, 128)`, `(B, E)`."""
        self.run.open(self.networks)
        return self._embedding(faces)

    def donor_of_person(self, faces: Array, key: Array, used: Mapping[int, int]) -> int:
        """As `Persona.donor_of_person`: the donor whom one person gets in several photos."""
        self.run.open(self.networks)
        seen = self._look(faces)
        turned = self._nearer_to_mean(self._turned(seen.code, key.repeat(len(faces), 0)))
        space = self._space()
        return self.cast().for_person(
            _targets(faces, seen),
            turned,
            seen.embedding,
            space["kept_basis"],
            space["free_basis"],
            self._alike_in_rows(seen.embedding),
            used,
        )

    def code_of(self, image: Array) -> list[bytes]:
        """As `Persona.code_of`: the codes of faces `(B, 3, S, S)`, of which nothing is painted."""
        self.run.open(FINDING)
        if image.shape[-1] == SIZE:
            place = self._place(image)
            return _codes(place.latents, place.mask)
        mask = _doubled(self._place(_halved(image)).mask)
        return _codes(self._encoded(image), mask)

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the graphs that anonymize with."""
        if not self.with_cast:
            return PAINTING
        return REDRAWING if self.redraws else LOOKING

    def recover_from(self, image: Array, codes: Sequence[bytes]) -> Array:
        """As `Persona.recover_from`: faces `(B, 3, S, S)` brought back from their codes.

        Raises:
            UserError: If a code is damaged, or of faces of another size.
        """
        self.run.open(RECOVERING)
        decoded = list(map(decode_cells, codes))
        side = image.shape[-1]
        for _, kept in decoded:
            if kept.shape != (side // SHRINK, side // SHRINK):
                theirs = f"{kept.shape[1] * SHRINK} x {kept.shape[0] * SHRINK}"
                raise UserError(
                    f"the code of a face is for faces of {theirs} px, and the model's are {side} x {side} px"
                )
        latents = np.stack([face for face, _ in decoded])
        cells = np.stack([kept for _, kept in decoded])[:, None]
        pixels = cells.repeat(SHRINK, -2).repeat(SHRINK, -1)
        window = _window(cells)
        rows, columns = _pixels(window)
        shown = image.copy()
        for _ in range(PASSES):
            around = self._encoded(shown.clip(-1, 1))
            # Only what lies in the window is looked at, so nothing else is drawn.
            drawn = self._decoded(np.where(cells, latents, around), window)
            shown = image.copy()
            shown[:, :, rows, columns] = np.where(pixels[:, :, rows, columns], drawn, image[:, :, rows, columns])
        return shown

    # The steps of the method

    def _place(self, image: Array) -> Place:
        """Which cells of `(B, 3, 128, 128)` are to be painted."""
        latents = self._encoded(image)
        solid, confidence = self._points(image)
        meshes = np.ascontiguousarray(solid[..., :2])
        lines, mask = _drawings(meshes, image)
        if self.covers:
            shown = np.concatenate([mask, _cell_means(lines)], 1)
            mask = _uncovered(mask, self._covered(latents, shown, meshes))
        return Place(latents, solid, lines, mask, confidence)

    def _look(self, image: Array) -> SeenFaces:
        """What is to be known of `(B, 3, 128, 128)` before anybody is painted."""
        place = self._place(image)
        latents = place.latents
        mask = place.mask
        light = _fit_light(self._preview(latents), mask)
        maps = np.concatenate([mask, _folded(place.lines), _light_surface(light) * mask], 1)
        attributes = np.concatenate([light.reshape(len(image), -1), _pose(place.mesh[..., :2])], 1)
        embedding = self._embedding(image)
        code = self._identity(embedding, latents)
        return SeenFaces(image, latents, mask, maps, attributes, code, embedding, place.confidence, place.mesh)

    def _guessed(self, seen: SeenFaces) -> Array:
        """Embeddings `(B, E)` of the persons as they might be, as `Persona._guessed`."""
        free = self._space()["free_basis"]
        anybody = seen.code - seen.code @ free @ free.T
        told = np.concatenate([anybody, np.zeros_like(anybody), seen.attributes], 1)
        start = np.repeat(noise()[None], len(seen.image), 0)
        painted = self._followed(start, times(*GUESS), seen.latents, seen.mask, seen.maps, told)
        return self._embedding(self._joined(seen.image, painted, seen.mask).clip(-1, 1))

    def _with_donors(
        self, targets: list[SwapTarget], seen: SeenFaces, unlike: Sequence[Array], keys: Array
    ) -> tuple[Array, list[Choice]]:
        """Pictures of others under keys, and how they were put on, as `Persona._with_donors`."""
        turned = self._nearer_to_mean(self._turned(seen.code, keys))
        space = self._space()
        cast = self.cast()
        orders = cast.orders(targets, turned, seen.embedding, space["kept_basis"], space["free_basis"], self.album)
        known = None if self.album is None else self.album.knows(seen.embedding)
        alike = self._alike_in_rows(*unlike)
        return cast.put_on_unlike(targets, orders, alike, known, self._read_points)

    def _redrawn_in_rows(self, seen: SeenFaces) -> Look:
        """How faces that were put on are redrawn, as `landmarks.redrawing` asks for it."""

        def look(drawn: Array, rows: list[int]) -> Again:
            put_on = self._encoded(drawn)
            solid, confidence = self._points(drawn)
            lines, _ = _drawings(np.ascontiguousarray(solid[..., :2]), drawn)
            own = seen.maps[rows]
            maps = np.concatenate([own[:, :1], _folded(lines), own[:, -3:]], 1)
            stranger = self._with_kept(self._code(self._embedding(drawn)), seen.code[rows])
            told = np.concatenate([stranger, seen.code[rows], seen.attributes[rows]], 1)
            sure = (confidence >= CLEAR)[:, None, None, None]
            of_row = np.array(rows)

            def again(some: list[int], times: list[float], noise: Array) -> Array:
                few = of_row[some]
                mask = seen.mask[few]
                mixed = (1 - times[0]) * noise + times[0] * put_on[some]
                face = self._followed(mixed, times, seen.latents[few], mask, maps[some], told[some])
                return np.where(sure[some], self._joined(seen.image[few], face, mask), drawn[some])

            return again

        return look

    def _followed(self, mixed: Array, way: list[float], latents: Array, mask: Array, maps: Array, told: Array) -> Array:
        """Mixtures of faces and noise led back to faces, as `Redrawer.follow`; `way` holds its times."""
        given = {"latents": latents, "mask": mask, "maps": maps, "condition": told}
        inputs = {name: value.astype(np.float32) for name, value in given.items()}

        def direction(here: Array, time: float) -> Array:
            return self.run("redrawer", noisy=here, time=np.full(len(here), time, np.float32), **inputs)[0]

        followed: Array = latents * (1 - mask) + led_back(mixed.astype(np.float32), way, direction) * mask
        return followed

    def _read_points(self, drawn: Array) -> Array:
        """Points `(R, 468, 2)` that the mesh finds in pictures `(R, 3, 128, 128)`, in sides of the picture."""
        places, _ = self._points(drawn)
        read: Array = (places[..., :2] + 1) / 2
        return read

    def _alike_in_rows(self, *embeddings: Array) -> Alike:
        """How alike drawn faces are to the persons of embeddings `(B, E)`; of several counts the likest."""

        def alike(drawn: Array, rows: list[int]) -> Array:
            return self._alike(drawn, *[embedding[rows] for embedding in embeddings])

        return alike

    def _drawn(self, seen: SeenFaces, keys: Array) -> Array:
        """Pictures of others under keys, as `Persona._drawn`: the most natural of four strangers unlike the person."""
        painted = []
        odd = []
        for turn in range(STRANGERS):
            # With its rows moved on, the key gives somebody else.
            code = self._turned(seen.code, np.roll(keys, turn, -2))
            latents = self._painted(seen, self._nearer_to_mean(code))
            painted.append(latents)
            odd.append(self._oddness(latents, seen.mask))
        odd[0] = odd[0] - np.float32(MARGIN)
        # Stable: of equally odd strangers every machine takes the same.
        order = np.argsort(np.stack(odd), 0, kind="stable")
        strangers = np.stack(painted)
        drawn = self._joined(seen.image, strangers[order[0], np.arange(len(keys))], seen.mask)
        alike = self._alike(drawn, seen.embedding)
        for turns in order[1:]:
            again = np.flatnonzero(alike >= ALIKE)
            if len(again) == 0:
                break
            redrawn = self._joined(seen.image[again], strangers[turns[again], again], seen.mask[again])
            alike_now = self._alike(redrawn, seen.embedding[again])
            better = alike_now < alike[again]
            drawn[again[better]] = redrawn[better]
            alike[again[better]] = alike_now[better]
        return drawn

    def _painted(self, seen: SeenFaces, code: Array) -> Array:
        """Latents `(B, 32, 16, 16)` with the faces of codes `(B, 64)`."""
        noise = np.zeros((len(code), NOISE), np.float32)
        condition = np.concatenate([code, seen.attributes, noise], 1).astype(np.float32)
        return self.run("painter", latents=seen.latents, mask=seen.mask, maps=seen.maps, condition=condition)[0]

    def _oddness(self, latents: Array, mask: Array) -> Array:
        """How odd painted faces are, `(B,)`, as `landmarks.typical`."""
        typical = self._typical()
        away = latents - typical["mean"]
        rows, channels, height, width = away.shape
        blocks = away.reshape(rows, channels, height // BLOCK, BLOCK, width // BLOCK, BLOCK)
        # `(h / 2, w / 2, C, 4 B)`: the four cells of a block share one whitening `(C, C)`.
        vectors = blocks.transpose(2, 4, 1, 0, 3, 5).reshape(height // BLOCK, width // BLOCK, channels, -1)
        white = np.square(typical["whitening"] @ vectors).mean(2)
        by_cell = white.reshape(height // BLOCK, width // BLOCK, rows, BLOCK, BLOCK).transpose(2, 0, 3, 1, 4)
        odd: Array = (by_cell.reshape(mask.shape) * mask).sum((1, 2, 3)) / mask.sum((1, 2, 3)).clip(1)
        return odd

    def _alike(self, drawn: Array, *embeddings: Array) -> Array:
        """Cosines `(B,)` of drawn faces to embeddings `(B, E)`, as `Persona._alike`."""
        seen = self._embedding(drawn.clip(-1, 1))
        alike: Array = np.stack([(seen * one).sum(1) for one in embeddings]).max(0)
        return alike

    def _encoded(self, image: Array) -> Array:
        """Normalised latents `(B, 32, S / 8, S / 8)`."""
        unit = (image + 1) / 2
        # Two small faces at once, or one large one: all that onnxruntime takes for a call it keeps for the next ones,
        # and 256 px take 50 MB a face.
        at_once = max(1, MOST_PIXELS // (image.shape[-2] * image.shape[-1]))
        parts = []
        for start in range(0, len(unit), at_once):
            parts.append(self.run("encoder", unit=unit[start : start + at_once])[0])
        latents = np.concatenate(parts)
        codec = self._codec()
        return (latents - codec["mean"][:, None, None]) / codec["std"][:, None, None]

    def _decoded(self, latents: Array, window: Box) -> Array:
        """The pixels of a window of cells, as `LatentCodec.decode_part`."""
        codec = self._codec()
        public = latents * codec["std"][:, None, None] + codec["mean"][:, None, None]
        maps = self.run("draw", latents=public.astype(np.float32))[0]
        height, width = maps.shape[-2:]
        top, bottom, left, right = (SHRINK * edge for edge in window)
        # The last layers look beyond the window, so a wider part is drawn and the margin cut off.
        above = max(top - REACH, 0)
        before = max(left - REACH, 0)
        part = maps[:, :, above : min(bottom + REACH, height), before : min(right + REACH, width)]
        drawn = self.run("finish", maps=np.ascontiguousarray(part))[0]
        wanted: Array = drawn[:, :, top - above : bottom - above, left - before : right - before] * 2 - 1
        return wanted

    def _preview(self, latents: Array) -> Array:
        """Colours `(B, 3, h, h)` of latents, as `LatentCodec.preview`."""
        codec = self._codec()
        colours = np.einsum("bchw,dc->bdhw", latents, codec["preview_weight"])
        preview: Array = colours + codec["preview_bias"][:, None, None]
        return preview

    def _points(self, image: Array) -> tuple[Array, Array]:
        """Points `(B, 468, 3)`, x and y in [-1, 1] and depth in the same unit, and confidences `(B,)`."""
        # Through bytes, as torch's mesh gets its pictures: both engines have to find the same points.
        bytes_ = np.rint((image.clip(-1, 1) + 1) * np.float32(127.5)) / np.float32(255)
        left, top, right, bottom = MESH_BOX
        rows = _roi_weights(SIZE, top, bottom)
        columns = _roi_weights(SIZE, left, right)
        crops = rows @ bytes_ @ columns.T
        points, confidence = self.run("mesh", crops=crops)
        found = points.reshape(len(image), -1, 3)
        scale = np.float32((right - left) * SIZE / MESH_SIDE)
        places = found * scale + np.array([left, top, 0], np.float32) * SIZE
        places = places / np.float32(SIZE) * 2
        places[..., :2] -= 1
        return places, confidence.reshape(-1)

    def _covered(self, latents: Array, shown: Array, meshes: Array) -> Array:
        """Cells `(B, 1, h, h)` that something covers, 0 or 1."""
        logits = self.run("covers", latents=latents, maps=shown)[0]
        chances = 1 / (1 + np.exp(-logits))
        found = np.zeros_like(chances)
        for row in range(len(chances)):
            found[row, 0] = covered_cells(chances[row, 0], shown[row, 0] > 0.5, meshes[row])
        return found

    def _embedding(self, image: Array) -> Array:
        """The recogniser's embeddings `(B, E)` of unit length."""
        top, bottom, left, right = self.spec["networks"]["recogniser"]["crop"]
        rows = _bilinear_weights(SIZE, top * SIZE, bottom * SIZE, RECOGNISER_SIDE)
        columns = _bilinear_weights(SIZE, left * SIZE, right * SIZE, RECOGNISER_SIDE)
        embedding = self.run("recogniser", faces=rows @ image @ columns.T)[0]
        unit: Array = embedding / np.maximum(np.linalg.norm(embedding, axis=1, keepdims=True), 1e-12)
        return unit

    def _code(self, embedding: Array) -> Array:
        """As `IdentitySpace.code`: `(B, E)` -> `(B, 64)`."""
        space = self._space()
        code: Array = (embedding - space["mean"]) @ space["basis"].T / space["scale"]
        return code

    def _with_kept(self, code: Array, other: Array) -> Array:
        """Codes `(B, 64)` with sex, age, skin, and what else a turn keeps, of other codes."""
        basis = self._space()["kept_basis"]
        mixed: Array = code + (other @ basis - code @ basis) @ basis.T
        return mixed

    def _identity(self, embedding: Array, latents: Array) -> Array:
        """Identity codes `(B, 64)`, with sex, age and skin as the pictures show them."""
        space = self._space()
        code = self._code(embedding)
        looks = self.run("looks", latents=latents)[0].clip(-MOST_LOOKS, MOST_LOOKS)
        basis = space["kept_basis"][:, : looks.shape[1]]
        shown: Array = code + (looks - code @ basis) @ basis.T
        return shown

    def _turned(self, code: Array, keys: Array) -> Array:
        """Codes `(B, 64)` of other persons, as `IdentitySpace.turned`."""
        space = self._space()
        # In double precision, as torch does it: the frame is the same on every machine.
        frame = np.linalg.qr(keys.astype(np.float64))[0].astype(np.float32)
        kept = code @ space["kept_basis"] @ space["kept_basis"].T
        free = np.einsum("bi,bij->bj", code @ space["free_basis"], frame)
        pairs = free.reshape(len(free), -1, 2)
        quarter = np.stack([-pairs[..., 1], pairs[..., 0]], -1).reshape(len(free), -1)
        turned: Array = kept + np.einsum("bi,bji->bj", quarter, frame) @ space["free_basis"].T
        return turned

    def _nearer_to_mean(self, code: Array) -> Array:
        """Codes `(B, 64)` nearer to the mean person, as `IdentitySpace.nearer_to_mean`."""
        space = self._space()
        free: Array = code @ space["free_basis"] @ space["free_basis"].T
        return code - np.float32(1 - self.variety) * free

    def _joined(self, image: Array, painted: Array, mask: Array) -> Array:
        """The picture with the new face, softly joined, as `Persona.decode`."""
        window = _window(mask)
        part = self._decoded(painted, window)
        rows, columns = _pixels(window)
        edge = _soft_edge(mask)[:, :, rows, columns]
        picture = image.astype(np.float32, copy=True)
        picture[:, :, rows, columns] = picture[:, :, rows, columns] * (1 - edge) + part * edge
        return picture


def model_folder(model: str | Path) -> Path | None:
    """The folder of a trained model by path or shipped name; None where there is none with a card."""
    for folder in (Path(model), checkpoints() / model):
        if folder.exists():
            return folder if (folder / CARD).is_file() else None
    return None


def read_card(folder: Path) -> dict[str, Any]:
    """What `model.yaml` says.

    Raises:
        UnfitError: If it does not describe a backbone; torch's reader says what is wrong with it.
        UserError: If it cannot be read.
    """
    card = read_yaml(folder / CARD)
    kinds = {"class_path": str, "init_args": dict, "bundle": dict}
    for name, kind in kinds.items():
        if not isinstance(card.get(name), kind):
            raise UnfitError(f"{folder / CARD} does not describe a backbone")
    return card


def is_persona(card: Mapping[str, Any]) -> bool:
    """Whether a card is of the method that there are graphs for."""
    return bool(card["class_path"] == METHOD)


def check_card(card: Mapping[str, Any], folder: Path) -> None:
    """Refuse another method, and Personas that the graphs do not describe.

    Raises:
        UnfitError: If the model is one.
    """
    if not is_persona(card):
        raise UnfitError(f"{folder.name} is of {card['class_path']}, for which there are no graphs")
    if (card["init_args"].get("sizes") or [SIZE]) != [SIZE]:
        raise UnfitError(
            f"{folder.name} paints faces of {card['init_args']['sizes']} px, and the graphs that ship {SIZE}"
        )


def _codes(latents: Array, mask: Array) -> list[bytes]:
    """Codes of the masked cells `(B, 1, h, h)` of latents `(B, 32, h, h)`, one for each face."""
    codes = []
    for face, cells in zip(latents, mask[:, 0] > 0.5, strict=True):
        codes.append(encode_cells(face, cells))
    return codes


def _doubled(mask: Array) -> Array:
    """Masks `(B, 1, h, h)` for pictures of twice the size: one cell becomes four."""
    return mask.repeat(2, -2).repeat(2, -1)


def _below(weights: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The tensors whose names begin with `prefix`, without it."""
    below = {}
    for name, value in weights.items():
        if name.startswith(prefix):
            below[name.removeprefix(prefix)] = value
    return below


def _open_shipped(name: str) -> Callable[..., list[Array]]:
    file = f"{name}.safetensors"
    weights = load_arrays(Path(file), read_shipped(file))
    check_layout(name, weights, file)
    return open_graph(name, weights)


@cache
def _bilinear_weights(side: int, start: float, stop: float, count: int) -> Array:
    """As `networks.adapters.bilinear_weights`: `(count, side)`."""
    steps = np.arange(count, dtype=np.float32)
    centres = (np.float32(start) + (steps + 0.5) * np.float32(stop - start) / count - 0.5).clip(0, side - 1)
    distance = centres[:, None] - np.arange(side, dtype=np.float32)
    weights: Array = (1 - np.abs(distance)).clip(0, None).astype(np.float32)
    return weights


@cache
def _roi_weights(side: int, start: float, stop: float) -> Array:
    """What torchvision's `roi_align` (aligned, adaptive sampling) takes of each pixel along a side: `(192, side)`."""
    first = start * side
    step = (stop - start) * side / MESH_SIDE
    # Adaptive sampling: as many samples as a bin has pixels, rounded up.
    count = int(np.ceil(step))
    weights = np.zeros((MESH_SIDE, side), np.float64)
    for number in range(MESH_SIDE):
        for sample in range(count):
            # `aligned` counts places from the middle of the first pixel, half a pixel after its edge.
            place = first - 0.5 + number * step + (sample + 0.5) * step / count
            place = min(max(place, 0.0), side - 1.0)
            low = min(int(place), side - 1)
            high = min(low + 1, side - 1)
            share = place - low
            weights[number, low] += (1 - share) / count
            weights[number, high] += share / count
    return weights.astype(np.float32)


def _drawings(meshes: Array, images: Array) -> tuple[Array, Array]:
    """Drawings `(B, 7, 64, 64)` in [0, 1] and masks `(B, 1, 16, 16)`, as `landmarks.drawings.drawings`."""
    side = images.shape[-1]
    points = (meshes + 1) / 2
    pictures = _bytes(images)
    sheets = []
    for mesh, picture in zip(points, pictures, strict=True):
        eyes = (pupils(picture, mesh * side) / side).astype(np.float32)
        sheets.append(draw_face(mesh, eyes, CELLS))
    drawn = np.stack(sheets).astype(np.float32) / 255
    mask = (_cell_means(drawn[:, DRAWINGS:]) > COVERED).astype(np.float32)
    return drawn[:, :DRAWINGS], mask


def _cell_means(drawn: Array) -> Array:
    """Means over the cells: `(B, C, 64, 64)` -> `(B, C, 16, 16)`."""
    batch, channels, height, width = drawn.shape
    blocks = drawn.reshape(batch, channels, height // FINE, FINE, width // FINE, FINE)
    means: Array = blocks.mean((3, 5), dtype=np.float32)
    return means


def _folded(drawn: Array) -> Array:
    """As torch's `pixel_unshuffle` by 4: `(B, C, 64, 64)` -> `(B, 16 C, 16, 16)`."""
    batch, channels, height, width = drawn.shape
    blocks = drawn.reshape(batch, channels, height // FINE, FINE, width // FINE, FINE)
    return blocks.transpose(0, 1, 3, 5, 2, 4).reshape(batch, -1, height // FINE, width // FINE)


def _uncovered(mask: Array, covered: Array) -> Array:
    """As `persona_cells.uncovered`: masks without the covered cells, unless too little of a face would be left."""
    left = mask * (1 - covered)
    enough = left.sum((1, 2, 3), keepdims=True) >= LEAST * mask.sum((1, 2, 3), keepdims=True)
    return np.where(enough, left, mask)


@cache
def _polynomials() -> Array:
    """As `losses.light.polynomials`: `(256, 6)`."""
    steps = (np.arange(CELLS, dtype=np.float32) + 0.5) / CELLS * 2 - 1
    y, x = np.meshgrid(steps, steps, indexing="ij")
    return np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], -1).reshape(-1, len(STIFFNESS))


def _fit_light(colours: Array, mask: Array) -> Array:
    """As `losses.light.fit_light`: coefficients `(B, 6, 3)`."""
    terms = _polynomials()
    area = mask.sum((1, 2, 3))[:, None, None]
    masked = terms * mask.reshape(len(mask), 1, -1).transpose(0, 2, 1)
    system = masked.transpose(0, 2, 1) @ terms / area + np.diag(np.array(STIFFNESS, np.float32))
    target = masked.transpose(0, 2, 1) @ colours.reshape(len(mask), 3, -1).transpose(0, 2, 1) / area
    solution: Array = np.linalg.solve(system, target).astype(np.float32)
    return solution


def _light_surface(coefficients: Array) -> Array:
    """As `losses.light.light_surface`: `(B, 3, 16, 16)`."""
    colours = _polynomials() @ coefficients
    return colours.transpose(0, 2, 1).reshape(len(coefficients), 3, CELLS, CELLS)


def _pose(meshes: Array) -> Array:
    """As `landmarks.drawings.pose`: `(B, 3)`."""
    left = meshes[:, list(LEFT_EYE)].mean(1)
    right = meshes[:, list(RIGHT_EYE)].mean(1)
    middle = (left + right) / 2
    across = right - left
    across = across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-12)
    down = np.stack([-across[:, 1], across[:, 0]], 1)
    mouth = meshes[:, list(MOUTH_CORNERS)].mean(1)
    nose = meshes[:, NOSE_TIP] - middle
    width = np.linalg.norm(meshes[:, RIGHT_CHEEK] - meshes[:, LEFT_CHEEK], axis=1)
    height = ((mouth - middle) * down).sum(1).clip(2 / 256, None)
    yaw = (nose * across).sum(1) / width * 8
    pitch = ((nose * down).sum(1) / height - 0.55) * 8
    roll = np.arctan2(across[:, 1], across[:, 0]) * 4
    return np.stack([yaw, pitch, roll], 1)


def _bytes(image: Array) -> NDArray[np.uint8]:
    """Pictures `(B, 3, S, S)` in [-1, 1] as `(B, S, S, 3)` uint8."""
    bytes_ = np.rint((image.clip(-1, 1) + 1) * np.float32(127.5)).astype(np.uint8)
    return np.ascontiguousarray(bytes_.transpose(0, 2, 3, 1))


def _targets(image: Array, seen: SeenFaces) -> list[SwapTarget]:
    """As `Persona._targets`: of pictures `(B, 3, S, S)`, and what is known of them or of the same at half the size."""
    side = image.shape[-1]
    points = seen.mesh * np.float32(side / 2)
    points[..., :2] += np.float32(side / 2)
    return [target_of(*face) for face in zip(_bytes(image), points, seen.mask[:, 0] > 0, strict=True)]


def _halved(image: Array) -> Array:
    """Pictures `(B, 3, S, S)` of half the size."""
    # In torch's order: the last bit decides how a value between two bytes is rounded before the mesh looks at it.
    total = image[..., ::2, ::2] + image[..., ::2, 1::2]
    total = total + image[..., 1::2, ::2]
    total = total + image[..., 1::2, 1::2]
    halved: Array = total / np.float32(4)
    return halved


def _window(mask: NDArray[Any]) -> Box:
    """Top, bottom, left and right of the cells that masks cover together; the whole where they cover nothing."""
    rows = np.flatnonzero(mask.max((0, 1, 3)))
    columns = np.flatnonzero(mask.max((0, 1, 2)))
    if len(rows) == 0:
        return 0, mask.shape[-1], 0, mask.shape[-1]
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def _pixels(window: Box) -> tuple[slice, slice]:
    """Rows and columns of a picture that lie in a window of cells."""
    top, bottom, left, right = (SHRINK * edge for edge in window)
    return slice(top, bottom), slice(left, right)


def _soft_edge(mask: Array) -> Array:
    """As `backbones.persona_cells.soft_edge`: `(B, 1, S, S)` in [0, 1]."""
    pixels = mask.repeat(SHRINK, -2).repeat(SHRINK, -1)
    span = (2 * (SHRINK // 2) + 1,) * 2
    beyond = cv2.BORDER_CONSTANT
    ones = cv2.boxFilter(np.ones(pixels.shape[-2:], np.float32), -1, span, normalize=False, borderType=beyond)
    edges = np.empty_like(pixels)
    for row, picture in enumerate(pixels[:, 0]):
        # Over the part of the box that lies in the picture: torch's mean leaves padding out
        # (`count_include_pad=False`).
        share = cv2.boxFilter(np.ascontiguousarray(picture), -1, span, normalize=False, borderType=beyond) / ones
        edges[row, 0] = (2 * share - 1).clip(0, 1) * picture
    return edges
