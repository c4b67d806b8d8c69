from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from faceanon.errors import UserError
from faceanon.manifest import CropGeometry
from faceanon.photo import crop_paste as pasting
from faceanon.photo.align import arrange_layers, crop_window, geometry_from_points, reframed, samples, whole_picture
from faceanon.photo.crop_paste import changed_region, crop, paste

UPRIGHT = np.array([[40, 50], [60, 50], [50, 60], [43, 72], [57, 72]], dtype=float)


def smooth(size, seed, channels=3):
    """A picture with detail at every scale, `(3, size, size)` in [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    layers = [
        torch.nn.functional.interpolate(
            torch.randn(1, channels, side, side, generator=generator), size, mode="bicubic", antialias=True
        )
        / (1 + step)
        for step, side in enumerate((4, 8, 16, 32, 64))
        if side <= size
    ]
    return (torch.stack(layers).sum(0)[0] * 0.4).clamp(-1, 1).numpy()


def as_photo(picture):
    return np.rint((picture + 1) * 127.5).clip(0, 255).astype(np.uint8).transpose(1, 2, 0).copy()


def psnr(one, other):
    return float(-10 * np.log10(np.square((one - other) / 2).mean()))


def test_ffhq_square():
    geometry = geometry_from_points(UPRIGHT)
    assert geometry.side == pytest.approx(2 * max(2.0 * 20, 1.8 * 22))
    assert (geometry.center_x, geometry.center_y) == pytest.approx((50, 50 + 0.1 * 22))
    assert geometry.axis_y == pytest.approx(0)
    assert geometry.axis_x > 0


def test_geometry_turns_and_scales_with_the_face():
    angle = 0.6
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turned = geometry_from_points(3 * UPRIGHT @ turn.T)
    upright = geometry_from_points(UPRIGHT)
    center = 3 * turn @ np.array([upright.center_x, upright.center_y])
    axis = 3 * turn @ np.array([upright.axis_x, upright.axis_y])
    assert (turned.center_x, turned.center_y, turned.axis_x, turned.axis_y) == pytest.approx((*center, *axis))


def test_crop_of_whole_picture_is_the_picture():
    photo = as_photo(smooth(64, 0))
    face = crop(photo, whole_picture(64, 64), 64)
    assert face.dtype == np.float32
    np.testing.assert_array_equal(as_photo(face), photo)


def test_crop_averages_when_it_shrinks():
    photo = as_photo(smooth(128, 1))
    expected = photo.reshape(32, 4, 32, 4, 3).mean((1, 3)) / 127.5 - 1
    face = crop(photo, whole_picture(128, 128), 32)
    np.testing.assert_allclose(face.transpose(1, 2, 0), expected, atol=0.02)


def test_crop_turns_the_right_way():
    photo = np.zeros((100, 100, 3), dtype=np.uint8)
    photo[20:40, 60:80] = 255  # up and right of the middle
    down_is_left = crop(photo, CropGeometry(50, 50, 0, 50), 10)  # the face's right points down in the photo
    rows, columns = np.nonzero(down_is_left[0] > 0)
    assert rows.mean() < 4
    assert columns.mean() < 4


def test_crop_mirrors_what_sticks_out():
    photo = as_photo(smooth(64, 2))
    face = crop(photo, CropGeometry(0, 32, 32, 0), 64)  # left half of the square is outside
    np.testing.assert_allclose(face[:, :, :32], face[:, :, :31:-1], atol=0.02)


@pytest.mark.parametrize(
    ("side", "angle", "least"), [(40, 0.3, 26), (60, 0.0, 36), (80, 0.3, 50), (150, 0.0, 55), (400, 0.3, 58)]
)
def test_pasted_face_is_cropped_out_again(side, angle, least):
    """Model side 64; the opaque part of the square, whatever surrounds it. Below 64 px the photo holds less."""
    photo, face = as_photo(smooth(600, 3)), smooth(64, 4)
    geometry = CropGeometry(300.3, 297.6, side / 2 * np.cos(angle), side / 2 * np.sin(angle))
    paste(photo, face, geometry)
    again = crop(photo, geometry, 64)
    assert psnr(again[:, 4:-4, 4:-4], face[:, 4:-4, 4:-4]) > least


def test_correction_is_what_makes_it_exact():
    face, geometry, found = smooth(64, 5), CropGeometry(150, 150, 70, 20), {}
    for passes in (0, 4):
        photo = as_photo(smooth(300, 6))
        paste(photo, face, geometry, passes=passes)
        found[passes] = psnr(crop(photo, geometry, 64)[:, 4:-4, 4:-4], face[:, 4:-4, 4:-4])
    assert found[4] > found[0] + 10


def test_paste_leaves_the_rest_alone_and_hides_its_seam():
    before = as_photo(smooth(300, 7))
    after, geometry = before.copy(), CropGeometry(150, 150, 50, 0)
    paste(after, crop(before, geometry, 64), geometry)
    outside = np.ones((300, 300), dtype=bool)
    outside[100:200, 100:200] = False
    np.testing.assert_array_equal(after[outside], before[outside])
    step = np.abs(after.astype(int) - before)
    assert step[98:104, 98:202].mean() < 1  # a face that did not change meets its surroundings


def test_paste_keeps_no_detail_of_the_original():
    """A checkerboard that a 64 px face cannot show must be gone, not shine through."""
    photo = np.indices((256, 256)).sum(0) % 2 * 255
    photo = np.repeat(photo[..., None], 3, 2).astype(np.uint8)
    paste(photo, np.zeros((3, 64, 64), np.float32), whole_picture(256, 256))
    inner = photo[20:-20, 20:-20].astype(int)
    assert inner.max() - inner.min() <= 2


def test_paste_without_feather_fills_the_square():
    photo, face = np.zeros((64, 64, 3), dtype=np.uint8), smooth(64, 8)
    paste(photo, face, whole_picture(64, 64), feather=0)
    np.testing.assert_array_equal(photo, as_photo(face))


@pytest.mark.parametrize("place", [(-200.0, 50.0), (50.0, 900.0)])
def test_face_outside_the_photo_is_refused(place):
    with pytest.raises(UserError, match="outside the photo"):
        crop(np.zeros((100, 100, 3), dtype=np.uint8), CropGeometry(*place, 20, 0), 64)


def test_oblong_picture_is_no_aligned_face():
    with pytest.raises(UserError, match="must be square, not 64x80"):
        whole_picture(64, 80)


def test_layers_hold_no_neighbours():
    near = [CropGeometry(100 + 30 * index, 100, 25, 5) for index in range(6)]
    far = CropGeometry(500, 500, 25, 5)
    layers = arrange_layers([*near, far])
    assert sorted(map(repr, sum(layers, ()))) == sorted(map(repr, [*near, far]))
    assert len(layers) == 3
    for layer in layers:
        places = sorted(face.center_x for face in layer)
        assert all(right - left >= 60 for left, right in pairwise(places))


def test_reframed_square_moves_along_the_faces_own_axes():
    turned = CropGeometry(100, 100, 0, 20)  # its right is the photo's down, its down the photo's left
    moved = reframed(turned, 0.5, 0.1, 0.25)
    assert (moved.center_x, moved.center_y) == pytest.approx((90, 104))
    assert (moved.axis_x, moved.axis_y) == pytest.approx((0, 10))
    assert reframed(turned, 1, 0, 0) == turned


def test_paste_into_a_region_leaves_the_rest_of_the_square_to_the_bit():
    photo = np.random.default_rng(0).integers(0, 256, (120, 120, 3), dtype=np.uint8)
    square = CropGeometry(60.0, 60.0, 40.0, 0.0)
    before = crop(photo, square, 32)
    after = before.copy()
    after[:, 12:20, 12:20] = 1.0
    pasted = photo.copy()
    paste(pasted, after, square, region=changed_region(before, after))
    # One pixel of the face is 2.5 of the photo; around the region two more are touched.
    touched = np.zeros((120, 120), bool)
    touched[20 + int(10 * 2.5) : 20 + int(22 * 2.5), 20 + int(10 * 2.5) : 20 + int(22 * 2.5)] = True
    assert np.array_equal(pasted[~touched], photo[~touched])
    # Back-projection brings the face that is cropped again to the one that was pasted.
    again = crop(pasted, square, 32)
    assert np.abs(again[:, 13:19, 13:19] - 1).max() < 0.03


def test_a_change_below_half_a_step_of_8_bits_is_none():
    before = np.zeros((3, 8, 8), np.float32)
    after = before.copy()
    after[0, 2, 3] = 0.9 / 255
    after[1, 4, 5] = -3 / 255
    assert np.argwhere(changed_region(before, after)).tolist() == [[4, 5]]


def averaged(fine, times):
    return F.avg_pool2d(fine, times)[0]


def plainly_pasted(photo, face, geometry, feather, passes, region):
    """What `paste` does, on the whole window at once, by torch's sampling."""
    box = crop_window(geometry, photo.shape[1], photo.shape[0])
    window = torch.from_numpy(pasting._window(photo, box))
    size = face.shape[-1]
    face = torch.from_numpy(face).clamp(-1, 1)
    times = samples(size / geometry.side)
    places = pasting._face_grid(geometry, box, times)
    grid = torch.from_numpy(places)
    steps = pasting._crop_steps(geometry, size)
    back = torch.from_numpy(pasting._places(geometry, box, steps[None, :], steps[:, None])[None])
    alpha = torch.from_numpy(pasting._opacity(places, feather, times))
    firm = torch.from_numpy(pasting._firm(size, feather))
    if region is not None:
        wide = torch.from_numpy(pasting._widened(region))
        fine = F.grid_sample(wide[None, None], grid, mode="bilinear", padding_mode="border", align_corners=False)
        alpha = alpha * averaged(fine, times)
        firm = firm * wide

    def blend(drawn):
        drawn = F.grid_sample(drawn[None], grid, mode="bicubic", padding_mode="border", align_corners=False)
        return (window + alpha * (averaged(drawn, times) - window)).clamp(-1, 1)

    corrected = face
    blended = blend(corrected)
    for _ in range(passes):
        fine = F.grid_sample(blended[None], back, mode="bicubic", padding_mode="reflection", align_corners=False)
        seen = averaged(fine, len(steps) // size).clamp(-1, 1)
        corrected = corrected + firm * (face - seen)
        blended = blend(corrected)
    left, top, right, bottom = box
    photo[top:bottom, left:right] = as_photo(blended.numpy())


@pytest.mark.parametrize("side", [40.0, 90.0, 300.0])
def test_a_crop_is_what_torch_samples(side):
    photo = as_photo(smooth(300, 1))
    geometry = CropGeometry(150.0, 120.0, side / 2 * 0.98, side / 2 * 0.2)
    box = crop_window(geometry, 300, 300)
    steps = pasting._crop_steps(geometry, 128)
    grid = torch.from_numpy(pasting._places(geometry, box, steps[None, :], steps[:, None])[None])
    window = torch.from_numpy(pasting._window(photo, box))[None]
    fine = F.grid_sample(window, grid, mode="bicubic", padding_mode="reflection", align_corners=False)
    wanted = averaged(fine, len(steps) // 128).clamp(-1, 1).numpy()
    np.testing.assert_allclose(crop(photo, geometry, 128), wanted, atol=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_pasting_draws_only_what_changes_and_the_same(seed):
    generator = np.random.default_rng(seed)
    photo = as_photo(smooth(128, seed))[:, : generator.integers(90, 128)].copy()
    x, y = generator.uniform(10, 110, 2).tolist()
    half, turn = generator.uniform(8, 70), generator.uniform(-0.7, 0.7)
    geometry = CropGeometry(x, y, float(half * np.cos(turn)), float(half * np.sin(turn)))
    face = smooth(64, 100 + seed) * np.float32(1.2)
    region = None
    if seed % 4:
        region = np.zeros((64, 64), np.float32)
        top, left = generator.integers(0, 40, 2)
        region[top : top + 24, left : left + 30] = 1
    feather, passes = (0.0, 4) if seed % 3 == 0 else (0.05, seed % 2 * 4)
    wanted = photo.copy()
    plainly_pasted(wanted, face, geometry, feather, passes, region)
    paste(photo, face, geometry, feather, passes, region)
    # The last bit of a sum may differ on another processor, and with it a rounding.
    difference = np.abs(wanted.astype(int) - photo)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


def test_an_empty_region_leaves_the_photo_as_it_is():
    photo = as_photo(smooth(64, 0))
    before = photo.copy()
    paste(photo, smooth(32, 1), CropGeometry(30, 30, 16, 4), region=np.zeros((32, 32), np.float32))
    np.testing.assert_array_equal(photo, before)
