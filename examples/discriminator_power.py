"""How well an untrained discriminator learns to tell painted faces: python examples/discriminator_power.py MODEL.

Three quarters of the training photographs of the bundle, and as many faces that MODEL paints of them under keys, train
it; the others tell how often a photograph looks more like one than a painted face does (AUC; .5 is a guess). What does
not get close to 1 within some hundred batches teaches a painter nothing.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torchmetrics.functional import auroc

from faceanon.backbones.persona import Persona
from faceanon.data.prepared import PreparedFaces
from faceanon.losses.adversarial import discriminator_loss, r1_penalty
from faceanon.models import load_backbone

MOST = 600  # photographs
ROWS = 32  # of each kind in a batch
R1_EVERY = 8


@torch.no_grad()
def views(model: Persona) -> tuple[Tensor, Tensor]:
    """What the discriminator sees of photographs, and of the faces painted over them: `(N, 40, h, h)` each."""
    data = PreparedFaces(bundle=model.bundle.name)
    data.setup()
    split = data.split("train")
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[:MOST].sort().values.tolist()
    real = []
    painted = []
    for start in range(0, len(order), ROWS):
        batch = split[[(row, 0) for row in order[start : start + ROWS]]]
        codes = model.encode_batch(batch)
        real.append(model.original_view(batch, codes))
        painted.append(model.drawn_view(model.edit(codes, model.sample_key(len(batch)))))
    return torch.cat(real), torch.cat(painted)


def main() -> None:
    """Train a discriminator and print its loss and AUC."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name or folder of a Persona")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate (3e-4)")
    parser.add_argument("--r1", type=float, default=0.0, help="gamma of R1, applied every 8 batches (0)")
    options = parser.parse_args()
    model = load_backbone(options.model)[0].eval()
    torch.manual_seed(0)
    real, painted = views(model)
    trained = len(real) * 3 // 4
    discriminator = model.new_discriminator()
    optimizer = torch.optim.Adam(discriminator.parameters(), options.rate, betas=(0.0, 0.99))
    truth = torch.cat([torch.ones(len(real) - trained), torch.zeros(len(real) - trained)]).long()
    for batch in range(1, options.batches + 1):
        discriminator.train()
        mine = real[torch.randint(trained, (ROWS,))]
        theirs = painted[torch.randint(trained, (ROWS,))]
        loss = discriminator_loss(discriminator(mine), discriminator(theirs))
        if options.r1 and batch % R1_EVERY == 0:
            loss = loss + R1_EVERY * options.r1 / 2 * r1_penalty(discriminator, mine)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch % 50 == 0:
            discriminator.eval()
            with torch.no_grad():
                scores = torch.cat([discriminator(real[trained:]).mean(1), discriminator(painted[trained:]).mean(1)])
            print(f"batch {batch}: loss {float(loss):.3f}, AUC {float(auroc(scores.sigmoid(), truth, 'binary')):.3f}")


if __name__ == "__main__":
    main()
