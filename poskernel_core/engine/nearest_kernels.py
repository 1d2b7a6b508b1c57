"""Find the heads with the nearest kernels among all stored results.

No kernels are computed. The search takes each run's stored kernels at the query position nearest to
the requested one, if they skip the same number of first keys.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from cachetools import FIFOCache, LRUCache, cached

from poskernel_core.analyses.comparison.formulas import distance, largest_error
from poskernel_core.analyses.comparison.pins import Pin
from poskernel_core.analyses.kernels.kernel import PositionalKernel
from poskernel_core.common.heads import head_name
from poskernel_core.common.specs import model_prefix
from poskernel_core.engine.provenance import stored
from poskernel_core.models.catalog import Located
from poskernel_core.storage.store import Store

MAX_SECONDS = 3.0
MAX_RUNS = 200
MAX_BYTES = 256 * 2**20
MAX_HEADERS = 20_000
NAMED = ("model", "revision", "corpus", "context", "windows_asked", "start_token", "dtype", "seed")
"""The provenance fields that identify a run."""


@dataclass(frozen=True)
class Found:
    """A head with a near kernel at a query position of its run.

    ``distance`` is the TV distance of the kernels, aligned by offset, from 0 to 1;
    ``largest_error`` bounds its standard error from above.
    """

    pin: Pin
    distance: float
    largest_error: float
    query: int


@dataclass(frozen=True)
class Alike:
    """The nearest heads, nearest first, of so many runs searched and heads compared.

    Each head of a model is there once, at the nearest of its runs, such as checkpoints.
    ``whole`` tells whether the search was complete, not cut off by the limits on time and runs.
    """

    heads: list[Found]
    runs: int
    compared: int
    whole: bool


_Rows = tuple[np.ndarray, np.ndarray]
"""Kernels of one run by offset, ``[layer, head, offset]``, and their standard errors."""


def heads_like(
    store: Store,
    pin: Pin,
    kernel: np.ndarray,
    error: np.ndarray,
    *,
    query: int,
    skip: int,
    offered: Callable[[str], bool],
    located: Callable[[str, str | None], Located | None],
    most: int = 12,
) -> Alike:
    """Return the heads whose kernels are nearest to that of ``pin``, without ``pin`` itself.

    ``kernel`` is that head's kernel ``[offset]`` at a query position, from offset 0, without the
    first ``skip`` keys, NaN where no key is visible; ``error`` its standard errors. ``offered``
    tells whether this client may see a model, ``located`` finds it, if it is available.
    """
    end = time.monotonic() + MAX_SECONDS
    runs, complete = _runs(store, query, skip, offered, end)
    matches: list[Found] = []
    searched = compared = 0
    for key, kernels in runs:
        if time.monotonic() > end:
            complete = False
            break
        model = located(kernels.told["model"], kernels.told["revision"])
        if model is None or model.spec.fingerprint != kernels.told["model_fingerprint"]:
            continue  # its weights are no longer there
        rows = _rows(store, key, kernels)
        if rows is None:
            continue
        searched += 1
        gaps = distance(rows[0].astype(float), kernel)
        largest = largest_error(rows[1].astype(float), error)
        compared += int(np.isfinite(gaps).sum())
        order = np.argsort(np.where(np.isnan(gaps), np.inf, gaps), axis=None)[: most + 1]
        for layer, head in zip(*np.unravel_index(order, gaps.shape), strict=True):
            if np.isfinite(gaps[layer, head]):
                provenance, context = kernels.told, int(kernels.told["context"])
                its = Pin(
                    head_name(int(layer), int(head)),
                    provenance["model"],
                    provenance["revision"],
                    provenance["corpus"],
                    None if context == model.geometry.usual_context else context,
                    int(provenance["windows_asked"]),
                    bool(provenance["start_token"]),
                    provenance["dtype"],
                    int(provenance["seed"]),
                )
                apart = float(gaps[layer, head]), float(largest[layer, head])
                matches.append(Found(its, *apart, kernels.query))
    nearest: dict[tuple[str, str], Found] = {}
    for match in sorted(matches, key=lambda match: (match.distance, str(match.pin))):
        if match.pin != pin:
            nearest.setdefault((match.pin.model, match.pin.cell), match)
    return Alike([*nearest.values()][:most], searched, compared, complete)


@dataclass(frozen=True)
class _Kernels:
    told: dict[str, Any]
    query: int
    skip: int

    @classmethod
    def read(cls, key: str, header: Mapping[str, Any]) -> _Kernels | None:
        """Parse an entry's header; None if it holds other results, or has an unexpected layout."""
        provenance, params = header.get("provenance"), header.get("params")
        kernels = header.get("analysis") == PositionalKernel.name
        if not (kernels and isinstance(provenance, dict) and isinstance(params, dict)):
            return None
        numbers = (provenance.get(name) for name in ("windows_asked", "context", "seed"))
        fits = (
            key.startswith(model_prefix(str(provenance.get("model_fingerprint"))))
            and params.get("source") == "mean"
            and all(
                type(number) is int
                for number in (params.get("query"), params.get("skip"), *numbers)
            )
            and all(isinstance(provenance.get(name), str) for name in ("model", "corpus", "dtype"))
            and isinstance(provenance.get("revision"), str | None)
            # a pin cannot express these
            and not provenance.get("corpus_item")
            and provenance.get("pattern_windows") is None
        )
        if not fits:
            return None
        named = {name: provenance.get(name) for name in (*NAMED, "model_fingerprint")}
        return cls(named, params["query"], params["skip"])


