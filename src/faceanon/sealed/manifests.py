"""Sealed codes of the faces that a manifest lists: sealing them all, and opening them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.manifest import MAX_CODES_BYTES, CropGeometry, Manifest
from faceanon.sealed.envelope import binding_of, check_sealed, seal, unseal


def faces_of(manifest: Manifest) -> list[CropGeometry]:
    """The squares of a manifest's faces in the order of its codes."""
    geometries: list[CropGeometry] = []
    for layer in manifest.layers:
        geometries += layer
    return geometries


def with_codes(manifest: Manifest, codes: Mapping[CropGeometry, bytes], secret: Secret) -> Manifest:
    """A manifest that carries the codes of its faces, sealed.

    Args:
        manifest: As it will be written but for the codes.
        codes: The code of every face, by its square.
        secret: Of the manifest's salt.

    Raises:
        UserError: If they are together longer than a manifest may carry.
    """
    sealed = tuple(seal(codes[face], secret, _binding(manifest, face)) for face in faces_of(manifest))
    total = sum(map(len, sealed))
    if manifest.earlier is not None:
        total += manifest.earlier.carried
    if total > MAX_CODES_BYTES:
        raise UserError(
            f"{len(sealed)} faces take {total} bytes of recovery data, more than the {MAX_CODES_BYTES} that a file may "
            "carry; cut the photo into parts"
        )
    return replace(manifest, codes=sealed)


def opened_codes(manifest: Manifest, secret: Secret, name: str) -> dict[CropGeometry, bytes]:
    """The codes of a manifest's faces, decrypted, by the faces' squares.

    Args:
        manifest: Of any origin.
        secret: Of its salt.
        name: What to call the picture in messages.

    Raises:
        WrongPasswordError: If one does not open.
        UserError: If the manifest carries none, or one is damaged.

    Examples:
        >>> from faceanon.key import Secret
        >>> from faceanon.manifest import CropGeometry, Manifest
        >>> from faceanon.sealed.manifests import opened_codes, with_codes
        >>> face = CropGeometry(100.0, 80.0, 32.0, 0.0)
        >>> manifest = Manifest("package.Method", "model", "ab" * 32, 64, 640, 480, layers=((face,),))
        >>> carrying = with_codes(manifest, {face: b"latents of a face"}, Secret.random(0))
        >>> carrying.carried  # bytes, encrypted
        256
        >>> opened_codes(carrying, Secret.random(0), "photo.png")[face]
        b'latents of a face'
    """
    faces = faces_of(manifest)
    if len(manifest.codes) != len(faces):
        raise UserError(
            f"{name} carries no sealed codes of its faces, without which this model brings nobody back; give the file "
            "as `faceanon anonymize` wrote it"
        )
    # First all that can be seen without the password, so that damage says so under any.
    for code in manifest.codes:
        check_sealed(code, name)
    pairs = zip(faces, manifest.codes, strict=True)
    opened = {}
    for face, code in pairs:
        opened[face] = unseal(code, secret, _binding(manifest, face), name)
    return opened


def _binding(manifest: Manifest, face: CropGeometry) -> bytes:
    """A code opens for this model, this square and a picture of this size alone."""
    place = (face.center_x, face.center_y, face.axis_x, face.axis_y, manifest.width, manifest.height)
    return binding_of(manifest.weights, place)
