"""Public files to training: the bundle of the papers' setting, what is said when it is incomplete, and real steps."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import wild_files as files
from bundles import make_tiny_bundle
from face_files import write_faces
from faceanon import cli
from faceanon.backbones.dbaf import DBAF
from faceanon.interop.public.export import exportable, write_public
from faceanon.interop.public.importing import import_files
from faceanon.interop.public.reading import read_public
from faceanon.metrics.evaluation import Evaluation
from faceanon.models import load_backbone
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.parsing_classes import BISENET, CELEBAMASK_HQ, PARTS
from faceanon.stages.anonymize import AnonymizeStage
from faceanon.stages.disentangle import DisentangleStage, DisentangleWeights
from faceanon.weights.bundle import Bundle, bundle_path
from faceanon.weights.catalog import catalog
from faceanon.weights.missing import PAPERS
from public_files import small_files, small_networks, write_full_files
from wild_files import refuse

REPO = Path(__file__).resolve().parents[2]
SMALL = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}
FULL = ["stylegan2-ffhq-256.pt", "e4e_ffhq_encode_256.pt", "model_ir_se50.pth", "parsenet.pth"]
FULL += ["alexnet-owt-7be5be79.pth"]


def faceanon(cwd, *words, timeout=280):
    """`faceanon WORDS` in a process of its own; its output."""
    paths = {"PYTHONPATH": f"{REPO / 'src'}{os.pathsep}{REPO / 'tests'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "faceanon", *map(str, words)]
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **paths}, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def fit(cwd, bundle, *words, config="paper/dbaf_s1", batches=2, timeout=280):
    keys = {
        "model.init_args.backbone.init_args.bundle": bundle,
        "trainer.max_epochs": 1,
        "trainer.limit_train_batches": batches,
        "trainer.limit_val_batches": 0,
        "trainer.callbacks": "step_clock.StepClock",
        "trainer.enable_checkpointing": "false",
        "trainer.enable_progress_bar": "false",
        "trainer.log_every_n_steps": 1,
    }
    written = [f"--{name}={value}" for name, value in keys.items()]
    return faceanon(cwd, "fit", "--config", REPO / f"configs/{config}.yaml", *words, *written, timeout=timeout)


def without(folder, *roles, tables=False):
    """The tiny bundle without some networks, or without the names of its parser's classes."""
    make_tiny_bundle(folder)
    spec = yaml.safe_load((folder / "bundle.yaml").read_text())
    for role in roles:
        del spec["networks"][role]
    if tables:
        del spec["parsing"]
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec))
    return folder


def test_small_public_files_are_imported_and_trained_on(tmp_path):
    paths = small_files(tmp_path / "public")
    for name, content in {"parser": files.bisenet_content(), "alexnet": files.imagenet_content("alexnet")}.items():
        paths[name] = tmp_path / "public" / f"{name}.pth"
        torch.save(content, paths[name])
    del paths["psp"]
    said = faceanon(tmp_path, "weights", "import", *paths.values(), "--as", tmp_path / "small64")
    assert "-> encoder" in said
    words = [f"--model.init_args.backbone.init_args.{name}={value}" for name, value in SMALL.items()]
    words += [f"--data.init_args.root={write_faces(tmp_path / 'faces', 8)}", "--data.init_args.image_size=64"]
    words += ["--data.init_args.batch_size=4", "--data.init_args.val_fraction=0", "--data.init_args.test_fraction=0"]
    said = fit(tmp_path, tmp_path / "small64", *words)
    assert "step 1, batch of 4" in said
    with next(tmp_path.glob("runs/paper/dbaf_s1/metrics.csv")).open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("train/g/parsing")]
    terms = ["adversarial", "contrastive", "reconstruction", "perceptual", "parsing", "latent"]
    assert len(rows) == 2
    assert all(float(row[f"train/g/{term}"]) >= 0 for row in rows for term in terms)
    assert len({row["train/g/reconstruction"] for row in rows}) == 2
    trained, _ = load_backbone(tmp_path / "runs/paper/dbaf_s1/model")
    drawn = torch.load(paths["generator"], weights_only=True)["g_ema"]
    assert all(torch.equal(trained.generator.state_dict()[name], value) for name, value in drawn.items())


def free_gigabytes():
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9


@pytest.fixture
def room(tmp_path):
    """A folder for gigabytes, emptied afterwards; skips where memory or disk do not suffice."""
    if free_gigabytes() < 8:
        pytest.skip(f"{free_gigabytes():.1f} GB of memory are free; a step at full size needs 8")
    if shutil.disk_usage(tmp_path).free < 8e9:
        pytest.skip("less than 8 GB free on the disk of temporary files")
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # under four minutes of CPU, much longer on a busy machine
def test_one_step_of_stage_one_at_full_size(shared, room):
    paths = write_full_files(room / "public", FULL, shared / "golden")
    import_files([read_public(path) for path in paths], str(room / "ffhq256"))
    shutil.rmtree(room / "public")
    write_faces(room / "faces", 2, side=256)
    words = ["--model.init_args.export=null"]
    words += [f"--data.init_args.root={room / 'faces'}", "--data.init_args.batch_size=1", "--trainer.accelerator=cpu"]
    words += ["--data.init_args.test_fraction=0", "--data.init_args.val_fraction=0"]
    said = fit(room, room / "ffhq256", *words, batches=1, timeout=3000)
    assert "step 0, batch of 1" in said
    assert "nan" not in said.lower()


