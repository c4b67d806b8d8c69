"""Teach the flow painter whom not to draw: python tools/networks/train_hiding.py OUT --root FOLDER ...

FOLDER holds aligned photographs of people who do not exist; best are some that the flow was not trained on, since it
draws those by heart. Donors of two keys are put on each (`landmarks.cast`), mixed with noise, and led back in three
steps, as in use (`landmarks.redrawing`). Gradients run through one of these steps, from what the flow would end in.
They ask of the picture with the new face, through the frozen recogniser (a white box: judge by others):

- the face is not the person of the photograph, nor of its mirror image;
- two keys' faces are not alike;
- it is the donor;
- a discriminator takes its latents for a photograph's.

These gradients are about equally long, however good the flow is. Against them pull the flow before, moved away from the
person by one difference, and flow matching on photographs. The person's code is a further input, which begins at zero.
Short on purpose: what hides more after that makes faces ugly.

OUT gets `last.safetensors`, averaged weights in float16, of the flow with the further input. What is learned is small,
3 % of the weights: int4 rounds it away, int8 keeps it. With the defaults 12 minutes on one idle core of an Intel Xeon
with AMX.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.backbones.persona import MAPS, POSE, Persona
from faceanon.backbones.persona_cells import CLEAR, maps_shown
from faceanon.compat import move_all
from faceanon.data.prepared import shipped_test
from faceanon.files import save_tensors
from faceanon.landmarks.drawings import FINE
from faceanon.landmarks.redrawer import FILE
from faceanon.landmarks.redrawing import own_pixels, times
from faceanon.losses.light import TERMS
from faceanon.networks.face_painter import PaintingDiscriminator
from faceanon.networks.flow_painter import FlowPainter, flow_error
from faceanon.weights.shipped import read_tensors
from train_flow_painter import CELLS, Faces, all_versions, split_paths

KEYS = 2
STARTS = (0.45, 0.7)  # share of the put-on face in the mixture with noise, anywhere between
STEPS = (0.2, 0.3, 0.5)  # how often the gradient runs through each step
PICTURES = 6  # in a batch, each under both keys
PHOTOGRAPHS = 8  # in a batch, for flow matching
# Weights of the terms; flow matching has 1.
HIDE = 1.0
APART = 0.5
DONOR = 0.5
NATURAL = 0.5
ANCHOR = 0.3
UNLIKE = 0.2  # cosine of two keys' faces from which they are pulled apart
AWAY = 1.0  # differences by which the flow before is led away from the person
LENGTH = 0.03  # of a term's gradient on a batch's latents
RATE = 1e-4
NEW = 5  # rates of the new input
WARM = 10  # batches
FALL = 0.3  # share of the batches, at the end, in which the rate falls
HALF_LIFE = 50  # batches, of the averaged weights
JUDGED = 40  # batches from which the discriminator teaches
REPLAY = 240  # faces that the discriminator is shown again
SHOWN = 20  # ... of them in a batch


@dataclass
class PutOn:
    """N photographs under two keys, `(N, ...)`, and `(N, 2, ...)` the faces put on them.

    Args:
        picture: `(N, 3, 128, 128)` in [-1, 1].
        embedding: `(N, E)` of the persons.
        latents: `(N, 32, h, h)`.
        mask: `(N, 1, h, h)`.
        maps: `(N, maps, h, h)`.
        attributes: `(N, 21)`, light and pose.
        identity: `(N, 64)` codes of the persons.
        own: `(N, 1, 128, 128)`, of `own_pixels`.
        put_on: `(N, 2, 3, 128, 128)`.
        put_latents: `(N, 2, 32, h, h)`.
        put_maps: `(N, 2, maps, h, h)`.
        put_identity: `(N, 2, 64)`.
    """

    picture: Tensor
    embedding: Tensor
    latents: Tensor
    mask: Tensor
    maps: Tensor
    attributes: Tensor
    identity: Tensor
    own: Tensor
    put_on: Tensor
    put_latents: Tensor
    put_maps: Tensor
    put_identity: Tensor


@torch.no_grad()
def put_on(method: Persona, pictures: Tensor) -> PutOn:
    """Put donors on pictures `(M, 3, 128, 128)` in [-1, 1]; those on which none could be put are left out."""
    parts: list[list[Tensor]] = []
    random = torch.Generator().manual_seed(0)
    for picture in tqdm(pictures.split(8), "put on", mininterval=5):  # type: ignore[no-untyped-call]
        codes, embedding, confidence = method._look(picture)
        assert codes.latents is not None
        assert codes.mask is not None
        assert codes.features is not None
        assert codes.attributes is not None
        targets = method._targets(picture, codes)
        good = confidence >= CLEAR
        faces: list[list[Tensor]] = []
        for _ in range(KEYS):
            key = method.sample_key(len(picture), random)
            drawn = torch.from_numpy(method._with_donors(targets, codes, [embedding], key)[0])
            good &= drawn.isfinite().all(3).all(2).all(1)
            latents, stranger, sure = method._read_put_on(drawn.nan_to_num(), codes)
            assert stranger.features is not None
            good &= sure >= CLEAR
            faces.append([drawn, latents, stranger.features[CELLS], stranger.identity])
        known = [picture, embedding.float(), codes.latents, codes.mask, codes.features[CELLS], codes.attributes[:, 0]]
        known += [codes.identity, torch.from_numpy(own_pixels(targets))[:, None]]
        known += [torch.stack(column, 1) for column in zip(*faces, strict=True)]
        parts.append([column[good] for column in known])
    return PutOn(*(torch.cat(column) for column in zip(*parts, strict=True)))


class Told(nn.Module):
    """The first layer of a flow's condition, which hears of the person too, after the wanted face; deaf at first.

    Args:
        layer: The layer before.
        length: Of a code.
    """

    def __init__(self, layer: nn.Linear, length: int) -> None:
        super().__init__()
        self.length = length
        self.layer = layer
        self.person = nn.Linear(length, layer.out_features, bias=False)
        nn.init.zeros_(self.person.weight)

    def forward(self, told: Tensor) -> Tensor:
        """Told `(R, 2 length + rest)` -> `(R, hidden)`."""
        wanted, person, rest = told.split([self.length, self.length, told.shape[1] - 2 * self.length], 1)  # type: ignore[no-untyped-call]
        heard: Tensor = self.layer(torch.cat([wanted, rest], 1)) + self.person(person)
        return heard

    def joined(self) -> Tensor:
        """The weight `(hidden, 2 length + rest)` of one layer that does the same."""
        weight = self.layer.weight
        return torch.cat([weight[:, : self.length], self.person.weight, weight[:, self.length :]], 1)


class Lengths:
    """Brings each term's gradients to one length, by a mean over the last batches."""

    def __init__(self) -> None:
        self.means: dict[str, float] = {}

    def of(self, name: str, gradient: Tensor, weight: float = 1.0) -> Tensor:
        """A gradient `(R, ...)`, so long that a row that has one has `LENGTH` / R in the mean."""
        lengths = gradient.flatten(1).norm(dim=1)
        active = lengths > 0
        if active.any():
            now = float(lengths[active].mean())
            self.means[name] = 0.9 * self.means.get(name, now) + 0.1 * now
        if name not in self.means:
            return gradient
        return gradient * (weight * LENGTH / len(gradient) / self.means[name])


