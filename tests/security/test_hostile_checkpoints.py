"""Checkpoints from strangers, in every format and at every door: refused in one line, and nothing of them runs."""

import io
import json
import os
import pickle
import struct
import zipfile

import pytest
import torch
import yaml
from hostile import Payload, altered, asked, fuzz, mutated, opcodes, payloads
from hypothesis import example, given
from safetensors.torch import save

from faceanon import models as store
from faceanon.errors import UserError
from faceanon.files import load_tensors, save_tensors
from faceanon.interop.public.reading import read_public
from faceanon.interop.public.unpickle import read_pickle
from faceanon.networks.local_weights import read_state, refuse_bomb
from faceanon.training.checkpoint_file import DamagedError, read_checkpoint, write_checkpoint
from faceanon.training.cli import run

KINDS = list(payloads("canary"))
CODES = list(opcodes("canary"))


def zipped(thing):
    data = io.BytesIO()
    torch.save(thing, data)
    return data.getvalue()


def legacy(thing):
    data = io.BytesIO()
    torch.save(thing, data, _use_new_zipfile_serialization=False)
    return data.getvalue()


def swapped(record):
    """A file of torch's whose instructions are others."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(zipped({"a": torch.zeros(2)}))) as archive, zipfile.ZipFile(out, "w") as other:
        for entry in archive.infolist():
            other.writestr(entry.filename, record if entry.filename.endswith("data.pkl") else archive.read(entry))
    return out.getvalue()


def checkpoint(path):
    try:
        return read_checkpoint(path)
    except DamagedError as error:
        raise UserError(str(error)) from error


DOORS = {
    "init_from": store.read,
    "ckpt_path": checkpoint,
    "weights import": read_public,
    "networks": lambda path: read_state(path, "a file"),
}
FORMATS = {"zip": zipped, "legacy": legacy, "bare": lambda thing: pickle.dumps(thing, 4)}


@pytest.fixture
def canary(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "canary"


def refuse(door, path):
    assert asked(DOORS[door], path) is None


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
def test_payloads_do_not_run(canary, tmp_path, door, kind):
    for make in FORMATS.values():
        for inside in (payloads(canary)[kind], {"state_dict": {}, "faceanon": payloads(canary)[kind]}):
            path = tmp_path / ("x.ckpt" if door in ("init_from", "ckpt_path") else "x.pt")
            path.write_bytes(make(inside))
            refuse(door, path)
            assert not canary.exists()


def test_payloads_would_run_elsewhere(canary):
    """Or the tests above would prove nothing; one of them only fails to import."""
    for kind, thing in payloads(canary).items():
        if kind != "import":
            pickle.loads(pickle.dumps(thing))
            assert canary.exists(), kind
            canary.rmdir() if canary.is_dir() else canary.unlink()


@pytest.mark.parametrize("name", CODES)
def test_instructions_that_name_or_call_do_not_run(canary, tmp_path, name):
    code = opcodes(canary)[name]
    for door in DOORS:
        for data in (code, swapped(code)):
            path = tmp_path / ("x.ckpt" if door in ("init_from", "ckpt_path") else "x.pt")
            path.write_bytes(data)
            refuse(door, path)
    path = tmp_path / "x.pkl"
    path.write_bytes(code)
    assert asked(read_pickle, path) is None
    assert not canary.exists()


GOOD = {"state_dict": {"ema.a": torch.zeros(3)}, "faceanon": {"class_path": "x", "init_args": {}, "bundle": {}}}


@fuzz(120)
@given(data=mutated([zipped(GOOD), legacy(GOOD), opcodes("canary")["NEWOBJ_EX"], pickle.dumps([1, {"a": b"x"}], 4)]))
def test_mutated_checkpoints(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    for door, name in (
        ("init_from", "m.ckpt"),
        ("ckpt_path", "m.ckpt"),
        ("networks", "m.pt"),
        ("weights import", "m.pkl"),
    ):
        (folder / name).write_bytes(data)
        asked(DOORS[door], folder / name)


SAFE = save({"a": torch.zeros(2, 3), "b": torch.ones(2, dtype=torch.int64)})
LENGTH = struct.unpack("<Q", SAFE[:8])[0]
HEAD, BODY = json.loads(SAFE[8 : 8 + LENGTH]), SAFE[8 + LENGTH :]


def headed(head):
    text = json.dumps(head).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + BODY


@fuzz(150)
@given(head=altered(HEAD, ("shape", "dtype", "data_offsets", 0, 1)))
@example(head={"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}})
@example(head={"a": {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 40]}})
@example(head={"a": {"dtype": "F4", "shape": [80], "data_offsets": [0, 40]}})
@example(head={"../../a": {"dtype": "U8", "shape": [40], "data_offsets": [0, 40]}})
def test_safetensors_with_another_head(tmp_path_factory, head):
    path = tmp_path_factory.getbasetemp() / "head.safetensors"
    path.write_bytes(headed(head))
    found = asked(load_tensors, path)
    assert sum(tensor.nbytes for tensor in (found or {}).values()) <= len(BODY)
    asked(read_public, path)


@fuzz(80)
@given(data=mutated([SAFE]))
@example(data=b"")
@example(data=b"\xff" * 16)
@example(data=struct.pack("<Q", 99_999_999) + b"{")
def test_mutated_safetensors(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "bytes.safetensors"
    path.write_bytes(data)
    asked(load_tensors, path)
    asked(lambda: read_state(path, "a file"))


def test_a_tensor_larger_than_its_numbers_takes_no_memory(tmp_path):
    wide = Payload(torch._utils._rebuild_tensor_v2, torch.zeros(4)._typed_storage(), 0, (1 << 40,), (1,), False, {})
    path = tmp_path / "x.pt"
    path.write_bytes(zipped({"a": wide}))
    refuse("weights import", path)


def test_a_compressed_checkpoint_is_refused(tmp_path):
    """torch compresses nothing, but would unpack a thousand times the file's size."""
    path = tmp_path / "x.ckpt"
    plain = zipped({"state_dict": {"ema.a": torch.zeros(500_000)}, "faceanon": {}})
    with zipfile.ZipFile(io.BytesIO(plain)) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as other:
        for entry in archive.infolist():
            other.writestr(entry.filename, archive.read(entry))
    assert path.stat().st_size < len(plain) / 50
    for door in DOORS:
        with pytest.raises(UserError, match=r"would unpack to|damaged"):
            DOORS[door](path)
    path.write_bytes(plain)
    refuse_bomb(path)
    write_checkpoint({"state_dict": {}}, path)
    refuse_bomb(path)


