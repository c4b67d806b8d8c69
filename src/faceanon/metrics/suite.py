"""All that one recogniser says about one method: the figures, their intervals, and the scores behind them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from faceanon.metrics.diversity import KeyAngle, key_pairs
from faceanon.metrics.interval import rate_interval
from faceanon.metrics.recognition import Identification, PairSimilarity, Verification, match_rate


@dataclass
class Verdict:
    """Outcome of a `RecognitionSuite`.

    Args:
        figures: Value by metric name.
        ci: 95% interval by metric name.
        scores: Cosines `(P,)` on the CPU by kind of pair, for histograms.
        skipped: What could not be computed, and why.
    """

    figures: dict[str, float] = field(default_factory=dict)
    ci: dict[str, tuple[float, float]] = field(default_factory=dict)
    scores: dict[str, Tensor] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


class RecognitionSuite:
    """Collect embeddings of one recogniser over the whole test and turn them into figures.

    Args:
        name: The recogniser's name in metric names.
        far: False accept rate that sets the threshold.
        seed: Of the impostor draw and the bootstrap.
    """

    def __init__(self, name: str, far: float, seed: int = 0) -> None:
        self.name, self.far, self.seed = name, far, seed
        self.originals = Verification(far, seed=seed)
        self.pairs: dict[str, PairSimilarity] = {}
        self.lookups: dict[str, Identification] = {}
        self.angle = KeyAngle()

    def update(self, embeddings: dict[str, Tensor], identity: Tensor) -> None:
        """Add a batch.

        Args:
            embeddings: `(B, E)` by version. `original` and `anonymized` (`(B, K, E)`, one a key) must be there;
                `reconstruction`, `recovered/<level>` and `wrong` where the method has them.
            identity: `(B,)` labels, -1 where unknown.
        """
        original, anonymized = embeddings["original"], embeddings["anonymized"]
        first = anonymized[:, 0]
        self.originals.to(original.device).update(original, identity)
        self._pair("anonymized", first, original)
        self._pair("keys", *key_pairs(anonymized))
        self._look_up("original", original, original, identity)
        self._look_up("anonymized", first, original, identity)
        for what, embedding in embeddings.items():
            if what not in ("original", "anonymized"):
                self._pair(what, embedding, original)
        if "wrong" in embeddings:
            self._pair("wrong_anonymized", embeddings["wrong"], first)
        if "recovered/file" in embeddings:
            self._look_up("recovered", embeddings["recovered/file"], original, identity)

    def update_angle(self, embedding: Tensor) -> None:
        """Add `(B, K, E)` embeddings under many keys, for KFFA."""
        self.angle.to(embedding.device).update(embedding)

    def _pair(self, what: str, embedding: Tensor, reference: Tensor) -> None:
        self.pairs.setdefault(what, PairSimilarity()).to(embedding.device).update(embedding, reference)

    def _look_up(self, what: str, probe: Tensor, gallery: Tensor, identity: Tensor) -> None:
        self.lookups.setdefault(what, Identification()).to(probe.device).update(probe, gallery, identity)

    def compute(self) -> Verdict:
        """Figures, intervals and scores over everything added."""
        verdict = Verdict()
        known = self.originals.compute()
        cosines = {what: metric.compute() for what, metric in self.pairs.items()}
        people = known["identity"].reshape(-1)
        threshold = float(known["threshold"])
        self._scores(verdict, known, cosines)
        if math.isnan(threshold):
            verdict.skipped.append(f"all rates of {self.name}: no two known people, so no threshold")
        else:
            verdict.figures[f"threshold/{self.name}"] = threshold
            self._rates(verdict, cosines, threshold, people)
        self._lookup_figures(verdict, float(known["tar"]), threshold, people)
        if self.angle.update_called:
            verdict.figures[f"kffa/{self.name}"] = float(self.angle.compute())
        return verdict

    def _scores(self, verdict: Verdict, known: dict[str, Tensor], cosines: dict[str, Tensor]) -> None:
        for what in ("impostor", "genuine"):
            verdict.scores[what] = known[what].reshape(-1).cpu()
        for what, cosine in cosines.items():
            verdict.scores[what] = cosine.flatten().cpu()
            verdict.figures[f"id_cos/{self.name}/{what}"] = float(cosine.mean())

    def _rates(self, verdict: Verdict, cosines: dict[str, Tensor], threshold: float, people: Tensor) -> None:
        for what, cosine in cosines.items():
            rate = match_rate(cosine.reshape(len(people), -1), threshold)
            self._rate(verdict, rate_name(what, self.name), rate, people)

    def _lookup_figures(self, verdict: Verdict, tar: float, threshold: float, people: Tensor) -> None:
        """Figures that need a second picture of the same person."""
        if math.isnan(tar):
            reason = "needs two known people with two pictures each"
            verdict.skipped.append(f"tar_at_far, deid_rate_gallery of {self.name}: {reason}")
        else:
            verdict.figures[f"tar_at_far/{self.name}/{self.far:g}"] = tar
        for what, metric in self.lookups.items():
            with metric.sync_context():
                hits, accepted = metric.hits(), metric.gallery_rate(threshold)
            if hits.isnan().all():
                verdict.skipped.append(f"rank1/{self.name}/{what}: no person has a second picture")
                continue
            self._rate(verdict, f"rank1/{self.name}/{what}", hits, people)
            if what == "anonymized" and not math.isnan(tar):
                self._rate(verdict, f"deid_rate_gallery/{self.name}", accepted, people)

    def _rate(self, verdict: Verdict, name: str, values: Tensor, people: Tensor) -> None:
        verdict.figures[name] = float(values.nanmean())
        verdict.ci[name] = rate_interval(values.cpu().numpy(), people.cpu().numpy(), seed=self.seed)


def rate_name(what: str, recogniser: str) -> str:
    """Metric name of the match rate of one kind of pair."""
    if what.startswith("recovered/"):
        return f"recovery_rate/{recogniser}/{what.removeprefix('recovered/')}"
    stems = {
        "anonymized": "deid_rate",
        "keys": "key_similarity",
        "reconstruction": "self_verification",
        "wrong": "wrong_key_rate",
        "wrong_anonymized": "wrong_anonymized_similarity",
    }
    return f"{stems[what]}/{recogniser}"
