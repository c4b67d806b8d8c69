"""One frame for all faces: a smooth warp lays the points of a face's mesh on the same places, and brings it back.

In this frame all faces have one pose, one expression and one shape. What is left of a face is how it looks, and sums
of faces are faces: in FFHQ's frame, where only the eyes and the mouth lie alike, they have double brows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.blur import blurred
from faceanon.networks.face_mesh import POINTS
from faceanon.networks.hull import convex_hull

CELL = 4  # pixels of the frame between the nodes at which the warp is computed; in between it is interpolated
STIFF = 4e-3  # how much smoother than through all points the warp is
TINY = 1e-9  # keeps the logarithm of a distance of 0 finite
INSET = 0.02  # in sides of the frame, how far inside the hull of the mesh a face is drawn ...
SOFT = 0.03  # ... and how wide the edge of that is
REACH = 0.02  # in sides of the frame, how far outside the hull the picture is still seen
BLUR_REACH = 2  # in deviations, where a Gaussian is cut off
LEAST_WEIGHT = 1e-3  # far outside the hull nothing is near enough to count


class WayBack(NamedTuple):
    """The way from the frame back into pictures of side S.

    Args:
        places: `(B, S, S, 2)` in [-1, 1], which place of the frame each pixel shows.
        edge: `(B, 1, S, S)` in [0, 1], how much of the frame's face it shows.
    """

    places: Tensor
    edge: Tensor


class MeshFrame(nn.Module):
    """Cuts faces out of pictures into one frame, and puts them back.

    The warp is a thin plate spline through the points of the mesh, a little smoothed. What lies outside the face is
    grey in the frame, so that a code of it is the face's alone.

    Args:
        side: Of the frame, in pixels.

    Attributes:
        points: `(468, 2)` where the points lie in the frame, x and y in [-1, 1].
        hull: `(side, side)` in [0, 1], what the points enclose.

    Examples:
        >>> from faceanon.testing import smooth_faces
        >>> from faceanon.weights.bundle import Bundle
        >>> frame = Bundle("photo128_mesh").frame
        >>> faces = smooth_faces(128)
        >>> mesh = frame.points.expand(4, -1, -1)  # as if the points lay in the pictures where they lie in the frame
        >>> cut = frame.cut(faces, mesh)
        >>> cut.shape, frame.put(cut, faces, frame.way(mesh, 128)).shape
        (torch.Size([4, 3, 128, 128]), torch.Size([4, 3, 128, 128]))
    """

    points: Tensor
    hull: Tensor

    def __init__(self, side: int = 128) -> None:
        super().__init__()
        self.init_args: dict[str, Any] = {"side": side}
        self.side = side
        self.register_buffer("points", torch.zeros(POINTS, 2))
        self.register_buffer("hull", torch.zeros(side, side))
        # What depends on the points alone is computed once, and anew where other points are loaded.
        self._nodes_of_points: Tensor | None = None
        self.register_load_state_dict_post_hook(_forget_nodes)  # type: ignore[no-untyped-call]

    def cut(self, image: Tensor, mesh: Tensor) -> Tensor:
        """The faces of pictures in the frame.

        Args:
            image: `(B, 3, S, S)` in [-1, 1].
            mesh: `(B, 468, 2 or more)` points of their faces, x and y in [-1, 1] of the picture.

        Returns:
            `(B, 3, side, side)` in [-1, 1], 0 outside the face.
        """
        with torch.autocast(image.device.type, enabled=False), torch.no_grad():
            nodes = self._spline_matrix().to(image.device) @ mesh[..., :2].double()
            places = _between_nodes(nodes.float(), self.side)
        face = _sampled(image.float(), places)
        return face * self._seen()

    def way(self, mesh: Tensor, side: int) -> WayBack:
        """The way back into pictures, for whoever puts several faces into the same ones.

        Args:
            mesh: As in `cut`.
            side: S of the pictures.
        """
        with torch.autocast(mesh.device.type, enabled=False), torch.no_grad():
            places = _between_nodes(self._places_in_frame(mesh[..., :2].double(), side).float(), side)
            edge = F.grid_sample(self._drawn().expand(len(places), -1, -1, -1), places, align_corners=False)
            # Beyond the cheek of a turned face the spline folds.
            edge = edge * convex_hull(mesh[..., :2].float(), side)
        return WayBack(places, edge)

    def put(self, face: Tensor, image: Tensor, way: WayBack) -> Tensor:
        """Pictures with other faces: where the mesh lies, what `face` shows in the frame.

        Args:
            face: `(B, 3, side, side)` in [-1, 1].
            image: `(B, 3, S, S)`, what stays around the face.
            way: Of the meshes of these pictures.

        Returns:
            `(B, 3, S, S)`.
        """
        return image + way.edge * (self.moved(face, way) - image)

    def moved(self, face: Tensor, way: WayBack) -> Tensor:
        """What `put` shows of faces before it joins them to pictures.

        Args:
            face: `(B, C, side of the frame, side of the frame)` in [-1, 1].
            way: As in `put`.

        Returns:
            `(B, C, S, S)`.
        """
        with torch.autocast(face.device.type, enabled=False):
            return _sampled(face.float(), way.places)

    def in_light_of(self, face: Tensor, like: Tensor, reach: float) -> Tensor:
        """Faces whose soft light and colours are those of others; details stay their own.

        Args:
            face: `(B, 3, side, side)` in [-1, 1].
            like: `(B, 3, side, side)`, whose light it is.
            reach: Deviation of the Gaussian that tells light from details, in sides of the frame.

        Returns:
            `(B, 3, side, side)` in [-1, 1].
        """
        with torch.autocast(face.device.type, enabled=False):
            lit: Tensor = (face + self._light(like.float() - face.float(), reach)).clamp(-1, 1)
        return lit

    def _light(self, face: Tensor, reach: float) -> Tensor:
        """What is smoother than `reach` of `(B, 3, side, side)`; inside the hull nothing outside of it counts."""
        deviation = reach * self.side
        weighed = torch.cat([face * self.hull, self.hull.expand(len(face), 1, -1, -1)], 1)
        soft = blurred(weighed, deviation, round(BLUR_REACH * deviation), "reflect")
        return soft[:, :3] / soft[:, 3:].clamp(min=LEAST_WEIGHT)

    def face_cells(self, count: int) -> Tensor:
        """`(count, count)` bool: cells of the frame of which more than half lies in the hull of the mesh."""
        return F.adaptive_avg_pool2d(self.hull[None, None], count)[0, 0] > 0.5

    def _spline_matrix(self) -> Tensor:
        """`(nodes, 468)`: the places in a picture of the frame's nodes, as a linear function of the mesh."""
        if self._nodes_of_points is None:
            points = self.points.double().cpu()
            nodes = _nodes(self.side)
            system = _system(points[None])[0]
            basis = torch.cat([_bending(nodes, points), torch.ones(len(nodes), 1, dtype=nodes.dtype), nodes], 1)
            # The spline's values at the nodes are basis @ system^-1 @ (the mesh, then three rows of zeros). So
            # basis @ system^-1 is kept, without its last three columns, which only meet those zeros.
            solved = torch.linalg.solve(system.T, basis.T).T
            self._nodes_of_points = solved[:, : len(points)].contiguous()
        return self._nodes_of_points

    def _places_in_frame(self, mesh: Tensor, side: int) -> Tensor:
        """The places in the frame `(B, nodes, 2)` of the nodes of pictures, by a spline through each mesh."""
        points = self.points.double().expand(len(mesh), -1, -1)
        zeros = points.new_zeros(len(mesh), 3, 2)
        # In this direction each mesh is the spline's own set of points, so nothing can be computed once for all.
        weights = torch.linalg.solve(_system(mesh), torch.cat([points, zeros], 1))
        nodes = _nodes(side).to(mesh.device).expand(len(mesh), -1, -1)
        basis = torch.cat([_bending(nodes, mesh), nodes.new_ones(*nodes.shape[:2], 1), nodes], -1)
        places: Tensor = basis @ weights
        return places

    def _seen(self) -> Tensor:
        """`(1, 1, side, side)` in [0, 1]: the hull and a little around it, with a soft edge."""
        reach = max(1, round(REACH * self.side))
        wide = F.max_pool2d(self.hull[None, None], 2 * reach + 1, 1, reach)
        return _softened(wide, reach)

    def _drawn(self) -> Tensor:
        """`(1, 1, side, side)` in [0, 1]: the hull without its rim, with a soft edge."""
        inset = max(1, round(INSET * self.side))
        # The negative maximum of the negative is the minimum: an erosion.
        narrow = -F.max_pool2d(-self.hull[None, None], 2 * inset + 1, 1, inset)
        return _softened(narrow, max(1, round(SOFT * self.side)))


