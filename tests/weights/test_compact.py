"""Weights stored in fewer bytes: what int8 costs a number, and what strangers' files do."""

import math

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from bundles import make_tiny_bundle
from faceanon.backbones.dbaf import DBAF
from faceanon.errors import UserError
from faceanon.files import load_arrays, load_tensors, save_tensors, sha256
from faceanon.models import load_backbone, save_backbone
from faceanon.paths import checkpoints
from faceanon.photo.file import load_photo
from faceanon.pipeline import Pipeline
from faceanon.quantised import GROUP, INT4, INT8, SCALE, SCALE4, from_int4, to_int4, to_int8
from faceanon.weights.bundle import Bundle
from fakes import FixedDetector
from script_files import script

SMALL = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}
SHAPES = ((64, 64), (1, 32, 16, 3, 3), (4096, 1), (1, 4096), (16, 32, 3, 3))


@pytest.fixture(scope="module")
def compact():
    with script("tools/networks/compact.py") as module:
        yield module.compact


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(SHAPES), st.integers(0, 2**31), st.floats(-30, 10))
def test_int8_errs_by_half_a_step_of_its_channel_and_by_nothing_the_second_time(shape, seed, exponent):
    draw = torch.Generator().manual_seed(seed)
    spread = 10 ** torch.randn(shape[0], *[1] * (len(shape) - 1), generator=draw)
    weight = torch.randn(shape, generator=draw) * spread * 10**exponent
    steps, scale = to_int8(weight)
    again = steps.float() * scale
    # The channel is the first dimension that is longer than one; the others are measured together.
    others = [place for place, length in enumerate(scale.shape) if length == 1]
    largest = weight.abs().amax(others, keepdim=True)
    # The last term: weights too small for a float32 of full precision, which become zeros.
    assert ((weight - again).abs() <= largest / 254 * (1 + 1e-4) + 1e-37).all()
    steps_again, scale_again = to_int8(again)
    assert torch.equal(steps_again, steps)
    assert torch.equal(scale_again, scale)


def test_only_large_weights_become_int8(tmp_path):
    tensors = {
        "large": torch.randn(64, 64),
        "small": torch.randn(8, 8),
        "bias": torch.randn(5000),
        "steps": torch.arange(8192).reshape(2, 4096),
        "zeros": torch.zeros(64, 64),
    }
    path = tmp_path / "a.safetensors"
    save_tensors(path, tensors, half=True, int8=True)
    stored = load_file(path)
    assert {name for name in stored if name.startswith(INT8)} == {f"{INT8}large", f"{INT8}zeros"}
    found = load_tensors(path)
    assert found.keys() == tensors.keys()
    assert found["large"].dtype == torch.float32
    assert found["small"].dtype == torch.float16
    for name in ("bias", "steps", "zeros"):
        assert torch.equal(found[name], tensors[name])
    save_tensors(tmp_path / "b.safetensors", found, half=True, int8=True)
    assert sha256(tmp_path / "b.safetensors") == sha256(path)


def test_files_without_int8_load_unchanged(tmp_path):
    tensors = {"plain": torch.randint(-9, 9, (80, 80), dtype=torch.int8), "half": torch.randn(80, 80).half()}
    save_file(tensors, tmp_path / "a.safetensors")
    found = load_tensors(tmp_path / "a.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in tensors.items())


@pytest.mark.parametrize(
    "change",
    [
        {SCALE: None},
        {INT8: None},
        {SCALE: torch.ones(1, 64)},
        {SCALE: torch.ones(64, 1).half()},
        {SCALE: torch.full((64, 1), math.nan)},
        {SCALE: torch.full((64, 1), -1.0)},
        {SCALE: torch.ones(64, 1, 1)},
        {INT8: torch.ones(64, 64)},
        {INT8: torch.ones(64, 64).bfloat16()},
        {"": torch.ones(64, 64)},
    ],
    ids=["no scale", "no steps", "wide", "half", "nan", "negative", "deep", "float steps", "bfloat16 steps", "twice"],
)
def test_a_scale_that_does_not_fit_says_so_in_a_line(tmp_path, change):
    steps, scale = to_int8(torch.randn(64, 64))
    stored = {INT8: steps, SCALE: scale} | change
    save_file({f"{head}w": value for head, value in stored.items() if value is not None}, tmp_path / "a.safetensors")
    with pytest.raises(UserError, match=r"scale of 'w' is missing or damaged") as caught:
        load_tensors(tmp_path / "a.safetensors")
    assert "\n" not in str(caught.value)


def stored_in_int4(weight):
    """A weight as a file in int4 gives it back."""
    packed, scale = to_int4(weight)
    return torch.from_numpy(from_int4(packed.numpy(), scale.numpy()))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5), st.integers(1, 4), st.sampled_from([(), (3, 3)]), st.integers(0, 2**31), st.floats(-2, 3))
def test_int4_errs_by_half_a_step_of_its_group_and_by_nothing_the_second_time(rows, groups, rest, seed, exponent):
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(groups * GROUP, rows, *rest, generator=draw) * 10**exponent
    again = stored_in_int4(weight)
    largest = weight.unflatten(0, (-1, GROUP)).abs().amax(1, keepdim=True)
    error = (weight - again).unflatten(0, (-1, GROUP)).abs()
    # Half a step, and for the largest what float16 takes from seven of them.
    assert (error <= largest / 14 * 1.01 + 1e-6).all()
    for first, second in zip(to_int4(weight), to_int4(again), strict=True):
        assert torch.equal(first, second)


