"""The papers' experiment from public files to a filled table, on narrow networks in the public layouts."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image

import wild_files as files
from faceanon import cli
from faceanon.data.files import read_photos
from faceanon.data.prepared import shipped_photos
from faceanon.metrics.protocol import folder, load_protocol
from faceanon.networks.adaface import AdaFace
from faceanon.networks.discriminator import Discriminator
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.inception import InceptionV3
from faceanon.networks.irse import IRSE
from faceanon.networks.psp import GradualStyleEncoder
from faceanon.networks.stylegan2 import Generator
from faceanon.studies.tables import full_scale
from faceanon.studies.tables.spec import load_table
from public_files import encoder_content, lively, mean_latent, stylegan2_content

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
DIM = 32
# Below 16 channels torch 2.15 on a CPU crashes in the backward pass of a convolution in channels_last memory.
TRUNK = {"widths": (16, 16, 32, 48, 64), "units": (3, 4, 14, 3)}
SHORT = {
    "model": {"init_args": {"samples_every": 0}},
    "data": {"init_args": {"batch_size": 2, "workers": 0}},
    "trainer": {
        "max_epochs": 1,
        "limit_train_batches": 2,
        "limit_val_batches": 1,
        "callbacks": None,
        "enable_progress_bar": False,
    },
}


def write_public(place, side, encoder):
    """Public files of a tenth of the width, with random weights; their paths."""
    place.mkdir()
    sides = [4 << step for step in range(side.bit_length() - 2)]
    channels = {size: 16 if size < 256 else 4 for size in sides}
    generator = lively(files.seeded(lambda: Generator(side, DIM, 8, channels=channels)), 0)
    discriminator = files.seeded(lambda: Discriminator(side, channels=channels))
    kinds = {"Encoder4Editing": Encoder4Editing, "GradualStyleEncoder": GradualStyleEncoder}
    net = files.seeded(lambda: kinds[encoder](side, DIM, 256, **TRUNK))
    average = mean_latent(generator)
    opts = {"encoder_type": encoder, "start_from_latent_avg": True}
    adaface = files.prefixed(files.seeded(lambda: AdaFace(**TRUNK, embedding=32)).state_dict(), "model.")
    contents = {
        "stylegan2.pt": stylegan2_content(generator.state_dict(), average, discriminator.state_dict()),
        "encoder.pt": encoder_content(net.state_dict(), generator.state_dict(), average, opts),
        "model_ir_se50.pth": files.seeded(lambda: IRSE(112, **TRUNK, embedding=32)).state_dict(),
        "casia.pt": files.facenet_content(10575),
        "79999_iter.pth": files.bisenet_content(),
        "alexnet.pth": files.imagenet_content("alexnet"),
        "landmarks.pth.tar": files.landmarks_content(),
        "inception.pth": files.seeded(InceptionV3).state_dict(),
        "adaface.ckpt": {"state_dict": adaface},
    }
    for name, content in contents.items():
        torch.save(content, place / name)
    return [str(place / name) for name in contents]


def write_photos(place, count, side):
    """Unnamed pictures in one folder, as FFHQ and CelebA-HQ come."""
    place.mkdir()
    for number, pixels in enumerate(read_photos([photo.path for photo in shipped_photos("train")[:count]], side)):
        Image.fromarray(pixels).save(place / f"{number:05}.png")
    return place


def own_protocol(place, name, side):
    """The paper's protocol for pictures of another side, with two keys instead of fifty, and no detectors."""
    written = yaml.safe_load((folder() / f"{name}.yaml").read_text())
    written["pictures"]["image_size"] = side
    written |= {"kffa_keys": 0, "detectors": []}
    path = place / f"{name}-{side}.yaml"
    path.write_text(yaml.safe_dump(written))
    return str(path)