def _forget_nodes(frame: MeshFrame, keys: object) -> None:
    """Have a frame that another state was loaded into compute anew what depends on its points."""
    frame._nodes_of_points = None


def _nodes(side: int) -> Tensor:
    """Places `(nodes, 2)` in [-1, 1] of the corners of cells of `CELL` pixels."""
    steps = torch.linspace(-1, 1, side // CELL + 1, dtype=torch.float64)
    down, across = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([across, down], -1).flatten(0, 1)


def _bending(places: Tensor, points: Tensor) -> Tensor:
    """The thin plate spline's kernel r^2 log r^2 of `(..., N, 2)` and `(..., P, 2)`: `(..., N, P)`."""
    # Not torch.cdist, which rounds near distances. In place, and without a sum over two numbers: a third of the time.
    squares = (places[..., :, None, 0] - points[..., None, :, 0]).square_()
    squares += (places[..., :, None, 1] - points[..., None, :, 1]).square_()
    return squares * (squares + TINY).log_()


def _system(points: Tensor) -> Tensor:
    """The equations `(B, P + 3, P + 3)` of a smoothed spline through points `(B, P, 2)`."""
    batch, count, _ = points.shape
    bending = _bending(points, points) + STIFF * torch.eye(count, dtype=points.dtype, device=points.device)
    flat = torch.cat([points.new_ones(batch, count, 1), points], -1)
    # The usual side conditions of the thin plate spline: its bending weights carry no affine part.
    below = torch.cat([flat.transpose(1, 2), points.new_zeros(batch, 3, 3)], -1)
    return torch.cat([torch.cat([bending, flat], -1), below], 1)


def _between_nodes(nodes: Tensor, side: int) -> Tensor:
    """Values `(B, nodes, 2)` at the corners of cells, interpolated at the middles of pixels: `(B, side, side, 2)`."""
    count = side // CELL + 1
    grid = nodes.transpose(1, 2).reshape(len(nodes), 2, count, count)
    steps = (torch.arange(side, device=nodes.device) + 0.5) / side * 2 - 1
    down, across = torch.meshgrid(steps, steps, indexing="ij")
    middles = torch.stack([across, down], -1).expand(len(nodes), -1, -1, -1)
    # Nodes lie at the corners of cells, the first at -1 and the last at 1. This is what aligned corners mean.
    found: Tensor = F.grid_sample(grid, middles, align_corners=True)
    return found.permute(0, 2, 3, 1)


def _sampled(image: Tensor, places: Tensor) -> Tensor:
    """Colours of `(B, C, H, W)` at places `(B, h, w, 2)`; beyond the border the border's."""
    found: Tensor = F.grid_sample(image, places, "bicubic", "border", align_corners=False)
    # The cubic curves overshoot at sharp edges.
    return found.clamp(-1, 1)


def _softened(mask: Tensor, reach: int) -> Tensor:
    """A mask `(1, 1, h, h)` with an edge of twice `reach` pixels."""
    return F.avg_pool2d(mask, 2 * reach + 1, 1, reach, count_include_pad=False)
