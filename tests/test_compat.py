"""Private names of torch and Lightning: what they do for us, and that they stand in one file alone."""

import re
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

from faceanon.compat import (
    COMPILED_CALL,
    add_to_all,
    compiled_call,
    dynamo_settings,
    epoch_is_over,
    forget_logged,
    has_statistics,
    inductor_settings,
    is_compiler_error,
    logged_now,
    move_all,
    norms_of_all,
    steps_logged,
    swap_process_observer,
    untyped,
    writes_logs,
)

SRC = Path(__file__).resolve().parents[1] / "src" / "faceanon"
PRIVATE = re.compile(
    r"torch\._[a-z]|torch\.utils\._|\._BatchNorm|import _BatchNorm|import _SpectralNorm|\._untyped_storage"
    r"|_compiled_call_impl|\._overloadpacket|\._logger_connector|\._first_loop_iter|\._batches_that_stepped"
    r"|_launch_process_observer|trainer\._results|\._forward_cache|\b(module|stage|pl_module)\._trainer"
)
PICKLED = {SRC / "interop/public/unpickle.py"}  # names of torch._utils as pickles have them, which are never called


def test_private_names_stand_in_compat_alone():
    for path in sorted(set(SRC.rglob("*.py")) - PICKLED - {SRC / "compat.py"}):
        match = PRIVATE.search(path.read_text(encoding="utf-8"))
        assert match is None, f"{path.relative_to(SRC)} uses {match[0]}: give it a function in compat.py"


def test_operations_on_lists_of_tensors():
    tensors = [torch.tensor([3.0, 4.0]), torch.tensor([[0.0, 2.0]])]
    assert [norm.item() for norm in norms_of_all(tensors)] == [5.0, 2.0]
    add_to_all(tensors, [torch.ones(2), torch.ones(1, 2)])
    assert [item.tolist() for item in tensors] == [[4.0, 5.0], [[1.0, 3.0]]]
    move_all(tensors, [torch.zeros(2), torch.zeros(1, 2)], 0.5)
    assert [item.tolist() for item in tensors] == [[2.0, 2.5], [[0.5, 1.5]]]


def test_networks_that_learn_without_gradients():
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2))
    assert [has_statistics(module) for module in (nn.BatchNorm1d(2), nn.GroupNorm(1, 2), nn.Linear(2, 2))] == [1, 0, 0]
    assert sum(has_statistics(module) for module in spectral.modules()) == 1


def test_a_compiled_call_lies_where_compat_says():
    net = nn.Linear(2, 2)
    call = compiled_call(net, backend="eager")
    assert call is net.__dict__[COMPILED_CALL]
    assert torch.equal(net(torch.ones(1, 2)), nn.functional.linear(torch.ones(1, 2), net.weight, net.bias))


def test_errors_of_the_compiler_are_told_from_others():
    assert is_compiler_error(torch._dynamo.exc.Unsupported("a graph break"))
    assert not is_compiler_error(ValueError("a network's own"))


def test_settings_of_the_compiler_are_there():
    assert isinstance(dynamo_settings().recompile_limit, int)
    assert dynamo_settings().fail_on_recompile_limit_hit is False
    assert inductor_settings().triton.cudagraph_or_error is False


def test_bytes_of_a_storage_come_without_a_warning(recwarn):
    storage = torch.storage.TypedStorage(
        wrap_storage=torch.zeros(3).untyped_storage(), dtype=torch.float32, _internal=True
    )
    assert untyped(storage).nbytes() == 12
    assert not recwarn


class Stage(L.LightningModule):
    """Logs a term in every batch, and another in the first alone; notes what compat says at each end of a batch."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.seen = []

    def train_dataloader(self):
        return DataLoader(torch.ones(4, 1), batch_size=1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def training_step(self, batch, batch_idx):
        terms = {"train/always": torch.tensor(float(batch_idx))}
        if batch_idx == 0:
            terms["train/once"] = torch.tensor(7.0)
        self.log_dict(terms)
        forget_logged(self.trainer, "train", terms)
        self.writes = writes_logs(self.trainer)
        return self.net(batch).sum()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        shown = {name: float(value) for name, value in logged_now(self.trainer).items()}
        self.seen.append((self.writes, steps_logged(self.trainer), epoch_is_over(self.trainer), shown))


def test_what_lightning_is_about_to_log(tmp_path):
    stage = Stage()
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, log_every_n_steps=2, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(stage)
    writes, steps, over, shown = zip(*stage.seen, strict=True)
    assert list(writes) == [False, True, False, True]
    assert list(steps) == [0, 1, 2, 3]
    assert not any(over)
    assert "train/once" in shown[0]
    assert "train/once" not in shown[1]
    assert shown[3]["train/always"] == 3.0


def test_lightning_calls_the_observer_that_is_in_place():
    from lightning.pytorch.strategies.launchers import subprocess_script

    seen = []
    former = swap_process_observer(seen.append)
    try:
        subprocess_script._launch_process_observer(["a process"])
    finally:
        assert swap_process_observer(former) == seen.append
    assert seen == [["a process"]]
    assert subprocess_script._launch_process_observer is former
