import pytest
import torch

from faceanon.networks.keyed import KeyedTurn


@torch.no_grad()
def test_the_key_can_turn_a_part_of_the_code_and_leave_the_rest():
    torch.manual_seed(0)
    turn = KeyedTurn(8, 4)
    turn.fit(torch.randn(500, 8) @ torch.randn(8, 8))
    code, key = torch.randn(3, 8), torch.randn(3, 24)
    turned = turn(code, key)
    torch.testing.assert_close(turn(turned, key, inverse=True), code, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(turn.white(turned)[:, 4:], turn.white(code)[:, 4:], atol=1e-4, rtol=1e-4)
    assert (turn.white(turned)[:, :4] - turn.white(code)[:, :4]).abs().min(0).values.max() > 0.1
    with pytest.raises(ValueError, match="even"):
        KeyedTurn(8, 3)
