"""The loaded models of one process: each once, shared by all who run it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from poskernel_core.common.memory import free_memory
from poskernel_core.forward.loading import LoadedModel, load, pick_device
from poskernel_core.models.catalog import Located

__all__ = ["ModelCache"]

ROOM = 2.0
"""Free memory that another model needs, as a multiple of the largest one that is there."""


@dataclass
class ModelCache:
    """Keeps the models used last in memory: two, where there is room for a second.

    A model may be taken by several threads: its forward passes exclude each other.
    """

    most: int = 2
    _kept: OrderedDict[Any, LoadedModel] = field(default_factory=OrderedDict, repr=False)
    _choosing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def take(self, located: Located, device: str, dtype: str = "float32") -> LoadedModel:
        """Return a loaded model; one whose weights are about to lose bits is the caller's alone.

        Raises:
            BadRequest, UnsupportedModel: as :func:`poskernel_core.forward.loading.load`.
        """
        with self._choosing:
            if dtype == "bfloat16":
                self._make_room()
                return load(located, device, dtype)
            identity = (located.spec, str(pick_device(device)))
            if identity not in self._kept:
                self._make_room()
                self._kept[identity] = load(located, device)
            self._kept.move_to_end(identity)
            return self._kept[identity]

    def _make_room(self) -> None:
        """Let go of the models used longest ago, until there is room for one more."""
        while self._kept:
            largest = max(model.nbytes for model in self._kept.values())
            if len(self._kept) < self.most and free_memory() > ROOM * largest:
                return
            self._kept.popitem(last=False)
