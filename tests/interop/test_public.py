import os
import zipfile

import pytest
import torch

import wild_files as files
from faceanon.errors import UserError
from faceanon.interop.public.reading import read_public
from faceanon.metrics.protocol import load_protocol
from faceanon.networks.irse import UNITS
from faceanon.networks.stylegan2 import Generator
from faceanon.weights.layouts import LAYOUTS


@pytest.fixture
def save(tmp_path):
    def write(content, name="anything.bin", **options):
        torch.save(content, tmp_path / name, **options)
        return tmp_path / name

    return write


def refuse(match, path, **options):
    with pytest.raises(UserError, match=match) as caught:
        read_public(path, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variant", ["converted", "noiseless", "kernelless", "distributed", "training"])
def test_a_generator_is_found_in_every_kind_of_stylegan2_file(save, variant):
    file = read_public(save(files.stylegan_content(variant)))
    found = file.found[0]
    assert found.layout.kind == "stylegan2_generator"
    assert found.init == {"size": 32, "style_dim": 8, "n_mlp": 2, "channels": files.CHANNELS}
    assert (found.latent_avg is not None) == (variant == "converted")
    assert torch.equal(found.tensors["input.input"], files.generator().input.input)  # g_ema, not g
    assert [item.layout.role for item in file.found[1:]] == (["discriminator"] if variant == "training" else [])
    if variant == "training":
        assert file.found[1].init == {"size": 32, "channels": files.CHANNELS}
        assert file.opts == {"size": 32, "latent": 8}


def test_public_channel_tables_are_told_by_their_multiplier():
    with torch.device("meta"):
        for multiplier in (1, 2):
            state = Generator(128, 512, 8, multiplier).state_dict()
            assert LAYOUTS[0].sizes(state) == {
                "size": 128, "style_dim": 512, "n_mlp": 8, "channel_multiplier": multiplier
            }  # fmt: skip


def test_a_file_without_a_moving_average_gives_g_and_says_so(save):
    content = files.stylegan_content("training")
    del content["g_ema"]
    assert "no g_ema" in read_public(save(content)).found[0].notes[0]


@pytest.mark.parametrize(("kind", "name"), [("Encoder4Editing", "e4e_encoder"), ("GradualStyleEncoder", "psp_encoder")])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_e4e_and_psp_are_told_apart_by_their_options(save, kind, name, prefix):
    file = read_public(save(files.encoder_content(kind, prefix=prefix)))
    encoder, decoder = file.found
    assert encoder.layout.kind == encoder.name == name
    assert encoder.init == {
        "stylegan_size": 32, "style_dim": 8, "input_size": 32, "widths": files.WIDTHS, "units": files.UNITS,
        "coarse_ind": 2, "middle_ind": 5, "input_nc": 3,
    }  # fmt: skip
    assert decoder.layout.kind == "stylegan2_generator"
    assert encoder.latent_avg.shape == (8, 8)
    assert file.opts["encoder_type"] == kind
    assert "nested" not in file.opts


def test_an_encoder_that_does_not_say_its_type_needs_to_be_told(save):
    path = save(files.encoder_content(opts={"encoder_type": None}))
    refuse("--encoder-type", path)
    assert read_public(path, encoder_type="GradualStyleEncoder").found[0].name == "psp_encoder"
    refuse("SingleStyleCodeEncoder", save(files.encoder_content(opts={"encoder_type": "SingleStyleCodeEncoder"})))


def test_whether_codes_are_offsets_is_read_from_the_options(save):
    def offset(**content):
        return read_public(save(files.encoder_content(**content))).found[0].start_from_latent_avg

    assert offset()
    assert offset(opts={})  # e4e's default
    assert not offset(kind="GradualStyleEncoder", opts={})  # pSp's
    assert not offset(opts={"start_from_latent_avg": False})


def test_an_encoder_of_sketches_is_refused(save):
    content = files.encoder_content()
    content["state_dict"]["encoder.input_layer.0.weight"] = torch.zeros(4, 1, 3, 3)
    refuse("1 channels", save(content))


@pytest.mark.parametrize(
    ("content", "kind", "init"),
    [
        (
            files.recogniser_content, "ir_se_recogniser",
            {"input_size": 48, "widths": files.WIDTHS, "units": files.UNITS, "embedding": 16, "dropout": 0.6},
        ),
        (files.bisenet_content, "bisenet", {"n_classes": 19, "width": 4, "working_size": 512}),
        (files.unet_content, "unet_parser", {"n_classes": 19, "working_size": 512}),
        (files.landmarks_content, "landmarks68", {}),
        (
            files.mapper_content, "riddle_mapper",
            {"add_linear": True, "add_pos_embedding": True, "norm": True, "width": 16},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("old_format", [False, True])
def test_other_networks_and_their_sizes(save, content, kind, init, old_format):
    path = save(content(), _use_new_zipfile_serialization=not old_format)
    (found,) = read_public(path).found
    assert found.layout.kind == kind
    assert found.init == init


def test_a_mapper_from_a_distributed_run_and_one_without_options(save):
    (found,) = read_public(save(files.mapper_content(ddp=True))).found
    assert "pos_embedding" in found.tensors
    (found,) = read_public(save(files.mapper_content(plain=True))).found
    assert not found.init["add_linear"]
    assert not found.init["add_pos_embedding"]


@pytest.mark.parametrize(
    ("classes", "name"), [(8631, "facenet_vggface2"), (10575, "facenet_casia"), (7, "facenet_7"), (None, "facenet")]
)
def test_facenet_loses_its_classifier_which_tells_its_training_set(save, classes, name):
    (found,) = read_public(save(files.facenet_content(classes))).found
    assert found.name == name
    assert not any(key.startswith("logits") for key in found.tensors)


@pytest.mark.parametrize(("name", "kind"), [("alexnet", "lpips_alex"), ("vgg16", "lpips_vgg")])
def test_backbones_of_lpips_lose_their_classifier(save, name, kind):
    (found,) = read_public(save(files.imagenet_content(name))).found
    assert found.layout.kind == kind
    assert all(key.startswith("features.") for key in found.tensors)


@pytest.mark.parametrize("name", ["vgg19", "squeezenet1_1", "resnet18"])
def test_other_classifiers_have_no_name(save, name):
    refuse("cannot name it", save(files.imagenet_content(name)))


def test_dbafs_four_files(save):
    kinds = [read_public(save(content)).found[0] for content in files.dbaf_contents().values()]
    names = ["stylegan2_generator", "dbaf_disentanglement", "dbaf_attributes", "dbaf_mapper"]
    assert [found.layout.kind for found in kinds] == names
    assert kinds[0].bare


def test_names_mean_nothing(save):
    (found,) = read_public(save(files.recogniser_content(), "e4e_ffhq_encode.pt")).found
    assert found.layout.role == "recogniser"


def test_an_ir_se_recogniser_has_the_name_that_protocols_ask_for(save):
    (found,) = read_public(save(files.recogniser_content(), "model_ir_se50.pth")).found
    assert found.name == f"ir_se{2 * sum(files.UNITS) + 2}"
    assert 2 * sum(UNITS) + 2 == 50  # those of the public file
    asked = {
        reading.recogniser for name in ("dbaf-v1", "hford-v1") for reading in load_protocol(name).matching.readings
    }
    assert "ir_se50" in asked


def test_no_layout_takes_the_files_of_another(save):
    contents = [files.recogniser_content(), files.bisenet_content(), files.unet_content(), files.facenet_content()]
    contents += [
        files.generator().state_dict(),
        files.landmarks_content()["state_dict"],
        *files.dbaf_contents().values(),
    ]
    for content in contents:
        assert sum(all(mark in content for mark in layout.marks) for layout in LAYOUTS) == 1


def test_what_has_no_name_is_refused_with_what_was_seen(save):
    refuse(r"cannot name it; its keys are fc\.weight, fc\.bias; known are: StyleGAN2 generator", save(
        {"fc.weight": torch.zeros(2, 2), "fc.bias": torch.zeros(2)}
    ))  # fmt: skip
    refuse("cannot name it; its keys are step", save({"step": 3, "loss": 0.1}))
    refuse("cannot name it; its keys are none", save({}))
    refuse("holds a list", save([torch.zeros(2)]))
    refuse("without final_conv", save({"d": {"convs.0.0.weight": torch.zeros(4, 3, 1, 1)}}))


def test_a_half_of_a_network_is_refused(save):
    state = files.stylegan_content("bare")["g_ema"]
    refuse("is incomplete", save({"g_ema": files.without(state, "convs.2.conv.weight")}))
    content = files.encoder_content()
    content["state_dict"] = files.without(content["state_dict"], "encoder.styles.7.")
    refuse("rows, which fit no StyleGAN2|incomplete", save(content))


def test_truncated_and_foreign_files_are_refused(tmp_path, save):
    whole = save(files.bisenet_content()).read_bytes()
    for name, data in {"cut.pth": whole[: len(whole) // 2], "text.pt": b"hello", "empty.pt": b""}.items():
        (tmp_path / name).write_bytes(data)
        refuse(name, tmp_path / name)
    refuse("no such file", tmp_path / "missing.pt")


class Payload:
    """Unpickling it creates a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("old_format", [False, True])
@pytest.mark.parametrize("place", ["opts", "state_dict", "extra"])
def test_a_hostile_file_is_refused_and_does_not_run(save, tmp_path, old_format, place):
    content = files.encoder_content()
    content[place] = {"x": Payload(tmp_path / "ran")}
    refuse("mkdir", save(content, _use_new_zipfile_serialization=not old_format))
    assert not (tmp_path / "ran").exists()
    torch.load(save(content), weights_only=False)
    assert (tmp_path / "ran").exists()  # the payload is a real one


def test_insightface_packs_as_folder_zip_and_single_file(tmp_path):
    folder = tmp_path / "buffalo"
    folder.mkdir()
    for name in ("det_10g.onnx", "w600k_r50.onnx", "readme.txt"):
        (folder / name).write_bytes(files.onnx_bytes(name.encode()))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.write(folder / "w600k_r50.onnx", "buffalo_l/../../w600k_r50.onnx")
    assert list(read_public(folder).pack.files) == ["det_10g.onnx", "w600k_r50.onnx"]
    for path in (folder, tmp_path / "b.zip", folder / "w600k_r50.onnx"):
        pack = read_public(path).pack
        assert pack.read("w600k_r50.onnx") == files.onnx_bytes(b"w600k_r50.onnx")
    (folder / "det_10g.onnx").write_bytes(files.onnx_bytes()[:-1])
    with pytest.raises(UserError, match="not a whole ONNX model"):
        read_public(folder).pack.read("det_10g.onnx")
    (tmp_path / "bad.zip").write_bytes((tmp_path / "b.zip").read_bytes()[:-30])
    refuse("no readable .zip", tmp_path / "bad.zip")
    (tmp_path / "other").mkdir()
    refuse("holds nothing", tmp_path / "other")