def seen_otherwise(picture: Tensor) -> Tensor:
    """Pictures `(R, 3, S, S)` as a recogniser may meet them: turned, moved, resized, blurred, in other light."""
    rows = len(picture)
    angle = 0.16 * (torch.rand(rows) - 0.5)
    size = 1 + 0.12 * (torch.rand(rows) - 0.5)
    moved = 0.1 * (torch.rand(rows, 2) - 0.5)
    cos = size * angle.cos()
    sin = size * angle.sin()
    first = torch.stack([cos, -sin, moved[:, 0]], 1)
    second = torch.stack([sin, cos, moved[:, 1]], 1)
    grid = F.affine_grid(torch.stack([first, second], 1), list(picture.shape), align_corners=False)
    seen = F.grid_sample(picture, grid, padding_mode="reflection", align_corners=False)
    if torch.rand(()) < 0.5:
        seen = seen.flip(-1)
    if torch.rand(()) < 0.5:
        share = 0.5 * torch.rand(())
        seen = seen + share * (F.avg_pool2d(seen, 3, 1, 1, count_include_pad=False) - seen)
    light = 0.85 + 0.3 * torch.rand(rows, 1, 1, 1)
    return (seen * light + 0.2 * (torch.rand(rows, 1, 1, 1) - 0.5)).clamp(-1.2, 1.2)


