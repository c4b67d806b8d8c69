"""What the demo's short trainings are told."""

from pathlib import Path

import pytest

from faceanon.commands.demo import DemoOptions, _stage


@pytest.mark.parametrize(
    ("config", "batches", "from_scratch", "head_start"),
    [
        ("persona_s1", 60, False, 20),
        ("persona_s2", 60, False, 20),
        ("persona_s2", 3000, False, 100),
        ("persona_s1", 3000, True, 0),
        ("persona_s2", 2, True, 0),
    ],
)
def test_the_painter_learns_in_most_of_a_demos_batches(config, batches, from_scratch, head_start):
    options = DemoOptions(
        out=Path("runs/demo"),
        batches=batches,
        from_scratch=from_scratch,
        seed=0,
        bundle="photo128",
    )
    words = _stage(config, options, Path("runs/demo/stage"))
    assert f"--model.init_args.head_start={head_start}" in words
