import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.ifadit import IFADIT
from faceanon.cli import main
from faceanon.data.files import read_photos
from faceanon.data.prepared import shipped_photos
from faceanon.errors import UserError
from faceanon.interop.onnx import export as onnx_export
from faceanon.interop.onnx.export import export_onnx, key_recipe, quantized, write_onnx
from faceanon.interop.onnx.method import CARD, KeyRecipe, OnnxCard, OnnxMethod, open_graph
from faceanon.key import Secret
from faceanon.models import load_backbone, save_backbone
from faceanon.pipeline import Pipeline
from fakes import KeyedTint

pytest.importorskip("onnxscript", reason="torch's ONNX exporter needs the package onnxscript")
WEIGHTS = "ab" * 32


def with_bundle(backbone):
    backbone.bundle = SimpleNamespace(name="none", fingerprint="00", to=lambda device: None)
    return backbone.eval()


class Mixing(KeyedTint):
    """A tint with a matrix product in it, which can be kept in 8 bits."""

    def __init__(self):
        super().__init__(size=16)
        rows = torch.linspace(-1, 1, 16)
        self.mix = torch.nn.Linear(16, 16, bias=False)
        with torch.no_grad():
            self.mix.weight.copy_(torch.eye(16) + 0.07 * torch.outer(rows, rows.roll(3)))

    def anonymize(self, image, key):
        return super().anonymize(self.mix(image), key)


class Noisy(KeyedTint):
    reversible = False

    def anonymize(self, image, key):
        return image + torch.rand_like(image)


class Looking(KeyedTint):
    reversible = False

    def anonymize(self, image, key):
        return image if float(image.mean()) > 0 else -image


class Secretive(KeyedTint):
    def key_from_secret(self, secret, batch):
        return -super().key_from_secret(secret, batch)


@pytest.fixture(scope="module")
def tint():
    return with_bundle(KeyedTint())


@pytest.fixture(scope="module")
def folder(tint, tmp_path_factory):
    target = tmp_path_factory.mktemp("onnx") / "tint"
    write_onnx(export_onnx(tint, WEIGHTS, "tint"), target, overwrite=False)
    return target


def faces(count, size=64):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(count)) * 2 - 1


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 3, 5])
def test_graphs_draw_what_torch_draws_at_any_batch(tint, folder, batch):
    runner, digest = load_backbone(folder)
    assert digest == WEIGHTS
    image, key = faces(batch), tint.key_from_secret(Secret.random(3), batch)
    assert torch.equal(runner.key_from_secret(Secret.random(3), batch), key)
    for way in ("anonymize", "recover"):
        assert torch.allclose(getattr(runner, way)(image, key), getattr(tint, way)(image, key), atol=1e-5)
    apart = torch.cat([runner.anonymize(image[n : n + 1], key[:1]) for n in range(batch)])
    assert torch.allclose(runner.anonymize(image, key), apart, atol=1e-6)


def test_the_card_says_what_the_graphs_are(folder, tint):
    card = OnnxCard.read(folder)
    assert (card.method, card.model, card.weights) == ("fakes.KeyedTint", "tint", WEIGHTS)
    assert card.image_size == 64
    assert card.opset == 18
    assert card.precision == "float32"
    assert card.key == KeyRecipe("normal", "faceanon/KeyedTint/key", (3, 4, 4))
    assert set(card.figures) == {"max_abs_error/anonymize", "max_abs_error/recover"}
    assert all(0 <= error < 1e-5 for error in card.figures.values())


def test_what_one_runtime_hides_the_other_opens(tint, folder):
    onnx, own = Pipeline.load(folder), Pipeline(tint, weights=WEIGHTS, name="tint")
    pixels = ((faces(1)[0].permute(1, 2, 0) * 0.6 + 1) * 127.5).byte().numpy()
    photo, secret = Image.fromarray(pixels), Secret.random(5)
    for first, second in ((onnx, own), (own, onnx)):
        hidden = first.anonymize(photo, secret, aligned=True)
        assert json.loads(hidden.info["faceanon"])["method"] == "fakes.KeyedTint"
        assert np.abs(np.asarray(hidden).astype(int) - pixels).mean() > 10
        back = np.asarray(second.recover(hidden, secret)).astype(int)
        assert np.abs(back - pixels).max() <= 2
        wrong = np.asarray(second.recover(hidden, Secret.random(6))).astype(int)
        assert np.abs(wrong - pixels).mean() > 5


