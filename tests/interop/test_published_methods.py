"""DBAF's released weights and RiDDLE's published mapper become methods that run, by their authors' arithmetic."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import wild_files as files
from faceanon import cli
from faceanon.interop.public.importing import import_files
from faceanon.interop.public.methods import published_method
from faceanon.interop.public.reading import read_public
from faceanon.models import load_backbone
from faceanon.networks.riddle_mapper import TransformerMapperSplit
from faceanon.networks.stylegan2 import Generator
from faceanon.testing import smooth_faces
from faceanon.weights.bundle import Bundle
from public_files import lively, small_files, small_networks
from wild_files import refuse

D, ROWS, DEPTH = 16, 14, 2
SIDES = {"c3": 4, "c2": 8, "c1": 16}
CHANNELS = {4: 16, 8: 16, 16: 16, 32: 8, 64: 8}


def drawn(shapes, seed=0):
    source = torch.Generator().manual_seed(seed)
    return {name: 0.3 * torch.randn(shape, generator=source) for name, shape in shapes.items()}


def linear(name, inputs, outputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def released(rows):
    """DBAF's three other files, narrow: `{name: state dict}`."""
    cid = linear("linear_w", D, D) | {"pos_embedding": (rows, 1, D)}
    for level in range(3):
        for block in range(DEPTH):
            name = f"layers.{level}.transformer.layers.{block}"
            cid |= linear(f"{name}.1.fn.net.0", D, 4 * D) | linear(f"{name}.1.fn.net.3", 4 * D, D)
            cid |= {f"{name}.0.fn.to_qkv.weight": (3 * 2 * 64, D)} | linear(f"{name}.0.fn.to_out.0", 2 * 64, D)
            for part in (0, 1):
                cid |= {f"{name}.{part}.norm.weight": (D,), f"{name}.{part}.norm.bias": (D,)}
    widths = dict(zip(("c3", "c2", "c1"), (16, 8, 6), strict=True))
    attributes = {}
    for level, width in widths.items():
        out = CHANNELS[SIDES[level]]
        attributes |= {f"conv_{level}.weight": (out, width, 1, 1), f"conv_{level}.bias": (out,)}
        gate = f"cbam_{level}.ChannelGate.mlp"
        attributes |= linear(f"{gate}.1", out, 1) | linear(f"{gate}.3", 1, out)
        norm = nn.BatchNorm2d(1).state_dict()
        spatial = f"cbam_{level}.SpatialGate.spatial"
        attributes |= {f"{spatial}.conv.weight": (1, 2, 7, 7)}
        attributes |= {f"{spatial}.bn.{name}": tuple(value.shape) for name, value in norm.items()}
    mapper = {}
    for level in range(3):
        chain = (2 * D, 4 * D, 2 * D, D, D, D, D, D, D)
        for number, (i, o) in enumerate(pairwise(chain)):
            mapper |= linear(f"mapper.{level}.model.{number}", i, o)
    states = {"w_disentanglement": drawn(cid), "attr_block": drawn(attributes, 1), "id_mlp": drawn(mapper, 2)}
    for name, value in states["attr_block"].items():
        if name.endswith("num_batches_tracked"):
            states["attr_block"][name] = torch.tensor(7)
        if name.endswith("running_var"):
            value.abs_().add_(0.5)
    for level in range(3):
        for number in range(7):
            states["id_mlp"][f"mapper.{level}.model.{number}.weight"] *= 300  # its learning rate's factor is 0.01
    return states


@pytest.fixture
def bundle(tmp_path):
    """A bundle of generator and e4e at 64 px, and the generator that DBAF tuned."""
    paths = small_files(tmp_path)
    names = ("generator", "e4e", "recogniser")
    import_files([read_public(paths[name]) for name in names], str(tmp_path / "b"))
    return tmp_path / "b"


