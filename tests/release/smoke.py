"""What an installed faceanon must be able to do, run from an empty folder: python smoke.py. Needs no test tools."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

PASSWORD = "a password that is long enough"
FRAMES = 4  # of the clip


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
    """Version, help, methods; a photo, a folder and a clip there and back; a training's configuration."""
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
    there_and_back("in.png", "out.png", "back.png")
    compare(*(pixels_of(name) for name in ("in.png", "out.png", "back.png")))
    folder()
    if importlib.util.find_spec("av") and importlib.util.find_spec("torch"):
        clip()
    assert "train_batches" in faceanon("fit", "--config", home / "_data/configs/dbaf_s1.yaml", "--print_config")
    print(f"faceanon {package.__version__}, Python {sys.version.split()[0]}: works")


def there_and_back(original, hidden, back):
    """Anonymize a photo, a folder or a clip, and recover it."""
    faceanon("anonymize", original, hidden, "--password-env", "FACEANON_PASSWORD")
    faceanon("recover", hidden, back, "--password-env", "FACEANON_PASSWORD")


def folder():
    """Two photos at once."""
    for number in range(2):
        target = Path("photos", f"{number}.png")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(Path("in.png").read_bytes())
    there_and_back("photos", "hidden", "brought-back")
    for number in range(2):
        compare(*(pixels_of(Path(place, f"{number}.png")) for place in ("photos", "hidden", "brought-back")))


def clip():
    """A few frames of a photo that stands still."""
    import av
    from PIL import Image

    with Image.open("in.png") as photo, av.open("in.mp4", "w") as out:
        stream = out.add_stream("libx264", rate=25, options={"crf": "12"})
        # The encoder takes even sides only.
        stream.width, stream.height = (side // 2 * 2 for side in photo.size)
        stream.pix_fmt = "yuv420p"
        for _ in range(FRAMES):
            out.mux(
                stream.encode(av.VideoFrame.from_image(photo.convert("RGB").crop((0, 0, stream.width, stream.height))))
            )
        out.mux(stream.encode(None))
    there_and_back("in.mp4", "out.mp4", "back.mp4")
    # Compression changes every pixel a little; a face changes its own by far more.
    compare(*(frame_of(name) for name in ("in.mp4", "out.mp4", "back.mp4")), least=12)


def pixels_of(path):
    """A picture as `(H, W, 3)` floats."""
    import numpy as np
    from PIL import Image

    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"), float)


def frame_of(path):
    """The middle frame of a clip, likewise."""
    import av
    import numpy as np

    with av.open(path) as video:
        frames = list(video.decode(video=0))
    assert len(frames) == FRAMES, f"{path} has {len(frames)} frames"
    return np.asarray(frames[FRAMES // 2].to_ndarray(format="rgb24"), float)


def compare(original, hidden, back, least=0):
    """The anonymized picture differs from the original, and the recovered one less so.

    Args:
        original: `(H, W, 3)`.
        hidden: The same, anonymized.
        back: The same, recovered.
        least: Difference from which a pixel counts as changed.
    """
    import numpy as np

    changed = (np.abs(original - hidden) > least).any(-1)
    assert 0.01 < changed.mean() < 0.9, "anonymize changed nothing, or everything"
    far, near = (np.square(original - other)[changed].mean() for other in (hidden, back))
    assert near < far / 2, f"recover brought nothing back: squared error {near:.0f}, anonymized {far:.0f}"


if __name__ == "__main__":
    main()
