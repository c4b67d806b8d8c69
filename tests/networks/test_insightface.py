"""InsightFace's ONNX layouts, by tiny graphs that give known answers; no file of a pack is needed."""

import argparse
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
import yaml
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from bundles import make_tiny_bundle
from faceanon.commands import anonymize
from faceanon.errors import UserError
from faceanon.files import sha256
from faceanon.key import Secret
from faceanon.networks.onnx_file import open_session
from faceanon.networks.onnx_recogniser import OnnxRecogniser
from faceanon.networks.scrfd import Scrfd
from faceanon.photo.scrfd import ScrfdDetector
from faceanon.pipeline import Pipeline
from faceanon.weights.bundle import Bundle
from fakes import FixedDetector, KeyedTint

BOXES = ((-0.25, 0.0, 0.75, 0.5), (-0.25, 0.0, 0.75, 0.75))  # per anchor: left, top, right, bottom in strides
POINTS = np.array(
    [(0.3, 0.1), (0.6, 0.1), (0.45, 0.2), (0.35, 0.3), (0.55, 0.3)]
)  # in strides from the anchor's centre


def constant(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def save(path, nodes, constants, inputs, outputs):
    entry = helper.make_tensor_value_info("input.1", TensorProto.FLOAT, inputs)
    exits = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs]
    graph = helper.make_graph(nodes, "tiny", [entry], exits, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def make_recogniser(path, batch="None", built_in=False):
    """Embeds a face as its mean red, green and blue; with `built_in` the graph scales from [0, 255] itself (mxnet)."""
    nodes, constants, name = [], [], "input.1"
    if built_in:
        constants = [constant("mean", 127.5), constant("scale", 1 / 127.5)]
        nodes = [
            helper.make_node("Sub", ["input.1", "mean"], ["centred"], name="_minusscalar0"),
            helper.make_node("Mul", ["centred", "scale"], ["scaled"], name="_mulscalar0"),
        ]
        name = "scaled"
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["pooled"], name="pool"))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["683"], name="flatten"))
    return save(path, nodes, constants, [batch, 3, 112, 112], [("683", [1, 3])])


def make_scrfd(path, stride, side="?"):
    """Every anchor of `stride` scores as red as the cell at its lower right; the other strides find nothing."""
    nodes, parts = [], {"score": [], "box": [], "points": []}
    constants = [constant("flat", [-1, 1], np.int64), constant("four", [-1, 4], np.int64)]
    constants += [constant("ten", [-1, 10], np.int64), constant("zero", 0.0), constant("red", 0, np.int64)]
    constants += [constant("boxes", np.ravel(BOXES)[None]), constant("shifts", np.tile(POINTS.ravel(), 2)[None])]
    nodes.append(helper.make_node("Gather", ["input.1", "red"], ["plane"], axis=1))
    nodes.append(helper.make_node("Unsqueeze", ["plane", "axis"], ["first"]))
    constants.append(constant("axis", [1], np.int64))
    for s in (8, 16, 32):
        pool, rows, pair, wide = (f"{name}{s}" for name in ("pool", "rows", "pair", "wide"))
        nodes.append(helper.make_node("AveragePool", ["first"], [pool], kernel_shape=[s, s], strides=[s, s]))
        nodes.append(helper.make_node("Reshape", [pool, "flat"], [rows]))  # (h w, 1), row by row
        nodes.append(helper.make_node("Mul", [rows, "zero"], [f"none{s}"]))
        column = rows if s == stride else f"none{s}"
        nodes.append(helper.make_node("Concat", [column, column], [pair], axis=1))  # two anchors
        nodes.append(helper.make_node("Reshape", [pair, "flat"], [f"score{s}"]))
        for name, values, shape in (("box", "boxes", "four"), ("points", "shifts", "ten")):
            nodes.append(helper.make_node("Add", [f"none{s}", values], [f"{wide}{name}"]))
            nodes.append(helper.make_node("Reshape", [f"{wide}{name}", shape], [f"{name}{s}"]))
        for name, width in (("score", 1), ("box", 4), ("points", 10)):
            parts[name].append((f"{name}{s}", [f"n{s}", width]))
    outputs = parts["score"] + parts["box"] + parts["points"]
    return save(path, nodes, constants, [1, 3, side, side], outputs)


