import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from face_files import write_faces
from faceanon.backbones.classical import Blur, Mask, Pixelate, Scramble, lioness
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.models import load_backbone, save_backbone
from faceanon.pipeline import Pipeline
from faceanon.testing import smooth_faces
from faceanon.training.cli import run

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def images():
    return smooth_faces(64)


def inside(backbone, images):
    return backbone.mask(images).bool().expand_as(images)


@pytest.mark.parametrize("kind", [Blur, Pixelate, Mask, Scramble])
def test_only_the_region_changes(kind, tiny_bundle, images):
    backbone = kind(str(tiny_bundle))
    changed = backbone.anonymize(images, backbone.sample_key(4)) != images
    region = inside(backbone, images)
    assert 0.4 < region.float().mean() < 0.6
    assert not changed[~region].any()
    assert changed[region].float().mean() > 0.9
    assert torch.equal(kind(str(tiny_bundle), region="picture").mask(images), torch.ones(1, 1, 64, 64))


def test_the_parser_can_name_the_region(tiny_bundle, images):
    backbone = Mask(str(tiny_bundle), region="head", level=-1.0)
    head = torch.isin(backbone.bundle.parser(images).argmax(1), torch.tensor(backbone.bundle.head_classes))
    drawn = backbone.anonymize(images, backbone.sample_key(4))
    assert (drawn.amax(1)[head] == -1).all()
    assert torch.equal(drawn.amax(1)[~head], images.amax(1)[~head])


def test_blur_is_a_gaussian_of_the_given_width(tiny_bundle):
    backbone = Blur(str(tiny_bundle), region="picture", sigma=3 / 64)
    dot = torch.zeros(1, 3, 64, 64)
    dot[..., 32, 32] = 1
    blurred = backbone.anonymize(dot, backbone.sample_key(1))[0, 0]
    steps = torch.arange(64) - 32.0
    assert blurred.sum().item() == pytest.approx(1, abs=1e-4)
    assert (blurred.sum(0) * steps.square()).sum().sqrt().item() == pytest.approx(3, rel=0.02)
    assert torch.allclose(backbone.anonymize(dot * 0 + 0.3, backbone.sample_key(1)), dot * 0 + 0.3, atol=1e-6)


def test_pixels_are_the_means_of_their_cells(tiny_bundle, images):
    backbone = Pixelate(str(tiny_bundle), region="picture", cells=4)
    drawn = backbone.anonymize(images, backbone.sample_key(4))
    cells = drawn.unfold(2, 16, 16).unfold(3, 16, 16)  # (B, 3, 4, 4, 16, 16)
    assert (cells.amax((-1, -2)) - cells.amin((-1, -2))).max() < 1e-6
    means = images.unfold(2, 16, 16).unfold(3, 16, 16).mean((-1, -2))
    torch.testing.assert_close(cells[..., 0, 0], means)


def test_lioness_comes_back_and_one_bit_changes_half_of_all():
    text, key = bytes(range(100)), bytes(range(32))
    encrypted = lioness(text, key)
    assert len(encrypted) == 100
    assert lioness(encrypted, key, inverse=True) == text
    for place, (changed_key, changed_text) in itertools.product((0, 20, 99), ((True, False), (False, True))):
        other_text = bytes(b ^ (changed_text and i == place) for i, b in enumerate(text))
        other_key = bytes(b ^ (changed_key and i == place % 32) for i, b in enumerate(key))
        flipped = sum((a ^ b).bit_count() for a, b in zip(encrypted, lioness(other_text, other_key), strict=True))
        assert abs(flipped - 400) < 6 * math.sqrt(800 / 4)
    with pytest.raises(ValueError, match="more than 32 bytes"):
        lioness(bytes(32), key)


def test_a_scrambled_region_is_noise_and_comes_back_to_the_last_bit(tiny_bundle, images):
    backbone = Scramble(str(tiny_bundle))
    key, wrong = backbone.sample_key(4), backbone.sample_key(4)
    drawn = backbone.anonymize(images, key)
    noise = drawn[inside(backbone, images)]
    assert abs(noise.mean()) < 0.02
    assert noise.var().item() == pytest.approx(1 / 3, rel=0.05)
    saved = ((drawn + 1) * 127.5).round() / 127.5 - 1
    assert torch.equal(((backbone.recover(saved, key) + 1) * 127.5).round(), ((images + 1) * 127.5).round())
    opened = backbone.recover(saved, wrong)[inside(backbone, images)]
    assert torch.corrcoef(torch.stack([opened, images[inside(backbone, images)]]))[0, 1].abs() < 0.03


def test_equal_keys_do_not_betray_the_difference_of_two_pictures(tiny_bundle, images):
    """What plain counter mode without a nonce would do: two results differ by what the two pictures differ by."""
    backbone = Scramble(str(tiny_bundle), region="picture")
    key = backbone.sample_key(1).expand(4, -1)
    near = images[:1].repeat(4, 1, 1, 1)
    near[1:, 0, -1, -1] += torch.tensor([2.0, 4.0, 6.0]) / 127.5 * (1 if images[0, 0, -1, -1] < 0 else -1)
    drawn = ((backbone.anonymize(near, key) + 1) * 127.5).round()
    for one, other in itertools.combinations(drawn, 2):
        assert (one == other).float().mean() < 0.02


