"""Distribute a model that one device cannot hold: over other GPUs, memory and the disk.

accelerate moves the inputs of a part to the part's device. Parts that stay on the disk are loaded
when they run, directly from the model's files. The embeddings and layer 0 are on the device of the
passes, because questions read their weights.
"""

from dataclasses import dataclass
from typing import Any

import torch
from accelerate import infer_auto_device_map
from torch import nn

from poskernel_core.common.errors import ComputeFailed
from poskernel_core.forward.memory import REST, gigabytes


@dataclass(frozen=True)
class Placement:
    """Which device has which part of a model.

    Attributes:
        parts: device of each part by module name: a GPU's number, ``cpu`` or ``disk``.
        home: device of observers and edits; the first parts are there.
    """

    parts: dict[str, int | str]
    home: torch.device

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices of the parts, in words, fastest first."""
        return tuple(
            dict.fromkeys(
                f"GPU {each}" if isinstance(each, int) else {"cpu": "memory"}.get(each, each)
                for each in self.parts.values()
            )
        )


def place(
    name: str, skeleton: nn.Module, dtype: torch.dtype, free: dict[int | str, float]
) -> Placement:
    """Assign a device to each part of a model that does not fit on the first device.

    ``skeleton`` is the model on ``meta``; ``free`` is the result of :func:`room`.

    Raises:
        ComputeFailed: not even the first layer fits on the first device.
    """
    first = next(iter(free))
    kept: Any = getattr(skeleton, "_no_split_modules", None) or ()
    parts = infer_auto_device_map(
        skeleton,
        max_memory={at: int(size / REST) for at, size in free.items()},
        no_split_module_classes=list(kept),
        dtype=dtype,
    )
    if next(iter(parts.values())) != first:
        raise ComputeFailed(
            f"Not even the first layer of {name!r} fits into the {gigabytes(free[first])} that are "
            "free: choose a smaller model, or another machine."
        )
    home = torch.device("cuda", first) if isinstance(first, int) else torch.device(first)
    return Placement(parts, home)
