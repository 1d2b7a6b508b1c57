"""The models on offer, for programs: sizes, whether weights are here, and which runs are stored."""

from collections.abc import Iterator
from threading import Lock
from typing import Any

from cachetools import TTLCache, cached

from poskernel_core.common.errors import PosKernelError
from poskernel_core.data.texts import TYPED
from poskernel_core.models import catalog
from poskernel_core.storage.store import Store

FRESH = 10.0
"""Seconds for which the list of stored runs is cached: every header is read for it."""

RUN = ("revision", "corpus", "corpus_item", "context", "windows", "start_token", "dtype", "seed")
"""The provenance that tells one stored run of a model from another."""


def inventory(store: Store) -> list[dict[str, Any]]:
    """Return what is known of each model on offer; nothing is asked of the hub."""
    entries = catalog.entries()
    away = catalog.to_download([entry.name for entry in entries])
    return [
        {
            "name": entry.name,
            "title": catalog.title_here(entry.name),
            "size": entry.size,
            "good_for": entry.good_for or catalog.note_of(entry.name),
            **({"weights": False} if entry.name in away else _found(store, entry.name)),
        }
        for entry in entries
    ]


def _found(store: Store, name: str) -> dict[str, Any]:
    try:
        located = catalog.locate(name)
    except PosKernelError as error:
        return {"weights": False, "problem": str(error)}
    geometry = located.geometry
    return {
        "weights": not located.away,
        "layers": geometry.n_layers,
        "heads": geometry.n_heads,
        "context": geometry.n_ctx,
        "positions": geometry.scheme,
        "runs": _runs(store).get(located.spec.fingerprint, []),
    }


@cached(TTLCache(8, FRESH), key=lambda store: str(store.directory), lock=Lock())
def _runs(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Return the stored runs by the model's fingerprint, each with the analyses stored of it."""
    runs: dict[tuple[Any, ...], set[str]] = {}
    for provenance, params, analysis in _results(store):
        of_run = tuple(provenance.get(name) for name in ("model_fingerprint", *RUN))
        plain = all(isinstance(value, str | int | None) for value in of_run)
        if plain and provenance.get("corpus") != TYPED and not params.get("text"):
            runs.setdefault(of_run, set()).add(analysis)
    by_model: dict[str, list[dict[str, Any]]] = {}
    for (fingerprint, *fields), analyses in runs.items():
        description = dict(zip(RUN, fields, strict=True)) | {"questions": sorted(analyses)}
        by_model.setdefault(fingerprint, []).append(description)
    return by_model


def stored_params(store: Store, fingerprint: str | None, question: str) -> list[dict[str, Any]]:
    """Return the parameters of all stored answers of a model to a question, of whatever run."""
    return [
        params
        for provenance, params, analysis in _results(store)
        if analysis == question and provenance.get("model_fingerprint") == fingerprint
    ]


def _results(store: Store) -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """Yield provenance, parameters and question of all stored results."""
    for _, header in store.headers():
        provenance, params = header.get("provenance"), header.get("params")
        if isinstance(provenance, dict) and isinstance(params, dict):
            yield provenance, params, str(header.get("analysis"))
