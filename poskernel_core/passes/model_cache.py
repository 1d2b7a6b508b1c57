"""The cache of loaded models of a process."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from poskernel_core.common.specs import ModelSpec
from poskernel_core.forward.loading import LoadedModel, has_room, load, pick_device
from poskernel_core.models.catalog import Located

Identity = tuple[ModelSpec, str, str]


@dataclass
class ModelCache:
    """Keeps the models used last in memory: two, if there is room for a second.

    For one thread, the only one that runs models.
    """

    most: int = 2
    _kept: OrderedDict[Identity, LoadedModel] = field(default_factory=OrderedDict, repr=False)
    _held: Identity | None = None

    @contextmanager
    def holding(self, model: ModelSpec, device: str, dtype: str) -> Iterator[None]:
        """Never give up this model meanwhile: a long task computes with it between other tasks."""
        self._held = model, str(pick_device(device)), dtype
        try:
            yield
        finally:
            self._held = None

    def take(self, located: Located, device: str, dtype: str = "float32") -> LoadedModel:
        """Return a loaded model; a bfloat16 model is loaded for the caller and never shared.

        Raises:
            BadRequest, UnsupportedModel: as :func:`poskernel_core.forward.loading.load`.
        """
        identity = located.spec, str(pick_device(device)), dtype
        if dtype == "bfloat16":
            self._make_room(located, identity)
            return load(located, device, dtype)
        if identity not in self._kept:
            self._make_room(located, identity)
            self._kept[identity] = load(located, device)
        self._kept.move_to_end(identity)
        return self._kept[identity]

    def _make_room(self, located: Located, new: Identity) -> None:
        """Give up the models used longest ago until there is room for one more."""
        spare = [each for each in self._kept if each != self._held]
        while spare and (
            len({*self._kept, new, self._held} - {None}) > self.most
            or not has_room(located, new[1])
        ):
            del self._kept[spare.pop(0)]
            if torch.accelerator.is_available():
                torch.accelerator.empty_cache()
