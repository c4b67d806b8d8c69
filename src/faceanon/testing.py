"""The contract of a backbone as a test that anybody can run on their own.

    from faceanon.testing import check_backbone

    def test_mine():
        check_backbone(Mine(bundle="photo128_prior"))

It looks at what must hold whatever the weights, so an untrained method passes; how well a trained one hides and
recovers is what `faceanon test` measures. Every YAML in configs/backbone/ goes through it.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import yaml
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.base import Backbone
from faceanon.errors import UserError
from faceanon.files import load_strictly, load_tensors, save_tensors
from faceanon.key import Secret
from faceanon.sealed.envelope import OVERHEAD, SIZES
from faceanon.types import Codes

FACES = 4
LARGEST = 30.0  # of a nominal 1: an untrained generator overshoots, one that draws in 0 to 255 does more


class BackboneError(AssertionError):
    """A backbone breaks the contract.

    Args:
        kind: Name of its class.
        failed: What is wrong, by name of the check.
    """

    def __init__(self, kind: str, failed: dict[str, str]) -> None:
        lines = [f"{kind} breaks the contract of faceanon.backbones.base.Backbone:"]
        problems = []
        for name, problem in failed.items():
            problems.append(f"  {name}: {problem}")
        super().__init__("\n".join([*lines, *problems]))
        self.failed = failed


@dataclass
class Subject:
    """What is checked, with what all checks need.

    Args:
        backbone: In eval mode, on the CPU.
        image: `(4, 3, S, S)` in [-1, 1].
    """

    backbone: Backbone
    image: Tensor

    @cached_property
    def keys(self) -> Tensor:
        """Keys of the four faces, `(4, *key_shape)`; the same at every call."""
        return self.backbone.sample_key(FACES, torch.Generator().manual_seed(1))

    @cached_property
    def others(self) -> Tensor:
        """Other keys than `keys`, `(4, *key_shape)`; the same at every call."""
        return self.backbone.sample_key(FACES, torch.Generator().manual_seed(2))

    @cached_property
    def anonymized(self) -> Tensor:
        """The test faces as the method anonymizes them under `keys`, `(4, 3, S, S)`."""
        return self.anonymize(self.image, self.keys)

    @cached_property
    def saved(self) -> Tensor:
        """`anonymized` as an 8-bit file holds it."""
        return _in_8_bits(self.anonymized)

    @cached_property
    def codes(self) -> Codes | None:
        """Codes of the faces; None where the method says that it has none."""
        try:
            with torch.no_grad():
                return self.backbone.encode(self.image.clone())
        except NotImplementedError:
            return None

    def anonymize(self, image: Tensor, keys: Tensor) -> Tensor:
        """What `backbone.anonymize` gives for copies, so that it cannot change the inputs."""
        with torch.no_grad():
            return self.backbone.anonymize(image.clone(), keys.clone())

    def recover(self, image: Tensor, keys: Tensor) -> Tensor:
        """What `backbone.recover` gives for copies, so that it cannot change the inputs."""
        with torch.no_grad():
            return self.backbone.recover(image.clone(), keys.clone())

    @cached_property
    def carried(self) -> list[bytes]:
        """What a sealed method carries beside the pictures of the faces."""
        with torch.no_grad():
            return self.backbone.code_of(self.image.clone())

    def recover_from(self, image: Tensor, codes: list[bytes]) -> Tensor:
        """What `backbone.recover_from` gives for copies, so that it cannot change the inputs."""
        with torch.no_grad():
            return self.backbone.recover_from(image.clone(), list(codes))

    @property
    def recovered(self) -> Tensor:
        """The faces brought back from `saved`, by the key or by the codes."""
        # Not cached: `_bfloat16` has to compute it anew under autocast.
        if self.backbone.sealed:
            return self.recover_from(self.saved, self.carried)
        return self.recover(self.saved, self.keys)


def check_backbone(backbone: Backbone, image: Tensor | None = None, leave_out: Collection[str] = ()) -> None:
    """Put a method through every check; the backbone is left as it came.

    `description` The class attributes say what the method is.
    `keys`        `sample_key` and `key_from_secret` give `(B, *key_shape)`, repeatably, one key a password.
    `shapes`      Pictures and codes keep their batch and size.
    `ranges`      Results are finite floats of the order of 1; the input stays as it was.
    `gradients`   In train mode they are finite and reach parameters (methods that a stage trains).
    `determinism` In eval mode the same input gives the same result, whatever the state of the random generators.
    `batch`       A picture's result does not depend on its neighbours.
    `sensitivity` Another key gives another picture (or none does, where `key_bits` is None).
    `reversal`    `recover` reads picture and key; is exact where `exact` says so; refuses where `reversible` is False,
                  and where the method is sealed.
    `sealed`      The codes of a sealed method are repeatable, can be sealed, and bring every pixel that `anonymize`
                  changed nearer to the original; garbage is refused.
    `state`       `init_args` and `state_dict` rebuild it strictly through a file, and a deep copy does the same.
    `bfloat16`    It runs under bfloat16 autocast.

    Args:
        backbone: The method, trained or not, on the CPU.
        image: `(4, 3, S, S)` in [-1, 1]; smooth random pictures when None.
        leave_out: Names of checks that are not wanted, for a method that breaks one on purpose.

    Raises:
        BackboneError: A check failed; all that failed are named.
        ValueError: `leave_out` names no check.

    Examples:
        >>> from faceanon.backbones.classical import Mask
        >>> from faceanon.testing import check_backbone
        >>> check_backbone(Mask())
    """
    if unknown := sorted(set(leave_out) - set(CHECKS)):
        raise ValueError(f"no checks {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    # Module by module: parts of a method may stay in eval mode while the rest trains.
    training = []
    for module in backbone.modules():
        training.append((module, module.training))
    failed: dict[str, str] = {}
    # The checks set seeds; whoever calls keeps his random numbers.
    with torch.random.fork_rng():
        subject = Subject(backbone.eval(), smooth_faces(backbone.image_size) if image is None else image)
        for name, check in CHECKS.items():
            if name in leave_out:
                continue
            try:
                check(subject)
            except AssertionError as error:
                failed[name] = str(error)
            except Exception as error:  # whatever a plugin's method raises is a finding
                failed[name] = f"{type(error).__name__}: {error}"
    for module, mode in training:
        module.training = mode
    if failed:
        raise BackboneError(type(backbone).__name__, failed)


def smooth_faces(side: int, seed: int = 0) -> Tensor:
    """Smooth random pictures `(4, 3, side, side)` in [-1, 1], as 8-bit files hold them.

    Examples:
        >>> from faceanon.testing import smooth_faces
        >>> smooth_faces(64).shape
        torch.Size([4, 3, 64, 64])
    """
    coarse = torch.rand(FACES, 3, 6, 6, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return _in_8_bits(F.interpolate(coarse, size=(side, side), mode="bicubic"))


def _in_8_bits(image: Tensor) -> Tensor:
    return ((image.float().clamp(-1, 1) + 1) * 127.5).round() / 127.5 - 1


def _ensure(holds: object, problem: str) -> None:
    """An assertion that `python -O` keeps."""
    if not holds:
        raise AssertionError(problem)


def _equal(one: Tensor, other: Tensor, problem: str, tolerance: float = 0.0) -> None:
    difference = float((one.double() - other.double()).abs().max())
    _ensure(difference <= tolerance, f"{problem} (largest difference {difference:.2g})")


def _differ(one: Tensor, other: Tensor, problem: str) -> None:
    _ensure(bool((one != other).flatten(1).any(1).all()), problem)


def _description(subject: Subject) -> None:
    backbone = subject.backbone
    for name in ("paper", "licence"):
        value = getattr(backbone, name)
        _ensure(isinstance(value, str) and value, f"the class attribute {name} says nothing")
    _ensure(isinstance(backbone.trained_by, tuple), f"trained_by is a tuple of names, not {backbone.trained_by!r}")
    bits = backbone.key_bits
    _ensure(bits is None or 1 <= bits <= 256, f"key_bits is {bits}: None, or 1 to the 256 that a password's secret has")
    _ensure(backbone.reversible or not backbone.exact, "exact without being reversible")
    _ensure(backbone.reversible or not backbone.sealed, "sealed without being reversible")


def _keys(subject: Subject) -> None:
    backbone = subject.backbone
    shape = (FACES, *subject.backbone.key_shape)
    again = backbone.sample_key(FACES, torch.Generator().manual_seed(1))
    _ensure(tuple(subject.keys.shape) == shape, f"sample_key gives {tuple(subject.keys.shape)}, not {shape}")
    _equal(subject.keys, again, "sample_key ignores its generator")
    typed = backbone.key_from_secret(Secret.random(1), FACES)
    _ensure(tuple(typed.shape) == shape, f"key_from_secret gives {tuple(typed.shape)}, not {shape}")
    _equal(typed, typed[:1].expand_as(typed), "key_from_secret gives the faces of one password different keys")
    _equal(typed, backbone.key_from_secret(Secret.random(1), FACES), "key_from_secret is not repeatable")
    if backbone.key_bits is not None:
        other = backbone.key_from_secret(Secret.random(2), FACES)
        _differ(typed, other, "key_from_secret gives two passwords one key")


def _shapes(subject: Subject) -> None:
    backbone = subject.backbone
    shape = subject.image.shape
    _ensure(subject.anonymized.shape == shape, f"anonymize gives {tuple(subject.anonymized.shape)}, not {tuple(shape)}")
    if backbone.reversible:
        recovered = subject.recovered
        _ensure(recovered.shape == shape, f"recovery gives {tuple(recovered.shape)}, not {tuple(shape)}")
    if subject.codes is None:
        return
    identity = subject.codes.identity
    with torch.no_grad():
        edited = backbone.transform(identity, subject.keys)
        drawn = backbone.decode(subject.codes)
    _ensure(len(identity) == FACES, f"encode gives {len(identity)} identities for {FACES} pictures")
    _ensure(edited.shape == identity.shape, f"transform gives {tuple(edited.shape)} for {tuple(identity.shape)}")
    _ensure(drawn.shape == shape, f"decode gives {tuple(drawn.shape)}, not {tuple(shape)}")


def _ranges(subject: Subject) -> None:
    # Not by `subject.anonymize`, which hands over copies: this check asks whether the inputs stay as they were.
    image = subject.image.clone()
    keys = subject.keys.clone()
    with torch.no_grad():
        result = subject.backbone.anonymize(image, keys)
    _equal(image, subject.image, "anonymize changes its input")
    _equal(keys, subject.keys, "anonymize changes its keys")
    _ensure(result.is_floating_point(), f"anonymize gives {result.dtype}, not floats")
    _ensure(result.isfinite().all(), "anonymize gives values that are not finite")
    largest = float(result.abs().max())
    _ensure(largest <= LARGEST, f"anonymize gives values up to {largest:.3g}; pictures lie in [-1, 1]")


def _gradients(subject: Subject) -> None:
    if not subject.backbone.trained_by:
        return
    # A copy: the other checks need the method in eval mode and without gradients.
    backbone = copy.deepcopy(subject.backbone).requires_grad_(True).train()
    image = subject.image.clone()
    keys = subject.keys.clone()
    if backbone.works_through_codes:
        # As the stages train it: in use a method may do more, where no gradient passes.
        result = backbone.decode(backbone.edit(backbone.encode(image), keys))
    else:
        result = backbone.anonymize(image, keys)
    if backbone.recovers_from_pictures:
        result = result + backbone.recover(result, subject.keys.clone())
    # Any loss will do that depends on all pixels.
    torch.autograd.backward(result.square().mean())
    gradients = {}
    for name, item in backbone.named_parameters():
        if item.grad is not None:
            gradients[name] = item.grad
    not_finite = []
    for name, gradient in gradients.items():
        if not gradient.isfinite().all():
            not_finite.append(name)
    bad = sorted(not_finite)
    _ensure(not bad, f"gradients that are not finite: {', '.join(bad[:5])}")
    _ensure(
        any(gradient.any() for gradient in gradients.values()),
        "no gradient reaches any parameter, though stages train it",
    )


def _determinism(subject: Subject) -> None:
    # Two states of the random generators: a method that draws from them gives two results.
    torch.manual_seed(3)
    first = subject.anonymize(subject.image, subject.keys)
    torch.manual_seed(4)
    with torch.inference_mode():  # as the pipeline calls it
        again = subject.anonymize(subject.image, subject.keys)
    _equal(first, again, "two calls in eval mode give two results")


def _batch(subject: Subject) -> None:
    alone = []
    for i in range(FACES):
        alone.append(subject.anonymize(subject.image[i : i + 1], subject.keys[i : i + 1]))
    # Other sizes of a batch take other kernels, whose sums round differently.
    scale = float(subject.anonymized.abs().max())
    _equal(subject.anonymized, torch.cat(alone), "a result changes with the other pictures of the batch", 1e-3 * scale)


def _sensitivity(subject: Subject) -> None:
    other = subject.anonymize(subject.image, subject.others)
    if subject.backbone.key_bits is None:
        _equal(subject.anonymized, other, "key_bits is None, but the key changes the result")
    else:
        _differ(subject.anonymized, other, "another key gives the same picture")


def _reversal(subject: Subject) -> None:
    backbone = subject.backbone
    if not backbone.recovers_from_pictures:
        try:
            subject.recover(subject.saved, subject.keys)
        except NotImplementedError:
            return
        why = "reversible is False"
        if backbone.sealed:
            why = "sealed is True"
        raise AssertionError(f"{why}, but recover does not raise NotImplementedError")
    recovered = subject.recover(subject.saved, subject.keys)
    _ensure(recovered.isfinite().all(), "recover gives values that are not finite")
    # Rolled by one: each key is given the picture of the face before it.
    _differ(recovered, subject.recover(subject.saved.roll(1, 0), subject.keys), "recover ignores the picture")
    if backbone.key_bits is not None:
        _differ(recovered, subject.recover(subject.saved, subject.others), "recover ignores the key")
    if not backbone.exact:
        return
    if subject.codes is None:
        _equal(
            _in_8_bits(recovered),
            _in_8_bits(subject.image),
            "exact is claimed, but the picture does not come back",
            1e-6,
        )
        return
    code = subject.codes.identity
    keys = subject.keys
    with torch.no_grad():
        back = backbone.transform(backbone.transform(code, keys), keys, inverse=True)
    tolerance = 1e-4 * max(1.0, float(code.abs().max()))
    _equal(back, code, "exact is claimed, but transform(inverse=True) does not undo transform", tolerance)


def _sealed(subject: Subject) -> None:
    backbone = subject.backbone
    if not backbone.sealed:
        _ensure(not _answers(lambda: backbone.code_of(subject.image.clone())), "codes, though sealed is False")
        return
    codes = subject.carried
    _ensure(len(codes) == FACES, f"code_of gives {len(codes)} codes for {FACES} pictures")
    _ensure(all(isinstance(code, bytes) for code in codes), "code_of gives something else than bytes")
    longest = max(map(len, codes))
    _ensure(longest + OVERHEAD <= SIZES[-1], f"a code of {longest} bytes; at most {SIZES[-1] - OVERHEAD} can be sealed")
    with torch.no_grad():
        again = backbone.code_of(subject.image.clone())
        drawn, shared = backbone.anonymize_with_codes(subject.image.clone(), subject.keys.clone())
        denied = backbone.deny(subject.saved.clone(), subject.others.clone())
    # Not finite where the method finds no face to draw over, as from anonymize.
    _differ(denied, subject.saved, "deny leaves the first stranger as it is")
    _ensure(again == codes, "two calls of code_of give two codes")
    _ensure(shared == codes, "anonymize_with_codes gives other codes than code_of")
    _equal(drawn, subject.anonymized, "anonymize_with_codes draws other faces than anonymize", 1e-5 * LARGEST)
    recovered = subject.recovered
    _ensure(recovered.isfinite().all(), "recover_from gives values that are not finite")
    _differ(recovered, subject.recover_from(subject.saved, codes[1:] + codes[:1]), "recover_from ignores the codes")
    _ensure(_refuses(subject, [b"no code of a face"] * FACES), "recover_from takes garbage for codes")
    _ensure_all_back(subject, recovered)


def _ensure_all_back(subject: Subject, recovered: Tensor) -> None:
    """Every pixel that was changed must be among those that recovery changes."""
    # Less than that is the rounding to 8 bits.
    touched = (subject.saved - subject.image).abs().amax(1) > 2 / 255
    redrawn = (recovered - subject.saved).abs().amax(1) > 0
    left = (touched & ~redrawn).float().mean()
    _ensure(left <= 0.001, f"anonymize changes {float(left):.1%} of the pixels where the code brings nothing back")
    before = (subject.saved - subject.image).square().mean((1, 2, 3))
    after = (_in_8_bits(recovered) - subject.image).square().mean((1, 2, 3))
    _ensure((after < before).all(), "recover_from brings the pictures no nearer to the originals")


def _refuses(subject: Subject, codes: list[bytes]) -> bool:
    try:
        subject.recover_from(subject.saved, codes)
    except UserError:
        return True
    return False


def _answers(call: Callable[[], object]) -> bool:
    try:
        call()
    except NotImplementedError:
        return False
    return True


def _state(subject: Subject) -> None:
    backbone = subject.backbone
    # There and back through YAML, as the card of a saved model holds them.
    plain = yaml.safe_load(yaml.safe_dump(backbone.init_args))
    _ensure(plain == backbone.init_args, f"init_args are not plain values: {backbone.init_args!r}")
    rebuilt = type(backbone)(**plain)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights.safetensors")
        save_tensors(path, backbone.state_dict())
        load_strictly(rebuilt, load_tensors(path), "the saved state_dict")
    for name, twin in (("rebuilt from init_args and state_dict", rebuilt), ("copied", copy.deepcopy(backbone))):
        with torch.no_grad():
            result = twin.eval().anonymize(subject.image.clone(), subject.keys.clone())
        _equal(subject.anonymized, result, f"{name}, it gives another result", 1e-5 * LARGEST)


def _bfloat16(subject: Subject) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = subject.anonymize(subject.image, subject.keys)
        if subject.backbone.reversible:
            result = torch.cat([result, subject.recovered])
    _ensure(result.isfinite().all(), "values that are not finite")
    _ensure(result.shape[1:] == subject.image.shape[1:], f"shape {tuple(result.shape)}")


CHECKS: dict[str, Callable[[Subject], None]] = {
    "description": _description,
    "keys": _keys,
    "shapes": _shapes,
    "ranges": _ranges,
    "gradients": _gradients,
    "determinism": _determinism,
    "batch": _batch,
    "sensitivity": _sensitivity,
    "reversal": _reversal,
    "sealed": _sealed,
    "state": _state,
    "bfloat16": _bfloat16,
}
