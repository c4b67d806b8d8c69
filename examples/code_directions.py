"""What an identity code of K entries holds of a recogniser's embeddings, on persons whom it was not fitted on.

    python examples/code_directions.py runs/testbed64 FOLDER_OF_PERSONS FOLDER_OF_PICTURES...

Codes are fitted on the training pictures of configs/data/folder.yaml, once along discriminants and once along principal
components; the embedding of a held-out picture is guessed from its code by least squares. Printed are the mean cosine
between guess and embedding, and how often two pictures of one person are nearer to each other, by code, than 99 % of
the pairs of two persons.
"""

import sys

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.data.folder import FolderFaces
from faceanon.metrics.recognition import threshold_at_far
from faceanon.networks.discriminants import Discriminants
from faceanon.weights.bundle import Bundle


@torch.no_grad()
def embeddings(bundle: Bundle, data: FolderFaces, held_out: bool) -> tuple[Tensor, Tensor]:
    """Embeddings `(N, E)` and persons `(N,)`."""
    loader = data.test_dataloader() if held_out else data.train_dataloader()
    rows = [(bundle.recogniser(batch.image), batch.identity) for batch in loader]
    return torch.cat([row for row, _ in rows]), torch.cat([person for _, person in rows])


def true_pairs(codes: Tensor, person: Tensor) -> float:
    """Share of a person's pairs of pictures accepted where 1 % of the others are."""
    likeness = F.normalize(codes, dim=1) @ F.normalize(codes, dim=1).T
    same = person[:, None] == person[None]
    return float(
        (likeness[same & ~torch.eye(len(codes)).bool()] > threshold_at_far(likeness[~same], 0.01)).float().mean()
    )


def main() -> None:
    """Print the table."""
    bundle, roots = Bundle(sys.argv[1]), sys.argv[2:]
    data = FolderFaces(
        roots, image_size=64, batch_size=64, val_identities=3, test_identities=10, min_photos=2, seed=0, workers=0
    )
    data.setup("fit")
    data.setup("test")
    (rows, person), (new, new_person) = (embeddings(bundle, data, held_out) for held_out in (False, True))
    print(f"{len(rows)} pictures to fit on, {len(new)} of {len(new_person.unique())} other persons")
    print(f"the embedding itself: true pairs {true_pairs(new, new_person):.3f}")
    for length in (20, 64, 128):
        for name, labels in (("discriminants", person), ("principal", torch.full_like(person, -1))):
            code = Discriminants(rows.shape[1], length)
            code.fit(rows, labels)
            known, found = (torch.cat([code(item), torch.ones(len(item), 1)], 1) for item in (rows, new))
            guess = found @ torch.linalg.lstsq(known, rows).solution
            cosine = F.cosine_similarity(guess, new).mean()
            print(f"{name:>13}, {length:3}: cosine {cosine:.3f}, true pairs {true_pairs(code(new), new_person):.3f}")


if __name__ == "__main__":
    main()
