"""What the demo's short trainings are told."""

from pathlib import Path

import pytest

from faceanon.commands.demo import DemoOptions, _stage


@pytest.mark.parametrize(("batches", "head_start"), [(40, 13), (3000, 40), (2, 0)])
def test_the_flow_learns_in_most_of_a_demos_batches(batches, head_start):
    options = DemoOptions(out=Path("runs/demo"), batches=batches, from_scratch=False, seed=0, bundle="photo128")
    words = _stage("persona_s2", options, Path("runs/demo/stage"))
    assert f"--model.init_args.head_start={head_start}" in words
    assert f"--data.init_args.train_batches={batches}" in words
