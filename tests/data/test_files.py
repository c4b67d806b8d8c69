import numpy as np
import pytest
from PIL import Image

from faceanon.data.files import UnreadableError, read_mask, read_photo


def picture(seed=0, side=48, height=None):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, height or side), Image.Resampling.BICUBIC)


def test_reading_reduces_with_antialiasing(tmp_path):
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    pixels, square = read_photo(tmp_path / "stripes.png", 16)
    assert pixels.shape == (16, 16, 3)
    assert pixels.dtype == np.uint8
    assert square
    assert np.abs(pixels[:, 2:-2].astype(int) - 127).max() < 12  # nearest neighbour would give 0 or 255


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "RGBA", "LA", "1"])
def test_every_colour_mode_becomes_rgb(tmp_path, mode):
    original = picture(3)
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    (original.quantize(256) if mode == "P" else original.convert(mode)).save(path)
    pixels, _ = read_photo(path, 48)
    grey = mode in ("L", "LA", "1")
    expected = np.asarray(original.convert("1" if mode == "1" else "L").convert("RGB") if grey else original)
    assert pixels.shape == (48, 48, 3)
    assert np.abs(pixels.astype(int) - expected).mean() < 12


def test_sixteen_bit_grey_is_scaled_and_not_clipped(tmp_path):
    Image.fromarray(np.full((20, 20), 32768, np.uint16)).save(tmp_path / "deep.png")
    pixels, _ = read_photo(tmp_path / "deep.png", 16)
    assert abs(int(pixels.mean()) - 128) <= 1


def test_exif_rotation_is_applied(tmp_path):
    upright = picture(5)
    exif = Image.Exif()
    exif[0x0112] = 6  # stored rotated by 90 degrees counter-clockwise
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    pixels, _ = read_photo(tmp_path / "turned.png", 48)
    assert np.array_equal(pixels, np.asarray(upright))


def test_the_centre_is_cut_from_a_wide_picture_and_crop_is_a_fraction(tmp_path):
    wide = np.zeros((40, 80, 3), np.uint8)
    wide[:, 20:60] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    pixels, square = read_photo(tmp_path / "wide.png", 40)
    assert not square
    assert pixels.min() == 200
    pixels, square = read_photo(tmp_path / "wide.png", 40, crop=(0.0, 0.0, 0.5, 1.0))
    assert square
    assert pixels[:, :18].max() == 0
    assert pixels[:, 22:].min() == 200


def test_masks_are_reduced_by_nearest_neighbour_and_reordered(tmp_path):
    classes = np.repeat(np.repeat(np.array([[0, 1], [2, 18]], np.uint8), 32, 0), 32, 1)
    Image.fromarray(classes).save(tmp_path / "m.png")
    assert set(np.unique(read_mask(tmp_path / "m.png", 15))) == {0, 1, 2, 18}
    order = [5, 6, 7] + [9] * 16
    assert set(np.unique(read_mask(tmp_path / "m.png", 15, order=order))) == {5, 6, 7, 9}
    with pytest.raises(UnreadableError, match="class 18 is not among the 3"):
        read_mask(tmp_path / "m.png", 15, order=[0, 1, 2])