def test_a_missing_bundle_of_the_papers_is_one_message(capsys, monkeypatch, tmp_path):
    from faceanon.weights import spec

    monkeypatch.setattr(spec, "checkpoints", lambda: tmp_path)
    config = ["--config", str(REPO / "configs/paper/dbaf_s1.yaml")]
    assert cli.main(["fit", *config]) == 2
    said = capsys.readouterr().err
    assert said.count("faceanon: ") == 1
    known = {entry.id: entry for entry in catalog()}
    for name in PAPERS["ffhq256"]:
        assert f"{known[name].role}: {known[name].files[0]}" in said
        assert known[name].licence in said
    names = " ".join(known[name].files[0] for name in PAPERS["ffhq256"])
    assert f"faceanon weights import {names} --as ffhq256" in said
    refuse("no bundle 'another'", bundle_path, "another")


@pytest.mark.parametrize(
    ("role", "file"),
    [("parser", "parsenet.pth"), ("judge", "20180408-102900-casia-webface.pt"), ("recogniser", "model_ir_se50.pth")],
)
def test_a_missing_network_names_file_licence_and_command(tmp_path, role, file):
    folder = without(tmp_path, role)
    licence = next(entry.licence for entry in catalog() if entry.files[0] == file)
    with pytest.raises(Exception, match=f"has no {role}; get {file}") as caught:
        Bundle(folder).entry(role)
    assert licence in str(caught.value)
    assert str(caught.value).endswith(f"faceanon weights import {file} --as {folder}")
    assert "\n" not in str(caught.value)


def test_a_network_that_nobody_publishes_at_this_size_is_trained(tmp_path):
    refuse("no generator; train or import one first", Bundle(without(tmp_path, "generator")).generator)


def test_stages_ask_for_their_networks_before_anything_is_drawn(tmp_path):
    backbone = DBAF(str(without(tmp_path, "parser", "judge")), **SMALL)
    refuse("no parser; get parsenet.pth", DisentangleStage, backbone)
    DisentangleStage(backbone, DisentangleWeights(parsing=0.0))
    with pytest.raises(Exception, match="no judge, no parser"):
        AnonymizeStage(backbone)


def test_a_parser_without_named_classes_is_one_line(tmp_path):
    bundle = Bundle(without(tmp_path / "a", tables=True))
    refuse("does not say which classes of its parser are the face", lambda: bundle.face_classes)
    nobody = Bundle(without(tmp_path / "b", "parser", tables=True))
    refuse("has no parser; get parsenet.pth", lambda: nobody.part_classes)


def test_class_tables_follow_the_parser_that_is_used(bring):
    folder, _ = bring(files.unet_content())
    unet = Bundle(folder)
    assert unet.part_classes == (2, 4, 5, 10, 11, 12)
    assert unet.face_classes == (1, 2, 4, 5, 6, 7, 10, 11, 12)
    assert {CELEBAMASK_HQ[i] for i in set(unet.edited_classes) - set(unet.face_classes)} == {"neck"}
    bring(("b.pth", files.bisenet_content()))
    assert Bundle(folder).part_classes == unet.part_classes
    other, _ = bring(files.bisenet_content(), bundle="other")
    assert {BISENET[i] for i in Bundle(other).part_classes} == set(PARTS)
    assert Bundle(other).part_classes == (4, 5, 10, 11, 12, 13)
    assert {BISENET[i] for i in Bundle(other).head_classes} == {CELEBAMASK_HQ[i] for i in unet.head_classes}


def test_further_judges_are_measured_beside_the_first(tmp_path):
    folder = without(tmp_path)
    spec = yaml.safe_load((folder / "bundle.yaml").read_text())
    spec["networks"]["judge_second"] = {**spec["networks"]["judge"], "name": "second"}
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec))
    evaluation = Evaluation(Bundle(folder))
    assert list(evaluation.recognisers) == ["tiny_judge", "second", "tiny_recogniser"]
    assert evaluation.meta["judge"] == "tiny_judge"
    assert evaluation.meta["white_box"] == ["tiny_recogniser"]
    picture = torch.rand(2, 3, 64, 64) * 2 - 1
    assert torch.equal(evaluation.recognisers["second"](picture), evaluation.recognisers["tiny_judge"](picture))


def test_feature_taps_survive_export_and_import(tmp_path):
    nets = small_networks()
    trunk = {"widths": (4, 4, 6, 8, 16), "units": (1, 1, 2, 1), "middle_ind": 10, "feature_taps": (-1, 0, 1)}
    encoder = Encoder4Editing(64, 16, 64, **trunk)
    encoder.load_state_dict(nets["e4e"].state_dict())
    for name, net in {"usual": nets["e4e"], "ours": encoder}.items():
        write_public(exportable(nets["generator"], net, torch.zeros(10, 16), "made"), tmp_path / name)
    assert "feature_taps" not in torch.load(tmp_path / "usual/encoder.pt", weights_only=True)["opts"]
    folder, _ = import_files([read_public(tmp_path / "ours/encoder.pt")], str(tmp_path / "back"))
    assert Bundle(folder).encoder().feature_taps == (-1, 0, 1)
    content = torch.load(tmp_path / "ours/encoder.pt", weights_only=True)
    content["opts"]["feature_taps"] = [0, 99]
    torch.save(content, tmp_path / "wrong.pt")
    refuse("feature_taps has 99", import_files, [read_public(tmp_path / "wrong.pt")], str(tmp_path / "wrong"))