def attributes_of(state, codes):
    """A as the released code has it: level by level, and across the batch."""
    tokens = codes.transpose(0, 1) @ state["linear_w.weight"].T + state["linear_w.bias"] + state["pos_embedding"]
    levels = []
    for level, x in enumerate(tokens.split((4, 4, len(tokens) - 8))):
        for block in range(DEPTH):
            name = f"layers.{level}.transformer.layers.{block}"
            part = {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
            seen = F.layer_norm(x, (D,), part["0.norm.weight"], part["0.norm.bias"])
            query, key, value = (seen @ part["0.fn.to_qkv.weight"].T).chunk(3, -1)
            heads = []
            for head in (slice(0, 64), slice(64, 128)):
                weights = (query[..., head] @ key[..., head].transpose(1, 2) / 8).softmax(-1)
                heads.append(weights @ value[..., head])
            x = x + torch.cat(heads, -1) @ part["0.fn.to_out.0.weight"].T + part["0.fn.to_out.0.bias"]
            seen = F.layer_norm(x, (D,), part["1.norm.weight"], part["1.norm.bias"])
            hidden = F.gelu(seen @ part["1.fn.net.0.weight"].T + part["1.fn.net.0.bias"])
            x = x + hidden @ part["1.fn.net.3.weight"].T + part["1.fn.net.3.bias"]
        levels.append(x)
    return torch.cat(levels).transpose(0, 1)


def attended(state, level, x):
    """CBAM as its authors have it, behind the convolution of one level."""
    part = {key.split(".", 1)[-1]: value for key, value in state.items() if key.split(".")[0] == f"cbam_{level}"}
    x = F.conv2d(x, state[f"conv_{level}.weight"], state[f"conv_{level}.bias"])
    gate = 0
    for pooled in (x.mean((2, 3)), x.amax((2, 3))):
        hidden = F.relu(pooled @ part["ChannelGate.mlp.1.weight"].T + part["ChannelGate.mlp.1.bias"])
        gate = gate + hidden @ part["ChannelGate.mlp.3.weight"].T + part["ChannelGate.mlp.3.bias"]
    x = x * gate.sigmoid()[:, :, None, None]
    maps = F.conv2d(torch.stack([x.amax(1), x.mean(1)], 1), part["SpatialGate.spatial.conv.weight"], padding=3)
    norm = "SpatialGate.spatial.bn"
    moments = part[f"{norm}.running_mean"], part[f"{norm}.running_var"]
    return x * F.batch_norm(maps, *moments, part[f"{norm}.weight"], part[f"{norm}.bias"]).sigmoid()


def edited(state, level, x):
    for number in range(7):
        name = f"mapper.{level}.model.{number}"
        weight = state[f"{name}.weight"]
        x = x @ (weight.T * 0.01 / math.sqrt(weight.shape[1])) + 0.01 * state[f"{name}.bias"]
        x = F.leaky_relu(x, 0.2) * math.sqrt(2)
    return x @ state[f"mapper.{level}.model.7.weight"].T + state[f"mapper.{level}.model.7.bias"]


def test_dbafs_four_files_are_a_method(bundle, tmp_path, capsys):
    rows = Bundle(bundle).generator().n_latent
    states = released(rows)
    tuned = lively(Generator(64, 16, 2, channels=CHANNELS), 5)
    for name, state in {**states, "decoder_finetune": tuned.state_dict()}.items():
        torch.save(state, tmp_path / f"best_model_{name}.pth")
    public = [read_public(tmp_path / f"best_model_{name}.pth") for name in (*states, "decoder_finetune")]
    import_files(public, str(bundle))
    assert cli.main(["weights", "method", "dbaf", "--bundle", str(bundle), "--out", str(tmp_path / "dbaf")]) == 0
    assert "published weights" in capsys.readouterr().out
    method, _ = load_backbone(tmp_path / "dbaf")
    image = smooth_faces(64)[:3]
    with torch.no_grad():
        seen, maps = method.encoder.with_features(image)
        latent = seen + method.latent_avg
        codes = method.encode(image)
        attributes = attributes_of(states["w_disentanglement"], latent)
        torch.testing.assert_close(codes.attributes, attributes, atol=1e-4, rtol=1e-4)
        for level, side in SIDES.items():
            expected = attended(states["attr_block"], level, maps[side])
            torch.testing.assert_close(codes.features[side], expected, atol=1e-4, rtol=1e-4)
        key = method.sample_key(3)
        # The key is mapped by the generator as it was before it was tuned.
        words = [small_networks()["generator"].style(key[:, level]) for level in range(3)]
        w = torch.cat([words[0][:, None].expand(-1, 4, -1), words[1][:, None].expand(-1, 4, -1)], 1)
        w = torch.cat([w, words[2][:, None].expand(-1, rows - 8, -1)], 1)
        both = torch.cat([latent - attributes, w], -1).split((4, 4, rows - 8), 1)
        new = torch.cat([edited(states["id_mlp"], level, part) for level, part in enumerate(both)], 1)
        torch.testing.assert_close(method.transform(codes.identity, key), new, atol=1e-3, rtol=1e-3)
        stranger = tuned.draw(new + attributes, features=codes.features)
        torch.testing.assert_close(method.decode(method.edit(codes, key)), stranger, atol=1e-2, rtol=1e-2)


def test_an_incomplete_dbaf_is_one_line(bundle, tmp_path):
    contents = files.dbaf_contents()
    torch.save(Generator(64, 16, 2, channels=CHANNELS).state_dict(), tmp_path / "decoder.pth")
    torch.save(contents["best_model_id_mlp.pth"], tmp_path / "mlp.pth")
    import_files([read_public(tmp_path / "decoder.pth"), read_public(tmp_path / "mlp.pth")], str(bundle))
    refuse("no dbaf_disentanglement; import DBAF's four files", published_method, "dbaf", Bundle(bundle))
    refuse("has no mapper; get iteration_90000.pt", published_method, "riddle", Bundle(bundle))


def test_riddles_mapper_encrypts(tmp_path):
    """At 256 px, whose codes have the published 14 rows."""
    generator = lively(Generator(256, D, 2, channels={side: 8 for side in (4, 8, 16, 32, 64, 128, 256)}), 0)
    encoder = files.seeded(
        lambda: files.Encoder4Editing(256, D, 64, (4, 4, 6, 8, 16), (1, 1, 2, 1), coarse_ind=3, middle_ind=7)
    )
    content = {**files.prefixed(encoder.state_dict(), "encoder."), **files.prefixed(generator.state_dict(), "decoder.")}
    opts = {"encoder_type": "Encoder4Editing", "start_from_latent_avg": True}
    torch.save({"state_dict": content, "opts": opts}, tmp_path / "e4e.pt")
    mapper = files.seeded(lambda: TransformerMapperSplit(width=D, add_linear=True, add_pos_embedding=True))
    torch.save({"mapper_state_dict": mapper.state_dict(), "opts": {}}, tmp_path / "iteration_90000.pt")
    torch.save(files.recogniser_content(), tmp_path / "recogniser.pth")
    names = ("e4e.pt", "iteration_90000.pt", "recogniser.pth")
    folder, _ = import_files([read_public(tmp_path / name) for name in names], str(tmp_path / "b"))
    assert cli.main(["weights", "method", "riddle", "--bundle", str(folder), "--out", str(tmp_path / "riddle")]) == 0
    method, _ = load_backbone(tmp_path / "riddle")
    image = smooth_faces(256)[:2]
    with torch.no_grad():
        codes = method.encode(image)
        key = method.sample_key(2)
        expected = mapper(codes.identity, generator.style(key))
        torch.testing.assert_close(method.transform(codes.identity, key), expected)
        assert method.anonymize(image, key).shape == image.shape
