"""Lightning's loop, one batch at a time when it is asked for."""

import lightning as L
import pytest
import torch

from bench.cases import Work
from bench.probe import count_flops
from bench.public import network_table
from bench.settings import Settings
from bench.steps import Recipe, SteppedTraining, step
from faceanon.types import FaceBatch

ROWS, WIDTH = 4, 8
BATCH = FaceBatch(torch.ones(ROWS, WIDTH), torch.arange(ROWS), torch.arange(ROWS))


class Counting(L.LightningModule):
    """Counts its batches, and fails at the fifth."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, 1, bias=False)
        self.batches = 0

    def training_step(self, batch, batch_idx):
        self.batches += 1
        if self.batches == 5:
            raise ValueError("enough")
        return self.layer(batch.image).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_a_call_is_so_many_steps_and_what_goes_wrong_is_raised_here(tmp_path):
    stage = Counting()
    before = stage.layer.weight.detach().clone()
    training = SteppedTraining(stage, BATCH, Settings(), tmp_path, per_call=2)
    try:
        training.call()
        assert stage.batches == 2
        assert not torch.equal(stage.layer.weight, before)
        # Forward, and the gradient of the weights; the input needs none.
        gflop = count_flops(Work(training.call, under=training.under))
        assert gflop == pytest.approx(2 * 2 * (2 * ROWS * WIDTH) / 1e9)
        assert stage.batches == 4
        with pytest.raises(ValueError, match="enough"):
            training.step()
    finally:
        training.close()
    assert not training.thread.is_alive()


def test_recognisers_of_the_papers_setting_see_the_face_as_its_losses_cut_it_out():
    _, _, framing = network_table()["judge"]
    top, bottom, left, right = framing["crop"]
    assert [256 * edge for edge in (top, bottom, left, right)] == [35, 223, 32, 220]


def test_closing_ends_the_training(tmp_path):
    stage = Counting()
    training = SteppedTraining(stage, BATCH, Settings(), tmp_path)
    training.step()
    training.close()
    assert not training.thread.is_alive()
    assert stage.batches == 1


@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
def test_a_stage_without_a_model_to_start_from_makes_its_step():
    work = step(Settings(), Recipe("dbaf", "s1", 64, 4))
    try:
        work.call()
        assert work.images == 4
    finally:
        work.close()
