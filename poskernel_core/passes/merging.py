"""Merge the shards of a run into its statistics, after checking that they belong together.

Sums are exact, so the order of addition does not matter, and a shard never splits a CPU batch.
Therefore merged CPU shards give, bit for bit, the statistics of one CPU process that reads all
windows. A GPU uses larger batches, whose sums are rounded differently.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.header import PassHeader
from poskernel_core.common.progress import Report
from poskernel_core.common.rounding import counted
from poskernel_core.common.shards import WHOLE, Shard
from poskernel_core.common.specs import Gather, RunSpec
from poskernel_core.models.geometry import as_merged
from poskernel_core.passes import streaming
from poskernel_core.passes.prepare import locate_again
from poskernel_core.statistics import Sizes, Sums
from poskernel_core.storage.shards import (
    Partial,
    Source,
    drop_partial,
    other_partials,
    partials_of,
    read_layer,
)
from poskernel_core.storage.statistics import alone, missing_statistics, write_statistic
from poskernel_core.storage.store import Store

OWN_TO_EACH = {"device", "seconds", "resumed_at_window"}
"""Header fields that may differ between shards of a run."""


@dataclass(frozen=True)
class _Found:
    partial: Partial
    source: Source


def merge_shards(
    store: Store, sources: Mapping[str, Source], run: RunSpec, of: int, report: Report
) -> bool:
    """Merge the shards of a run and write the statistics that the store lacks.

    Returns whether any statistics were missing; if none were, no shard is read. ``sources`` maps
    names (for messages) to sources that are read in addition to the store. Shards in the store
    itself are deleted afterwards; the sums of a run that is not split, as soon as their statistic
    is written.
    """
    everywhere = {"the store": store, **sources}
    wanted = as_merged(missing_statistics(store, run))
    collected = {statistic: _collect(everywhere, run, statistic, of) for statistic in wanted}
    for number, (statistic, blocks) in enumerate(collected.items()):
        header = _together(blocks, of)
        layers = _added(blocks, statistic, header.n_layers, _plan(run, header))
        report(number, len(wanted), "Adding the shards" if of > 1 else "Writing the statistics")
        write_statistic(store, run, statistic, header, layers)
        if of == 1:
            drop_partial(store, alone(run, statistic), WHOLE)
    for number in range(of if wanted else 0):
        drop_partial(store, run, Shard(number=number, of=of))
    return bool(wanted)


def _collect(
    sources: Mapping[str, Source], run: RunSpec, statistic: Gather, of: int
) -> list[_Found]:
    """Return the blocks of all shards that have windows, in order of shard and group."""
    collected: dict[tuple[int, int], _Found] = {}
    for number in range(of):
        shard = Shard(number=number, of=of)
        for name, source in sources.items():
            for partial in partials_of(source, run, statistic, shard):
                known = collected.setdefault((number, partial.group), _Found(partial, source))
                if known.partial.layers != partial.layers and known.partial.made == partial.made:
                    raise BadRequest(
                        f"Shard {shard} is there twice with different sums (the second in {name}): "
                        "keep one of them, as computed on the kind of machine that computed the "
                        "others."
                    )
                _check_pair(known.partial, partial)
    lost = list(range(of))
    if collected:
        header = next(iter(collected.values())).partial.header
        shards = [Shard(number=number, of=of) for number in range(of)]
        lost = [
            shard.number
            for shard in shards
            for block in shard.blocks(header.windows, header.context)
            if (shard.number, block.group) not in collected
        ]
    if lost:
        raise BadRequest(_lost(sources, run, statistic, list(dict.fromkeys(lost)), of))
    return [collected[place] for place in sorted(collected)]


def _lost(
    sources: Mapping[str, Source], run: RunSpec, statistic: Gather, lost: Sequence[int], of: int
) -> str:
    """Return a message that names the missing shards, and a similar shard found instead, if any."""
    names = ", ".join(map(str, lost[:20])) + " and more" * (len(lost) > 20)
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
    here, there = (spec.model_dump(mode="json") for spec in (run, other))
    for part in ("model", "corpus"):
        for fields in (here, there):
            fields |= {f"{part} {name}": value for name, value in fields.pop(part).items()}
    for name in sorted((here.keys() | there.keys()) - {"gather", "pattern_windows"}):
        if here.get(name) != there.get(name):
            return f"{name} is {_short(there.get(name))} there, {_short(here.get(name))} here"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}... ({len(text)} characters)"


def _check_pair(left: Partial, right: Partial) -> None:
    between = f"Shards {left.shard} and {right.shard} cannot be added"
    ours, theirs = left.made.versions, right.made.versions
    for name in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(name, "none"), theirs.get(name, "none")
        if one != other:
            raise BadRequest(
                f"{between}: the first was computed with {name} {one}, the second with {other}; "
                "compute all shards with the same versions."
            )
    if left.made.tokens != right.made.tokens:
        raise BadRequest(
            f"{between}: their machines cut the text into different tokens; give both the same "
            "tokenizer and corpus files."
        )
    first, second = (partial.header.model_dump(exclude=OWN_TO_EACH) for partial in (left, right))
    for name in first:
        if first[name] != second[name]:
            raise BadRequest(
                f"{between}: {name} is {_short(first[name])} in the first and "
                f"{_short(second[name])} in the second; compute all shards on machines of one kind."
            )


def _together(blocks: Sequence[_Found], of: int) -> PassHeader:
    for left, right in pairwise(blocks):
        _check_pair(left.partial, right.partial)
    headers = [block.partial.header for block in blocks]
    resumed = max(header.resumed_at_window for header in headers)
    return headers[0].model_copy(
        update={
            "device": ", ".join(dict.fromkeys(header.device for header in headers)),
            "seconds": round(sum(header.seconds for header in headers), 3),
            "resumed_at_window": resumed if of == 1 else 0,
            "shards": len({block.partial.shard.number for block in blocks}) if of > 1 else 0,
        }
    )


def _plan(run: RunSpec, header: PassHeader) -> Sizes:
    return Sizes(
        locate_again(run).geometry,
        header.context,
        header.windows,
        header.positions,
        run.queries_per_position,
        run.start_token,
        run.pattern_windows,
        header.dealt,
    )


def _added(
    blocks: Sequence[_Found], statistic: Gather, n_layers: int, sizes: Sizes
) -> Iterator[dict[str, np.ndarray]]:
    for layer in range(n_layers):
        groups: dict[int, Sums] = {}
        for block in blocks:
            sums = read_layer(block.source, block.partial, layer)
            known = groups.get(block.partial.group)
            groups[block.partial.group] = sums if known is None else streaming.add(known, sums)
        if not groups[0]:  # some statistics cover only the first layers
            yield {}
            continue
        one = [
            {name: np.asarray(array)[None] for name, array in groups[group].items()}
            for group in sorted(groups)
        ]
        yield {name: array[0] for name, array in streaming.finish(statistic, one, sizes).items()}
