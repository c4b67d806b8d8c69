"""The prior of photographs: it learns on prepared latents, resumes, and becomes roles of a bundle."""

import json
import math

import pytest
import torch
from prepared_photos import as_words, few_photographs
from stage_probes import REPO, SAVE_LAST, checkpoint, logged

from bundles import LATENT_NETWORKS, make_latent_bundle
from faceanon.backbones.dbaf import DBAF
from faceanon.errors import RunError, UserError
from faceanon.files import load_tensors, save_tensors
from faceanon.networks.cell_discriminator import CellDiscriminator
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.stylegan2 import Generator
from faceanon.stages.prior import PriorStage, PriorWeights
from faceanon.training.cli import run
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle
from faceanon.weights.composed import compose_bundle

EVERY_BATCH = {"class_path": "faceanon.training.checkpoints.RunCheckpoint", "init_args": {"every_n_batches": 1}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    return as_words(few_photographs(folder, tmp_path_factory.mktemp("prepared")))


def fit(out, data, *callbacks, more=()):
    """Four batches: pictures count from the second on, the discriminator joins in the third."""
    networks = {role: LATENT_NETWORKS[role][1] for role in ("generator", "encoder", "discriminator")}
    networks["generator"] = networks["generator"] | {"mixture": [3, 2], "yielding": 0.5}
    keys = {
        **{f"model.init_args.{role}.init_args": json.dumps(arguments) for role, arguments in networks.items()},
        "model.init_args.pictures_after": 1,
        "model.init_args.adversarial_after": 2,
        "model.init_args.watched": 2,
        "model.init_args.samples_every": 4,
        "model.init_args.export": out / "model",
        "model.init_args.int8": "false",
        "trainer.callbacks": json.dumps([SAVE_LAST, *callbacks]),
        "trainer.default_root_dir": out,
        "trainer.logger.init_args.save_dir": out,
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
        "trainer.log_every_n_steps": 1,
        "trainer.max_epochs": 1,
        "trainer.precision": "32-true",
    }
    words = [f"--{key}={value}" for key, value in keys.items()]
    return run(["fit", "--config", str(REPO / "configs/prior.yaml"), *data, *words, *more]).model


def test_four_batches_with_pictures_and_an_adversary_become_roles_of_a_bundle(data, tmp_path):
    stage = fit(tmp_path, data)
    columns = logged(tmp_path)
    counts = {}
    for name, values in columns.items():
        known = [value for value in values if value is not None]
        assert all(math.isfinite(value) for value in known), name
        counts[name] = len(known)
    assert counts["train/g/pixel"] == 4
    assert counts["train/g/identity"] == counts["train/g/reading"] == 3
    assert counts["train/g/adversarial"] == counts["train/d/adversarial"] == 2
    assert counts["val_psnr"] == counts["val_cos"] == 1
    assert "train/g/edges" not in columns
    assert [path.name for path in tmp_path.rglob("samples/*")] == ["batch_0000004.png"]

    made = Bundle(tmp_path / "model")
    assert made.name == "photo128_mesh_prior"
    assert made.frame is not None
    assert made.image_size == 128
    assert made.fingerprint != Bundle("photo128").fingerprint
    assert made.latent_avg.shape == (14, 16)
    untrained = make_latent_bundle(tmp_path / "untrained")
    before = Bundle(untrained).generator().state_dict()
    loaded = made.generator()
    for name, value in stage.ema.generator.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=1e-3, atol=1e-7, msg=name)  # float16
    # The untrained one has a mapping network in place of the mixture.
    shared = before.keys() & loaded.state_dict().keys()
    assert any(not torch.equal(loaded.state_dict()[name], before[name]) for name in shared)
    with torch.no_grad():
        picture = torch.rand(1, 3, 128, 128) * 2 - 1
        codes, _ = made.encoder().eval().with_features(picture)
        assert loaded.synthesis(codes).shape == (1, 3, 128, 128)
        assert made.discriminator()(picture).shape == (1, 768)
        assert made.landmarks(picture).shape == (1, 468, 2)
        assert made.perceptual(picture, picture.flip(3)) > 0
        method = DBAF(str(tmp_path / "model"), cid_depth=1, cid_heads=2, cid_head_dim=8).eval()
        assert method.anonymize(picture, method.sample_key(1)).shape == (1, 3, 128, 128)


