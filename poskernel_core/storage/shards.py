"""Partial sums in the store: what one block of a shard adds to each statistic, one entry a layer.

They are sums, not means, under keys of their own. A manifest, written last, says of what run and of
which group's windows they are, what computed them, and the checksum of every layer; so two
computations of one block are compared without reading their sums, and layers of different
computations are never mixed. Sums of a whole group are kept in single precision, as the means are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
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
    """Where entries are read from: a store, or an exported file."""

    def get(self, key: str) -> Entry | None:
        """Return header and arrays, or None."""
        ...

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that begin with ``prefix``."""
        ...


@dataclass(frozen=True)
class Made:
    """What sums were made of: the checksum of all windows of the run; and by which versions."""

    tokens: str
    versions: Mapping[str, str]


class Partial(BaseModel):
    """What a block's manifest says of one statistic.

    Attributes:
        run: the run, as far as the statistic depends on it.
        statistic: whose sums they are.
        shard: the part of the run that they are of.
        group: the group of texts that they are of.
        header: what the pass over these windows knew of itself.
        tokens, versions: what they were made of, and by what.
        layers: checksum of the sums of every layer.
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
        """What the sums were made of, and by what."""
        return Made(self.tokens, self.versions)

    def as_json(self) -> dict[str, Any]:
        """Return it as an entry's header."""
        return self.model_dump(mode="json", by_alias=True)

    def key(self, part: str) -> str:
        """Return the key of a layer's sums, or of the manifest."""
        return _key(self.run, self.statistic, self.shard, self.group, part)

    def entry_keys(self) -> list[str]:
        """Return the keys of all that is written of the block."""
        return [self.key(part) for part in (*map(str, range(self.header.n_layers)), MANIFEST)]

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Partial | None:
        """Return what an entry's header holds, or None where it is of another kind."""
        try:
            return cls.model_validate(stored)
        except (ValidationError, InvalidField):
            return None


def _key(run: RunSpec, statistic: Gather, shard: Shard, group: int, part: str) -> str:
    return alone(run, statistic).key(kind=KIND, shard=shard.model_dump(), group=group, part=part)


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the hex SHA-256 of arrays with their names, types and shapes."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def write_partial(
    store: Store,
    run: RunSpec,
    shard: Shard,
    block: Block,
    header: PassHeader,
    made: Made,
    sums: Mapping[Gather, Mapping[str, np.ndarray]],
) -> None:
    """Write the sums ``[layer, ...]`` of a block, by statistic, each with its manifest last."""
    for statistic, arrays in sums.items():
        manifest, checksums = _key(run, statistic, shard, block.group, MANIFEST), []
        store.drop(manifest)
        for layer in range(header.n_layers):
            there = {name: each[layer] for name, each in arrays.items() if layer < len(each)}
            kind = np.float32 if block.whole else np.float64
            there = {name: np.asarray(each, dtype=kind) for name, each in there.items()}
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
    """Return the manifest of a block's sums, or None where there is none."""
    found = source.get(_key(run, statistic, shard, group, MANIFEST))
    return None if found is None else Partial.read(found[0])


def is_written(store: Store, run: RunSpec, shard: Shard, block: Block, made: Made) -> bool:
    """Tell whether the store holds all of a block, made of the same and by the same."""
    for statistic in run.gather:
        found = _find(store, run, statistic, shard, block.group)
        if found is None or found.made != made or not all(map(store.has, found.entry_keys())):
            return False
    return True


def is_begun(store: Store, run: RunSpec, statistic: Gather) -> bool:
    """Tell whether the store holds blocks of a run that is not cut into shards."""
    return bool(partials_of(store, run, statistic, WHOLE))


def read_layer(source: Source, partial: Partial, layer: int) -> dict[str, np.ndarray]:
    """Return the sums of one layer, without the layer axis.

    Raises:
        BadRequest: they are lost, damaged, or of another computation than the manifest.
    """
    found = source.get(partial.key(str(layer)))
    if found is None or checksum(found[1]) != partial.layers[layer]:
        raise BadRequest(
            f"Layer {layer} of {partial.statistic!r} in shard {partial.shard} is lost or damaged: "
            "compute that shard again."
        )
    return found[1]


def partials_of(source: Source, run: RunSpec, statistic: Gather, shard: Shard) -> list[Partial]:
    """Return the manifests that a source holds of a shard's blocks, in the order of the groups."""
    found = (_find(source, run, statistic, shard, group) for group in range(GROUPS))
    return [partial for partial in found if partial is not None]


def partial_keys(source: Source, run: RunSpec, shard: Shard) -> list[str]:
    """Return the keys of all that a source holds of a shard, as far as manifests tell."""
    return [
        key
        for statistic in run.gather
        for found in partials_of(source, run, statistic, shard)
        for key in found.entry_keys()
    ]


def drop_partial(store: Store, run: RunSpec, shard: Shard, but: Made | None = None) -> None:
    """Forget the blocks of a shard, but those that are made of the same and by the same."""
    for statistic in run.gather:
        for found in partials_of(store, run, statistic, shard):
            if found.made != but:
                for key in found.entry_keys():
                    store.drop(key)


def other_partials(source: Source) -> Iterator[Partial]:
    """Yield the manifests of all shards in a source, whatever run they are of."""
    for key in source.keys(""):
        found = source.get(key)
        partial = None if found is None else Partial.read(found[0])
        if partial is not None:
            yield partial
