import torch
import yaml

import wild_files as files
from faceanon.files import load_tensors
from faceanon.interop.verify import verify
from faceanon.metrics.reconstruction import Reconstruction, reconstruction, sample_faces
from faceanon.weights.bundle import Bundle
from faceanon.weights.pairing import generator_fingerprint
from wild_files import everything, refuse


def test_the_same_generator_by_itself_and_as_decoder_is_one(bring):
    decoder = files.generator().state_dict()
    noisy = {name: value + 1 if "noises." in name else value for name, value in decoder.items()}
    folder, _ = bring(files.encoder_content(decoder=noisy), files.stylegan_content("noiseless"))
    assert Bundle(folder).spec["networks"]["generator"]["source"]["file"] == "file1.pt"
    average = load_tensors(folder / Bundle(folder).entry("generator")["latent_avg"])["latent_avg"]
    assert torch.equal(average, torch.full((8, 8), 0.5))  # the encoder's file knew it


def test_an_encoder_beside_another_generator_is_refused_with_both_named(bring, tmp_path):
    names = r"e4e\.pt \(e4e encoder\) goes with generator [0-9a-f]{12}.*other\.pt \(StyleGAN2 generator\) is generator"
    e4e, other = ("e4e.pt", files.encoder_content()), ("other.pt", files.stylegan_content("bare", seed=1))
    refuse(names, bring, e4e, other)
    refuse(names, bring, other, e4e)
    assert not (tmp_path / "b").exists()


def test_extending_with_an_encoder_of_another_generator_is_refused(bring):
    folder, _ = bring(("one.pt", files.stylegan_content("bare", seed=1)))
    before = everything(folder)
    refuse(
        r"e4e\.pt \(e4e encoder\) goes with.*one\.pt \(stylegan2_generator\) in b",
        bring,
        ("e4e.pt", files.encoder_content()),
    )
    assert everything(folder) == before
    bring(files.encoder_content(seed=1))
    assert Bundle(folder).has("encoder")


def test_replacing_a_generator_under_an_encoder_is_refused(bring):
    folder, _ = bring(files.encoder_content())
    before = everything(folder)
    other = files.stylegan_content("bare", seed=1)
    refuse("goes with generator|is generator", bring, other)
    refuse("was trained with generator", bring, other, overwrite=True)
    assert everything(folder) == before
    bring(files.encoder_content(seed=1), overwrite=True)
    assert torch.equal(Bundle(folder).generator().input.input, files.generator(1).input.input)
    named = str(Bundle(folder).spec["networks"])
    assert all(name in named for name in everything(folder) if name.endswith("safetensors"))  # nothing is left over


def test_the_fingerprint_knows_weights_and_nothing_else(tmp_path):
    state = files.generator().state_dict()
    print_ = generator_fingerprint(state)
    assert generator_fingerprint(files.without(state, "noises.", ".kernel")) == print_
    assert generator_fingerprint(files.generator(1).state_dict()) != print_
    for name in ("style.1.bias", "convs.0.noise.weight"):
        changed = {**state, name: state[name] + 1e-3}
        assert generator_fingerprint(changed) != print_


def test_verify_sees_a_wrong_pairing_whatever_the_names_say(repo, tmp_path, monkeypatch):
    """The shipped bundle is right; whose faces come back worse than an average face is told, whatever the names say."""
    right = reconstruction(Bundle(repo / "checkpoints/photo128_prior"), sample_faces(None, 128))
    assert right.doubt is None
    assert right.psnr > right.psnr_average + 3
    assert right.identity > right.identity_others + 0.2
    folder = tmp_path / "wrong"
    folder.mkdir()
    # The bundle names files of its neighbours.
    for neighbour in ("photo128", "photo128_mesh", "photo_seers"):
        (tmp_path / neighbour).symlink_to(repo / "checkpoints" / neighbour)
    for path in (repo / "checkpoints/photo128_prior").iterdir():
        (folder / path.name).symlink_to(path)
    spec = Bundle(folder).spec
    (folder / "bundle.yaml").unlink()
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec))
    # As of an encoder that belongs to another generator.
    monkeypatch.setattr("faceanon.interop.verify.reconstruction", lambda *given: Reconstruction(8, 15.0, 18.0))
    checks = list(verify(folder))
    assert [check.text for check in checks if check.verdict == "FAILED"] == []
    assert any("looks wrong in fact" in check.text for check in checks if check.verdict == "warning")
    spec["networks"]["encoder"]["generator"] = "0" * 64
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec))
    assert any("pairing" in check.text for check in verify(folder) if check.verdict == "FAILED")


def test_verify_sees_changed_files(bring):
    folder, _ = bring(files.encoder_content())
    path = folder / Bundle(folder).entry("encoder")["file"]
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    failed = [check.text for check in verify(folder) if check.verdict == "FAILED"]
    assert len(failed) == 1
    assert "encoder" in failed[0]
    assert "sha256 differs" in failed[0]
