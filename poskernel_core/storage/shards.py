"""Partial sums in the store: what one shard of a run adds to each statistic, one entry a layer.

They are sums, not means, under keys of their own. A manifest, written last, says of what run they
are, what computed them, and the checksum of every layer; so two computations of one shard are
compared without reading their sums, and layers of different computations are never mixed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from poskernel_core.common.errors import BadRequest, InvalidField
from poskernel_core.common.header import PassHeader
from poskernel_core.common.shards import Shard
from poskernel_core.common.specs import Gather, RunSpec
from poskernel_core.storage.encoding import Entry
from poskernel_core.storage.statistics import MANIFEST, alone
from poskernel_core.storage.store import Store

__all__ = [
    "Partial",
    "Source",
    "drop_partial",
    "find_partial",
    "other_partials",
    "partial_keys",
    "read_layer",
    "write_partial",
]

KIND = "partial sums"


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
class Partial:
    """What a shard's manifest says of one statistic.

    Attributes:
        run: the run, as far as the statistic depends on it.
        statistic: whose sums they are.
        shard: which windows they are of.
        header: what the pass over these windows knew of itself.
        tokens: checksum of all windows of the run.
        versions: what computed them.
        layers: checksum of the sums of every layer.
    """

    run: RunSpec
    statistic: Gather
    shard: Shard
    header: PassHeader
    tokens: str
    versions: Mapping[str, str]
    layers: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as an entry's header."""
        return {
            "kind": KIND,
            "run": self.run.model_dump(mode="json"),
            "statistic": self.statistic,
            "shard": self.shard.model_dump(),
            "pass": self.header.as_json(),
            "tokens": self.tokens,
            "versions": dict(self.versions),
            "layers": list(self.layers),
        }

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Partial | None:
        """Return what an entry's header holds, or None where it is of another kind."""
        if stored.get("kind") != KIND:
            return None
        try:
            return cls(
                RunSpec.model_validate(stored["run"]),
                stored["statistic"],
                Shard.model_validate(stored["shard"]),
                PassHeader.model_validate(stored["pass"]),
                str(stored["tokens"]),
                {str(name): str(version) for name, version in stored["versions"].items()},
                tuple(map(str, stored["layers"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError, InvalidField):
            return None


def _key(run: RunSpec, statistic: Gather, shard: Shard, part: str) -> str:
    return alone(run, statistic).key(kind=KIND, shard=shard.model_dump(), part=part)


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
    header: PassHeader,
    tokens: str,
    versions: Mapping[str, str],
    sums: Mapping[Gather, Mapping[str, np.ndarray]],
) -> None:
    """Write the sums ``[layer, ...]`` of a shard, by statistic, each with its manifest last."""
    for statistic, arrays in sums.items():
        checksums = []
        for layer in range(header.n_layers):
            there = {name: each[layer] for name, each in arrays.items() if layer < len(each)}
            there = {name: np.asarray(each) for name, each in there.items()}
            store.put(_key(run, statistic, shard, str(layer)), {"layer": layer}, there)
            checksums.append(checksum(there))
        partial = Partial(
            alone(run, statistic), statistic, shard, header, tokens, versions, tuple(checksums)
        )
        store.put(_key(run, statistic, shard, MANIFEST), partial.as_json(), {})


def find_partial(source: Source, run: RunSpec, statistic: Gather, shard: Shard) -> Partial | None:
    """Return the manifest of a shard's sums, or None where there is none."""
    found = source.get(_key(run, statistic, shard, MANIFEST))
    return None if found is None else Partial.read(found[0])


def read_layer(source: Source, partial: Partial, layer: int) -> dict[str, np.ndarray]:
    """Return the sums of one layer, without the layer axis.

    Raises:
        BadRequest: they are lost, damaged, or of another computation than the manifest.
    """
    found = source.get(_key(partial.run, partial.statistic, partial.shard, str(layer)))
    if found is None or checksum(found[1]) != partial.layers[layer]:
        raise BadRequest(
            f"Layer {layer} of {partial.statistic!r} in shard {partial.shard} is lost or damaged: "
            "compute that shard again."
        )
    return found[1]


def partial_keys(run: RunSpec, shard: Shard, n_layers: int) -> list[str]:
    """Return the keys of all that is written of a shard."""
    parts = [*map(str, range(n_layers)), MANIFEST]
    return [_key(run, statistic, shard, part) for statistic in run.gather for part in parts]


def drop_partial(store: Store, run: RunSpec, shard: Shard, n_layers: int) -> None:
    """Forget a shard whose sums have been added."""
    for key in partial_keys(run, shard, n_layers):
        store.drop(key)


def other_partials(source: Source) -> Iterator[Partial]:
    """Yield the manifests of all shards in a source, whatever run they are of."""
    for key in source.keys(""):
        found = source.get(key)
        partial = None if found is None else Partial.read(found[0])
        if partial is not None:
            yield partial
