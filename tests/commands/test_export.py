import errno
import json
import os

import pytest
import torch
from torch import nn

from bundles import make_tiny_bundle
from faceanon.backbones.dbaf import DBAF
from faceanon.cli import main
from faceanon.errors import UserError
from faceanon.interop.public.export import encoder_content, exportable, generator_content, has_public_widths
from faceanon.models import load_backbone, save_backbone
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.psp import GradualStyleEncoder
from faceanon.networks.stylegan2 import Generator
from faceanon.weights.bundle import Bundle
from public_files import FILES, Recipe, small_files, small_networks

SMALL = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}


@pytest.fixture
def model(tiny_bundle, tmp_path):
    """A trained model whose generator and encoder are no longer those of its bundle."""
    torch.manual_seed(3)
    backbone = DBAF(str(tiny_bundle), **SMALL)
    with torch.no_grad():
        for value in (*backbone.generator.parameters(), *backbone.encoder.parameters()):
            value += 0.1 * torch.randn_like(value)
        backbone.latent_avg += torch.randn(16)
    save_backbone(backbone, tmp_path / "model")
    return tmp_path / "model"


def read(folder):
    return (torch.load(folder / name, weights_only=True) for name in ("generator.pt", "encoder.pt"))


def part(state, prefix):
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def rebuilt(bundle, folder):
    """Generator, encoder and average from nothing but the two files and the networks' shapes."""
    first, second = read(folder)
    generator = bundle.build("generator", weights=False)
    generator.load_state_dict(first["g_ema"])
    encoder = bundle.build("encoder", weights=False)
    encoder.load_state_dict(part(second["state_dict"], "encoder."))
    return generator.eval(), encoder.eval(), second["latent_avg"]


