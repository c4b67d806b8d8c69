"""Turns that the inverse password undoes."""

import pytest
import torch

from faceanon.networks.bit_turns import BitTurns


def passwords(count, bits, seed=0):
    return torch.randint(2, (count, bits), generator=torch.Generator().manual_seed(seed)).float() - 0.5


def test_every_code_turns_by_the_angle_and_two_passwords_lead_apart():
    turns = BitTurns(400, bits=16, angle=110.0)
    code = torch.randn(50, 400, generator=torch.Generator().manual_seed(1))
    first = turns(code, passwords(50, 16))
    cosine = torch.cosine_similarity(first, code)
    torch.testing.assert_close(cosine, torch.full((50,), -0.342), atol=1e-3, rtol=0)
    torch.testing.assert_close(turns(first, -passwords(50, 16)), code, atol=1e-4, rtol=1e-4)
    # Half of the pairs turn to the other side: (1 + cos 220) / 2 = .12.
    other = turns(code, passwords(50, 16, seed=2))
    assert torch.cosine_similarity(first, other).mean() == pytest.approx(0.12, abs=0.06)
    wrong = turns(first, -passwords(50, 16, seed=3))
    assert torch.cosine_similarity(wrong, code).mean() == pytest.approx(0.12, abs=0.06)


def test_pairs_do_not_all_follow_the_same_bits():
    turns = BitTurns(400, bits=16, angle=90.0)
    assert len({tuple(row) for row in turns.triples.tolist()}) > 150
    one = passwords(1, 16)
    another = one.clone()
    another[0, 5] *= -1
    code = torch.randn(1, 400, generator=torch.Generator().manual_seed(1))
    changed = (turns(code, one) - turns(code, another)).abs().view(-1, 2).sum(1) > 1e-6
    # A bit is in three of sixteen triples.
    assert 0.08 < changed.float().mean() < 0.3


@pytest.mark.parametrize(("length", "bits", "words"), [(7, 16, "no pairs"), (8, 2, "too short")])
def test_what_cannot_be_is_told(length, bits, words):
    with pytest.raises(ValueError, match=words):
        BitTurns(length, bits)
