"""How a loader is set up so that training does not wait for it."""

from __future__ import annotations

from typing import Any

GPU_WORKERS = 2


def feeding(trainer: Any, workers: int | None, in_memory: bool) -> dict[str, Any]:  # noqa: ANN401 - knows no Lightning
    """Arguments of a `DataLoader`; what it yields, and in which order, does not depend on them.

    Where a GPU trains, worker processes make batches ahead and put them where the GPU fetches them by itself. Where
    the processor trains, a worker takes its time from training: pictures in memory are then sliced in between, which
    costs less than sending them from another process.

    Args:
        trainer: Of the datamodule; None outside of one.
        workers: Processes; None for as many as it takes.
        in_memory: Whether the pictures are decoded already.
    """
    gpu = trainer is not None and trainer.strategy.root_device.type == "cuda"
    if workers is None:
        workers = GPU_WORKERS if gpu or not in_memory else 0
    # Handing pictures from process to process takes longer than taking them from memory.
    elif in_memory and not gpu:
        workers = 0
    return {"num_workers": workers, "persistent_workers": workers > 0, "pin_memory": gpu}
