"""``precompute`` and ``merge`` where several devices or machines share the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from poskernel_core.cli import actions
from poskernel_core.cli.options import Run
from poskernel_core.cli.reports import print_line
from poskernel_core.cli.terminal import complain
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import is_file, is_folder
from poskernel_core.common.progress import Report
from poskernel_core.common.rounding import counted
from poskernel_core.common.shards import Shard, ShardTask
from poskernel_core.common.specs import Request, RunSpec
from poskernel_core.engine.requests import canonical
from poskernel_core.engine.shards import check_computes, merge, passes_of, run_here, tasks_of
from poskernel_core.storage.archive import open_sources
from poskernel_core.storage.store import Store

__all__ = ["merge_shards", "precompute"]

Hands = Callable[[Sequence[ShardTask], Store, Report], None]
"""Who computes shards: this process, its devices, or a cluster."""


def precompute(
    shard: Shard | None,
    shards: int | None,
    shard_files: Path | None,
    devices: tuple[str, ...] | None,
    cluster: str | None,
    experiments: bool,
    revisions: str | None,
    remove_weights: bool,
    **given: Any,
) -> None:
    """Compute what the pages show first: here, or shared by devices and machines.

    Args:
        shard: the one shard of every pass that this machine computes; nothing else is.
        shards: how many shards the passes are cut into.
        shard_files: a folder that shards are written to as files.
        devices: devices of this machine that share the shards.
        cluster: address of the Dask scheduler whose workers share them.
        experiments: also those on random tokens.
        revisions: checkpoints, which are not cut into shards.
        remove_weights: of checkpoints, too.
        given: the fields of :class:`Run`.

    Raises:
        PosKernelError: what went wrong, in one sentence.
    """
    _check(shard, shards, shard_files, devices, cluster)
    if (shard, shards, devices, cluster) == (None, None, None, None):
        actions.precompute(experiments, revisions, remove_weights, **given)
        return
    if revisions is not None or remove_weights:
        raise BadRequest(
            "--revisions is not cut into shards: give every machine checkpoints of its own."
        )
    run = Run(**given)
    if devices is not None:  # where the analyses run too
        run = replace(run, device=devices[0])
    asked, passes = _asked(run, experiments)
    if shard is not None:
        store, tasks = Store(), tasks_of(passes, [shard], run.execution(), shard_files)
        check_computes(store, tasks)
        run_here(tasks, store, print_line)
        print_line(0, 0, "")
        complain(f"shard {shard}: computed")
        return
    count, hands = _hands(shards, devices, cluster)
    tasks = tasks_of(passes, _all(count), run.execution(), shard_files)
    store = Store()
    check_computes(store, tasks)
    hands(tasks, store, print_line)
    _finish(run, store, [shard_files] if shard_files else [], count, asked, passes)


def merge_shards(sources: tuple[Path, ...], shards: int, experiments: bool, **given: Any) -> None:
    """Put the shards of a model's passes together and compute what the pages show first.

    Args:
        sources: exported files, folders of them and stores that hold shards, besides this store.
        shards: how many shards the passes were cut into.
        experiments: also those on random tokens.
        given: the fields of :class:`Run`.

    Raises:
        PosKernelError: what went wrong, in one sentence.
    """
    run = Run(**given)
    asked, passes = _asked(run, experiments)
    _finish(run, Store(), sources, shards, asked, passes)


def _check(
    shard: Shard | None,
    shards: int | None,
    shard_files: Path | None,
    devices: tuple[str, ...] | None,
    cluster: str | None,
) -> None:
    ways = {"--shard": shard, "--devices": devices, "--cluster": cluster}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise BadRequest(f"Give one of {' and '.join(given)}: each says who computes the shards.")
    if shard is not None and shards is not None:
        raise BadRequest(f"Give --shard {shard} or --shards {shards}, not both.")
    if shard_files is not None and shard is None and cluster is None:
        raise BadRequest("--shard-files is for --shard and --cluster: say which.")
    if shard_files is not None and not is_folder(shard_files):
        found = "a file" if is_file(shard_files) else "none"
        raise BadRequest(
            f"Expected a folder for the shards, found {found} at {str(shard_files)!r}: make one "
            "there first."
        )


def _hands(
    shards: int | None, devices: tuple[str, ...] | None, cluster: str | None
) -> tuple[int, Hands]:
    """Return how many shards there are, and who computes them."""
    if cluster is not None:
        from poskernel_core.engine.cluster import run_on_cluster, workers_of  # optional

        return shards or workers_of(cluster), partial(run_on_cluster, cluster)
    if devices is not None:
        from poskernel_core.engine.devices import run_on_devices

        return shards or len(devices), partial(run_on_devices, devices)
    return shards or 1, run_here


def _all(count: int) -> list[Shard]:
    return [Shard(number=number, of=count) for number in range(count)]


def _asked(run: Run, experiments: bool) -> tuple[list[tuple[str, Request]], list[RunSpec]]:
    """Return what the pages ask for first, and the passes that it stands on."""
    asked, standing = actions.asked_first(run, experiments), []
    for name, request in asked:
        with actions.or_left_out(name):
            found = canonical(request)
            passes_of([found])
            standing.append(found)
    return asked, passes_of(standing)


def _finish(
    run: Run,
    store: Store,
    sources: Sequence[Path],
    count: int,
    asked: Sequence[tuple[str, Request]],
    passes: Sequence[RunSpec],
) -> None:
    with open_sources(sources) as opened:
        merged = merge(store, opened, passes, count, print_line)
    print_line(0, 0, "")
    if merged:
        complain(f"{counted(count, 'shard')}: merged")
    else:
        complain("the statistics were in the store already: nothing was merged")
    actions.answer_all(run, asked)
