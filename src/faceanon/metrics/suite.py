"""All that one recogniser says about one method: the figures, their intervals, and the scores behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from faceanon.metrics.diversity import KeyAngle, KeySpread, key_pairs
from faceanon.metrics.interval import rate_interval
from faceanon.metrics.readings import ThresholdReading
from faceanon.metrics.recognition import Identification, PairSimilarity, Verification, match_rate
from faceanon.metrics.roc import ScoredPairs, curve_intervals, roc

FARS = (1e-2, 1e-3)
RANKS = (1, 5)


@dataclass
class RecognitionVerdict:
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
        fars: False accept rates at which the true accept rate is reported, beside `far`.
        ranks: Ranks of identification.
        readings: Thresholds that papers print; those of other recognisers are passed over.
        draws: Bootstrap samples behind an interval; 200 at most behind those of `eer`, `auc` and `tar_at_far`.
        fallback: Threshold where the pictures show no two known people; NaN where there is none either.
    """

    def __init__(
        self,
        name: str,
        far: float,
        seed: int = 0,
        fars: Sequence[float] = FARS,
        ranks: Sequence[int] = RANKS,
        readings: Sequence[ThresholdReading] = (),
        draws: int = 1000,
        fallback: float = math.nan,
    ) -> None:
        self.name = name
        self.fallback = fallback
        self.far = far
        self.seed = seed
        self.draws = draws
        # The rate that sets the threshold comes first, and none twice.
        self.fars = tuple(dict.fromkeys((far, *fars)))
        self.ranks = tuple(ranks)
        own_readings = []
        for reading in readings:
            if reading.recogniser == name:
                own_readings.append(reading)
        self.readings = own_readings
        self.originals = Verification(far, seed=seed)
        self.pairs: dict[str, PairSimilarity] = {}
        self.lookups: dict[str, Identification] = {}
        self.angle = KeyAngle()
        self.spread = KeySpread()

    def update(self, embeddings: dict[str, Tensor], identity: Tensor) -> None:
        """Add a batch.

        Args:
            embeddings: `(B, E)` by version. `original` and `anonymized` (`(B, K, E)`, one a key) must be there;
                `reconstruction`, `recovered/<level>` and `wrong` where the method has them.
            identity: `(B,)` labels, -1 where unknown.
        """
        original = embeddings["original"]
        anonymized = embeddings["anonymized"]
        first = anonymized[:, 0]
        self.originals.to(original.device).update(original, identity)
        self._pair("anonymized", first, original)
        if anonymized.shape[1] > 1:
            self._pair("keys", *key_pairs(anonymized))
        self._look_up("original", original, original, identity)
        self._look_up("anonymized", first, original, identity)
        for what, embedding in embeddings.items():
            if what not in ("original", "anonymized"):
                self._pair(what, embedding, original)
        # A wrong key may give the original back, or leave the stranger as it was: both would help an attacker.
        if "wrong" in embeddings:
            self._pair("wrong_anonymized", embeddings["wrong"], first)
        if "recovered/file" in embeddings:
            self._look_up("recovered", embeddings["recovered/file"], original, identity)

    def update_angle(self, embedding: Tensor) -> None:
        """Add `(B, K, E)` embeddings under many keys, for KFFA and key diversity."""
        self.angle.to(embedding.device).update(embedding)
        self.spread.to(embedding.device).update(embedding)

    def _pair(self, what: str, embedding: Tensor, reference: Tensor) -> None:
        self.pairs.setdefault(what, PairSimilarity()).to(embedding.device).update(embedding, reference)

    def _look_up(self, what: str, probe: Tensor, gallery: Tensor, identity: Tensor) -> None:
        self.lookups.setdefault(what, Identification()).to(probe.device).update(probe, gallery, identity)

    def compute(self) -> RecognitionVerdict:
        """Figures, intervals and scores over everything added."""
        verdict = RecognitionVerdict()
        known = self.originals.compute()
        cosines = {}
        for what, metric in self.pairs.items():
            cosines[what] = metric.compute()
        people = known["identity"].reshape(-1)
        threshold = float(known["threshold"])
        if math.isnan(threshold):
            threshold = self.fallback
        self._scores(verdict, known, cosines)
        if math.isnan(threshold):
            verdict.skipped.append(f"all rates of {self.name}: no two known people, so no threshold")
        else:
            verdict.figures[f"threshold/{self.name}"] = threshold
            for what, cosine in cosines.items():
                self._matches(verdict, rate_name(what, self.name), cosine, threshold, people)
        self._readings(verdict, cosines, people)
        self._curve(verdict, "original", known, self.fars)
        self._lookup_figures(verdict, threshold, people)
        # Without extra keys nothing was added, and the spread's `compute` would raise.
        if self.angle.update_called:
            verdict.figures[f"kffa/{self.name}"] = float(self.angle.compute())
            spread = self.spread.compute()
            for what, v in spread.items():
                verdict.figures[f"key_diversity/{self.name}/{what}"] = float(v)
        return verdict

    def _scores(self, verdict: RecognitionVerdict, known: dict[str, Tensor], cosines: dict[str, Tensor]) -> None:
        for what in ("impostor", "genuine"):
            verdict.scores[what] = known[what].reshape(-1).cpu()
        for what, cosine in cosines.items():
            verdict.scores[what] = cosine.flatten().cpu()
            verdict.figures[f"id_cos/{self.name}/{what}"] = float(cosine.mean())
            with self.pairs[what].sync_context():
                verdict.figures[f"id_l1/{self.name}/{what}"] = float(self.pairs[what].l1())

    def _matches(
        self, verdict: RecognitionVerdict, name: str, cosine: Tensor, threshold: float, people: Tensor
    ) -> None:
        # Keys give several pairs a picture. They become one row, whose rate is the share of its accepted pairs.
        self._rate(verdict, name, match_rate(cosine.reshape(len(people), -1), threshold), people)

    def _readings(self, verdict: RecognitionVerdict, cosines: dict[str, Tensor], people: Tensor) -> None:
        """The rates at the thresholds that papers print; they need no impostors."""
        for reading in self.readings:
            for what, cosine in cosines.items():
                name = f"recognition_rate/{self.name}/{what}/{reading.name}"
                self._matches(verdict, name, cosine, reading.cosine, people)

    def _curve(
        self, verdict: RecognitionVerdict, what: str, found: Mapping[str, Tensor], fars: Sequence[float]
    ) -> None:
        """Equal error rate, area under the curve and true accept rates, with intervals over people."""
        pairs = as_pairs(found)
        if not pairs.usable:
            if what == "original":
                reason = "needs two known people with two pictures each"
                verdict.skipped.append(f"tar_at_far, eer, auc, deid_rate_gallery of {self.name}: {reason}")
            return
        curve = roc(pairs.genuine, pairs.impostor)
        tars = {}
        for far in fars:
            tars[f"tar/{far:g}"] = curve.tar_at(far)
        values = {"eer": curve.eer, "auc": curve.auc, **tars}
        # Each sample draws a whole curve, which takes long, so 200 have to do.
        intervals = curve_intervals(pairs, fars, min(self.draws, 200), self.seed)
        for key, value in values.items():
            name = f"{key}/{self.name}/{what}"
            if key.startswith("tar/"):
                name = f"tar_at_far/{self.name}/{key.removeprefix('tar/')}"
            verdict.figures[name] = value
            verdict.ci[name] = intervals[key]

    def _lookup_figures(self, verdict: RecognitionVerdict, threshold: float, people: Tensor) -> None:
        """Figures that need a second picture of the same person."""
        for what, metric in self.lookups.items():
            with metric.sync_context():
                lookup = metric.lookup()
            ranks = lookup.ranks()
            if ranks.isnan().all():
                verdict.skipped.append(f"rank1/{self.name}/{what}: no person has a second picture")
                continue
            for rank in self.ranks:
                # Who has no other picture cannot be found among them, and is no failure to find either.
                hits = (ranks <= rank).float().masked_fill(ranks.isnan(), math.nan)
                self._rate(verdict, f"rank{rank}/{self.name}/{what}", hits, people)
            # The originals' own curve, from all their pairs, is drawn in `compute`.
            if what != "original":
                self._curve(verdict, what, lookup.pairs(), ())
            if what == "anonymized" and not math.isnan(threshold):
                self._rate(verdict, f"deid_rate_gallery/{self.name}", lookup.accepted(threshold), people)

    def _rate(self, verdict: RecognitionVerdict, name: str, values: Tensor, people: Tensor) -> None:
        verdict.figures[name] = float(values.nanmean())
        verdict.ci[name] = rate_interval(values.cpu().numpy(), people.cpu().numpy(), self.draws, self.seed)


def as_pairs(found: Mapping[str, Tensor]) -> ScoredPairs:
    """The scores and people that `Verification.compute` and `Identification.pairs` give, as numpy sees them."""
    genuine = found["genuine"].reshape(-1).double().cpu().numpy()
    impostor = found["impostor"].reshape(-1).double().cpu().numpy()
    own = found["genuine_people"].reshape(-1).cpu().numpy()
    return ScoredPairs(genuine, own, impostor, found["impostor_people"].reshape(-1, 2).cpu().numpy())


def rate_name(what: str, recogniser: str) -> str:
    """Metric name of the match rate of one kind of pair.

    Examples:
        >>> from faceanon.metrics.suite import rate_name
        >>> rate_name("anonymized", "conv_judge"), rate_name("recovered/file", "conv_judge")
        ('deid_rate/conv_judge', 'recovery_rate/conv_judge/file')
    """
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
