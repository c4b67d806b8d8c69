"""Is a bundle what it says? Hashes, strict loading, pairing, and what encoder and generator draw together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from faceanon.errors import UserError
from faceanon.files import load_tensors, sha256
from faceanon.metrics.reconstruction import reconstruction, sample_faces
from faceanon.networks.dlib_resnet import DlibResNet
from faceanon.weights.bundle import Bundle
from faceanon.weights.pairing import check_pair, generator_fingerprint, short

Verdict = Literal["ok", "warning", "FAILED"]


@dataclass(frozen=True)
class Check:
    """One line of the result.

    Args:
        verdict: `warning` is for people to judge; `FAILED` is certain.
        text: What was looked at, and what was seen.
    """

    verdict: Verdict
    text: str


def verify(path: str | Path, faces: Path | None = None) -> Iterator[Check]:
    """Check a bundle, one result after the other.

    Args:
        path: Folder or name of the bundle.
        faces: Folder of aligned faces for the reconstruction check; photographs that ship without it.

    Raises:
        UserError: There is no such bundle, or the folder of faces is not readable.
    """
    bundle = Bundle(path)
    sound = True
    for role in bundle.spec["networks"]:
        check = _network(bundle, role)
        sound = sound and check.verdict != "FAILED"
        yield check
    yield from _files(bundle)
    # A pair of which one half is damaged says nothing of the pairing.
    if not sound or not (bundle.has("generator") and bundle.has("encoder")):
        return
    pair = _pair(bundle)
    yield pair
    if pair.verdict != "FAILED":
        yield from _drawn(bundle, faces)


def _network(bundle: Bundle, role: str) -> Check:
    entry = bundle.entry(role)
    if entry.get("class") == f"{DlibResNet.__module__}.{DlibResNet.__qualname__}":
        return _carried(bundle, role)
    if "file" not in entry:
        return Check("ok", f"{role}: untrained, no file")
    try:
        net = bundle.build(role)
    except UserError as error:
        return Check("FAILED", f"{role}: {error}")
    count = sum(parameter.numel() for parameter in net.parameters())
    text = f"{role}: {entry['class'].rsplit('.', 1)[1]} loads strictly, {count / 1e6:.2f} M parameters"
    if "sha256" not in entry:
        return Check("warning", f"{text}, but bundle.yaml has no sha256 for {entry['file']}")
    return Check("ok", f"{text}, sha256 {entry['sha256'][:12]}")


def _carried(bundle: Bundle, role: str) -> Check:
    """Whether a network is there whose weights another package carries."""
    try:
        bundle.build(role)
    except UserError as error:
        return Check("FAILED", f"{role}: {error}")
    return Check("ok", f"{role}: DlibResNet, its weights come with the package face-recognition-models")


def _files(bundle: Bundle) -> Iterator[Check]:
    """Tensors of a method, and packs."""
    for role, entry in bundle.spec.get("parts", {}).items():
        try:
            count = len(load_tensors(bundle.folder / entry["file"], entry["sha256"]))
            yield Check("ok", f"{role}: {count} tensors, for faceanon weights method")
        except UserError as error:
            yield Check("FAILED", f"{role}: {error}")
    for role, entry in bundle.spec.get("packs", {}).items():
        folder = bundle.folder / entry["folder"]
        bad = []
        for name, digest in entry["files"].items():
            if not _is(folder / name, digest):
                bad.append(name)
        if bad:
            text = f"{', '.join(bad)} missing or changed"
        else:
            text = f"{len(entry['files'])} ONNX files"
        yield Check("FAILED" if bad else "ok", f"{role}: {text}")


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and sha256(path) == digest


def _pair(bundle: Bundle) -> Check:
    generator = bundle.entry("generator")
    encoder = bundle.entry("encoder")
    # From the file, not from bundle.yaml: somebody may have exchanged the one without the other.
    fingerprint = generator_fingerprint(load_tensors(bundle.folder / generator["file"]))
    if generator.get("fingerprint", fingerprint) != fingerprint:
        recorded = short(generator["fingerprint"])
        return Check("FAILED", f"pairing: the generator is {short(fingerprint)}, bundle.yaml says {recorded}")
    try:
        check_pair(encoder, {**generator, "fingerprint": fingerprint})
    except UserError as error:
        return Check("FAILED", f"pairing: {error}")
    if encoder.get("generator") is None:
        return Check(
            "warning", f"pairing: nothing says which generator the encoder was trained with; here {short(fingerprint)}"
        )
    return Check("ok", f"pairing: the encoder was trained with this generator, {short(fingerprint)}")


def _drawn(bundle: Bundle, folder: Path | None) -> Iterator[Check]:
    latent = bundle.latent_avg
    wanted = (bundle.generator().n_latent, bundle.generator().style_dim)
    if tuple(latent.shape) != wanted:
        yield Check("FAILED", f"latent_avg is {tuple(latent.shape)}, the generator takes {wanted}")
        return
    named_faces = "synthetic photographs"
    if folder is not None:
        named_faces = f"faces of {folder}"
    result = reconstruction(bundle, sample_faces(folder, bundle.image_size))
    of = f"{result.faces} {named_faces}"
    figures: dict[str, Any] = {"perceptual distance": result.perceptual, "identity cosine": result.identity}
    named = []
    for name, value in figures.items():
        if value is not None:
            named.append(f"{name} {value:.3f}")
    text = ", ".join(
        [f"reconstruction of {of}: PSNR {result.psnr:.1f} dB (average face {result.psnr_average:.1f})", *named]
    )
    yield Check("ok", text)
    if result.doubt is not None:
        more = ""
        if folder is None:
            more = "; give aligned photographs with --faces to be sure"
        yield Check("warning", f"the pairing looks wrong in fact, whatever the names say: {result.doubt}{more}")
