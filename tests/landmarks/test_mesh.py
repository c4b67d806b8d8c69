"""The shipped mesh network: parity with the published one, frames, sizes, and damaged files."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image

from faceanon.errors import UserError
from faceanon.landmarks.mesh import LEFT_EYE, LEFT_MOUTH, NOSE, RIGHT_EYE, RIGHT_MOUTH, FaceMesh
from faceanon.weights.shipped import SHA256, read_shipped


@pytest.fixture(scope="module")
def photofaces(shared):
    """32 synthetic photographs `(32, 256, 256, 3)` with their five points `(32, 5, 2)`."""
    with (shared / "photofaces" / "manifest.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[::60]
    paths = [shared / "photofaces" / "aligned256" / row["file"] for row in rows]
    names = ("leye", "reye", "nose", "lmouth", "rmouth")
    points = np.array([[[float(row[f"{name}_{axis}"]) for axis in "xy"] for name in names] for row in rows])
    return np.stack([np.array(Image.open(path).convert("RGB")) for path in paths]), points


def test_the_network_gives_the_published_ones_points(mesh, shared):
    with np.load(shared / "testbed/golden/landmarks.npz") as golden:
        crops = golden["crops192_rgb"].astype(np.float32) / 255
        wanted = golden["facemesh_out_Identity_2"].reshape(-1, 468, 3)
        flags = golden["facemesh_out_Identity_1"].reshape(-1)
    points, confidence = mesh.raw(crops)
    np.testing.assert_allclose(points, wanted, atol=0.01)
    np.testing.assert_allclose(confidence, flags, atol=1e-4)


def test_opening_the_network_draws_no_random_numbers():
    before = torch.get_rng_state()
    FaceMesh()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_gives_what_single_faces_give(mesh, photofaces):
    faces = photofaces[0][:5]
    together, _ = FaceMesh(batch=3).points(faces)
    alone = np.concatenate([mesh.points(face[None])[0] for face in faces])
    np.testing.assert_allclose(together, alone, atol=1e-3)


def five_points(points):
    """The five points of a detector `(B, 5, 2)` from meshes `(B, 468, 2)`."""
    left_eye = points[:, LEFT_EYE].mean(1)
    right_eye = points[:, RIGHT_EYE].mean(1)
    return np.stack([left_eye, right_eye, points[:, NOSE], points[:, LEFT_MOUTH], points[:, RIGHT_MOUTH]], axis=1)


def test_points_lie_where_the_detector_saw_them(mesh, photofaces):
    faces, wanted = photofaces
    points, confidence = mesh.points(faces)
    found = five_points(points)
    eyes = np.linalg.norm(wanted[:, 1] - wanted[:, 0], axis=1)
    away = np.linalg.norm(found - wanted, axis=2).mean(1) / eyes
    assert np.median(away) < 0.12
    assert np.mean(confidence > 0.5) > 0.9


def test_points_follow_the_size_of_the_picture(mesh, photofaces):
    faces = photofaces[0]
    small = np.stack([np.array(Image.fromarray(face).resize((128, 128), Image.Resampling.BOX)) for face in faces])
    large, _ = mesh.points(faces)
    points, _ = mesh.points(small)
    away = np.linalg.norm(2 * points - large, axis=2).mean(1)
    assert np.median(away) < 1.5  # pixels of 256


def test_drawn_pictures_show_the_points_that_bytes_show(mesh, photofaces):
    faces = photofaces[0][:6]
    pictures = torch.from_numpy(faces).permute(0, 3, 1, 2).float() / 127.5 - 1
    points, _ = mesh.points(faces)
    seen = (mesh.seen(pictures).numpy() + 1) / 2 * faces.shape[1]
    np.testing.assert_allclose(seen, points, atol=1e-2)


def test_mixed_precision_does_not_round_the_points(mesh, photofaces):
    faces = photofaces[0][:3]
    plain, _ = mesh.points(faces)
    with torch.autocast("cpu", torch.bfloat16):
        mixed, _ = mesh.points(faces)
        seen = mesh.seen(torch.from_numpy(faces).permute(0, 3, 1, 2).float() / 127.5 - 1)
    np.testing.assert_array_equal(mixed, plain)
    assert seen.dtype == torch.float32


def test_the_gradient_opens_a_mouth(mesh, photofaces):
    """A few steps on the pixels move the inner lips where they are wanted."""
    picture = torch.from_numpy(photofaces[0][:1]).permute(0, 3, 1, 2).float() / 127.5 - 1
    wanted = mesh.seen(picture)[0, 14, 1] + 0.05
    drawn = picture.clone().requires_grad_()
    optimizer = torch.optim.Adam([drawn], lr=0.01)
    for _ in range(15):
        optimizer.zero_grad()
        distance = (mesh.seen(drawn)[0, 14, 1] - wanted).abs()
        distance.backward()
        optimizer.step()
    assert distance.item() < 0.02


def test_a_moved_picture_moves_the_points(mesh, photofaces):
    faces = photofaces[0][:8]
    moved = np.roll(faces, (6, -8), axis=(1, 2))
    before, _ = mesh.points(faces)
    after, _ = mesh.points(moved)
    shift = np.median(after - before, axis=1)
    np.testing.assert_allclose(np.median(shift, axis=0), [-8, 6], atol=1.5)


def test_something_else_than_a_face_gets_no_confidence(mesh):
    grey = np.full((1, 256, 256, 3), 128, np.uint8)
    noise = np.random.default_rng(0).integers(0, 256, (1, 256, 256, 3), dtype=np.uint8)
    assert mesh.points(np.concatenate([grey, noise]))[1].max() < 0.5


def test_no_faces_give_no_points(mesh):
    points, confidence = mesh.points(np.zeros((0, 128, 128, 3), np.uint8))
    assert points.shape == (0, 468, 2)
    assert confidence.shape == (0,)


@pytest.mark.parametrize("shape", [(128, 128, 3), (1, 128, 64, 3), (1, 128, 128, 4)])
def test_other_shapes_are_refused(mesh, shape):
    with pytest.raises(ValueError, match="aligned faces are"):
        mesh.points(np.zeros(shape, np.uint8))


def test_float_pictures_are_refused(mesh):
    with pytest.raises(ValueError, match="float32"):
        mesh.points(np.zeros((1, 128, 128, 3), np.float32))


@pytest.mark.parametrize("name", sorted(SHA256))
def test_a_missing_file_is_one_line(name, tmp_path):
    with pytest.raises(UserError, match="install faceanon again") as caught:
        read_shipped(name, tmp_path)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", sorted(SHA256))
def test_a_damaged_file_is_one_line(name, tmp_path):
    data = bytearray(read_shipped(name))
    data[len(data) // 2] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match="sha256 differs") as caught:
        read_shipped(name, tmp_path)
    assert "\n" not in str(caught.value)
