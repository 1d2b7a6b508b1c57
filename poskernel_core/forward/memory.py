"""The memory that a model takes, said before it is read; and float32 one part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import torch
from torch import nn

from poskernel_core.common.errors import ComputeFailed

__all__ = ["check_room", "in_float32"]

BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2}
REST = 1.1
"""What reading takes beside the weights themselves, as a factor."""


def check_room(name: str, numbers: int, dtype: str, device: torch.device) -> None:
    """Refuse a model that cannot fit, before anything is read.

    Raises:
        ComputeFailed: it needs more memory than is free; the sentence says how much, and the way.
    """
    places = [("of memory", psutil.virtual_memory().available)]
    if device.type == "cuda":
        places.append(("on the GPU", torch.cuda.mem_get_info(device)[0]))
    for where, free in places:
        need = REST * BYTES[dtype] * numbers
        if need <= free:
            continue
        half = REST * BYTES["bfloat16"] * numbers
        way = (
            f"bfloat16 as precision ({_gigabytes(half)}), "
            if dtype != "bfloat16" and half <= free
            else ""
        )
        raise ComputeFailed(
            f"{name!r} needs {_gigabytes(need)} {where} in {dtype}, {_gigabytes(free)} are free: "
            f"choose {way}a smaller model, or another machine."
        )


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.2g} GB" if count < 1e10 else f"{count / 1e9:,.0f} GB"


@contextmanager
def in_float32(module: nn.Module) -> Iterator[None]:
    """Let a module of 16 bits compute in float32, its weights converted one part at a time.

    No more than one part's weights are there twice.
    """
    with ExitStack() as stack:
        for part in module.modules():
            own = [p for p in part.parameters(recurse=False) if p.dtype == torch.bfloat16]
            if own:
                kept: list[torch.Tensor] = []
                stack.callback(_restore, own, kept)
                stack.callback(part.register_forward_pre_hook(_widen(own, kept)).remove)
                stack.callback(part.register_forward_hook(_narrow(own, kept)).remove)
        yield


def _widen(own: list[nn.Parameter], kept: list[torch.Tensor]) -> Any:
    def hook(*_: Any) -> None:
        _restore(own, kept)
        kept.extend(parameter.data for parameter in own)
        for parameter in own:
            parameter.data = parameter.data.float()

    return hook


def _narrow(own: list[nn.Parameter], kept: list[torch.Tensor]) -> Any:
    return lambda *_: _restore(own, kept)


def _restore(own: list[nn.Parameter], kept: list[torch.Tensor]) -> None:
    """Give parameters their own numbers back, if they have others."""
    for parameter, data in zip(own, kept, strict=False):
        parameter.data = data
    kept.clear()
