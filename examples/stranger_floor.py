"""How often the judge takes two strangers for one: python examples/stranger_floor.py [BUNDLE].

Once for any two strangers, and once for two who share pose, expression, hair, light and background, as an original and
what a wrong key makes of it do. The renderer draws both, so this is a method without any fault, and the second figure
is what a wrong-key rate comes to that does not steer clear of the original.
"""

import sys

import torch
from torch.nn import functional as F

from faceanon.data.synthetic.datamodule import SyntheticFaces
from faceanon.metrics.recognition import threshold_at_far
from faceanon.weights.bundle import Bundle

CODE = 20


@torch.no_grad()
def main() -> None:
    """Print the rates."""
    judge = Bundle(sys.argv[1] if len(sys.argv) > 1 else "synth64").judge
    data = SyntheticFaces(train_groups=1000, test_identities=200, photos=2, batch_size=40, seed=77)
    data.setup("test")
    found = [(judge(batch.image), batch.identity) for batch in data.test_dataloader()]
    rows, person = torch.cat([item for item, _ in found]), torch.cat([item for _, item in found])
    threshold = threshold_at_far((rows @ rows.T)[person[:, None] != person], 0.01)
    data.setup("fit")
    drawn = [(judge(batch.image), batch.identity, batch.attribute) for batch in data.train_dataloader()]
    rows, person, attribute = (torch.cat(column) for column in zip(*drawn, strict=True))
    close, other, alike = rows @ rows.T > threshold, person[:, None] != person, attribute[:, None] == attribute
    print(f"threshold of the judge at FAR 1e-2:       {threshold:.3f}")
    print(f"two strangers taken for one:              {close[other & ~alike].float().mean():.4f}")
    print(f"... who share every attribute:            {close[other & alike].float().mean():.4f}")
    chance = F.normalize(torch.randn(10**6, CODE, generator=torch.Generator().manual_seed(0)), dim=1)[:, 0]
    for cosine in (0.4, 0.5, 0.6):
        print(f"two codes of {CODE} entries with cosine > {cosine}: {(chance > cosine).float().mean():.4f}")


if __name__ == "__main__":
    main()
