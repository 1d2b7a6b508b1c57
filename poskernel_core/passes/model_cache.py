"""The cache of loaded models of a process."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch

from poskernel_core.forward.loading import LoadedModel, has_room, load, pick_device
from poskernel_core.models.catalog import Located


@dataclass
class ModelCache:
    """Keeps the most recently used models in memory: two, if there is room for a second.

    Threads may share a model; its forward passes are serialised by a lock.
    """

    most: int = 2
    _kept: OrderedDict[Any, LoadedModel] = field(default_factory=OrderedDict, repr=False)
    _choosing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def take(self, located: Located, device: str, dtype: str = "float32") -> LoadedModel:
        """Return a loaded model; a bfloat16 model is loaded for the caller and never shared.

        Raises:
            BadRequest, UnsupportedModel: as :func:`poskernel_core.forward.loading.load`.
        """
        with self._choosing:
            if dtype == "bfloat16":
                self._make_room(located, device)
                return load(located, device, dtype)
            identity = (located.spec, str(pick_device(device)))
            if identity not in self._kept:
                self._make_room(located, device)
                self._kept[identity] = load(located, device)
            self._kept.move_to_end(identity)
            return self._kept[identity]

    def _make_room(self, located: Located, device: str) -> None:
        """Evict the least recently used models until there is room for one more."""
        while self._kept and not (len(self._kept) < self.most and has_room(located, device)):
            self._kept.popitem(last=False)
            torch.cuda.empty_cache()
