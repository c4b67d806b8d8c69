"""Who is recognised as whom: thresholds, match rates, identification. All scores are cosines."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.metrics.checks import check_embedding, check_labels, check_same_shape

MAX_PAIRS = 4_000_000
CHUNK = 1024


def threshold_at_far(impostor: Tensor, far: float) -> float:
    """Lowest threshold t with a share of impostor scores `> t` of at most `far`.

    Args:
        impostor: `(P,)` scores of pairs of different people.
        far: False accept rate in (0, 1).

    Raises:
        ValueError: There are no scores, or `far` is not in (0, 1).
    """
    if not 0 < far < 1:
        raise ValueError(f"far must lie between 0 and 1, got {far}")
    if impostor.numel() == 0:
        raise ValueError("no impostor pairs: the threshold needs pictures of at least two known people")
    allowed = math.floor(far * impostor.numel() + 1e-9)
    return float(impostor.topk(allowed + 1).values[-1])


def genuine_scores(embedding: Tensor, identity: Tensor) -> Tensor:
    """Cosines `(P,)` of all pairs of pictures of one known person.

    Args:
        embedding: `(N, E)` of unit length.
        identity: `(N,)`; -1 where unknown.
    """
    scores = [embedding.new_zeros(0)]
    for label in torch.unique(identity[identity >= 0]):
        own = embedding[identity == label]
        row, column = torch.triu_indices(len(own), len(own), offset=1, device=own.device)
        scores.append((own @ own.T)[row, column])
    return torch.cat(scores)


def impostor_scores(embedding: Tensor, identity: Tensor, max_pairs: int = MAX_PAIRS, seed: int = 0) -> Tensor:
    """Cosines `(P,)` of pairs of pictures of different known people: all pairs, or a random part of very many.

    Args:
        embedding: `(N, E)` of unit length.
        identity: `(N,)`; -1 where unknown.
        max_pairs: Above this number of pairs, as many are drawn at random instead.
        seed: Of that draw.
    """
    embedding, identity = embedding[identity >= 0], identity[identity >= 0]
    count = len(embedding)
    if count * (count - 1) // 2 <= max_pairs:
        row, column = torch.triu_indices(count, count, offset=1, device=embedding.device)
    else:
        generator = torch.Generator().manual_seed(seed)
        row, column = torch.randint(count, (2, max_pairs), generator=generator).to(embedding.device)
    different = identity[row] != identity[column]
    row, column = row[different], column[different]
    parts = zip(row.split(CHUNK * CHUNK), column.split(CHUNK * CHUNK), strict=True)
    return torch.cat([embedding.new_zeros(0), *((embedding[i] * embedding[j]).sum(-1) for i, j in parts)])


class Verification(Metric):
    """Threshold at a false accept rate, and the true accept rate there, from pictures of known people.

    Args:
        far: Share of impostor pairs that may be accepted.
        max_pairs: See `impostor_scores`.
        seed: See `impostor_scores`.
    """

    full_state_update = False
    embedding: list[Tensor]
    identity: list[Tensor]

    def __init__(self, far: float = 1e-2, max_pairs: int = MAX_PAIRS, seed: int = 0) -> None:
        super().__init__()
        if not 0 < far < 1:
            raise ValueError(f"far must lie between 0 and 1, got {far}")
        self.far, self.max_pairs, self.seed = far, max_pairs, seed
        self.add_state("embedding", default=[], dist_reduce_fx="cat")
        self.add_state("identity", default=[], dist_reduce_fx="cat")

    def update(self, embedding: Tensor, identity: Tensor) -> None:
        """Add `(B, E)` embeddings of original pictures and their `(B,)` labels, -1 where unknown.

        Raises:
            ValueError: Wrong shapes, NaN, or a vector of length zero.
        """
        self.embedding.append(check_embedding("embedding", embedding))
        self.identity.append(check_labels("identity", identity, len(embedding)))

    def compute(self) -> dict[str, Tensor]:
        """Give `impostor` and `genuine` scores, `identity` `(N,)`, `threshold` and `tar`.

        `threshold` is NaN without impostor pairs, `tar` without genuine or impostor pairs.
        """
        embedding, identity = dim_zero_cat(self.embedding), dim_zero_cat(self.identity)
        impostor = impostor_scores(embedding, identity, self.max_pairs, self.seed)
        genuine = genuine_scores(embedding, identity)
        threshold = threshold_at_far(impostor, self.far) if impostor.numel() else math.nan
        tar = (genuine > threshold).float().mean() if impostor.numel() else embedding.new_tensor(math.nan)
        found = {"impostor": impostor, "genuine": genuine, "identity": identity, "tar": tar}
        return {**found, "threshold": embedding.new_tensor(threshold)}


class PairSimilarity(Metric):
    """Cosine of every pair of rows; `match_rate` makes a rate of it once the threshold is known."""

    full_state_update = False
    cosine: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("cosine", default=[], dist_reduce_fx="cat")

    def update(self, embedding: Tensor, reference: Tensor) -> None:
        """Add pairs: `(B, E)` against `(B, E)`, or `(B, P, E)` for P pairs a row.

        Raises:
            ValueError: Different shapes, NaN, or a vector of length zero.
        """
        check_same_shape("embedding", embedding, "reference", reference)
        embedding = check_embedding("embedding", embedding, embedding.ndim)
        reference = check_embedding("reference", reference, reference.ndim)
        self.cosine.append((embedding * reference).sum(-1))

    def compute(self) -> Tensor:
        """Cosines `(N,)` or `(N, P)` in the order of the updates."""
        return dim_zero_cat(self.cosine)


def match_rate(cosine: Tensor, threshold: float) -> Tensor:
    """Share of accepted pairs per row: `(N,)` or `(N, P)` cosines -> `(N,)` in [0, 1]."""
    return (cosine > threshold).float().reshape(len(cosine), -1).mean(1)


class Identification(Metric):
    """Find the person of a changed picture among the *other* original pictures.

    Row i of the probes was made from row i of the gallery; that one picture is left out when probe i is looked up, so a
    hit means that the person was found, not the file. Probes whose person has no other picture do not count.
    """

    full_state_update = False
    probe: list[Tensor]
    gallery: list[Tensor]
    identity: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("probe", "gallery", "identity"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, probe: Tensor, gallery: Tensor, identity: Tensor) -> None:
        """Add `(B, E)` probes, the `(B, E)` originals they were made from, and the `(B,)` labels.

        Raises:
            ValueError: Wrong shapes, NaN, or a vector of length zero.
        """
        check_same_shape("probe", probe, "gallery", gallery)
        self.probe.append(check_embedding("probe", probe))
        self.gallery.append(check_embedding("gallery", gallery))
        self.identity.append(check_labels("identity", identity, len(probe)))

    def compute(self) -> Tensor:
        """Rank-1 rate; NaN where no probe counts."""
        return self.hits().nanmean()

    def _rows(self) -> list[tuple[Tensor, Tensor]]:
        """Per chunk of probes: similarities `(b, N)` with their own picture left out, and who is the same person."""
        probe, gallery, identity = (dim_zero_cat(s) for s in (self.probe, self.gallery, self.identity))
        rows = []
        for start in range(0, len(probe), CHUNK):
            similarity = probe[start : start + CHUNK] @ gallery.T
            own = torch.arange(len(similarity), device=probe.device)
            similarity[own, own + start] = -math.inf
            label = identity[start : start + CHUNK, None]
            same = (label == identity) & (label >= 0)
            same[own, own + start] = False
            rows.append((similarity, same))
        return rows

    def hits(self) -> Tensor:
        """Per probe 1 or 0, and NaN where the person has no other picture: `(N,)`."""
        found = []
        for similarity, same in self._rows():
            hit = same.gather(1, similarity.argmax(1, keepdim=True)).squeeze(1).float()
            found.append(hit.masked_fill(~same.any(1), math.nan))
        return torch.cat(found)

    def gallery_rate(self, threshold: float) -> Tensor:
        """Per probe the share of accepted other pictures of its person, NaN where there is none: `(N,)`."""
        found = []
        for similarity, same in self._rows():
            accepted = ((similarity > threshold) & same).sum(1)
            found.append(accepted / same.sum(1))  # 0 / 0 is the NaN
        return torch.cat(found)
