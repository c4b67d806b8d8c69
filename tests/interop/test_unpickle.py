"""Files that would run code when opened: refused, and nothing of them ran. Each test first proves that they would."""

import argparse
import io
import pickle
import warnings

import numpy as np
import pytest
import torch

import nvidia_files as nvidia_made
from faceanon.errors import UserError
from faceanon.files import load_tensors
from faceanon.interop.public.nvidia import read_nvidia_pickle
from faceanon.interop.public.unpickle import Array, Record, TensorFlowNetwork, read_pickle, read_torch


class Payload:
    """Calls something when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def touch(marker):
    """Source text that leaves a trace."""
    return f"from pathlib import Path; Path({str(marker)!r}).touch()"


def payloads(marker):
    import os

    return {
        "os.system": Payload(os.system, f"touch {marker}"),
        "builtins.exec": Payload(exec, touch(marker)),
        "builtins.eval": Payload(eval, f"__import__('pathlib').Path({str(marker)!r}).touch()"),
    }


def zipped(path, thing):
    torch.save({"g_ema": thing}, path)


def legacy(path, thing):
    torch.save({"g_ema": thing}, path, _use_new_zipfile_serialization=False)


def bare(path, thing):
    path.write_bytes(pickle.dumps({"state_dict": thing}, 2))


def ada(path, thing):
    content = {"G_ema": nvidia_made.module(nvidia_made.generator(), extra=thing)}
    nvidia_made.write(path, content)


def ada_storage(path, thing):
    inner = io.BytesIO()
    torch.save(thing, inner, _use_new_zipfile_serialization=False)
    content = {
        "G_ema": nvidia_made.module(
            {"x": torch.zeros(1)}, extra=Payload(torch.storage._load_from_bytes, inner.getvalue())
        )
    }
    nvidia_made.write(path, content)


def tensorflow(path, thing):
    content = nvidia_made.tf_generator(nvidia_made.generator())
    content.state["variables"].append(("x", thing))
    nvidia_made.write(path, content)


def safetensors(path, thing):
    path.write_bytes(pickle.dumps(thing))


def load_anything(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.load(path, weights_only=False)


def load_pickle(path):
    with nvidia_made.nvidia_modules(), path.open("rb") as file:
        pickle.load(file)


def load_pickle_as_torch_once_did(path):
    load = torch.load
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(torch, "load", lambda file, *a, **k: load(file, weights_only=False))
        load_pickle(path)


FORMATS = {
    "x.pt": (zipped, read_torch, load_anything),
    "old.pt": (legacy, read_torch, load_anything),
    "x.pth": (bare, read_torch, load_pickle),
    "ada.pkl": (ada, read_nvidia_pickle, load_pickle),
    "storage.pkl": (ada_storage, read_nvidia_pickle, load_pickle_as_torch_once_did),
    "tf.pkl": (tensorflow, read_nvidia_pickle, load_pickle),
    "x.safetensors": (safetensors, load_tensors, load_pickle),
}


@pytest.mark.parametrize("kind", ["os.system", "builtins.exec", "builtins.eval"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_payload_is_refused_and_does_not_run(tmp_path, name, kind):
    write, read, open_carelessly = FORMATS[name]
    marker, path = tmp_path / "marker", tmp_path / name
    write(path, payloads(marker)[kind])
    with pytest.raises(UserError) as caught:
        read(path)
    assert not marker.exists()
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    if not name.endswith(".safetensors"):
        assert kind.split(".")[1] in str(caught.value), "the refused name is named"
    open_carelessly(path)
    assert marker.exists(), "the payload must work where nothing stops it, or the test proves nothing"


@pytest.mark.parametrize("program", ["torch", "tensorflow"])
def test_source_text_inside_a_file_stays_text(tmp_path, program):
    marker, path = tmp_path / "marker", tmp_path / "x.pkl"
    tensors, source = nvidia_made.generator(), touch(tmp_path / "marker")
    content = nvidia_made.tf_generator(tensors, source)
    if program == "torch":
        content = {"G_ema": nvidia_made.module(tensors, source=source)}
    nvidia_made.write(path, content)
    assert torch.equal(read_nvidia_pickle(path)["G_ema"]["latent_avg"], tensors["mapping.w_avg"])
    assert not marker.exists()
    load_pickle(path)
    assert marker.exists()


def opcodes(*parts):
    return b"\x80\x04" + b"".join(parts) + b"."


def refuse(path, data, match, **limits):
    path.write_bytes(data)
    with pytest.raises(UserError, match=match) as caught:
        read_pickle(path, **limits)
    assert "\n" not in str(caught.value)


def test_names_reached_by_other_instructions_are_refused_too(tmp_path):
    path, mark = tmp_path / "x.pkl", b"("
    refuse(path, opcodes(b"cos\nsystem\n"), "os.system")
    refuse(path, opcodes(mark, b"ios\nsystem\n"), "os.system")
    refuse(path, opcodes(b"\x8c\x02os\x8c\x06system\x93"), "os.system")
    refuse(path, opcodes(b"\x8c\x05numpy\x8c\x0fcore.multiarray\x93"), "numpy.core.multiarray")
    refuse(path, opcodes(b"\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93"), "OrderedDict.__init__")
    refuse(path, opcodes(b"Psomething\n"), "not a readable")
    refuse(path, opcodes(b"\x82\x01"), "not a readable")


@pytest.mark.parametrize(
    "name",
    [
        "collections OrderedDict",
        "dnnlib.tflib.network Network",
        "numpy dtype",
        "numpy ndarray",
        "torch._utils _rebuild_parameter",
    ],
)
def test_a_file_cannot_alter_the_reader(tmp_path, name):
    module, leaf = name.encode().split()
    path = tmp_path / "x.pkl"
    thing = b"c" + module + b"\n" + leaf + b"\n"
    refuse(path, opcodes(thing, b"N}\x8c\x0c__setstate__Ns\x86b"), "not a readable")
    nvidia_made.write(path, nvidia_made.tf_generator(nvidia_made.generator()))
    assert isinstance(read_pickle(path), TensorFlowNetwork)


def test_a_small_file_cannot_fill_the_memory(tmp_path):
    path = tmp_path / "x.pkl"
    wide = Payload(torch._utils._rebuild_tensor_v2, torch.zeros(4)._typed_storage(), 0, (1 << 40,), (0,), False, {})
    refuse(path, pickle.dumps(wide), "a tensor of shape .1099511627776,. on 4 numbers")
    reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n"
    array = reconstruct + b"cnumpy\nndarray\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85C\x01b\x87R"
    path.write_bytes(opcodes(array))
    assert isinstance(read_pickle(path), Array), "the asked size is ignored: an array is as large as its bytes"
    text = b"X" + (1000).to_bytes(4, "little") + b"a" * 1000
    again = (
        b"(c_codecs\nencode\nq\x010"
        + text
        + b"q\x020"
        + b"".join(b"h\x01h\x02\x8c\x06latin1\x86R" for _ in range(20))
        + b"t"
    )
    refuse(path, opcodes(again), "far more than its own size")
    refuse(path, opcodes(b"\x8e" + (1 << 40).to_bytes(8, "little")), "not a readable")
    refuse(path, opcodes(b"Nr" + (1 << 31).to_bytes(4, "little")), "wild memo")
    refuse(path, opcodes(b"N"), "more than any StyleGAN2", limit=2)


def test_arrays_of_objects_and_truncated_files_are_refused(tmp_path):
    path = tmp_path / "x.pkl"
    with pytest.raises(UserError, match="not of numbers"):
        read_pickle(nvidia_made.write(path, {"x": np.array([Record()], dtype=object)}))
    whole = nvidia_made.write(path, {"x": np.arange(300.0)}).read_bytes()
    refuse(path, whole[: len(whole) // 2], "not a readable")
    refuse(path, b"", "not a readable")
    refuse(path, b"<html>not found</html>", "not a readable")
    with pytest.raises(UserError, match="not found"):
        read_pickle(tmp_path / "nothing.pkl")
    with pytest.raises(UserError, match="not found"):
        read_torch(tmp_path / "nothing.pt")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_numbers_of_every_kind_come_back(tmp_path, protocol):
    content = {
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big_endian": np.arange(4, dtype=">f4"),
        "half": np.arange(3, dtype=np.float16),
        "scalar": np.float32(1.5),
        "flag": np.bool_(True),
        "turned": torch.arange(6.0).reshape(2, 3).t(),
        "part": torch.arange(10)[2:7:2],
        "set": {1, 2},
    }
    found = read_pickle(nvidia_made.write(tmp_path / "x.pkl", content, protocol))
    for name, value in content.items():
        own = found[name].value if isinstance(found[name], Array) else found[name]
        assert (own == value).all() if hasattr(value, "all") else own == value, name
        assert not isinstance(own, torch.Tensor) or own.shape == value.shape


def test_torch_files_as_they_are_published_are_read(tmp_path):
    content = {"g_ema": {"x": torch.arange(3.0)}, "args": argparse.Namespace(size=256), "opts": {"lr": 0.1}}
    for new in (True, False):
        torch.save(content, tmp_path / "x.pt", _use_new_zipfile_serialization=new)
        found = read_torch(tmp_path / "x.pt")
        assert torch.equal(found["g_ema"]["x"], content["g_ema"]["x"])
        assert found["args"].size == 256
