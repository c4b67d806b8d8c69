"""Methods on W+ stand on a bundle of photographs as on any other: both stages, the presets, the exported model."""

import math
from copy import deepcopy

import pytest
import torch
from prepared_photos import as_words, few_photographs
from stage_probes import REPO, small

from bundles import make_latent_bundle
from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.ifadit import IFADIT
from faceanon.backbones.riddle import Riddle
from faceanon.models import load_backbone
from faceanon.networks.codec import LatentCodec
from faceanon.stages.backbone_stage import BackboneStage
from faceanon.stages.base import average_copy
from faceanon.training.cli import run
from faceanon.weights.bundle import Bundle

SMALL = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_latent_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def data(tmp_path_factory, bundle):
    folder = tmp_path_factory.mktemp("photos")
    return as_words(few_photographs(folder, tmp_path_factory.mktemp("prepared"), bundle))


def fit(config, bundle, out, data, validated=1, **options):
    """Two batches."""
    options = {"samples_every": 2, "export": out / "model", **small(config, options)}
    keys = {
        "model.init_args.backbone.init_args.bundle": bundle,
        **{f"model.init_args.{name.replace('__', '.')}": value for name, value in options.items()},
        "trainer.callbacks": "[]",
        "trainer.enable_checkpointing": "false",
        "trainer.default_root_dir": out,
        "trainer.logger.init_args.save_dir": out,
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
        "trainer.log_every_n_steps": 1,
        "trainer.max_epochs": 1,
        "trainer.precision": "32-true",
        "trainer.limit_train_batches": 2,
        "trainer.limit_val_batches": validated,
    }
    words = [f"--{key}={value}" for key, value in keys.items()]
    named = ["--config", str(REPO / f"configs/paper/{config}.yaml"), "--model.init_args.weights.parsing=0"]
    prepared = ["--data=faceanon.data.prepared.PreparedFaces", "--data.init_args.image_size=128"]
    return run(["fit", *named, *prepared, *data, *words]).model


def test_dbaf_trains_in_both_stages_on_photographs(bundle, data, tmp_path):
    first = fit("dbaf_s1", bundle, tmp_path / "1", data, weights__parsing=0.1, weights__landmarks=30)
    terms = first.trainer.logged_metrics
    assert {"train/g/perceptual", "train/g/parsing", "train/g/landmarks"} <= set(terms)
    assert {"train/g/adversarial", "train/d/adversarial"} <= set(terms)
    assert all(math.isfinite(value) for value in terms.values())
    second = fit("dbaf_s2", bundle, tmp_path / "2", data, init_from=tmp_path / "1/model", report="null")
    assert all(math.isfinite(value) for value in second.trainer.logged_metrics.values())
    model = load_backbone(tmp_path / "2/model")[0].eval()
    picture = torch.rand(2, 3, 128, 128) * 2 - 1
    with torch.no_grad():
        drawn = model.anonymize(picture, model.sample_key(2))
        assert drawn.shape == (2, 3, 128, 128)
        assert model.recover(drawn, model.sample_key(2)).isfinite().all()


def test_without_a_parser_its_terms_are_left_out(tmp_path, tmp_path_factory):
    bundle = make_latent_bundle(tmp_path / "bundle", without=("parser",))
    folder = tmp_path_factory.mktemp("photos")
    data = as_words(few_photographs(folder, tmp_path / "prepared", bundle))
    stage = fit("dbaf_s1", bundle, tmp_path, data)
    assert "train/g/parsing" not in stage.trainer.logged_metrics


def test_encoder_features_reach_the_generator_at_all_three_resolutions(bundle):
    method = DBAF(str(bundle), **SMALL).eval()
    picture = torch.rand(1, 3, 128, 128) * 2 - 1
    with torch.no_grad():
        codes = method.encode(picture)
    assert {side: tuple(item.shape[1:]) for side, item in codes.features.items()} == {
        16: (16, 16, 16), 8: (16, 8, 8), 4: (16, 4, 4)
    }  # fmt: skip


def test_a_psp_encoder_serves_ifadit_and_its_codes_are_as_long_as_the_recognisers(tmp_path):
    bundle = make_latent_bundle(tmp_path, encoder="psp.GradualStyleEncoder")
    assert Bundle(bundle).embedding_length == 256
    method = IFADIT(str(bundle)).eval()
    picture = torch.rand(2, 3, 128, 128) * 2 - 1
    with torch.no_grad():
        codes = method.encode(picture)
        assert codes.identity.shape == (2, 256)
        assert method.anonymize(picture, method.sample_key(2)).shape == (2, 3, 128, 128)


def test_riddles_groups_are_the_published_ones(bundle):
    method = Riddle(str(bundle)).eval()
    assert method.mapper.split == [4, 4, 6]
    with torch.no_grad():
        assert method.anonymize(torch.zeros(1, 3, 128, 128), method.sample_key(1)).shape == (1, 3, 128, 128)


def test_an_averaged_copy_asks_networks_where_the_bundle_was_moved(bundle):
    method = DBAF(str(bundle), **SMALL).eval()
    twin = average_copy(method)
    # As a stage does it on a GPU; this device is on every machine.
    method.bundle.to("meta")
    # Built only now, as by the first sheet of samples.
    assert {weight.device.type for weight in twin.bundle.landmarks.net.parameters()} == {"meta"}


def test_a_copy_draws_through_the_same_codec(bundle):
    method = DBAF(str(bundle), **SMALL).eval()
    twin = deepcopy(method)
    picture = torch.rand(1, 3, 128, 128) * 2 - 1
    with torch.no_grad():
        assert torch.equal(twin.decode(twin.encode(picture)), method.decode(method.encode(picture)))


@pytest.mark.parametrize("config", ["dbaf_s1", "dbaf_s2"])
def test_a_step_on_prepared_photographs_encodes_only_what_was_saved(bundle, data, tmp_path, monkeypatch, config):
    encoded = []
    plain = LatentCodec.encode
    step = BackboneStage.training_step

    def counting(codec, image):
        if codec._remembered(image) is None:
            encoded.append(len(image))
        return plain(codec, image)

    def counted_step(stage, *args):
        # What the preparation encodes before the training is not of interest.
        if stage.batches_seen == 1:
            encoded.clear()
        step(stage, *args)

    monkeypatch.setattr(BackboneStage, "training_step", counted_step)
    words = {"weights__adversarial": 0, "weights__landmarks": 1.0, "samples_every": 0}
    if config == "dbaf_s2":
        words |= {"report": "null"}
    monkeypatch.setattr(LatentCodec, "encode", counting)
    stage = fit(config, bundle, tmp_path, data, validated=0, **words)
    batch = stage.trainer.datamodule.batch_size
    # Stage 2 reads the saved picture of the first key; originals and drawn faces are compared as latents.
    wanted = [] if config == "dbaf_s1" else [batch, batch]
    assert encoded == wanted
    assert {"train/g/perceptual", "train/g/landmarks"} <= set(stage.trainer.logged_metrics)
