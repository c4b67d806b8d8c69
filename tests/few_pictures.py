"""photo128 with few of its pictures, so that they are soon prepared."""

import csv
import shutil

from faceanon.paths import checkpoints, data_root

SHIPPED = checkpoints() / "photo128"
FRAMED = checkpoints() / "photo128_mesh"


def shipping_few(folder):
    """Eight to train on, one to validate, two persons for the test."""
    wanted = {"train": 8, "val": 1, "test": 2}
    shutil.copytree(SHIPPED, folder, ignore=shutil.ignore_patterns("pictures*"))
    (folder / "pictures").mkdir()
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    rows = []
    for split, count in wanted.items():
        rows += [row for row in table if row["split"] == split][:count]
    for row in rows:
        shutil.copyfile(SHIPPED / "pictures" / row["file"], folder / "pictures" / row["file"])
    with (folder / "pictures.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def framing_few(folder):
    """photo128_mesh beside a photo128 of few pictures, both in `folder`."""
    shipping_few(folder / "photo128")
    return shutil.copytree(FRAMED, folder / "photo128_mesh")


def cloning_few(folder):
    """A clone whose photo128 has few pictures, for commands in processes of their own."""
    shutil.copytree(data_root() / "src", folder / "src")
    shutil.copyfile(data_root() / "pyproject.toml", folder / "pyproject.toml")
    shutil.copytree(data_root() / "configs", folder / "configs")
    shutil.copytree(checkpoints(), folder / "checkpoints", ignore=shutil.ignore_patterns("photo128"))
    shipping_few(folder / "checkpoints/photo128")
    return folder
