"""Can a network tell a model's pictures from real ones? It learns from half of the persons and is tested on the others.

Real pictures go through the codec once (`ROUND_TRIP`), so that only what the model painted can give its pictures away.
A model that puts photographed faces on draws nothing by a codec: then it is the codec's traces in the real pictures
that tell. So a second network tells the model's pictures from the originals as they are.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.data.batches import hold_out
from faceanon.errors import UserError
from faceanon.metrics.interval import statistic_interval
from faceanon.metrics.roc import area_under_roc
from faceanon.networks.critics import block
from faceanon.photo.align import whole_picture
from faceanon.photo.crop_paste import crop
from faceanon.studies.photographs.figures import Figures
from faceanon.studies.photographs.people import Person
from faceanon.studies.photographs.pictures import ORIGINAL, ROUND_TRIP, PhotographsSetting, place, read_pixels

WIDTHS = (16, 32, 64, 96, 128)
BATCH = 32
LEARNING_RATE = 1e-3
CHECKS = 10  # how often the network is tried on the persons that choose the best moment
FEWEST_PEOPLE = 6
DRAWS = 500


class Teller(nn.Module):
    """A small convolutional network that says how drawn a picture looks.

    Args:
        widths: Channels after each halving of the picture.
    """

    def __init__(self, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in zip((3, *widths[:-1]), widths, strict=True):
            layers += [block(inputs, outputs, 2), block(outputs, outputs)]
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], 1)

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` in [-1, 1] -> logits `(B,)`; the higher, the more drawn."""
        logits: Tensor = self.head(self.trunk(image).mean((2, 3)))
        return logits[:, 0]


@dataclass(frozen=True)
class TellingPairs:
    """Pictures of some persons: the model's, and real ones of the same originals.

    Args:
        drawn: `(N, 3, S, S)` in [-1, 1].
        real: `(N, 3, S, S)` in [-1, 1], the originals or the codec's round trips of them.
        person: `(N,)` labels.
    """

    drawn: Tensor
    real: Tensor
    person: Tensor


@dataclass(frozen=True)
class Told:
    """How well a network tells a model's pictures from real ones.

    Args:
        area: Its area under the ROC curve on persons that it has not seen; .5 is chance.
        interval: 95 % of it, over persons.
        curve: The area on the choosing persons, by training batch.
    """

    area: float
    interval: tuple[float, float]
    curve: dict[int, float]


