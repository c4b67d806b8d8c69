"""Train the network that enlarges painted faces: python tools/networks/train_enlarger.py OUT --root FOLDER ...

FOLDER holds aligned photographs of people who do not exist, of 256 px or more. The network gets the latents of a
photograph of 128 px and, around the face, those of the same photograph of 256 px, and learns to give the latents that
lie in between: by their distance, and from a discriminator that sees photographs and what was filled in. --painted
takes a model of Persona; then the discriminator also sees enlarged strangers that the model painted. OUT gets the
weights (`enlarger.safetensors`, int8), `state.pt` with which the same command resumes, and `sheet.png`: photographs of
128 px enlarged, filled in, and of 256 px. Every fiftieth photograph is kept for the test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.data.prepared import PreparedFaces
from faceanon.files import load_tensors, save_tensors
from faceanon.landmarks.drawings import drawings
from faceanon.losses.adversarial import discriminator_loss, generator_loss
from faceanon.models import load_backbone
from faceanon.networks.codec import LatentCodec
from faceanon.networks.face_painter import PaintingDiscriminator
from faceanon.networks.latent_enlarger import LatentEnlarger

LARGE = 256
ROWS = 16
EVERY = 50
RATE = 5e-4
DISCRIMINATOR_RATE = 3e-4
ADVERSARIAL = 0.1  # of the generator's loss, once the discriminator has learnt something
HEAD_START = 400  # batches of the distance alone
NOISE = 0.15  # most noise on the small latents: painted ones are not as exact as a photograph's
SHOWN = 6


def small_latents(codec: LatentCodec, images: Tensor, keep: Path) -> Tensor:
    """Latents `(N, 32, 16, 16)` float16 of pictures `(N, 3, 256, 256)` uint8, halved; kept in a file."""
    if keep.is_file():
        return load_tensors(keep)["small"]
    parts = []
    for part in tqdm(images.split(32), desc="small latents"):  # type: ignore[no-untyped-call]
        halved = F.avg_pool2d(part.float(), 2).round() / 127.5 - 1
        with torch.no_grad():
            parts.append(codec.encode(halved).half())
    small = torch.cat(parts)
    save_tensors(keep, {"small": small})
    return small


def painted_latents(model: str, images: Tensor, rows: Tensor, keep: Path) -> Tensor:
    """Latents of strangers that a model paints into some of the pictures, halved; kept in a file."""
    if keep.is_file():
        return load_tensors(keep)["painted"]
    method = load_backbone(model)[0]
    parts = []
    for some in tqdm(rows.split(16), desc="strangers"):  # type: ignore[no-untyped-call]
        halved = F.avg_pool2d(images[some].float(), 2).round() / 127.5 - 1
        with torch.no_grad():
            drawn = method.anonymize(halved, method.sample_key(len(some)))
            # Where the mesh found no face there is no stranger: the photograph itself does no harm here.
            drawn = torch.where(drawn.isfinite(), drawn, halved)
            parts.append(method.bundle.codec.encode(drawn.clamp(-1, 1)).half())
    painted = torch.cat(parts)
    save_tensors(keep, {"painted": painted})
    return painted


class Pictures:
    """Photographs in both sizes, with their masks.

    Args:
        data: Prepared photographs of 256 px.
        out: Folder in which what takes long is kept.
    """

    def __init__(self, data: PreparedFaces, out: Path) -> None:
        data.setup()
        tensors = data.split("train").tensors
        self.images = tensors["image"]
        self.large = tensors["latents"]
        self.mesh = tensors["mesh"]
        self.codec = data.bundle.codec
        self.small = small_latents(self.codec, self.images, out / "small.safetensors")
        tested = tensors["picture"] % EVERY == 0
        self.train = (~tested).nonzero()[:, 0]
        self.test = tested.nonzero()[:, 0]

    def maps(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Masks `(B, 1, 32, 32)` of the painted cells, as Persona has them, and what the discriminator is told."""
        halved = F.avg_pool2d(self.images[rows].float(), 2) / 127.5 - 1
        lines, mask = drawings(self.mesh[rows], halved, halved.shape[-1] // LatentCodec.shrink)
        shown = torch.cat([mask, F.avg_pool2d(lines, lines.shape[-1] // mask.shape[-1])], 1)
        return F.interpolate(mask, scale_factor=2.0), F.interpolate(shown, scale_factor=2.0)


def distance(filled: Tensor, large: Tensor, mask: Tensor) -> Tensor:
    """L1 over the cells of the mask."""
    return ((filled - large).abs() * mask).sum() / mask.sum() / large.shape[1]


def sheet(net: LatentEnlarger, pictures: Pictures, path: Path, painted: Tensor | None, rows_painted: Tensor) -> float:
    """Write the sheet of test pictures; returns the distance on all of them."""
    net.eval()
    errors = []
    for rows in pictures.test.split(64):  # type: ignore[no-untyped-call]
        mask, _ = pictures.maps(rows)
        large = pictures.large[rows].float()
        with torch.no_grad():
            filled = net(pictures.small[rows].float(), large, mask)
        errors.append(float(distance(filled, large, mask)))
    rows = pictures.test[:: max(1, len(pictures.test) // SHOWN)][:SHOWN]
    mask, _ = pictures.maps(rows)
    large = pictures.large[rows].float()
    small = pictures.small[rows].float()
    with torch.no_grad():
        enlarged = F.interpolate(pictures.codec.decode(small), scale_factor=2.0, mode="bicubic")
        filled = pictures.codec.decode(net(small, large, mask))
    lines = [enlarged, filled, pictures.codec.decode(large)]
    if painted is not None:
        own = rows_painted[:SHOWN]
        mask, _ = pictures.maps(own)
        with torch.no_grad():
            some = painted[:SHOWN].float()
            lines.append(F.interpolate(pictures.codec.decode(some), scale_factor=2.0, mode="bicubic"))
            lines.append(pictures.codec.decode(net(some, pictures.large[own].float(), mask)))
    image = torch.cat([torch.cat(list(line.float()), 2) for line in lines], 1)
    pixels = ((image.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
    cv2.imwrite(str(path), np.ascontiguousarray(pixels[:, :, ::-1]))
    net.train()
    return float(np.mean(errors))


def main() -> None:
    """Prepare, train, show, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", nargs="+", required=True, help="folders of aligned photographs")
    parser.add_argument("--cache", default="runs/prepared", help="where prepared pictures are kept (runs/prepared)")
    parser.add_argument("--versions", type=int, default=4, help="versions of every picture (4)")
    parser.add_argument("--batches", type=int, default=4000)
    parser.add_argument("--painted", help="a model of Persona whose strangers the discriminator sees too")
    parser.add_argument("--strangers", type=int, default=1000, help="how many strangers it paints (1000)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = PreparedFaces(root=options.root, cache=options.cache, versions=options.versions, image_size=LARGE)
    pictures = Pictures(data, options.out)
    spread = pictures.train[:: max(1, len(pictures.train) // options.strangers)][: options.strangers]
    painted = None
    if options.painted:
        painted = painted_latents(options.painted, pictures.images, spread, options.out / "painted.safetensors")
    torch.manual_seed(0)
    net = LatentEnlarger().to(memory_format=torch.channels_last)
    mean = LatentEnlarger()
    mean.load_state_dict(net.state_dict())
    critic = PaintingDiscriminator(cells=LARGE // LatentCodec.shrink).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(net.parameters(), RATE, betas=(0.5, 0.99))
    opponent = torch.optim.Adam(critic.parameters(), DISCRIMINATOR_RATE, betas=(0.0, 0.99))
    first = 1
    state_file = options.out / "state.pt"
    if state_file.is_file():
        state = torch.load(state_file, weights_only=True)
        for part, name in ((net, "net"), (mean, "mean"), (critic, "critic")):
            part.load_state_dict(state[name])
        optimizer.load_state_dict(state["optimizer"])
        opponent.load_state_dict(state["opponent"])
        first = state["step"] + 1
    for step in range(first, options.batches + 1):
        generator = torch.Generator().manual_seed(step)
        rows = pictures.train[torch.randint(len(pictures.train), (ROWS,), generator=generator)]
        mask, shown = pictures.maps(rows)
        large = pictures.large[rows].float()
        small = pictures.small[rows].float()
        noisy = small + NOISE * torch.rand(ROWS, 1, 1, 1) * torch.randn_like(small)
        if painted is not None and step > HEAD_START:
            # Half of the batch are strangers: nobody knows their details, and only the discriminator judges them.
            number = torch.randint(len(painted), (ROWS // 2,), generator=generator)
            rows[ROWS // 2 :] = spread[number]
            mask, shown = pictures.maps(rows)
            large = pictures.large[rows].float()
            noisy[ROWS // 2 :] = painted[number].float()
        known = ROWS if painted is None or step <= HEAD_START else ROWS // 2
        with torch.autocast("cpu", torch.bfloat16):
            filled = net(noisy, large, mask).float()
        real = torch.cat([large, shown], 1)
        with torch.autocast("cpu", torch.bfloat16):
            against = discriminator_loss(critic(real), critic(torch.cat([filled.detach(), shown], 1)))
        opponent.zero_grad()
        against.float().backward()  # type: ignore[no-untyped-call]
        opponent.step()
        error = distance(filled[:known], large[:known], mask[:known])
        loss = error
        if step > HEAD_START:
            with torch.autocast("cpu", torch.bfloat16):
                judged = generator_loss(critic(torch.cat([filled, shown], 1)))
            loss = loss + ADVERSARIAL * judged.float()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for own, new in zip(mean.parameters(), net.parameters(), strict=True):
                own.lerp_(new, min(1.0, 16 / (step + 16) + 0.005))
        if step % 20 == 0:
            print(f"batch {step}: distance {float(error):.3f}, discriminator {float(against):.3f}", flush=True)
        if step % 200 == 0 or step == options.batches:
            tested = sheet(mean, pictures, options.out / "sheet.png", painted, spread)
            print(f"batch {step}: distance on test pictures {tested:.3f}", flush=True)
            state = {"net": net.state_dict(), "mean": mean.state_dict(), "critic": critic.state_dict(), "step": step}
            state |= {"optimizer": optimizer.state_dict(), "opponent": opponent.state_dict()}
            torch.save(state, state_file)
            save_tensors(options.out / "enlarger.safetensors", mean.state_dict(), half=True, int8=True)


if __name__ == "__main__":
    main()
