import hashlib
import shutil

import pytest
import torch
import yaml

import nvidia_files
import wild_files as files
from bench.public import random_bundle
from faceanon import cli
from faceanon.errors import UserError
from faceanon.interop.public import entries, importing
from faceanon.interop.public.importing import import_files, load_tensors
from faceanon.interop.public.reading import read_public
from faceanon.interop.verify import verify
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.parsing_classes import BISENET, CELEBAMASK_HQ
from faceanon.networks.psp import GradualStyleEncoder
from faceanon.weights.bundle import Bundle
from faceanon.weights.catalog import by_sha256, catalog, published
from faceanon.weights.pairing import generator_fingerprint
from wild_files import everything, refuse


def spec_of(folder):
    return yaml.safe_load((folder / "bundle.yaml").read_text())


@pytest.mark.parametrize("variant", ["converted", "noiseless", "kernelless", "distributed", "training"])
def test_every_kind_of_stylegan2_file_becomes_the_same_generator(bring, variant):
    folder, lines = bring(files.stylegan_content(variant))
    bundle = Bundle(folder)
    net, original = bundle.generator(), files.generator()
    assert bundle.image_size == 32
    for name, value in original.state_dict().items():
        if variant != "noiseless" or "noises." not in name:
            assert torch.equal(net.state_dict()[name], value), name
    entry = bundle.entry("generator")
    assert entry["fingerprint"] == generator_fingerprint(original.state_dict())
    average = bundle.entry("generator")["latent_avg"]
    rows = load_tensors(folder / average)["latent_avg"]
    assert rows.shape == (8, 8)
    assert all(torch.equal(row, rows[0]) for row in rows)
    said = "\n".join(lines)
    if variant == "converted":
        assert torch.equal(rows[0], torch.arange(8.0))
        assert "one row repeated to 8" in said
    else:
        mean = original.mean_latent(10_000, torch.Generator().manual_seed(0))[0]
        torch.testing.assert_close(rows[0], mean)
        assert "estimated" in said
    assert ("7 noise maps drawn from a fixed seed" in said) == (variant == "noiseless")
    assert ("6 blur kernels computed" in said) == (variant == "kernelless")
    assert bundle.has("discriminator") == (variant == "training")


def test_missing_noise_is_the_same_every_time(bring):
    one, _ = bring(files.stylegan_content("noiseless"), bundle="one")
    two, _ = bring(files.stylegan_content("noiseless"), bundle="two")
    assert spec_of(one)["networks"]["generator"]["sha256"] == spec_of(two)["networks"]["generator"]["sha256"]


@pytest.mark.parametrize("kind", ["Encoder4Editing", "GradualStyleEncoder"])
def test_an_encoder_brings_its_generator_and_average(bring, kind):
    folder, _ = bring(files.encoder_content(kind))
    bundle = Bundle(folder)
    encoder = bundle.build("encoder")
    assert type(encoder) is {"Encoder4Editing": Encoder4Editing, "GradualStyleEncoder": GradualStyleEncoder}[kind]
    assert torch.equal(bundle.latent_avg, torch.full((8, 8), 0.5))
    assert bundle.entry("encoder")["generator"] == bundle.entry("generator")["fingerprint"]
    assert torch.equal(bundle.generator().input.input, files.generator().input.input)


def test_the_average_of_an_encoder_without_one_is_that_of_its_generator(bring):
    folder, lines = bring(files.stylegan_content("converted"), files.encoder_content(average=False))
    assert torch.equal(Bundle(folder).latent_avg, torch.arange(8.0).expand(8, 8))
    assert any("taken from the generator" in line for line in lines)
    folder, lines = bring(files.encoder_content(average=False), bundle="alone")
    torch.testing.assert_close(
        Bundle(folder).latent_avg[0], files.generator().mean_latent(10_000, torch.Generator().manual_seed(0))[0]
    )
    assert any("estimated" in line for line in lines)


def test_codes_that_are_no_offsets_have_a_zero_average(bring):
    folder, _ = bring(files.encoder_content("GradualStyleEncoder", opts={}))
    assert not Bundle(folder).latent_avg.any()


def test_an_encoder_without_decoder_needs_a_generator_and_stays_unproven(bring):
    content = files.encoder_content(average=False)
    content["state_dict"] = files.without(content["state_dict"], "decoder.")
    refuse("needs its generator", bring, content, bundle="x")
    folder, lines = bring(content, files.stylegan_content("bare"))
    assert any("unproven" in line for line in lines)
    verdicts = {check.verdict for check in verify(folder) if check.text.startswith("pairing: nothing says")}
    assert verdicts == {"warning"}


