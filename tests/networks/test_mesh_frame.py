"""The frame of a mesh: faces lie in it in one pose, and come back to where they were."""

import pytest
import torch

from faceanon.data.prepared import shipped_faces, shipped_pictures
from faceanon.metrics.quality import psnr
from faceanon.networks.mesh_frame import MeshFrame
from faceanon.weights.bundle import Bundle


@pytest.fixture(scope="module")
def bundle():
    return Bundle("photo128_mesh")


@pytest.fixture(scope="module")
def frame(bundle):
    return bundle.frame


@pytest.fixture(scope="module")
def faces(bundle):
    return shipped_faces(bundle, shipped_pictures(bundle, "test")[:6], 128)


@pytest.fixture(scope="module")
def mesh(bundle, faces):
    return bundle.landmarks(faces)


def quality(first, second):
    return psnr(((first - second) / 2).square().mean((1, 2, 3)))


def test_a_face_that_lies_as_the_frame_has_it_is_cut_out_as_it_is(frame, faces):
    cut = frame.cut(faces, frame.points.expand(len(faces), -1, -1))
    inside = -torch.nn.functional.max_pool2d(-frame.hull[None, None], 15, 1, 7)[0, 0] > 0
    assert inside.float().mean() > 0.2
    assert (cut - faces)[:, :, inside].abs().mean() < 0.01


def test_what_lies_outside_of_the_face_is_not_seen(frame, faces, mesh):
    cut = frame.cut(faces, mesh)
    assert cut[:, :, :4].abs().max() == 0
    assert cut[:, :, 64, 64].abs().max() > 0


def test_points_of_all_faces_lie_on_the_same_places(bundle, frame, faces, mesh):
    # On grey, so that the mesh is looked for in the face alone; a face as it lies in FFHQ's frame is its own control.
    found = bundle.landmarks(frame.cut(faces, mesh))
    spread = found.std(0).norm(dim=-1).mean()
    assert spread < 0.7 * mesh.std(0).norm(dim=-1).mean()


def test_a_face_comes_back_to_its_place(frame, faces, mesh):
    put = frame.put(frame.cut(faces, mesh), faces, frame.way(mesh, faces.shape[-1]))
    assert quality(put, faces).min() > 30


def test_only_the_face_changes(frame, faces, mesh):
    put = frame.put(torch.zeros(len(faces), 3, frame.side, frame.side), faces, frame.way(mesh, faces.shape[-1]))
    changed = (put - faces).abs().amax(1) > 0
    for rows, points in zip(changed, (mesh[..., :2] + 1) * 64, strict=True):
        low = points.amin(0).floor().int()
        high = points.amax(0).ceil().int()
        outside = torch.ones_like(rows)
        outside[low[1] - 3 : high[1] + 4, low[0] - 3 : high[0] + 4] = False  # the spline is smooth
        assert not rows[outside].any()
        assert 0.1 < rows.float().mean() < 0.6


def test_pictures_of_another_size_are_cut_alike(bundle, frame, faces, mesh):
    large = torch.nn.functional.interpolate(faces, scale_factor=2, mode="bicubic").clamp(-1, 1)
    assert quality(frame.cut(large, mesh), frame.cut(faces, mesh)).min() > 26
    assert frame.put(frame.cut(large, mesh), large, frame.way(mesh, large.shape[-1])).shape == large.shape


def test_gradients_reach_the_drawn_face(frame, faces, mesh):
    drawn = torch.zeros(len(faces), 3, frame.side, frame.side, requires_grad=True)
    frame.cut(frame.put(drawn, faces, frame.way(mesh, faces.shape[-1])), mesh).sum().backward()
    assert drawn.grad[:, :, 64, 64].abs().min() > 0
    assert drawn.grad[:, :, 0, 0].abs().max() == 0


def test_under_autocast_nothing_is_rounded(frame, faces, mesh):
    exact = frame.cut(faces, mesh)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(frame.cut(faces, mesh), exact)


def test_a_frame_of_other_points_cuts_by_them(frame, faces):
    other = MeshFrame(frame.side)
    mesh = torch.rand(len(faces), len(frame.points), 2, generator=torch.Generator().manual_seed(0)) - 0.5
    other.load_state_dict(frame.state_dict() | {"points": frame.points * 0.8})
    before = other.cut(faces, mesh)
    other.load_state_dict(frame.state_dict())
    assert torch.equal(other.cut(faces, mesh), frame.cut(faces, mesh))
    assert not torch.equal(other.cut(faces, mesh), before)


def test_a_bundle_without_a_frame_says_so():
    assert Bundle("photo128").frame is None
    assert isinstance(Bundle("photo128_mesh").frame, MeshFrame)


def test_a_face_in_its_own_light_is_as_it_was_whatever_lamp_shone_on_it(frame, faces, mesh):
    face = 0.5 * frame.cut(faces, mesh)
    across = torch.linspace(-0.2, 0.2, 128)
    lamp = torch.tensor([0.2, 0.0, -0.1])[:, None, None] + across
    inside = frame.hull > 0.99
    back = frame.in_light_of(face + lamp, face, 0.08)
    assert ((back - face)[:, :, inside]).abs().mean() < 0.02
    assert (lamp.expand(3, 128, 128)[:, inside]).abs().mean() > 0.1
    torch.testing.assert_close(frame.in_light_of(face, face, 0.08), face)


def test_light_is_another_s_and_details_stay(frame, faces, mesh):
    cut = frame.cut(faces, mesh)
    face = 0.6 * cut[:3]
    like = 0.6 * cut[3:]
    lit = frame.in_light_of(face, like, 0.16)
    inside = frame.hull > 0.99
    means = [part[:, :, inside].mean(-1) for part in (lit, face, like)]
    assert (means[0] - means[2]).abs().mean() < 0.3 * (means[1] - means[2]).abs().mean()

    def details(picture):
        across = picture[..., 1:] - picture[..., :-1]
        return across[:, :, inside[:, 1:] & inside[:, :-1]].flatten()

    def agreement(one, other):
        return torch.corrcoef(torch.stack([details(one), details(other)]))[0, 1]

    assert agreement(lit, face) > 0.95
    assert agreement(lit, like) < 0.6
