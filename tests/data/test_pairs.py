import torch

from faceanon.data.pairs import identity_sources
from faceanon.types import FaceBatch


def crossed(groups):
    """Groups of (id0, att0), (id0, att1), (id1, att0), (id1, att1)."""
    identity = torch.tensor([[2 * g, 2 * g, 2 * g + 1, 2 * g + 1] for g in range(groups)]).flatten()
    attribute = torch.tensor([[2 * g, 2 * g + 1, 2 * g, 2 * g + 1] for g in range(groups)]).flatten()
    return FaceBatch(torch.zeros(4 * groups, 3, 8, 8), identity, attribute)


def test_others_takes_the_row_before_in_every_batch():
    rows = torch.arange(5)
    batch = FaceBatch(torch.zeros(5, 3, 8, 8), rows, rows)
    for number in range(4):
        assert torch.equal(identity_sources(batch, number, "others"), rows.roll(1))


def test_roll_takes_the_row_before_and_every_third_batch_itself():
    batch = crossed(2)
    rows = torch.arange(8)
    assert torch.equal(identity_sources(batch, 0, "roll"), rows)
    assert torch.equal(identity_sources(batch, 1, "roll"), rows.roll(1))
    assert torch.equal(identity_sources(batch, 3, "roll"), rows)


def test_mixed_sources_are_of_all_kinds():
    batch = crossed(4)
    torch.manual_seed(0)
    kinds = set()
    for _ in range(50):
        source = identity_sources(batch, 1, "mixed")
        rows = torch.arange(16)
        same = batch.identity[source] == batch.identity
        kinds |= {"self"} if (source == rows).any() else set()
        kinds |= {"mate"} if (same & (source != rows)).any() else set()
        kinds |= {"stranger"} if (~same).any() else set()
    assert kinds == {"self", "mate", "stranger"}
