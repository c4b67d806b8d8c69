"""Results of made-up methods, for the tests of the leaderboard."""

from functools import cache

import torch

from faceanon.metrics.protocol import load_protocol
from faceanon.report.sheets import png_bytes, sheet
from faceanon.results import Results, dumps

JUDGE = "dlib_resnet"
PROTOCOL = load_protocol("photo128-v1")
STAMP = {"name": "photo128", "version": 1, "sha256": PROTOCOL.digest, "deviations": [], "pictures_sha256": "ab" * 32}


def results(deid=0.02, recovered=1.0, kid=0.002, meta=None, warnings=(), **figures):
    found = {
        f"deid_rate/{JUDGE}": deid,
        f"deid_rate_gallery/{JUDGE}": deid / 2,
        "kid": kid,
        "landmark_distance/anonymized": 1 + 10 * kid,
        f"key_similarity/{JUDGE}": 0.03,
    }
    found |= {} if recovered is None else {f"recovery_rate/{JUDGE}/file": recovered}
    ci = {f"deid_rate/{JUDGE}": (max(deid - 0.01, 0), deid + 0.01)}
    stamped = {"judge": JUDGE, "white_box": ["irse"], "bundle": "photo128", "images": 400, "people": 200}
    stamped |= {"weights": {"judge": "12" * 32, "parser": "34" * 32}, "protocol": STAMP, "command": "faceanon test"}
    return Results(found | figures, ci, stamped | (meta or {}), list(warnings))


@cache
def faces(seed=0):
    rows = {name: torch.full((8, 3, 64, 64), 0.1 * seed + shade) for name, shade in (("original", 0), ("changed", 0.5))}
    return png_bytes(sheet(rows))


def put(folder, found, samples=False):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_bytes(dumps(found))
    if samples:
        (folder / "samples.png").write_bytes(faces())
    return folder


def make_board(root):
    """Five methods: one with two seeds, one that cheats, one without a way back."""
    put(root / "keyed/report", results(0.025, 1.0, 0.002), samples=True)
    put(root / "riddle/seed0/report", results(0.04, 0.5, 0.02))
    put(root / "riddle/seed1/report", results(0.06, 0.7, 0.04))
    put(root / "blur", results(0.0, None, 0.5, warnings=["blur <b>passes</b> for anonymity"]))
    put(root / "falco", results(0.10, None, 0.04))
    put(root / "a-method-with-a-very-long-name-that-does-not-fit-on-any-phone", results(0.2, 0.99, 0.001))
    return root
