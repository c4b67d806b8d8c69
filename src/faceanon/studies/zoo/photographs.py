"""The photographs of the zoo: on which bundle a method stands, and what is prepared for its trainings and tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.files import read_yaml
from faceanon.weights.spec import bundle_path, read_spec

if TYPE_CHECKING:
    from torch import Tensor

    from faceanon.backbones.presets import Listed
    from faceanon.data.prepared import PreparedFaces

SHIPPED = "photo128"  # the bundle whose pictures are those of the test, and of training by default
PICTURES = "photo128_pictures"  # the bundle of methods that draw whole pictures
FRAMED = "photo128_mesh"  # the bundle that prepares them for methods that draw in the frame of a mesh
PRIOR = "photo128_prior"  # the bundle that the zoo's own replaces


def stands_on(listed: Listed, bundle: str) -> str:
    """The bundle that a method stands on.

    Args:
        listed: Its preset. A method that needs what lies around a face has no use for a frame of faces, and one with
            networks of its own keeps their bundle.
        bundle: The zoo's.
    """
    own: str = listed.init_args["bundle"]
    if own == PRIOR or (own == PICTURES and not _has_frame(bundle)):
        return bundle
    return own


def prepares(bundle: str) -> str:
    """The bundle that prepares pictures for methods on a bundle: a prior alone has none.

    Examples:
        >>> from faceanon.studies.zoo.photographs import prepares
        >>> prepares("photo128"), prepares("photo128_prior")
        ('photo128', 'photo128_mesh')
    """
    return FRAMED if _has_frame(bundle) else SHIPPED


def _has_frame(bundle: str) -> bool:
    return "frame" in read_spec(bundle_path(bundle))["networks"]


def data_options(bundle: str, photos: Sequence[str], batches: int | None) -> dict[str, Any]:
    """Settings of the data of one run.

    Args:
        bundle: That of the method.
        photos: Folders to train on; none for those that ship.
        batches: To train on; None for a test, which is always on the pictures that ship.
    """
    options: dict[str, Any] = {"data.init_args.bundle": prepares(bundle), "data.init_args.root": "null"}
    if batches is not None:
        # An epoch is the whole training: how many pictures there are does not matter.
        options |= {"data.init_args.train_batches": batches, "trainer.max_epochs": 1}
        if photos:
            options["data.init_args.root"] = json.dumps(list(photos))
    return options


def prepare_photographs(
    bundles: Iterable[str], photos: Sequence[str], overlays: Sequence[str], image_size: int
) -> None:
    """Prepare what training and test read, before several processes would do so at once.

    Args:
        bundles: Those of the methods.
        photos: Folders to train on; none for those that ship.
        overlays: Further config files of the zoo, which may have settings of the data.
        image_size: Side of the faces in pixels.

    Raises:
        UserError: No such folder, or pictures in it that are damaged or not square.
    """
    roots: list[list[str] | None] = [list(photos)] if photos else []
    # The pictures that ship are those of the test.
    for bundle in sorted({prepares(bundle) for bundle in bundles}):
        for root in (*roots, None):
            _data(bundle, root, overlays, image_size).prepare_data()


def _data(bundle: str, root: list[str] | None, overlays: Sequence[str], image_size: int) -> PreparedFaces:
    """The pictures of some folders with the settings that configs give."""
    from faceanon.data.photo_jitter import PhotoJitter
    from faceanon.data.prepared import PreparedFaces

    settings: dict[str, Any] = {}
    for file in map(Path, overlays):
        data = read_yaml(file).get("data")
        if isinstance(data, dict):
            settings |= data.get("init_args") or {}
    if isinstance(settings.get("jitter"), dict):
        # `read_yaml` gives plain values, and no jsonargparse makes an object of them here.
        settings["jitter"] = PhotoJitter(**settings["jitter"])
    return PreparedFaces(**{**settings, "bundle": bundle, "root": root, "image_size": image_size})


def test_persons() -> int:
    """Persons in the test of photographs."""
    from faceanon.data.prepared import shipped_pictures
    from faceanon.weights.bundle import Bundle

    return len({row["person"] for row in shipped_pictures(Bundle(SHIPPED), "test")})


def sheet_faces(count: int, image_size: int) -> Tensor:
    """The first pictures of the test, as many as `count`: `(count, 3, S, S)`."""
    from faceanon.data.prepared import shipped_faces, shipped_pictures
    from faceanon.weights.bundle import Bundle

    bundle = Bundle(SHIPPED)
    return shipped_faces(bundle, shipped_pictures(bundle, "test")[:count], image_size)
