"""Which precision a training has on a processor with and without instructions for bfloat16."""

import pytest
import torch

from faceanon.errors import UserError
from faceanon.training import precision
from faceanon.training.precision import choose_precision


@pytest.fixture
def machine(monkeypatch):
    """Say what this machine has."""

    def has(bfloat16=False, gpu=False):
        monkeypatch.setattr(precision, "has_bfloat16", lambda: bfloat16)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)

    return has


@pytest.mark.parametrize(
    ("bfloat16", "gpu", "asked", "accelerator", "chosen"),
    [
        (False, False, "bf16-mixed", "auto", "32-true"),
        (False, False, "bf16", None, "32-true"),
        (False, True, "bf16-mixed", "cpu", "32-true"),
        (True, False, "bf16-mixed", "auto", "bf16-mixed"),
        (False, True, "bf16-mixed", "auto", "bf16-mixed"),
        (False, True, "bf16-mixed", "gpu", "bf16-mixed"),
        (False, False, "16-mixed", "cpu", "16-mixed"),
        (False, False, "32", "cpu", "32"),
        (False, False, 32, "cpu", 32),
        (False, False, None, "cpu", None),
    ],
)
def test_bfloat16_is_for_who_has_it(machine, bfloat16, gpu, asked, accelerator, chosen):
    machine(bfloat16, gpu)
    trainer = {"precision": asked, "accelerator": accelerator}
    choose_precision(trainer, ["faceanon", "fit", "--config", "dbaf_s1.yaml"])
    assert trainer == {"precision": chosen, "accelerator": accelerator}


@pytest.mark.parametrize("words", [["--trainer.precision=bf16-mixed"], ["--trainer.precision", "bf16-mixed"]])
def test_what_was_typed_stays(machine, words):
    machine()
    trainer = {"precision": "bf16-mixed", "accelerator": "auto"}
    choose_precision(trainer, ["faceanon", "fit", *words])
    assert trainer["precision"] == "bf16-mixed"


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "16-true", "transformer-engine", 64])
def test_a_precision_that_converts_batches_is_refused_in_one_line(machine, precision):
    machine()
    words = f"precision={precision} is not for faceanon's trainings; use 32-true, bf16-mixed or 16-mixed"
    with pytest.raises(UserError, match=words):
        choose_precision({"precision": precision, "accelerator": "cpu"}, ["faceanon", "fit"])