def _runs(
    store: Store, query: int, skip: int, offered: Callable[[str], bool], end: float
) -> tuple[list[tuple[str, _Kernels]], bool]:
    """Return the kernels at the nearest position of each run, and whether the list is complete."""
    place, complete = str(store.directory), True
    with _READING:
        known = {key: parsed for (of, key), parsed in _HEADERS.items() if of == place}
    for key, header in store.headers(known):
        if time.monotonic() > end:
            complete = False
            break
        known[key] = _Kernels.read(key, header)
    with _READING:
        _HEADERS.update({(place, key): parsed for key, parsed in known.items()})
    best: dict[tuple[Any, ...], tuple[int, str, _Kernels]] = {}
    for key, kernels in known.items():
        if kernels is None or kernels.skip != skip or not offered(kernels.told["model"]):
            continue
        run, away = tuple(kernels.told.values()), abs(kernels.query - query)
        if (run not in best or away < best[run][0]) and store.has(key):
            best[run] = away, key, kernels
    chosen = [(key, parsed) for _, key, parsed in best.values()]
    return chosen[:MAX_RUNS], complete and len(chosen) <= MAX_RUNS


@cached(  # what could not be read is too large to be kept
    LRUCache(MAX_BYTES, lambda rows: rows[0].nbytes + rows[1].nbytes if rows else MAX_BYTES + 1),
    key=lambda store, key, kernels: (str(store.directory), key),
    lock=threading.Lock(),
)
def _rows(store: Store, key: str, kernels: _Kernels) -> _Rows | None:
    if (result := stored(store, key)) is None:
        return None
    n = kernels.query

    def turned(rows: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(rows[..., n::-1] if n else rows[..., :1]).astype(np.float32)

    kernel, error = turned(result.values["kernel"]), turned(result.errors["kernel"])
    hidden = n + 1 - kernels.skip
    for rows in (kernel, error):
        rows[..., hidden:] = np.nan
    for layer, visible in enumerate(np.nanmax(result.values["visible_keys"], axis=1, initial=0)):
        for rows in (kernel, error):
            rows[layer, :, int(visible) :] = np.nan
    return kernel, error


_HEADERS: FIFOCache[tuple[str, str], _Kernels | None] = FIFOCache(MAX_HEADERS)
"""Cache of parsed headers by the store's directory and the key; an entry never changes."""
_READING = threading.Lock()
