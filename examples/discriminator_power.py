"""How well an untrained discriminator learns to tell painted faces: python examples/discriminator_power.py MODEL.

Three quarters of the training photographs of the bundle, and as many faces that MODEL paints of them under keys, train
it; the others tell how often a photograph looks more like one than a painted face does (AUC; .5 is a guess). What does
not get close to 1 within some hundred batches teaches a painter nothing.

The discriminator looks at latents; with --features the one that looks at a recogniser's feature maps is measured. It
sees both kinds through the codec, and the AUC of each of its maps is printed too, fine ones first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torchmetrics.functional import auroc

from faceanon.backbones.persona import Persona
from faceanon.data.prepared import PreparedFaces
from faceanon.losses.adversarial import discriminator_loss, r1_penalty
from faceanon.models import load_backbone
from faceanon.networks.feature_discriminator import FeatureDiscriminator
from faceanon.types import FaceBatch

MOST = 600  # photographs
ROWS = 32  # of each kind in a batch
R1_EVERY = 8


def batches(model: Persona) -> Iterator[FaceBatch]:
    """Photographs of the bundle, always the same."""
    data = PreparedFaces(bundle=model.bundle.name)
    data.setup()
    split = data.split("train")
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[:MOST].sort().values.tolist()
    for start in range(0, len(order), ROWS):
        yield split[[(row, 0) for row in order[start : start + ROWS]]]


@torch.no_grad()
def views(model: Persona) -> tuple[Tensor, Tensor]:
    """What the discriminator sees of photographs, and of the faces painted over them: `(N, 40, h, h)` each."""
    real = []
    painted = []
    for batch in batches(model):
        codes = model.encode_batch(batch)
        real.append(model.original_view(batch, codes))
        painted.append(model.drawn_view(model.edit(codes, model.sample_key(len(batch)))))
    return torch.cat(real), torch.cat(painted)


@torch.no_grad()
def feature_views(model: Persona) -> tuple[list[Tensor], list[Tensor]]:
    """The recogniser's maps of photographs that went through the codec, and of painted faces: `(N, C, h, h)` each."""
    real: list[list[Tensor]] = []
    painted: list[list[Tensor]] = []
    for batch in batches(model):
        codes = model.encode_batch(batch)
        drawn = model.paint(model.edit(codes, model.sample_key(len(batch))))
        assert codes.latents is not None
        assert codes.mask is not None
        real.append(model._seen(model._shown(codes.latents, codes.mask, batch.image))[1])
        painted.append(model._seen(model._shown(drawn, codes.mask, batch.image))[1])
    return [torch.cat(maps) for maps in zip(*real, strict=True)], [
        torch.cat(maps) for maps in zip(*painted, strict=True)
    ]


def main() -> None:
    """Train a discriminator and print its loss and AUC."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name or folder of a Persona")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate (3e-4)")
    parser.add_argument("--features", action="store_true", help="measure the one that looks at a recogniser's maps")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"pictures of each kind in a batch ({ROWS})")
    parser.add_argument("--r1", type=float, default=0.0, help="gamma of R1, every 8 batches, on latents only (0)")
    options = parser.parse_args()
    model = load_backbone(options.model)[0].eval()
    assert isinstance(model, Persona)
    torch.manual_seed(0)
    discriminator: nn.Module
    if options.features:
        real, painted = feature_views(model)
        discriminator = FeatureDiscriminator([maps.shape[1] for maps in real])
    else:
        latents = views(model)
        real = [latents[0]]
        painted = [latents[1]]
        discriminator = OneMap(model.new_discriminator())
    count = len(real[0])
    trained = count * 3 // 4
    tested = torch.arange(trained, count)
    optimizer = torch.optim.Adam(discriminator.parameters(), options.rate, betas=(0.0, 0.99))
    truth = torch.cat([torch.ones(len(tested)), torch.zeros(len(tested))]).long()
    for batch in range(1, options.batches + 1):
        discriminator.train()
        mine = rows_of(real, torch.randint(trained, (options.rows,)))
        theirs = rows_of(painted, torch.randint(trained, (options.rows,)))
        losses = []
        for one, other in zip(discriminator(mine), discriminator(theirs), strict=True):
            losses.append(discriminator_loss(one, other))
        loss = torch.stack(losses).mean()
        if options.r1 and isinstance(discriminator, OneMap) and batch % R1_EVERY == 0:
            loss = loss + R1_EVERY * options.r1 / 2 * r1_penalty(discriminator.net, mine[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch % 50 == 0:
            discriminator.eval()
            scores = torch.cat([judged(discriminator, real, tested), judged(discriminator, painted, tested)])
            by_map = []
            for column in scores.T:
                by_map.append(f"{float(auroc(column.sigmoid(), truth, 'binary')):.2f}")
            auc = float(auroc(scores.mean(1).sigmoid(), truth, "binary"))
            print(f"batch {batch}: loss {float(loss):.3f}, AUC {auc:.3f}, of each map {' '.join(by_map)}")


class OneMap(nn.Module):
    """A discriminator of latents with the interface of one of several maps."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Logits of the only map."""
        return [self.net(maps[0])]


def rows_of(maps: Sequence[Tensor], rows: Tensor) -> list[Tensor]:
    """Some rows of every map."""
    return [seen[rows] for seen in maps]


@torch.no_grad()
def judged(discriminator: nn.Module, maps: Sequence[Tensor], rows: Tensor) -> Tensor:
    """Mean logit `(N, maps)` of rows by each map."""
    parts = []
    for some in rows.split(ROWS):
        logits = discriminator(rows_of(maps, some))
        parts.append(torch.stack([of_map.mean(1) for of_map in logits], 1))
    return torch.cat(parts)


if __name__ == "__main__":
    main()
