"""Which precisions a training may have, and bfloat16 on processors that have no instructions for it."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info

from faceanon.errors import UserError
from faceanon.networks.layout import has_bfloat16

OPTION = "--trainer.precision"
FULL = "32-true"
# Weights and batches are float32 in all of these. Others convert batches too, which Lightning cannot do with ours.
KNOWN = ("32-true", "32", "bf16-mixed", "bf16", "16-mixed", "16")


def choose_precision(trainer: MutableMapping[str, Any], words: Sequence[str]) -> None:
    """Put float32 in the place of a config's bfloat16 where the processor would have to imitate it.

    Such a processor takes 14 times as long for a step (DeepPrivacy at 128 px, an AMD EPYC with AVX2 alone). What was
    typed as an option stays: whoever types it wants these very numbers.

    Args:
        trainer: The trainer's settings; `precision` is replaced.
        words: The command line.

    Raises:
        UserError: The precision is not one that a training can have.
    """
    if trainer.get("precision") is None:
        return
    precision = str(trainer["precision"])
    if precision not in KNOWN:
        raise UserError(f"{OPTION}={precision} is not for faceanon's trainings; use 32-true, bf16-mixed or 16-mixed")
    if not precision.startswith("bf16") or not _on_processor(trainer.get("accelerator")) or has_bfloat16():
        return
    if any(word.partition("=")[0] == OPTION for word in words):
        return
    trainer["precision"] = FULL
    rank_zero_info(
        f"[precision] this processor has no instructions for bfloat16 and is many times slower in {precision}, which "
        f"the config asks for: training in {FULL}; {OPTION}={precision} keeps it"
    )


def _on_processor(accelerator: object) -> bool:
    """Whether a trainer with this setting computes on the CPU."""
    if accelerator in (None, "auto"):
        return not (torch.cuda.is_available() or torch.backends.mps.is_available())
    return accelerator == "cpu"