def same(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@torch.no_grad()
def test_a_model_comes_back_bit_for_bit_and_draws_the_same_pictures(model, tiny_bundle, tmp_path, capsys):
    assert main(["export", "--layout", "public", "--model", str(model), str(tmp_path / "out")]) == 0
    assert "generator.pt" in capsys.readouterr().out
    backbone, _ = load_backbone(model)
    generator, encoder, average = rebuilt(Bundle(tiny_bundle), tmp_path / "out")
    same(generator.state_dict(), backbone.generator.state_dict())
    same(encoder.state_dict(), backbone.encoder.state_dict())
    image = torch.rand(2, 3, 64, 64) * 2 - 1
    drawn = backbone.generator.synthesis(backbone.encoder(image)[0] + backbone.latent_avg)
    assert torch.equal(generator.synthesis(encoder(image)[0] + average), drawn)
    assert not torch.equal(Bundle(tiny_bundle).generator().synthesis(encoder(image)[0] + average), drawn)


def test_the_files_have_the_public_top_level(model, tmp_path):
    main(["export", "--layout", "public", "--model", str(model), str(tmp_path / "out")])
    first, second = read(tmp_path / "out")
    assert set(first) == {"g_ema", "latent_avg"}
    assert set(second) == {"state_dict", "latent_avg", "opts"}
    assert first["latent_avg"].shape == (16,)
    assert second["latent_avg"].shape == (10, 16)
    assert torch.equal(first["latent_avg"], second["latent_avg"][0])
    same(part(second["state_dict"], "decoder."), first["g_ema"])
    options = second["opts"]
    assert options["encoder_type"] == "Encoder4Editing"
    assert options["stylegan_size"] == options["output_size"] == 64
    assert options["start_from_latent_avg"] is True
    assert options.pop("feature_taps") == [-1, 0, 1]
    assert all(isinstance(value, str | int | bool) for value in options.values())


def test_a_bundle_is_exported_too(tiny_bundle, tmp_path):
    assert main(["export", "--layout", "public", "--model", str(tiny_bundle), str(tmp_path / "out")]) == 0
    generator, encoder, average = rebuilt(Bundle(tiny_bundle), tmp_path / "out")
    same(generator.state_dict(), Bundle(tiny_bundle).generator().state_dict())
    same(encoder.state_dict(), Bundle(tiny_bundle).encoder().state_dict())
    assert torch.equal(average, Bundle(tiny_bundle).latent_avg)


def test_every_trained_tensor_of_the_two_networks_is_in_the_files(model, tmp_path):
    main(["export", "--layout", "public", "--model", str(model), str(tmp_path / "out")])
    _, second = read(tmp_path / "out")
    saved = load_backbone(model)[0].state_dict()
    own = {name.replace("generator.", "decoder.", 1): value for name, value in saved.items()}
    own = {name: value for name, value in own.items() if name.startswith(("decoder.", "encoder."))}
    same(second["state_dict"], own)


@pytest.mark.parametrize("size", [256, 1024])
@pytest.mark.parametrize(("kind", "name"), [(Encoder4Editing, "e4e"), (GradualStyleEncoder, "psp")])
def test_full_size_keys_shapes_and_types_are_the_public_ones(shared, size, kind, name):
    with torch.device("meta"):
        generator, encoder = Generator(size), kind(size)
    parts = exportable(generator, encoder, torch.zeros(generator.n_latent, 512), "made")
    assert has_public_widths(parts)
    first, second = generator_content(parts), encoder_content(parts)
    assert layout(first["g_ema"]) == manifest(shared, f"stylegan2_g_{size}")
    assert layout(second["state_dict"]) == manifest(shared, f"{name}_{size}")
    assert list(second["latent_avg"].shape) == [generator.n_latent, 512]
    assert second["opts"]["encoder_type"] == kind.__name__


def layout(state):
    return {key: (list(value.shape), str(value.dtype).removeprefix("torch.")) for key, value in state.items()}


def manifest(shared, name):
    entries = json.loads((shared / f"golden/manifests/{name}.json").read_text())["entries"]
    return {key: (shape, dtype) for key, shape, dtype in entries}


def fails(capsys, *arguments):
    assert main(["export", "--layout", "public", "--model", *map(str, arguments)]) == 2
    message = capsys.readouterr().err.strip()
    assert "\n" not in message
    return message


def test_mistakes_are_named_in_one_line(model, tmp_path, capsys):
    assert "no model or bundle" in fails(capsys, tmp_path / "nothing", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    main(["export", "--layout", "public", "--model", str(model), str(tmp_path / "out")])
    capsys.readouterr()
    assert "--overwrite" in fails(capsys, model, tmp_path / "out")
    assert main(["export", "--layout", "public", "--model", str(model), str(tmp_path / "out"), "--overwrite"]) == 0
    (tmp_path / "file").write_text("in the way")
    assert "cannot write" in fails(capsys, model, tmp_path / "file" / "out")


def test_networks_without_a_public_layout_are_refused():
    nets, rows = small_networks(), torch.zeros(10, 16)
    with pytest.raises(UserError, match="a Linear as its encoder; only e4e and pSp"):
        exportable(nets["generator"], nn.Linear(2, 2), rows, "m")
    with pytest.raises(UserError, match="nothing as its generator; only StyleGAN2"):
        exportable(None, nets["e4e"], rows, "m")
    with pytest.raises(UserError, match="latent_avg"):
        exportable(nets["generator"], nets["e4e"], rows[:3], "m")


@pytest.mark.parametrize("before", [None, b"of before"])
def test_a_failed_second_file_leaves_the_first_as_it_was(tiny_bundle, tmp_path, monkeypatch, capsys, before):
    words = ["export", "--layout", "public", "--model", str(tiny_bundle), str(tmp_path / "out"), "--overwrite"]
    (tmp_path / "out").mkdir()
    if before is not None:
        for name in ("generator.pt", "encoder.pt"):
            (tmp_path / "out" / name).write_bytes(before)
    synced = []

    def full_disk(file):
        synced.append(file)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full_disk)
    assert main(words) == 2
    assert "no space left on the disk" in capsys.readouterr().err
    left = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert left == ({} if before is None else {"generator.pt": before, "encoder.pt": before})


@pytest.mark.parametrize(("folder", "file"), [("generator.pt", "encoder.pt"), ("encoder.pt", "generator.pt")])
def test_a_folder_in_the_place_of_one_file_leaves_the_other_as_it_was(tiny_bundle, tmp_path, capsys, folder, file):
    (tmp_path / folder).mkdir()
    (tmp_path / file).write_bytes(b"of before")
    words = ["export", "--layout", "public", "--model", str(tiny_bundle), str(tmp_path), "--overwrite"]
    assert main(words) == 2
    assert "cannot write" in capsys.readouterr().err
    assert (tmp_path / file).read_bytes() == b"of before"
    assert len(list(tmp_path.iterdir())) == 2


def test_another_seed_gives_another_export(tmp_path):
    for seed in (1, 2):
        bundle = make_tiny_bundle(tmp_path / f"bundle{seed}", seed=seed)
        main(["export", "--layout", "public", "--model", str(bundle), str(tmp_path / f"out{seed}")])
    one, other = (next(read(tmp_path / f"out{seed}")) for seed in (1, 2))
    assert not torch.equal(one["g_ema"]["input.input"], other["g_ema"]["input.input"])


def test_small_files_in_the_public_layouts_can_be_made_and_differ_where_they_should(tmp_path):
    paths = small_files(tmp_path)
    found = {name: torch.load(path, weights_only=True) for name, path in paths.items()}
    assert set(found) == {"generator", "e4e", "psp", "recogniser"}
    assert found["e4e"]["state_dict"].keys() == found["psp"]["state_dict"].keys()
    same(part(found["e4e"]["state_dict"], "decoder."), found["generator"]["g_ema"])
    assert found["generator"]["g_ema"]["conv1.noise.weight"].abs() > 0


def test_full_size_files_follow_the_recipe(shared):
    """Checked on the smallest of them; the checksum is the one recorded with the golden case."""
    import numpy as np

    recipe = Recipe(shared / "golden")
    state = recipe.state("riddle_mapper_linear_pos", "generic")
    assert [(key, list(value.shape)) for key, value in state.items()] == [
        (key, shape) for key, (shape, _) in manifest(shared, "riddle_mapper_linear_pos").items()
    ]
    assert set(FILES["iteration_90000.pt"](recipe)) == {"mapper_state_dict", "opts", "global_step"}
    with np.load(shared / "golden/parity/ir_se50.npz") as case:
        expected = json.loads(str(case["meta"]))["weights_crc32"]
    weights = recipe.state("ir_se50", "generic")
    assert recipe.recipe.crc({key: value.numpy() for key, value in weights.items()}) == expected
