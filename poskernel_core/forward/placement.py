"""Where the parts of a model lie that one device cannot hold: other GPUs, memory, the disk.

accelerate moves what a part is handed to where the part lies, and reads parts on the disk when they
are run, straight from the model's own files. The embeddings and layer 0, whose weights questions
look at, lie where the passes run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from accelerate import infer_auto_device_map
from torch import nn

from poskernel_core.common.errors import ComputeFailed
from poskernel_core.forward.memory import REST, gigabytes

__all__ = ["Placement", "place"]


@dataclass(frozen=True)
class Placement:
    """Which device holds which part of a model.

    Attributes:
        parts: the device of each part, by its name among the modules: a GPU's number, ``cpu`` or
            ``disk``.
        home: where passes are seen and changed; the first parts lie there.
    """

    parts: dict[str, int | str]
    home: torch.device

    @property
    def devices(self) -> tuple[str, ...]:
        """Where parts lie, in words, the fastest first."""
        return tuple(
            dict.fromkeys(
                f"GPU {each}" if isinstance(each, int) else {"cpu": "memory"}.get(each, each)
                for each in self.parts.values()
            )
        )


def place(
    name: str, skeleton: nn.Module, dtype: torch.dtype, free: dict[int | str, float]
) -> Placement:
    """Return where the parts of a model go that do not fit on the first device together.

    ``skeleton`` is the model on ``meta``; ``free`` is what :func:`room` returned.

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
