"""`--provider`: what of onnxruntime computes, and that nothing else does unnoticed."""

import json
import re

import numpy as np
import onnxruntime
import pytest

from faceanon import cli
from faceanon.commands import _files, doctor
from faceanon.errors import UserError
from faceanon.light import providers
from faceanon.light.networks import layouts, open_graph
from faceanon.light.providers import BUILDS, CPU, OPENVINO, PROVIDERS, provider_named, provider_settings
from faceanon.paths import checkpoints
from faceanon.persona.light import LightPersona

MODEL = checkpoints() / "persona_photo128"
CUDA = PROVIDERS["cuda"]
# Weights for a graph that no session of these tests computes.
LOOKS = dict.fromkeys(layouts()["looks"]["names"], np.zeros(1, np.float32))


@pytest.fixture
def offered(monkeypatch):
    """What the installed onnxruntime says that it has."""
    names = [CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    return names


class Opened:
    """A session that computes with the providers of `started` alone."""

    started = (CPU,)

    def __init__(self, data, options, providers, enable_fallback):
        self.asked = [name for name, _ in providers]
        assert not enable_fallback

    def get_providers(self):
        return [name for name in self.asked if name in self.started]

    def run(self, outputs, inputs):
        return [self.asked]


def typed(provider="cpu", model=None, device="cpu", engine=None, devices=1):
    """The files of `faceanon anonymize in.png out.png --provider NAME`."""
    return _files.FileOptions(
        "in.png", "out.png", model, device, engine, provider, False, None, "png", None, devices, 1, None, "skip"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cuda", f"no provider 'cuda', only {CPU}; pip uninstall onnxruntime, then pip install onnxruntime-gpu"),
        ("OpenVINOExecutionProvider", "pip install onnxruntime-openvino"),
        ("directml", "pip install onnxruntime-directml"),
        ("coreml", f"only {CPU}; onnxruntime on macOS has it"),
        ("CoreMLExecutionProvider", f"only {CPU}; onnxruntime on macOS has it"),
        ("steam", f"no provider 'steam', only {CPU}"),
    ],
    ids=["cuda", "openvino_in_full", "directml", "coreml", "coreml_in_full", "steam"],
)
def test_a_provider_that_is_not_installed_is_named_with_what_brings_it(offered, name, said):
    with pytest.raises(UserError, match=re.escape(said) + "$"):
        provider_named(name)


def test_a_provider_has_a_short_name_and_onnxruntime_s(offered):
    offered += ["AzureExecutionProvider", *BUILDS]
    assert provider_named("cpu") == CPU
    assert provider_named("directml") == provider_named("DmlExecutionProvider") == "DmlExecutionProvider"
    assert provider_named("AzureExecutionProvider") == "AzureExecutionProvider"