@pytest.mark.parametrize("stride", [8, 16, 32])
@pytest.mark.parametrize("side", [64, "?"])
def test_boxes_and_points_are_decoded(tmp_path, stride, side):
    net = Scrfd(make_scrfd(tmp_path / "det.onnx", stride, side), sides=(64,))
    photo = np.zeros((64, 64, 3), np.uint8)
    row, column = 1, 64 // stride - 1
    photo[row * stride : (row + 1) * stride, column * stride : (column + 1) * stride, 0] = 255
    photo[:stride, :stride, 2] = 255  # blue is no face
    boxes, scores, points = net(photo)
    centre = np.array([column * stride, row * stride])
    assert boxes.tolist() == [[centre[0] + stride / 4, centre[1], centre[0] + 0.75 * stride, centre[1] + stride / 2]]
    assert scores == pytest.approx([127.5 / 128])
    np.testing.assert_allclose(points, (centre + POINTS * stride)[None], rtol=1e-5)


def test_the_better_of_two_overlapping_boxes_stays_and_threshold_counts(tmp_path):
    path = make_scrfd(tmp_path / "det.onnx", 32, 64)
    photo = np.zeros((64, 64, 3), np.uint8)
    photo[:32, :32, 0], photo[32:, 32:, 0] = 255, 215  # scores .996 and .684, far apart
    boxes, scores, _ = Scrfd(path)(photo)
    assert boxes[:, :2].tolist() == [[8, 0], [40, 32]]
    assert scores == pytest.approx([127.5 / 128, 87.5 / 128])
    assert len(Scrfd(path, threshold=0.9)(photo)[1]) == 1
    empty = Scrfd(path)(np.zeros((64, 64, 3), np.uint8))
    assert [part.shape for part in empty] == [(0, 4), (0,), (0, 5, 2)]


def test_the_detector_answers_in_pixels_of_the_photo_largest_first(tmp_path):
    path = make_scrfd(tmp_path / "det.onnx", 32, 64)
    photo = np.zeros((256, 192, 3), np.uint8)  # shrinks by 4 to 64 x 48 px
    photo[128:, :128, 0] = 255
    photo[:128, :128, 0] = 215
    found = ScrfdDetector(path).detect(photo)
    assert [face.box for face in found] == [(32, 128, 96, 192), (32, 0, 96, 64)]
    np.testing.assert_allclose(found[0].points, np.array([0, 128]) + POINTS * 128, rtol=1e-5)
    assert found[0].points.dtype == np.float64
    assert found[1].score == pytest.approx(87.5 / 128)
    assert found[0].size == 64
    detector = ScrfdDetector(path, min_face=65)
    assert detector.detect(photo) == []
    boxes = np.array([(0, 0, 70, 70), (0, 0, 60, 60), (0, 0, 90, 90.0)])
    detector.net = lambda image: (boxes, np.array([0.9, 0.8, 0.7]), np.zeros((3, 5, 2)))
    assert [face.score for face in detector.detect(photo)] == [0.7, 0.9]


def test_a_photo_is_searched_at_every_side(tmp_path):
    """A red quarter of 16 px is one cell of stride 32 at 64 px, not at 32 px."""
    path = make_scrfd(tmp_path / "det.onnx", 32)
    photo = np.zeros((32, 32, 3), np.uint8)
    photo[:16, :16, 0] = 255
    assert len(Scrfd(path, sides=(32,))(photo)[0]) == 0
    assert Scrfd(path, sides=(32, 64))(photo)[0].tolist() == [[4, 0, 12, 8]]


def test_the_command_takes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(anonymize, "load_pipeline", lambda *asked, **more: Pipeline(KeyedTint(), FixedDetector([])))
    monkeypatch.setattr(Secret, "from_password", lambda text, salt, kdf: Secret.random(1))
    monkeypatch.setenv("PW", "hush")
    photo = np.full((256, 256, 3), 90, np.uint8)
    photo[128:, :128, 0] = 255
    Image.fromarray(photo).save(tmp_path / "photo.png")
    parser = argparse.ArgumentParser()
    anonymize.add_arguments(parser)
    detector = make_scrfd(tmp_path / "det.onnx", 32, 64)
    words = [tmp_path / "photo.png", tmp_path / "out.png", "--detector", detector, "--password-env", "PW"]
    assert anonymize.run(parser.parse_args([str(word) for word in words])) == 0
    assert "anonymized 1 face(s) in 1 photo(s)" in capsys.readouterr().out


@pytest.fixture
def faces():
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (3, 112, 112, 3), np.uint8) // np.array([1, 2, 4], np.uint8)


def as_tensor(faces):
    return torch.from_numpy(faces).permute(0, 3, 1, 2).float() / 127.5 - 1


