"""Caches of a worker: loaded models, tokenizers and token windows."""

from dataclasses import dataclass, field

import numpy as np
from cachetools import LRUCache

from poskernel_core.common.axes import Tokens
from poskernel_core.common.groups import Dealt
from poskernel_core.common.specs import Execution, RunSpec, digest
from poskernel_core.models.catalog import Located
from poskernel_core.models.tokenizers import Tokenizer, load_tokenizer
from poskernel_core.passes.model_cache import ModelCache
from poskernel_core.passes.prepare import prepare, sizes_of
from poskernel_core.statistics import Sizes
from poskernel_core.storage.store import Store

BYTES_OF_WINDOWS = 64 * 2**20
TOKENIZERS = 8
CUT_BY = {
    "corpus",
    "context",
    "windows",
    "start_token",
    "seed",
    "destination",
    "repeat_every",
}
"""The fields of a run that determine its token windows, together with the tokenizer."""


def _nbytes(cut: tuple[Tokens, Dealt]) -> int:
    return cut[0].nbytes


@dataclass
class WorkerContext:
    """The models, tokenizers and token windows in use, each loaded once; for one thread."""

    store: Store
    models: ModelCache = field(default_factory=ModelCache, repr=False)
    _tokenizers: LRUCache[str, Tokenizer | None] = field(
        default_factory=lambda: LRUCache(TOKENIZERS), repr=False
    )
    _windows: LRUCache[str, tuple[Tokens, Dealt]] = field(
        default_factory=lambda: LRUCache(BYTES_OF_WINDOWS, getsizeof=_nbytes), repr=False
    )

    def tokenizer(self, located: Located) -> Tokenizer | None:
        """Return a model's tokenizer (cached); None if a local model has none.

        Raises:
            UnsupportedModel, NoNetwork: as :func:`.tokenizers.load_tokenizer`.
        """
        print_ = located.spec.fingerprint
        if print_ not in self._tokenizers:
            self._tokenizers[print_] = load_tokenizer(located)
        return self._tokenizers[print_]

    def prepare(
        self, run: RunSpec, execution: Execution, located: Located, tokenizer: Tokenizer | None
    ) -> tuple[Tokens, Sizes]:
        """Return the token windows of a run (cached) and the sizes of its pass.

        Raises:
            BadRequest: as :func:`poskernel_core.passes.prepare.prepare`.
        """
        cut = run.model_dump(mode="json", include=CUT_BY)
        key = digest([run.model.fingerprint, execution.all_windows, cut])
        kept = self._windows.get(key)
        if kept is not None:
            windows = kept[0].copy()
            return windows, sizes_of(run, located.geometry, windows, kept[1], tokenizer)
        windows, sizes = prepare(run, execution, located, tokenizer)
        if windows.nbytes <= BYTES_OF_WINDOWS:
            self._windows[key] = np.array(windows), sizes.dealt
        return windows, sizes
