"""`base` and `about` in the files of a training."""

import pytest
import yaml

from faceanon.training.config_files import load_config

BLUR = "class_path: faceanon.backbones.classical.Blur\ninit_args: {bundle: photo128, sigma: 0.06, region: [1, 2]}\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Files are named relative to the folder of the config, where the parser stands when it reads one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blur.yaml").write_text("about: A preset.\n" + BLUR)
    return tmp_path


def test_a_base_is_the_class_of_its_file_with_some_arguments_of_its_own():
    found = load_config("data: {base: blur.yaml, init_args: {sigma: 0.1, region: [3]}}\nmodel: {}\n")
    arguments = {"bundle": "photo128", "sigma": 0.1, "region": [3]}
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


def test_what_a_preset_is_about_is_no_setting():
    assert "about" not in load_config("about: A preset.\n" + BLUR)
    # What merely holds such a name is somebody's own.
    own = {"init_args": {"about": 1}}
    assert load_config(yaml.safe_dump(own)) == own
