"""Golden numbers of the public networks, from the folder beside the checkout."""

import importlib.util
import json

import numpy as np
import pytest
import torch


class Golden:
    """Weights, inputs and outputs recorded from the public code."""

    def __init__(self, folder):
        self.folder = folder
        spec = importlib.util.spec_from_file_location("golden_recipe", folder / "recipe.py")
        self.recipe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.recipe)

    def manifest(self, name, prefix=""):
        entries = json.loads((self.folder / f"manifests/{name}.json").read_text())["entries"]
        return [(key.removeprefix(prefix), tuple(shape)) for key, shape, *_ in entries if key.startswith(prefix)]

    def case(self, name):
        with np.load(self.folder / f"parity/{name}.npz") as file:
            return {key: file[key] for key in file.files}

    def normal(self, name, shape):
        return torch.from_numpy(self.recipe.normal(name, tuple(shape)))

    def image(self, name, shape):
        return torch.from_numpy(self.recipe.image(name, tuple(shape)))

    def load(self, net, family, case):
        """Fill a network with the recipe's weights, checked against the recorded checksum."""
        weights = self.recipe.state_dict({key: tuple(t.shape) for key, t in net.state_dict().items()}, family)
        assert self.recipe.crc(weights) == json.loads(str(case["meta"]))["weights_crc32"]
        report = net.load_state_dict({key: torch.from_numpy(value) for key, value in weights.items()}, strict=False)
        assert not report.unexpected_keys
        assert all(key.endswith("kernel") for key in report.missing_keys)
        return net.eval()


@pytest.fixture(scope="session")
def golden(shared):
    return Golden(shared / "golden")


@pytest.fixture(scope="session")
def rms_error():
    """Largest deviation over the root mean square of what is expected; an honest float32 run stays below 1e-4."""

    def error(actual, expected):
        actual = actual.detach().double().numpy() if isinstance(actual, torch.Tensor) else np.asarray(actual)
        expected = expected.astype(np.float64)
        assert actual.shape == expected.shape
        return float(np.abs(actual - expected).max() / np.sqrt(np.square(expected).mean()))

    return error
