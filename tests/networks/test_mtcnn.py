import hashlib

import pytest
import torch

from faceanon.errors import UserError
from faceanon.networks import mtcnn


def test_weights_equal_the_public_torch_conversion(shared):
    """The testbed holds facenet-pytorch's state dicts, another conversion of the same networks."""
    for name, net in zip("pro", mtcnn.load_mtcnn(), strict=True):
        expected = torch.load(shared / f"testbed/weights/detection/mtcnn_{name}net.pt", weights_only=True)
        state = net.state_dict()
        assert set(state) == set(expected)
        for key, tensor in expected.items():
            torch.testing.assert_close(state[key], tensor, atol=0, rtol=0)


def test_networks_are_frozen_and_give_the_documented_shapes():
    pnet, rnet, onet = mtcnn.load_mtcnn()
    assert not any(net.training or any(p.requires_grad for p in net.parameters()) for net in (pnet, rnet, onet))
    assert [tuple(t.shape) for t in pnet(torch.zeros(1, 3, 30, 41))] == [(1, 2, 10, 16), (1, 4, 10, 16)]
    assert [tuple(t.shape) for t in rnet(torch.zeros(2, 3, 24, 24))] == [(2, 2), (2, 4)]
    assert [tuple(t.shape) for t in onet(torch.zeros(2, 3, 48, 48))] == [(2, 2), (2, 4), (2, 10)]


def test_another_file_is_not_unpickled(monkeypatch, tmp_path):
    package = tmp_path / "mtcnn"
    (package / "assets" / "weights").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "assets/weights/pnet.lz4").write_bytes(b"evil")
    spec = type("Spec", (), {"origin": str(package / "__init__.py")})
    monkeypatch.setattr(mtcnn, "find_spec", lambda name: spec)
    monkeypatch.setattr(mtcnn.joblib, "load", lambda path: pytest.fail("unpickled an unknown file"))
    with pytest.raises(UserError, match=hashlib.sha256(b"evil").hexdigest()[:12]):
        mtcnn.load_mtcnn()


def test_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mtcnn, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install"):
        mtcnn.load_mtcnn()
