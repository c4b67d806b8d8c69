"""Image sheets: one labelled row a version, one column a face."""

from __future__ import annotations

import io
from collections.abc import Mapping

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from faceanon.metrics.saved import to_bytes

LABEL_HEIGHT = 18
GAP = 2


def sheet(rows: Mapping[str, Tensor], scale: int = 2) -> Image.Image:
    """Draw every row of faces under its label.

    Args:
        rows: `(N, 3, S, S)` nominally in [-1, 1] by label; N and S may differ between rows.
        scale: Whole-number magnification, without smoothing.

    Returns:
        An RGB picture.

    Raises:
        ValueError: There are no rows, or a row has another shape.
    """
    if not rows:
        raise ValueError("a sheet needs at least one row of pictures")
    for label, row in rows.items():
        if row.ndim != 4 or row.shape[1] != 3:
            raise ValueError(f"row {label!r} must have the shape (N, 3, S, S), got {tuple(row.shape)}")
    # Pillow's own font, so that sheets look the same on every machine.
    font = ImageFont.load_default(13)
    widths = []
    for row in rows.values():
        widths.append(len(row) * (row.shape[3] * scale + GAP))
    width = max(max(widths), _label_width(rows, font))
    height = 0
    for row in rows.values():
        height += LABEL_HEIGHT + row.shape[2] * scale + GAP
    canvas = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(canvas)
    top = 0
    for label, row in rows.items():
        draw.text((2, top + 1), label, fill="black", font=font)
        _paste(canvas, row, scale, top + LABEL_HEIGHT)
        top += LABEL_HEIGHT + row.shape[2] * scale + GAP
    return canvas


def _label_width(rows: Mapping[str, Tensor], font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> int:
    return max(int(font.getlength(label)) + 4 for label in rows)


def _paste(canvas: Image.Image, row: Tensor, scale: int, top: int) -> None:
    for column, pixels in enumerate(to_bytes(row).numpy()):
        face = Image.fromarray(pixels)
        face = face.resize((face.width * scale, face.height * scale), Image.Resampling.NEAREST)
        canvas.paste(face, (column * (face.width + GAP), top))


def png_bytes(image: Image.Image) -> bytes:
    """A picture as the bytes of a PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