def test_the_runner_needs_no_torch(folder):
    code = (
        "import sys, numpy as np\nfrom faceanon.key import Secret\n"
        "from faceanon.interop.onnx.method import OnnxMethod\n"
        f"method = OnnxMethod.load({str(folder)!r})\nkey = method.key(Secret.random(1), 2)\n"
        "face = method.anonymize(np.zeros((2, 3, 64, 64), np.float32), key)\n"
        "print(face.shape, 'torch' in sys.modules, 'lightning' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "(2, 3, 64, 64) False False"


def test_keys_of_every_kind_of_stream_are_told_apart(tint, tiny_bundle):
    assert key_recipe(tint).kind == "normal"
    for spread, kind in (("signed", "bytes"), ("upper", "upper")):
        backbone = IFADIT.__new__(IFADIT)
        torch.nn.Module.__init__(backbone)
        backbone.key_range, backbone.key_shape = spread, (16,)
        recipe = key_recipe(backbone)
        assert recipe.kind == kind
        assert np.array_equal(recipe.draw(Secret.random(9)), backbone.key_from_secret(Secret.random(9), 1).numpy())


@pytest.mark.parametrize(
    ("backbone", "said"),
    [
        (Noisy, "random numbers"),
        (Looking, "cannot be exported to ONNX"),
        (Secretive, "in a way of its own"),
    ],
)
def test_what_no_graph_can_hold_is_one_line(backbone, said):
    with pytest.raises(UserError, match=said) as caught:
        export_onnx(with_bundle(backbone(size=16)), WEIGHTS, "odd")
    assert "\n" not in str(caught.value)


def test_graphs_that_draw_something_else_are_refused(tint, folder, monkeypatch):
    graphs = {way: (folder / f"{way}.onnx").read_bytes() for way in ("anonymize", "recover")}
    other = with_bundle(KeyedTint())
    with torch.no_grad():
        other.strength += 0.01
    monkeypatch.setattr(onnx_export, "_graph", lambda backbone, way, size: graphs[way])
    export_onnx(tint, WEIGHTS, "tint")
    with pytest.raises(UserError, match=r"differ by .* in anonymize"):
        export_onnx(other, WEIGHTS, "tint")


def test_eight_bits_cost_what_the_card_says(tmp_path):
    exact = export_onnx(with_bundle(Mixing()), WEIGHTS, "mixing")
    rough = quantized(exact)
    assert rough.card.precision == "int8"
    assert 20 < rough.card.figures["psnr_int8/anonymize"] < 70
    assert rough.card.figures["psnr_int8/recover"] > 90  # it has no matrix product, so nothing was rounded
    write_onnx(rough, tmp_path / "out", overwrite=False)
    image, key = faces(2, 16).numpy(), exact.card.key.draw(Secret.random(1)).repeat(2, 0)
    drawn = OnnxMethod.load(tmp_path / "out").anonymize(image, key)
    assert 0 < np.abs(drawn - OnnxMethod(exact.card, exact.graphs).anonymize(image, key)).mean() < 0.05


def fails(capsys, *words):
    assert main(["export", *map(str, words)]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


def test_mistakes_on_the_command_line_are_one_line(capsys, folder, tmp_path):
    assert "leave other words out" in fails(capsys, "--onnx", tmp_path / "o", "runs/model")
    assert "belongs to --onnx" in fails(
        capsys, "--layout", "public", tmp_path / "o", "--model", "runs/model", "--quantize"
    )
    assert "needs OUT and --model MODEL" in fails(capsys, "--layout", "public", "--model", "runs/model")
    assert "give --overwrite" in fails(capsys, "--onnx", folder)
    assert "no model at" in fails(capsys, "--onnx", tmp_path / "o", "--model", tmp_path / "nothing")
    assert "is an ONNX export already" in fails(capsys, "--onnx", tmp_path / "o", "--model", folder)
    (tmp_path / "file").touch()
    assert "is a file" in fails(capsys, "--onnx", tmp_path / "file", "--overwrite")
    (tmp_path / "half").mkdir()
    (tmp_path / "half/recover.onnx").touch()
    assert "recover.onnx exists" in fails(capsys, "--onnx", tmp_path / "half")
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("recover.onnx", b"rubbish", "sha256 differs"),
        ("recover.onnx", None, "is missing"),
        (CARD, b"{}", "damaged or of another version"),
        (CARD, b'{"version": 99}', "damaged or of another version"),
        (CARD, b"[1", "damaged or of another version"),
    ],
)
def test_a_damaged_folder_is_one_line(folder, tmp_path, file, content, said):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=said):
        load_backbone(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"graphs": {"anonymize": {"file": "../anonymize.onnx", "sha256": "ab" * 32}}},
        {"graphs": {"anonymize": {"file": "/etc/hostname", "sha256": "ab" * 32}}},
        {"graphs": {"anonymize": {"file": "a\x00b", "sha256": "ab" * 32}}},
        {"graphs": {"anonymize": "anonymize.onnx"}},
        {"graphs": ["anonymize"]},
        {"graphs": {"recover": {"file": "recover.onnx", "sha256": "ab" * 32}}},
        {"key": {"kind": "normal", "label": "x", "shape": [1 << 30, 1 << 30]}},
        {"key": {"kind": "normal", "label": "x", "shape": [-1]}},
        {"key": {"kind": "normal", "label": "x", "shape": [float("inf")]}},
        {"model": "two\nlines"},
        {"method": "x" * 1000},
        {"weights": "../x"},
        {"image_size": 1 << 40},
        {"image_size": "64"},
        {"framing": {"scale": float("nan"), "right": 0.0, "down": 0.0}},
        {"framing": {"size": 1.0}},
    ],
)
def test_a_card_of_a_stranger_names_no_other_file_and_nothing_absurd(folder, tmp_path, change):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    card = json.loads((tmp_path / CARD).read_text())
    (tmp_path / CARD).write_text(json.dumps(card | change))
    with pytest.raises(UserError, match="damaged or of another version"):
        load_backbone(tmp_path)


