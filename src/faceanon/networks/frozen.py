"""Pretrained networks that train nothing and are saved nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Frozen(nn.Module):
    """Hold a pretrained network outside the module tree: no parameters, no checkpoint keys, no DDP bucket, no EMA copy.

    Gradients still flow through it to its input, and it follows `.to()`.

    Args:
        net: The network; put into eval mode, its parameters stop requiring gradients.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from faceanon.networks.frozen import Frozen
        >>> method = nn.Sequential(nn.Linear(4, 4), Frozen(nn.Linear(4, 1)))
        >>> list(method.state_dict())  # only what is trained
        ['0.weight', '0.bias']
        >>> method(torch.zeros(2, 4)).sum().backward()
        >>> method[0].weight.grad is not None  # gradients flow through
        True
    """

    net: nn.Module

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        # Past nn.Module.__setattr__, so not registered.
        self.__dict__["net"] = net.eval().requires_grad_(False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Frozen:
        # torch moves registered modules alone, and `net` is none.
        self.net._apply(fn)  # type: ignore[no-untyped-call]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Frozen:
        # Copies share the network: nothing in it is trained, so they need none of their own.
        return type(self)(self.net)

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the network takes and gives
        """Call the frozen network with the same arguments."""
        return self.net(*args, **kwargs)
