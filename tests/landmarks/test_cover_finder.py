"""What covers a face: found where it is, nowhere else, and only where the rules allow it."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from covered_faces import images, whole_faces, with_masks
from faceanon.errors import UserError
from faceanon.landmarks.cover_cells import covered_cells, covered_in, eye_cells
from faceanon.landmarks.cover_finder import FILE, CoverFinder
from faceanon.landmarks.drawings import FINE, LEFT_EYE, RIGHT_EYE
from faceanon.landmarks.mesh import FaceMesh
from faceanon.persona.cells import drawn_lines
from faceanon.weights.bundle import Bundle
from faceanon.weights.shipped import read_shipped

CELLS = 16


@pytest.fixture(scope="module")
def finder():
    return CoverFinder()


def seen(faces):
    """What the finder sees of `(B, S, S, 3)` uint8: latents, maps and meshes."""
    image = images(faces)
    points, _ = FaceMesh().points(faces)
    meshes = torch.from_numpy(points) / faces.shape[1] * 2 - 1
    with torch.inference_mode():
        latents = Bundle("photo128").codec.encode(image)
    lines, mask = map(torch.from_numpy, drawn_lines(meshes.numpy(), image.numpy()))
    return latents, torch.cat([mask, F.avg_pool2d(lines, FINE)], 1), meshes


def covers_of(finder, latents, maps, meshes):
    """The cells of `(B, 1, h, h)` that are to stay as they are."""
    chances = finder.chances(latents, maps).numpy()
    return torch.from_numpy(covered_in(chances, maps[:, :1].numpy() > 0.5, meshes.numpy()))


def by_cells(taken, cells):
    """Share of every cell that `(B, S, S)` pixels take, `(B, 1, cells, cells)`."""
    return F.adaptive_avg_pool2d(torch.from_numpy(taken)[:, None].float(), cells)


def test_opening_the_network_draws_no_random_numbers():
    before = torch.get_rng_state()
    CoverFinder()
    assert torch.equal(torch.get_rng_state(), before)


def test_looking_draws_no_random_numbers(finder):
    given = seen(whole_faces(128, 1))
    before = torch.get_rng_state()
    covers_of(finder, *given)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("size", [128, 256])
def test_nothing_is_found_in_front_of_whole_faces(finder, size):
    covers = covers_of(finder, *seen(whole_faces(size)))
    assert covers.shape == (4, 1, size // 8, size // 8)
    assert covers.sum() == 0


@pytest.mark.parametrize("size", [128, 256])
def test_masks_are_found_and_nothing_beside_them(finder, size):
    worn, taken = with_masks(whole_faces(size))
    latents, maps, meshes = seen(worn)
    covers = covers_of(finder, latents, maps, meshes)
    share = by_cells(taken, size // 8)
    inside = (share > 0.9) & (maps[:, :1] > 0)
    assert covers[inside].mean() > 0.8
    assert covers[share == 0].sum() <= 0.02 * maps[:, 0].sum()
    assert covers[maps[:, :1] == 0].sum() == 0


def test_a_batch_gives_what_single_faces_give(finder):
    worn, _ = with_masks(whole_faces(128))
    latents, maps, meshes = seen(worn)
    together = covers_of(finder, latents, maps, meshes)
    for row in range(4):
        part = slice(row, row + 1)
        assert torch.equal(covers_of(finder, latents[part], maps[part], meshes[part]), together[part])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="install faceanon again"):
        CoverFinder(tmp_path)
    (tmp_path / FILE).write_bytes(read_shipped(FILE)[:-1])
    with pytest.raises(UserError, match="damaged"):
        CoverFinder(tmp_path)


# --- the rules


@pytest.fixture(scope="module")
def face():
    """Mask `(16, 16)` and mesh of a face."""
    _, maps, meshes = seen(whole_faces(128, 1))
    return maps[0, 0].numpy() > 0.5, meshes[0].numpy()


def eyes_of(mesh):
    return eye_cells(mesh, LEFT_EYE, CELLS), eye_cells(mesh, RIGHT_EYE, CELLS)


def lowest(mask, count):
    """The lowest rows of a mask, at least so many cells."""
    chosen = np.zeros_like(mask)
    for row in reversed(range(CELLS)):
        chosen[row] = mask[row]
        if chosen.sum() >= count:
            break
    return chosen


def test_a_cover_is_what_hangs_together(face):
    mask, mesh = face
    chances = np.zeros(mask.shape, np.float32)
    chin = lowest(mask, 8)
    chances[chin] = 1
    assert np.array_equal(covered_cells(chances, mask, mesh), chin)
    rows, columns = np.nonzero(mask & ~eyes_of(mesh)[0] & ~eyes_of(mesh)[1])
    alone = np.zeros(mask.shape, np.float32)
    alone[rows[0], columns[0]] = 1
    assert not covered_cells(alone, mask, mesh).any()


def test_what_is_not_sure_does_not_count(face):
    mask, mesh = face
    assert not covered_cells(np.where(lowest(mask, 20), 0.6, 0).astype(np.float32), mask, mesh).any()


def test_a_cover_needs_more_than_cells_that_are_just_sure(face):
    mask, mesh = face
    chances = np.where(lowest(mask, 20), 0.8, 0).astype(np.float32)
    assert not covered_cells(chances, mask, mesh).any()
    chances[chances > 0] = 0.97
    assert np.array_equal(covered_cells(chances, mask, mesh), lowest(mask, 20))


def test_a_cover_of_one_eye_alone_must_be_large(face):
    mask, mesh = face
    left = eyes_of(mesh)[0]
    assert not covered_cells((left & mask).astype(np.float32), mask, mesh).any()
    rows, columns = np.nonzero(left)
    hand = mask.copy()
    hand[: rows.min()] = False
    hand[:, columns.max() + 1 :] = False
    assert np.array_equal(covered_cells(hand.astype(np.float32), mask, mesh), hand)


def test_a_face_that_is_covered_all_over_is_not_believed(face):
    mask, mesh = face
    assert not covered_cells(mask.astype(np.float32), mask, mesh).any()


def test_an_eye_counts_whole_or_not_at_all(face):
    mask, mesh = face
    left, right = eyes_of(mesh)
    assert left.any()
    assert right.any()
    assert not (left & right).any()
    rows = np.nonzero(left)[0]
    band = np.zeros_like(mask)
    band[rows.min() - 1 : rows.max() + 2] = mask[rows.min() - 1 : rows.max() + 2]
    chances = band.astype(np.float32)
    assert np.array_equal(covered_cells(chances, mask, mesh), band)
    # One cell of an eye that may be seen keeps all of that eye painted, and leaves the other covered.
    chances[tuple(np.argwhere(left)[0])] = 0
    found = covered_cells(chances, mask, mesh)
    assert not (found & left).any()
    assert found[right].all()


def test_cells_outside_the_mask_never_count(face):
    mask, mesh = face
    chances = (lowest(mask, 20) | ~mask).astype(np.float32)
    assert not (covered_cells(chances, mask, mesh) & ~mask).any()
