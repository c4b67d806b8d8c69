"""Persona on onnxruntime's networks and on torch's: the same pictures, and without torch."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save

from faceanon import cli
from faceanon.backbones import persona
from faceanon.backbones.classical import Blur, Mask, Pixelate
from faceanon.backbones.persona import Persona
from faceanon.commands import _files
from faceanon.errors import UserError
from faceanon.files import load_arrays
from faceanon.interop.onnx.light import cases, graph_of
from faceanon.key import Secret
from faceanon.landmarks import looks, mesh
from faceanon.landmarks.cast import Cast
from faceanon.light import networks as runner
from faceanon.light import processor
from faceanon.light.networks import UnfitError, check_layout, layout, layouts, open_graph
from faceanon.losses import light as surfaces
from faceanon.models import load_backbone, save_backbone
from faceanon.networks import face_mesh, taef2
from faceanon.networks.boxes import nms
from faceanon.networks.layout import has_bfloat16 as asked_of_torch
from faceanon.paths import checkpoints
from faceanon.persona import cells as persona_cells
from faceanon.persona import graphs
from faceanon.persona import use as use_module
from faceanon.persona.graphs import GraphNetworks
from faceanon.persona.light import LightPersona, read_card
from faceanon.persona.use import METHOD
from faceanon.photo.agreement import best
from faceanon.photo.crop_paste import BLUR, CELLS, crops, obscured
from faceanon.photo.file import load_photo, read_manifest
from faceanon.photo.party import photo_party
from faceanon.photo.policy import Policy
from faceanon.pipeline.photo import Pipeline
from faceanon.sealed import faces as sealed_faces
from faceanon.sealed.envelope import WrongPasswordError
from torchless import WITHOUT, without_torch

MODEL = checkpoints() / "persona_photo128"
SECRET = Secret.random(5)
TOLERANCE = 1e-3  # of the outputs' root mean square


@pytest.fixture(scope="module")
def method():
    return load_backbone("persona_photo128")[0]


@pytest.fixture(scope="module")
def pipelines(method):
    """Torch's in float32 whatever the processor has, and the light one."""
    heavy = Pipeline(method, weights=LightPersona(MODEL).weights, name=MODEL.name)
    # Anew: once rounded to bfloat16, weights do not come back.
    method.bundle.__dict__["codec"] = method.bundle.build("codec").eval().requires_grad_(False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persona, "has_bfloat16", lambda: False)
        yield heavy, Pipeline(LightPersona(MODEL))


@pytest.fixture(scope="module")
def photo():
    return load_photo(photo_party())


def test_every_graph_computes_what_its_network_does_and_for_any_weights():
    draw = torch.Generator().manual_seed(0)
    # A method of its own, since its weights are changed.
    for name, case in cases(load_backbone("persona_photo128")[0]).items():
        net = case.net
        own = {key: value for key, value in net.state_dict().items() if key in layouts()[name]["names"]}
        with torch.no_grad():
            # Other weights than the shipped ones: a graph must not hold what follows from their values.
            for key, value in own.items():
                if value.ndim > 1:
                    value.mul_(1 + 0.1 * torch.randn(value.shape, generator=draw))
                elif "running_var" not in key:
                    value.add_(0.01)
            inputs = {}
            for key, value in case.inputs.items():
                inputs[key] = torch.rand(3, *value.shape[1:], generator=draw)
            wanted = net(*inputs.values())
        run = open_graph(name, {key: value.float().numpy() for key, value in own.items()})
        found = run(**{key: value.numpy() for key, value in inputs.items()})
        for ours, theirs in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            error = np.abs(ours - theirs.numpy()).max()
            assert error < TOLERANCE * theirs.square().mean().sqrt().item(), name


def test_the_graph_that_ships_is_the_one_that_is_written_today():
    case = cases(Persona().eval())["finish"]
    assert layout(case.whole) == layouts()["finish"]["layout"]
    assert graph_of(case)[1] == layouts()["finish"]["names"]


