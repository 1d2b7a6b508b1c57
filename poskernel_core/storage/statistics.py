"""Statistics in the store: separate keys per statistic, one entry per layer.

A click on a head therefore reads only one layer of the statistics it needs, and a new statistic
needs a pass only for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from poskernel_core.common.groups import GROUPS
from poskernel_core.common.header import PassHeader
from poskernel_core.common.shards import WHOLE, Shard
from poskernel_core.common.specs import OF_PATTERNS, Gather, RunSpec
from poskernel_core.common.views import LazyArrays
from poskernel_core.storage.encoding import Entry
from poskernel_core.storage.shipped import Shipped
from poskernel_core.storage.store import Store

MANIFEST, CHECKPOINT = "manifest", "checkpoint"


class _Manifest(NamedTuple):
    header: PassHeader
    arrays: dict[str, int]


def _find(store: Store | Shipped, run: RunSpec, statistic: Gather) -> _Manifest | None:
    """Return the manifest of a statistic, or None if the manifest or a layer is missing."""
    entry = store.get(part_key(run, statistic, MANIFEST))
    header = None if entry is None else PassHeader.read(entry[0].get("pass", {}))
    if entry is None or header is None:
        return None
    parts = (part_key(run, statistic, str(layer)) for layer in range(header.n_layers))
    return _Manifest(header, entry[0]["arrays"]) if all(map(store.has, parts)) else None


class StoredStatistics:
    """Statistics read from the store one layer at a time, with a cache of recent layers.

    The header is that of the pass which gathered the first statistic.
    """

    def __init__(self, store: Store, run: RunSpec, manifests: Mapping[Gather, _Manifest]) -> None:
        self.header = next(iter(manifests.values())).header
        self._store = store
        self._run = run
        self._places = {
            array: (statistic, layers)
            for statistic, manifest in manifests.items()
            for array, layers in manifest.arrays.items()
        }

    @classmethod
    def open(cls, store: Store, run: RunSpec) -> StoredStatistics | None:
        """Return the statistics of a run, or None if any part is missing."""
        every = ((name, _find(store, run, name)) for name in run.gather)
        manifests = {name: manifest for name, manifest in every if manifest is not None}
        return cls(store, run, manifests) if len(manifests) == len(run.gather) else None

    def layer(self, layer: int) -> LazyArrays:
        """Return the arrays of one layer, read from the store on access.

        Raises:
            LayerMissing: (on access) the entry is gone or damaged.
        """
        there = {name: place for name, (place, layers) in self._places.items() if layer < layers}

        def read(name: str) -> np.ndarray:
            array: np.ndarray = self._store.layer(part_key(self._run, there[name], str(layer)))[
                name
            ]
            return array

        return LazyArrays(lambda: there, read)


def windows_of(run: RunSpec) -> RunSpec:
    """Return a run without its statistics; equal for runs that one pass can gather together."""
    return run.model_copy(update={"gather": ()})


def in_passes(runs: Iterable[RunSpec]) -> list[tuple[RunSpec, RunSpec]]:
    """Pair each run with the windows of the pass that gathers its statistics.

    A run without attention statistics joins any pass over the same windows.
    """
    shared: dict[RunSpec, RunSpec] = {}
    pairs = []
    for run in sorted(runs, key=lambda run: OF_PATTERNS.isdisjoint(run.gather)):
        windows = windows_of(run)
        free = windows.model_copy(update={"pattern_windows": None})
        first = shared.setdefault(free, windows)
        pairs.append((run, first if OF_PATTERNS.isdisjoint(run.gather) else windows))
    return pairs


def alone(run: RunSpec, statistic: Gather) -> RunSpec:
    """Reduce a run to what one statistic depends on."""
    bound = run.pattern_windows if statistic in OF_PATTERNS else None
    return run.model_copy(update={"gather": (statistic,), "pattern_windows": bound})


def part_key(run: RunSpec, statistic: Gather, part: str) -> str:
    """Return the store key of a part of one statistic; it does not depend on other statistics."""
    return alone(run, statistic).key(kind="statistics", part=part)


def statistics_keys(store: Store | Shipped, run: RunSpec) -> list[str]:
    """Return the keys of all parts of a run's statistics that are in the store."""
    keys = []
    for statistic in run.gather:
        manifest = _find(store, run, statistic)
        if manifest is not None:
            parts = [MANIFEST, *map(str, range(manifest.header.n_layers))]
            keys += [part_key(run, statistic, part) for part in parts]
    return keys


def missing_statistics(store: Store, run: RunSpec) -> tuple[Gather, ...]:
    """Return the statistics of a run that are missing or incomplete in the store."""
    return tuple(name for name in run.gather if _find(store, run, name) is None)


def write_statistic(
    store: Store,
    run: RunSpec,
    statistic: Gather,
    header: PassHeader,
    layers: Iterable[Mapping[str, np.ndarray]],
) -> None:
    """Write the layers of one statistic from an iterator; later layers may lack some arrays."""
    lengths: dict[str, int] = {}
    for layer, there in enumerate(layers):
        store.put(part_key(run, statistic, str(layer)), {"layer": layer}, dict(there))
        lengths |= dict.fromkeys(there, layer + 1)
    manifest = {"pass": header.model_dump(mode="json"), "arrays": lengths}
    store.put(part_key(run, statistic, MANIFEST), manifest, {})


def _checkpoint_key(run: RunSpec, shard: Shard, group: int) -> str:
    of = {"shard": shard.model_dump(), "group": group}
    return windows_of(run).key(kind="statistics", part=CHECKPOINT, **of)


def write_checkpoint(
    store: Store,
    run: RunSpec,
    group: int,
    done: int,
    made: Mapping[str, Any],
    sums: dict[str, np.ndarray],
    shard: Shard = WHOLE,
) -> None:
    """Store the sums of the first ``done`` windows of a shard's group.

    ``made`` identifies the windows and the software, in JSON values.
    """
    header = {"group": group, "done": done, "gather": list(run.gather), "made": dict(made)}
    store.put(_checkpoint_key(run, shard, group), header, sums)


def read_checkpoint(
    store: Store, run: RunSpec, shard: Shard = WHOLE, group: int | None = None
) -> Entry | None:
    """Return a group's checkpoint in an interrupted pass, or None.

    By default it is that of the first group that has one.
    """
    if group is None:
        every = (read_checkpoint(store, run, shard, number) for number in range(GROUPS))
        return next(filter(None, every), None)
    entry = store.get(_checkpoint_key(run, shard, group))
    kinds = {"group": int, "done": int, "gather": list}
    valid = entry and all(isinstance(entry[0].get(name), kind) for name, kind in kinds.items())
    return entry if valid else None


def drop_checkpoint(store: Store, run: RunSpec, shard: Shard, group: int) -> None:
    """Remove the checkpoint of a finished group."""
    store.drop(_checkpoint_key(run, shard, group))
