"""The test command of the networks of a bundle: from its folder or from a file to figures on paper."""

import json
from types import SimpleNamespace

import pytest
from stage_probes import REPO

from bundles import NETWORKS
from faceanon.errors import UserError
from faceanon.losses.auxiliary import IdentityObjective
from faceanon.stages.auxiliary import AuxiliaryStage
from faceanon.training.cli import run
from faceanon.weights.bundle import network_class

FACES = ("--data.init_args.test_identities=6", "--data.init_args.photos=2", "--data.init_args.batch_size=8")


def examine(config, source, out, **options):
    """`faceanon test` on a network of the tiny bundle; gives back its figures and its meta."""
    name, init = NETWORKS[config]
    keys = {
        "network": json.dumps({"class_path": f"faceanon.networks.{name}", "init_args": init}),
        "init_from": source,
        "report": out,
        **options,
    }
    words = [f"--model.init_args.{key}={value}" for key, value in keys.items()]
    trainer = ("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false")
    run(["test", "--config", str(REPO / f"configs/critics/{config}.yaml"), *words, *FACES, *trainer])
    results = json.loads((out / config / "results.json").read_text())
    return results["figures"], results["meta"]


@pytest.mark.parametrize(
    ("config", "options", "names"),
    [
        ("recogniser", {}, {"auc/recogniser", "tar_at_far/recogniser/0.01", "tar_at_far/recogniser/0.001"}),
        ("parser", {}, {"parsing_iou/mean", "parsing_iou/hair", "parsing_iou/occluder", "pixel_accuracy"}),
        ("landmarks", {}, {"landmark_distance/mean", "landmark_distance/chin"}),
        ("perceptual", {"objective.init_args.channels": "[4, 4, 8]"}, {"probe_r2/perceptual"}),
    ],
)
def test_a_bundles_network_is_tested(tiny_bundle, tmp_path, capsys, config, options, names):
    figures, meta = examine(config, tiny_bundle, tmp_path / "reports", **options)
    assert names <= set(figures)
    assert meta["role"] == config
    assert NETWORKS[config][0].rsplit(".", 1)[-1] in meta["network"]
    out = capsys.readouterr().out
    assert all(name in out for name in names)
    assert "report.html" in out


def test_folder_and_file_give_the_same_figures_and_another_file_others(tiny_bundle, tmp_path):
    folder, _ = examine("landmarks", tiny_bundle, tmp_path / "folder")
    file, _ = examine("landmarks", tiny_bundle / "landmarks.safetensors", tmp_path / "file")
    assert folder == file
    with pytest.raises(UserError, match="does not fit LandmarkNet"):
        examine("landmarks", tiny_bundle / "parser.safetensors", tmp_path / "wrong")
    with pytest.raises(UserError, match="has no critic"):
        examine("landmarks", tiny_bundle, tmp_path / "norole", role="critic")
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(
    ("batches", "scaler", "words"), [(2, None, "leave the trainer's at 1"), (1, object(), "train in bf16-mixed")]
)
def test_parts_neither_of_the_trainer_nor_with_scaled_losses(batches, scaler, words):
    name, init = NETWORKS["recogniser"]
    stage = AuxiliaryStage(
        network_class(f"faceanon.networks.{name}")(**init), IdentityObjective(embedding=32), accumulate=2
    )
    trainer = SimpleNamespace(accumulate_grad_batches=batches, precision_plugin=SimpleNamespace(scaler=scaler))
    stage.trainer = trainer
    with pytest.raises(UserError, match=words):
        stage.configure_optimizers()
