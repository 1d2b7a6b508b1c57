"""Caches of a worker: loaded models, tokenizers and token windows."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from cachetools import LRUCache

from poskernel_core.common import arithmetic
from poskernel_core.common.axes import Tokens
from poskernel_core.common.groups import Dealt
from poskernel_core.common.specs import Execution, ModelSpec, RunSpec, digest
from poskernel_core.data.corpora import check_unchanged
from poskernel_core.forward.loading import LoadedModel, has_room, load, pick_device
from poskernel_core.models.catalog import Located, check_files_unchanged
from poskernel_core.models.tokenizers import Tokenizer, load_tokenizer
from poskernel_core.passes.prepare import prepare, sizes_of
from poskernel_core.statistics import Sizes
from poskernel_core.storage.store import Store

Identity = tuple[ModelSpec, str, str]
BYTES_OF_WINDOWS = 64 * 2**20
TOKENIZERS = 8
CUT_BY = {"corpus", "context", "windows", "start_token", "seed", "destination", "repeat_every"}
"""The fields of a run that determine its token windows, together with the tokenizer."""


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
        """Return a loaded model; a bfloat16 model is loaded for the caller and never shared."""
        picked = pick_device(device)
        identity = located.spec, str(picked), dtype
        self._place_arithmetic(picked, dtype)
        if dtype == "bfloat16":
            self._make_room(located, identity)
            return load(located, device, dtype)
        if identity not in self._kept:
            self._make_room(located, identity)
            self._kept[identity] = load(located, device)
        self._kept.move_to_end(identity)
        return self._kept[identity]

    def _place_arithmetic(self, device: torch.device, dtype: str) -> None:
        # TF32 is a setting of the whole process; MPS is for one thread
        exact = "tf32" not in (dtype, self._held and self._held[2])
        on_gpu = exact and device.type == "cuda"
        arithmetic.run_on(partial(torch.tensor, device=device) if on_gpu else None)

    def _make_room(self, located: Located, new: Identity) -> None:
        spare = [identity for identity in self._kept if identity != self._held]
        while spare and (
            len({*self._kept, new, self._held} - {None}) > self.most
            or not has_room(located, new[1])
        ):
            del self._kept[spare.pop(0)]
            if torch.accelerator.is_available():
                torch.accelerator.empty_cache()


@dataclass
class WorkerContext:
    """The models, tokenizers and token windows in use, each loaded once; for one thread."""

    store: Store
    models: ModelCache = field(default_factory=ModelCache, repr=False)
    _tokenizers: LRUCache[str, Tokenizer | None] = field(
        default_factory=lambda: LRUCache(TOKENIZERS), repr=False
    )
    _windows: LRUCache[str, tuple[Tokens, Dealt]] = field(
        default_factory=lambda: LRUCache(BYTES_OF_WINDOWS, lambda cut: cut[0].nbytes), repr=False
    )

    def tokenizer(self, located: Located) -> Tokenizer | None:
        """Return a model's tokenizer (cached); None if a local model has none."""
        print_ = located.spec.fingerprint
        if print_ not in self._tokenizers:
            tokenizer = load_tokenizer(located)
            check_files_unchanged(located)
            self._tokenizers[print_] = tokenizer
        return self._tokenizers[print_]

    def prepare(
        self, run: RunSpec, execution: Execution, located: Located, tokenizer: Tokenizer | None
    ) -> tuple[Tokens, Sizes]:
        """Return the token windows of a run (cached) and the sizes of its pass."""
        cut = run.model_dump(mode="json", include=CUT_BY)
        key = digest([run.model.fingerprint, execution.all_windows, cut])
        kept = self._windows.get(key)
        if kept is not None:
            windows = kept[0].copy()
            return windows, sizes_of(run, located.geometry, windows, kept[1], tokenizer)
        windows, sizes = prepare(run, execution, located, tokenizer)
        check_unchanged(run.corpus)  # before anybody else gets these windows
        if windows.nbytes <= BYTES_OF_WINDOWS:
            self._windows[key] = np.array(windows), sizes.dealt
        return windows, sizes
