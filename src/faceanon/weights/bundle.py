"""A bundle: everything pretrained that a method stands on, at one resolution, in one folder.

`bundle.yaml` in the folder names, per role, the network's class, its arguments, its safetensors file and sha256. Only
classes of `faceanon.networks` are built, so a foreign bundle cannot name code of its own.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from faceanon.errors import UserError
from faceanon.files import load_strictly, load_tensors, sha256
from faceanon.networks.adapters import Normalised, PerceptualDistance
from faceanon.networks.codec import LatentCodec
from faceanon.networks.dlib_resnet import DlibResNet
from faceanon.networks.e4e import PyramidEncoder
from faceanon.networks.frozen import Frozen
from faceanon.networks.latents import CodecUser, LatentMaps
from faceanon.networks.layout import has_bfloat16
from faceanon.networks.lpips_net import Lpips, LpipsDistance
from faceanon.networks.mesh_frame import MeshFrame
from faceanon.networks.onnx_recogniser import OnnxRecogniser
from faceanon.networks.stylegan2 import Generator
from faceanon.paths import checkpoints
from faceanon.weights.components import CELLS, with_reading
from faceanon.weights.missing import missing_roles
from faceanon.weights.spec import bundle_path, fingerprint, read_spec

# Shared networks are built at their first use, which may be in inference mode. Weights that are made there could not be
# moved to a GPU and used.
_OUTSIDE_INFERENCE = torch.inference_mode(False)


def network_class(name: str) -> type[nn.Module]:
    """A class of `faceanon.networks` by its import path.

    Raises:
        UserError: Another package's class, or no such class.
    """
    module, _, leaf = name.rpartition(".")
    if not module.startswith("faceanon.networks."):
        raise UserError(f"a bundle may only name networks of faceanon.networks, not {name!r}")
    try:
        network: type[nn.Module] = getattr(importlib.import_module(module), leaf)
    except (ImportError, AttributeError) as error:
        raise UserError(f"no network {name!r} in this version of faceanon; update it or fix bundle.yaml") from error
    if not isinstance(network, type) or not issubclass(network, nn.Module):  # else it could call what a file imports
        raise UserError(f"{name!r} is no network; fix bundle.yaml")
    return network


class Bundle:
    """The pretrained networks of one resolution.

    Frozen networks (`recogniser`, `judge`, `parser`, `landmarks`, `perceptual`, `features`) are built once and shared;
    `generator`, `encoder` and `discriminator` are built anew at each call, for whoever trains them.

    Args:
        path: A folder with a `bundle.yaml`, or the name of one in `checkpoints/`.

    Raises:
        UserError: The bundle or one of its files is missing or corrupt.

    Examples:
        >>> import torch
        >>> from faceanon.weights.bundle import Bundle
        >>> bundle = Bundle("photo128")
        >>> bundle.image_size, bundle.judge_name
        (128, 'dlib_resnet')
        >>> embedding = bundle.recogniser(torch.zeros(2, 3, 128, 128))
        >>> embedding.norm(dim=1).round(decimals=3)
        tensor([1., 1.])
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = bundle_path(path)
        self.spec = read_spec(self.folder)
        self.name: str = self.spec["name"]
        self.image_size: int = self.spec["image_size"]
        self.device = torch.device("cpu")

    def __deepcopy__(self, memo: dict[int, Any]) -> Bundle:
        # The averaged copy of a method shares it: nothing in it is trained. A copy of its own would build every network
        # a second time, and on the CPU, since `to` moves the networks of the bundle that it is called on.
        return self

    @property
    def framing(self) -> dict[str, float]:
        """How the bundle's faces are framed, against FFHQ's square around MTCNN's points (`photo.align.reframed`)."""
        measured: dict[str, float] = self.spec.get("framing", {})
        return {"scale": 1.0, "right": 0.0, "down": 0.0} | measured

    @property
    def steady_numbers(self) -> int:
        """How many first numbers of a row of w+ hold all light and skin of a face; 0 where that is not so.

        Raises:
            UserError: bundle.yaml says something else than such a number.
        """
        steady = self.spec.get("steady_numbers", 0)
        # YAML's `true` would pass for 1.
        if not isinstance(steady, int) or isinstance(steady, bool) or steady < 0:
            raise UserError(f"{self.folder / 'bundle.yaml'}: steady_numbers is {steady!r:.40}: give 0 or more")
        return steady

    @property
    def parsing(self) -> dict[str, Any]:
        """Class numbers by what they are for, in the order of the bundle's parser.

        Raises:
            UserError: It has no parser, or one whose classes nobody has named.
        """
        if "parsing" not in self.spec:
            self.require("parser")
            raise UserError(
                f"{self.folder / 'bundle.yaml'} does not say which classes of its parser are the face: "
                "add `parsing:` with face, edited, head and parts"
            )
        classes: dict[str, Any] = self.spec["parsing"]
        return classes

    @property
    def face_classes(self) -> tuple[int, ...]:
        """Parsing classes of the face: skin, brows, eyes, nose, mouth."""
        return tuple(self.parsing["face"])

    @property
    def head_classes(self) -> tuple[int, ...]:
        """Parsing classes of the head: the face, hair, ears and neck, and what hides them."""
        return tuple(self.parsing["head"])

    @property
    def edited_classes(self) -> tuple[int, ...]:
        """Parsing classes that a blending method draws anew: the face and the skin around it."""
        return tuple(self.parsing.get("edited", self.parsing["face"]))

    @property
    def occluder_class(self) -> int | None:
        """Parsing class of occluders, where the parser knows one."""
        number: int | None = self.parsing.get("occluder")
        return number

    @property
    def part_classes(self) -> tuple[int, ...]:
        """Parsing classes whose logits the parse loss compares (eyes, nose, mouth)."""
        return tuple(self.parsing["parts"])

    def has(self, role: str) -> bool:
        """Whether the bundle holds a network for `role`."""
        return role in self.spec["networks"]

    def require(self, *roles: str) -> None:
        """Check that the bundle holds networks, before anything long begins.

        Raises:
            UserError: It lacks some; one message names the published file, its licence and the import command of each.
        """
        lacking = []
        for role in roles:
            if not self.has(role):
                lacking.append(role)
        if lacking:
            # A bundle among the shipped ones is found by its name alone.
            shipped = self.folder.parent == checkpoints()
            advice = missing_roles(lacking, self.folder.name if shipped else self.folder, self.image_size)
            raise UserError(f"bundle {self.name!r} ({self.folder}) has no {', no '.join(lacking)}; {advice}")

    def entry(self, role: str) -> dict[str, Any]:
        """The lines of bundle.yaml on `role`.

        Raises:
            UserError: The bundle has none.
        """
        self.require(role)
        lines: dict[str, Any] = self.spec["networks"][role]
        return lines

    def build(self, role: str, weights: bool = True) -> nn.Module:
        """A new network for `role`, with its trained weights unless told otherwise."""
        entry = self.entry(role)
        kind = network_class(entry.get("class", ""))
        if issubclass(kind, OnnxRecogniser):
            return self._judging(kind, role)
        if issubclass(kind, DlibResNet):
            return self._carried(kind, role)
        with torch.random.fork_rng(devices=[]):  # else a network built late would shift a resumed run's random numbers
            net = self._constructed(kind, role)
        if weights:
            load_strictly(net, self._tensors(role), str(self.folder / entry.get("file", "")))
        self.lend_codec(net)
        return net

    def _tensors(self, role: str) -> dict[str, Tensor]:
        """The weights of a role as its file holds them; of an encoder also what follows from the generator's draft."""
        entry = self.entry(role)
        tensors = load_tensors(self.folder / entry.get("file", ""), entry.get("sha256"))
        if CELLS in tensors:
            return with_reading(tensors, self._tensors("generator"))
        return tensors

    def lend_codec(self, net: nn.Module) -> None:
        """Lend the bundle's codec, where it has one, to the parts of a network that work on latents."""
        if not self.has("codec"):
            return
        for part in net.modules():
            if isinstance(part, CodecUser):
                # A function: the codec is built at its first use, and anew on another device.
                part.lend(lambda: self.codec)

    def _constructed(self, kind: type[nn.Module], role: str) -> nn.Module:
        try:
            return kind(**self.entry(role).get("init", {}))
        except (UserError, ImportError):
            raise
        except Exception as error:  # arguments from outside make a network raise whatever it stumbles over
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise UserError(
                f"{self.folder / 'bundle.yaml'}: init of {role} does not fit its class ({reason})"
            ) from error

    def _judging(self, kind: type[OnnxRecogniser], role: str) -> OnnxRecogniser:
        """A network whose weights are the ONNX file itself; it has no gradients.

        Raises:
            UserError: Wanted as anything but the judge, or the file is missing or another one.
        """
        entry = self.entry(role)
        # Further judges have roles `judge_NAME`.
        if role.split("_")[0] != "judge":
            raise UserError(
                f"bundle {self.name!r} ({self.folder}) names {entry['file']} as {role}: ONNX networks have no "
                "gradients, so they can only be the judge; name another network there"
            )
        path = self.folder / Path(entry["file"]).expanduser()
        # A file that is missing is reported by the network itself.
        if path.is_file() and entry.get("sha256") not in (None, sha256(path)):
            raise UserError(f"{path} is not the file that bundle.yaml describes (sha256 differs); restore it")
        return kind(path, **entry.get("init", {}))

    def _carried(self, kind: type[DlibResNet], role: str) -> DlibResNet:
        """A network whose weights another package carries; it has no gradients.

        Raises:
            UserError: Wanted as anything but the judge, or the package is not installed.
        """
        if role.split("_")[0] != "judge":
            raise UserError(
                f"bundle {self.name!r} ({self.folder}) names dlib's network as {role}: it has no gradients, so it can "
                "only be the judge; name another network there"
            )
        return kind()

    @property
    def fingerprint(self) -> str:
        """Hash over the weights that codes depend on: generator, encoder, training recogniser and codec.

        A bundle with a codec may lack generator and encoder.
        """
        for role in ("generator", "encoder", "recogniser"):
            if not self.has("codec"):
                # One message says what is lacking and how to get it.
                self.require(role)
        return fingerprint(self.spec, self.folder)

    def _normalised(self, role: str) -> Normalised:
        entry = self.entry(role)
        return Normalised(self.build(role), entry.get("input_size"), entry.get("crop"))

    def trainable_recogniser(self) -> Normalised:
        """A new copy of the training recogniser, for whoever trains it."""
        return self._normalised("recogniser")

    @cached_property
    @_OUTSIDE_INFERENCE
    def codec(self) -> LatentCodec:
        """The autoencoder on whose latents the bundle's other networks work; frozen, shared, outside module trees.

        It computes in bfloat16 where the processor has instructions for it, else in float32.

        Raises:
            UserError: The bundle has none, or names another kind of network as its codec.
        """
        net = self.build("codec")
        if not isinstance(net, LatentCodec):
            raise UserError(f"{self.folder / 'bundle.yaml'}: the codec has to be a LatentCodec; restore the file")
        net = net.eval().requires_grad_(False).to(self.device)
        if self.device.type == "cpu" and has_bfloat16():
            return net.bfloat16()
        return net

    @cached_property
    @_OUTSIDE_INFERENCE
    def recogniser(self) -> Callable[[Tensor], Tensor]:
        """`(B, 3, S, S)` in [-1, 1] -> L2-normalised `(B, E)`; the recogniser that losses may use."""
        return Frozen(self._normalised("recogniser")).to(self.device)

    @cached_property
    @_OUTSIDE_INFERENCE
    def judge(self) -> Callable[[Tensor], Tensor]:
        """A recogniser that no loss has seen; `(B, 3, S, S)` in [-1, 1] -> L2-normalised `(B, E)`."""
        return Frozen(self._normalised("judge")).to(self.device)

    @cached_property
    @_OUTSIDE_INFERENCE
    def further_judges(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Judges beside `judge` (roles `judge_<name>`), by their names in results."""
        roles = []
        for role in self.spec["networks"]:
            if role.startswith("judge_"):
                roles.append(role)
        judges: dict[str, Callable[[Tensor], Tensor]] = {}
        for role in roles:
            judges[self.entry(role)["name"]] = Frozen(self._normalised(role)).to(self.device)
        return judges

    @property
    def own_scale(self) -> frozenset[str]:
        """Names of the recognisers whose embeddings have a scale of their own: no threshold of a paper fits them."""
        names = set()
        for role, entry in self.spec["networks"].items():
            recognises = role == "recogniser" or role.startswith("judge")
            if recognises and getattr(network_class(entry.get("class", "")), "own_scale", False):
                names.add(str(self.entry(role)["name"]))
        return frozenset(names)

    @property
    def embedding_length(self) -> int:
        """Length E of the training recogniser's embeddings; 512 where neither bundle.yaml nor its class says it."""
        entry = self.entry("recogniser")
        given: int | None = entry.get("init", {}).get("embedding")
        if given is not None:
            return given
        parameter = inspect.signature(network_class(entry.get("class", ""))).parameters.get("embedding")
        if parameter is None:
            return 512
        return int(parameter.default)

    @property
    def recogniser_name(self) -> str:
        """Name of the training recogniser in logs and results."""
        return str(self.entry("recogniser")["name"])

    @property
    def judge_name(self) -> str:
        """Name of the judge in logs and results."""
        return str(self.entry("judge")["name"])

    @cached_property
    @_OUTSIDE_INFERENCE
    def parser(self) -> Callable[[Tensor], Tensor]:
        """`(B, 3, S, S)` in [-1, 1] -> logits `(B, C, S, S)`."""
        return Frozen(self.build("parser")).to(self.device)

    @cached_property
    @_OUTSIDE_INFERENCE
    def landmarks(self) -> Callable[[Tensor], Tensor]:
        """`(B, 3, S, S)` in [-1, 1] -> `(B, K, 2)` in [-1, 1]."""
        return Frozen(self.build("landmarks")).to(self.device)

    @cached_property
    @_OUTSIDE_INFERENCE
    def frame(self) -> MeshFrame | None:
        """The frame in which its generator draws faces; None where that is FFHQ's.

        Raises:
            UserError: The bundle names another kind of network as its frame.
        """
        if not self.has("frame"):
            return None
        net = self.build("frame")
        if not isinstance(net, MeshFrame):
            raise UserError(f"{self.folder / 'bundle.yaml'}: the frame has to be a MeshFrame; restore the file")
        return net.requires_grad_(False).to(self.device)

    @cached_property
    @_OUTSIDE_INFERENCE
    def perceptual(self) -> PerceptualDistance:
        """`(a, b)` -> `(B,)` distance; `.features(x)` -> `(B, F)` pooled features."""
        # An entry without a file is of a network without weights, such as the distance between latents.
        net = self.build("perceptual", weights="file" in self.entry("perceptual"))
        distance = LpipsDistance(Frozen(net)) if isinstance(net, Lpips) else PerceptualDistance(Frozen(net))
        return distance.to(self.device)

    @cached_property
    @_OUTSIDE_INFERENCE
    def features(self) -> Callable[[Tensor], Tensor]:
        """`(B, 3, S, S)` in [-1, 1] -> `(B, F)`, of FID and KID."""
        return Frozen(self.build("features")).to(self.device)

    @property
    def compares_latents(self) -> bool:
        """Whether `perceptual` compares the codec's latents, which may then be given in place of pictures."""
        return self.has("perceptual") and network_class(self.entry("perceptual").get("class", "")) is LatentMaps

    def generator(self) -> Generator:
        """A new StyleGAN2 generator with the bundle's weights."""
        net = self.build("generator")
        assert isinstance(net, Generator)
        return net

    def encoder(self) -> PyramidEncoder:
        """A new W+ encoder of that generator."""
        net = self.build("encoder")
        assert isinstance(net, PyramidEncoder)
        return net

    def discriminator(self) -> nn.Module:
        """A new discriminator: the bundle's, or an untrained one where it ships none."""
        return self.build("discriminator", weights="file" in self.entry("discriminator"))

    @cached_property
    @_OUTSIDE_INFERENCE
    def latent_avg(self) -> Tensor:
        """`(L, D)` added to the encoder's codes."""
        entry = self.entry("encoder")
        tensors = load_tensors(self.folder / entry["latent_avg"], entry.get("latent_avg_sha256"))
        return tensors["latent_avg"]

    def to(self, device: torch.device | str) -> Bundle:
        """Move the frozen networks: those built so far now, the others when they are."""
        self.device = torch.device(device)
        for role in ("recogniser", "judge", "parser", "landmarks", "perceptual", "features"):
            if role in self.__dict__:
                self.__dict__[role].to(device)
        if isinstance(frame := self.__dict__.get("frame"), MeshFrame):
            frame.to(device)
        if "codec" in self.__dict__:
            # Its numbers depend on the device: built anew at the next use.
            del self.__dict__["codec"]
        for judge in self.__dict__.get("further_judges", {}).values():
            judge.to(device)
        return self
