"""`base`, `about` and `over` in the files of a training."""

import pytest
import yaml

from faceanon.errors import UserError
from faceanon.training.config_files import load_config, with_bases

BLUR = "class_path: faceanon.backbones.classical.Blur\ninit_args: {bundle: synth64, sigma: 0.06, region: [1, 2]}\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Files are named relative to the folder of the config, where the parser stands when it reads one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blur.yaml").write_text("about: A preset.\n" + BLUR)
    return tmp_path


def test_a_base_is_the_class_of_its_file_with_some_arguments_of_its_own():
    found = load_config("data: {base: blur.yaml, init_args: {sigma: 0.1, region: [3]}}\nmodel: {}\n")
    arguments = {"bundle": "synth64", "sigma": 0.1, "region": [3]}
    assert found["data"] == {"class_path": "faceanon.backbones.classical.Blur", "init_args": arguments}


def test_a_base_may_stand_anywhere_and_only_beside_arguments():
    found = load_config("model: {class_path: x.Y, init_args: {backbone: {base: blur.yaml, init_args: {sigma: 0.2}}}}")
    assert found["model"]["init_args"]["backbone"]["init_args"]["sigma"] == 0.2
    for text in ("{base: blur.yaml}", "{base: blur.yaml, other: 1, init_args: {}}", "{init_args: {base: blur.yaml}}"):
        assert load_config(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{base: nothing.yaml, init_args: {}}", "base: .*nothing.yaml"),
        ("{base: 3, init_args: {}}", "base: "),
        ("{base: [blur.yaml], init_args: {}}", "base: "),
        ("{base: list.yaml, init_args: {}}", "holds no class_path"),
        ("{base: nested.yaml, init_args: {}}", "holds no class_path"),
        ("{base: blur.yaml, init_args: [1]}", "must be entries"),
        ("{base: odd.yaml, init_args: {}}", "must be entries"),
        ("{base: broken.yaml, init_args: {}}", "."),
        ("{base: binary.yaml, init_args: {}}", "base: "),
    ],
)
def test_a_base_that_is_none_is_told(place, text, message):
    (place / "list.yaml").write_text("[1]")
    (place / "nested.yaml").write_text("{base: nested.yaml, init_args: {}}")
    (place / "odd.yaml").write_text("{class_path: x.Y, init_args: 3}")
    (place / "broken.yaml").write_text("{")
    (place / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(yaml.YAMLError, match=message):
        load_config(text)


def test_remarks_are_no_settings():
    assert "about" not in load_config("about: A preset.\n" + BLUR)
    assert load_config("{about: An ablation., over: [dbaf_s2], trainer: {max_epochs: 1}}") == {
        "trainer": {"max_epochs": 1}
    }
    # What merely holds such a name is somebody's own.
    own = {"init_args": {"about": 1, "over": 2}}
    assert load_config(yaml.safe_dump(own)) == own


def write_runs(place):
    """`top` lies over `middle` and `side`, and `middle` over `low`."""
    (place / "low").mkdir()
    (place / "low/low.yaml").write_text("trainer: {max_epochs: 1}\n")
    (place / "middle.yaml").write_text("base: [low/low.yaml]\ntrainer: {max_epochs: 2}\n")
    (place / "side.yaml").write_text("data: {class_path: x.Y}\n")
    (place / "top.yaml").write_text("base: [middle.yaml, side.yaml]\nname: top\n")


def test_a_run_is_laid_over_its_bases_in_their_order(place):
    write_runs(place)
    for given in (["--config", "top.yaml"], ["--config=top.yaml"]):
        words = with_bases(["fit", *given, "--name", "other"])
        files = [words[at + 1] for at, word in enumerate(words) if word == "--config"]
        assert files == ["low/low.yaml", "middle.yaml", "side.yaml", "top.yaml"]
        assert words[0] == "fit"
        assert words[-2:] == ["--name", "other"]
    # The list of bases is no setting of the run.
    assert load_config((place / "top.yaml").read_text()) == {"name": "top"}


def test_configs_without_a_base_and_words_without_a_config_stay_as_they_are(place):
    (place / "plain.yaml").write_text("trainer: {}\n")
    for words in (["fit", "--config", "plain.yaml"], ["fit", "--config", "missing.yaml"], ["fit", "--config"], ["fit"]):
        assert with_bases(words) == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: [round.yaml]\nname: a\n", "laid over itself"),
        ("base: round.yaml\nname: a\n", "base must be a list"),
        ("base: [1]\nname: a\n", "base must be a list"),
        ("base: [gone.yaml]\nname: a\n", "names gone.yaml, which is not there"),
    ],
)
def test_a_base_that_cannot_be_is_one_line(place, text, message):
    (place / "round.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        with_bases(["fit", "--config", "round.yaml"])
    assert "\n" not in str(caught.value)