CARD = {
    "class_path": "faceanon.backbones.classical.Blur",
    "init_args": {},
    "bundle": {"name": "photo128", "fingerprint": "0" * 64},
}


def model(folder, text):
    digest = save_tensors(folder / "weights.safetensors", {"a": torch.zeros(1)})
    (folder / "model.yaml").write_bytes(text.replace(b"DIGEST", digest.encode()))
    return asked(store.load_backbone, folder)


@fuzz(80)
@given(card=altered({**CARD, "sha256": "DIGEST"}, (*CARD, "fingerprint")))
def test_altered_cards(tmp_path_factory, card):
    folder = tmp_path_factory.getbasetemp() / "cards"
    folder.mkdir(exist_ok=True)
    model(folder, yaml.safe_dump(card).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "path",
    [
        "os.system",
        "faceanon.interop.onnx.backbone.Path",
        "faceanon.backbones.dbaf.torch",
        "faceanon.backbones.base.Backbone",
        "faceanon.backbones..os",
        "faceanon.cli.main",
    ],
)
def test_a_card_builds_backbones_only(canary, tmp_path, path):
    """What a module of ours imports for itself could once be called with a card's arguments."""
    card = {**CARD, "class_path": path, "init_args": {"command": f"touch {canary}"}, "sha256": "DIGEST"}
    assert model(tmp_path, yaml.safe_dump(card).encode()) is None
    assert not canary.exists()


CONFIG = {
    "model": {
        "class_path": "faceanon.stages.DisentangleStage",
        "init_args": {
            "backbone": {"class_path": "faceanon.backbones.dbaf.DBAF", "init_args": {"bundle": "photo128_prior"}},
            "weights": {"parsing": 0.0},
        },
    },
    "data": {"class_path": "faceanon.data.prepared.PreparedFaces", "init_args": {"train_batches": 2}},
    "trainer": {"accelerator": "cpu", "fast_dev_run": 1, "logger": False},
}


def fit(folder, *more):
    (folder / "c.yaml").write_text(yaml.safe_dump(CONFIG))
    with pytest.raises(UserError) as caught:
        run(["fit", "--config", str(folder / "c.yaml"), *map(str, more)])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_names_no_module_to_import(canary, tmp_path, monkeypatch):
    """Lightning imports the class that a checkpoint's hyperparameters name, before anybody can compare it."""
    (tmp_path / "evil_module_of_a_test.py").write_text("import pathlib\npathlib.Path('canary').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    for number, names in enumerate(
        ({"_class_path": "evil_module_of_a_test.X"}, {"_instantiator": "evil_module_of_a_test.X"}, [1])
    ):
        path = tmp_path / f"{number}.ckpt"
        torch.save({"state_dict": {}, "hyper_parameters": names}, path)
        assert "no backbone" in fit(tmp_path, "--ckpt_path", path)
        assert not canary.exists()


@pytest.mark.parametrize("option", ["--ckpt_path", "--model.init_args.init_from"])
def test_hostile_files_at_the_command_line(canary, tmp_path, option):
    contents = {
        "system": zipped({"state_dict": Payload(os.system, f"touch {canary}")}),
        "card": zipped({"state_dict": {}, "faceanon": 3}),
        "rubbish": b"\x80\x04rubbish",
    }
    for name, data in contents.items():
        path = tmp_path / f"{name}.ckpt"
        path.write_bytes(data)
        assert str(path) in fit(tmp_path, option, path) or name == "card"
        assert not canary.exists()
