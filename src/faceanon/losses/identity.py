"""Terms on the embeddings of a frozen recogniser; all take unit vectors `(B, E)`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import torch
from torch import Tensor
from torch.nn import functional as F

TEMPERATURE = 0.1  # of the softmax over cosines in which a face is looked up


def cosine(first: Tensor, second: Tensor) -> Tensor:
    """Row-wise cosine of unit vectors, `(B,)` in [-1, 1].

    Examples:
        >>> import torch
        >>> from faceanon.losses.identity import cosine
        >>> cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, 0.8]]))
        tensor([0.6000])
    """
    return (first * second).sum(-1)


def attract(first: Tensor, second: Tensor) -> Tensor:
    """Mean (1 - cos): the same person (DBAF eq. 30, HFORD eq. 12). Range [0, 2].

    Examples:
        >>> import torch
        >>> from faceanon.losses.identity import attract
        >>> anna = torch.tensor([[1.0, 0.0]])
        >>> other = torch.tensor([[0.0, 1.0]])
        >>> attract(anna, anna), attract(anna, other)
        (tensor(0.), tensor(1.))
    """
    return (1 - cosine(first, second)).mean()


def repel(first: Tensor, second: Tensor, margin: float = 0.0) -> Tensor:
    """Mean max(cos, margin): different persons (DBAF eqs. 29, 31, HFORD 10, 11). No gradient below the margin.

    Examples:
        >>> import torch
        >>> from faceanon.losses.identity import repel
        >>> anna = torch.tensor([[1.0, 0.0]])
        >>> other = torch.tensor([[0.0, 1.0]])
        >>> repel(anna, anna), repel(anna, other, margin=0.3)
        (tensor(1.), tensor(0.3000))
    """
    return cosine(first, second).clamp(min=margin).mean()


def dbaf_identity(original: Tensor, strangers: Sequence[Tensor], recovered: Tensor | None, floor: float) -> Tensor:
    """DBAF eq. (32): L_dif (29), a sum over the strangers, L_rev (30), and L_div (31), a sum over their pairs.

    Two readings. Eq. (32) prints L_rec, which is the pixel loss of eq. (34), and means L_rev. The sum of eq. (31) runs
    over x and y apart, so every pair of strangers is in it twice.

    Args:
        original: `(B, E)` embeddings of the originals.
        strangers: The set S1, `(B, E)` each: faces under every key, and those that wrong keys open.
        recovered: `(B, E)` of the faces that the right key opens; None without a way back.
        floor: 0 in the paper.

    Examples:
        >>> import torch
        >>> from faceanon.losses.identity import dbaf_identity
        >>> anna = torch.tensor([[1.0, 0.0]])
        >>> dbaf_identity(anna, [anna, anna], recovered=anna, floor=0.0)  # 2 as herself, 2 as each other
        tensor(4.)
    """
    away = [repel(original, one, floor) for one in strangers]
    apart = [repel(one, other, floor) for one, other in permutations(strangers, 2)]
    back = [] if recovered is None else [attract(original, recovered)]
    return torch.stack([*away, *back, *apart]).sum()


def hford_identity(original: Tensor, strangers: Sequence[Tensor], recovered: Tensor | None, floor: float) -> Tensor:
    """HFORD eq. (13): L_dif (10) and L_anony (11), which are means over pairs and over strangers, and L_rev (12).

    Args:
        original: `(B, E)` embeddings of the originals.
        strangers: The set X, `(B, E)` each: faces under every key, and those that wrong keys open.
        recovered: `(B, E)` of the faces that the right key opens; None without a way back.
        floor: 0 in the paper.

    Examples:
        >>> import torch
        >>> from faceanon.losses.identity import hford_identity
        >>> anna = torch.tensor([[1.0, 0.0]])
        >>> hford_identity(anna, [anna, anna], recovered=anna, floor=0.0)
        tensor(2.)
    """
    terms = [torch.stack([repel(original, one, floor) for one in strangers]).mean()]
    # With one stranger alone there are no pairs.
    if len(strangers) > 1:
        apart = [repel(one, other, floor) for one, other in permutations(strangers, 2)]
        terms.append(torch.stack(apart).mean())
    if recovered is not None:
        terms.append(attract(original, recovered))
    return torch.stack(terms).sum()


def contrastive(
    output: Tensor, attribute_source: Tensor, same: Tensor, positive: float = 0.0, negative: float = 0.5
) -> Tensor:
    """Near the attribute source if it gave the identity too, else far: DBAF eqs. (10)-(11), HFORD (6)-(7).

    Args:
        output: `(B, E)` embeddings of the drawn faces.
        attribute_source: `(B, E)` embeddings of the pictures that gave the attributes.
        same: `(B,)` bool, whether that picture gave the identity too.
        positive: Distance tau+ (1 - cos) below which a same pair is good enough.
        negative: Distance tau- above which a different pair is.

    Examples:
        >>> import torch
        >>> from faceanon.losses.identity import contrastive
        >>> drawn = torch.tensor([[1.0, 0.0]])
        >>> same = torch.tensor([True])
        >>> contrastive(drawn, drawn, same, positive=0.0, negative=0.5)  # itself, and it should be
        tensor(0.)
        >>> contrastive(drawn, drawn, ~same, positive=0.0, negative=0.5)  # itself, and it should be somebody else
        tensor(0.5000)
    """
    distance = 1 - cosine(output, attribute_source)
    near = (distance - positive).clamp(min=0)
    far = (negative - distance).clamp(min=0)
    return (same * near + ~same * far).mean()


def one_stranger(embedding: Tensor, identity: Tensor, margin: float = 0.0) -> Tensor:
    """What is wrong with pseudonyms: mean (1 - cos) of a person's, plus mean max(cos, margin) of two people's.

    Args:
        embedding: `(B, E)` unit vectors of anonymized faces, all under one key.
        identity: `(B,)` int64; rows with -1, unknown, count in no pair.
        margin: Cosine below which two strangers differ enough.

    Examples:
        >>> import torch
        >>> from faceanon.losses.identity import one_stranger
        >>> strangers = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> one_stranger(strangers, torch.tensor([0, 0, 1]))  # one stranger for each person
        tensor(0.)
        >>> one_stranger(strangers, torch.tensor([0, 1, 1]))  # two for one person, and one for two people
        tensor(1.5000)
    """
    known = identity >= 0
    pair = (known[:, None] & known[None]).triu(1)
    same = identity[:, None] == identity[None]
    similarity = embedding @ embedding.T

    def mean(values: Tensor, mask: Tensor) -> Tensor:
        return (values * mask).sum() / mask.sum().clamp(min=1)

    return mean(1 - similarity, pair & same) + mean(similarity.clamp(min=margin), pair & ~same)


def in_batch_identity(embedding: Tensor, identity: Tensor, scale: float = 16.0, margin: float = 0.2) -> Tensor:
    """Softmax over the batch with a cosine margin on the positives: recognisers for any number of persons.

    CosFace's margin (Wang et al., CVPR 2018, eq. 4) with the other pictures of the batch in place of class weights
    (Khosla et al., NeurIPS 2020, eq. 2).

    Args:
        embedding: `(B, E)` unit vectors.
        identity: `(B,)` int64; rows whose person appears once are anchors to nothing and only serve as negatives.
        scale: Inverse temperature.
        margin: Subtracted from the positives' cosine.

    Examples:
        >>> import torch
        >>> from faceanon.losses.identity import in_batch_identity
        >>> people = torch.tensor([0, 0, 1, 1])
        >>> told_apart = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> mixed_up = told_apart[[0, 2, 1, 3]]
        >>> bool(in_batch_identity(told_apart, people) < in_batch_identity(mixed_up, people))
        True
    """
    same = identity[:, None] == identity[None]
    same.fill_diagonal_(fill_value=False)
    logits = scale * (embedding @ embedding.T - margin * same)  # (B, B)
    # Not minus infinity: times the mask's 0 below it would be NaN.
    logits.diagonal().fill_(-1e4)
    log_probability = F.log_softmax(logits.float(), dim=1)
    anchors = same.any(1)
    # A picture without another one of its person divides by 1, and counts in no mean.
    per_anchor = -(log_probability * same).sum(1) / same.sum(1).clamp(min=1)
    return (per_anchor * anchors).sum() / anchors.sum().clamp(min=1)


def found_beyond_guess(found: Tensor, gallery: Tensor, identity: Tensor) -> Tensor:
    """By how many nats each face is looked up better than by a guess among the pictures of a batch, `(M,)`.

    InfoNCE (van den Oord et al., 2018, eq. 4) less what equal logits would give: 0 where the face says nothing, below
    0 where it misleads, at most log(pictures / pictures of the person). A face is looked up among *other* pictures of
    its person; its own counts only where the batch has no other.

    Args:
        found: `(M, E)` unit vectors of faces, M a multiple of B: whole batches behind each other.
        gallery: `(B, E)` unit vectors of the originals.
        identity: `(B,)` int64.

    Examples:
        >>> import torch
        >>> from faceanon.losses.identity import found_beyond_guess
        >>> gallery = torch.eye(4)[[0, 0, 1, 2]]
        >>> people = torch.tensor([0, 0, 1, 2])
        >>> known = found_beyond_guess(gallery, gallery, people)[0]  # among three pictures, one of them the person's
        >>> nothing = found_beyond_guess(torch.eye(4)[[3]].repeat(4, 1), gallery, people)[0]
        >>> round(known.item(), 2), round(nothing.item(), 2)
        (1.1, 0.0)
    """
    times = len(found) // len(gallery)
    same = identity[:, None] == identity[None]
    own = torch.eye(len(gallery), dtype=torch.bool, device=gallery.device)
    lonely = ~(same & ~own).any(1, keepdim=True)
    among = (~own | lonely).repeat(times, 1)
    right = (same & (~own | lonely)).repeat(times, 1)
    logits = (found @ gallery.T).float() / TEMPERATURE

    def mean_odds(mask: Tensor) -> Tensor:
        # The log of the mean of exp(logit), not of the sum: with equal logits the difference of two masks is then 0.
        return logits.masked_fill(~mask, -torch.inf).logsumexp(1) - mask.sum(1).log()

    return mean_odds(right) - mean_odds(among)
