"""Write the graphs of `faceanon.light`: the networks' structure as ONNX, without a single weight.

    python -m faceanon.interop.onnx.light

A graph names each weight as the model's state dict does, and has nothing that follows from its value: the weights are
inputs while the exporter simplifies the graph. So the files stay right when the model is trained anew. They are
tracked; a test compares what they compute with torch.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections import OrderedDict
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.backbones.persona import LIGHT, MAPS, POSE, Persona
from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.light.networks import GRAPHS, LAYOUTS, layout
from faceanon.networks.codec import LatentCodec
from faceanon.networks.face_mesh import FaceMeshNet
from faceanon.networks.taef2 import LOCAL

OPSET = 18
MOST = 4096  # of a dimension that may vary


@dataclass(frozen=True)
class LightGraph:
    """One graph.

    Args:
        net: Whose forward it is.
        inputs: Examples by name; the first dimension may vary.
        outputs: Names.
        whole: The tensors whose names and shapes decide whether a model fits.
        varying: Further dimensions of each input that may vary, each a multiple of some number.
    """

    net: nn.Module
    inputs: dict[str, Tensor]
    outputs: list[str]
    whole: dict[str, Tensor]
    varying: dict[int, int] = field(default_factory=dict)


class _Mesh(nn.Module):
    """The mesh network for a batch of any size: its own forward reads the batch as a number."""

    def __init__(self, net: FaceMeshNet) -> None:
        super().__init__()
        # Under the same names, since the graph's weights are named as in the model's state dict.
        for name, child in net.named_children():
            self.add_module(name, child)

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor]:
        stem = self.stem(F.pad(crops, (0, 1, 0, 1)))  # type: ignore[operator]
        x = self.trunk(self.stem_activation(stem))  # type: ignore[operator]
        points = self.points(x).flatten(1)  # type: ignore[operator]
        return points, torch.sigmoid(self.face(x)).flatten(1)  # type: ignore[operator]


def cases(method: Persona) -> dict[str, LightGraph]:
    """All graphs, by name."""
    codec = method.bundle.build("codec").eval()
    assert isinstance(codec, LatentCodec)
    codec.float().to(memory_format=torch.contiguous_format)
    layers = list(codec.decoder)
    first = len(layers) - LOCAL
    decoder = codec.decoder.state_dict()
    cells = method.cells
    latents = torch.zeros(2, codec.channels, cells, cells)
    recogniser = method.bundle.trainable_recogniser().net.eval()
    # Sides that vary must differ from each other and from all else, or the exporter takes one for the other.
    unit = {"unit": torch.zeros(2, 3, 104, 136)}
    other = torch.zeros(2, codec.channels, 13, 17)
    covers = {"latents": latents, "maps": torch.zeros(2, 8, cells, cells)}
    flow = method.flow.float().to(memory_format=torch.contiguous_format)
    directions = {
        # Not the same object twice: the exporter would take the two inputs for one.
        "noisy": latents.clone(),
        "time": torch.zeros(2),
        "latents": latents,
        "mask": torch.zeros(2, 1, cells, cells),
        "maps": torch.zeros(2, MAPS, cells, cells),
        "condition": torch.zeros(2, method.identities.size + LIGHT + POSE),
    }
    mesh = _Mesh(method.mesh.net)
    looks = method.looks.net
    finder = method.finder.net
    return {
        "encoder": LightGraph(codec.encoder, unit, ["latents"], codec.encoder.state_dict(), {2: 8, 3: 8}),
        "draw": LightGraph(_part(layers, 0, first), {"latents": other}, ["maps"], decoder, {2: 1, 3: 1}),
        # Another size than any other dimension, so that none is taken for it.
        "finish": LightGraph(
            _part(layers, first, len(layers)), {"maps": torch.zeros(2, 64, 90, 98)}, ["unit"], decoder, {2: 1, 3: 1}
        ),
        "mesh": LightGraph(mesh, {"crops": torch.zeros(2, 3, 192, 192)}, ["points", "confidence"], mesh.state_dict()),
        "recogniser": LightGraph(
            recogniser, {"faces": torch.zeros(2, 3, 112, 112)}, ["embedding"], recogniser.state_dict()
        ),
        "looks": LightGraph(looks, {"latents": latents}, ["looks"], looks.state_dict()),
        "covers": LightGraph(finder, covers, ["logits"], finder.state_dict()),
        "flow": LightGraph(flow, directions, ["directions"], flow.state_dict()),
    }


def _part(layers: list[nn.Module], start: int, stop: int) -> nn.Sequential:
    """Some layers under the names that they have in the whole."""
    named = OrderedDict[str, nn.Module]()
    for number in range(start, stop):
        named[str(number)] = layers[number]
    return nn.Sequential(named)


def graph_of(case: LightGraph) -> tuple[bytes, list[str]]:
    """A graph without weights, and the names of the tensors that it takes.

    Raises:
        UserError: If a package is missing.
    """
    try:
        import onnx
        import onnxscript.optimizer
    except ImportError as error:
        raise UserError(f"the export needs the package {error.name}; run: pip install 'faceanon[onnx]'") from error
    net = case.net.eval()
    batch = torch.export.Dim("batch", min=1, max=MOST)
    shapes: list[dict[int, Any]] = []
    for _ in case.inputs:
        varying: dict[int, Any] = {0: batch}
        for number, multiple in case.varying.items():
            varying[number] = multiple * torch.export.Dim(f"side{number}", min=2, max=MOST)
        shapes.append(varying)
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    quiet = io.StringIO()
    with torch.no_grad(), warnings.catch_warnings(), redirect_stdout(quiet), redirect_stderr(quiet):
        warnings.simplefilter("ignore")
        arguments = tuple(case.inputs.values())
        program = torch.export.export(net, arguments, dynamic_shapes=tuple(shapes), strict=False)
        made = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            input_names=list(case.inputs),
            output_names=case.outputs,
            # Not yet: the exporter would compute what follows from the weights' values.
            optimize=False,
        )
    assert made is not None
    model = made.model_proto
    own = net.state_dict()
    weights = {}
    constants = []
    for stored in model.graph.initializer:
        if stored.name in own:
            weights[stored.name] = (stored.data_type, list(stored.dims))
        else:
            constants.append(stored)
    # Inputs while the graph is simplified: what follows from a weight's value must not be computed now.
    for name, (kind, dims) in weights.items():
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, dims))
    del model.graph.initializer[:]
    model.graph.initializer.extend(constants)
    model = onnxscript.optimizer.optimize(model)
    inputs = [item for item in model.graph.input if item.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    # The optimizer may leave weights that no node reads any more; the graph must not ask for them.
    used = set()
    for node in model.graph.node:
        used.update(node.input)
    names = sorted(name for name in weights if name in used)
    for name in names:
        stored = model.graph.initializer.add()
        stored.name = name
        stored.data_type = weights[name][0]
        stored.dims.extend(weights[name][1])
        # External, so that the file holds no data. `light.networks` hands the weights over, and no such file is opened.
        stored.data_location = onnx.TensorProto.EXTERNAL
        place = stored.external_data.add()
        place.key = "location"
        place.value = "weights"
    _bare(model)
    # The files are tracked, so equal graphs have to be equal bytes.
    data: bytes = model.SerializeToString(deterministic=True)
    return data, names


def _bare(model: Any) -> None:  # noqa: ANN401 - onnx's protobuf classes have no types
    """Leave out what is only for people: notes of the exporter, types of what lies between."""
    graph = model.graph
    for part in (model, graph):
        part.doc_string = ""
        del part.metadata_props[:]
    del graph.value_info[:]
    del model.functions[:]
    for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        part.doc_string = ""
        del part.metadata_props[:]


def write_graphs(method: Persona, folder: Path) -> None:
    """Write all graphs and `layouts.json` into a folder."""
    entries = {}
    for name, case in cases(method).items():
        data, names = graph_of(case)
        write_atomic(folder / f"{name}.onnx", data)
        entries[name] = {"layout": layout(case.whole), "names": names}
    write_atomic(folder / LAYOUTS, (json.dumps(entries, indent=1) + "\n").encode())


if __name__ == "__main__":
    # Untrained: nothing of a weight's value gets into a graph.
    write_graphs(Persona().eval(), GRAPHS)