def test_both_engines_draw_the_same_and_bring_each_other_s_photos_back(pipelines, photo):
    heavy, quick = pipelines
    hidden = [pipeline.anonymize_photo(photo, SECRET).photo for pipeline in pipelines]
    difference = np.abs(hidden[0].pixels.astype(int) - hidden[1].pixels)
    assert difference.mean() < 0.1
    assert difference.max() <= 8
    manifests = list(map(read_manifest, hidden))
    assert manifests[0].layers == manifests[1].layers
    assert manifests[0].weights == manifests[1].weights
    for shown, manifest in zip(hidden, manifests, strict=True):
        by_torch = heavy.recover_photo(shown, SECRET, manifest).photo.pixels.astype(int)
        by_light = quick.recover_photo(shown, SECRET, manifest).photo.pixels
        assert np.abs(by_torch - by_light).mean() < 0.1
        changed = (shown.pixels != photo.pixels).any(-1)
        far = np.square(shown.pixels.astype(float) - photo.pixels)[changed].mean()
        assert np.square(by_light.astype(float) - photo.pixels)[changed].mean() < far / 4


def test_faces_left_as_they_are_put_on_are_other_pictures_in_both_engines_and_come_back(pipelines, photo, monkeypatch):
    redrawn = pipelines[1].anonymize_photo(photo, SECRET).photo.pixels
    hidden = []
    for pipeline in pipelines:
        monkeypatch.setattr(pipeline.backbone, "redraws", True)  # so that it is again after this test
        pipeline.leave_as_put_on()
        hidden.append(pipeline.anonymize_photo(photo, SECRET).photo)
    assert "flow" not in pipelines[1].backbone.needed
    assert np.abs(hidden[0].pixels.astype(int) - hidden[1].pixels).mean() < 0.1
    changed = (hidden[1].pixels != photo.pixels).any(-1)
    assert np.abs(redrawn.astype(int) - hidden[1].pixels)[changed].mean() > 2
    back = pipelines[1].recover_photo(hidden[1], SECRET, read_manifest(hidden[1])).photo.pixels
    far = np.square(hidden[1].pixels.astype(float) - photo.pixels)[changed].mean()
    assert np.square(back.astype(float) - photo.pixels)[changed].mean() < far / 4


def test_the_command_leaves_faces_as_they_are_put_on_where_it_is_told_to(tiny_bundle, tmp_path, monkeypatch, capsys):
    photo_party().save(tmp_path / "in.png")
    asked = []

    def watched(put_on, *more):
        asked.append(len(put_on))
        return put_on

    monkeypatch.setattr(use_module, "redraw", watched)
    monkeypatch.setenv("FACEANON_PASSWORD", "a password that is long enough")
    words = ["anonymize", str(tmp_path / "in.png"), "--engine", "light"]
    assert cli.main([*words, str(tmp_path / "fast.png"), "--no-redraw"]) == 0
    assert not asked
    assert cli.main([*words, str(tmp_path / "whole.png")]) == 0
    assert sum(asked) == 3
    save_backbone(Blur(str(tiny_bundle)), tmp_path / "blur")
    other = ["--no-redraw", "--model", str(tmp_path / "blur")]
    assert cli.main(["anonymize", str(tmp_path / "in.png"), str(tmp_path / "no.png"), *other]) == 2
    assert "blur redraws no faces; leave --no-redraw away" in capsys.readouterr().err
    assert not (tmp_path / "no.png").exists()


@pytest.mark.parametrize("side", [128, 256])
def test_codes_are_those_of_anonymizing_and_nobody_is_drawn_for_them(pipelines, photo, side, monkeypatch):
    quick = pipelines[1]
    squares = [face.geometry for face in quick.faces(photo)]
    faces = crops(photo.pixels, squares, side)
    wanted = [code for _, code in quick.draw(faces, quick.keys([SECRET] * len(faces)))]

    def draw(*args):
        pytest.fail("a stranger was put on or redrawn")

    monkeypatch.setattr(Cast, "put_on", draw)
    monkeypatch.setattr(GraphNetworks, "directions", draw)
    assert quick.method.code_of(faces) == wanted


CONSTANTS = [
    (graphs.MOST_LOOKS, looks.MOST),
    (graphs.MESH_BOX, mesh.BOX),
    (graphs.MESH_SIDE, face_mesh.INPUT_SIZE),
    (graphs.REACH, taef2.REACH),
    (persona_cells.CELL, taef2.SHRINK),
    (persona_cells.STIFFNESS, surfaces.STIFFNESS),
    (use_module.PASSES, sealed_faces.PASSES),
]
"""Numbers that stand twice, since what runs without torch must not import torch's modules."""


