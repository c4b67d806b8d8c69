"""What every figure means, in plain words, and how it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faceanon.report.board import Better, shown, shown_interval


@dataclass(frozen=True)
class Explanation:
    """One family of figures.

    Args:
        title: Heading.
        text: What it is, for a reader who is no specialist.
        better: Which direction is good; empty where neither is.
        unit: Appended to the value; "%" also multiplies by 100.
        digits: Decimals printed.
    """

    title: str
    text: str
    better: Better = ""
    unit: str = ""
    digits: int = 3


_E = Explanation
EXPLANATIONS: dict[str, Explanation] = {
    "deid_rate": _E(
        "Still recognised",
        "Share of anonymized faces that the recogniser still accepts as the person in "
        "the very picture they were made from.",
        "lower",
        "%",
        1,
    ),
    "self_verification": _E(
        "Plain reconstructions recognised",
        "Share of faces still recognised after the method only "
        "draws them again, without a key. If this is low, the method blurs, and a low share of "
        "recognised anonymized faces proves nothing.",
        "higher",
        "%",
        1,
    ),
    "deid_rate_gallery": _E(
        "Still recognised from another picture",
        "Share of anonymized faces accepted as the same "
        "person as in another, untouched picture. Compare with true pairs accepted.",
        "lower",
        "%",
        1,
    ),
    "recovery_rate": _E(
        "Recovered",
        "Share of faces recovered with the right key that are accepted as the original. "
        "latent: codes never leave memory; image: from the float picture; file: from the saved 8-bit "
        "PNG, the one that counts; jpeg75: from a JPEG of that quality.",
        "higher",
        "%",
        1,
    ),
    "wrong_key_rate": _E(
        "Recovered with a wrong key", "Share of faces that a wrong key brings back all the same.", "lower", "%", 1
    ),
    "undrawn_rate": _E(
        "Blurred instead of drawn",
        "Share of faces that the method could not make out, so that the product blurs them for good.",
        "lower",
        "%",
        1,
    ),
    "carried_bytes": _E(
        "Bytes carried beside the picture",
        "Mean size of the sealed code of a face, which recovery needs beside the picture and the password: latents of "
        "the face, encrypted. 0 for a method whose pictures show what it needs.",
        "lower",
        " B",
        0,
    ),
    "key_similarity": _E(
        "Two keys, one stranger",
        "Share of pictures whose versions under two keys are accepted as one person. Near 100 % the key is ignored.",
        "lower",
        "%",
        1,
    ),
    "wrong_anonymized_similarity": _E(
        "Wrong key shows the anonymized face",
        "Share of wrong-key results accepted as the anonymized person: the key that failed is easy to notice.",
        "lower",
        "%",
        1,
    ),
    "rank1": _E(
        "Found among all other pictures",
        "Share of faces whose nearest picture, among all originals but their "
        "own, shows the right person. For anonymized lower is better, for original and recovered higher.",
        "",
        "%",
        1,
    ),
    "retrieved": _E(
        "Found among all pictures",
        "Share of faces whose nearest picture, among all originals with their own, shows the right person. For "
        "anonymized lower is better, down to chance.",
        "",
        "%",
        1,
    ),
    "chance": _E(
        "What a guess finds", "Share of faces that a guess finds, among all pictures or all others.", "", "%", 1
    ),
    "tar_at_far": _E(
        "True pairs accepted",
        "Share of pairs of untouched pictures of one person that the recogniser "
        "accepts, at the false accept rate in the name: how good the recogniser is.",
        "higher",
        "%",
        1,
    ),
    "auc": _E(
        "Area under the ROC curve",
        "Probability that a pair of pictures of one person scores above a pair of two persons.",
        "higher",
        "",
        4,
    ),
    "eer": _E(
        "Equal error rate",
        "Where false accepts and false rejects are equally many. Of anonymized pictures against other photos of the "
        "person: near 50 % means that they tell nothing of who it was.",
        "lower",
        "%",
        1,
    ),
    "recognition_rate": _E(
        "Recognised, as a paper counts it",
        "Share of pairs below the distance that a paper names; the name says which reading of it.",
        "",
        "%",
        1,
    ),
    "id_l1": _E("L1 between embeddings", "Mean absolute difference of embeddings; small is alike."),
    "threshold": _E("Threshold", "Cosine above which a pair is accepted, set on pairs of different people."),
    "id_cos": _E(
        "Mean cosine to the original",
        "Mean similarity of the pairs named (keys: between two keys; "
        "wrong_anonymized: wrong-key result to anonymized face).",
    ),
    "kffa": _E(
        "Angle between keys (KFFA, our reading)",
        "Mean angle between the strangers that many keys make of one face; 90 degrees is unrelated.",
        "higher",
        "°",
        1,
    ),
    "key_diversity": _E("Diversity over keys", "Mean 1 - cosine between the strangers of many keys.", "higher"),
    "psnr": _E(
        "PSNR",
        "Fidelity to the original. For anonymized pictures it says how much of the picture stayed.",
        "higher",
        " dB",
        2,
    ),
    "psnr_face": _E("PSNR of the face", "The same inside the face.", "higher", " dB", 2),
    "psnr_background": _E("PSNR of the background", "The same outside the head.", "higher", " dB", 2),
    "psnr_outside_face": _E(
        "PSNR outside the face", "The same everywhere but in the face, hair included.", "higher", " dB", 2
    ),
    "occluder_psnr": _E("PSNR of glasses, masks, hands", "The same on what lies before the face.", "higher", " dB", 2),
    "mse": _E(
        "MSE",
        "Mean squared error of pixels in [0, 1]; papers that use [-1, 1] print four times as much.",
        "lower",
        "",
        5,
    ),
    "ssim": _E("SSIM", "Structural similarity to the original.", "higher"),
    "lpips": _E(
        "Perceptual distance",
        "LPIPS' formula on the bundle's own perceptual network; compares within one bundle only.",
        "lower",
        "",
        4,
    ),
    "landmark_distance": _E(
        "Landmarks moved by",
        "Mean distance of facial landmarks to those of the original: pose and expression kept.",
        "lower",
        " px",
        2,
    ),
    "detection_rate": _E("Faces found", "Share of pictures in which the detector finds a face.", "higher", "%", 1),
    "box_distance": _E("Boxes moved by", "Mean L1 distance of detection boxes to the original's.", "lower", " px", 2),
    "mesh_distance": _E(
        "Face mesh moved by", "Mean distance of 468 points of the face, in eye distances.", "lower", "%", 1
    ),
    "correlation": _E(
        "Expression kept",
        "Correlation of the mouth's opening, and of how far the head is turned and tilted, with the original's.",
        "higher",
    ),
    "skin_distance": _E(
        "Colour of the face off by", "Difference of the face's mean colour, in levels of 255.", "lower", "", 1
    ),
    "light_distance": _E(
        "Light off by",
        "Difference of the smooth course of light over the face, beside its mean colour, in levels of 255.",
        "lower",
        "",
        1,
    ),
    "parsing_iou_outside": _E("Parsing IoU outside the face", "The same over what anonymizing should keep.", "higher"),
    "parsing_iou": _E("Parsing IoU", "Agreement of face parts (hair, eyes, mouth, ...) with the original.", "higher"),
    "fid": _E("FID", "Fréchet distance on Inception-v3 or its stand-in; biased for few pictures.", "lower", "", 3),
    "kid": _E(
        "KID",
        "Distance between the looks of originals and anonymized pictures, on FID's features.",
        "lower",
        "",
        5,
    ),
    "kid_std": _E("KID, spread", "Standard deviation of KID over its random subsets.", "", "", 5),
    "attack": _E(
        "Trained attackers",
        "Share of new people whom attackers find who learnt from half of the people: inversion undoes the pictures, "
        "recogniser looks for other pictures of the person. painted: the same before faces painted grey; blur: before "
        "a weak blur, which a strong enough attacker undoes.",
        "",
        "%",
        1,
    ),
    "recovery_copy_rate": _E(
        "Recovery did nothing", "Share of recovered pictures that equal the anonymized ones.", "lower", "%", 1
    ),
}
UNKNOWN = Explanation("Other", "")


def explain(name: str) -> Explanation:
    """The family of a metric name such as `psnr/recovered/file`."""
    return EXPLANATIONS.get(family_of(name), UNKNOWN)


def family_of(name: str) -> str:
    """What the family of a metric name is called.

    Examples:
        >>> from faceanon.report.figures import family_of
        >>> family_of("psnr/recovered/file"), family_of("rank5/judge/original")
        ('psnr', 'rank1')
    """
    family = name.split("/")[0]
    # rank1, rank5 and so on differ in a number alone.
    if family.startswith("rank"):
        return "rank1"
    return family


def better(name: str) -> Better:
    """Which direction is good for one figure."""
    # One family with two directions: an anonymized face should not be found, an original or recovered one should.
    if name.startswith(("rank", "retrieved/")):
        if name.endswith("/anonymized"):
            return "lower"
        return "higher"
    if name.endswith("/anonymized") and name.startswith(("auc/", "eer/")):
        if name.startswith("auc/"):
            return "lower"
        return "higher"
    # How far the picture of a wrong key lies from the original is neither good nor bad.
    if "/wrong/" in name:
        return ""
    return explain(name).better


def shared_better(names: Sequence[str]) -> Better | None:
    """Which direction is good for all of some figures; None where they differ, so that each has to show its own.

    Examples:
        >>> from faceanon.report.figures import shared_better
        >>> shared_better(["eer/judge/original", "eer/judge/recovered"])
        'lower'
        >>> shared_better(["eer/judge/original", "eer/judge/anonymized"]) is None
        True
    """
    directions = set(map(better, names))
    if len(directions) > 1:
        return None
    return directions.pop()


def format_value(name: str, value: float | None) -> str:
    """Value with its unit; a hyphen where there is none, and the word where it is not finite."""
    return shown(value, explain(name).unit, explain(name).digits)


def format_interval(name: str, interval: tuple[float, float] | None) -> str:
    """95% interval without unit, or nothing."""
    return shown_interval(interval, explain(name).unit, explain(name).digits)


def grouped(names: list[str]) -> dict[str, list[str]]:
    """Metric names by family, families in the order of `EXPLANATIONS`, unknown ones last."""
    order = {}
    for rank, family in enumerate(EXPLANATIONS):
        order[family] = rank
    groups: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda n: order.get(family_of(n), len(order))):
        groups.setdefault(family_of(name), []).append(name)
    return groups
