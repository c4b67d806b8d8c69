"""Mirage, faceanon's own: what the papers teach together, around a keyed map that is exact and not linear.

- The identity z (B, K) is a frozen recogniser's embedding, reduced to the directions in which persons differ most and
  photos of one person least, and whitened (from iFADIT: no encoder has to learn what a person is).
- The key turns it, z' = T_k(z), by `networks.keyed_flow.KeyedFlow`: exactly invertible, keeps the distribution of
  codes, leaves no code near itself, and is not revealed by as many known pairs as the code is long.
- Attributes A (B, L, D) are read off the W+ code by DBAF's transformer, and encoder features reach the generator
  through DBAF's MAAR; the picture is G(A + E(z'), MAAR).
- The recovering side has the 8-bit picture x' alone: z' is read off the encoder's code of x' by a linear map, or by the
  recogniser; then z = T_k^-1(z'), as exact as z' was read.
"""

from __future__ import annotations

from typing import Any

from faceanon.backbones.keyed import Keyed
from faceanon.errors import UserError
from faceanon.networks.keyed_flow import KeyedFlow

GRADES = (12, 8)
# Of the transformer that reads attributes: blocks, heads, width of a head.
READING: dict[str, Any] = {"cid_depth": 2, "cid_heads": 4, "cid_head_dim": 48}


class Mirage(Keyed):
    """A recogniser's code under a keyed flow, on any bundle.

    Args:
        bundle: Bundle by name or folder.
        skip: Whether encoder features reach the generator.
        grades: Lengths of the runs of code entries that the key turns apart, each even and at least 4, from the most
            reliable entries on. They sum to K. None gives 12 and 8.
        rounds: Rounds of the flow.
        swing: How far the flow is from linear, in radians; 0 is linear. More resists known pairs longer, and makes
            errors of reading larger: the table is benchmarks/known_pairs.py's.
        turn: Degrees, above 0 and below 180, by which the flow turns a code within its twists. More than 90 leads a
            stranger beyond the right angle to the person.
        turn_stretch: By how much a stranger lies farther from the mean code than the flow puts it; 1 not at all. More
            draws strangers with clearer features. Stage 2 may have another one than stage 1.
        principal: As of `Keyed`: the code's directions are principal components of the embeddings.
        attributes_kept: As of `Keyed`.
        identity_draft: As of `Keyed`, on codes of principal components.
        identity_reader: As of `Keyed`.

    Examples:
        >>> import torch
        >>> from faceanon.backbones.mirage import Mirage
        >>> method = Mirage(grades=[12, 8]).eval()  # untrained
        >>> code = torch.randn(2, 20)
        >>> key = method.sample_key(2)
        >>> stranger = method.transform(code, key)
        >>> torch.allclose(method.transform(stranger, key, inverse=True), code, atol=1e-3)
        True
    """

    exact = True
    paper = "faceanon's own, after DBAF (arXiv:2311.08786) and iFADIT (arXiv:2501.04390)"
    licence = "faceanon's"

    def __init__(
        self,
        bundle: str = "photo128_prior",
        skip: bool = True,
        grades: list[int] | None = None,
        rounds: int = 4,
        swing: float = 0.4,
        turn: float = 90.0,
        turn_stretch: float = 1.0,
        principal: bool = False,
        attributes_kept: int = 0,
        identity_draft: float = 0.0,
        identity_reader: bool = False,
    ) -> None:
        if not 0 < turn < 180:
            raise UserError(f"turn is {turn}; give degrees between 0 and 180, at least 90 to leave the person behind")
        grades = list(GRADES) if grades is None else grades
        super().__init__(
            bundle,
            **READING,
            cid_dropout=0.0,
            maar=skip,
            code_dim=sum(grades),
            principal=principal,
            turn_stretch=turn_stretch,  # refused there where it is none
            attributes_kept=attributes_kept,
            identity_draft=identity_draft,
            identity_reader=identity_reader,
        )
        flow = KeyedFlow(grades, rounds, swing, turn, turn_stretch)
        # It replaces the linear turn that `Keyed` has built.
        self.turn = flow
        self.key_shape = (flow.key_size,)
