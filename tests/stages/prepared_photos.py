"""A few shipped photographs as training data, prepared once for a module's tests."""

import csv

from faceanon.paths import checkpoints

SHIPPED = checkpoints() / "photo128"


def few_photographs(folder, cache, bundle="photo128"):
    """Settings of `PreparedFaces` of eleven shipped pictures: eight for training in two versions, so 16 rows."""
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "train" and row["source"] == "faker"][:11]
    for row in rows:
        (folder / row["file"]).write_bytes((SHIPPED / "pictures" / row["file"]).read_bytes())
    return {
        "root": str(folder),
        "bundle": str(bundle),
        "cache": str(cache),
        "versions": 2,
        "val_fraction": 0.1,
        "test_fraction": 0.2,
        "batch_size": 4,
    }


def as_words(settings):
    """The same as words of the command, behind a config of prepared faces."""
    return [f"--data.init_args.{name}={value}" for name, value in settings.items()]
