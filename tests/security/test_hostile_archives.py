"""Archives and bundles from strangers: nothing is written, or removed, outside the folder that was named."""

import os
import shutil
import stat
import zipfile

import pytest
import torch
import yaml
from hostile import altered, asked, fuzz, mutated
from hypothesis import example, given

from faceanon.errors import UserError
from faceanon.files import save_tensors
from faceanon.interop.public.importing import _commit, import_files
from faceanon.interop.public.packs import is_onnx, read_pack
from faceanon.interop.public.reading import read_public
from faceanon.networks.critics import ConvRecogniser
from faceanon.weights.bundle import Bundle, read_spec

ONNX = b"\x08\x07\x3a\x02\x0a\x00"  # a ModelProto: version, graph
NAMES = (
    "../w600k_r50.onnx",
    "/w600k_r50.onnx",
    "..\\..\\w600k_r50.onnx",
    "a/../../w600k_r50.onnx",
    "C:/w600k_r50.onnx",
)


def zipped(path, entries):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def tree(folder):
    return {str(item.relative_to(folder)): item.read_bytes() for item in folder.rglob("*") if item.is_file()}


def importing(path, bundle, overwrite=False):
    return import_files([read_public(path)], str(bundle), overwrite)


@pytest.mark.parametrize("name", NAMES)
def test_path_traversal_in_a_pack(tmp_path, name):
    """A pack's files are found by their last name, and written under that."""
    assert is_onnx(ONNX)
    pack = zipped(tmp_path / "pack.zip", {name: ONNX, "evil.sh": b"exit 1"})
    before = tree(tmp_path)
    asked(importing, pack, tmp_path / "bundle")
    written = {file for file in tree(tmp_path) if not file.startswith("bundle/")}
    assert written == set(before)
    assert "evil.sh" not in {os.path.basename(file) for file in tree(tmp_path)}  # noqa: PTH119 - as names, not paths


def test_a_link_in_a_pack_is_its_text(tmp_path):
    (tmp_path / "secret").write_bytes(ONNX)
    info = zipfile.ZipInfo("w600k_r50.onnx")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    pack = zipped(tmp_path / "pack.zip", {info: str(tmp_path / "secret")})
    with pytest.raises(UserError, match="not a whole ONNX model"):
        importing(pack, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_a_bomb_is_refused_by_its_size(tmp_path):
    path = zipped(tmp_path / "pack.zip", {"w600k_r50.onnx": ONNX})
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UserError, match="would be 4294967280 bytes"):
        read_pack(path).read("w600k_r50.onnx")


@pytest.mark.parametrize(("at", "entry", "value"), [(6, 8, 1), (8, 10, 99), (8, 10, 8), (8, 10, 12), (8, 10, 14)])
def test_packs_that_zipfile_cannot_read(tmp_path, at, entry, value):
    """Encrypted, or compressed in unknown or wrong ways: those end in five kinds of exceptions."""
    path = zipped(tmp_path / "pack.zip", {"w600k_r50.onnx": ONNX})
    data = bytearray(path.read_bytes())
    for place in (data.index(b"PK\x03\x04") + at, data.index(b"PK\x01\x02") + entry):
        data[place : place + 2] = value.to_bytes(2, "little")
    path.write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        read_pack(path).read("w600k_r50.onnx")


@fuzz(60)
@given(data=mutated([ONNX * 3]))
@example(data=b"\xff" * 3_000_000)
def test_any_bytes_are_an_onnx_model_or_not(data):
    """Three million bytes of one endless number once took hours."""
    assert is_onnx(data) in (True, False)