def test_a_changed_pixel_turns_all_to_noise_and_nothing_is_differentiable(tiny_bundle, images):
    backbone = Scramble(str(tiny_bundle))
    key = backbone.sample_key(4)
    drawn = backbone.anonymize(images.clone().requires_grad_(), key)
    assert not drawn.requires_grad
    drawn[:, 0, 32, 32] += torch.where(drawn[:, 0, 32, 32] > 0, -2 / 127.5, 2 / 127.5)
    recovered = backbone.recover(drawn, key)
    assert ((recovered - images).abs()[inside(backbone, images)] > 0.1).float().mean() > 0.8
    with pytest.raises(UserError, match="nobody finds it again"):
        Scramble(str(tiny_bundle), region="head")


def test_a_password_there_and_back_through_the_pipeline_and_a_saved_model(tiny_bundle, images, tmp_path):
    save_backbone(Scramble(str(tiny_bundle)), tmp_path / "model")
    pipeline = Pipeline(load_backbone(tmp_path / "model")[0])
    pixels = ((images[0] + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
    right, wrong = Secret.random(1), Secret.random(2)
    pipeline.anonymize(Image.fromarray(pixels), right, aligned=True).save(tmp_path / "hidden.png")
    with Image.open(tmp_path / "hidden.png") as hidden:
        hidden.load()
    manifest = pipeline.describe(pipeline_photo(hidden), pipeline.find(pipeline_photo(hidden), aligned=True))
    recovered = pipeline.recover(np.asarray(hidden), right, aligned=True, manifest=manifest)
    assert np.array_equal(recovered, pixels)
    assert not np.array_equal(pipeline.recover(np.asarray(hidden), wrong, aligned=True, manifest=manifest), pixels)


def pipeline_photo(picture):
    from faceanon.photo.file import load_photo

    return load_photo(np.asarray(picture))


def run_command(kind, command, tiny_bundle, out):
    """`faceanon COMMAND` on an untrained method; gives back the figures that `test` writes."""
    words = {
        "model.init_args.backbone": REPO / f"configs/backbone/{kind}.yaml",
        "model.init_args.backbone.init_args.bundle": tiny_bundle,
        "model.init_args.report": out / "report",
        "model.init_args.trainable": "null",
        "data": "faceanon.data.folder.FolderFaces",
        "data.init_args.root": write_faces(out / "faces", 8),
        "data.init_args.image_size": 64,
        "data.init_args.test_fraction": 0.75 if command == "test" else 0.0,
        "data.init_args.val_fraction": 0.0,
        "trainer.callbacks": "[]",
        "trainer.logger": "false",
        "trainer.default_root_dir": out,
        "trainer.enable_progress_bar": "false",
    }
    run([command, "--config", str(REPO / "configs/test.yaml"), *(f"--{k}={v}" for k, v in words.items())])
    return json.loads((out / "report/results.json").read_text())["figures"]


@pytest.mark.parametrize("kind", ["blur", "scramble"])
def test_faceanon_test_judges_what_needs_no_training(kind, tiny_bundle, tmp_path):
    figures = run_command(kind, "test", tiny_bundle, tmp_path)
    assert 0 <= figures["deid_rate/tiny_judge"] <= 1
    if kind == "scramble":
        assert figures["recovery_rate/tiny_judge/file"] == 1
        assert figures["psnr/recovered/file"] > 60
        assert figures["psnr/recovered/jpeg75"] < 30
    else:
        assert not [name for name in figures if name.startswith("recovery_rate")]


def test_there_is_nothing_to_train(tiny_bundle, tmp_path):
    with pytest.raises(UserError, match="Blur has nothing to train"):
        run_command("blur", "fit", tiny_bundle, tmp_path)


def test_irreversible_methods_say_so_and_have_no_codes(tiny_bundle, images):
    for kind in (Blur, Pixelate, Mask):
        backbone = kind(str(tiny_bundle))
        assert not backbone.reversible
        with pytest.raises(NotImplementedError, match="cannot be undone"):
            backbone.recover(images, backbone.sample_key(4))
        with pytest.raises(NotImplementedError, match="no codes"):
            backbone.encode(images)
        with pytest.raises(NotImplementedError, match="carries no codes"):
            backbone.deny(images, backbone.sample_key(4))


@pytest.mark.parametrize(("kind", "options"), [(Blur, {"sigma": 0.0}), (Pixelate, {"cells": 65}), (Mask, {"level": 2})])
def test_arguments_out_of_range(kind, options, tiny_bundle):
    with pytest.raises(UserError, match="; give "):
        kind(str(tiny_bundle), **options)
