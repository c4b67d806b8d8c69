"""Clocks, memory and FLOPs of this process."""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from bench.cases import Work
from bench.settings import Settings

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): resets VmHWM to the present VmRSS


@dataclass(frozen=True)
class Sample:
    """One measurement of a case.

    Args:
        wall: Seconds of one call.
        cpu: CPU-seconds of one call, of all threads and of child processes that have ended.
        memory: MB above the process as it was before the case was built, at most; None where it cannot be known.
        working: MB above the process as it was before this call, at most.
    """

    wall: float
    cpu: float
    memory: float | None = None
    working: float | None = None


def cpu_seconds() -> float:
    """CPU time so far, of this process and of its children that have ended."""
    used = []
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used.append(resource.getrusage(who))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _megabytes(field: str) -> float | None:
    """A field of /proc/self/status; None where there is no such file."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{field}:"):
                # The file counts in KiB.
                return int(line.split()[1]) / 1024
    return None


class Memory:
    """The largest memory of calls: resident pages on the CPU, allocated tensors on CUDA.

    Args:
        settings: The device.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.start = self.now()

    def now(self) -> float | None:
        """MB in use, once what is no longer needed has gone back."""
        gc.collect()
        # What torch keeps in its cache does not count here, so it need not be emptied.
        if self.settings.cuda:
            return torch.cuda.memory_allocated(self.settings.device) / 2**20
        # Glibc keeps freed pages; other C libraries have no such call.
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        return _megabytes("VmRSS")

    def reset(self) -> bool:
        """Forget the largest so far; False where the system cannot."""
        if self.settings.cuda:
            torch.cuda.reset_peak_memory_stats(self.settings.device)
            return True
        try:
            _CLEAR.write_text(_RESET_PEAK)
        except OSError:
            return False
        return True

    def peak(self) -> float | None:
        """MB at most since `reset`."""
        if self.settings.cuda:
            return torch.cuda.max_memory_allocated(self.settings.device) / 2**20
        return _megabytes("VmHWM")


def sample(work: Work, settings: Settings, memory: Memory, repeats: int = 1) -> Sample:
    """Measure `repeats` calls in a row; times are those of one."""
    # In this order: `now` gives freed pages back first, and the peak then starts from what is left.
    before = memory.now()
    known = memory.reset()
    # What an earlier call has started may still be running on the GPU.
    settings.synchronise()
    wall = time.perf_counter()
    cpu = cpu_seconds()
    for _ in range(repeats):
        work.call()
    # A call on a GPU returns before its work is done.
    settings.synchronise()
    wall = time.perf_counter() - wall
    cpu = cpu_seconds() - cpu
    peak = None
    if known and not work.in_children:
        peak = memory.peak()
    above: list[float | None] = []
    for start in (memory.start, before):
        if peak is None or start is None:
            above.append(None)
        else:
            # Memory that is freed meanwhile can put the peak below the start.
            above.append(max(0.0, peak - start))
    return Sample(wall / repeats, cpu / repeats, *above)


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up torch's own formulas for convolutions, products and attention (`torch.utils.flop_counter`).

    Its `FlopCounterMode` also tracks modules by hooks on gradients, which break where a stage takes gradients of parts
    of a graph; this one looks at operations alone.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch's own interface
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation gives
        """Count one operation, and run it."""
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        # As torch's `FlopCounterMode` does: the question for a device is left as it is, all else without a formula is
        # taken apart.
        if formula is None and func is not torch.ops.prim.device.default:
            with self:  # in inference mode whole compositions arrive
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **kwargs)
        if formula is not None:
            self.total += int(formula(*args, **kwargs, out_val=result))
        return result


def count_flops(work: Work) -> float | None:
    """GFLOP of one call by torch's formulas; None where torch does none of the work.

    Compiled networks run as they are while they are counted: the counter does not see into compiled code.
    """
    counter = FlopCounter()
    with torch.compiler.set_stance("force_eager"):
        work.call_under(counter)
    return counter.total / 1e9 or None
