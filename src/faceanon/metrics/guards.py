"""Methods that look good in one figure and fail in another: the warnings printed on top of every report."""

from __future__ import annotations

import math
from collections.abc import Mapping


def find_warnings(figures: Mapping[str, float], judge: str, far: float) -> list[str]:
    """One sentence for each known way in which good figures deceive.

    Args:
        figures: What `Evaluation.compute` found.
        judge: Name of the judging recogniser.
        far: The false accept rate of its threshold.
    """

    def get(name: str) -> float:
        return figures.get(name, math.nan)

    deid, recovery = get(f"deid_rate/{judge}"), get(f"recovery_rate/{judge}/file")
    image, wrong = get(f"recovery_rate/{judge}/image"), get(f"wrong_key_rate/{judge}")
    keys, reconstruction = get(f"key_similarity/{judge}"), get(f"self_verification/{judge}")
    tar, threshold, copies = get(f"tar_at_far/{judge}/{far:g}"), get(f"threshold/{judge}"), get("recovery_copy_rate")
    checks = [
        (deid > 0.5, f"nothing is anonymized: {deid:.0%} of the anonymized faces are still accepted as the original"),
        (keys > 0.9, f"the key is ignored: two keys give the same person in {keys:.0%} of the pairs"),
        (
            reconstruction < 0.9,
            f"blur passes for anonymity: only {reconstruction:.0%} of plain reconstructions are "
            "recognised, so a low de-identification rate proves nothing",
        ),
        (copies > 0.5, f"recovery copies its input: {copies:.0%} of the recovered pictures are the anonymized ones"),
        (wrong > 0.5, f"the lock is open: {wrong:.0%} of the faces come back under a wrong key"),
        (
            image - recovery > 0.2,
            f"recovery does not survive the file: {image:.0%} from the float picture, "
            f"{recovery:.0%} from the saved one",
        ),
        (tar < 0.8, f"the judge is weak: it accepts only {tar:.0%} of true pairs, so it misses people"),
        (threshold > 0.95, f"the judge confuses people: its threshold is a cosine of {threshold:.3f}"),
    ]  # a missing figure is NaN, and no comparison with NaN holds
    broken = [name for name, value in figures.items() if not math.isfinite(value)]
    found = [text for fails, text in checks if fails]
    return found + ([f"not finite: {', '.join(sorted(broken))}"] if broken else [])