def test_a_prior_stored_in_few_bits_holds_its_components_once_and_draws_the_same(data, tmp_path):
    wide = {"style_dim": 64, "n_mlp": 2}
    words = ["--model.init_args.int8=true", "--trainer.limit_train_batches=1"]
    for role in ("generator", "encoder"):
        arguments = LATENT_NETWORKS[role][1] | ({"style_dim": 64} if role == "encoder" else wide | {"mixture": [3, 2]})
        words.append(f"--model.init_args.{role}.init_args={json.dumps(arguments)}")
    stage = fit(tmp_path, data, more=words)
    encoder = load_tensors(tmp_path / "model/encoder.safetensors")
    assert not any(name in encoder for name in ("flat.weight", "flat.bias"))
    made = Bundle(tmp_path / "model")
    # Components come back as they trained, and so does the encoder's reading of them.
    assert torch.equal(made.generator().draft.weight, stage.ema.generator.draft.weight)
    torch.testing.assert_close(made.encoder().flat.weight, stage.ema.encoder.flat.weight, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(made.encoder().flat.bias, stage.ema.encoder.flat.bias, rtol=1e-3, atol=1e-5)
    # A training that begins from the file finds both.
    again = fit(tmp_path / "again", data, more=[*words, f"--model.init_args.init_from={tmp_path / 'model'}"])
    assert torch.equal(again.ema.generator.draft.weight, stage.ema.generator.draft.weight)
    torch.testing.assert_close(again.ema.encoder.flat.weight, stage.ema.encoder.flat.weight, rtol=1e-3, atol=1e-6)
    # And it knows how much each cell counts, so that its own file holds the components once too.
    assert again.counts.std() > 0
    torch.testing.assert_close(again.counts, stage.counts, rtol=1e-3, atol=1e-6)
    assert "flat.weight" not in load_tensors(tmp_path / "again/model/encoder.safetensors")


def test_a_prior_goes_on_from_its_weights_with_a_mixture(data, tmp_path):
    first = tmp_path / "first"
    fit(first, data, more=["--model.init_args.generator.init_args.mixture=[]"])
    assert isinstance(Bundle(first / "model").generator().style, torch.nn.Sequential)
    # As a prior from before drafts could yield was written.
    file = first / "model/generator.safetensors"
    tensors = load_tensors(file)
    del tensors["kept"]
    save_tensors(file, tensors)
    words = [f"--model.init_args.init_from={first / 'model'}", "--trainer.limit_train_batches=1"]
    second = tmp_path / "second"
    stage = fit(second, data, more=words)
    made = Bundle(second / "model")
    mapping = made.generator().style
    torch.testing.assert_close(mapping.means, stage.ema.generator.style.means, rtol=1e-3, atol=1e-6)
    assert mapping.edges.diff().min() >= 0
    assert mapping.factors.any()
    # And on from there, with nothing to leave out.
    fit(tmp_path / "third", data, more=[*words, f"--model.init_args.init_from={second / 'model'}"])


def test_a_second_export_brings_the_checksums_up_to_date(tmp_path):
    folder = tmp_path / "model"
    base = Bundle("photo128")
    for seed in range(2):
        torch.manual_seed(seed)
        trained = {
            "generator": Generator(**LATENT_NETWORKS["generator"][1]),
            "encoder": Encoder4Editing(**LATENT_NETWORKS["encoder"][1]),
        }
        for role, net in trained.items():
            save_tensors(folder / f"{role}.safetensors", net.state_dict())
        save_tensors(folder / "latent_avg.safetensors", {"latent_avg": torch.zeros(14, 16)})
        compose_bundle(folder, base, trained, steady_numbers=3)
        loaded = Bundle(folder).generator().state_dict()
        assert torch.equal(loaded["input.input"], trained["generator"].input.input)
    assert not Bundle(folder).has("discriminator")
    assert (Bundle(folder).steady_numbers, base.steady_numbers) == (3, 0)
    assert {path.name for path in folder.glob("LICENSE*")} == {"LICENSE.codec", "LICENSE.recogniser", "LICENSE.mesh"}


def test_a_resumed_run_is_the_run_that_was_not_interrupted(data, tmp_path):
    whole = tmp_path / "whole"
    broken = tmp_path / "broken"
    fit(whole, data)
    stop = {"class_path": "stage_probes.Interrupt", "init_args": {"epoch": 0, "batch": 3}}
    with pytest.raises(RunError):
        fit(broken, data, EVERY_BATCH, stop)
    before = checkpoint(broken)["state_dict"]
    fit(broken, data, EVERY_BATCH, more=["--ckpt_path=last"])
    states = [checkpoint(folder)["state_dict"] for folder in (whole, broken)]
    assert [name for name in states[0] if not torch.equal(states[0][name], states[1][name])] == []
    assert any(not torch.equal(states[0][name], value) for name, value in before.items())
    exported = [load_tensors(folder / "model/generator.safetensors") for folder in (whole, broken)]
    assert all(torch.equal(exported[0][name], exported[1][name]) for name in exported[0])


@pytest.fixture(scope="module")
def photo_bundle(tmp_path_factory):
    return make_latent_bundle(tmp_path_factory.mktemp("bundle"))


def untrained(bundle, **settings):
    torch.manual_seed(0)
    networks = [Generator(**LATENT_NETWORKS["generator"][1]), Encoder4Editing(**LATENT_NETWORKS["encoder"][1])]
    discriminator = CellDiscriminator(**LATENT_NETWORKS["discriminator"][1])
    return PriorStage(*networks, discriminator, bundle=str(bundle), **settings)


def test_latents_of_a_batch_are_used_where_it_has_them(photo_bundle):
    stage = untrained(photo_bundle)
    faces = DBAF(str(photo_bundle), cid_depth=1, cid_heads=2, cid_head_dim=8).bundle
    image = torch.rand(2, 3, 128, 128) * 2 - 1
    unknown = torch.full((2,), -1)
    known = torch.randn(2, 32, 16, 16)
    assert torch.equal(stage.original(FaceBatch(image, unknown, unknown, latents=known)), known)
    torch.testing.assert_close(stage.original(FaceBatch(image, unknown, unknown)), faces.codec.encode(image))


def test_a_generator_of_latents_wants_a_bundle_with_a_codec(tiny_bundle):
    with pytest.raises(UserError, match="has no codec"):
        untrained(tiny_bundle)


def test_samples_are_mixed_as_often_as_asked(photo_bundle):
    class Streams:
        def __init__(self, first):
            self.first = first

        def draw(self, sample):
            return torch.stack([sample(generator=torch.Generator().manual_seed(self.first + row)) for row in range(8)])

    stage = untrained(photo_bundle, mixing=1.0)
    stage.parallel.streams = Streams(0)
    w = torch.randn(8, 16)
    mixed = stage.mixed(w, 4)
    assert mixed.shape == (4, 14, 16)
    assert torch.equal(mixed[:, 0], w[:4])
    assert torch.equal(mixed[:, -1], w[4:])
    for row in range(4):
        assert len(mixed[row].unique(dim=0)) == 2
    stage.mixing = 0.0
    assert torch.equal(stage.mixed(w, 4), w[:4, None].expand(-1, 14, -1))


@pytest.mark.parametrize("single", [1.5, -0.5])
def test_a_share_of_a_batch_is_at_most_a_whole(photo_bundle, single):
    with pytest.raises(UserError, match="share of a batch"):
        untrained(photo_bundle, single=single)


def test_networks_are_asked_for_only_where_a_weight_wants_them(tmp_path):
    bundle = make_latent_bundle(tmp_path, without=("perceptual",))
    with pytest.raises(UserError, match="has no perceptual"):
        untrained(bundle)
    assert untrained(bundle, weights=PriorWeights(perceptual=0.0)).weights.identity == 1.0


def test_colours_need_numbers_that_hold_them(photo_bundle):
    with pytest.raises(UserError, match="give kept_signs of 1 or more"):
        untrained(photo_bundle, steady_colours=True)
    assert untrained(photo_bundle, steady_colours=True, kept_signs=4).kept_signs == 4
