"""Partial sums in the store: the sums of one block of a shard, one entry per statistic and layer.

They are sums, not means, under separate keys. A manifest, written last, records the run, the group,
the versions of the software and the checksum of every layer. So two computations of a block can be
compared without reading their sums, and layers of different computations are never mixed. Sums of a
whole group are stored in single precision, like the means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from poskernel_core.common.errors import BadRequest, InvalidField
from poskernel_core.common.groups import GROUPS
from poskernel_core.common.header import PassHeader
from poskernel_core.common.shards import WHOLE, Block, Shard
from poskernel_core.common.specs import Gather, RunSpec
from poskernel_core.storage.encoding import Entry
from poskernel_core.storage.statistics import MANIFEST, alone
from poskernel_core.storage.store import Store

KIND: Literal["partial sums"] = "partial sums"


@runtime_checkable
class Source(Protocol):
    """A source of entries: a store or an exported file."""

    def get(self, key: str) -> Entry | None:
        """Return header and arrays, or None."""
        ...

    def keys(self, prefix: str = "") -> Iterable[str]:
        """Return the keys with this prefix."""
        ...


@dataclass(frozen=True)
class Made:
    """The origin of sums: the checksum of all windows of the run, and the software versions."""

    tokens: str
    versions: Mapping[str, str]


class Partial(BaseModel):
    """The manifest of a block for one statistic.

    ``run`` is reduced to what the statistic depends on; ``tokens`` is the checksum of the windows,
    ``layers`` that of the sums of every layer.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    kind: Literal["partial sums"] = KIND
    run: RunSpec
    statistic: Gather
    shard: Shard
    group: int
    header: PassHeader = Field(alias="pass")
    tokens: str
    versions: dict[str, str]
    layers: tuple[str, ...]

    @property
    def made(self) -> Made:
        """The origin of the sums."""
        return Made(self.tokens, self.versions)

    def as_json(self) -> dict[str, Any]:
        """Return the manifest as an entry's header."""
        return self.model_dump(mode="json", by_alias=True)

    def key(self, part: str) -> str:
        """Return the key of a layer's sums, or of the manifest."""
        return _key(self.run, self.statistic, self.shard, self.group, part)

    def entry_keys(self) -> list[str]:
        """Return the keys of all entries of the block."""
        return [self.key(part) for part in (*map(str, range(self.header.n_layers)), MANIFEST)]

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Partial | None:
        """Parse an entry's header; None if it is not a manifest of partial sums."""
        try:
            return cls.model_validate(stored)
        except (ValidationError, InvalidField):
            return None


def _key(run: RunSpec, statistic: Gather, shard: Shard, group: int, part: str) -> str:
    return alone(run, statistic).key(kind=KIND, shard=shard.model_dump(), group=group, part=part)


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the hex SHA-256 of arrays with their names, types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write_partial(
    store: Store,
    run: RunSpec,
    shard: Shard,
    block: Block,
    header: PassHeader,
    made: Made,
    sums: Mapping[Gather, Mapping[str, np.ndarray]],
) -> None:
    """Write a block's sums ``[layer, ...]`` by statistic; a manifest follows each statistic."""
    for statistic, arrays in sums.items():
        manifest, checksums = _key(run, statistic, shard, block.group, MANIFEST), []
        store.drop(manifest)
        for layer in range(header.n_layers):
            there = {name: array[layer] for name, array in arrays.items() if layer < len(array)}
            kind = np.float32 if block.whole else np.float64
            there = {name: np.asarray(array, dtype=kind) for name, array in there.items()}
            store.put(_key(run, statistic, shard, block.group, str(layer)), {"layer": layer}, there)
            checksums.append(checksum(there))
        partial = Partial(
            run=alone(run, statistic),
            statistic=statistic,
            shard=shard,
            group=block.group,
            header=header,
            tokens=made.tokens,
            versions=dict(made.versions),
            layers=tuple(checksums),
        )
        store.put(manifest, partial.as_json(), {})


def _find(
    source: Source, run: RunSpec, statistic: Gather, shard: Shard, group: int
) -> Partial | None:
    entry = source.get(_key(run, statistic, shard, group, MANIFEST))
    return None if entry is None else Partial.read(entry[0])


def is_written(store: Store, run: RunSpec, shard: Shard, block: Block, made: Made) -> bool:
    """Return whether the store has the whole block, made from the same windows and versions."""
    for statistic in run.gather:
        partial = _find(store, run, statistic, shard, block.group)
        if partial is None or partial.made != made or not all(map(store.has, partial.entry_keys())):
            return False
    return True


def read_layer(source: Source, partial: Partial, layer: int) -> dict[str, np.ndarray]:
    """Return the sums of one layer, without the layer axis."""
    entry = source.get(partial.key(str(layer)))
    if entry is None or checksum(entry[1]) != partial.layers[layer]:
        raise BadRequest(
            f"Layer {layer} of {partial.statistic!r} in shard {partial.shard} is lost or damaged: "
            "compute that shard again."
        )
    return entry[1]


def partials_of(source: Source, run: RunSpec, statistic: Gather, shard: Shard) -> list[Partial]:
    """Return the manifests of a shard's blocks in a source, ordered by group."""
    partials = (_find(source, run, statistic, shard, group) for group in range(GROUPS))
    return [partial for partial in partials if partial is not None]


def partial_keys(source: Source, run: RunSpec, shard: Shard) -> list[str]:
    """Return the keys of all entries of a shard in a source, according to its manifests."""
    return [
        key
        for statistic in run.gather
        for partial in partials_of(source, run, statistic, shard)
        for key in partial.entry_keys()
    ]


def drop_partial(store: Store, run: RunSpec, shard: Shard, but: Made | None = None) -> None:
    """Delete the blocks of a shard, except those with the origin ``but``; the first group last."""
    for statistic in run.gather:
        for partial in reversed(partials_of(store, run, statistic, shard)):
            if partial.made != but:
                for key in partial.entry_keys():
                    store.drop(key)


def drop_left_over(store: Store, run: RunSpec) -> None:
    """Delete the blocks of whole statistics, if a process was killed before it had deleted them."""
    for statistic in run.gather:
        if store.has(_key(run, statistic, WHOLE, 0, MANIFEST)):
            drop_partial(store, alone(run, statistic), WHOLE)


def other_partials(source: Source) -> Iterator[Partial]:
    """Yield the manifests of all shards in a source, of any run."""
    for key in source.keys(""):
        entry = source.get(key)
        partial = None if entry is None else Partial.read(entry[0])
        if partial is not None:
            yield partial
