"""From the shards of a run to its statistics: checked against each other, added in their order.

Addition of floating-point numbers depends on its order; this order is that of the shards, whoever
computed them and whenever they came. So the statistics equal, bit for bit, those of one process
that computes the same shards one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.header import PassHeader
from poskernel_core.common.progress import Report
from poskernel_core.common.rounding import counted
from poskernel_core.common.shards import Shard
from poskernel_core.common.specs import Gather, RunSpec
from poskernel_core.passes import streaming
from poskernel_core.passes.plan import locate_again
from poskernel_core.statistics import Plan
from poskernel_core.storage.shards import (
    Partial,
    Source,
    drop_partial,
    find_partial,
    other_partials,
    read_layer,
)
from poskernel_core.storage.statistics import missing_statistics, write_statistic
from poskernel_core.storage.store import Store

__all__ = ["merge_shards"]

OWN_TO_EACH = {"device", "seconds", "resumed_at_window"}
"""What shards of one run may differ in: where and how fast they were computed."""


@dataclass(frozen=True)
class _Found:
    """A shard's manifest, and where its sums are read from."""

    partial: Partial
    source: Source


def merge_shards(
    store: Store, sources: Mapping[str, Source], run: RunSpec, of: int, report: Report
) -> bool:
    """Add the shards of a run and write the statistics that the store lacks.

    Returns whether it lacked any: else no shard is read.
    ``sources`` are read besides the store, by the names that they are called by. What the store
    itself held of the shards is dropped afterwards.

    Raises:
        BadRequest: shards are lost or damaged, one was computed twice with different sums, or they
            do not belong together; the message names them.
        Cancelled: raised by ``report``.
        StoreFailed: the statistics cannot be written.
    """
    everywhere = {"the store": store, **sources}
    wanted = missing_statistics(store, run)
    plan = None
    for number, statistic in enumerate(wanted):
        shards = _collect(everywhere, run, statistic, of)
        header = _together(shards)
        plan = plan or _plan(run, header)
        layers = _added(shards, statistic, header.n_layers, plan)
        report(number, len(wanted), "Adding the shards")
        write_statistic(store, run, statistic, header, layers)
    if plan is not None:
        for number in range(of):
            drop_partial(store, run, Shard(number=number, of=of), plan.geometry.n_layers)
    return plan is not None


def _collect(
    sources: Mapping[str, Source], run: RunSpec, statistic: Gather, of: int
) -> list[_Found]:
    """Return the shards that have windows, in their order.

    Raises:
        BadRequest: some are lost, or there twice and unequal.
    """
    found: dict[int, _Found] = {}
    for number in range(of):
        shard = Shard(number=number, of=of)
        for name, source in sources.items():
            partial = find_partial(source, run, statistic, shard)
            if partial is None:
                continue
            known = found.setdefault(number, _Found(partial, source))
            if known.partial.layers != partial.layers and _alike(known.partial, partial):
                raise BadRequest(
                    f"Shard {shard} is there twice with different sums (the second in {name}): "
                    "keep one of them, as computed on the kind of machine that computed the others."
                )
            _check_pair(known.partial, partial)
    windows = next((each.partial.header.windows for each in found.values()), of)
    lost = [n for n in range(of) if n not in found and Shard(number=n, of=of).rows(windows)]
    if lost:
        raise BadRequest(_lost(sources, run, statistic, lost, of))
    return [found[number] for number in sorted(found)]


def _lost(
    sources: Mapping[str, Source], run: RunSpec, statistic: Gather, lost: Sequence[int], of: int
) -> str:
    """Return which shards are lost, and what lies there instead of them, if anything does."""
    names = ", ".join(map(str, lost[:20])) + (" and more" if len(lost) > 20 else "")
    what = f"Of {counted(of, 'shard')} numbered from 0, these are lost: {names} ({statistic!r} of "
    what += f"{run.model.name!r} on {counted(run.windows, 'window')} of {run.corpus.name!r})"
    for name, source in sources.items():
        for other in other_partials(source):
            if other.statistic == statistic and other.shard.of == of and other.shard.number in lost:
                why = _difference(run, other.run)
                if why:
                    return f"{what}; shard {other.shard} in {name} is of another run: {why}."
    first = Shard(number=lost[0], of=of)
    return f"{what}: compute them (precompute, shard {first}), or name the files that hold them."


