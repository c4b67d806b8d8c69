"""Mirage, faceanon's own: a person's code under a keyed map that is exact and not linear.

- The key turns the code, z' = T_k(z), by `networks.keyed_flow.KeyedFlow`. Its inverse is exact. It keeps the
  distribution of codes, leaves no code near itself, and is not revealed by as many known pairs as the code is long.
- `backbones.turned_person` has the rest: what a code is, and how it is drawn and read. That z is a frozen recogniser's
  code is from iFADIT.
- The recovering side reads z' off the 8-bit picture; z = T_k^-1(z') is as exact as z' was read.
"""

from __future__ import annotations

from faceanon.backbones.linear_person import check_above_zero, check_degrees
from faceanon.backbones.turned_person import TurnedPerson
from faceanon.networks.keyed_flow import KeyedFlow

GRADES = (16, 16, 16, 16)


class Mirage(TurnedPerson):
    """A recogniser's code under a keyed flow, on any bundle.

    Args:
        bundle: Bundle by name or folder.
        grades: Lengths of the runs of code entries that the key turns apart, each even and at least 4, from the most
            telling entries on. They sum to the number K of principal components. None gives 16, 16, 16 and 16.
        rounds: Rounds of the flow.
        swing: How far the flow is from linear, in radians; 0 is linear. More resists known pairs longer, and makes
            errors of reading larger: the table is benchmarks/known_pairs.py's.
        turn: Degrees, above 0 and below 180, by which the flow turns a code within its twists. More than 90 leads a
            stranger beyond the right angle to the person.
        turn_stretch: By how much a stranger lies farther from the mean code than the flow puts it; 1 not at all. More
            draws strangers with clearer features. Stage 2 may have another one than stage 1.
        attributes_kept: Numbers of the encoder's code, from its beginning, that are all of the attributes. They hold
            light and skin in a code of principal components.
        identity_draft: How much of a linear map of the code is drawn, above 0: 1 the map that fits the encoder's codes
            best, more to make up for what a fit shrinks. It is measured before stage 1.

    Raises:
        UserError: A number is out of range.
        ValueError: A grade is odd or too short.

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

    stage_arguments = frozenset({"turn_stretch"})
    paper = "faceanon's own, after iFADIT (arXiv:2501.04390)"
    licence = "faceanon's"

    def __init__(
        self,
        bundle: str = "photo128_prior",
        grades: list[int] | None = None,
        rounds: int = 4,
        swing: float = 0.4,
        turn: float = 110.0,
        turn_stretch: float = 1.0,
        attributes_kept: int = 8,
        identity_draft: float = 2.0,
    ) -> None:
        check_degrees("turn", turn)
        check_above_zero("turn_stretch", turn_stretch)
        flow = KeyedFlow(GRADES if grades is None else grades, rounds, swing, turn, turn_stretch)
        super().__init__(bundle, flow.dim, attributes_kept, identity_draft)
        self.turn = flow
        self.key_shape = (flow.key_size,)