@pytest.mark.parametrize(("ours", "torch_s"), CONSTANTS)
def test_a_number_is_the_same_without_torch(ours, torch_s):
    assert ours == torch_s


def test_the_graphs_are_for_the_classes_of_the_shipped_bundle(method):
    assert f"{Persona.__module__}.{Persona.__qualname__}" == METHOD
    spec = method.bundle.spec["networks"]
    assert {role: spec[role]["class"] for role in graphs.CLASSES} == graphs.CLASSES
    assert spec["recogniser"]["input_size"] == graphs.RECOGNISER_SIDE


def test_another_password_opens_nothing_and_draws_another_stranger_when_asked(pipelines, photo):
    quick = pipelines[1]
    hidden = quick.anonymize_photo(photo, SECRET).photo
    manifest = read_manifest(hidden)
    with pytest.raises(WrongPasswordError):
        quick.recover_photo(hidden, Secret.random(6), manifest)
    strangers = []
    for pipeline in pipelines:
        steps = pipeline.recovering(hidden, manifest, Secret.random(6), deniable=True)
        strangers.append(pipeline.drive(steps, Secret.random(6), inverse=True).photo.pixels.astype(int))
    assert np.abs(strangers[0] - strangers[1]).mean() < 0.1
    assert np.abs(strangers[1] - hidden.pixels).mean() > 1
    assert np.abs(strangers[1] - photo.pixels).mean() > 1


@pytest.mark.parametrize("how", ["blur", "pixelate", "mask"])
def test_small_faces_are_hidden_as_by_the_classical_methods(how):
    face = np.random.default_rng(2).uniform(-1, 1, (3, 64, 64)).astype(np.float32)
    classical = {"blur": Blur(region="picture", sigma=BLUR), "pixelate": Pixelate(region="picture", cells=CELLS)}
    theirs = classical.get(how, Mask(region="picture")).obscured(torch.from_numpy(face)[None])[0].numpy()
    assert np.abs(obscured(face, how) - theirs).max() < 1e-4


def test_photos_of_small_faces_come_out_alike(pipelines, method, photo):
    policy = Policy(min_face=max(face.size for face in pipelines[1].faces(photo)) + 1)
    shown = []
    for pipeline in (Pipeline(method, policy=policy), Pipeline(LightPersona(MODEL), policy=policy)):
        outcome = pipeline.anonymize_photo(photo, SECRET)
        assert outcome.hidden == 3
        shown.append(outcome.photo.pixels.astype(int))
    assert np.abs(shown[0] - shown[1]).max() <= 1


def test_boxes_are_thinned_out_as_torchvision_does():
    draw = np.random.default_rng(3)
    corners = draw.uniform(0, 80, (300, 2))
    boxes = np.concatenate([corners, corners + draw.uniform(5, 40, (300, 2))], 1)
    scores = draw.integers(0, 20, 300) / 20
    wanted = nms(torch.from_numpy(boxes), torch.from_numpy(scores), 0.3).numpy()
    assert np.array_equal(best(boxes, scores, 0.3), wanted)


def test_weights_of_another_layout_are_refused_in_one_line():
    weights = {name: np.zeros((2, 2)) for name in layouts()["flow"]["names"]}
    with pytest.raises(UnfitError, match=r"^here has another layout than the graph of the flow that ships$"):
        check_layout("flow", weights, "here")


def test_a_photo_goes_there_and_back_where_torch_cannot_be_imported(tmp_path):
    photo_party().save(tmp_path / "in.png")
    hidden = tmp_path / "out.png"
    done = without_torch("anonymize", tmp_path / "in.png", hidden, "--carry", "pixels")
    assert (done.returncode, done.stderr) == (0, "")
    refused = without_torch("recover", hidden, tmp_path / "back.png", password="another one")
    assert refused.returncode == 2
    assert "wrong password" in refused.stderr
    assert not (tmp_path / "back.png").exists()
    back = without_torch("recover", hidden, tmp_path / "back.png")
    assert (back.returncode, back.stderr) == (0, "")


