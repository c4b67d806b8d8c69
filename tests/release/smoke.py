"""What an installed faceanon must be able to do, run from an empty folder: python smoke.py. Needs no test tools."""

import os
import subprocess
import sys
from pathlib import Path

PASSWORD = "a password that is long enough"


def faceanon(*words):
    """Run the installed command line; end with its words if it fails."""
    env = {**os.environ, "FACEANON_PASSWORD": PASSWORD}
    done = subprocess.run(
        [sys.executable, "-m", "faceanon", *map(str, words)], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"faceanon {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    """Version, help, methods, a photo there and back, and a training's configuration."""
    here = Path.cwd()
    if (here / "src").exists():
        sys.exit("run it outside the repository, so that the installed package is what is found")
    import faceanon as package

    home = Path(package.__file__).resolve().parent
    assert (home / "_data/configs/dbaf_s1.yaml").is_file(), f"{home} is no installed wheel"
    assert (home / "py.typed").is_file()
    assert faceanon("--version").strip() == package.__version__
    assert "anonymize" in faceanon("--help")
    assert "mirage" in faceanon("backbones")

    from faceanon.photo.party import photo_party

    photo_party().save("in.png")
    faceanon("anonymize", "in.png", "out.png", "--password-env", "FACEANON_PASSWORD")
    faceanon("recover", "out.png", "back.png", "--password-env", "FACEANON_PASSWORD")
    compare()
    assert "train_groups" in faceanon("fit", "--config", home / "_data/configs/dbaf_s1.yaml", "--print_config")
    print(f"faceanon {package.__version__}, Python {sys.version.split()[0]}: works")


def compare():
    """The anonymized photo differs from the original, and the recovered one less so."""
    import numpy as np
    from PIL import Image

    original, hidden, back = (np.asarray(Image.open(f"{n}.png").convert("RGB"), float) for n in ("in", "out", "back"))
    changed = (original != hidden).any(-1)
    assert 0.01 < changed.mean() < 0.9, "anonymize changed nothing, or everything"
    far, near = (np.square(original - other)[changed].mean() for other in (hidden, back))
    assert near < far / 2, f"recover brought nothing back: squared error {near:.0f}, anonymized {far:.0f}"


if __name__ == "__main__":
    main()
