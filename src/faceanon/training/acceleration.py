"""What makes a training fast on a GPU: compiled networks, CUDA graphs, memory layout, fused optimizers, TF32."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import lightning as L
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, Optimizer

from faceanon.compat import dynamo_settings, inductor_settings
from faceanon.errors import UserError
from faceanon.networks.compiled import CompiledCall, compile_region, is_compiled, regions, restore
from faceanon.networks.frozen import Frozen
from faceanon.networks.layout import channels_last

Part = Literal["backbone", "discriminator", "frozen"]
Float32 = Literal["highest", "high", "medium"]

_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "backbone": ("backbone", "prior", "network"),
    "discriminator": ("discriminator",),
}
_ROLES = ("recogniser", "parser", "landmarks", "perceptual")  # what losses may ask; the judge is for validation
_FUSED = (Adam, SGD, Adagrad)  # AdamW is an Adam
_RECOMPILES = 32  # a shape, a gradient mode or frozen parameters more is one each; torch gives up at 8


class Acceleration(L.Callback):
    """Speed settings of a training step; by default nothing is changed.

    Networks are compiled in place before the first batch, those of the bundle after the batch that first used them.
    Names in checkpoints stay, so compiled and plain trainings load each other's. Compiled code runs in training steps
    only: validation, sample sheets, the averaged copy, export and R1 (whose second derivatives compiled code does not
    have) use the plain networks. Nothing falls back by itself: what cannot be compiled ends the training with its name.

    Args:
        compile: Parts to compile: `backbone` (or prior), `discriminator`, `frozen` (the bundle's
            networks and the anchors' teacher). Shapes are taken as fixed: every other batch size is compiled anew.
        backend: Of `torch.compile`. `inductor` needs Triton on a GPU and a C++ compiler on a CPU; `aot_eager` and
            `eager` need neither and are no faster: for trying.
        skip: Names, or beginnings of them, of what is not compiled.
        cuda_graphs: Replay kernels as CUDA graphs (`reduce-overhead`); on a GPU only, and only with `inductor`.
        channels_last: Lay out all convolutions' weights for channels-last.
        fused: Let Adam, AdamW, SGD and Adagrad update in one kernel; optimizers without such a form stay as they are.
        float32_matmul: Precision of float32 products during the training: `highest`, `high` (TF32 on GPUs) or `medium`;
            None leaves it.

    Attributes:
        paused: Run the plain networks, in spite of all that is compiled.
        calls: What is compiled, by name.

    Raises:
        UserError: CUDA graphs without compiled networks.
    """

    def __init__(
        self,
        compile: list[Part] | None = None,
        backend: str = "inductor",
        skip: list[str] | None = None,
        cuda_graphs: bool = False,
        channels_last: bool = False,
        fused: bool = False,
        float32_matmul: Float32 | None = None,
    ) -> None:
        if cuda_graphs and (not compile or backend != "inductor"):
            raise UserError("acceleration: cuda_graphs need compile: [backbone, ...] and backend: inductor")
        self.parts = list(compile or [])
        self.backend = backend
        self.skip = tuple(skip or ())
        self.cuda_graphs = cuda_graphs
        self.channels_last = channels_last
        self.fused = fused
        self.float32_matmul = float32_matmul
        self.paused = False
        self.calls: dict[str, CompiledCall] = {}
        self._restored: list[tuple[Any, str, Any]] = []
        self._precision: str | None = None

    @property
    def changes(self) -> bool:
        """Whether any setting does anything."""
        return bool(self.parts or self.channels_last or self.fused or self.float32_matmul)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Before the module is on its device: layouts and precision, for trainings alone.

        Raises:
            UserError: CUDA graphs are wanted, and there is no GPU.
        """
        if stage != "fit":
            return
        device = trainer.strategy.root_device.type
        if self.cuda_graphs and device != "cuda":
            raise UserError(
                f"acceleration.cuda_graphs needs a GPU, and this training runs on {device}: set it to false, or give "
                "--trainer.accelerator gpu"
            )
        if self.channels_last:
            lay_out(pl_module)
        if self.float32_matmul is not None:
            self._precision = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(self.float32_matmul)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """When weights and optimizers are in their place: compile, fuse, and say what was done."""
        if not self.changes:
            return
        if self.parts:
            self._prepare_compiler()
            for part, names in _ATTRIBUTES.items():
                networks = {}
                for name in names:
                    if part in self.parts:
                        networks[name] = getattr(pl_module, name, None)
                modules = []
                for name, item in networks.items():
                    if isinstance(item, nn.Module):
                        modules.append((name, item))
                self._compile(modules)
            self._compile_frozen(pl_module)
        kinds = []
        for one in trainer.optimizers:
            kinds.append((type(one).__name__, self.fused and fuse(one)))
        if trainer.is_global_zero:
            print(f"[acceleration] {'; '.join(self._told(kinds))}", flush=True)

    def _told(self, kinds: list[tuple[str, bool]]) -> Iterator[str]:
        yield f"float32 products: {torch.get_float32_matmul_precision()}"
        yield f"layout: {'channels last' if self.channels_last else 'as it is'}"
        texts = []
        for name, done in kinds:
            texts.append(f"{name} ({'fused' if done else 'not fused'})")
        yield "optimizers: " + ", ".join(texts)
        if self.parts:
            graphs = ", CUDA graphs" if self.cuda_graphs else ""
            yield f"compiled ({self.backend}{graphs}): {', '.join(self.calls) or 'nothing'}"
            yield "R1 and everything outside training steps: not compiled"

    def _prepare_compiler(self) -> None:
        """Let nothing that cannot be compiled or replayed run unnoticed."""
        dynamo = dynamo_settings()
        self._set(dynamo, "recompile_limit", max(_RECOMPILES, dynamo.recompile_limit))
        self._set(dynamo, "fail_on_recompile_limit_hit", True)
        if self.cuda_graphs:
            self._set(inductor_settings().triton, "cudagraph_or_error", True)
        # What torch itself looks at while it compiles behind a first network.
        warnings.filterwarnings("ignore", r"The \.grad attribute of a Tensor that is not a leaf Tensor")
        # Until the first training step begins, which lets compiled code run, everything runs uncompiled.
        torch.compiler.set_stance("force_eager")

    def _set(self, config: Any, name: str, value: object) -> None:  # noqa: ANN401 - a module of settings
        self._restored.append((config, name, getattr(config, name)))
        setattr(config, name, value)

    def _compile(self, found: Iterable[tuple[str, nn.Module]]) -> list[str]:
        """Compile what is not compiled yet; gives back its names."""
        before = set(self.calls)
        mode = "reduce-overhead" if self.cuda_graphs else None
        for name, module in found:
            for region in regions(module, name):
                if region.name in self.calls or region.name.startswith(self.skip) or is_compiled(region):
                    continue
                # One graph for each shape, or an error: a network that breaks into pieces would be slow without a word.
                options = {"backend": self.backend, "mode": mode, "dynamic": False, "fullgraph": True}
                self.calls[region.name] = compile_region(region, **options)
        added = []
        for name in self.calls:
            if name not in before:
                added.append(name)
        return added

    def _compile_frozen(self, module: L.LightningModule) -> list[str]:
        """Compile those of the bundle's networks that have been built by now, and the teacher; the new ones' names."""
        if "frozen" not in self.parts:
            return []
        bundle = vars(getattr(module, "bundle", object))
        networks = []
        for role in _ROLES:
            # In `vars` and not by attribute: asking for the attribute would build the network.
            if role in bundle:
                networks.append((f"bundle.{role}", bundle[role]))
        for teacher in getattr(module, "teacher", []):
            networks.append(("teacher", teacher))
        modules = []
        for name, item in networks:
            if isinstance(item, nn.Module):
                modules.append((name, item))
        return self._compile(modules)

    def on_train_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: Any,  # noqa: ANN401 - Lightning's
        batch_idx: int,
    ) -> None:
        """Let compiled code run from the start of a training step on."""
        if not self.parts or self.paused:
            return
        # A bundle builds a network when it is first asked for, some only in the first step.
        if (late := self._compile_frozen(pl_module)) and trainer.is_global_zero:
            print(f"[acceleration] compiled, after a first batch without: {', '.join(late)}", flush=True)
        torch.compiler.set_stance("default")
        if self.cuda_graphs:
            # From here on the graphs may write over what the step before drew.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,  # noqa: ANN401 - Lightning's
        batch: Any,  # noqa: ANN401 - Lightning's
        batch_idx: int,
    ) -> None:
        """Compiled code ends with the training step: what callbacks and validation call runs eagerly."""
        if self.parts:
            torch.compiler.set_stance("force_eager")

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Print the parts that were to be compiled and were never called."""
        unused = []
        for name, call in self.calls.items():
            if not call.calls:
                unused.append(name)
        if unused and trainer.is_global_zero:
            print(f"[acceleration] never called, so never compiled: {', '.join(unused)}", flush=True)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Undo the settings when a run fails, as `teardown` does when it ends."""
        self._undo()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Make everything what it was but the layout."""
        self._undo()

    def _undo(self) -> None:
        for call in self.calls.values():
            restore(call.region)
        self.calls = {}
        if self._restored:
            torch.compiler.set_stance("default")
        # Backwards: of what was set twice the first value is the one to restore.
        for config, name, value in reversed(self._restored):
            setattr(config, name, value)
        self._restored = []
        if self._precision is not None:
            torch.set_float32_matmul_precision(self._precision)
            self._precision = None


def fuse(optimizer: Optimizer) -> bool:
    """Let an optimizer update in one kernel; whether it can.

    Its state may have been loaded from a checkpoint of one that could not, whose step counts lie on the CPU, or of
    weights in another layout: the kernel goes through weights and state side by side as they lie in memory.
    """
    if not isinstance(optimizer, _FUSED):
        return False
    for group in optimizer.param_groups:
        group["fused"] = True
        # torch refuses an optimizer that is asked for both.
        group["foreach"] = False
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if isinstance(state.get("step"), torch.Tensor):
                # The fused kernel reads steps on the device, and moments in the layout of their parameter.
                state["step"] = state["step"].to(parameter.device, torch.float32)
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.ndim and value.stride() != parameter.stride():
                    state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    return True


def lay_out(module: nn.Module) -> None:
    """Lay weights of convolutions out for channels-last: `(O, I, k, k)`, and StyleGAN2's `(1, O, I, k, k)` alike."""
    for part in module.modules():
        # A frozen network is no registered submodule, so `modules()` below does not come to it.
        if isinstance(part, Frozen):
            lay_out(part.net)
    channels_last(module)
    for parameter in module.parameters():
        if parameter.ndim == 5 and len(parameter) == 1:
            # Channels-last exists for four dimensions alone: the leading 1 is taken off and put back.
            parameter.data = parameter.data[0].contiguous(memory_format=torch.channels_last)[None]
