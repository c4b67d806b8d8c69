"""The command line in a process that cannot import torch."""

import os
import subprocess
import sys

WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torchvision", "lightning"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else found(name, package)
"""
PROOF = (
    WITHOUT
    + """
from faceanon.cli import main
code = main(sys.argv[1:])
assert "torch" not in sys.modules
sys.exit(code)
"""
)


def without_torch(*words, password="a password that is long enough"):
    """The command line in a process that cannot import torch."""
    env = {**os.environ, "FACEANON_PASSWORD": password}
    env.pop("FACEANON_ENGINE", None)
    return subprocess.run(
        [sys.executable, "-c", PROOF, *map(str, words)], env=env, capture_output=True, text=True, check=False
    )
