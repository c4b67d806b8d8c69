"""Train the network that reads sex and age off latents: python examples/train_looks.py LABELS.csv OUT --root FOLDER ...

FOLDER holds aligned photographs of people who do not exist; LABELS.csv has the columns file, sex and age: sex 1 for a
woman and -1 for a man, age in years, either may be empty. A third of what it learns from shows the whole picture, a
third the face alone, a third what surrounds it: so it can also tell whether a painted face fits its surroundings.
OUT gets the weights (`looks.safetensors`, float16). Every eighth labelled picture is kept for the test, and the test
pictures that ship with the bundle. --examine FOLDER LABELS.csv tells how well the sex of other people is read, by the
network and by the direction of their embeddings that the identity space was fitted to; nothing learns from them.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.functional import auroc, pearson_corrcoef

from faceanon.data.files import read_photo
from faceanon.data.prepared import SHIPPED_TABLE, PreparedFaces, _read
from faceanon.files import save_tensors
from faceanon.landmarks.drawings import drawings
from faceanon.networks.identity_space import IdentitySpace
from faceanon.networks.looks import LooksNet
from faceanon.weights.bundle import Bundle

EVERY = 8
ROWS = 48
RATE = 1e-3
DECAY = 0.05
NOISE = 0.3  # most noise on latents, in their deviations
SMOOTH = 0.05  # of the labels of sex


def labels_of(file: Path) -> dict[str, tuple[float, float]]:
    """Sex and logarithm of age by file name; NaN where unknown."""
    labels: dict[str, tuple[float, float]] = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            sex = float(row["sex"] or "nan")
            # A year more changes a child's face more than an old one's.
            age = math.log(float(row["age"] or "nan") + 3)
            labels[row["file"]] = (sex, age)
    return labels


def shipped_tests(data: PreparedFaces) -> set[str]:
    """Names of the pictures that ship with the bundle for its test."""
    with (data.bundle.folder / SHIPPED_TABLE).open(encoding="utf-8", newline="") as lines:
        return {row["file"] for row in csv.DictReader(lines) if row["split"] == "test"}


def pictures(data: PreparedFaces, labels: dict[str, tuple[float, float]]) -> dict[str, Tensor]:
    """Latents, masks and labels of all versions of labelled pictures, and whether they are for the test."""
    data.prepare_data()
    latents: list[Tensor] = []
    masks: list[Tensor] = []
    sexes: list[float] = []
    ages: list[float] = []
    tested: list[bool] = []
    shipped = shipped_tests(data)
    for split, part in data._parts(data._photos()):
        tensors = _read(data._file(split, part))
        for number, photo in enumerate(part):
            if photo.path.name not in labels:
                continue
            rows = (tensors["picture"] == number).nonzero()[:, 0]
            if len(rows) == 0:
                continue
            some = tensors["latents"][rows].float()
            latents.append(some)
            image = tensors["image"][rows].float() / 127.5 - 1
            masks.append(drawings(tensors["mesh"][rows], image, some.shape[-1])[1])
            sex, age = labels[photo.path.name]
            sexes += [sex] * len(rows)
            ages += [age] * len(rows)
            tested += [len(latents) % EVERY == 0 or photo.path.name in shipped] * len(rows)
    return {
        "latents": torch.cat(latents),
        "masks": torch.cat(masks),
        "sex": torch.tensor(sexes),
        "age": torch.tensor(ages),
        "tested": torch.tensor(tested),
    }


def parts_of(latents: Tensor, masks: Tensor, kinds: Tensor) -> Tensor:
    """Whole pictures where the kind is 0, faces alone where it is 1, surroundings alone where it is 2."""
    kind = kinds[:, None, None, None]
    shown = torch.where(kind == 1, masks, 1 - masks)
    return latents * torch.where(kind == 0, torch.ones_like(masks), shown)


def report(net: LooksNet, found: dict[str, Tensor], rows: Tensor, step: int) -> None:
    """Print how well sex and age of some rows are told, from all and from each part."""
    net.eval()
    texts = []
    for kind, name in enumerate(("whole", "face", "surroundings")):
        kinds = torch.full((len(rows),), kind)
        with torch.no_grad():
            looks = net(parts_of(found["latents"][rows], found["masks"][rows], kinds))
        sexed = ~found["sex"][rows].isnan()
        auc = auroc(looks[sexed, 0].sigmoid(), (found["sex"][rows][sexed] > 0).long(), "binary")
        aged = ~found["age"][rows].isnan()
        along = -pearson_corrcoef(looks[aged, 1], found["age"][rows][aged])
        texts.append(f"{name}: sex AUC {float(auc):.3f}, age correlation {float(along):.2f}")
    print(f"batch {step}: {'; '.join(texts)}", flush=True)
    net.train()


def examine(net: LooksNet, bundle: Bundle, folder: Path, file: Path) -> None:
    """Print AUCs of sex on pictures `folder / name` of people with a label."""
    net.eval()
    space = bundle.build("identity_space")
    assert isinstance(space, IdentitySpace)
    read: list[Tensor] = []
    embedded: list[Tensor] = []
    truth: list[bool] = []
    for name, (sex, _) in labels_of(file).items():
        if math.isnan(sex):
            continue
        pixels = torch.from_numpy(read_photo(folder / name, bundle.image_size)[0].copy())
        image = pixels.permute(2, 0, 1)[None] / 127.5 - 1
        with torch.no_grad():
            read.append(net(bundle.codec.encode(image).float())[:, 0])
            embedded.append(space.kept(space.code(bundle.recogniser(image)))[:, 0])
        truth.append(sex > 0)
    labels = torch.tensor(truth).long()
    for name, scores in (("network", torch.cat(read)), ("embedding", torch.cat(embedded))):
        print(f"{name}: AUC {float(auroc(scores.sigmoid(), labels, 'binary')):.3f} on {len(labels)} pictures")


def main() -> None:
    """Prepare, train, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", nargs="+", required=True, help="folders of aligned photographs")
    parser.add_argument("--cache", default="runs/prepared", help="where prepared pictures are kept (runs/prepared)")
    parser.add_argument("--versions", type=int, default=6, help="versions of every picture (6)")
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--examine", nargs=2, type=Path, metavar=("FOLDER", "LABELS"), help="other people to read")
    options = parser.parse_args()
    data = PreparedFaces(root=options.root, cache=options.cache, versions=options.versions)
    found = pictures(data, labels_of(options.labels))
    ages = found["age"]
    known = ages[~ages.isnan()]
    young = -(ages - known.mean()) / known.std()
    test = found["tested"].nonzero()[:, 0]
    train = (~found["tested"]).nonzero()[:, 0]
    print(f"{len(train)} versions to learn from, {len(test)} to test")
    torch.manual_seed(0)
    net = LooksNet()
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    for step in range(1, options.batches + 1):
        rows = train[torch.randint(len(train), (ROWS,))]
        shown = parts_of(found["latents"][rows], found["masks"][rows], torch.randint(3, (ROWS,)))
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
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            report(net, found, test, step)
    options.out.mkdir(parents=True, exist_ok=True)
    halved = {name: value.half() for name, value in net.state_dict().items()}
    print(options.out / "looks.safetensors", save_tensors(options.out / "looks.safetensors", halved))
    if options.examine:
        examine(net, data.bundle, *options.examine)


if __name__ == "__main__":
    main()