def telling_figures(
    people: Sequence[Person],
    setting: PhotographsSetting,
    cache: Path,
    image_size: int,
    steps: int,
    figures: Figures,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> None:
    """Train the network and add `told_apart`, its area under the ROC curve on persons it has not seen.

    `told_apart/originals` is that of a second network, for which real pictures are the originals.

    Args:
        people: All persons; half are the attacker's, and a fifth of those choose when the network was at its best.
        setting: Which versions there are.
        cache: The study's cache, with round trips.
        image_size: Side at which the network looks; the model's.
        steps: Training batches of 32 pictures of each kind.
        figures: Where to.
        device: Where the network runs.
        seed: Of the split, of the weights and of the order.

    Raises:
        UserError: There are too few persons to learn from some and to test on others.
    """
    if len(people) < FEWEST_PEOPLE:
        raise UserError(
            f"{len(people)} persons are too few to train a network on some and to test it on others: "
            f"give {FEWEST_PEOPLE} or more, or leave the network out with --tell-steps 0"
        )
    groups = split_people(people, seed)
    for name, real_version in (("told_apart", ROUND_TRIP), ("told_apart/originals", ORIGINAL)):
        told = tell([_load(group, setting, cache, image_size, real_version) for group in groups], steps, device, seed)
        figures.values[name] = told.area
        figures.intervals[name] = told.interval
        # The curve as well: it shows whether the network had learnt enough by the end.
        for step, value in told.curve.items():
            figures.values[f"{name}/choosing/{step}"] = value


def split_people(people: Sequence[Person], seed: int) -> list[list[Person]]:
    """Who is learnt from, who chooses the network's best moment, and who is tested on; the last are half of all.

    Args:
        people: All persons.
        seed: Of the split.
    """
    # By persons, since a network may know a face by heart.
    numbers = [str(person.number) for person in people]
    choosing, test = hold_out(numbers, max(1, len(people) // 10), len(people) // 2, seed)
    training = set(numbers) - choosing - test
    groups = []
    for names in (training, choosing, test):
        groups.append([person for person in people if str(person.number) in names])
    return groups


def tell(parts: Sequence[TellingPairs], steps: int, device: torch.device | str = "cpu", seed: int = 0) -> Told:
    """Train a network on the first part, choose its best moment on the second, and test it on the third.

    Args:
        parts: Pictures of three groups of persons, as `split_people` gives them.
        steps: Training batches of 32 pictures of each kind.
        device: Where the network runs.
        seed: Of the weights and of the order.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net, curve = _train(parts[0], parts[1], steps, torch.device(device))
    held_out = parts[2]
    drawn = _scores(net, held_out.drawn)
    real = _scores(net, held_out.real)
    return Told(area_under_roc(drawn, real), _interval(drawn, real, held_out.person, seed), curve)


def _load(
    people: Sequence[Person], setting: PhotographsSetting, cache: Path, image_size: int, real_version: str
) -> TellingPairs:
    """One picture of either kind for every original; the passwords take turns."""
    versions = setting.versions("anonymized")
    drawn = []
    real = []
    person = []
    for one in people:
        for number, picture in enumerate(one.pictures):
            drawn.append(_face(place(cache, picture, versions[number % len(versions)]), image_size))
            real.append(_face(place(cache, picture, real_version), image_size))
            person.append(one.number)
    return TellingPairs(torch.stack(drawn), torch.stack(real), torch.tensor(person))


def _face(path: Path, image_size: int) -> Tensor:
    pixels = read_pixels(path)
    return torch.from_numpy(crop(pixels, whole_picture(pixels.shape[1], pixels.shape[0]), image_size))


def _train(
    known: TellingPairs, choosing: TellingPairs, steps: int, device: torch.device
) -> tuple[nn.Module, dict[int, float]]:
    """The network at its best moment, and its area under the curve on `choosing` by step."""
    net = Teller().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), LEARNING_RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best = copy.deepcopy(net)
    curve: dict[int, float] = {}
    checks = set()
    for number in range(CHECKS):
        # The last one falls on the last batch.
        checks.add(math.ceil(steps * (number + 1) / CHECKS))
    for step in tqdm(range(1, steps + 1), desc="telling drawn from real", delay=2, leave=False):
        rows = torch.randint(len(known.person), (BATCH,))
        # Both kinds are of the same originals, so nothing but the drawing differs.
        pictures = torch.cat([known.drawn[rows], known.real[rows]]).to(device)
        # Each picture by itself, so that no direction goes with one of the kinds.
        mirrored = torch.rand(len(pictures), device=device)[:, None, None, None] < 0.5
        pictures = torch.where(mirrored, pictures.flip(3), pictures)
        labels = torch.cat([torch.ones(BATCH), torch.zeros(BATCH)]).to(device)
        # Into training mode each time: a check leaves the network in eval mode.
        loss = F.binary_cross_entropy_with_logits(net.train()(pictures), labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
        if step in checks:
            value = area_under_roc(_scores(net, choosing.drawn), _scores(net, choosing.real))
            if not curve or value > max(curve.values()):
                best = copy.deepcopy(net)
            curve[step] = value
    return best, curve


@torch.inference_mode()
def _scores(net: nn.Module, pictures: Tensor) -> Tensor:
    """Logits `(N,)`, mirrored pictures counted with the others."""
    net.eval()
    device = next(net.parameters()).device
    parts = []
    for part in torch.split(pictures, BATCH):
        parts.append(net(part.to(device)) + net(part.flip(3).to(device)))
    return torch.cat(parts).cpu()


def _interval(drawn: Tensor, real: Tensor, person: Tensor, seed: int) -> tuple[float, float]:
    """95 % interval of the area, by the bootstrap over persons."""

    def area(rows: NDArray[np.int64]) -> float:
        return area_under_roc(drawn[torch.from_numpy(rows)], real[torch.from_numpy(rows)])

    interval = statistic_interval(area, person.numpy(), DRAWS, seed)
    # An area is a number for every draw.
    assert interval is not None
    return interval