def test_a_folder_goes_there_and_back_where_torch_cannot_be_imported(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    for number in range(2):
        photo_party().rotate(number).save(source / f"{number}.png")
    for words in (("anonymize", source, tmp_path / "out"), ("recover", tmp_path / "out", tmp_path / "back")):
        done = without_torch(*words, "--workers", "2")
        # The progress bar leaves an empty line.
        assert (done.returncode, done.stderr.strip()) == (0, "")
    assert len(list((tmp_path / "back").glob("*.png"))) == 2


def test_a_chosen_person_is_left_where_torch_cannot_be_imported(tmp_path):
    party = photo_party()
    party.save(tmp_path / "in.png")
    party.crop((0, 0, 284, 284)).save(tmp_path / "one.png")
    done = without_torch("anonymize", tmp_path / "in.png", tmp_path / "out.png", "--exclude", tmp_path / "one.png")
    assert done.returncode == 0, done.stderr
    differ = (np.array(Image.open(tmp_path / "out.png")) != np.array(party)).any(-1)
    assert not differ[:, :270].any()
    assert differ[:, 284:554].any()
    assert differ[:, 554:].any()


def test_python_needs_no_torch_either(tmp_path):
    program = """
from faceanon import Pipeline
from faceanon.key import Secret
from faceanon.photo.party import photo_party
pipeline = Pipeline.load("persona_photo128")
hidden = pipeline.anonymize(photo_party(), Secret.random(0))
assert pipeline.recover(hidden, Secret.random(0)).size == hidden.size
try:
    Pipeline.load("nobody")
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", WITHOUT + program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no trained model nobody" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("anonymize", "in.png", "out.png", "--model", "runs/dbaf_s2/model"),
        ("anonymize", "in.png", "out.png", "--engine", "torch"),
        ("anonymize", "in.png", "out.png", "--detector", "mtcnn"),
        ("fit", "--config", "dbaf_s1.yaml"),
    ],
)
def test_what_needs_torch_says_what_to_install(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    photo_party().save("in.png")
    done = without_torch(*words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'faceanon[train]'" in done.stderr
    assert not Path("out.png").exists()


def test_a_model_that_the_graphs_do_not_fit_runs_on_torch_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("FACEANON_ENGINE", raising=False)

    def unfit(self, path, provider):
        raise UnfitError("weights has another layout than the graph of the flow that ships")

    monkeypatch.setattr(LightPersona, "__init__", unfit)
    monkeypatch.setattr(_files, "load_with_torch", lambda model, device: (model, device))
    assert _files.load_pipeline(files()) == (None, "cpu")
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(UserError, match="--engine light does not fit"):
        _files.load_pipeline(files(engine="light"))


def test_the_environment_chooses_the_engine(monkeypatch):
    monkeypatch.setattr(_files, "load_with_torch", lambda model, device: "torch")
    monkeypatch.setenv("FACEANON_ENGINE", "torch")
    assert _files.load_pipeline(files()) == "torch"
    assert isinstance(_files.load_pipeline(files(engine="light")).backbone, LightPersona)
    monkeypatch.setenv("FACEANON_ENGINE", "steam")
    with pytest.raises(UserError, match="FACEANON_ENGINE is 'steam'"):
        _files.load_pipeline(files())


def test_many_photos_go_to_torch_where_it_is_installed_and_faster(monkeypatch):
    monkeypatch.delenv("FACEANON_ENGINE", raising=False)
    monkeypatch.setattr(_files, "load_with_torch", lambda model, device: "torch")
    monkeypatch.setattr(_files, "has_bfloat16", lambda: True)
    assert _files.load_pipeline(files(), photos=_files.MANY) == "torch"
    assert isinstance(_files.load_pipeline(files(), photos=_files.MANY - 1).backbone, LightPersona)
    assert isinstance(_files.load_pipeline(files(engine="light"), photos=_files.MANY).backbone, LightPersona)
    monkeypatch.setattr(_files, "has_bfloat16", lambda: False)
    assert isinstance(_files.load_pipeline(files(), photos=_files.MANY).backbone, LightPersona)
    monkeypatch.setattr(_files, "has_bfloat16", lambda: True)
    monkeypatch.setattr(_files, "torch_installed", lambda: False)
    assert isinstance(_files.load_pipeline(files(), photos=_files.MANY).backbone, LightPersona)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("processor : 0\nflags\t\t: fpu sse amx_bf16 avx2\n", True),
        ("flags : avx512f avx512_bf16\n", True),
        ("flags : avx2 fma\n", False),
        ("Features : fp asimd\n", False),
        ("", False),
    ],
)
def test_what_the_processor_says_of_bfloat16(tmp_path, monkeypatch, text, found):
    told = tmp_path / "cpuinfo"
    told.write_text(text)
    monkeypatch.setattr(processor, "CPUINFO", told)
    assert processor.has_bfloat16() is found
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "none")
    assert processor.has_bfloat16() is False


@pytest.mark.skipif(not processor.CPUINFO.is_file(), reason="the system does not say what its processor can do")
def test_torch_says_the_same_of_the_processor():
    assert processor.has_bfloat16() == asked_of_torch()


def files(engine=None):
    """What `faceanon anonymize in.png out.png` types."""
    return _files.FileOptions(
        "in.png", "out.png", None, "cpu", engine, None, False, None, "png", None, 1, 1, None, "skip"
    )


def test_layouts_are_small_and_plain():
    folder = Path(runner.__file__).with_name("graphs")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 250_000
    assert set(json.loads((folder / "layouts.json").read_text())) == set(layouts())


def test_a_model_of_one_s_own_training_is_drawn_by_its_own_flow(tmp_path):
    torch.manual_seed(0)
    trained = Persona(dropout=0.3).eval()
    save_backbone(trained, tmp_path / "own")
    quick = LightPersona(tmp_path / "own")
    draw = np.random.default_rng(0)
    asked = [draw.normal(0, 1, (2, *shape)).astype(np.float32) for shape in ((32, 16, 16), (), (32, 16, 16))]
    asked[1] = asked[1].clip(0, 1)
    mask = np.zeros((2, 1, 16, 16), np.float32)
    mask[..., 4:12, 4:12] = 1
    asked += [mask, draw.uniform(0, 1, (2, 116, 16, 16)).astype(np.float32), draw.normal(0, 1, (2, 85)).astype("f")]
    with torch.no_grad():
        wanted = trained.flow(*map(torch.from_numpy, asked)).numpy()
    found = quick.networks.directions(*asked)
    assert np.abs(found - wanted).max() < TOLERANCE * np.sqrt(np.square(wanted).mean())


def changed_card(folder, **changes):
    """A copy of the model that ships, in a folder, with another card."""
    shutil.copytree(MODEL, folder)
    card = read_card(folder)
    (folder / "model.yaml").write_text(json.dumps(card | changes), encoding="utf-8")
    return folder


def test_a_card_with_an_option_of_another_release_is_left_to_torch(tmp_path):
    folder = changed_card(tmp_path / "model", init_args={"bundle": "photo128", "hidden": 320})
    with pytest.raises(UnfitError, match=r"^model has options that the graphs know nothing of: hidden$"):
        LightPersona(folder)


def test_weights_are_the_card_s_and_a_flow_s_alone(tmp_path, photo):
    folder = changed_card(tmp_path / "model")
    weights = folder / "weights.safetensors"
    other = load_arrays(weights)
    other["painter.of_another_release"] = np.zeros(3, np.float32)
    weights.write_bytes(save(other))
    with pytest.raises(UserError, match=r"weights\.safetensors is not the file its card describes"):
        LightPersona(folder)
    card = read_card(folder) | {"sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}
    (folder / "model.yaml").write_text(json.dumps(card), encoding="utf-8")
    quick = LightPersona(folder)
    side = next(iter(crops(photo.pixels, [face.geometry for face in Pipeline(quick).faces(photo)[:1]], 128)))[None]
    keys = quick.key(SECRET)[None]
    with pytest.raises(UnfitError, match="holds more than a flow"):
        quick.anonymize(side, keys)
    # Who leaves faces as they are put on needs no flow.
    quick.redraws = False
    assert np.isfinite(quick.anonymize(side, keys)).all()
