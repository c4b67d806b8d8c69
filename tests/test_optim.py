import importlib.util
import json
from functools import partial

import numpy as np
import pytest
import torch

from faceanon.errors import UserError
from faceanon.optim import Ranger
from faceanon.stages.base import built

VARIANTS = {
    "default": {},
    "wd": {"weight_decay": 0.1},
    "nogc": {},  # the published code ignores use_gc=False: its run equals the default one
    "gcconv": {"gc_conv_only": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_ranger_follows_the_published_code(shared, variant):
    folder = shared / "golden"
    spec = importlib.util.spec_from_file_location("golden_recipe", folder / "recipe.py")
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    with np.load(folder / "parity/ranger.npz") as file:
        case = {key: file[key] for key in file.files}
    shapes = json.loads(str(case["meta"]))["shapes"]
    parameters = {
        key: torch.nn.Parameter(torch.from_numpy(recipe.normal(f"rg:{key}", shape))) for key, shape in shapes.items()
    }
    optimizer = Ranger(parameters.values(), lr=0.01, **VARIANTS[variant])
    for step in range(25):
        for key, parameter in parameters.items():
            parameter.grad = torch.from_numpy(recipe.normal(f"rg:{key}:g{step + 1}", shapes[key]))
        optimizer.step()
        for key, parameter in parameters.items():
            np.testing.assert_allclose(parameter.detach(), case[f"{variant}_{key}"][step], atol=5e-6, rtol=0)


@pytest.mark.parametrize("make", [partial(Ranger, lr=-1.0), partial(torch.optim.Adam, lr=-1.0)])
def test_a_learning_rate_below_zero_is_one_line(make):
    with pytest.raises(UserError, match=r"^the optimizer cannot be built: Invalid learning rate: -1.0; change its"):
        built(make, [torch.nn.Parameter(torch.ones(1))])