def _difference(run: RunSpec, other: RunSpec) -> str:
    """Return the first thing in which two descriptions differ; nothing where they do not."""
    left, right = _flat(run), _flat(other)
    for name in sorted(left.keys() | right.keys()):
        if name not in ("gather", "pattern_windows") and left.get(name) != right.get(name):
            return f"{name} is {_short(right.get(name))} there, {_short(left.get(name))} here"
    return ""


def _flat(run: RunSpec) -> dict[str, Any]:
    """Return the fields of a run, those of its model and corpus by names such as ``model name``."""
    fields = run.model_dump(mode="json")
    inner = {
        f"{part} {name}": value
        for part in ("model", "corpus")
        for name, value in fields.pop(part).items()
    }
    return {**fields, **inner}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}... ({len(text)} characters)"


def _alike(left: Partial, right: Partial) -> bool:
    return left.versions == right.versions and left.tokens == right.tokens


def _check_pair(left: Partial, right: Partial) -> None:
    """Check that two shards were computed by the same software from the same text.

    Raises:
        BadRequest: they were not.
    """
    between = f"Shards {left.shard} and {right.shard} cannot be added"
    for name in sorted(left.versions.keys() | right.versions.keys()):
        one, other = left.versions.get(name, "none"), right.versions.get(name, "none")
        if one != other:
            raise BadRequest(
                f"{between}: the first was computed with {name} {one}, the second with {other}; "
                "compute all shards with the same versions."
            )
    if left.tokens != right.tokens:
        raise BadRequest(
            f"{between}: their machines cut the text into different tokens; give both the same "
            "tokenizer and corpus files."
        )
    first, second = (each.header.model_dump(exclude=OWN_TO_EACH) for each in (left, right))
    for name in first:
        if first[name] != second[name]:
            raise BadRequest(
                f"{between}: {name} is {_short(first[name])} in the first and "
                f"{_short(second[name])} in the second; compute all shards on machines of one kind."
            )


def _together(shards: Sequence[_Found]) -> PassHeader:
    """Return what the whole pass knows of itself.

    Raises:
        BadRequest: the shards do not belong together.
    """
    for left, right in pairwise(shards):
        _check_pair(left.partial, right.partial)
    headers = [each.partial.header for each in shards]
    return headers[0].model_copy(
        update={
            "device": ", ".join(dict.fromkeys(header.device for header in headers)),
            "seconds": round(sum(header.seconds for header in headers), 3),
            "resumed_at_window": 0,
            "shards": len(shards),
        }
    )


def _plan(run: RunSpec, header: PassHeader) -> Plan:
    return Plan(
        locate_again(run).geometry,
        header.context,
        header.windows,
        header.positions,
        run.queries_per_position,
        run.start_token,
        run.pattern_windows,
    )


def _added(
    shards: Sequence[_Found], statistic: Gather, n_layers: int, plan: Plan
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the means of one layer after another: the sums of its shards added, and finished."""
    for layer in range(n_layers):
        sums = read_layer(shards[0].source, shards[0].partial, layer)
        for each in shards[1:]:
            sums = streaming.add(sums, read_layer(each.source, each.partial, layer))
        if not sums:  # a statistic of the first layers alone
            yield {}
            continue
        one = {name: np.asarray(array)[None] for name, array in sums.items()}
        means = streaming.finish(one, (statistic,), plan)[statistic]
        yield {name: array[0] for name, array in means.items()}
