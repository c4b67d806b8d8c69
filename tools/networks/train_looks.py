"""Train the network that reads sex, age and skin off latents.

    python tools/networks/train_looks.py OUT --root FOLDER ...

FOLDER holds aligned photographs of people who do not exist. The labels, `checkpoints/photo_seers/looks.csv` unless
--labels names others, have the columns file, sex, age and skin: sex 1 for a woman and -1 for a man, age in years, skin
from 1, very light, to 6, very dark. All but file may be empty. Most versions of a picture are in other light, a third
of them in the dark, so skin is not how bright a picture is. A third of what the network learns from shows the whole
picture, a third the face alone, a third what surrounds it: so it can also tell whether a painted face fits its
surroundings. OUT gets the weights (`looks.safetensors`, float16). Every eighth labelled picture is kept for the test,
and the test pictures that ship with the bundle. --examine FOLDER LABELS.csv tells how well the looks of other people
are read, as they are and in a quarter of their light; nothing learns from them.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchmetrics.functional import auroc, pearson_corrcoef

from faceanon.data.files import read_photo
from faceanon.data.photo_jitter import PhotoJitter
from faceanon.data.prepared import SHIPPED_TABLE, PreparedFaces
from faceanon.files import save_tensors
from faceanon.networks.identity_space import IdentitySpace
from faceanon.networks.looks import LooksNet
from faceanon.paths import checkpoints
from faceanon.persona.cells import drawn_lines
from faceanon.weights.bundle import Bundle

LABELS = "looks.csv"
EVERY = 8
# Light of every strength and colour, so that nothing is learnt from it.
LIGHT = PhotoJitter(gamma=0.4, balance=0.12, saturation=0.3, contrast=0.25, dark=0.35, small=0.15)
DIM = 0.25  # share of the light of the pictures that are examined in the dark
ROWS = 48
RATE = 1e-3
DECAY = 0.05
NOISE = 0.3  # most noise on latents, in their deviations
SMOOTH = 0.05  # of the labels of sex
AVERAGE = 0.995  # of the moving mean of the weights, which is what is kept
# Mean and spread of log(age + 3) in the first labels. The painter and the cast's weights know youth in these units.
AGE_MEAN = 3.09
AGE_SPREAD = 0.81


def labels_of(file: Path) -> dict[str, tuple[float, float, float]]:
    """Sex, logarithm of age and lightness of the skin by file name; NaN where unknown."""
    labels: dict[str, tuple[float, float, float]] = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            sex = float(row["sex"] or "nan")
            # A year more changes a child's face more than an old one's.
            age = math.log(float(row["age"] or "nan") + 3)
            labels[row["file"]] = (sex, age, -float(row["skin"] or "nan"))
    return labels


def shipped_tests(data: PreparedFaces) -> set[str]:
    """Names of the pictures that ship with the bundle for its test."""
    with (data.bundle.folder / SHIPPED_TABLE).open(encoding="utf-8", newline="") as lines:
        return {row["file"] for row in csv.DictReader(lines) if row["split"] == "test"}


def pictures(data: PreparedFaces, labels: dict[str, tuple[float, float, float]]) -> dict[str, Tensor]:
    """Latents, masks and labels of all versions of labelled pictures, and whether they are for the test."""
    data.prepare_data()
    latents: list[Tensor] = []
    masks: list[Tensor] = []
    found: list[tuple[float, float, float]] = []
    bright: list[Tensor] = []
    tested: list[bool] = []
    shipped = shipped_tests(data)
    for part, tensors in data.portions():
        for number, photo in enumerate(part):
            if photo.path.name not in labels:
                continue
            rows = (tensors["picture"] == number).nonzero()[:, 0]
            if len(rows) == 0:
                continue
            some = tensors["latents"][rows].float()
            latents.append(some)
            image = tensors["image"][rows].float() / 127.5 - 1
            mask = torch.from_numpy(drawn_lines(tensors["mesh"][rows].float().numpy(), image.numpy())[1])
            masks.append(mask)
            logarithm = ((image + 1) * 127.5 + 8).log().mean(1, keepdim=True)
            cells = F.avg_pool2d(logarithm, image.shape[-1] // some.shape[-1])
            bright.append((cells * mask).sum((1, 2, 3)) / mask.sum((1, 2, 3)))
            found += [labels[photo.path.name]] * len(rows)
            tested += [len(latents) % EVERY == 0 or photo.path.name in shipped] * len(rows)
    sex, age, skin = torch.tensor(found).T
    return {
        "latents": torch.cat(latents),
        "masks": torch.cat(masks),
        "sex": sex,
        "age": age,
        "skin": skin,
        "bright": torch.cat(bright),
        "tested": torch.tensor(tested),
    }


def parts_of(latents: Tensor, masks: Tensor, kinds: Tensor) -> Tensor:
    """Whole pictures where the kind is 0, faces alone where it is 1, surroundings alone where it is 2."""
    kind = kinds[:, None, None, None]
    shown = torch.where(kind == 1, masks, 1 - masks)
    return latents * torch.where(kind == 0, torch.ones_like(masks), shown)


def report(net: LooksNet, found: dict[str, Tensor], rows: Tensor, step: int) -> None:
    """Print how well the looks of some rows are told, from all and from each part."""
    net.eval()
    texts = []
    for kind, name in enumerate(("whole", "face", "surroundings")):
        kinds = torch.full((len(rows),), kind)
        with torch.no_grad():
            looks = net(parts_of(found["latents"][rows], found["masks"][rows], kinds))
        texts.append(f"{name}: {told(looks, found, rows)}")
    print(f"batch {step}: {'; '.join(texts)}", flush=True)
    net.train()


def told(looks: Tensor, found: dict[str, Tensor], rows: Tensor) -> str:
    """How well looks `(R, 3)` that were read tell those of R rows."""
    sexed = ~found["sex"][rows].isnan()
    auc = auroc(looks[sexed, 0].sigmoid(), (found["sex"][rows][sexed] > 0).long(), "binary")
    aged = ~found["age"][rows].isnan()
    along = -pearson_corrcoef(looks[aged, 1], found["age"][rows][aged])
    toned = ~found["skin"][rows].isnan()
    tone = pearson_corrcoef(looks[toned, 2], found["skin"][rows][toned])
    return f"sex AUC {_number(auc):.3f}, age {float(along):.2f}, skin {float(tone):.2f}"


def _number(figure: Tensor | None) -> float:
    """A figure as a number; torchmetrics says that it may have none, which is so for more than two classes alone."""
    assert figure is not None
    return float(figure)


def report_by_light(net: LooksNet, found: dict[str, Tensor], rows: Tensor) -> None:
    """Print how well looks are told in the darkest third of some rows and in the others, and skin by brightness."""
    net.eval()
    bright = found["bright"][rows]
    order = bright.argsort()
    third = len(rows) // 3
    for name, some in (("darkest third", order[:third]), ("the others", order[third:]), ("all", order)):
        with torch.no_grad():
            looks = net(found["latents"][rows[some]])
        toned = ~found["skin"][rows[some]].isnan()
        plain = pearson_corrcoef(bright[some][toned], found["skin"][rows[some]][toned])
        print(f"{name}: {told(looks, found, rows[some])} (told by brightness: {float(plain):.2f})")


def examine(net: LooksNet, bundle: Bundle, folder: Path, file: Path) -> None:
    """Print AUCs of sex and correlations of skin on pictures `folder / name` of people with labels."""
    net.eval()
    space = bundle.build("identity_space")
    assert isinstance(space, IdentitySpace)
    labels = labels_of(file)
    sex, _, skin = torch.tensor(list(labels.values())).T
    sexed = ~sex.isnan()
    toned = ~skin.isnan()
    for light in (1.0, DIM):
        read: list[Tensor] = []
        embedded: list[Tensor] = []
        for name in labels:
            pixels = torch.from_numpy((read_photo(folder / name, bundle.image_size)[0] * light).round())
            image = pixels.permute(2, 0, 1)[None].float() / 127.5 - 1
            with torch.no_grad():
                read.append(net(bundle.codec.encode(image).float()))
                embedded.append(space.kept(space.code(bundle.recogniser(image))))
        for name, looks in (("network", torch.cat(read)), ("embedding", torch.cat(embedded))):
            auc = auroc(looks[sexed, 0].sigmoid(), (sex[sexed] > 0).long(), "binary")
            tone = pearson_corrcoef(looks[toned, 2], skin[toned])
            print(
                f"{light:.0%} of the light, {name}: sex AUC {_number(auc):.3f} on {int(sexed.sum())} pictures, "
                f"skin {float(tone):.2f} on {int(toned.sum())}"
            )


def standard(values: Tensor) -> Tensor:
    """Values with mean 0 and variance 1; NaN stays."""
    known = values[~values.isnan()]
    return (values - known.mean()) / known.std()


def main() -> None:
    """Prepare, train, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--labels", type=Path, help="CSV of looks (checkpoints/photo_seers/looks.csv)")
    parser.add_argument("--root", nargs="+", required=True, help="folders of aligned photographs")
    parser.add_argument("--cache", default="runs/prepared", help="where prepared pictures are kept (runs/prepared)")
    parser.add_argument("--versions", type=int, default=6, help="versions of every picture (6)")
    parser.add_argument("--batches", type=int, default=1200)
    parser.add_argument("--examine", nargs=2, type=Path, metavar=("FOLDER", "LABELS"), help="other people to read")
    options = parser.parse_args()
    data = PreparedFaces(
        root=options.root,
        cache=options.cache,
        versions=options.versions,
        val_fraction=0,
        test_fraction=0,
        jitter=LIGHT,
    )
    found = pictures(data, labels_of(options.labels or checkpoints() / "photo_seers" / LABELS))
    young = (AGE_MEAN - found["age"]) / AGE_SPREAD
    light = standard(found["skin"])
    test = found["tested"].nonzero()[:, 0]
    train = (~found["tested"]).nonzero()[:, 0]
    print(f"{len(train)} versions to learn from, {len(test)} to test")
    torch.manual_seed(0)
    net = LooksNet()
    mean = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(AVERAGE))  # type: ignore[no-untyped-call]
    kept = mean.module
    assert isinstance(kept, LooksNet)
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    for step in range(1, options.batches + 1):
        rows = train[torch.randint(len(train), (ROWS,))]
        kinds = torch.randint(3, (ROWS,))
        shown = parts_of(found["latents"][rows], found["masks"][rows], kinds)
        spread = NOISE * torch.rand(ROWS, 1, 1, 1)
        looks = net(shown + spread * torch.randn_like(shown))
        sex = found["sex"][rows]
        sexed = ~sex.isnan()
        wanted = (sex[sexed] > 0).float() * (1 - 2 * SMOOTH) + SMOOTH
        # Twice the number is the logit: then certain people lie at about 1 and -1, as labels do.
        loss = F.binary_cross_entropy_with_logits(2 * looks[sexed, 0], wanted)
        aged = ~young[rows].isnan()
        if aged.any():
            loss = loss + F.smooth_l1_loss(looks[aged, 1], young[rows][aged])
        # Without the face little skin is seen, and a guess would be the mean.
        toned = ~light[rows].isnan() & (kinds < 2)
        if toned.any():
            loss = loss + F.smooth_l1_loss(looks[toned, 2], light[rows][toned])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        mean.update_parameters(net)
        if step % 200 == 0:
            report(kept, found, test, step)
    report_by_light(kept, found, test)
    options.out.mkdir(parents=True, exist_ok=True)
    halved = {name: value.half() for name, value in kept.state_dict().items()}
    print(options.out / "looks.safetensors", save_tensors(options.out / "looks.safetensors", halved))
    if options.examine:
        examine(kept, data.bundle, *options.examine)


if __name__ == "__main__":
    main()
