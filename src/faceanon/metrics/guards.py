"""Methods that look good in one figure and fail in another: the warnings printed on top of every report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

Get = Callable[[str], float]
FEWEST = 5  # false accepts behind a threshold
LEAST_KEPT = 0.3  # IoU of the parser's labels: a blur that hides keeps .4


def find_faults(figures: Mapping[str, float], judge: str, far: float) -> dict[str, str]:
    """One sentence for each known way in which good figures deceive, by the figure that gives it away.

    Args:
        figures: What `Evaluation.compute` found.
        judge: Name of the judging recogniser.
        far: The false accept rate of its threshold.

    Examples:
        >>> from faceanon.metrics.guards import find_faults
        >>> faults = find_faults({"key_similarity/judge": 0.97}, judge="judge", far=0.01)
        >>> faults["key_similarity/judge"]
        'the key is ignored: two keys give the same person in 97% of the pairs'
    """

    def get(name: str) -> float:
        return figures.get(name, math.nan)

    checks = [*_anonymity(get, judge), *_picture(get), *_recovery(get, judge), *_judge(get, judge, far)]
    # No comparison with a missing figure's NaN holds.
    faults = {}
    for name, fails, text in checks:
        if fails:
            # Two checks may share a figure: where both fail, the later sentence stays.
            faults[name] = text
    broken = []
    for name, value in figures.items():
        if not math.isfinite(value):
            broken.append(name)
    if broken:
        faults["finite"] = f"not finite: {', '.join(sorted(broken))}"
    return faults


def few_pairs(pairs: int, far: float) -> str | None:
    """A sentence where so few impostor pairs that hardly one is accepted set the judge's threshold, else None.

    Examples:
        >>> from faceanon.metrics.guards import few_pairs
        >>> few_pairs(190, far=0.01)
        "few people: 190 impostor pairs set the judge's threshold; test with more faces"
        >>> few_pairs(100_000, far=0.01) is None
        True
    """
    if pairs >= FEWEST / far:
        return None
    return f"few people: {pairs} impostor pairs set the judge's threshold; test with more faces"


def _anonymity(get: Get, judge: str) -> list[tuple[str, bool, str]]:
    names = ("deid_rate", "key_similarity", "self_verification")
    deid, keys, reconstruction = (get(f"{name}/{judge}") for name in names)
    rank1 = get(f"rank1/{judge}/anonymized")
    again = get(f"rank1/{judge}/original")
    return [
        (
            f"deid_rate/{judge}",
            deid > 0.5,
            f"nothing is anonymized: {deid:.0%} of the anonymized faces are still accepted as the original",
        ),
        (
            f"rank1/{judge}/anonymized",
            # Only where the figure above does not say it already.
            # `again > 0` leaves out tests in which not even the originals are found.
            deid <= 0.5 and rank1 > 0.5 * again > 0,
            f"people are still found: {rank1:.0%} of the anonymized faces lead to another picture of their person, "
            f"of the originals {again:.0%}, though few pass the threshold",
        ),
        (
            f"key_similarity/{judge}",
            keys > 0.9,
            f"the key is ignored: two keys give the same person in {keys:.0%} of the pairs",
        ),
        (
            f"self_verification/{judge}",
            reconstruction < 0.9,
            f"blur passes for anonymity: only {reconstruction:.0%} of plain reconstructions are "
            "recognised, so a low de-identification rate proves nothing",
        ),
    ]


def _picture(get: Get) -> list[tuple[str, bool, str]]:
    kept = get("parsing_iou/anonymized")
    return [
        (
            "parsing_iou/anonymized",
            kept < LEAST_KEPT,
            f"little of the picture is kept: the parser's labels of anonymized faces agree with the originals' to an "
            f"IoU of {kept:.2f} only, so that few who are recognised prove nothing",
        )
    ]


def _recovery(get: Get, judge: str) -> list[tuple[str, bool, str]]:
    recovery, image = (get(f"recovery_rate/{judge}/{level}") for level in ("file", "image"))
    wrong = get(f"wrong_key_rate/{judge}")
    copies = get("recovery_copy_rate")
    before = get("mse/anonymized/file")
    after = get("mse/recovered/file")
    return [
        (
            "recovery_copy_rate",
            copies > 0.5,
            f"recovery copies its input: {copies:.0%} of the recovered pictures are the anonymized ones",
        ),
        (
            f"wrong_key_rate/{judge}",
            wrong > 0.5,
            f"the lock is open: {wrong:.0%} of the faces come back under a wrong key",
        ),
        (
            f"recovery_rate/{judge}/file",
            recovery < 0.1,
            f"recovery brings nobody back: the right key makes {recovery:.0%} of the faces recognisable again, "
            "so that few who are recognised without it prove nothing",
        ),
        (
            f"recovery_rate/{judge}/file",
            image - recovery > 0.2,
            f"recovery does not survive the file: {image:.0%} from the float picture, "
            f"{recovery:.0%} from the saved one",
        ),
        (
            "mse/recovered/file",
            # An MSE of 0 before recovery means an unchanged picture, which the checks of anonymity report.
            after >= before > 0,
            f"recovery is no nearer to the original than the anonymized picture: MSE {after:.4f} against {before:.4f}",
        ),
    ]


def _judge(get: Get, judge: str, far: float) -> list[tuple[str, bool, str]]:
    tar = get(f"tar_at_far/{judge}/{far:g}")
    threshold = get(f"threshold/{judge}")
    return [
        (
            f"tar_at_far/{judge}/{far:g}",
            tar < 0.8,
            f"the judge is weak: it accepts only {tar:.0%} of true pairs, so it misses people",
        ),
        (
            f"threshold/{judge}",
            threshold > 0.95,
            f"the judge confuses people: its threshold is a cosine of {threshold:.3f}",
        ),
    ]
