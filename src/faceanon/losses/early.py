"""Values whose gradient is computed at once, so that no network's graph waits for the backward pass.

A term's graph is needed from its forward pass to the backward pass of the sum of all terms, so at that moment the
graphs of all terms lie in memory. Where a term is one number a picture, its gradient can be taken chunk by chunk as
soon as the value is known, and kept instead: one picture's worth of numbers. Values and gradients are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from faceanon.compat import add_to_all


class _Rows(torch.autograd.Function):
    """Values `(N,)` of rows `(N, ...)` whose gradients are known."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, gradients: Tensor) -> Tensor:  # noqa: ANN401 - torch's own contract
        ctx.save_for_backward(gradients)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        (gradients,) = ctx.saved_tensors
        return gradients * upstream.to(gradients.dtype).view(-1, *[1] * (gradients.ndim - 1)), None, None


class _Total(torch.autograd.Function):
    """A number whose gradients in some parameters are known."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, count: int, *tensors: Tensor) -> Tensor:  # noqa: ANN401
        # The parameters stand first and are not looked at: autograd only has to see them as inputs. The gradients
        # follow.
        ctx.save_for_backward(*tensors[count:])
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        gradients = []
        for gradient in ctx.saved_tensors:
            gradients.append(gradient * upstream.to(gradient.dtype))
        # One for each input of `forward`: value, count, parameters, gradients.
        return None, None, *gradients, *[None] * len(gradients)


def rowwise(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, chunks: Sequence[Tensor]) -> Tensor:
    """Values `(N,)` of the rows of `x` `(N, ...)`, chunk by chunk; no graph of `function` outlives the call.

    Gradients reach `x` alone. Rows of one chunk may depend on each other if what is made of the values weighs them
    alike, as a mean does.

    Args:
        function: Rows `(n, ...)` and their numbers `(n,)` to values `(n,)`.
        x: The rows.
        chunks: Row numbers, each row once.

    Examples:
        >>> import torch
        >>> from faceanon.losses.early import rowwise
        >>> x = torch.arange(6.0).view(3, 2).requires_grad_()
        >>> values = rowwise(lambda rows, numbers: rows.square().sum(1), x, torch.arange(3).split(2))
        >>> values.mean().backward()
        >>> values.tolist(), x.grad[2].tolist()
        ([1.0, 13.0, 41.0], [2.6666..., 3.3333...])
    """
    # The plain way: without gradients there is nothing to keep, and scaled losses need the one backward pass of the
    # sum.
    if _loss_scaled(x) or not (torch.is_grad_enabled() and x.requires_grad):
        values_of_chunks = [function(x[rows], rows) for rows in chunks]
        return torch.cat(values_of_chunks)[torch.cat(list(chunks)).argsort()]
    values_of_chunks = []
    gradients = torch.empty_like(x)
    for rows in chunks:
        # A leaf of its own: the graph of a chunk ends here, and is free when its gradient is known.
        part = x.detach()[rows].requires_grad_()
        values = function(part, rows)
        # The sum gives each row the gradient of its own value; the backward pass weighs the rows.
        (gradients[rows],) = _gradients(values.sum(), [part])
        values_of_chunks.append(values.detach())
    # The argsort of a permutation is its inverse: values go back to the order of the rows.
    values = torch.cat(values_of_chunks)[torch.cat(list(chunks)).argsort()]
    result: Tensor = _Rows.apply(x, values, gradients)
    return result


def total(parts: Iterable[Callable[[], Tensor]], parameters: Iterable[nn.Parameter]) -> Tensor:
    """Sum of scalar `parts`, each computed and differentiated before the next begins.

    Args:
        parts: Each computes a scalar.
        parameters: What gradients reach; those that do not require any are passed over.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from faceanon.losses.early import total
        >>> weight = nn.Parameter(torch.tensor(3.0))
        >>> loss = total([lambda: weight.square(), lambda: 2 * weight], [weight])
        >>> loss.backward()
        >>> loss.item(), weight.grad.item()
        (15.0, 8.0)
    """
    wanted = []
    for parameter in parameters:
        if parameter.requires_grad:
            wanted.append(parameter)
    parts = list(parts)
    if not (torch.is_grad_enabled() and wanted) or _loss_scaled(wanted[0]):
        return torch.stack([part() for part in parts]).sum()
    values = []
    gradients = list(map(torch.zeros_like, wanted))
    for part in parts:
        value = part()
        values.append(value.detach())
        add_to_all(gradients, _gradients(value, wanted))
        # Its graph has to go before the next part builds its own.
        del value
    result: Tensor = _Total.apply(torch.stack(values).sum(), len(wanted), *wanted, *gradients)
    return result


def _gradients(value: Tensor, inputs: list[Any]) -> list[Tensor]:
    # A backward pass runs outside of it.
    with torch.autocast(value.device.type, enabled=False):
        # A parameter that a part does not use gets a gradient of 0, so that the parts' gradients add up.
        gradients = torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)
    return list(gradients)


def _loss_scaled(x: Tensor) -> bool:
    """Whether half precision needs its losses scaled, which only the one backward pass of the sum does."""
    kind = x.device.type
    return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16
