"""How well two photos of a person agree, entry by entry of the code: python benchmarks/code_agreement.py [BUNDLE].

Fits the discriminants on 1,500 crossed groups as stage 1 does, and prints the correlation per entry over 400 persons
never seen, two photos each: the numbers to choose `code_dim` by.
"""

import sys

import torch

from faceanon.data.synthetic.datamodule import SyntheticFaces
from faceanon.networks.discriminants import Discriminants
from faceanon.weights.bundle import Bundle

ENTRIES = 40


def embeddings(bundle: Bundle, data: SyntheticFaces, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings `(N, E)` and persons `(N,)` of a split."""
    data.setup("fit" if split == "train" else split)
    loader = data.train_dataloader() if split == "train" else data.test_dataloader()
    found = [(bundle.recogniser(batch.image), batch.identity) for batch in loader]
    return torch.cat([item for item, _ in found]), torch.cat([person for _, person in found])


@torch.no_grad()
def main() -> None:
    """Print the table."""
    bundle = Bundle(sys.argv[1] if len(sys.argv) > 1 else "synth64")
    data = SyntheticFaces(train_groups=1500, test_identities=400, photos=2, batch_size=40)
    known, persons = embeddings(bundle, data, "train")
    directions = Discriminants(known.shape[1], ENTRIES)
    directions.fit(known, persons)
    codes = directions(embeddings(bundle, data, "test")[0])  # identity-major: photo 1, photo 2, next person
    first, second = codes[0::2] - codes[0::2].mean(0), codes[1::2] - codes[1::2].mean(0)
    correlation = (first * second).mean(0) / (first.square().mean(0) * second.square().mean(0)).sqrt()
    for start in range(0, ENTRIES, 10):
        row = " ".join(f"{value:6.2f}" for value in correlation[start : start + 10].tolist())
        print(f"entries {start + 1:>2} to {start + 10:>2}: {row}")


if __name__ == "__main__":
    main()