def test_matrices_named_for_int4_come_back_with_and_without_torch(tmp_path):
    tensors = {"draft": torch.randn(2 * GROUP, 40), "zeros": torch.zeros(GROUP, 2), "large": torch.randn(64, 64)}
    path = tmp_path / "a.safetensors"
    save_tensors(path, tensors, half=True, int8=True, int4=["draft", "zeros"])
    assert load_file(path).keys() == {
        *(f"{prefix}{name}" for name in ("draft", "zeros") for prefix in (INT4, SCALE4)),
        f"{INT8}large",
        f"{SCALE}large",
    }
    found = load_tensors(path)
    assert torch.equal(found["draft"], stored_in_int4(tensors["draft"]))
    assert torch.equal(found["zeros"], tensors["zeros"])
    arrays = load_arrays(path)
    assert arrays.keys() == found.keys()
    assert all(np.array_equal(arrays[name], value.numpy()) for name, value in found.items())


@pytest.mark.parametrize(
    "change",
    [
        {SCALE4: None},
        {INT4: None},
        {SCALE4: torch.ones(1, 4)},
        {SCALE4: torch.ones(2, 4).half()},
        {SCALE4: torch.full((1, 4), math.inf).half()},
        {INT4: torch.zeros(32, 4, dtype=torch.int8)},
        {INT8: torch.zeros(64, 4, dtype=torch.int8)},
        {"": torch.ones(64, 4)},
    ],
    ids=["no scale", "no steps", "float32", "wide", "infinite", "signed", "int8 too", "twice"],
)
def test_an_int4_scale_that_does_not_fit_says_so_in_a_line(tmp_path, change):
    packed, scale = to_int4(torch.randn(GROUP, 4))
    stored = {INT4: packed, SCALE4: scale} | change
    path = tmp_path / "a.safetensors"
    save_file({f"{head}w": value for head, value in stored.items() if value is not None}, path)
    for load in (load_tensors, load_arrays):
        with pytest.raises(UserError, match=r"scale of 'w' is missing or damaged"):
            load(path)


def test_what_cannot_be_int8_is_not_written(tmp_path):
    with pytest.raises(UserError, match="not finite"):
        save_tensors(tmp_path / "a.safetensors", {"w": torch.full((64, 64), math.inf)}, int8=True)
    with pytest.raises(UserError, match="not finite"):
        save_tensors(tmp_path / "a.safetensors", {"w": torch.full((GROUP, 4), math.nan)}, int4=["w"])
    with pytest.raises(UserError, match="does not fit int4"):
        save_tensors(tmp_path / "a.safetensors", {"w": torch.ones(GROUP - 1, 4)}, int4=["w"])
    with pytest.raises(UserError, match="reserved"):
        save_tensors(tmp_path / "a.safetensors", {f"{SCALE}w": torch.ones(2)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("card", sorted(checkpoints().glob("*/model.yaml")), ids=lambda card: card.parent.name)
def test_the_cards_that_ship_name_each_entry_once(card):
    names = [line.split(":")[0] for line in card.read_text().splitlines() if line[:1].isalpha()]
    assert len(names) == len(set(names))  # YAML would silently take the last one


def test_a_model_stored_anew_is_another_one(compact, tiny_bundle, tmp_path):
    save_backbone(DBAF(str(tiny_bundle), **SMALL), tmp_path / "model")
    before = Pipeline.load(tmp_path / "model", FixedDetector([]))
    manifest = before.manifest(16, 16)
    compact(tmp_path / "model", "int8", [])
    now = Pipeline.load(tmp_path / "model", FixedDetector([]))
    assert now.weights != before.weights
    with pytest.raises(UserError, match="was anonymized with"):
        now.check(manifest, "a.png")
    with pytest.raises(UserError, match="was anonymized with"):
        before.check(now.manifest(16, 16), "b.png")


def test_a_bundle_stored_anew_is_another_one(compact, tmp_path):
    folder = make_tiny_bundle(tmp_path / "bundle")
    fingerprint = Bundle(folder).fingerprint
    digest = Bundle(folder).entry("recogniser")["sha256"]
    compact(folder, "half", ["recogniser", "judge"])
    assert Bundle(folder).entry("recogniser")["sha256"] != digest
    assert Bundle(folder).fingerprint != fingerprint
    assert Bundle(folder).trainable_recogniser() is not None


def test_the_same_numbers_in_fewer_bytes_and_fewer_steps_in_fewer_still(compact, tmp_path):
    folder = make_tiny_bundle(tmp_path / "bundle")
    path = folder / Bundle(folder).entry("recogniser")["file"]
    before, size = load_tensors(path), path.stat().st_size
    compact(folder, "same", ["recogniser"])
    assert path.stat().st_size < size
    found = load_tensors(path, Bundle(folder).entry("recogniser")["sha256"])
    assert all(torch.equal(found[name], value) for name, value in before.items())
    # A second time it is stored already.
    digest = sha256(path)
    compact(folder, "same", ["recogniser"])
    assert sha256(path) == digest
    compact(folder, "int8", ["recogniser"])
    exact = path.stat().st_size
    compact(folder, "int6", ["recogniser"])
    assert path.stat().st_size < exact
    assert Bundle(folder).trainable_recogniser() is not None


def psnr(one, other):
    error = np.square(one.astype(float) - other.astype(float)).mean()
    return 10 * math.log10(255**2 / error)


def picture(path):
    return load_photo(path).pixels


def test_the_shipped_bundle_is_the_one_that_models_were_trained_on():
    backbone, _ = load_backbone("persona_photo128")
    card = yaml.safe_load((checkpoints() / "persona_photo128/model.yaml").read_text())
    assert backbone.bundle.fingerprint == card["bundle"]["fingerprint"]
