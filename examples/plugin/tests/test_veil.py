"""Veil keeps the contract."""

from faceanon_veil.veil import Veil

from faceanon.testing import check_backbone


def test_veil_keeps_the_contract() -> None:
    """Every check passes."""
    check_backbone(Veil())
