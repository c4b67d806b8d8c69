"""Private names of torch and Lightning that faceanon uses: the one file to look at when either is updated.

Seen in torch 2.15.0 and Lightning 2.6.6. Each function says what has no public way. Of Gradio nothing private is used.
Two methods that are private too stand where their class is, since Python finds them by name: `_apply` of
`networks.frozen.Frozen`, and `_parse_ckpt_path` of `training.cli.FaceAnonCLI`. Benchmarks have some of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

# torch 2.15.0

COMPILED_CALL = "_compiled_call_impl"
"""Where a module keeps what `nn.Module.compile` made; torch offers no way to ask for it or to take it away."""


def compiled_call(module: nn.Module, **options: Any) -> Callable[..., Any]:  # noqa: ANN401 - torch.compile's own
    """Compile a module in place, and give what its call has become."""
    module.compile(**options)
    call: Callable[..., Any] = getattr(module, COMPILED_CALL)
    return call


def is_compiler_error(error: Exception) -> bool:
    """Whether the compiler raised it; its errors have no public base class."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))


def dynamo_settings() -> Any:  # noqa: ANN401 - a module
    """Settings of torch's tracer; `torch.compiler.config` names these limits too, but not in every release we take."""
    from torch._dynamo import config

    return config


def inductor_settings() -> Any:  # noqa: ANN401 - a module
    """Settings of torch's default compiler; nothing public refuses to run without CUDA graphs."""
    from torch._inductor import config

    return config


def add_to_all(sums: list[Tensor], values: list[Tensor]) -> None:
    """Add tensors to as many others, in place, in one call; a loop starts a kernel for each."""
    torch._foreach_add_(sums, values)


def move_all(these: list[Tensor], towards: list[Tensor], weight: float) -> None:
    """Move tensors a part of the way to as many others, in place, in one call."""
    torch._foreach_lerp_(these, towards, weight)


def norms_of_all(tensors: list[Tensor]) -> list[Tensor]:
    """The Euclidean norm of every tensor, each a scalar, in one call."""
    return list(torch._foreach_norm(tensors))


def untyped(storage: torch.storage.TypedStorage) -> torch.UntypedStorage:
    """The bytes of a storage; the public `untyped()` warns that typed storages are going away."""
    return storage._untyped_storage


def has_statistics(module: nn.Module) -> bool:
    """Whether a module learns buffers without gradients: any batch norm, or a spectral norm; both bases are private."""
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.utils.parametrizations import _SpectralNorm

    return isinstance(module, _BatchNorm | _SpectralNorm)


# Lightning 2.6.6


def writes_logs(trainer: Trainer) -> bool:
    """Whether the loggers write a row in the current batch; Lightning's own test, for which it has no public name."""
    return trainer._logger_connector.should_update_logs


def logged_now(trainer: Trainer) -> dict[str, Any]:
    """Names and values that Lightning would log now."""
    return dict(trainer._logger_connector.metrics["log"])


def forget_logged(trainer: Trainer, prefix: str, kept: Collection[str]) -> None:
    """Have Lightning not repeat what was logged under `prefix/` in later rows, save the names in `kept`."""
    for item in (trainer._results or {}).values():
        if item.meta.name.startswith(f"{prefix}/") and item.meta.name not in kept:
            # Lightning logs no entry whose value of the last step is None.
            item._forward_cache = None


def epoch_is_over(trainer: Trainer) -> bool:
    """Whether the last batch of the epoch is done, though its end is not."""
    # Lightning makes it a bool at every batch, and None again when the epoch's last batch is done.
    return trainer._logger_connector._first_loop_iter is None


def steps_logged(trainer: Trainer) -> int:
    """The step that Lightning writes into rows of the log; its `global_step` counts optimizer steps instead."""
    return trainer.fit_loop.epoch_loop._batches_that_stepped


def swap_process_observer(observer: Callable[..., None]) -> Callable[..., None]:
    """Put a function in the place of Lightning's watch over the processes that it starts; gives the former.

    Lightning calls it with a list of `subprocess.Popen`. Its own kills all of them without a word.
    """
    from lightning.pytorch.strategies.launchers import subprocess_script

    name = "_launch_process_observer"
    former: Callable[..., None] = getattr(subprocess_script, name)
    setattr(subprocess_script, name, observer)
    return former