@fuzz(30)
@given(seed=mutated([b"\0"]))
def test_mutated_packs(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("packs")
    path = zipped(folder / "pack.zip", {"w600k_r50.onnx": ONNX, "x/det_10g.onnx": ONNX})
    data, more = bytearray(path.read_bytes()), seed[:4]
    for number, byte in enumerate(more):
        data[(byte * 7919 + number * 104729) % len(data)] ^= 1 << (byte % 8)
    path.write_bytes(data)
    asked(importing, path, folder / "bundle")
    assert {file.split("/")[0] for file in tree(folder)} <= {"pack.zip", "bundle"}
    shutil.rmtree(folder)


@pytest.mark.parametrize("victim", ["../victim/photo.png", "{folder}/victim/photo.png", "bundle.yaml", "README.md"])
def test_a_strangers_bundle_cannot_have_others_files_removed(tmp_path, victim):
    """Importing into a bundle removes files that it no longer names; once also those that were never its own."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "photo.png").write_bytes(b"irreplaceable")
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    named = victim.format(folder=tmp_path)
    packs = {"pack": {"folder": "old", "files": {"w600k_r50.onnx": "0" * 64}}}
    networks = {"judge": {"name": "x", "class": "faceanon.networks.onnx_recogniser.OnnxRecogniser", "file": named}}
    spec = {"name": "bundle", "image_size": 64, "licence": "none", "networks": networks, "packs": packs}
    (bundle / "bundle.yaml").write_text(yaml.safe_dump(spec))
    staged = tmp_path / "staged"
    staged.mkdir()
    _commit(staged, bundle, read_spec(bundle), {**spec, "networks": {}, "packs": {}})
    assert (tmp_path / "victim" / "photo.png").read_bytes() == b"irreplaceable"
    assert (bundle / "bundle.yaml").is_file()


def test_a_bundle_still_loses_what_was_its_own(tmp_path):
    bundle, staged = tmp_path / "bundle", tmp_path / "staged"
    for folder in (bundle / "old", staged):
        folder.mkdir(parents=True)
    (bundle / "judge.safetensors").touch()
    (bundle / "old" / "det_10g.onnx").touch()
    packs = {"pack": {"folder": "old", "files": {"det_10g.onnx": "0" * 64}}}
    spec = {"name": "bundle", "image_size": 64, "networks": {"judge": {"class": "x", "file": "judge.safetensors"}}}
    (bundle / "bundle.yaml").write_text(yaml.safe_dump(spec | {"packs": packs}))
    _commit(staged, bundle, read_spec(bundle), spec | {"networks": {}})
    assert set(tree(bundle)) == {"bundle.yaml", "README.md"}
    assert not (bundle / "old").exists()


SPEC = {
    "name": "tiny",
    "image_size": 16,
    "networks": {
        "judge": {
            "name": "conv",
            "class": "faceanon.networks.critics.ConvRecogniser",
            "init": {"image_size": 16, "widths": [4, 4], "embedding": 8},
            "file": "judge.safetensors",
        }
    },
}
NAMED = ("class", "file", "init", "networks", "image_size", "name", "judge", "image_size", "embedding", "widths")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    save_tensors(folder / "judge.safetensors", ConvRecogniser(16, (4, 4), 8).state_dict())
    return folder


def use(folder, text):
    (folder / "bundle.yaml").write_bytes(text)
    return asked(lambda: Bundle(folder).judge)


def test_the_unaltered_bundle_works(tiny):
    judge = use(tiny, yaml.safe_dump(SPEC).encode())
    assert judge(torch.zeros(1, 3, 16, 16)).shape == (1, 8)


@fuzz(30)
@given(spec=altered(SPEC, NAMED))
def test_altered_bundles(tiny, spec):
    use(tiny, yaml.safe_dump(spec).encode("utf-8", "surrogatepass"))


@fuzz(30)
@given(data=mutated([yaml.safe_dump(SPEC).encode()]))
@example(
    data=b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in b"bcdefghi")
)
@example(data=b"name: &a\n  b: *a\n")
@example(data=b"!!python/object/apply:os.system ['touch canary']")
@example(data=b"[" * 3000)
def test_mutated_bundles(tiny, data):
    use(tiny, data)
    assert {item.name for item in tiny.iterdir()} == {"bundle.yaml", "judge.safetensors"}


@pytest.mark.parametrize(
    "name", ["local_weights.read_state", "local_weights.load_file", "critics.nn", "critics.Tensor"]
)
def test_a_bundle_calls_networks_only(tiny, name):
    """Functions and modules that a file of faceanon.networks imports are no networks."""
    spec = {
        **SPEC,
        "networks": {"judge": {**SPEC["networks"]["judge"], "class": f"faceanon.networks.{name}", "init": {}}},
    }
    (tiny / "bundle.yaml").write_text(yaml.safe_dump(spec))
    with pytest.raises(UserError, match="is no network"):
        _ = Bundle(tiny).judge