def test_a_bundle_grows_and_says_what_it_has(bring):
    folder, _ = bring(files.stylegan_content(), files.recogniser_content())
    before = spec_of(folder)
    bring(files.bisenet_content(), files.unet_content(), files.landmarks_content(), files.mapper_content(ddp=True))
    spec = spec_of(folder)
    assert {name: spec["networks"][name] for name in before["networks"]} == before["networks"]
    assert set(spec["networks"]) == {
        "generator", "recogniser", "parser", "parser_unet_parser", "landmarks", "mapper"
    }  # fmt: skip
    recogniser = Bundle(folder).entry("recogniser")
    assert recogniser["crop"] == [35 / 256, 223 / 256, 32 / 256, 220 / 256]
    assert Bundle(folder).recogniser(torch.zeros(2, 3, 256, 256)).shape == (2, 16)
    assert [spec["parsing"]["classes"][i] for i in spec["parsing"]["parts"]] == [
        "l_eye", "r_eye", "nose", "mouth", "u_lip", "l_lip"
    ]  # fmt: skip
    assert spec["parsing"]["classes"] == list(BISENET)
    other = spec["networks"]["parser_unet_parser"]["parsing"]
    assert other["classes"] == list(CELEBAMASK_HQ)
    assert other["parts"] == [2, 4, 5, 10, 11, 12]
    assert [check.text for check in verify(folder) if check.verdict == "FAILED"] == []


def test_the_same_file_twice_changes_nothing_and_another_needs_replace(bring, tmp_path):
    folder, _ = bring(("r.pth", files.recogniser_content()))
    before = everything(folder)
    shutil.copy(tmp_path / "r.pth", tmp_path / "copy.pth")
    _, lines = import_files([read_public(tmp_path / "copy.pth")], str(folder))
    assert lines == ["copy.pth (IR-SE recogniser (ArcFace)): already in b as recogniser"]
    other = {
        name: value * 2 if value.is_floating_point() else value for name, value in files.recogniser_content().items()
    }
    refuse(r"has a recogniser already, r\.pth .*--replace", bring, other)
    assert everything(folder) == before
    bring(other, overwrite=True)
    assert Bundle(folder).entry("recogniser")["sha256"] not in str(before)


def test_other_resolutions_are_refused(bring):
    folder, _ = bring(files.recogniser_content())
    assert spec_of(folder)["image_size"] == 256
    bring(files.stylegan_content())
    assert spec_of(folder)["image_size"] == 32
    refuse("is for 16 px, but b is for 32 px", bring, {"d": files.discriminator(16).state_dict()})


def test_nvidias_pickle_is_one_of_them(tmp_path):
    generator, judge = nvidia_files.generator(), nvidia_files.discriminator()
    content = {"D": nvidia_files.module(judge, "Discriminator"), "G_ema": nvidia_files.module(generator)}
    path = nvidia_files.write(tmp_path / "network.pkl", content)
    folder, lines = import_files([read_public(path)], str(tmp_path / "b"))
    bundle = Bundle(folder)
    assert torch.equal(bundle.generator().input.input[0], generator["synthesis.b4.const"])
    assert bundle.discriminator().size == bundle.image_size == 16
    rows = load_tensors(folder / bundle.entry("generator")["latent_avg"])["latent_avg"]
    assert torch.equal(rows, generator["mapping.w_avg"].expand_as(rows))
    assert not any("estimated" in line for line in lines)


def test_what_faceanon_exports_comes_back(tmp_path):
    shipped = random_bundle(64)
    assert cli.main(["export", "--layout", "public", "--model", str(shipped), str(tmp_path / "out")]) == 0
    paths = sorted((tmp_path / "out").glob("*.pt"))
    folder, _ = import_files([read_public(path) for path in paths], str(tmp_path / "b"))
    ours, back = Bundle(shipped), Bundle(folder)
    for role in ("generator", "encoder"):
        state = back.build(role).state_dict()
        for name, value in ours.build(role).state_dict().items():
            assert torch.equal(state[name], value), name
    assert torch.equal(back.latent_avg, ours.latent_avg)


def test_dbafs_files_are_kept_together(bring):
    folder, _ = bring(*files.dbaf_contents().items())
    spec = spec_of(folder)
    assert set(spec["networks"]) == {"dbaf_decoder"}
    assert set(spec["parts"]) == {"dbaf_disentanglement", "dbaf_attributes", "dbaf_mapper"}
    bring(files.encoder_content())  # with the generator that its decoder was tuned from
    assert set(spec_of(folder)["networks"]) == {"dbaf_decoder", "generator", "encoder"}
    assert sum("for faceanon weights method" in check.text for check in verify(folder)) == 3


def test_facenet_files_are_judges(bring):
    folder, _ = bring(files.facenet_content(8631))
    entry = Bundle(folder).entry("judge")
    assert (entry["name"], entry["source"]["catalog"]) == ("facenet_vggface2", "facenet_vggface2")
    assert entry["init"] == {"input_scale": 127.5 / 128}
    assert not entry["source"]["published"]


