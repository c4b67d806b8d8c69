"""What the stages train Persona with: the readers, which learn along, and the terms that they and frozen networks give.

Nothing here runs when a photo is anonymized.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.backbones.persona_cells import joined_in, points_of, wider, window_of
from faceanon.landmarks.drawings import DRAWINGS, EXPRESSION
from faceanon.landmarks.expression import expression_distance
from faceanon.landmarks.looks import Looks
from faceanon.landmarks.mesh import FaceMesh
from faceanon.losses.adversarial import discriminator_loss, generator_loss
from faceanon.losses.light import fit_light, light_distance
from faceanon.networks.adapters import LayeredRecogniser
from faceanon.networks.codec import LatentCodec
from faceanon.networks.face_painter import LatentReader
from faceanon.networks.feature_discriminator import FeatureDiscriminator
from faceanon.networks.identity_space import IdentitySpace
from faceanon.types import Branches, Codes, FaceBatch
from faceanon.weights.bundle import Bundle

SEEN = 1 + DRAWINGS  # what the discriminator is told: mask and drawings
RANGE = 5.0  # normalised latents of photographs hardly ever lie beyond
PAINTED = 2  # of the looks that are read, those that a painted face is held to: sex and age
LOOKS_NOISE = 0.3  # deviation of the noise on painted latents whose looks are read
WATCHED = 6  # drawn faces of a batch that recogniser and mesh look at through the decoder
READ = 8  # drawn faces of a batch that the readers learn from in the same way


@dataclass(frozen=True)
class PersonaTerms:
    """The terms of both stages.

    Args:
        bundle: With codec and recogniser.
        identities: The space of the identity codes.
        mesh: Finds the 468 points.
        looks: Reads sex, age and skin.
        cells: Side of the largest latents, in cells.
        readers: Of `new_readers`, as the stage trains them; empty where nothing is trained.
    """

    bundle: Bundle
    identities: IdentitySpace
    mesh: FaceMesh
    looks: Looks
    cells: int
    readers: nn.ModuleDict

    def new_readers(self) -> nn.ModuleDict:
        """Networks on latents that a stage trains along.

        `identity` learns what the recogniser sees, `expression` where eyes and mouth are, and `adversary` the embedding
        of the person who stood where somebody else was drawn, as an attacker would who anonymizes pictures himself.
        `natural` tells painted faces from photographs by what the recogniser's layers see, where it shows them.
        """
        embedding = len(self.identities.mean)
        readers = nn.ModuleDict(
            {
                "identity": LatentReader(embedding, self.cells, dropout=0.3),
                "adversary": LatentReader(embedding, self.cells, dropout=0.3),
                "expression": LatentReader(2 * len(EXPRESSION), self.cells),
            }
        )
        # A discriminator on the maps of a trained network learns from few pictures.
        recogniser = self.bundle.trainable_recogniser().net
        if isinstance(recogniser, LayeredRecogniser):
            readers["natural"] = FeatureDiscriminator(recogniser.widths)
        return readers

    def reader_terms(self, batch: FaceBatch, codes: Codes, drawn: Tensor) -> dict[str, Tensor]:
        """What the readers learn from: the photographs of a batch, and the faces just drawn, which are new people.

        Args:
            batch: The photographs.
            codes: Of the photographs.
            drawn: As `drawn_view` gives it; no gradient flows into it.
        """
        readers = self.readers
        times = len(drawn) // len(batch)
        latents = codes.latents
        mask = codes.mask
        assert latents is not None
        assert mask is not None
        # What follows the latents is mask and drawings, see `drawn_view`.
        painted = drawn[:, :-SEEN].detach()
        rows = torch.arange(min(READ, len(drawn)), device=drawn.device)
        # Drawn faces are whole batches behind each other: row n is of photograph n modulo B.
        fresh = painted[rows]
        with torch.no_grad():
            embedding = self._embedding(batch)
            mesh = batch.mesh if batch.mesh is not None else points_of(self.mesh, batch.image)[0][..., :2]
            shown = self._shown(fresh, mask[rows % len(batch)], batch.image[rows % len(batch)])
            embedding_shown, maps_shown = self._seen(shown)
            places_shown = _expression(self.mesh.seen(shown))
            # Noise of the codec's own size and more makes the readers look at the face, not at its last digits.
            spread = 0.2 * torch.rand(len(latents), 1, 1, 1, device=latents.device)
            noisy = latents + spread * torch.randn_like(latents)
        seen = torch.cat([noisy, fresh])
        found = F.normalize(readers["identity"](seen).float())
        distance = 1 - (found * torch.cat([embedding, embedding_shown])).sum(1)
        # The adversary sees the painted face alone. From hair and background it knows the training pictures by heart,
        # and a painter can do nothing against that.
        found_behind = F.normalize(readers["adversary"](painted * mask.repeat(times, 1, 1, 1)).float())
        places = readers["expression"](seen).float()
        off = (places - torch.cat([_expression(mesh), places_shown])).abs().mean(1)
        # A mean each: photographs and drawn faces count alike, however many there are of either.
        terms = {
            "reader": distance[: len(batch)].mean() + distance[len(batch) :].mean(),
            "adversary": (1 - (found_behind * embedding.repeat(times, 1)).sum(1)).mean(),
            "expression_reader": off[: len(batch)].mean() + off[len(batch) :].mean(),
        }
        if "natural" in readers:
            last = torch.arange(len(batch), device=drawn.device)[-READ:]
            with torch.no_grad():
                # Through the codec like the painted ones, or its digits would give the photographs away.
                photographs = self._seen(self._shown(latents[last], mask[last], batch.image[last]))[1]
            pairs = zip(readers["natural"](photographs), readers["natural"](maps_shown), strict=True)
            terms["natural_reader"] = _mean([discriminator_loss(real, fake) for real, fake in pairs])
        return terms

    def disentangle_terms(
        self, batch: FaceBatch, codes: Codes, drawn: Tensor, source: Tensor, wanted: Collection[str]
    ) -> dict[str, Tensor]:
        """Stage 1: rows that lend themselves their identity draw themselves, the others somebody else.

        `itself`      L1 on the latents of the face, own rows.
        `likeness`    1 - cos of the reader's embedding to the wanted person's, all rows.
        `stranger`    Cosine above 0 of the reader's embedding to the old person's, other rows.
        `watched`     The two terms above by the true recogniser through the decoder, on a few rows.
        `expression`  L1 between where the other reader sees eyes and mouth, and where the mesh has them.
        `mesh`        L1 between the mesh of the watched rows' pictures and the wanted one, eyes and mouth twice.
        `pose`        How far mouth, yaw and pitch of the same meshes are off, in standard deviations.
        `light`       Distance of the surfaces of colour.
        `kept`        How far sex and age are off, as the pictures and the painted faces alone show them.
        `natural`     How clearly the recogniser's layers tell the watched rows' pictures from photographs.
        `bounds`      How far latents go beyond what photographs have.
        """
        rows = torch.arange(len(batch), device=drawn.device)
        same_person = (batch.identity == batch.identity[source]) & (batch.identity >= 0)
        # Another photo of the same person lends the same identity.
        itself = (source == rows) | same_person
        target = torch.where(itself[:, None], self._embedding(batch), self.identities.apart(codes.identity))
        readings = F.normalize(self.readers["identity"](drawn[:, :-SEEN]).float())
        terms = self._drawing_terms(batch, codes, drawn, readings, target, itself)
        return {name: value for name, value in terms.items() if name in wanted}

    def anonymize_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """Stage 2: all rows draw somebody else; see `disentangle_terms`.

        `adversary`  Cosine above 0 of what the adversary finds to the old person's embedding.
        `apart`      Cosine above 0 between the readings of one face under two keys.
        `pseudonym`  1 - cos between the readings of two photos of one person under one key.
        """
        drawn = branches.pictures
        times = branches.versions
        codes = branches.original.map(lambda item: item.repeat(times, *[1] * (item.ndim - 1)))
        target = self.identities.apart(branches.edited.identity)
        nobody = torch.zeros(len(drawn), dtype=torch.bool, device=drawn.device)
        painted = drawn[:, :-SEEN]
        readings = F.normalize(self.readers["identity"](painted).float())
        terms = self._drawing_terms(batch, codes, drawn, readings, target, nobody)
        if "adversary" in wanted:
            assert codes.mask is not None
            found = F.normalize(self.readers["adversary"](painted * codes.mask).float())
            terms["adversary"] = F.relu((found * self._embedding(batch).repeat(times, 1)).sum(1)).mean()
        if times == 2:
            first, second = readings.chunk(2)
            terms["apart"] = F.relu((first * second).sum(1)).mean()
            if "pseudonym" in wanted:
                # Where this term is wanted, the stage gives all rows one second key. Under the first keys pseudonyms do
                # not compare.
                terms["pseudonym"] = _one_stranger(second, batch.identity)
        return {name: value for name, value in terms.items() if name in wanted}

    def _drawing_terms(
        self, batch: FaceBatch, codes: Codes, drawn: Tensor, readings: Tensor, target: Tensor, itself: Tensor
    ) -> dict[str, Tensor]:
        """The terms that both stages have.

        Args:
            batch: B photographs.
            codes: Of the drawn faces; only their identity codes differ from the photographs'.
            drawn: `(N, 40, h, h)`, N a multiple of B.
            readings: `(N, E)`, what the reader sees in them.
            target: `(N, E)`, what recognisers should see in them.
            itself: `(N,)` bool, whether a row draws its own person.
        """
        readers = self.readers
        latents = codes.latents
        mask = codes.mask
        assert latents is not None
        assert mask is not None
        times = len(drawn) // len(batch)
        painted = drawn[:, :-SEEN]
        own = self._embedding(batch).repeat(times, 1)
        others = (~itself).float()
        count = others.sum().clamp(min=1)
        watched = _watched(len(drawn), itself).to(drawn.device)
        shown = self._shown(painted[watched], mask[watched], batch.image[watched % len(batch)])
        seen, maps = self._seen(shown)
        pull = 1 - (seen * target[watched]).sum(1)
        push = F.relu((seen * own[watched]).sum(1)) * others[watched]
        mesh = batch.mesh if batch.mesh is not None else points_of(self.mesh, batch.image)[0][..., :2]
        places = readers["expression"](painted).float()
        points = self.mesh.seen(shown)
        points_wanted = mesh[watched % len(batch)]
        moved = (points - points_wanted).abs()
        difference = ((painted - latents).abs() * mask).sum((1, 2, 3)) / mask.sum((1, 2, 3)) / painted.shape[1]
        preview = self.bundle.codec.preview(painted)
        wanted_light = fit_light(self.bundle.codec.preview(latents), mask)
        terms = {
            "itself": (difference * itself).sum() / itself.sum().clamp(min=1),
            "likeness": (1 - (readings * target).sum(1)).mean(),
            "stranger": (F.relu((readings * own).sum(1)) * others).sum() / count,
            "watched": (pull + push).mean(),
            "expression": (places - _expression(mesh).repeat(times, 1)).abs().mean(),
            "mesh": moved.mean() + moved[:, list(EXPRESSION)].mean(),
            "pose": expression_distance(points, points_wanted),
            "light": light_distance(preview, wanted_light, mask),
            "bounds": F.relu(painted.abs() - RANGE).square().mean(),
            "kept": self._looks_off(codes, painted, shown, watched),
        }
        if "natural" in readers:
            terms["natural"] = _mean([generator_loss(logits) for logits in readers["natural"](maps)])
        return terms

    def _looks_off(self, codes: Codes, painted: Tensor, shown: Tensor, watched: Tensor) -> Tensor:
        """How far sex and age of painted faces are off.

        Args:
            codes: Of the drawn faces.
            painted: Their latents `(N, 32, h, h)`.
            shown: Pictures of some of them.
            watched: Numbers of these.
        """
        # The first kept directions are what the network reads. The skin of a painted face is left to the terms of
        # colour, which see every cell.
        looks = self.identities.kept(codes.identity)[:, :PAINTED].detach()
        side = LatentCodec.shrink * self.looks.cells
        if painted.shape[-1] != self.looks.cells:
            # The network reads latents of one size of faces. Others have to be drawn, shrunk and encoded, which is done
            # for the few watched rows alone.
            small = F.interpolate(shown, size=(side, side), mode="area")
            return F.smooth_l1_loss(self.looks.read(self.bundle.codec.encode(small))[:, :PAINTED], looks[watched])
        assert codes.mask is not None
        # Noise keeps the painter from drawing what the network alone takes for sex or age.
        noisy = painted + LOOKS_NOISE * torch.randn_like(painted)
        whole = self.looks.read(noisy)[:, :PAINTED]
        face = self.looks.read(noisy * codes.mask)[:, :PAINTED]
        return F.smooth_l1_loss(whole, looks) + F.smooth_l1_loss(face, looks)

    def _seen(self, image: Tensor) -> tuple[Tensor, list[Tensor]]:
        """What the recogniser sees in `(B, 3, S, S)`: embeddings `(B, E)`, and its maps where it has some."""
        # `Frozen` holds a `Normalised`, and that one holds the network whose maps are wanted.
        recogniser = self.bundle.recogniser.net  # type: ignore[attr-defined]
        if isinstance(recogniser.net, LayeredRecogniser):
            seen: tuple[Tensor, list[Tensor]] = recogniser.with_maps(image)
            return seen
        return recogniser(image), []

    def _shown(self, painted: Tensor, mask: Tensor, image: Tensor) -> Tensor:
        """Pictures `(B, 3, S, S)` of painted latents within `image`; only what a batch paints anew is decoded.

        The codec looks at the whole picture, though weakly: a window's pixels differ by 0.02 on average, which moves
        embeddings by a hundredth.
        """
        window = wider(window_of(mask), mask.shape[-1])
        top, bottom, left, right = window
        drawn = self.bundle.codec.decode(painted[:, :, top:bottom, left:right])
        return joined_in(window, drawn, mask, image)

    def _embedding(self, batch: FaceBatch) -> Tensor:
        """The training recogniser's embeddings of a batch, `(B, E)`."""
        if batch.embedding is not None:
            return batch.embedding.float()
        with torch.no_grad():
            return self.bundle.recogniser(batch.image)


def _expression(mesh: Tensor) -> Tensor:
    """Where eyes and inner lips are, of `(B, 468, 2)` in [-1, 1]: `(B, 104)`, spread to a deviation of about 1."""
    return mesh[:, list(EXPRESSION)].flatten(1) * 2


def _watched(rows: int, itself: Tensor | None = None) -> Tensor:
    """Numbers of the rows that the true recogniser looks at: the first that draw somebody else, else the first."""
    candidates = torch.arange(rows)
    if itself is not None and not bool(itself.all()):
        candidates = candidates[~itself.cpu()]
    return candidates[:WATCHED]


def _mean(losses: list[Tensor]) -> Tensor:
    """The mean of scalars."""
    return torch.stack(losses).mean()


def _one_stranger(readings: Tensor, identity: Tensor) -> Tensor:
    """1 - cos between the readings of pairs of one person's photos, on average; 0 where a batch has no pair."""
    same = (identity[:, None] == identity[None]) & (identity >= 0)[:, None]
    same = same & ~torch.eye(len(identity), dtype=torch.bool, device=identity.device)
    distance = 1 - readings @ readings.T
    return (distance * same).sum() / same.sum().clamp(min=1)
