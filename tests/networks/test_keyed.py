import pytest
import torch

from faceanon.networks.keyed import KeyedTurn


@torch.no_grad()
def test_a_turn_keeps_angles_and_lengths_and_is_undone():
    draw = torch.Generator().manual_seed(0)
    turn = KeyedTurn(8, away=0.2, stretch=1.5)
    code = torch.randn(3, 8, generator=draw)
    key = torch.randn(3, 24, generator=draw)
    turned = turn(code, key)
    torch.testing.assert_close(turn(turned, key, inverse=True), code, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(turned.norm(dim=1), 1.5 * code.norm(dim=1))
    torch.testing.assert_close(torch.cosine_similarity(turned, code), torch.full((3,), -0.2), atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match="even"):
        KeyedTurn(7)