@pytest.mark.parametrize("built_in", [False, True])
@pytest.mark.parametrize("batch", ["None", 1])
def test_embeddings_are_insightfaces_own(tmp_path, faces, batch, built_in):
    from insightface.model_zoo.arcface_onnx import ArcFaceONNX

    path = make_recogniser(tmp_path / "w600k.onnx", batch, built_in)
    actual = OnnxRecogniser(path)(as_tensor(faces)).numpy()
    known = (faces.reshape(3, -1, 3).astype(np.float64) - 127.5).mean(1)  # red, green, blue, in this order
    known /= np.linalg.norm(known, axis=1, keepdims=True)
    np.testing.assert_allclose(actual, known, atol=1e-5)
    theirs = ArcFaceONNX(str(path))
    rows = np.concatenate([theirs.get_feat(face[..., ::-1]) for face in faces])  # it takes BGR
    np.testing.assert_allclose(actual, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-5)


def test_a_judge_gives_no_gradient(tmp_path, faces):
    net = OnnxRecogniser(make_recogniser(tmp_path / "w600k.onnx"))
    image = as_tensor(faces).requires_grad_()
    with pytest.raises(UserError, match="no gradients"):
        net(image)
    with torch.no_grad():
        assert not net(image).requires_grad
    with pytest.raises(ValueError, match="faces of 112 px"):
        net(torch.zeros(1, 3, 64, 64))


@pytest.fixture
def bundle_with(tmp_path):
    def make(role, digest=None):
        folder = make_tiny_bundle(tmp_path / "bundle")
        make_recogniser(folder / "w600k.onnx")
        spec = yaml.safe_load((folder / "bundle.yaml").read_text())
        spec["networks"][role] = {
            "name": "w600k",
            "class": "faceanon.networks.onnx_recogniser.OnnxRecogniser",
            "file": "w600k.onnx",
            "sha256": digest or sha256(folder / "w600k.onnx"),
            "input_size": 112,
        }
        (folder / "bundle.yaml").write_text(yaml.safe_dump(spec))
        return Bundle(folder)

    return make


def test_a_bundles_judge_is_an_onnx_file(bundle_with):
    bundle = bundle_with("judge")
    image = torch.tensor([1.0, 0.0, -1.0])[None, :, None, None].expand(2, 3, 64, 64)
    expected = torch.tensor([[0.5**0.5, 0.0, -(0.5**0.5)]] * 2)
    torch.testing.assert_close(bundle.to("cpu").judge(image), expected, atol=1e-5, rtol=0)
    (bundle.folder / "w600k.onnx").unlink()
    with pytest.raises(UserError, match=r"w600k.onnx for the judge.*non-commercial research.*github.com/deepinsight"):
        Bundle(bundle.folder).judge  # noqa: B018 - built when asked for


def test_a_bundle_refuses_it_as_training_recogniser_or_with_another_hash(bundle_with):
    bundle = bundle_with("recogniser")
    for wanted in (lambda: bundle.recogniser, bundle.trainable_recogniser):
        with pytest.raises(UserError, match=r"as recogniser: ONNX networks have no gradients"):
            wanted()
    with pytest.raises(UserError, match="sha256 differs"):
        bundle_with("judge", digest="0" * 64).judge  # noqa: B018 - built when asked for


@pytest.mark.parametrize(("device", "number"), [("cuda", 0), ("cuda:1", 1)])
def test_a_detector_computes_on_the_gpu_that_is_asked_for(tmp_path, monkeypatch, device, number):
    asked = []

    class Session:
        def __init__(self, path, options, providers):
            asked.append(providers)

    monkeypatch.setattr(
        "onnxruntime.get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr("onnxruntime.InferenceSession", Session)
    (tmp_path / "det.onnx").touch()
    open_session(tmp_path / "det.onnx", "detector", "det_10g.onnx", device)
    assert asked == [[("CUDAExecutionProvider", {"device_id": number}), "CPUExecutionProvider"]]


def test_missing_and_wrong_files_are_named_in_one_line(tmp_path, monkeypatch):
    recogniser, detector = make_recogniser(tmp_path / "w600k.onnx"), make_scrfd(tmp_path / "det.onnx", 8)
    (tmp_path / "broken.onnx").write_bytes(detector.read_bytes()[:100])
    for kind, wrong, message in (
        (Scrfd, recogniser, r"no SCRFD detector.*1 outputs instead of 9"),
        (OnnxRecogniser, detector, "no recogniser"),
        (Scrfd, tmp_path / "missing.onnx", r"no file .*missing.onnx for the detector: unpack det_10g.onnx.*research"),
        (OnnxRecogniser, tmp_path / "broken.onnx", "not a readable ONNX file"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            kind(wrong)
        assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"package onnxruntime; run: pip install"):
        Scrfd(detector)


def test_insightface_is_imported_only_when_a_file_is_opened():
    code = (
        "import sys, faceanon.networks.onnx_recogniser, faceanon.photo.detect, faceanon.weights.bundle;"
        "print(*[name for name in ('insightface', 'onnxruntime', 'onnx', 'lpips', 'timm') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
