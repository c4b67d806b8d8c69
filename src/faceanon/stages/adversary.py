"""Stage 2's adversary: a recogniser that learns to find the people behind their anonymized pictures."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.losses.identity import found_beyond_guess
from faceanon.networks.upfirdn import fast_layout
from faceanon.weights.bundle import Bundle


class Adversary(nn.Module):
    """What an attacker would train who anonymizes pictures himself, trained along, to escape it.

    A copy of the training recogniser reads anonymized pictures, such that each meets other originals of its person, as
    the frozen recogniser embeds them (the attack `reidentify` of the security report). Norms keep their statistics.

    Args:
        bundle: Gives the recogniser.
    """

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()
        self.reader = bundle.trainable_recogniser().eval()
        # A bundle is no module: its frozen networks are neither trained nor saved with this one.
        self.bundle = bundle

    def forward(self, hidden: Tensor, original: Tensor, identity: Tensor) -> Tensor:
        """Nats by which each anonymized face is found better than by a guess, `(M,)`.

        Args:
            hidden: `(M, 3, S, S)` anonymized, M a multiple of B: whole batches one after the other.
            original: `(B, 3, S, S)`.
            identity: `(B,)` int64.
        """
        # The gallery is of the frozen recogniser: only the look at anonymized pictures is learnt.
        with torch.no_grad():
            gallery = self.bundle.recogniser(fast_layout(original))
        return found_beyond_guess(F.normalize(self.reader(fast_layout(hidden))), gallery, identity)
