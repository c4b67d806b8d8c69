"""The two orders in which public face parsers number the same 19 classes.

`l_` and `r_` are the left and right of the person shown: the left eye lies at the right of a picture.
"""

from __future__ import annotations

CELEBAMASK_HQ = (
    "background", "skin", "nose", "eye_g", "l_eye", "r_eye", "l_brow", "r_brow", "l_ear", "r_ear",
    "mouth", "u_lip", "l_lip", "hair", "hat", "ear_r", "neck_l", "neck", "cloth",
)  # fmt: skip
"""Order of CelebAMask-HQ's masks, of its own U-Net (`parsenet.pth`) and of DBAF's and RiDDLE's parse loss."""

BISENET = (
    "background", "skin", "l_brow", "r_brow", "l_eye", "r_eye", "eye_g", "l_ear", "r_ear", "ear_r",
    "nose", "mouth", "u_lip", "l_lip", "neck", "neck_l", "cloth", "hair", "hat",
)  # fmt: skip
"""Order of face-parsing.PyTorch's BiSeNet (`79999_iter.pth`)."""

PARTS = ("nose", "l_eye", "r_eye", "mouth", "u_lip", "l_lip")
"""Classes whose logits the published parse loss of RiDDLE compares."""


def class_numbers(names: tuple[str, ...], order: tuple[str, ...] = CELEBAMASK_HQ) -> tuple[int, ...]:
    """Numbers of classes in an order, e.g. of `PARTS`: (2, 4, 5, 10, 11, 12).

    Raises:
        ValueError: The order has no such class.

    Examples:
        >>> from faceanon.networks.parsing_classes import BISENET, class_numbers
        >>> class_numbers(("nose", "hair")), class_numbers(("nose", "hair"), BISENET)
        ((2, 13), (10, 17))
    """
    unknown = []
    for name in names:
        if name not in order:
            unknown.append(name)
    if unknown:
        raise ValueError(f"no parsing class {unknown[0]!r}; there are {', '.join(order)}")
    return tuple(map(order.index, names))
