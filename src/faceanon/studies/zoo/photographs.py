"""What is different where the zoo's bundle is one of photographs: its pictures, and further configs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.errors import UserError
from faceanon.files import read_yaml
from faceanon.paths import configs
from faceanon.weights.spec import bundle_path, read_spec

if TYPE_CHECKING:
    from torch import Tensor

    from faceanon.backbones.presets import Listed
    from faceanon.data.prepared import PreparedFaces
    from faceanon.studies.zoo.recipes import ZooStage

SHIPPED = "photo128"  # the bundle whose pictures are those of the test, and of training by default
PICTURES = "photo128_pictures"  # the bundle of methods that draw whole pictures
FRAMED = "photo128_mesh"  # the bundle that prepares them for methods that draw in the frame of a mesh
COMMON = "bundle/photo128_prior"  # what every stage needs on photographs
# Between the two, a class without arguments takes away what the stage says of procedural faces: `jitter` of these means
# something else for photographs.
NO_DATA = "lightning.pytorch.LightningDataModule"
# Folder of configs that say all of a training on photographs, its length too: methods that have them draw people there.
RECIPES = "photo128"
OVERLAYS = "features"  # folder of what some stages need in addition; each file names them in `over`


def of_photographs(bundle: str) -> bool:
    """Whether a bundle is one of photographs: it has a codec.

    Examples:
        >>> from faceanon.studies.zoo.photographs import of_photographs
        >>> of_photographs("photo128"), of_photographs("synth64")
        (True, False)
    """
    return "codec" in read_spec(bundle_path(bundle))["networks"]


def stands_on(listed: Listed, bundle: str) -> str:
    """The bundle that a method stands on.

    Args:
        listed: Its preset. A method whose own bundle is one of photographs needs more than a generator and an encoder
            of it, and keeps it. One that needs what lies around a face has no use for a frame of faces.
        bundle: The zoo's.
    """
    from faceanon.backbones.presets import backbone_class

    own: str | None = listed.init_args.get("bundle")
    if own is not None and of_photographs(own):
        return own
    if "frame" in read_spec(bundle_path(bundle))["networks"] and not backbone_class(listed.class_path).draws_in_frame:
        return PICTURES
    return bundle


def prepares(bundle: str) -> str:
    """The bundle that prepares pictures for methods on a bundle: a prior alone has none.

    Examples:
        >>> from faceanon.studies.zoo.photographs import prepares
        >>> prepares("photo128"), prepares("photo128_prior")
        ('photo128', 'photo128_mesh')
    """
    return FRAMED if "frame" in read_spec(bundle_path(bundle))["networks"] else SHIPPED


def stage_words(stage: ZooStage, borrowed: bool = False) -> list[str]:
    """Words that name the configs of a stage on photographs, in the order in which they are merged.

    Args:
        stage: Which.
        borrowed: Whether its test serves a method that trains nothing: what the stage's own method needs is left out.
    """
    # The words of later configs win, so the order is part of the recipe.
    own, *overlays = stage.files
    words = ["--config", str(own)]
    if not stage.whole:
        words.append(f"--data={NO_DATA}")
        needed = [] if borrowed else _needed_by(stage.name)
        overlays = [_named(COMMON), *needed, *overlays]
    for file in overlays:
        words += ["--config", str(file)]
    return words


def batches_of(stage: ZooStage, overlays: Sequence[str] = ()) -> int:
    """Batches of a training whose config says its length.

    Args:
        stage: Which.
        overlays: Further config files behind the stage's: the last one that says a length wins.

    Raises:
        UserError: None of them says a length.
    """
    from faceanon.training.config_files import with_bases

    words = with_bases([f"--config={file}" for file in (*stage.files, *overlays)])
    for file in reversed(words[1::2]):
        batches = _length_in(read_yaml(Path(file)))
        if batches is not None:
            return batches
    raise UserError(f"{stage.files[0]} says no data.init_args.train_batches; give the length with --steps")


def _length_in(content: Any) -> int | None:  # noqa: ANN401 - whatever a config holds
    """What a config says of `data.init_args.train_batches`, if it does."""
    for name in ("data", "init_args", "train_batches"):
        if not isinstance(content, dict):
            return None
        content = content.get(name)
    return content if isinstance(content, int) else None


def _named(config: str) -> Path:
    return configs() / f"{config}.yaml"


def _needed_by(stage: str) -> list[Path]:
    """The overlays that say that they are laid over a stage."""
    found = []
    for path in sorted((configs() / OVERLAYS).glob("*.yaml")):
        if stage in read_yaml(path).get("over", ()):
            found.append(path)
    return found


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
    for file in (_named(COMMON), *map(Path, overlays)):
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
