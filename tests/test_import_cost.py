"""What starting up loads. Identities rather than seconds: what is not imported costs nothing on any machine."""

import json
import subprocess
import sys

import pytest

from faceanon import cli
from faceanon.commands.report import REPORTS

HEAVY = {"torch", "torchvision", "lightning", "numpy", "PIL", "gradio", "onnxruntime", "matplotlib", "scipy", "rich"}
SHOW = "import sys, json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"


def loaded(code):
    """Top-level names of the modules that a fresh interpreter holds after `code`."""
    run = subprocess.run([sys.executable, "-c", f"{code}\n{SHOW}"], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in json.loads(run.stderr.splitlines()[-1])}


@pytest.fixture(scope="module")
def bare():
    return loaded("pass")


@pytest.mark.parametrize(
    "code",
    [
        "import faceanon",
        "import faceanon; faceanon.__version__",
        "from faceanon.__main__ import main; assert main(['--help']) == 0",
        "from faceanon.__main__ import main; assert main(['--version']) == 0",
        "from faceanon.__main__ import main; assert main(['no-such-command']) == 2",
    ],
)
def test_starting_up_loads_the_standard_library_and_us_alone(code, bare):
    # what the interpreter itself loads, such as the hooks of an editable install, is not ours
    foreign = loaded(code) - bare - set(sys.stdlib_module_names) - {"faceanon", "__main__"}
    assert foreign == set()


def help_of(command):
    words = [*command.split(), "--help"]
    return f"from faceanon import cli\ntry: cli.main({words})\nexcept SystemExit: pass"


@pytest.mark.parametrize("command", [*sorted(cli.COMMANDS), *(f"report {name}" for name in REPORTS)])
def test_the_help_of_a_command_loads_no_network_library(command):
    allowed = {"rich"}  # progress bars
    assert not loaded(help_of(command)) & (HEAVY - allowed)


def test_the_check_sees_what_is_loaded(bare):
    assert "numpy" in loaded("import numpy")
    assert not bare & HEAVY
    assert {"numpy", "PIL"} <= loaded("import faceanon; faceanon.Pipeline")
    assert "torch" in loaded("from faceanon.backbones.base import Backbone")
