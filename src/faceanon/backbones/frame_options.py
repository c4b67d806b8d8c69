"""How faces that were drawn in the frame of a mesh are put back into their pictures."""

from __future__ import annotations

from dataclasses import dataclass

from faceanon.errors import UserError

MOST_LIGHT = 0.25  # in sides of the frame; a face is hardly wider, and its mean colour is all that is smoother


@dataclass(frozen=True)
class FrameOptions:
    """What is asked of faces in the frame of a mesh (`backbones.in_frame`); other faces know none of it.

    Args:
        keep_light: How smooth light and colours are that stay the picture's own, in sides of the frame: 0 keeps none,
            0.16 what skin, lamps and shadows of the whole face are; at most 0.25. Strangers have them, and who is
            brought back.
        corrections: Rounds in which whoever anonymizes reads the stranger's saved picture as a receiver will, and draws
            it anew so that the right code is read. Each takes as long as anonymizing and recovering.

    Raises:
        UserError: A number is out of range.

    Examples:
        >>> from faceanon.backbones.frame_options import FrameOptions
        >>> FrameOptions(keep_light=0.16, corrections=1)
        FrameOptions(keep_light=0.16, corrections=1)
    """

    keep_light: float = 0.0
    corrections: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that are out of range."""
        if not 0 <= self.keep_light <= MOST_LIGHT:
            raise UserError(f"keep_light is {self.keep_light}; give a number between 0 and {MOST_LIGHT}")
        if self.corrections < 0:
            raise UserError(f"corrections is {self.corrections}; give 0 or more")


AS_DRAWN = FrameOptions()
