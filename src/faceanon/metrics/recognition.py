"""Who is recognised as whom: thresholds, match rates, identification, from embeddings alone.

A caller says where the pictures come from. Functions and `Lookup` take all embeddings at once; the metrics collect them
over batches and processes, and call the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.metrics.checks import check_embedding, check_labels, check_same_shape

Similarity = Literal["cosine", "euclidean"]
MAX_PAIRS = 4_000_000
CHUNK = 1024


def compare_rows(some: Tensor, others: Tensor, similarity: Similarity = "cosine") -> Tensor:
    """Scores of `(N, E)` against `(N, E)`, row by row: the higher, the more alike.

    Args:
        some: Embeddings, of unit length where cosines compare.
        others: Likewise.
        similarity: The cosine, or the negative Euclidean distance.

    Returns:
        `(N,)`; NaN where an embedding is.
    """
    if similarity == "cosine":
        return (some * others).sum(-1)
    return -(some - others).square().sum(-1).sqrt()


def compare_all(some: Tensor, others: Tensor, similarity: Similarity = "cosine") -> Tensor:
    """Scores `(N, M)` of `(N, E)` against `(M, E)`, as of `compare_rows`."""
    if similarity == "cosine":
        return some @ others.T
    # The quick way, by matrix products, loses small distances, and those decide.
    return -torch.cdist(some, others, compute_mode="donot_use_mm_for_euclid_dist")


def threshold_at_far(impostor: Tensor, far: float) -> float:
    """Lowest threshold t with a share of impostor scores `> t` of at most `far`.

    Args:
        impostor: `(P,)` scores of pairs of different people.
        far: False accept rate in (0, 1).

    Raises:
        ValueError: There are no scores, or `far` is not in (0, 1).

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import threshold_at_far
        >>> strangers = torch.linspace(0.0, 0.99, 100)  # cosines of pairs of different people
        >>> threshold = threshold_at_far(strangers, far=0.01)
        >>> (strangers > threshold).float().mean()
        tensor(0.0100)
    """
    if not 0 < far < 1:
        raise ValueError(f"far must lie between 0 and 1, got {far}")
    if impostor.numel() == 0:
        raise ValueError("no impostor pairs: the threshold needs pictures of at least two known people")
    # The tolerance keeps 0.29 * 100, which is 28.999999999999996, from becoming 28.
    allowed = math.floor(far * impostor.numel() + 1e-9)
    # Pairs are accepted above the threshold, so at most `allowed` scores pass, also where several are equal.
    return float(impostor.topk(allowed + 1).values[-1])


def genuine_pairs(identity: Tensor) -> Tensor:
    """Rows `(2, P)` of all pairs of pictures of one known person.

    Args:
        identity: `(N,)`; -1 where unknown.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import genuine_pairs
        >>> genuine_pairs(torch.tensor([7, 7, 8, 7, -1]))
        tensor([[0, 0, 1],
                [1, 3, 3]])
    """
    # An empty start, so that `cat` also works where nobody has two pictures.
    pairs = [identity.new_zeros(2, 0)]
    for label in torch.unique(identity[identity >= 0]):
        own = torch.nonzero(identity == label).squeeze(1)
        pairs.append(own[torch.triu_indices(len(own), len(own), offset=1, device=own.device)])
    return torch.cat(pairs, 1)


def impostor_pairs(identity: Tensor, max_pairs: int = MAX_PAIRS, seed: int = 0) -> Tensor:
    """Rows `(2, P)` of pairs of pictures of different known people: all pairs, or a random part of very many.

    Args:
        identity: `(N,)`; -1 where unknown.
        max_pairs: Above this number of pairs, as many are drawn at random instead.
        seed: Of that draw.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import impostor_pairs
        >>> impostor_pairs(torch.tensor([7, 8, -1, 7]))
        tensor([[0, 1],
                [1, 3]])
    """
    known = torch.nonzero(identity >= 0).squeeze(1)
    count = len(known)
    if count * (count - 1) // 2 <= max_pairs:
        pairs = torch.triu_indices(count, count, offset=1, device=identity.device)
    else:
        # Sorted, so that the draw depends on the people and not on the order in which batches came.
        known = known[identity[known].argsort(stable=True)]
        generator = torch.Generator().manual_seed(seed)
        pairs = torch.randint(count, (2, max_pairs), generator=generator).to(identity.device)
    # A random pair may be of one person, or of a picture with itself. These fall out, so fewer may be left.
    first, second = known[pairs]
    return torch.stack([first, second])[:, identity[first] != identity[second]]


def pair_scores(embedding: Tensor, pairs: Tensor, similarity: Similarity = "cosine") -> Tensor:
    """Scores `(P,)` of rows `(2, P)` of embeddings `(N, E)`, as of `compare_rows`."""
    # In parts: the embeddings of all pairs at once may not fit into memory.
    parts = zip(*(rows.split(CHUNK * CHUNK) for rows in pairs), strict=True)
    scores = []
    for i, j in parts:
        scores.append(compare_rows(embedding[i], embedding[j], similarity))
    return torch.cat([embedding.new_zeros(0), *scores])


@dataclass(frozen=True)
class Lookup:
    """Changed pictures, each looked up among all originals but the one that it was made from.

    That one is left out, so that a hit means that the person was found, not the file. A tie finds nobody: a recogniser
    that sees nothing gives all pairs one score.

    Args:
        probe: `(N, E)` embeddings of the changed pictures, of unit length where cosines compare.
        gallery: `(N, E)` of the originals that they were made from, in the same order.
        identity: `(N,)` labels; -1 where unknown, who is nobody's other picture.
        similarity: See `compare_rows`.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import Lookup
        >>> originals = torch.eye(4)[[0, 0, 1, 1]]
        >>> lookup = Lookup(originals, originals, identity=torch.tensor([0, 0, 1, 1]))  # nothing was anonymized
        >>> lookup.hits(), lookup.strangers(threshold=0.5)
        (tensor([1., 1., 1., 1.]), tensor([0., 0., 0., 0.]))
    """

    probe: Tensor
    gallery: Tensor
    identity: Tensor
    similarity: Similarity = "cosine"

    def _parts(self) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
        """A chunk of probes at a time: its first row, scores `(b, N)`, and masks of the same person and of others."""
        for start in range(0, len(self.probe), CHUNK):
            scores = compare_all(self.probe[start : start + CHUNK], self.gallery, self.similarity)
            label = self.identity[start : start + CHUNK, None]
            same = (label == self.identity) & (label >= 0)
            others = ~same
            # A changed picture that is found by its own original proves nothing of other pictures.
            row = torch.arange(len(scores), device=scores.device)
            for mask in (same, others):
                mask[row, row + start] = False
            yield start, scores, same, others

    def ranks(self) -> Tensor:
        """Per probe the place of the first picture of its person, 1 the best, NaN where there is none: `(N,)`."""
        ranks = []
        for _, scores, same, others in self._parts():
            best = scores.masked_fill(~same, -math.inf).amax(1, keepdim=True)
            # Not `scores >= best`: of a score that is NaN nothing holds, and it must not make anybody the best.
            before = ~(scores < best) & others
            ranks.append((1 + before.sum(1)).float().masked_fill(~same.any(1), math.nan))
        return torch.cat(ranks)

    def hits(self) -> Tensor:
        """Per probe 1 where its person comes first, else 0, and NaN where the person has no other picture: `(N,)`."""
        ranks = self.ranks()
        return (ranks == 1).float().masked_fill(ranks.isnan(), math.nan)

    def retrieved(self) -> Tensor:
        """Per probe 1 where the nearest of *all* originals, its own among them, shows the person, else 0: `(N,)`."""
        found = []
        for start, scores, same, others in self._parts():
            own = compare_rows(self.probe[start : start + CHUNK], self.gallery[start : start + CHUNK], self.similarity)
            best = torch.maximum(scores.masked_fill(~same, -math.inf).amax(1), own)
            found.append((best > scores.masked_fill(~others, -math.inf).amax(1)).float())
        return torch.cat(found)

    def accepted(self, threshold: float) -> Tensor:
        """Per probe the share of accepted other pictures of its person, NaN where there is none: `(N,)`."""
        return self._shares(threshold, person=True)

    def strangers(self, threshold: float) -> Tensor:
        """Per probe the share of accepted pictures of other people: `(N,)`."""
        return self._shares(threshold, person=False)

    def _shares(self, threshold: float, person: bool) -> Tensor:
        shares = []
        for _, scores, same, others in self._parts():
            wanted = same if person else others
            shares.append(((scores > threshold) & wanted).sum(1) / wanted.sum(1))  # 0 / 0 is the NaN
        return torch.cat(shares)

    def pairs(self) -> dict[str, Tensor]:
        """Scores of probes with *other* originals: `genuine`, `impostor`, and their `*_people`, known people only.

        Above `MAX_PAIRS` impostor pairs, every so-many-th is kept.
        """
        identity = self.identity
        collected: dict[str, list[Tensor]] = {
            "genuine": [],
            "genuine_people": [],
            "impostor": [],
            "impostor_people": [],
        }
        # Every so many pairs, since all of them would not fit into memory.
        step = max(1, len(identity) ** 2 // MAX_PAIRS)
        for start, scores, same, others in self._parts():
            label = identity[start : start + len(scores)]
            impostors = others & (label[:, None] >= 0) & (identity >= 0)
            row, column = (indices[::step] for indices in torch.nonzero(impostors, as_tuple=True))
            own, other = torch.nonzero(same, as_tuple=True)
            collected["genuine"].append(scores[own, other])
            collected["genuine_people"].append(label[own])
            collected["impostor"].append(scores[row, column])
            collected["impostor_people"].append(torch.stack([label[row], identity[column]], 1))
        return {name: torch.cat(parts) for name, parts in collected.items()}


def chance(identity: Tensor, own: bool = False) -> float:
    """How often a guess finds the person: the mean share of a person's pictures among those that are looked at.

    Args:
        identity: `(N,)` labels; -1 where unknown.
        own: Whether the picture itself is among them, as in `Lookup.retrieved`; else as in `Lookup.hits`, where people
            without another picture do not count.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import chance
        >>> people = torch.tensor([0, 0, 1, 1])
        >>> round(chance(people), 3), chance(people, own=True)
        (0.333, 0.5)
    """
    same = (identity[:, None] == identity) & (identity >= 0)
    counts = same.sum(1)
    if own:
        # Who is unknown has this one picture.
        return float(counts.clamp(min=1).float().mean() / len(identity))
    counts = counts - 1
    return float(counts[counts > 0].float().mean() / (len(identity) - 1))


class Verification(Metric):
    """Threshold at a false accept rate, and the true accept rate there, from pictures of known people.

    Args:
        far: Share of impostor pairs that may be accepted.
        max_pairs: See `impostor_pairs`.
        seed: See `impostor_pairs`.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import Verification
        >>> metric = Verification(far=0.5)
        >>> metric.update(torch.eye(4)[[0, 0, 1, 1]], identity=torch.tensor([0, 0, 1, 1]))
        >>> found = metric.compute()
        >>> len(found["genuine"]), len(found["impostor"]), found["tar"].item()
        (2, 4, 1.0)
    """

    full_state_update = False
    embedding: list[Tensor]
    identity: list[Tensor]

    def __init__(self, far: float = 1e-2, max_pairs: int = MAX_PAIRS, seed: int = 0) -> None:
        super().__init__()
        if not 0 < far < 1:
            raise ValueError(f"far must lie between 0 and 1, got {far}")
        self.far = far
        self.max_pairs = max_pairs
        self.seed = seed
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
        """Give `impostor` and `genuine` scores, their `*_people`, `identity` `(N,)`, `threshold` and `tar`.

        `threshold` is NaN without impostor pairs, `tar` without genuine or impostor pairs.
        """
        embedding = dim_zero_cat(self.embedding)
        identity = dim_zero_cat(self.identity)
        others = impostor_pairs(identity, self.max_pairs, self.seed)
        same = genuine_pairs(identity)
        impostor = pair_scores(embedding, others)
        genuine = pair_scores(embedding, same)
        if impostor.numel():
            threshold = threshold_at_far(impostor, self.far)
            tar = (genuine > threshold).float().mean()
        else:
            threshold = math.nan
            tar = embedding.new_tensor(math.nan)
        scores = {"impostor": impostor, "genuine": genuine, "identity": identity, "tar": tar}
        people = {"impostor_people": identity[others].T, "genuine_people": identity[same[0]]}
        return {**scores, **people, "threshold": embedding.new_tensor(threshold)}


class PairSimilarity(Metric):
    """Cosine of every pair of rows; `match_rate` makes a rate of it once the threshold is known.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import PairSimilarity, match_rate
        >>> metric = PairSimilarity()
        >>> metric.update(torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))  # anonymized against original
        >>> match_rate(metric.compute(), threshold=0.5)
        tensor([1., 0.])
    """

    full_state_update = False
    cosine: list[Tensor]
    distance: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("cosine", "distance"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, embedding: Tensor, reference: Tensor) -> None:
        """Add pairs: `(B, E)` against `(B, E)`, or `(B, P, E)` for P pairs a row.

        Raises:
            ValueError: Different shapes, NaN, or a vector of length zero.
        """
        check_same_shape("embedding", embedding, "reference", reference)
        embedding = check_embedding("embedding", embedding, embedding.ndim)
        reference = check_embedding("reference", reference, reference.ndim)
        self.cosine.append(compare_rows(embedding, reference))
        self.distance.append((embedding - reference).abs().sum(-1))

    def compute(self) -> Tensor:
        """Cosines `(N,)` or `(N, P)` in the order of the updates."""
        return dim_zero_cat(self.cosine)

    def l1(self) -> Tensor:
        """Mean city-block distance of the unit embeddings; inside `sync_context` over all processes."""
        return dim_zero_cat(self.distance).double().mean()


def match_rate(cosine: Tensor, threshold: float) -> Tensor:
    """Share of accepted pairs per row: `(N,)` or `(N, P)` cosines -> `(N,)` in [0, 1].

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import match_rate
        >>> match_rate(torch.tensor([[0.9, 0.1], [0.8, 0.7]]), threshold=0.5)  # two pairs a row
        tensor([0.5000, 1.0000])
    """
    return (cosine > threshold).float().reshape(len(cosine), -1).mean(1)


class Identification(Metric):
    """Collect what a `Lookup` takes: find the person of a changed picture among the *other* original pictures.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import Identification
        >>> originals = torch.eye(4)[[0, 0, 1, 1]]
        >>> metric = Identification()
        >>> metric.update(originals, originals, identity=torch.tensor([0, 0, 1, 1]))  # nothing was anonymized
        >>> metric.compute()  # everybody is found at rank 1
        tensor(1.)
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

    def lookup(self) -> Lookup:
        """Everything added; inside `sync_context` that of all processes."""
        return Lookup(dim_zero_cat(self.probe), dim_zero_cat(self.gallery), dim_zero_cat(self.identity))

    def compute(self) -> Tensor:
        """Rank-1 rate; NaN where no probe counts."""
        return self.lookup().hits().nanmean()