def test_a_pack_is_copied_and_checked(tmp_path):
    source = tmp_path / "det_10g.onnx"
    source.write_bytes(files.onnx_bytes())
    folder, _ = import_files([read_public(source)], str(tmp_path / "b"))
    (copied,) = folder.glob("det_10g-*/det_10g.onnx")
    assert copied.read_bytes() == files.onnx_bytes()
    assert [check.verdict for check in verify(folder)] == ["ok"]
    assert import_files([read_public(source)], str(folder))[1] == ["det_10g.onnx: already in b"]
    copied.write_bytes(b"changed")
    assert [check.verdict for check in verify(folder)] == ["FAILED"]
    source.write_bytes(files.onnx_bytes(b"another"))
    refuse("another pack det_10g", import_files, [read_public(source)], str(folder))
    import_files([read_public(source)], str(folder), overwrite=True)
    assert [check.verdict for check in verify(folder)] == ["ok"]
    assert not copied.parent.exists()


def test_a_recogniser_of_a_pack_judges_where_nobody_does(bring, tmp_path):
    (tmp_path / "w600k_r50.onnx").write_bytes(files.onnx_bytes())
    pack = read_public(tmp_path / "w600k_r50.onnx")
    folder, _ = import_files([pack], str(tmp_path / "b"))
    entry = Bundle(folder).entry("judge")
    assert entry["name"] == "insightface_w600k_r50"
    assert entry["sha256"] == hashlib.sha256((folder / entry["file"]).read_bytes()).hexdigest()
    folder, _ = bring(files.facenet_content(10575), bundle="c")
    import_files([pack], str(folder))
    assert Bundle(folder).judge_name == "facenet_casia"


def test_the_card_names_source_hash_and_licence(bring, tmp_path):
    folder, _ = bring(("model_ir_se50.pth", files.recogniser_content()))
    text = (folder / "README.md").read_text()
    digest = hashlib.sha256((tmp_path / "model_ir_se50.pth").read_bytes()).hexdigest()
    known = published("ir_se_recogniser")
    assert f"`{digest}` | {known.licence} | no |" in text
    assert "not the published model_ir_se50.pth: its sha256 differs" in text
    (folder / "README.md").write_text("# mine\n\nMy words.\n")
    bring(files.bisenet_content())
    text = (folder / "README.md").read_text()
    assert text.startswith("# mine\n\nMy words.\n")
    assert text.count("model_ir_se50.pth") == 2
    assert text.count("BiSeNet face parser") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError("disk full")])
@pytest.mark.parametrize("extend", [False, True])
@pytest.mark.parametrize("when", ["save", "commit"])
def test_an_interrupt_leaves_what_was_there(bring, tmp_path, monkeypatch, error, extend, when):
    if extend:
        bring(files.recogniser_content())
    before = everything(tmp_path / "b") if extend else None
    calls = []

    def fail(path, *args):
        calls.append(path)
        if (when == "save" and len(calls) == 3) or (when == "commit" and path.name == "bundle.yaml"):
            raise error
        return original(path, *args)

    module, name = (entries, "save_tensors") if when == "save" else (importing, "write_atomic")
    original = getattr(module, name)
    monkeypatch.setattr(module, name, fail)
    with pytest.raises((KeyboardInterrupt, UserError)):
        bring(files.encoder_content())
    assert calls
    assert (everything(tmp_path / "b") if extend else (tmp_path / "b").exists()) == (before or False)
    assert not list(tmp_path.glob(".*"))


def test_weights_that_are_not_finite_are_refused(bring):
    state = files.recogniser_content()
    state["output_layer.3.bias"] = torch.full((16,), float("nan"))
    refuse("output_layer.3.bias has values that are not finite", bring, state)


@pytest.mark.parametrize(
    ("key", "change", "match"),
    [
        ("output_layer.4.weight", None, "1 missing"),
        ("extra.weight", torch.zeros(1), "1 unexpected"),
        ("output_layer.4.weight", torch.zeros(3), "another shape"),
    ],
)
def test_loading_is_strict(bring, tmp_path, key, change, match):
    state = files.recogniser_content()
    state.pop(key, None)
    if change is not None:
        state[key] = change
    refuse(match, bring, state)
    assert not (tmp_path / "b").exists()


def test_bad_places_are_refused(bring, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    refuse("is no bundle", bring, files.recogniser_content(), bundle="full")
    refuse("no folder", bring, files.recogniser_content(), bundle="no/where")
    refuse("no name for a bundle", bring, files.recogniser_content(), bundle="a b")


def test_the_catalog_is_sound():
    ids = [entry.id for entry in catalog()]
    assert len(ids) == len(set(ids))
    assert {entry.commercial for entry in catalog()} <= {"yes", "no", "unclear"}
    for entry in catalog():
        assert entry.role
        assert entry.published.startswith("https://")
        assert entry.sha256 is None or len(entry.sha256) == 64
        assert published(entry.kind, entry.resolution, entry.variant) is entry
    assert by_sha256("0" * 64) is None