class Runtime:
    """An onnxruntime of which only the choice of providers matters."""

    def __init__(self, available, starts):
        self.available, self.starts, self.asked = available, starts, []
        self.SessionOptions, self.disable_telemetry_events = onnxruntime.SessionOptions, lambda: None

    def get_available_providers(self):
        return self.available

    def InferenceSession(self, graph, options, providers):  # noqa: N802 - onnxruntime's name
        self.asked.append(providers)
        return SimpleNamespace(get_providers=lambda: self.starts, get_inputs=list)


CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.mark.parametrize(("device", "asked"), [("cpu", [(CPU, {})]), ("cuda:1", [(CUDA, {"device_id": 1}), (CPU, {})])])
def test_the_device_is_the_one_that_was_asked_for(folder, monkeypatch, device, asked):
    runtime = Runtime([CUDA, CPU], [name for name, _ in asked])
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    assert load_backbone(folder, device)[0].reversible
    assert runtime.asked == [asked, asked]


@pytest.mark.parametrize(
    ("device", "available", "starts", "said"),
    [
        ("cuda", [CPU], [CPU], f"onnxruntime does not compute on cuda here \\(it has {CPU}\\); take --device cpu"),
        ("cuda:0", [CUDA, CPU], [CPU], f"{CUDA} does not start, only {CPU}"),
        ("mps", [CUDA, CPU], [CPU], "computes on cpu, cuda or cuda:N, not on 'mps'"),
    ],
)
def test_no_other_device_takes_its_place(folder, monkeypatch, device, available, starts, said):
    monkeypatch.setitem(sys.modules, "onnxruntime", Runtime(available, starts))
    with pytest.raises(UserError, match=said):
        OnnxMethod.load(folder, device=device)


def test_the_commands_say_which_device_onnxruntime_lacks(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxruntime", Runtime([CPU], [CPU]))
    monkeypatch.setattr("faceanon.methods.device", torch.device)  # as if torch had one
    monkeypatch.setenv("PW", "a word")
    Image.new("RGB", (64, 64)).save(tmp_path / "face.png")
    for command, more in (("anonymize", ["--aligned"]), ("recover", [])):
        words = [str(tmp_path / "face.png"), str(tmp_path / "out.png"), "--password-env", "PW", "--device", "cuda"]
        assert main([command, *words, *more, "--model", str(folder)]) == 2
        error = capsys.readouterr().err.strip()
        assert "onnxruntime does not compute on cuda here" in error
        assert len(error.splitlines()) == 1


@pytest.mark.parametrize("location", ["inside.bin", "../inside.bin"])
def test_a_graph_takes_nothing_from_other_files(tmp_path, monkeypatch, location):
    from onnx import TensorProto, helper

    wide = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("image", "face")]
    graph = helper.make_graph([helper.make_node("Add", ["image", "w"], ["face"])], "g", wide[:1], wide[1:])
    tensor = graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.raw_data = np.arange(4, dtype=np.float32).tobytes()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    open_graph(model.SerializeToString(), "plain")
    tensor = model.graph.initializer[0]  # a copy
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (tmp_path / "here").mkdir()
    for place in (tmp_path, tmp_path / "here"):
        (place / "inside.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UserError, match="does not read the graph odd"):
        open_graph(model.SerializeToString(), "odd")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_model_by_the_commands(tiny_bundle, tmp_path, capsys, monkeypatch):
    trained = tmp_path / "trained"
    save_backbone(DBAF(str(tiny_bundle), cid_depth=1, cid_heads=2, cid_head_dim=8).eval(), trained)
    (tmp_path / "in").mkdir()
    for index, pixels in enumerate(read_photos([photo.path for photo in shipped_photos("test")[:3]], 64)):
        Image.fromarray(pixels).save(tmp_path / f"in/{index}.png")
    monkeypatch.setenv("PW", "a word")
    words = ["--password-env", "PW"]
    assert main(["export", "--onnx", str(tmp_path / "model"), "--model", str(trained)]) == 0
    assert "largest difference from torch" in capsys.readouterr().out
    hide = ["anonymize", str(tmp_path / "in"), str(tmp_path / "hidden"), "--aligned", *words]
    assert main([*hide, "--model", str(tmp_path / "model")]) == 0
    by_torch = ["recover", str(tmp_path / "hidden"), str(tmp_path / "torch"), *words, "--model", str(trained)]
    assert main(by_torch) == 0
    back = ["recover", str(tmp_path / "hidden"), str(tmp_path / "onnx"), *words, "--model", str(tmp_path / "model")]
    assert main(back) == 0
    for path in sorted((tmp_path / "torch").glob("*.png")):
        pair = [np.asarray(Image.open(file)).astype(int) for file in (path, tmp_path / "onnx" / path.name)]
        assert np.abs(pair[0] - pair[1]).max() <= 1