class Hiding:
    """A training of the flow.

    Args:
        method: Persona, in use.
        data: The photographs with put-on faces.
        mirrored: `(N, E)` embeddings of the photographs' mirror images.
        faces: Photographs for flow matching.
        batches: How many will be trained.
    """

    def __init__(self, method: Persona, data: PutOn, mirrored: Tensor, faces: Faces, batches: int) -> None:
        self.method = method
        self.data = data
        self.mirrored = mirrored
        self.faces = faces
        self.batches = batches
        size = method.identities.size
        self.flow = FlowPainter(maps=MAPS, condition=size + 3 * TERMS + POSE)
        self.flow.load_state_dict(read_tensors(FILE))
        first = self.flow.painter.embed[0]
        assert isinstance(first, nn.Linear)
        heard = Told(first, size)
        self.flow.painter.embed[0] = heard
        # Without dropout: what is trained is what is used.
        self.flow.eval().to(memory_format=torch.channels_last)
        self.before = copy.deepcopy(self.flow).requires_grad_(False)
        self.average = copy.deepcopy(self.flow).requires_grad_(False)
        self.critic = PaintingDiscriminator(CELLS, maps=8)
        known = [value for value in self.flow.parameters() if value is not heard.person.weight]
        groups = [{"params": known, "lr": RATE}, {"params": [heard.person.weight], "lr": NEW * RATE}]
        self.optimizer = torch.optim.AdamW(groups, RATE, (0.9, 0.99), weight_decay=0.0)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), 1e-3, (0.5, 0.99))
        self.lengths = Lengths()
        self.replay: list[tuple[Tensor, Tensor]] = []
        self.batch = 0

    def step(self) -> str:
        """One batch; returns what the recogniser sees, in words."""
        done = self.batch / self.batches
        rate = RATE * min(1, (self.batch + 1) / WARM, max(0.02, (1 - done) / FALL))
        for group, times_rate in zip(self.optimizer.param_groups, (1, NEW), strict=True):
            group["lr"] = times_rate * rate
        self.optimizer.zero_grad(set_to_none=True)
        told = self._strangers()
        self._match()
        nn.utils.clip_grad_norm_(self.flow.parameters(), 1.0)
        self.optimizer.step()
        self.batch += 1
        share = max(1 - 0.5 ** (1 / HALF_LIFE), 1 / (self.batch + 1))
        with torch.no_grad():
            move_all(list(self.average.parameters()), list(self.flow.parameters()), share)
        return told

    def trained(self) -> dict[str, Tensor]:
        """The averaged weights, as those of a `FlowPainter`."""
        heard = self.average.painter.embed[0]
        assert isinstance(heard, Told)
        tensors = {}
        for name, value in self.average.state_dict().items():
            if not name.startswith("painter.embed.0."):
                tensors[name] = value
        bias = heard.layer.bias
        return tensors | {"painter.embed.0.weight": heard.joined(), "painter.embed.0.bias": bias}

    def _strangers(self) -> str:
        """Gradients from faces under two keys; returns what the recogniser sees of them."""
        data = self.data
        rows = torch.randint(len(data.picture), (PICTURES,)).repeat(KEYS)
        key = torch.arange(KEYS).repeat_interleave(PICTURES)
        latents = data.latents[rows]
        mask = data.mask[rows]
        maps = data.put_maps[rows, key]
        attributes = data.attributes[rows]
        person = data.identity[rows]
        donor = data.put_identity[rows, key]
        told = torch.cat([donor, person, attributes], 1)
        start = STARTS[0] + (STARTS[1] - STARTS[0]) * float(torch.rand(()))
        way = times(start, len(STEPS))
        turn = int(torch.multinomial(torch.tensor(STEPS), 1))
        here = (1 - start) * torch.randn_like(latents) + start * data.put_latents[rows, key]
        with torch.no_grad():
            for begin, end in pairwise(way[: turn + 1]):
                here = here + (end - begin) * directed(self.flow, here, begin, latents, mask, maps, told)
            own = torch.cat([person, person, attributes], 1)
            wanted = directed(self.before, here, way[turn], latents, mask, maps, told)
            wanted = wanted + AWAY * (wanted - directed(self.before, here, way[turn], latents, mask, maps, own))
        direction = directed(self.flow, here, way[turn], latents, mask, maps, told)
        # What the flow would end in from here on.
        face = here + (1 - way[turn]) * direction.detach()
        face = (latents * (1 - mask) + face * mask).requires_grad_()
        drawn = self.method._joined(face, mask, data.picture[rows])
        drawn = drawn * (1 - data.own[rows]) + data.put_on[rows, key] * data.own[rows]
        pull, seen = self._hidden(face, drawn, rows, donor)
        if turn > 0:
            pull = pull + self._natural(face, rows, key)
        off = ((direction - wanted) * mask).square().sum((1, 2, 3)) / mask.sum((1, 2, 3)) / latents.shape[1]
        torch.autograd.backward([direction, ANCHOR * off.mean()], [pull * mask, None])
        return seen

    def _hidden(self, face: Tensor, drawn: Tensor, rows: Tensor, donor: Tensor) -> tuple[Tensor, str]:
        """Gradients `(R, 32, h, h)` on latents of what the recogniser sees, and this in words.

        Args:
            face: `(R, 32, h, h)` latents.
            drawn: `(R, 3, S, S)` pictures with them.
            rows: Of the photographs.
            donor: `(R, 64)` codes of those whose faces were put on.
        """
        space = self.method.identities
        seen = self.method.bundle.recogniser(seen_otherwise(drawn)).float()
        known = torch.stack([self.data.embedding[rows], self.mirrored[rows]])
        alike = (known * seen).sum(-1).amax(0)
        pair = (seen[:PICTURES] * seen[PICTURES:]).sum(1)
        free = space.free_basis
        as_donor = F.cosine_similarity(space.code(seen) @ free, donor @ free)
        terms = {
            "hide": (HIDE, F.relu(alike) + 2 * F.relu(alike).square()),
            "apart": (APART, F.relu(pair - UNLIKE)),
            "donor": (DONOR, 1 - as_donor),
        }
        pull = torch.zeros_like(seen)
        for name, (weight, term) in terms.items():
            pull = pull + self.lengths.of(name, torch.autograd.grad(term.sum(), seen, retain_graph=True)[0], weight)
        found = torch.autograd.grad(seen, face, pull)[0]
        # How much decoder and recogniser lengthen a gradient in the mean is taken out.
        ratio = float(found.flatten(1).norm(dim=1).mean() / pull.norm(dim=1).mean().clamp_min(1e-9))
        longer = self.lengths.means.get("decoder", ratio)
        self.lengths.means["decoder"] = 0.9 * longer + 0.1 * ratio
        words = f"person {float(alike.detach().mean()):.3f}, keys {float(pair.detach().mean()):.3f}"
        return found / self.lengths.means["decoder"], f"{words}, donor {float(as_donor.detach().mean()):.3f}"

    def _natural(self, face: Tensor, rows: Tensor, key: Tensor) -> Tensor:
        """Gradients `(R, 32, h, h)` on latents towards photographs', of a discriminator that learns along."""
        data = self.data
        drawn = torch.cat([face, shown(data.put_maps[rows, key])], 1)
        real = torch.cat([data.latents[rows], shown(data.maps[rows])], 1)
        self.replay = [*self.replay, *zip(drawn.detach(), real, strict=True)][-REPLAY:]
        pull = torch.zeros_like(face)
        if self.batch >= JUDGED:
            self.critic.requires_grad_(False)
            with torch.autocast("cpu", torch.bfloat16):
                told = self.critic(torch.cat([drawn, real])).float()
            behind = F.softplus(told[len(rows) :].detach() - told[: len(rows)]).mean(1).sum()
            pull = self.lengths.of("natural", torch.autograd.grad(behind, face)[0], NATURAL)
            self.critic.requires_grad_(True)
        some = [self.replay[number] for number in torch.randint(len(self.replay), (SHOWN,)).tolist()]
        both = torch.cat([torch.stack([one for one, _ in some]), torch.stack([one for _, one in some])])
        if torch.rand(()) < 0.5:
            both = both.flip(-1)
        with torch.autocast("cpu", torch.bfloat16):
            told = self.critic(both).float()
        fake = told[:SHOWN]
        true = told[SHOWN:]
        loss = F.softplus(fake - true).mean() + 0.005 * (fake.square().mean() + true.square().mean())
        self.critic_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.critic_optimizer.step()
        return pull

    def _match(self) -> None:
        """Gradients of flow matching on photographs, mostly with another's code as that of whom not to draw."""
        rows = torch.randint(len(self.faces), (PHOTOGRAPHS,))
        codes = self.faces.codes(rows, train=True)
        assert codes.latents is not None
        assert codes.mask is not None
        assert codes.features is not None
        assert codes.attributes is not None
        latents = codes.latents
        mask = codes.mask
        maps = codes.features[CELLS]
        another = codes.identity.roll(1, 0) * (torch.rand(PHOTOGRAPHS, 1) < 0.7)
        told = torch.cat([codes.identity, another, codes.attributes[:, 0]], 1)

        def direction(noisy: Tensor, at: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                found: Tensor = self.flow(noisy, at, latents, mask, maps, told)
            return found.float()

        photographs = self.faces.latents[rows].float()
        at = torch.sigmoid(torch.randn(PHOTOGRAPHS))
        error = flow_error(direction, photographs, mask, torch.randn_like(photographs), at).mean()
        error.backward()  # type: ignore[no-untyped-call]


def directed(
    flow: FlowPainter, here: Tensor, time: float, latents: Tensor, mask: Tensor, maps: Tensor, told: Tensor
) -> Tensor:
    """Directions `(R, 32, h, h)` of a flow, computed in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        found: Tensor = flow(here, here.new_full((len(here),), time), latents, mask, maps, told)
    return found.float()


def shown(maps: Tensor) -> Tensor:
    """What a discriminator is told of faces: mask and drawings `(R, 8, h, h)` of maps `(R, maps, h, h)`."""
    return maps_shown(maps[:, :1], F.pixel_shuffle(maps[:, 1:-3], FINE))


def main() -> None:
    """Put donors on, train, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", nargs="+", required=True, help="folders of aligned photographs")
    parser.add_argument("--pictures", type=int, default=340, help="how many, chosen at random (340)")
    parser.add_argument("--batches", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(0)
    learnt = split_paths(options.root)[0]
    chosen = [learnt[number] for number in torch.randperm(len(learnt))[: options.pictures].sort().values.tolist()]
    versions = all_versions(chosen, (0, 1))
    method = Persona(cast=True, redraw=True).train()
    faces = Faces(versions, method, shipped_test(method.bundle))
    method.eval()
    data = put_on(method, faces.picture.float() / 127.5 - 1)
    with torch.no_grad():
        mirrored = torch.cat([method.bundle.recogniser(some.flip(-1)).float() for some in data.picture.split(32)])  # type: ignore[no-untyped-call]
    print(f"{len(data.picture)} pictures", flush=True)
    hiding = Hiding(method, data, mirrored, faces, options.batches)
    for _ in range(options.batches):
        print(hiding.batch, hiding.step(), flush=True)
    save_tensors(options.out / "last.safetensors", hiding.trained(), half=True)


if __name__ == "__main__":
    main()
