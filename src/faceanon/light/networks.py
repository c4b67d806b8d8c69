"""The networks of Persona and its bundle in onnxruntime: graphs that ship without weights, and the model's own weights.

A graph is the network's structure alone (`interop.onnx.light` writes it), so it stays right when a model is trained
anew. The weights come from the same safetensors files that torch reads. `graphs/layouts.json` says for each graph which
names and shapes they must have; a model of another layout is refused in one line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.light.providers import CPU, provider_settings
from faceanon.weights.shipped import usual_threads

Array = NDArray[Any]
GRAPHS = Path(__file__).with_name("graphs")
LAYOUTS = "layouts.json"
OPENERS = 2  # sessions that are opened at once, beside whatever else the start of a command does


class UnfitError(UserError):
    """The graphs that ship do not describe this model."""


def layout(tensors: Mapping[str, Any]) -> str:
    """Hash over names and shapes of a network's tensors, whatever their values.

    Args:
        tensors: By name; arrays or tensors.
    """
    lines = []
    # Files may hold the same tensors in any order.
    for name in sorted(tensors):
        shape = tuple(tensors[name].shape)
        lines.append(f"{name} {shape}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@cache
def layouts() -> dict[str, dict[str, Any]]:
    """What `layouts.json` says of each graph: `layout`, and `names` of the tensors that the graph takes.

    Raises:
        UserError: If the installation is damaged.
    """
    try:
        entries: dict[str, dict[str, Any]] = json.loads((GRAPHS / LAYOUTS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {GRAPHS / LAYOUTS}: install faceanon again") from error
    return entries


def check_layout(graph: str, tensors: Mapping[str, Any], source: str) -> None:
    """Refuse weights of another network than a graph's.

    Raises:
        UnfitError: If a name or a shape differs.
    """
    if layout(tensors) != layouts()[graph]["layout"]:
        raise UnfitError(f"{source} has another layout than the graph of the {graph} that ships")


def open_graph(
    name: str, weights: Mapping[str, Array], provider: str = CPU, rounded: bool = False
) -> Callable[..., list[Array]]:
    """A graph with its weights, ready to run.

    Args:
        name: Of the graph.
        weights: Its tensors by name.
        provider: What computes it, by onnxruntime's name; the CPU computes what it has no kernel for.
        rounded: Whether it may compute in bfloat16, see `light.providers.provider_settings`.

    Returns:
        A function of the graph's inputs by name, to the list of its outputs; any number of threads may call it.

    Raises:
        UserError: If the graph is missing, or the provider does not start.
    """
    try:
        data = (GRAPHS / f"{name}.onnx").read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {GRAPHS / name}.onnx ({error.strerror}): install faceanon again") from error
    # Microsoft's builds for Windows would report their use.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usual_threads()
    options.inter_op_num_threads = 1
    # Warnings of the optimiser are nothing that a user could change.
    options.log_severity_level = 3
    # Waiting threads would spin on cores that other threads of the command want.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    names = layouts()[name]["names"]
    values = []
    for wanted in names:
        values.append(onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(weights[wanted])))
    # onnxruntime copies them while the session is opened, so they need not live longer.
    options.add_external_initializers(names, values)
    providers = []
    for wanted in dict.fromkeys([provider, CPU]):
        providers.append((wanted, provider_settings(wanted, rounded, usual_threads())))
    try:
        # After an error it would open itself anew on the CPU, with options whose weights are gone by then.
        session = onnxruntime.InferenceSession(data, options, providers, enable_fallback=False)
    except Exception as error:  # onnxruntime's own have no common base class
        reason = str(error).split("\n")[0]
        raise UserError(f"onnxruntime does not open the graph {name} with {provider} ({reason:.200})") from error
    # It leaves out, with a log line at most, what finds no driver or device.
    if session.get_providers()[0] != provider:
        raise UserError(f"{provider} does not start here: it finds no device, or a library of its own is missing")

    def run(**inputs: Array) -> list[Array]:
        outputs: list[Array] = session.run(None, inputs)
        return outputs

    return run


class LightNetworks:
    """Graphs that are opened in the background, and waited for when they are first run.

    Args:
        openers: By name, what opens a graph.
    """

    def __init__(self, openers: Mapping[str, Callable[[], Callable[..., list[Array]]]]) -> None:
        self.openers = dict(openers)
        self.pool = ThreadPoolExecutor(OPENERS, "faceanon-open")
        self.opened: dict[str, Future[Callable[..., list[Array]]]] = {}

    def open(self, names: Iterable[str]) -> None:
        """Begin to open graphs, those first that are needed first; a graph is opened once."""
        for name in names:
            if name not in self.opened:
                self.opened[name] = self.pool.submit(self.openers[name])

    def __call__(self, name: str, **inputs: Array) -> list[Array]:
        """Run a graph; its outputs in their order."""
        self.open([name])
        return self.opened[name].result()(**inputs)
