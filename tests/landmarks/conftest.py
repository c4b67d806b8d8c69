"""The cast, and one face with its mesh, for the tests of faces that are put on."""

import numpy as np
import pytest

from faceanon.landmarks.cast import Cast
from faceanon.landmarks.mesh import FaceMesh
from faceanon.photo.party import photo_party


@pytest.fixture(scope="session")
def cast():
    return Cast()


@pytest.fixture(scope="session")
def mesh():
    return FaceMesh()


@pytest.fixture(scope="session")
def face():
    """A face of 256 px, `(256, 256, 3)`."""
    return np.array(photo_party().crop((14, 14, 270, 270)))


@pytest.fixture(scope="session")
def points(mesh, face):
    """The points of that face, `(468, 3)` in pixels."""
    return mesh.solid(face[None])[0][0]
