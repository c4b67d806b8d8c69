import json

import numpy as np
import pytest
import torch

from faceanon.networks.riddle_mapper import DecoderLayer, TransformerMapperSplit, mapper_layout

VARIANTS = {
    "plain": {},
    "linear_pos": {"add_linear": True, "add_pos_embedding": True},
    "nonorm": {"norm": False},
}


def make(golden, name):
    case = golden.case("riddle_mapper")
    meta = json.loads(str(case["meta"]))["variants"][name]
    net = golden.load(TransformerMapperSplit(**VARIANTS[name]), "generic", {"meta": np.array(json.dumps(meta))})
    return net, case


def inputs(golden):
    return golden.normal("rid:w", (3, 14, 512)), *(golden.normal(f"rid:{n}", (3, 1, 512))[:, 0] for n in ("pwd", "bad"))


@pytest.mark.parametrize("name", ["plain", "linear_pos"])
def test_layout_is_the_public_one_and_told_from_its_keys(golden, name):
    with torch.device("meta"):
        net = TransformerMapperSplit(**VARIANTS[name])
        expected = golden.manifest(f"riddle_mapper_{name}")
        assert [(key, tuple(t.shape)) for key, t in net.state_dict().items()] == expected
        again = TransformerMapperSplit(**mapper_layout({key: torch.empty(shape) for key, shape in expected}))
    assert [(key, tuple(t.shape)) for key, t in again.state_dict().items()] == expected


def test_a_mapper_without_norms_is_told_from_its_keys():
    with torch.device("meta"):
        state = TransformerMapperSplit(norm=False).state_dict()
    assert len(state) == 36
    assert mapper_layout(state) == {"add_linear": False, "add_pos_embedding": False, "norm": False, "width": 512}


@torch.no_grad()
@pytest.mark.parametrize("name", VARIANTS)
def test_both_ways_and_a_wrong_password_equal_the_public_network(golden, rms_error, name):
    net, case = make(golden, name)
    codes, password, wrong = inputs(golden)
    encrypted = net(codes, password)
    assert rms_error(encrypted, case[f"{name}_enc"]) < 1e-4
    assert rms_error(net(encrypted, password), case[f"{name}_dec"]) < 1e-4
    assert rms_error(net(encrypted, wrong[:, None].expand_as(codes)), case[f"{name}_dec_wrong"]) < 1e-4


def norm_first(self, tokens, memory):
    own = self.norm1(tokens)
    tokens = tokens + self.self_attn(own, own, own)[0]
    tokens = tokens + self.multihead_attn(self.norm2(tokens), memory, memory)[0]
    return tokens + self.linear2(torch.relu(self.linear1(self.norm3(tokens))))


@torch.no_grad()
def test_one_line_mistakes_are_exposed(golden, rms_error, monkeypatch):
    net, case = make(golden, "linear_pos")
    codes, password, _ = inputs(golden)

    def error():
        return rms_error(net(codes, password), case["linear_pos_enc"])

    assert error() < 1e-4
    with monkeypatch.context() as patch:
        patch.setattr(DecoderLayer, "forward", norm_first)
        assert error() > 1
    with monkeypatch.context() as patch:
        patch.setattr(net, "split", [4, 6, 4])
        assert error() > 0.1
    net.linear_ori, net.linear_pwd = net.linear_pwd, net.linear_ori
    assert error() > 0.1


def test_groups_do_not_see_each_other():
    torch.manual_seed(0)
    net = TransformerMapperSplit((1, 2), width=8).eval()
    codes, password = torch.randn(2, 3, 8), torch.randn(2, 8)
    before = net(codes, password)
    codes[:, 0] += 1
    moved = (net(codes, password) - before).abs().sum(-1) > 1e-3
    assert moved.tolist() == [[True, False, False]] * 2


def test_mistakes_are_named():
    net = TransformerMapperSplit((1, 2), width=8)
    with pytest.raises(ValueError, match=r"takes \(B, 3, D\)"):
        net(torch.zeros(1, 4, 8), torch.zeros(1, 8))
    with pytest.raises(ValueError, match="does not fit codes"):
        net(torch.zeros(2, 3, 8), torch.zeros(1, 3, 8))
    with pytest.raises(ValueError, match="no transformer mapper"):
        mapper_layout({"style.1.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match="2 groups"):
        mapper_layout(net.state_dict())
    with torch.device("meta"):
        state = TransformerMapperSplit().state_dict()
    with pytest.raises(ValueError, match="18 layers"):
        mapper_layout(state | {"pos_embedding": torch.zeros(18, 1, 512)})
