"""The method under attack, and the pictures, keys and networks that attacks share; each is made once, at first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.errors import UserError
from faceanon.metrics.evaluation import network_or_none
from faceanon.metrics.fingerprints import row_numbers
from faceanon.metrics.guards import few_pairs, find_faults
from faceanon.metrics.recognition import genuine_pairs, impostor_pairs, pair_scores, threshold_at_far
from faceanon.metrics.saved import saved
from faceanon.metrics.versions import draw_keys, encode_or_none, saved_drawing
from faceanon.studies.security.base import FAR, Budget, DoesNotApplyError
from faceanon.types import Codes, FaceBatch

if TYPE_CHECKING:
    from faceanon.backbones.base import Backbone


class Target:
    """A method, the people in the test, and the attacker's own people.

    All pictures are taken as they come back from a saved 8-bit file. Keys depend on seed and picture alone.

    Args:
        backbone: In eval mode.
        test: Held-out pictures with identity labels, at least two people with two pictures each; they set the judge's
            threshold, and the first `budget.people` of them are attacked.
        attacker: Gives the attacker's own pictures with identity labels; called once, if an attack needs them.
        budget: How much is spent.
        seed: Of keys and training.
        device: Where networks run; pictures and figures stay on the CPU.
        training: Gives pictures that the model was trained on, and pictures of people from the same source whom no
            training saw, with identity labels; called by the membership test. None where nobody knows them.
        judge: Says who is who, `(B, 3, S, S)` -> `(B, E)`; the bundle's where None.

    Raises:
        UserError: The bundle has no judge, or the pictures offer no pairs.
    """

    def __init__(
        self,
        backbone: Backbone,
        test: FaceBatch,
        attacker: Callable[[], FaceBatch],
        budget: Budget,
        seed: int = 0,
        device: torch.device | str = "cpu",
        training: Callable[[], tuple[FaceBatch, FaceBatch]] | None = None,
        judge: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.backbone = backbone
        self.test = test
        self.attacker = attacker
        self.budget = budget
        self.seed = seed
        self.device = torch.device(device)
        self.training = training
        if self.device.type != "cpu":
            backbone.to(self.device)
            # Frozen networks are outside of the module tree, so the method does not take them along.
            backbone.bundle.to(self.device)
        judge = judge or network_or_none(backbone.bundle, "judge")
        if judge is None:
            raise UserError(f"bundle {backbone.bundle.name!r} has no judge; without one nobody can say who is who")
        self.judge: Callable[[Tensor], Tensor] = judge
        self.recogniser: Callable[[Tensor], Tensor] | None = self.network("recogniser")
        known = test.identity[test.identity >= 0]
        if not genuine_pairs(known).numel() or len(torch.unique(known)) < 2:
            raise UserError("the attacks need at least two known people with two pictures each; give more pictures")

    def network(self, role: str) -> Any:  # noqa: ANN401 - each role has its own interface
        """A frozen network of the bundle, or None."""
        return network_or_none(self.backbone.bundle, role)

    def batched(self, function: Callable[..., Tensor], *rows: Tensor, title: str | None = None) -> Tensor:
        """`function` over batches of rows, without gradients, under a progress bar where it takes long."""
        size = self.budget.batch
        starts = tqdm(range(0, len(rows[0]), size), desc=title, delay=2, leave=False, disable=title is None)
        results = []
        with torch.no_grad():
            for start in starts:
                chunk = [row[start : start + size].to(self.device) for row in rows]
                results.append(function(*chunk).cpu())
        return torch.cat(results)

    def anonymize(self, image: Tensor, key: Tensor, title: str = "anonymizing") -> Tensor:
        """`(B, 3, S, S)` anonymized, as read back from a PNG; a face that the method cannot draw is blurred."""
        return self.batched(lambda x, k: saved_drawing(self.backbone, x, k), image, key, title=title)

    def recover(self, image: Tensor, key: Tensor, title: str = "recovering") -> Tensor:
        """`(B, 3, S, S)` recovered, as read back from a PNG.

        Raises:
            DoesNotApplyError: The method has no way back.
        """
        self.need_way_back()
        return self.batched(lambda x, k: saved(self.backbone.recover(x, k)), image, key, title=title)

    def embed(self, image: Tensor) -> Tensor:
        """The judge's embeddings `(B, E)`, of unit length; zero where it sees nothing at all."""
        return F.normalize(self.batched(self.judge, image).float())

    def keys(self, role: str, batch: FaceBatch) -> Tensor:
        """A fresh key for every picture, `(B, *key_shape)`; another role draws others."""
        return draw_keys(self.backbone, self.seed, f"attack/{role}", row_numbers(batch))

    def one_key(self, role: str, count: int) -> Tensor:
        """One key for all of `count` pictures, `(count, *key_shape)`; another role draws another."""
        key = draw_keys(self.backbone, self.seed, f"attack/{role}", [0])
        return key.expand(count, *key.shape[1:]).clone()

    def need_key(self) -> None:
        """Stop where the method takes no key.

        Raises:
            DoesNotApplyError: It does not.
        """
        if self.backbone.key_bits is None:
            raise DoesNotApplyError("the method takes no key")

    def need_way_back(self) -> None:
        """Stop where the method has no way back.

        Raises:
            DoesNotApplyError: It has none.
        """
        if not self.backbone.reversible:
            raise DoesNotApplyError("the method is not reversible: there is nothing to open")
        if self.backbone.sealed:
            raise DoesNotApplyError(
                "what brings a face back is encrypted beside the picture (AES-256-GCM); no key opens the picture itself"
            )

    def codes(self, image: Tensor) -> Codes:
        """Codes of `(B, 3, S, S)`.

        Raises:
            DoesNotApplyError: The method has none.
        """
        with torch.no_grad():
            codes = encode_or_none(self.backbone, image.to(self.device))
        if codes is None:
            raise DoesNotApplyError("the method has no codes")
        return codes

    @cached_property
    def probes(self) -> FaceBatch:
        """The pictures that are attacked: all of the first `budget.people` people."""
        labels = self.test.identity
        # In the order of the test, which a set would lose.
        first = list(dict.fromkeys(labels[labels >= 0].tolist()))[: self.budget.people]
        rows = torch.isin(labels, torch.tensor(first))
        return self.test.map(lambda tensor: tensor[rows])

    @cached_property
    def threshold(self) -> float:
        """The judge's cosine at a false accept rate of 1e-2, on all pictures of the test."""
        # All people of the test, not the probes alone: the more pairs, the steadier the threshold.
        return threshold_at_far(pair_scores(self.originals, impostor_pairs(self.test.identity)), FAR)

    @cached_property
    def originals(self) -> Tensor:
        """The judge's embeddings `(B, E)` of all pictures of the test."""
        return self.embed(self.test.image)

    def warnings(self) -> list[str]:
        """Why the judge may not be trusted: a threshold from few pairs, or people whom it misses or confuses."""
        judge = str(getattr(self.backbone.bundle, "judge_name", "judge"))
        identity = self.test.identity
        accepted = float((pair_scores(self.originals, genuine_pairs(identity)) > self.threshold).float().mean())
        figures = {f"tar_at_far/{judge}/{FAR:g}": accepted, f"threshold/{judge}": self.threshold}
        few = few_pairs(impostor_pairs(identity).shape[1], FAR)
        faults = list(find_faults(figures, judge, FAR).values())
        if few:
            return [few, *faults]
        return faults

    @cached_property
    def gallery(self) -> Tensor:
        """Embeddings `(B, E)` of the probes' originals."""
        return self.embed(self.probes.image)

    @cached_property
    def right_keys(self) -> Tensor:
        """The keys that the probes are anonymized with, `(B, *key_shape)`."""
        return self.keys("right", self.probes)

    @cached_property
    def hidden(self) -> Tensor:
        """The probes under their right keys, `(B, 3, S, S)` in [-1, 1]."""
        return self.anonymize(self.probes.image, self.right_keys)

    @cached_property
    def opened(self) -> Tensor:
        """The probes, recovered with the right keys."""
        return self.recover(self.hidden, self.right_keys)

    @cached_property
    def known(self) -> FaceBatch:
        """The attacker's own pictures."""
        return self.attacker()

    @cached_property
    def known_hidden(self) -> Tensor:
        """The attacker's pictures, each anonymized with a key of its own."""
        return self.anonymize(self.known.image, self.keys("known", self.known), title="the attacker's pictures")