def test_the_command_names_a_missing_provider_in_one_line(tmp_path, monkeypatch, capsys, offered):
    monkeypatch.setenv("FACEANON_PASSWORD", "a password that is long enough")
    (tmp_path / "in.png").touch()
    for command in ("anonymize", "recover"):
        assert cli.main([command, str(tmp_path / "in.png"), str(tmp_path / "out.png"), "--provider", "cuda"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "onnxruntime-gpu" in said


def test_a_graph_is_opened_with_the_provider_and_the_processor_beside_it(monkeypatch):
    monkeypatch.setattr(onnxruntime, "InferenceSession", Opened)
    monkeypatch.setattr(Opened, "started", (CUDA, CPU))
    assert open_graph("looks", LOOKS, provider=CUDA)() == [[CUDA, CPU]]
    assert open_graph("looks", LOOKS)() == [[CPU]]


@pytest.mark.parametrize("instructions", [False, True], ids=["without", "with"])
def test_openvino_rounds_what_may_be_rounded_where_the_processor_has_bfloat16(monkeypatch, instructions):
    monkeypatch.setattr(providers, "has_bfloat16", lambda: instructions)
    hints = []
    for rounded in (True, False):
        told = json.loads(provider_settings(OPENVINO, rounded, 3)["load_config"])["CPU"]
        assert told["INFERENCE_NUM_THREADS"] == "3"
        hints.append(told["INFERENCE_PRECISION_HINT"])
    assert hints == ["bf16" if instructions else "f32", "f32"]
    assert provider_settings(CPU, True, 3) == provider_settings(CUDA, True, 3) == {}


def test_a_provider_that_does_not_start_is_refused_before_a_photo_is_touched(monkeypatch, offered):
    offered.insert(0, CUDA)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Opened)
    with pytest.raises(UserError, match="CUDAExecutionProvider does not start here"):
        LightPersona(MODEL, "cuda")


def test_an_error_of_a_provider_becomes_one_line(monkeypatch):
    def broken(*asked, **more):
        raise RuntimeError("CUDA failure 100: no CUDA-capable device is detected\nGPU=-1")

    monkeypatch.setattr(onnxruntime, "InferenceSession", broken)
    with pytest.raises(UserError, match=r"with CUDAExecutionProvider \(CUDA failure 100: .* detected\)$"):
        open_graph("looks", LOOKS, provider=CUDA)


def test_the_processor_by_name_computes_the_same_bytes_as_no_provider(monkeypatch):
    monkeypatch.setenv("FACEANON_ENGINE", "light")
    face = np.random.default_rng(0).uniform(-1, 1, (1, 3, 128, 128)).astype(np.float32)
    found = []
    for provider in (None, "cpu"):
        networks = _files.load_pipeline(typed(provider)).backbone.networks
        latents = networks.encode(face)
        found.append((latents.tobytes(), networks.decode(latents, (4, 12, 4, 12)).tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"device": "cuda"}, "--device cuda needs torch"),
        ({"engine": "torch"}, "--engine torch runs torch"),
        ({"devices": 2}, "--devices and --nodes need torch"),
        ({"model": "blur"}, "the model blur needs torch"),
    ],
    ids=["device", "engine", "devices", "model"],
)
def test_what_needs_torch_takes_no_provider(options, reason):
    with pytest.raises(UserError, match=f"^--provider is for onnxruntime, but {reason}; leave one of them away$"):
        _files.load_pipeline(typed(**options))


def test_a_provider_takes_onnxruntime_for_many_photos_and_whatever_the_environment_says(monkeypatch):
    monkeypatch.setattr(_files, "has_bfloat16", lambda: True)
    monkeypatch.setenv("FACEANON_ENGINE", "torch")
    for engine in (None, "auto", "light"):
        pipeline = _files.load_pipeline(typed(engine=engine), photos=_files.MANY)
        assert isinstance(pipeline.backbone, LightPersona)


@pytest.mark.parametrize(
    ("photos", "typed_provider", "wanted"),
    [(_files.MANY, None, OPENVINO), (1, None, "cpu"), (_files.MANY, "cpu", "cpu")],
    ids=["many", "one", "another_is_typed"],
)
def test_openvino_takes_many_photos_where_it_is_installed(monkeypatch, offered, photos, typed_provider, wanted):
    offered.insert(0, OPENVINO)
    monkeypatch.setattr(providers, "has_bfloat16", lambda: True)
    asked = []
    monkeypatch.setattr(_files, "torch_installed", lambda: False)
    monkeypatch.setattr("faceanon.persona.light.LightPersona", lambda folder, provider: asked.append(provider))
    monkeypatch.setattr("faceanon.pipeline.photo.Pipeline", lambda method: method)
    _files.load_pipeline(typed(typed_provider), photos=photos)
    assert asked == [wanted]


def test_openvino_is_no_quicker_without_the_instructions(monkeypatch, offered):
    offered.insert(0, OPENVINO)
    monkeypatch.setattr(providers, "has_bfloat16", lambda: False)
    assert providers.quick_provider() is None


def test_doctor_lists_the_providers_in_one_line(monkeypatch, offered):
    offered.insert(0, "CUDAExecutionProvider")
    real = doctor._version
    builds = {"onnxruntime": "", "onnxruntime-gpu": "1.31.1", "onnxruntime-openvino": "", "onnxruntime-directml": ""}
    monkeypatch.setattr(doctor, "_version", lambda name: builds.get(name, real(name)))
    lines = [finding.line() for finding in doctor.examine()]
    assert "  ok      --provider            CUDAExecutionProvider, CPUExecutionProvider" in lines
    assert "  ok      onnxruntime           1.31.1" in lines
