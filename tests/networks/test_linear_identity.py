"""Linear maps that are measured: from identities to codes, and to axes in pairs."""

import pytest
import torch

from faceanon.networks.linear_identity import IdentityDraft, IdentityReader
from faceanon.networks.whitening import PairedAxes


def test_the_draft_finds_a_linear_map_and_leaves_the_kept_numbers_alone():
    random = torch.Generator().manual_seed(0)
    identity = torch.randn(4000, 6, generator=random) + 2
    true = torch.randn(6, 10, generator=random)
    codes = identity @ true + 0.1 * torch.randn(4000, 10, generator=random) + 1
    draft = IdentityDraft(6, 10, kept=4, strength=1.0)
    draft.fit(identity, codes)
    found = draft(identity)
    assert (found[:, :4] == 0).all()
    error = (found - codes)[:, 4:].square().mean() / codes[:, 4:].var()
    assert error < 0.02
    # Twice the strength doubles the differences to the mean code.
    strong = IdentityDraft(6, 10, kept=4, strength=2.0)
    strong.load_state_dict(draft.state_dict())
    mean = codes.mean(0)
    torch.testing.assert_close((strong(identity) - mean)[:, 4:], 2 * (found - mean)[:, 4:], atol=1e-4, rtol=1e-4)


def test_few_faces_give_a_damped_map_and_no_wild_one():
    identity = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    codes = torch.randn(5, 8, generator=torch.Generator().manual_seed(2))
    draft = IdentityDraft(64, 8)
    draft.fit(identity, codes)
    other = torch.randn(100, 64, generator=torch.Generator().manual_seed(3))
    assert draft(other).isfinite().all()
    assert draft(other).std() < 2 * codes.std()


def test_what_is_kept_is_a_part():
    with pytest.raises(ValueError, match="kept is 8 of 8"):
        IdentityDraft(4, 8, kept=8)


def test_halves_of_paired_axes_match_and_a_swap_of_them_keeps_the_covariance():
    random = torch.Generator().manual_seed(4)
    spread = torch.linspace(0.1, 3, 12)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=random))[0]
    codes = (torch.randn(20000, 12, generator=random) * spread) @ turn + 5
    axes = PairedAxes(12)
    axes.fit(codes)
    white = axes.white(codes)
    torch.testing.assert_close(white.T @ white / len(white), torch.eye(12), atol=1e-3, rtol=0)
    torch.testing.assert_close(axes.coloured(white), codes, atol=1e-3, rtol=1e-3)
    first, second = white.chunk(2, 1)
    swapped = axes.coloured(torch.cat([-second, first], 1))
    change = torch.cov(swapped.T) - torch.cov(codes.T)
    assert change.norm() < 0.25 * torch.cov(codes.T).norm()
    with pytest.raises(ValueError, match="no halves"):
        PairedAxes(5)


def test_a_reader_finds_the_direction_that_a_noisy_code_was_drawn_from():
    random = torch.Generator().manual_seed(6)
    identity = 4 * torch.nn.functional.normalize(torch.randn(3000, 8, generator=random))
    drawn = identity @ torch.randn(8, 40, generator=random)
    # The first numbers say something else, and most of the others are unsure.
    noise = torch.randn(3000, 40, generator=random) * torch.linspace(0.1, 4, 40)
    codes = torch.cat([100 * torch.randn(3000, 3, generator=random), drawn + noise], 1)
    reader = IdentityReader(43, 8, kept=3)
    reader.fit(codes[:2000], identity[:2000])
    found = reader(codes[2000:])
    assert torch.cosine_similarity(found, identity[2000:]).mean() > 0.95
    torch.testing.assert_close(found.norm(dim=1), torch.full((1000,), 4.0))
    changed = codes[2000:].clone()
    changed[:, :3] += 1000
    assert torch.equal(reader(changed), found)
    with pytest.raises(ValueError, match="kept is 43 of 43"):
        IdentityReader(43, 8, kept=43)