@pytest.mark.slow
@pytest.mark.timeout(900)  # under four minutes for all, much longer on a busy machine
@pytest.mark.parametrize(
    ("table", "side", "encoder", "processes"),
    [
        ("dbaf-2", 256, "Encoder4Editing", 1),
        ("ifadit-1", 256, "GradualStyleEncoder", 2),
        ("dbaf-2", 1024, "Encoder4Editing", 1),
    ],
)
def test_from_public_files_to_a_filled_table(table, side, encoder, processes, tmp_path, capfd):
    bundle = str(tmp_path / "bundle")
    assert cli.main(["weights", "import", *write_public(tmp_path / "public", side, encoder), "--as", bundle]) == 0
    shutil.rmtree(tmp_path / "public")
    photos = write_photos(tmp_path / "ffhq", 6, side)
    tested = write_photos(tmp_path / "celebahq", 4, side)
    assert cli.main(["weights", "verify", bundle, "--faces", str(photos)]) == 0
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(SHORT))
    words = ["report", "tables", table, "--train", photos, "--data", tested, "--bundle", bundle, "--limit", "4"]
    words += ["--out", tmp_path / "out", "--config", tmp_path / "short.yaml"]
    (tmp_path / "side.yaml").write_text(yaml.safe_dump({"data": {"init_args": {"image_size": side}}}))
    words.append(tmp_path / "side.yaml")
    if processes == 2:
        words.append(CONFIGS / "trainer/ddp_cpu.yaml")
    if side != 256 or table != "dbaf-2":
        words += ["--protocol", own_protocol(tmp_path, load_table(table).protocol, side)]
    assert cli.main(list(map(str, words))) == 0
    method = table.split("-")[0]
    for stage in ("s1", "s2"):
        assert (tmp_path / "out/models" / method / stage / "model/model.yaml").is_file()
    content = json.loads((tmp_path / f"out/{table}.json").read_text())
    (lines,) = [row["lines"] for row in content["blocks"][0]["rows"] if row["title"].lower() == method]
    printed, ours = lines[0], lines[-1]
    assert printed["kind"] == "published"
    wanted = {
        "dbaf-2": {"mse/anonymized/file", "psnr/anonymized/file", "lpips/anonymized/file", "fid"},
        "ifadit-1": {f"id_{what}/{net}/anonymized" for what in ("cos", "l1") for net in ("ir_se50", "adaface_ir50")},
    }
    assert wanted[table] <= set(ours["figures"])
    assert all(value == value for value in ours["figures"].values())
    assert "stands in" not in " ".join(content["notes"])
    # Nobody is named, and nobody has to be.
    assert "people instead of" not in " ".join(content["facts"])
    shutil.rmtree(tmp_path / "bundle")


def test_a_table_is_trained_once_and_an_ablation_shares_what_it_does_not_change(monkeypatch, tmp_path):
    fitted = []

    def fit(training, photos, bundle, further, place, start):
        fitted.append((str(training), place.relative_to(tmp_path).as_posix(), start and start.relative_to(tmp_path)))
        (place / "model").mkdir(parents=True)
        (place / "model" / full_scale.CARD).touch()

    monkeypatch.setattr(full_scale, "_fit", fit)
    methods = full_scale.train(load_table("ifadit-5"), tmp_path, "ffhq256", [], tmp_path)
    places = [place for _, place, _ in fitted]
    assert places == [
        "ifadit/s1", "ifadit_no_diversity/s2", "ifadit_no_image/s2", "ifadit_no_icl/s2", "ifadit_single_phase/s2",
        "ifadit/s2",
    ]  # fmt: skip
    assert fitted[1][2] == Path("ifadit/s1/model")
    assert fitted[4][2] is None
    assert methods[-1] == f"ifadit={tmp_path / 'ifadit/s2/model'}"
    assert full_scale.train(load_table("ifadit-5"), tmp_path, "ffhq256", [], tmp_path) == methods
    assert len(fitted) == len(places)


def test_every_paper_has_its_protocol():
    for name in ("dbaf-1", "hford-2", "ifadit-3"):
        assert load_protocol(load_table(name).protocol).pictures.image_size == 256
