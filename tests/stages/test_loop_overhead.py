"""Lightning trains what a bare loop with the same calls trains, at nearly its cost."""

import json
import os
import re
import subprocess
import sys

import pytest


@pytest.mark.timing
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_bare_loop_ends_at_the_same_weights_for_the_same_time(repo, precision):
    words = [f"--trainer.precision={precision}", "--data.init_args.versions=1"]
    words += ["--trainer.callbacks=null", "--trainer.enable_progress_bar=false"]
    command = [sys.executable, "benchmarks/loop_overhead.py", "--config=configs/dbaf_s2.yaml", "--batch=4"]
    command += ["--block=4", "--rounds=3", "--batches=8", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=repo, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "are equal, bit for bit" in done.stdout
    ratios = re.findall(r"^(\w+) / (\w+): ([\d.]+) \(processor", done.stdout, re.MULTILINE)
    found = {f"{above}/{below}": float(ratio) for above, below, ratio in ratios}
    assert found.keys() == {"lightning/bare", "bare/cached"}, json.dumps(found)
    assert all(ratio < 1.5 for ratio in found.values()), found  # a wide margin: machines are shared
