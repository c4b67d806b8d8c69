"""What a bundle says of the numbers that hold light and skin is checked when it is read."""

import shutil

import pytest
import yaml

from faceanon.errors import UserError
from faceanon.weights.bundle import Bundle


@pytest.mark.parametrize("said", ["twenty", -1, 2.5, True])
def test_a_wrong_number_is_one_line_that_names_the_file(tiny_bundle, tmp_path, said):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    spec = yaml.safe_load((folder / "bundle.yaml").read_text())
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec | {"steady_numbers": said}))
    with pytest.raises(UserError, match=r"bundle\.yaml: steady_numbers is .*: give 0 or more"):
        _ = Bundle(folder).steady_numbers
